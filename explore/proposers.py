"""Who proposes candidates: a warm start, Nevergrad, and a refinement of the front."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .evaluator import objectives_of
from .front import pareto_front
from .hardware import HardwareProblem, InfeasibleError, Vector
from .journal import Record
from .nevergrad_space import NevergradSpace

FAILED_LOSS = 60.0
"""Logarithm that stands for an objective of a failed candidate until a worse one is known; e**60 is beyond any real value."""


@dataclass(frozen=True)
class Outcome:
    """What a proposer is told: the logarithm of each objective (None: failed), and the cycles of each operator."""

    losses: tuple[float, ...] | None
    operators: Mapping[str, float]

    @classmethod
    def of(cls, record: Record, objectives: Sequence[str]) -> Outcome:
        """Outcome of a record."""
        if record.measurements is None:
            return cls(None, {})
        values = objectives_of(record.measurements, objectives)
        return cls(tuple(math.log(max(value, 1e-9)) for value in values), record.measurements.get("operators", {}))


def warm_start(problem: HardwareProblem) -> list[Vector]:
    """Corners and middle of every family's domain, under every loop order, with every loop whole on its inner level."""
    orders = max((len(slots.orders) for slots in problem.schedule_slots), default=1)
    starts = []
    for assignment in problem.corners():
        hardware = problem.hardware.encode(assignment)
        starts += [(*hardware, *(index for slots in problem.schedule_slots for index in slots.whole(order))) for order in range(orders)]
    return list(dict.fromkeys(starts))


class NevergradProposer:
    """A Nevergrad optimiser over the whole vector, told several losses at once."""

    def __init__(self, problem: HardwareProblem, *, budget: int) -> None:
        import nevergrad as ng

        study = problem.study
        self._space = NevergradSpace(problem.space)
        with _warnings_off():
            parametrization = self._space.parametrization(study.seed)
            make = ng.optimizers.registry[study.search.optimizer]
            self._optimizer = make(parametrization=parametrization, budget=budget, num_workers=min(study.search.window, budget))
        self._count = len(study.objectives)
        self._worst: list[float] | None = None

    def ask(self) -> tuple[Any, Vector]:
        """A token for `tell`, and the proposal."""
        with _warnings_off():
            token = self._optimizer.ask()
        return token, tuple(self._space.vector(token.value))

    def tell(self, token: Any, outcome: Outcome) -> None:
        """Tell the outcome of a proposal that `ask` made.

        Proposals of others are not told: differential evolution in Nevergrad 1.0.12 fails on them (KeyError when a
        member of a multiobjective population is replaced), and picks the member by the order of a set of random ids.
        """
        loss = self._loss(outcome)
        with _warnings_off():
            self._optimizer.tell(token, loss if len(loss) > 1 else loss[0])

    def _loss(self, outcome: Outcome) -> list[float]:
        """The losses; a failure is as bad as the worst success in each of them, and a bit worse."""
        if outcome.losses is None:
            return [worst + 0.5 for worst in self._worst] if self._worst else [FAILED_LOSS] * self._count
        self._worst = [max(pair) for pair in zip(self._worst or outcome.losses, outcome.losses, strict=True)]
        return list(outcome.losses)


