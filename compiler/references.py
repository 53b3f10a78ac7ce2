"""What operators compute, in NumPy: independent of TVM, of the accesses in `forms`, and of every schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..intrinsics.numerics import Array, wrap
from .forms import Parameters, Shape, extents, scalar, window

if TYPE_CHECKING:
    from .operators import Operator

_FLOAT_BITS = 53


def reference(operator: Operator, inputs: Sequence[Array]) -> Array:
    """Exact output of an operator, wrapped to its type."""
    exact = operator.a.width + operator.b.width + operator.macs.bit_length() <= _FLOAT_BITS
    # Sums below 2**53 are exact in float64, where NumPy multiplies matrices 50 times faster than in int64.
    arrays = [array.astype(np.float64 if exact else np.int64) for array in inputs]
    return wrap(_REFERENCES[operator.kind](operator.settings, *arrays).astype(np.int64), operator.out)


def _border(x: Array, pad: int, dimensions: int) -> Array:
    return np.pad(x, [(0, 0)] + [(pad, pad)] * dimensions + [(0, 0)] * (x.ndim - 1 - dimensions))


def _tap(x: Array, offsets: Shape, out: Shape, p: Parameters) -> Array:
    """Input pixels that one tap of the window sees, for all output positions."""
    stride, dilation = scalar(p, "stride"), scalar(p, "dilation")
    slices = tuple(slice(o * dilation, o * dilation + (e - 1) * stride + 1, stride) for o, e in zip(offsets, out, strict=True))
    pixels: Array = x[(slice(None),) + slices]  # noqa: RUF005 (mypy takes a star here for 3.11)
    return pixels


def _conv(p: Parameters, x: Array, w: Array) -> Array:
    kernel, out, groups = extents(p, "kernel"), window(p), scalar(p, "groups")
    x = _border(x, scalar(p, "pad"), len(kernel))
    parts = []
    for pixels, weights in zip(np.split(x, groups, axis=-1), np.split(w, groups, axis=-1), strict=True):
        parts.append(sum(_tap(pixels, tap, out, p) @ weights[tap] for tap in np.ndindex(*kernel)))
    return np.concatenate(parts, axis=-1)


def _depthwise(p: Parameters, x: Array, w: Array) -> Array:
    kernel, out = extents(p, "kernel"), window(p)
    x = _border(x, scalar(p, "pad"), 2)
    total: Array = np.sum([_tap(x, tap, out, p) * w[0][tap] for tap in np.ndindex(*kernel)], axis=0)
    return total


def _capsule(p: Parameters, x: Array, w: Array) -> Array:
    kernel, out = extents(p, "kernel"), window(p)
    x = _border(x, scalar(p, "pad"), 2)
    total: Array = np.sum([np.einsum("nhwikc,kjco->nhwijo", _tap(x, tap, out, p), w[tap]) for tap in np.ndindex(*kernel)], axis=0)
    return total


def _transposed(p: Parameters, x: Array, w: Array) -> Array:
    """Scatter: every input pixel adds its weighted kernel to the output."""
    stride, pad = scalar(p, "stride"), scalar(p, "pad")
    (n, h, v, _), (kh, kw, _, c_out) = x.shape, w.shape
    full = np.zeros((n, (h - 1) * stride + kh, (v - 1) * stride + kw, c_out), x.dtype)
    for i, j in np.ndindex(kh, kw):
        full[:, i : i + (h - 1) * stride + 1 : stride, j : j + (v - 1) * stride + 1 : stride] += x @ w[i, j]
    cropped: Array = full[:, pad : full.shape[1] - pad, pad : full.shape[2] - pad]
    return cropped


def _matmul(p: Parameters, x: Array, y: Array) -> Array:
    product: Array = x @ y
    return product


def _attention(p: Parameters, query: Array, value: Array) -> Array:
    product: Array = query.transpose(0, 2, 1, 3) @ value.transpose(0, 2, 3, 1)
    return product


def _norm(p: Parameters, x: Array) -> Array:
    squares: Array = (x * x).sum(axis=(1, 2))
    return squares


_REFERENCES: dict[str, Callable[..., Array]] = {
    **dict.fromkeys(("C1D", "C2D", "C3D", "DIL", "GRP"), _conv),
    "DEP": _depthwise,
    "CAP": _capsule,
    "T2D": _transposed,
    "GMM": _matmul,
    "TBG": _attention,
    "NRM": _norm,
}
