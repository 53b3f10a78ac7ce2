"""Dot-product unit: lanes of multipliers and an adder tree each, with optional resident accumulators."""

from __future__ import annotations

import math
from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value

from .accumulator import settle
from .block import StreamBlock, delay_line, shape_of
from .parameters import DotProductParameters


class DotProductUnit(StreamBlock):
    """``lanes`` dot products of ``depth`` products per beat.

    ``C[n] = sum_k A[k] * B[k, n]`` for each beat, or with resident accumulators the sum over all beats of a pass.

    Lane k of ``i_a`` is A[k]; lane n*depth + k of ``i_b`` is B[k, n]; lane n of ``o_c`` is C[n]. A beat is accepted when
    both operands are valid. Without resident accumulators each beat gives a result and ``last`` is passed through; with
    them the beat with ``last`` gives the result of its pass, and the next pass starts from zero. The products of one
    beat are summed exactly; wrapping or saturation happens once, where the sum meets the accumulator.

    Parameters
    ----------
    parameters : DotProductParameters

    Members
    -------
    i_a : In(stream), ``depth`` lanes
    i_b : In(stream), ``lanes * depth`` lanes
    o_c : Out(stream), ``lanes`` lanes

    Latency
    -------
    ``1 + pipeline`` cycles, one beat per cycle. The extra registers are spread over the levels of the adder tree, the
    first of them behind the multipliers.
    """

    def __init__(self, parameters: DotProductParameters) -> None:
        super().__init__(parameters)
        self._p = parameters

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        en = self.enable(m)
        fire = self.fire_jointly(m, en)
        stages = self._p.pipeline
        valid = delay_line(m, en, fire, stages, "valid", keep_reset=True)[-1]
        last = delay_line(m, en, self.i_a.payload.last, stages, "last")[-1]
        first = delay_line(m, en, self.first_of_pass(m, fire), stages, "first")[-1]
        sums = [self._sum_of_products(m, en, lane) for lane in range(self._p.lanes)]
        steps = self._accumulate(m, first, sums)
        with m.If(en):
            m.d.sync += self.o_c.valid.eq(valid & last if self._p.resident else valid)
            with m.If(valid):
                m.d.sync += self.o_c.payload.last.eq(last)
                m.d.sync += steps
        return m

    def _accumulate(self, m: Module, first: Value, sums: list[Value]) -> list[Any]:
        """Assignment of the next value of every lane."""
        steps = []
        for lane, total in enumerate(sums):
            if self._p.resident:
                acc = Signal(shape_of(self._p.acc), name=f"acc_{lane}", reset_less=True)
                settled = self._settled(m, Mux(first, 0, acc) + total, lane)
            else:
                settled = self._settled(m, total, lane)
                # no wider than the sum: Yosys drops the upper bits anyhow, but would extend the port by a loop through itself
                acc = Signal(settled.shape(), name=f"acc_{lane}", reset_less=True)
            m.d.comb += self.o_c.payload.data[lane].eq(acc)
            steps.append(acc.eq(settled))
        return steps

    def _settled(self, m: Module, exact: Value, lane: int) -> Value:
        return settle(m, exact, self._p.acc, self._p.overflow, name=f"exact_{lane}")

    def _sum_of_products(self, m: Module, en: Value, lane: int) -> Value:
        depth = self._p.depth
        a, b = self.i_a.payload.data, self.i_b.payload.data
        values = [a[k] * b[lane * depth + k] for k in range(depth)]
        for level, registers in enumerate(self._registers_per_level()):
            if level:
                values = [values[k] + values[k + 1] for k in range(0, len(values) - 1, 2)] + values[len(values) & ~1 :]
            values = [delay_line(m, en, value, registers, f"sum_{lane}_{level}_{k}")[-1] for k, value in enumerate(values)]
        return values[0]

    def _registers_per_level(self) -> list[int]:
        """Register stages behind the multipliers (level 0) and behind each level of the adder tree."""
        levels = math.ceil(math.log2(self._p.depth)) + 1
        counts = [0] * levels
        for stage in range(self._p.pipeline):
            counts[stage * levels // self._p.pipeline] += 1
        return counts
