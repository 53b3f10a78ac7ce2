"""The exact cycle model of blocks fed by streams that are always ready.

Equations (names as in `StreamTiming`; P passes of n activation beats each):

    interval = max(n, min_interval)
    cycles   = preload + (P - 1) * interval + n + drain

counted from the first cycle in which an operand beat is offered to the cycle in which the last result beat is
accepted, both included. The test suite compares them with RTL, cycle for cycle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .errors import ParameterError
from .machine import Machine


@dataclass(frozen=True)
class Loop:
    """One loop around the tile calls.

    Parameters
    ----------
    extent : int, >= 1
    role : str
        Operands whose tile changes with this loop, as in `Contraction.role`: ``"ac"``, ``"bc"``, ``"ab"``, ``"abc"``.
    name : str
        For people.
    """

    extent: int
    role: str
    name: str = ""


@dataclass(frozen=True)
class LoopNest:
    """The loops around the tile calls of one operator, outermost first."""

    loops: tuple[Loop, ...]

    @property
    def calls(self) -> int:
        """Tile calls that the nest issues."""
        product = 1
        for loop in self.loops:
            product *= loop.extent
        return product

    def run_length(self, operand: str) -> int:
        """Successive calls that use the same tile of ``operand``: the innermost loops that do not move it."""
        run = 1
        for loop in reversed(self.loops):
            if loop.extent > 1 and operand in loop.role:
                break
            run *= loop.extent
        return run


def pass_lengths(machine: Machine, nest: LoopNest) -> Iterable[tuple[int, int]]:
    """Yield (count, calls per pass) of the passes that ``nest`` makes on ``machine``; at most two kinds."""
    resident = machine.instruction.resident
    run = nest.run_length({"acc": "c", "b": "b"}[resident]) if resident else 1
    runs = nest.calls // run
    limit = machine.max_calls_per_pass
    if limit is None or limit >= run:
        return [(runs, run)]
    full, rest = divmod(run, limit)
    return [(runs * full, limit)] + ([(runs, rest)] if rest else [])


def stream_cycles(machine: Machine, nest: LoopNest) -> int:
    """Cycles of ``nest`` on ``machine`` when every stream is always ready; exact (see the module's equations)."""
    if nest.calls < 1:
        raise ParameterError("a loop nest must issue at least one tile call")
    timing, beats = machine.timing, machine.beats_per_call
    lengths = list(pass_lengths(machine, nest))
    # Resident accumulators keep the last beats of passes apart, so the first pass is free; weights the first beats, so the last is.
    free = lengths[0 if machine.instruction.resident == "acc" else -1][1] * beats
    total = sum(count * max(calls * beats, timing.min_interval) for count, calls in lengths)
    total += free - max(free, timing.min_interval)
    return timing.preload + total + timing.drain


def utilization(machine: Machine, macs: int, cycles: int) -> float:
    """Useful MACs over (cycles x peak MACs per cycle), 0..1.

    The peak is the instruction's MACs over its activation beats: what the array does when a beat enters each cycle.
    """
    return macs * machine.beats_per_call / (cycles * machine.instruction.contraction.macs)
