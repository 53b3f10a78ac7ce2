"""A route as TVM schedule primitives: pack, tile, order, and mark the tile for tensorization.

Only primitives of `Schedule` are used, so that a sketch is a trace, whose sampling decisions are the schedule's splits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..intrinsics import Contraction
from .forms import CLASS_ORDER, CLASSES
from .operators import Operator
from .routes import Route

MARK = "meta_schedule.auto_tensorize"
"""Annotation that MetaSchedule's RewriteTensorize looks for."""


def main_block(sch: Any) -> str:
    """Name of the block that sums products: the only one with a reduction."""
    from tvm.s_tir import SBlock
    from tvm_ffi import structural_walk

    found: list[str] = []

    def visit(block: Any) -> None:
        if block.init is not None:
            found.append(block.name_hint)

    structural_walk(sch.mod["main"].body, (SBlock, visit), order="post")
    return found[-1] if found else ""


def build(sch: Any, *, block: Any, operator: Operator, contraction: Contraction, route: Route, order: str, intrinsic: str) -> None:
    """Perform a route on ``block``; the splits are sampled.

    Parameters
    ----------
    sch : tvm.s_tir.Schedule
    block : SBlockRV of the operator's sum
    operator, contraction, route : what is mapped, and how
    order : str
        Classes of the outer loops, outermost first.
    intrinsic : str
        Name in TVM's table.
    """
    axes = _split_groups(sch, block, operator)
    names = (
        _to_matrices(sch, block, operator, axes, contraction, route) if route.kind == "layout" else _reorder_axes(sch, block, axes, route)
    )
    _pad(sch, block, names, operator, contraction, route)
    _tile(sch, block, names, contraction, route, order, intrinsic)


