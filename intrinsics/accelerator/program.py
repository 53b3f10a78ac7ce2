"""A program for an accelerator: commands, the memory image that they work on, and where the result is."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import FormatError, HashMismatchError, ParameterError
from ..numerics import Array
from .command import COMMAND_BITS, COUNTER_BITS, Command, Op, decode, encode
from .machine import AcceleratorMachine

FORMAT = "celosia-program-1"
_MAGIC = b"CELOPROG"


@dataclass(frozen=True, kw_only=True)
class Buffer:
    """A tensor in the memory image.

    Parameters
    ----------
    name : str
    offset, size : int
        Bytes.
    shape, strides : tuple of int
        Elements, and bytes between neighbours along each axis.
    dtype : str
        NumPy name of the element in memory.
    """

    name: str
    offset: int
    size: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    def view(self, memory: Array) -> Array:
        """The tensor inside a byte image; writable if the image is."""
        inside: Array = np.lib.stride_tricks.as_strided(
            memory[self.offset : self.offset + self.size].view(np.uint8)[: np.dtype(self.dtype).itemsize].view(self.dtype),
            shape=self.shape,
            strides=self.strides,
        )
        return inside


@dataclass(frozen=True, kw_only=True)
class Program:
    """Commands for one design.

    Parameters
    ----------
    design_hash : str
    commands : tuple of Command
        Ends with END.
    memory_bytes : int
        Size of the memory image, whole beats.
    buffers : tuple of Buffer
    macs : int
        Useful multiply-accumulates.
    title : str
        For people.
    """

    design_hash: str
    commands: tuple[Command, ...]
    memory_bytes: int
    buffers: tuple[Buffer, ...] = ()
    macs: int = 0
    title: str = ""

    def __post_init__(self) -> None:
        if not self.commands or self.commands[-1].op is not Op.END:
            raise FormatError("a program must end with an END command")
        if any(command.op is Op.END for command in self.commands[:-1]):
            raise FormatError("a program must hold one END command, its last")

    @functools.cached_property
    def words(self) -> Array:
        """(commands, 32) uint8: the encoded commands; waits that the same in-order engine has already made are dropped."""
        out = np.zeros((len(self.commands), COMMAND_BITS // 8), np.uint8)
        for index, command in enumerate(prune_waits(self.commands)):
            out[index] = np.frombuffer(encode(command).to_bytes(COMMAND_BITS // 8, "little"), np.uint8)
        return out

    def buffer(self, name: str) -> Buffer:
        """The buffer of this name."""
        found = next((buffer for buffer in self.buffers if buffer.name == name), None)
        if found is None:
            raise ParameterError(f"program has no buffer {name!r}; its buffers: {', '.join(buffer.name for buffer in self.buffers)}")
        return found

    def check(self, machine: AcceleratorMachine, memory: Array) -> None:
        """Refuse a program of another design, a memory image that is too small, or an address outside of it."""
        from .walk import check_addresses

        if self.design_hash != machine.design_hash:
            raise HashMismatchError(f"program was made for design {self.design_hash}, not for design {machine.design_hash}")
        if memory.nbytes < self.memory_bytes:
            raise ParameterError(f"memory image has {memory.nbytes} bytes; the program needs {self.memory_bytes}")
        check_addresses(machine, self)

    def to_bytes(self) -> bytes:
        """Serialised: a line of JSON, then the command words."""
        header = {
            "format": FORMAT,
            "design_hash": self.design_hash,
            "memory_bytes": self.memory_bytes,
            "macs": self.macs,
            "title": self.title,
            "buffers": [buffer.__dict__ for buffer in self.buffers],
        }
        return _MAGIC + json.dumps(header, sort_keys=True).encode() + b"\n" + self.words.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Program:
        """Inverse of `to_bytes` (waits come back modulo 2**12 and pruned).

        Raises
        ------
        FormatError
            If it is not a program, or does not end with END.
        """
        head, _, body = data.partition(b"\n")
        if not head.startswith(_MAGIC):
            raise FormatError("not a program: the first bytes must be CELOPROG")
        try:
            header: dict[str, Any] = json.loads(head[len(_MAGIC) :])
        except ValueError:
            raise FormatError("not a program: its header is not JSON") from None
        if header.get("format") != FORMAT or len(body) % (COMMAND_BITS // 8):
            raise FormatError(
                f"a program must have format {FORMAT} and whole 32-byte commands, not {header.get('format')} and {len(body)} bytes"
            )
        kept = _checked_header(header)
        words = [int.from_bytes(body[start : start + 32], "little") for start in range(0, len(body), 32)]
        buffers = tuple(_buffer(entry, kept["memory_bytes"]) for entry in header["buffers"])
        return cls(commands=unwrap_waits([decode(word) for word in words]), buffers=buffers, **kept)


def _checked_header(header: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, kind in (("design_hash", str), ("memory_bytes", int), ("macs", int), ("title", str), ("buffers", list)):
        kept[name] = header.get(name)
        if type(kept[name]) is not kind or (kind is int and kept[name] < 0):
            raise FormatError(f"the header of a program needs {name} as {kind.__name__}, not {kept[name]!r}")
    del kept["buffers"]
    return kept


def _buffer(entry: Any, memory_bytes: int) -> Buffer:
    """A buffer whose tensor lies inside the image."""
    try:
        buffer = Buffer(**{**entry, "shape": tuple(entry["shape"]), "strides": tuple(entry["strides"])})
        extent = (
            sum((size - 1) * stride for size, stride in zip(buffer.shape, buffer.strides, strict=True)) + np.dtype(buffer.dtype).itemsize
        )
        legal = min((buffer.offset, *buffer.strides, *(size - 1 for size in buffer.shape))) >= 0
        if not legal or extent > buffer.size or buffer.offset + buffer.size > memory_bytes:
            raise FormatError(f"buffer {buffer.name!r} of a program must lie inside its memory image of {memory_bytes} bytes")
    except (TypeError, KeyError, ValueError) as error:
        raise FormatError(f"a buffer of a program needs name, offset, size, shape, strides and dtype ({error})") from None
    return buffer


_COUNTED = (Op.LOAD, Op.COMPUTE, Op.STORE)


def prune_waits(commands: Sequence[Command]) -> list[Command]:
    """Drop every wait that an earlier command of the same engine implies, so that 12-bit counters may wrap.

    Raises
    ------
    ParameterError
        If a wait is left that reaches back further than half the range of a counter.
    """
    reached: dict[Op, list[int]] = {op: [0, 0, 0] for op in Op}
    issued = dict.fromkeys(_COUNTED, 0)
    pruned = []
    for command in commands:
        kept: list[int | None] = []
        for position, count in enumerate(command.waits):
            needed = count is not None and count > reached[command.op][position]
            if needed and count is not None:
                reached[command.op][position] = count
                if issued[_COUNTED[position]] - count >= 1 << (COUNTER_BITS - 1):
                    raise ParameterError(
                        f"a {command.op.name} waits for a command {issued[_COUNTED[position]] - count} back; allowed: at most 2047"
                    )
            kept.append(count if needed else None)
        if command.op in issued:
            issued[command.op] += 1
        pruned.append(replace(command, loads=kept[0], computes=kept[1], stores=kept[2]))
    return pruned


def unwrap_waits(commands: Sequence[Command]) -> tuple[Command, ...]:
    """Turn waits modulo 2**12 into absolute counts: the largest that refers to a command before."""
    issued = dict.fromkeys(_COUNTED, 0)
    out = []
    for command in commands:
        counts = [
            None if count is None else issued[op] - (issued[op] - count) % 4096 for op, count in zip(_COUNTED, command.waits, strict=True)
        ]
        out.append(replace(command, loads=counts[0], computes=counts[1], stores=counts[2]))
        if command.op in issued:
            issued[command.op] += 1
    return tuple(out)
