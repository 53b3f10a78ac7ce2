"""What the mapper is asked about: operators, entries of TVM's CONFIGS, and PrimFuncs out of Python files."""

from __future__ import annotations

import functools
import runpy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..intrinsics import DType, FormatError, ParameterError
from ..intrinsics.numerics import Array
from .einsum_parse import Parsed, parse
from .operators import Operator
from .operators import parse as parse_operator
from .reasons import Rejected
from .workloads import workload

ACTIVATIONS_ONLY = frozenset({"TBG", "NRM"})
"""Kinds whose second operand is no weight."""

_INT8 = {"in_dtype": "int8", "out_dtype": "int32"}


@dataclass(frozen=True, kw_only=True)
class Task:
    """One operator to be mapped.

    Parameters
    ----------
    name : str
    build : callable
        Makes the PrimFunc.
    constants : tuple of int
        Positions of the parameters that are weights.
    operator : Operator or None
        The record it comes from, which knows a reference in NumPy.
    reference : callable or None
        From inputs to output, where there is no operator.
    weight : int
        How often it occurs in its network.
    """

    name: str
    build: Callable[[], Any]
    constants: tuple[int, ...] = (1,)
    operator: Operator | None = None
    reference: Callable[..., Array] | None = None
    weight: int = 1

    @functools.cached_property
    def parsed(self) -> Parsed | Rejected:
        """The einsum, or why there is none."""
        # A grouped convolution is one iterator in TVM, which the front end splits again.
        axes = None if self.operator is None else [axis for axis in self.operator.axes if axis != "g"]
        found = parse(self.build(), name=self.name, constants=self.constants, axes=axes)
        if isinstance(found, Rejected) or self.operator is None:
            return found
        einsum = found.einsum
        typed = replace(einsum, a=replace(einsum.a, dtype=self.operator.a), b=replace(einsum.b, dtype=self.operator.b))
        return replace(found, einsum=typed)


def task(operator: Operator | Task | str) -> Task:
    """The task of an operator or of an operator string."""
    if isinstance(operator, Task):
        return operator
    if isinstance(operator, str) and operator.partition(":")[0].upper() in OTHER_KINDS:
        return _other_task(operator)
    known = parse_operator(operator) if isinstance(operator, str) else operator
    constants = () if known.kind in ACTIVATIONS_ONLY else (1,)
    return Task(name=known.name, build=known.prim_func, constants=constants, operator=known, weight=known.weight)


def prim_func_task(
    name: str, func: Any, *, constants: Iterable[int] = (1,), reference: Callable[..., Array] | None = None, weight: int = 1
) -> Task:
    """The task of a PrimFunc."""
    return Task(name=name, build=lambda: func, constants=tuple(constants), reference=reference, weight=weight)


def typed(item: Task, *, a: DType, b: DType) -> Task:
    """An operator on other element types; both operands of a kind with one input have type ``a``, and PrimFuncs keep their own."""
    operator = item.operator
    if operator is None:
        return item
    second = a if len(operator.input_shapes) == 1 else b
    return replace(task(replace(operator, a=a, b=second)), weight=item.weight)


def merged(work: Iterable[Task]) -> list[Task]:
    """Tasks in order, each once: what is given several times counts several times.

    Raises
    ------
    ParameterError
        If two different tasks have one name.
    """
    found: dict[str, Task] = {}
    for item in work:
        known = found.get(item.name)
        if known is None:
            found[item.name] = item
        elif known.build is item.build or (item.operator is not None and known.operator == item.operator):
            found[item.name] = replace(known, weight=known.weight + item.weight)
        else:
            raise ParameterError(f"two different operators are named {item.name!r}; rename one")
    return list(found.values())


def tasks(name: str) -> list[Task]:
    """Tasks of a workload.

    Parameters
    ----------
    name : str
        ``operators``: every shape of the kinds C1D C2D C3D CAP DEP DIL GMM GRP T2D NRM SFM CBR TBG of TVM's CONFIGS, in int8 where
        the kind has such a form. A path ending in ``.py``, or ``FILE.py:NAME``: the PrimFuncs that the file defines; it may say by name
        in ``WEIGHTS`` which of their parameters are weights (default: the second), and in ``REFERENCES`` what computes the output
        from the inputs in NumPy, for verification. Anything else as in `workload`.

    Raises
    ------
    FormatError
    """
    if name == "operators":
        return [*(task(operator) for operator in workload("operators")), *_other_configs()]
    path, _, member = name.partition(".py:")
    if name.endswith(".py") or member:
        return _from_python(path if name.endswith(".py") else path + ".py", member)
    return [task(operator) for operator in workload(name)]


