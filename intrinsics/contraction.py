"""What an instruction computes: one einsum line with extents and element types."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .dtypes import MAX_WIDTH, DType
from .errors import ParameterError
from .numerics import Array, Overflow, accumulate, bounds_of_product, min_acc_width, settle

MAX_OPERAND_WIDTH = 32
"""Widest operand: products then fit the 64-bit arithmetic of the reference."""

_EINSUM = re.compile(r"([a-z]*),([a-z]*)->([a-z]*)")


@dataclass(frozen=True, init=False)
class Contraction:
    """``C[c] += sum over the reduction axes of A[a] * B[b]``, such as ``Contraction("mk,kn->mn", …)``.

    Unit axes are dropped on construction (TVM never tensorizes a description with a unit axis), so that
    ``mk,kn->mn`` with m = 1 is the record ``k,kn->n``.

    Parameters
    ----------
    einsum : str
        ``"<axes of A>,<axes of B>-><axes of C>"``, one lower-case letter per axis.
    extents : mapping from axis letter to int >= 1
    a, b : DType or str
        Operand types, 1..32 bits.
    acc : DType or str
        Type of C and of the accumulator.
    overflow : Overflow or str
        FORBID (default) proves that ``acc`` holds every sum of one tile; the other modes permit less.

    Raises
    ------
    ParameterError
        If the einsum does not parse, an extent is missing or not positive, an axis is only in the output,
        or the accumulator is too narrow.
    """

    einsum: str
    extents: Mapping[str, int]
    a: DType
    b: DType
    acc: DType
    overflow: Overflow

    def __init__(
        self,
        einsum: str,
        extents: Mapping[str, int],
        a: DType | str = "int8",
        b: DType | str = "int8",
        acc: DType | str = "int32",
        overflow: Overflow | str = Overflow.FORBID,
    ) -> None:
        operands = _parse(einsum)
        checked = _check_extents(einsum, operands, extents)
        kept = ["".join(axis for axis in operand if checked[axis] > 1) for operand in operands]
        fields = {
            "einsum": f"{kept[0]},{kept[1]}->{kept[2]}",
            "extents": {axis: checked[axis] for axis in dict.fromkeys(kept[2] + kept[0] + kept[1])},
            "a": DType.of(a),
            "b": DType.of(b),
            "acc": DType.of(acc),
            "overflow": overflow_of(overflow),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        for name, dtype in (("a", self.a), ("b", self.b)):
            if dtype.width > MAX_OPERAND_WIDTH:
                raise ParameterError(f"operand {name} must be at most {MAX_OPERAND_WIDTH} bits wide, not {dtype}")
        self._check_acc()

    def _check_acc(self) -> None:
        if self.overflow is Overflow.FORBID:
            self._check_acc_holds_tile()
        elif self.overflow is not Overflow.WRAP:
            self._check_exact_reference()

    def _check_acc_holds_tile(self) -> None:
        products = f"{self.depth} products of {self.a} x {self.b}"
        if min_acc_width(self.a, self.b, self.depth, signed=self._acc_signed) > MAX_WIDTH:
            raise ParameterError(
                f"no accumulator of up to {MAX_WIDTH} bits holds {products}; allowed: overflow 'wrap', narrower operands or a depth "
                f"of at most {self.max_depth}"
            )
        least = self.min_acc
        if not self.acc.contains(least):
            fault = "is too narrow for" if self.acc.signed or not least.signed else "cannot hold the negative sums of"
            raise ParameterError(
                f"accumulator {self.acc} {fault} {products}; "
                f"allowed: {least} or wider, or overflow 'wrap' or 'saturate'; nearest legal value: {least}"
            )

    def _check_exact_reference(self) -> None:
        # Saturation must see the true sum, so sum and accumulator together must fit the 64-bit arithmetic of the reference.
        steps = self.depth if self.overflow is Overflow.SATURATE_ONCE else 1
        low, high = bounds_of_product(self.a, self.b)
        if self.acc.min + steps * low < -(1 << 63) or self.acc.max + steps * high >= 1 << 63:
            raise ParameterError(
                f"accumulator {self.acc} is too wide to saturate over products of {self.a} x {self.b} in 64-bit arithmetic; "
                f"allowed: 62 bits or fewer with operands of up to 30 bits"
            )

    def __hash__(self) -> int:
        return hash((self.einsum, tuple(self.extents.items()), self.a, self.b, self.acc, self.overflow))

    # ---- axes

    @functools.cached_property
    def a_axes(self) -> str:
        """Axes of operand A in memory order, slowest first."""
        return self.einsum.split("->")[0].split(",")[0]

    @functools.cached_property
    def b_axes(self) -> str:
        """Axes of operand B in memory order, slowest first."""
        return self.einsum.split("->")[0].split(",")[1]

    @functools.cached_property
    def c_axes(self) -> str:
        """Axes of C in memory order, slowest first."""
        return self.einsum.split("->")[1]

    @property
    def axes(self) -> str:
        """Every axis once: those of C, then the reduction axes."""
        return "".join(self.extents)

    @property
    def reduction_axes(self) -> str:
        """Axes that are summed over."""
        return "".join(axis for axis in self.axes if axis not in self.c_axes)

    @functools.cached_property
    def _operands(self) -> dict[str, str]:
        return {"a": self.a_axes, "b": self.b_axes, "c": self.c_axes}

    def operand_axes(self, operand: str) -> str:
        """Axes of operand ``"a"``, ``"b"`` or ``"c"``."""
        return self._operands[operand]

    @functools.cached_property
    def _roles(self) -> dict[str, str]:
        return {axis: "".join(name for name, axes in self._operands.items() if axis in axes) for axis in self.extents}

    def role(self, axis: str) -> str:
        """Which operands ``axis`` indexes, as a sorted string: ``"ac"`` (m-like), ``"bc"`` (n-like), ``"ab"`` (k-like), ``"abc"``, …"""
        return self._roles.get(axis, "")

    def shape(self, operand: str) -> tuple[int, ...]:
        """Shape of operand ``"a"``, ``"b"`` or ``"c"`` without unit axes."""
        return tuple(self.extents[axis] for axis in self.operand_axes(operand))

    def dtype(self, operand: str) -> DType:
        """Element type of operand ``"a"``, ``"b"`` or ``"c"``."""
        return {"a": self.a, "b": self.b, "c": self.acc}[operand]

    # ---- derived numbers

    @property
    def depth(self) -> int:
        """Products that are summed into one element of C by one execution."""
        return math.prod(self.extents[axis] for axis in self.reduction_axes)

    @property
    def macs(self) -> int:
        """Multiply-accumulate operations of one execution."""
        return math.prod(self.extents.values())

    @property
    def _acc_signed(self) -> bool:
        return self.acc.signed or self.a.signed or self.b.signed

    @property
    def min_acc(self) -> DType:
        """Narrowest accumulator of the signedness of ``acc`` (signed if the sums can be negative) that holds one tile; at most 64 bits."""
        width = min_acc_width(self.a, self.b, self.depth, signed=self._acc_signed)
        return DType(min(width, MAX_WIDTH), self._acc_signed)

    @property
    def max_depth(self) -> int:
        """Products that fit the accumulator for sure, over any number of executions; 0 if not even one does."""
        low, high = bounds_of_product(self.a, self.b)
        room = [limit // bound for limit, bound in ((self.acc.max, high), (self.acc.min, low)) if bound and (limit < 0) == (bound < 0)]
        if low < 0 <= self.acc.min:
            return 0
        return min(room)

    def reference(self, a: Array, b: Array, c: Array | int = 0) -> Array:
        """Compute C bit for bit in NumPy.

        Parameters
        ----------
        a, b : arrays of `shape("a")` and `shape("b")`
        c : array of `shape("c")` or scalar
            Value that the sum is added to.

        Returns
        -------
        `shape("c")` in the container dtype of ``acc``. SATURATE clamps after each reduction step, in axis order;
        SATURATE_ONCE clamps the complete sum.
        """
        for name, array in (("a", a), ("b", b)):
            if np.shape(array) != self.shape(name):
                raise ParameterError(f"operand {name} must have shape {self.shape(name)}, not {np.shape(array)}")
        if self.overflow is not Overflow.SATURATE:
            product = np.einsum(self.einsum, a.astype(np.int64), b.astype(np.int64))
            return settle(product + np.asarray(c, np.int64), self.acc, self.overflow)
        terms = np.einsum(f"{self.a_axes},{self.b_axes}->{self.reduction_axes}{self.c_axes}", a.astype(np.int64), b.astype(np.int64))
        return accumulate(terms.reshape(-1, *self.shape("c")), self.acc, self.overflow, start=c)

    @property
    def label(self) -> str:
        """Extents and types as used in names: ``m4n4k16_s8s8s32``."""
        extents = "".join(f"{axis}{extent}" for axis, extent in self.extents.items()) or "scalar"
        mode = "" if self.overflow is Overflow.FORBID else f"_{self.overflow.value.replace('-', '_')}"
        return f"{extents}_{self.a.short}{self.b.short}{self.acc.short}{mode}"

    def __str__(self) -> str:
        extents = ", ".join(f"{axis}={extent}" for axis, extent in self.extents.items())
        return f"{self.einsum} [{extents}] {self.a}, {self.b} -> {self.acc}"


def _parse(einsum: str) -> tuple[str, str, str]:
    match = _EINSUM.fullmatch(einsum.replace(" ", "")) if isinstance(einsum, str) else None
    if match is None:
        raise ParameterError(f"einsum must look like 'mk,kn->mn', not {einsum!r}" + _where(einsum))
    a, b, c = match.groups()
    for operand in (a, b, c):
        if len(set(operand)) != len(operand):
            raise ParameterError(f"einsum {einsum!r} uses an axis twice in operand {operand!r}; each axis may index an operand once")
    for position, axis in enumerate(c):
        if axis not in a + b:
            raise ParameterError(
                f"einsum {einsum!r}: axis {axis!r} of the output (position {einsum.index('->') + 2 + position}) is in no operand"
            )
    return a, b, c


def _where(einsum: object) -> str:
    """Position of the first character that cannot stand in an einsum."""
    if not isinstance(einsum, str):
        return ""
    found = next((position for position, letter in enumerate(einsum) if letter not in "abcdefghijklmnopqrstuvwxyz,-> "), None)
    return "" if found is None else f"; {einsum[found]!r} (position {found}) is no axis: axes are letters from a to z"


def _check_extents(einsum: str, operands: tuple[str, str, str], extents: Mapping[str, int]) -> dict[str, int]:
    axes = dict.fromkeys("".join(operands))
    missing = [axis for axis in axes if axis not in extents]
    if missing:
        places = ", ".join(f"{axis} (position {einsum.index(axis)})" for axis in missing)
        raise ParameterError(f"einsum {einsum!r} needs an extent for axis {places}; given: {', '.join(extents) or 'none'}")
    unknown = [axis for axis in extents if axis not in axes]
    if unknown:
        raise ParameterError(f"extent of axis {', '.join(unknown)} is given, but einsum {einsum!r} has only {', '.join(axes)}")
    for axis, extent in extents.items():
        if not isinstance(extent, int) or isinstance(extent, bool) or extent < 1:
            raise ParameterError(f"extent of axis {axis!r} must be a positive integer, not {extent!r}; nearest legal value: 1")
    return dict(extents)


def overflow_of(value: Overflow | str) -> Overflow:
    """Parse ``forbid``, ``wrap``, ``saturate`` or ``saturate-once``."""
    try:
        return Overflow(value)
    except ValueError:
        raise ParameterError(f"overflow must be one of {', '.join(mode.value for mode in Overflow)}, not {value!r}") from None
