"""Rewrites of an `Einsum` that make more of it fit an instruction; each leaves its result unchanged."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..intrinsics import DType
from .einsum import Access, Axis, Einsum, Guard, Index, Quotient, quotient


def drop_unit_axes(einsum: Einsum) -> Einsum:
    """Remove axes of extent 1."""
    gone = {axis.name: Index() for axis in einsum.axes if axis.extent == 1}
    return einsum.rewrite(tuple(axis for axis in einsum.axes if axis.extent > 1), gone) if gone else einsum


def split_axis(einsum: Einsum, name: str, factor: int, suffixes: tuple[str, str] = ("_o", "_i")) -> Einsum:
    """Replace an axis by ``outer * factor + inner``; ``factor`` divides its extent."""
    axes: list[Axis] = []
    for axis in einsum.axes:
        if axis.name == name:
            axes += [
                Axis(name + suffixes[0], axis.extent // factor, axis.reduction),
                Axis(name + suffixes[1], factor, axis.reduction),
            ]
        else:
            axes.append(axis)
    value = Index.axis(name + suffixes[0]) * factor + Index.axis(name + suffixes[1])
    return einsum.rewrite(tuple(axes), {name: value})


def _indices(einsum: Einsum) -> Iterator[Index]:
    for access in (einsum.a, einsum.b):
        yield from access.index
        yield from (guard.index for guard in (*access.guards, *access.domain))
    yield from einsum.out_index


def _quotients(einsum: Einsum) -> Iterator[Quotient]:
    return (atom for index in _indices(einsum) for atom in index.quotients)


def separate(einsum: Einsum) -> Einsum:
    """Split every axis v that is used as ``v // c`` or ``v % c`` (groups, channel multipliers, pixel shuffle)."""
    for _ in range(2 * len(einsum.axes) + 4):
        found = next(_separable(einsum), None)
        if found is None:
            break
        einsum = split_axis(einsum, *found)
    return einsum


def _separable(einsum: Einsum) -> Iterator[tuple[str, int]]:
    extents = einsum.extents
    for atom in _quotients(einsum):
        terms = atom.inner.terms
        if len(terms) != 1 or atom.inner.const or not isinstance(terms[0][0], str) or terms[0][1] != 1:
            continue
        name = terms[0][0]
        for factor in (atom.divisor, atom.modulus):
            if 1 < factor < extents[name] and extents[name] % factor == 0:
                yield name, factor


# ---- zero insertion: transposed convolution


@dataclass(frozen=True)
class _Phase:
    """A guard ``(spatial + reduction + const) % stride == 0``."""

    spatial: Axis
    reduction: Axis
    const: int
    stride: int


def split_phases(einsum: Einsum) -> Einsum:
    """Give each output phase of a transposed convolution its own taps, so that products with inserted zeros vanish.

    A guard ``(h + r + c) % s == 0`` becomes ``h = s*h' + p`` and ``r = s*r' + (-p - c) mod s``; p is one more axis of
    both operands and of the output. Legal only if what the guard drops is worth 0.
    """
    for _ in range(4):
        phase = next(_phases(einsum), None)
        if phase is None:
            break
        einsum = _split_phase(einsum, phase)
    return einsum


def _phases(einsum: Einsum) -> Iterator[_Phase]:
    by_name = {axis.name: axis for axis in einsum.axes}
    for access in (einsum.a, einsum.b):
        if access.fill != access.zero_point:
            continue
        for guard in access.guards:
            atom = _remainder(guard)
            if atom is None:
                continue
            axes = [by_name[str(name)] for name, _ in atom.inner.terms]
            if sorted(axis.reduction for axis in axes) == [False, True]:
                spatial, reduction = sorted(axes, key=lambda axis: axis.reduction)
                yield _Phase(spatial, reduction, atom.inner.const - guard.low, atom.modulus)


