"""Parameter records, one per family of blocks: validation, timing constants, streams and instruction. No HDL here.

The dataclass fields carry their help text and limits as metadata, so that validation and the options of the command
line come from one place.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..intrinsics import Contraction, DType, Instruction, Overflow, ParameterError, StreamLayout, StreamTiming
from ..intrinsics.contraction import overflow_of
from ..intrinsics.numerics import min_acc_width

MAX_EXTENT = 256
"""Most rows, columns, lanes, or products per lane."""

MAX_DEPTH = 65536
"""Longest reduction of one tile that is streamed beat by beat."""

MAX_PIPELINE = 4
"""Most extra register stages of a dot-product unit."""

OPERAND_WIDTHS = (2, 16)
"""Least and greatest operand width in bits."""

MAX_SATURATING_WIDTH = 62
"""Widest saturating accumulator: one more addition then still fits the 64-bit arithmetic of the reference."""


class Dataflow(enum.Enum):
    """What stays inside a systolic array."""

    OUTPUT_STATIONARY = "output-stationary"  #: each PE keeps one element of C; operands pass through
    WEIGHT_STATIONARY = "weight-stationary"  #: each PE keeps one element of B; activations and partial sums pass through


def _integer(text: str, low: int, high: int, default: Any = dataclasses.MISSING) -> Any:
    return field(default=default, metadata={"kind": "integer", "help": text, "low": low, "high": high})


_ACC_HELP = "accumulator type; default int32 if one tile provably fits, else the narrowest type that it fits"
_OVERFLOW = {"kind": "choice", "help": "what the accumulator does on overflow"}


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """What every family shares: two operand types, an accumulator type, an overflow mode."""

    family: ClassVar[str]
    overflow_modes: ClassVar[tuple[Overflow, ...]] = (Overflow.FORBID, Overflow.WRAP, Overflow.SATURATE)

    a: DType = field(default=DType(8), metadata={"kind": "dtype", "help": "type of operand A (activations)"})
    b: DType = field(default=DType(8), metadata={"kind": "dtype", "help": "type of operand B (weights)"})
    acc: DType = field(default=None, metadata={"kind": "dtype", "help": _ACC_HELP})  # type: ignore[assignment]
    overflow: Overflow = field(default=Overflow.FORBID, metadata=_OVERFLOW)

    def __post_init__(self) -> None:
        self._settle()
        for spec in dataclasses.fields(self):
            if spec.metadata["kind"] == "integer":
                check_integer(spec.name, getattr(self, spec.name), spec.metadata["low"], spec.metadata["high"])
            elif spec.metadata["kind"] == "flag" and not isinstance(getattr(self, spec.name), bool):
                raise ParameterError(f"{spec.name} must be true or false, not {getattr(self, spec.name)!r}")
        for name in "ab":
            self._set(name, _check_operand(name, getattr(self, name)))
        self._set("overflow", self._check_overflow(overflow_of(self.overflow)))
        self._set("acc", self._default_acc() if self.acc is None else DType.of(self.acc))
        if self.overflow in (Overflow.SATURATE, Overflow.SATURATE_ONCE) and self.acc.width > MAX_SATURATING_WIDTH:
            nearest = DType(MAX_SATURATING_WIDTH, self.acc.signed)
            raise ParameterError(
                f"a saturating accumulator must be at most {MAX_SATURATING_WIDTH} bits wide, not {self.acc}; nearest legal value: {nearest}"
            )
        _ = self.contraction

    def _settle(self) -> None:
        """Fill in defaults that depend on other parameters."""

    def _check_overflow(self, mode: Overflow) -> Overflow:
        if mode not in self.overflow_modes:
            allowed = ", ".join(allowed.value for allowed in self.overflow_modes)
            raise ParameterError(
                f"overflow of {self.family} must be one of {allowed}, not {mode.value!r}: it adds one product at a time; "
                f"nearest legal value: {Overflow.SATURATE.value}"
            )
        return mode

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _default_acc(self) -> DType:
        return DType(max(32, min_acc_width(self.a, self.b, self.tile_depth)))

    @property
    def tile_depth(self) -> int:
        """Products that are summed into one element of C by one tile call."""
        raise NotImplementedError

    @property
    def einsum(self) -> str:
        """The block's full einsum, with the axes that may have extent 1."""
        raise NotImplementedError

    @property
    def extents(self) -> dict[str, int]:
        """Extent of every axis of `einsum`."""
        raise NotImplementedError

    @property
    def title(self) -> str:
        """Family and shape for names: ``systolic_os_8x8``."""
        raise NotImplementedError

    @property
    def resident_operand(self) -> str | None:
        """What may stay inside between tile calls: ``"acc"``, ``"b"`` or nothing."""
        raise NotImplementedError

    @property
    def timing(self) -> StreamTiming:
        """Timing constants, which the RTL keeps and tests measure."""
        raise NotImplementedError

    @property
    def streams(self) -> tuple[StreamLayout, ...]:
        """Layouts of the streams ``i_a``, ``i_b``, ``o_c``."""
        raise NotImplementedError

    @functools.cached_property
    def contraction(self) -> Contraction:
        """What one tile call computes."""
        return Contraction(self.einsum, self.extents, self.a, self.b, self.acc, self.overflow)

    @functools.cached_property
    def instruction(self) -> Instruction:
        """The block as an instruction.

        ``latency`` counts from the first operand beat (weights included) to the first result beat of one tile;
        ``initiation_interval`` is the distance of tiles that share nothing.
        """
        beats = self.streams[0].beats(self.contraction)
        to_result = beats if self.resident_operand == "acc" else 1
        return Instruction(
            name=f"celosia_{self.title.rsplit('_', 1)[0]}_{self.contraction.label}",
            contraction=self.contraction,
            latency=self.timing.preload + to_result - 1 + self.timing.latency,
            initiation_interval=max(beats, self.timing.min_interval),
            resident=self.resident_operand,
            source=f"celosia.hw {self.family}",
        )

    def lanes_of(self, operand: str) -> int:
        """Elements of one beat of the stream of operand ``"a"``, ``"b"`` or ``"c"``."""
        layout = next(stream for stream in self.streams if stream.operand == operand)
        return layout.lanes(self.contraction)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, with every default filled in."""
        return {spec.name: plain(getattr(self, spec.name)) for spec in dataclasses.fields(self)}


@dataclass(frozen=True, kw_only=True)
class SystolicParameters(Parameters):
    """A grid of rows x cols processing elements.

    Parameters
    ----------
    rows, cols : int, 1..256
    dataflow : Dataflow or str
    depth : int, 1..65536
        Reduction length of one tile. Output-stationary: default 16; weight-stationary: always ``rows``.
    vectors : int, 1..65536
        Activation vectors of one tile. Weight-stationary: default ``rows``; output-stationary: always ``rows``.
    a, b : DType or str, 2..16 bits
    acc : DType, str or None
    overflow : Overflow or str

    Raises
    ------
    ParameterError
    """

    family: ClassVar[str] = "systolic"

    rows: int = _integer("rows of the PE grid", 1, MAX_EXTENT)
    cols: int = _integer("columns of the PE grid", 1, MAX_EXTENT)
    dataflow: Dataflow = field(
        default=Dataflow.OUTPUT_STATIONARY,
        metadata={"kind": "choice", "help": "what stays inside the array", "choices": tuple(flow.value for flow in Dataflow)},
    )
    depth: int = _integer("reduction length of one tile; output-stationary: default 16, weight-stationary: rows", 1, MAX_DEPTH, None)
    vectors: int = _integer("activation vectors of one tile; weight-stationary only, default rows", 1, MAX_DEPTH, None)

    def _settle(self) -> None:
        for name in ("rows", "cols"):
            check_integer(name, getattr(self, name), 1, MAX_EXTENT)
        try:
            self._set("dataflow", Dataflow(self.dataflow))
        except ValueError:
            allowed = ", ".join(flow.value for flow in Dataflow)
            flows = {flow.value: flow for flow in Dataflow}
            raise ParameterError(f"dataflow must be one of {allowed}, not {self.dataflow!r}{closest(self.dataflow, flows)}") from None
        fixed, free, default = ("depth", "vectors", self.rows) if self.weight_stationary else ("vectors", "depth", 16)
        if getattr(self, fixed) not in (None, self.rows):
            raise ParameterError(
                f"{fixed} of this {self.dataflow.value} array must be rows ({self.rows}) or absent, "
                f"not {getattr(self, fixed)!r}; nearest legal value: {self.rows}"
            )
        self._set(fixed, self.rows)
        if getattr(self, free) is None:
            self._set(free, default)

    @property
    def weight_stationary(self) -> bool:
        """Whether B stays inside."""
        return self.dataflow is Dataflow.WEIGHT_STATIONARY

    @property
    def tile_depth(self) -> int:
        return self.depth

    @property
    def einsum(self) -> str:
        return "mk,kn->mn"

    @property
    def extents(self) -> dict[str, int]:
        return {"m": self.vectors, "n": self.cols, "k": self.depth}

    @property
    def title(self) -> str:
        return f"systolic_{'ws' if self.weight_stationary else 'os'}_{self.rows}x{self.cols}"

    @property
    def resident_operand(self) -> str | None:
        return "b" if self.weight_stationary else "acc"

    @property
    def timing(self) -> StreamTiming:
        """Timing constants.

        Output-stationary: a beat accepted in cycle x is multiplied in PE(i, j) in x+1+i+j; the finished sum enters the
        output chain in x+3+i+j and row i is on top of column j in x+3+2i+j, so all columns of row 0 are aligned in
        x+cols+2. Two passes meet in the chain unless their last beats are at least 2*rows-1 apart.

        Weight-stationary: a vector accepted in cycle x leaves in x+rows+cols. Weight beat t only moves rows 0..t, right
        behind the swap wave, so the next tile loads while the wave is still running: one tile per ``rows`` cycles.
        """
        if self.weight_stationary:
            return StreamTiming(preload=self.rows, min_interval=self.rows, latency=self.rows + self.cols)
        return StreamTiming(min_interval=2 * self.rows - 1, latency=self.cols + 2, result_interval=2, result_beats=self.rows)

    @property
    def streams(self) -> tuple[StreamLayout, ...]:
        if self.weight_stationary:
            return _layouts(a="m/k", b="k/n", c="m/n", reverse_b=True)
        return _layouts(a="k/m", b="k/n", c="m/n")


@dataclass(frozen=True, kw_only=True)
class DotProductParameters(Parameters):
    """Lanes of dot products that share one vector of A.

    Parameters
    ----------
    lanes : int, 1..256
        Elements of C, each with its own ``depth`` multipliers.
    depth : int, 1..256
        Products per lane and beat.
    resident : bool
        Accumulators stay inside until ``last``.
    pipeline : int, 0..4
        Extra register stages between the multipliers and the output.
    a, b : DType or str, 2..16 bits
    acc : DType, str or None
    overflow : Overflow or str
        The products of one beat are summed exactly, so saturation is always ``saturate-once`` (per beat);
        ``saturate`` is read as that.

    Raises
    ------
    ParameterError
    """

    family: ClassVar[str] = "dot-product"
    overflow_modes: ClassVar[tuple[Overflow, ...]] = (Overflow.FORBID, Overflow.WRAP, Overflow.SATURATE_ONCE)

    lanes: int = _integer("dot products computed side by side", 1, MAX_EXTENT)
    depth: int = _integer("products per lane and beat", 1, MAX_EXTENT)
    resident: bool = field(default=False, metadata={"kind": "flag", "help": "accumulators stay inside until the last beat of a pass"})
    pipeline: int = _integer("extra register stages between multipliers and output", 0, MAX_PIPELINE, 0)

    def _settle(self) -> None:
        check_integer("depth", self.depth, 1, MAX_EXTENT)

    def _check_overflow(self, mode: Overflow) -> Overflow:
        return Overflow.SATURATE_ONCE if mode is Overflow.SATURATE else mode

    @property
    def tile_depth(self) -> int:
        return self.depth

    @property
    def einsum(self) -> str:
        return "k,kn->n"

    @property
    def extents(self) -> dict[str, int]:
        return {"n": self.lanes, "k": self.depth}

    @property
    def title(self) -> str:
        return f"dot_{self.lanes}x{self.depth}"

    @property
    def resident_operand(self) -> str | None:
        return "acc" if self.resident else None

    @property
    def timing(self) -> StreamTiming:
        """One beat per cycle; the output register plus the extra stages."""
        return StreamTiming(latency=1 + self.pipeline)

    @property
    def streams(self) -> tuple[StreamLayout, ...]:
        return _layouts(a="/k", b="/nk", c="/n")


@dataclass(frozen=True, kw_only=True)
class OuterProductParameters(Parameters):
    """A grid of rows x cols accumulators that add one outer product per beat.

    Parameters
    ----------
    rows, cols : int, 1..256
    depth : int, 1..65536
        Beats, so products per element of C, of one tile.
    a, b : DType or str, 2..16 bits
    acc : DType, str or None
    overflow : Overflow or str

    Raises
    ------
    ParameterError
    """

    family: ClassVar[str] = "outer-product"

    rows: int = _integer("rows of the grid of accumulators", 1, MAX_EXTENT)
    cols: int = _integer("columns of the grid of accumulators", 1, MAX_EXTENT)
    depth: int = _integer("outer products summed by one tile", 1, MAX_DEPTH, 1)

    def _settle(self) -> None:
        check_integer("depth", self.depth, 1, MAX_DEPTH)

    @property
    def tile_depth(self) -> int:
        return self.depth

    @property
    def einsum(self) -> str:
        return "mk,kn->mn"

    @property
    def extents(self) -> dict[str, int]:
        return {"m": self.rows, "n": self.cols, "k": self.depth}

    @property
    def title(self) -> str:
        return f"outer_{self.rows}x{self.cols}"

    @property
    def resident_operand(self) -> str | None:
        return "acc"

    @property
    def timing(self) -> StreamTiming:
        """A beat accepted in cycle x is multiplied in x+1 and summed in x+2; the sums are copied to the output in x+3.

        Rows leave one per cycle, so the next copy must be at least ``rows`` cycles later.
        """
        return StreamTiming(min_interval=self.rows, latency=3, result_beats=self.rows)

    @property
    def streams(self) -> tuple[StreamLayout, ...]:
        return _layouts(a="k/m", b="k/n", c="m/n")


def _layouts(*, a: str, b: str, c: str, reverse_b: bool = False) -> tuple[StreamLayout, ...]:
    """Streams of a block; each argument is ``"<beat axes>/<lane axes>"``."""
    split = {"i_a": a.split("/"), "i_b": b.split("/"), "o_c": c.split("/")}
    return tuple(
        StreamLayout(operand=port[-1], port=port, beat_axes=beats, lane_axes=lanes, reverse=reverse_b and port == "i_b")
        for port, (beats, lanes) in split.items()
    )


def check_integer(name: str, value: object, low: int, high: int) -> None:
    """Raise `ParameterError` unless ``value`` is an integer from ``low`` to ``high``."""
    nearest = low
    if isinstance(value, int) and not isinstance(value, bool):
        if low <= value <= high:
            return
        nearest = min(max(value, low), high)
    raise ParameterError(f"{name} must be an integer from {low} to {high}, not {value!r}; nearest legal value: {nearest}")


def _check_operand(name: str, value: DType | str) -> DType:
    dtype = DType.of(value)
    low, high = OPERAND_WIDTHS
    if not low <= dtype.width <= high:
        nearest = DType(min(max(dtype.width, low), high), dtype.signed)
        raise ParameterError(f"operand {name} must be {low} to {high} bits wide, not {dtype}; nearest legal value: {nearest}")
    return dtype


def plain(value: Any) -> Any:
    """A parameter as JSON has it."""
    if isinstance(value, enum.Enum):
        return value.value
    return value.name if isinstance(value, DType) else value


FAMILIES: Mapping[str, type[Parameters]] = {
    record.family: record for record in (SystolicParameters, DotProductParameters, OuterProductParameters)
}
"""Parameter record of every family, by the family's name."""


def family_of(family: str) -> type[Parameters]:
    """Parameter record of a family, or `ParameterError` with the nearest name."""
    if family == "accelerator":  # has a memory port instead of streams, so it is not in the table
        from .accelerator.parameters import AcceleratorParameters as Accelerator

        return Accelerator
    record = FAMILIES.get(family) if isinstance(family, str) else None
    if record is None:
        raise ParameterError(f"family must be one of {', '.join(FAMILIES)}, not {family!r}{closest(family, FAMILIES)}")
    return record


def closest(word: object, allowed: Mapping[str, Any]) -> str:
    """The clause ``; did you mean 'x'?``, or nothing."""
    match = difflib.get_close_matches(str(word), allowed, n=1)
    return f"; did you mean {match[0]!r}?" if match else ""
