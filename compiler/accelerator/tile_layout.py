"""What tile calls compute together: found from tensors, offsets and strides, and checked at every call."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...intrinsics import Contraction, ScheduleError
from ...intrinsics.numerics import Array
from ...intrinsics.tensor_intrin import Tile
from ...intrinsics.window_tile import WindowTile
from .convolution import Convolution, gemm
from .recording import Calls
from .schedule import Turn


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Tile calls as parts of convolutions of one shape.

    Parameters
    ----------
    op : Convolution
    turns : tuple of Turn
        The convolutions: a batch of matrix products, or windows that begin at several places.
    copies : (int, int, int)
        Convolutions' worth of activations, weights and outputs in the tensors.
    tile : (int, int, int)
        Output pixels, channels and products of a tile.
    pixels : (int, int)
        Output rows and columns of a tile.
    m, n, k, turn : (calls,) int64
        First output pixel, channel and product, and the convolution that it belongs to.
    order : str
        Of the weights: filter (n), window (r) and channel (k), slowest first.
    """

    op: Convolution
    turns: tuple[Turn, ...]
    copies: tuple[int, int, int]
    tile: tuple[int, int, int]
    pixels: tuple[int, int]
    m: Array
    n: Array
    k: Array
    turn: Array
    order: str = "nrk"

    def weights(self, b: Array) -> Array:
        """Operand b as (filters of all turns, depth)."""
        op = self.op
        sizes = {"n": op.filters, "r": math.prod(op.kernel), "k": op.group_channels}
        stored = b.reshape(-1, *(sizes[axis] for axis in self.order))
        rows: Array = stored.transpose(0, *(1 + self.order.index(axis) for axis in "nrk")).reshape(-1, op.depth)
        return rows


def tile_size(tile: Tile) -> tuple[int, int, int]:
    """Output pixels, channels and products."""
    if isinstance(tile, WindowTile):
        return tile.size
    return tile.extents.get("m", 1), tile.extents.get("n", 1), tile.extents.get("k", 1)


def layout_of(calls: Calls) -> Layout:
    """Find what the calls compute: a matrix product, a batch of them, or convolutions over windows.

    Raises
    ------
    ScheduleError
        If they compute none of these; says which tile does not fit.
    """
    _check_contiguous(calls)
    if isinstance(calls.tile, WindowTile):
        return _windows(calls, calls.tile)
    shapes = {operand: calls.tensors[operand].shape for operand in "abc"}
    rows_a, rows_c = (math.prod(shapes[operand][:-1]) for operand in "ac")
    matrices, rest = divmod(math.prod(shapes["b"]), shapes["c"][-1] * shapes["a"][-1])
    whole = not rest and matrices > 0 and rows_a == rows_c and rows_c % matrices == 0
    return _matrices(calls, calls.tile, matrices) if whole else _windows(calls, _row_of_pixels(calls.tile))


def _check_contiguous(calls: Calls) -> None:
    last = {"a": "k", "b": "k", "c": "n"} if isinstance(calls.tile, Contraction) else {o: calls.tile.operand_axes(o)[-1] for o in "abc"}
    for operand, axis in last.items():
        stride = calls.strides[operand].get(axis, 1)
        if stride != 1:
            name = calls.tensors[operand].name
            raise ScheduleError(
                f"neighbours of a tile along {axis} lie {stride} elements apart in operand {operand} ({name}); "
                f"allowed: {axis} as the last dimension"
            )


def _require_rows(calls: Calls, operand: str, axis: str, stride: int) -> None:
    axes = calls.tile.operand_axes(operand)
    found = calls.strides[operand].get(axis, stride)
    if found != stride and calls.tile.shape(operand)[axes.index(axis)] > 1:
        name = calls.tensors[operand].name
        raise ScheduleError(
            f"rows of a tile lie {found} elements apart in operand {operand} ({name}); allowed: {stride}, neighbours along {axis}"
        )


def _require_all(calls: Calls, agree: Array, what: str) -> None:
    if not agree.all():
        first = int(np.flatnonzero(~agree)[0])
        at = ", ".join(f"{operand} at {int(calls.offsets[operand][first])}" for operand in "abc")
        raise ScheduleError(f"tile call {first} ({at}) does not belong to {what} of its tensors")


# ---- matrix products


