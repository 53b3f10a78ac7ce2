"""The exact cycle model: every event of a program, as a recurrence in program order.

Cycle 0 is the first after reset. For command number i with predecessor i' in program order:

    dispatch  d = max(d' + 1, pop of the command queue_depth earlier in the same queue + 1)
    pop       s = max(d + 1, engine free, visible of each awaited counter)
    load      last request t (see `Credits`);  free = t + 1;  done = t + latency
    store     n beats;  free = s + n + 1 + store_latency;  done = free
    compute   e = s + preload + passes * interval;  free = e + 1;  reads done = e;  writes done = e + tail
    set       d = max(d' + 1, visible of everything so far)
    end       T = max(d' + 1, visible of everything)

A counter is visible one cycle after ``done``. Constants are those of `AcceleratorMachine`. With AXI4, ``latency`` is one cycle longer,
and what SET and END await includes the response of the last write (`AcceleratorMachine.confirmation`). With memory-mapped
commands, d of every command is also at least x + 1 (`Arrivals`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import ParameterError
from . import walk
from .command import Command, Op
from .machine import AcceleratorMachine, MemoryTiming, ceil_div
from .program import Program

EVENTS = ("load_pop", "compute_pop", "store_pop", "load_done", "read_done", "write_done", "store_done")
"""What is observed of every command, in the order of the bits of the design's port ``events``."""

