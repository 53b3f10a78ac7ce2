"""A schedule of one operator on an accelerator, and the order of tile events that it stands for."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, NamedTuple

from ...intrinsics import ScheduleError

ORDERS = tuple("".join(order) for order in itertools.permutations("mnk"))

MOST = (1 << 31) - 1
"""Largest number in a schedule."""

_SHOWN = 60


def _shown(value: object) -> str:
    """A value as messages quote it."""
    try:
        text = repr(value)
    except ValueError:  # of thousands of digits
        text = "a longer number"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


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
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST:
                bound = f"most {MOST}" if isinstance(value, int) and value > MOST else f"least {least}"
                raise ScheduleError(
                    f"{name} of a schedule must be an integer of at {bound}, not {_shown(value)}; nearest legal value: {bound.split()[1]}"
                )
        if self.order not in ORDERS:
            raise ScheduleError(f"order of a schedule must be one of {', '.join(ORDERS)}, not {_shown(self.order)}")

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        """A schedule from a JSON object of its parameters, as `to_dict` gives it.

        Raises
        ------
        ScheduleError
            Names what is missing or unknown, and what is allowed.
        """
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):  # ValueError: no JSON, or a number of thousands of digits
            given = None
        if not isinstance(given, dict):
            raise ScheduleError(f'a schedule must be a JSON object such as {{"m": 5, "n": 4, "k": 168}}, not {_shown(text)}')
        names = [field.name for field in fields(cls)]
        missing = [field.name for field in fields(cls) if field.default is MISSING and field.name not in given]
        unknown = [_shown(name) for name in given if name not in names]
        for fault, which in (("lacks", missing), ("has unknown", unknown)):
            if which:
                raise ScheduleError(
                    f"a schedule {fault} {', '.join(which[:3])}; allowed: m, n and k, and if need be {', '.join(names[3:])}"
                )
        return cls(**given)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dict(self.__dict__)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One pass over the tiles, for an operator that is several convolutions of one shape.

    Parameters
    ----------
    a, b, c : int
        Which of the convolutions' activations, weights and outputs it uses.
    corner : (int, int) or None
        Row and column of the image where the window of its first output begins; None for that of the convolution.
    """

    a: int = 0
    b: int = 0
    c: int = 0
    corner: tuple[int, int] | None = None


ONCE = Turn()


class Step(NamedTuple):
    """A product of two tiles, added to a third.

    Parameters
    ----------
    m, n, k : int
        Indices of the tiles.
    group : int
        Which channels of A are used, where not all columns share them.
    first, last : bool
        Whether it starts its output tile, and whether it completes it.
    turn : Turn
    """

    m: int
    n: int
    k: int
    first: bool
    last: bool
    group: int = 0
    turn: Turn = ONCE


