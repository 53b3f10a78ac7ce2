"""The tile for TVM that is nearest to a schedule's."""

from __future__ import annotations

from ...intrinsics.accelerator.machine import ceil_div
from ...intrinsics.tensor_intrin import Tile
from ..schedule import divisors
from .from_tvm import tile_instruction, window_tile
from .problem import Problem
from .schedule import Schedule


def tile_near(problem: Problem, schedule: Schedule, *, windows: bool) -> Tile:
    """The tile for TVM that is nearest to a schedule's.

    A matrix product is cut into parts of its rows, columns and products; with ``windows``, a convolution into output rows or parts of
    one, filters of one group, and channels of one tap, taps of one kernel row, or kernel rows. Parts divide the operator, or it is
    padded to whole tiles where no part that divides it is half as large.
    """
    op, machine = problem.op, problem.machine
    if not windows:
        m = _part(op.outputs, schedule.m * problem.block_rows, 1)
        n = _part(op.filters, schedule.n * machine.cols, machine.cols)
        k = _part(op.depth, schedule.k * problem.chunk, problem.chunk)
        return tile_instruction(machine, m=m, n=n, k=k).contraction
    depthwise = op.groups > 1 and op.group_channels == op.group_filters == 1
    kernel_rows, kernel_columns, channels = _products(problem, schedule.k * problem.chunk)
    return window_tile(
        machine,
        pixels=_pixels(problem, schedule.m),
        filters=_filters(problem, schedule.n) if not depthwise else min(op.filters, machine.cols) if problem.vector else 1,
        window=(kernel_rows, kernel_columns),
        channels=channels,
        stride=op.stride,
        dilation=op.dilation,
        depthwise=depthwise,
    )


def _part(extent: int, wanted: int, unit: int) -> int:
    """The largest divisor up to what is wanted that is whole units; what is wanted where none is half as large."""
    if wanted >= extent:
        return extent
    whole = max((part for part in divisors(extent) if part <= wanted and part % unit == 0), default=0)
    return wanted if 2 * whole < wanted else whole


def _pixels(problem: Problem, blocks: int) -> tuple[int, int]:
    """Output rows and columns: a strip in vector mode, else whole rows or a part of one."""
    op = problem.op
    if problem.strips:
        return _even(op.out_height, min(blocks, problem.max_m)), _even(op.out_width, problem.machine.rows)
    wanted = blocks * problem.block_rows
    if wanted < op.out_width:
        return 1, _even(op.out_width, wanted)
    return _even(op.out_height, wanted // op.out_width), op.out_width


def _even(extent: int, wanted: int) -> int:
    """The largest divisor up to what is wanted; equal parts with some of the last left over where none is half as large."""
    wanted = min(wanted, extent)
    whole = max(part for part in divisors(extent) if part <= wanted)
    return ceil_div(extent, ceil_div(extent, wanted)) if 2 * whole < wanted else whole


def _filters(problem: Problem, blocks: int) -> int:
    """Whole blocks that divide the filters of a group, or all of them."""
    cols, filters = problem.machine.cols, problem.op.group_filters
    return max((part for part in divisors(filters) if part <= blocks * cols and part % cols == 0), default=filters)


def _products(problem: Problem, wanted: int) -> tuple[int, int, int]:
    """Kernel rows, kernel columns and channels that are whole chunks: as many products as are wanted, or the fewest."""
    op = problem.op
    rows, columns, channels = *op.kernel, op.group_channels
    parts = [(1, 1, part) for part in divisors(channels)]
    parts += [(1, part, channels) for part in divisors(columns)] + [(part, columns, channels) for part in divisors(rows)]
    sizes = {part: part[0] * part[1] * part[2] for part in parts}
    whole = {part: size for part, size in sizes.items() if size % problem.chunk == 0 or size == problem.depth}
    below = [part for part, size in whole.items() if size <= wanted]
    return max(below, key=whole.__getitem__) if below else min(whole, key=whole.__getitem__)
