"""Operators of a network as convolutions of the accelerator."""

from __future__ import annotations

from typing import cast

import numpy as np

from ...intrinsics import MappingError
from ...intrinsics.numerics import Array
from ..operators import Operator, parse
from .convolution import Convolution, gemm

KINDS = ("C2D", "DIL", "GRP", "DEP", "GMM")
"""Kinds of operators that lower to the accelerator."""


def convolution_of(operator: Operator | str, *, zero_point: int = 0) -> Convolution:
    """The convolution (or matrix product) that an operator is.

    Raises
    ------
    MappingError
        If the operator is neither a 2-D convolution nor a matrix product of one batch.
    """
    operator = parse(operator) if isinstance(operator, str) else operator
    if operator.kind not in KINDS:
        raise MappingError(f"{operator.name} does not lower to the accelerator; allowed kinds: {', '.join(KINDS)}")
    p = cast("dict[str, int]", operator.settings)
    if operator.kind == "GMM":
        if p["batch"] != 1:
            raise MappingError(f"{operator.name} has {p['batch']} batches with weights of their own; allowed: 1")
        return gemm(p["m"], p["n"], p["k"])
    height, width = cast("tuple[int, int]", operator.settings["size"])
    depthwise = operator.kind == "DEP"
    return Convolution(
        images=p["batch"],
        height=height,
        width=width,
        channels=p["c_in"],
        filters=p["c_in"] if depthwise else p["c_out"],
        kernel=cast("tuple[int, int]", operator.settings["kernel"]),
        stride=p["stride"],
        dilation=p["dilation"],
        pad=p["pad"],
        groups=p["c_in"] if depthwise else p["groups"],
        zero_point=zero_point,
    )


def weights_of(operator: Operator, weights: Array) -> Array:
    """Weights as the accelerator holds them: (filters, depth), k contiguous."""
    if operator.kind == "GMM":
        return np.ascontiguousarray(weights[0].T)
    return np.ascontiguousarray(np.moveaxis(weights, -1, 0)).reshape(weights.shape[-1], -1)


def reference(op: Convolution, activations: Array, weights: Array) -> Array:
    """Exact sums (output pixels, filters), int64.

    Parameters
    ----------
    activations : (images, height, width, channels)
    weights : (filters, depth)
    """
    x, pad = activations.astype(np.float64), op.pad
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)), constant_values=float(op.zero_point))
    w = weights.reshape(op.groups, op.group_filters, *op.kernel, op.group_channels).astype(np.float64)
    grouped = x.reshape(*x.shape[:3], op.groups, op.group_channels)
    total = np.zeros((op.images, op.out_height, op.out_width, op.groups, op.group_filters))
    for row in range(op.kernel[0]):
        for column in range(op.kernel[1]):
            top, left = row * op.dilation, column * op.dilation
            tap = grouped[:, top:, left:][
                :, : (op.out_height - 1) * op.stride + 1 : op.stride, : (op.out_width - 1) * op.stride + 1 : op.stride
            ]
            if op.groups == 1:
                total[..., 0, :] += tap[..., 0, :] @ w[0, :, row, column].T
            else:
                total += np.einsum("nhwgc,gfc->nhwgf", tap, w[:, :, row, column])
    return total.reshape(-1, op.filters).astype(np.int64)
