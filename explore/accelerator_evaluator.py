"""Candidates of a study of accelerators: scored by the exact model, verified event by event on RTL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..compiler.accelerator.costs import schedule_table
from ..compiler.accelerator.job import typical_operands
from ..compiler.accelerator.lower import check_fit
from ..compiler.accelerator.problem import Problem
from ..compiler.accelerator.schedule import Schedule
from ..hw.design_point import DesignPoint
from ..intrinsics import MismatchError, ScheduleError
from ..intrinsics.accelerator import MemoryTiming
from ..sim.accelerator_scorer import score
from .accelerator import AcceleratorResult, require_exact, simulate_accelerator
from .accelerator_audit import simulate_command
from .accelerator_balanced import balanced_schedule
from .accelerator_problem import LEAST, AcceleratorProblem, tile_schedule
from .accelerator_search import best_schedule
from .candidate import Candidate
from .evaluator import Area, Measurements, check_limits
from .hardware import InfeasibleError

SOURCES = {"area_transistors": "estimate", **dict.fromkeys(("cycles", "multipliers", "memory_kib", "port_bytes"), "model")}
"""Where each number of the model comes from."""


class AcceleratorEvaluator:
    """Exact cycles of every operator, with the candidate's schedules or, if it has none, with those that a search finds for it.

    Parameters
    ----------
    problem : AcceleratorProblem
    area : callable
        Takes a design point, returns transistors.
    """

    fidelity = "model"

    def __init__(self, problem: AcceleratorProblem, area: Area) -> None:
        self._problem, self._area = problem, area
        self._timing = MemoryTiming(latency=problem.study.accelerator.memory_latency)

    def evaluate(self, candidate: Candidate) -> Measurements:
        """Sum over operators, each times its weight; ``schedules`` and how many were compared where they were searched."""
        fixed = self._fixed(candidate.design)
        check_limits(fixed, self._problem.study.limits)  # before the schedules, which take longer
        cycles, found = self._scored(candidate) if candidate.schedules else self._searched(candidate.design)
        total = sum(operator.weight * cycles[operator.name] for operator in self._problem.operators)
        measurements = {**fixed, "cycles": total, "operators": cycles, **found, "sources": SOURCES}
        check_limits(measurements, self._problem.study.limits)
        return measurements

    def _fixed(self, design: DesignPoint) -> Measurements:
        """What does not depend on schedules."""
        from ..sim.area_accelerator import memory_kib

        return {
            "area_transistors": self._area(design),
            "multipliers": design.macs_per_cycle,
            "memory_kib": memory_kib(design),
            "port_bytes": getattr(design.parameters, "port_bytes", 0),
        }

    def _scored(self, candidate: Candidate) -> tuple[dict[str, int], Measurements]:
        """All operators in one call of the scorer."""
        names = [name for name, _ in candidate.schedules]
        rows = [
            schedule_table(self._problem.mapped(name, candidate.design), [tile_schedule(candidate, name)], timing=self._timing)
            for name in names
        ]
        cycles, _ = score(np.concatenate(rows))
        for name, own in zip(names, cycles, strict=True):
            if own < 0:
                raise InfeasibleError("schedule", ScheduleError(f"{name}: the schedule would evict unfinished output tiles"))
        return dict(zip(names, cycles.tolist(), strict=True)), {}

    def _searched(self, design: DesignPoint) -> tuple[dict[str, int], Measurements]:
        cycles, schedules, compared = {}, {}, 0
        for operator in self._problem.operators:
            mapped = self._problem.mapped(operator.name, design)
            try:
                check_fit(mapped, LEAST)  # says by how much a memory is too small
                schedule, cycles[operator.name], candidates = self._found(mapped)
            except ScheduleError as error:
                raise InfeasibleError("schedule", ScheduleError(f"{operator.name}: {error}")) from None
            schedules[operator.name] = schedule.to_dict()
            compared += candidates
        return cycles, {"schedules": schedules, "schedules_compared": compared}

    def _found(self, mapped: Problem) -> tuple[Schedule, int, int]:
        """Schedule, its cycles, and how many there were to choose from."""
        if self._problem.study.accelerator.schedules == "balanced":
            return balanced_schedule(mapped, timing=self._timing)
        result = best_schedule(mapped, timing=self._timing)
        return result.schedule, result.cycles, result.candidates


class AcceleratorVerifier:
    """Runs operators on the RTL of a candidate's accelerator and compares every bit and every event.

    Parameters
    ----------
    problem : AcceleratorProblem
    seed : int
        Of the operands.
    """

    def __init__(self, problem: AcceleratorProblem, *, seed: int) -> None:
        self._problem, self._seed = problem, seed
        self._timing = MemoryTiming(latency=problem.study.accelerator.memory_latency)

    def run(self, candidate: Candidate, name: str, *, progress: Callable[..., None] | None = None) -> AcceleratorResult:
        """One operator, measured but not judged (`check` does that)."""

        def stage(_: str) -> None:
            if progress:
                progress("build", 0)  # where the run may be stopped

        return simulate_accelerator(
            candidate.design,
            self._problem.convolutions[name],
            schedule=tile_schedule(candidate, name),
            fidelity="both",
            output=self._problem.output,
            timing=self._timing,
            seed=self._seed,
            make_operands=typical_operands,
            progress=stage,
        )

    def check(self, run: Any, candidate: Candidate, name: str, *, expected: int | None) -> None:
        """Raise unless the run equals its reference in every bit, and the model and the search in every cycle.

        Raises
        ------
        MismatchError
            Holds a command that repeats the run.
        """
        output, schedule = self._problem.study.accelerator.output, tile_schedule(candidate, name)
        command = simulate_command(candidate.design, name, schedule, output=output, timing=self._timing, seed=self._seed)
        require_exact(run, command)
        if run.cycles != expected:
            raise MismatchError(f"{name} took {run.cycles} cycles on RTL, but {expected} by the scorer of the search; reproduce: {command}")
