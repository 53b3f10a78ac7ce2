"""A banked scratchpad: words of bytes along k on the write side, one unit of every bank on the read side."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..shared import SharedPart
from .memories import scratch_memory


class Scratchpad(wiring.Component):  # type: ignore[misc]
    """Banks of words that are written one at a time and read all at once.

    Parameters
    ----------
    banks, words, word_bytes, unit_bytes : int
        ``word_bytes`` is a multiple of ``unit_bytes``.
    whole : bool
        Also give whole words.

    Members
    -------
    write, write_bank, write_address, write_data : In
    beat, read, address, unit : In
        Read word and unit inside the word, the same for all banks; with ``beat`` alone the word read last is used again.
    data : Out(8 * word_bytes * banks), with ``whole``
        Words, one cycle later.
    units : Out(8 * unit_bytes * banks)
        Units, one cycle later.
    """

    def __init__(self, *, banks: int, words: int, word_bytes: int, unit_bytes: int, whole: bool) -> None:
        self.banks, self.words, self.word_bytes, self.unit_bytes, self.whole = banks, words, word_bytes, unit_bytes, whole
        bits = word_bytes * 8
        super().__init__(
            {
                "write": In(1),
                "write_bank": In(8),
                "write_address": In(16),
                "write_data": In(bits),
                "beat": In(1),
                "read": In(1),
                "address": In(16),
                "unit": In(8),
                **({"data": Out(bits * banks)} if whole else {}),
                "units": Out(unit_bytes * 8 * banks),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        bits, unit_bits = self.word_bytes * 8, self.unit_bytes * 8
        chosen = Signal(range(max(bits // unit_bits, 2)))
        with m.If(self.beat):
            m.d.sync += chosen.eq(self.unit)
        for number in range(self.banks):
            bank = m.submodules[f"bank_{number}"] = _Bank(bits=bits, unit_bits=unit_bits, words=self.words)
            m.d.comb += [
                bank.write.eq(self.write & (self.write_bank == number)),
                bank.write_address.eq(self.write_address),
                bank.write_data.eq(self.write_data),
                bank.read.eq(self.read),
                bank.address.eq(self.address),
                bank.chosen.eq(chosen),
                self.units.word_select(number, unit_bits).eq(bank.value),
            ]
            if self.whole:
                m.d.comb += self.data.word_select(number, bits).eq(bank.data)
        return m


class _Bank(SharedPart):
    """Words of one row or column; ``value`` is the unit ``chosen`` of the word read last."""

    def __init__(self, *, bits: int, unit_bits: int, words: int) -> None:
        self.bits, self.unit_bits, self.words = bits, unit_bits, words
        address = max((words - 1).bit_length(), 1)
        super().__init__(
            {
                "write": In(1),
                "write_address": In(address),
                "write_data": In(bits),
                "read": In(1),
                "address": In(address),
                "chosen": In(range(max(bits // unit_bits, 2))),
                "data": Out(bits),
                "value": Out(unit_bits),
            }
        )

    @property
    def key(self) -> tuple[object, ...]:
        return self.bits, self.unit_bits, self.words

    def body(self) -> Module:
        m = Module()
        memory = m.submodules.words = scratch_memory(bits=self.bits, depth=self.words)
        write, read = memory.write_port(), memory.read_port()
        m.d.comb += [
            write.en.eq(self.write),
            write.addr.eq(self.write_address),
            write.data.eq(self.write_data),
            read.addr.eq(self.address),
            read.en.eq(self.read),
            self.data.eq(read.data),
            self.value.eq(_unit(read.data, self.chosen, self.unit_bits)),
        ]
        return m


def _unit(word: Value, index: Value, bits: int) -> Value:
    """One unit of a word: first 32 bits of it, then the unit in them, which simulators do in two machine instructions."""
    if len(word) == bits:
        return word
    if len(word) % 32 or 32 % bits:
        unit: Value = word.word_select(index, bits)
        return unit
    inside = (32 // bits).bit_length() - 1
    part = word[:32]
    for place in range(1, len(word) // 32):
        part = Mux(index[inside:] == place, word[32 * place : 32 * place + 32], part)
    return part.word_select(index[:inside], bits) if inside else part
