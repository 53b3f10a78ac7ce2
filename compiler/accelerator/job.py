"""A problem with operands: its memory image, and the result that must come out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...intrinsics import DType, ParameterError
from ...intrinsics.accelerator import Program
from ...intrinsics.numerics import Array, random_operand, shift_right, wrap
from .convolution import Output
from .lower import memory_image
from .operators import reference
from .problem import Problem

OUTPUTS = ("sums", "int8", "uint8")


@dataclass(frozen=True, kw_only=True, eq=False)
class Operands:
    """What a problem computes on.

    Parameters
    ----------
    activations : (images, height, width, channels)
    weights : (filters, depth)
    bias, multiplier : (filters,) int64, or None
    residual : (output pixels, filters) of the output's type, or None
    """

    activations: Array
    weights: Array
    bias: Array | None = None
    multiplier: Array | None = None
    residual: Array | None = None


def random_operands(problem: Problem, rng: np.random.Generator) -> Operands:
    """Operands over the full range of their types, corners included."""
    op, machine, output = problem.op, problem.machine, problem.output
    word = DType(32)
    return Operands(
        activations=random_operand(rng, (op.images, op.height, op.width, op.channels), machine.a),
        weights=random_operand(rng, (op.filters, op.depth), machine.b),
        bias=random_operand(rng, (op.filters,), word).astype(np.int64) if output.uses_channels else None,
        multiplier=random_operand(rng, (op.filters,), word).astype(np.int64) if output.narrow else None,
        residual=random_operand(rng, (op.outputs, op.filters), DType(8, output.signed)) if output.residual else None,
    )


TYPICAL_SHIFT = 30
"""Right shift of `typical_output`: multipliers then keep 20 bits for layers of some thousand products, and residuals count."""


def typical_output(kind: str, *, residual: bool = False) -> Output:
    """The store path of a layer: 32-bit ``sums``, or ``int8`` or ``uint8`` (clamped at zero) with bias, scale and residuals.

    Raises
    ------
    ParameterError
    """
    if kind not in OUTPUTS:
        raise ParameterError(f"output must be one of {', '.join(OUTPUTS)}, not {kind!r}")
    if kind == "sums":
        return Output(residual=residual)
    low, high = (-128, 127) if kind == "int8" else (0, 255)
    factor = 1 << (TYPICAL_SHIFT - 1) if residual else 1
    return Output(narrow=True, bias=True, shift=TYPICAL_SHIFT, low=low, high=high, residual=residual, residual_multiplier=factor)


def typical_operands(problem: Problem, rng: np.random.Generator) -> Operands:
    """Operands over the full range, but biases and multipliers that spread the sums over the 8 bits of the result."""
    operands = random_operands(problem, rng)
    if not problem.output.narrow:
        return operands
    spread = np.sqrt(problem.op.depth / 9) * 2.0 ** (problem.machine.a.width + problem.machine.b.width - 2)
    largest = (1 << 31) - 1
    bias = np.clip(rng.normal(0, spread, problem.op.filters), -largest, largest).astype(np.int64)
    scale = 2.0**TYPICAL_SHIFT * 50 / spread
    multiplier = np.clip(rng.uniform(scale / 2, scale, problem.op.filters), 1, largest).astype(np.int64)
    return replace(operands, bias=bias, multiplier=multiplier)


def image_of(problem: Problem, operands: Operands) -> Array:
    """Byte image with the operands in place."""
    extra = {name: getattr(operands, name) for name in ("bias", "multiplier", "residual")}
    return memory_image(problem, operands.activations, operands.weights, **extra)


def expected(problem: Problem, operands: Operands) -> Array:
    """The result, (output pixels, filters), independent of programs and schedules."""
    output = problem.output
    sums = wrap(reference(problem.op, operands.activations, operands.weights), problem.machine.acc).astype(np.int64)
    if operands.bias is not None and output.bias:
        sums = wrap(sums + operands.bias, DType(32)).astype(np.int64)
    if not output.narrow or operands.multiplier is None:
        return sums.astype(np.int32)
    products = sums * operands.multiplier
    if operands.residual is not None:
        products += (operands.residual.astype(np.int64) - output.residual_zero_point) * output.residual_multiplier
    scaled = shift_right(products, output.shift, problem.machine.rounding) + output.zero_point
    clamped: Array = np.clip(scaled, output.low, output.high).astype(np.int8 if output.low < 0 else np.uint8)
    return clamped


def result_of(program: Program, memory: Array) -> Array:
    """The result in a memory image after a run."""
    return program.buffer("c").view(memory)
