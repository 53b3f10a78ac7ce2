"""Every way to lay the axes of an operator along the axes of an instruction, best first. Pure Python."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..intrinsics import DType, Instruction, Overflow, ParameterError
from ..intrinsics.numerics import bounds_of_product
from .einsum import Einsum
from .einsum_transform import diagonals, fit, joined_rows, split_phases
from .mapping import Mapped, balanced_bandwidth, out_layout, result_bytes, static_cost, tile_of, words
from .mapping_layout import GATHERED, IN_PLACE, OperandLayouts, Tile
from .reasons import Reason, Rejected

Groups = tuple[tuple[str, tuple[str, ...]], ...]


def best_map(einsum: Einsum, instruction: Instruction, *, bandwidth: float | None = None) -> Mapped | Rejected:
    """The cheapest map, or why there is none."""
    found = enumerate_maps(einsum, instruction, limit=1, bandwidth=bandwidth)
    return found if isinstance(found, Rejected) else found[0]


def enumerate_maps(
    einsum: Einsum,
    instruction: Instruction,
    *,
    limit: int | None = 16,
    bandwidth: float | None = None,
    gather: bool = True,
    prune: bool = True,
) -> tuple[Mapped, ...] | Rejected:
    """The cheapest maps by static cost, in order.

    Parameters
    ----------
    einsum : Einsum
    instruction : Instruction
    limit : int >= 1 or None
        How many; None for all.
    bandwidth : float > 0 or None
        Bytes per cycle of packing and unpacking; None for that of the instruction's own operands (`balanced_bandwidth`).
    gather : bool
        Whether activations may be copied once per window (im2col); if not, they stay in place or are copied in their own coordinates.
    prune : bool
        Skip what cannot be among the best ``limit``; the result is the same.

    Returns
    -------
    tuple of Mapped, or Rejected
    """
    if limit is not None and limit < 1:
        raise ParameterError(f"limit of maps must be at least 1, not {limit!r}; nearest legal value: 1")
    if bandwidth is None:
        bandwidth = balanced_bandwidth(instruction)
    if not bandwidth > 0:
        raise ParameterError(f"bandwidth must be positive, not {bandwidth!r} bytes per cycle")
    variants = list(_typed_variants(einsum, instruction))
    if not variants:
        return _too_wide(einsum, instruction)
    obstacle = variants[0].obstacle
    if obstacle is not None and all(variant.obstacle for variant in variants):
        return obstacle
    best = _Best(limit if prune else None)
    for variant in variants:
        if variant.obstacle is None:
            oriented, swapped = variant.einsum, variant.swapped
            _Search(oriented, swapped, instruction, bandwidth=bandwidth, gather=gather, best=best).run()
    leaves = best.ordered()[:limit]
    if not leaves:
        return _no_axis(einsum, instruction)
    return tuple(
        Mapped(einsum=leaf.einsum, instruction=instruction, groups=leaf.groups, swapped=leaf.swapped, bandwidth=bandwidth)
        for leaf in leaves
    )


# ---- forms of the operator


@dataclass(frozen=True)
class _Variant:
    einsum: Einsum
    swapped: bool
    obstacle: Rejected | None


def _typed_variants(einsum: Einsum, instruction: Instruction) -> Iterator[_Variant]:
    """Both operand orders of the operator and of its rewritten forms, stored in the instruction's types."""
    contraction = instruction.contraction
    for form in _all_forms(einsum):
        for swapped in (False, True):
            oriented = form.swapped() if swapped else form
            a, b = fit(oriented.a, contraction.a), fit(oriented.b, contraction.b)
            if a is None or b is None:
                continue
            typed = replace(oriented, a=a, b=b)
            obstacle = _accumulator(typed, instruction)
            yield _Variant(typed, swapped, obstacle)
            if contraction.reduction_axes:
                sizes = {contraction.extents[axis] for axis in contraction.axes if contraction.role(axis) in ("ab", "bc")}
                for diagonal in diagonals(typed, sizes):
                    yield _Variant(diagonal, swapped, obstacle)  # off the diagonal are zeros, so its sums are those of the form


def _all_forms(einsum: Einsum) -> Iterator[Einsum]:
    for form in _forms(einsum):
        yield form
        yield from joined_rows(form)


def useful_macs(einsum: Einsum) -> int:
    """Multiply-accumulates that an instruction has to do: without those of inserted zeros."""
    return _forms(einsum)[0].macs


def _forms(einsum: Einsum) -> list[Einsum]:
    phased = split_phases(einsum)
    return [einsum] if phased is einsum else [phased, replace(einsum, macs=phased.macs)]


