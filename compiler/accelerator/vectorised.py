"""A scorer in NumPy for many points that share a structure: straight-line code, each operation of which serves many points at once.

The commands of the structure become maxima and sums of arrays, once per table. A term of a maximum is left out where the least and
greatest costs of all rows prove that another is never smaller: of dispatcher and queues, hardly anything remains.
"""

from __future__ import annotations

import concurrent.futures
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...intrinsics import ParameterError
from ...intrinsics.accelerator.costs import INDEX, STRUCTURE
from ...intrinsics.numerics import Array
from ...intrinsics.processors import usable_processors
from .schedule import Event, Schedule, structure

CHUNK = 8192
"""Rows at a time: the arrays in use then stay in the cache."""

REACH = 256
"""Commands between two pops whose distance is looked at."""

MANY = 4
"""Times that the dispatcher may wait for before their latest is computed."""

_FAR32 = 1 << 30
_FAR = 1 << 60


def score_structure(table: Array, *, threads: int | None = None) -> Array:
    """Exact cycles of rows that differ in sizes, edges and hardware, but not in structure.

    Parameters
    ----------
    table : (rows, len(COLUMNS)) int64
        Rows agree in `STRUCTURE`, and in whether they have a prologue.
    threads : int, optional
        As many as there are processors, unless given.

    Returns
    -------
    (rows,) int64

    Raises
    ------
    ParameterError
        If the rows differ in structure.
    ScheduleError
        If the structure evicts an unfinished output tile.
    """
    limited = table[:, INDEX["outstanding"]] <= table[:, INDEX["latency"]]
    cycles = np.empty(len(table), np.int64)
    with concurrent.futures.ThreadPoolExecutor(threads or usable_processors()) as pool:
        for rows in (np.flatnonzero(limited), np.flatnonzero(~limited)):
            if len(rows):
                cycles[rows] = _score(table if len(rows) == len(table) else table[rows], pool)
    return cycles


def _score(table: Array, pool: concurrent.futures.Executor) -> Array:
    ranges = np.array(list(pool.map(lambda part: (part.min(axis=0), part.max(axis=0)), _parts(table, CHUNK))))
    code = _Coder(np.stack([ranges[:, 0].min(axis=0), ranges[:, 1].max(axis=0)])).code()
    return np.concatenate(list(pool.map(code.run, _parts(table, code.chunk))))


def _parts(table: Array, size: int) -> list[Array]:
    return [table[start : start + size] for start in range(0, len(table), size)]


class _Class(NamedTuple):
    """What costs the same: commands of one kind on tiles of one class along every axis; or a plain column."""

    kind: str
    m: int = 0
    n: int = 0
    k: int = 0


def _cost(table: Array, tile: _Class) -> Array:
    """(rows,): cycles from pop to the engine's release, or a column; never falls when a column grows."""
    kind, m, n, k = tile
    get = lambda name: table[:, INDEX[name]]  # noqa: E731
    if kind == "a":
        cost: Array = get(f"a_m_{m}") * get(f"a_k_{k}") + 1
    elif kind == "b":
        cost = get(f"b_n_{n}") * get(f"b_k_{k}") + 1
    elif kind == "residual":
        cost = get(f"s_m_{m}") * get(f"c_n_{n}") + 1
    elif kind == "store":
        cost = get(f"s_m_{m}") * get(f"c_n_{n}") + get("store_latency") + 1
    elif kind == "compute":
        cost = get("preload") + get(f"c_m_{m}") * get(f"c_n_{n}") * get(f"c_k_{k}") + 1
    elif kind == "prologue":
        cost = get("prologue") + 1
    elif kind == "start":
        interval = get("command_interval")
        cost = get("sets") * np.maximum(interval, 1) + (interval > 0)
    else:
        cost = get(kind)
    return cost


class _Operation(NamedTuple):
    """An operation on two values, by their numbers: "add", "maximum", or "request", where a cost is the right one."""

    name: str
    left: int
    right: int


_Value: TypeAlias = _Class | int | _Operation


class _Time(NamedTuple):
    """A point in time: ``plus`` cycles after a value of the code, and from ``least`` to ``most`` cycles after the pop of a command."""

    value: int
    plus: int
    since: int
    least: int
    most: int

    def later(self, cycles: int) -> _Time:
        return _Time(self.value, self.plus + cycles, self.since, self.least + cycles, self.most + cycles)


