"""Operators: what a network computes, without saying how. TVM is imported by `Operator.prim_func` only."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..intrinsics import DType, FormatError, ParameterError
from ..intrinsics.memory import require_memory
from ..intrinsics.numerics import Array, random_operand
from . import forms
from .forms import CLASSES, FORMS, Access, Form, Parameters, Shape
from .parse import CONV_OPTIONS, TE_PARAMETERS, canonical, conv_kind, read

INT8, INT32 = DType(8), DType(32)

OUT_WIDTHS = (8, 16, 32, 64)

DEFAULTS = {"stride": 1, "pad": 0, "dilation": 1, "groups": 1, "capsule": 4}


@dataclass(frozen=True)
class Operator:
    """One operator of a network, with its shapes and types.

    Parameters
    ----------
    kind : str
        A name of TVM's ``te_workload``: C1D, C2D, C3D, DIL, GRP, DEP, T2D, CAP, GMM, TBG, NRM.
    name : str
        The string that `parse` reads back.
    parameters : tuple of (name, value)
    a, b : DType
        Types of the inputs.
    out : DType
        Type of the output; its width is 8, 16, 32 or 64 bits and sums wrap in it.
    weight : int
        How often the operator occurs in its network.
    """

    kind: str
    name: str
    parameters: tuple[tuple[str, int | tuple[int, ...]], ...]
    a: DType = INT8
    b: DType = INT8
    out: DType = INT32
    weight: int = field(default=1, compare=False)

    def __post_init__(self) -> None:
        if self.out.width not in OUT_WIDTHS:
            raise ParameterError(f"output of {self.name} must have 8, 16, 32 or 64 bits, not {self.out}")
        if len(self.form.shapes) == 1 and self.a != self.b:
            raise ParameterError(f"{self.name} has one input, so both operand types must be {self.a}, not {self.b}")
        small = [axis for axis, extent in self.form.axes if extent < 1]
        if small:
            why, allowed = "the window is larger than the padded input", "a smaller window or dilation, a larger input or pad"
            if self.kind == "T2D":
                why, allowed = "padding cuts everything off", "a smaller pad, a larger kernel or input"
            raise ParameterError(f"{self.name}: axis {small[0]} has no positive extent ({why}); allowed: {allowed}")

    @functools.cached_property
    def form(self) -> Form:
        """Axes and accesses."""
        return FORMS[self.kind](self.settings)

    @property
    def settings(self) -> Parameters:
        """Parameters by name."""
        return dict(self.parameters)

    @functools.cached_property
    def axes(self) -> Mapping[str, int]:
        """Extents in the order of the iterators: output axes, then reduction axes."""
        return dict(self.form.axes)

    def access(self, operand: str) -> Access:
        """How operand ``"a"``, ``"b"`` or ``"c"`` is indexed."""
        return {"a": self.form.a, "b": self.form.b, "c": self.form.c}[operand]

    @functools.cached_property
    def roles(self) -> Mapping[str, str]:
        """Operands that each axis indexes, as in `Contraction.role`."""
        used = {operand: {axis for dim in self.access(operand) for axis, _ in dim} for operand in "abc"}
        return {axis: "".join(operand for operand in "abc" if axis in used[operand]) for axis in self.axes}

    def class_axes(self, role: str) -> tuple[str, ...]:
        """Axes of one role, in order."""
        return tuple(axis for axis in self.axes if self.roles[axis] == role)

    @functools.cached_property
    def classes(self) -> Mapping[str, int]:
        """Extent of each class (batch, m, n, k) that the operator has."""
        return {
            name: int(np.prod([self.axes[axis] for axis in self.class_axes(role)], dtype=object))
            for role, name in CLASSES.items()
            if self.class_axes(role)
        }

    @property
    def input_shapes(self) -> tuple[Shape, ...]:
        """Shapes of the inputs."""
        return self.form.shapes

    @property
    def output_shape(self) -> Shape:
        """Shape of the output."""
        return self.form.output

    @functools.cached_property
    def macs(self) -> int:
        """Multiply-accumulates, each tap counted (also those on the border's zeros)."""
        return forms.macs(self.form)

    def typed(self, *, a: DType | str | None = None, b: DType | str | None = None, out: DType | str | None = None) -> Operator:
        """The same operator on other types."""
        return replace(self, a=DType.of(a or self.a), b=DType.of(b or self.b), out=DType.of(out or self.out))

    def weighted(self, weight: int) -> Operator:
        """The same operator with its count in a network, at least 1."""
        if not isinstance(weight, int) or isinstance(weight, bool) or weight < 1:
            raise ParameterError(f"weight of {self.name} must be a positive integer, not {weight!r}; nearest legal value: 1")
        return replace(self, weight=weight)

    def random_inputs(self, rng: np.random.Generator) -> tuple[Array, ...]:
        """One array per input over the full range of its type, corners over-represented; refused if they do not fit into memory."""
        require_memory(sum(map(math.prod, (*self.input_shapes, self.output_shape))), self.name)
        return tuple(random_operand(rng, shape, dtype) for shape, dtype in zip(self.input_shapes, (self.a, self.b), strict=False))

    def reference(self, inputs: Sequence[Array]) -> Array:
        """Output in NumPy, independent of TVM: exact sums, wrapped to the output's type."""
        from .references import reference

        self.check_inputs(inputs)
        return reference(self, inputs)

    def check_inputs(self, inputs: Sequence[Array]) -> None:
        """Refuse arrays of the wrong number, shape or dtype."""
        if len(inputs) != len(self.input_shapes):
            raise ParameterError(f"{self.name} takes {len(self.input_shapes)} inputs, not {len(inputs)}")
        for array, shape, dtype in zip(inputs, self.input_shapes, (self.a, self.b), strict=False):
            if array.shape != shape or array.dtype != dtype.numpy:
                raise ParameterError(
                    f"an input of {self.name} must be {dtype.container}{list(shape)}, not {array.dtype}{list(array.shape)}"
                )

    def prim_func(self) -> Any:
        """The operator as a TVM PrimFunc, not scheduled (imports TVM)."""
        from .te import prim_func

        return prim_func(self)

    def __str__(self) -> str:
        return self.name


def from_te(kind: str, arguments: Sequence[int]) -> Operator:
    """Operator of a ``te_workload`` function.

    Parameters
    ----------
    kind : str
        Key of TVM's ``CONFIGS``, such as ``"C2D"``.
    arguments : sequence of int
        As the TE function takes them; trailing ones may be left out.
    """
    if kind not in TE_PARAMETERS:
        raise ParameterError(f"operator kind must be one of {', '.join(TE_PARAMETERS)}, not {kind!r}")
    names = TE_PARAMETERS[kind]
    required = sum(name not in DEFAULTS for name in names)
    if not required <= len(arguments) <= len(names):
        count = f"{required} to {len(names)}" if required < len(names) else required
        raise ParameterError(f"{kind} takes {count} numbers ({', '.join(names)}), not {len(arguments)}")
    given = {name: DEFAULTS.get(name, 0) for name in names} | dict(zip(names, arguments, strict=False))
    return build(kind, _gather(kind, given))


def _gather(kind: str, given: dict[str, int]) -> Parameters:
    """Turn flat arguments into sizes and kernels per spatial dimension."""
    if "kernel" not in given:
        return dict(given)
    spatial = [name for name in ("d", "h", "w", "l") if name in given]
    rest: Parameters = {name: value for name, value in given.items() if name not in (*spatial, "kernel")}
    defaults: Parameters = {name: DEFAULTS[name] for name in CONV_OPTIONS if name not in given}
    return defaults | rest | {"size": tuple(given[name] for name in spatial), "kernel": (given["kernel"],) * len(spatial)}


def build(kind: str, parameters: Parameters) -> Operator:
    """Operator of checked parameters."""
    for name, value in parameters.items():
        least = 0 if name == "pad" else 1
        for number in value if isinstance(value, tuple) else (value,):
            if not isinstance(number, int) or isinstance(number, bool) or number < least:
                raise ParameterError(
                    f"{name} of {kind} must be an integer of at least {least}, not {number!r}; nearest legal value: {least}"
                )
    for name in ("c_in", "c_out"):
        groups = parameters.get("groups", 1)
        size, share = forms.scalar(parameters, name) if name in parameters else 0, forms.scalar({"groups": groups}, "groups")
        if kind not in ("DEP",) and size % share:
            near = max(share, share * round(size / share))
            raise ParameterError(f"{name} of {kind} must be a multiple of its {groups} groups, not {size}; nearest legal value: {near}")
    kind = conv_kind(parameters) if kind in ("C2D", "DIL", "GRP") else kind
    return Operator(kind, canonical(kind, parameters), tuple(sorted(parameters.items())))


def parse(text: str) -> Operator:
    """Operator of a string, such as ``conv2d:1x56x56x64,64x3x3,s2,p1``, ``gemm:196x256x2304`` or ``dep:1x112x112x32x3x1x1``.

    Raises
    ------
    FormatError
        If the string does not parse; the message names the position.
    ParameterError
        If a number is outside its domain.
    """
    if not isinstance(text, str):
        raise FormatError(f"an operator must be a string such as 'gemm:196x256x2304', not {text!r}")
    kind, parameters = read(text)
    return from_te(kind, parameters) if isinstance(parameters, tuple) else build(kind, parameters)
