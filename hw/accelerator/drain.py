"""Drain: adds the rows that leave the core to the accumulator memory."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, fifo, wiring
from amaranth.lib.wiring import In, Out

from ...intrinsics.accelerator.machine import AcceleratorMachine, ceil_div
from .sequencer import DRAIN


class Drain(wiring.Component):  # type: ignore[misc]
    """Read, add, write: a row that is valid in one cycle is written in the next.

    Parameters
    ----------
    machine : AcceleratorMachine

    Members
    -------
    command, command_valid : In
        A compute command begins.
    row, row_valid : In
        ``cols`` sums.
    read_address, read_data, write, write_address, write_data : the accumulator memory
    done : Out(1)
        The last row of a command is being written.
    """

    def __init__(self, machine: AcceleratorMachine) -> None:
        self.machine = machine
        word = machine.cols * machine.acc.width
        super().__init__(
            {
                "command": In(DRAIN),
                "command_valid": In(1),
                "row": In(word),
                "row_valid": In(1),
                "read_address": Out(16),
                "read_data": In(word),
                "write": Out(1),
                "write_address": Out(16),
                "write_data": Out(word),
                "done": Out(1),
            }
        )

    @property
    def in_flight(self) -> int:
        """Most compute commands between their start and their last row written."""
        machine = self.machine
        return ceil_div(machine.tail(machine.min_interval) + 1, machine.min_interval + 1) + 2

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        queue = m.submodules.queue = fifo.SyncFIFO(width=len(self.command.as_value()), depth=self.in_flight)
        command = data.View(DRAIN, queue.r_data)
        end, last = Signal(name="end"), Signal(name="last")
        accumulate = Signal()
        m.d.comb += [queue.w_data.eq(self.command), queue.w_en.eq(self.command_valid), queue.r_en.eq(end)]
        address, again = self._walk(m, command, end)
        row, adds = Signal.like(self.row, reset_less=True), Signal(name="adds")
        m.d.comb += [accumulate.eq(command.accumulate | again), self.read_address.eq(address)]
        m.d.sync += [self.write.eq(self.row_valid), last.eq(end), self.write_address.eq(address), adds.eq(accumulate)]
        with m.If(self.row_valid):
            m.d.sync += row.eq(self.row)
        width = self.machine.acc.width
        sums = [(row.word_select(j, width) + Mux(adds, self.read_data.word_select(j, width), 0))[:width] for j in range(self.machine.cols)]
        m.d.comb += [self.write_data.eq(Cat(*sums)), self.done.eq(last)]
        return m

    def _walk(self, m: Module, command: Any, end: Signal) -> tuple[Value, Value]:
        """Address of the row, and whether an earlier pass of the command has already written it."""
        r, i, j = Signal(16, name="r"), Signal(12, name="i"), Signal(12, name="j")
        block, address = Signal(16, name="block"), Signal(16, name="address")
        rows = command.k_units if self.machine.weight_stationary else self.machine.rows
        last_r, last_i, last_j = (Signal(name=name) for name in ("last_r", "last_i", "last_j"))
        m.d.comb += [
            last_r.eq(r == rows - 1),
            last_i.eq(i == command.m_blocks - 1),
            last_j.eq(j == command.n_blocks - 1),
            end.eq(self.row_valid & last_r & last_i & last_j),
            address.eq(command.c + block + r),
        ]
        inner, outer, wraps, ends = (i, j, last_i, last_j) if self.machine.weight_stationary else (j, i, last_j, last_i)
        with m.If(self.row_valid):
            m.d.sync += r.eq(Mux(last_r, 0, r + 1))
        with m.If(self.row_valid & last_r):
            m.d.sync += inner.eq(Mux(wraps, 0, inner + 1))
            if not self.machine.weight_stationary:
                m.d.sync += block.eq(block + rows)
        with m.If(self.row_valid & last_r & wraps):
            m.d.sync += outer.eq(Mux(ends, 0, outer + 1))
            if self.machine.weight_stationary:
                m.d.sync += block.eq(block + rows)
        with m.If(end):
            m.d.sync += block.eq(0)
        return address, (i != 0) if self.machine.weight_stationary else Const(0, 1)
