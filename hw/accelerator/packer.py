"""Packer of the loader: joins the wanted bytes of the beats of a row into scratchpad words."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...intrinsics.accelerator.command import Target
from .walker import tag_layout


class Packer(wiring.Component):  # type: ignore[misc]
    """One beat per cycle in, at most one whole word per cycle out, and the rest of a row one cycle after its last beat.

    Words are at least as wide as a beat, so a beat fills at most one. Bytes outside the image are replaced by the byte
    ``zero``; what a row leaves of its last word is filled with zeros.

    Parameters
    ----------
    port_bytes : int
    words : dict from Target to int
        Bytes of a word.

    Members
    -------
    valid, beat, tag : In
    zero : In(8 * 3)
    write, rest : Out(1); *_target, *_bank, *_address, *_data
    """

    def __init__(self, *, port_bytes: int, words: dict[Target, int]) -> None:
        self.port_bytes, self.words = port_bytes, words
        self.widest = max(words.values())
        outputs = {}
        for name in ("write", "rest"):
            outputs |= {
                name: Out(1),
                f"{name}_target": Out(2),
                f"{name}_bank": Out(8),
                f"{name}_address": Out(16),
                f"{name}_data": Out(8 * self.widest),
            }
        super().__init__(
            {"valid": In(1), "beat": In(8 * port_bytes), "tag": In(tag_layout(port_bytes)), "zero": In(8 * len(Target)), **outputs}
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
        whole = self.valid & ((total >= limit) | tag.word_end)
        left = Mux(total >= limit, total - limit, 0)
        m.d.comb += [
            self.write.eq(whole),
            self.write_target.eq(tag.target),
            self.write_bank.eq(tag.bank),
            self.write_address.eq(tag.address + offset),
            self.write_data.eq(joined),
            self.rest_data.eq(held),
        ]
        m.d.sync += self.rest.eq(self.valid & tag.row_end & Mux(whole, left != 0, total != 0))
        with m.If(self.valid):
            m.d.sync += [
                held.eq(Mux(whole, self._above(joined), joined)),
                filled.eq(Mux(tag.row_end, 0, Mux(whole, left, total))),
                offset.eq(Mux(tag.row_end, 0, offset + whole)),
                self.rest_target.eq(tag.target),
                self.rest_bank.eq(tag.bank),
                self.rest_address.eq(tag.address + offset + whole),
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
        limit: Value = self.words[Target.CHANNELS]
        for target in (Target.B, Target.A):
            limit = Mux(self.tag.target == target, self.words[target], limit)
        return limit

    def _above(self, joined: Value) -> Value:
        """What does not fit the word that is written."""
        above: Value = joined[8 * self.words[Target.CHANNELS] :]
        for target in (Target.B, Target.A):
            above = Mux(self.tag.target == target, joined[8 * self.words[target] :], above)
        return above