def _matrices(calls: Calls, tile: Contraction, count: int) -> Layout:
    shapes = {operand: calls.tensors[operand].shape for operand in "ac"}
    columns, depth = shapes["c"][-1], shapes["a"][-1]
    for operand, axis, stride in (("a", "m", depth), ("b", "n", depth), ("c", "m", columns)):
        _require_rows(calls, operand, axis, stride)
    height = math.prod(shapes["a"][:-1]) // count
    m_a, k_a = np.divmod(calls.offsets["a"], depth)
    n_b, k_b = np.divmod(calls.offsets["b"], depth)
    m_c, n_c = np.divmod(calls.offsets["c"], columns)
    turn = m_c // height
    agree = (m_a == m_c) & (k_a == k_b) & (n_b == turn * columns + n_c)
    _require_all(calls, agree, "a matrix product")
    whole = _row_of_pixels(tile)
    return Layout(
        op=gemm(height, columns, depth),
        turns=tuple(Turn(a=number, b=number, c=number) for number in range(count)),
        copies=(count,) * 3,
        tile=whole.size,
        pixels=whole.pixels,
        m=m_c % height,
        n=n_c,
        k=k_b,
        turn=turn,
    )


def _row_of_pixels(tile: Contraction) -> WindowTile:
    """A product of rows as a tile of neighbouring pixels and of one tap; its steps are those of the module."""
    m, n, k = tile_size(tile)
    return WindowTile(pixels=(1, m), filters=n, channels=k, a=tile.a, b=tile.b)


# ---- windows over NHWC tensors that hold their own border


@dataclass(frozen=True, kw_only=True)
class _Tensors:
    """Sizes of the convolutions that the tensors of windows are for."""

    images: int
    size: tuple[int, int]
    channels: int
    filters: int
    kernel: tuple[int, int]
    out: tuple[int, int]
    group_channels: int
    copies: tuple[int, int, int]
    order: str

    @property
    def groups(self) -> int:
        return self.channels // self.group_channels

    @property
    def depth(self) -> int:
        return math.prod(self.kernel) * self.group_channels


