"""What doubling each parameter of a design would buy for one operator, by the exact model and the best schedule of every changed design."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..compiler.accelerator.problem import Problem
from ..hw.accelerator.machine import machine_of
from ..hw.design_point import DesignPoint
from ..hw.options import Option, options
from ..intrinsics import CelosiaError, ParameterError
from ..intrinsics.accelerator import AcceleratorMachine, MemoryTiming
from .accelerator_bounded import MOST_WORK, TooLongError
from .accelerator_search import best_schedule
from .accelerator_turns import Sums

QUICK_WORK = 50_000_000
"""Steps of schedules that a search scores within a second or so."""

LONG = "the search takes long"
"""Reason of a change that was given up."""

Posed = Callable[[AcceleratorMachine], tuple[Problem, Sums | None]]
"""An operator on a machine: its convolution, and if it is several, which."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """What one parameter that is doubled would give, with the best schedule of the changed design.

    Parameters
    ----------
    parameter : str
        Of the design, or ``memory_latency`` or ``memory_write_latency``.
    value : int, bool or None
        The new value; None where there is none.
    cycles : int or None
        None where nothing is known; ``reason`` then says why.
    ratio : float or None
        New cycles over old, both of the best schedule.
    reason : str
    """

    parameter: str
    value: int | bool | None
    cycles: int | None = None
    ratio: float | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """What doubling every parameter would buy.

    Parameters
    ----------
    cycles : int
        Of the best schedule of the design as it is.
    changes : tuple of Change
        A parameter each, the best first; those of which nothing is known last.
    """

    cycles: int
    changes: tuple[Change, ...]

    def in_words(self, model_cycles: int) -> list[str]:
        """What helps most, and, where a run of ``model_cycles`` had another schedule, against what."""
        lines = []
        if self.cycles != model_cycles:
            lines.append(f"the best schedule of this design takes {self.cycles:,} cycles ({self.cycles / model_cycles - 1:+.1%})")
        best = self.changes[0] if self.changes else None
        if best is not None and best.ratio is not None and best.ratio < 0.999:
            lines.append(f"{best.parameter} {best.value} would give {best.ratio - 1:+.0%} cycles")
        return lines


def sensitivity(
    point: DesignPoint, posed: Posed, *, timing: MemoryTiming | None = None, known: int | None = None, most_work: int = MOST_WORK
) -> Sensitivity:
    """What doubling each parameter would buy.

    Parameters
    ----------
    point : DesignPoint
        Of family ``accelerator``.
    posed : callable
        Takes a machine, returns the operator on it.
    timing : MemoryTiming, optional
    known : int, optional
        Cycles of the best schedule of ``point``, where they are known.
    most_work : int
        As of `best_schedule`, for every single search; `QUICK_WORK` makes it an affair of seconds.

    Raises
    ------
    MappingError, ScheduleError
        If the operator has no schedule on ``point``, or the search for it takes too long.
    """
    timing = timing or MemoryTiming()
    search = _Search(posed, most_work)
    base = search.cycles(machine_of(point), timing, known)
    changes = []
    for parameter, value, changed, memory in _doubled(point, timing):
        reason, cycles = (changed, None) if isinstance(changed, str) else ("", None)
        if isinstance(changed, DesignPoint):
            try:
                cycles = search.cycles(machine_of(changed), memory)
            except TooLongError:
                reason = LONG
            except CelosiaError as error:
                reason = str(error)
        ratio = None if cycles is None else cycles / base
        changes.append(Change(parameter=parameter, value=value, cycles=cycles, ratio=ratio, reason=reason))
    # a stable sort: what changes nothing stays in the order of the command line
    return Sensitivity(cycles=base, changes=tuple(sorted(changes, key=lambda change: (change.ratio is None, change.ratio))))


def _doubled(point: DesignPoint, timing: MemoryTiming) -> Iterator[tuple[str, Any, DesignPoint | str, MemoryTiming]]:
    """Every parameter, its new value, and the changed design on its memory, or why there is none."""
    for option in options(point.family):
        value, reason = _double(option, getattr(point.parameters, option.name))
        changed: DesignPoint | str = reason
        if not reason:
            try:
                changed = DesignPoint(point.family, replace(point.parameters, **{option.name: value}))  # type: ignore[arg-type]
            except ParameterError as error:
                changed = str(error).split(";")[0]
        yield option.name, value, changed, timing
    for name, short in (("memory_latency", "latency"), ("memory_write_latency", "write_latency")):
        value = 2 * getattr(timing, short)
        try:
            yield name, value, point, replace(timing, **{short: value})
        except ParameterError as error:
            yield name, value, str(error).split(";")[0], timing


def _double(option: Option, value: Any) -> tuple[int | bool | None, str]:
    """Twice a value, or why there is no such thing."""
    if option.kind == "flag":
        return (None, "on already") if value else (True, "")
    if option.kind != "integer":
        return None, "no amount"
    return (2 * value, "") if value else (None, "twice 0 is 0")


class _Search:
    """Best cycles of an operator on machines, looked for once where designs differ in nothing that counts for it."""

    def __init__(self, posed: Posed, most_work: int) -> None:
        self._posed, self._most_work = posed, most_work
        self._known: dict[object, int] = {}

    def cycles(self, machine: AcceleratorMachine, timing: MemoryTiming, known: int | None = None) -> int:
        """Cycles of the best schedule; raises `MappingError` or `ScheduleError`."""
        problem, sums = self._posed(machine)
        key = _relevant(problem, timing)
        if known is not None:
            self._known[key] = known
        if key not in self._known:
            self._known[key] = best_schedule(problem, timing=timing, sums=sums, most_work=self._most_work).cycles
        return self._known[key]


def _relevant(problem: Problem, timing: MemoryTiming) -> tuple[AcceleratorMachine, int, int]:
    """A machine and latencies without what changes no cycle of a problem that the machine can hold."""
    machine = problem.machine
    same: dict[str, Any] = {"name": "", "design_hash": "", "channel_words": min(machine.channel_words, 1)}
    if not problem.output.residual:
        same["residual_words"] = min(machine.residual_words, 1)
    least = timing.latency + machine.read_register + 1
    if machine.outstanding >= least:  # reads never wait for credits
        same["outstanding"] = least
    return replace(machine, **same), timing.latency, timing.write_latency if machine.axi else 0
