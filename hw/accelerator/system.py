"""The accelerator with the memory bus and the command input that its parameters choose."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..design_point import DesignPoint
from .axi import ADDRESS_BITS, lite_ports, read_ports, write_ports
from .axi_read import AxiReader
from .axi_write import AxiWriter
from .parameters import AcceleratorParameters
from .registers import CommandRegisters
from .top import Accelerator

_COMMANDS = ("command", "command_valid", "command_ready", "limit_queue", "limit_outstanding", "irq_clear")
_COUNTS = ("count_cycles", "count_beats", "count_load_waits")
_READS = ("read_valid", "read_ready", "read_address", "response_valid", "response_data")
_WRITES = ("write_valid", "write_ready", "write_address", "write_data", "write_mask")
_STATE = ("done", "irq", "error", "waiting", "events")


def accelerator(parameters: AcceleratorParameters) -> wiring.Component:
    """The component of these parameters: the bare accelerator, or one inside the shells that they ask for."""
    machine = parameters.accelerator_machine("")
    return AcceleratorSystem(parameters) if machine.axi or machine.mapped else Accelerator(parameters)


class AcceleratorSystem(wiring.Component):  # type: ignore[misc]
    """An accelerator inside its shells.

    Parameters
    ----------
    parameters : AcceleratorParameters

    Members
    -------
    m_axi_* : AXI4
        In place of the native memory port, with ``bus`` axi4. Only 4 KiB aligned images; the low bits of the base do not count.
    memory_base : In(64)
        Byte address of the memory image, stable while a program runs; a register with ``commands`` registers.
    s_axi_* : AXI4-Lite
        In place of command stream, limits, counters and ``irq_clear``, with ``commands`` registers.
    done, irq, error, waiting, events : Out
        As those of `Accelerator`; ``error`` also after an error response of the memory.
    """

    def __init__(self, parameters: AcceleratorParameters) -> None:
        self.parameters, self.machine = parameters, parameters.accelerator_machine("")
        self.core = Accelerator(parameters, shelled=True)
        own = self.core.signature.members
        ports: dict[str, Any] = {}
        if self.machine.mapped:
            ports |= lite_ports()
        else:
            ports |= {name: own[name] for name in (*_COMMANDS, *_COUNTS)}
        if self.machine.axi:
            ports |= {} if self.machine.mapped else {"memory_base": In(ADDRESS_BITS)}
            ports |= read_ports(parameters.port_bytes) | write_ports(parameters.port_bytes)
        else:
            ports |= {name: own[name] for name in (*_READS, *_WRITES)}
        super().__init__({**ports, **{name: own[name] for name in _STATE}})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        core = m.submodules.accelerator = self.core
        base, errors = Signal(ADDRESS_BITS, name="base"), {"read": Signal(name="read_error"), "write": Signal(name="write_error")}
        failed = Signal()
        m.d.sync += failed.eq(failed | errors["read"] | errors["write"])
        m.d.comb += [getattr(self, name).eq(getattr(core, name)) for name in ("done", "waiting", "events")]
        m.d.comb += self.error.eq(core.error | failed)
        if self.machine.axi:
            self._bus(m, base, errors)
        else:
            self._pass(m, (*_READS, *_WRITES))
        if self.machine.mapped:
            self._registers(m, base, errors)
        else:
            self._pass(m, (*_COMMANDS, *_COUNTS))
            m.d.comb += self.irq.eq(core.irq)
            if self.machine.axi:
                m.d.comb += base.eq(self.memory_base)
        return m

    def _pass(self, m: Module, names: tuple[str, ...]) -> None:
        """Ports of the accelerator that stay as they are."""
        for name in names:
            inner, outer = getattr(self.core, name), getattr(self, name)
            m.d.comb += outer.eq(inner) if self.signature.members[name].flow is Out else inner.eq(outer)

    def _bus(self, m: Module, base: Signal, errors: dict[str, Signal]) -> None:
        core, width = self.core, self.parameters.port_bytes
        reader = m.submodules.reader = AxiReader(port_bytes=width)
        writer = m.submodules.writer = AxiWriter(port_bytes=width)
        m.d.comb += [
            reader.base.eq(base),
            reader.valid.eq(core.read_valid),
            core.read_ready.eq(reader.ready),
            reader.address.eq(core.read_address),
            reader.length.eq(core.read_length),
            core.response_valid.eq(reader.response_valid),
            core.response_data.eq(reader.response_data),
            errors["read"].eq(reader.error),
            writer.base.eq(base),
            writer.valid.eq(core.write_valid),
            core.write_ready.eq(writer.ready),
            writer.address.eq(core.write_address),
            writer.data.eq(core.write_data),
            writer.mask.eq(core.write_mask),
            writer.length.eq(core.write_length),
            core.write_pending.eq(writer.pending),
            errors["write"].eq(writer.error),
        ]
        for shell, ports in ((reader, read_ports(width)), (writer, write_ports(width))):
            for name, member in ports.items():
                inner, outer = getattr(shell, name), getattr(self, name)
                m.d.comb += outer.eq(inner) if member.flow is Out else inner.eq(outer)

    def _registers(self, m: Module, base: Signal, errors: dict[str, Signal]) -> None:
        core, parameters = self.core, self.parameters
        registers = m.submodules.registers = CommandRegisters(
            design_hash=DesignPoint("accelerator", parameters).hash, depth=parameters.queue_depth, base=self.machine.axi
        )
        m.d.comb += [
            core.command.eq(registers.command),
            core.command_valid.eq(registers.command_valid),
            registers.command_ready.eq(core.command_ready),
            core.limit_queue.eq(registers.limit_queue),
            core.limit_outstanding.eq(registers.limit_outstanding),
            base.eq(registers.base),
            registers.running.eq(core.running),
            registers.done.eq(core.done),
            registers.illegal.eq(core.illegal),
            *(getattr(registers, f"{name}_error").eq(error) for name, error in errors.items()),
            *(getattr(registers, name).eq(getattr(core, name)) for name in ("waiting", *_COUNTS)),
            self.irq.eq(registers.irq),
        ]
        for name, member in lite_ports().items():
            inner, outer = getattr(registers, name), getattr(self, name)
            m.d.comb += outer.eq(inner) if member.flow is Out else inner.eq(outer)