OTHER_KINDS = ("SFM", "CBR")
"""Kinds of CONFIGS that are no `Operator`: a softmax, and a convolution with a floating-point epilogue."""


@functools.cache
def _other_configs() -> tuple[Task, ...]:
    from tvm import te
    from tvm.s_tir.meta_schedule.testing.te_workload import CONFIGS

    found = []
    for kind in OTHER_KINDS:
        function, entries = CONFIGS[kind]
        options = _INT8 if kind == "CBR" else {}
        for arguments in entries:
            build = functools.partial(_build, te.create_prim_func, function, tuple(arguments), tuple(options.items()))
            found.append(Task(name=f"{kind.lower()}:{'x'.join(str(number) for number in arguments)}", build=build))
    return tuple(found)


def _other_task(text: str) -> Task:
    known = {item.name: item for item in _other_configs()}
    if text not in known:
        kind = text.partition(":")[0]
        legal = ", ".join(name for name in known if name.startswith(kind.lower() + ":"))
        raise FormatError(f"operator {text!r}, position {len(kind) + 1}: this kind has the shapes of TVM only: {legal}")
    return known[text]


def _build(create: Any, function: Any, arguments: tuple[int, ...], options: tuple[tuple[str, str], ...]) -> Any:
    return create(function(*arguments, **dict(options)))


def _from_python(path: str, member: str) -> list[Task]:
    from tvm.tirx import PrimFunc

    names = _run(path)
    functions = {name: value for name, value in names.items() if isinstance(value, PrimFunc)}
    if member:
        if member not in functions:
            raise FormatError(f"workload {path!r} defines no PrimFunc {member!r}; it defines {', '.join(functions) or 'none'}")
        functions = {member: functions[member]}
    if not functions:
        raise FormatError(f"workload {path!r} defines no PrimFunc at its top level")
    weights, references = (_by_name(path, names, key) for key in ("WEIGHTS", "REFERENCES"))
    found = []
    for name, func in functions.items():
        _check_static(f"workload {path!r}, function {name!r}", func)
        constants = _constants(f"workload {path!r}: WEIGHTS[{name!r}]", weights.get(name, (1,)), len(func.params) - 1)
        found.append(prim_func_task(name, func, constants=constants, reference=_reference(path, name, references.get(name))))
    return found


def _run(path: str) -> dict[str, Any]:
    """Names at the top level of a file that is run."""
    if not Path(path).is_file():
        raise FormatError(f"workload {path!r} is not a file")
    try:
        return runpy.run_path(path)
    except (Exception, SystemExit) as error:
        raise FormatError(f"workload {path!r} cannot be run: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"


def _by_name(path: str, names: dict[str, Any], key: str) -> dict[str, Any]:
    value = names.get(key, {})
    if not isinstance(value, dict):
        raise FormatError(f"workload {path!r}: {key} must be a dict from names of functions, not {type(value).__name__}")
    return value


def _constants(place: str, value: Any, inputs: int) -> tuple[int, ...]:
    legal = isinstance(value, (tuple, list)) and all(type(entry) is int and 0 <= entry < max(inputs, 2) for entry in value)
    if not legal:
        raise FormatError(f"{place} must be positions of inputs, each from 0 to {inputs - 1}, not {value!r}")
    return tuple(value)


def _reference(path: str, name: str, function: Any) -> Callable[..., Array] | None:
    if function is None:
        return None
    if not callable(function):
        raise FormatError(f"workload {path!r}: REFERENCES[{name!r}] must be a function of the list of inputs, not {function!r}")

    def reference(inputs: Any) -> Any:
        try:
            return function(inputs)
        except Exception as error:
            raise FormatError(f"workload {path!r}: REFERENCES[{name!r}] cannot be run: {_first_line(error)}") from error

    return reference


def _check_static(place: str, func: Any) -> None:
    for position, param in enumerate(func.params):
        for dimension, extent in enumerate(getattr(param, "shape", ())):
            if not hasattr(extent, "value") and not isinstance(extent, int):
                raise FormatError(f"{place}, parameter {position}: dimension {dimension} of {param.name} must be a number, not {extent}")
