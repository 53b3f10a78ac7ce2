"""The search space of a study of accelerators: hardware variables, and schedule variables per operator where they are searched too.

With ``schedules = "balanced"`` or ``"best"`` a candidate is a design alone, and each of its operators takes the schedule that
a search of its own finds. With ``schedules = "search"`` the variables of a schedule stand beside those of the hardware:

* ``<operator>/k``, ``/m``, ``/n``: tile sizes, as fractions of all those that fit the design's memories, so that every
  proposal is legal.
* ``<operator>/order``: loop order; k becomes the innermost loop where there are too few slots for unfinished tiles.
* ``<operator>/a_slots``, ``/b_slots``, ``/c_slots``, ``/lag``: all 1 (and 0) where the memories cannot hold even the least tiles so often.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..compiler.accelerator.convolution import Convolution
from ..compiler.accelerator.costs import largest
from ..compiler.accelerator.job import typical_output
from ..compiler.accelerator.lower import check_fit
from ..compiler.accelerator.operators import convolution_of, placement_of
from ..compiler.accelerator.problem import Problem as Mapped
from ..compiler.accelerator.schedule import ORDERS
from ..compiler.accelerator.schedule import Schedule as TileSchedule
from ..compiler.operators import Operator
from ..compiler.reasons import Rejected
from ..hw.accelerator.machine import machine_of
from ..hw.design_point import DesignPoint
from ..intrinsics import CelosiaError, MappingError, ScheduleError
from ..intrinsics.accelerator.machine import ceil_div
from .candidate import Candidate, Schedule
from .hardware import HardwareProblem, InfeasibleError, Vector, kept, raised, scaled
from .study import Study
from .variables import Choice, IntRange, Variable

MOST_SLOTS = 4
MOST_LAG = 2

LEAST = TileSchedule(m=1, n=1, k=1, a_slots=1, b_slots=1, c_slots=1, lag=0)
"""What fits wherever anything does."""

_LEAST_SLOTS = {"a_slots": 1, "b_slots": 1, "c_slots": 1, "lag": 0}


@dataclass(frozen=True)
class TileSlots:
    """The schedule variables of one operator, and how they decode on a design.

    Parameters
    ----------
    name : str
        Of the operator.
    steps : mapping from "m", "n", "k" to int
        Most tile sizes that any design allows.
    """

    name: str
    steps: Mapping[str, int]
    orders: tuple[str, ...] = ORDERS

    @property
    def variables(self) -> list[Variable]:
        """The variables, in the order of `decode`."""
        sizes = [IntRange(f"{self.name}/{axis}", low=1, high=self.steps[axis]) for axis in "kmn"]
        slots = [IntRange(f"{self.name}/{operand}_slots", low=1, high=MOST_SLOTS) for operand in "abc"]
        order = Choice(f"{self.name}/order", options=self.orders)
        return [*sizes, order, *slots, IntRange(f"{self.name}/lag", low=0, high=MOST_LAG)]

    def decode(self, indices: Sequence[int], mapped: Mapped) -> TileSchedule:
        """The schedule at axis indices.

        Raises
        ------
        ScheduleError
            If not even the least tiles fit; the message says by how much.
        """
        slots = {"a_slots": 1 + indices[4], "b_slots": 1 + indices[5], "c_slots": 1 + indices[6], "lag": indices[7]}
        tiles: dict[str, int] = {}
        most = largest(mapped, "k", tiles, slots)
        if not most:
            slots = dict(_LEAST_SLOTS)
            check_fit(mapped, LEAST)
            most = largest(mapped, "k", tiles, slots)
        for place, axis in enumerate("kmn"):
            tiles[axis] = 1 + scaled(indices[place], self.steps[axis], most if axis == "k" else largest(mapped, axis, tiles, slots))
        order = self.orders[indices[3]]
        finishing = _open_tiles(order, mapped, tiles) <= slots["c_slots"]
        return TileSchedule(order=order if finishing else order.replace("k", "") + "k", **tiles, **slots)

    def whole(self, order: int) -> list[int]:
        """Indices of the largest tiles, double buffered, in order number ``order``."""
        return [*(self.steps[axis] - 1 for axis in "kmn"), min(order, len(self.orders) - 1), 1, 1, 1, 1]


def _open_tiles(order: str, mapped: Mapped, tiles: Mapping[str, int]) -> int:
    """Tiles of C that are begun before the first one is finished: those of the loops inside of k."""
    groups = ceil_div(mapped.op.out_width, mapped.block_rows) if mapped.strips else 1
    counts = {
        "m": ceil_div(mapped.m_blocks, tiles["m"]) * mapped.op.images * groups,
        "n": ceil_div(mapped.group_blocks, tiles["n"]) * mapped.n_groups,
    }
    return math.prod(counts[axis] for axis in order[order.index("k") + 1 :])


class AcceleratorProblem(HardwareProblem):
    """A study of accelerators made searchable.

    Parameters
    ----------
    study : Study
    operators : sequence of Operator

    Raises
    ------
    MappingError
        If an operator does not lower to an accelerator at all.
    ScheduleError
        If schedules are searched, and an operator fits none of the probed designs.
    """

    def __init__(self, study: Study, operators: Sequence[Any]) -> None:
        super().__init__(study, operators)
        self.convolutions = {operator.name: _convolution(operator) for operator in operators}
        self._mapped: dict[tuple[str, str], Mapped | CelosiaError] = {}
        self.searches_schedules = study.accelerator.schedules == "search"
        self.output = typical_output(study.accelerator.output)
        probes = self.probes()
        self.slots = tuple(self._slots(operator.name, probes) for operator in operators) if self.searches_schedules else ()
        self.arrange(self.slots)

    def candidate(self, vector: Sequence[int]) -> Candidate:
        """The candidate at axis indices, without schedules if they are not part of the search; raises `InfeasibleError`."""
        design = self.design(vector[: self.hardware_width])
        schedules = tuple(self._schedule(slots, design, tuple(vector[place])) for slots, place in zip(self.slots, self.places, strict=True))
        return Candidate(design, schedules)

    def mapped(self, name: str, design: DesignPoint) -> Mapped:
        """An operator on a design (cached); raises `InfeasibleError`."""
        key = (name, design.hash)
        if key not in self._mapped:
            self._mapped[key] = kept(lambda: Mapped(machine=machine_of(design), op=self.convolutions[name], output=self.output))
        found: Mapped = raised("mapping", self._mapped[key])
        return found

    def _schedule(self, slots: TileSlots, design: DesignPoint, indices: Vector) -> tuple[str, Schedule]:
        mapped = self.mapped(slots.name, design)
        try:
            return slots.name, tuple(slots.decode(indices, mapped).to_dict().items())
        except ScheduleError as error:
            raise InfeasibleError("schedule", ScheduleError(f"{slots.name}: {error}")) from None

    def _slots(self, name: str, probes: Sequence[DesignPoint]) -> TileSlots:
        """Most tile sizes over the probed designs."""
        steps, reason = dict.fromkeys("mnk", 0), None
        for design in probes:
            try:
                mapped = self.mapped(name, design)
            except InfeasibleError as error:
                reason = reason or str(error)
                continue
            for axis in "mnk":
                steps[axis] = max(steps[axis], largest(mapped, axis, {}, _LEAST_SLOTS))
        if not all(steps.values()):
            why = reason or "the memories are too small"
            raise MappingError(f"operator {name} fits none of the {len(probes)} designs looked at: {why}")
        return TileSlots(name, steps)


def _convolution(operator: Operator) -> Convolution:
    """The convolution that an operator is; where it is several, said in the words of a study."""
    try:
        return convolution_of(operator)
    except MappingError:
        found = placement_of(operator)
        if isinstance(found, Rejected):
            raise
        turns = sum(map(len, found.sums))
        raise MappingError(f"{operator.name} is {turns} convolutions; a study takes operators that are one") from None


def tile_schedule(candidate: Candidate, name: str) -> TileSchedule:
    """The schedule of one operator of a candidate that has schedules."""
    return TileSchedule(**candidate.schedule(name))
