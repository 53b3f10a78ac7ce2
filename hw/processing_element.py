"""Processing elements of the systolic arrays: registers, one multiplier, one adder."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from ..intrinsics import DType, Overflow
from .accumulator import settle
from .block import shape_of
from .shared import SharedPart


class OutputStationaryElement(SharedPart):
    """``acc += left * top``; operands pass on, and the sum leaves through a chain that shifts upwards.

    Parameters
    ----------
    a, b, acc : DType
    overflow : Overflow
    chained : bool
        There is an element below.

    Members
    -------
    enable, shift : In(1)
        The operands and the sum advance; the chain advances.
    first : In(1)
        The sum begins anew.
    take, below : In, with ``chained``
        The chain takes the sum instead of what is ``below``.
    left, top : In
    a, b, out : Out
        One cycle later.
    """

    def __init__(self, *, a: DType, b: DType, acc: DType, overflow: Overflow, chained: bool) -> None:
        self.types, self.overflow, self.chained = (a, b, acc), overflow, chained
        operand_a, operand_b, total = (shape_of(dtype) for dtype in self.types)
        inputs = {"enable": In(1), "shift": In(1), "first": In(1), "left": In(operand_a), "top": In(operand_b)}
        chain = {"take": In(1), "below": In(total)} if chained else {}
        super().__init__({**inputs, **chain, "a": Out(operand_a), "b": Out(operand_b), "out": Out(total)})

    @property
    def key(self) -> tuple[object, ...]:
        return self.types, self.overflow, self.chained

    def body(self) -> Module:
        m = Module()
        a, b, acc = (Signal(shape_of(dtype), name=name, reset_less=True) for dtype, name in zip(self.types, ("a", "b", "acc"), strict=True))
        out = Signal(shape_of(self.types[2]), reset_less=True)
        m.d.comb += [self.a.eq(a), self.b.eq(b), self.out.eq(out)]
        total = settle(m, Mux(self.first, 0, acc) + a * b, self.types[2], self.overflow, name="exact")
        with m.If(self.enable):
            m.d.sync += [a.eq(self.left), b.eq(self.top), acc.eq(total)]
        with m.If(self.shift):
            m.d.sync += out.eq(Mux(self.take, acc, self.below) if self.chained else acc)
        return m


class WeightStationaryElement(SharedPart):
    """``sum = partial + left * weight``; activations pass on, and the next weight comes down while this one is in use.

    Parameters
    ----------
    a, b, total : DType
    overflow : Overflow
        Of the sum.
    partial : DType or None
        Type of what the element above gives; None in the first row.

    Members
    -------
    enable : In(1)
    load, swap : In(1)
        The next weight is taken from ``above``; the next weight comes into use.
    left, above, partial : In
    a, next, sum : Out
        One cycle later.
    """

    def __init__(self, *, a: DType, b: DType, total: DType, overflow: Overflow, partial: DType | None) -> None:
        self.types, self.overflow, self.partial_type = (a, b, total), overflow, partial
        operand, weight, result = (shape_of(dtype) for dtype in self.types)
        flags = {name: In(1) for name in ("enable", "load", "swap")}
        inputs = {"left": In(operand), "above": In(weight), **({"partial": In(shape_of(partial))} if partial else {})}
        super().__init__({**flags, **inputs, "a": Out(operand), "next": Out(weight), "sum": Out(result)})

    @property
    def key(self) -> tuple[object, ...]:
        return self.types, self.overflow, self.partial_type

    def body(self) -> Module:
        m = Module()
        names = ("a", "next", "sum")
        a, following, total = (Signal(shape_of(dtype), name=name, reset_less=True) for dtype, name in zip(self.types, names, strict=True))
        weight = Signal(shape_of(self.types[1]), reset_less=True)
        m.d.comb += [self.a.eq(a), self.next.eq(following), self.sum.eq(total)]
        exact = self.partial + a * weight if self.partial_type else a * weight
        with m.If(self.enable):
            m.d.sync += [
                a.eq(self.left),
                following.eq(Mux(self.load, self.above, following)),
                weight.eq(Mux(self.swap, following, weight)),
                total.eq(settle(m, exact, self.types[2], self.overflow, name="exact")),
            ]
        return m
