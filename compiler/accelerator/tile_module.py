"""Operators as TVM modules whose tiles the accelerator takes where they lie: NHWC activations, k innermost in both operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...intrinsics import DType, MappingError, ScheduleError
from ...intrinsics.accelerator import AcceleratorMachine
from ...intrinsics.numerics import Array
from ..schedule import divisors
from .convolution import Convolution
from .from_tvm import tile_intrinsic
from .problem import Problem
from .schedule import Schedule

Tile = tuple[int, int, int]
"""Output pixels, channels and products."""


def tile_near(problem: Problem, schedule: Schedule) -> Tile:
    """The tile for TVM that is nearest to a schedule's: parts of an output row, of the channels and of one tap, that divide them.

    A matrix product is padded to whole tiles where no part that divides it is half as large.
    """
    op, machine = problem.op, problem.machine
    pixels = op.outputs if op.is_gemm else op.out_width
    depth = op.depth if op.is_gemm else op.channels
    return (
        _part(pixels, schedule.m * problem.block_rows, 1, padded=op.is_gemm),
        _part(op.filters, schedule.n * machine.cols, machine.cols, padded=op.is_gemm),
        _part(depth, schedule.k * problem.chunk, problem.chunk, padded=op.is_gemm),
    )


def _part(extent: int, wanted: int, unit: int, *, padded: bool) -> int:
    """The largest divisor up to what is wanted that is whole units; else what is wanted, or everything."""
    if wanted >= extent:
        return extent
    whole = max((part for part in divisors(extent) if part <= wanted and part % unit == 0), default=0)
    if padded and 2 * whole < wanted:
        return wanted
    return whole or extent


def tile_module(op: Convolution, machine: AcceleratorMachine, *, tile: Tile, order: str = "mnk") -> Any:
    """A module of ``op`` that is cut and ordered by TVM's primitives, and tensorized.

    Parameters
    ----------
    op : Convolution
        Of one group.
    tile : (int, int, int)
        Pixels of an output row (rows of a matrix product), channels and products; they divide the operator, or a matrix product is
        padded to whole tiles.
    order : str
        Loops around the tile, outermost first.

    Returns
    -------
    IRModule whose ``main`` takes activations and weights as `tile_inputs` gives them, and the output.

    Raises
    ------
    MappingError
        If the operator has several groups.
    ScheduleError
        If TVM refuses.
    """
    import tvm
    from tvm.s_tir import Schedule as TvmSchedule

    if op.groups > 1:
        raise MappingError(f"a tile of {op.groups} groups is no matrix product; allowed: one group")
    _check_tile(op, tile)
    function = _matrix(op, machine) if op.is_gemm else _windows(op, machine)
    sch = TvmSchedule(function, debug_mask="none", error_render_level="none")
    block = sch.get_sblock("sums")
    try:
        if op.is_gemm and any(extent % part for extent, part in zip((op.outputs, op.filters, op.depth), tile, strict=True)):
            sch.pad_einsum(block, list(tile))
        _cut(sch, block, tile, order, tile_intrinsic(machine, m=tile[0], n=tile[1], k=tile[2]))
    except tvm.s_tir.ScheduleError:
        raise ScheduleError(f"TVM refuses a tile of {tile[0]} x {tile[1]} x {tile[2]} for {op}") from None
    return sch.mod


def _check_tile(op: Convolution, tile: Tile) -> None:
    """Refuse what TVM would not tensorize, in one sentence each."""
    m, n, k = tile
    if m > 1 and (n == 1 or k == 1):
        raise ScheduleError(f"TVM tensorizes no tile of {m} x {n} x {k}, whose last dimension is 1; allowed: more columns and products")
    if op.is_gemm:
        return
    if m > 1 and op.stride > 1:
        raise ScheduleError(f"TVM tensorizes no tile of {m} pixels that lie {op.stride} apart; allowed: 1")
    for name, size, extent in (("pixels", m, op.out_width), ("channels", n, op.filters), ("products", k, op.channels)):
        if extent % size:
            parts = ", ".join(map(str, divisors(extent)))
            raise ScheduleError(f"a tile of {size} {name} does not divide {extent}, and TVM pads no windows; allowed: {parts}")


def _cut(sch: Any, block: Any, tile: Sequence[int], order: str, intrinsic: str) -> None:
    """Cut the last loop of each of m, n and k by its tile, order the rest, and tensorize."""
    loops = sch.get_loops(block)
    roles = {"m": loops[:1], "n": loops[1:2], "k": loops[2:]} if len(loops) == 3 else {"m": loops[:3], "n": loops[3:4], "k": loops[4:]}
    inside, outside = [], {}
    for axis, size in zip("mnk", tile, strict=True):
        outer, inner = sch.split(roles[axis][-1], [None, size])
        outside[axis] = [*roles[axis][:-1], outer]
        inside.append(inner)
    nest = [loop for axis in order for loop in outside[axis]]
    sch.reorder(*nest, *inside)
    sch.decompose_reduction(block, nest[0])
    sch.tensorize(next((loop for loop, size in zip(inside, tile, strict=True) if size > 1), inside[2]), intrinsic)


def _placeholders(machine: AcceleratorMachine, *shapes: tuple[int, ...]) -> list[Any]:
    from tvm import te

    types = (machine.a.container.name, machine.b.container.name)
    return [te.placeholder(shape, dtype, name=name) for shape, dtype, name in zip(shapes, types, "AB", strict=True)]


def _matrix(op: Convolution, machine: AcceleratorMachine) -> Any:
    from tvm import te

    a, b = _placeholders(machine, (op.outputs, op.depth), (op.filters, op.depth))
    k, out = te.reduce_axis((0, op.depth), name="k"), DType(32).name
    c = te.compute((op.outputs, op.filters), lambda m, n: te.sum(a[m, k].astype(out) * b[n, k].astype(out), axis=k), name="sums")
    return te.create_prim_func([a, b, c])


def _windows(op: Convolution, machine: AcceleratorMachine) -> Any:
    from tvm import te, topi
    from tvm.tirx import const

    a, b = _placeholders(machine, (op.images, op.height, op.width, op.channels), (*op.kernel, op.filters, op.channels))
    border = [(0, 0), *_border(op), (0, 0)]
    padded = a
    if any(max(ends) > 0 for ends in border):
        padded = topi.nn.pad(a, [low for low, _ in border], [high for _, high in border], const(op.zero_point, a.dtype))
    sizes = {"rh": op.kernel[0], "rw": op.kernel[1], "rc": op.channels}
    rh, rw, rc = (te.reduce_axis((0, size), name=name) for name, size in sizes.items())
    out = DType(32).name

    def value(n: Any, h: Any, w: Any, co: Any) -> Any:
        pixel = padded[n, h * op.stride + rh * op.dilation, w * op.stride + rw * op.dilation, rc]
        return te.sum(pixel.astype(out) * b[rh, rw, co, rc].astype(out), axis=[rh, rw, rc])

    c = te.compute((op.images, op.out_height, op.out_width, op.filters), value, name="sums")
    return te.create_prim_func([a, b, c])


def _border(op: Convolution) -> list[tuple[int, int]]:
    """Rows and columns to add before and after the image."""
    ends = []
    for first, out, taps, size in zip(op.first_window, (op.out_height, op.out_width), op.kernel, (op.height, op.width), strict=True):
        last = first + (out - 1) * op.stride + (taps - 1) * op.dilation
        if first > 0:
            raise MappingError(f"windows that begin at {first} inside of the image need a copy of a part of it; allowed: at most 0")
        ends.append((-first, max(last + 1 - size, 0)))
    return ends


def tile_inputs(op: Convolution, activations: Array, weights: Array) -> list[Array]:
    """Activations (images, height, width, channels) and weights (filters, depth) as the module of `tile_module` takes them."""
    if op.is_gemm:
        return [activations.reshape(op.outputs, op.depth), weights]
    taps = weights.reshape(op.filters, *op.kernel, op.channels)
    return [activations, np.ascontiguousarray(taps.transpose(1, 2, 0, 3))]
