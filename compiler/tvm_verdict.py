"""What TVM's own auto-tensorization says of an operator and an instruction, for comparison; nothing here decides."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from ..intrinsics import Instruction, MappingError
from ..intrinsics.tensor_intrin import description, register
from .realise import matchable

_ERRORS = (ValueError, RuntimeError, TypeError, IndexError)


def tvm_verdict(func: Any, instruction: Instruction) -> dict[str, Any]:
    """Ask TVM.

    Returns
    -------
    ``{"loop_map", "proposal", "tensorized"}``: whether `get_tensorize_loop_mapping` says yes (it looks at iterator types and
    divisibility only), whether the auto-tensorizer proposes a map (None if it throws), and by which of TVM's routes the operator
    was really tensorized: "direct", "padded", "layout" or None.
    """
    legal = matchable(instruction)
    try:
        name = register(legal)
    except MappingError:
        return {"loop_map": False, "proposal": False, "tensorized": None}
    desc = description(legal.contraction)
    with _quiet():
        tensorized = next((route for route, attempt in _ROUTES if _attempt(attempt, func, name, desc)), None)
        return {"loop_map": _loop_map(func, desc), "proposal": _proposal(func, desc), "tensorized": tensorized}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the warnings off standard error that TVM's C++ side writes for every refusal."""
    saved = os.dup(2)
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(sink)


def _schedule(func: Any) -> tuple[Any, Any] | None:
    from tvm.s_tir import Schedule

    from .einsum_parse import blocks

    sums = [block for block in blocks(func) if block.init is not None]
    if not sums:
        return None
    schedule = Schedule(func, debug_mask="none", error_render_level="none")
    return schedule, schedule.get_sblock(sums[-1].name_hint)


def _loop_map(func: Any, desc: Any) -> bool:
    from tvm.s_tir.schedule.analysis import get_tensorize_loop_mapping

    found = _schedule(func)
    if found is None:
        return False
    try:
        return get_tensorize_loop_mapping(*found, desc) is not None
    except _ERRORS:
        return False


def _proposal(func: Any, desc: Any) -> bool | None:
    from tvm.s_tir.schedule.analysis import get_auto_tensorize_mapping_info

    found = _schedule(func)
    if found is None:
        return False
    try:
        return get_auto_tensorize_mapping_info(*found, desc) is not None
    except _ERRORS:
        return None


def _attempt(attempt: Any, func: Any, name: str, desc: Any) -> bool:
    found = _schedule(func)
    if found is None:
        return False
    schedule, block = found
    try:
        inner = attempt(schedule, block, name, desc)
        if inner is None:
            return False
        schedule.decompose_reduction(block, schedule.get_loops(block)[0])
        schedule.tensorize(inner, name)
    except _ERRORS:
        return False
    return True


def _direct(schedule: Any, block: Any, name: str, desc: Any) -> Any:
    from tvm.s_tir.schedule.transform import tile_with_tensor_intrin

    return tile_with_tensor_intrin(schedule, block, name, False)


def _padded(schedule: Any, block: Any, name: str, desc: Any) -> Any:
    from tvm.s_tir.schedule.transform import tile_with_tensor_intrin

    return tile_with_tensor_intrin(schedule, block, name, True)


def _layout(schedule: Any, block: Any, name: str, desc: Any) -> Any:
    """Reindex every operand into the proposed map's matrices, then pad and tile."""
    from tvm.s_tir.schedule.analysis import get_auto_tensorize_mapping_info

    info = get_auto_tensorize_mapping_info(schedule, block, desc)
    if info is None:
        return None
    node = schedule.get(block)
    sources = [*(("read", position, region.source) for position, region in enumerate(node.reads)), ("write", 0, node.writes[0].source)]
    for kind, position, _ in sources:
        schedule.reindex(block, (kind, position))
    node = schedule.get(block)
    mapping = info.mappings[0]
    for kind, position, buffer in sources:
        region = (node.reads if kind == "read" else node.writes)[position].region
        schedule.transform_layout(block, (kind, position), _operand_map(mapping, info, node, region, buffer))
    schedule.transform_block_layout(block, mapping)
    return _padded(schedule, block, name, desc)


def _operand_map(mapping: Any, info: Any, node: Any, region: Any, buffer: Any) -> Any:
    """The map of the block, restricted to the iterators of one operand, its tail in the order of the intrinsic's indices."""
    from tvm.tirx import IndexMap, Var

    from .einsum_parse import walk

    iterators = [axis.var for axis in node.iter_vars]
    positions = [next(at for at, variable in enumerate(iterators) if variable.same_as(dim.min)) for dim in region]
    inputs = [mapping.initial_indices[position] for position in positions]
    final = list(mapping.final_indices)
    outer = len(final) - len(info.rhs_iters)

    def belongs(expression: Any) -> bool:
        return any(variable.same_as(known) for variable in walk(expression, Var) for known in inputs)

    target = next(right for left, right in info.lhs_buffer_map.items() if left.same_as(buffer))
    indices = next(found for right, found in info.rhs_buffer_indices.items() if right.same_as(target))
    order = [next(at for at, axis in enumerate(info.rhs_iters) if axis.var.same_as(index)) for index in indices]
    return IndexMap(inputs, [*(part for part in final[:outer] if belongs(part)), *(final[outer + at] for at in order)], None)


_ROUTES = (("direct", _direct), ("padded", _padded), ("layout", _layout))
