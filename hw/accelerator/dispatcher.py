"""Dispatcher: takes commands in order, checks them, and puts them into the queues of the engines."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import fifo, wiring
from amaranth.lib.wiring import In, Out

from ...intrinsics.accelerator.command import COMMAND_BITS, COUNTER_BITS, FIELDS, REGISTER_SIZES, SIZES, Op, Register
from ...intrinsics.accelerator.machine import AcceleratorMachine
from .fields import command_view, register_view

COUNTERS = ("loads", "reads", "writes", "stores")
"""Completion counters: loads done, computes that finished reading, computes written, stores done."""

_QUEUES = {Op.LOAD: "dma", Op.COMPUTE: "compute", Op.STORE: "store"}


class Dispatcher(wiring.Component):  # type: ignore[misc]
    """In-order dispatch with completion counters.

    Parameters
    ----------
    machine : AcceleratorMachine
        With ``split``, stores have a queue of their own; else they share that of the loads.

    Members
    -------
    command, command_valid, command_ready : the command stream
    limit : In(8)
        Commands per queue, at most ``queue_depth``; 0 is ``queue_depth``.
    <queue>_head, <queue>_valid, <queue>_pop : the heads of the queues ``dma``, ``compute``, ``store``
        ``valid`` already includes the awaited counters and the operation code.
    <counter>_done : In(1), for each of `COUNTERS`
    set_valid, done, error, waiting : Out
        A configuration register is written with ``command``; END was accepted; an illegal command was seen since the last
        reset; the awaited counters (loads, computes, stores) that hold back each queue.
    illegal : Out(1)
        An illegal command is being dropped.
    pending : In(1)
        Memory has not yet confirmed a write; SET and END wait for that.
    """

    def __init__(self, machine: AcceleratorMachine) -> None:
        self.machine, self.queue_depth, self.split = machine, machine.queue_depth, machine.split
        queues: dict[str, Any] = {}
        for name in ("dma", "compute", "store"):
            queues |= {f"{name}_head": Out(COMMAND_BITS), f"{name}_valid": Out(1), f"{name}_pop": In(1)}
        super().__init__(
            {
                "command": In(COMMAND_BITS),
                "command_valid": In(1),
                "command_ready": Out(1),
                "limit": In(8),
                **queues,
                **{f"{name}_done": In(1) for name in COUNTERS},
                "set_valid": Out(1),
                "done": Out(1),
                "error": Out(1),
                "waiting": Out(9),
                "illegal": Out(1),
                "pending": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        counters = {name: Signal(COUNTER_BITS, name=name) for name in COUNTERS}
        for name, counter in counters.items():
            m.d.sync += counter.eq(counter + getattr(self, f"{name}_done"))
        issued = {op: Signal(COUNTER_BITS, name=f"issued_{op.name.lower()}") for op in _QUEUES}
        idle = Signal()
        m.d.comb += idle.eq(
            ~self.pending
            & (issued[Op.LOAD] == counters["loads"])
            & (issued[Op.COMPUTE] == counters["writes"])
            & (issued[Op.STORE] == counters["stores"])
        )
        queues = self._queues(m)
        self._heads(m, queues, counters, self._void(m, queues, counters, issued))
        self._accept(m, queues, issued, idle)
        with m.If(self.done):
            m.d.sync += [counter.eq(0) for counter in (*counters.values(), *issued.values())]
        return m

    def _queues(self, m: Module) -> dict[str, fifo.SyncFIFO]:
        queues: dict[str, Any] = {}
        for name in ("dma", "compute", *(("store",) if self.split else ())):
            queues[name] = m.submodules[f"queue_{name}"] = fifo.SyncFIFO(width=COMMAND_BITS, depth=self.queue_depth)
            m.d.comb += queues[name].w_data.eq(self.command)
        queues.setdefault("store", queues["dma"])
        return queues

    def _void(self, m: Module, queues: dict[str, fifo.SyncFIFO], counters: dict[str, Signal], issued: dict[Op, Signal]) -> Signal:
        """High when a program that lost an illegal command could not go on: until END nothing waits any more, so END comes."""
        void, stuck, ahead = Signal(name="void"), Signal(name="stuck"), Signal(COUNTER_BITS, name="unfinished")
        waits = Signal(COUNTER_BITS, name="queued")
        m.d.comb += [
            ahead.eq(_total(issued.values()) - _total(counters[name] for name in ("loads", "writes", "stores"))),
            waits.eq(_total(queue.level for queue in dict.fromkeys(queues.values()))),
            stuck.eq(
                self.error
                & self.command_valid
                & ~self.command_ready
                & (ahead == waits)  # no engine is at work
                & ~(self.dma_valid | self.compute_valid | self.store_valid)
                & self.waiting.any()
            ),
        ]
        with m.If(self.done):
            m.d.sync += void.eq(0)
        with m.Elif(stuck):
            m.d.sync += void.eq(1)
        return void

    def _heads(self, m: Module, queues: dict[str, fifo.SyncFIFO], counters: dict[str, Signal], void: Signal) -> None:
        waiting = []
        for op, name in _QUEUES.items():
            head = queues[name].r_data
            kind = queues[name].r_rdy & (head[:3] == op)
            held = [~void & bit for bit in self._held(head, counters, "reads" if op is Op.LOAD else "writes")]
            waiting += [kind & bit for bit in held]
            m.d.comb += [getattr(self, f"{name}_head").eq(head), getattr(self, f"{name}_valid").eq(kind & ~Cat(held).any())]
        m.d.comb += self.waiting.eq(Cat(waiting))
        for name in ("dma", "compute", "store") if self.split else ("compute",):
            m.d.comb += queues[name].r_en.eq(getattr(self, f"{name}_pop"))
        if not self.split:
            m.d.comb += queues["dma"].r_en.eq(self.dma_pop | self.store_pop)

    def _held(self, head: Value, counters: dict[str, Signal], computes: str) -> list[Value]:
        """Which of the three awaited counters are behind; the comparison is modulo 2**12."""
        common = command_view(head, Op.END)
        pairs = (("wait_load", "loads"), ("wait_compute", computes), ("wait_store", "stores"))
        held = []
        for position, (field, counter) in enumerate(pairs):
            ahead = (counters[counter] - common[field])[:COUNTER_BITS]
            held.append(common["wait"][position] & ahead[-1])
        return held

    def _accept(self, m: Module, queues: dict[str, fifo.SyncFIFO], issued: dict[Op, Signal], idle: Signal) -> None:
        limit, op, configured = Signal(8, name="limit"), self.command[:3], Signal(1 << REGISTER_FIELD.width, name="configured")
        m.d.comb += limit.eq(Mux((self.limit == 0) | (self.limit > self.queue_depth), self.queue_depth, self.limit))
        with m.If(self.command_valid), m.Switch(op):
            for kind, name in _QUEUES.items():
                with m.Case(kind):
                    queue, fields = queues[name], command_view(self.command, kind)
                    room = queue.w_rdy & (queue.w_level < limit)
                    wrong = Signal(name=f"illegal_{name}")
                    m.d.comb += wrong.eq(Cat(*self._faults(kind, fields, configured)).any())
                    m.d.comb += [self.illegal.eq(wrong), self.command_ready.eq(room | wrong), queue.w_en.eq(room & ~wrong)]
                    m.d.sync += issued[kind].eq(issued[kind] + (room & ~wrong))
            with m.Case(Op.SET):
                wrong = self._illegal_register(m)
                m.d.comb += [self.illegal.eq(wrong), self.command_ready.eq(idle | wrong), self.set_valid.eq(idle & ~wrong)]
                with m.If(self.set_valid):
                    m.d.sync += configured.bit_select(_register(self.command), 1).eq(1)
            with m.Case(Op.END):
                m.d.comb += [self.command_ready.eq(idle), self.done.eq(idle)]
            with m.Default():
                m.d.comb += [self.command_ready.eq(1), self.illegal.eq(1)]
        with m.If(self.illegal):
            m.d.sync += self.error.eq(1)

    def _faults(self, kind: Op, fields: dict[str, Value], configured: Signal) -> list[Value]:
        """What makes a command illegal; only a legal register is ever configured, so only a legal target."""
        machine = self.machine
        faults: list[Value] = [fields[size] == 0 for size in SIZES[kind]]
        if kind is Op.LOAD:
            faults += [~configured.bit_select(fields["target"], 1), fields["beats"] == fields["spare"]]
            for target in machine.targets:
                faults.append((fields["target"] == target) & _beyond(fields["spad"], machine.memory_of(target)[1]))
        elif kind is Op.STORE:
            faults += [~configured[Register.STORE], _beyond(fields["c"], machine.acc_rows)]
        else:
            places = (("a", machine.a_words), ("b", machine.b_words), ("c", machine.acc_rows))
            faults += [_beyond(fields[name], words) for name, words in places]
            if not machine.broadcast:
                faults.append(fields["vector"])
        return faults

    def _illegal_register(self, m: Module) -> Signal:
        """Whether a SET names a register that the design lacks, a size of zero, or arithmetic that the store path lacks."""
        illegal = Signal(name="illegal_register")
        with m.Switch(_register(self.command)):
            for register in self.machine.registers:
                fields = register_view(self.command, register)
                faults = [fields[size] == 0 for size in REGISTER_SIZES[register]]
                if register is Register.STORE and not self.machine.requantizes:
                    faults += [fields["narrow"], fields["bias"]]
                if register is Register.STORE and not self.machine.adds_residuals:
                    faults.append(fields["residual"])
                with m.Case(register):
                    m.d.comb += illegal.eq(Cat(*faults).any())
            with m.Default():
                m.d.comb += illegal.eq(1)
        return illegal


def _total(values: Iterable[Value]) -> Value:
    """A sum as wide as a counter."""
    return reduce(lambda total, value: (total + value)[:COUNTER_BITS], values)


def _beyond(address: Value, words: int) -> Value:
    """Whether an address is outside of a memory."""
    return address >= words if words < 1 << len(address) else Const(0)


REGISTER_FIELD = FIELDS[Op.SET]["register"]


def _register(command: Value) -> Value:
    return command[REGISTER_FIELD.offset : REGISTER_FIELD.offset + REGISTER_FIELD.width]


def writes_register(dispatcher: Dispatcher, register: Register) -> Value:
    """High while the dispatcher writes this configuration register."""
    return dispatcher.set_valid & (_register(dispatcher.command) == register)
