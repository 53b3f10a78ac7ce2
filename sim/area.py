"""Area of a design: a structural estimate that costs microseconds, and full synthesis that it is checked against.

Unit: transistors of NAND, NOR and NOT gates and of flip-flops (16 each), as Yosys ``stat -tech cmos`` counts them after
mapping for area; no wires, no clock tree. The estimate adds up elements (`area_elements`), each synthesised by itself:

    area = sum over parts of count x figure, with counts from the structure of the block:
    output-stationary   R C multiply-accumulates, operand registers, skew R(R-1)/2 and C(C-1)/2, output chain, deskew
    weight-stationary   R C partial sums (row i no wider than i+1 products need), two weight registers, skew, deskew
    outer product       R C multiply-accumulates, operand registers, output copy
    dot product         lanes x (depth multipliers + adder tree + accumulator), pipeline registers

An accelerator adds its memories and what is around its core (`area_accelerator`).
What the structure does not name, the controller, is the difference between a small synthesised design and its parts.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..hw.parameters import DotProductParameters, OuterProductParameters, Parameters, SystolicParameters
from ..intrinsics import DType, Overflow, ParameterError
from ..intrinsics.numerics import min_acc_width
from .area_elements import PARALLEL_BITS, Element, Figure, cached_figure, figure_of, shipped

if TYPE_CHECKING:
    from ..hw.design_point import DesignPoint

MEASURED_COUNTS = (1, 2, 3, 4, 6, 8, 16)
"""Operands of an adder tree that are synthesised; between and beyond them area is linear, within 1 %."""
MEASURED_ROWS = (1, 2, 4, 8, 16)
"""Rows of which the controller is measured."""


@dataclass(frozen=True, kw_only=True)
class AreaEstimate:
    """Area of one design.

    Parameters
    ----------
    transistors : int
        Static CMOS gates plus 16 for each flip-flop.
    flip_flops : int
        Number of one-bit registers.
    source : "estimate" or "synthesis"
    design_hash : str
    breakdown_transistors : mapping
        Transistors by part of the block; sums to ``transistors``. A synthesis is flat: empty, or logic and memories.
    """

    transistors: int
    flip_flops: int
    source: str
    design_hash: str
    breakdown_transistors: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "transistors": self.transistors,
            "flip_flops": self.flip_flops,
            "source": self.source,
            "design_hash": self.design_hash,
            "breakdown_transistors": dict(self.breakdown_transistors),
        }


Part = tuple[float, float]
"""Transistors and flip-flops."""


def estimate_area(point: DesignPoint) -> AreaEstimate:
    """Area from the figures of the elements; microseconds once they are known, a second or so for each that is not shipped.

    Raises
    ------
    ParameterError
        If the family has no structural formula.
    ToolNotFoundError, ToolFailedError
        If an element has to be synthesised and cannot be.
    """
    parts = _accelerator(point) if point.family == "accelerator" else parts_of(point.parameters)
    breakdown = {name: round(part[0]) for name, part in parts.items()}
    flip_flops = round(sum(part[1] for part in parts.values()))
    return AreaEstimate(
        transistors=sum(breakdown.values()),
        flip_flops=flip_flops,
        source="estimate",
        design_hash=point.hash,
        breakdown_transistors=breakdown,
    )


def synthesize_area(point: DesignPoint) -> AreaEstimate:
    """Area of the whole design by Yosys; seconds to minutes, remembered in the cache. Memories count as in the estimate.

    Raises
    ------
    ToolNotFoundError, ToolFailedError
    """
    figure = cached_figure(_rtlil(point))
    cells = {"memories": round(_accelerator(point)["memories"][0])} if point.family == "accelerator" else {}
    return AreaEstimate(
        transistors=figure.transistors + sum(cells.values()),
        flip_flops=figure.flip_flops,
        source="synthesis",
        design_hash=point.hash,
        breakdown_transistors={"logic": figure.transistors, **cells} if cells else {},
    )


def _rtlil(point: DesignPoint) -> str:
    from ..hw.accelerator.emit import rtlil_of

    return rtlil_of(point.component(), name="top")


# ---- structure


def parts_of(parameters: Parameters) -> dict[str, Part]:
    """Transistors and flip-flops of each part of a block."""
    return {**_structure(parameters), "controller": _controller(parameters)}


def _accelerator(point: DesignPoint) -> dict[str, Part]:
    from .area_accelerator import accelerator_parts, memory_bits

    return accelerator_parts(point.parameters, memory_bits(point))  # type: ignore[arg-type]


def _structure(p: Parameters) -> dict[str, Part]:
    if isinstance(p, SystolicParameters):
        return _weight_stationary(p) if p.weight_stationary else _output_stationary(p)
    if isinstance(p, OuterProductParameters):
        return _outer_product(p)
    if isinstance(p, DotProductParameters):
        return _dot_product(p) if p.pipeline == 0 else _pipelined_dot_product(p)
    raise ParameterError(f"there is no area estimate for family {p.family!r}; synthesize_area measures any design")


def _output_stationary(p: SystolicParameters) -> dict[str, Part]:
    rows, cols, wa, wb, wc = p.rows, p.cols, p.a.width, p.b.width, p.acc.width
    skew_a, skew_b = wa * rows * (rows - 1) // 2, wb * cols * (cols - 1) // 2
    flags = rows + cols - 1 + max(rows + cols - 1, cols + 1)
    return {
        "multiply-accumulate": times(rows * cols, _mac(p.a, p.b, p.acc, p.overflow)),
        "operand registers": plus(
            bits_part("delay", rows * (cols - 1) * wa + rows * cols * wb + skew_a + skew_b), bits_part("gated", rows * wa)
        ),
        "output chain": plus(bits_part("select", (rows - 1) * cols * wc), bits_part("delay", cols * wc)),
        "output alignment": bits_part("delay", wc * cols * (cols - 1) // 2),
        "wave flags": bits_part("flag", flags),
    }


def _weight_stationary(p: SystolicParameters) -> dict[str, Part]:
    rows, cols, wa, wb = p.rows, p.cols, p.a.width, p.b.width
    sums, last_width = _partial_sums(p.a, p.b, p.acc, p.overflow, rows)
    registers = wa * (rows * cols + rows * (rows - 1) // 2)
    return {
        "partial sums": times(cols, sums),
        "activation registers": bits_part("delay", registers),
        "weight registers": plus(
            bits_part("delay", 2 * rows * cols * wb + wb * cols * (cols - 1) // 2), _enables(rows * cols + rows + cols - 1)
        ),
        "output alignment": bits_part("delay", last_width * cols * (cols - 1) // 2),
        "wave flags": plus(bits_part("flag", 2 * (rows + cols) - 2 + rows * (cols - 1)), bits_part("delay", rows + cols)),
    }


def _outer_product(p: OuterProductParameters) -> dict[str, Part]:
    rows, cols, wc = p.rows, p.cols, p.acc.width
    return {
        "multiply-accumulate": times(rows * cols, _mac(p.a, p.b, p.acc, p.overflow)),
        "operand registers": bits_part("delay", rows * p.a.width + cols * p.b.width),
        "output copy": plus(bits_part("select", (rows - 1) * cols * wc), bits_part("delay", cols * wc)),
    }


def _dot_product(p: DotProductParameters) -> dict[str, Part]:
    transistors = _interpolated("lane", (p.a.short, p.b.short), p.depth, (p.acc.short, _mode(p.overflow), int(p.resident)))
    width = p.acc.width if p.resident else min(p.acc.width, p.a.width + p.b.width + _levels(p.depth))
    return {"lanes": (p.lanes * transistors, p.lanes * width)}


def _pipelined_dot_product(p: DotProductParameters) -> dict[str, Part]:
    stages = _registers_per_level(p.depth, p.pipeline)
    cuts = [level for level, count in enumerate(stages) if count]
    signed = p.a.signed or p.b.signed
    width, count = p.a.width + p.b.width, p.depth
    trees, bits = 0.0, stages[0] * width * count
    for here, there in itertools.pairwise(cuts):
        group = 1 << (there - here)
        full, rest = divmod(count, group)
        value = DType(width, signed).short
        trees += full * _interpolated("sum", (value,), group, ()) + (_interpolated("sum", (value,), rest, ()) if rest > 1 else 0)
        width, count = width + there - here, full + (rest > 0)
        bits += stages[there] * width * count
    tail = _interpolated("tail", (DType(width, signed).short,), count, (p.acc.short, _mode(p.overflow), int(p.resident)))
    final = p.acc.width if p.resident else min(p.acc.width, width + _levels(count))
    flags = plus(bits_part("flag", p.pipeline), bits_part("delay", p.pipeline * (1 + p.resident)))
    return {
        "multipliers": (p.lanes * p.depth * figure_of(Element("multiply", (p.a.short, p.b.short))).transistors, 0),
        "adder trees": (p.lanes * trees, 0),
        "pipeline registers": plus(bits_part("delay", p.lanes * bits), flags),
        "accumulators": (p.lanes * tail, p.lanes * final),
    }


def _registers_per_level(depth: int, pipeline: int) -> list[int]:
    levels = _levels(depth) + 1
    counts = [0] * levels
    for stage in range(pipeline):
        counts[stage * levels // pipeline] += 1
    return counts


def _levels(count: int) -> int:
    return (count - 1).bit_length()


# ---- parts


def _mode(overflow: Overflow) -> str:
    """A proven accumulator is built like one that wraps."""
    return Overflow.WRAP.value if overflow is Overflow.FORBID else overflow.value


@functools.cache
def _mac(a: DType, b: DType, acc: DType, overflow: Overflow) -> Part:
    return _part(figure_of(Element("mac", (a.short, b.short, acc.short, _mode(overflow)))))


def products_part(a: DType, b: DType, count: int, acc: DType, overflow: Overflow) -> Part:
    """An accumulator that adds ``count`` products at a time."""
    if count == 1:
        return _mac(a, b, acc, overflow)
    return _interpolated("lane", (a.short, b.short), count, (acc.short, _mode(overflow), 1)), float(acc.width)


@functools.cache
def _partial_sums(a: DType, b: DType, acc: DType, overflow: Overflow, rows: int) -> tuple[Part, int]:
    """One column of a weight-stationary array, and the width of its last sum."""
    above, mode = _sum_type(a, b, acc, overflow, 1)
    column = _part(figure_of(Element("product", (a.short, b.short, above.short, mode))))
    for row in range(2, rows + 1):
        here, mode = _sum_type(a, b, acc, overflow, row)
        column = plus(column, _part(figure_of(Element("partial", (a.short, b.short, above.short, here.short, mode)))))
        above = here
    return column, above.width


def _sum_type(a: DType, b: DType, acc: DType, overflow: Overflow, products: int) -> tuple[DType, str]:
    """Type of a partial sum, no wider than its range needs, and what it does on overflow."""
    signed = a.signed or b.signed
    exact = DType(min_acc_width(a, b, products, signed=signed), signed)
    return (exact, Overflow.WRAP.value) if acc.contains(exact) else (acc, _mode(overflow))


@functools.cache
def _interpolated(kind: str, before: tuple[str, ...], count: int, after: tuple[int | str, ...]) -> float:
    """Transistors of an element with ``count`` operands, linear between those of `MEASURED_COUNTS`."""

    def measured(operands: int) -> int:
        return figure_of(Element(kind, (*before, operands, *after))).transistors

    if count in MEASURED_COUNTS:
        return measured(count)
    return _line(count, MEASURED_COUNTS, measured)


def _line(x: float, grid: tuple[int, ...], value: Any) -> float:
    """Piecewise linear through ``value`` at ``grid``; the last piece goes on."""
    high = next((point for point in grid[1:] if point >= x), grid[-1])
    low = grid[grid.index(high) - 1]
    return float(value(low) + (x - low) * (value(high) - value(low)) / (high - low))


@functools.cache
def _bit(kind: str) -> Part:
    figure = figure_of(Element(kind))
    return figure.transistors / PARALLEL_BITS, figure.flip_flops / PARALLEL_BITS


def bits_part(kind: str, count: int) -> Part:
    """``count`` of a linear element."""
    transistors, flip_flops = _bit(kind)
    return count * transistors, count * flip_flops


def _enables(count: int) -> Part:
    """Second conditions of enables: what a bit with its own enable costs above one that shares it."""
    return count * (_bit("enable")[0] - _bit("delay")[0]), 0.0


def _part(figure: Figure) -> Part:
    return float(figure.transistors), float(figure.flip_flops)


def times(count: int, part: Part) -> Part:
    """``count`` copies of a part."""
    return count * part[0], count * part[1]


def plus(first: Part, second: Part) -> Part:
    """Two parts together."""
    return first[0] + second[0], first[1] + second[1]


# ---- controller


def _controller(p: Parameters) -> Part:
    if isinstance(p, DotProductParameters):
        return measured_controller("dot-resident" if p.resident else "dot", 1)
    if isinstance(p, SystolicParameters):
        return _controller_of("ws" if p.weight_stationary else "os", p.rows)
    return _controller_of("outer", p.rows) if isinstance(p, OuterProductParameters) else (0.0, 0.0)


@functools.cache
def _controller_of(kind: str, rows: int) -> Part:
    """Between the measured sizes: counters grow with the logarithm of the rows, the load logic of ``ws`` with the rows."""
    if rows in MEASURED_ROWS:
        return measured_controller(kind, rows)
    if kind == "ws":
        return (
            _line(rows, MEASURED_ROWS, lambda size: measured_controller(kind, size)[0]),
            _line(rows, MEASURED_ROWS, lambda size: measured_controller(kind, size)[1]),
        )
    exponents = tuple(range(len(MEASURED_ROWS)))
    parts = [_line(math.log2(rows), exponents, lambda power, part=part: measured_controller(kind, 1 << power)[part]) for part in (0, 1)]
    return parts[0], parts[1]


@functools.cache
def measured_controller(kind: str, rows: int) -> Part:
    """A small design of the narrowest operands, minus its parts.

    Parameters
    ----------
    kind : "os", "ws", "outer", "dot" or "dot-resident"
    rows : int
    """
    known = shipped().get(controller_key(kind, rows))
    if known:
        return _part(known)
    point = _small_design(kind, rows)
    whole = cached_figure(_rtlil(point))
    parts = _structure(point.parameters).values()
    return whole.transistors - sum(part[0] for part in parts), whole.flip_flops - sum(part[1] for part in parts)


def controller_key(kind: str, rows: int) -> str:
    """Key of the shipped table."""
    return f"controller:{kind}:{rows}"


def _small_design(kind: str, rows: int) -> DesignPoint:
    from ..hw.design_point import DesignPoint

    types = {"a": "int2", "b": "int2", "acc": "int8", "overflow": "wrap"}
    if kind.startswith("dot"):
        return DesignPoint.create("dot-product", lanes=1, depth=1, resident=kind == "dot-resident", **types)
    if kind == "outer":
        return DesignPoint.create("outer-product", rows=rows, cols=1, **types)
    flow = {"os": "output-stationary", "ws": "weight-stationary"}[kind]
    return DesignPoint.create("systolic", rows=rows, cols=1, dataflow=flow, **types)
