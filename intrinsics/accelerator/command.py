"""The command words of the accelerator: one table of fields, from which RTL, encoder, decoder and C header come."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..errors import FormatError, ParameterError
from ..numerics import Array
from ..tomlfile import closest

COMMAND_BITS = 256
COUNTER_BITS = 12
"""Completion counters and the waits on them are modulo 2**12."""


class Op(enum.IntEnum):
    """Operation codes; 0 is illegal, so that an empty memory is."""

    LOAD = 1  #: memory to a scratchpad
    COMPUTE = 2  #: passes of the array
    STORE = 3  #: accumulator memory through the store path to memory
    SET = 4  #: write a configuration register
    END = 5  #: wait for everything, raise done


class Target(enum.IntEnum):
    """Where a load goes, and which walker configuration it uses."""

    A = 0
    B = 1
    CHANNELS = 2  #: biases and multipliers
    RESIDUAL = 3  #: what the store path adds


class Register(enum.IntEnum):
    """Configuration registers."""

    A = 0  #: walker of A
    B = 1  #: walker of B
    CHANNELS = 2  #: walker of biases and multipliers
    RESIDUAL = 3  #: walker of residuals
    STORE = 4  #: store path


@dataclass(frozen=True)
class Field:
    """A field of a command word: lowest bit, bits, two's complement or not."""

    offset: int
    width: int
    signed: bool = False

    @property
    def limits(self) -> tuple[int, int]:
        """Least and greatest value."""
        return (-(1 << (self.width - 1)), (1 << (self.width - 1)) - 1) if self.signed else (0, (1 << self.width) - 1)


def _packed(start: int, spec: str) -> dict[str, Field]:
    """Fields one after another from bit ``start``: ``"name:width"``, with ``s`` behind the width of a signed one."""
    fields = {}
    for item in spec.split():
        name, width = item.split(":")
        bits = int(width.rstrip("s"))
        fields[name] = Field(start, bits, width.endswith("s"))
        start += bits
    return fields


COMMON = _packed(0, "op:3 wait:3 wait_load:12 wait_compute:12 wait_store:12")
_BODY = 42

FIELDS: Mapping[Op, Mapping[str, Field]] = {
    Op.LOAD: COMMON
    | _packed(
        _BODY,
        "target:2 base:32 spad:16 rows:14 beats:14 x:20s y:14s column:14 offset:20 skip:16 tap:6 first_beats:12 row_stride:12 spare:1",
    ),
    Op.COMPUTE: COMMON | _packed(_BODY, "accumulate:1 vector:1 a:16 b:16 c:16 k_units:16 m_blocks:12 n_blocks:12 a_stride:14 b_stride:14"),
    Op.STORE: COMMON
    | _packed(_BODY, "base:32 c:16 channel:12 m_blocks:12 n_blocks:12 rows:14 last_rows:14 block_rows:14 last_bytes:12 residual:16"),
    Op.SET: COMMON | _packed(_BODY, "register:3"),
    Op.END: COMMON,
}
"""Fields of every command.

LOAD: ``base`` byte address of image row ``y``, byte 0; ``x`` byte position of the window inside the row for output column
``column``; a row of the target takes ``beats`` beats and starts ``offset`` bytes into the window, ``skip`` bytes into a run, at
kernel column ``tap``, with ``first_beats`` beats left of that run; with ``spare``, the last beat of a row carries nothing.
Successive rows go to successive banks, then ``row_stride`` words on.
COMPUTE: for each M block (``a_stride`` words of A apart) and N block (``b_stride`` words of B apart) a pass of ``k_units`` beats.
STORE: for each M block, N block: ``rows`` accumulator rows (``last_rows`` of the last M block), blocks ``block_rows`` apart; a row
of the last N block has ``last_bytes`` bytes; ``channel`` is the word of biases and multipliers of the first N block, ``residual``
that of the residuals of the first row, whose N blocks are neighbours.
"""

_SET_BODY = _BODY + 3
WALKER = _packed(
    _SET_BODY,
    "run:16 run_beats:12 taps:6 tap_step:16 kernel_step:26 kernel_y:6 columns:14 column_step:18 row_step:28 row_y:6 "
    "first_x:20s width:20 height:14 zero:8 pad:1",
)
"""Walker configuration: bytes and beats of a run, kernel columns (``taps``) and their distance in bytes, kernel rows' distance in bytes
and image rows, output columns and their distance in bytes, output rows' distance in bytes and image rows, ``x`` of the window of output
column 0, image width in bytes, image height in rows, the byte outside the image, and whether every run fills a word of its own."""

STORE_PATH = _packed(
    _SET_BODY,
    "pitch:24 block_pitch:28 beats:8 narrow:1 bias:1 shift:6 zero:16s low:16s high:16s "
    "residual:1 residual_signed:1 residual_zero:9s residual_multiplier:32s",
)
"""Store path: bytes between output rows and between M blocks, beats of an accumulator row, 8-bit output, and its arithmetic;
what is subtracted from a residual, and what it is multiplied by."""

