"""Rows of the systolic arrays: processing elements side by side, with a lane per column on their upper and lower edges."""

from __future__ import annotations

from amaranth.hdl import Module, Value
from amaranth.lib.wiring import In, Out

from ..intrinsics import DType, Overflow
from .block import shape_of
from .processing_element import OutputStationaryElement, WeightStationaryElement
from .shared import SharedPart


def lane(vector: Value, index: int, dtype: DType) -> Value:
    """Element ``index`` of elements side by side."""
    part = vector.word_select(index, dtype.width)
    return part.as_signed() if dtype.signed else part


class OutputStationaryRow(SharedPart):
    """``cols`` of `OutputStationaryElement`; vectors have a lane per column.

    Parameters
    ----------
    cols : int
    a, b, acc : DType
    overflow : Overflow
    chained : bool
        There is a row below.

    Members
    -------
    enable, shift, left : In
        As of the elements; ``left`` of the first.
    first, top : In
    take, below : In, with ``chained``
    down, out : Out
        B and sums, as the elements give them.
    """

    def __init__(self, *, cols: int, a: DType, b: DType, acc: DType, overflow: Overflow, chained: bool) -> None:
        self.cols, self.types, self.overflow, self.chained = cols, (a, b, acc), overflow, chained
        inputs = {"enable": In(1), "shift": In(1), "left": In(shape_of(a)), "first": In(cols), "top": In(cols * b.width)}
        chain = {"take": In(cols), "below": In(cols * acc.width)} if chained else {}
        super().__init__({**inputs, **chain, "down": Out(cols * b.width), "out": Out(cols * acc.width)})

    @property
    def key(self) -> tuple[object, ...]:
        return self.cols, self.types, self.overflow, self.chained

    def body(self) -> Module:
        m = Module()
        a, b, acc = self.types
        left: Value = self.left
        for j in range(self.cols):
            element = OutputStationaryElement(a=a, b=b, acc=acc, overflow=self.overflow, chained=self.chained)
            m.submodules[f"{j}"] = element
            m.d.comb += [
                element.enable.eq(self.enable),
                element.shift.eq(self.shift),
                element.first.eq(self.first[j]),
                element.left.eq(left),
                element.top.eq(lane(self.top, j, b)),
                lane(self.down, j, b).eq(element.b),
                lane(self.out, j, acc).eq(element.out),
            ]
            if self.chained:
                m.d.comb += [element.take.eq(self.take[j]), element.below.eq(lane(self.below, j, acc))]
            left = element.a
        return m


class WeightStationaryRow(SharedPart):
    """``cols`` of `WeightStationaryElement`; vectors have a lane per column.

    Parameters
    ----------
    cols : int
    a, b, total : DType
    overflow : Overflow
    partial : DType or None
        Type of the sums of the row above; None in the first.

    Members
    -------
    enable, left : In
        As of the elements; ``left`` of the first.
    load, swap, above : In
    partial : In, unless there is no row above
    next, sum : Out
        Weights and sums, as the elements give them.
    """

    def __init__(self, *, cols: int, a: DType, b: DType, total: DType, overflow: Overflow, partial: DType | None) -> None:
        self.cols, self.types, self.overflow, self.partial_type = cols, (a, b, total), overflow, partial
        flags = {"enable": In(1), "load": In(cols), "swap": In(cols)}
        inputs = {"left": In(shape_of(a)), "above": In(cols * b.width), **({"partial": In(cols * partial.width)} if partial else {})}
        super().__init__({**flags, **inputs, "next": Out(cols * b.width), "sum": Out(cols * total.width)})

    @property
    def key(self) -> tuple[object, ...]:
        return self.cols, self.types, self.overflow, self.partial_type

    def body(self) -> Module:
        m = Module()
        a, b, total = self.types
        left: Value = self.left
        for j in range(self.cols):
            element = WeightStationaryElement(a=a, b=b, total=total, overflow=self.overflow, partial=self.partial_type)
            m.submodules[f"{j}"] = element
            m.d.comb += [
                element.enable.eq(self.enable),
                element.load.eq(self.load[j]),
                element.swap.eq(self.swap[j]),
                element.left.eq(left),
                element.above.eq(lane(self.above, j, b)),
                lane(self.next, j, b).eq(element.next),
                lane(self.sum, j, total).eq(element.sum),
            ]
            if self.partial_type:
                m.d.comb += element.partial.eq(lane(self.partial, j, self.partial_type))
            left = element.a
        return m
