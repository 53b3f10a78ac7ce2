"""Arithmetic that brings an exact sum into an accumulator: wrap or saturate, with every width explicit."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from ..intrinsics import DType, Overflow
from .block import shape_of


def settle(m: Module, total: Value, acc: DType, overflow: Overflow, *, name: str) -> Value:
    """``total`` as a value of type ``acc``, the RTL of `intrinsics.numerics.settle`.

    Parameters
    ----------
    total : Value
        The exact sum: wide enough that nothing was lost so far.
    acc : DType
    overflow : Overflow
        FORBID and WRAP keep the low bits (FORBID is proven never to lose any); the saturating modes clamp.
    name : str
        Name of the intermediate signal of a clamp.
    """
    if holds(acc, total):
        return total
    if overflow in (Overflow.SATURATE, Overflow.SATURATE_ONCE):
        return _clamp(m, total, acc, name)
    kept = total[: acc.width]
    if len(total) < acc.width:  # a sum that can be negative, in an unsigned accumulator: modulo 2**width its sign fills up
        kept = Cat(total, total[-1].replicate(acc.width - len(total)))
    return kept.as_signed() if acc.signed else kept


def holds(acc: DType, value: Value) -> bool:
    """Whether every value of the shape of ``value`` is a value of ``acc``."""
    shape = value.shape()
    magnitude = max(shape.width - shape.signed, 0)  # an exact sum may be wider than any dtype
    return (-(1 << magnitude) if shape.signed else 0) >= acc.min and (1 << magnitude) - 1 <= acc.max


def _clamp(m: Module, total: Value, acc: DType, name: str) -> Value:
    exact = Signal(total.shape(), name=name)
    m.d.comb += exact.eq(total)
    negative = exact[-1] if exact.shape().signed else Const(0, 1)
    beyond = exact[acc.width - acc.signed :]  # equal to the sign in every bit if and only if the sum fits
    too_low = negative & ~beyond.all() if acc.signed else negative
    limit = Mux(negative, Const(acc.min, shape_of(acc)), Const(acc.max, shape_of(acc)))
    clamped = Mux(too_low | (~negative & beyond.any()), limit, exact[: acc.width])[: acc.width]
    return clamped.as_signed() if acc.signed else clamped
