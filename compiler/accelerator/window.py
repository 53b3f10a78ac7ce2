"""How one tensor is walked: its dimensions as functions of the loops, and two of them as the rows and columns of windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...intrinsics.numerics import Array
from ..einsum import Access, Guard, Index, Quotient
from ..reasons import Reason, Rejected


class NoPlace(Exception):  # noqa: N818 - carries an answer, not a failure
    """Leaves the search with the reason why an operator has no place on the accelerator."""

    def __init__(self, reason: Reason, detail: str, change: str = "") -> None:
        super().__init__(detail)
        self.rejected = Rejected(reason, detail, change)


@dataclass(frozen=True)
class Dimension:
    """One dimension of a tensor: its size, the index that is read, and the conditions on that index."""

    size: int
    index: Index
    guards: tuple[Guard, ...] = ()

    def fixed(self, values: Mapping[str, Index], extents: Mapping[str, int]) -> Dimension:
        """The dimension where some axes have fixed values."""
        guards = tuple(guard.substitute(values, extents) for guard in self.guards)
        return replace(self, index=self.index.substitute(values, extents), guards=guards)


@dataclass(frozen=True, kw_only=True)
class Window:
    """Rows and columns of windows; what a tensor does not have is 1.

    Parameters
    ----------
    size, out, kernel : (int, int)
        Rows and columns of the image, of the output, and of the kernel.
    stride, dilation : int
    corner : (int, int)
        Where the window of the first output begins.
    pixels, taps : tuple of str
        Axes of output pixels and of the kernel.
    """

    size: tuple[int, int]
    out: tuple[int, int]
    kernel: tuple[int, int]
    stride: int
    dilation: int
    corner: tuple[int, int]
    pixels: tuple[str, ...]
    taps: tuple[str, ...]

    @property
    def shape(self) -> tuple[object, ...]:
        """Everything but the corner."""
        return self.size, self.out, self.kernel, self.stride, self.dilation, self.pixels, self.taps


def evaluate(index: Index, grids: Mapping[str, Array]) -> Array:
    """Value of an index over a grid of axes."""
    total: Array = np.asarray(index.const)
    for atom, coefficient in index.terms:
        if isinstance(atom, Quotient):
            part = evaluate(atom.inner, grids) // atom.divisor
            part = part % atom.modulus if atom.modulus else part
        else:
            part = grids[atom]
        total = total + coefficient * part
    return total


def dimensions(access: Access, roles: Mapping[str, str], extents: Mapping[str, int]) -> list[Dimension]:
    """The dimensions of a tensor that are more than one element, with the conditions that each explains.

    Raises
    ------
    NoPlace
        If an index is no sum of axes (but for axes of all operands, which may be fixed), or a condition is on no dimension.
    """
    found, explained = [], set[Guard]()
    change = (
        f"copy operand {access.tensor} into the order in which it is read, {access.fill} where it is not, at the price of one more pass"
    )
    for size, index in zip(access.shape, access.index, strict=True):
        if any(roles[axis] != "abc" for atom in index.quotients for axis in atom.inner.axes):
            raise NoPlace(
                Reason.NON_AFFINE, f"operand {access.tensor} is read at {index}, which no walk over rows and columns makes", change
            )
        own = [guard for guard in access.guards if guard not in explained and not (guard.index - index).terms]
        explained.update(own)
        if size > 1 or index.terms or own:
            found.append(Dimension(size, index, tuple(own)))
    for guard in access.guards:
        if guard not in explained and not _always(guard, roles, extents):
            raise NoPlace(Reason.GUARDED, f"operand {access.tensor} is read only where {guard}, which is no border of the tensor", change)
    repeated = [axis for axis in access.axes if sum(axis in dim.index.axes for dim in found) > 1]
    if repeated:
        raise NoPlace(Reason.NON_AFFINE, f"axis {repeated[0]} moves along two dimensions of operand {access.tensor}", change)
    return found


def _always(guard: Guard, roles: Mapping[str, str], extents: Mapping[str, int]) -> bool:
    """Whether a condition on axes of all operands holds for all of their values."""
    axes = sorted(guard.index.axes)
    if any(roles[axis] != "abc" for axis in axes):
        return False
    values = evaluate(guard.index, dict(zip(axes, np.ogrid[tuple(slice(extents[axis]) for axis in axes)], strict=True)))
    return bool(((values >= guard.low) & (values < guard.high)).all())


def radix(index: Index, extents: Mapping[str, int], size: int) -> list[str] | None:
    """Axes of an index that counts through a dimension without gaps, slowest first; None if it does not."""
    if index.quotients:
        return None
    terms = sorted(((coefficient, str(atom)) for atom, coefficient in index.terms), reverse=True)
    place = 1
    for coefficient, axis in reversed(terms):
        if coefficient != place:
            return None
        place *= extents[axis]
    return [axis for _, axis in terms] if place == size and index.const == 0 else None


def is_plain(dim: Dimension, roles: Mapping[str, str], only: Sequence[str] = ("ac", "ab", "a")) -> bool:
    """Whether a dimension is one axis, read in order."""
    terms = dim.index.terms
    return len(terms) == 1 and not dim.index.quotients and terms[0][1] == 1 and not dim.guards and roles[str(terms[0][0])] in only


def window_of(dims: Sequence[Dimension], roles: Mapping[str, str], extents: Mapping[str, int]) -> Window | None:
    """Up to two dimensions as rows and columns, or None if their steps are not the same."""
    lines = [_line(dim, roles, extents) for dim in dims]
    if any(line is None for line in lines):
        return None
    known = [line for line in lines if line is not None]
    known = [_Line()] * (2 - len(known)) + known
    steps = {line.stride for line in known if line.pixel}, {line.dilation for line in known if line.tap}
    if any(len(values) > 1 for values in steps):
        return None
    y, x = known
    return Window(
        size=(y.size, x.size),
        out=(y.out, x.out),
        kernel=(y.taps, x.taps),
        stride=next(iter(steps[0]), 1),
        dilation=next(iter(steps[1]), 1),
        corner=(y.first, x.first),
        pixels=tuple(line.pixel for line in known if line.pixel),
        taps=tuple(line.tap for line in known if line.tap),
    )


@dataclass(frozen=True)
class _Line:
    """One dimension: ``stride * pixel + dilation * tap + first``."""

    size: int = 1
    pixel: str = ""
    out: int = 1
    stride: int = 1
    tap: str = ""
    taps: int = 1
    dilation: int = 1
    first: int = 0


def _line(dim: Dimension, roles: Mapping[str, str], extents: Mapping[str, int]) -> _Line | None:
    line = _Line(size=dim.size, first=dim.index.const)
    for atom, coefficient in dim.index.terms:
        axis = str(atom)
        if roles[axis] == "ac" and not line.pixel and coefficient > 0:
            line = replace(line, pixel=axis, out=extents[axis], stride=coefficient)
        elif roles[axis] in ("ab", "a") and not line.tap and coefficient > 0:
            line = replace(line, tap=axis, taps=extents[axis], dilation=coefficient)
        else:
            return None
    return line if bordered(dim, extents) else None


def bordered(dim: Dimension, extents: Mapping[str, int]) -> bool:
    """Whether exactly what lies outside of the tensor is not read."""
    low, high = dim.index.bounds(extents)
    inside = [low, high + 1]
    for guard in dim.guards:
        shift = (guard.index - dim.index).const
        inside = [max(inside[0], guard.low - shift), min(inside[1], guard.high - shift)]
    return inside == [max(low, 0), min(high + 1, dim.size)]
