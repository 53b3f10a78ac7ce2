"""What operators compute, as affine accesses: which axes index which dimension of which operand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .reasons import Reason

Dim = tuple[tuple[str, int], ...]
"""Index of one dimension: (axis, coefficient) terms that are added."""

Access = tuple[Dim, ...]
Shape = tuple[int, ...]
Parameters = dict[str, int | tuple[int, ...]]

CLASSES = {"ac": "m", "bc": "n", "ab": "k", "abc": "batch"}
"""Names of the roles: what each would be in a matrix multiplication."""

CLASS_ORDER = ("batch", "m", "n", "k")

SPATIAL = {1: ("l",), 2: ("h", "w"), 3: ("d", "h", "w")}


@dataclass(frozen=True, kw_only=True)
class Form:
    """An operator as a sum of products ``C[c] += A[a] * B[b]`` over all axes.

    Parameters
    ----------
    axes : tuple of (name, extent)
        In the order of the iterators of the TVM block: those of the output, then the reduction.
    a, b, c : Access
        Of the operands as the block reads them: A already padded with its border, transposed operands transposed.
    shapes : tuple of shapes
        Of the inputs as the caller gives them.
    output : shape
    obstacle : (Reason, sentence) or None
        Why no instruction of the form ``C += A x B`` can be matched with it.
    """

    axes: tuple[tuple[str, int], ...]
    a: Access
    b: Access
    c: Access
    shapes: tuple[Shape, ...]
    output: Shape
    obstacle: tuple[Reason, str] | None = None


def _bare(*axes: str) -> Access:
    return tuple(((axis, 1),) for axis in axes)


def output_size(size: int, kernel: int, stride: int, pad: int, dilation: int) -> int:
    """Positions of a window of ``kernel`` taps on a line of ``size``; not positive if the window does not fit."""
    return (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1


def window(p: Parameters) -> Shape:
    """Spatial extents of the output of a convolution."""
    stride, pad, dilation = (scalar(p, name) for name in ("stride", "pad", "dilation"))
    return tuple(output_size(s, k, stride, pad, dilation) for s, k in zip(extents(p, "size"), extents(p, "kernel"), strict=True))


def scalar(p: Parameters, name: str) -> int:
    """An integer parameter."""
    value = p[name]
    if isinstance(value, int):
        return value
    raise TypeError(f"{name} has one value per dimension")


def extents(p: Parameters, name: str) -> Shape:
    """A parameter with one integer per spatial dimension."""
    value = p[name]
    if isinstance(value, tuple):
        return value
    raise TypeError(f"{name} is one integer")


def _windows(p: Parameters, names: tuple[str, ...]) -> Access:
    stride, dilation = scalar(p, "stride"), scalar(p, "dilation")
    return tuple(((name, stride), ("r" + name, dilation)) for name in names)


def conv_form(p: Parameters) -> Form:
    """Convolution of 1..3 dimensions, channels last, dilated or grouped: ``A[n, h*s + rh*d, …, rc] * B[rh, …, rc, co]``."""
    size, kernel, out = extents(p, "size"), extents(p, "kernel"), window(p)
    batch, c_in, c_out, groups = (scalar(p, name) for name in ("batch", "c_in", "c_out", "groups"))
    names = SPATIAL[len(size)]
    taps = tuple("r" + name for name in names)
    group = (("g", groups),) if groups > 1 else ()
    to_group: tuple[tuple[str, int], ...] = (("g", c_in // groups),) if groups > 1 else ()
    c_dim: Dim = (*((("g", c_out // groups),) if groups > 1 else ()), ("co", 1))
    return Form(
        axes=(
            ("n", batch),
            *zip(names, out, strict=True),
            *group,
            ("co", c_out // groups),
            *zip(taps, kernel, strict=True),
            ("rc", c_in // groups),
        ),
        a=(*_bare("n"), *_windows(p, names), (*to_group, ("rc", 1))),
        b=(*_bare(*taps, "rc"), c_dim),
        c=(*_bare("n", *names), c_dim),
        shapes=((batch, *size, c_in), (*kernel, c_in // groups, c_out)),
        output=(batch, *out, c_out),
    )


def depthwise_form(p: Parameters) -> Form:
    """One filter per channel: ``A[n, h*s + rh*d, w*s + rw*d, c] * B[0, rh, rw, c]``."""
    batch, c_in = scalar(p, "batch"), scalar(p, "c_in")
    (kh, kw), (oh, ow) = extents(p, "kernel"), window(p)
    return Form(
        axes=(("n", batch), ("h", oh), ("w", ow), ("c", c_in), ("rh", kh), ("rw", kw)),
        a=(*_bare("n"), *_windows(p, ("h", "w")), *_bare("c")),
        b=((), *_bare("rh", "rw", "c")),
        c=_bare("n", "h", "w", "c"),
        shapes=((batch, *extents(p, "size"), c_in), (1, kh, kw, c_in)),
        output=(batch, oh, ow, c_in),
    )


def transposed_form(p: Parameters) -> Form:
    """Transposed convolution. TVM's block guards each read (zeros between the pixels), which no tile matches."""
    batch, c_in, c_out, stride, pad = (scalar(p, name) for name in ("batch", "c_in", "c_out", "stride", "pad"))
    (h, w), (kh, kw) = extents(p, "size"), extents(p, "kernel")
    out = ((h - 1) * stride - 2 * pad + kh, (w - 1) * stride - 2 * pad + kw)
    return Form(
        axes=(("n", batch), ("h", out[0]), ("w", out[1]), ("co", c_out), ("rh", kh), ("rw", kw), ("rc", c_in)),
        a=(*_bare("n"), (("h", 1), ("rh", 1)), (("w", 1), ("rw", 1)), *_bare("rc")),
        b=_bare("rh", "rw", "rc", "co"),
        c=_bare("n", "h", "w", "co"),
        shapes=((batch, h, w, c_in), (kh, kw, c_in, c_out)),
        output=(batch, *out, c_out),
        obstacle=(Reason.GUARDED, "operand a is read under a condition (zeros between the pixels), which no instruction evaluates"),
    )


