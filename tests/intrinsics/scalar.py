"""Plain Python integers, one addition at a time: what the NumPy reference is compared with."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np

from celosia.intrinsics import Contraction, DType, Overflow


def into_range(value: int, dtype: DType, overflow: Overflow) -> int:
    if overflow in (Overflow.SATURATE, Overflow.SATURATE_ONCE):
        return min(max(value, dtype.min), dtype.max)
    value %= 1 << dtype.width
    return value - (1 << dtype.width) if value > dtype.max else value


def contract(contraction: Contraction, a: Any, b: Any, c: Any) -> np.ndarray:
    """One product after the other, reduction axes in the record's order, last axis fastest."""
    out = np.empty(contraction.shape("c"), object)
    reduced = contraction.reduction_axes
    for spot in np.ndindex(*contraction.shape("c")):
        place = dict(zip(contraction.c_axes, spot, strict=True))
        total = int(c[spot])
        for steps in itertools.product(*(range(contraction.extents[axis]) for axis in reduced)):
            place.update(zip(reduced, steps, strict=True))
            x = int(a[tuple(place[axis] for axis in contraction.a_axes)])
            y = int(b[tuple(place[axis] for axis in contraction.b_axes)])
            total += x * y
            if contraction.overflow is Overflow.SATURATE:
                total = into_range(total, contraction.acc, contraction.overflow)
        out[spot] = into_range(total, contraction.acc, contraction.overflow)
    return out


def operand(rng: random.Random, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Full range, half of the values at a corner."""
    out = np.empty(shape, dtype.numpy)
    for spot in np.ndindex(*shape):
        out[spot] = rng.choice([dtype.min, dtype.max]) if rng.random() < 0.5 else rng.randint(dtype.min, dtype.max)
    return out
