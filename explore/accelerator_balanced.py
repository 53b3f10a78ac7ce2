"""A fast search for schedules: all loop orders, but few tile sizes along each axis and few slots.

Of the sizes that give as many tiles only the least counts: it shares the work most evenly and leaves the most memory to the
other operands. Of those `MOST_SIZES` are taken, at even ratios. The result is no guaranteed optimum as that of
`best_schedule` is, but comes within parts of a percent of it, many times faster.
"""

from __future__ import annotations

import numpy as np

from ..compiler.accelerator.costs import widest
from ..compiler.accelerator.problem import Problem
from ..compiler.accelerator.schedule import ORDERS, Schedule
from ..intrinsics import ScheduleError
from ..intrinsics.accelerator import MemoryTiming
from ..intrinsics.numerics import Array
from .accelerator_bounded import Space, Tiles, named

BALANCED_SLOTS = ((1, 1, 1, 0), (2, 2, 1, 0), (2, 2, 2, 1), (4, 2, 2, 1), (2, 4, 2, 1))
"""Slots of A, B and C, and lag of the stores: fewer than `best_schedule` tries."""

MOST_SIZES = 14


def balanced_sizes(most: int) -> Array:
    """At most `MOST_SIZES` sizes from 1 to ``most``; all of them where there are no more."""
    if most <= MOST_SIZES:
        return np.arange(1, most + 1)
    least = np.array(sorted({-(-most // tiles) for tiles in range(1, most + 1)}), np.int64)
    wanted = np.exp(np.linspace(0, np.log(most), MOST_SIZES))
    nearest = np.abs(np.log(least)[None, :] - np.log(wanted)[:, None]).argmin(axis=1)
    chosen: Array = least[np.unique(nearest)]
    return chosen


def balanced_tiles(problem: Problem) -> Tiles:
    """All tiles of balanced sizes, whether they fit or not."""
    m, n, k = (balanced_sizes(most) for most in (problem.max_m, problem.max_n, problem.k_chunks))
    grid = np.meshgrid(m, n, k, indexing="ij")
    return grid[0].ravel(), grid[1].ravel(), grid[2].ravel()


def balanced_schedule(problem: Problem, *, timing: MemoryTiming | None = None) -> tuple[Schedule, int, int]:
    """The fastest schedule of balanced tiles, its cycles by the exact model, and the number of schedules that were looked at.

    Raises
    ------
    ScheduleError
        If none fits the memories.
    """
    space, tiles = Space(problem=problem, timing=timing, limits=None, orders=ORDERS, slots=BALANCED_SLOTS), balanced_tiles(problem)
    found, _ = space.fastest(tiles, space.points(tiles, None), None)
    if found is None:
        raise ScheduleError("no schedule of balanced tiles fits the memories; allowed: a larger spad_kib or acc_kib")
    fitting = sum(int((tiles[1] <= widest(problem, tiles[0], tiles[2], named(slots))).sum()) for slots in BALANCED_SLOTS)
    return found.schedule, found.cycles, fitting * len(ORDERS)
