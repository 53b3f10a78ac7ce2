"""Operators of a network on the accelerator: their einsums, and those that are one convolution."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...intrinsics import MappingError
from ...intrinsics.numerics import Array
from ..einsum import Access, Axis, Einsum, Guard, Index, merge_guards
from ..einsum_transform import drop_unit_axes
from ..forms import Dim, extents, scalar
from ..operators import Operator, parse
from ..reasons import Rejected
from .convolution import Convolution
from .placement import Placement, place

PLAIN_KINDS = ("C1D", "C2D", "C3D", "DIL", "GRP", "DEP", "CAP", "GMM")
"""Kinds whose form, with a border around the activations, says everything; the others are read by TVM's front end."""


def placement_of(operator: Operator | str) -> Placement | Rejected:
    """Where an operator's loops run, or why it has no place on the accelerator."""
    einsum = einsum_of(parse(operator) if isinstance(operator, str) else operator)
    return einsum if isinstance(einsum, Rejected) else place(einsum)


def convolution_of(operator: Operator | str, *, zero_point: int = 0) -> Convolution:
    """The convolution (or matrix product) that an operator is.

    Raises
    ------
    MappingError
        If the operator is none, or several.
    """
    operator = parse(operator) if isinstance(operator, str) else operator
    found = placement_of(operator)
    if isinstance(found, Rejected):
        raise found.error()
    turns = sum(len(summed) for summed in found.sums)
    if turns > 1:
        raise MappingError(f"{operator.name} is {turns} convolutions; allowed: an operator that is one, or OperatorProgram for several")
    return replace(found.op, zero_point=zero_point)


def einsum_of(operator: Operator) -> Einsum | Rejected:
    """The mapper's einsum of an operator; TVM is imported only for kinds that are not plain."""
    if operator.kind in PLAIN_KINDS:
        return drop_unit_axes(_plain(operator))
    from ..tasks import task

    parsed = task(operator).parsed
    return parsed if isinstance(parsed, Rejected) else parsed.einsum


def _plain(operator: Operator) -> Einsum:
    form, sizes = operator.form, dict(operator.form.axes)
    reductions = {name for name, role in operator.roles.items() if "c" not in role}
    b = Access(tensor="B", shape=form.shapes[1], dtype=operator.b, index=tuple(map(_index, form.b)), constant=True)
    return Einsum(
        name=operator.name,
        axes=tuple(Axis(name, extent, name in reductions) for name, extent in form.axes),
        a=_bordered(operator, sizes),
        b=b,
        out="out",
        out_shape=form.output,
        out_index=tuple(map(_index, form.c)),
        acc=operator.out,
        macs=operator.macs,
    )


def _bordered(operator: Operator, sizes: dict[str, int]) -> Access:
    """The activations, whose form has a border of zeros that the tensor does not have."""
    form, settings = operator.form, operator.settings
    index = [_index(dim) for dim in form.a]
    guards: list[Guard] = []
    if "pad" in settings:
        pad = scalar(settings, "pad")
        for position in range(1, 1 + len(extents(settings, "size"))):
            index[position] -= pad
            guards.append(Guard(index[position], 0, form.shapes[0][position]))
    return Access(tensor="A", shape=form.shapes[0], dtype=operator.a, index=tuple(index), guards=merge_guards(guards, sizes))


def _index(dim: Dim) -> Index:
    return Index.of(dict(dim))


def weights_of(operator: Operator, weights: Array) -> Array:
    """Weights as the accelerator holds them: (filters, depth), k contiguous."""
    found = placement_of(operator)
    if isinstance(found, Rejected):
        raise found.error()
    return found.weights([weights, weights])


def reference(op: Convolution, activations: Array, weights: Array) -> Array:
    """Exact sums (output pixels, filters), int64.

    Parameters
    ----------
    activations : (images, height, width, channels)
    weights : (filters, depth)
    """
    x = activations.astype(np.float64)
    w = weights.reshape(op.groups, op.group_filters, *op.kernel, op.group_channels).astype(np.float64)
    total = np.zeros((op.images, op.out_height, op.out_width, op.groups, op.group_filters))
    for row in range(op.kernel[0]):
        for column in range(op.kernel[1]):
            tap = _tap(op, x, row, column).reshape(*total.shape[:3], op.groups, op.group_channels)
            if op.groups == 1:
                total[..., 0, :] += tap[..., 0, :] @ w[0, :, row, column].T
            else:
                total += np.einsum("nhwgc,gfc->nhwgf", tap, w[:, :, row, column])
    return total.reshape(-1, op.filters).astype(np.int64)


def _tap(op: Convolution, x: Array, row: int, column: int) -> Array:
    """What every output sees at one place of its window: (images, rows, columns, channels)."""
    y = op.first_window[0] + row * op.dilation + op.stride * np.arange(op.out_height)
    z = op.first_window[1] + column * op.dilation + op.stride * np.arange(op.out_width)
    inside = ((y >= 0) & (y < op.height))[:, None] & ((z >= 0) & (z < op.width))
    pixels = x[:, y.clip(0, op.height - 1)[:, None], z.clip(0, op.width - 1)]
    return np.where(inside[None, :, :, None], pixels, float(op.zero_point))
