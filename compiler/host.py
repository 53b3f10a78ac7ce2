"""Scheduled operators as host programs: a whole layer runs in compiled code that calls a simulated design."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm.target import Target
from tvm.tirx import Evaluate, For, SeqStmt, call_extern
from tvm_ffi import structural_map

from ..intrinsics import HashMismatchError, Machine, ScheduleError, SimulationError
from ..intrinsics.abi import flush_symbol, push_symbol
from ..intrinsics.numerics import Array
from .nest import find
from .operators import Operator


@dataclass(frozen=True)
class HostProgram:
    """A compiled operator; call it with the inputs.

    Parameters
    ----------
    operator : Operator
    design_hash : str or None
        Design that it was made for; its library must be loaded when the program runs. None for plain loops.
    """

    operator: Operator
    design_hash: str | None
    _module: Any = field(repr=False, compare=False)

    def require(self, design_hash: str) -> None:
        """Refuse another design than the program was made for.

        Raises
        ------
        HashMismatchError
        """
        if design_hash != self.design_hash:
            raise HashMismatchError(f"program of {self.operator.name} was made for design {self.design_hash}, not for {design_hash}")

    def __call__(self, inputs: Sequence[Array]) -> Array:
        """Run the operator.

        Parameters
        ----------
        inputs : arrays of ``operator.input_shapes`` in the container dtypes of its operands

        Returns
        -------
        ``operator.output_shape`` in the output's dtype. Whether the simulation went well, its model knows.

        Raises
        ------
        ParameterError
            If an input has the wrong shape or dtype.
        SimulationError
            If the design's library is not loaded.
        """
        self.operator.check_inputs(inputs)
        output = tvm.runtime.tensor(np.zeros(self.operator.output_shape, self.operator.out.numpy))
        if self.design_hash is not None and not _loaded(self.design_hash):
            raise SimulationError(f"the library of design {self.design_hash} is not loaded, so {self.operator.name} cannot call it")
        self._module["main"](*(tvm.runtime.tensor(np.ascontiguousarray(array)) for array in inputs), output)
        result: Array = output.numpy()
        return result


def compile_host(module: Any, operator: Operator, machine: Machine | None = None) -> HostProgram:
    """Compile a scheduled operator for this computer.

    Parameters
    ----------
    module : IRModule
        From `tensorize.apply` with the same machine.
    operator : Operator
    machine : Machine or None
        The design that is called; None if the intrinsic is plain loops.

    Raises
    ------
    ScheduleError
        If there is no nest of tile calls to flush after.
    """
    if machine is None:
        return HostProgram(operator, None, tvm.compile(module, target=host_target(3)))
    # Level 0, as measured: packing 14x14x256 or 224x224x3 for a convolution takes 6 to 12 ms at any level, and a push 20 ns,
    # but level 3 needs 0.4 s more to compile. All real work is in the design.
    return HostProgram(operator, machine.design_hash, tvm.compile(_flush(module, machine.design_hash), target=host_target(0)))


def _loaded(design_hash: str) -> bool:
    """Whether the design's symbols are there: TVM's JIT ends the process on a symbol that it cannot resolve."""
    everything = ctypes.CDLL(None)
    return all(hasattr(everything, symbol(design_hash)) for symbol in (push_symbol, flush_symbol))


def untensorized(operator: Operator, inputs: Sequence[Array]) -> Array:
    """The operator as TVM compiles it without any schedule: the second reference."""
    return _plain(operator)(inputs)


@functools.lru_cache(maxsize=64)
def _plain(operator: Operator) -> HostProgram:
    return compile_host(tvm.IRModule({"main": operator.prim_func()}), operator)


@functools.cache
def host_target(level: int) -> Any:
    """Target: this processor, at one of LLVM's levels."""
    return Target({"kind": "llvm", "mcpu": str(tvm.target.codegen.llvm_get_system_cpu()), "opt-level": level})


def _flush(module: Any, design_hash: str) -> Any:
    """Wait for all results after the nest of tile calls, before anything reads them."""
    nest = find(module)
    if nest is None:
        raise ScheduleError(f"the module for design {design_hash} has no nest of tile calls to wait for")
    top = nest.top
    call = Evaluate(call_extern("int32", flush_symbol(design_hash)))

    def replace(loop: Any) -> Any:
        return SeqStmt([loop, call]) if loop.same_as(top) else loop

    return tvm.IRModule({"main": structural_map(module["main"], (For, replace), order="post")})
