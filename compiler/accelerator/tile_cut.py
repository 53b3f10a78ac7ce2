"""Where tiles of a module may begin and end, so that commands of the accelerator can load, multiply and store them."""

from __future__ import annotations

from collections.abc import Sequence

from ...intrinsics import ScheduleError
from ...intrinsics.numerics import Array
from .problem import Problem
from .tile_layout import Layout


def check_cut(problem: Problem, layout: Layout, firsts: Sequence[Array]) -> None:
    """Refuse tiles that no command expresses.

    Parameters
    ----------
    firsts : three arrays of int64
        First output pixel, channel and product of the tiles.

    Raises
    ------
    ScheduleError
        Names the tile and what is allowed.
    """
    if problem.vector:
        _check_strips(problem, layout, firsts[1])
        return
    if problem.op.group_channels == 1 and layout.tile[1] > problem.op.group_filters:
        raise ScheduleError(
            f"a depthwise tile of {layout.tile[1]} channels needs the vector mode, which the design does not have here; allowed: 1"
        )
    _check_rows(problem, layout)
    _check_products(problem, layout, firsts[2])
    _check_columns(problem, layout, firsts[1])


def _check_strips(problem: Problem, layout: Layout, channels: Array) -> None:
    """Vector mode takes whole windows of a strip of output rows, and a block of channels."""
    op, machine, (_, n_size, k_size), (rows, columns) = problem.op, problem.machine, layout.tile, layout.pixels
    if k_size != op.depth:
        raise ScheduleError(f"a depthwise tile of {k_size} products is a part of a window of {op.depth}; allowed: all of it")
    if columns > machine.rows or rows > problem.max_m:
        raise ScheduleError(f"a depthwise tile of {rows} x {columns} pixels is no strip; allowed: at most {problem.max_m} x {machine.rows}")
    if n_size > machine.cols or (channels % machine.cols).any():
        allowed = f"{machine.cols}, or all {op.channels} if fewer"
        raise ScheduleError(f"depthwise tiles of {n_size} channels do not begin at blocks of columns; allowed: {allowed}")


def _check_rows(problem: Problem, layout: Layout) -> None:
    """Output rows of a tile must lie one behind the other."""
    rows, columns = layout.pixels
    if rows > 1 and columns != problem.op.out_width:
        raise ScheduleError(
            f"a tile of {rows} x {columns} pixels leaves out parts of its output rows of {problem.op.out_width}; "
            "allowed: whole rows, or parts of one"
        )


def _check_products(problem: Problem, layout: Layout, products: Array) -> None:
    k_size, odd = layout.tile[2], products % problem.chunk > 0
    if odd.any():
        raise ScheduleError(
            f"a tile of {k_size} products begins at product {int(products[odd][0])}; "
            f"allowed: multiples of {problem.chunk}, or the whole of {problem.depth}"
        )


def _check_columns(problem: Problem, layout: Layout, channels: Array) -> None:
    n_size, filters = layout.tile[1], problem.op.group_filters
    if problem.n_groups > 1 and filters % n_size:
        raise ScheduleError(f"a tile of {n_size} columns does not divide a group of {filters}; allowed: tiles of one group")
    row, width = problem.machine.cols * problem.output.size, problem.machine.port_bytes
    step = width if row % width == 0 else row if width % row == 0 else 1
    if (channels % filters * problem.output.size % step).any():
        need = step // problem.output.size
        raise ScheduleError(f"tiles of {n_size} columns do not begin at beats of the port; allowed: multiples of {need}")
