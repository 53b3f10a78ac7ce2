"""Address walker of the loader: which beat of memory comes next, and which of its bytes count."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...intrinsics.accelerator.command import COMMAND_BITS, WALKER, Op, Register, Target
from .fields import command_view, register_view, registers


def tag_layout(port_bytes: int) -> data.StructLayout:
    """What the packer must know of a beat when its data arrive.

    ``target``; ``skip`` bytes before the wanted ones and their ``count``; bytes ``low`` to ``high`` - 1 lie inside the
    image; ``word_end`` closes a word although it is not full; ``row_end``, ``end`` close a row and a command.
    """
    lanes = range(port_bytes + 1)
    return data.StructLayout(
        {
            "target": 2,
            "bank": 8,
            "address": 16,
            "skip": range(port_bytes) if port_bytes > 1 else 1,
            "count": lanes,
            "low": lanes,
            "high": lanes,
            "word_end": 1,
            "row_end": 1,
            "end": 1,
        }
    )


class Walker(wiring.Component):  # type: ignore[misc]
    """Walks rows, kernel rows, kernel columns and the beats of a run; one beat per cycle in which ``step`` is high.

    Parameters
    ----------
    port_bytes : int
    banks : dict from Target to int

    Members
    -------
    set_word, set_register : In
        A SET command, and which walker register it writes, one bit each.
    start, head : In
        A LOAD command begins; its first beat is offered in the next cycle.
    step : In(1)
    running : Out(1)
    address : Out(32)
        Address of the beat, in beats; that of the image's first beat if all of the beat is padding.
    length : Out(9)
        Beats from this one on, at most 256, that lie one behind the other and hold bytes of the image.
    tag : Out(tag_layout)
    zero : Out(8 * targets)
        The byte outside the image, per target.
    """

    def __init__(self, *, port_bytes: int, banks: dict[Target, int]) -> None:
        self.port_bytes, self.banks = port_bytes, banks
        self.log = port_bytes.bit_length() - 1
        super().__init__(
            {
                "set_word": In(COMMAND_BITS),
                "set_register": In(len(banks)),
                "start": In(1),
                "head": In(COMMAND_BITS),
                "step": In(1),
                "running": Out(1),
                "address": Out(32),
                "length": Out(9),
                "tag": Out(tag_layout(port_bytes)),
                "zero": Out(8 * len(banks)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        now = self._configuration(m)
        self.now = now
        head = command_view(self.head, Op.LOAD)
        self.cmd = {name: Signal.like(head[name], name=f"command_{name}", reset_less=True) for name in _KEPT}
        # position: row of the target, its saved origin, then the place inside the window
        self.row_x, self.x, self.run_x = (Signal(signed(21), name=name, reset_less=True) for name in ("row_x", "x", "run_x"))
        self.row_base, self.base = (Signal(32, name=name, reset_less=True) for name in ("row_base", "base"))
        self.row_y, self.y = (Signal(signed(15), name=name, reset_less=True) for name in ("row_y", "y"))
        self.column, self.tap = Signal(14, reset_less=True, name="column"), Signal(6, reset_less=True, name="tap")
        self.left, self.run_left = Signal(16, reset_less=True, name="left"), Signal(12, reset_less=True, name="run_left")
        self.row_left, self.rows_left = Signal(14, reset_less=True, name="row_left"), Signal(14, reset_less=True, name="rows_left")
        self.bank, self.target_row = Signal(8, reset_less=True, name="bank"), Signal(16, reset_less=True, name="target_row")
        self._beat(m)
        with m.If(self.step):
            self._advance(m)
        with m.If(self.start):
            self._load(m, head)
        return m

    def _configuration(self, m: Module) -> dict[str, Signal]:
        """The registers of all targets, and a copy of those of the running command."""
        now = registers(WALKER, "now")
        body = WALKER["run"].offset
        kept = []
        for target in self.banks:
            raw = Signal(COMMAND_BITS - body, name=f"walker_{target.name.lower()}", reset_less=True)
            with m.If(self.set_register[target]):
                m.d.sync += raw.eq(self.set_word[body:])
            kept.append(raw)
            zero = WALKER["zero"].offset - body
            m.d.comb += self.zero.word_select(target, 8).eq(raw[zero : zero + 8])
        chosen = Signal(COMMAND_BITS - body, name="walker_chosen")
        with m.Switch(command_view(self.head, Op.LOAD)["target"]):
            for target in self.banks:
                with m.Case(target):
                    m.d.comb += chosen.eq(kept[target])
        self.chosen = register_view(Cat(self.head[:body], chosen), Register.A)
        with m.If(self.start):
            m.d.sync += [now[name].eq(self.chosen[name]) for name in now]
        return now

    def _beat(self, m: Module) -> None:
        """The present beat: address, wanted bytes, bytes inside the image."""
        width, now = self.port_bytes, self.now
        byte = Signal(32)
        skip, room, aligned = (
            Signal(range(max(width, 2)), name="skip"),
            Signal(range(width + 1), name="room"),
            Signal(signed(22), name="aligned"),
        )
        self.count, self.room = Signal(range(width + 1), name="count"), room
        outside = (self.y < 0) | (self.y >= now["height"])
        ahead = Signal(signed(23))
        m.d.comb += [
            byte.eq(self.base + self.x),
            skip.eq(byte[: self.log] if self.log else 0),
            room.eq(width - skip),
            self.count.eq(Mux(self.left < room, self.left, room)),
            aligned.eq(self.x - skip),
            ahead.eq(now["width"] - aligned),
            self.tag.target.eq(self.cmd["target"]),
            self.tag.bank.eq(self.bank),
            self.tag.address.eq(self.target_row),
            self.tag.skip.eq(skip),
            self.tag.count.eq(Mux(self.cmd["spare"] & (self.row_left == 1), 0, self.count)),
            self.tag.low.eq(_clamp(-aligned, width)),
            self.tag.high.eq(Mux(outside, 0, _clamp(ahead, width))),
            self.tag.word_end.eq(now["pad"] & (self.run_left == 1)),
            self.tag.row_end.eq(self.row_left == 1),
            self.tag.end.eq((self.row_left == 1) & (self.rows_left == 1)),
        ]
        self._place(m, byte, ahead)

    def _place(self, m: Module, byte: Value, ahead: Value) -> None:
        """Where the beat is, and how many follow it; a beat without a byte of the image must not reach beyond memory."""
        inside, edge, row = Signal(name="inside"), Signal(23, name="edge"), Signal(14, name="row")
        spare = self.cmd["spare"] & (self.row_left == 1)
        m.d.comb += [
            inside.eq((self.tag.high != 0) & (self.tag.low != self.port_bytes) & ~spare),
            self.address.eq(Mux(inside, byte[self.log :], 0)),
            edge.eq((ahead + self.port_bytes - 1) >> self.log),
            row.eq(self.row_left - self.cmd["spare"]),
            self.length.eq(1),
        ]
        with m.If(inside):
            m.d.comb += self.length.eq(least(least(self.run_left, row), least(edge, MAX_BURST)))

    def _advance(self, m: Module) -> None:
        now = self.now
        m.d.sync += [
            self.x.eq(self.x + self.room),
            self.left.eq(self.left - self.count),
            self.run_left.eq(self.run_left - 1),
            self.row_left.eq(self.row_left - 1),
        ]
        with m.If(self.run_left == 1):
            m.d.sync += [self.left.eq(now["run"]), self.run_left.eq(now["run_beats"])]
            with m.If(self.tap + 1 < now["taps"]):
                following = self.run_x + now["tap_step"]
                m.d.sync += [self.tap.eq(self.tap + 1), self.run_x.eq(following), self.x.eq(following)]
            with m.Else():
                m.d.sync += [self.tap.eq(0), self.run_x.eq(self.row_x), self.x.eq(self.row_x)]
                m.d.sync += [self.base.eq(self.base + now["kernel_step"]), self.y.eq(self.y + now["kernel_y"])]
        with m.If(self.row_left == 1):
            self._next_row(m)

    def _next_row(self, m: Module) -> None:
        now = self.now
        m.d.sync += self.rows_left.eq(self.rows_left - 1)
        with m.If(self.rows_left == 1):
            m.d.sync += self.running.eq(0)
        with m.If(self.column + 1 < now["columns"]):
            self._begin_row(m, self.cmd, self.row_x + now["column_step"], self.row_base, self.row_y)
            m.d.sync += self.column.eq(self.column + 1)
        with m.Else():
            self._begin_row(m, self.cmd, now["first_x"], self.row_base + now["row_step"], self.row_y + now["row_y"])
            m.d.sync += self.column.eq(0)
        with m.If(self.bank == self._last_bank()):
            m.d.sync += [self.bank.eq(0), self.target_row.eq(self.target_row + self.cmd["row_stride"])]
        with m.Else():
            m.d.sync += self.bank.eq(self.bank + 1)

    def _last_bank(self) -> Value:
        chosen: Value = Const(0, 8)
        for target, banks in self.banks.items():
            chosen = Mux(self.cmd["target"] == target, banks - 1, chosen)
        return chosen

    def _begin_row(self, m: Module, command: dict[str, Value], x: Value, base: Value, y: Value) -> None:
        """Set the place inside the window to the beginning of the tile's part of a row."""
        start = x + command["offset"]
        m.d.sync += [
            self.row_x.eq(x),
            self.row_base.eq(base),
            self.row_y.eq(y),
            self.base.eq(base),
            self.y.eq(y),
            self.x.eq(start),
            self.run_x.eq(start - command["skip"]),
            self.tap.eq(command["tap"]),
            self.left.eq(self.now["run"] - command["skip"]),
            self.run_left.eq(command["first_beats"]),
            self.row_left.eq(command["beats"]),
        ]

    def _load(self, m: Module, head: dict[str, Value]) -> None:
        m.d.sync += [kept.eq(head[name]) for name, kept in self.cmd.items()]
        self._begin_row(m, head, head["x"], head["base"], head["y"])
        m.d.sync += [
            self.running.eq(1),
            self.left.eq(self.chosen["run"] - head["skip"]),
            self.column.eq(head["column"]),
            self.rows_left.eq(head["rows"]),
            self.bank.eq(0),
            self.target_row.eq(head["spad"]),
        ]


MAX_BURST = 256
"""Most beats of a burst on AXI4."""

_KEPT = ("target", "beats", "offset", "skip", "tap", "first_beats", "row_stride", "spare")
"""Fields of a LOAD that are needed until its end."""


def least(a: Value, b: Value | int) -> Value:
    """The smaller of two unsigned values."""
    return Mux(a < b, a, b)


def _clamp(value: Value, high: int) -> Value:
    """A signed value brought into 0..high."""
    return Mux(value < 0, 0, Mux(value > high, high, value))
