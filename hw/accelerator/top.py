"""The accelerator: dispatcher, loader, scratchpads, sequencer, core, drain, accumulator memory and store path, wired together."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, fifo, wiring
from amaranth.lib.wiring import In, Out

from ...intrinsics.accelerator.command import COMMAND_BITS, Register, Target
from .datapath import LOADED, SEQUENCED, Datapath
from .dispatcher import Dispatcher, writes_register
from .memories import scratch_memory
from .packer import Packer, loaded_words
from .parameters import AcceleratorParameters
from .sequencer import Sequencer, StationaryOutputs, StationaryWeights
from .store import StoreUnit
from .walker import Walker, least, tag_layout

EVENTS = ("load_pop", "compute_pop", "store_pop", "load_done", "read_done", "write_done", "store_done")
"""Bits of ``events``: a command leaves its queue; a command's memory data, scratchpad reads, accumulator rows, memory writes are done."""

_SHELL = {
    "read_length": Out(9),
    "write_length": Out(9),
    "write_pending": In(1),
    "illegal": Out(1),
    "running": Out(1),
}


class Accelerator(wiring.Component):  # type: ignore[misc]
    """A complete accelerator with a native memory port.

    Parameters
    ----------
    parameters : AcceleratorParameters
    shelled : bool
        Also have the members that a shell around the accelerator needs.

    Members
    -------
    command, command_valid, command_ready : 256-bit command stream
    limit_queue, limit_outstanding : In
        Lower queue depth and reads in flight while the design runs; 0 leaves them as built.
    read_valid, read_ready, read_address, response_valid, response_data : read channel
        Data come in the order of the requests and are always taken. Addresses count beats.
    write_valid, write_ready, write_address, write_data, write_mask : write channel
    done : Out(1)
        END was accepted; ``irq`` stays high from the next cycle on until ``irq_clear``.
    error : Out(1)
        An illegal command was dropped.
    waiting : Out(9)
        Counters (loads, computes, stores) that hold back the heads of the load, compute and store queues.
    count_cycles, count_beats, count_load_waits : Out(32)
        Of the present or last program: cycles from its first command to the end, array beats, and cycles in which the next
        compute waits for a load.
    events : Out(7)
        One bit per name in `EVENTS`.
    read_length, write_length : Out(9), with ``shelled``
        Beats from the present one on that lie one behind the other and will be requested, or written, without a gap.
    write_pending : In(1), with ``shelled``
        A write is not yet confirmed; SET and END wait.
    illegal, running : Out(1), with ``shelled``
        An illegal command is being dropped; a program has begun and not ended.
    """

    def __init__(self, parameters: AcceleratorParameters, *, shelled: bool = False) -> None:
        self.parameters, self.shelled = parameters, shelled
        self.machine = parameters.accelerator_machine("")
        width = parameters.port_bytes
        super().__init__(
            {
                "command": In(COMMAND_BITS),
                "command_valid": In(1),
                "command_ready": Out(1),
                "limit_queue": In(8),
                "limit_outstanding": In(9),
                "read_valid": Out(1),
                "read_ready": In(1),
                "read_address": Out(32),
                "response_valid": In(1),
                "response_data": In(8 * width),
                "write_valid": Out(1),
                "write_ready": In(1),
                "write_address": Out(32),
                "write_data": Out(8 * width),
                "write_mask": Out(width),
                "done": Out(1),
                "irq": Out(1),
                "irq_clear": In(1),
                "error": Out(1),
                "waiting": Out(9),
                **{f"count_{name}": Out(32) for name in ("cycles", "beats", "load_waits")},
                "events": Out(len(EVENTS)),
                **(_SHELL if shelled else {}),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        machine = self.machine
        dispatcher = m.submodules.dispatcher = Dispatcher(machine)
        sequencer = m.submodules.sequencer = (StationaryWeights if machine.weight_stationary else StationaryOutputs)(machine)
        datapath = m.submodules.datapath = Datapath(self.parameters)
        store = m.submodules.store = StoreUnit(machine)
        packer = self._loader(m, dispatcher, store)
        self._store_memories(m, packer, store)
        m.d.comb += [
            dispatcher.command.eq(self.command),
            dispatcher.command_valid.eq(self.command_valid),
            self.command_ready.eq(dispatcher.command_ready),
            dispatcher.limit.eq(self.limit_queue),
            sequencer.head.eq(dispatcher.compute_head),
            sequencer.valid.eq(dispatcher.compute_valid),
            dispatcher.compute_pop.eq(sequencer.pop),
            *(getattr(datapath, name).eq(getattr(sequencer, name)) for name in SEQUENCED),
            *(getattr(datapath, name).eq(getattr(packer, name)) for name in LOADED),
            datapath.address.eq(store.address),
            datapath.enable.eq(store.enable),
            store.data.eq(datapath.data),
            dispatcher.reads_done.eq(sequencer.done),
            dispatcher.writes_done.eq(datapath.done),
            dispatcher.stores_done.eq(store.done),
            self.events.eq(
                Cat(dispatcher.dma_pop, sequencer.pop, store.pop, dispatcher.loads_done, sequencer.done, datapath.done, store.done)
            ),
        ]
        self._status(m, dispatcher)
        active = self._count(m, dispatcher, sequencer)
        if self.shelled:
            m.d.comb += [self.running.eq(active), self.illegal.eq(dispatcher.illegal), dispatcher.pending.eq(self.write_pending)]
            m.d.comb += self.write_length.eq(store.out_length)
        return m

    def _count(self, m: Module, dispatcher: Dispatcher, sequencer: Sequencer) -> Signal:
        active = Signal()
        begins = self.command_valid & self.command_ready & ~active
        m.d.sync += active.eq((active | begins) & ~self.done)
        waits_for_load = dispatcher.waiting[3]
        for counter, event in ((self.count_cycles, 1), (self.count_beats, sequencer.a_beat), (self.count_load_waits, waits_for_load)):
            with m.If(begins):
                m.d.sync += counter.eq(event)
            with m.Elif(active):
                m.d.sync += counter.eq(counter + event)
        return active

    def _status(self, m: Module, dispatcher: Dispatcher) -> None:
        m.d.comb += [self.done.eq(dispatcher.done), self.error.eq(dispatcher.error), self.waiting.eq(dispatcher.waiting)]
        with m.If(self.done):
            m.d.sync += self.irq.eq(1)
        with m.Elif(self.irq_clear):
            m.d.sync += self.irq.eq(0)

    def _loader(self, m: Module, dispatcher: Dispatcher, store: StoreUnit) -> Packer:
        """Loader and store path on the memory port; a shared port changes hands between commands only."""
        machine, width = self.machine, self.machine.port_bytes
        banks = {target: machine.memory_of(target)[0] for target in machine.targets}
        walker = m.submodules.walker = Walker(port_bytes=width, banks=banks)
        packer = m.submodules.packer = Packer(port_bytes=width, words=loaded_words(machine))
        tags = m.submodules.tags = fifo.SyncFIFO(width=len(walker.tag.as_value()), depth=machine.outstanding)
        tag = data.View(tag_layout(width), tags.r_data)
        limit = Signal(9)
        room, arrived, beat = Signal(name="room"), Signal(name="arrived"), Signal(8 * width, reset_less=True, name="beat")
        m.d.sync += arrived.eq(self.response_valid)
        with m.If(self.response_valid):
            m.d.sync += beat.eq(self.response_data)
        with m.If((self.limit_outstanding == 0) | (self.limit_outstanding > machine.outstanding)):
            m.d.comb += limit.eq(machine.outstanding)
        with m.Else():
            m.d.comb += limit.eq(self.limit_outstanding)
        m.d.comb += [
            walker.set_word.eq(self.command),
            walker.set_register.eq(Cat(writes_register(dispatcher, Register(target)) for target in machine.targets)),
            walker.head.eq(dispatcher.dma_head),
            walker.start.eq(dispatcher.dma_valid & ~walker.running & (1 if machine.split else ~store.busy)),
            dispatcher.dma_pop.eq(walker.start),
            room.eq(tags.level < limit),
            self.read_valid.eq(walker.running & room),
            self.read_address.eq(walker.address),
            walker.step.eq(self.read_valid & self.read_ready),
            tags.w_en.eq(walker.step),
            tags.w_data.eq(walker.tag.as_value()),
            tags.r_en.eq(arrived),
            packer.valid.eq(arrived),
            packer.beat.eq(beat),
            packer.tag.eq(tag),
            packer.zero.eq(walker.zero),
            dispatcher.loads_done.eq(arrived & tag.end),
            store.set_word.eq(self.command),
            store.set_register.eq(writes_register(dispatcher, Register.STORE)),
            store.head.eq(dispatcher.store_head),
            store.valid.eq(dispatcher.store_valid),
            store.free.eq(1 if machine.split else ~walker.running),
            dispatcher.store_pop.eq(store.pop),
            self.write_valid.eq(store.out_valid),
            store.out_ready.eq(self.write_ready),
            self.write_address.eq(store.out_address),
            self.write_data.eq(store.out_data),
            self.write_mask.eq(store.out_mask),
        ]
        if self.shelled:
            places = Signal(9)
            m.d.comb += [places.eq(limit - tags.level), self.read_length.eq(least(walker.length, places))]
        return packer

    def _store_memories(self, m: Module, packer: Packer, store: StoreUnit) -> None:
        """Biases and multipliers, and residuals: written by the loader, read beside the accumulator memory."""
        machine = self.machine
        if machine.requantizes:
            target, size = Target.CHANNELS, machine.port_bytes
            for bank in range(machine.channel_word // size):
                here = (packer.write_target == target) & (packer.write_part == bank)
                data = _store_memory(m, f"channels_{bank}", size, machine.channel_words, packer, here, store.channel, store.enable)
                m.d.comb += store.channel_data.word_select(bank, 8 * size).eq(data)
        if machine.adds_residuals:
            here = packer.write_target == Target.RESIDUAL
            data = _store_memory(m, "residuals", machine.cols, machine.residual_words, packer, here, store.residual, store.enable)
            m.d.comb += store.residual_data.eq(data)


def _store_memory(m: Module, name: str, size: int, words: int, packer: Packer, here: Value, address: Value, enable: Value) -> Value:
    """A memory of words of ``size`` bytes that the loader writes when ``here``; returns what is read at ``address``."""
    memory = m.submodules[name] = scratch_memory(bits=8 * size, depth=words)
    write, read = memory.write_port(), memory.read_port()
    m.d.comb += [
        write.en.eq(packer.write & here),
        write.addr.eq(packer.write_address),
        write.data.eq(packer.write_data[: 8 * size]),
        read.addr.eq(address),
        read.en.eq(enable),
    ]
    return read.data
