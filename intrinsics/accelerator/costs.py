"""The table from which schedules are scored: one row per (hardware, operator, schedule) point, the same for every scorer.

Sizes of tiles take two values along k, for all tiles but the last (``_0``) and for the last (``_1``), and along n, where the last of
every ``period_n`` tiles is meant. Along m there are four: a tile may be the last of ``period_m`` (+1), and be among the last ``period_m``
tiles (+2).
All costs are products:

    beats of a load of A   a_m[m] * a_k[k]            cycles of a compute   preload + c_m[m] * c_n[n] * c_k[k]
    beats of a load of B   b_n[n] * b_k[k]            beats of a store      s_m[m] * c_n[n]
    useful array beats     u_m[m] * c_n[n] * u_k[k]   tail of a compute     tail[m]
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..numerics import Array


def _classes(name: str, count: int) -> tuple[str, ...]:
    return tuple(f"{name}_{index}" for index in range(count))


COLUMNS: tuple[str, ...] = (
    *("tiles_m", "tiles_n", "tiles_k", "period_m", "period_n"),
    *_classes("a_m", 4),
    *_classes("c_m", 4),
    *_classes("s_m", 4),
    *_classes("u_m", 4),
    *_classes("tail", 4),
    *_classes("b_n", 2),
    *_classes("c_n", 2),
    *_classes("a_k", 2),
    *_classes("b_k", 2),
    *_classes("c_k", 2),
    *_classes("u_k", 2),
    *("outer", "middle", "inner", "a_slots", "b_slots", "c_slots", "lag", "a_share", "residual"),
    *("latency", "outstanding", "queue_depth", "split", "preload", "store_latency", "sets", "prologue"),
    *("command_interval", "command_depth", "confirmation"),
)
"""Columns of the table. ``outer``, ``middle``, ``inner`` are 0, 1, 2 for m, n, k; ``prologue`` the beats of the first load, of biases;
``latency`` includes what the port adds, and ``confirmation`` is the wait for the last write; ``a_share`` the tiles of n that share a
tile of A, 0 for all; ``residual`` is 1 where every output tile's residuals are loaded, with as many beats as its store has."""

STRUCTURE: tuple[str, ...] = (
    *("tiles_m", "tiles_n", "tiles_k", "period_m", "period_n", "outer", "middle", "inner"),
    *("a_slots", "b_slots", "c_slots", "lag", "a_share", "residual", "queue_depth", "split", "command_interval", "command_depth"),
)
"""Columns that decide which commands there are, and what each waits for; so does whether there is a ``prologue``."""

INDEX = {name: position for position, name in enumerate(COLUMNS)}

LEDGER = ("fill", "load_wait", "store_wait", "dispatch_wait", "command", "preload", "beats", "array_pad", "drain", "store_tail")
"""What the array did in every cycle; sums to the total."""


Costs = Mapping[str, Array]
"""Columns by name: arrays that broadcast, so that a grid of tiles needs no table."""


@dataclass(frozen=True, kw_only=True)
class Sum:
    """Outputs of an operator that is several convolutions of one shape.

    Parameters
    ----------
    outputs : int
        How many are alike.
    turns : int
        Convolutions that each of them adds up.
    a, b : int
        Different activations and weights among these.
    """

    outputs: int = 1
    turns: int = 1
    a: int = 1
    b: int = 1


@dataclass(frozen=True, kw_only=True)
class Turns:
    """The convolutions of an operator.

    Parameters
    ----------
    sums : tuple of Sum
    a, b : int
        Different activations and weights.
    switches : int
        Outputs before which the loader is configured anew.
    """

    sums: tuple[Sum, ...] = (Sum(),)
    a: int = 1
    b: int = 1
    switches: int = 0

    @property
    def outputs(self) -> int:
        """Convolutions' worth of outputs."""
        return sum(one.outputs for one in self.sums)


