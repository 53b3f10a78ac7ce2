"""Packer of the loader: joins the wanted bytes of the beats of a row into scratchpad words."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...intrinsics.accelerator.command import Target
from .walker import tag_layout


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
    """

    def __init__(self, *, port_bytes: int, words: dict[Target, int]) -> None:
        self.port_bytes, self.words = port_bytes, words
        self.widest = max(words.values())
        outputs = {
            "write": Out(1),
            "write_target": Out(2),
            "write_bank": Out(8),
            "write_address": Out(16),
            "write_data": Out(8 * self.widest),
        }
        super().__init__(
            {"valid": In(1), "beat": In(8 * port_bytes), "tag": In(tag_layout(port_bytes)), "zero": In(8 * len(words)), **outputs}
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        width, tag = self.port_bytes, self.tag
        held = Signal(8 * self.widest, reset_less=True)
        filled, offset = Signal(range(self.widest + 1)), Signal(16)
        joined = Signal(8 * (self.widest + width))
        total = Signal(range(self.widest + width + 1))
        limit = Signal(range(self.widest + 1))
        # one shifter: up by what is held, down by what is skipped
        up = Signal(range(self.widest + width + 1))
        m.d.comb += [
            up.eq(filled + width - tag.skip),
            joined.eq(Mux(filled == 0, 0, held) | (self._wanted() << (up << 3))[8 * width :]),
            total.eq(filled + tag.count),
            limit.eq(self._limit()),
        ]
        full = total >= limit
        m.d.comb += [
            self.write.eq(self.valid & (full | tag.word_end | (tag.row_end & (total != 0)))),
            self.write_target.eq(tag.target),
            self.write_bank.eq(tag.bank),
            self.write_address.eq(tag.address + offset),
            self.write_data.eq(joined),
        ]
        closed = tag.row_end | tag.word_end
        with m.If(self.valid):
            m.d.sync += [
                held.eq(Mux(full, self._above(joined), joined)),
                filled.eq(Mux(closed, 0, Mux(full, total - limit, total))),
                offset.eq(Mux(tag.row_end, 0, offset + self.write)),
            ]
        return m

    def _wanted(self) -> Value:
        """The beat with bytes outside the image replaced, and zeros where nothing is wanted."""
        tag = self.tag
        zero = self.zero.word_select(tag.target, 8)
        stop = tag.skip + tag.count
        lanes = []
        for lane in range(self.port_bytes):
            inside = (tag.low <= lane) & (tag.high > lane)
            byte = Mux(inside, self.beat.word_select(lane, 8), zero)
            lanes.append(Mux((tag.skip <= lane) & (stop > lane), byte, 0))
        return Cat(*lanes)

    def _limit(self) -> Value:
        limit: Value = Const(0)
        for target, size in self.words.items():
            limit = Mux(self.tag.target == target, size, limit)
        return limit

    def _above(self, joined: Value) -> Value:
        """What does not fit the word that is written."""
        above: Value = Const(0)
        for target, size in self.words.items():
            above = Mux(self.tag.target == target, joined[8 * size :], above)
        return above
