"""Tiles of windows: the description that TVM matches, against a convolution in NumPy."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from celosia.intrinsics import DType, ParameterError, tensor_intrin
from celosia.intrinsics.numerics import random_operand
from celosia.intrinsics.window_tile import WindowTile

INT8, UINT8 = DType(8), DType(8, signed=False)
TILES = [
    WindowTile(a=INT8, b=INT8),
    WindowTile(pixels=(1, 4), filters=3, channels=5, a=UINT8, b=INT8),
    WindowTile(pixels=(2, 3), filters=2, window=(3, 2), channels=4, stride=2, dilation=3, a=INT8, b=INT8),
    WindowTile(pixels=(2, 1), window=(1, 3), dilation=2, a=INT8, b=INT8),
    WindowTile(pixels=(3, 4), filters=4, window=(3, 3), stride=2, depthwise=True, a=INT8, b=UINT8),
    WindowTile(pixels=(1, 5), window=(3, 1), depthwise=True, a=INT8, b=INT8),
]


def convolved(tile, a, b, c):
    """C + the convolution, tap by tap."""
    total = c.astype(np.int64)
    (rows, columns), step = tile.pixels, tile.stride
    for r, q in itertools.product(range(tile.window[0]), range(tile.window[1])):
        top, left = r * tile.dilation, q * tile.dilation
        seen = a[top : top + (rows - 1) * step + 1 : step, left : left + (columns - 1) * step + 1 : step].astype(np.int64)
        total += seen * b[r, q] if tile.depthwise else np.einsum("yxk,nk->yxn", seen, b[:, r, q].astype(np.int64))
    return total.astype(np.int32)


def agrees(tile, described):
    """Whether TVM's code of a description computes the convolution of a tile, on full-range operands."""
    import tvm

    function = tensor_intrin.description(described).with_attr("global_symbol", "main")
    library = tvm.compile(tvm.IRModule({"main": function}), target="llvm")
    rng = np.random.default_rng(0)
    a, b, c = (random_operand(rng, tile.shape(operand), tile.dtype(operand)) for operand in "abc")
    out = tvm.runtime.tensor((c >> 4).copy())
    library(tvm.runtime.tensor(a), tvm.runtime.tensor(b), out)
    return np.array_equal(out.numpy(), convolved(tile, a, b, c >> 4))


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: tile.label)
def test_a_description_is_the_convolution(tile):
    assert agrees(tile, tile)


class _Transposed(WindowTile):
    """Taps of rows and columns exchanged."""

    @property
    def index(self):
        return {**super().index, "b": super().index["b"].replace("v_r, v_q", "v_q, v_r")}


def test_a_broken_description_is_caught():
    tile = WindowTile(pixels=(2, 3), filters=2, window=(2, 2), channels=4, a=INT8, b=INT8)
    assert not agrees(tile, _Transposed(**tile.__dict__))


def test_names_tell_tiles_apart():
    names = {tensor_intrin.window_name(tile) for tile in TILES}
    assert len(names) == len(TILES)
    tile = TILES[2]
    assert tile.size == (6, 2, 24)
    for other in (replace(tile, stride=1), replace(tile, a=UINT8), replace(tile, window=(2, 3))):
        assert tensor_intrin.window_name(other) != tensor_intrin.window_name(tile)


def test_what_is_refused():
    with pytest.raises(ParameterError, match=r"^pixels of a tile of windows must be positive, not \(0, 4\); nearest legal value: 1$"):
        WindowTile(pixels=(0, 4), a=INT8, b=INT8)
    with pytest.raises(ParameterError, match=r"^stride of a tile of windows must be positive, not 0; nearest legal value: 1$"):
        WindowTile(stride=0, a=INT8, b=INT8)
    with pytest.raises(ParameterError, match=r"^a depthwise tile sums over 1 channel, not 4; allowed: several filters$"):
        WindowTile(channels=4, depthwise=True, a=INT8, b=INT8)
