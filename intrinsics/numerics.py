"""Integer semantics, once: overflow, accumulation, rounding, random operands.

The reference, the tests of the RTL and the constants of the compiler all come from here.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import numpy.typing as npt

from .dtypes import DType
from .errors import ParameterError

Array = npt.NDArray[Any]

MAX_SHIFT = 62
"""Largest right shift: value and rounding constant together then fit 64 bits."""


class Overflow(enum.Enum):
    """What an accumulator does when a sum leaves its range."""

    FORBID = "forbid"  #: the width is proven to be enough, so nothing can overflow
    WRAP = "wrap"  #: modulo 2**width
    SATURATE = "saturate"  #: clamp to the nearest end of the range, after every addition
    SATURATE_ONCE = "saturate-once"  #: clamp once, after all products of one execution were added (x86 vpdpbusds)


class Rounding(enum.Enum):
    """How a right shift rounds."""

    HALF_AWAY_FROM_ZERO = "half-away-from-zero"  #: 2.5 -> 3, -2.5 -> -3 (the mode of TFLite's RoundingDivideByPOT)
    HALF_UP = "half-up"  #: 2.5 -> 3, -2.5 -> -2
    HALF_EVEN = "half-even"  #: 2.5 -> 2, 3.5 -> 4
    FLOOR = "floor"  #: arithmetic shift


def wrap(values: npt.ArrayLike, dtype: DType) -> Array:
    """Reduce int64 ``values`` modulo 2**width into the range of ``dtype``; the result has its container dtype."""
    if dtype.width == dtype.container_width:  # then NumPy's own conversion wraps
        return np.asarray(values).astype(np.int64, copy=False).astype(dtype.numpy)
    bits = np.asarray(values).astype(np.int64, copy=False).view(np.uint64)
    unused = np.uint64(64 - dtype.width)
    shifted = bits << unused
    narrowed: Array = (shifted.view(np.int64) >> np.int64(unused)) if dtype.signed else (shifted >> unused)
    return narrowed.astype(dtype.numpy)


def saturate(values: npt.ArrayLike, dtype: DType) -> Array:
    """Clamp int64 ``values`` to the range of ``dtype``; the result has its container dtype."""
    high = min(dtype.max, np.iinfo(np.int64).max)
    return np.clip(np.asarray(values, np.int64), max(dtype.min, np.iinfo(np.int64).min), high).astype(dtype.numpy)


def settle(values: npt.ArrayLike, dtype: DType, overflow: Overflow) -> Array:
    """Bring int64 ``values`` into ``dtype`` by the given overflow mode (FORBID wraps: it was proven idle)."""
    return saturate(values, dtype) if overflow in (Overflow.SATURATE, Overflow.SATURATE_ONCE) else wrap(values, dtype)


def accumulate(products: Array, dtype: DType, overflow: Overflow, *, start: npt.ArrayLike = 0) -> Array:
    """Add ``products`` along axis 0 one after another into an accumulator of type ``dtype``.

    Parameters
    ----------
    products : (steps, ...) int64
        What is added in each step.
    start : broadcastable to products[0]
        Value before the first step.

    Returns
    -------
    (...) in the container dtype of ``dtype``.
    """
    if overflow is not Overflow.SATURATE:
        return settle(np.asarray(start, np.int64) + products.sum(axis=0, dtype=np.int64), dtype, overflow)
    total = np.broadcast_to(np.asarray(start, np.int64), products.shape[1:])
    for step in products:
        total = saturate(total + step, dtype).astype(np.int64)
    return total.astype(dtype.numpy)


def bounds_of_product(a: DType, b: DType) -> tuple[int, int]:
    """Smallest and largest value of a product of one element of each type."""
    corners = [x * y for x in (a.min, a.max) for y in (b.min, b.max)]
    return min(corners), max(corners)


def min_acc_width(a: DType, b: DType, depth: int, *, signed: bool = True) -> int:
    """Bits that hold every sum of ``depth`` products of full-range operands, as a signed or unsigned number.

    Exact: the bound is reached by operands at the corners of their ranges, so one bit less can overflow.
    """
    low, high = (bound * depth for bound in bounds_of_product(a, b))
    if not signed:
        if low < 0:
            raise ParameterError(f"an unsigned accumulator cannot hold sums of {a} x {b}, which reach {low}; use a signed one")
        return max(high.bit_length(), 1)
    return max(high.bit_length(), (-low - 1).bit_length() if low < 0 else 0) + 1


def shift_right(values: npt.ArrayLike, shift: int, rounding: Rounding) -> Array:
    """Divide int64 ``values`` by 2**shift with the named rounding. ``shift`` from 0 to 62; |values| <= 2**62."""
    if not 0 <= shift <= MAX_SHIFT:
        nearest = min(max(shift, 0), MAX_SHIFT)
        raise ParameterError(f"shift must be from 0 to {MAX_SHIFT}, not {shift}; nearest legal value: {nearest}")
    x: Array = np.asarray(values, np.int64)
    half = np.int64(1) << (shift - 1) if shift else 0
    if shift == 0 or rounding is Rounding.FLOOR:
        result: Array = x >> shift
    elif rounding is Rounding.HALF_UP:
        result = (x + half) >> shift
    elif rounding is Rounding.HALF_AWAY_FROM_ZERO:
        result = np.sign(x) * ((np.abs(x) + half) >> shift)
    else:
        result = (x + half - 1 + ((x >> shift) & 1)) >> shift
    return result


def requantize(acc: npt.ArrayLike, *, multiplier: npt.ArrayLike, shift: int, zero_point: int, dtype: DType, rounding: Rounding) -> Array:
    """Scale int32 accumulators to ``dtype``: saturate(round(acc * multiplier / 2**shift) + zero_point).

    ``multiplier`` is a scalar or one int32 value per channel of the last axis; the product is formed in 64 bits.
    """
    product = np.asarray(acc, np.int64) * np.asarray(multiplier, np.int64)
    return saturate(shift_right(product, shift, rounding) + zero_point, dtype)


def random_operand(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Operand values over the full range of ``dtype``, with the two corners and zero over-represented.

    One value in eight is a corner or zero, so that carries, signs and saturation are all exercised.
    """
    values = rng.integers(dtype.min, dtype.max, size=shape, dtype=np.int64, endpoint=True)
    corners = np.array([dtype.min, dtype.max, 0], np.int64)
    pick = rng.integers(0, 24, size=shape)
    return np.where(pick < 3, corners[np.minimum(pick, 2)], values).astype(dtype.numpy)
