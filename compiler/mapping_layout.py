"""Where the elements of an operand lie when an instruction reads them, and what it takes to bring them there.

Three ways, cheapest first: *in place* (tiles are cut out of the tensor), *direct* (a copy in the tensor's own coordinates,
so that windows overlap in memory as they do in the tensor), *gathered* (a copy per window, as im2col makes it).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .einsum import Access, Einsum, Guard, Index, merge_guards, quotient

IN_PLACE, DIRECT, GATHERED = "in place", "direct", "gathered"


@dataclass(frozen=True)
class Tile:
    """One axis of an instruction and the fused software axes that run along it.

    Parameters
    ----------
    axis : str
        Letter of the instruction's axis.
    extent : int
        Its extent in one execution.
    axes : tuple of str
        Software axes, slowest first; may be empty.
    size : int
        Product of their extents.
    reduction : bool
    """

    axis: str
    extent: int
    axes: tuple[str, ...]
    size: int
    reduction: bool

    @property
    def steps(self) -> int:
        """Executions along the axis."""
        return -(-self.size // self.extent)

    @property
    def padded(self) -> int:
        """Size rounded up to whole executions."""
        return self.steps * self.extent

    @property
    def variable(self) -> str:
        """Name of the position along the axis in indices of the compute block."""
        return "@" + self.axis


@dataclass(frozen=True)
class Layout:
    """How one operand reaches the instruction.

    ``shape`` is that of the tensor or of its packed copy; ``use`` is the index of the compute block over outer axes and
    ``@m``-like tile positions. For a copy, ``source`` is the index into the tensor over coordinates ``#0``, ``#1``, … of the
    copy, ``guards`` are the operator's own conditions there, and outside ``zero`` the copy holds 0.
    """

    kind: str
    shape: tuple[int, ...]
    use: tuple[Index, ...]
    bytes: int
    source: tuple[Index, ...] = ()
    guards: tuple[Guard, ...] = ()
    zero: tuple[Guard, ...] = ()


@dataclass(frozen=True)
class _Dim:
    """A tensor dimension: its index, the axes in it, and whether a copy may keep the tensor's coordinates along it."""

    index: Index
    axes: frozenset[str]
    keeps: bool


class OperandLayouts:
    """Layouts of one operand of an einsum for any assignment of axes; results are cached."""

    def __init__(self, access: Access, einsum: Einsum) -> None:
        self.access = access
        self.guards = () if access.view else access.guards
        self.extents = einsum.extents
        self.order = [axis.name for axis in einsum.axes if axis.name in access.axes]
        self.dims = [_Dim(index, index.axes, self._keeps(index)) for index in access.index]
        self.twice = {name for name in self.order if sum(name in dim.axes for dim in self.dims) != 1}
        self.converted = access.stored is not None and (access.stored.container != access.dtype.container or bool(access.shift))
        self.element = access.container.container_width // 8
        self._sizes: dict[tuple[Tile, ...], tuple[str, int]] = {}

    def _keeps(self, index: Index) -> bool:
        """Whether all conditions on the dimension's axes can be told from the coordinate alone."""
        if index.quotients:
            return False
        own = index.axes
        if any(guard.index.axes & own for guard in self.access.domain):
            return False
        return all(self._tells(guard, index) for guard in self.guards if guard.index.axes & own)

    @staticmethod
    def _tells(guard: Guard, index: Index) -> bool:
        return not (guard.index - index).terms or not (guard.index + index).terms

    def __call__(self, tiles: tuple[Tile, ...]) -> Layout:
        """The cheapest layout for the tiles of this operand, in the order of the instruction's operand."""
        return self._in_place(tiles) or _Copy(self, tiles).layout

    def size(self, tiles: tuple[Tile, ...]) -> tuple[str, int]:
        """Kind and bytes of that layout; cached, for searches."""
        if tiles not in self._sizes:
            copy = None if self._in_place(tiles) else _Copy(self, tiles)
            self._sizes[tiles] = (IN_PLACE, 0) if copy is None else (copy.kind, copy.bytes)
        return self._sizes[tiles]

    def packed(self, tiles: tuple[Tile, ...]) -> Layout:
        """A layout that is a copy, even where the tensor itself would do."""
        return _Copy(self, tiles).layout

    def _in_place(self, tiles: tuple[Tile, ...]) -> Layout | None:
        access = self.access
        if self.converted or access.view or access.guards or access.domain:
            return None
        use = fitting(tiles, access.index)
        return None if use is None else Layout(IN_PLACE, access.shape, use, 0)