def _windows(calls: Calls, tile: WindowTile) -> Layout:
    known = _tensors(calls)
    n_b, k, copy_b = _weights(calls, known)
    pixel, n = np.divmod(calls.offsets["c"], known.filters)
    copy_c, pixel = np.divmod(pixel, known.images * math.prod(known.out))
    stride, dilation, start = _start(calls, tile, known, pixel, n, k)
    copy_a, corner = np.divmod(start // known.channels, known.images * math.prod(known.size))
    row, column = np.divmod(corner, known.size[1])
    ends = [(out - 1) * stride + (taps - 1) * dilation for out, taps in zip(known.out, known.kernel, strict=True)]
    inside = (copy_a >= 0) & (copy_a < known.copies[0]) & (row + ends[0] < known.size[0]) & (column + ends[1] < known.size[1])
    turns, turn, same = _turns(copy_a, copy_b, copy_c, row, column)
    _require_all(calls, (start % known.channels == 0) & (n_b == n) & inside & same, "a convolution")
    _check_steps(calls, tile, known, stride)
    _check_pixels(tile, known, pixel)
    op = Convolution(
        images=known.images,
        height=known.size[0],
        width=known.size[1],
        channels=known.channels,
        filters=known.filters,
        kernel=known.kernel,
        stride=stride,
        dilation=dilation,
        groups=known.groups,
        corner=turns[0].corner,
        out=known.out,
    )
    return Layout(
        op=op,
        turns=turns,
        copies=known.copies,
        tile=tile.size,
        pixels=tile.pixels,
        m=pixel,
        n=n,
        k=k,
        turn=turn,
        order=known.order,
    )


def _tensors(calls: Calls) -> _Tensors:
    """Sizes from the last four dimensions (image, row, column, channel); those before are copies."""
    a, b, c = (calls.tensors[operand].shape for operand in "abc")
    depthwise = isinstance(calls.tile, WindowTile) and calls.tile.depthwise
    kept = 3 if depthwise else 4
    if len(a) < 4 or len(c) < 4 or len(b) < kept or a[-4] != c[-4]:
        shapes = ", ".join(f"{calls.tensors[operand].name}{list(calls.tensors[operand].shape)}" for operand in "abc")
        raise ScheduleError(f"{shapes} are no matrix product; allowed besides: NHWC activations, weights of 4 dimensions, NHWC output")
    kernel, order = (b[-3:-1], "rnk") if depthwise else _kernel(calls, c[-1])
    group_channels = 1 if depthwise else b[-1]
    groups, rest = divmod(a[-1], group_channels)
    if rest or c[-1] % max(groups, 1) or (depthwise and a[-1] != c[-1]):
        raise ScheduleError(
            f"weights {calls.tensors['b'].name}{list(b)} of {group_channels} channels do not make {c[-1]} filters over {a[-1]} channels"
        )
    return _Tensors(
        images=a[-4],
        size=(a[-3], a[-2]),
        channels=a[-1],
        filters=c[-1],
        kernel=(kernel[0], kernel[1]),
        out=(c[-3], c[-2]),
        group_channels=group_channels,
        copies=(math.prod(a[:-4]), math.prod(b[:-kept]), math.prod(c[:-4])),
        order=order,
    )


def _kernel(calls: Calls, filters: int) -> tuple[tuple[int, ...], str]:
    """Kernel rows and columns, and the order of the weights."""
    shape, stride = calls.tensors["b"].shape[-4:], calls.strides["b"].get("n")
    if isinstance(calls.tile, WindowTile) or (shape[0] == filters and stride in (None, math.prod(shape[1:]))):
        return shape[1:3], "nrk"
    if shape[2] == filters and stride in (None, shape[3]):
        return shape[:2], "rnk"
    raise ScheduleError(
        f"weights {calls.tensors['b'].name}{list(shape)} of {filters} filters are in no known order; "
        "allowed: [filter][row][column][channel] and [row][column][filter][channel]"
    )


def _weights(calls: Calls, known: _Tensors) -> tuple[Array, Array, Array]:
    """First output channel and first product of every tile of b, and which of the weights it belongs to."""
    copy, rest = np.divmod(calls.offsets["b"], known.filters * known.depth)
    if known.order == "nrk":
        n, k = np.divmod(rest, known.depth)
        return n, k, copy
    tap, rest = np.divmod(rest, known.filters * known.group_channels)
    n, channel = np.divmod(rest, known.group_channels)
    return n, tap * known.group_channels + channel, copy


def _start(calls: Calls, tile: WindowTile, known: _Tensors, pixel: Array, n: Array, k: Array) -> tuple[int, int, Array]:
    """Stride, dilation, and the element of a at which the window of the first output of every call's convolution begins."""
    image, place = np.divmod(pixel, math.prod(known.out))
    tap, channel = np.divmod(k, known.group_channels)
    channel = n // (known.filters // known.groups) * known.group_channels + channel
    width = known.size[1]
    down, right = np.divmod(place, known.out[1]), np.divmod(tap, known.kernel[1])
    across, window = (down[0] * width + down[1]) * known.channels, (right[0] * width + right[1]) * known.channels
    rest = calls.offsets["a"] - image * math.prod(known.size) * known.channels - channel
    if calls.tile is tile:
        return tile.stride, tile.dilation, rest - tile.stride * across - tile.dilation * window
    # a tile of one tap does not tell its steps; windows then begin at the first pixel
    stride = _factor(rest, across, tap == 0)
    dilation = _factor(rest - stride * across, window, tap > 0)
    start = rest - stride * across - dilation * window
    _require_all(calls, start == 0, "a convolution")
    return stride, dilation, start


def _factor(total: Array, unit: Array, where: Array) -> int:
    """The number f with ``total = f * unit``, by the first place that tells; 1 if none does."""
    places = np.flatnonzero(where & (unit > 0))
    return max(int(total[places[0]] // unit[places[0]]), 1) if len(places) else 1


def _turns(copy_a: Array, copy_b: Array, copy_c: Array, row: Array, column: Array) -> tuple[tuple[Turn, ...], Array, Array]:
    """The convolutions, that of every call, and whether a call reads what the others of its weights and outputs read."""
    keys, first, turn = np.unique(np.stack([copy_c, copy_b], axis=1), axis=0, return_index=True, return_inverse=True)
    turn = turn.reshape(-1)
    read = np.stack([copy_a, row, column], axis=1)
    same = (read == read[first][turn]).all(axis=1)
    turns = (Turn(a=int(a), b=int(b), c=int(c), corner=(int(y), int(x))) for (c, b), (a, y, x) in zip(keys, read[first], strict=True))
    return tuple(turns), turn, same


def _check_steps(calls: Calls, tile: WindowTile, known: _Tensors, stride: int) -> None:
    """Refuse tiles whose rows and columns are no neighbours."""
    pixel, row = known.channels, known.size[1] * known.channels
    if calls.tile is not tile:
        _require_rows(calls, "a", "m", stride * pixel)
        _require_rows(calls, "c", "m", known.filters)
        return
    kernel_row = known.kernel[1] * known.group_channels
    expected = {"a": {"y": row, "x": pixel}, "b": {"n": known.depth, "r": kernel_row, "q": known.group_channels}}
    if tile.depthwise:
        expected["b"] = {"r": known.kernel[1] * known.filters, "q": known.filters}
    expected["c"] = {"y": known.out[1] * known.filters, "x": known.filters}
    for operand, steps in expected.items():
        for axis, step in steps.items():
            _require_rows(calls, operand, axis, step)


def _check_pixels(tile: WindowTile, known: _Tensors, pixel: Array) -> None:
    """Refuse tiles that cross the ends of rows or images."""
    (rows, columns), (height, width) = tile.pixels, known.out
    place = pixel % math.prod(known.out)
    if (place % width + columns > width).any() or width % columns:
        raise ScheduleError(f"a tile of {columns} pixels crosses output rows of {width}; allowed: tiles that divide a row")
    if (place // width + rows > height).any() or height % rows:
        raise ScheduleError(f"a tile of {rows} rows crosses images of {height}; allowed: tiles that divide an image")
