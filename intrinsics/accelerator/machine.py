"""What software knows of an accelerator with memory: sizes and timing constants."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ..contraction import Contraction
from ..dtypes import DType
from ..errors import ParameterError
from ..numerics import Overflow, Rounding
from .command import COMMAND_BITS, Register, Target

CORES = ("output-stationary", "weight-stationary", "dot-product", "outer-product")
"""Array cores; the last two are one broadcast core, with and without lanes."""

BUSES = ("native", "axi4")
"""Memory ports."""

COMMAND_INPUTS = ("stream", "registers")
"""Where commands come from."""

ACC_WIDTHS = (8, 32)
"""Least and most bits of an accumulator."""

RESPONSE_REGISTER = 1
"""Cycles from data at the memory port to their place in the loader."""

AXI_REGISTER = 1
"""Cycles from a beat that leaves the accelerator to its place on AXI4 channels."""

REGISTER_WRITE = 2
"""Least cycles of a write to the memory-mapped queue; eight of them make a command."""

STORE_REGISTER = 1
"""Cycles from a row to its beats at the memory port."""

REQUANTIZE_STAGES = 3
"""Register stages of the store path behind the accumulator memory when it can requantise."""

CHANNEL_BYTES = 8
"""Bias and multiplier of one output channel in memory: two little-endian 32-bit numbers."""


def ceil_div(a: int, b: int) -> int:
    """Quotient rounded up."""
    return -(-a // b)


MOST_CYCLES = 1_000_000
"""Largest number of a `MemoryTiming`."""


@dataclass(frozen=True, kw_only=True)
class MemoryTiming:
    """The memory behind the port; all numbers are at most `MOST_CYCLES`.

    Parameters
    ----------
    latency : int, >= 1
        Cycles from a read request to its data; from the address of an AXI4 burst to its first beat, the others follow.
    jitter : int, >= 0
        Data and write responses may come up to this many cycles later; order is kept.
    write_latency : int, >= 1
        Cycles from the last beat of an AXI4 write burst to its response; the native port has none.
    refresh_interval, refresh_cycles : int, >= 0
        Every so many cycles the memory stands still for so many: it takes no request and gives no data. 0 for never.
    """

    latency: int = 20
    jitter: int = 0
    write_latency: int = 20
    refresh_interval: int = 0
    refresh_cycles: int = 0

    def __post_init__(self) -> None:
        for name, least in (("latency", 1), ("jitter", 0), ("write_latency", 1), ("refresh_interval", 0), ("refresh_cycles", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST_CYCLES:
                bound = f"most {MOST_CYCLES}" if isinstance(value, int) and value > MOST_CYCLES else f"least {least}"
                raise ParameterError(
                    f"memory {name} must be an integer of at {bound}, not {value!r}; nearest legal value: {bound.split()[1]}"
                )
        if self.refresh_cycles >= max(self.refresh_interval, 1):
            raise ParameterError(
                f"memory refresh_cycles must be below refresh_interval ({self.refresh_interval}), not {self.refresh_cycles}; "
                f"nearest legal value: {max(self.refresh_interval - 1, 0)}"
            )

    @property
    def exact(self) -> bool:
        """Whether every read takes the same time, so that cycles are known and not only an interval."""
        return not self.jitter and not self.refresh_cycles


@dataclass(frozen=True, kw_only=True)
class AcceleratorMachine:
    """Sizes and timing constants of one accelerator; `hw` makes it from a design point and builds RTL that keeps it.

    Parameters
    ----------
    name, design_hash : str
    core : str
        One of `CORES`.
    rows, cols, lanes : int
        Grid of the array, and products per element and beat.
    a, b, acc : DType
    overflow : Overflow
        FORBID or WRAP.
    port_bytes : int
        Bytes of one beat, a power of two.
    a_words, b_words : int
        Words of one scratchpad bank.
    acc_rows : int
        Rows of the accumulator memory, ``cols`` sums each.
    channel_words : int
        Words of the memory of biases and multipliers, ``cols`` channels each; 0 if the store path cannot requantise.
    residual_words : int
        Words of the memory of residuals, ``cols`` bytes each; 0 if the store path cannot add any.
    rounding : Rounding
        Of the requantisation.
    split : bool
        Separate channels for reads and writes, and a queue of its own for stores.
    queue_depth, outstanding : int
        Commands per queue; read requests in flight.
    bus : str
        One of `BUSES`.
    commands : str
        One of `COMMAND_INPUTS`.
    """

    name: str
    design_hash: str
    core: str
    rows: int
    cols: int
    lanes: int
    a: DType
    b: DType
    acc: DType
    overflow: Overflow
    port_bytes: int
    a_words: int
    b_words: int
    acc_rows: int
    channel_words: int
    residual_words: int
    rounding: Rounding
    split: bool
    queue_depth: int
    outstanding: int
    bus: str = "native"
    commands: str = "stream"

    @property
    def axi(self) -> bool:
        """Whether memory is behind AXI4."""
        return self.bus == "axi4"

    @property
    def mapped(self) -> bool:
        """Whether commands come through registers."""
        return self.commands == "registers"

    @property
    def weight_stationary(self) -> bool:
        """Whether B stays in the array and A is read along k."""
        return self.core == "weight-stationary"

    @property
    def broadcast(self) -> bool:
        """Whether operands reach all elements at once, which vector mode needs."""
        return self.core in ("dot-product", "outer-product")

    # ---- geometry of the scratchpads

    @property
    def a_bytes(self) -> int:
        """Bytes of an element of A in memory."""
        return self.a.container_width // 8

    @property
    def b_bytes(self) -> int:
        """Bytes of an element of B in memory."""
        return self.b.container_width // 8

    @property
    def k_unit(self) -> int:
        """Elements along k that one read of a scratchpad gives each row: ``lanes``, or ``rows`` of the weight-stationary core."""
        return self.rows if self.weight_stationary else self.lanes

    @property
    def a_banks(self) -> int:
        """Banks of the A scratchpad."""
        return 1 if self.weight_stationary else self.rows

    @property
    def b_banks(self) -> int:
        """Banks of the B scratchpad."""
        return self.cols

    @property
    def a_unit(self) -> int:
        """Bytes that one read takes from a word of A."""
        return self.k_unit * self.a_bytes

    @property
    def b_unit(self) -> int:
        """Bytes that one read takes from a word of B (the weight-stationary core reads one k at a time)."""
        return (1 if self.weight_stationary else self.lanes) * self.b_bytes

    @property
    def a_word(self) -> int:
        """Bytes of a word of A: a beat, rounded up to whole units."""
        return self.a_unit * ceil_div(self.port_bytes, self.a_unit)

    @property
    def b_word(self) -> int:
        """Bytes of a word of B."""
        return self.b_unit * ceil_div(self.port_bytes, self.b_unit)

    @property
    def channel_word(self) -> int:
        """Bytes of a word of the memory of biases and multipliers, whole beats."""
        return ceil_div(self.cols * CHANNEL_BYTES, self.port_bytes) * self.port_bytes

    @property
    def requantizes(self) -> bool:
        """Whether the store path has bias, multiplier and clamp."""
        return self.channel_words > 0

    @property
    def adds_residuals(self) -> bool:
        """Whether the store path adds a tensor from memory."""
        return self.residual_words > 0

    @property
    def residual_word(self) -> int:
        """Bytes that the loader collects for a word of residuals; never filled, so that only the end of a run writes it."""
        return max(self.cols, self.port_bytes) + 1

    def memory_of(self, target: Target) -> tuple[int, int, int]:
        """Banks, words per bank and bytes of a word of the memory that a load fills."""
        return {
            Target.A: (self.a_banks, self.a_words, self.a_word),
            Target.B: (self.b_banks, self.b_words, self.b_word),
            Target.CHANNELS: (1, self.channel_words, self.channel_word),
            Target.RESIDUAL: (1, self.residual_words, self.residual_word),
        }[target]

    def packed_bytes(self, target: Target) -> int:
        """Bytes that the loader writes at once: a word, but of biases and multipliers a beat."""
        return self.port_bytes if target is Target.CHANNELS else self.memory_of(target)[2]

    @property
    def targets(self) -> tuple[Target, ...]:
        """What a load may fill."""
        return tuple(target for target in Target if self.memory_of(target)[1])

    @property
    def registers(self) -> tuple[Register, ...]:
        """Configuration registers of the design."""
        return (*(Register(target) for target in self.targets), Register.STORE)

    # ---- timing constants (docs/decisions/004-accelerator.md)

    @property
    def min_interval(self) -> int:
        """Least distance of the ends of two passes."""
        return max(2 * self.rows - 1 if self.core == "output-stationary" else self.rows, 2)

    @property
    def preload(self) -> int:
        """Cycles of a compute command before its first pass."""
        return self.rows if self.weight_stationary else 0

    @property
    def read_register(self) -> int:
        """Cycles that the memory port adds to the latency of a read."""
        return RESPONSE_REGISTER + (AXI_REGISTER if self.axi else 0)

    def confirmation(self, write_latency: int, empty_beats: int) -> int:
        """Cycles from a store counted to its last write confirmed, which SET and END await; its last ``empty_beats`` carry nothing."""
        return max(0, AXI_REGISTER + write_latency - empty_beats) if self.axi else 0

    @property
    def command_interval(self) -> int:
        """Least distance of commands that arrive; 0 if they are always there."""
        return COMMAND_BITS // 32 * REGISTER_WRITE if self.mapped else 0

    @property
    def store_latency(self) -> int:
        """Cycles that the store path adds."""
        return STORE_REGISTER + (REQUANTIZE_STAGES if self.requantizes else 0)

    def interval(self, k_units: int) -> int:
        """Distance of successive passes of ``k_units`` beats."""
        return max(k_units, self.min_interval)

    def tail(self, k_units: int) -> int:
        """Cycles from the end of a compute command's last pass to its last accumulator row written."""
        if self.weight_stationary:
            return self.rows + self.cols + 2 - (self.interval(k_units) - k_units)
        return self.cols + 4 + 2 * (self.rows - 1) if self.core == "output-stationary" else 4 + self.rows - 1

    @functools.cached_property
    def max_k(self) -> int | None:
        """Longest reduction whose sums provably fit the accumulator, or None if it wraps."""
        if self.overflow is not Overflow.FORBID:
            return None
        return Contraction("k,k->", {"k": 1}, self.a, self.b, self.acc, self.overflow).max_depth

    @property
    def macs_per_cycle(self) -> int:
        """Peak multiply-accumulates per cycle."""
        return self.rows * self.cols * (1 if self.weight_stationary else self.lanes)
