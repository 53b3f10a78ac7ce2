"""Operators as TVM tensor expressions: those of ``te_workload``, but on two operand types and with windows of any shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, topi
from tvm.tirx import const

from .forms import SPATIAL, extents, scalar, window
from .operators import Operator

# The bodies follow TVM's te_workload, index for index; a test holds them structurally equal.


def prim_func(operator: Operator) -> Any:
    """The operator as a PrimFunc of its inputs and its output."""
    return te.create_prim_func(list(_BUILDERS[operator.kind](operator)))


def _inputs(operator: Operator) -> list[Any]:
    dtypes = (operator.a.container.name, operator.b.container.name)
    return [te.placeholder(shape, dtype, name=name) for name, shape, dtype in zip("AB", operator.input_shapes, dtypes, strict=False)]


def _multiply(operator: Operator, a: Any, b: Any, axes: list[Any]) -> Any:
    out = operator.out.name
    return te.sum(a.astype(out) * b.astype(out), axis=axes)


def _taps(operator: Operator, names: tuple[str, ...]) -> list[Any]:
    return [te.reduce_axis((0, operator.axes[name]), name=name) for name in names]


def _conv(operator: Operator) -> tuple[Any, ...]:
    p = operator.settings
    x, w = _inputs(operator)
    dimensions = len(extents(p, "size"))
    stride, dilation, groups = (scalar(p, name) for name in ("stride", "dilation", "groups"))
    taps = _taps(operator, tuple("r" + name for name in SPATIAL[dimensions]))
    (rc,) = _taps(operator, ("rc",))
    per_group_in, per_group_out = scalar(p, "c_in") // groups, scalar(p, "c_out") // groups
    padded = topi.nn.pad(x, [0, *[scalar(p, "pad")] * dimensions, 0])

    def value(n: Any, *position: Any) -> Any:
        *pixel, co = position
        where = [at * stride + tap * dilation for at, tap in zip(pixel, taps, strict=True)]
        return _multiply(operator, padded(n, *where, co // per_group_out * per_group_in + rc), w(*taps, rc, co), [*taps, rc])

    return x, w, te.compute(operator.output_shape, value, name="conv")


def _depthwise(operator: Operator) -> tuple[Any, ...]:
    p = operator.settings
    x, w = _inputs(operator)
    stride, pad, dilation = (scalar(p, name) for name in ("stride", "pad", "dilation"))
    rh, rw = _taps(operator, ("rh", "rw"))
    padded = topi.nn.pad(x, [0, pad, pad, 0])

    def value(n: Any, h: Any, v: Any, c: Any) -> Any:
        return _multiply(operator, padded(n, h * stride + rh * dilation, v * stride + rw * dilation, c), w(0, rh, rw, c), [rh, rw])

    return x, w, te.compute((scalar(p, "batch"), *window(p), scalar(p, "c_in")), value, name="depthwise")


def _capsule(operator: Operator) -> tuple[Any, ...]:
    p = operator.settings
    x, w = _inputs(operator)
    stride, pad = scalar(p, "stride"), scalar(p, "pad")
    rh, rw, pose, rc = _taps(operator, ("rh", "rw", "k", "rc"))
    padded = topi.nn.pad(x, [0, pad, pad, 0, 0, 0])

    def value(n: Any, h: Any, v: Any, i: Any, j: Any, co: Any) -> Any:
        pixel = padded(n, h * stride + rh, v * stride + rw, i, pose, rc)
        return _multiply(operator, pixel, w(rh, rw, pose, j, rc, co), [rh, rw, pose, rc])

    return x, w, te.compute(operator.output_shape, value, name="capsule")


def _transposed(operator: Operator) -> tuple[Any, ...]:
    p = operator.settings
    x, w = _inputs(operator)
    kernel, stride, pad = extents(p, "kernel"), scalar(p, "stride"), scalar(p, "pad")
    border = [taps - 1 - pad for taps in kernel]
    rows = [0, *((size + stride - 1) // stride for size in border), 0]
    padded = topi.nn.pad(x, rows, rows)
    first = [(stride - size % stride) % stride for size in border]
    rc, rh, rw = (_taps(operator, (name,))[0] for name in ("rc", "rh", "rw"))

    def pixel(n: Any, h: Any, v: Any, c: Any) -> Any:
        if stride == 1:
            return padded(n, h, v, c)
        real = te.all(*(te.indexmod(at, stride).equal(0) for at in (h, v)))
        return te.if_then_else(real, padded(n, te.indexdiv(h, stride), te.indexdiv(v, stride), c), const(0, x.dtype))

    def value(n: Any, h: Any, v: Any, co: Any) -> Any:
        seen = pixel(n, h + rh + first[0], v + rw + first[1], rc)
        return _multiply(operator, seen, w(kernel[0] - 1 - rh, kernel[1] - 1 - rw, rc, co), [rh, rw, rc])

    return x, w, te.compute(operator.output_shape, value, name="transposed")


def _matmul(operator: Operator) -> tuple[Any, ...]:
    x, y = _inputs(operator)
    (k,) = _taps(operator, ("k",))
    return x, y, te.compute(operator.output_shape, lambda b, m, n: _multiply(operator, x(b, m, k), y(b, k, n), [k]), name="matmul")


def _attention(operator: Operator) -> tuple[Any, ...]:
    query, value = _inputs(operator)
    b, length, h, dim = operator.input_shapes[0]
    (k,) = _taps(operator, ("k",))
    query_t = te.compute((b, h, length, dim), lambda i, j, m, d: query(i, m, j, d), name="query_t")
    value_t = te.compute((b, h, dim, length), lambda i, j, d, n: value(i, n, j, d), name="value_t")

    def score(i: Any, j: Any, m: Any, n: Any) -> Any:
        return _multiply(operator, query_t(i, j, m, k), value_t(i, j, k, n), [k])

    return query, value, te.compute(operator.output_shape, score, name="attention")


def _norm(operator: Operator) -> tuple[Any, ...]:
    (x,) = _inputs(operator)
    i, j = _taps(operator, ("i", "j"))
    return x, te.compute(operator.output_shape, lambda b: _multiply(operator, x(b, i, j), x(b, i, j), [i, j]), name="norm")


_BUILDERS: dict[str, Callable[[Operator], tuple[Any, ...]]] = {
    **dict.fromkeys(("C1D", "C2D", "C3D", "DIL", "GRP"), _conv),
    "DEP": _depthwise,
    "CAP": _capsule,
    "T2D": _transposed,
    "GMM": _matmul,
    "TBG": _attention,
    "NRM": _norm,
}
