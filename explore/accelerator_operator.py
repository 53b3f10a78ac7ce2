"""Any operator on an accelerator: through the mapper's placement, or through a module that TVM scheduled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..compiler.accelerator.convolution import Output, gemm
from ..compiler.accelerator.job import Operands, random_operands
from ..compiler.accelerator.operator_program import OperatorProgram, lower_operator, place_on, problem_of
from ..compiler.accelerator.operators import placement_of
from ..compiler.accelerator.placement import Placement
from ..compiler.accelerator.problem import Problem
from ..compiler.accelerator.schedule import Schedule
from ..compiler.operators import Operator, build, parse
from ..compiler.reasons import Rejected
from ..hw.accelerator.machine import machine_of
from ..hw.design_point import DesignPoint
from ..intrinsics import DType, MappingError, ParameterError
from ..intrinsics.accelerator import AcceleratorMachine, Limits, MemoryTiming, Program
from ..intrinsics.numerics import Array
from .accelerator import AcceleratorResult, check_size, choose_schedule, conclude, simulate_accelerator
from .accelerator_run import Observed, Progress, check_fidelity, observe
from .accelerator_turns import Sums

if TYPE_CHECKING:
    from ..compiler.accelerator.through_tvm import OperatorModule

WAYS = ("native", "tvm")


def simulate_operator(
    point: DesignPoint,
    operator: Operator | str | tuple[int, int, int],
    *,
    through: str = "native",
    schedule: Schedule | str = "best",
    fidelity: str = "both",
    output: Output | None = None,
    timing: MemoryTiming | None = None,
    limits: Limits | None = None,
    seed: int = 0,
    make_operands: Callable[[Problem, np.random.Generator], Operands] = random_operands,
    keep: Callable[[Program, Array], None] | None = None,
    progress: Progress | None = None,
) -> AcceleratorResult:
    """Run an operator of any kind that has a place on the design, and compare its output with the operator's reference.

    Parameters
    ----------
    point : DesignPoint
        Of family ``accelerator``.
    operator : Operator, operator string, or (M, N, K)
        Takes the types of the design.
    through : "native" or "tvm"
        ``tvm`` has TVM cut, order and tensorize the operator, and makes the program from the tile calls of the compiled module; the
        schedule gives tile, order of the loops, and slots.
    schedule : Schedule or "best"
        All convolutions of an operator that is several follow it. The best is the fastest of these by the cycles of the whole program;
        through TVM, that of one convolution.
    output : Output, optional
        Other outputs than 32-bit sums take an operator that is one convolution, and no TVM.
    fidelity, timing, limits, seed, make_operands, keep, progress
        As of `simulate_accelerator`.

    Returns
    -------
    AcceleratorResult whose ``mapping`` tells how the operator became the program.

    Raises
    ------
    MappingError
        If the operator has no place on the design; the message is the reason and the nearest change.
    ScheduleError, ParameterError, SimulationError
    """
    check_fidelity(fidelity)
    if through not in WAYS:
        raise ParameterError(f"through must be one of {', '.join(WAYS)}, not {through!r}")
    machine, timing = machine_of(point), timing or MemoryTiming()
    typed, placement = _placed(operator, machine)
    if through == "native" and placement.copies == (1, 1, 1):
        found = simulate_accelerator(
            point,
            placement.op,
            schedule=schedule,
            fidelity=fidelity,
            output=output,
            timing=timing,
            limits=limits,
            seed=seed,
            make_operands=make_operands,
            keep=keep,
            progress=progress,
        )
        return replace(found, mapping=_told(placement))
    if output not in (None, Output()):
        raise ParameterError("an operator that is several convolutions, or goes through TVM, has 32-bit sums as output; allowed: sums")
    problem, sums = _several(typed, placement, machine)
    check_size(problem)
    chosen, search = choose_schedule(problem, schedule, timing, limits, sums=sums if through == "native" else None)
    lowered, mapping = _lowered(typed, placement, machine, chosen, through)
    seen: list[Observed] = []

    def engine(program: Program, memory: Array) -> None:
        if keep is not None:
            keep(program, memory.copy())
        seen.append(observe(point, program, memory, fidelity=fidelity, timing=timing, limits=limits, progress=progress))

    inputs = typed.random_inputs(np.random.default_rng(seed))
    matches = bool(np.array_equal(lowered.run(inputs, engine), typed.reference(inputs)))
    return conclude(machine, lowered.program, seen[0], schedule=lowered.schedule, matches=matches, search=search, mapping=mapping)


def problem_on(
    operator: Operator | str | tuple[int, int, int], machine: AcceleratorMachine, output: Output | None = None
) -> tuple[Problem, Sums | None]:
    """The convolution that an operator is on a machine, and if it is several, which.

    Raises
    ------
    MappingError, ScheduleError, ParameterError
    """
    typed, placement = _placed(operator, machine)
    if placement.copies == (1, 1, 1):
        return Problem(machine=machine, op=placement.op, output=output or Output()), None
    return _several(typed, placement, machine)


def _placed(operator: Operator | str | tuple[int, int, int], machine: AcceleratorMachine) -> tuple[Operator, Placement]:
    """An operator with the types of a machine, and where its loops run."""
    if isinstance(operator, tuple):
        m, n, k = operator
        gemm(m, n, k)  # names what is wrong
        operator = build("GMM", {"batch": 1, "m": m, "n": n, "k": k})
    typed = (parse(operator) if isinstance(operator, str) else operator).typed(a=machine.a, b=machine.b, out=DType(32))
    return typed, _found(typed, placement_of(typed))


def _several(operator: Operator, placement: Placement, machine: AcceleratorMachine) -> tuple[Problem, Sums]:
    _found(operator, place_on(operator, machine))
    return problem_of(placement, machine), placement.sums


def _found(operator: Operator, answer: Placement | Rejected) -> Placement:
    if isinstance(answer, Rejected):
        change = f"; nearest change: {answer.change}" if answer.change else ""
        raise MappingError(f"{operator.name} has no place on the design: {answer.detail} ({answer.reason.value}){change}")
    return answer


def _lowered(
    operator: Operator, placement: Placement, machine: AcceleratorMachine, schedule: Schedule, through: str
) -> tuple[OperatorProgram | OperatorModule, dict[str, Any]]:
    """The program, and how it came about."""
    if through == "tvm":
        from ..compiler.accelerator.through_tvm import lower_through_tvm

        return lower_through_tvm(operator, placement, machine, schedule)
    return lower_operator(placement, machine, schedule), _told(placement)


def _told(placement: Placement) -> dict[str, Any]:
    return {"through": "native", "turns": sum(map(len, placement.sums)), "movement": placement.movement}