def fitting(tiles: Sequence[Tile], index: Sequence[Index]) -> tuple[Index, ...] | None:
    """Indices with tile positions, if the last dimensions of a tensor are the tiles: one axis each, of whole tiles, stride 1.

    TVM matches a tile with the last dimensions of a buffer only.
    """
    if any(len(tile.axes) != 1 or tile.size % tile.extent for tile in tiles) or len(tiles) > len(index):
        return None
    head, tail = index[: len(index) - len(tiles)], index[len(index) - len(tiles) :]
    grouped = {tile.axes[0] for tile in tiles}
    if any(part.axes & grouped for part in head):
        return None
    use = list(head)
    for tile, part in zip(tiles, tail, strict=True):
        (axis,) = tile.axes
        if part.linear(axis) != 1 or part.axes & grouped != {axis} or any(axis in atom.inner.axes for atom in part.quotients):
            return None
        use.append(part - Index.axis(axis) + Index.axis(tile.variable))
    return tuple(use)


class _Copy:
    """Works out a packed copy of one operand."""

    def __init__(self, owner: OperandLayouts, tiles: tuple[Tile, ...]) -> None:
        self.owner, self.tiles = owner, tiles
        self.extents = {**owner.extents, **{tile.variable: tile.padded for tile in tiles}}
        self.grouped = {axis: tile for tile in tiles for axis in tile.axes}
        self.direct: dict[int, Tile] = {}
        self.kept = {number for number, dim in enumerate(owner.dims) if self._may_keep(number, dim)}
        self.iterators: set[str] = set()
        self._settle()
        self.shape: list[int] = []
        self.use: list[Index] = []
        self.values: dict[str, Index] = {}
        self.coordinates: dict[int, Index] = {}
        self.zero: list[Guard] = []
        self._add_iterators()
        self._add_kept()
        self._add_tiles()

    # ---- which dimensions keep the tensor's coordinates

    def _may_keep(self, number: int, dim: _Dim) -> bool:
        here = [axis for axis in dim.axes if axis in self.grouped]
        if not dim.keeps or dim.axes & self.owner.twice or len(here) > 1:
            return False
        if here:
            tile = self.grouped[here[0]]
            if len(tile.axes) > 1 or dim.index.linear(here[0]) < 1:
                return False
            if tile.reduction and tile.size < tile.padded and len(dim.axes) > 1:
                return False
            self.direct[number] = tile
        return True

    def _settle(self) -> None:
        """Axes of gathered dimensions become dimensions of the copy, which in turn gathers what else they index."""
        for number, dim in enumerate(self.owner.dims):
            if number in self.kept and number not in self.direct and self._is_sparse(dim):
                self.kept.discard(number)
        loose = {axis for axis in self.owner.order if not any(axis in self.owner.dims[number].axes for number in self.kept)}
        self.iterators = {axis for axis in loose if axis not in self.grouped}
        self.direct = {number: tile for number, tile in self.direct.items() if number in self.kept}

    def _is_sparse(self, dim: _Dim) -> bool:
        low, high = dim.index.bounds(self.owner.extents)
        step = math.gcd(*(coefficient for _, coefficient in dim.index.terms)) or 1
        return math.prod(self.owner.extents[axis] for axis in dim.axes) < (high - low) // step + 1

    # ---- the copy

    @functools.cached_property
    def layout(self) -> Layout:
        """The finished layout."""
        sizes = {f"#{number}": extent for number, extent in enumerate(self.shape)}
        source = tuple(
            self.coordinates[number] if number in self.coordinates else dim.index.substitute(self.values, sizes)
            for number, dim in enumerate(self.owner.dims)
        )
        guards = tuple(self._moved(guard, source, sizes) for guard in self.owner.guards)
        if self.owner.access.view:
            source, guards = self.owner.access.in_tensor(source, sizes)
        guards = merge_guards(guards, sizes)
        domain = tuple(guard.substitute(self.values, sizes) for guard in self.owner.access.domain)
        zero = merge_guards((*domain, *self.zero, *self._in_bounds(source, guards, sizes)), sizes)
        return Layout(self.kind, tuple(self.shape), tuple(self.use), self.bytes, source, guards, zero)

    @property
    def kind(self) -> str:
        """``direct`` if the copy has the tensor's own coordinates throughout."""
        direct = all(number in self.kept or not dim.axes for number, dim in enumerate(self.owner.dims))
        return DIRECT if direct else GATHERED

    @property
    def bytes(self) -> int:
        """Size of the copy."""
        return math.prod(self.shape) * self.owner.element

    def _dim(self, extent: int, use: Index) -> Index:
        self.shape.append(extent)
        self.use.append(use)
        return Index.axis(f"#{len(self.shape) - 1}")

    def _add_iterators(self) -> None:
        for axis in self.owner.order:
            if axis in self.iterators:
                self.values[axis] = self._dim(self.extents[axis], Index.axis(axis))

    def _add_kept(self) -> None:
        for number in sorted(self.kept - set(self.direct)):
            index = self.owner.dims[number].index
            low, high = index.bounds(self.extents)
            step = math.gcd(*(coefficient for _, coefficient in index.terms)) if index.terms else 1
            self.coordinates[number] = Index((), low)
            if high > low:
                steps = Index(tuple((atom, coefficient // step) for atom, coefficient in (index - low).terms), (index.const - low) // step)
                self.coordinates[number] = self._dim((high - low) // step + 1, steps) * step + low

    def _add_tiles(self) -> None:
        direct = {tile: number for number, tile in self.direct.items()}
        phases = {number: self._add_phase(number, tile) for number, tile in sorted(self.direct.items())}
        for tile in self.tiles:
            if tile in direct:
                self._add_direct(tile, direct[tile], phases[direct[tile]])
            else:
                self._add_gathered(tile)

    def _offset(self, number: int, tile: Tile) -> tuple[Index, int, int]:
        """What the outer axes add to the coordinate (from 0 on), its least value, and the stride of the tile's axis."""
        index, (axis,) = self.owner.dims[number].index, tile.axes
        stride = index.linear(axis)
        rest = index - Index.axis(axis) * stride
        low = rest.bounds(self.extents)[0]
        return rest - low, low, stride

    def _add_phase(self, number: int, tile: Tile) -> Index:
        offset, low, stride = self._offset(number, tile)
        phase = quotient(offset, 1, stride, self.extents)
        return (self._dim(stride, phase) if phase.terms else phase) + low

    def _add_direct(self, tile: Tile, number: int, start: Index) -> None:
        offset, _, stride = self._offset(number, tile)
        steps = quotient(offset, stride, 0, self.extents)
        extent = tile.padded + steps.bounds(self.extents)[1]
        position = self._dim(extent, Index.axis(tile.variable) + steps)
        self.coordinates[number] = position * stride + start
        if tile.reduction and tile.size < tile.padded:
            self.zero.append(Guard(position, 0, tile.size))

    def _add_gathered(self, tile: Tile) -> None:
        position = self._dim(tile.padded, Index.axis(tile.variable))
        name = f"#{len(self.shape) - 1}"
        inner = tile.size
        for axis in tile.axes:
            inner //= self.extents[axis]
            self.values[axis] = quotient(position, inner, self.extents[axis], {name: tile.padded})
        if tile.size < tile.padded:
            self.zero.append(Guard(position, 0, tile.size))

    def _moved(self, guard: Guard, source: Sequence[Index], sizes: Mapping[str, int]) -> Guard:
        """An operator's guard in coordinates of the copy."""
        for number, dim in enumerate(self.owner.dims):
            if number in self.coordinates and guard.index.axes & dim.axes:
                same = guard.index - dim.index
                if not same.terms:
                    return Guard(source[number] + same.const, guard.low, guard.high)
                return Guard((source[number] * -1) + (guard.index + dim.index).const, guard.low, guard.high)
        return guard.substitute(self.values, sizes)

    def _in_bounds(self, source: Sequence[Index], guards: Sequence[Guard], sizes: Mapping[str, int]) -> list[Guard]:
        """Guards that keep reads inside the tensor, where the operator's own do not."""
        missing = []
        for index, extent in zip(source, self.owner.access.shape, strict=True):
            low, high = index.bounds(sizes)
            for guard in guards:
                if not (guard.index - index).terms:
                    shift = (guard.index - index).const
                    low, high = max(low, guard.low - shift), min(high, guard.high - 1 - shift)
            if low <= high and (low < 0 or high >= extent):
                missing.append(Guard(index, 0, extent))
        return missing


def output_layout(tiles: tuple[Tile, ...], einsum: Einsum, *, in_place: bool, element: int) -> Layout:
    """Where results go: straight to the output, or to an array of whole tiles that is copied out afterwards.

    Parameters
    ----------
    tiles : tuple of Tile
        In the order of the instruction's C.
    einsum : Einsum
    in_place : bool
        Whether the output has the accumulator's type and needs no correction.
    element : int
        Bytes of an element of the output.
    """
    use = fitting(tiles, einsum.out_index) if in_place and not einsum.out_guards else None
    # TVM copies a cached tile back as one box; with two axes in a dimension the box has holes, and the copy is wrong.
    if use is not None and all(len(index.terms) <= 1 for index in use):
        return Layout(IN_PLACE, einsum.out_shape, use, 0)
    grouped = {axis for tile in tiles for axis in tile.axes}
    outer = [axis for axis in einsum.axes if axis.name in einsum.out_axes and axis.name not in grouped]
    shape = (*(axis.extent for axis in outer), *(tile.padded for tile in tiles))
    uses = (*(Index.axis(axis.name) for axis in outer), *(Index.axis(tile.variable) for tile in tiles))
    return Layout(GATHERED, shape, uses, math.prod(einsum.out_shape) * element)
