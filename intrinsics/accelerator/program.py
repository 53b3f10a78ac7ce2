"""A program for an accelerator: commands, the memory image that they work on, and where the result is."""

from __future__ import annotations

import functools
import json
import math
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import FormatError, HashMismatchError, ParameterError
from ..numerics import Array
from .command import COMMAND_BITS, COUNTED, COUNTER_BITS, Command, Op, decode, encode
from .legality import check_commands
from .machine import AcceleratorMachine
from .walk import ADDRESS_BITS

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

    @functools.cached_property
    def _legal_on(self) -> set[AcceleratorMachine]:
        """Designs for which the commands were checked."""
        return set()

    def check(self, machine: AcceleratorMachine, memory: Array) -> None:
        """Refuse a program of another design, a memory image that is too small, or a command that the design does not carry out.

        Raises
        ------
        HashMismatchError, ParameterError
        """
        if self.design_hash != machine.design_hash:
            raise HashMismatchError(f"program was made for design {self.design_hash}, not for design {machine.design_hash}")
        if memory.nbytes < self.memory_bytes:
            raise ParameterError(f"memory image has {memory.nbytes} bytes; the program needs {self.memory_bytes}")
        if machine not in self._legal_on:
            check_commands(machine, self)
            self._legal_on.add(machine)

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
            If it is not a program, does not end with END, or waits for commands that do not come before.
        """
        head, _, body = data.partition(b"\n")
        if not head.startswith(_MAGIC):
            raise FormatError("not a program: the first bytes must be CELOPROG")
        try:
            header: dict[str, Any] = json.loads(head[len(_MAGIC) :])
        except (ValueError, RecursionError):
            raise FormatError("not a program: its header is not JSON") from None
        if not isinstance(header, dict):
            raise FormatError(f"the header of a program must be a JSON object, not {reprlib.repr(header)}")
        if header.get("format") != FORMAT or len(body) % (COMMAND_BITS // 8):
            found = f"{reprlib.repr(header.get('format'))} and {len(body)} bytes"
            raise FormatError(f"a program must have format {FORMAT} and whole 32-byte commands, not {found}")
        kept = _checked_header(header)
        words = [int.from_bytes(body[start : start + 32], "little") for start in range(0, len(body), 32)]
        buffers = tuple(_buffer(entry, kept["memory_bytes"]) for entry in header["buffers"])
        return cls(commands=unwrap_waits([decode(word) for word in words]), buffers=buffers, **kept)


def _checked_header(header: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, kind in (("design_hash", str), ("memory_bytes", int), ("macs", int), ("title", str), ("buffers", list)):
        value = kept[name] = header.get(name)
        if type(value) is not kind or not _LEGAL.get(name, lambda value: True)(value):
            raise FormatError(f"the header of a program needs {name} as {kind.__name__}{_ALLOWED.get(name, '')}, not {reprlib.repr(value)}")
    del kept["buffers"]
    return kept


_LEGAL: Mapping[str, Callable[[Any], bool]] = {
    "design_hash": lambda value: re.fullmatch(r"[0-9a-f]{1,64}", value) is not None,
    "memory_bytes": lambda value: 0 <= value <= 1 << ADDRESS_BITS,
    "macs": lambda value: 0 <= value < 1 << 63,
    "title": lambda value: value.isprintable() and len(value) <= 200,
}
_ALLOWED = {
    "design_hash": " of hexadecimal digits",
    "memory_bytes": " from 0 to 2**32",
    "macs": " from 0 to 2**63 - 1",
    "title": " of at most 200 printable characters",
}


def _buffer(entry: Any, memory_bytes: int) -> Buffer:
    """A buffer whose tensor lies inside the image."""
    if not _describes_buffer(entry):
        raise FormatError(
            "a buffer of a program needs name as text, offset, size, shape and as many strides as integers of at least 0 (1 in the shape), "
            f"and dtype as one of {', '.join(_DTYPES)}"
        )
    buffer = Buffer(**{**entry, "shape": tuple(entry["shape"]), "strides": tuple(entry["strides"])})
    item = np.dtype(buffer.dtype).itemsize
    extent = sum((size - 1) * stride for size, stride in zip(buffer.shape, buffer.strides, strict=True)) + item
    if max(extent, math.prod(buffer.shape) * item) > buffer.size or buffer.offset + buffer.size > memory_bytes:
        raise FormatError(f"buffer {reprlib.repr(buffer.name)} of a program must lie inside its memory image of {memory_bytes} bytes")
    return buffer


def _describes_buffer(entry: Any) -> bool:
    if not isinstance(entry, dict) or entry.keys() != Buffer.__dataclass_fields__.keys():
        return False
    shape, strides = entry["shape"], entry["strides"]
    if not isinstance(shape, list) or not isinstance(strides, list) or len(shape) != len(strides) or len(shape) > 8:
        return False
    numbers = [entry["offset"], entry["size"], *strides, *shape]
    whole = all(type(number) is int and 0 <= number <= 1 << ADDRESS_BITS for number in numbers) and 0 not in shape
    return whole and isinstance(entry["name"], str) and entry["dtype"] in _DTYPES


_DTYPES = tuple(f"{kind}{width}" for kind in ("int", "uint") for width in (8, 16, 32))


def prune_waits(commands: Sequence[Command]) -> list[Command]:
    """Drop every wait that an earlier command of the same engine implies, so that 12-bit counters may wrap.

    Raises
    ------
    ParameterError
        If a wait is left that reaches back further than half the range of a counter.
    """
    reached: dict[Op, list[int]] = {op: [0, 0, 0] for op in Op}
    issued = dict.fromkeys(COUNTED, 0)
    pruned = []
    for command in commands:
        kept: list[int | None] = []
        for position, count in enumerate(command.waits):
            needed = count is not None and count > reached[command.op][position]
            if needed and count is not None:
                reached[command.op][position] = count
                if issued[COUNTED[position]] - count >= 1 << (COUNTER_BITS - 1):
                    raise ParameterError(
                        f"a {command.op.name} waits for a command {issued[COUNTED[position]] - count} back; allowed: at most 2047"
                    )
            kept.append(count if needed else None)
        if command.op in issued:
            issued[command.op] += 1
        pruned.append(replace(command, loads=kept[0], computes=kept[1], stores=kept[2]))
    return pruned


def unwrap_waits(commands: Sequence[Command]) -> tuple[Command, ...]:
    """Turn waits modulo 2**12 into absolute counts.

    Raises
    ------
    FormatError
        If a wait means a command that does not come before, or reaches back further than half the range of a counter.
    """
    issued = dict.fromkeys(COUNTED, 0)
    out = []
    for index, command in enumerate(commands):
        counts = [
            None if count is None else _unwrapped(index, command.op, kind, count, issued[kind])
            for kind, count in zip(COUNTED, command.waits, strict=True)
        ]
        out.append(replace(command, loads=counts[0], computes=counts[1], stores=counts[2]))
        if command.op in issued:
            issued[command.op] += 1
    return tuple(out)


def _unwrapped(index: int, op: Op, kind: Op, count: int, issued: int) -> int:
    back = (issued - count) % (1 << COUNTER_BITS)
    if back > issued or back >= 1 << (COUNTER_BITS - 1):
        raise FormatError(f"command {index} ({op.name}) waits for {kind.name} {count}, modulo 4096, of {issued} before it")
    return issued - back
