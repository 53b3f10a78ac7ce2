"""What a program computes, bit for bit, in NumPy: no cycles, no order of events."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ..dtypes import DType
from ..numerics import Array, bounds_of_product, shift_right, wrap
from .command import Command, Op, Register, Target
from .machine import AcceleratorMachine, ceil_div
from .patterns import LOAD_SHAPE, MOST_SHAPES, STORE_SHAPE, LoadPattern, StorePattern
from .program import Program

_EXACT = 1 << 24
"""Up to here a float32 holds every integer."""


def execute(machine: AcceleratorMachine, program: Program, memory: Array) -> None:
    """Run ``program`` on a byte image in place.

    Parameters
    ----------
    memory : (bytes,) uint8
        At least ``program.memory_bytes``.

    Raises
    ------
    HashMismatchError, ParameterError
        As `Program.check`, which sees to it that no command leaves a memory.
    """
    program.check(machine, memory)
    state = _State(machine, memory)
    for command in program.commands:
        state.step(command)


class _State:
    """Scratchpads, accumulators and registers, and the patterns of commands since a register was last written."""

    def __init__(self, machine: AcceleratorMachine, memory: Array) -> None:
        self.machine, self.memory = machine, memory
        self.registers: dict[int, Mapping[str, int]] = {}
        self.loads: dict[int, dict[tuple[int, ...], LoadPattern]] = {}
        self.stores: dict[tuple[int, ...], StorePattern] = {}
        self.pads = {target: np.zeros(machine.memory_of(target), np.uint8) for target in Target}
        self.sums = np.zeros((machine.acc_rows, machine.cols), machine.acc.numpy)
        self.largest = max(map(abs, bounds_of_product(machine.a, machine.b)))

    def step(self, command: Command) -> None:
        if command.op is Op.SET:
            self._set(command.values)
        elif command.op is Op.LOAD:
            self._load(command.values)
        elif command.op is Op.COMPUTE:
            (self._stream if self.machine.weight_stationary else self._passes)(command.values)
        elif command.op is Op.STORE:
            self._store(command.values)

    def _set(self, values: Mapping[str, int]) -> None:
        register = values["register"]
        self.registers[register] = values
        self.stores.clear()
        self.loads[register] = {}

    def _load(self, values: Mapping[str, int]) -> None:
        walker, target, port = self.registers[values["target"]], Target(values["target"]), self.machine.port_bytes
        known = self.loads[target]
        key = (*(values[name] for name in LOAD_SHAPE), math.gcd(values["base"], port))
        pattern = known.get(key)
        if pattern is None:
            if len(known) >= MOST_SHAPES:
                known.clear()
            pattern = known[key] = LoadPattern.of(values, walker, port)
        pad = self.pads[target]
        banks, _, size = pad.shape
        words = pattern.words(pattern.fetch(self.memory, values, walker), size, padded=bool(walker["pad"]))
        place = values["spad"] + np.arange(ceil_div(len(words), banks))[:, None] * values["row_stride"] + np.arange(words.shape[1])
        whole, rest = divmod(len(words), banks)
        if whole:
            pad[:, place[:whole]] = words[: whole * banks].reshape(whole, banks, -1, size).swapaxes(0, 1)
        if rest:
            pad[:rest, place[-1]] = words[-rest:]

    def _read(self, target: Target, start: int, stride: int, blocks: int, words: int) -> Array:
        """(blocks, banks, elements): ``words`` words of every bank, for blocks ``stride`` words apart."""
        pad = self.pads[target].view((self.machine.a if target is Target.A else self.machine.b).numpy)
        if blocks == 1 or stride == words:
            found = pad[:, start : start + blocks * words]
        else:
            found = pad[:, start + np.arange(blocks)[:, None] * stride + np.arange(words)]
        read: Array = found.reshape(len(pad), blocks, -1).swapaxes(0, 1)
        return read

    def _numbers(self, elements: Array, dtype: DType, depth: int) -> Array:
        """Elements as numbers of a type in which sums of ``depth`` products are exact."""
        values = elements if dtype.width == dtype.container_width else wrap(elements, dtype)
        return values.astype(np.float32 if depth * self.largest <= _EXACT else np.float64)

    def _add(self, at: int, values: Array, *, accumulate: bool) -> None:
        rows = slice(at, at + len(values))
        total = values.astype(np.int64)
        if accumulate:
            total += self.sums[rows]
        self.sums[rows] = wrap(total, self.machine.acc)

    def _passes(self, values: Mapping[str, int]) -> None:
        """All M blocks with all N blocks: rows of the array in every block, columns of the array in every row."""
        machine, units = self.machine, values["k_units"]
        a_words = units if values["vector"] else ceil_div(units, machine.a_word // machine.a_unit)
        b_words = ceil_div(units, machine.b_word // machine.b_unit)
        m_blocks, n_blocks = values["m_blocks"], values["n_blocks"]
        depth = units if values["vector"] else units * machine.k_unit
        left = self._read(Target.A, values["a"], values["a_stride"], m_blocks, a_words)
        right = self._read(Target.B, values["b"], values["b_stride"], n_blocks, b_words)
        if values["vector"]:  # a word of A has a channel per column, a unit of B a tap
            taps = left.reshape(m_blocks, machine.rows, units, -1)[..., : machine.cols]
            a, b = (
                self._numbers(taps, machine.a, depth),
                self._numbers(right[..., : units * machine.lanes : machine.lanes], machine.b, depth),
            )
            result = np.einsum("mrkc,nck->mnrc", a, b)
        else:
            a = self._numbers(left[..., :depth].reshape(-1, depth), machine.a, depth)
            b = self._numbers(right[..., :depth].reshape(-1, depth), machine.b, depth)
            result = (a @ b.T).reshape(m_blocks, machine.rows, n_blocks, machine.cols).swapaxes(1, 2)
        self._add(values["c"], result.reshape(-1, machine.cols), accumulate=bool(values["accumulate"]))

    def _stream(self, values: Mapping[str, int]) -> None:
        """Weight-stationary: vectors along k, all N blocks of all K blocks."""
        machine, vectors, n_blocks = self.machine, values["k_units"], values["n_blocks"]
        depth = values["m_blocks"] * machine.rows
        a_words = ceil_div(values["m_blocks"], machine.a_word // machine.a_unit)
        b_words = ceil_div(depth, machine.b_word // machine.b_unit)
        left = self._read(Target.A, values["a"], values["a_stride"], vectors, a_words)
        right = self._read(Target.B, values["b"], values["b_stride"], n_blocks, b_words)
        a = self._numbers(left[:, 0, :depth], machine.a, depth)
        b = self._numbers(right[..., :depth].reshape(-1, depth), machine.b, depth)
        result = (a @ b.T).reshape(vectors, n_blocks, machine.cols).swapaxes(0, 1)
        self._add(values["c"], result.reshape(-1, machine.cols), accumulate=bool(values["accumulate"]))

    def _store(self, values: Mapping[str, int]) -> None:
        path, cols = self.registers[Register.STORE], self.machine.cols
        key = tuple(values[name] for name in STORE_SHAPE)
        pattern = self.stores.get(key)
        if pattern is None:
            pattern = self.stores[key] = StorePattern.of(values, path, cols)
        content = self._finished(self.sums[pattern.sources(values)], path, values)
        pattern.write(self.memory, values, np.ascontiguousarray(content).view(np.uint8))

    def _finished(self, rows: Array, path: Mapping[str, int], values: Mapping[str, int]) -> Array:
        """Sums (n_blocks, rows, cols) as they reach memory."""
        machine, (blocks, count, cols) = self.machine, rows.shape
        if not path["narrow"] and not path["bias"]:
            return rows.astype("<i4")
        first = values["channel"]
        channels = self.pads[Target.CHANNELS][0, first : first + blocks, : cols * 8].copy().view("<i4").astype(np.int64)
        bias, multiplier = channels[:, None, 0::2], channels[:, None, 1::2]
        biased = wrap(rows + (bias if path["bias"] else 0), DType(32))
        if not path["narrow"]:
            return biased.astype("<i4")
        products = biased * multiplier
        if path["residual"]:
            words = values["residual"] + np.arange(count) * blocks + np.arange(blocks)[:, None]
            added = self.pads[Target.RESIDUAL][0, words, :cols].view(np.int8 if path["residual_signed"] else np.uint8)
            products += (added.astype(np.int64) - path["residual_zero"]) * path["residual_multiplier"]
        scaled = shift_right(products, path["shift"], machine.rounding) + path["zero"]
        clamped: Array = np.clip(scaled, path["low"], path["high"]).astype(np.uint8)
        return clamped
