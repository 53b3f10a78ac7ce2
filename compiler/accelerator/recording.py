"""Tile calls of a tensorized module, in the order and at the addresses that TVM's own lowering gives them.

The module is compiled for this computer and run. Every tile calls back; its first run writes down where the tiles lie, and
later runs hand the operands to an accelerator and put its result where the module goes on.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...intrinsics import ParameterError, ScheduleError
from ...intrinsics.numerics import Array
from ...intrinsics.tensor_intrin import ANNOTATION, TILE_FUNCTION, Tile, registered

_PARALLEL = {1: "parallel", 2: "vectorised", 4: "bound to threads"}
"""Kinds of loops (numbers of TVM's ForKind) that leave no one order of calls."""


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A tensor that tiles lie in.

    Parameters
    ----------
    name : str
    shape : tuple of int
    dtype : str
    parameter : int or None
        Position among the parameters of the module; None if the module makes it, such as a packed or padded copy.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    parameter: int | None


@dataclass(frozen=True, kw_only=True)
class Calls:
    """What a module called.

    Parameters
    ----------
    tile : Contraction or WindowTile
    tensors : mapping from a, b, c to Tensor
    offsets : mapping from a, b, c to (calls,) int64
        Element at which the tile begins.
    strides : mapping from a, b, c to mapping from axis to int
        Elements between neighbours of a tile.
    """

    tile: Tile
    tensors: dict[str, Tensor]
    offsets: dict[str, Array]
    strides: dict[str, dict[str, int]]


class RecordedModule:
    """A tensorized module, compiled so that its tile calls come here.

    Parameters
    ----------
    module : IRModule
        ``main`` takes the inputs, then the output; one block of it is tensorized by `register_tile`'s intrinsic.

    Raises
    ------
    ScheduleError
        If there is no such block, if its loops have no one order, or if other blocks than the zero of its output lie in its loops.
    """

    def __init__(self, module: Any) -> None:
        import tvm

        from ..host import host_target

        function = _main(module)
        block = _tile_block(function)
        self.tile = _recorded_tile(block)
        self.parameters = [(_static(param), str(param.dtype)) for param in function.params]
        self.tensors = _tensors(function, block)
        _check_nest(module, block)
        try:
            self._compiled = tvm.compile(module, target=host_target(0))
        except tvm.error.InternalError as error:
            raise ScheduleError(f"TVM does not compile the module ({str(error).strip().splitlines()[-1]})") from None
        self.calls = self._record()

    def run(self, inputs: Sequence[Array], finish: Callable[[Array, Array], Array]) -> Array:
        """Run the module on data, with all of its tiles done at once by ``finish``.

        Parameters
        ----------
        inputs : arrays
        finish : callable
            From operands a and b, as they lie in the tensors of `calls`, to the content of c.

        Raises
        ------
        ParameterError
            If an input has another shape or type than the module takes.
        """
        expected = self.parameters[:-1]
        found = [(array.shape, array.dtype.name) for array in inputs]
        if found != expected:
            raise ParameterError(f"the module takes {_listed(expected)}, not {_listed(found)}")
        hook = _Runner(self, finish)
        result = self._execute(inputs, hook)
        if hook.number != hook.count:
            raise ScheduleError(f"the module made {hook.number} tile calls where it had made {hook.count}")
        return result

    def _execute(self, inputs: Sequence[Array], hook: Callable[..., None]) -> Array:
        import tvm

        shape, dtype = self.parameters[-1]
        output = tvm.runtime.tensor(np.zeros(shape, dtype))
        with _hooked(hook):
            self._compiled["main"](*(tvm.runtime.tensor(np.ascontiguousarray(array)) for array in inputs), output)
        result: Array = output.numpy()
        return result

    def _record(self) -> Calls:
        rng = np.random.default_rng(0)
        # No zeros in the data: what an output tile starts from must be a zero of the module's own.
        inputs = [rng.integers(1, 100, shape).astype(dtype) for shape, dtype in self.parameters[:-1]]
        recorder = _Recorder(self)
        self._execute(inputs, recorder)
        return recorder.calls()

    def split(self, arguments: Sequence[Any]) -> dict[str, tuple[Any, list[int]]]:
        """Data pointer, and offset and strides of each operand of a call."""
        parts, start = {}, 0
        for operand in "abc":
            count = 2 + len(self.tile.operand_axes(operand))
            parts[operand] = (arguments[start], [int(value) for value in arguments[start + 1 : start + count]])
            start += count
        return parts

    def view(self, operand: str, pointer: Any) -> Array:
        """The tensor that an operand's tiles lie in."""
        tensor = self.tensors[operand]
        size = math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize
        memory: Any = (ctypes.c_uint8 * size).from_address(pointer.value)
        content: Array = np.frombuffer(memory, np.uint8).view(tensor.dtype).reshape(tensor.shape)
        return content


@dataclass
class _Recorder:
    """Writes down every call, and checks that output tiles start at zero, once."""

    module: RecordedModule
    rows: list[list[int]] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def __call__(self, *arguments: Any) -> None:
        parts = self.module.split(arguments)
        self.rows.append([value for _, values in parts.values() for value in values])
        pointer, (offset, *strides) = parts["c"]
        tile = _tile(self.module.view("c", pointer), offset, strides, self.module.tile.shape("c"))
        wanted = int(offset in self.seen)
        if (tile != wanted).any():
            what = "is set again while it is summed" if wanted else "does not start at zero"
            raise ScheduleError(
                f"an output tile {what}, which the accelerator cannot do; allowed: one block before the tiles that writes 0"
            )
        self.seen.add(offset)
        tile[...] = 1  # a mark: only the module's own zero may start a sum

    def calls(self) -> Calls:
        module, table = self.module, np.array(self.rows, np.int64)
        if not len(table):
            raise ScheduleError("the module makes no tile call")
        offsets, strides, column = {}, {}, 0
        for operand in "abc":
            axes = module.tile.operand_axes(operand)
            offsets[operand] = table[:, column]
            steps = table[:, column + 1 : column + 1 + len(axes)]
            if (steps != steps[0]).any():
                raise ScheduleError(f"the strides of operand {operand} differ between tiles; allowed: one tensor in one layout")
            strides[operand] = dict(zip(axes, steps[0].tolist(), strict=True))
            column += 1 + len(axes)
        return Calls(tile=module.tile, tensors=module.tensors, offsets=offsets, strides=strides)


@dataclass
class _Runner:
    """Computes everything at the first call, and delivers it at the last."""

    module: RecordedModule
    finish: Callable[[Array, Array], Array]
    number: int = 0
    result: Array | None = None

    @property
    def count(self) -> int:
        return len(self.module.calls.offsets["c"])

    def __call__(self, *arguments: Any) -> None:
        parts = self.module.split(arguments)
        if self.number == 0:
            a, b = (self.module.view(operand, parts[operand][0]).copy() for operand in "ab")
            self.result = self.finish(a, b)
        self.number += 1
        if self.number == self.count and self.result is not None:
            self.module.view("c", parts["c"][0])[...] = self.result.reshape(self.module.tensors["c"].shape)


_hooks: list[Callable[..., None]] = []


@contextlib.contextmanager
def _hooked(hook: Callable[..., None]) -> Iterator[None]:
    """Send tile calls to a hook; what it raises is raised here, whatever TVM makes of it."""
    _listen()
    raised: list[BaseException] = []

    def guarded(*arguments: Any) -> None:
        if raised:
            return
        try:
            hook(*arguments)
        except BaseException as error:
            raised.append(error)

    _hooks.append(guarded)
    try:
        yield
    finally:
        _hooks.pop()
    if raised:
        raise raised[0]


@functools.cache
def _listen() -> None:
    import tvm_ffi

    def tile(_name: str, *arguments: Any) -> None:
        if _hooks:
            _hooks[-1](*arguments)

    tvm_ffi.register_global_func(TILE_FUNCTION, tile, override=True)


def _tile(tensor: Array, offset: int, strides: Sequence[int], shape: tuple[int, ...]) -> Array:
    flat = tensor.reshape(-1)[offset:]
    return np.lib.stride_tricks.as_strided(flat, shape, tuple(stride * tensor.itemsize for stride in strides))


def _listed(parameters: Sequence[tuple[tuple[int, ...], str]]) -> str:
    return ", ".join(f"{dtype}{list(shape)}" for shape, dtype in parameters) or "nothing"


# ---- what the module is


def _main(module: Any) -> Any:
    from tvm import IRModule

    names = [variable.name_hint for variable in module.get_global_vars()] if isinstance(module, IRModule) else None
    if names is None or "main" not in names:
        found = type(module).__name__ if names is None else f"a module of {', '.join(names) or 'nothing'}"
        raise ParameterError(f"a scheduled module must be a TVM schedule or an IRModule with the function main, not {found}")
    return module["main"]


def _static(tensor: Any) -> tuple[int, ...]:
    from tvm.tirx import IntImm

    shape = tuple(tensor.shape)
    if not all(isinstance(extent, int | IntImm) for extent in shape):
        raise ScheduleError(f"tensor {tensor.name} has the shape [{', '.join(map(str, shape))}]; allowed: numbers")
    return tuple(int(extent) for extent in shape)


def _tile_block(function: Any) -> Any:
    from ..einsum_parse import blocks

    found = [block for block in blocks(function) if ANNOTATION in block.annotations]
    if len(found) != 1:
        raise ScheduleError(
            f"the module has {len(found)} tensorized blocks; allowed: one, tensorized by the intrinsic of a tile of the accelerator"
        )
    return found[0]


def _recorded_tile(block: Any) -> Tile:
    from tvm.ir import Call, StringImm

    from ..einsum_parse import walk

    names = [str(text.value) for call in walk(block.body, Call) for text in call.args if isinstance(text, StringImm)]
    known = registered()
    if TILE_FUNCTION not in names or names[-1] not in known:
        raise ScheduleError("the module's tile is no recorded one; allowed: the intrinsic that tile_intrinsic returns")
    return known[names[-1]]


def _tensors(function: Any, block: Any) -> dict[str, Tensor]:
    tensors = {}
    for operand, match in zip("abc", block.match_buffers, strict=True):  # in the order of the intrinsic's parameters
        source = match.source.source
        position = next((number for number, param in enumerate(function.params) if param.same_as(source)), None)
        shape = _static(source)
        tensors[operand] = Tensor(name=source.name, shape=shape, dtype=str(source.dtype), parameter=position)
    return tensors


def _check_nest(module: Any, block: Any) -> None:
    """Refuse loops around the tile without an order, and other work inside of them."""
    from tvm.s_tir import SBlock
    from tvm.tirx import For

    from ..einsum_parse import walk
    from ..nest import statements

    nest = next(statement for statement in statements(module) if any(inner.same_as(block) for inner in walk(statement, SBlock)))
    for loop in walk(nest, For):
        kind = _PARALLEL.get(int(loop.kind))
        if kind is not None:
            raise ScheduleError(
                f"loop {loop.loop_var.name} around the tile is {kind}, so its calls have no one order; allowed: serial loops"
            )
    for other in walk(nest, SBlock):
        if not other.same_as(block) and other.iter_vars and not _writes_zero(other, block):
            raise ScheduleError(
                f"block {other.name_hint} lies in the loops of the tile, where the accelerator runs alone; "
                "allowed: blocks before or after all of them"
            )


def _writes_zero(other: Any, block: Any) -> bool:
    value = getattr(other.body, "value", None)
    return getattr(value, "value", None) == 0 and other.body.buffer.same_as(block.writes[0].source)
