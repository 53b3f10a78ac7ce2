"""Exhaustive search over all schedules of one operator on one accelerator, pruned by a lower bound: the optimum is guaranteed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..compiler.accelerator.costs import AXES, fits, table
from ..compiler.accelerator.problem import Problem
from ..compiler.accelerator.schedule import ORDERS, Schedule
from ..intrinsics import ScheduleError
from ..intrinsics.accelerator import Limits, MemoryTiming
from ..intrinsics.accelerator.costs import lower_bound
from ..intrinsics.numerics import Array
from ..sim.accelerator_scorer import score

SLOTS = ((1, 1, 1, 0), (2, 2, 1, 0), (2, 2, 2, 1), (4, 2, 2, 1), (2, 4, 2, 1))
"""Slots of A, B and C, and lag of the stores, that a search tries by default."""

_CHUNK = 512


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The best schedule of a space.

    Parameters
    ----------
    schedule : Schedule
    cycles : int
        By the exact model.
    candidates, legal, scored : int
        Points of the space, those that fit the memories, and those that the bound could not exclude.
    seconds : float
    """

    schedule: Schedule
    cycles: int
    candidates: int
    legal: int
    scored: int
    seconds: float


def best_schedule(
    problem: Problem,
    *,
    timing: MemoryTiming | None = None,
    limits: Limits | None = None,
    orders: Sequence[str] = ORDERS,
    slots: Sequence[tuple[int, int, int, int]] = SLOTS,
) -> SearchResult:
    """The fastest schedule of all tile sizes, loop orders and slots.

    Parameters
    ----------
    orders : sequence of str
    slots : sequence of (a_slots, b_slots, c_slots, lag)

    Raises
    ------
    ScheduleError
        If no schedule fits the memories.
    """
    started = time.perf_counter()
    space = _Space.of(problem, orders, slots)
    if not len(space.columns["m"]):
        raise ScheduleError(
            "no schedule fits the memories, not even tiles of one block and one chunk; allowed: a larger spad_kib or acc_kib"
        )
    bounds = np.concatenate([lower_bound(space.table(problem, part, timing, limits)) for part in space.parts()])
    order = np.argsort(bounds, kind="stable")
    best, index, scored = None, -1, 0
    for start in range(0, len(order), _CHUNK):
        part = order[start : start + _CHUNK]
        if best is not None and bounds[part[0]] >= best:
            break
        part = part if best is None else part[bounds[part] < best]
        cycles, _ = score(space.table(problem, part, timing, limits))
        scored += len(part)
        legal = np.where(cycles < 0, np.iinfo(np.int64).max, cycles)
        winner = int(legal.argmin())
        if cycles[winner] >= 0 and (best is None or cycles[winner] < best):
            best, index = int(cycles[winner]), int(part[winner])
    if best is None:
        raise ScheduleError(
            "every schedule that fits would evict unfinished output tiles; allowed: more c_slots, or k as the innermost loop"
        )
    return SearchResult(
        schedule=space.schedule(index),
        cycles=best,
        candidates=space.candidates,
        legal=len(order),
        scored=scored,
        seconds=time.perf_counter() - started,
    )


@dataclass(frozen=True)
class _Space:
    """Schedules that fit, as columns."""

    columns: dict[str, Array]
    candidates: int

    @classmethod
    def of(cls, problem: Problem, orders: Sequence[str], slots: Sequence[tuple[int, int, int, int]]) -> _Space:
        sizes = [np.arange(1, most + 1) for most in (problem.max_m, problem.max_n, problem.k_chunks)]
        # one operand at a time, so that the whole product never exists in memory
        kept: list[Array] = []
        for slot in slots:
            a, b, c, _ = slot
            for m in sizes[0]:
                tiles = np.stack(np.meshgrid(sizes[1], sizes[2], indexing="ij"), axis=-1).reshape(-1, 2)
                probe = {
                    "m": np.full(len(tiles), m),
                    "n": tiles[:, 0],
                    "k": tiles[:, 1],
                    "a_slots": np.array(a),
                    "b_slots": np.array(b),
                    "c_slots": np.array(c),
                }
                tiles = tiles[fits(problem, probe)]
                if not len(tiles):
                    continue
                fixed = np.tile(np.array([m, *slot]), (len(tiles), 1))
                kept.append(np.concatenate([fixed[:, :1], tiles, fixed[:, 1:]], axis=1))
        rows = np.concatenate(kept) if kept else np.zeros((0, 7), np.int64)
        columns = {
            name: np.tile(rows[:, place], len(orders)) for place, name in enumerate(("m", "n", "k", "a_slots", "b_slots", "c_slots", "lag"))
        }
        for place, name in enumerate(("outer", "middle", "inner")):
            columns[name] = np.repeat(np.array([AXES[order[place]] for order in orders], np.int64), len(rows))
        product = len(sizes[0]) * len(sizes[1]) * len(sizes[2])
        return cls(columns, product * len(orders) * len(slots))

    def parts(self) -> list[Array]:
        count = len(self.columns["m"])
        return [np.arange(start, min(start + 65536, count)) for start in range(0, count, 65536)]

    def table(self, problem: Problem, rows: Array, timing: MemoryTiming | None, limits: Limits | None) -> Array:
        part = {name: values[rows] for name, values in self.columns.items()}
        m, n, k = (part.pop(axis) for axis in "mnk")
        return table(problem, m, n, k, timing=timing, limits=limits, **part)

    def schedule(self, index: int) -> Schedule:
        at = {name: int(values[index]) for name, values in self.columns.items()}
        order = "".join("mnk"[at.pop(name)] for name in ("outer", "middle", "inner"))
        return Schedule(order=order, **at)
