"""Schedules that a lower bound cannot exclude, and the fastest of them by the exact model."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..compiler.accelerator.costs import AXES, columns, table, widest
from ..compiler.accelerator.problem import Problem
from ..compiler.accelerator.schedule import Schedule
from ..intrinsics import ScheduleError
from ..intrinsics.accelerator import Limits, MemoryTiming
from ..intrinsics.accelerator.costs import INDEX, Bounds, Turns
from ..intrinsics.numerics import Array
from ..sim.accelerator_scorer import score
from .accelerator_turns import Sums, score_turns, turns_of

CHUNKS = (32, 128, 512, 2048, 8192)
"""Schedules that are scored together: few while the bound still excludes many, then more."""

MOST_WORK = 2_000_000_000
"""Steps of schedules that are scored, beyond which a search would outlast patience."""

_WALKED = 64  # steps of a schedule that the scorer walks before it knows the rest, about
_WAITING = 4  # so many times longer a step takes where reads wait for credits

Slots = tuple[int, int, int, int]
"""Slots of A, B and C, and lag of the stores."""

Tiles = tuple[Array, Array, Array]
"""Sizes along m, n and k."""


class TooLongError(ScheduleError):
    """A search that would outlast patience."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A schedule, and its cycles by the exact model."""

    schedule: Schedule
    cycles: int


@dataclass(frozen=True, kw_only=True)
class Points:
    """Schedules of some tiles, ``order`` and ``slots`` being places in the lists of their space: arrays of one length, best bound first."""

    tile: Array
    order: Array
    slots: Array
    bound: Array

    def __len__(self) -> int:
        return len(self.tile)


@dataclass(frozen=True, kw_only=True)
class Space:
    """What may go with every tile of a problem on a memory; scoring more than ``most_work`` steps is refused.

    ``sums`` are the convolutions of an operator that is several; all of them then follow one schedule, and cycles are those of the whole
    program.
    """

    problem: Problem
    timing: MemoryTiming | None
    limits: Limits | None
    orders: Sequence[str]
    slots: Sequence[Slots]
    most_work: int = MOST_WORK
    sums: Sums | None = None

    @property
    def most_slots(self) -> Slots:
        """The most of each: no schedule of the space has a lower bound with fewer."""
        return tuple(max(counts) for counts in zip(*self.slots, strict=True))

    def bounds(self, tiles: Tiles) -> Bounds:
        """Of tiles, arrays that broadcast."""
        costs = columns(self.problem, *tiles, timing=self.timing, limits=self.limits)
        return Bounds({name: np.asarray(value) for name, value in costs.items()}, self._turns)

    @functools.cached_property
    def _turns(self) -> Turns:
        return Turns() if self.sums is None else turns_of(self.problem, self.sums)

    def points(self, tiles: Tiles, below: int | None) -> Points:
        """Schedules of tiles (arrays of one length) that fit and finish their outputs, and whose bound is less than ``below``."""
        most, bounds = self.most_slots, self.bounds(tiles)
        parts = []
        for order, loops in enumerate(_axes(self.orders)):
            hopeful = bounds.finishes(loops, most[2])
            if below is not None:
                hopeful = hopeful & (bounds.cycles(loops, *most[:3]) < below)
            kept = np.flatnonzero(hopeful).astype(np.int32)
            m, n, k = some = tiles[0][kept], tiles[1][kept], tiles[2][kept]
            own = self.bounds(some)
            for slots, held in enumerate(self.slots if len(kept) else ()):
                bound = own.cycles(loops, *held[:3])
                able = own.finishes(loops, held[2]) & (n <= widest(self.problem, m, k, named(held)))
                chosen = np.flatnonzero(able if below is None else able & (bound < below))
                places = (np.full(len(chosen), place, np.int16) for place in (order, slots))
                parts.append((kept[chosen], *places, bound[chosen]))
        tile, order_of, slots_of, bound = (np.concatenate(arrays) for arrays in zip(*parts, strict=True)) if parts else [_NONE] * 4
        best_first = np.argsort(bound, kind="stable")
        return Points(tile=tile[best_first], order=order_of[best_first], slots=slots_of[best_first], bound=bound[best_first])

    def fastest(self, tiles: Tiles, points: Points, found: Found | None) -> tuple[Found | None, int]:
        """The fastest of points and of what was found before, and how many were scored.

        Raises
        ------
        TooLongError
        """
        start = scored = work = 0
        for size in itertools.chain(CHUNKS, itertools.repeat(CHUNKS[-1])):
            part = np.arange(start, min(start + size, len(points)))
            if found is not None:
                part = part[points.bound[part] < found.cycles]
            if not len(part):
                return found, scored
            start += size
            part = part[np.lexsort((points.tile[part], points.order[part], points.slots[part]))]  # neighbours that are alike score faster
            rows = self._table(tiles, points, part)
            scored, work = scored + len(part), work + self._work(rows)
            if work > self.most_work:
                raise TooLongError(
                    f"the search scores more than {self.most_work:,} steps of schedules; "
                    "allowed: a schedule of your own, a smaller operator, or smaller memories"
                )
            cycles = self._score(rows, tiles[1][points.tile[part]])
            legal = np.where(cycles < 0, np.iinfo(np.int64).max, cycles)
            winner = int(legal.argmin())
            if cycles[winner] >= 0 and (found is None or cycles[winner] < found.cycles):
                found = Found(schedule=self._schedule(tiles, points, int(part[winner])), cycles=int(cycles[winner]))
        raise AssertionError("unreachable")

    def _score(self, rows: Array, n_sizes: Array) -> Array:
        if self.sums is not None:
            return score_turns(self.problem, self.sums, rows, n_sizes, timing=self.timing)
        return score(rows)[0]

    def _work(self, rows: Array) -> int:
        """Steps that the scorer walks, about: in single convolutions whose reads need not wait for credits, it passes over what repeats."""
        get = lambda name: rows[:, INDEX[name]]  # noqa: E731
        steps = get("tiles_m") * get("tiles_n") * get("tiles_k")
        if self.sums is not None:
            return int(steps.sum()) * sum(map(len, self.sums))
        return int(np.where(get("outstanding") > get("latency"), np.minimum(steps, _WALKED), _WAITING * steps).sum())

    def _table(self, tiles: Tiles, points: Points, part: Array) -> Array:
        tile, loops = points.tile[part], np.array(_axes(self.orders), np.int64)[points.order[part]].T
        a, b, c, lag = np.array(self.slots, np.int64)[points.slots[part]].T
        shape = {"a_slots": a, "b_slots": b, "c_slots": c, "lag": lag, "outer": loops[0], "middle": loops[1], "inner": loops[2]}
        m, n, k = (sizes[tile] for sizes in tiles)
        return table(self.problem, m, n, k, timing=self.timing, limits=self.limits, **shape)

    def _schedule(self, tiles: Tiles, points: Points, point: int) -> Schedule:
        m, n, k = (int(sizes[points.tile[point]]) for sizes in tiles)
        a, b, c, lag = self.slots[points.slots[point]]
        return Schedule(m=m, n=n, k=k, order=self.orders[points.order[point]], a_slots=a, b_slots=b, c_slots=c, lag=lag)


_NONE = np.zeros(0, np.int64)


def named(slots: Sequence[int]) -> dict[str, int]:
    """Slots of A, B and C by their names."""
    return dict(zip(("a_slots", "b_slots", "c_slots"), slots, strict=False))


def _axes(orders: Sequence[str]) -> list[tuple[int, ...]]:
    return [tuple(AXES[axis] for axis in order) for order in orders]