class _Coder:
    """Makes the code of a structure.

    Command 0 is the start of the run, behind the configuration; ``distance[i, c]`` is a proven least distance of the pops of
    commands ``i - c`` and ``i``. Values of the code have numbers: inputs, and results of operations on two others.

    Parameters
    ----------
    ranges : (2, len(COLUMNS)) int64
        Least and greatest value of every column.
    """

    def __init__(self, ranges: Array) -> None:
        self.ranges = ranges
        self.shared = {name: self.same(name, ranges[:, INDEX[name]]) for name in STRUCTURE}
        self.prologue = self.same("having a prologue", ranges[:, INDEX["prologue"]] > 0)
        self.limit = int(ranges[1, INDEX["outstanding"]]) if (ranges[0, INDEX["outstanding"]] <= ranges[1, INDEX["latency"]]) else 0
        self.split = bool(self.shared["split"])
        self.values: dict[_Value, int] = {}
        self.bound = 0
        start = _Time(self.number(_Class("start")), 0, 0, 0, 0)
        self.bound += int(_cost(ranges, _Class("start"))[1])
        self.dispatcher = [start.later(-1)]  # each plus the number of a command; the latest counts
        self.arrivals = [start.later(-2)]  # each plus that number times the interval
        self.taken: list[list[_Time]] = []
        self.load_free = self.compute_free = self.store_free = start
        self.loads: list[_Time] = []
        self.reads: list[_Time] = []
        self.writes: list[_Time] = []
        self.stores: list[_Time] = []
        queues: list[list[_Time]] = [[], [], []]
        self.queues = {"a": queues[0], "b": queues[0], "residual": queues[0], "compute": queues[1], "store": queues[2 * self.split]}

    @staticmethod
    def same(name: str, values: Array) -> int:
        if values[0] != values[1]:
            raise ParameterError(f"rows differ in {name} ({values[0]} and {values[1]}); score them one structure at a time")
        return int(values[0])

    # ---- commands

    def code(self) -> _Code:
        commands = self.commands()
        self.distance = np.full((len(commands) + 3, REACH), -_FAR, np.int64)
        self.distance[:, 0] = 0
        if self.prologue:
            self.load(self.pop(1, "a", []), _Class("prologue"))
            self.loads.clear()  # events do not count it
        for number, event in enumerate(commands, 1 + self.prologue):
            self.command(number, event)
        last = 1 + self.prologue + len(commands)
        ends = [times[-1] for times in (self.loads, self.writes, self.stores)]
        ends[-1] = self.after(ends[-1], _Class("confirmation"))
        end = self.latest(last, [*ends, *self.dispatched(last)])
        return _Code(self.values, end.value, self.bound, self.limit)

    def commands(self) -> tuple[Event, ...]:
        get = self.shared
        order = "".join("mnk"[get[name]] for name in ("outer", "middle", "inner"))
        slots = {name: get[name] for name in ("a_slots", "b_slots", "c_slots", "lag")}
        tiles = get["tiles_m"], get["tiles_n"], get["tiles_k"]
        return structure(Schedule(m=1, n=1, k=1, order=order, **slots), tiles, get["a_share"], residual=bool(get["residual"]))

    def command(self, number: int, event: Event) -> None:
        tile = self.tile(event)
        computes = self.writes if event.kind == "store" else self.reads
        counts = (self.loads, event.loads), (computes, event.computes), (self.stores, event.stores)
        pop = self.pop(number, event.kind, [times[count - 1] for times, count in counts if count])
        if event.kind == "compute":
            self.compute_free = self.after(pop, tile)
            self.reads.append(self.compute_free)
            self.writes.append(self.after(self.compute_free, _Class(f"tail_{tile.m}")))
        elif event.kind == "store":
            self.store_free = self.after(pop, tile)
            self.stores.append(self.store_free.later(1))
            self.load_free = self.load_free if self.split else self.store_free
        else:
            self.load(pop, tile)

    def load(self, pop: _Time, tile: _Class) -> None:
        self.load_free = self.after(pop, tile, "request" if self.limit else "add")
        self.loads.append(self.after(self.load_free, _Class("latency")))
        self.store_free = self.store_free if self.split else self.load_free

    def tile(self, event: Event) -> _Class:
        get = self.shared
        m = int(event.m % get["period_m"] == get["period_m"] - 1) + 2 * int(event.m >= get["tiles_m"] - get["period_m"])
        return _Class(event.kind, m, int(event.n % get["period_n"] == get["period_n"] - 1), int(event.k == get["tiles_k"] - 1))

    # ---- times

    def pop(self, number: int, kind: str, awaited: list[_Time]) -> _Time:
        queue, depth = self.queues[kind], self.shared["queue_depth"]
        if len(queue) >= depth:
            self.dispatcher = self.joined(self.dispatcher, queue[-depth].later(1 - number))
        free = {"compute": self.compute_free, "store": self.store_free}.get(kind, self.load_free)
        pop = self.latest(number, [free, *awaited, *(time.later(1) for time in self.dispatched(number))])
        queue.append(pop)
        return pop

    def dispatched(self, number: int) -> list[_Time]:
        """Times of which the latest is the dispatch of a command."""
        times = [time.later(number) for time in self.dispatcher]
        interval, depth = self.shared["command_interval"], self.shared["command_depth"]
        if interval:
            for time in self.taken[-depth] if len(self.taken) >= depth else ():
                self.arrivals = self.joined(self.arrivals, time.later(1 - interval * number))
            times += [time.later(interval * number + 1) for time in self.arrivals]
        self.taken.append(times)
        return times

    def joined(self, times: list[_Time], new: _Time) -> list[_Time]:
        """One time more, and none that another is proved to reach; many become one."""
        if any(self.reaches(time, new) for time in times):
            return times
        times = [*(time for time in times if not self.reaches(new, time)), new]
        return times if len(times) <= MANY else [_Time(self.maximum(times), 0, new.since, new.least, _FAR)]

    def reaches(self, one: _Time, other: _Time) -> bool:
        return one.least + self.apart(one.since, other.since) >= other.most

    def apart(self, later: int, earlier: int) -> int:
        return int(self.distance[later, later - earlier]) if 0 <= later - earlier < REACH else -_FAR

    def after(self, time: _Time, tile: _Class, operation: str = "add") -> _Time:
        """The time a cost later, or the last of as many read requests with limited credits."""
        least, most = (int(cycles) for cycles in _cost(self.ranges, tile))
        if operation == "request":
            most *= int(max(self.ranges[1, INDEX["latency"]] + 1, self.limit))
        self.bound += most + 2 + self.shared["command_interval"]
        value = self.number(_Operation(operation, self.exact(time), self.number(tile)))
        return _Time(value, 0, time.since, time.least + least, _FAR if operation == "request" else time.most + most)

    def latest(self, number: int, times: list[_Time]) -> _Time:
        """Pop of a command: the latest of some times, without those that another is proved to reach."""
        reached = np.full((len(times), REACH), -_FAR, np.int64)
        for row, time in zip(reached, times, strict=True):
            back = min(number - time.since, REACH)
            row[back:] = self.distance[time.since, : REACH - back] + time.least
        self.distance[number, 1:] = reached.max(axis=0)[1:]
        kept = list(range(len(times)))
        for place in reversed(range(len(times))):
            back = number - times[place].since
            others = [other for other in kept if other != place]
            if others and back < REACH and reached[others, back].max() >= times[place].most:
                kept = others
        return _Time(self.maximum([times[place] for place in kept]), 0, number, 0, 0)

    # ---- values

    def maximum(self, times: list[_Time]) -> int:
        value, *more = (self.exact(time) for time in times)
        for other in more:
            value = self.number(_Operation("maximum", value, other))
        return value

    def number(self, value: _Value) -> int:
        return self.values.setdefault(value, len(self.values))

    def exact(self, time: _Time) -> int:
        return self.number(_Operation("add", time.value, self.number(time.plus))) if time.plus else time.value


