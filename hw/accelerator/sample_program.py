"""A small program that a testbench runs: tiles of a matrix product through every memory and both halves of every double buffer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from ...intrinsics import DType, ParameterError
from ...intrinsics.accelerator.command import FIELDS, REGISTERS, Command, Op, Register, Target
from ...intrinsics.accelerator.machine import AcceleratorMachine, ceil_div
from ...intrinsics.accelerator.program import Buffer, Program
from ...intrinsics.numerics import Array, random_operand

POISON = 0x55
"""Content of the outputs before a run, and of the bytes between rows."""

SHIFT, ZERO, LOW, HIGH = 30, -7, -100, 105
"""Store arithmetic of the narrow product."""

RESIDUAL_ZERO, RESIDUAL_MULTIPLIER = -3, 1 << (SHIFT - 1)

_COLUMNS = 3
"""Rows of A that lie side by side, as the pixels of an image row do."""


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """Tiles of a product, of two tiles along m and ``k_tiles`` along k.

    Parameters
    ----------
    rows : (int, int)
        Rows of the tiles of m; the first is the larger one.
    n_blocks, n : int
        Blocks of columns, and columns.
    k, depth, k_tiles : int
        Elements along k that a tile loads; those that are not zero; tiles along k.
    b_slots, c_slots : int
        2 where two tiles fit the memory, else 1; A always has 2.
    """

    rows: tuple[int, int]
    n_blocks: int
    n: int
    k: int
    depth: int
    k_tiles: int
    b_slots: int
    c_slots: int


def a_stride(machine: AcceleratorMachine, k: int) -> int:
    """Words of A that ``k`` elements fill."""
    return ceil_div(k * machine.a_bytes, machine.a_word)


def b_stride(machine: AcceleratorMachine, k: int) -> int:
    """Words of B that a pass over ``k`` elements reads."""
    return ceil_div(ceil_div(k, machine.k_unit) * machine.k_unit * machine.b_bytes, machine.b_word)


def blocks_of(machine: AcceleratorMachine, rows: int) -> int:
    """Blocks of rows of a tile; the weight-stationary core streams any number of rows as one."""
    return 1 if machine.weight_stationary else ceil_div(rows, machine.rows)


def acc_rows_of(machine: AcceleratorMachine, rows: int) -> int:
    """Accumulator rows of a tile and block of columns."""
    return rows if machine.weight_stationary else blocks_of(machine, rows) * machine.rows


def tiling_of(machine: AcceleratorMachine, *, narrow: bool) -> Tiling:
    """The richest tiling that the memories of the design hold: full rows, then double buffers, then several blocks.

    Parameters
    ----------
    narrow : bool
        For the product that is stored as bytes, if need be with residuals.

    Raises
    ------
    ParameterError
        If the scratchpad of B does not hold the weights that one pass needs.
    """
    most = machine.rows + 3 if machine.weight_stationary else 2 * machine.rows - machine.rows // 3
    choices = itertools.product(sorted({most, machine.rows, *range(1, machine.rows)}), (1, 2), (1, 2), (1, 2))
    ranked = sorted(choices, key=lambda choice: (choice[0] >= machine.rows, *choice[1:], choice[0]), reverse=True)
    for rows, b_slots, c_slots, n_blocks in ranked:
        if not _holds_outputs(machine, rows, c_slots, n_blocks, narrow=narrow):
            continue
        k = _depth(machine, rows, b_slots, n_blocks)
        if k:
            limit = machine.max_k or 2 * k
            tiles = min(2, limit)
            return Tiling(
                rows=(rows, (rows + 1) // 2),
                n_blocks=n_blocks,
                n=n_blocks * machine.cols - machine.cols // 3,
                k=k,
                depth=min(k, limit // tiles),
                k_tiles=tiles,
                b_slots=b_slots,
                c_slots=c_slots,
            )
    raise ParameterError(
        f"the scratchpad of B has {machine.b_words} words per bank, but a pass of {machine.rows} rows of weights needs "
        f"{b_stride(machine, machine.k_unit)}; allowed: a larger spad_kib, a wider port or fewer rows"
    )


def _holds_outputs(machine: AcceleratorMachine, rows: int, slots: int, n_blocks: int, *, narrow: bool) -> bool:
    if slots * n_blocks * acc_rows_of(machine, rows) > machine.acc_rows:
        return False
    if not narrow:
        return True
    return n_blocks <= machine.channel_words and (not machine.adds_residuals or slots * n_blocks * rows <= machine.residual_words)


def _depth(machine: AcceleratorMachine, rows: int, b_slots: int, n_blocks: int) -> int:
    """Elements along k of a tile: two words and a bit if they fit; no pass reads a word that no load fills. 0 if none fits."""
    a_blocks = rows if machine.weight_stationary else blocks_of(machine, rows)
    if 2 * a_blocks > machine.a_words or b_slots * n_blocks * b_stride(machine, machine.k_unit) > machine.b_words:
        return 0
    wanted = 2 * max(machine.a_word // machine.a_bytes, machine.b_word // machine.b_bytes) + 1
    for k in range(max(wanted, machine.k_unit), 0, -1):
        filled = ceil_div(k * machine.b_bytes, machine.b_word)
        fits = 2 * a_blocks * a_stride(machine, k) <= machine.a_words and b_slots * n_blocks * filled <= machine.b_words
        if fits and filled == b_stride(machine, k):
            return k
    return 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Operands:
    """What a product is made of.

    Parameters
    ----------
    a : (m, k_tiles * depth)
    b : (n, k_tiles * depth)
    bias, multiplier : (n_blocks * cols,) int64
        Empty if the sums are stored as they are, as is ``residual``.
    residual : (m, n) int8
    """

    a: Array
    b: Array
    bias: Array
    multiplier: Array
    residual: Array


def random_operands(machine: AcceleratorMachine, tiling: Tiling, rng: np.random.Generator, *, narrow: bool) -> Operands:
    """Operands over the full range with corners; every other channel is scaled so that its results spread over eight bits."""
    m, depth, word = sum(tiling.rows), tiling.k_tiles * tiling.depth, DType(32)
    channels = tiling.n_blocks * machine.cols if narrow else 0
    bias, multiplier = (random_operand(rng, (channels,), word).astype(np.int64) for _ in range(2))
    spread = min(np.sqrt(depth / 9) * 2.0 ** (machine.a.width + machine.b.width - 2), 2.0 ** (machine.acc.width - 2))
    scale, usual = 2.0**SHIFT * 50 / spread, slice(0, None, 2)
    bias[usual] = np.clip(rng.normal(0, spread, len(bias[usual])), word.min, word.max)
    multiplier[usual] = np.clip(rng.uniform(scale / 2, scale, len(bias[usual])), 1, word.max)
    return Operands(
        a=random_operand(rng, (m, depth), machine.a),
        b=random_operand(rng, (tiling.n, depth), machine.b),
        bias=bias,
        multiplier=multiplier,
        residual=random_operand(rng, (m, tiling.n) if narrow and machine.adds_residuals else (0, 0), DType(8)),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """A program and the memory image that it starts from.

    Parameters
    ----------
    program : Program
        Its buffers ``sums`` and, where the design requantises, ``bytes`` are the results.
    memory : (bytes,) uint8
    port_bytes, outputs : int
        Bytes of a beat; byte from which on all bytes are outputs, a whole number of beats.
    operands : mapping from the buffers' names to Operands
    """

    program: Program
    memory: Array
    port_bytes: int
    outputs: int
    operands: Mapping[str, Operands]


def sample_program(machine: AcceleratorMachine, rng: np.random.Generator) -> Sample:
    """A product with plain sums and, where the store path has the arithmetic, another one with 8-bit results.

    Raises
    ------
    ParameterError
        As `tiling_of`.
    """
    image = _Image(machine.port_bytes)
    products = [_Product(machine, image, rng, narrow=narrow) for narrow in (False, *((True,) if machine.requantizes else ()))]
    outputs = image.size
    for product in products:
        product.place_output()
    queue = _Commands(machine)
    for product in products:
        product.issue(queue)
    queue.add(Op.END, {})
    program = Program(
        design_hash=machine.design_hash,
        commands=tuple(queue.commands),
        memory_bytes=image.size,
        buffers=tuple(product.buffer for product in products),
        macs=sum(len(product.operands.a) * product.operands.b.size for product in products),
        title="sample of a testbench",
    )
    operands = {product.buffer.name: product.operands for product in products}
    return Sample(program=program, memory=image.content(), port_bytes=machine.port_bytes, outputs=outputs, operands=operands)


@dataclass
class _Image:
    """Memory under construction; every part begins at a beat."""

    port_bytes: int
    parts: list[Array] = field(default_factory=list)
    size: int = 0

    def put(self, content: Array) -> int:
        """Address of the bytes of ``content``."""
        offset, flat = self.size, np.ascontiguousarray(content).reshape(-1).view(np.uint8)
        padded = np.pad(flat, (0, -len(flat) % self.port_bytes))
        self.parts.append(padded)
        self.size += len(padded)
        return offset

    def content(self) -> Array:
        return np.concatenate(self.parts)


@dataclass
class _Commands:
    """Commands so far, and how many of those that others may wait for."""

    machine: AcceleratorMachine
    commands: list[Command] = field(default_factory=list)
    loads: int = 0
    computes: int = 0
    stores: int = 0

    def add(self, op: Op, values: Mapping[str, int], *, loads: int = 0, computes: int = 0, stores: int = 0) -> None:
        """Append a command; fields that are not named are 0, and so are waits that there are not."""
        layout = {**FIELDS[op], **(REGISTERS[Register(values["register"])] if op is Op.SET else {})}
        rest = {name: 0 for name in layout if name not in FIELDS[Op.END]}
        self.commands.append(Command(op, {**rest, **values}, loads or None, computes or None, stores or None))
        self.loads += op is Op.LOAD
        self.computes += op is Op.COMPUTE
        self.stores += op is Op.STORE


def _spare(machine: AcceleratorMachine, total: int, word: int) -> int:
    """1 if the last beat of a row of ``total`` bytes would complete one word of the scratchpad and begin another."""
    return int(0 < total % word < (total - 1) % machine.port_bytes + 1)


class _Product:
    """One matrix product: its operands in the image, and its commands."""

    def __init__(self, machine: AcceleratorMachine, image: _Image, rng: np.random.Generator, *, narrow: bool) -> None:
        self.machine, self.image, self.narrow = machine, image, narrow
        self.residual = narrow and machine.adds_residuals
        self.tiling = tiling_of(machine, narrow=narrow)
        self.operands = random_operands(machine, self.tiling, rng, narrow=narrow)
        self.size = 1 if narrow else 4
        self.a_pitch, self.b_pitch = (self._beats(self.tiling.k * size) * machine.port_bytes for size in (machine.a_bytes, machine.b_bytes))
        self.c_pitch = self._beats(self.tiling.n * self.size) * machine.port_bytes
        a, b = (self._tiles(values) for values in (self.operands.a, self.operands.b))
        self.a = [image.put(self._rows(tile, self.a_pitch, up_to=_COLUMNS)) for tile in a]
        self.b = [image.put(self._rows(tile, self.b_pitch)) for tile in b]
        if narrow:
            self.channels = image.put(self._channel_words())
        if self.residual:  # whole blocks are read, beyond the last column as well
            rows = self._rows(self.operands.residual, self.c_pitch).reshape(-1)
            self.residuals = image.put(np.pad(rows, (0, machine.cols + machine.port_bytes), constant_values=POISON))
        self.output = 0

    def _beats(self, size: int) -> int:
        return ceil_div(size, self.machine.port_bytes)

    def _tiles(self, values: Array) -> list[Array]:
        """Tiles along k, each filled with zeros up to ``k``."""
        tiling = self.tiling
        parts = np.split(values, tiling.k_tiles, axis=1)
        return [np.pad(part, ((0, 0), (0, tiling.k - tiling.depth))) for part in parts]

    def _rows(self, values: Array, pitch: int, up_to: int = 1) -> Array:
        """Rows of bytes, ``pitch`` apart, their number a multiple of ``up_to``; what is between them must have no effect."""
        rows = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
        return np.pad(rows, ((0, -len(rows) % up_to), (0, pitch - rows.shape[1])), constant_values=POISON)

    def _channel_words(self) -> Array:
        machine, given = self.machine, self.operands
        pairs = np.stack([given.bias, given.multiplier], axis=1).astype("<i4").reshape(self.tiling.n_blocks, -1)
        words = np.ascontiguousarray(pairs).view(np.uint8)
        return np.pad(words, ((0, 0), (0, machine.channel_word - words.shape[1])))

    def place_output(self) -> None:
        """Reserve the output in the image."""
        self.output = self.image.put(np.full(sum(self.tiling.rows) * self.c_pitch, POISON, np.uint8))

    @property
    def buffer(self) -> Buffer:
        """The result, (m, n)."""
        shape = (sum(self.tiling.rows), self.tiling.n)
        name, dtype = ("bytes", "int8") if self.narrow else ("sums", "int32")
        strides = (self.c_pitch, self.size)
        return Buffer(name=name, offset=self.output, size=shape[0] * self.c_pitch, shape=shape, strides=strides, dtype=dtype)

    @property
    def out_beats(self) -> int:
        """Beats of a stored row of a block, at the worst alignment."""
        row, width = self.machine.cols * self.size, self.machine.port_bytes
        if row % width == 0:
            return row // width
        return 1 if width % row == 0 else self._beats(row + width - 1)

    # ---- registers

    def _walker(self, run: int, pitch: int, **more: int) -> dict[str, int]:
        beats = self._beats(run)
        plain = {"run": run, "run_beats": beats, "taps": 1, "columns": 1, "row_step": pitch, "width": pitch, "height": 1}
        return {**plain, **more}

    def _registers(self) -> Iterator[tuple[Register, dict[str, int]]]:
        machine, tiling = self.machine, self.tiling
        rows = ceil_div(sum(tiling.rows), _COLUMNS)
        wide = _COLUMNS * self.a_pitch
        image = {"columns": _COLUMNS, "column_step": self.a_pitch, "row_step": wide, "row_y": 1, "width": wide, "height": rows}
        yield Register.A, self._walker(tiling.k * machine.a_bytes, self.a_pitch, **image)
        yield Register.B, self._walker(tiling.k * machine.b_bytes, self.b_pitch)
        if self.narrow:
            yield Register.CHANNELS, self._walker(machine.channel_word, machine.channel_word)
        if self.residual:
            inside = {"run_beats": self.out_beats, "kernel_step": machine.cols, "width": machine.cols + machine.port_bytes, "pad": 1}
            yield Register.RESIDUAL, self._walker(machine.cols, self.c_pitch, **inside)
        path = {"pitch": self.c_pitch, "block_pitch": machine.rows * self.c_pitch, "beats": self.out_beats}
        if self.narrow:
            path |= {"narrow": 1, "bias": 1, "shift": SHIFT, "zero": ZERO, "low": LOW, "high": HIGH}
        if self.residual:
            path |= {"residual": 1, "residual_signed": 1, "residual_zero": RESIDUAL_ZERO, "residual_multiplier": RESIDUAL_MULTIPLIER}
        yield Register.STORE, path

    # ---- commands

    def issue(self, queue: _Commands) -> None:
        """All commands of the product; those before are complete when they begin, because SET waits for that."""
        tiling = self.tiling
        for register, values in self._registers():
            queue.add(Op.SET, {"register": register, **values})
        if self.narrow:
            queue.add(Op.LOAD, self._channel_load())
        a_free, b_free, c_free = [0, 0], [0, 0], [0, 0]
        for step, (tile, k_tile) in enumerate(itertools.product(range(2), range(tiling.k_tiles))):
            a_slot, b_slot, c_slot = step % 2, step % tiling.b_slots, tile % tiling.c_slots
            queue.add(Op.LOAD, self._a_load(tile, k_tile, a_slot), computes=a_free[a_slot])
            queue.add(Op.LOAD, self._b_load(k_tile, b_slot), computes=b_free[b_slot])
            loads = queue.loads
            last = k_tile == tiling.k_tiles - 1
            if last and self.residual:
                queue.add(Op.LOAD, self._residual_load(tile, c_slot), stores=c_free[c_slot])
            queue.add(Op.COMPUTE, self._compute(tile, k_tile, (a_slot, b_slot, c_slot)), loads=loads, stores=c_free[c_slot])
            a_free[a_slot] = b_free[b_slot] = queue.computes
            if last:
                queue.add(Op.STORE, self._store(tile, c_slot), loads=queue.loads if self.residual else 0, computes=queue.computes)
                c_free[c_slot] = queue.stores

    def _channel_load(self) -> dict[str, int]:
        machine, blocks = self.machine, self.tiling.n_blocks
        beats = self._beats(machine.channel_word)
        place = {"target": Target.CHANNELS, "base": self.channels, "spad": machine.channel_words - blocks}
        return {**place, "rows": blocks, "beats": beats, "first_beats": beats, "row_stride": 1}

    def _a_load(self, tile: int, k_tile: int, slot: int) -> dict[str, int]:
        machine, tiling = self.machine, self.tiling
        size = tiling.k * machine.a_bytes
        y, column = divmod(self._first(tile), _COLUMNS)
        spare = _spare(machine, size, machine.a_word)
        where = {"base": self.a[k_tile] + y * _COLUMNS * self.a_pitch, "x": column * self.a_pitch, "y": y, "column": column}
        return {
            **where,
            "target": Target.A,
            "spad": slot * (machine.a_words // 2),
            "rows": tiling.rows[tile],
            "beats": self._beats(size) + spare,
            "first_beats": self._beats(size),
            "row_stride": a_stride(machine, tiling.k),
            "spare": spare,
        }

    def _b_load(self, k_tile: int, slot: int) -> dict[str, int]:
        machine, tiling = self.machine, self.tiling
        size = tiling.k * machine.b_bytes
        spare = _spare(machine, size, machine.b_word)
        return {
            "target": Target.B,
            "base": self.b[k_tile],
            "spad": slot * (machine.b_words // 2),
            "rows": tiling.n,
            "beats": self._beats(size) + spare,
            "first_beats": self._beats(size),
            "row_stride": b_stride(machine, tiling.k),
            "spare": spare,
        }

    def _residual_load(self, tile: int, slot: int) -> dict[str, int]:
        """Every output row is a row, every block of columns a run."""
        blocks, beats = self.tiling.n_blocks, self.out_beats
        place = {"target": Target.RESIDUAL, "base": self.residuals + self._first(tile) * self.c_pitch, "spad": self._residual_word(slot)}
        return {**place, "rows": self.tiling.rows[tile], "beats": blocks * beats, "first_beats": beats, "row_stride": blocks}

    def _residual_word(self, slot: int) -> int:
        return slot * (self.machine.residual_words // 2)

    def _first(self, tile: int) -> int:
        """First row of a tile of m."""
        return tile * self.tiling.rows[0]

    def _acc_row(self, slot: int) -> int:
        return slot * (self.machine.acc_rows // 2)

    def _compute(self, tile: int, k_tile: int, slots: tuple[int, int, int]) -> dict[str, int]:
        machine, tiling = self.machine, self.tiling
        rows, units = tiling.rows[tile], ceil_div(tiling.k, machine.k_unit)
        still = machine.weight_stationary
        return {
            "accumulate": int(k_tile > 0),
            "a": slots[0] * (machine.a_words // 2),
            "b": slots[1] * (machine.b_words // 2),
            "c": self._acc_row(slots[2]),
            "k_units": rows if still else units,
            "m_blocks": units if still else blocks_of(machine, rows),
            "n_blocks": tiling.n_blocks,
            "a_stride": a_stride(machine, tiling.k),
            "b_stride": b_stride(machine, tiling.k),
        }

    def _store(self, tile: int, slot: int) -> dict[str, int]:
        machine, tiling = self.machine, self.tiling
        rows, blocks, still = tiling.rows[tile], blocks_of(machine, tiling.rows[tile]), machine.weight_stationary
        return {
            "base": self.output + self._first(tile) * self.c_pitch,
            "c": self._acc_row(slot),
            "channel": machine.channel_words - tiling.n_blocks if self.narrow else 0,
            "m_blocks": blocks,
            "n_blocks": tiling.n_blocks,
            "rows": rows if still else machine.rows,
            "last_rows": rows if still else rows - (blocks - 1) * machine.rows,
            "block_rows": acc_rows_of(machine, rows) // blocks,
            "last_bytes": (tiling.n - (tiling.n_blocks - 1) * machine.cols) * self.size,
            "residual": self._residual_word(slot) if self.residual else 0,
        }
