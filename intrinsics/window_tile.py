"""A tile of a convolution that reads its activations where they lie: windows overlap, so no einsum describes it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from .dtypes import DType
from .errors import ParameterError

AXES = ("y", "x", "n", "r", "q", "k")
"""Output rows and columns, output channels, rows and columns of the window, channels that are summed."""


@dataclass(frozen=True, kw_only=True)
class WindowTile:
    """``C[y, x, n] += A[y * stride + r * dilation, x * stride + q * dilation, k] * B[n, r, q, k]``.

    A depthwise tile has a filter per channel: ``C[y, x, n] += A[…, …, n] * B[r, q, n]``. Operands keep dimensions of extent 1.

    Parameters
    ----------
    pixels : (int, int)
        Output rows and columns.
    filters : int
        Output channels.
    window : (int, int)
        Rows and columns of (a part of) the kernel.
    channels : int
        Input channels, 1 if depthwise.
    stride, dilation : int
    depthwise : bool
    a, b : DType
        Sums are of 32 bits.

    Raises
    ------
    ParameterError
        If a number is not positive, or a depthwise tile has several channels per filter.
    """

    pixels: tuple[int, int] = (1, 1)
    filters: int = 1
    window: tuple[int, int] = (1, 1)
    channels: int = 1
    stride: int = 1
    dilation: int = 1
    depthwise: bool = False
    a: DType
    b: DType

    def __post_init__(self) -> None:
        for field in fields(self)[:6]:
            value = getattr(self, field.name)
            if any(not isinstance(part, int) or part < 1 for part in (value if isinstance(value, tuple) else (value,))):
                raise ParameterError(f"{field.name} of a tile of windows must be positive, not {value}; nearest legal value: 1")
        if self.depthwise and self.channels > 1:
            raise ParameterError(f"a depthwise tile sums over 1 channel, not {self.channels}; allowed: several filters")

    @property
    def acc(self) -> DType:
        """Type of the sums."""
        return DType(32)

    @property
    def _sizes(self) -> dict[str, int]:
        return dict(zip(AXES, (*self.pixels, self.filters, *self.window, self.channels), strict=True))

    @property
    def extents(self) -> dict[str, int]:
        """Extents of the loops: axes of more than 1."""
        return {axis: size for axis, size in self._sizes.items() if size > 1}

    @property
    def axes(self) -> str:
        """Axes of the loops: those of C, then the reduction."""
        return "".join(self.extents)

    @property
    def c_axes(self) -> str:
        """Axes of C."""
        return "yxn"

    @property
    def size(self) -> tuple[int, int, int]:
        """Output pixels, output channels, and products of each."""
        return math.prod(self.pixels), self.filters, math.prod(self.window) * self.channels

    def operand_axes(self, operand: str) -> str:
        """A name for each dimension of operand ``"a"``, ``"b"`` or ``"c"``."""
        if operand == "c":
            return self.c_axes
        if self.depthwise:
            return "yxn" if operand == "a" else "rqn"
        return "yxk" if operand == "a" else "nrqk"

    def shape(self, operand: str) -> tuple[int, ...]:
        """Shape of operand ``"a"``, ``"b"`` or ``"c"``."""
        if operand != "a":
            return tuple(self._sizes[axis] for axis in self.operand_axes(operand))
        lines = zip(self.pixels, self.window, strict=True)
        image = tuple((out - 1) * self.stride + (taps - 1) * self.dilation + 1 for out, taps in lines)
        return (*image, self._sizes[self.operand_axes("a")[-1]])

    def dtype(self, operand: str) -> DType:
        """Element type of operand ``"a"``, ``"b"`` or ``"c"``."""
        return {"a": self.a, "b": self.b, "c": self.acc}[operand]

    @property
    def index(self) -> dict[str, str]:
        """What each operand is read at, in terms of variables ``v_<axis>``."""
        found = {}
        for operand in "abc":
            parts = [[self._variable(axis)] for axis in self.operand_axes(operand)]
            if operand == "a":
                for line, (out, tap) in enumerate((("y", "r"), ("x", "q"))):
                    parts[line] = [self._variable(out, self.stride), self._variable(tap, self.dilation)]
            found[operand] = ", ".join(" + ".join(filter(None, part)) or "0" for part in parts)
        return found

    def _variable(self, axis: str, step: int = 1) -> str:
        if axis not in self.extents:
            return ""
        return f"v_{axis} * {step}" if step > 1 else f"v_{axis}"

    @property
    def label(self) -> str:
        """Extents, steps and types as used in names."""
        extents = "".join(f"{axis}{size}" for axis, size in self._sizes.items())
        kind = "depthwise_" if self.depthwise else ""
        return f"{kind}{extents}s{self.stride}d{self.dilation}_{self.a.short}{self.b.short}{self.acc.short}"
