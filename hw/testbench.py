"""Drive a block in Amaranth's own simulator: slow, exact to the cycle, with gaps and back-pressure on every stream."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..intrinsics import SimulationError
from ..intrinsics.numerics import Array
from .block import StreamBlock
from .parameters import Parameters
from .stimulus import Stimulus, pack_beat, unpack_beat

Pattern = Callable[[int], bool]
"""Whether a stream is willing in a cycle: a producer to offer its next beat, the consumer to take one."""


def always(cycle: int) -> bool:
    """The pattern of a stream that never pauses."""
    return True


@dataclass(kw_only=True, eq=False)
class Trace:
    """What was seen: the results, and the cycle in which each beat was accepted (cycle 0 is the first after reset).

    Parameters
    ----------
    c : (beats, lanes) integer array
    c_last : (beats,) bool
    a_cycles, b_cycles, c_cycles : list of int
    """

    c: Array = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    c_last: Array = field(default_factory=lambda: np.zeros(0, bool))
    a_cycles: list[int] = field(default_factory=list)
    b_cycles: list[int] = field(default_factory=list)
    c_cycles: list[int] = field(default_factory=list)

    @property
    def cycles(self) -> int:
        """From cycle 0 to the last result accepted, both included."""
        return self.c_cycles[-1] + 1

    def matches(self, stimulus: Stimulus) -> bool:
        """Whether every result and every ``last`` is as expected."""
        return bool(np.array_equal(self.c, stimulus.c) and np.array_equal(self.c_last, stimulus.c_last))


def run_streams(
    block: StreamBlock,
    parameters: Parameters,
    stimulus: Stimulus,
    *,
    offer_a: Pattern = always,
    offer_b: Pattern = always,
    accept: Pattern = always,
    max_cycles: int = 20_000,
    extra_cycles: int = 8,
) -> Trace:
    """Stream ``stimulus`` through ``block``.

    Parameters
    ----------
    offer_a, offer_b, accept : Pattern
        A beat once offered stays offered until it is taken.
    max_cycles : int
        Bound; reaching it is an error that names the streams that still wait.
    extra_cycles : int
        Cycles after the last expected result, in which nothing more may come out.

    Raises
    ------
    SimulationError
        At the bound, if a result changes while it waits, or if results come that nobody asked for.
    """
    from amaranth.sim import Simulator

    run = _Run(block, parameters, stimulus, (offer_a, offer_b, accept), max_cycles, extra_cycles)
    simulator = Simulator(block)
    simulator.add_clock(1e-6)
    simulator.add_testbench(run.testbench)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulator.run()
    return run.trace()


class _Run:
    def __init__(self, block: Any, parameters: Parameters, stimulus: Stimulus, patterns: Any, max_cycles: int, extra_cycles: int) -> None:
        self.block, self.parameters, self.stimulus, self.patterns = block, parameters, stimulus, patterns
        self.max_cycles, self.extra_cycles = max_cycles, extra_cycles
        width = parameters.a.width * stimulus.a.shape[1]
        self.a = [pack_beat(beat, parameters.a) | int(last) << width for beat, last in zip(stimulus.a, stimulus.a_last, strict=True)]
        self.b = [pack_beat(beat, parameters.b) for beat in stimulus.b]
        self.c: list[int] = []
        self.seen = Trace()
        self.held: int | None = None
        self.offered = {"i_a": False, "i_b": False}

    def _offer(self, ctx: Any, name: str, beats: list[int], taken: int, willing: bool) -> None:
        port = getattr(self.block, name)
        self.offered[name] = taken < len(beats) and (willing or self.offered[name])
        ctx.set(port.valid, self.offered[name])
        if self.offered[name]:
            ctx.set(port.payload.as_value(), beats[taken])

    def _taken(self, ctx: Any, name: str) -> bool:
        taken = self.offered[name] and bool(ctx.get(getattr(self.block, name).ready))
        if taken:
            self.offered[name] = False
        return taken

    def _check_held(self, ctx: Any, cycle: int) -> int | None:
        """The result on the port, or None; a result that waited must not have changed."""
        port = self.block.o_c
        bits = int(ctx.get(port.payload.as_value())) if ctx.get(port.valid) else None
        if self.held is not None and bits != self.held:
            raise SimulationError(f"o_c changed in cycle {cycle} while it was valid and not ready")
        return bits

    async def testbench(self, ctx: Any) -> None:
        expected, idle = len(self.stimulus.c), 0
        for cycle in range(self.max_cycles):
            seen = self.seen
            self._offer(ctx, "i_a", self.a, len(seen.a_cycles), self.patterns[0](cycle))
            self._offer(ctx, "i_b", self.b, len(seen.b_cycles), self.patterns[1](cycle))
            ready = self.patterns[2](cycle)
            ctx.set(self.block.o_c.ready, ready)
            bits = self._check_held(ctx, cycle)
            self.held = None if ready else bits
            for name, cycles in (("i_a", seen.a_cycles), ("i_b", seen.b_cycles)):
                if self._taken(ctx, name):
                    cycles.append(cycle)
            if ready and bits is not None:
                seen.c_cycles.append(cycle)
                self.c.append(bits)
            idle += len(self.c) >= expected
            if idle > self.extra_cycles:
                return self._finish(expected)
            await ctx.tick()
        raise SimulationError(f"no end after {self.max_cycles} cycles: {self._progress()}")

    def _progress(self) -> str:
        seen = self.seen
        counts = (len(seen.a_cycles), len(self.a)), (len(seen.b_cycles), len(self.b)), (len(self.c), len(self.stimulus.c))
        return ", ".join(f"{port} {done} of {total} beats" for port, (done, total) in zip(("i_a", "i_b", "o_c"), counts, strict=True))

    def _finish(self, expected: int) -> None:
        if len(self.c) != expected or len(self.seen.a_cycles) != len(self.a) or len(self.seen.b_cycles) != len(self.b):
            raise SimulationError(f"beats do not add up: {self._progress()}")

    def trace(self) -> Trace:
        acc, lanes = self.parameters.acc, self.stimulus.c.shape[1]
        seen, width = self.seen, acc.width * lanes
        seen.c = np.array([unpack_beat(bits, acc, lanes) for bits in self.c], self.stimulus.c.dtype).reshape(-1, lanes)
        seen.c_last = np.array([bits >> width & 1 for bits in self.c], bool)
        return seen