def _remainder(guard: Guard) -> Quotient | None:
    """The atom of a guard that asks for one remainder of a plain sum of axes."""
    if len(guard.index.terms) != 1 or guard.index.const or guard.high - guard.low != 1:
        return None
    atom, coefficient = guard.index.terms[0]
    if not isinstance(atom, Quotient) or coefficient != 1 or atom.divisor != 1 or not atom.modulus:
        return None
    return None if any(factor != 1 for _, factor in atom.inner.terms) or atom.inner.quotients else atom


def _split_phase(einsum: Einsum, phase: _Phase) -> Einsum:
    stride, spatial, taps = phase.stride, phase.spatial, phase.reduction
    outer, p, tap = f"{spatial.name}_o", f"{spatial.name}_p", f"{taps.name}_o"
    new = {
        spatial.name: (Axis(outer, -(-spatial.extent // stride)), Axis(p, stride)),
        taps.name: (Axis(tap, -(-taps.extent // stride), True),),
    }
    axes = tuple(part for axis in einsum.axes for part in new.get(axis.name, (axis,)))
    first = quotient(Index(((p, -1),), -phase.const), 1, stride, {p: stride})
    values = {spatial.name: Index(((outer, stride), (p, 1))), taps.name: Index(((tap, stride),)) + first}
    result = einsum.rewrite(axes, values)
    extents = result.extents
    inside = Guard(values[taps.name], 0, taps.extent)
    exists = Guard(values[spatial.name], 0, spatial.extent)
    if not inside.holds_always(extents):
        result = replace(result, b=replace(result.b, domain=(*result.b.domain, inside)))
    if not exists.holds_always(extents):
        result = replace(result, out_guards=(*result.out_guards, exists))
    taken = sum((h + r + phase.const) % stride == 0 for h in range(spatial.extent) for r in range(taps.extent))
    macs = result.macs * taken // (spatial.extent * taps.extent)
    return replace(result, macs=macs, notes=(*result.notes, f"{spatial.name} in {stride} phases"))


# ---- depthwise: a batch axis as the diagonal of a matrix


def diagonals(einsum: Einsum, sizes: set[int]) -> Iterator[Einsum]:
    """Yield forms in which (part of) an axis of a, b and c becomes a reduction over b's diagonal.

    Axis g, or its inner part of a size that divides it, indexes b and c; a copy of it is a reduction axis of a and b,
    and b counts only where both agree.
    """
    for axis in einsum.axes:
        if einsum.roles[axis.name] != "abc":
            continue
        for size in sorted({math.gcd(axis.extent, size) for size in sizes} - {1}):
            yield _diagonal(einsum, axis, size)


def _diagonal(einsum: Einsum, axis: Axis, size: int) -> Einsum:
    whole = size == axis.extent
    split = einsum if whole else split_axis(einsum, axis.name, size)
    kept = axis.name if whole else f"{axis.name}_i"
    copy = f"{kept}_r"
    extents = {**split.extents, copy: size}
    on_diagonal = Guard(Index(((kept, 1), (copy, -1))), 0, 1)
    return replace(
        split,
        axes=(*split.axes, Axis(copy, size, True)),
        a=split.a.substitute({kept: Index.axis(copy)}, extents),
        b=replace(split.b, domain=(*split.b.domain, on_diagonal)),
        notes=(*split.notes, f"{kept} on the diagonal"),
    )


# ---- windows over several dimensions


def joined_rows(einsum: Einsum) -> Iterator[Einsum]:
    """Yield forms in which two window dimensions of the activations are read as one long line.

    Pixels (h, w) and taps (rh, rw) meet at h + rh, w + rw. On rows of padded width W joined to one line, that is
    ``(h*W + w) + rh*W + rw``: one axis h_w and constant offsets, so windows of whole images run along one instruction axis without
    a copy per window. Positions beyond the end of a row are computed in vain.
    """
    for letter, access in (("a", einsum.a), ("b", einsum.b)):
        if access.constant or access.view:
            continue
        plain = {number: axis for number in range(len(access.index)) if (axis := _window_axis(einsum, letter, number)) is not None}
        for row, column in itertools.pairwise(sorted(plain)):
            windowed = access.index[row].axes | access.index[column].axes
            if column == row + 1 and len(windowed) > 2:
                yield _joined(einsum, letter, (row, plain[row]), (column, plain[column]))


def _window_axis(einsum: Einsum, letter: str, number: int) -> Axis | None:
    """The only output axis that moves a window along a dimension by 1, if every condition there can be told from the coordinate."""
    access = einsum.a if letter == "a" else einsum.b
    index, roles = access.index[number], einsum.roles
    moving = [axis for axis in einsum.axes if axis.name in index.axes and roles[axis.name] == letter + "c"]
    if index.quotients or len(moving) != 1 or index.linear(moving[0].name) != 1 or any(factor < 0 for _, factor in index.terms):
        return None
    name = moving[0].name
    others = [part for at, part in enumerate(access.index) if at != number] + [guard.index for guard in access.domain]
    guards = [guard for guard in access.guards if guard.index.axes & index.axes]
    known = all(not (guard.index - index).terms for guard in guards)
    return moving[0] if known and not any(name in part.axes for part in others) and not einsum.out_guards else None


def _joined(einsum: Einsum, letter: str, row: tuple[int, Axis], column: tuple[int, Axis]) -> Einsum:
    access = einsum.a if letter == "a" else einsum.b
    (first, h), (second, w) = row, column
    lows, highs = zip(*(access.index[at].bounds(einsum.extents) for at in (first, second)), strict=True)
    width = highs[1] - lows[1] + 1
    line = Axis(f"{h.name}_{w.name}", (h.extent - 1) * width + w.extent)
    axes = tuple(line if axis is h else axis for axis in einsum.axes if axis is not w)
    extents = {axis.name: axis.extent for axis in axes}
    start = (access.index[first] - Index.axis(h.name) - lows[0]) * width + (access.index[second] - Index.axis(w.name) - lows[1])
    view = _view(len(access.index), first, width, lows)
    viewed = replace(
        access,
        index=(*access.index[:first], start + Index.axis(line.name), *access.index[second + 1 :]),
        guards=tuple(_on_view(guard, access, view) for guard in access.guards),
        view=view,
    )
    position = Index.axis(line.name)
    values = {h.name: quotient(position, width, 0, extents), w.name: quotient(position, 1, width, extents)}
    changed = replace(einsum, a=viewed) if letter == "a" else replace(einsum, b=viewed)
    rewritten = changed.rewrite(axes, values)
    exists = Guard(values[w.name], 0, w.extent)
    guards = () if exists.holds_always(extents) else (exists,)
    return replace(rewritten, out_guards=(*rewritten.out_guards, *guards), notes=(*einsum.notes, f"rows of {h.name} joined"))


def _view(dims: int, first: int, width: int, lows: tuple[int, ...]) -> tuple[Index, ...]:
    line = Index.axis(f"${first}")
    rows, columns = Index(((Quotient(line, width), 1),), lows[0]), Index(((Quotient(line, 1, width), 1),), lows[1])
    before = (Index.axis(f"${number}") for number in range(first))
    after = (Index.axis(f"${number - 1}") for number in range(first + 2, dims))
    return (*before, rows, columns, *after)


def _on_view(guard: Guard, access: Access, view: tuple[Index, ...]) -> Guard:
    """A guard on one dimension, said of the view."""
    for index, seen in zip(access.index, view, strict=True):
        difference = guard.index - index
        if index.terms and not difference.terms:
            return Guard(seen + difference.const, guard.low, guard.high)
    raise AssertionError("a guard that no dimension tells keeps rows from being joined")


# ---- element types


def fit(access: Access, dtype: DType) -> Access | None:
    """Store an operand as ``dtype``: widened, or moved by half the range between signed and unsigned; None if too wide."""
    have = access.dtype
    shift = 0
    if not dtype.contains(have):
        if have.signed == dtype.signed or dtype.width < have.width:
            return None
        shift = 1 << (have.width - 1)
        shift = shift if have.signed else -shift
    return replace(access, stored=dtype, shift=shift)
