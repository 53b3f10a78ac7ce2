"""Loads and stores as arrays of places: what commands of one shape share, wherever they begin."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..numerics import Array
from .walk import ADDRESS_BITS, Values, row_origins, store_addresses, window_bytes

LOAD_SHAPE = ("rows", "beats", "spare", "first_beats", "x", "column", "offset", "skip", "tap")
"""Fields of a LOAD that its pattern depends on; the others say where it begins in memory, in the image and in the scratchpad."""

COMPUTE_SHAPE = ("vector", "a", "b", "c", "k_units", "m_blocks", "n_blocks", "a_stride", "b_stride")
"""Fields of a COMPUTE that say what it reads and writes."""

MOST_SHAPES = 256
"""How many shapes of loads are worth keeping for a memory."""

STORE_SHAPE = ("m_blocks", "n_blocks", "rows", "last_rows", "block_rows")
"""Fields of a STORE that its pattern depends on."""


@dataclass(frozen=True, eq=False)
class LoadPattern:
    """The bytes of a load, in units that lie together and are inside of the image or outside as a whole.

    Parameters
    ----------
    unit : int
        Bytes of a unit, a power of two.
    place : (rows, units) int64
        Units from the base of the command.
    y : (rows, units) or (rows, 1) int64
        Image rows from the ``y`` of the command.
    beside : (rows, units) bool, or None
        Units left or right of the image.
    runs : (runs,) int64
        Units of every run.
    """

    unit: int
    place: Array
    y: Array
    beside: Array | None
    runs: Array

    @classmethod
    def of(cls, load: Values, walker: Values, port_bytes: int) -> LoadPattern:
        """The pattern of a load and of those that differ in nothing but ``y``, ``spad``, ``row_stride`` and ``base``, modulo a beat."""
        x, y, base, run_end, _, _ = window_bytes(load, walker, port_bytes)
        row_x, row_y, row_base = row_origins({**load, "y": 0, "base": 0}, walker)
        starts = np.flatnonzero(np.concatenate([[True], run_end[:-1]]))
        runs = np.diff([*starts, len(x)])
        lengths = [port_bytes, load["base"], walker["width"], *np.unique(np.concatenate([runs, x[starts], base[starts], row_x, row_base]))]
        unit = math.gcd(*map(int, lengths))
        x, y, base = x[::unit], y[::unit], base[::unit]
        across = row_x[:, None] + x
        beside = (across < 0) | (across >= walker["width"])
        return cls(
            unit=unit,
            place=(row_base[:, None] + base + across) // unit,
            y=row_y[:, None] + (y if y.any() else y[:1]),
            beside=beside if beside.any() else None,
            runs=runs // unit,
        )

    def outside(self, y: int, height: int) -> Array | None:
        """Units outside of an image of ``height`` rows, (rows, units) bool, for a load that begins at row ``y``; None if there are none."""
        if y + int(self.y.min()) >= 0 and y + int(self.y.max()) < height:
            return self.beside
        beyond = (self.y < -y) | (self.y >= height - y)
        return np.broadcast_to(beyond, self.place.shape) if self.beside is None else beyond | self.beside

    def fetch(self, memory: Array, load: Values, walker: Values) -> Array:
        """(rows, units, unit) uint8: what a load of this pattern brings."""
        outside = self.outside(load["y"], walker["height"])
        place = self.place + load["base"] // self.unit
        if outside is not None:
            place[outside] = 0
        place &= (1 << ADDRESS_BITS) // self.unit - 1  # an image row above the image may begin below address 0
        if self.unit == 1:
            data = memory.take(place)[..., None]
        else:
            data = memory[: len(memory) // self.unit * self.unit].reshape(-1, self.unit).take(place, axis=0)
        if outside is not None:
            data[outside] = walker["zero"]
        return data

    def words(self, data: Array, size: int, *, padded: bool) -> Array:
        """(rows, words, size) uint8: fetched bytes in words of a scratchpad, one behind the other, or ``padded``, every run in a word."""
        rows, count = len(data), len(self.runs)
        if not padded:
            filled, used = -(-data.shape[1] * self.unit // size), data.shape[1] * self.unit
            if filled * size == used:
                return data.reshape(rows, filled, size)
            words = np.zeros((rows, filled * size), np.uint8)
            words[:, :used] = data.reshape(rows, used)
            return words.reshape(rows, filled, size)
        words = np.zeros((rows, count, size), np.uint8)
        if (self.runs == self.runs[0]).all():
            length = int(self.runs[0]) * self.unit
            words[:, :, :length] = data.reshape(rows, count, length)
            return words
        for run, part in enumerate(np.split(data, np.cumsum(self.runs)[:-1], axis=1)):
            words[:, run, : part.shape[1] * self.unit] = part.reshape(rows, -1)
        return words


@dataclass(frozen=True, eq=False)
class StorePattern:
    """The rows of a store.

    Parameters
    ----------
    address, source : (rows,) int64
        Bytes from the base of the command, and accumulator rows from its ``c``, of the rows of the first N block.
    ends : tuple of int
        Where the M blocks end among these rows; only the last one where N blocks do not write what others do.
    step : int
        Divides all addresses.
    size : int
        Bytes of a row of a whole N block.
    """

    address: Array
    source: Array
    ends: tuple[int, ...]
    step: int
    size: int

    @classmethod
    def of(cls, store: Values, path: Values, cols: int) -> StorePattern:
        """The pattern of a store and of those that begin elsewhere."""
        places, sources = (places[:, 0] for places in store_addresses({**store, "base": 0, "c": 0}, path, cols))
        real = sources >= 0
        address, step = places[real], math.gcd(path["pitch"], path["block_pitch"])
        size, ends = cols * (1 if path["narrow"] else 4), np.cumsum(real.sum(axis=1))
        if not _collide(address, size, store["n_blocks"]):
            ends = ends[-1:]
        return cls(address=address, source=sources[real], ends=tuple(map(int, ends)), step=step, size=size)

    def sources(self, store: Values) -> Array:
        """Accumulator rows, (n_blocks, rows) int64."""
        blocks: Array = store["c"] + np.arange(store["n_blocks"])[:, None] * store["block_rows"]
        return blocks + self.source

    def write(self, memory: Array, store: Values, content: Array) -> None:
        """Write (n_blocks, rows, size) uint8, without what lies behind the last channel; M blocks are outside of N blocks."""
        first = 0
        for end in self.ends:
            for block, rows in enumerate(content[:, first:end]):
                start = store["base"] + block * self.size
                count = store["last_bytes"] if block == store["n_blocks"] - 1 else self.size
                unit = math.gcd(start, count, self.step)
                place = ((self.address[first:end] + start) // unit)[:, None] + np.arange(count // unit)
                units = memory[: len(memory) // unit * unit].reshape(-1, unit)
                units[place] = rows[:, :count].reshape(len(rows), -1, unit)
            first = end


def _collide(address: Array, size: int, blocks: int) -> bool:
    """Whether rows of ``size`` bytes at these addresses meet such rows of other blocks, which begin ``size`` bytes further each."""
    known = np.unique(address)
    for block in range(1, blocks):
        found = np.searchsorted(known, address + block * size)  # the first that begins there or behind
        behind, before = known[np.minimum(found, len(known) - 1)], known[np.maximum(found - 1, 0)]
        if np.any(np.abs(np.stack([behind, before]) - address - block * size) < size):
            return True
    return False
