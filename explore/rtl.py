"""Evaluation on RTL: every operator whole, output compared bit for bit, cycles compared with the model cycle for cycle."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..compiler.schedule import schedule_space
from ..intrinsics import CelosiaError, Measurement, MismatchError
from .candidate import Candidate, canonical
from .evaluator import Measurements
from .operator_run import run_operator


class RtlEvaluator:
    """Runs operators on the Verilated design.

    Parameters
    ----------
    operators : sequence of Operator
    seed : int
        Of the operands; they are the same for every candidate.
    """

    fidelity = "rtl"

    def __init__(self, operators: Sequence[Any], *, seed: int) -> None:
        self.operators = {operator.name: operator for operator in operators}
        self.seed = seed
        self._data: dict[str, tuple[Any, Any]] = {}
        self._locks = {name: threading.Lock() for name in self.operators}

    def evaluate(self, candidate: Candidate) -> Measurements:
        """Every operator of the candidate, one after another, each judged."""
        runs = {name: self.run(candidate, name) for name in self.operators}
        for name, run in runs.items():
            self.check(run, candidate, name, expected=run.model_cycles)
        total = sum(self.operators[name].weight * run.cycles for name, run in runs.items())
        return {"cycles": total, "operators": {name: run.cycles for name, run in runs.items()}, "sources": {"cycles": "rtl"}}

    def run(self, candidate: Candidate, name: str, *, progress: Callable[..., None] | None = None) -> Measurement:
        """One operator of the candidate, measured but not judged (`check` does that)."""
        operator = self.operators[name]
        schedule = schedule_space(operator, candidate.design.machine).schedule(candidate.schedule(name))
        inputs, reference = self._operands(name)
        return run_operator(candidate.design, operator, schedule, inputs=inputs, reference=reference, progress=progress)

    def check(self, run: Measurement, candidate: Candidate, name: str, *, expected: int | None) -> None:
        """As `check`, with the seed of this evaluator."""
        check(run, candidate, name, expected=expected, seed=self.seed)

    def _operands(self, name: str) -> tuple[Any, Any]:
        """Operands and reference output of an operator (made once)."""
        with self._locks[name]:
            if name not in self._data:
                operator = self.operators[name]
                rng = np.random.default_rng([self.seed, list(self.operators).index(name)])
                inputs = operator.random_inputs(rng)
                self._data[name] = (inputs, operator.reference(inputs))
            return self._data[name]


class CyclesDifferError(MismatchError):
    """RTL and model disagree about cycles: one of the two is wrong, and no number of the study can be trusted."""


def check(run: Measurement, candidate: Candidate, name: str, *, expected: int | None, seed: int) -> None:
    """Raise unless a run on RTL equals its reference bit for bit and the model cycle for cycle.

    Raises
    ------
    MismatchError
        The output differs; the message has what it takes to repeat the run.
    CyclesDifferError
    """
    design = candidate.design
    repeat = f"to repeat: seed {seed}, design {canonical(design.to_dict())}, schedule {canonical(dict(candidate.schedule(name)))}"
    if run.source != "rtl":
        raise CelosiaError(f"a verification needs a run on rtl, not one of source {run.source!r}")
    if run.matches_reference is not True:
        raise MismatchError(f"output of {name} on {design.name} differs from the reference; {repeat}")
    if run.cycles != expected:
        raise CyclesDifferError(f"{name} on {design.name} took {run.cycles} cycles on RTL, but {expected} in the model; {repeat}")
