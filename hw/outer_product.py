"""Outer-product unit: every element of a column of A meets every element of a row of B in one cycle."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value

from .accumulator import settle
from .block import StreamBlock, delay_line, shape_of
from .parameters import OuterProductParameters


class OuterProductUnit(StreamBlock):
    """A grid of rows x cols multipliers and accumulators, fed by broadcast.

    ``C[m, n] = sum_k A[m, k] * B[k, n]``, one k per beat.

    Lane m of ``i_a`` is A[m, k]; lane n of ``i_b`` is B[k, n]. A beat is accepted when both operands are valid. The beat
    with ``last`` ends the pass: C leaves row by row (row 0 first, ``o_c.last`` with the final row) through a copy of the
    accumulators, while the next pass already accumulates from zero. A beat with ``last`` is held back while rows of the
    pass before would still be in the copy. The accumulator wraps or saturates after every beat.

    Parameters
    ----------
    parameters : OuterProductParameters

    Members
    -------
    i_a : In(stream), ``rows`` lanes
    i_b : In(stream), ``cols`` lanes
    o_c : Out(stream), ``cols`` lanes

    Latency
    -------
    3 cycles from ``last`` to row 0, then one row per cycle; ``last`` beats at least ``rows`` cycles apart.
    """

    def __init__(self, parameters: OuterProductParameters) -> None:
        super().__init__(parameters)
        self._p = parameters

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        en = self.enable(m)
        fire = self.fire_jointly(m, en, hold=self.hold_last(m, en))
        fire_1 = delay_line(m, en, fire, 1, "fire", keep_reset=True)[1]
        first_1 = delay_line(m, en, self.first_of_pass(m, fire), 1, "first")[1]
        copy = delay_line(m, en, fire & self.i_a.payload.last, 2, "copy", keep_reset=True)[2]
        grid = self._accumulators(m, en & fire_1, first_1)
        self._results(m, en, copy, grid)
        return m

    def _accumulators(self, m: Module, step: Value, first: Value) -> list[list[Signal]]:
        a = self._input_registers(m, self.i_a, "a")
        b = self._input_registers(m, self.i_b, "b")
        grid, steps = [], []
        for i in range(self._p.rows):
            row = [Signal(shape_of(self._p.acc), name=f"acc_{i}_{j}", reset_less=True) for j in range(self._p.cols)]
            for j, acc in enumerate(row):
                total = Mux(first, 0, acc) + a[i] * b[j]
                steps.append(acc.eq(settle(m, total, self._p.acc, self._p.overflow, name=f"exact_{i}_{j}")))
            grid.append(row)
        with m.If(step):
            m.d.sync += steps
        return grid

    def _input_registers(self, m: Module, port: Any, name: str) -> list[Signal]:
        lanes = [port.payload.data[lane] for lane in range(self._p.lanes_of(name))]
        registers = [Signal(lane.shape(), name=f"{name}_{index}", reset_less=True) for index, lane in enumerate(lanes)]
        with m.If(port.valid & port.ready):
            m.d.sync += [register.eq(lane) for register, lane in zip(registers, lanes, strict=True)]
        return registers

    def _results(self, m: Module, en: Value, copy: Value, grid: list[list[Signal]]) -> None:
        rows = self._p.rows
        out = [[Signal.like(acc, name=f"out_{i}_{j}", reset_less=True) for j, acc in enumerate(row)] for i, row in enumerate(grid)]
        left = Signal(range(rows + 1))
        m.d.comb += [
            self.o_c.valid.eq(left != 0),
            self.o_c.payload.last.eq(left == 1),
            *(self.o_c.payload.data[j].eq(value) for j, value in enumerate(out[0])),
        ]
        with m.If(en):
            with m.If(copy):
                m.d.sync += left.eq(rows)
                m.d.sync += [held.eq(acc) for held_row, row in zip(out, grid, strict=True) for held, acc in zip(held_row, row, strict=True)]
            with m.Elif(left != 0):
                m.d.sync += left.eq((left - 1)[: len(left)])
                m.d.sync += [upper.eq(lower) for above, below in pairwise(out) for upper, lower in zip(above, below, strict=True)]
