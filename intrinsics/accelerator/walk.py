"""What LOAD and STORE commands touch: addresses as the hardware walks them, in NumPy."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from ..numerics import Array

ADDRESS_BITS = 32

Values = Mapping[str, int]


Window = tuple[Array, Array, Array, Array, Array, Array]


def window_bytes(load: Values, walker: Values, port_bytes: int) -> Window:
    """The bytes of the first row of a load, relative to its window.

    Returns
    -------
    x, y, base : (bytes,) int64
        Offsets of every wanted byte: along the image row, in image rows, and of the image row's address.
    run_end : (bytes,) bool
        The byte ends a run.
    beats : (beats, 3) int64
        Offset along the image row, image rows, and address offset of the first byte of every beat.
    runs : (runs, 3) int64
        First beat, bytes and beats of every run.

    Notes
    -----
    Valid if every run starts at a beat, or takes the beats of the worst alignment: the wanted bytes then do not depend on
    where the row starts.
    """
    return _window_bytes(tuple(load[name] for name in _PLACE), tuple(walker[name] for name in _WINDOW), port_bytes)


_PLACE = ("tap", "skip", "offset", "beats", "spare", "first_beats")
_WINDOW = ("run", "run_beats", "taps", "tap_step", "kernel_y", "kernel_step")


@functools.lru_cache(maxsize=4096)
def _window_bytes(place: tuple[int, ...], window: tuple[int, ...], port_bytes: int) -> Window:
    """Few different ones occur in a program."""
    load, walker = dict(zip(_PLACE, place, strict=True)), dict(zip(_WINDOW, window, strict=True))
    xs, ys, bases, ends, beats, runs = [], [], [], [], [], []
    tap, skip, y, base = load["tap"], load["skip"], 0, 0
    origin = load["offset"] - skip
    left_beats, run_beats = load["beats"] - load["spare"], load["first_beats"]
    while left_beats:
        now = min(run_beats, left_beats)
        count = min(walker["run"] - skip, now * port_bytes)
        runs.append(np.array([[load["beats"] - load["spare"] - left_beats, count, now]]))
        xs.append(origin + skip + np.arange(count))
        ys.append(np.full(count, y))
        bases.append(np.full(count, base))
        ends.append(np.arange(count) == count - 1)
        beats.append(np.stack([origin + skip + np.arange(now) * port_bytes, np.full(now, y), np.full(now, base)], axis=1))
        left_beats -= now
        run_beats, skip = walker["run_beats"], 0
        if tap + 1 < walker["taps"]:
            tap, origin = tap + 1, origin + walker["tap_step"]
        else:
            tap, origin, y, base = 0, 0, y + walker["kernel_y"], base + walker["kernel_step"]
    found = tuple(np.concatenate(parts) for parts in (xs, ys, bases, ends, beats, runs))
    for part in found:
        part.flags.writeable = False
    return found[0], found[1], found[2], found[3], found[4], found[5]


def row_size(load: Values, walker: Values, port_bytes: int) -> tuple[int, int]:
    """Bytes and runs of a row of a load."""
    left, first, whole = load["beats"] - load["spare"], load["first_beats"], walker["run_beats"]
    count = min(walker["run"] - load["skip"], min(first, left) * port_bytes)
    full, rest = divmod(max(left - first, 0), whole)
    count += full * min(walker["run"], whole * port_bytes) + min(walker["run"], rest * port_bytes)
    return count, 1 + full + (rest > 0)


def row_origins(load: Values, walker: Values) -> tuple[Array, Array, Array]:
    """x, y and image row address of the window of every row of a load, each (rows,) int64."""
    index = load["column"] + np.arange(load["rows"])
    column, down = index % walker["columns"], index // walker["columns"]
    first = down == 0
    x = np.where(first, load["x"] + (column - load["column"]) * walker["column_step"], walker["first_x"] + column * walker["column_step"])
    return x, load["y"] + down * walker["row_y"], load["base"] + down * walker["row_step"]


def store_addresses(store: Values, path: Values, cols: int) -> tuple[Array, Array]:
    """Byte address and accumulator row of every row that a STORE writes, as (m_blocks, n_blocks, rows); -1 where a block is shorter."""
    size = cols * (1 if path["narrow"] else 4)
    most = max(store["rows"] if store["m_blocks"] > 1 else 0, store["last_rows"])
    i, j, r = np.ogrid[: store["m_blocks"], : store["n_blocks"], :most]
    address = store["base"] + i * path["block_pitch"] + j * size + r * path["pitch"]
    source = store["c"] + (i * store["n_blocks"] + j) * store["block_rows"] + r
    limit = np.where(np.arange(store["m_blocks"]) == store["m_blocks"] - 1, store["last_rows"], store["rows"])[:, None, None]
    return np.where(r < limit, address, -1), np.where(r < limit, source, -1)


def store_rows(store: Values) -> int:
    """Output rows of a STORE."""
    return (store["m_blocks"] - 1) * store["rows"] + store["last_rows"]
