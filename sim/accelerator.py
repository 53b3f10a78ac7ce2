"""Running programs on the RTL of an accelerator."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..intrinsics import SimulationError
from ..intrinsics.accelerator import AcceleratorMachine, Events, Limits, MemoryTiming, Program
from ..intrinsics.accelerator.timing import EVENTS
from ..intrinsics.numerics import Array
from .accelerator_build import AcceleratorLibrary, build_accelerator
from .builder import Progress

if TYPE_CHECKING:
    from ..hw.design_point import DesignPoint

_DONE, _CYCLE_BOUND, _HANG, _CLASH, _WRITE_OUTSIDE, _NOT_ENDED = range(6)
_WAITERS = tuple(f"{engine} waits for {counter}" for engine in ("load", "compute", "store") for counter in ("loads", "computes", "stores"))


class _Options(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            *("latency", "jitter", "seed", "queue_depth", "outstanding", "shared", "reset", "max_cycles", "hang_limit", "capacity"),
            *("read_stall", "write_stall", "command_stall"),
        )
    ]


class _Result(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("status", "cycles", "waiting", "error", "read_beats", "write_beats")),
        ("counts", ctypes.c_int64 * len(EVENTS)),
    ]


@dataclass(frozen=True, kw_only=True)
class Stalls:
    """Probabilities that memory or command source are not ready in a cycle.

    Parameters
    ----------
    read, write, command : float, 0..1
    seed : int
        Also of the memory's jitter.
    """

    read: float = 0.0
    write: float = 0.0
    command: float = 0.0
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class AcceleratorRun:
    """What a run on RTL observed.

    Parameters
    ----------
    events : Events
        Complete if ``events_recorded``.
    read_beats, write_beats : int
    error : bool
        The design's error flag.
    simulation_seconds : float
    """

    events: Events
    read_beats: int
    write_beats: int
    error: bool
    simulation_seconds: float

    @property
    def cycles(self) -> int:
        """Cycle in which END was accepted."""
        return self.events.cycles


class AcceleratorModel:
    """An instance of the RTL of one accelerator.

    Parameters
    ----------
    point : DesignPoint
        Of family ``accelerator``.
    progress : callable, optional
        Called with the name of each stage of the build.
    """

    def __init__(self, point: DesignPoint, *, progress: Progress | None = None) -> None:
        self.library: AcceleratorLibrary = build_accelerator(point, progress=progress)
        self._model = self.library.construct()

    @property
    def machine(self) -> AcceleratorMachine:
        """What software may know of the design."""
        return self.library.machine

    @property
    def counters(self) -> dict[str, int]:
        """The design's own counters of the last program: cycles, array beats, cycles in which a compute waited for a load."""
        return {name: self.library.counter(self._model, name) for name in ("cycles", "beats", "load_waits")}

    def run(
        self,
        program: Program,
        memory: Array,
        *,
        timing: MemoryTiming | None = None,
        limits: Limits | None = None,
        stalls: Stalls | None = None,
        max_cycles: int = 1 << 40,
        hang_limit: int = 100_000,
        record: bool = True,
        reset: bool = True,
    ) -> AcceleratorRun:
        """Run a program; the memory image is changed in place.

        Parameters
        ----------
        memory : (bytes,) uint8
        record : bool
            Keep the cycle of every event.
        reset : bool
            Reset first; otherwise the program follows the one before.

        Raises
        ------
        SimulationError
            If the design hangs (the awaited counters are named), writes outside of the image, or takes more than ``max_cycles``.
        HashMismatchError, ParameterError
            As `Program.check`.
        """
        program.check(self.machine, memory)
        return self.run_words(
            program.words,
            memory,
            timing=timing,
            limits=limits,
            stalls=stalls,
            max_cycles=max_cycles,
            hang_limit=hang_limit,
            record=record,
            reset=reset,
        )

    def run_words(
        self,
        words: Array,
        memory: Array,
        *,
        timing: MemoryTiming | None = None,
        limits: Limits | None = None,
        stalls: Stalls | None = None,
        max_cycles: int = 1 << 40,
        hang_limit: int = 100_000,
        record: bool = True,
        reset: bool = True,
    ) -> AcceleratorRun:
        """As `run`, for raw command words (commands, 32) uint8 that nobody has checked."""
        timing, limits, stalls = timing or MemoryTiming(), limits or Limits.of(self.machine), stalls or Stalls()
        capacity = len(words) if record else 0
        options = _Options(
            latency=timing.latency,
            jitter=timing.jitter,
            seed=stalls.seed,
            queue_depth=limits.queue_depth,
            outstanding=limits.outstanding,
            shared=int(not self.machine.split and not stalls.write),
            reset=int(reset),
            max_cycles=max_cycles,
            hang_limit=hang_limit,
            capacity=capacity,
            **{f"{name}_stall": int(getattr(stalls, name) * (1 << 32)) for name in ("read", "write", "command")},
        )
        cycles, result = np.zeros((len(EVENTS), max(capacity, 1)), np.int64), _Result()
        words, started = np.ascontiguousarray(words), time.perf_counter()
        self.library.handle.celosia_accelerator_run(
            self._model,
            ctypes.c_void_p(words.ctypes.data),
            ctypes.c_uint64(len(words)),
            ctypes.c_void_p(memory.ctypes.data),
            ctypes.c_uint64(memory.nbytes),
            ctypes.byref(options),
            ctypes.c_void_p(cycles.ctypes.data),
            ctypes.byref(result),
        )
        seconds = time.perf_counter() - started
        _raise_for(result, max_cycles)
        times = {name: cycles[kind, : result.counts[kind] if record else 0].tolist() for kind, name in enumerate(EVENTS)}
        return AcceleratorRun(
            events=Events(cycles=result.cycles, times=times),
            read_beats=result.read_beats,
            write_beats=result.write_beats,
            error=bool(result.error),
            simulation_seconds=seconds,
        )


def _raise_for(result: _Result, max_cycles: int) -> None:
    """Turn a status into one sentence."""
    waits = [text for bit, text in enumerate(_WAITERS) if result.waiting >> bit & 1]
    reasons = {
        _CYCLE_BOUND: f"the program did not end within {max_cycles} cycles",
        _HANG: f"the design stands still since cycle {result.cycles}: {'; '.join(waits) or 'no queue waits for a counter'}",
        _CLASH: f"read and write on the shared port in cycle {result.cycles}",
        _WRITE_OUTSIDE: f"a write outside of the memory image in cycle {result.cycles}",
        _NOT_ENDED: f"the command stream ended without END being accepted (cycle {result.cycles}): {'; '.join(waits) or 'END is missing'}",
    }
    if result.status != _DONE:
        raise SimulationError(reasons[result.status])
