"""A schedule of one operator on an accelerator, and the order of tile events that it stands for."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...intrinsics import ScheduleError

ORDERS = tuple("".join(order) for order in itertools.permutations("mnk"))


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Tiles and their order.

    Parameters
    ----------
    m, n, k : int, >= 1
        Tile sizes in blocks of rows, blocks of columns and chunks of k (see `Problem`).
    order : str
        Loops, outermost first: a permutation of ``mnk``.
    a_slots, b_slots, c_slots : int, >= 1
        Tiles of each operand that are held at once: 1 is single, 2 double buffered, more keeps tiles resident.
    lag : int, >= 0
        Steps by which a store is issued late, so that it does not hold up the loads behind it.
    """

    m: int
    n: int
    k: int
    order: str = "mnk"
    a_slots: int = 2
    b_slots: int = 2
    c_slots: int = 2
    lag: int = 1

    def __post_init__(self) -> None:
        for name, least in (("m", 1), ("n", 1), ("k", 1), ("a_slots", 1), ("b_slots", 1), ("c_slots", 1), ("lag", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ScheduleError(
                    f"{name} of a schedule must be an integer of at least {least}, not {value!r}; nearest legal value: {least}"
                )
        if self.order not in ORDERS:
            raise ScheduleError(f"order of a schedule must be one of {', '.join(ORDERS)}, not {self.order!r}")

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dict(self.__dict__)


@dataclass(frozen=True)
class Event:
    """One command of a schedule, in terms of tiles.

    Parameters
    ----------
    kind : "a", "b", "compute" or "store"
    m, n, k : int
        Indices of the tile; those that the operand does not have are 0.
    slots : (int, int, int)
        Slots of A, B and C that the command uses.
    loads, computes, stores : int
        Counts to wait for; 0 for none. ``computes`` counts reads for loads and writes for the others.
    """

    kind: str
    m: int
    n: int
    k: int
    slots: tuple[int, int, int]
    loads: int = 0
    computes: int = 0
    stores: int = 0


class _Slots:
    """First in, first out cache of the tiles of one operand."""

    def __init__(self, count: int) -> None:
        self.keys: list[Any] = [None] * count
        self.ready = [0] * count  # load (or store) that must be complete before use (or reuse)
        self.used = [0] * count  # last compute that used the slot
        self.turn = 0

    def find(self, key: Any) -> int | None:
        return self.keys.index(key) if key in self.keys else None

    def take(self) -> int:
        slot, self.turn = self.turn, (self.turn + 1) % len(self.keys)
        return slot


class _Emitter:
    """State of the walk over the steps of a schedule."""

    def __init__(self, schedule: Schedule, last_k: int) -> None:
        self.a, self.b, self.c = (_Slots(count) for count in (schedule.a_slots, schedule.b_slots, schedule.c_slots))
        self.live = [False] * schedule.c_slots
        self.lag, self.last_k = schedule.lag, last_k
        self.loads = self.computes = self.stores = 0
        self.pending: list[tuple[int, int, Event]] = []  # (step, number of the store, event)

    def fetch(self, slots: _Slots, kind: str, key: tuple[int, int, int], index: tuple[int, int, int]) -> Iterator[Event]:
        if slots.find(key) is None:
            slot = slots.take()
            self.loads += 1
            yield Event(kind, *index, slots=(slot, slot, 0), computes=slots.used[slot])
            slots.keys[slot], slots.ready[slot], slots.used[slot] = key, self.loads, 0

    def claim(self, key: tuple[int, int], k: int) -> Iterator[Event | int]:
        """Stores that must go out first, then the number of the store that frees the slot of this C tile."""
        if self.c.find(key) is not None:
            yield 0
            return
        if k:
            raise ScheduleError("schedule evicts an unfinished output tile; allowed: more c_slots, or k as the innermost loop")
        slot = self.c.take()
        if self.live[slot]:
            raise ScheduleError(
                "schedule has too few slots for its unfinished output tiles; allowed: more c_slots, or k as the innermost loop"
            )
        freed = self.c.ready[slot]
        while freed and self.pending and self.pending[0][1] <= freed:
            yield self.pending.pop(0)[2]
        self.c.keys[slot], self.live[slot] = key, True
        yield freed

    def flush(self, step: int) -> Iterator[Event]:
        while self.pending and self.pending[0][0] <= step - self.lag:
            yield self.pending.pop(0)[2]

    def step(self, number: int, m: int, n: int, k: int, a_key: tuple[int, int, int]) -> Iterator[Event]:
        yield from self.fetch(self.a, "a", a_key, a_key)
        yield from self.fetch(self.b, "b", (0, n, k), (0, n, k))
        freed = 0
        for item in self.claim((m, n), k):
            if isinstance(item, Event):
                yield item
            else:
                freed = item
        slots = tuple(slots.find(key) for slots, key in ((self.a, a_key), (self.b, (0, n, k)), (self.c, (m, n))))
        a, b, c = slots
        assert a is not None  # noqa: S101
        assert b is not None  # noqa: S101
        assert c is not None  # noqa: S101
        self.computes += 1
        self.a.used[a] = self.b.used[b] = self.computes
        yield Event("compute", m, n, k, (a, b, c), loads=max(self.a.ready[a], self.b.ready[b]), stores=freed)
        yield from self.flush(number)
        if k == self.last_k:
            self.stores += 1
            self.c.ready[c], self.live[c] = self.stores, False
            self.c.keys[c] = None
            self.pending.append((number, self.stores, Event("store", m, n, 0, (0, 0, c), computes=self.computes)))
            yield from self.flush(number)


def events(schedule: Schedule, tiles: tuple[int, int, int], *, a_share: int = 0) -> Iterator[Event]:
    """Commands of a schedule in program order.

    Parameters
    ----------
    tiles : (int, int, int)
        Tiles along m, n and k.
    a_share : int
        Tiles of n that share a tile of A; 0 for all of them.

    Raises
    ------
    ScheduleError
        If an output tile would be evicted unfinished.
    """
    extents = dict(zip("mnk", tiles, strict=True))
    emitter = _Emitter(schedule, tiles[2] - 1)
    for number, place in enumerate(itertools.product(*(range(extents[axis]) for axis in schedule.order))):
        at = dict(zip(schedule.order, place, strict=True))
        a_key = (at["m"], at["n"] // a_share if a_share else 0, at["k"])
        yield from emitter.step(number, at["m"], at["n"], at["k"], a_key)
    yield from (event for _, _, event in emitter.pending)


@functools.lru_cache(maxsize=256)
def structure(schedule: Schedule, tiles: tuple[int, int, int], a_share: int) -> tuple[Event, ...]:
    """`events`, kept for schedules that share a structure."""
    return tuple(events(schedule, tiles, a_share=a_share))
