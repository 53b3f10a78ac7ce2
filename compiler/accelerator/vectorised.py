"""A scorer in NumPy for many points that share a structure: a loop over commands, each over all points at once."""

from __future__ import annotations

import numpy as np

from ...intrinsics import ParameterError
from ...intrinsics.accelerator.costs import INDEX, STRUCTURE, column
from ...intrinsics.numerics import Array
from .schedule import Event, Schedule, structure

CHUNK = 8192
"""Rows at a time: the working set then stays in the cache."""


def score_structure(table: Array) -> Array:
    """Exact cycles of rows that differ in sizes, edges and hardware, but not in structure.

    Parameters
    ----------
    table : (rows, len(COLUMNS)) int64
        Rows agree in `STRUCTURE`, and have more reads in flight than cycles of latency.

    Returns
    -------
    (rows,) int64

    Raises
    ------
    ParameterError
        If the rows differ in structure, or reads in flight would limit the loads.
    ScheduleError
        If the structure evicts an unfinished output tile.
    """
    shared = {}
    for name in STRUCTURE:
        values = np.unique(column(table, name))
        if len(values) != 1:
            raise ParameterError(f"rows differ in {name} ({values[0]} and {values[1]}); score them one structure at a time")
        shared[name] = int(values[0])
    if (column(table, "outstanding") <= column(table, "latency")).any():
        raise ParameterError("this scorer needs outstanding above latency; use the compiled one for less")
    schedule = Schedule(
        m=1,
        n=1,
        k=1,
        order="".join("mnk"[shared[name]] for name in ("outer", "middle", "inner")),
        **{name: shared[name] for name in ("a_slots", "b_slots", "c_slots", "lag")},
    )
    commands = structure(
        schedule, (shared["tiles_m"], shared["tiles_n"], shared["tiles_k"]), shared["a_share"], residual=bool(shared["residual"])
    )
    parts = [_Batch(table[start : start + CHUNK], shared).run(commands) for start in range(0, len(table), CHUNK)]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


class _Batch:
    """The recurrence of the timing model over a batch of rows."""

    def __init__(self, table: Array, shared: dict[str, int]) -> None:
        # int32 holds all runs below 2e9 cycles and is twice as fast
        fits = int(np.abs(table).max()) < 1 << 20
        self.values = np.ascontiguousarray(table.T.astype(np.int32 if fits else np.int64))
        self.shared = shared
        self.kept: dict[tuple[str, int, int, int], Array] = {}

    def get(self, name: str) -> Array:
        found: Array = self.values[INDEX[name]]
        return found

    def cost(self, event: Event) -> Array:
        """Beats or cycles of a command; the classes of its tile decide, so few arrays are ever made."""
        shared = self.shared
        m = int(event.m % shared["period_m"] == shared["period_m"] - 1) + 2 * int(event.m >= shared["tiles_m"] - shared["period_m"])
        n = int(event.n % shared["period_n"] == shared["period_n"] - 1)
        key = (event.kind, m, n, int(event.k == shared["tiles_k"] - 1))
        if key not in self.kept:
            self.kept[key] = self._cost(*key)
        return self.kept[key]

    def _cost(self, kind: str, m: int, n: int, k: int) -> Array:
        if kind == "a":
            cycles: Array = self.get(f"a_m_{m}") * self.get(f"a_k_{k}")
        elif kind == "b":
            cycles = self.get(f"b_n_{n}") * self.get(f"b_k_{k}")
        elif kind == "residual":
            cycles = self.get(f"s_m_{m}") * self.get(f"c_n_{n}")
        elif kind == "store":
            cycles = self.get(f"s_m_{m}") * self.get(f"c_n_{n}") + self.get("store_latency") + 1
        else:
            cycles = self.get("preload") + self.get(f"c_m_{m}") * self.get(f"c_n_{n}") * self.get(f"c_k_{k}") + 1
        return cycles

    def run(self, commands: tuple[Event, ...]) -> Array:
        largest, depth, split = np.maximum, self.shared["queue_depth"], bool(self.shared["split"])
        loads, computes, stores = [], [], []  # type: ignore[var-annotated]
        queues: dict[str, list[Array]] = {"a": [], "compute": []}
        queues["b"] = queues["residual"] = queues["a"]
        queues["store"] = [] if split else queues["a"]
        tails = [self.get(f"tail_{index}") for index in range(4)]
        latency = self.get("latency")
        interval, places = self.shared["command_interval"], self.shared["command_depth"]
        arrived, arrivals = self.get("sets") * interval - 1, []  # type: ignore[var-annotated]
        dispatched = arrived + 1 if interval else self.get("sets") - 1
        zero = np.zeros_like(dispatched)
        free_load = free_compute = free_store = zero
        if (self.get("prologue") > 0).any():
            raise ParameterError("this scorer takes no bias or requantisation; use the compiled one")
        written: list[Array] = []
        for event in commands:
            queue = queues[event.kind]
            dispatched = dispatched + 1
            if len(queue) >= depth:
                dispatched = largest(dispatched, queue[-depth] + 1)
            if interval:
                arrived = _arrival(arrived + interval, arrivals, places)
                dispatched = largest(dispatched, arrived + 1)
                arrivals.append(dispatched)
            start = dispatched + 1
            if event.kind in ("a", "b", "residual"):
                start = largest(start, free_load)
                if event.computes:
                    start = largest(start, computes[event.computes - 1])
                if event.stores:
                    start = largest(start, stores[event.stores - 1])
                free_load = start + self.cost(event) + 1
                loads.append(free_load + latency)
                free_store = free_store if split else free_load
            elif event.kind == "compute":
                start = largest(largest(start, free_compute), loads[event.loads - 1])
                if event.stores:
                    start = largest(start, stores[event.stores - 1])
                free_compute = start + self.cost(event)
                computes.append(free_compute)
                shared = self.shared
                m = int(event.m % shared["period_m"] == shared["period_m"] - 1) + 2 * int(event.m >= shared["tiles_m"] - shared["period_m"])
                written.append(free_compute + tails[m])
            else:
                start = largest(largest(start, free_store), written[event.computes - 1])
                if event.loads:
                    start = largest(start, loads[event.loads - 1])
                free_store = start + self.cost(event)
                stores.append(free_store + 1)
                free_load = free_load if split else free_store
            queue.append(start)
        if interval:  # of END
            dispatched = largest(dispatched, _arrival(arrived + interval, arrivals, places))
        end: Array = largest(largest(dispatched + 1, loads[-1]), largest(written[-1], stores[-1] + self.get("confirmation")))
        return end.astype(np.int64)


def _arrival(earliest: Array, dispatches: list[Array], depth: int) -> Array:
    """Cycle in which the last word of the next command is taken."""
    return np.maximum(earliest, dispatches[-depth] + 1) if len(dispatches) >= depth else earliest
