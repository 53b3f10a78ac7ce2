"""What the exploration searches on the software side: route, loop order and loop splits, as named finite variables.

No TVM here: a schedule is a value, its loop nest is known in closed form, and only schedules worth it are realised.

The nest of a schedule is: batch loops; then the outer levels of all other loops, class by class in the order of
``Schedule.order``; then their inner levels in the same order; inside, one tile call.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..intrinsics import Instruction, Loop, LoopNest, Machine, ScheduleError
from .forms import CLASSES
from .operators import Operator
from .routes import Route, instruction_of, no_route, routes

Value = str | int


@dataclass(frozen=True, kw_only=True)
class Variable:
    """One decision of a schedule.

    Parameters
    ----------
    name : str
        ``route``, ``order``, or ``<route>.<loop>`` for the inner factor of a loop.
    values : tuple
        All values, in order where they have one.
    ordered : bool
        Whether neighbouring values are alike (factors), or not (names).
    route : str or None
        The only route with which the variable has a meaning; None for always.
    """

    name: str
    values: tuple[Value, ...]
    ordered: bool = False
    route: str | None = None

    def at(self, fraction: float) -> Value:
        """The value at a fraction of the domain, 0..1."""
        return self.values[min(int(fraction * len(self.values)), len(self.values) - 1)]


@dataclass(frozen=True)
class Schedule:
    """How an operator runs on an instruction.

    Parameters
    ----------
    route : Route
    order : str
        Classes of the loops from the outside in, such as ``"nkm"``.
    inner : tuple of int
        Inner factor of each of ``route.split_loops``.
    """

    route: Route
    order: str
    inner: tuple[int, ...]

    def __post_init__(self) -> None:
        for loop, inner in zip(self.route.split_loops, self.inner, strict=True):
            if inner < 1 or loop.extent % inner:
                raise ScheduleError(
                    f"inner factor of loop {loop.name} must divide {loop.extent}, not {inner}; allowed: {divisors(loop.extent)}"
                )
        needed = {CLASSES[loop.role] for loop in self.route.split_loops}
        if len(set(self.order)) != len(self.order) or not needed <= set(self.order) <= set("mnk"):
            raise ScheduleError(f"loop order must be a permutation of {''.join(sorted(needed))}, not {self.order!r}")

    @functools.cached_property
    def nest(self) -> LoopNest:
        """The loops around the tile calls, outermost first, without those of one iteration."""
        route = self.route
        batch = [Loop(loop.extent, loop.role, loop.name) for loop in route.outer if loop.role == "abc" and loop.extent > 1]
        outer, inner = [], []
        for name in self.order:
            for loop, factor in zip(route.split_loops, self.inner, strict=True):
                if CLASSES[loop.role] == name:
                    outer.append(Loop(loop.extent // factor, loop.role, f"{loop.name}0"))
                    inner.append(Loop(factor, loop.role, f"{loop.name}1"))
        return LoopNest(tuple(loop for loop in (*batch, *outer, *inner) if loop.extent > 1))

    @property
    def calls(self) -> int:
        """Tile calls."""
        return self.route.calls

    @property
    def utilization(self) -> float:
        """Useful over issued multiply-accumulates, 0..1."""
        return self.route.utilization

    @property
    def bytes_packed(self) -> int:
        """Bytes that pack and unpack blocks write."""
        return self.route.bytes_packed

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: the decisions; `ScheduleSpace.from_dict` reads it back."""
        inner = {loop.name: factor for loop, factor in zip(self.route.split_loops, self.inner, strict=True)}
        return {"route": self.route.kind, "order": self.order, "inner": inner}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, operator: Operator, target: Machine | Instruction) -> Schedule:
        """Schedule of stored decisions, checked against the operator and the instruction."""
        return schedule_space(operator, target).from_dict(data)


