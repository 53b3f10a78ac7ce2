"""Parameter record of the accelerator family. No HDL here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ...intrinsics import Overflow, ParameterError, StreamLayout, StreamTiming
from ...intrinsics.accelerator.command import STORE_PATH
from ...intrinsics.accelerator.machine import ACC_WIDTHS, BUSES, COMMAND_INPUTS, CORES, AcceleratorMachine, ceil_div
from ...intrinsics.numerics import Rounding
from ..parameters import MAX_EXTENT, Parameters, _integer, check_integer

MAX_WORDS = 1 << 16


@dataclass(frozen=True, kw_only=True)
class AcceleratorParameters(Parameters):
    """A complete accelerator with memory.

    Parameters
    ----------
    core : str
        ``output-stationary``, ``weight-stationary``, ``dot-product`` or ``outer-product``.
    rows, cols : int, 1..256
    lanes : int, 1..64
        Products per element and beat; more than 1 with the dot-product core only.
    spad_kib : int, 1..4096
        KiB of the scratchpad of each operand.
    acc_kib : int, 1..4096
        KiB of the accumulator memory, 4 bytes per sum.
    channel_words : int, 0..4096
        Blocks of ``cols`` output channels whose bias and multiplier are held; 0 leaves bias, requantisation and clamp out.
    residual_words : int, 0 or 2..65536
        Words of ``cols`` bytes of a tensor that the store path adds; 0 leaves that out. Needs ``channel_words``.
    port_bytes : int, 1..128, a power of two
    split : bool
    queue_depth : int, 1..64
    outstanding : int, 1..256
    bus : str
        ``native`` memory port or ``axi4``.
    commands : str
        From a ``stream``, or from memory-mapped ``registers`` (AXI4-Lite) with a queue of ``queue_depth`` commands.
    rounding : Rounding or str
    a, b : DType or str, 2..16 bits
    acc : DType, str or None
        Signed, at most 32 bits.
    overflow : Overflow or str
        FORBID (a program whose sums might not fit is refused) or WRAP.

    Raises
    ------
    ParameterError
    """

    family: ClassVar[str] = "accelerator"

    core: str = field(default="output-stationary", metadata={"kind": "choice", "help": "array core", "choices": CORES})
    rows: int = _integer("rows of the array", 1, MAX_EXTENT)
    cols: int = _integer("columns of the array", 1, MAX_EXTENT)
    lanes: int = _integer("products per element and beat (dot-product core)", 1, 64, 1)
    spad_kib: int = _integer("KiB of the scratchpad of each operand", 1, 4096, 64)
    acc_kib: int = _integer("KiB of the accumulator memory", 1, 4096, 128)
    channel_words: int = _integer("blocks of cols channels with bias and multiplier; 0: no requantisation", 0, 4096, 64)
    residual_words: int = _integer("words of cols residuals held for the store path to add; 0: no residual add", 0, MAX_WORDS, 0)
    port_bytes: int = _integer("bytes per beat of the memory port, a power of two", 1, 128, 16)
    split: bool = field(default=False, metadata={"kind": "flag", "help": "separate memory channels for reads and writes"})
    queue_depth: int = _integer("commands per queue", 1, 64, 8)
    outstanding: int = _integer("read requests in flight", 1, 256, 64)
    bus: str = field(default="native", metadata={"kind": "choice", "help": "memory port", "choices": BUSES})
    commands: str = field(default="stream", metadata={"kind": "choice", "help": "where commands come from", "choices": COMMAND_INPUTS})
    rounding: Rounding = field(
        default=Rounding.HALF_AWAY_FROM_ZERO,
        metadata={"kind": "choice", "help": "rounding of the requantisation", "choices": tuple(mode.value for mode in Rounding)},
    )

    def _settle(self) -> None:
        for name, choices in (("core", CORES), ("bus", BUSES), ("commands", COMMAND_INPUTS)):
            if getattr(self, name) not in choices:
                raise ParameterError(f"{name} must be one of {', '.join(choices)}, not {getattr(self, name)!r}")
        for name, high in (("rows", MAX_EXTENT), ("cols", MAX_EXTENT), ("lanes", 64), ("port_bytes", 128)):
            check_integer(name, getattr(self, name), 1, high)
        if self.residual_words == 1 or (self.residual_words and not self.channel_words):
            need = (
                "at least 2, or 0"
                if self.residual_words == 1
                else "0 without channel_words, because residuals are added while requantising"
            )
            raise ParameterError(f"residual_words must be {need}, not {self.residual_words}; nearest legal value: 0")
        if self.core != "dot-product" and self.lanes != 1:
            raise ParameterError(f"lanes of the {self.core} core must be 1, not {self.lanes}; nearest legal value: 1")
        if self.port_bytes & (self.port_bytes - 1):
            near = 1 << (self.port_bytes.bit_length() - 1)
            raise ParameterError(f"port_bytes must be a power of two from 1 to 128, not {self.port_bytes}; nearest legal value: {near}")
        beats, most = 4 * self.cols // self.port_bytes, (1 << STORE_PATH["beats"].width) - 1
        if beats > most:
            near = 1 << (4 * self.cols // (most + 1)).bit_length()
            raise ParameterError(
                f"port_bytes {self.port_bytes} makes {beats} beats of a row of {self.cols} sums; a store has at most {most}; "
                f"nearest legal value: {near}"
            )
        try:
            self._set("rounding", Rounding(self.rounding))
        except ValueError:
            allowed = ", ".join(mode.value for mode in Rounding)
            raise ParameterError(f"rounding must be one of {allowed}, not {self.rounding!r}") from None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.acc.signed or not ACC_WIDTHS[0] <= self.acc.width <= ACC_WIDTHS[1]:
            raise ParameterError(f"acc of an accelerator must be a signed type of 8 to 32 bits, not {self.acc}; nearest legal value: int32")
        words = self._word_bytes
        for operand, size in zip("AB", words, strict=True):
            self._check_memory("spad_kib", f"words per bank of {operand}", size, 2, words)
        self._check_memory("acc_kib", "rows of sums", 4 * self.cols, max(self.rows, 2), (4 * self.cols,))

    def _check_overflow(self, mode: Overflow) -> Overflow:
        if mode not in (Overflow.FORBID, Overflow.WRAP):
            raise ParameterError(
                f"overflow of an accelerator must be one of forbid, wrap, not {mode.value!r}: schedules choose the order of its additions; "
                f"nearest legal value: {Overflow.WRAP.value}"
            )
        return mode

    def _check_memory(self, name: str, what: str, size: int, least: int, sizes: tuple[int, ...]) -> None:
        """Refuse a memory whose words of ``size`` bytes are too few or too many; ``sizes`` are all that have to fit."""
        kib = getattr(self, name)
        count = 1024 * kib // size
        if least <= count <= MAX_WORDS:
            return
        low = max(ceil_div(least * each, 1024) for each in sizes)
        high = min([4096, *(((MAX_WORDS + 1) * each - 1) // 1024 for each in sizes)])
        raise ParameterError(
            f"{name} {kib} gives {count} {what}; allowed: {least} to {MAX_WORDS}, so {name} from {low} to {high}; "
            f"nearest legal value: {low if kib < low else high}"
        )

    @property
    def _word_bytes(self) -> tuple[int, int]:
        """Bytes of a word of all banks of A, and of B."""
        still = self.core == "weight-stationary"
        unit_a = (self.rows if still else self.lanes) * self.a.container_width // 8
        unit_b = (1 if still else self.lanes) * self.b.container_width // 8
        banks = 1 if still else self.rows
        return banks * unit_a * ceil_div(self.port_bytes, unit_a), self.cols * unit_b * ceil_div(self.port_bytes, unit_b)

    @property
    def tile_depth(self) -> int:
        return self.rows if self.core == "weight-stationary" else self.lanes

    @property
    def einsum(self) -> str:
        return "mk,kn->mn"

    @property
    def extents(self) -> dict[str, int]:
        if self.core == "weight-stationary":
            return {"m": 1, "n": self.cols, "k": self.rows}
        return {"m": self.rows, "n": self.cols, "k": self.lanes}

    @property
    def title(self) -> str:
        short = {"output-stationary": "os", "weight-stationary": "ws", "dot-product": "dp", "outer-product": "op"}[self.core]
        lanes = f"x{self.lanes}" if self.lanes > 1 else ""
        return f"accelerator_{short}_{self.rows}x{self.cols}{lanes}"

    @property
    def resident_operand(self) -> str | None:
        return "b" if self.core == "weight-stationary" else "acc"

    @property
    def timing(self) -> StreamTiming:
        """Timing of the core inside (the accelerator's own is in `AcceleratorMachine`)."""
        machine = self.accelerator_machine("")
        if machine.weight_stationary:
            return StreamTiming(preload=self.rows, min_interval=machine.min_interval, latency=self.rows + self.cols)
        rows = self.rows
        if machine.broadcast:
            return StreamTiming(min_interval=machine.min_interval, latency=2, result_beats=rows)
        return StreamTiming(min_interval=machine.min_interval, latency=self.cols + 2, result_interval=2, result_beats=rows)

    @property
    def streams(self) -> tuple[StreamLayout, ...]:
        """Operand streams of the core inside; the accelerator itself has a memory port."""
        still = self.core == "weight-stationary"
        return (
            StreamLayout(operand="a", port="i_a", beat_axes="m" if still else "", lane_axes="k" if still else "mk"),
            StreamLayout(operand="b", port="i_b", beat_axes="k" if still else "", lane_axes="n" if still else "nk", reverse=still),
            StreamLayout(operand="c", port="o_c", beat_axes="m", lane_axes="n"),
        )

    def accelerator_machine(self, design_hash: str, name: str = "") -> AcceleratorMachine:
        """What software may know of the design with this hash."""
        a_word, b_word = self._word_bytes
        return AcceleratorMachine(
            name=name,
            design_hash=design_hash,
            core=self.core,
            rows=self.rows,
            cols=self.cols,
            lanes=self.lanes,
            a=self.a,
            b=self.b,
            acc=self.acc,
            overflow=self.overflow,
            port_bytes=self.port_bytes,
            a_words=self.spad_kib * 1024 // a_word,
            b_words=self.spad_kib * 1024 // b_word,
            acc_rows=self.acc_kib * 1024 // (self.cols * 4),
            channel_words=self.channel_words,
            residual_words=self.residual_words,
            rounding=self.rounding,
            split=self.split,
            queue_depth=self.queue_depth,
            outstanding=self.outstanding,
            bus=self.bus,
            commands=self.commands,
        )
