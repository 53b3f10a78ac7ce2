"""What LOAD and STORE commands touch: addresses as the hardware walks them, in NumPy."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..errors import ParameterError
from ..numerics import Array
from .command import Command, Op, Register, Target
from .machine import AcceleratorMachine

if TYPE_CHECKING:
    from .program import Program

ADDRESS_BITS = 32

Values = Mapping[str, int]


def window_bytes(load: Values, walker: Values, port_bytes: int) -> tuple[Array, Array, Array, Array, Array]:
    """The bytes of the first row of a load, relative to its window.

    Returns
    -------
    x, y, base : (bytes,) int64
        Offsets of every wanted byte: along the image row, in image rows, and of the image row's address.
    run_end : (bytes,) bool
        The byte ends a run.
    beats : (beats, 3) int64
        Offset along the image row, image rows, and address offset of the first byte of every beat.

    Notes
    -----
    Valid if every run starts at a beat, or takes the beats of the worst alignment: the wanted bytes then do not depend on
    where the row starts.
    """
    return _window_bytes(tuple(load[name] for name in _PLACE), tuple(walker[name] for name in _WINDOW), port_bytes)


_PLACE = ("tap", "skip", "offset", "beats", "spare", "first_beats")
_WINDOW = ("run", "run_beats", "taps", "tap_step", "kernel_y", "kernel_step")


@functools.lru_cache(maxsize=4096)
def _window_bytes(place: tuple[int, ...], window: tuple[int, ...], port_bytes: int) -> tuple[Array, Array, Array, Array, Array]:
    """Few different ones occur in a program."""
    load, walker = dict(zip(_PLACE, place, strict=True)), dict(zip(_WINDOW, window, strict=True))
    xs, ys, bases, ends, beats = [], [], [], [], []
    tap, skip, y, base = load["tap"], load["skip"], 0, 0
    origin = load["offset"] - skip
    left_beats, run_beats = load["beats"] - load["spare"], load["first_beats"]
    while left_beats:
        now = min(run_beats, left_beats)
        count = walker["run"] - skip
        if now < run_beats:
            count = min(count, now * port_bytes)
        xs.append(origin + skip + np.arange(count))
        ys.append(np.full(count, y))
        bases.append(np.full(count, base))
        ends.append(np.arange(count) == count - 1)
        beats.append(np.stack([origin + skip + np.arange(now) * port_bytes, np.full(now, y), np.full(now, base)], axis=1))
        left_beats -= now
        run_beats, skip = walker["run_beats"], 0
        if tap + 1 < walker["taps"]:
            tap, origin = tap + 1, origin + walker["tap_step"]
        else:
            tap, origin, y, base = 0, 0, y + walker["kernel_y"], base + walker["kernel_step"]
    found = tuple(np.concatenate(parts) for parts in (xs, ys, bases, ends, beats))
    for part in found:
        part.flags.writeable = False
    return found[0], found[1], found[2], found[3], found[4]


def row_origins(load: Values, walker: Values) -> tuple[Array, Array, Array]:
    """x, y and image row address of the window of every row of a load, each (rows,) int64."""
    index = load["column"] + np.arange(load["rows"])
    column, down = index % walker["columns"], index // walker["columns"]
    first = down == 0
    x = np.where(first, load["x"] + (column - load["column"]) * walker["column_step"], walker["first_x"] + column * walker["column_step"])
    return x, load["y"] + down * walker["row_y"], load["base"] + down * walker["row_step"]


def gather(load: Values, walker: Values, port_bytes: int, memory: Array) -> tuple[Array, Array]:
    """Bytes that a load brings.

    Returns
    -------
    data : (rows, bytes) uint8
    run_end : (bytes,) bool
    """
    x, y, base, run_end, _ = window_bytes(load, walker, port_bytes)
    row_x, row_y, row_base = row_origins(load, walker)
    x, y, address = row_x[:, None] + x, row_y[:, None] + y, row_base[:, None] + base
    inside = (x >= 0) & (x < walker["width"]) & (y >= 0) & (y < walker["height"])
    address = np.where(inside, (address + x) % (1 << ADDRESS_BITS), 0)
    return np.where(inside, memory[address], np.uint8(walker["zero"])), run_end


def store_addresses(store: Values, path: Values, cols: int) -> tuple[Array, Array]:
    """Byte address and accumulator row of every row that a STORE writes, as (m_blocks, n_blocks, rows); -1 where a block is shorter."""
    size = cols * (1 if path["narrow"] else 4)
    i, j, r = np.ogrid[: store["m_blocks"], : store["n_blocks"], : max(store["rows"], store["last_rows"])]
    address = store["base"] + i * path["block_pitch"] + j * size + r * path["pitch"]
    source = store["c"] + (i * store["n_blocks"] + j) * store["block_rows"] + r
    limit = np.where(np.arange(store["m_blocks"]) == store["m_blocks"] - 1, store["last_rows"], store["rows"])[:, None, None]
    return np.where(r < limit, address, -1), np.where(r < limit, source, -1)


def store_rows(store: Values) -> int:
    """Output rows of a STORE."""
    return (store["m_blocks"] - 1) * store["rows"] + store["last_rows"]


def check_addresses(machine: AcceleratorMachine, program: Program) -> None:
    """Refuse a program whose commands reach beyond its memory image, a scratchpad or the accumulator memory."""
    registers: dict[int, Values] = {}
    for index, command in enumerate(program.commands):
        if command.op is Op.SET:
            registers[command.values["register"]] = command.values
        elif command.op is Op.LOAD:
            _check_load(machine, program, index, command, registers)
        elif command.op is Op.STORE:
            _check_store(machine, program, index, command, registers)
        elif command.op is Op.COMPUTE:
            _check_compute(machine, index, command)


def _configured(registers: Mapping[int, Values], register: int, index: int) -> Values:
    if register not in registers:
        raise ParameterError(f"command {index} needs the configuration register {Register(register).name}, which no SET before it writes")
    return registers[register]


def _check_load(machine: AcceleratorMachine, program: Program, index: int, command: Command, registers: Mapping[int, Values]) -> None:
    values, walker = command.values, _configured(registers, command.values["target"], index)
    x, _, _, _, beats = window_bytes(values, walker, machine.port_bytes)
    row_x, row_y, row_base = row_origins(values, walker)
    xs, ys, bases = (origin[:, None] + part for origin, part in zip((row_x, row_y, row_base), beats.T, strict=True))
    address = (bases + xs) % (1 << ADDRESS_BITS)
    skip = address % machine.port_bytes
    # beats without a byte of the image are not requested
    inside = (xs - skip > -machine.port_bytes) & (xs - skip < walker["width"]) & (ys >= 0) & (ys < walker["height"])
    highest = int((address - skip)[inside].max(initial=-machine.port_bytes)) + machine.port_bytes - 1
    if highest >= program.memory_bytes:
        raise ParameterError(f"command {index} (LOAD) reads byte {highest}; the memory image has {program.memory_bytes} bytes")
    target = Target(values["target"])
    banks, words, size = machine.memory_of(target)
    used = int(np.count_nonzero(window_bytes(values, walker, machine.port_bytes)[3])) if walker["pad"] else -(-len(x) // max(size, 1))
    end = values["spad"] + (values["rows"] - 1) // banks * values["row_stride"] + used
    if end > words:
        raise ParameterError(f"command {index} (LOAD) fills word {end - 1} of scratchpad {target.name}; it has {words} words per bank")


def _check_store(machine: AcceleratorMachine, program: Program, index: int, command: Command, registers: Mapping[int, Values]) -> None:
    path = _configured(registers, Register.STORE, index)
    address, source = store_addresses(command.values, path, machine.cols)
    size = machine.cols * (1 if path["narrow"] else 4)
    last = (
        int(address[:, -1].max()) + command.values["last_bytes"]
        if command.values["n_blocks"] == 1
        else int(address[:, -1].max()) + min(size, command.values["last_bytes"])
    )
    if last > program.memory_bytes:
        raise ParameterError(f"command {index} (STORE) writes byte {last - 1}; the memory image has {program.memory_bytes} bytes")
    if int(source.max()) >= machine.acc_rows:
        raise ParameterError(f"command {index} (STORE) reads accumulator row {int(source.max())}; there are {machine.acc_rows}")
    last_word = command.values["residual"] + store_rows(command.values) * command.values["n_blocks"] - 1
    if path["residual"] and last_word >= machine.residual_words:
        raise ParameterError(f"command {index} (STORE) reads word {last_word} of the residuals; there are {machine.residual_words}")


def _check_compute(machine: AcceleratorMachine, index: int, command: Command) -> None:
    values = command.values
    rows = values["k_units"] * values["n_blocks"] if machine.weight_stationary else values["m_blocks"] * values["n_blocks"] * machine.rows
    if values["c"] + rows > machine.acc_rows:
        raise ParameterError(f"command {index} (COMPUTE) writes accumulator row {values['c'] + rows - 1}; there are {machine.acc_rows}")
    if values["vector"] and not machine.broadcast:
        raise ParameterError(f"command {index} (COMPUTE) uses vector mode, which only the dot-product and outer-product cores have")