@dataclass(frozen=True)
class ScheduleSpace:
    """All schedules of an operator on an instruction.

    Parameters
    ----------
    operator : Operator
    instruction : Instruction
    routes : tuple of Route
    variables : tuple of Variable
        ``route`` and ``order`` first.
    """

    operator: Operator
    instruction: Instruction
    routes: tuple[Route, ...]
    variables: tuple[Variable, ...]

    @property
    def size(self) -> int:
        """Number of schedules, counted over the variables that matter for each route."""
        orders = len(self._variable("order").values)
        return orders * sum(int(np.prod([len(divisors(loop.extent)) for loop in route.split_loops], dtype=object)) for route in self.routes)

    def _variable(self, name: str) -> Variable:
        return next(variable for variable in self.variables if variable.name == name)

    def route(self, kind: Value) -> Route:
        """The route of a kind."""
        for route in self.routes:
            if route.kind == kind:
                return route
        raise no_route(self.operator, self.instruction, str(kind))

    def schedule(self, values: Mapping[str, Value] | None = None) -> Schedule:
        """Schedule of chosen values; variables that are left out take their default (`default`).

        Raises
        ------
        ScheduleError
            If a name or a value is not of this space.
        """
        values = dict(values or {})
        known = {variable.name: variable for variable in self.variables}
        for name, value in values.items():
            if name not in known:
                raise ScheduleError(f"schedule variable must be one of {', '.join(known)}, not {name!r}")
            if name != "route" and value not in known[name].values:
                raise ScheduleError(f"{name} must be one of {', '.join(map(str, known[name].values))}, not {value!r}")
        route = self.route(values.get("route", self.routes[0].kind))
        inner = tuple(int(values.get(f"{route.kind}.{loop.name}", loop.extent)) for loop in route.split_loops)
        return Schedule(route, str(values.get("order", known["order"].values[0])), inner)

    def default(self) -> Schedule:
        """First route, first order, every loop whole on its inner level."""
        return self.schedule()

    def at(self, fractions: Mapping[str, float]) -> Schedule:
        """Schedule at fractions (0..1) of the variables' domains."""
        known = {variable.name: variable for variable in self.variables}
        unknown = [name for name in fractions if name not in known]
        if unknown:
            raise ScheduleError(f"schedule variable must be one of {', '.join(known)}, not {unknown[0]!r}")
        return self.schedule({name: known[name].at(fraction) for name, fraction in fractions.items()})

    def random(self, rng: np.random.Generator) -> Schedule:
        """A random schedule; the same generator state gives the same one."""
        return self.schedule({variable.name: variable.values[int(rng.integers(len(variable.values)))] for variable in self.variables})

    def from_dict(self, data: Mapping[str, Any]) -> Schedule:
        """Read `Schedule.to_dict`.

        Raises
        ------
        ScheduleError
            If a key or a value is not of this space.
        """
        if set(data) != {"route", "order", "inner"} or not isinstance(data["inner"], Mapping):
            raise ScheduleError(f"a schedule has the keys route, order and inner, not {', '.join(map(str, data))}")
        inner = {f"{data['route']}.{name}": factor for name, factor in data["inner"].items()}
        return self.schedule({"route": data["route"], "order": data["order"], **inner})


def schedule_space(operator: Operator, target: Machine | Instruction) -> ScheduleSpace:
    """The variables of an operator on an instruction.

    Raises
    ------
    MappingError
        If no route exists; the message is the reason.
    """
    return _space(operator, instruction_of(target))


@functools.lru_cache(maxsize=4096)
def _space(operator: Operator, instruction: Instruction) -> ScheduleSpace:
    found = routes(operator, instruction)
    classes = {CLASSES[loop.role] for route in found for loop in route.split_loops}
    orders = tuple("".join(order) for order in itertools.permutations([name for name in "mnk" if name in classes]))
    splits = tuple(
        Variable(name=f"{route.kind}.{loop.name}", values=divisors(loop.extent), ordered=True, route=route.kind)
        for route in found
        for loop in route.split_loops
    )
    names = (Variable(name="route", values=tuple(route.kind for route in found)), Variable(name="order", values=orders))
    return ScheduleSpace(operator, instruction, found, names + splits)


@functools.lru_cache(maxsize=4096)
def divisors(number: int) -> tuple[int, ...]:
    """Divisors in ascending order."""
    small = [factor for factor in range(1, int(number**0.5) + 1) if number % factor == 0]
    return tuple(sorted({*small, *(number // factor for factor in small)}))
