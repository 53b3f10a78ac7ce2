"""What a program must keep to run on a design: every command has an end, waits for commands before it, and stays inside the memories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from ..errors import ParameterError
from ..numerics import MAX_SHIFT, Array
from .command import COUNTED, REGISTER_SIZES, SIZES, Command, Op, Register, Target
from .machine import AcceleratorMachine, ceil_div
from .patterns import COMPUTE_SHAPE, LOAD_SHAPE, MOST_SHAPES, STORE_SHAPE
from .walk import ADDRESS_BITS, Values, row_origins, row_size, store_addresses, store_rows, window_bytes

if TYPE_CHECKING:
    from .program import Program

_FAR_X, _FAR_Y = 1 << 20, 1 << 14
"""Places that the registers of the walker do not hold any more."""


def check_commands(machine: AcceleratorMachine, program: Program) -> None:
    """Refuse a program with a command that the design does not carry out.

    Raises
    ------
    ParameterError
        Names the command and what is wrong with it.
    """
    checker = _Checker(machine, program.memory_bytes)
    for index, command in enumerate(program.commands):
        checker.index, checker.command = index, command
        checker.check()


class _Checker:
    """The command in hand, and what those before it configured."""

    def __init__(self, machine: AcceleratorMachine, memory_bytes: int) -> None:
        self.machine, self.memory_bytes = machine, memory_bytes
        self.registers: dict[int, Values] = {}
        self.memories = {target: machine.memory_of(target) for target in Target}
        # what commands of one shape have in common, since their register was last written
        self.rows: dict[int, dict[tuple[int, ...], _Rows]] = {}
        self.beats: dict[tuple[int, ...], int] = {}
        self.computes: set[tuple[int, ...]] = set()
        self.issued = dict.fromkeys(COUNTED, 0)
        self.index, self.command = 0, Command(Op.END)
        self.checks = {Op.SET: self._set, Op.LOAD: self._load, Op.COMPUTE: self._compute, Op.STORE: self._store}

    def check(self) -> None:
        command = self.command
        for kind, count in zip(COUNTED, command.waits, strict=True):
            if count is not None and not 0 <= count <= self.issued[kind]:
                self._refuse(f"waits for {kind.name} {count}, of {self.issued[kind]} before it")
        self._sizes(SIZES.get(command.op, ()))
        if command.op in self.checks:
            self.checks[command.op](command.values)
        if command.op in self.issued:
            self.issued[command.op] += 1

    def _refuse(self, what: str) -> NoReturn:
        raise ParameterError(f"command {self.index} ({self.command.op.name}) {what}")

    def _sizes(self, names: tuple[str, ...]) -> None:
        for name in names:
            if self.command.values[name] < 1:
                self._refuse(f"has {self.command.values[name]} {name}; allowed: at least 1")

    def _most(self, name: str, value: int, most: int) -> None:
        if value > most:
            self._refuse(f"has {name} {value}; allowed: at most {most}")

    def _configured(self, register: int) -> Values:
        if register not in self.registers:
            self._refuse(f"needs the configuration register {Register(register).name}, which no SET before it writes")
        return self.registers[register]

    def _set(self, values: Values) -> None:
        machine, register = self.machine, Register(values["register"])
        if register not in machine.registers:
            self._refuse(f"writes the register {register.name}, which the design lacks")
        self._sizes(REGISTER_SIZES[register])
        if register is Register.STORE:
            self._path(values)
        else:
            self._most("run_beats", values["run_beats"], ceil_div(values["run"] + machine.port_bytes - 1, machine.port_bytes))
        self.registers[register] = values
        self.rows[register] = {}
        self.beats.clear()

    def _path(self, path: Values) -> None:
        machine = self.machine
        for name in ("narrow", "bias"):
            if path[name] and not machine.requantizes:
                self._refuse(f"uses {name}, which the design's store path lacks")
        if path["residual"] and not (machine.adds_residuals and path["narrow"]):
            self._refuse("adds residuals, which takes a design with a memory of residuals and 8-bit outputs")
        if path["narrow"] and path["low"] > path["high"]:
            self._refuse(f"clamps from {path['low']} to {path['high']}; allowed: low up to high")
        self._most("shift", path["shift"], MAX_SHIFT)
        self._most("beats", path["beats"], 4 * machine.cols // machine.port_bytes + 2)

    def _load(self, values: Values) -> None:
        walker, width = self._configured(values["target"]), self.machine.port_bytes
        known = self.rows[values["target"]]
        key = (*(values[name] for name in LOAD_SHAPE), values["base"] % width)
        rows = known.get(key)
        fresh = rows is None
        used = rows.words if rows else self._shaped(values, walker)
        self._filled(values, used)
        if rows is None:
            if len(known) >= MOST_SHAPES:
                known.clear()
            rows = known[key] = _Rows.of(values, walker, width, used)
        self._fetched(values, walker, rows)
        if fresh:
            self._packed(values, walker, rows)

    def _shaped(self, values: Values, walker: Values) -> int:
        """Words of the scratchpad that a row fills."""
        if values["beats"] == values["spare"]:
            self._refuse("has only a spare beat per row; allowed: at least 2 beats")
        for name, most in (
            ("first_beats", walker["run_beats"]),
            ("column", walker["columns"] - 1),
            ("tap", walker["taps"] - 1),
            ("skip", walker["run"] - 1),
        ):
            self._most(name, values[name], most)
        _, _, size = self.memories[Target(values["target"])]
        count, runs = row_size(values, walker, self.machine.port_bytes)
        if walker["pad"]:
            self._most("a run of bytes", min(walker["run"], walker["run_beats"] * self.machine.port_bytes), size)
        return runs if walker["pad"] else ceil_div(count, size)

    def _filled(self, values: Values, used: int) -> None:
        """Words of the scratchpad; comes before anything as large as the load is made."""
        target = Target(values["target"])
        banks, words, _ = self.memories[target]
        groups = (values["rows"] - 1) // banks
        if groups and values["row_stride"] < used:
            self._refuse(f"has row_stride {values['row_stride']}; allowed: at least the {used} words that a row fills")
        end = values["spad"] + groups * values["row_stride"] + used
        if end > words:
            self._refuse(f"fills word {end - 1} of scratchpad {target.name}; it has {words} words per bank")

    def _fetched(self, values: Values, walker: Values, rows: _Rows) -> None:
        """Beats of the memory image."""
        y = values["y"]
        if rows.far or y + rows.y[0] < -_FAR_Y or y + rows.y[1] >= _FAR_Y:
            self._refuse(f"leaves the image by far; allowed: {_FAR_X} bytes or {_FAR_Y} rows")
        if not rows.held:
            self._refuse("reads a run that its beats do not hold where it starts inside a beat; allowed: a beat more, or an aligned start")
        highest = rows.highest(values, walker)
        if highest >= self.memory_bytes:
            self._refuse(f"reads byte {highest}; the memory image has {self.memory_bytes} bytes")

    def _packed(self, values: Values, walker: Values, rows: _Rows) -> None:
        """Words as the packer closes them: it writes at most one per beat."""
        target = Target(values["target"])
        size, limit = self.memories[target][2], self.machine.packed_bytes(target)
        count, runs = row_size(values, walker, self.machine.port_bytes)
        if target is Target.CHANNELS and (count != size or (walker["pad"] and runs > 1)):
            self._refuse(f"brings {count} bytes per row; allowed: the {size} of a word of biases and multipliers, in one run if padded")
        if not (walker["pad"] or values["spare"]) and np.any((count - rows.final) % limit + rows.final > limit):
            self._refuse("has rows whose last beat fills a word and begins another one; allowed: with a spare beat")

    def _compute(self, values: Values) -> None:
        key = tuple(values[name] for name in COMPUTE_SHAPE)
        if key not in self.computes:
            self._computable(values)
            self.computes.add(key)

    def _computable(self, values: Values) -> None:
        machine = self.machine
        if values["vector"] and not (machine.broadcast and machine.a_word >= machine.cols * machine.a_bytes):
            self._refuse("uses vector mode, which only dot-product and outer-product cores have, with ports as wide as a row")
        for name, end, words in (("A", self._end_of_a(values), machine.a_words), ("B", self._end_of_b(values), machine.b_words)):
            if end > words:
                self._refuse(f"reads word {end - 1} of scratchpad {name}; it has {words} words per bank")
        rows = values["n_blocks"] * (values["k_units"] if machine.weight_stationary else values["m_blocks"] * machine.rows)
        if values["c"] + rows > machine.acc_rows:
            self._refuse(f"writes accumulator row {values['c'] + rows - 1}; there are {machine.acc_rows}")

    def _end_of_a(self, values: Values) -> int:
        """Word behind the last that is read of A: units of a pass, or for the weight-stationary core K blocks of a vector."""
        machine, units, blocks = self.machine, values["k_units"], values["m_blocks"]
        if machine.weight_stationary:
            units, blocks = blocks, units
        words = units if values["vector"] else ceil_div(units, machine.a_word // machine.a_unit)
        return values["a"] + (blocks - 1) * values["a_stride"] + words

    def _end_of_b(self, values: Values) -> int:
        machine = self.machine
        units = values["m_blocks"] * machine.rows if machine.weight_stationary else values["k_units"]
        return values["b"] + (values["n_blocks"] - 1) * values["b_stride"] + ceil_div(units, machine.b_word // machine.b_unit)

    def _store(self, values: Values) -> None:
        path, machine = self._configured(Register.STORE), self.machine
        size, blocks = machine.cols * (1 if path["narrow"] else 4), values["m_blocks"] * values["n_blocks"]
        self._most("last_bytes", values["last_bytes"], size)
        if blocks > 1:
            self._most("last_rows", values["last_rows"], values["block_rows"])
        if values["m_blocks"] > 1:
            self._most("rows", values["rows"], values["block_rows"])
        last = values["c"] + (blocks - 1) * values["block_rows"] + values["last_rows"] - 1
        if last >= machine.acc_rows:
            self._refuse(f"reads accumulator row {last}; there are {machine.acc_rows}")
        self._written(values, path, size)
        if path["residual"]:
            word = values["residual"] + store_rows(values) * values["n_blocks"] - 1
            if word >= machine.residual_words:
                self._refuse(f"reads word {word} of the residuals; there are {machine.residual_words}")
        channel = values["channel"] + values["n_blocks"] - 1
        if (path["narrow"] or path["bias"]) and channel >= machine.channel_words:
            self._refuse(f"reads word {channel} of biases and multipliers; there are {machine.channel_words}")

    def _written(self, values: Values, path: Values, size: int) -> None:
        """Bytes of the memory image, and the beats that they take."""
        blocks = values["m_blocks"] - 1
        last = blocks * path["block_pitch"] + (values["last_rows"] - 1) * path["pitch"]
        if blocks:
            last = max(last, (blocks - 1) * path["block_pitch"] + (values["rows"] - 1) * path["pitch"])
        end = values["base"] + last + (values["n_blocks"] - 1) * size + values["last_bytes"]
        if end > self.memory_bytes:
            self._refuse(f"writes byte {end - 1}; the memory image has {self.memory_bytes} bytes")
        if path["beats"] >= ceil_div(size + self.machine.port_bytes - 1, self.machine.port_bytes):
            return
        key = (*(values[name] for name in STORE_SHAPE), values["last_bytes"], values["base"] % self.machine.port_bytes)
        if key not in self.beats:
            self.beats[key] = self._most_beats(values, path, size)
        if self.beats[key] > path["beats"]:
            self._refuse(f"needs {self.beats[key]} beats for a row; the register STORE says {path['beats']}")

    def _most_beats(self, values: Values, path: Values, size: int) -> int:
        address, _ = store_addresses(values, path, self.machine.cols)
        counts = np.full((values["n_blocks"], 1), size)
        counts[-1] = values["last_bytes"]
        width = self.machine.port_bytes
        return int(np.where(address >= 0, ceil_div(address % width + counts, width), 0).max())


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of loads of one shape.

    Parameters
    ----------
    words : int
        Words of the scratchpad that a row fills.
    y : (int, int)
        Least and greatest image row, from the ``y`` of the command.
    far : bool
        Whether bytes lie farther along an image row than the registers of the walker hold.
    held : bool
        Whether the beats of every run hold it.
    beats, down : (rows, beats) int64
        Where every beat begins from the base of the command, and its image row from ``y``.
    within : (rows, beats) bool
        Beats that hold a byte between the left and the right end of the image.
    last : int
        Last byte of these from the base of the command, if all image rows exist.
    width : int
        Bytes of a beat.
    final : (rows,) int64
        Bytes that the last beat of every row holds, before a spare one.
    """

    words: int
    y: tuple[int, int]
    far: bool
    held: bool
    beats: Array
    down: Array
    within: Array
    last: int
    width: int
    final: Array

    @classmethod
    def of(cls, values: Values, walker: Values, width: int, words: int) -> _Rows:
        """Rows of the shape of a load."""
        _, _, _, _, beats, runs = window_bytes(values, walker, width)
        start = values["base"] % width
        origins = row_origins({**values, "y": 0, "base": start}, walker)
        across, down, base = (origin[:, None] + part for origin, part in zip(origins, beats.T, strict=True))
        skip = (base + across) % width
        within = (across - skip > -width) & (across - skip < walker["width"])
        begin = base + across - skip - start
        first, count, whole = runs[-1]
        return cls(
            words=words,
            y=(int(down.min()), int(down.max())),
            far=bool(across.min() < -_FAR_X or across.max() >= _FAR_X),
            held=not np.any(skip[:, runs[:, 0]] + runs[:, 1] > runs[:, 2] * width),
            beats=begin,
            down=down,
            within=within,
            last=int(begin[within].max(initial=-(1 << ADDRESS_BITS))) + width - 1,
            width=width,
            final=count - np.clip((whole - 1) * width - skip[:, first], 0, count),
        )

    def highest(self, values: Values, walker: Values) -> int:
        """The last byte of the memory image that is read; beats without a byte of the image are not requested."""
        y, base = values["y"], values["base"]
        if y + self.y[0] >= 0 and y + self.y[1] < walker["height"] and base + self.last < 1 << ADDRESS_BITS:
            return base + self.last
        inside = self.within & (self.down >= -y) & (self.down < walker["height"] - y)
        return int(((base + self.beats[inside]) % (1 << ADDRESS_BITS)).max(initial=-self.width)) + self.width - 1
