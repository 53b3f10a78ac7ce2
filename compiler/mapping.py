"""The answer of the mapper: which axes of an operator run along which axes of an instruction, and what that costs."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

from ..intrinsics import Instruction
from .einsum import Access, Einsum
from .mapping_layout import GATHERED, IN_PLACE, Layout, OperandLayouts, Tile, output_layout


@dataclass(frozen=True, kw_only=True)
class Mapped:
    """One way to compute an operator with an instruction.

    Parameters
    ----------
    einsum : Einsum
        The operator, possibly rewritten, with the operand that feeds the instruction's A as ``a``.
    instruction : Instruction
    groups : tuple of (instruction axis, tuple of software axes)
    swapped : bool
        Whether the operator's second operand feeds the instruction's A.
    bandwidth : float
        Bytes per cycle that the cost was computed with.
    """

    einsum: Einsum
    instruction: Instruction
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    bandwidth: float
    swapped: bool = False

    @functools.cached_property
    def tiles(self) -> dict[str, Tile]:
        """Tile of each axis of the instruction."""
        return {axis: tile_of(axis, axes, self.einsum, self.instruction) for axis, axes in self.groups}

    def operand_tiles(self, operand: str) -> tuple[Tile, ...]:
        """Tiles of operand ``"a"``, ``"b"`` or ``"c"``, in its order."""
        return tuple(self.tiles[axis] for axis in self.instruction.contraction.operand_axes(operand))

    @property
    def outer(self) -> tuple[str, ...]:
        """Axes that stay loops around the instruction."""
        inside = {axis for _, axes in self.groups for axis in axes}
        return tuple(axis.name for axis in self.einsum.axes if axis.name not in inside)

    def access(self, operand: str) -> Access:
        """The operator's operand that feeds ``"a"`` or ``"b"`` of the instruction."""
        return self.einsum.a if operand == "a" else self.einsum.b

    @functools.cached_property
    def layouts(self) -> dict[str, Layout]:
        """How ``"a"`` and ``"b"`` are brought to the instruction and ``"c"`` back."""
        plans = {name: OperandLayouts(self.access(name), self.einsum) for name in "ab"}
        found = {name: plan(self.operand_tiles(name)) for name, plan in plans.items()}
        if self.einsum.a.tensor == self.einsum.b.tensor and all(layout.kind == IN_PLACE for layout in found.values()):
            found["b"] = plans["b"].packed(self.operand_tiles("b"))  # TVM never matches one buffer with two operands
        found["c"] = out_layout(self.operand_tiles("c"), self.einsum, self.instruction)
        return found

    # ---- figures

    @functools.cached_property
    def calls(self) -> int:
        """Executions of the instruction."""
        extents = self.einsum.extents
        return math.prod(extents[axis] for axis in self.outer) * math.prod(tile.steps for tile in self.tiles.values())

    @property
    def macs(self) -> int:
        """Useful multiply-accumulates."""
        return self.einsum.macs

    @property
    def utilization(self) -> float:
        """Useful over issued multiply-accumulates, 0..1."""
        return self.macs / (self.calls * self.instruction.contraction.macs)

    def moved_bytes(self, operand: str) -> int:
        """Bytes packed (a, b), or unpacked and corrected (c), at run time; weights are packed at compile time."""
        if operand == "c":
            return result_bytes(self.layouts["c"], self.einsum)
        if self.access(operand).constant:
            return 0
        return self.layouts[operand].bytes

    @property
    def activation_bytes(self) -> int:
        """Bytes of operands packed at run time."""
        return self.moved_bytes("a") + self.moved_bytes("b")

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights packed at compile time."""
        return sum(self.layouts[name].bytes for name in "ab" if self.access(name).constant)

    @property
    def cycles(self) -> float:
        """Static cost: executions, one fill, and moved bytes over bandwidth."""
        return static_cost(self.calls, self.instruction, self.activation_bytes + self.moved_bytes("c"), self.bandwidth)

    @property
    def status(self) -> str:
        """What moves: ``in place`` (nothing), ``weights packed`` (nothing at run time), ``direct`` or ``gathered`` (data)."""
        moving = [name for name in "ab" if self.layouts[name].kind != IN_PLACE]
        live = [name for name in moving if not self.access(name).constant]
        if not live and not self.moved_bytes("c"):
            return "weights packed" if moving else "in place"
        return "gathered" if any(self.layouts[name].kind == GATHERED for name in live) else "direct"

    # ---- words

    @property
    def words(self) -> str:
        """The assignment for people, such as ``n·oh·ow→m, co→n, ci·kh·kw→k``."""
        return words(self.groups, self.swapped, self.einsum.notes)

    @property
    def padding(self) -> str:
        """Where utilisation is lost: ``k: 27 → 32, 16 % padding``; empty if nowhere."""
        parts = []
        for tile in self.tiles.values():
            if tile.padded > tile.size:
                name = "·".join(tile.axes) or "nothing"
                parts.append(f"{name} {tile.size} → {tile.padded} on {tile.axis}: {100 * (1 - tile.size / tile.padded):.0f} % padding")
        return "; ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "map": self.words,
            "groups": {axis: list(axes) for axis, axes in self.groups},
            "outer": list(self.outer),
            "swapped": self.swapped,
            "movement": self.status,
            "utilization": self.utilization,
            "calls": self.calls,
            "macs": self.macs,
            "cycles": self.cycles,
            "activation_bytes": self.activation_bytes,
            "weight_bytes": self.weight_bytes,
            "result_bytes": self.moved_bytes("c"),
            "layouts": {name: layout.kind for name, layout in self.layouts.items()},
            "padding": self.padding,
        }


def tile_of(axis: str, axes: tuple[str, ...], einsum: Einsum, instruction: Instruction) -> Tile:
    """The tile that software axes make along an axis of the instruction."""
    contraction, extents = instruction.contraction, einsum.extents
    size = math.prod(extents[name] for name in axes)
    return Tile(axis, contraction.extents[axis], axes, size, axis in contraction.reduction_axes)


def out_layout(tiles: tuple[Tile, ...], einsum: Einsum, instruction: Instruction) -> Layout:
    """Layout of the result for an instruction's accumulator type."""
    # MetaSchedule moves the reader of the contraction into its tiles, so that reader must be a copy that reads nothing else.
    exact = not einsum.a.offset and not einsum.b.offset and instruction.contraction.acc.container == einsum.acc.container
    return output_layout(tiles, einsum, in_place=exact, element=einsum.acc.container_width // 8)


def result_bytes(layout: Layout, einsum: Einsum) -> int:
    """Bytes of results that are unpacked, and rewritten where zero points have to be taken out."""
    size = math.prod(einsum.out_shape) * einsum.acc.container_width // 8
    return layout.bytes + (size if einsum.a.offset or einsum.b.offset else 0)


def balanced_bandwidth(instruction: Instruction) -> float:
    """Bytes per cycle at which the instruction itself reads its operands: what a memory that keeps it busy delivers."""
    contraction = instruction.contraction
    size = sum(math.prod(contraction.shape(name)) * contraction.dtype(name).container_width // 8 for name in "ab")
    return size / instruction.initiation_interval


def static_cost(calls: int, instruction: Instruction, moved_bytes: float, bandwidth: float) -> float:
    """Cycles: ``calls x initiation interval + latency + moved bytes / bandwidth``."""
    return calls * instruction.initiation_interval + instruction.latency + moved_bytes / bandwidth


def words(groups: tuple[tuple[str, tuple[str, ...]], ...], swapped: bool, notes: tuple[str, ...]) -> str:
    """An assignment for people."""
    parts = [f"{'·'.join(axes) or '1'}→{axis}" for axis, axes in groups] or ["one product per execution"]
    parts += [f"[{note}]" for note in notes]
    return ", ".join(parts) + (" (operands swapped)" if swapped else "")