def _accumulator(einsum: Einsum, instruction: Instruction) -> Rejected | None:
    """Whether the accumulator can hold, or wraps like, the operator's sums; the order of the operands matters where their types differ."""
    contraction = instruction.contraction
    acc = contraction.acc
    exact = contraction.overflow in (Overflow.WRAP, Overflow.FORBID)
    if exact and acc.width >= einsum.acc.width:
        return None
    low, high = (
        bound * einsum.depth for bound in bounds_of_product(_range(einsum.a.dtype, contraction.a), _range(einsum.b.dtype, contraction.b))
    )
    if acc.min <= low and high <= acc.max:
        return None
    need = max(high.bit_length(), (-low - 1).bit_length() if low < 0 else 0) + acc.signed
    enough = min(need, einsum.acc.width)
    change = f"an accumulator of {enough} bits" + (" that wraps" if enough < need else "")
    change += f", at the price of {enough - acc.width} bits more per sum" if enough > acc.width else ""
    if exact:
        detail = (
            f"{einsum.depth} products of {_reduced(einsum)} need {need} bits, more than the accumulator {acc} of {instruction.name} has"
        )
        return Rejected(Reason.ACCUMULATOR, detail, change)
    detail = f"the accumulator of {instruction.name} saturates, and {einsum.depth} products of {_reduced(einsum)} reach {max(high, -low)}"
    return Rejected(Reason.OVERFLOW, detail, change)


def _range(have: DType, stored: DType) -> DType:
    """Type of the stored values."""
    return have if stored.contains(have) else DType(have.width, stored.signed)


def _reduced(einsum: Einsum) -> str:
    return "·".join(axis.name for axis in einsum.axes if axis.reduction) or "one product"


# ---- search


@dataclass(frozen=True)
class _Leaf:
    einsum: Einsum
    swapped: bool
    groups: Groups
    key: tuple[float, float, int, int, str]


class _Best:
    """The ``limit`` cheapest leaves."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._leaves: list[_Leaf] = []

    @property
    def bound(self) -> float:
        """Cost above which a leaf is of no interest."""
        return math.inf if self.limit is None or len(self._leaves) < self.limit else self._leaves[-1].key[0]

    def add(self, leaf: _Leaf) -> None:
        """Keep a leaf if it is among the best."""
        self._leaves.append(leaf)
        if self.limit is not None:
            self._leaves.sort(key=lambda kept: kept.key)
            del self._leaves[self.limit :]

    def ordered(self) -> list[_Leaf]:
        """Best first."""
        return sorted(self._leaves, key=lambda leaf: leaf.key)


@dataclass(frozen=True)
class _Option:
    """A group of software axes for one axis of the instruction; ``ratio`` is what it leaves of the loop iterations."""

    ratio: float
    axes: tuple[str, ...]
    tile: Tile


class _Search:
    """Depth first over the instruction's axes; a branch ends when its calls and packed bytes alone cost more than the bound."""

    def __init__(self, einsum: Einsum, swapped: bool, instruction: Instruction, *, bandwidth: float, gather: bool, best: _Best) -> None:
        self.einsum, self.swapped, self.instruction, self.best = einsum, swapped, instruction, best
        self.bandwidth, self.gather = bandwidth, gather
        self.contraction = instruction.contraction
        self.total = math.prod(axis.extent for axis in einsum.axes)
        self.live = [name for name, access in (("a", einsum.a), ("b", einsum.b)) if not access.constant]
        self.plans = {name: OperandLayouts(access, einsum) for name, access in (("a", einsum.a), ("b", einsum.b))}
        self.axes = sorted(self.contraction.axes, key=lambda axis: not any(name in self.contraction.role(axis) for name in self.live))
        self.options = {axis: self._options(axis) for axis in self.axes}
        self.floor = [math.prod(self.options[axis][0].ratio for axis in self.axes[position:]) for position in range(len(self.axes) + 1)]
        self.out_bytes: dict[tuple[Tile, ...], int] = {}

    def _options(self, axis: str) -> list[_Option]:
        role = self.contraction.role(axis)
        roles = self.einsum.roles
        candidates = [
            other.name
            for other in self.einsum.axes
            if other.extent > 1
            and roles[other.name]
            and set(roles[other.name]) <= set(role)
            and ("c" in role) == ("c" in roles[other.name])
        ]
        found = []
        for count in range(len(candidates) + 1):
            for axes in itertools.combinations(candidates, count):
                tile = tile_of(axis, axes, self.einsum, self.instruction)
                found.append(_Option(tile.steps / tile.size, axes, tile))
        return sorted(found, key=lambda option: (option.ratio, len(option.axes)))

    def run(self) -> None:
        """Visit every leaf that may be among the best."""
        self._descend(0, 1.0, {}, frozenset())

    def _descend(self, position: int, ratio: float, chosen: dict[str, _Option], used: frozenset[str]) -> None:
        if position == len(self.axes):
            self._leaf(chosen)
            return
        axis = self.axes[position]
        for option in self.options[axis]:
            calls = self.total * ratio * option.ratio * self.floor[position + 1]
            if self._least(calls, 0) > self.best.bound:
                break
            if used.isdisjoint(option.axes):
                picked = {**chosen, axis: option}
                moved = self._moved(picked)
                if moved < math.inf and self._least(calls, moved) <= self.best.bound:
                    self._descend(position + 1, ratio * option.ratio, picked, used.union(option.axes))

    def _least(self, calls: float, moved: float) -> float:
        return static_cost(math.floor(calls * (1 - 1e-9)), self.instruction, moved, self.bandwidth)

    def _moved(self, chosen: dict[str, _Option]) -> float:
        """Bytes of the operands and of the result whose tiles are all decided; infinite if they may not move like that."""
        moved: float = 0
        for name in (*self.live, "c"):
            axes = self.contraction.operand_axes(name)
            if all(axis in chosen for axis in axes):
                tiles = tuple(chosen[axis].tile for axis in axes)
                moved += self._unpacked(tiles) if name == "c" else self._packed(name, tiles)
        return moved

    def _packed(self, name: str, tiles: tuple[Tile, ...]) -> float:
        kind, size = self.plans[name].size(tiles)
        return math.inf if kind == GATHERED and not self.gather else size

    def _unpacked(self, tiles: tuple[Tile, ...]) -> int:
        if tiles not in self.out_bytes:
            self.out_bytes[tiles] = result_bytes(out_layout(tiles, self.einsum, self.instruction), self.einsum)
        return self.out_bytes[tiles]

    def _leaf(self, chosen: dict[str, _Option]) -> None:
        if self.contraction.axes and not any(option.axes for option in chosen.values()):
            return
        inside = {axis for option in chosen.values() for axis in option.axes}
        calls = math.prod(axis.extent for axis in self.einsum.axes if axis.name not in inside)
        calls *= math.prod(option.tile.steps for option in chosen.values())
        moved = self._moved(chosen) + self._shared(chosen)
        groups = tuple((axis, chosen[axis].axes) for axis in self.contraction.axes)
        cost = static_cost(calls, self.instruction, moved, self.bandwidth)
        if cost <= self.best.bound:
            text = words(groups, self.swapped, self.einsum.notes)
            self.best.add(_Leaf(self.einsum, self.swapped, groups, (cost, moved, len(self.einsum.notes), len(inside), text)))

    def _shared(self, chosen: dict[str, _Option]) -> int:
        """Bytes of the copy that one tensor as both operands needs."""
        if self.einsum.a.tensor != self.einsum.b.tensor:
            return 0
        tiles = {name: tuple(chosen[axis].tile for axis in self.contraction.operand_axes(name)) for name in "ab"}
        if any(self.plans[name].size(tiles[name])[0] != IN_PLACE for name in "ab"):
            return 0
        return self.plans["b"].packed(tiles["b"]).bytes


