"""Integer element types of any width, signed or unsigned."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

import numpy as np

from .errors import ParameterError

MAX_WIDTH = 64
"""Widest type. Operands stop at 32 bits (see `Contraction`); accumulators may need more."""

_NAME = re.compile(r"(u?)int([1-9][0-9]?)")


@dataclass(frozen=True, order=True)
class DType:
    """A two's complement or unsigned integer of ``width`` bits.

    Parameters
    ----------
    width : int, 1..64
        Bits. Operands of a contraction are limited to 32.
    signed : bool
        Two's complement if true.
    """

    width: int
    signed: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.width, int) or isinstance(self.width, bool) or not 1 <= self.width <= MAX_WIDTH:
            nearest = min(max(self.width, 1), MAX_WIDTH) if isinstance(self.width, int) else 8
            raise ParameterError(
                f"width of a dtype must be an integer from 1 to {MAX_WIDTH}, not {self.width!r}; nearest legal value: {nearest}"
            )

    @classmethod
    def of(cls, value: str | DType) -> DType:
        """Parse ``int8``, ``uint4``, …, or pass a `DType` through."""
        if isinstance(value, DType):
            return value
        match = _NAME.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise ParameterError(f"dtype must be intN or uintN with N from 1 to {MAX_WIDTH}, such as int8 or uint4, not {value!r}")
        return cls(int(match[2]), match[1] == "")

    @property
    def name(self) -> str:
        """``int8``, ``uint4``, …"""
        return f"{'' if self.signed else 'u'}int{self.width}"

    @property
    def short(self) -> str:
        """``s8``, ``u4``, … as used in the names of instructions."""
        return f"{'s' if self.signed else 'u'}{self.width}"

    @property
    def min(self) -> int:
        """Smallest value."""
        return -(1 << (self.width - 1)) if self.signed else 0

    @property
    def max(self) -> int:
        """Largest value."""
        return (1 << (self.width - self.signed)) - 1

    @functools.cached_property
    def container_width(self) -> int:
        """Bits of the C type that holds an element in memory: 8, 16, 32 or 64."""
        return max(8, 1 << (self.width - 1).bit_length())

    @property
    def container(self) -> DType:
        """The type of the element in memory, such as int8 for int5."""
        return DType(self.container_width, self.signed)

    @functools.cached_property
    def numpy(self) -> np.dtype[np.generic]:
        """NumPy dtype of the element in memory."""
        return np.dtype(self.container.name)

    def contains(self, other: DType) -> bool:
        """Whether every value of ``other`` is a value of this type."""
        return self.min <= other.min and other.max <= self.max

    def __str__(self) -> str:
        return self.name
