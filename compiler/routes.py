"""Ways from an operator to an instruction: which operator axis goes to which instruction axis, and what has to be packed.

This is the seam between what is decided and how TVM does it: a `Route` is plain data, computed here without TVM, and
`sketch` performs it. Three ways are known:

* ``direct``: tiles are the last dimensions of the operator's tensors as they lie in memory; nothing is copied.
* ``padded``: the same, but the tile does not divide the operator, so tensors are copied into padded ones first.
* ``layout``: tensors are copied into matrices (for a convolution: im2col), in which every axis of one role is fused.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from ..intrinsics import Contraction, DType, Instruction, Machine, MappingError, Overflow
from .forms import CLASS_ORDER, CLASSES
from .operators import Operator
from .reasons import Reason, Rejected

KINDS = ("direct", "padded", "layout")


@dataclass(frozen=True)
class OuterLoop:
    """A loop around the tiles.

    Parameters
    ----------
    name : str
        Operator axis, or the class (batch, m, n, k) whose axes are fused.
    role : str
        As in `Contraction.role`.
    extent : int
        Tiles along it.
    """

    name: str
    role: str
    extent: int


@dataclass(frozen=True, kw_only=True)
class Route:
    """One way to tensorize an operator.

    Parameters
    ----------
    kind : "direct", "padded" or "layout"
    tiles : tuple of (instruction axis, name of the loop it is cut from)
    outer : tuple of OuterLoop
        In the operator's order; the loop order of a schedule permutes their classes.
    macs : int
        Useful multiply-accumulates.
    issued_macs : int
        Multiply-accumulates of all calls, padding included.
    bytes_packed : int
        Bytes that pack and unpack blocks write.
    """

    kind: str
    tiles: tuple[tuple[str, str], ...]
    outer: tuple[OuterLoop, ...]
    macs: int
    issued_macs: int
    bytes_packed: int

    @property
    def calls(self) -> int:
        """Tile calls."""
        return math.prod(loop.extent for loop in self.outer)

    @property
    def utilization(self) -> float:
        """Useful over issued multiply-accumulates, 0..1."""
        return self.macs / self.issued_macs

    @functools.cached_property
    def split_loops(self) -> tuple[OuterLoop, ...]:
        """Loops that a schedule cuts in two levels."""
        return tuple(loop for loop in self.outer if loop.role != "abc" and loop.extent > 1)


def instruction_of(target: Machine | Instruction) -> Instruction:
    """The instruction of a machine, or the instruction itself."""
    return target.instruction if isinstance(target, Machine) else target


def routes(operator: Operator, target: Machine | Instruction) -> tuple[Route, ...]:
    """The ways that exist.

    Raises
    ------
    MappingError
        If there is none; the message is the reason of the last way tried.
    """
    examined = examine(operator, target)
    found = tuple(answer for answer in examined.values() if isinstance(answer, Route))
    if not found:
        raise [answer for answer in examined.values() if isinstance(answer, Rejected)][-1].error()
    return found


def examine(operator: Operator, target: Machine | Instruction) -> dict[str, Route | Rejected]:
    """Answer for each kind of route: the route, or why it does not exist."""
    instruction = instruction_of(target)
    rejected = _check_types(operator, instruction) or _check_roles(operator, instruction)
    if rejected is not None:
        return dict.fromkeys(KINDS, rejected)
    tiles = _direct_tiles(operator, instruction)
    layout = _layout(operator, instruction)
    if isinstance(tiles, Rejected):
        return {"direct": tiles, "padded": tiles, "layout": layout}
    return {"direct": _direct(operator, instruction, tiles), "padded": _padded(operator, instruction, tiles), "layout": layout}


def _check_types(operator: Operator, instruction: Instruction) -> Rejected | None:
    contraction = instruction.contraction
    for operand, dtype in (("a", operator.a), ("b", operator.b)):
        rejected = _check_operand(operator, instruction, operand, dtype)
        if rejected is not None:
            return rejected
    if contraction.acc.container != operator.out:
        return Rejected(
            Reason.ACCUMULATOR,
            f"accumulator {contraction.acc} of {instruction.name} lies in memory as {contraction.acc.container}, "
            f"but the output of {operator.name} is {operator.out}",
        )
    if contraction.overflow is Overflow.WRAP and contraction.acc.width < operator.out.width:
        return Rejected(
            Reason.OVERFLOW, f"accumulator {contraction.acc} of {instruction.name} wraps below {operator.out}; allowed: {operator.out}"
        )
    if contraction.overflow not in (Overflow.WRAP, Overflow.FORBID):
        return Rejected(
            Reason.OVERFLOW, f"accumulator of {instruction.name} saturates, but the sums of {operator.name} wrap in {operator.out}"
        )
    return None


def _check_operand(operator: Operator, instruction: Instruction, operand: str, dtype: DType) -> Rejected | None:
    own = instruction.contraction.dtype(operand)
    if not own.contains(dtype):
        return Rejected(
            Reason.OPERAND_DTYPE, f"operand {operand} of {instruction.name} is {own}, which does not hold the {dtype} of {operator.name}"
        )
    if own.container != dtype.container:
        return Rejected(
            Reason.OPERAND_DTYPE,
            f"operand {operand} of {instruction.name} is {own}, in memory {own.container}, but {operator.name} has {dtype.container} there",
        )
    return None


def _check_roles(operator: Operator, instruction: Instruction) -> Rejected | None:
    if operator.form.obstacle is not None:
        reason, detail = operator.form.obstacle
        return Rejected(reason, f"{operator.name}: {detail}")
    contraction = instruction.contraction
    for axis in contraction.axes:
        role = contraction.role(axis)
        if not operator.class_axes(role):
            return Rejected(
                Reason.AXIS_MISSING,
                f"{operator.name} has no axis that indexes {_operands(role)} only, which axis {axis!r} of {instruction.name} needs",
            )
    return None


def _operands(role: str) -> str:
    return " and ".join(role)


# ---- direct and padded


def _direct_tiles(operator: Operator, instruction: Instruction) -> dict[str, str] | Rejected:
    """Operator axis of each instruction axis, such that tiles are the last dimensions of every operand."""
    contraction = instruction.contraction
    chosen: dict[str, str] = {}
    for operand in "abc":
        axes = contraction.operand_axes(operand)
        dims = operator.access(operand)
        for axis, dim in zip(axes, dims[max(len(dims) - len(axes), 0) :], strict=False):
            fitting = [name for name, factor in dim if factor == 1 and operator.roles[name] == contraction.role(axis)]
            if not fitting or chosen.setdefault(axis, fitting[0]) != fitting[0]:
                return _no_tile(operator, instruction, operand, axis)
        if len(axes) > len(dims):
            return _no_tile(operator, instruction, operand, axes[0])
    for operand in "abc":
        for axis in contraction.operand_axes(operand):
            if sum(chosen[axis] == name for dim in operator.access(operand) for name, _ in dim) > 1:
                return _no_tile(operator, instruction, operand, axis)
    if len(set(chosen.values())) < len(chosen):
        return Rejected(Reason.AXES_AMBIGUOUS, f"two axes of {instruction.name} would be one axis of {operator.name}")
    return {axis: chosen[axis] for axis in contraction.axes}


def _no_tile(operator: Operator, instruction: Instruction, operand: str, axis: str) -> Rejected:
    return Rejected(
        Reason.LAYOUT,
        f"axis {axis!r} of {instruction.name} is not contiguous where operand {operand} of {operator.name} has its last dimensions",
    )


def _direct(operator: Operator, instruction: Instruction, tiles: dict[str, str]) -> Route | Rejected:
    contraction = instruction.contraction
    for axis, name in tiles.items():
        tile, extent = contraction.extents[axis], operator.axes[name]
        if extent % tile:
            detail = f"{tile} ({axis!r} of {instruction.name}) does not divide {extent} ({name!r} of {operator.name})"
            return Rejected(Reason.DIVISIBILITY, detail)
    return _route("direct", operator, contraction, tiles, dict(operator.axes), {axis: operator.roles[axis] for axis in operator.axes}, 0)


def _padded(operator: Operator, instruction: Instruction, tiles: dict[str, str]) -> Route | Rejected:
    contraction = instruction.contraction
    bare = all(len(dim) == 1 and dim[0][1] == 1 for operand in "abc" for dim in operator.access(operand))
    if not bare:
        return Rejected(Reason.NOT_EINSUM, f"{operator.name} indexes a tensor by a sum of axes, so TVM cannot pad it where it lies")
    grown = {name: _ceil(operator.axes[name], contraction.extents[axis]) for axis, name in tiles.items()}
    if all(operator.axes[name] == extent for name, extent in grown.items()):
        return Rejected(Reason.DIVISIBILITY, f"the tile of {instruction.name} divides {operator.name}, so nothing needs padding")
    extents = {**operator.axes, **grown}
    packed = sum(
        math.prod(extents[dim[0][0]] for dim in operator.access(operand)) * _bytes(contraction, operand)
        for operand in "abc"
        if any(extents[dim[0][0]] != operator.axes[dim[0][0]] for dim in operator.access(operand))
    )
    return _route("padded", operator, contraction, tiles, extents, {axis: operator.roles[axis] for axis in operator.axes}, packed)


# ---- layout


def _layout(operator: Operator, instruction: Instruction) -> Route | Rejected:
    contraction = instruction.contraction
    tiles: dict[str, str] = {}
    for axis in contraction.axes:
        name = CLASSES[contraction.role(axis)]
        if name in tiles.values():
            return Rejected(Reason.AXES_AMBIGUOUS, f"two axes of {instruction.name} have the role of {name}; one is allowed")
        tiles[axis] = name
    extents = dict(operator.classes)
    canonical = list(tiles.values()) == sorted(tiles.values(), key=CLASS_ORDER.index)
    if extents.get("k") == 1 and "k" in tiles.values() and not (canonical and len(operator.axes) == len(extents)):
        detail = f"{operator.name} sums over one product only, and TVM forgets a reduction of extent 1 when it fuses or permutes axes"
        return Rejected(Reason.UNIT_REDUCTION, detail)
    for axis, name in tiles.items():
        extents[name] = _ceil(extents[name], contraction.extents[axis])
    roles = {name: role for role, name in CLASSES.items() if name in extents}
    packed = sum(
        math.prod(extent for name, extent in extents.items() if operand in roles[name]) * _bytes(contraction, operand) for operand in "abc"
    )
    ordered = {name: extents[name] for name in CLASS_ORDER if name in extents}
    return _route("layout", operator, contraction, tiles, ordered, roles, packed)


# ---- common


def _ceil(extent: int, tile: int) -> int:
    return -(-extent // tile) * tile


def _bytes(contraction: Contraction, operand: str) -> int:
    return contraction.dtype(operand).container_width // 8


def _route(
    kind: str,
    operator: Operator,
    contraction: Contraction,
    tiles: dict[str, str],
    extents: dict[str, int],
    roles: dict[str, str],
    packed: int,
) -> Route:
    tile = {name: contraction.extents[axis] for axis, name in tiles.items()}
    outer = tuple(OuterLoop(name, roles[name], extent // tile.get(name, 1)) for name, extent in extents.items())
    issued = math.prod(extents.values())
    return Route(kind=kind, tiles=tuple(tiles.items()), outer=outer, macs=operator.macs, issued_macs=issued, bytes_packed=packed)


def no_route(operator: Operator, target: Machine | Instruction, kind: str) -> MappingError:
    """The error for a kind of route that does not exist."""
    answer = examine(operator, target).get(kind)
    if isinstance(answer, Rejected):
        return answer.error()
    return MappingError(f"route must be one of {', '.join(KINDS)}, not {kind!r}")
