"""One operator on one accelerator: schedule it, predict it exactly, run it on RTL, compare, and say where the cycles went."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..compiler.accelerator.convolution import Convolution, Output, gemm
from ..compiler.accelerator.job import Operands, expected, image_of, random_operands, result_of
from ..compiler.accelerator.lower import lower
from ..compiler.accelerator.operators import convolution_of
from ..compiler.accelerator.problem import Problem
from ..compiler.accelerator.schedule import Schedule
from ..hw.accelerator.machine import machine_of
from ..hw.design_point import DesignPoint
from ..intrinsics import MismatchError, ParameterError
from ..intrinsics.accelerator import AcceleratorMachine, Limits, MemoryTiming, Program
from ..intrinsics.memory import require_memory
from ..intrinsics.numerics import Array
from .accelerator_run import Observed, Progress, check_fidelity, observe
from .accelerator_search import best_schedule
from .accelerator_sensitivity import Sensitivity
from .accelerator_turns import Sums

if TYPE_CHECKING:
    from ..compiler.operators import Operator


@dataclass(frozen=True, kw_only=True)
class AcceleratorResult:
    """What is known of one operator on one accelerator.

    Parameters
    ----------
    design_hash : str
    schedule : Schedule
    model_cycles : int
    rtl_cycles : int or None
        None where RTL was not run.
    events_equal : bool or None
        Whether every event of the RTL came in the cycle that the model predicted.
    matches_reference : bool
        Whether the result (of the RTL, else of the functional model) equals the reference bit for bit.
    macs : int
        Useful multiply-accumulates.
    utilization : float
        ``macs / (cycles * peak)``.
    ledger, critical_path : mapping
        What the array did, and what was critical; each sums to the cycles.
    commands : int
    simulation_seconds, build_seconds : float
    search, mapping : mapping
        What the search for the schedule looked at, and how the operator became the program.
    error : bool or None
        As `Observed.error`.
    """

    design_hash: str
    schedule: Schedule
    model_cycles: int
    rtl_cycles: int | None
    events_equal: bool | None
    matches_reference: bool
    macs: int
    utilization: float
    ledger: Mapping[str, int]
    critical_path: Mapping[str, int]
    commands: int
    simulation_seconds: float = 0.0
    build_seconds: float = 0.0
    search: Mapping[str, Any] = field(default_factory=dict)
    mapping: Mapping[str, Any] = field(default_factory=dict)
    error: bool | None = None

    @property
    def passed(self) -> bool:
        """Whether nothing that was checked differs."""
        return self.matches_reference and self.events_equal is not False

    @property
    def cycles(self) -> int:
        """Of the RTL if it ran, else of the model."""
        return self.model_cycles if self.rtl_cycles is None else self.rtl_cycles

    @property
    def source(self) -> str:
        """Where `cycles` come from."""
        return "model" if self.rtl_cycles is None else "rtl"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plain = {name: getattr(self, name) for name in ("cycles", "source", *self.__dataclass_fields__)}
        return {**plain, "schedule": self.schedule.to_dict(), "ledger": dict(self.ledger), "critical_path": dict(self.critical_path)}


def as_convolution(operator: Convolution | Operator | str | tuple[int, int, int]) -> Convolution:
    """A convolution from (M, N, K), an operator, or its string."""
    if isinstance(operator, Convolution):
        return operator
    return gemm(*operator) if isinstance(operator, tuple) else convolution_of(operator)


def simulate_accelerator(
    point: DesignPoint,
    operator: Convolution | Operator | str | tuple[int, int, int],
    *,
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
    """Run one operator.

    Parameters
    ----------
    point : DesignPoint
        Of family ``accelerator``.
    operator : Convolution, Operator, operator string, or (M, N, K)
    schedule : Schedule or "best"
        ``"best"`` searches all schedules.
    fidelity : "model", "rtl" or "both"
        ``model`` predicts cycles and computes the result functionally; the others run the RTL as well.
    output : Output, optional
        32-bit sums if absent.
    seed : int
        Of the operands.
    make_operands : callable
    keep : callable, optional
        Called with the program and the memory image before the run.

    Raises
    ------
    ScheduleError, ParameterError, SimulationError
    """
    check_fidelity(fidelity)
    machine, timing = machine_of(point), timing or MemoryTiming()
    problem = Problem(machine=machine, op=as_convolution(operator), output=output or Output())
    check_size(problem)
    chosen, found = choose_schedule(problem, schedule, timing, limits)
    program = lower(problem, chosen)
    operands = make_operands(problem, np.random.default_rng(seed))
    memory = image_of(problem, operands)
    if keep is not None:
        keep(program, memory.copy())
    seen = observe(point, program, memory, fidelity=fidelity, timing=timing, limits=limits, progress=progress)
    matches = bool(np.array_equal(result_of(program, memory), expected(problem, operands)))
    return conclude(machine, program, seen, schedule=chosen, matches=matches, search=found)


def conclude(
    machine: AcceleratorMachine,
    program: Program,
    seen: Observed,
    *,
    schedule: Schedule,
    matches: bool,
    search: Mapping[str, Any],
    mapping: Mapping[str, Any] | None = None,
) -> AcceleratorResult:
    """What is known of an operator after its program was observed."""
    return AcceleratorResult(
        design_hash=machine.design_hash,
        schedule=schedule,
        model_cycles=seen.predicted.cycles,
        rtl_cycles=None if seen.rtl is None else seen.rtl.cycles,
        events_equal=seen.events_equal,
        matches_reference=matches,
        macs=program.macs,
        utilization=program.macs / (seen.cycles * machine.macs_per_cycle),
        ledger=seen.ledger,
        critical_path=seen.critical_path,
        commands=len(program.commands),
        simulation_seconds=seen.simulation_seconds,
        build_seconds=seen.build_seconds,
        error=seen.error,
        search=search,
        mapping=mapping or {},
    )


def check_size(problem: Problem) -> None:
    """Refuse an operator whose operands, result and memory image do not fit into this machine's memory.

    Raises
    ------
    ParameterError
    """
    op, (a, b, c) = problem.op, problem.copies
    values = a * op.images * op.height * op.width * op.channels + b * op.filters * op.depth + c * op.outputs * op.filters
    # an image is copied less often than values are, but pads them to beats
    require_memory(max(values, problem.memory_bytes // 8), "the operator")


def choose_schedule(
    problem: Problem, schedule: Schedule | str, timing: MemoryTiming, limits: Limits | None = None, *, sums: Sums | None = None
) -> tuple[Schedule, dict[str, Any]]:
    """The schedule itself, or the best one (with ``sums``, of all their convolutions) and what its search looked at."""
    if isinstance(schedule, Schedule):
        return schedule, {}
    if schedule != "best":
        raise ParameterError(f"schedule must be a Schedule or 'best', not {schedule!r}")
    result = best_schedule(problem, timing=timing, limits=limits, sums=sums)
    found = {name: getattr(result, name) for name in ("candidates", "legal", "scored", "seconds")}
    return result.schedule, found


def require_exact(result: AcceleratorResult, reproducer: str) -> None:
    """Stop at any difference between model and RTL.

    Raises
    ------
    MismatchError
        Holds the reproducer.
    """
    if not result.matches_reference:
        raise MismatchError(f"the result differs from the reference; reproduce: {reproducer}")
    if result.events_equal is False:
        raise MismatchError(
            f"model ({result.model_cycles} cycles) and RTL ({result.rtl_cycles} cycles) differ in an event; reproduce: {reproducer}"
        )


def in_words(result: AcceleratorResult, looked: Sensitivity | None = None) -> list[str]:
    """The ledgers as sentences, and what would help most."""
    cycles = result.rtl_cycles or result.model_cycles
    port = sum(result.critical_path[name] for name in ("load_port", "store_port", "credit_stall"))
    array = sum(result.critical_path[name] for name in ("compute", "array_pad", "preload"))
    kind, share = ("port-bound", port) if port > array else ("array-bound", array)
    what = "loads and stores" if kind == "port-bound" else "the array"
    lines = [
        f"{kind}: {share / cycles:.0%} of the critical path is {what}",
        f"the array has a useful beat in {result.ledger['beats'] / cycles:.1%} of {cycles} cycles; utilisation {result.utilization:.1%}",
    ]
    return lines if looked is None else [*lines, *looked.in_words(result.model_cycles)]