REGISTERS: Mapping[Register, Mapping[str, Field]] = {
    Register.A: WALKER,
    Register.B: WALKER,
    Register.CHANNELS: WALKER,
    Register.RESIDUAL: WALKER,
    Register.STORE: STORE_PATH,
}


SIZES: Mapping[Op, tuple[str, ...]] = {
    Op.LOAD: ("rows", "beats", "first_beats"),
    Op.COMPUTE: ("k_units", "m_blocks", "n_blocks"),
    Op.STORE: ("m_blocks", "n_blocks", "rows", "last_rows", "last_bytes"),
}
REGISTER_SIZES: Mapping[Register, tuple[str, ...]] = dict.fromkeys(Register, ("run", "run_beats", "taps", "columns")) | {
    Register.STORE: ("beats",)
}
"""Fields of which zero would leave an engine without an end."""

COUNTED = (Op.LOAD, Op.COMPUTE, Op.STORE)
"""Commands that others may wait for, in the order of the waits."""


@dataclass(frozen=True)
class Command:
    """One command, with waits as absolute counts.

    Parameters
    ----------
    op : Op
    values : mapping
        Fields of `FIELDS` (for SET also those of the register) without the common ones.
    loads, computes, stores : int or None
        Commands that must have completed: loads; reads (for LOAD) or writes (for the others) of computes; stores.
    """

    op: Op
    values: Mapping[str, int] = field(default_factory=dict)
    loads: int | None = None
    computes: int | None = None
    stores: int | None = None

    @property
    def waits(self) -> tuple[int | None, int | None, int | None]:
        """Awaited counts in the order loads, computes, stores."""
        return self.loads, self.computes, self.stores


def layout_of(op: Op, values: Mapping[str, int]) -> Mapping[str, Field]:
    """Fields of a command."""
    return {**FIELDS[op], **REGISTERS[Register(values["register"])]} if op is Op.SET else FIELDS[op]


def encode(command: Command) -> int:
    """The command word; waits are reduced modulo 2**12.

    Raises
    ------
    ParameterError
        If a value does not fit its field, or a field is missing or unknown.
    """
    layout = layout_of(command.op, command.values)
    word = _insert(0, layout, "op", command.op)
    for position, (name, count) in enumerate(zip(("wait_load", "wait_compute", "wait_store"), command.waits, strict=True)):
        if count is not None:
            word = _insert(word, layout, name, count % (1 << COUNTER_BITS)) | 1 << (layout["wait"].offset + position)
    missing = [name for name in layout if name not in COMMON and name not in command.values]
    if missing:
        raise ParameterError(f"command {command.op.name} needs the field {missing[0]}; fields: {', '.join(layout)}")
    for name, value in command.values.items():
        word = _insert(word, layout, name, value)
    return word


def _insert(word: int, layout: Mapping[str, Field], name: str, value: int) -> int:
    spec = layout.get(name)
    if spec is None:
        near = closest(name, layout)
        raise ParameterError(f"command field {name!r} does not exist{f'; did you mean {near[0]!r}?' if near else ''}")
    low, high = spec.limits
    if not low <= value <= high:
        raise ParameterError(
            f"command field {name} must be from {low} to {high}, not {value}; nearest legal value: {min(max(value, low), high)}"
        )
    return word | (int(value) & ((1 << spec.width) - 1)) << spec.offset


def extract(word: int, spec: Field) -> int:
    """Value of a field."""
    value = word >> spec.offset & ((1 << spec.width) - 1)
    return value - (1 << spec.width) if spec.signed and value >> (spec.width - 1) else value


def extract_all(words: Array, spec: Field) -> Array:
    """Values of an unsigned field in many command words.

    Parameters
    ----------
    words : (commands, 32) uint8

    Returns
    -------
    (commands,) int64
    """
    bits = np.unpackbits(words, axis=1, bitorder="little")[:, spec.offset : spec.offset + spec.width]
    values: Array = bits @ (np.int64(1) << np.arange(spec.width, dtype=np.int64))
    return values


def decode(word: int) -> Command:
    """The command of a word; waits come back modulo 2**12.

    Raises
    ------
    FormatError
        If the operation code is not one of `Op`, or the configuration register not one of `Register`.
    """
    code = extract(word, COMMON["op"])
    if code not in tuple(Op):
        raise FormatError(f"operation code must be from {min(Op)} to {max(Op)}, not {code}")
    op = Op(code)
    values = {"register": extract(word, FIELDS[op]["register"])} if op is Op.SET else {}
    if op is Op.SET and values["register"] not in tuple(Register):
        raise FormatError(f"configuration register must be from {min(Register)} to {max(Register)}, not {values['register']}")
    layout = layout_of(op, values)
    values |= {name: extract(word, spec) for name, spec in layout.items() if name not in COMMON}
    enabled = extract(word, COMMON["wait"])
    waits = [
        extract(word, COMMON[name]) if enabled >> position & 1 else None
        for position, name in enumerate(("wait_load", "wait_compute", "wait_store"))
    ]
    return Command(op, values, *waits)
