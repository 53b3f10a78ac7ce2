"""The search space of a study, and what its points mean: hardware variables, then schedule variables per operator.

Which routes, loop orders and split factors a schedule has depends on the hardware. So the schedule variables of the
space are fixed in number and size, and stand for fractions of whatever lists the chosen hardware gives:

* ``<operator>/route``: kind of route; a kind that the hardware does not allow stands for the first one that it does.
* ``<operator>/order``: loop order; loops that the hardware does not leave are dropped from it.
* ``<operator>/split0``, …: index into the divisors of the route's loop 0, …, scaled to their number.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..compiler.schedule import ScheduleSpace, schedule_space
from ..hw.design_point import DesignPoint
from ..intrinsics import CelosiaError, MappingError, ParameterError
from .candidate import Candidate, Schedule
from .space import Assignment, Space
from .study import Study
from .variables import Choice, IntRange, Variable

PROBES = 32
"""Random designs that are looked at, beside the corners of every domain, to learn which schedule variables there are."""

Vector = tuple[int, ...]


class OperatorLike(Protocol):
    """What the search needs of an operator."""

    @property
    def name(self) -> str: ...
    @property
    def weight(self) -> int: ...
    @property
    def macs(self) -> int: ...


class InfeasibleError(CelosiaError):
    """A point of the space has no candidate; ``stage`` says which part of it is at fault."""

    def __init__(self, stage: str, error: CelosiaError) -> None:
        super().__init__(str(error))
        self.stage = stage
        self.cause = type(error).__name__


@dataclass(frozen=True)
class Slots:
    """The schedule variables of one operator: their place in a vector, and how they decode."""

    operator: Any
    kinds: tuple[str, ...]
    orders: tuple[str, ...]
    steps: tuple[int, ...]

    @property
    def variables(self) -> list[Variable]:
        """The variables, in the order of `decode`."""
        name = self.operator.name
        splits = [IntRange(f"{name}/split{i}", low=0, high=steps - 1) for i, steps in enumerate(self.steps)]
        return [Choice(f"{name}/route", options=self.kinds), Choice(f"{name}/order", options=self.orders), *splits]

    def decode(self, indices: Sequence[int], space: ScheduleSpace) -> Schedule:
        """Values of the real schedule variables."""
        kind = self.kinds[indices[0]]
        route = next((route for route in space.routes if route.kind == kind), space.routes[0])
        variables = {variable.name: variable.values for variable in space.variables}
        letters = set(str(variables["order"][0]))
        order = "".join(letter for letter in self.orders[indices[1]] if letter in letters)
        order = order if order in variables["order"] else str(variables["order"][0])
        values: list[tuple[str, Any]] = [("route", route.kind), ("order", order)]
        for slot, loop in enumerate(route.split_loops):
            name = f"{route.kind}.{loop.name}"
            domain = variables[name]
            steps = self.steps[slot] if slot < len(self.steps) else 1
            index = indices[2 + slot] if slot < len(self.steps) else 0
            values.append((name, domain[_scaled(index, steps, len(domain))]))
        return tuple(values)

    def whole(self, order: int) -> list[int]:
        """Indices of the schedule with every loop whole on its inner level, in order number ``order``."""
        return [0, min(order, len(self.orders) - 1), *(steps - 1 for steps in self.steps)]


def _scaled(index: int, steps: int, length: int) -> int:
    """Place in a list of ``length`` for step ``index`` of ``steps``: first to first, last to last, order kept."""
    return round(index * (length - 1) / (steps - 1)) if steps > 1 else length - 1


class Problem:
    """A study made searchable.

    Parameters
    ----------
    study : Study
    operators : sequence of Operator
        The resolved workload, each with a distinct name.

    Raises
    ------
    MappingError
        If an operator maps on none of the probed designs; the message is the reason.
    """

    def __init__(self, study: Study, operators: Sequence[Any]) -> None:
        self.study = study
        self.operators = tuple(operators)
        self.hardware = hardware_space(study)
        self._designs: dict[Vector, DesignPoint | CelosiaError] = {}
        self._spaces: dict[tuple[int, str], ScheduleSpace | CelosiaError] = {}
        self._schedules: dict[tuple[int, str, Vector], Schedule] = {}
        probes = self._probes()
        self.slots = tuple(self._slots(place, probes) for place in range(len(self.operators)))
        self.space = Space([*self.hardware.variables, *(variable for slots in self.slots for variable in slots.variables)])
        self.hardware_width = len(self.hardware.axes)
        ends = list(itertools.accumulate((2 + len(slots.steps) for slots in self.slots), initial=self.hardware_width))
        self.places = tuple(slice(start, end) for start, end in itertools.pairwise(ends))

    # ---- from vectors to candidates

    def candidate(self, vector: Sequence[int]) -> Candidate:
        """The candidate at axis indices; raises `InfeasibleError`."""
        design = self.design(vector[: self.hardware_width])
        schedules = tuple(
            (operator.name, self._schedule(place, design, tuple(vector[self.places[place]])))
            for place, operator in enumerate(self.operators)
        )
        return Candidate(design, schedules)

    def design(self, indices: Sequence[int]) -> DesignPoint:
        """The design point at the hardware's axis indices (cached)."""
        key = tuple(indices)
        if key not in self._designs:
            self._designs[key] = _kept(lambda: self.design_of(self.hardware.decode(key)))
        found: DesignPoint = _raised("hardware", self._designs[key])
        return found

    def design_of(self, assignment: Mapping[str, Any]) -> DesignPoint:
        """The design point of an assignment of the hardware variables."""
        label = assignment["family"]
        family = next(hardware.family for hardware in self.study.hardware if hardware.label == label)
        prefix = f"{label}."
        return DesignPoint.create(family, **{name[len(prefix) :]: value for name, value in assignment.items() if name.startswith(prefix)})

    def schedule_space(self, place: int, design: DesignPoint) -> ScheduleSpace:
        """Schedules of operator number ``place`` on a design (cached); raises `InfeasibleError`."""
        key = (place, design.hash)
        if key not in self._spaces:
            self._spaces[key] = _kept(lambda: schedule_space(self.operators[place], design.machine))
        found: ScheduleSpace = _raised("mapping", self._spaces[key])
        return found

    def _schedule(self, place: int, design: DesignPoint, indices: Vector) -> Schedule:
        key = (place, design.hash, indices)
        found = self._schedules.get(key)
        if found is None:
            found = self._schedules[key] = self.slots[place].decode(indices, self.schedule_space(place, design))
        return found

    # ---- building the space

    def _probes(self) -> list[DesignPoint]:
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

    def _slots(self, place: int, probes: Sequence[DesignPoint]) -> Slots:
        """What the schedules of one operator have in common over the probed designs."""
        spaces, reason = [], None
        for design in probes:
            try:
                spaces.append(self.schedule_space(place, design))
            except InfeasibleError as error:
                reason = reason or str(error)
        operator = self.operators[place]
        if not spaces:
            raise MappingError(f"operator {operator.name} maps on none of the {len(probes)} designs looked at: {reason}")
        kinds = dict.fromkeys(route.kind for space in spaces for route in space.routes)
        letters = sorted({letter for space in spaces for letter in str(self._orders(space)[0])})
        orders = tuple("".join(order) for order in itertools.permutations(letters)) or ("",)
        return Slots(operator, tuple(kinds), orders, _steps(spaces))

    @staticmethod
    def _orders(space: ScheduleSpace) -> Sequence[Any]:
        return next(variable.values for variable in space.variables if variable.name == "order")


def _steps(spaces: Sequence[ScheduleSpace]) -> tuple[int, ...]:
    """Most values of the split in each place of any route."""
    steps: list[int] = []
    for space in spaces:
        domains = {variable.name: len(variable.values) for variable in space.variables}
        for route in space.routes:
            for place, loop in enumerate(route.split_loops):
                if place == len(steps):
                    steps.append(1)
                steps[place] = max(steps[place], domains[f"{route.kind}.{loop.name}"])
    return tuple(steps)


def hardware_space(study: Study) -> Space:
    """The hardware variables of a study: the family (label of its table), then each family's parameters."""
    variables: list[Variable] = [Choice("family", options=tuple(hardware.label for hardware in study.hardware))]
    for hardware in study.hardware:
        when = {"family": hardware.label}
        variables.extend(domain.variable(f"{hardware.label}.{name}", when) for name, domain in hardware.domains.items())
    return Space(variables)


def _kept(make: Any) -> Any:
    """The result, or the error as a value, so that failures are cached too."""
    try:
        return make()
    except CelosiaError as error:
        return error


def _raised(stage: str, value: Any) -> Any:
    if isinstance(value, CelosiaError):
        raise InfeasibleError(stage, value)
    return value
