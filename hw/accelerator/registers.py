"""Memory-mapped command queue: an AXI4-Lite subordinate in front of the command stream."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import fifo, wiring
from amaranth.lib.wiring import In, Out

from ...intrinsics.accelerator.command import COMMAND_BITS
from .axi import ADDRESS_BITS, LITE_ADDRESS_BITS, lite_ports
from .register_map import COMMAND_WORDS, ID, IRQ, register_map

_ERROR_RESPONSE = 2
_LIMITS = {"limit_queue": (0, 8), "limit_outstanding": (16, 9)}


class CommandRegisters(wiring.Component):  # type: ignore[misc]
    """Registers of `register_map`; the last word of a command pushes it.

    No output depends on an input of the same cycle. A write takes two cycles; the one that would push into a full queue waits
    for room, so no command is lost. Unknown addresses, and the wrong direction, get an error response.

    Parameters
    ----------
    design_hash : str
        Hexadecimal.
    depth : int
        Commands in the queue.
    base : bool
        Whether the design is told where its memory image is.

    Members
    -------
    s_axi_* : AXI4-Lite
    command, command_valid, command_ready : the command stream
    running, waiting, count_cycles, count_beats, count_load_waits : In
        State of the accelerator.
    done, illegal, read_error, write_error : In(1)
        What raises a bit of IRQ_STATUS.
    irq : Out(1)
    limit_queue, limit_outstanding, base : Out
        Only change while nothing runs.
    """

    def __init__(self, *, design_hash: str, depth: int, base: bool) -> None:
        self.design_hash, self.depth = int(design_hash, 16), depth
        self.map = register_map(base=base)
        super().__init__(
            {
                **lite_ports(),
                "command": Out(COMMAND_BITS),
                "command_valid": Out(1),
                "command_ready": In(1),
                "running": In(1),
                "waiting": In(9),
                **{f"count_{name}": In(32) for name in ("cycles", "beats", "load_waits")},
                **{name: In(1) for name in IRQ},
                "irq": Out(1),
                **{name: Out(width) for name, (_, width) in _LIMITS.items()},
                "base": Out(ADDRESS_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        queue = m.submodules.queue = fifo.SyncFIFO(width=COMMAND_BITS, depth=self.depth)
        busy = Signal()
        kept = self._write(m, queue)
        status, programs = Signal(len(IRQ), name="status"), Signal(32, name="programs")
        events = Cat(getattr(self, name) for name in IRQ)
        cleared = Mux(self.writes["IRQ_STATUS"], self.merged(0), 0)
        m.d.sync += [status.eq((status & ~cleared) | events), programs.eq(programs + self.done)]
        m.d.comb += [
            busy.eq(self.running | queue.r_rdy),
            self.command.eq(queue.r_data),
            self.command_valid.eq(queue.r_rdy),
            queue.r_en.eq(self.command_ready),
            self.irq.eq((status & kept["IRQ_ENABLE"]).any()),
        ]
        with m.If(~busy):
            m.d.sync += [getattr(self, name).eq(kept["LIMITS"][bit : bit + width]) for name, (bit, width) in _LIMITS.items()]
            if "BASE_LOW" in kept:
                m.d.sync += self.base.eq(Cat(kept["BASE_LOW"], kept["BASE_HIGH"]))
        values: dict[str, Value] = {
            **kept,
            "ID": Const(ID, 32),
            "HASH_LOW": Const(self.design_hash & 0xFFFFFFFF, 32),
            "HASH_HIGH": Const(self.design_hash >> 32, 32),
            "STATUS": Cat(busy, status[0], status[1:].any(), Const(0, 13), self.waiting),
            "QUEUE": Cat((self.depth - queue.w_level)[:16], queue.w_level + Const(0, 16)),
            "IRQ_STATUS": status,
            "PROGRAMS": programs,
            "CYCLES": self.count_cycles,
            "BEATS": self.count_beats,
            "LOAD_WAITS": self.count_load_waits,
        }
        self._read(m, values)
        return m

    def merged(self, old: Value | int) -> Value:
        """A register's value after the present write, which may cover some bytes only."""
        mask = Cat(bit.replicate(8) for bit in self.strobe)
        return (self.data & mask) | (old & ~mask)

    def _write(self, m: Module, queue: fifo.SyncFIFO) -> dict[str, Signal]:
        """Address and data wait for each other; returns the registers that only keep what was written."""
        address, has_address, has_data, answered = (
            Signal(LITE_ADDRESS_BITS, name="address"),
            Signal(name="has_address"),
            Signal(name="has_data"),
            Signal(name="answered"),
        )
        self.data, self.strobe = Signal(32, name="data"), Signal(4, name="strobe")
        blocked, acts, known = Signal(name="blocked"), Signal(name="acts"), Signal(name="known")
        self.writes = {name: Signal(name=f"writes_{name.lower()}") for name, register in self.map.items() if register.writable}
        last = f"COMMAND_{COMMAND_WORDS - 1}"
        m.d.comb += [
            self.s_axi_awready.eq(~has_address),
            self.s_axi_wready.eq(~has_data),
            self.s_axi_bvalid.eq(answered),
            blocked.eq((address[2:] == self.map[last].offset >> 2) & ~queue.w_rdy),
            acts.eq(has_address & has_data & ~answered & ~blocked),
            *(hit.eq(acts & (address[2:] == self.map[name].offset >> 2)) for name, hit in self.writes.items()),
            known.eq(Cat(*self.writes.values()).any()),
        ]
        with m.If(self.s_axi_bready):
            m.d.sync += answered.eq(0)
        with m.If(self.s_axi_awvalid & ~has_address):
            m.d.sync += [has_address.eq(1), address.eq(self.s_axi_awaddr)]
        with m.If(self.s_axi_wvalid & ~has_data):
            m.d.sync += [has_data.eq(1), self.data.eq(self.s_axi_wdata), self.strobe.eq(self.s_axi_wstrb)]
        with m.If(acts):
            m.d.sync += [has_address.eq(0), has_data.eq(0), answered.eq(1), self.s_axi_bresp.eq(Mux(known, 0, _ERROR_RESPONSE))]
        kept = {}
        for name, hit in self.writes.items():
            if name == "IRQ_STATUS":
                continue
            kept[name] = Signal(32, name=f"kept_{name.lower()}")
            with m.If(hit):
                m.d.sync += kept[name].eq(self.merged(kept[name]))
        words = [kept.pop(f"COMMAND_{word}") for word in range(COMMAND_WORDS)]
        m.d.comb += [queue.w_en.eq(self.writes[last]), queue.w_data.eq(Cat(*words[:-1], self.merged(words[-1])))]
        return kept

    def _read(self, m: Module, values: dict[str, Value]) -> None:
        full = Signal()
        m.d.comb += [self.s_axi_arready.eq(~full), self.s_axi_rvalid.eq(full)]
        with m.If(full & self.s_axi_rready):
            m.d.sync += full.eq(0)
        with m.If(self.s_axi_arvalid & ~full):
            m.d.sync += [full.eq(1), self.s_axi_rdata.eq(0), self.s_axi_rresp.eq(_ERROR_RESPONSE)]
            with m.Switch(self.s_axi_araddr[2:]):
                for name, register in self.map.items():
                    if register.readable:
                        with m.Case(register.offset >> 2):
                            m.d.sync += [self.s_axi_rdata.eq(values[name]), self.s_axi_rresp.eq(0)]
