"""Sequencers: turn compute commands into scratchpad reads and core beats, one pass after another."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...intrinsics.accelerator.command import COMMAND_BITS, FIELDS, Op
from ...intrinsics.accelerator.machine import AcceleratorMachine
from .fields import command_view

DRAIN = data.StructLayout({"c": 16, "accumulate": 1, "k_units": 16, "m_blocks": 12, "n_blocks": 12})
"""What the drain must know of a compute command."""

_KEPT = ("vector", "b", "k_units", "m_blocks", "n_blocks", "a_stride", "b_stride")


def sequencer_ports() -> dict[str, Any]:
    """Outputs of a `Sequencer` towards scratchpads, core and drain."""
    ports = {"drain": Out(DRAIN), "drain_valid": Out(1), "last": Out(1), "vector": Out(1)}
    for operand in "ab":
        ports |= {f"{operand}_address": Out(16), f"{operand}_unit": Out(8), f"{operand}_read": Out(1), f"{operand}_beat": Out(1)}
    return ports


class Sequencer(wiring.Component):  # type: ignore[misc]
    """What both sequencers share: the command, and the signals towards scratchpads, core and drain.

    Parameters
    ----------
    machine : AcceleratorMachine

    Members
    -------
    head, valid, pop : the head of the compute queue
    a_address, a_unit, a_read, b_address, b_unit, b_read : Out
        Reads, answered in the next cycle; ``read`` is low while a word is still being taken apart.
    a_beat, b_beat, last, vector : Out
        A beat of activations or weights is being read; it ends its pass; the core multiplies words, not units.
    done : Out(1)
        Last cycle of a command: its operands have been read.
    drain, drain_valid : Out
        A command begins.
    """

    def __init__(self, machine: AcceleratorMachine) -> None:
        self.machine = machine
        super().__init__({"head": In(COMMAND_BITS), "valid": In(1), "pop": Out(1), "done": Out(1), **sequencer_ports()})

    def command(self, m: Module) -> tuple[dict[str, Value], dict[str, Signal], Signal]:
        """Fields of the head, the kept fields of the running command, and ``running``."""
        head = command_view(self.head, Op.COMPUTE)
        kept = {name: Signal(FIELDS[Op.COMPUTE][name].width, name=f"command_{name}", reset_less=True) for name in _KEPT}
        running = Signal()
        m.d.comb += [self.pop.eq(self.valid & ~running), self.drain_valid.eq(self.pop), self.vector.eq(kept["vector"])]
        m.d.comb += [self.drain[name].eq(head[name]) for name in DRAIN.members]
        with m.If(self.pop):
            m.d.sync += [kept[name].eq(head[name]) for name in _KEPT]
            m.d.sync += running.eq(1)
        with m.Elif(self.done):
            m.d.sync += running.eq(0)
        return head, kept, running


class StationaryOutputs(Sequencer):
    """For cores that keep the outputs: passes of ``k_units`` beats, M blocks outer, N blocks inner.

    A short pass is padded in front, so that ends of passes keep their distance across commands too.
    """

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        machine = self.machine
        head, cmd, running = self.command(m)
        interval = machine.min_interval
        padding = Signal(range(interval + 1))
        m.d.comb += padding.eq(Mux(head["k_units"] < interval, interval - head["k_units"], 0))
        kept_pad, pad = Signal.like(padding), Signal.like(padding)
        k, i, j = Signal(16, reset_less=True, name="k"), Signal(12, reset_less=True, name="i"), Signal(12, reset_less=True, name="j")
        last_j, last_i = Signal(name="last_j"), Signal(name="last_i")
        beat = running & (pad == 0)
        m.d.comb += [
            self.a_beat.eq(beat),
            self.b_beat.eq(beat),
            self.last.eq(beat & (k == cmd["k_units"] - 1)),
            last_j.eq(j == cmd["n_blocks"] - 1),
            last_i.eq(i == cmd["m_blocks"] - 1),
            self.done.eq(self.last & last_j & last_i),
        ]
        a, b = self._place(m, "a"), self._place(m, "b")
        with m.If(pad != 0):
            m.d.sync += pad.eq(pad - 1)
        with m.If(beat):
            m.d.sync += k.eq(k + 1)
            self._advance(m, "a", a, machine.a_word // machine.a_unit, cmd["vector"] if machine.broadcast else None)
            self._advance(m, "b", b, machine.b_word // machine.b_unit, None)
        with m.If(self.last):
            m.d.sync += [k.eq(0), pad.eq(kept_pad), j.eq(Mux(last_j, 0, j + 1))]
            self._repeat(m, a, ~last_j, cmd["a_stride"])
            self._rewind_b(m, b, last_j, cmd)
        with m.If(self.last & last_j):
            m.d.sync += i.eq(i + 1)
        with m.If(self.pop):
            m.d.sync += [kept_pad.eq(padding), pad.eq(padding), k.eq(0), i.eq(0), j.eq(0)]
            for name, place in (("a", a), ("b", b)):
                m.d.sync += [place["block"].eq(head[name]), place["word"].eq(head[name]), place["unit"].eq(0)]
        return m

    def _place(self, m: Module, operand: str) -> dict[str, Signal]:
        """Registers of a read position: word of the block's beginning, word, unit inside it."""
        widths = {"block": 16, "word": 16, "unit": 8}
        place = {name: Signal(width, name=f"{operand}_{name}_now", reset_less=True) for name, width in widths.items()}
        m.d.comb += [
            getattr(self, f"{operand}_address").eq(place["word"]),
            getattr(self, f"{operand}_unit").eq(place["unit"]),
            getattr(self, f"{operand}_read").eq(getattr(self, f"{operand}_beat") & (place["unit"] == 0)),
        ]
        return place

    def _advance(self, m: Module, operand: str, place: dict[str, Signal], units: int, whole: Value | None) -> None:
        end = place["unit"] == units - 1
        end = end if whole is None else end | whole
        m.d.sync += [place["unit"].eq(Mux(end, 0, place["unit"] + 1)), place["word"].eq(place["word"] + end)]

    def _repeat(self, m: Module, place: dict[str, Signal], again: Value, stride: Value) -> None:
        """Back to the beginning of the block, or on to the next."""
        following = Mux(again, place["block"], (place["block"] + stride)[:16])
        m.d.sync += [place["block"].eq(following), place["word"].eq(following), place["unit"].eq(0)]

    def _rewind_b(self, m: Module, place: dict[str, Signal], wrap: Value, cmd: dict[str, Signal]) -> None:
        following = Mux(wrap, cmd["b"], (place["block"] + cmd["b_stride"])[:16])
        m.d.sync += [place["block"].eq(following), place["word"].eq(following), place["unit"].eq(0)]