class Bounds:
    """Cycles that no run can undercut. What the tiles alone decide is worked out once, for any order, slots and lag.

    Parameters
    ----------
    costs : mapping from column to array
        All columns but those of the order, the slots and the lag.
    turns : Turns
        All columns are those of one convolution.
    """

    def __init__(self, costs: Costs, turns: Turns = Turns()) -> None:
        get, outputs, count = costs.__getitem__, turns.outputs, sum(one.outputs * one.turns for one in turns.sums)
        self._turns = turns
        self._tiles, self._share, self._latency = tuple(get(f"tiles_{axis}") for axis in "mnk"), get("a_share"), get("latency")
        tiles_m, tiles_n, tiles_k = self._tiles
        first_k, first_n = np.where(tiles_k == 1, 1, 0), np.where(get("period_n") == 1, 1, 0)
        first_m = (get("period_m") == 1) + 2 * (tiles_m == get("period_m"))
        self._a_first = _pick(costs, "a_m", first_m, 4) * _pick(costs, "a_k", first_k, 2)
        self._b_first = _pick(costs, "b_n", first_n, 2) * _pick(costs, "b_k", first_k, 2)
        self._beats = _sum(costs, "a_m") * _sum(costs, "a_k"), _sum(costs, "b_n") * _sum(costs, "b_k")
        self._loads = tiles_m * tiles_k, tiles_n * tiles_k
        self._largest = _most(costs, "a_m", 4) * _most(costs, "a_k", 2), _most(costs, "b_n", 2) * _most(costs, "b_k", 2)
        begin = get("sets") + 1 + np.where(get("prologue") > 0, get("prologue") + 1, 0)
        stores, last_store, after = outputs * tiles_m * tiles_n, get("s_m_3") * get("c_n_1"), get("store_latency") + 2
        out_beats, step = outputs * _sum(costs, "s_m") * _sum(costs, "c_n"), 1 + get("preload")
        computes = count * (_sum(costs, "c_m") * _sum(costs, "c_n") * _sum(costs, "c_k") + tiles_m * tiles_n * tiles_k * step)
        self._engine = begin + self._a_first + 1 + self._b_first + self._latency + 1 + computes + get("tail_3") + last_store + after
        self._switches = turns.switches * (get("tail_3") + self._a_first + self._latency + 3)
        self._drains = outputs * _sum(costs, "tail") * tiles_n - get("tail_3") + out_beats - last_store + (stores - 1) * after
        self._begin, self._residuals, self._residual_beats = begin, get("residual") * stores, get("residual") * out_beats
        self._stores = out_beats + stores * (1 + get("store_latency"))
        self._split, self._outstanding, self._interval = get("split") != 0, get("outstanding"), get("command_interval")
        self._commands = get("sets") + (get("prologue") > 0) + stores + count * tiles_m * tiles_n * tiles_k + 1
        last_compute = step + get("c_m_3") * get("c_n_1") * get("c_k_1") + get("tail_3")
        # residuals are awaited by a store, the other loads by a compute
        self._last = self._latency + np.where(get("residual") != 0, 0, last_compute) + last_store + after

    def _moved(self, operand: int, order: Sequence[Array | int], slots: Array | int) -> tuple[Array, Array]:
        """Loads of A (0) or B (1) and their beats, at least, in loops over the axes ``order``, outermost first."""
        turns, tiles_n = self._turns, self._tiles[1]
        missing = 1 - operand  # the axis that the operand lacks: n for A, m for B
        fetches: Array = 0 * tiles_n
        for one in turns.sums:
            different = one.b if operand else one.a
            if different < one.turns:  # what one of the turns loaded may serve another
                often: Array = np.asarray(1)
            elif operand == 0:
                swept = self._sweeps(missing, order, slots, one.turns)
                often = np.where(self._share != 0, tiles_n // np.maximum(self._share, 1), swept)
            else:
                often = self._sweeps(missing, order, slots, one.turns)
            fetches = fetches + one.outputs * different * often
        loads, beats = self._loads[operand] * fetches, self._beats[operand] * fetches
        distinct = turns.b if operand else turns.a
        if distinct == sum(one.outputs * (one.b if operand else one.a) for one in turns.sums):
            return loads, beats
        kept = (turns.outputs - 1) * np.asarray(slots)  # tiles that outlast an output
        least = self._loads[operand] * distinct, self._beats[operand] * distinct
        return np.maximum(loads - kept, least[0]), np.maximum(beats - kept * self._largest[operand], least[1])

    def _sweeps(self, axis: int, order: Sequence[Array | int], slots: Array | int, turns: int) -> Array:
        """Loads of a tile of the operand without an axis: once, if the loops inside of the axis leave it in its slot."""
        found: Array = np.where(np.asarray(slots) >= self._inside(axis, order, turns), 1, self._tiles[axis])
        return found

    def _inside(self, axis: int, order: Sequence[Array | int], turns: int) -> Array:
        """Steps of the loops inside of the one over an axis."""
        tiles = (*self._tiles[:2], self._tiles[2] * turns)
        others = tiles[(axis + 1) % 3] * tiles[(axis + 2) % 3]
        inner = tiles[order[2]] if isinstance(order[2], int) else np.choose(order[2], tiles)
        found: Array = np.where(np.asarray(order[2]) == axis, 1, np.where(np.asarray(order[1]) == axis, inner, others))
        return found

    def finishes(self, order: Sequence[Array | int], c_slots: Array | int) -> Array:
        """Whether loops over the axes ``order``, outermost first, evict no output tile before it is complete."""
        longest = max(one.turns for one in self._turns.sums)
        found: Array = (self._tiles[2] * longest == 1) | (np.asarray(c_slots) >= self._inside(2, order, longest))
        return found

    def least(self) -> Array:
        """The bound whatever the order and the slots: every tile is loaded once, and nothing waits for anything else."""
        beats, loads = ((parts[0] * self._turns.a, parts[1] * self._turns.b) for parts in (self._beats, self._loads))
        return self._cycles(beats, loads, self._switches)

    def cycles(self, order: Sequence[Array | int], a_slots: Array | int, b_slots: Array | int, c_slots: Array | int) -> Array:
        """The bound for loops over the axes ``order`` (0, 1, 2 for m, n, k), outermost first, with these slots and any lag.

        Either the computes follow each other between the first loads and the last store, and an operand of a single slot makes them
        wait for every load, or a single slot of C for every store; or the port is busy, short of requests in flight, or short of commands.
        """
        loads, beats = zip(self._moved(0, order, a_slots), self._moved(1, order, b_slots), strict=True)
        wait, gaps = 0 * beats[0], 0 * beats[0]
        for slots, moved, count, first in zip((a_slots, b_slots), beats, loads, (self._a_first, self._b_first), strict=True):
            single = np.asarray(slots) == 1
            wait = wait + np.where(single, moved - first + count - 1, 0)
            gaps = np.maximum(gaps, np.where(single, count - 1, 0))
        wait = np.maximum(wait + self._latency * gaps, np.where(np.asarray(c_slots) == 1, self._drains, 0))
        return self._cycles(beats, loads, np.maximum(wait, self._switches))

    def _cycles(self, beats: tuple[Array, Array], loads: tuple[Array, Array], wait: Array | int) -> Array:
        count, moved = loads[0] + loads[1] + self._residuals, beats[0] + beats[1] + self._residual_beats
        load = self._begin + moved + count
        port = np.where(self._split, np.maximum(load, self._stores), load + self._stores)
        bounds = [self._engine + wait, port, load + self._last]
        if np.any(self._outstanding <= self._latency):  # as many requests later, the data of the first must be there
            rounds = (moved - 1) // self._outstanding
            bounds.append(self._begin + rounds * np.maximum(self._latency + 1, self._outstanding) + self._last)
        if np.any(self._interval):
            bounds.append(self._interval * (count + self._commands))
        bound: Array = functools.reduce(np.maximum, bounds)
        return bound


def _pick(costs: Costs, name: str, index: Array, count: int) -> Array:
    found: Array = np.choose(index, [costs[f"{name}_{place}"] for place in range(count)])
    return found


def _most(costs: Costs, name: str, count: int) -> Array:
    found: Array = functools.reduce(np.maximum, [costs[f"{name}_{place}"] for place in range(count)])
    return found


def _sum(costs: Costs, name: str) -> Array:
    """Sum over all tiles of a per-tile factor, such as ``"c_m"`` or ``"a_k"``."""
    get, axis = costs.__getitem__, name[-1] if name != "tail" else "m"
    tiles = get(f"tiles_{axis}")
    if axis == "k":
        along_k: Array = (tiles - 1) * get(f"{name}_0") + get(f"{name}_1")
        return along_k
    period = get(f"period_{axis}")
    groups = tiles // period
    one = [(period - 1) * get(f"{name}_{place}") + get(f"{name}_{place + 1}") for place in ((0, 2) if axis == "m" else (0,))]
    along: Array = (groups - 1) * one[0] + one[-1]
    return along


def lower_bound(table: Array) -> Array:
    """Cycles that no run of a row can undercut (see `Bounds`).

    Parameters
    ----------
    table : (rows, len(COLUMNS)) int64

    Returns
    -------
    (rows,) int64
    """
    get = {name: table[:, place] for name, place in INDEX.items()}
    return Bounds(get).cycles([get[name] for name in ("outer", "middle", "inner")], get["a_slots"], get["b_slots"], get["c_slots"])
