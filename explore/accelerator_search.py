"""Exhaustive search over all schedules of one operator on one accelerator, pruned by a lower bound: the optimum is guaranteed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..compiler.accelerator.costs import AXES, fits, largest, table
from ..compiler.accelerator.problem import Problem
from ..compiler.accelerator.schedule import ORDERS, Schedule
from ..intrinsics import ScheduleError
from ..intrinsics.accelerator import Limits, MemoryTiming
from ..intrinsics.accelerator.costs import lower_bound
from ..intrinsics.numerics import Array
from ..sim.accelerator_scorer import score

SLOTS = tuple((a, b, c, lag) for a, b, (c, lag) in itertools.product((1, 2, 4), (1, 2, 4), ((1, 0), (2, 1))))
"""Slots of A, B and C, and lag of the stores, that a search tries by default: 1, 2 or 4 tiles of A and of B, and either 1 tile of C
that is stored at once, or 2 and a lag of 1."""

MOST_LEGAL = 20_000_000
"""Schedules that fit, beyond which a search would outlast patience."""

_CHUNK = 512
_CELLS = 1 << 18  # tiles whose fit is tested together


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
    """The fastest schedule of all tile sizes, with these loop orders, and these slots and lags.

    Parameters
    ----------
    orders : sequence of str
        All six by default.
    slots : sequence of (a_slots, b_slots, c_slots, lag)
        `SLOTS` by default.

    Raises
    ------
    ScheduleError
        If no schedule fits the memories, or more than `MOST_LEGAL` do.
    """
    started = time.perf_counter()
    space = _Space.of(problem, orders, slots)
    if not len(space):
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
    """Schedules that fit: every row of ``rows`` (m, n, k, a_slots, b_slots, c_slots, lag) in every one of ``orders``."""

    rows: Array
    orders: Sequence[str]
    candidates: int

    @classmethod
    def of(cls, problem: Problem, orders: Sequence[str], slots: Sequence[tuple[int, int, int, int]]) -> _Space:
        kept, count = [np.zeros((0, 7), np.int64)], 0
        for slot in slots:
            for tiles in _fitting(problem, slot):
                kept.append(np.concatenate([tiles, np.tile(np.array(slot, np.int64), (len(tiles), 1))], axis=1))
                count += len(tiles) * len(orders)
                if count > MOST_LEGAL:
                    raise ScheduleError(
                        f"more than {MOST_LEGAL:,} schedules fit the memories, too many to search; "
                        "allowed: a schedule of your own, a smaller operator, or smaller memories"
                    )
        product = problem.max_m * problem.max_n * problem.k_chunks
        return cls(np.concatenate(kept), orders, product * len(orders) * len(slots))

    def __len__(self) -> int:
        return len(self.rows) * len(self.orders)

    def parts(self) -> list[Array]:
        return [np.arange(start, min(start + 65536, len(self))) for start in range(0, len(self), 65536)]

    def table(self, problem: Problem, points: Array, timing: MemoryTiming | None, limits: Limits | None) -> Array:
        order, place = np.divmod(points, len(self.rows))
        m, n, k, a, b, c, lag = self.rows[place].T
        loops = np.array([[AXES[axis] for axis in order] for order in self.orders], np.int64)[order].T
        shape = {"a_slots": a, "b_slots": b, "c_slots": c, "lag": lag, "outer": loops[0], "middle": loops[1], "inner": loops[2]}
        return table(problem, m, n, k, timing=timing, limits=limits, **shape)

    def schedule(self, point: int) -> Schedule:
        order, place = divmod(point, len(self.rows))
        m, n, k, a, b, c, lag = self.rows[place].tolist()
        return Schedule(m=m, n=n, k=k, order=self.orders[order], a_slots=a, b_slots=b, c_slots=c, lag=lag)


def _fitting(problem: Problem, slot: tuple[int, int, int, int]) -> Iterator[Array]:
    """Tiles (rows of m, n, k) that fit, some m at a time: what is larger than a tile that does not fit does not fit either."""
    held = dict(zip(("a_slots", "b_slots", "c_slots"), slot, strict=False))
    m, most = 1, largest(problem, "m", {}, held)
    while m <= most:
        n, k = (largest(problem, axis, {"m": m}, held) for axis in "nk")
        end = min(most, m - 1 + max(1, _CELLS // (n * k)))
        sizes = np.arange(m, end + 1), np.arange(1, n + 1), np.arange(1, k + 1)
        tiles = np.stack(np.meshgrid(*sizes, indexing="ij"), axis=-1).reshape(-1, 3)
        slots = {name: np.array(count) for name, count in held.items()}
        yield tiles[fits(problem, {**dict(zip("mnk", tiles.T, strict=True)), **slots})]
        m = end + 1
