"""Packer of the loader: joins the wanted bytes of the beats of a row into scratchpad words."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...intrinsics.accelerator.command import Target
from ...intrinsics.accelerator.machine import AcceleratorMachine, ceil_div
from .walker import tag_layout


def loaded_words(machine: AcceleratorMachine) -> dict[Target, int]:
    """Bytes of the words that the loader writes, for every memory."""
    return {target: machine.packed_bytes(target) for target in machine.targets}


def packer_ports(words: dict[Target, int]) -> dict[str, Any]:
    """Outputs of a `Packer` for words of so many bytes."""
    return {
        "write": Out(1),
        "write_target": Out(2),
        "write_bank": Out(8),
        "write_address": Out(16),
        "write_part": Out(16),
        "write_data": Out(8 * max(words.values())),
    }


class Packer(wiring.Component):  # type: ignore[misc]
    """One beat per cycle in, at most one word per cycle out.

    Words are at least as wide as a beat, so a beat fills at most one. The last beat of a row also closes its last word,
    filled up with zeros; a row whose last beat might complete one word and begin another has a spare beat instead. Bytes
    outside the image are replaced by the byte ``zero``.

    Parameters
    ----------
    port_bytes : int
    words : dict from Target to int
        Bytes of a word.

    Members
    -------
    valid, beat, tag : In
    zero : In(8 * targets)
    write, write_target, write_bank, write_address, write_data : Out
    write_part : Out(16)
        Number of a word of biases and multipliers inside its row; all of them have the row's address.
    """

    def __init__(self, *, port_bytes: int, words: dict[Target, int]) -> None:
        self.port_bytes, self.words = port_bytes, words
        self.widest = max(words.values())
        super().__init__(
            {
                "valid": In(1),
                "beat": In(8 * port_bytes),
                "tag": In(tag_layout(port_bytes)),
                "zero": In(8 * len(words)),
                **packer_ports(words),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        tag = self.tag
        held = Signal(8 * self.widest)  # zero behind what is filled
        filled, offset = Signal(range(self.widest + 1), name="filled"), Signal(16, name="offset")
        total = Signal(range(self.widest + self.port_bytes + 1))
        limit = Signal(range(self.widest + 1))
        joined = self._joined(m, held, filled)
        m.d.comb += [total.eq(filled + tag.count), limit.eq(self._limit())]
        full, closed = total >= limit, tag.row_end | tag.word_end
        m.d.comb += [
            self.write.eq(self.valid & (full | (closed & (total != 0)))),  # the last beat of a run may be empty, and its word closed before
            self.write_target.eq(tag.target),
            self.write_bank.eq(tag.bank),
            self.write_address.eq(tag.address + Mux(tag.target == Target.CHANNELS, 0, offset)),
            self.write_part.eq(offset),
            self.write_data.eq(joined),
        ]
        with m.If(self.valid):
            m.d.sync += [
                held.eq(Mux(closed, 0, Mux(full, self._above(joined), joined))),
                filled.eq(Mux(closed, 0, Mux(full, total - limit, total))),
                offset.eq(Mux(tag.row_end, 0, offset + self.write)),
            ]
        return m

    def _joined(self, m: Module, held: Signal, filled: Signal) -> Value:
        """What is held, followed by the wanted bytes: turned to their place in a beat, they lie in one beat and the next."""
        width, tag = self.port_bytes, self.tag
        log = width.bit_length() - 1
        place, beat = (filled[:log] if log else Const(0, 1)), filled[log:]
        turned = Signal(8 * width)
        wanted, stop = Signal(2 * width, name="wanted"), Signal(range(2 * width + 1), name="stop")
        m.d.comb += [
            turned.eq(_rotated(m, self._inside(m), (place - tag.skip)[:log] if log else Const(0, 1))),
            stop.eq(place + tag.count),
            wanted.eq(_below(stop, 2 * width) & ~_below(place, 2 * width)),
        ]
        parts = [_bytes(wanted[:width], turned, 0), _bytes(wanted[width:], turned, 0)]
        chunks = []
        for index in range(ceil_div(self.widest, width) + 1):
            old = held[8 * width * index :][: 8 * width]
            new = [Mux(beat == index - behind, part, 0) for behind, part in enumerate(parts) if index >= behind]
            chunks.append((reduce(or_, new) | old)[: 8 * width])
        joined = Signal(8 * width * len(chunks))
        m.d.comb += joined.eq(Cat(*chunks))
        return joined

    def _inside(self, m: Module) -> Value:
        """The beat, with bytes outside the image replaced."""
        width, tag = self.port_bytes, self.tag
        zero, inside = Signal(8, name="zero"), Signal(width, name="inside")
        m.d.comb += [zero.eq(self.zero.word_select(tag.target, 8)), inside.eq(_below(tag.high, width) & ~_below(tag.low, width))]
        return _bytes(inside, self.beat, zero)

    def _limit(self) -> Value:
        limit: Value = Const(0)
        for target, size in self.words.items():
            limit = Mux(self.tag.target == target, size, limit)
        return limit

    def _above(self, joined: Value) -> Value:
        """What does not fit the word that is written: less than a beat."""
        above: Value = Const(0)
        for target, size in self.words.items():
            above = Mux(self.tag.target == target, joined[8 * size :][: 8 * self.port_bytes], above)
        return above


def _below(limit: Value, size: int) -> Value:
    """A mask of ``size`` bits with a one for every index below ``limit``."""
    mask = ((Const(1) << limit) - 1)[:size]
    return Cat(mask, Const(0, size - len(mask)))


def _bytes(mask: Value, value: Value, other: Value | int) -> Value:
    """Bytes of ``value`` where the mask has a one, else the byte ``other``; chosen byte by byte, which simulators do fast."""
    return Cat(*(Mux(bit, value.word_select(lane, 8), other) for lane, bit in enumerate(mask)))


def _rotated(m: Module, value: Value, amount: Value) -> Value:
    """Bytes moved up by ``amount``, around the end."""
    for step, bit in enumerate(amount):
        bits = 8 << step
        if bits < len(value):
            stage = Signal(len(value), name=f"rotated_{step}")
            m.d.comb += stage.eq(Mux(bit, value.rotate_left(bits), value))
            value = stage
    return value