class _Code:
    """Operations on a few arrays, for any number of rows.

    Parameters
    ----------
    values : dict
        What every value is; operations come behind what they use.
    result : int
        Number of the value that is wanted.
    bound : int
        No value is greater in any row.
    limit : int
        Reads in flight if they limit the loads, else 0.
    """

    def __init__(self, values: dict[_Value, int], result: int, bound: int, limit: int) -> None:
        # 32 bits are twice as fast
        self.dtype: Any = np.int32 if bound < _FAR32 else np.int64
        self.limit, self.chunk = limit, max(CHUNK // (limit or 1), 64)
        self.classes: list[_Class] = []
        self.constants: list[int] = []
        self.steps: list[tuple[str, int, int, int]] = []
        self.registers = 0
        self._allocate({number: value for value, number in values.items()}, result)

    def _allocate(self, values: dict[int, _Value], result: int) -> None:
        """Give every value that the result needs an array; results of operations take turns in few registers."""
        last = {result: result}  # the operation that uses a value last
        for number in sorted(values, reverse=True):
            value = values[number]
            if number in last and isinstance(value, _Operation):
                last.setdefault(value.left, number)
                last.setdefault(value.right, number)
        self.classes = [value for number in last if isinstance(value := values[number], _Class)]
        self.constants = [value for number in last if isinstance(value := values[number], int)]
        at = {value: place for place, value in enumerate([*self.classes, *self.constants])}
        place = {number: at[value] for number in last if not isinstance(value := values[number], _Operation)}
        free: list[int] = []
        for number in sorted(set(last) - set(place)):
            operation, left, right = values[number]  # type: ignore[misc]
            free += [place[used] for used in {left, right} if last[used] == number and place[used] >= len(at)]
            if not free:
                free.append(len(at) + self.registers)
                self.registers += 1
            place[number] = free.pop()
            self.steps.append((operation, place[left], place[right], place[number]))
        self.result = place[result]

    def run(self, table: Array) -> Array:
        """(rows,) int64: the result for every row of a table."""
        table = table.astype(self.dtype)
        arrays: list[Any] = [np.ascontiguousarray(_cost(table, tile)) for tile in self.classes]
        arrays += [*self.constants, *np.empty((self.registers, len(table)), self.dtype)]
        functions: dict[str, Any] = {"add": np.add, "maximum": np.maximum}
        if self.limit:
            functions["request"] = _Credits(table, self.limit).request
        for operation, left, right, out in self.steps:
            functions[operation](arrays[left], arrays[right], out=arrays[out])
        result: Array = arrays[self.result].astype(np.int64)
        return result


class _Credits:
    """The last read requests of every row, when they limit the loads (see `timing.Credits`).

    Request ``i`` of a load leaves in u_i = max(s + 1 + i, h_i + P), as the h_i are at least a cycle apart. ``history`` (limit, rows)
    has the latest request last; rows with fewer in flight leave its beginning unused.
    """

    def __init__(self, table: Array, limit: int) -> None:
        latency, self.outstanding = (table[:, INDEX[name]] for name in ("latency", "outstanding"))
        self.period = np.maximum(latency + 1, self.outstanding)
        self.first = limit - self.outstanding
        self.index = np.arange(limit, dtype=table.dtype)[:, None] - self.first
        self.ahead = self.index + 1
        # behind the history the window of a load
        self.requests = np.full((2 * limit, len(table)), -_FAR32, table.dtype)
        self.history, self.window = self.requests[:limit], self.requests[limit:]
        self.moves: dict[int, tuple[Array, Array]] = {}

    def request(self, start: Array, cost: Array, out: Array) -> None:
        """Cycle after the last of ``cost - 1`` requests of a load that is popped in cycle ``start``."""
        if id(cost) not in self.moves:
            self.moves[id(cost)] = self._move(cost - 1)
        source, more = self.moves[id(cost)]
        np.maximum(start + self.ahead, self.history + self.period, out=self.window)
        np.add(self.requests.ravel()[source], more, out=self.history)
        np.add(self.history[-1], 1, out=out)

    def _move(self, beats: Array) -> tuple[Array, Array]:
        """Where the history behind a load of ``beats`` comes from, and how many cycles are added: whole turns of the window."""
        limit, rows = self.index.shape
        number = beats - self.outstanding + self.index  # of the request, in this load; negative: before it
        turns, place = np.divmod(number, self.outstanding)
        source = np.where(number < 0, self.index + beats + self.first, limit + self.first + place)
        used = self.index >= 0
        source = np.where(used, source, np.arange(limit)[:, None]).astype(np.int64)
        return source * rows + np.arange(rows), np.where(used & (number >= 0), turns * self.period, 0)
