"""The search space of a study, and what its points mean: hardware variables, then schedule variables per operator.

Which routes, loop orders and split factors a schedule has depends on the hardware. So the schedule variables of the
space are fixed in number and size, and stand for fractions of whatever lists the chosen hardware gives:

* ``<operator>/route``: kind of route; a kind that the hardware does not allow stands for the first one that it does.
* ``<operator>/order``: loop order; loops that the hardware does not leave are dropped from it.
* ``<operator>/split0``, …: index into the divisors of the route's loop 0, …, scaled to their number.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..compiler.schedule import ScheduleSpace, schedule_space
from ..hw.design_point import DesignPoint
from ..intrinsics import CelosiaError, MappingError
from .candidate import Candidate, Schedule
from .hardware import HardwareProblem, InfeasibleError, Vector, kept, raised, scaled
from .study import Study
from .variables import Choice, IntRange, Variable


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
            values.append((name, domain[scaled(index, steps, len(domain))]))
        return tuple(values)

    def whole(self, order: int) -> list[int]:
        """Indices of the schedule with every loop whole on its inner level, in order number ``order``."""
        return [0, min(order, len(self.orders) - 1), *(steps - 1 for steps in self.steps)]


class Problem(HardwareProblem):
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
        super().__init__(study, operators)
        self._spaces: dict[tuple[int, str], ScheduleSpace | CelosiaError] = {}
        self._schedules: dict[tuple[int, str, Vector], Schedule] = {}
        probes = self.probes()
        self.slots = tuple(self._slots(place, probes) for place in range(len(self.operators)))
        self.arrange(self.slots)

    # ---- from vectors to candidates

    def candidate(self, vector: Sequence[int]) -> Candidate:
        """The candidate at axis indices; raises `InfeasibleError`."""
        design = self.design(vector[: self.hardware_width])
        schedules = tuple(
            (operator.name, self._schedule(place, design, tuple(vector[self.places[place]])))
            for place, operator in enumerate(self.operators)
        )
        return Candidate(design, schedules)

    def schedule_space(self, place: int, design: DesignPoint) -> ScheduleSpace:
        """Schedules of operator number ``place`` on a design (cached); raises `InfeasibleError`."""
        key = (place, design.hash)
        if key not in self._spaces:
            self._spaces[key] = kept(lambda: schedule_space(self.operators[place], design.machine))
        found: ScheduleSpace = raised("mapping", self._spaces[key])
        return found

    def _schedule(self, place: int, design: DesignPoint, indices: Vector) -> Schedule:
        key = (place, design.hash, indices)
        found = self._schedules.get(key)
        if found is None:
            found = self._schedules[key] = self.slots[place].decode(indices, self.schedule_space(place, design))
        return found

    # ---- building the space

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