_NEVER = -(1 << 40)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Queue depth and reads in flight while a design runs; at most what it was built with.

    Parameters
    ----------
    queue_depth, outstanding : int, >= 1
    """

    queue_depth: int
    outstanding: int

    @classmethod
    def of(cls, machine: AcceleratorMachine, *, queue_depth: int | None = None, outstanding: int | None = None) -> Limits:
        """Those of the design, or lower ones."""
        for name, value, most in (
            ("queue_depth", queue_depth, machine.queue_depth),
            ("outstanding", outstanding, machine.outstanding),
        ):
            if value is not None and not 1 <= value <= most:
                raise ParameterError(f"{name} must be from 1 to {most}, not {value}; nearest legal value: {min(max(value, 1), most)}")
        return cls(
            queue_depth=machine.queue_depth if queue_depth is None else queue_depth,
            outstanding=machine.outstanding if outstanding is None else outstanding,
        )


@dataclass
class Events:
    """Cycles of every event of a run, by name of `EVENTS`, and of its end."""

    cycles: int = 0
    times: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in EVENTS})


def load_beats(command: Command) -> int:
    """Beats of a LOAD."""
    return command.values["rows"] * command.values["beats"]


def store_rows(command: Command) -> int:
    """Accumulator rows that a STORE reads."""
    return walk.store_rows(command.values) * command.values["n_blocks"]


def passes(command: Command) -> int:
    """Passes of a COMPUTE."""
    return command.values["m_blocks"] * command.values["n_blocks"]


class Credits:
    """Request cycles when at most ``outstanding`` reads are in flight.

    With period P = max(latency + 1, outstanding) and the last request cycles h: u_i = max(u_{i-1} + 1, h_i + P) with
    u_{-1} = s, and request j leaves in cycle u_{j mod outstanding} + P * (j div outstanding).
    """

    def __init__(self, latency: int, outstanding: int) -> None:
        self.free = outstanding >= latency + 1
        self.period = max(latency + 1, outstanding)
        self.outstanding = outstanding
        self.history = [_NEVER] * outstanding

    def last_request(self, start: int, beats: int) -> int:
        """Cycle of the last of ``beats`` requests of a load that was popped in cycle ``start``."""
        if self.free:
            return start + beats
        window, previous = [], start
        for index in range(min(beats, self.outstanding)):
            previous = max(previous + 1, self.history[index] + self.period)
            window.append(previous)
        last = beats - 1
        count = len(window)
        recent = [window[j % count] + self.period * (j // count) for j in range(max(0, beats - self.outstanding), beats)]
        self.history = (self.history + recent)[-self.outstanding :]
        return window[last % count] + self.period * (last // count)


class Arrivals:
    """Commands that are written word by word, as fast as the registers take them, into a queue of ``depth``.

    The last word of a command is taken in cycle x = max(x' + interval, dispatch of the command ``depth`` earlier + 1), where x' of the
    first command is -1.
    """

    def __init__(self, interval: int, depth: int) -> None:
        self.interval, self.depth = interval, depth
        self.last = -1
        self.taken: list[int] = []

    def earliest(self) -> int:
        """Earliest dispatch of the next command."""
        if not self.interval:
            return 0
        self.last += self.interval
        if len(self.taken) >= self.depth:
            self.last = max(self.last, self.taken[-self.depth] + 1)
        return self.last + 1

    def take(self, cycle: int) -> None:
        """The command was dispatched."""
        self.taken.append(cycle)


def empty_beats(machine: AcceleratorMachine, store: Mapping[str, int], path: Mapping[str, int]) -> int:
    """Beats of the last row of a STORE behind its last byte."""
    size = machine.cols * (1 if path["narrow"] else 4)
    last = (
        store["base"]
        + (store["m_blocks"] - 1) * path["block_pitch"]
        + (store["n_blocks"] - 1) * size
        + (store["last_rows"] - 1) * path["pitch"]
    )
    return max(0, path["beats"] - ceil_div(last % machine.port_bytes + store["last_bytes"], machine.port_bytes))


class _Run:
    """State of the recurrence."""

    def __init__(self, machine: AcceleratorMachine, memory: MemoryTiming, limits: Limits) -> None:
        self.machine, self.memory, self.limits = machine, memory, limits
        self.latency = memory.latency + machine.read_register
        self.credits = Credits(self.latency, limits.outstanding)
        self.arrivals = Arrivals(machine.command_interval, machine.queue_depth)
        self.path: Mapping[str, int] = {"beats": 1}
        self.confirmed = 0
        self.events = Events()
        self.queues: dict[Op, list[int]] = {Op.LOAD: [], Op.COMPUTE: [], Op.STORE: []}
        if not machine.split:
            self.queues[Op.STORE] = self.queues[Op.LOAD]
        self.free = dict.fromkeys(self.queues, 0)
        self.dispatched = -1

    def step(self, command: Command) -> None:
        self.dispatched = max(self.dispatched + 1, self.arrivals.earliest())
        queue = self.queues.get(command.op)
        if queue is None:
            self.dispatched = max(self.dispatched, self.idle())
        elif len(queue) >= self.limits.queue_depth:
            self.dispatched = max(self.dispatched, queue[-self.limits.queue_depth] + 1)
        self.arrivals.take(self.dispatched)
        if queue is None:
            self.path = command.values if "beats" in command.values else self.path
            return
        start = max(self.dispatched + 1, self.free[command.op], *self.awaited(command))
        queue.append(start)
        {Op.LOAD: self.load, Op.COMPUTE: self.compute, Op.STORE: self.store}[command.op](command, start)

    def awaited(self, command: Command) -> list[int]:
        """Cycles in which the awaited counters become visible."""
        computes = "read_done" if command.op is Op.LOAD else "write_done"
        pairs = zip(("load_done", computes, "store_done"), command.waits, strict=True)
        return [self.events.times[name][count - 1] + 1 for name, count in pairs if count] or [0]

    def load(self, command: Command, start: int) -> None:
        last = self.credits.last_request(start, load_beats(command))
        self.record(("load_pop", start), ("load_done", last + self.latency))
        self.occupy(Op.LOAD, last + 1)

    def store(self, command: Command, start: int) -> None:
        done = start + store_rows(command) * self.path["beats"] + 1 + self.machine.store_latency
        self.record(("store_pop", start), ("store_done", done))
        if self.machine.axi:
            self.confirmed = (
                done + 1 + self.machine.confirmation(self.memory.write_latency, empty_beats(self.machine, command.values, self.path))
            )
        self.occupy(Op.STORE, done)

    def compute(self, command: Command, start: int) -> None:
        units = command.values["k_units"]
        end = start + self.machine.preload + passes(command) * self.machine.interval(units)
        self.record(("compute_pop", start), ("read_done", end), ("write_done", end + self.machine.tail(units)))
        self.free[Op.COMPUTE] = end + 1

    def occupy(self, op: Op, until: int) -> None:
        """The engine, and with it a shared port, is free again in cycle ``until``."""
        for user in (Op.LOAD, Op.STORE) if not self.machine.split else (op,):
            self.free[user] = until

    def record(self, *events: tuple[str, int]) -> None:
        for name, cycle in events:
            self.events.times[name].append(cycle)

    def idle(self) -> int:
        """First cycle in which everything so far is visible."""
        times = self.events.times
        return max((self.confirmed, *(times[name][-1] + 1 for name in ("load_done", "write_done", "store_done") if times[name])))


def predict(machine: AcceleratorMachine, program: Program, *, memory: MemoryTiming | None = None, limits: Limits | None = None) -> Events:
    """Every event of ``program`` on ``machine`` with a memory that is always ready and has fixed latencies; exact.

    Memory-mapped commands arrive as fast as the registers take them. An AXI4 memory delivers the beats of a burst one per cycle; one that
    is not always ready, or a slower writer of commands, changes no bit and never makes an event earlier.

    Parameters
    ----------
    memory : MemoryTiming, optional
        Jitter and refresh are ignored here; see `predict_interval`.
    limits : Limits, optional
    """
    memory = memory or MemoryTiming()
    run = _Run(machine, memory, limits or Limits.of(machine))
    for command in program.commands:
        run.step(command)
    run.events.cycles = run.dispatched
    return run.events


def predict_interval(
    machine: AcceleratorMachine, program: Program, *, memory: MemoryTiming, limits: Limits | None = None
) -> tuple[int, int]:
    """Least and greatest cycles of ``program`` on a memory with jitter and refresh.

    Notes
    -----
    The system is a chain of maxima and sums, so its end never comes earlier when a time grows. Jitter makes every read and every write
    response up to ``jitter`` cycles longer. A refresh that stopped everything, not the memory alone, would add its cycles to the total
    each time, and stopping less never ends later: with n refreshes in T cycles, T <= greatest without refresh + n * refresh_cycles.
    """
    bounds = [MemoryTiming(latency=memory.latency + extra, write_latency=memory.write_latency + extra) for extra in (0, memory.jitter)]
    low, high = (predict(machine, program, memory=bound, limits=limits).cycles for bound in bounds)
    longest = high
    while memory.refresh_cycles and longest != (total := high + (longest // memory.refresh_interval + 1) * memory.refresh_cycles):
        longest = total
    return low, longest