def _split_groups(sch: Any, block: Any, operator: Operator) -> list[str]:
    """Make the group of a grouped convolution an iterator of its own; return the iterators' names."""
    axes = list(operator.axes)
    if "g" not in axes:
        return axes
    at, per_group = axes.index("g"), operator.axes["co"]

    def split(*iters: Any) -> list[Any]:
        return [*iters[:at], iters[at] // per_group, iters[at] % per_group, *iters[at + 1 :]]

    sch.transform_block_layout(block, _index_map(len(axes) - 1, split))
    return axes


def _index_map(inputs: int, function: Any) -> Any:
    from tvm.tirx import IndexMap, Var

    variables = [Var(f"i{position}", "int32") for position in range(inputs)]
    return IndexMap(variables, function(*variables), None)


def _reorder_axes(sch: Any, block: Any, axes: list[str], route: Route) -> list[str]:
    """Bring the tiled iterators into the instruction's order, where they are not."""
    wanted = _in_order(axes, [name for _, name in route.tiles])
    if wanted != axes:
        sources = [axes.index(name) for name in wanted]
        sch.transform_block_layout(block, _index_map(len(axes), lambda *iters: [iters[source] for source in sources]))
    return wanted


def _in_order(axes: list[str], tiled: list[str]) -> list[str]:
    """The same names, with the tiled ones among them in the instruction's order; no more is moved than needed."""
    ordered = iter(tiled)
    return [next(ordered) if name in tiled else name for name in axes]


def _to_matrices(sch: Any, block: Any, operator: Operator, axes: list[str], contraction: Contraction, route: Route) -> list[str]:
    """Copy operands into matrices, then fuse the iterators of each class; return the new iterators' names."""
    classes = {
        name: [axes.index(axis) for axis in operator.class_axes(role)] for role, name in CLASSES.items() if operator.class_axes(role)
    }
    tiled = dict(route.tiles)
    loose = [name for name in classes if name not in tiled.values()]
    for kind, index in (("write", 0), ("read", 0), ("read", 1)):
        sch.reindex(block, (kind, index))
    for operand, place in (("c", ("write", 0)), ("a", ("read", 0)), ("b", ("read", 1))):
        dims = _iterators(sch, block, place)
        present = [name for name in loose if set(classes[name]) & set(dims)]
        wanted = sorted(present, key=CLASS_ORDER.index) + [tiled[axis] for axis in contraction.operand_axes(operand)]
        positions = [[dims.index(axis) for axis in classes[name] if axis in dims] for name in wanted]
        sch.transform_layout(block, place, _fusing(len(dims), positions, operator, axes, dims))
    names = _in_order([name for name in CLASS_ORDER if name in classes], list(tiled.values()))
    everything = list(range(len(axes)))
    groups = [classes[name] for name in names]
    if groups != [[position] for position in everything]:
        sch.transform_block_layout(block, _fusing(len(axes), groups, operator, axes, everything))
    return names


def _iterators(sch: Any, block: Any, place: tuple[str, int]) -> list[int]:
    """Positions of the block's iterators that index each dimension of an operand."""
    node = sch.get(block)
    region = (node.writes if place[0] == "write" else node.reads)[place[1]].region
    variables = [it.var for it in node.iter_vars]
    return [next(p for p, variable in enumerate(variables) if variable.same_as(dim.min)) for dim in region]


def _fusing(inputs: int, groups: Sequence[Sequence[int]], operator: Operator, axes: list[str], dims: Sequence[int]) -> Any:
    """Index map that fuses each group of inputs, first slowest; ``dims`` tells which iterator an input is."""

    def fuse(*iters: Any) -> list[Any]:
        fused = []
        for group in groups:
            # Splitting groups makes unit reductions data-parallel in TVM's eyes; fused with a reduction they would be refused.
            first, *rest = [position for position in group if operator.axes[axes[dims[position]]] > 1] or group[:1]
            value = iters[first]
            for position in rest:
                value = value * operator.axes[axes[dims[position]]] + iters[position]
            fused.append(value)
        return fused

    return _index_map(inputs, fuse)


def _extents(operator: Operator, route: Route) -> dict[str, int]:
    return dict(operator.classes) if route.kind == "layout" else dict(operator.axes)


def _pad(sch: Any, block: Any, names: list[str], operator: Operator, contraction: Contraction, route: Route) -> None:
    """Pad every iterator to a multiple of its tile."""
    factors = {name: contraction.extents[axis] for axis, name in route.tiles}
    extents = _extents(operator, route)
    if any(extents[name] % factor for name, factor in factors.items()):
        sch.pad_einsum(block, [factors.get(name, 1) for name in names])


def _tile(sch: Any, block: Any, names: list[str], contraction: Contraction, route: Route, order: str, intrinsic: str) -> None:
    """Cut the tiles, cut the loops around them in two levels, order all, and mark the tile."""
    loops = dict(zip(names, sch.get_loops(block), strict=True))
    cut = {}
    for axis, name in route.tiles:
        loops[name], cut[name] = sch.split(loops[name], [None, contraction.extents[axis]])
    levels: dict[str, tuple[list[Any], list[Any]]] = {name: ([], []) for name in order}
    for loop in route.split_loops:
        factors = sch.sample_perfect_tile(loops[loop.name], n=2, max_innermost_factor=loop.extent)
        outer, inner = sch.split(loops.pop(loop.name), factors)
        levels[CLASSES[loop.role]][0].append(outer)
        levels[CLASSES[loop.role]][1].append(inner)
    rest = sorted(loops, key=lambda name: name != "batch")
    nest = [loops[name] for name in rest] + [loop for level in (0, 1) for name in order for loop in levels[name][level]]
    tile = [cut[name] for _, name in route.tiles]
    if len(nest) + len(tile) > 1:
        sch.reorder(*nest, *tile)
    sch.decompose_reduction(block, (nest or tile)[0])
    sch.annotate(sch.blockize(tile[0] if tile else sch.add_unit_loop(block)), MARK, intrinsic)
