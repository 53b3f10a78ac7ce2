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


def column(table: Array, name: str) -> Array:
    """A column of a table (rows, len(COLUMNS))."""
    found: Array = table[:, INDEX[name]]
    return found


def sums(table: Array, name: str) -> Array:
    """Sum over all tiles of a per-tile factor, such as ``"c_m"`` or ``"a_k"``."""
    if name.endswith("_k"):
        along_k: Array = (column(table, "tiles_k") - 1) * column(table, f"{name}_0") + column(table, f"{name}_1")
        return along_k
    if name.endswith("_n"):
        period = column(table, "period_n")
        along_n: Array = column(table, "tiles_n") // period * ((period - 1) * column(table, f"{name}_0") + column(table, f"{name}_1"))
        return along_n
    period = column(table, "period_m")
    groups = column(table, "tiles_m") // period
    group = [(period - 1) * column(table, f"{name}_{outer}") + column(table, f"{name}_{outer + 1}") for outer in (0, 2)]
    along_m: Array = (groups - 1) * group[0] + group[1]
    return along_m


def fetches(table: Array) -> tuple[Array, Array]:
    """How often each tile of A and of B is loaded."""
    tiles = np.stack([column(table, f"tiles_{axis}") for axis in "mnk"])
    order = np.stack([column(table, name) for name in ("outer", "middle", "inner")])
    rows = np.arange(len(table))
    inner = tiles[order[2], rows]

    def sweeps(axis: int, slots: Array) -> Array:
        position = (order == axis).argmax(axis=0)
        others = tiles[(axis + 1) % 3] * tiles[(axis + 2) % 3]
        inside = np.where(position == 1, inner, others)
        once = (position == 2) | (slots >= inside)
        return np.where(once, 1, tiles[axis])

    share = column(table, "a_share")
    a = np.where(share != 0, tiles[1] // np.maximum(share, 1), sweeps(1, column(table, "a_slots")))
    return a, sweeps(0, column(table, "b_slots"))


def lower_bound(table: Array) -> Array:
    """Cycles that no run can undercut: the compute engine between the first loads and the last store, and the port.

    Parameters
    ----------
    table : (rows, len(COLUMNS)) int64

    Returns
    -------
    (rows,) int64
    """
    get = lambda name: column(table, name)  # noqa: E731
    tiles = get("tiles_m") * get("tiles_n") * get("tiles_k")
    one_n, one_k = get("period_n") == 1, get("tiles_k") == 1
    first_m = (get("period_m") == 1) + 2 * (get("tiles_m") == get("period_m"))
    rows = np.arange(len(table))
    a_first = table[rows, INDEX["a_m_0"] + first_m] * np.where(one_k, get("a_k_1"), get("a_k_0"))
    b_first = np.where(one_n, get("b_n_1"), get("b_n_0")) * np.where(one_k, get("b_k_1"), get("b_k_0"))
    prologue = np.where(get("prologue") > 0, get("prologue") + 1, 0)
    head = get("sets") + 1 + prologue + a_first + 1 + b_first + get("latency") + 1
    compute = sums(table, "c_m") * sums(table, "c_n") * sums(table, "c_k") + tiles * (1 + get("preload"))
    last_store = get("s_m_3") * get("c_n_1")
    engine = head + compute + get("tail_3") + last_store + 2 + get("store_latency")
    fetch_a, fetch_b = fetches(table)
    load = sums(table, "a_m") * sums(table, "a_k") * fetch_a + sums(table, "b_n") * sums(table, "b_k") * fetch_b
    load += (get("tiles_m") * fetch_a + get("tiles_n") * fetch_b) * get("tiles_k") + prologue
    stores = get("tiles_m") * get("tiles_n")
    out_beats = sums(table, "s_m") * sums(table, "c_n")
    load += get("residual") * (out_beats + stores)
    store = out_beats + stores * (1 + get("store_latency"))
    port = np.where(get("split") != 0, np.maximum(load, store), load + store) + get("sets") + 1
    bound: Array = np.maximum(engine, port)
    return bound
