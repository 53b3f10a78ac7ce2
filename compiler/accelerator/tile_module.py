"""Convolutions as TVM modules whose tiles the accelerator takes where they lie: NHWC activations, k innermost in both operands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...intrinsics import DType, ScheduleError
from ...intrinsics.accelerator import AcceleratorMachine
from ...intrinsics.accelerator.machine import ceil_div
from ...intrinsics.numerics import Array
from ...intrinsics.tensor_intrin import Tile, register_tile
from ...intrinsics.window_tile import WindowTile
from ..einsum import Index
from ..realise_tir import index_expr
from ..schedule import divisors
from .batch import ONE, Batch
from .convolution import Convolution
from .problem import Problem
from .tile_layout import tile_size


def rounded(op: Convolution, tile: WindowTile) -> Convolution:
    """The convolution with as many output rows and columns, and if it is depthwise channels, as whole tiles have."""
    rows, columns = (ceil_div(size, part) * part for size, part in zip((op.out_height, op.out_width), tile.pixels, strict=True))
    if (rows, columns) != (op.out_height, op.out_width):
        op = replace(op, corner=op.first_window, out=(rows, columns), pad=0)
    channels = ceil_div(op.channels, tile.filters) * tile.filters
    return replace(op, channels=channels, filters=channels, groups=channels) if tile.depthwise and channels > op.channels else op


def tile_module(op: Convolution, machine: AcceleratorMachine, *, tile: Tile, order: str = "mnk", batch: Batch = ONE) -> Any:
    """A module of ``op`` that is cut and ordered by TVM's primitives, and tensorized.

    Parameters
    ----------
    op : Convolution
    tile : Contraction or WindowTile
        Of a matrix product or of windows. What it does not divide is padded: matrix products in all directions, others in output rows,
        columns and, if depthwise, channels.
    order : str
        Loops around the tile, outermost first.
    batch : Batch
        Convolutions of the shape of ``op`` that are computed one after the other.

    Returns
    -------
    IRModule whose ``main`` takes activations and weights as `tile_inputs` gives them, and the output.

    Raises
    ------
    ScheduleError
        If TVM refuses.
    """
    import tvm
    from tvm.s_tir import Schedule as TvmSchedule

    size = tile_size(tile)
    if isinstance(tile, WindowTile):
        _check_windows(op, tile)
        function, loops = _windows(op, machine, tile, batch), _loops(tile, batch)
    else:
        _check_matrix(size)
        function, loops = _matrix(op, machine), list(zip("mnk", size, strict=True))
    sch = TvmSchedule(function, debug_mask="none", error_render_level="none")
    block = sch.get_sblock("sums")
    try:
        if not isinstance(tile, WindowTile) and any(np.mod((op.outputs, op.filters, op.depth), size)):
            sch.pad_einsum(block, list(size))
        _cut(sch, block, loops, order, register_tile(tile), strips=isinstance(tile, WindowTile) and Problem(machine=machine, op=op).strips)
    except tvm.s_tir.ScheduleError:
        raise ScheduleError(f"TVM refuses a tile of {' x '.join(map(str, size))} for {op}") from None
    return sch.mod


def _check_matrix(size: tuple[int, int, int]) -> None:
    m, n, k = size
    if m > 1 and (n == 1 or k == 1):
        raise ScheduleError(
            f"TVM tensorizes no tile of {m} x {n} x {k}, whose last dimension is 1; allowed: one row, or more columns and products"
        )


def _check_windows(op: Convolution, tile: WindowTile) -> None:
    """Refuse what TVM could not cut, in one sentence each."""
    depthwise = op.groups > 1 and op.group_channels == op.group_filters == 1
    if tile.depthwise != depthwise:
        raise ScheduleError("tiles of depthwise convolutions are depthwise, those of others are not")
    if (tile.stride, tile.dilation) != (op.stride, op.dilation):
        raise ScheduleError(
            f"a tile of stride {tile.stride} and dilation {tile.dilation} is none of stride {op.stride} and dilation {op.dilation}; "
            "allowed: those of the convolution"
        )
    parts = [("kernel rows", tile.window[0], op.kernel[0]), ("kernel columns", tile.window[1], op.kernel[1])]
    if not depthwise:
        parts += [("filters", tile.filters, op.group_filters), ("channels", tile.channels, op.group_channels)]
    for name, size, extent in parts:
        if extent % size:
            raise ScheduleError(f"a tile of {size} {name} does not divide {extent}; allowed: {', '.join(map(str, divisors(extent)))}")


Loops = list[tuple[str, int]]
"""Which of m, n and k every loop of a block belongs to ("" for those of a batch), and how much of it is in a tile."""


def _loops(tile: WindowTile, batch: Batch) -> Loops:
    rows, columns = tile.pixels
    taps = list(tile.window) if tile.depthwise else [*tile.window, tile.channels]
    outer, added = [("", 1)] * len(batch.outputs), [("k", 1)] * len(batch.sums)
    return [*outer, ("m", 1), ("m", rows), ("m", columns), ("n", tile.filters), *added, *(("k", size) for size in taps)]


def _cut(sch: Any, block: Any, parts: Loops, order: str, intrinsic: str, *, strips: bool) -> None:
    """Cut loops by their tiles, order the rest, and tensorize; loops of one step would be in the way of TVM's comparison.

    Strips follow each other down an image, then from column to column.
    """
    outside: dict[str, list[Any]] = {axis: [] for axis in ("", *"mnk")}
    inside = []
    loops = sch.get_loops(block)
    alone = all(size == 1 for _, size in parts)
    for loop, (axis, size) in zip(loops, parts, strict=True):
        if size == 1 and not (alone and loop is loops[-1]):
            outside[axis].append(loop)
            continue
        outer, inner = sch.split(loop, [None, size])
        outside[axis].append(outer)
        inside.append(inner)
    if strips:
        outside["m"][1:] = outside["m"][:0:-1]
    nest = [loop for axis in ("", *order) for loop in outside[axis]]
    sch.reorder(*nest, *inside)
    sch.decompose_reduction(block, nest[0])
    sch.tensorize(inside[0], intrinsic)


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


def _windows(op: Convolution, machine: AcceleratorMachine, tile: WindowTile, batch: Batch) -> Any:
    """Border, sums, and, where tiles go beyond the output, a block that leaves out the rest."""
    from tvm import te

    whole = rounded(op, tile)
    slices = (size for size, _ in batch.slices)
    weights = (*whole.kernel, whole.filters) if tile.depthwise else (whole.filters, *whole.kernel, whole.group_channels)
    a, b = _placeholders(machine, (*slices, op.images, op.height, op.width, op.channels), (*batch.weights_shape, *weights))
    padded, starts = _bordered(whole, a, batch)
    named = zip(("rh", "rw", "rc"), (*whole.kernel, whole.group_channels), strict=True)
    rh, rw, rc = (te.reduce_axis((0, size), name=name) for name, size in named)
    added = {axis: te.reduce_axis((0, extent), name=axis) for axis, extent in batch.sums.items()}
    taps, out = [*added.values(), rh, rw, *([] if tile.depthwise else [rc])], DType(32).name

    def value(*index: Any) -> Any:
        (*outer, n, h, w, co) = index
        place = {**dict(zip(batch.outputs, outer, strict=True)), **added}
        (*which, row, column) = (index_expr(start, place) for start in starts)
        y, x = h * whole.stride + rh * whole.dilation + row, w * whole.stride + rw * whole.dilation + column
        channel = co if tile.depthwise else co // whole.group_filters * whole.group_channels + rc if whole.groups > 1 else rc
        weight = *(place[axis] for axis in batch.weights), *((rh, rw, co) if tile.depthwise else (co, rh, rw, rc))
        pixel = *which, n, y, x, channel
        return te.sum(padded[pixel].astype(out) * b[weight].astype(out), axis=taps)

    shape = (*batch.outputs.values(), whole.images, whole.out_height, whole.out_width, whole.filters)
    sums = te.compute(shape, value, name="sums")
    if whole is op:
        return te.create_prim_func([a, b, sums])
    kept = (*batch.outputs.values(), op.images, op.out_height, op.out_width, op.filters)
    return te.create_prim_func([a, b, te.compute(kept, lambda *index: sums[index], name="kept")])


def _bordered(op: Convolution, a: Any, batch: Batch) -> tuple[Any, list[Index]]:
    """Activations with all that windows see around them; slice, row and column at which windows begin in them."""
    from tvm import topi
    from tvm.tirx import const

    corner = batch.corner or tuple(Index((), first) for first in op.first_window)
    lines = zip((op.out_height, op.out_width), op.kernel, strict=True)
    reach = [(out - 1) * op.stride + (taps - 1) * op.dilation for out, taps in lines]
    starts = [*(index for _, index in batch.slices), *corner]
    sizes = [*(size for size, _ in batch.slices), op.height, op.width]
    ends = []
    for index, length, size in zip(starts, [0] * len(batch.slices) + reach, sizes, strict=True):
        least, most = batch.bounds(index)
        ends.append((max(-least, 0), max(most + length + 1 - size, 0)))
    starts = [index + low for index, (low, _) in zip(starts, ends, strict=True)]
    ends = [*ends[:-2], (0, 0), *ends[-2:], (0, op.channels - int(a.shape[-1]))]
    if any(map(any, ends)):
        a = topi.nn.pad(a, [low for low, _ in ends], [high for _, high in ends], const(op.zero_point, a.dtype))
    return a, starts


def tile_inputs(op: Convolution, activations: Array, weights: Array, *, tile: Tile, batch: Batch = ONE) -> list[Array]:
    """Activations and weights as the module of `tile_module` takes them.

    Parameters
    ----------
    activations : (images of all copies, height, width, channels)
    weights : (filters of all copies, depth)
    """
    if not isinstance(tile, WindowTile):
        return [activations.reshape(op.outputs, op.depth), weights]
    image = activations.reshape(*(size for size, _ in batch.slices), op.images, op.height, op.width, op.channels)
    taps = weights.reshape(*batch.weights_shape, op.filters, *op.kernel, op.group_channels)
    if not tile.depthwise:
        return [image, taps]
    spare = rounded(op, tile).channels - op.channels
    taps = np.pad(taps, [(0, 0)] * len(batch.weights) + [(0, spare), (0, 0), (0, 0), (0, 0)])
    return [image, np.ascontiguousarray(np.moveaxis(taps[..., 0], -3, -1))]
