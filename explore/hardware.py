"""The hardware half of a study's space: its variables, the legal designs, and their corners."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..hw.design_point import DesignPoint
from ..intrinsics import CelosiaError, ParameterError
from .candidate import Candidate
from .space import Assignment, Space
from .study import Study
from .variables import Choice, Variable

PROBES = 32
"""Random designs that are looked at, beside the corners of every domain, to learn which schedule variables there are."""

Vector = tuple[int, ...]


class InfeasibleError(CelosiaError):
    """A point of the space has no candidate; ``stage`` says which part of it is at fault."""

    def __init__(self, stage: str, error: CelosiaError) -> None:
        super().__init__(str(error))
        self.stage = stage
        self.cause = type(error).__name__


class SlotsLike(Protocol):
    """The schedule variables of one operator, the same for every design."""

    @property
    def variables(self) -> list[Variable]: ...
    @property
    def orders(self) -> tuple[str, ...]: ...
    def whole(self, order: int) -> list[int]: ...


class HardwareProblem:
    """A study made searchable: hardware variables, then schedule variables per operator; the subclasses say which.

    Parameters
    ----------
    study : Study
    operators : sequence of Operator
        The resolved workload, each with a distinct name.
    """

    def __init__(self, study: Study, operators: Sequence[Any]) -> None:
        self.study = study
        self.operators = tuple(operators)
        self.hardware = hardware_space(study)
        self.hardware_width = len(self.hardware.axes)
        self._designs: dict[Vector, DesignPoint | CelosiaError] = {}

    def arrange(self, slots: Sequence[SlotsLike]) -> None:
        """Append the schedule variables, and note where in a vector those of each operator are."""
        self.schedule_slots = tuple(slots)
        self.space = Space([*self.hardware.variables, *(variable for each in slots for variable in each.variables)])
        widths = [sum(len(variable.axes) for variable in each.variables) for each in slots]
        ends = list(itertools.accumulate(widths, initial=self.hardware_width))
        self.places = tuple(slice(start, end) for start, end in itertools.pairwise(ends))

    def candidate(self, vector: Sequence[int]) -> Candidate:
        """The candidate at axis indices; raises `InfeasibleError`."""
        raise NotImplementedError

    def design(self, indices: Sequence[int]) -> DesignPoint:
        """The design point at the hardware's axis indices (cached)."""
        key = tuple(indices)
        if key not in self._designs:
            self._designs[key] = kept(lambda: self.design_of(self.hardware.decode(key)))
        found: DesignPoint = raised("hardware", self._designs[key])
        return found

    def design_of(self, assignment: Mapping[str, Any]) -> DesignPoint:
        """The design point of an assignment of the hardware variables."""
        label = assignment["family"]
        family = next(hardware.family for hardware in self.study.hardware if hardware.label == label)
        prefix = f"{label}."
        return DesignPoint.create(family, **{name[len(prefix) :]: value for name, value in assignment.items() if name.startswith(prefix)})

    def probes(self) -> list[DesignPoint]:
        """Corners of every domain and some random points, as far as they are feasible."""
        rng = np.random.default_rng(0)
        assignments = [*self.corners(), *(self.hardware.random(rng) for _ in range(PROBES))]
        found: dict[str, DesignPoint] = {}
        reason: CelosiaError | None = None
        for assignment in assignments:
            try:
                point = self.design_of(assignment)
                found[point.hash] = point
            except CelosiaError as error:
                reason = reason or error
        if not found:
            raise ParameterError(f"no design of the study's domains is legal; the first one: {reason}")
        return list(found.values())

    def corners(self) -> list[Assignment]:
        """Smallest, middle and largest value of all ordered domains at once, for every combination of the unordered ones."""
        unordered = Space([variable for variable in self.hardware.variables if not variable.ordered])
        found = []
        for choice in unordered.enumerate():
            for end in (0.0, 0.5, 1.0):
                found.append(self._at(choice, end))
        return found

    def _at(self, choice: Assignment, end: float) -> Assignment:
        result: Assignment = {}
        for variable in self.hardware.variables:
            if self.hardware.active(variable, result):
                result[variable.name] = choice[variable.name] if variable.name in choice else variable.at(round(end * (variable.size - 1)))
        return result


def hardware_space(study: Study) -> Space:
    """The hardware variables of a study: the family (label of its table), then each family's parameters."""
    variables: list[Variable] = [Choice("family", options=tuple(hardware.label for hardware in study.hardware))]
    for hardware in study.hardware:
        when = {"family": hardware.label}
        variables.extend(domain.variable(f"{hardware.label}.{name}", when) for name, domain in hardware.domains.items())
    return Space(variables)


def kept(make: Any) -> Any:
    """The result, or the error as a value, so that failures are cached too."""
    try:
        return make()
    except CelosiaError as error:
        return error


def raised(stage: str, value: Any) -> Any:
    if isinstance(value, CelosiaError):
        raise InfeasibleError(stage, value)
    return value


def scaled(index: int, steps: int, length: int) -> int:
    """Place in a list of ``length`` for step ``index`` of ``steps``: first to first, last to last, order kept."""
    return round(index * (length - 1) / (steps - 1)) if steps > 1 else length - 1