# ---- reasons


def _too_wide(einsum: Einsum, instruction: Instruction) -> Rejected:
    contraction = instruction.contraction
    have = f"{einsum.a.dtype} x {einsum.b.dtype}"
    detail = f"{einsum.a.tensor} x {einsum.b.tensor} is {have}, which {contraction.a} x {contraction.b} of {instruction.name} does not hold"
    orders = ((einsum.a, einsum.b), (einsum.b, einsum.a))
    parts = min(-(-a.dtype.width // contraction.a.width) * -(-b.dtype.width // contraction.b.width) for a, b in orders)
    narrow = min(contraction.a.width, contraction.b.width)
    return Rejected(
        Reason.TOO_WIDE, detail, f"quantise to {narrow} bits, or split the operands into {narrow}-bit parts: {parts}x the calls"
    )


def _no_axis(einsum: Einsum, instruction: Instruction) -> Rejected:
    contraction = instruction.contraction
    have = ", ".join(f"{name} ({_role(role)})" for name, role in einsum.roles.items())
    need = ", ".join(f"{axis} ({_role(contraction.role(axis))})" for axis in contraction.axes)
    least = f"one product per execution: {100 / contraction.macs:.2g} % of {contraction.macs} MACs"
    detail = f"no axis of {have} runs along {need} of {instruction.name} ({least})"
    reduces = any(axis.reduction for axis in einsum.axes)
    wanted = "k,k->, at the price of an adder tree" if reduces else "m,n->mn, at the price of one accumulator per product"
    return Rejected(Reason.NO_PARALLELISM, detail, f"an instruction such as {wanted}")


def _role(role: str) -> str:
    return {"ab": "reduction", "ac": "a and output", "bc": "b and output", "abc": "batch"}.get(role, "+".join(role))
