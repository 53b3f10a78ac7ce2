"""What a program computes, bit for bit, in NumPy: no cycles, no order of events."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..dtypes import DType
from ..numerics import Array, shift_right, wrap
from .command import Command, Op, Register, Target
from .machine import AcceleratorMachine
from .program import Program
from .walk import gather, store_addresses


def execute(machine: AcceleratorMachine, program: Program, memory: Array) -> None:
    """Run ``program`` on a byte image in place.

    Parameters
    ----------
    memory : (bytes,) uint8
        At least ``program.memory_bytes``.

    Raises
    ------
    HashMismatchError, ParameterError
        As `Program.check`.
    """
    program.check(machine, memory)
    state = _State(machine, memory)
    for command in program.commands:
        state.step(command)


class _State:
    """Scratchpads, accumulators and registers."""

    def __init__(self, machine: AcceleratorMachine, memory: Array) -> None:
        self.machine, self.memory = machine, memory
        self.registers: dict[int, Mapping[str, int]] = {}
        self.pads = {target: np.zeros(machine.memory_of(target), np.uint8) for target in Target}
        self.sums = np.zeros((machine.acc_rows, machine.cols), np.int64)

    def step(self, command: Command) -> None:
        if command.op is Op.SET:
            self.registers[command.values["register"]] = command.values
        elif command.op is Op.LOAD:
            self._load(command.values)
        elif command.op is Op.COMPUTE:
            (self._stream if self.machine.weight_stationary else self._passes)(command.values)
        elif command.op is Op.STORE:
            self._store(command.values)

    def _load(self, values: Mapping[str, int]) -> None:
        walker, target = self.registers[values["target"]], Target(values["target"])
        data, run_end = gather(values, walker, self.machine.port_bytes, self.memory)
        pad = self.pads[target]
        size = pad.shape[2]
        if walker["pad"]:  # each run begins a word
            starts = np.flatnonzero(np.concatenate([[True], run_end[:-1]]))
            parts = [np.pad(part, ((0, 0), (0, size - part.shape[1]))) for part in np.split(data, starts[1:], axis=1)]
            data = np.concatenate(parts, axis=1)
        else:
            data = np.pad(data, ((0, 0), (0, -data.shape[1] % size)))
        words = data.reshape(len(data), -1, size)
        for row, content in enumerate(words):
            start = values["spad"] + row // len(pad) * values["row_stride"]
            pad[row % len(pad), start : start + len(content)] = content

    def _elements(self, data: Array, dtype: DType) -> Array:
        """Elements out of the bytes along the last axis, as float64 (exact: at most 16 bits)."""
        return wrap(np.ascontiguousarray(data).view(dtype.numpy).astype(np.int64), dtype).astype(np.float64)

    def _block(self, pad: Array, rows: int, start: int, stride: int, index: int, words: int) -> Array:
        """(rows, bytes): ``words`` words of every row of block ``index``."""
        at = start + index * stride
        return pad[:, at : at + words].reshape(rows, -1)

    def _add(self, at: int, values: Array, *, accumulate: bool) -> None:
        rows = slice(at, at + len(values))
        total = values.astype(np.int64) + (self.sums[rows] if accumulate else 0)
        self.sums[rows] = wrap(total, self.machine.acc)

    def _passes(self, values: Mapping[str, int]) -> None:
        machine, units = self.machine, values["k_units"]
        depth = units if values["vector"] else units * machine.k_unit
        b_words = -(-units // (machine.b_word // machine.b_unit))
        a_words = units if values["vector"] else -(-units // (machine.a_word // machine.a_unit))
        a_rows, b_rows = machine.rows, machine.cols
        for i in range(values["m_blocks"]):
            a = self._elements(self._block(self.pads[Target.A], a_rows, values["a"], values["a_stride"], i, a_words), machine.a)
            for j in range(values["n_blocks"]):
                b = self._elements(self._block(self.pads[Target.B], b_rows, values["b"], values["b_stride"], j, b_words), machine.b)
                if values["vector"]:
                    taps = a.reshape(a_rows, units, -1)[:, :, : machine.cols]
                    first = b[:, : units * machine.lanes : machine.lanes]
                    result = np.einsum("rkc,ck->rc", taps, first)
                else:
                    result = a[:, :depth] @ b[:, :depth].T
                at = values["c"] + (i * values["n_blocks"] + j) * machine.rows
                self._add(at, result, accumulate=bool(values["accumulate"]))

    def _stream(self, values: Mapping[str, int]) -> None:
        """Weight-stationary: vectors along k, all N blocks of all K blocks."""
        machine, count = self.machine, values["k_units"]
        depth = values["m_blocks"] * machine.rows
        vectors = np.arange(count)
        words = -(-values["m_blocks"] // (machine.a_word // machine.a_unit))
        at = values["a"] + vectors * values["a_stride"]
        a = self._elements(self.pads[Target.A][0, at[:, None] + np.arange(words)].reshape(count, -1), machine.a)[:, :depth]
        b_words = -(-depth // (machine.b_word // machine.b_unit))
        for j in range(values["n_blocks"]):
            block = self._block(self.pads[Target.B], machine.cols, values["b"], values["b_stride"], j, b_words)
            b = self._elements(block, machine.b)[:, :depth]
            self._add(values["c"] + j * count, a @ b.T, accumulate=bool(values["accumulate"]))

    def _store(self, values: Mapping[str, int]) -> None:
        machine, path = self.machine, self.registers[Register.STORE]
        address, source = store_addresses(values, path, machine.cols)
        for block in range(values["n_blocks"]):
            count = values["last_bytes"] if block == values["n_blocks"] - 1 else machine.cols * (1 if path["narrow"] else 4)
            rows = self.sums[source[:, block][source[:, block] >= 0]]
            words = values["residual"] + np.arange(len(rows)) * values["n_blocks"] + block
            content = self._finished(rows, path, values["channel"] + block, words)
            for at, row in zip(address[:, block][address[:, block] >= 0], content, strict=True):
                self.memory[at : at + count] = row[:count]

    def _finished(self, rows: Array, path: Mapping[str, int], channel: int, residuals: Array) -> Array:
        """(rows, bytes): sums as they reach memory."""
        machine = self.machine
        if not path["narrow"] and not path["bias"]:
            return np.ascontiguousarray(rows.astype("<i4")).view(np.uint8)
        word = self.pads[Target.CHANNELS][0, channel][: machine.cols * 8].view("<i4").astype(np.int64)
        biased = wrap(rows + (word[0::2] if path["bias"] else 0), DType(32)).astype(np.int64)
        if not path["narrow"]:
            return np.ascontiguousarray(biased.astype("<i4")).view(np.uint8)
        products = biased * word[1::2]
        if path["residual"]:
            bytes_ = self.pads[Target.RESIDUAL][0, residuals, : machine.cols]
            added = bytes_.view(np.int8 if path["residual_signed"] else np.uint8).astype(np.int64)
            products += (added - path["residual_zero"]) * path["residual_multiplier"]
        scaled = shift_right(products, path["shift"], machine.rounding) + path["zero"]
        clamped: Array = np.clip(scaled, path["low"], path["high"]).astype(np.int64).astype(np.uint8)
        return clamped
