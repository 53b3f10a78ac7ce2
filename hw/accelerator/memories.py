"""Memories without initial contents."""

from __future__ import annotations

from amaranth.hdl import unsigned
from amaranth.lib.memory import Memory


def scratch_memory(*, bits: int, depth: int) -> Memory:
    """A memory whose contents are arbitrary until they are written.

    Amaranth knows no such memory: it writes every bit of every word as zero, which took half of its time. With an empty list
    of words it writes none, and `emit` leaves the initialisation out.

    Parameters
    ----------
    bits, depth : int
    """
    memory = Memory(shape=unsigned(bits), depth=depth, init=[])
    memory.data.init._raw = []
    return memory
