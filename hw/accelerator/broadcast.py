"""Broadcast core: every operand reaches its row or column of multipliers at once."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...intrinsics import Overflow
from ...intrinsics.accelerator.machine import AcceleratorMachine
from ..accumulator import settle
from ..block import shape_of


class BroadcastCore(wiring.Component):  # type: ignore[misc]
    """``C[m, n] += sum_l A[m, l] * B[n, l]`` per beat; in vector mode ``C[m, n] += A[m, n] * B[n, 0]``.

    One lane is an outer product, one row with many lanes a dot-product unit. A beat in cycle x is added in x + 1; the
    pass that ends with it leaves row by row from x + 2 on.

    Parameters
    ----------
    machine : AcceleratorMachine

    Members
    -------
    valid, last : In(1)
    a_units, b_units : In
        ``rows`` and ``cols`` units.
    a_words, vector : In
        ``rows`` words of which the first ``cols`` elements feed the columns in vector mode.
    row, row_valid : Out
    """

    def __init__(self, machine: AcceleratorMachine) -> None:
        self.machine = machine
        super().__init__(
            {
                "valid": In(1),
                "last": In(1),
                "vector": In(1),
                "a_units": In(8 * machine.a_unit * machine.rows),
                "b_units": In(8 * machine.b_unit * machine.cols),
                "a_words": In(8 * machine.a_word * machine.rows),
                "row": Out(machine.acc.width * machine.cols),
                "row_valid": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        machine = self.machine
        fire, last, first, vector = Signal(name="fire"), Signal(name="last"), Signal(init=1, name="first"), Signal(name="vector")
        m.d.sync += [fire.eq(self.valid), last.eq(self.valid & self.last), vector.eq(self.vector)]
        with m.If(fire):
            m.d.sync += first.eq(last)
        a, b = self._operands(m)
        out = [
            [Signal(shape_of(machine.acc), name=f"out_{i}_{j}", reset_less=True) for j in range(machine.cols)] for i in range(machine.rows)
        ]
        steps, chain = [], []
        for i in range(machine.rows):
            for j in range(machine.cols):
                acc = Signal(shape_of(machine.acc), name=f"acc_{i}_{j}", reset_less=True)
                total = Signal(shape_of(machine.acc), name=f"total_{i}_{j}")
                exact = Mux(first, 0, acc) + self._product(a[i], b[j], vector, j)
                m.d.comb += total.eq(settle(m, exact, machine.acc, Overflow.WRAP, name=f"exact_{i}_{j}"))
                steps.append(acc.eq(total))
                chain.append(out[i][j].eq(Mux(last, total, out[i + 1][j] if i + 1 < machine.rows else out[i][j])))
        with m.If(fire):
            m.d.sync += steps
        left = Signal(range(machine.rows + 1))
        m.d.sync += left.eq(Mux(last, machine.rows, Mux(left == 0, 0, left - 1)))
        with m.If(last | (left != 0)):
            m.d.sync += chain
        m.d.comb += [self.row_valid.eq(left != 0)]
        m.d.comb += [self.row.word_select(j, machine.acc.width).eq(out[0][j]) for j in range(machine.cols)]
        return m

    def _operands(self, m: Module) -> tuple[list[Signal], list[Signal]]:
        """Registered operands; in vector mode a row takes its whole word."""
        machine = self.machine
        unit_a, unit_b, word = 8 * machine.a_unit, 8 * machine.b_unit, 8 * machine.a_word
        used = max(unit_a, min(word, 8 * machine.a_bytes * machine.cols) if self.has_vector else 0)
        a = [Signal(used, name=f"a_{i}", reset_less=True) for i in range(machine.rows)]
        b = [Signal(unit_b, name=f"b_{j}", reset_less=True) for j in range(machine.cols)]
        with m.If(self.valid):
            for i, operand in enumerate(a):
                unit, whole = self.a_units.word_select(i, unit_a), self.a_words.word_select(i, word)[:used]
                m.d.sync += operand.eq(Mux(self.vector, whole, unit) if self.has_vector else unit)
            m.d.sync += [operand.eq(self.b_units.word_select(j, unit_b)) for j, operand in enumerate(b)]
        return a, b

    @property
    def has_vector(self) -> bool:
        """Whether a word has an element for every column."""
        return self.machine.a_word >= self.machine.cols * self.machine.a_bytes

    def _product(self, a: Signal, b: Signal, vector: Signal, column: int) -> Value:
        machine = self.machine

        def element(operand: Signal, index: int, size: int, dtype: Any) -> Value:
            part = operand[8 * size * index :][: dtype.width]
            return part.as_signed() if dtype.signed else part

        terms = []
        for lane in range(machine.lanes):
            left = element(a, lane, machine.a_bytes, machine.a)
            if self.has_vector:
                own = element(a, column, machine.a_bytes, machine.a)
                left = Mux(vector, own if lane == 0 else 0, left)
            terms.append(left * element(b, lane, machine.b_bytes, machine.b))
        return sum(terms[1:], terms[0])
