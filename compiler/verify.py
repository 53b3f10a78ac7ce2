"""Proof of a map: compiled by TVM with the instruction as plain loops, run on full-range operands, compared bit for bit."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..intrinsics import DType, MappingError
from ..intrinsics.memory import require_memory
from ..intrinsics.numerics import Array, random_operand
from ..intrinsics.tensor_intrin import register
from .einsum_parse import Parsed, blocks
from .mapping import Mapped
from .realise import Realised, matchable, realise, tensorize

Reference = Callable[[Sequence[Array]], Array]


@dataclass(frozen=True, kw_only=True)
class Verification:
    """Outcome of one proof.

    Parameters
    ----------
    matches : bool
        Whether every element of the output agrees.
    differing, elements : int
        Elements that differ, of how many.
    reference : "numpy" or "untensorized"
        What it was compared with.
    """

    matches: bool
    differing: int
    elements: int
    reference: str


def verify(
    mapped: Mapped,
    parsed: Parsed,
    *,
    reference: Reference | None = None,
    operands: Sequence[Array] | None = None,
    seed: int = 0,
    offline: bool = False,
    fault: str | None = None,
) -> Verification:
    """Compile and run a map, and compare.

    Parameters
    ----------
    mapped : Mapped
    parsed : Parsed
        The operator it was made from.
    reference : callable from inputs to output, or None
        Independent of TVM; None compares with the operator as TVM compiles it untensorized.
    operands : arrays or None
        Inputs; None draws them over the full range of their types.
    seed : int
        Of drawn operands.
    offline : bool
        Pack weights in a function of their own.
    fault : None, "index" or "signedness"
        Build the instruction wrongly; a sound proof then fails.

    Raises
    ------
    MappingError
        If TVM refuses to tensorize.
    """
    intrinsic = register(matchable(mapped.instruction), fault=fault)
    realised = realise(mapped, parsed, offline=offline)
    schedule = tensorize(realised, intrinsic)
    inputs, outputs = split_params(parsed.func)
    operands = random_inputs(inputs, seed=seed) if operands is None else operands
    got = _call(schedule.mod, prepared_operands(realised, inputs, operands), outputs)
    want = _call(_module(parsed.func), operands, outputs) if reference is None else _listed(reference(operands), len(outputs))
    for mine, theirs in zip(got, want, strict=True):
        if mine.shape != theirs.shape:
            raise MappingError(f"reference of {parsed.einsum.name} has shape {theirs.shape}, its output {mine.shape}")
    differing = sum(int(np.count_nonzero(mine != theirs)) for mine, theirs in zip(got, want, strict=True))
    return Verification(
        matches=not differing,
        differing=differing,
        elements=sum(mine.size for mine in got),
        reference="numpy" if reference is not None else "untensorized",
    )


def split_params(func: Any) -> tuple[list[Any], list[Any]]:
    """Inputs and outputs of a function: what it only reads, and what a block of it writes.

    Raises
    ------
    MappingError
        If an input follows an output.
    """
    written = [region.source for block in blocks(func) for region in block.writes]
    marks = [any(buffer.same_as(param) for buffer in written) for param in func.params]
    if marks != sorted(marks) or not any(marks):
        raise MappingError(f"outputs must be the last parameters, but the function writes {marks.count(True)} of them elsewhere")
    count = marks.count(True)
    return list(func.params)[:-count], list(func.params)[-count:]


def _listed(found: Any, count: int) -> list[Array]:
    """What a reference returns, as one array per output."""
    arrays = [found] if count == 1 else list(found)
    if len(arrays) != count:
        raise MappingError(f"the reference returns {len(arrays)} arrays for {count} outputs")
    return [np.asarray(array) for array in arrays]


def random_inputs(params: Sequence[Any], *, seed: int) -> list[Array]:
    """Operands of the parameters' shapes and types: full range and corners for integers, [-1, 1) for floats."""
    require_memory(sum(math.prod(int(extent) for extent in param.shape) for param in params), "the operands")
    rng = np.random.default_rng(seed)
    operands: list[Array] = []
    for param in params:
        shape, dtype = tuple(int(extent) for extent in param.shape), str(param.dtype)
        if dtype.startswith("float"):
            operands.append(rng.uniform(-1, 1, shape).astype(dtype))
        else:
            operands.append(random_operand(rng, shape, DType.of(dtype)))
    return operands


def prepared_operands(realised: Realised, inputs: Sequence[Any], operands: Sequence[Array]) -> list[Array]:
    """Replace weights by what ``realised.prepare`` makes of them.

    Parameters
    ----------
    realised : Realised
    inputs : parameters of the operator, without its output
    operands : arrays, one per parameter
    """
    if realised.prepare is None:
        return list(operands)
    known = list(zip(inputs, operands, strict=True))
    weights = [array for param in realised.prepare.params if (array := _array_of(param, known)) is not None]
    results = realised.prepare.params[len(weights) :]
    known += zip(results, _call(_module(realised.prepare), weights, results), strict=True)
    found = [_array_of(param, known) for param in split_params(realised.func)[0]]
    return [array for array in found if array is not None]


def _array_of(param: Any, known: Sequence[tuple[Any, Array]]) -> Array | None:
    return next((array for other, array in known if other.same_as(param)), None)


def run(module: Any, operands: Sequence[Array], out: Any) -> Array:
    """Compile a module for this computer and run it.

    Returns
    -------
    array of the shape and type of the parameter ``out``
    """
    return _call(module, operands, [out])[0]


def _call(module: Any, operands: Sequence[Array], results: Sequence[Any]) -> list[Array]:
    import tvm

    compiled = tvm.compile(module, target=_target())
    outputs = [tvm.runtime.tensor(np.zeros(tuple(int(extent) for extent in out.shape), str(out.dtype))) for out in results]
    compiled["main"](*(tvm.runtime.tensor(operand) for operand in operands), *outputs)
    return [output.numpy() for output in outputs]


@functools.cache
def _target() -> Any:
    from tvm.target import Target

    return Target("llvm")


def _module(func: Any) -> Any:
    import tvm

    return tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
