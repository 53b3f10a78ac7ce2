"""Exhaustive search over all schedules of one operator on one accelerator, pruned by a lower bound: the optimum is guaranteed.

A fast search for a good schedule comes first. Of all tiles then only those are left whose lower bound is less than its cycles, in the
best case of order and slots; of their schedules those whose own bound is; and these are scored, the most promising first.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..compiler.accelerator.costs import largest, widest
from ..compiler.accelerator.lower import check_fit
from ..compiler.accelerator.problem import Problem
from ..compiler.accelerator.schedule import ORDERS, Schedule
from ..intrinsics import ScheduleError
from ..intrinsics.accelerator import Limits, MemoryTiming
from ..intrinsics.numerics import Array
from .accelerator_balanced import BALANCED_SLOTS, balanced_tiles
from .accelerator_bounded import MOST_WORK, Found, Points, Space, Tiles, TooLongError, named
from .accelerator_turns import Sums

SLOTS = tuple((a, b, c, lag) for a, b, (c, lag) in itertools.product((1, 2, 4), (1, 2, 4), ((1, 0), (2, 1))))
"""Slots of A, B and C, and lag of the stores, that a search tries by default: 1, 2 or 4 tiles of A and of B, and either 1 tile of C
that is stored at once, or 2 and a lag of 1."""

MOST_LEGAL = 2_000_000_000
"""Schedules that fit, beyond which a search would outlast patience."""

MOST_KEPT = 10_000_000
"""Schedules that the bound does not exclude, beyond which a search would need too much memory."""

_CELLS = 1 << 18  # tiles that are looked at together


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
    most_work: int = MOST_WORK,
    sums: Sums | None = None,
) -> SearchResult:
    """The fastest schedule of all tile sizes, with these loop orders, and these slots and lags.

    Parameters
    ----------
    orders : sequence of str
        All six by default.
    slots : sequence of (a_slots, b_slots, c_slots, lag)
        `SLOTS` by default.
    most_work : int
        Steps of schedules to score, beyond which the search is given up.
    sums : sequence of sequences of Turn, optional
        The convolutions of an operator that is several (`Placement`): the optimum is that of the whole program, all of whose convolutions
        follow one schedule.

    Raises
    ------
    ScheduleError
        If no schedule fits the memories; `TooLongError` if too many do to search them.
    """
    started = time.perf_counter()
    space = Space(problem=problem, timing=timing, limits=limits, orders=orders, slots=slots, most_work=most_work, sums=sums)
    least = tuple(min(counts) for counts in zip(*slots, strict=True))
    found, scored = _first(space)
    legal, parts = 0, list[tuple[Tiles, Points]]()
    for m, n, k in _boxes(problem, named(least)):
        legal += _count(space, m, len(n), k)
        if legal > MOST_LEGAL:
            raise _too_many(f"{MOST_LEGAL:,} schedules fit the memories")
        tiles = _promising(space, (m, n, k), named(least), found)
        parts.append((tiles, space.points(tiles, None if found is None else found.cycles)))
        if sum(len(points) for _, points in parts) > MOST_KEPT:
            raise _too_many(f"{MOST_KEPT:,} schedules cannot be told apart by their bounds")
    if not legal:
        raise _nothing_fits(problem, least)
    found, more = space.fastest(*_joined(parts), found)
    if found is None:
        raise ScheduleError(
            "every schedule that fits would evict unfinished output tiles; allowed: more c_slots, or k as the innermost loop"
        )
    return SearchResult(
        schedule=found.schedule,
        cycles=found.cycles,
        candidates=problem.max_m * problem.max_n * problem.k_chunks * len(orders) * len(slots),
        legal=legal,
        scored=scored + more,
        seconds=time.perf_counter() - started,
    )


def _first(space: Space) -> tuple[Found | None, int]:
    """The fastest schedule of balanced tiles with few slots, and how many were scored."""
    few = tuple(slots for slots in space.slots if slots in BALANCED_SLOTS) or space.slots
    space, tiles = replace(space, slots=few), balanced_tiles(space.problem)
    return space.fastest(tiles, space.points(tiles, None), None)


def _nothing_fits(problem: Problem, least: Sequence[int]) -> ScheduleError:
    """By how much the least tiles are too large."""
    try:
        check_fit(problem, Schedule(m=1, n=1, k=1, a_slots=least[0], b_slots=least[1], c_slots=least[2]))
    except ScheduleError as error:
        return ScheduleError(f"no schedule fits the memories: of one block and one chunk, {error}; allowed: a larger spad_kib or acc_kib")
    raise AssertionError("the least tiles fit")


def _too_many(what: str) -> TooLongError:
    return TooLongError(f"more than {what}, too many to search; allowed: a schedule of your own, a smaller operator, or smaller memories")


def _boxes(problem: Problem, slots: dict[str, int]) -> Iterator[Tiles]:
    """Sizes along m, n and k that fit one by one, some m at a time: what is larger than a tile that does not fit does not fit either."""
    m, most = 1, largest(problem, "m", {}, slots)
    while m <= most:
        n, k = (largest(problem, axis, {"m": m}, slots) for axis in "nk")
        end = min(most, m - 1 + max(1, _CELLS // (n * k)))
        yield np.arange(m, end + 1), np.arange(1, n + 1), np.arange(1, k + 1)
        m = end + 1


def _count(space: Space, m: Array, most_n: int, k: Array) -> int:
    """Schedules of a box that fit."""
    widths = (widest(space.problem, m[:, None], k, named(slots)) for slots in space.slots)
    return sum(int(np.minimum(width, most_n).sum()) for width in widths) * len(space.orders)


def _promising(space: Space, box: Tiles, least: dict[str, int], found: Found | None) -> Tiles:
    """Tiles of a box that fit with the least slots, and may be faster than what was found."""
    m, n, k = box
    kept = n[:, None] <= widest(space.problem, m[:, None], k, least)[:, None, :]
    if found is not None:
        bounds = space.bounds((m[:, None, None], n[:, None], k))
        kept &= bounds.least() < found.cycles
    places = np.nonzero(kept)
    return m[places[0]], n[places[1]], k[places[2]]


def _joined(parts: Sequence[tuple[Tiles, Points]]) -> tuple[Tiles, Points]:
    """Tiles and points of several boxes as those of one."""
    starts = np.cumsum([0] + [len(tiles[0]) for tiles, _ in parts[:-1]])
    tiles = tuple(np.concatenate([part[axis] for part, _ in parts]) for axis in range(3))
    tile = np.concatenate([points.tile + start for start, (_, points) in zip(starts, parts, strict=True)])
    order, slots, bound = (np.concatenate([getattr(points, name) for _, points in parts]) for name in ("order", "slots", "bound"))
    first = np.argsort(bound, kind="stable")
    return tiles, Points(tile=tile[first], order=order[first], slots=slots[first], bound=bound[first])  # type: ignore[return-value]
