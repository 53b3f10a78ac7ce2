"""Store path: accumulator rows to memory, plain or as 8-bit numbers with bias, scale, zero point and clamp."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...intrinsics.accelerator.command import COMMAND_BITS, FIELDS, STORE_PATH, Op, Register
from ...intrinsics.accelerator.machine import AcceleratorMachine
from .fields import command_view, register_view, registers
from .requantizer import Requantizer

_WIDE = 32
"""Bits of a plain sum in memory."""


class StoreUnit(wiring.Component):  # type: ignore[misc]
    """One beat per cycle: M blocks, N blocks, rows, beats of a row.

    Parameters
    ----------
    machine : AcceleratorMachine

    Members
    -------
    set_word, set_register : In
    head, valid, pop : the head of the store queue; ``free`` says that the port is
    free : In(1)
    busy : Out(1)
        The port is or will be used by this unit.
    address, data : the read port of the accumulator memory; channel, channel_data : that of biases and multipliers
    residual, residual_data : that of residuals
    enable : Out(1)
        The memories advance.
    out_valid, out_ready, out_address, out_data, out_mask : the memory port, address in beats, a bit of ``mask`` per byte
    out_length : Out(9)
        Beats of the row from this one on that carry bytes; 0 where none is left.
    done : Out(1)
        The last beat of a command is being written.
    """

    def __init__(self, machine: AcceleratorMachine) -> None:
        self.machine = machine
        self.log = machine.port_bytes.bit_length() - 1
        super().__init__(
            {
                "set_word": In(COMMAND_BITS),
                "set_register": In(1),
                "head": In(COMMAND_BITS),
                "valid": In(1),
                "pop": Out(1),
                "free": In(1),
                "busy": Out(1),
                "address": Out(16),
                "data": In(machine.cols * machine.acc.width),
                "channel": Out(12),
                "channel_data": In(max(machine.channel_word * 8, 1)),
                "residual": Out(16),
                "residual_data": In(max(8 * machine.cols * machine.adds_residuals, 1)),
                "enable": Out(1),
                "out_valid": Out(1),
                "out_ready": In(1),
                "out_address": Out(32),
                "out_data": Out(machine.port_bytes * 8),
                "out_mask": Out(machine.port_bytes),
                "out_length": Out(9),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config = registers(STORE_PATH, "config")
        with m.If(self.set_register):
            fields = register_view(self.set_word, Register.STORE)
            m.d.sync += [config[name].eq(fields[name]) for name in config]
        running = Signal()
        m.d.comb += [self.pop.eq(self.valid & ~self.busy & self.free), self.enable.eq(~self.out_valid | self.out_ready)]
        issue = self._walk(m, running, config)
        stages = 1 + self.machine.store_latency
        valid = [running]
        for stage in range(1, stages + 1):
            following = Signal(name=f"valid_{stage}")
            with m.If(self.enable):
                m.d.sync += following.eq(valid[-1])
            valid.append(following)
            piped = {name: Signal(value.shape(), name=f"{name}_{stage}", reset_less=True) for name, value in issue.items()}
            with m.If(self.enable & valid[-2]):
                m.d.sync += [piped[name].eq(issue[name]) for name in issue]
            ready, issue = issue, piped
        m.d.comb += [self.busy.eq(Cat(*valid[:-1]).any()), self.out_valid.eq(valid[-1])]
        m.d.comb += self.done.eq(self.out_valid & self.out_ready & issue["end"])
        self._beat(m, config, self._values(m, config, valid), ready, self.enable & valid[-2])
        return m

    def _walk(self, m: Module, running: Signal, config: dict[str, Signal]) -> dict[str, Value]:
        """Position of the beat whose accumulator row is being read."""
        head = command_view(self.head, Op.STORE)
        names = ("m_blocks", "n_blocks", "rows", "last_rows", "block_rows", "last_bytes", "channel")
        cmd = {name: Signal(FIELDS[Op.STORE][name].width, name=f"command_{name}", reset_less=True) for name in names}
        i, j, r, b = Signal(12, name="i"), Signal(12, name="j"), Signal(14, name="r"), Signal(8, name="b")
        block, column, row, source = (Signal(32, name=name, reset_less=True) for name in ("block", "column", "row", "source"))
        rows = Mux(i == cmd["m_blocks"] - 1, cmd["last_rows"], cmd["rows"])
        last_b, last_r, last_j, last_i = (Signal(name=name) for name in ("last_b", "last_r", "last_j", "last_i"))
        size = Mux(config["narrow"], self.machine.cols, 4 * self.machine.cols)
        m.d.comb += [
            last_b.eq(b == config["beats"] - 1),
            last_r.eq(last_b & (r == rows - 1)),
            last_j.eq(last_r & (j == cmd["n_blocks"] - 1)),
            last_i.eq(last_j & (i == cmd["m_blocks"] - 1)),
            self.address.eq(source + r),
            self.channel.eq(cmd["channel"] + j),
        ]
        with m.If(running & self.enable):
            m.d.sync += b.eq(Mux(last_b, 0, b + 1))
            with m.If(last_b):
                m.d.sync += [r.eq(r + 1), row.eq(row + config["pitch"])]
            with m.If(last_r):
                m.d.sync += [r.eq(0), j.eq(j + 1), column.eq(column + size), row.eq(column + size), source.eq(source + cmd["block_rows"])]
            with m.If(last_j):
                following = block + config["block_pitch"]
                m.d.sync += [j.eq(0), i.eq(i + 1), block.eq(following), column.eq(following), row.eq(following)]
            with m.If(last_i):
                m.d.sync += running.eq(0)
        with m.If(self.pop):
            m.d.sync += [cmd[name].eq(head[name]) for name in names]
            m.d.sync += [running.eq(1), i.eq(0), j.eq(0), r.eq(0), b.eq(0), source.eq(head["c"])]
            m.d.sync += [block.eq(head["base"]), column.eq(head["base"]), row.eq(head["base"])]
        if self.machine.adds_residuals:
            self._residual_place(m, running & self.enable, j, cmd["n_blocks"], (last_b, last_r, last_j), head["residual"])
        count = Mux(j == cmd["n_blocks"] - 1, cmd["last_bytes"], size)
        return {"end": last_i, "beat": b, "byte": row, "count": count}

    def _residual_place(self, m: Module, step: Value, j: Signal, n_blocks: Signal, ends: tuple[Signal, ...], first: Value) -> None:
        """Word of residuals of the present row and N block: the N blocks of a row are neighbours."""
        row, block = Signal(16, name="residual_row", reset_less=True), Signal(16, name="residual_block", reset_less=True)
        last_b, last_r, last_j = ends
        following = (row + n_blocks)[:16]
        m.d.comb += self.residual.eq(row + j)
        with m.If(step & last_b):
            m.d.sync += row.eq(Mux(last_r & ~last_j, block, following))
        with m.If(step & last_j):
            m.d.sync += block.eq(following)
        with m.If(self.pop):
            m.d.sync += [row.eq(first), block.eq(first)]

    def _values(self, m: Module, config: dict[str, Signal], valid: list[Signal]) -> Value:
        """The row as bytes: 4 per column, or 1."""
        machine, width = self.machine, self.machine.acc.width
        sums = [self.data.word_select(j, width).as_signed() for j in range(machine.cols)]
        if not machine.requantizes:
            return Cat(*(_extended(value) for value in sums))
        chosen = Cat(config[name] for name in Requantizer.names(residual=machine.adds_residuals))
        settings, steps = Signal(len(chosen), name="settings"), Signal(3, name="steps")
        m.d.comb += [settings.eq(chosen), steps.eq(Cat(self.enable & flag for flag in valid[1:4]))]
        columns = []
        for j, value in enumerate(sums):
            column = Requantizer(acc_width=width, residual=machine.adds_residuals, rounding=machine.rounding)
            m.submodules[f"column_{j}"] = column
            m.d.comb += [
                column.value.eq(value),
                column.steps.eq(steps),
                column.bias_value.eq(self.channel_data.word_select(2 * j, 32)),
                column.factor.eq(self.channel_data.word_select(2 * j + 1, 32)),
                column.settings.as_value().eq(settings),
            ]
            if machine.adds_residuals:
                m.d.comb += column.added.eq(self.residual_data.word_select(j, 8))
            columns.append(column)
        return Mux(config["narrow"], Cat(column.result[:8] for column in columns), Cat(column.result for column in columns))

    def _beat(self, m: Module, config: dict[str, Signal], word: Value, issue: dict[str, Signal], step: Value) -> None:
        """Cut a beat out of the row behind its byte address."""
        width = self.machine.port_bytes
        skip, end, used = Signal(range(max(width, 2)), name="skip"), Signal(16, name="end_byte"), Signal(13, name="used_beats")
        beat, first = issue["beat"], Mux(issue["beat"] == 0, skip, 0)
        left, last = end - (beat << self.log), Mux(used < config["beats"], used, config["beats"])
        if self.log:  # columns of a group of channels may start anywhere
            m.d.comb += skip.eq(issue["byte"][: self.log])
        m.d.comb += [end.eq(skip + issue["count"]), used.eq((end + width - 1) >> self.log)]
        found: dict[str, Value] = {
            "address": issue["byte"][self.log :] + beat,
            "data": self._cut(m, word, beat, skip),
            "mask": Cat((left > lane) & (first <= lane if lane < width - 1 else 1) for lane in range(width)),
            "length": Mux(last > beat, last - beat, 0),
        }
        for name, value in found.items():
            out = getattr(self, f"out_{name}")
            register = Signal(len(out), name=f"out_{name}", reset_less=True)
            m.d.comb += out.eq(register)
            with m.If(step):
                m.d.sync += register.eq(value)

    def _cut(self, m: Module, word: Value, beat: Signal, skip: Signal) -> Value:
        """The beat's part of a word that begins ``skip`` bytes behind a beat: a piece of two neighbouring parts as wide as a beat."""
        size = 8 * self.machine.port_bytes
        beats = 4 * self.machine.cols // self.machine.port_bytes + 2  # also of a row that starts inside a beat
        padded, pair = Signal(size * (beats + 1), name="padded"), Signal(2 * size, name="pair")
        m.d.comb += padded.eq(Cat(Const(0, size), word))
        with m.Switch(beat):
            for place in range(min(beats, 1 << len(beat))):
                with m.Case(place):
                    m.d.comb += pair.eq(padded[size * place :][: 2 * size])
        value: Value = pair[8:]
        for log in reversed(range(self.log)):
            stage = Signal(size + (8 << log) - 8, name=f"cut_{log}")
            m.d.comb += stage.eq(Mux(skip[log], value, value[8 << log :]))
            value = stage
        return value


def _extended(value: Value) -> Value:
    return Cat(value, value[-1].replicate(_WIDE - len(value))) if len(value) < _WIDE else value