class StationaryWeights(Sequencer):
    """For the core that keeps the weights: N blocks outer, K blocks inner; ``k_units`` vectors of activations per pass.

    The weights of the first pass are read in ``rows`` cycles, those of every later pass during the pass before.
    """

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        machine = self.machine
        head, cmd, running = self.command(m)
        rows, interval = machine.rows, machine.min_interval
        u, length = Signal(17, reset_less=True, name="u"), Signal(16, reset_less=True, name="length")
        first = Signal()  # only weights are being read
        i, j, wi, wj = (Signal(12, name=name, reset_less=True) for name in ("i", "j", "weight_i", "weight_j"))
        more = Signal()  # weights are left to be read
        end = Signal()
        m.d.comb += [
            end.eq(running & (u == Mux(first, rows - 1, length - 1))),
            self.a_beat.eq(running & ~first & (u < cmd["k_units"])),
            self.last.eq(self.a_beat & (u == cmd["k_units"] - 1)),
            self.b_beat.eq(running & more & (u < rows)),
            self.done.eq(end & ~first & (i == cmd["m_blocks"] - 1) & (j == cmd["n_blocks"] - 1)),
        ]
        with m.If(running):
            m.d.sync += u.eq(Mux(end, 0, u + 1))
        with m.If(end):
            m.d.sync += first.eq(0)
            self._next(m, wi, wj, cmd, more)
        self._activations(m, head, cmd, end & ~first, i, j)
        self._weights(m, head, cmd, end, wi, u)
        with m.If(self.pop):
            m.d.sync += [u.eq(0), first.eq(1), more.eq(1), i.eq(0), j.eq(0), wi.eq(0), wj.eq(0)]
            m.d.sync += length.eq(Mux(head["k_units"] < interval, interval, head["k_units"]))
        return m

    def _next(self, m: Module, i: Signal, j: Signal, cmd: dict[str, Signal], more: Signal) -> None:
        with m.If(i == cmd["m_blocks"] - 1):
            m.d.sync += [i.eq(0), j.eq(j + 1)]
            with m.If(j == cmd["n_blocks"] - 1):
                m.d.sync += more.eq(0)
        with m.Else():
            m.d.sync += i.eq(i + 1)

    def _activations(self, m: Module, head: dict[str, Value], cmd: dict[str, Signal], end: Value, i: Signal, j: Signal) -> None:
        """Row after row of one K block."""
        units = self.machine.a_word // self.machine.a_unit
        base, word, unit = Signal(16, name="base"), Signal(16, name="word"), Signal(8, name="unit")
        block, start = Signal(16, name="block"), Signal(16, name="start")
        m.d.comb += [self.a_address.eq(word), self.a_unit.eq(unit), self.a_read.eq(self.a_beat)]
        with m.If(self.a_beat):
            m.d.sync += word.eq(word + cmd["a_stride"])
        with m.If(end):
            full = unit == units - 1
            m.d.comb += block.eq(base + full)
            m.d.sync += [base.eq(block), word.eq(block), unit.eq(Mux(full, 0, unit + 1)), i.eq(i + 1)]
            with m.If(i == cmd["m_blocks"] - 1):
                m.d.sync += [i.eq(0), j.eq(j + 1), base.eq(start), word.eq(start), unit.eq(0)]
        with m.If(self.pop):
            m.d.sync += [start.eq(head["a"]), base.eq(head["a"]), word.eq(head["a"]), unit.eq(0)]

    def _weights(self, m: Module, head: dict[str, Value], cmd: dict[str, Signal], end: Value, i: Signal, u: Signal) -> None:
        """The k of a block from the highest to the lowest; ``b_unit`` elements of a word are a power of two."""
        machine = self.machine
        log = (machine.b_word // machine.b_unit).bit_length() - 1
        block, position, top = Signal(16, name="block"), Signal(20, name="position"), Signal(20, name="top")
        m.d.comb += position.eq(top - u)
        m.d.comb += [self.b_address.eq(block + position[log:]), self.b_unit.eq(position[:log] if log else 0), self.b_read.eq(self.b_beat)]
        with m.If(end):
            m.d.sync += top.eq(top + machine.rows)
            with m.If(i == cmd["m_blocks"] - 1):
                m.d.sync += [top.eq(machine.rows - 1), block.eq(block + cmd["b_stride"])]
        with m.If(self.pop):
            m.d.sync += [block.eq(head["b"]), top.eq(machine.rows - 1)]