def capsule_form(p: Parameters) -> Form:
    """Capsule convolution: a matrix product of poses per pixel and tap."""
    batch, c_in, c_out, pose = (scalar(p, name) for name in ("batch", "c_in", "c_out", "capsule"))
    (kh, kw), (oh, ow) = extents(p, "kernel"), window(p)
    return Form(
        axes=(
            *(("n", batch), ("h", oh), ("w", ow), ("i", pose), ("j", pose), ("co", c_out)),
            *(("rh", kh), ("rw", kw), ("k", pose), ("rc", c_in)),
        ),
        a=(*_bare("n"), *_windows(p, ("h", "w")), *_bare("i", "k", "rc")),
        b=_bare("rh", "rw", "k", "j", "rc", "co"),
        c=_bare("n", "h", "w", "i", "j", "co"),
        shapes=((batch, *extents(p, "size"), pose, pose, c_in), (kh, kw, pose, pose, c_in, c_out)),
        output=(batch, oh, ow, pose, pose, c_out),
    )


def matmul_form(p: Parameters) -> Form:
    """Batched matrix product ``A[b, m, k] * B[b, k, n]``."""
    batch, m, n, k = (scalar(p, name) for name in ("batch", "m", "n", "k"))
    return Form(
        axes=(("b", batch), ("m", m), ("n", n), ("k", k)),
        a=_bare("b", "m", "k"),
        b=_bare("b", "k", "n"),
        c=_bare("b", "m", "n"),
        shapes=((batch, m, k), (batch, k, n)),
        output=(batch, m, n),
    )


def attention_form(p: Parameters) -> Form:
    """Product of transposed queries and values, per batch and head: ``Q[b, m, h, k] * V[b, n, h, k]``."""
    batch, length, heads, dim = (scalar(p, name) for name in ("batch", "length", "heads", "dim"))
    return Form(
        axes=(("b", batch), ("h", heads), ("m", length), ("n", length), ("k", dim)),
        a=_bare("b", "h", "m", "k"),
        b=_bare("b", "h", "k", "n"),
        c=_bare("b", "h", "m", "n"),
        shapes=((batch, length, heads, dim),) * 2,
        output=(batch, heads, length, length),
    )


def norm_form(p: Parameters) -> Form:
    """Sum of squares of a matrix (the integer part of a norm): ``A[b, i, j] * A[b, i, j]``."""
    batch, m, n = (scalar(p, name) for name in ("batch", "m", "n"))
    return Form(
        axes=(("b", batch), ("i", m), ("j", n)),
        a=_bare("b", "i", "j"),
        b=_bare("b", "i", "j"),
        c=_bare("b"),
        shapes=((batch, m, n),),
        output=(batch,),
        obstacle=(Reason.SHARED_OPERAND, "both factors are the same tensor, which TVM does not match with two operands"),
    )


FORMS: dict[str, Callable[[Parameters], Form]] = {
    **dict.fromkeys(("C1D", "C2D", "C3D", "DIL", "GRP"), conv_form),
    "DEP": depthwise_form,
    "T2D": transposed_form,
    "CAP": capsule_form,
    "GMM": matmul_form,
    "TBG": attention_form,
    "NRM": norm_form,
}


def macs(form: Form) -> int:
    """Multiply-accumulates: the product of all extents."""
    return math.prod(extent for _, extent in form.axes)