@dataclass(frozen=True)
class Event:
    """One command of a schedule, in terms of tiles.

    Parameters
    ----------
    kind : "a", "b", "residual", "compute" or "store"
    m, n, k : int
        Indices of the tile; those that the operand does not have are 0.
    slots : (int, int, int)
        Slots of A, B and C that the command uses.
    loads, computes, stores : int
        Counts to wait for; 0 for none. ``computes`` counts reads for loads and writes for the others.
    accumulate : bool
        Whether a compute adds to what its output tile holds.
    turn : Turn
    """

    kind: str
    m: int
    n: int
    k: int
    slots: tuple[int, int, int]
    loads: int = 0
    computes: int = 0
    stores: int = 0
    accumulate: bool = False
    turn: Turn = ONCE


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
    """Tile caches and counters while commands are made from steps."""

    def __init__(self, schedule: Schedule, *, residual: bool) -> None:
        self.a, self.b, self.c = (_Slots(count) for count in (schedule.a_slots, schedule.b_slots, schedule.c_slots))
        self.live = [False] * schedule.c_slots
        self.lag, self.residual = schedule.lag, residual
        self.loads = self.computes = self.stores = 0
        self.pending: list[tuple[int, int, Event]] = []  # (step, number of the store, event)

    def fetch(self, slots: _Slots, key: Any, load: Event) -> Iterator[Event]:
        if slots.find(key) is None:
            slot = slots.take()
            self.loads += 1
            yield replace(load, slots=(slot, slot, 0), computes=slots.used[slot])
            slots.keys[slot], slots.ready[slot], slots.used[slot] = key, self.loads, 0

    def claim(self, key: Any, *, first: bool) -> Iterator[Event | int]:
        """Stores that must go out first, then the number of the store that frees the slot of this C tile."""
        if self.c.find(key) is not None:
            yield 0
            return
        if not first:
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

    def step(self, number: int, step: Step) -> Iterator[Event]:
        m, n, k, turn = step.m, step.n, step.k, step.turn
        keys = (turn.a, turn.corner, m, step.group, k), (turn.b, n, k), (turn.c, m, n)
        yield from self.fetch(self.a, keys[0], Event("a", m, step.group, k, (0, 0, 0), turn=turn))
        yield from self.fetch(self.b, keys[1], Event("b", 0, n, k, (0, 0, 0), turn=turn))
        freed = 0
        for item in self.claim(keys[2], first=step.first):
            if isinstance(item, Event):
                yield item
            else:
                freed = item
        a, b, c = (slots.keys.index(key) for slots, key in zip((self.a, self.b, self.c), keys, strict=True))
        residual = 0
        if self.residual and step.last:
            residual = self.loads = self.loads + 1
            yield Event("residual", m, n, 0, (0, 0, c), stores=self.c.ready[c], turn=turn)
        self.computes += 1
        self.a.used[a] = self.b.used[b] = self.computes
        loads = max(self.a.ready[a], self.b.ready[b])
        yield Event("compute", m, n, k, (a, b, c), loads=loads, stores=freed, accumulate=not step.first, turn=turn)
        yield from self.flush(number)
        if step.last:
            self.stores += 1
            self.c.ready[c], self.live[c] = self.stores, False
            self.c.keys[c] = None
            store = Event("store", m, n, 0, (0, 0, c), loads=residual, computes=self.computes, turn=turn)
            self.pending.append((number, self.stores, store))
            yield from self.flush(number)


def steps(
    schedule: Schedule, tiles: tuple[int, int, int], *, a_share: int = 0, sums: Sequence[Sequence[Turn]] = ((ONCE,),)
) -> Iterator[Step]:
    """The products of a schedule in its order.

    Parameters
    ----------
    tiles : (int, int, int)
        Tiles along m, n and k.
    a_share : int
        Tiles of n that share a tile of A; 0 for all of them.
    sums : sequence of sequences of Turn
        Turns that are added up, one such sum after the other; the sum is part of the loop over k.
    """
    for turns in sums:
        extents = dict(zip("mnk", (*tiles[:2], tiles[2] * len(turns)), strict=True))
        for place in itertools.product(*(range(extents[axis]) for axis in schedule.order)):
            at = dict(zip(schedule.order, place, strict=True))
            turn, k = divmod(at["k"], tiles[2])
            group = at["n"] // a_share if a_share else 0
            yield Step(at["m"], at["n"], k, at["k"] == 0, at["k"] == extents["k"] - 1, group, turns[turn])


def emit(schedule: Schedule, products: Iterable[Step], *, residual: bool = False) -> Iterator[Event]:
    """Commands of products in any order that starts, completes and keeps every output tile.

    Parameters
    ----------
    schedule : Schedule
        Its slots and its lag count.
    residual : bool
        Load the residuals of every output tile, before its last compute.

    Raises
    ------
    ScheduleError
        If an output tile would be evicted unfinished.
    """
    emitter = _Emitter(schedule, residual=residual)
    for number, step in enumerate(products):
        yield from emitter.step(number, step)
    yield from (event for _, _, event in emitter.pending)


def events(schedule: Schedule, tiles: tuple[int, int, int], *, a_share: int = 0, residual: bool = False) -> Iterator[Event]:
    """Commands of a schedule in program order.

    Parameters
    ----------
    tiles : (int, int, int)
        Tiles along m, n and k.
    a_share : int
        Tiles of n that share a tile of A; 0 for all of them.
    residual : bool
        Load the residuals of every output tile, before its last compute.

    Raises
    ------
    ScheduleError
        If an output tile would be evicted unfinished.
    """
    return emit(schedule, steps(schedule, tiles, a_share=a_share), residual=residual)


@functools.lru_cache(maxsize=256)
def structure(schedule: Schedule, tiles: tuple[int, int, int], a_share: int, *, residual: bool = False) -> tuple[Event, ...]:
    """`events`, kept for schedules that share a structure."""
    return tuple(events(schedule, tiles, a_share=a_share, residual=residual))