@contextlib.contextmanager
def _warnings_off() -> Iterator[None]:
    """Nevergrad warns about its own inner choices; they are not news for a user."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass
class _Known:
    """What is known of one design: its best losses, and the best schedule indices of each operator."""

    hardware: Vector
    losses: tuple[float, ...]
    schedules: list[Vector]
    cycles: list[float]
    stage: int = 0
    moves: Iterator[Vector] | None = None


class Refiner:
    """Improves the front: schedules of different operators are separable given the hardware, and neighbours are alike.

    For each design on the front, in turns: recombine the best schedules known of each operator; step to neighbouring
    designs; take over the schedules of the nearest designs; move every operator's schedule to a neighbour at the same
    time. Vectors that decode to a candidate that is known already are left out.
    """

    NEAREST = 3
    STAGES = 4

    def __init__(self, problem: HardwareProblem, objectives: Sequence[str]) -> None:
        self._problem = problem
        self._objectives = objectives
        self._known: dict[str, _Known] = {}
        self._proposed: set[str] = set()
        self._front: list[str] | None = None

    def tell(self, vector: Vector, key: str, outcome: Outcome) -> None:
        """Learn from a result of whatever origin; ``key`` is the candidate's hash."""
        self._proposed.add(key)
        if outcome.losses is None or not outcome.operators:
            return
        hardware = vector[: self._problem.hardware_width]
        schedules = [vector[place] for place in self._problem.places]
        cycles = [outcome.operators[operator.name] for operator in self._problem.operators]
        self._learn(self._problem.design(hardware).hash, _Known(hardware, outcome.losses, schedules, cycles))

    def _learn(self, key: str, new: _Known) -> None:
        old = self._known.get(key)
        if old is None:
            self._known[key], self._front = new, None
            return
        if new.losses < old.losses:
            old.losses, self._front = new.losses, None
        for place, (mine, theirs) in enumerate(zip(old.cycles, new.cycles, strict=True)):
            if theirs < mine:
                old.cycles[place], old.schedules[place] = theirs, new.schedules[place]
                old.stage, old.moves = 0, None

    def ask(self) -> Vector | None:
        """The next proposal that was not made before, or None when nothing is left to try."""
        while True:
            member = self._next_member()
            if member is None:
                return None
            if member.moves is None:
                member.moves = self._moves(member)
            vector = next(member.moves, None)
            if vector is None:
                member.stage, member.moves = member.stage + 1, None
            elif self._is_new(vector):
                return vector

    def _is_new(self, vector: Vector) -> bool:
        """Whether ``vector`` decodes to a candidate that was not proposed before; from now on it was."""
        try:
            key = self._problem.candidate(vector).hash
        except InfeasibleError:
            return False
        new = key not in self._proposed
        self._proposed.add(key)
        return new

    def _next_member(self) -> _Known | None:
        """The front's member that is least far in its stages; of equals, the first one."""
        if self._front is None:
            keys = list(self._known)
            self._front = [keys[index] for index in pareto_front([self._known[key].losses for key in keys])]
        open_members = [self._known[key] for key in self._front if self._known[key].stage < self.STAGES]
        return min(open_members, key=lambda member: member.stage, default=None)

    def _moves(self, member: _Known) -> Iterator[Vector]:
        makers = (self._recombined, self._stepped, self._borrowed, self._rescheduled)
        return makers[member.stage](member)

    def _vector(self, hardware: Sequence[int], schedules: Sequence[Sequence[int]]) -> Vector:
        return (*hardware, *(index for schedule in schedules for index in schedule))

    def _recombined(self, member: _Known) -> Iterator[Vector]:
        yield self._vector(member.hardware, member.schedules)

    def _borrowed(self, member: _Known) -> Iterator[Vector]:
        others = [other for other in self._known.values() if other is not member]
        nearest = sorted(others, key=lambda other: (math.dist(other.hardware, member.hardware), other.losses))
        for other in nearest[: self.NEAREST]:
            yield self._vector(member.hardware, other.schedules)

    def _stepped(self, member: _Known) -> Iterator[Vector]:
        space = self._problem.hardware
        for assignment in space.neighbours(space.decode(member.hardware)):
            try:
                self._problem.design(space.encode(assignment))
            except InfeasibleError:
                continue
            yield self._vector(space.encode(assignment), member.schedules)

    def _rescheduled(self, member: _Known) -> Iterator[Vector]:
        """Every operator takes its neighbour number j at the same time, for every j."""
        neighbours = [_neighbours(self._problem, place, schedule) for place, schedule in enumerate(member.schedules)]
        for j in range(max(map(len, neighbours), default=0)):
            own = zip(neighbours, member.schedules, strict=True)
            yield self._vector(member.hardware, [moves[j] if j < len(moves) else schedule for moves, schedule in own])


def _neighbours(problem: HardwareProblem, place: int, schedule: Vector) -> list[Vector]:
    """Index vectors one step away: the next ones of an ordered axis, every other value of an unordered one."""
    axes = problem.space.axes[problem.places[place]]
    found = []
    for position, axis in enumerate(axes):
        here = schedule[position]
        near = (here - 1, here + 1, 0, axis.size - 1) if axis.ordered else range(axis.size)
        steps = dict.fromkeys(index for index in near if 0 <= index < axis.size and index != here)
        found += [(*schedule[:position], index, *schedule[position + 1 :]) for index in steps]
    return found
