"""What tile calls compute together: found from tensors, offsets and strides, and checked at every call."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...intrinsics import ScheduleError
from ...intrinsics.numerics import Array
from .convolution import Convolution, gemm
from .recording import Calls


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Tile calls as parts of convolutions of one shape.

    Parameters
    ----------
    op : Convolution
    turns : int
        How many of them lie one after the other (a batch of matrix products).
    tile : (int, int, int)
        Output pixels, channels and products of a tile.
    m, n, k, turn : (calls,) int64
        First output pixel, channel and product, and the convolution that it belongs to.
    spread : bool
        Whether weights lie as [window][channel out][channel in], not as [channel out][window][channel in].
    """

    op: Convolution
    turns: int
    tile: tuple[int, int, int]
    m: Array
    n: Array
    k: Array
    turn: Array
    spread: bool = False

    def weights(self, b: Array) -> Array:
        """Operand b as (filters of all turns, depth)."""
        taps = b.reshape(-1, self.op.filters, self.op.channels).transpose(1, 0, 2) if self.spread else b
        rows: Array = taps.reshape(-1, self.op.depth)
        return rows


def layout_of(calls: Calls) -> Layout:
    """Find what the calls compute: a matrix product, a batch of them, or a convolution over windows.

    Raises
    ------
    ScheduleError
        If they compute none of these; says which tile does not fit.
    """
    _check_contiguous(calls)
    shapes = {operand: calls.tensors[operand].shape for operand in "abc"}
    rows_a, rows_c = (math.prod(shapes[operand][:-1]) for operand in "ac")
    columns, depth = shapes["c"][-1], shapes["a"][-1]
    matrices, rest = divmod(math.prod(shapes["b"]), columns * depth)
    whole = not rest and matrices > 0 and rows_a == rows_c and rows_c % matrices == 0
    return _matrices(calls, matrices, rows_a, columns, depth) if whole else _windows(calls)


def _check_contiguous(calls: Calls) -> None:
    for operand, axis in (("a", "k"), ("b", "k"), ("c", "n")):
        stride = calls.strides[operand].get(axis, 1)
        if stride != 1:
            name = calls.tensors[operand].name
            raise ScheduleError(
                f"neighbours of a tile along {axis} lie {stride} elements apart in operand {operand} ({name}); "
                f"allowed: {axis} as the last dimension"
            )


def _require_rows(calls: Calls, operand: str, axis: str, stride: int) -> None:
    found = calls.strides[operand].get(axis, stride)
    if found != stride:
        name = calls.tensors[operand].name
        raise ScheduleError(
            f"rows of a tile lie {found} elements apart in operand {operand} ({name}); allowed: {stride}, neighbours along {axis}"
        )


def _tile(calls: Calls) -> tuple[int, int, int]:
    extents = calls.contraction.extents
    return extents.get("m", 1), extents.get("n", 1), extents.get("k", 1)


def _matrices(calls: Calls, count: int, rows: int, columns: int, depth: int) -> Layout:
    for operand, axis, stride in (("a", "m", depth), ("b", "n", depth), ("c", "m", columns)):
        _require_rows(calls, operand, axis, stride)
    height = rows // count
    m_a, k_a = np.divmod(calls.offsets["a"], depth)
    n_b, k_b = np.divmod(calls.offsets["b"], depth)
    m_c, n_c = np.divmod(calls.offsets["c"], columns)
    turn = m_c // height
    agree = (m_a == m_c) & (k_a == k_b) & (n_b == turn * columns + n_c)
    _require_all(calls, agree, "a matrix product")
    return Layout(op=gemm(height, columns, depth), turns=count, tile=_tile(calls), m=m_c % height, n=n_c, k=k_b, turn=turn)


def _require_all(calls: Calls, agree: Array, what: str) -> None:
    if not agree.all():
        first = int(np.flatnonzero(~agree)[0])
        at = ", ".join(f"{operand} at {int(calls.offsets[operand][first])}" for operand in "abc")
        raise ScheduleError(f"tile call {first} ({at}) does not belong to {what} of its tensors")


def _windows(calls: Calls) -> Layout:
    """Convolution over an NHWC tensor that holds its own border."""
    a, b, c = (calls.tensors[operand].shape for operand in "abc")
    if len(a) != 4 or len(c) != 4 or len(b) != 4 or a[0] != c[0]:
        shapes = ", ".join(f"{calls.tensors[operand].name}{list(calls.tensors[operand].shape)}" for operand in "abc")
        raise ScheduleError(f"{shapes} are no matrix product; allowed besides: NHWC activations, weights of 4 dimensions, NHWC output")
    (images, height, width, channels), (_, out_height, out_width, filters) = a, c
    kernel, spread = _kernel(calls, channels, filters)
    n_b, k = _weights(calls, kernel, channels, filters, spread)
    pixel, n = np.divmod(calls.offsets["c"], filters)
    image, place = np.divmod(pixel, out_height * out_width)
    y, x = np.divmod(place, out_width)
    tap, channel = np.divmod(k, channels)
    row, column = np.divmod(tap, kernel[1])
    rest = calls.offsets["a"] - image * height * width * channels - channel
    stride = _factor(rest, (y * width + x) * channels, tap == 0)
    dilation = _factor(rest - stride * (y * width + x) * channels, (row * width + column) * channels, tap > 0)
    window = stride * (y * width + x) + dilation * (row * width + column)
    _require_all(calls, (rest == window * channels) & (n_b == n), "a convolution")
    _require_rows(calls, "a", "m", stride * channels)
    _require_rows(calls, "c", "m", filters)
    m_size = _tile(calls)[0]
    if (x + m_size > out_width).any() or out_width % m_size:
        raise ScheduleError(f"a tile of {m_size} pixels crosses output rows of {out_width}; allowed: tiles that divide a row")
    op = Convolution(
        images=images,
        height=height,
        width=width,
        channels=channels,
        filters=filters,
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        out=(out_height, out_width),
    )
    turn = np.zeros_like(n)
    return Layout(op=op, turns=1, tile=_tile(calls), m=pixel, n=n, k=k, turn=turn, spread=spread)


def _kernel(calls: Calls, channels: int, filters: int) -> tuple[tuple[int, int], bool]:
    """Kernel rows and columns, and whether the output channel is the last dimension but one of the weights."""
    shape, stride = calls.tensors["b"].shape, calls.strides["b"].get("n")
    if shape[3] == channels and shape[0] == filters and stride in (None, math.prod(shape[1:])):
        return (shape[1], shape[2]), False
    if shape[3] == channels and shape[2] == filters and stride in (None, channels):
        return (shape[0], shape[1]), True
    raise ScheduleError(
        f"weights {calls.tensors['b'].name}{list(shape)} of {filters} filters and {channels} channels are in no known order; "
        "allowed: [filter][row][column][channel] and [row][column][filter][channel]"
    )


def _weights(calls: Calls, kernel: tuple[int, int], channels: int, filters: int, spread: bool) -> tuple[Array, Array]:
    """First output channel and first product of every tile of b."""
    if not spread:
        n, k = np.divmod(calls.offsets["b"], kernel[0] * kernel[1] * channels)
        return n, k
    tap, rest = np.divmod(calls.offsets["b"], filters * channels)
    return rest // channels, tap * channels + rest % channels


def _factor(total: Array, unit: Array, where: Array) -> int:
    """The number f with ``total = f * unit``, by the first place that tells; 1 if none does."""
    places = np.flatnonzero(where & (unit > 0))
    return max(int(total[places[0]] // unit[places[0]]), 1) if len(places) else 1
