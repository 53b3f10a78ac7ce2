"""Running programs on the RTL of an accelerator."""

from __future__ import annotations

import ctypes
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..intrinsics import ParameterError, SimulationError
from ..intrinsics.accelerator import AcceleratorMachine, Events, Limits, MemoryTiming, Program
from ..intrinsics.accelerator.command import FIELDS, Op, extract_all
from ..intrinsics.accelerator.timing import EVENTS
from ..intrinsics.numerics import Array
from .accelerator_build import AcceleratorLibrary, build_accelerator
from .builder import Progress

if TYPE_CHECKING:
    from ..hw.design_point import DesignPoint

_DONE, _CYCLE_BOUND, _HANG, _CLASH, _WRITE_OUTSIDE, _NOT_ENDED, _READ_OUTSIDE = range(7)
_PROTOCOL = (
    "the read address changed before it was taken",
    "the write address changed before it was taken",
    "the write data changed before they were taken",
    "a burst crosses a 4 KiB boundary",
    "a burst is not of whole beats at incrementing addresses",
    "WLAST is not at the end of a burst",
    "the program ended with a transfer under way",
)
"""Violations of AXI4, by status from 7 on."""
_WAITERS = tuple(f"{engine} waits for {counter}" for engine in ("load", "compute", "store") for counter in ("loads", "computes", "stores"))


class _Options(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            *("latency", "jitter", "write_latency", "seed", "queue_depth", "outstanding", "shared", "reset"),
            *("max_cycles", "hang_limit", "capacity", "read_stall", "write_stall", "command_stall", "poison"),
            *("refresh_interval", "refresh_cycles"),
        )
    ]


class _Result(ctypes.Structure):
    _fields_ = [
        *(
            (name, ctypes.c_int64)
            for name in ("status", "cycles", "waiting", "error", "read_beats", "write_beats", "read_bursts", "write_bursts")
        ),
        ("counts", ctypes.c_int64 * len(EVENTS)),
    ]


@dataclass(frozen=True, kw_only=True)
class Stalls:
    """Probabilities that a channel of memory, or the command source, rests in a cycle in which it could move.

    Parameters
    ----------
    read, write, command : float, 0..1
        AXI4 and AXI4-Lite: of each channel for itself.
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
    read_bursts, write_bursts : int
        0 on the native port.
    error : bool
        The design's error flag.
    simulation_seconds : float
    """

    events: Events
    read_beats: int
    write_beats: int
    read_bursts: int
    write_bursts: int
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
        self.point = point
        self.library: AcceleratorLibrary = build_accelerator(point, progress=progress)
        self._model = self.library.construct()
        weakref.finalize(self, self.library.handle.destruct, self._model)

    @property
    def machine(self) -> AcceleratorMachine:
        """What software may know of the design."""
        return self.library.machine

    @property
    def counters(self) -> dict[str, int]:
        """The design's own counters of the last program: cycles, array beats, cycles in which a compute waited for a load."""
        names = ("cycles", "beats", "load_waits")
        if self.machine.mapped:
            return {name: self.read_register(name.upper()) for name in names}
        return {name: self.library.port(self._model, f"count_{name}") for name in names}

    def port(self, name: str) -> int:
        """Present value of an output of the design of at most 32 bits."""
        return self.library.port(self._model, name)

    def read_register(self, name: str) -> int:
        """Value of a memory-mapped register; the clock advances."""
        return self._access(name, None, 15)

    def write_register(self, name: str, value: int, *, strobe: int = 15) -> None:
        """Write a memory-mapped register, or its bytes that ``strobe`` names; the clock advances."""
        self._access(name, value, strobe)

    def _access(self, name: str, value: int | None, strobe: int) -> int:
        from ..hw.accelerator.register_map import register_map

        registers = register_map(base=self.machine.axi) if self.machine.mapped else {}
        if name not in registers:
            raise ParameterError(f"the design has no register {name!r}; registers: {', '.join(registers) or 'none'}")
        data, response = self.library.access(self._model, registers[name].offset, data=value, strobe=strobe)
        if response:
            raise SimulationError(f"register {name} answers a {'read' if value is None else 'write'} with an error")
        return data

    def run(
        self,
        program: Program | Array,
        memory: Array,
        *,
        timing: MemoryTiming | None = None,
        limits: Limits | None = None,
        stalls: Stalls | None = None,
        max_cycles: int = 1 << 40,
        hang_limit: int | None = None,
        record: bool = True,
        reset: bool = True,
        poison: int | None = None,
    ) -> AcceleratorRun:
        """Run a program; the memory image is changed in place.

        Parameters
        ----------
        program : Program or (commands, 32) uint8
            Raw command words are not checked.
        memory : (bytes,) uint8
        hang_limit : int or None
            Cycles without an event or a beat from which on the design counts as hung; None is more than any command and any read take.
        record : bool
            Keep the cycle of every event.
        reset : bool
            Reset first; otherwise the program follows the one before.
        poison : int or None
            Byte of the image that an AXI4 memory answers with an error.

        Raises
        ------
        SimulationError
            If the design hangs (the awaited counters are named), reads or writes outside of the image, takes more than ``max_cycles``,
            or breaks a rule of AXI4.
        HashMismatchError, ParameterError
            As `Program.check`.
        """
        if isinstance(program, Program):
            program.check(self.machine, memory)
            program = program.words
        timing, limits, stalls = timing or MemoryTiming(), limits or Limits.of(self.machine), stalls or Stalls()
        words, capacity = np.ascontiguousarray(program), len(program) if record else 0
        options = _Options(
            latency=timing.latency,
            jitter=timing.jitter,
            refresh_interval=timing.refresh_interval,
            refresh_cycles=timing.refresh_cycles,
            write_latency=timing.write_latency,
            seed=stalls.seed,
            queue_depth=limits.queue_depth,
            outstanding=limits.outstanding,
            shared=int(not (self.machine.split or stalls.write or timing.refresh_cycles)),
            reset=int(reset),
            max_cycles=max_cycles,
            hang_limit=quiet_bound(self.machine, words, timing) if hang_limit is None else hang_limit,
            capacity=capacity,
            poison=-1 if poison is None else poison,
            **{f"{name}_stall": int(getattr(stalls, name) * (1 << 32)) for name in ("read", "write", "command")},
        )
        cycles, result = np.zeros((len(EVENTS), max(capacity, 1)), np.int64), _Result()
        started = time.perf_counter()
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
            read_bursts=result.read_bursts,
            write_bursts=result.write_bursts,
            error=bool(result.error),
            simulation_seconds=seconds,
        )


