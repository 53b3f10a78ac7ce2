"""What evaluates candidates, at which fidelity; every measurement says its source, every failure its reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ..compiler.schedule import ScheduleSpace, schedule_space
from ..intrinsics import ParameterError, stream_cycles
from .candidate import Candidate, Schedule
from .hardware import InfeasibleError

Measurements = dict[str, Any]
Area = Callable[[Any], float]
"""Area of a design point; the unit is in the objective's name."""


ENVIRONMENT_ERRORS = ("ToolFailedError", "ToolNotFoundError", "MemoryError", "OSError")
"""Classes of errors that say something of the surroundings, not of a candidate: a resumed run tries again."""

SOURCES = {"area_transistors": "estimate", **dict.fromkeys(("cycles", "multipliers", "stream_bits", "bytes_packed"), "model")}
"""Where each number of the model comes from."""


class Evaluator(Protocol):
    """Measures a candidate.

    ``fidelity`` names the source of the cycles: ``model`` or ``rtl``.
    """

    fidelity: str

    def evaluate(self, candidate: Candidate) -> Measurements:
        """Measurements with ``cycles``, ``operators`` (cycles by name) and ``sources``; raises `CelosiaError` if it fails."""
        ...


class ModelEvaluator:
    """Exact stream cycle model per operator, an area estimate; no TVM, no RTL.

    Parameters
    ----------
    operators : sequence of Operator
    area : callable
        Takes a design point, returns transistors; called once per design.
    limits : sequence of (name of a measurement, number)
        A larger value raises `InfeasibleError`.
    """

    fidelity = "model"

    def __init__(self, operators: Sequence[Any], area: Area, limits: Sequence[tuple[str, float]] = ()) -> None:
        self._limits = limits
        self._operators = {operator.name: operator for operator in operators}
        self._area = area
        self._areas: dict[str, float] = {}
        self._spaces: dict[tuple[str, str], ScheduleSpace] = {}
        self._known: dict[tuple[str, str, Schedule], tuple[int, int]] = {}

    def evaluate(self, candidate: Candidate) -> Measurements:
        """Sum over operators, each times its weight."""
        measurements = self._measure(candidate)
        check_limits(measurements, self._limits)
        return measurements

    def _measure(self, candidate: Candidate) -> Measurements:
        design = candidate.design
        if design.hash not in self._areas:
            self._areas[design.hash] = self._area(design)
        cycles, packed, per_operator = 0, 0, {}
        for name, schedule in candidate.schedules:
            own, own_packed = self._operator(candidate, name, schedule)
            weight = self._operators[name].weight
            cycles, packed, per_operator[name] = cycles + weight * own, packed + weight * own_packed, own
        return {
            "cycles": cycles,
            "area_transistors": self._areas[design.hash],
            "multipliers": design.macs_per_cycle,
            "stream_bits": stream_bits(design),
            "bytes_packed": packed,
            "operators": per_operator,
            "sources": SOURCES,
        }

    def _operator(self, candidate: Candidate, name: str, schedule: Schedule) -> tuple[int, int]:
        """Cycles and packed bytes of one operator (cached)."""
        key = (candidate.design.hash, name, schedule)
        found = self._known.get(key)
        if found is None:
            realised = self.space(candidate, name).schedule(dict(schedule))
            found = self._known[key] = (stream_cycles(candidate.design.machine, realised.nest), realised.bytes_packed)
        return found

    def space(self, candidate: Candidate, name: str) -> ScheduleSpace:
        """Schedule space of an operator on the candidate's design (cached)."""
        key = (candidate.design.hash, name)
        if key not in self._spaces:
            self._spaces[key] = schedule_space(self._operators[name], candidate.design.machine)
        return self._spaces[key]


def check_limits(measurements: Measurements, limits: Sequence[tuple[str, float]]) -> None:
    """Raise `InfeasibleError` if a number that is known is above its limit."""
    for name, limit in limits:
        if name in measurements and measurements[name] > limit:
            raise InfeasibleError("limits", ParameterError(f"{name} is {measurements[name]:g}, above the limit of {limit:g}"))


def stream_bits(design: Any) -> int:
    """Operand bits that a design can take per cycle: the widths of the payloads of ``i_a`` and ``i_b``."""
    contraction = design.instruction.contraction
    streams = [stream for stream in design.machine.streams if stream.operand in "ab"]
    return sum(stream.lanes(contraction) * contraction.dtype(stream.operand).width for stream in streams)


def error_record(stage: str, error: BaseException, *, kind: str | None = None) -> dict[str, str]:
    """What the journal keeps of a failure."""
    return {"stage": stage, "class": kind or type(error).__name__, "message": " ".join(str(error).split())}


def objectives_of(measurements: Mapping[str, Any], names: Sequence[str]) -> tuple[float, ...]:
    """Values of the named objectives."""
    return tuple(float(measurements[name]) for name in names)
