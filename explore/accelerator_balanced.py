"""A fast search for schedules: all loop orders, but few tile sizes along each axis and few slots.

Of the sizes that give as many tiles only the least counts: it shares the work most evenly and leaves the most memory to the
other operands. Of those `MOST_SIZES` are taken, at even ratios. The result is no guaranteed optimum as that of
`best_schedule` is, but comes within parts of a percent of it, many times faster.
"""

from __future__ import annotations

import itertools

import numpy as np

from ..compiler.accelerator.costs import AXES, fits, table
from ..compiler.accelerator.problem import Problem
from ..compiler.accelerator.schedule import ORDERS, Schedule
from ..intrinsics import ScheduleError
from ..intrinsics.accelerator import MemoryTiming
from ..intrinsics.accelerator.costs import lower_bound
from ..intrinsics.numerics import Array
from ..sim.accelerator_scorer import score

SLOTS = ((1, 1, 1, 0), (2, 2, 1, 0), (2, 2, 2, 1), (4, 2, 2, 1), (2, 4, 2, 1))
"""Slots of A, B and C, and lag of the stores: fewer than `best_schedule` tries."""

CHUNKS = (32, 128, 512)
"""Schedules that are scored together: few while the bound still excludes many, then more."""

MOST_SIZES = 14

NAMES = ("m", "n", "k", "a_slots", "b_slots", "c_slots", "lag", "outer", "middle", "inner")


def balanced_sizes(most: int) -> Array:
    """At most `MOST_SIZES` sizes from 1 to ``most``; all of them where there are no more."""
    if most <= MOST_SIZES:
        return np.arange(1, most + 1)
    least = np.array(sorted({-(-most // tiles) for tiles in range(1, most + 1)}), np.int64)
    wanted = np.exp(np.linspace(0, np.log(most), MOST_SIZES))
    nearest = np.abs(np.log(least)[None, :] - np.log(wanted)[:, None]).argmin(axis=1)
    chosen: Array = least[np.unique(nearest)]
    return chosen


def balanced_schedule(problem: Problem, *, timing: MemoryTiming | None = None) -> tuple[Schedule, int, int]:
    """The fastest schedule of balanced tiles, its cycles by the exact model, and the number of schedules that were looked at.

    Raises
    ------
    ScheduleError
        If none fits the memories.
    """
    space = _space(problem)
    parts = {name: space[:, place] for place, name in enumerate(NAMES)}
    m, n, k = (parts.pop(axis) for axis in "mnk")
    rows = table(problem, m, n, k, timing=timing, limits=None, **parts)
    bounds = lower_bound(rows)
    order = np.argsort(bounds, kind="stable")
    best, index, start = None, -1, 0
    for size in itertools.chain(CHUNKS, itertools.repeat(CHUNKS[-1])):
        part = order[start : start + size]
        if not len(part) or (best is not None and bounds[part[0]] >= best):
            break
        start += size
        cycles, _ = score(rows[part])
        legal = np.where(cycles < 0, np.iinfo(np.int64).max, cycles)
        winner = int(legal.argmin())
        if cycles[winner] >= 0 and (best is None or cycles[winner] < best):
            best, index = int(cycles[winner]), int(part[winner])
    if best is None:
        raise ScheduleError("no schedule of balanced tiles fits the memories; allowed: a larger spad_kib or acc_kib")
    at = dict(zip(NAMES, space[index].tolist(), strict=True))
    loops = "".join("mnk"[at.pop(name)] for name in ("outer", "middle", "inner"))
    return Schedule(order=loops, **at), best, len(space)


def _space(problem: Problem) -> Array:
    """Schedules that fit, a row of `NAMES` each."""
    sizes = [balanced_sizes(most) for most in (problem.max_m, problem.max_n, problem.k_chunks)]
    tiles = np.stack(np.meshgrid(*sizes, indexing="ij"), axis=-1).reshape(-1, 3)
    loops = np.array([[AXES[axis] for axis in order] for order in ORDERS], np.int64)
    kept = []
    for slots in SLOTS:
        held = {f"{operand}_slots": np.array(count) for operand, count in zip("abc", slots, strict=False)}
        fitting = tiles[fits(problem, {**dict(zip("mnk", tiles.T, strict=True)), **held})]
        rows = np.concatenate([fitting, np.tile(np.array(slots, np.int64), (len(fitting), 1))], axis=1)
        kept.append(np.concatenate([np.repeat(rows, len(loops), axis=0), np.tile(loops, (len(rows), 1))], axis=1))
    return np.concatenate(kept)
