"""Typed variables with finite domains: hardware and schedule variables are the same kind of thing.

A `Space` knows no optimiser. Towards one it is a vector of `Axis` indices (`Space.axes`, `encode`, `decode`), which
any ask/tell engine can propose; ordered domains are ordered axes.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..intrinsics import ParameterError
from .variables import Axis, Value, Variable

Assignment = dict[str, Value]
MAX_TRIES = 10_000
"""Rejections after which `Space.random` takes the constraints for contradictory."""


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """A named predicate over some variables, declared with the space.

    Parameters
    ----------
    name : str
    needs : tuple of variable names
        The constraint is checked where all of them are active.
    holds : callable
        Takes the values of ``needs`` in order, returns whether they go together.
    message : str
        Why they do not, for people.
    """

    name: str
    needs: tuple[str, ...]
    holds: Callable[..., bool]
    message: str

    def violated(self, assignment: Mapping[str, Value]) -> bool:
        """Whether the constraint applies to ``assignment`` and does not hold."""
        if any(name not in assignment for name in self.needs):
            return False
        return not self.holds(*(assignment[name] for name in self.needs))


@dataclass(frozen=True)
class Space:
    """Variables and the constraints between them.

    Parameters
    ----------
    variables : sequence of Variable
        A variable that another one's ``when`` names stands before it.
    constraints : sequence of Constraint
    """

    variables: tuple[Variable, ...]
    constraints: tuple[Constraint, ...] = ()
    _by_name: dict[str, Variable] = field(default_factory=dict, repr=False, compare=False)

    def __init__(self, variables: Sequence[Variable], constraints: Sequence[Constraint] = ()) -> None:
        object.__setattr__(self, "variables", tuple(variables))
        object.__setattr__(self, "constraints", tuple(constraints))
        object.__setattr__(self, "_by_name", {})
        for variable in self.variables:
            self._declare(variable)
        for constraint in self.constraints:
            for name in constraint.needs:
                self.variable(name)

    def _declare(self, variable: Variable) -> None:
        if variable.name in self._by_name:
            raise ParameterError(f"variable {variable.name!r} is declared twice; names in a space must be unique")
        for other, allowed in variable.when.items():
            if other not in self._by_name:
                raise ParameterError(f"variable {variable.name!r} depends on {other!r}, which must be declared before it")
            for value in _options(allowed):
                self._by_name[other].check(value)
        self._by_name[variable.name] = variable

    def variable(self, name: str) -> Variable:
        """The variable called ``name``; raises `ParameterError` with the nearest name."""
        if name not in self._by_name:
            raise ParameterError(f"no variable is called {name!r}{_nearest(name, self._by_name)}")
        return self._by_name[name]

    # ---- assignments

    def active(self, variable: Variable, assignment: Mapping[str, Value]) -> bool:
        """Whether ``variable`` has a value under ``assignment``."""
        return all(other in assignment and assignment[other] in _options(allowed) for other, allowed in variable.when.items())

    def validate(self, assignment: Mapping[str, Value]) -> None:
        """Raise `ParameterError` unless exactly the active variables have legal values and every constraint holds."""
        for name in assignment:
            self.variable(name)
        for variable in self.variables:
            if not self.active(variable, assignment):
                if variable.name in assignment:
                    raise ParameterError(f"{variable.name} must be absent: it exists only when {_condition(variable)}")
                continue
            if variable.name not in assignment:
                raise ParameterError(f"{variable.name} is missing; allowed: {variable.domain_text}")
            variable.check(assignment[variable.name])
        violated = self.violated(assignment)
        if violated is not None:
            given = ", ".join(f"{name} = {assignment[name]!r}" for name in violated.needs)
            raise ParameterError(f"constraint {violated.name!r} is violated by {given}: {violated.message}")

    def violated(self, assignment: Mapping[str, Value]) -> Constraint | None:
        """The first constraint that does not hold, or None."""
        return next((constraint for constraint in self.constraints if constraint.violated(assignment)), None)

    def random(self, rng: np.random.Generator) -> Assignment:
        """An assignment that satisfies every constraint, uniform over each variable's domain."""
        for _ in range(MAX_TRIES):
            vector = [int(rng.integers(axis.size)) for axis in self.axes]
            assignment = self.decode(vector)
            if self.violated(assignment) is None:
                return assignment
        names = ", ".join(constraint.name for constraint in self.constraints)
        raise ParameterError(f"no assignment satisfies the constraints ({names}) in {MAX_TRIES} random tries; loosen one of them")

    @property
    def size(self) -> int:
        """Number of assignments, constraints not counted."""
        controls = {name for variable in self.variables for name in variable.when}
        return self._count(0, {}, controls)

    def _count(self, position: int, assignment: Assignment, controls: set[str]) -> int:
        total = 1
        for index in range(position, len(self.variables)):
            variable = self.variables[index]
            if not self.active(variable, assignment):
                continue
            if variable.name in controls:
                return total * sum(
                    self._count(index + 1, {**assignment, variable.name: variable.at(i)}, controls) for i in range(variable.size)
                )
            total *= variable.size
        return total

    def enumerate(self) -> Iterator[Assignment]:
        """Every assignment that satisfies the constraints, in lexicographic order of the domains."""
        yield from (assignment for assignment in self._extend(0, {}) if self.violated(assignment) is None)

    def _extend(self, position: int, assignment: Assignment) -> Iterator[Assignment]:
        if position == len(self.variables):
            yield dict(assignment)
            return
        variable = self.variables[position]
        if not self.active(variable, assignment):
            yield from self._extend(position + 1, assignment)
            return
        for index in range(variable.size):
            yield from self._extend(position + 1, {**assignment, variable.name: variable.at(index)})

    def neighbours(self, assignment: Mapping[str, Value]) -> Iterator[Assignment]:
        """Legal assignments that differ in one variable by one step; a variable that becomes active gets its default."""
        for variable in self.variables:
            if variable.name not in assignment:
                continue
            for value in variable.steps(assignment[variable.name]):
                changed = self._complete({**assignment, variable.name: value})
                if self.violated(changed) is None:
                    yield changed

    def _complete(self, partial: Mapping[str, Value]) -> Assignment:
        """Drop what is inactive in ``partial`` and give what is missing its default."""
        result: Assignment = {}
        for variable in self.variables:
            if self.active(variable, result):
                result[variable.name] = partial.get(variable.name, variable.default)
        return result

    # ---- vectors of axis indices, for optimisers

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Axes of every variable, in the variables' order."""
        return tuple(axis for variable in self.variables for axis in variable.axes)

    def decode(self, vector: Sequence[int]) -> Assignment:
        """Assignment at the axis indices ``vector``; those of inactive variables are ignored. Constraints are not checked."""
        assignment: Assignment = {}
        position = 0
        for variable in self.variables:
            width = len(variable.axes)
            if not variable.when or self.active(variable, assignment):
                assignment[variable.name] = variable.decode(vector[position : position + width])
            position += width
        return assignment

    def encode(self, assignment: Mapping[str, Value]) -> list[int]:
        """Axis indices of ``assignment``; inactive variables stand at their default."""
        vector: list[int] = []
        for variable in self.variables:
            vector.extend(variable.encode(assignment.get(variable.name, variable.default)))
        return vector

    def describe(self) -> list[dict[str, Any]]:
        """Plain data about every variable, for records."""
        return [{"name": v.name, "domain": v.domain_text, "size": v.size, "when": dict(v.when)} for v in self.variables]


def _options(allowed: Any) -> tuple[Any, ...]:
    return allowed if isinstance(allowed, tuple) else (allowed,)


def _condition(variable: Variable) -> str:
    return " and ".join(f"{name} is {' or '.join(map(repr, _options(allowed)))}" for name, allowed in variable.when.items())


def _nearest(name: str, legal: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(str(name), list(legal), n=1)
    return f"; nearest: {close[0]!r}" if close else f"; variables: {', '.join(legal) or 'none'}"