_QUIET_MARGIN = 100_000
"""Cycles that stalls, pipelines and the writing of commands may add to a quiet time."""


def quiet_bound(machine: AcceleratorMachine, words: Array, timing: MemoryTiming) -> int:
    """Cycles within which something happens while a program runs: the longest COMPUTE and the slowest memory access, and a margin.

    Parameters
    ----------
    words : (commands, 32) uint8
    """
    computes = words[extract_all(words, FIELDS[Op.COMPUTE]["op"]) == Op.COMPUTE]
    units, m_blocks, n_blocks = (extract_all(computes, FIELDS[Op.COMPUTE][name]) for name in ("k_units", "m_blocks", "n_blocks"))
    array = int((m_blocks * n_blocks * np.maximum(units, machine.min_interval)).max(initial=0))
    memory = timing.latency + timing.write_latency + 2 * timing.jitter
    if timing.refresh_cycles:  # during which the answers' latency does not pass
        memory += (memory // (timing.refresh_interval - timing.refresh_cycles) + 2) * timing.refresh_cycles
    return array + memory + _QUIET_MARGIN


def _raise_for(result: _Result, max_cycles: int) -> None:
    """Turn a status into one sentence."""
    waits = [text for bit, text in enumerate(_WAITERS) if result.waiting >> bit & 1]
    reasons = {
        _CYCLE_BOUND: f"the program did not end within {max_cycles} cycles",
        _HANG: f"the design stands still since cycle {result.cycles}: {'; '.join(waits) or 'no queue waits for a counter'}",
        _CLASH: f"read and write on the shared port in cycle {result.cycles}",
        _WRITE_OUTSIDE: f"a write outside of the memory image in cycle {result.cycles}",
        _READ_OUTSIDE: f"a read outside of the memory image in cycle {result.cycles}",
        _NOT_ENDED: f"the command stream ended without END being accepted (cycle {result.cycles}): {'; '.join(waits) or 'END is missing'}",
        **{_READ_OUTSIDE + 1 + index: f"{text} (cycle {result.cycles})" for index, text in enumerate(_PROTOCOL)},
    }
    if result.status != _DONE:
        raise SimulationError(reasons[result.status] + ("; the design's error flag is up" if result.error else ""))
