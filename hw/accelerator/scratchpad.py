"""A banked scratchpad: words of bytes along k on the write side, one unit of every bank on the read side."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out


class Scratchpad(wiring.Component):  # type: ignore[misc]
    """Banks of words that are written one at a time and read all at once.

    The loader ends a row with the rest of a word one cycle late, while it may already write to the next bank: hence two
    write ports that never address the same bank in the same cycle.

    Parameters
    ----------
    banks, words, word_bytes, unit_bytes : int
        ``word_bytes`` is a multiple of ``unit_bytes``.

    Members
    -------
    write, rest : In(1); *_bank, *_address, *_data
        A whole word, and the rest of a row.
    address, unit : In
        Read word and unit inside the word, the same for all banks.
    data : Out(8 * word_bytes * banks)
        Words, one cycle later.
    units : Out(8 * unit_bytes * banks)
        Units, one cycle later.
    """

    def __init__(self, *, banks: int, words: int, word_bytes: int, unit_bytes: int) -> None:
        self.banks, self.words, self.word_bytes, self.unit_bytes = banks, words, word_bytes, unit_bytes
        bits = word_bytes * 8
        writes = {}
        for name in ("write", "rest"):
            writes |= {name: In(1), f"{name}_bank": In(range(banks)), f"{name}_address": In(16), f"{name}_data": In(bits)}
        super().__init__(
            {
                **writes,
                "address": In(16),
                "unit": In(range(max(word_bytes // unit_bytes, 2))),
                "data": Out(bits * banks),
                "units": Out(unit_bytes * 8 * banks),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        bits, unit_bits = self.word_bytes * 8, self.unit_bytes * 8
        chosen = Signal.like(self.unit)
        m.d.sync += chosen.eq(self.unit)
        for bank in range(self.banks):
            memory = Memory(shape=unsigned(bits), depth=self.words, init=[])
            m.submodules[f"bank_{bank}"] = memory
            write, read = memory.write_port(), memory.read_port()
            whole, rest = self.write & (self.write_bank == bank), self.rest & (self.rest_bank == bank)
            m.d.comb += [
                write.en.eq(whole | rest),
                write.addr.eq(Mux(rest, self.rest_address, self.write_address)),
                write.data.eq(Mux(rest, self.rest_data, self.write_data)),
                read.addr.eq(self.address),
                read.en.eq(1),
                self.data.word_select(bank, bits).eq(read.data),
                self.units.word_select(bank, unit_bits).eq(read.data if bits == unit_bits else read.data.word_select(chosen, unit_bits)),
            ]
        return m
