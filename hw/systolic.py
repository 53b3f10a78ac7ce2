"""Systolic arrays: a grid of processing elements that talk to their neighbours only."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value

from ..intrinsics import DType, Overflow
from ..intrinsics.numerics import min_acc_width
from .array_row import OutputStationaryRow, WeightStationaryRow, lane
from .block import StreamBlock, delay_line, flag_line
from .parameters import SystolicParameters


class SystolicArray(StreamBlock):
    """A grid of rows x cols multiply-accumulate elements, output- or weight-stationary.

    ``C[m, n] = sum_k A[m, k] * B[k, n]``.

    *Output-stationary*: m runs over the rows, n over the columns, one k per beat. Lane m of ``i_a`` is A[m, k]; lane n of
    ``i_b`` is B[k, n]; a beat is accepted when both are valid. The beat with ``last`` ends the pass; C leaves row by row
    (row 0 first, ``o_c.last`` with the final row) while the next pass already streams in and accumulates from zero. A beat
    with ``last`` is held back until ``min_interval`` cycles after the one before. Sums leave through a chain that always
    shifts against the wave, towards row 0: PE(i, j) puts its sum in when the wave of the pass has left it, so row i is on
    top two cycles after row i-1 and rows of one pass never meet. The accumulator wraps or saturates after every k.

    *Weight-stationary*: k runs over the rows, n over the columns, one m per beat. ``rows`` beats of ``i_b`` carry B[k, :]
    with the highest k first; lane k of ``i_a`` is A[m, k]; each beat of ``i_a`` gives one beat C[m, :] of ``o_c``, with
    its ``last`` passed through. ``last`` marks the last vector for the present weights: the next vector waits until the
    next weights are complete, and a swap flag that travels with it makes them take effect PE by PE. Weight beat t only
    moves rows 0..t, so it may follow directly behind that flag: a new tile loads while the wave is still running. The
    partial sum wraps or saturates after every row, k = 0 first.

    Parameters
    ----------
    parameters : SystolicParameters

    Members
    -------
    i_a : In(stream), ``rows`` lanes
    i_b : In(stream), ``cols`` lanes
    o_c : Out(stream), ``cols`` lanes

    Latency
    -------
    Output-stationary: ``cols + 2`` cycles from ``last`` to row 0, then a row every 2 cycles; ``last`` beats at least
    ``2 * rows - 1`` cycles apart. Weight-stationary: ``rows + cols`` cycles from a vector to its result, one vector per
    cycle; first vectors of two passes at least ``rows`` cycles apart, ``rows`` cycles before the first.

    References
    ----------
    H. T. Kung, "Why systolic architectures?", IEEE Computer 15(1), 1982.
    """

    def __init__(self, parameters: SystolicParameters) -> None:
        super().__init__(parameters)
        self._p = parameters

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        en = self.enable(m)
        if self._p.weight_stationary:
            self._weight_stationary(m, en)
        else:
            self._output_stationary(m, en)
        return m

    # ---- shared

    def _skewed(self, m: Module, en: Value, lanes: list[Value], name: str) -> list[Value]:
        """Lane i delayed by i cycles; the first has a register of its own, since that may be cleared."""
        entered = [delay_line(m, en, value, min(i, 1), f"{name}_enter_{i}")[-1] for i, value in enumerate(lanes)]
        return [delay_line(m, en, value, max(i - 1, 0), f"{name}_skew_{i}")[-1] for i, value in enumerate(entered)]

    def _deskew(self, m: Module, en: Value, columns: Value, dtype: DType, name: str) -> None:
        """Drive the result lanes, all columns aligned with the last one."""
        for j in range(self._p.cols):
            aligned = delay_line(m, en, lane(columns, j, dtype), self._p.cols - 1 - j, f"{name}_deskew_{j}")[-1]
            m.d.comb += self.o_c.payload.data[j].eq(aligned)

    # ---- output-stationary

    def _output_stationary(self, m: Module, en: Value) -> None:
        rows, cols = self._p.rows, self._p.cols
        fire = self.fire_jointly(m, en, hold=self.hold_last(m, en))
        waves = rows + cols - 1
        first = flag_line(m, en, fire & self.first_of_pass(m, fire), waves, "first")
        last = fire & self.i_a.payload.last
        done = flag_line(m, en, last, max(waves, cols) + 1, "done")
        shift = en & self._draining(m, en, last)
        grid = self._accumulators(m, en, fire)
        for i, row in enumerate(grid):
            m.d.comb += [row.first.eq(first[i : i + cols]), row.shift.eq(shift)]
            if i + 1 < rows:
                m.d.comb += [row.take.eq(done[i + 1 : i + 1 + cols]), row.below.eq(grid[i + 1].out)]
        self._deskew(m, shift, grid[0].out, self._p.acc, "out")
        self._announce_rows(m, en, done[cols])

    def _accumulators(self, m: Module, en: Value, fire: Value) -> list[OutputStationaryRow]:
        """Operands pass right and down, sums stay; a bubble multiplies by zero."""
        p = self._p
        lanes = [Mux(fire, self.i_a.payload.data[i], 0) for i in range(p.rows)]
        left = self._skewed(m, en, lanes, "a")
        top = self._skewed(m, en, [self.i_b.payload.data[j] for j in range(p.cols)], "b")
        grid: list[OutputStationaryRow] = []
        for i in range(p.rows):
            row = OutputStationaryRow(cols=p.cols, a=p.a, b=p.b, acc=p.acc, overflow=p.overflow, chained=i + 1 < p.rows)
            m.submodules[f"pe_{i}"] = row
            m.d.comb += [row.enable.eq(en), row.left.eq(left[i]), row.top.eq(grid[-1].down if i else Cat(*top))]
            grid.append(row)
        return grid

    def _draining(self, m: Module, en: Value, last: Value) -> Value:
        """High while a pass is on its way out, so that the output chain rests through long passes."""
        left = Signal(range(self.timing.drain + 1), name="drain_left")
        with m.If(en):
            with m.If(last):
                m.d.sync += left.eq(self.timing.drain)
            with m.Elif(left != 0):
                m.d.sync += left.eq((left - 1)[: len(left)])
        return left != 0

    def _announce_rows(self, m: Module, en: Value, start: Value) -> None:
        """Row 0 is valid in the cycle after ``start``, then one row every second cycle."""
        final = 2 * (self._p.rows - 1)
        active, left = Signal(name="rows_active"), Signal(range(max(final, 1) + 1), name="rows_left")
        m.d.comb += [self.o_c.valid.eq(active & ~left[0]), self.o_c.payload.last.eq(left == 0)]
        with m.If(en):
            m.d.sync += active.eq(start | (active & (left != 0)))
            with m.If(start):
                m.d.sync += left.eq(final)
            with m.Elif(left != 0):
                m.d.sync += left.eq((left - 1)[: len(left)])

    # ---- weight-stationary

    def _weight_stationary(self, m: Module, en: Value) -> None:
        rows, cols = self._p.rows, self._p.cols
        fire, swap, load = self._accept(m, en)
        valid = delay_line(m, en, fire, rows + cols, "valid", keep_reset=True)[-1]
        last = delay_line(m, en, self.i_a.payload.last, rows + cols, "last")[-1]
        m.d.comb += [self.o_c.valid.eq(valid), self.o_c.payload.last.eq(last)]
        grid = self._partial_sums(m, en)
        self._weights(m, en, grid, swap, load)
        self._deskew(m, en, grid[-1].sum, self._sum_type(rows - 1)[0], "sum")

    def _accept(self, m: Module, en: Value) -> tuple[Value, Value, Value]:
        """Controller: (a vector is accepted, it swaps the weights, rows that a weight beat moves).

        ``loaded`` has a one for every weight beat of the next tile that is in. Beat t moves rows 0..t.
        """
        loaded = Signal(self._p.rows, name="loaded")
        fire, swap, first = Signal(name="fire"), Signal(name="swap"), self.first_of_pass(m, self.i_a.valid & self.i_a.ready)
        beat, before = Signal(name="beat"), Signal(self._p.rows, name="loaded_before")
        moved = Signal(self._p.rows, name="moved")
        m.d.comb += [
            self.i_a.ready.eq(en & (~first | loaded[-1])),
            fire.eq(self.i_a.valid & self.i_a.ready),
            swap.eq(fire & first),
            self.i_b.ready.eq(en & (~loaded[-1] | swap)),
            beat.eq(self.i_b.valid & self.i_b.ready),
            before.eq(Mux(swap, 0, loaded)),
            moved.eq(((before << 1) | 1)[: self._p.rows]),
        ]
        with m.If(en):
            m.d.sync += loaded.eq(Mux(beat, moved, before))
        return fire, swap, Mux(beat, moved, 0)

    def _weights(self, m: Module, en: Value, grid: list[WeightStationaryRow], swap: Value, load: Value) -> None:
        """The next weights come down the columns, each column one cycle after its left neighbour."""
        p = self._p
        swaps = Cat(swap, flag_line(m, en, swap, p.rows + p.cols - 2, "swap"))
        loads = delay_line(m, en, load, p.cols - 1, "load", keep_reset=True)
        top = self._skewed(m, en, [self.i_b.payload.data[j] for j in range(p.cols)], "b")
        for i, row in enumerate(grid):
            m.d.comb += [
                row.above.eq(grid[i - 1].next if i else Cat(*top)),
                row.load.eq(Cat(moved[i] for moved in loads)),
                row.swap.eq(swaps[i : i + p.cols]),
            ]

    def _partial_sums(self, m: Module, en: Value) -> list[WeightStationaryRow]:
        """Activations pass right, partial sums pass down."""
        p = self._p
        left = self._skewed(m, en, [self.i_a.payload.data[i] for i in range(p.rows)], "a")
        grid: list[WeightStationaryRow] = []
        for i in range(p.rows):
            total, overflow = self._sum_type(i)
            partial = self._sum_type(i - 1)[0] if i else None
            row = WeightStationaryRow(cols=p.cols, a=p.a, b=p.b, total=total, overflow=overflow, partial=partial)
            m.submodules[f"pe_{i}"] = row
            m.d.comb += [row.enable.eq(en), row.left.eq(left[i])]
            if i:
                m.d.comb += row.partial.eq(grid[-1].sum)
            grid.append(row)
        return grid

    def _sum_type(self, row: int) -> tuple[DType, Overflow]:
        """Type of the partial sums behind ``row``, no wider than their range needs, and what they do on overflow."""
        p = self._p
        signed = p.a.signed or p.b.signed
        exact = DType(min_acc_width(p.a, p.b, row + 1, signed=signed), signed)
        return (exact, Overflow.FORBID) if p.acc.contains(exact) else (p.acc, p.overflow)
