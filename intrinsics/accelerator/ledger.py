"""Two accounts of every cycle of a run, from its events alone: what the array did, and what was critical. Each sums to the total."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .command import Command, Op
from .costs import LEDGER
from .machine import AcceleratorMachine, MemoryTiming
from .program import Program
from .timing import Arrivals, Events, Limits, empty_beats, load_beats, passes, store_rows

CRITICAL = (
    *("load_port", "credit_stall", "memory_latency", "preload", "compute", "array_pad", "drain"),
    *("store_port", "store_latency", "command", "dispatch"),
)
"""What a cycle of the critical path was spent on."""


def array_ledger(machine: AcceleratorMachine, program: Program, events: Events) -> dict[str, int]:
    """What the array did in every cycle: the gap before each compute is blamed on the wait that ended last."""
    ledger = dict.fromkeys(LEDGER, 0)
    times, free = events.times, 0
    computes = [command for command in program.commands if command.op is Op.COMPUTE]
    for index, command in enumerate(computes):
        start, end = times["compute_pop"][index], times["read_done"][index]
        ledger[_blame(command, times, start, first=index == 0)] += start - free
        beats = passes(command) * command.values["k_units"]
        ledger["command"] += 1
        ledger["preload"] += machine.preload
        ledger["beats"] += beats
        ledger["array_pad"] += end - start - machine.preload - beats
        free = end + 1
    last = times["write_done"][-1] + 1 if computes else free
    ledger["drain"] = last - free
    ledger["store_tail"] = events.cycles - last
    return ledger


def _blame(command: Command, times: dict[str, list[int]], start: int, *, first: bool) -> str:
    if first:
        return "fill"
    if command.loads and times["load_done"][command.loads - 1] + 1 == start:
        return "load_wait"
    if command.stores and times["store_done"][command.stores - 1] + 1 == start:
        return "store_wait"
    return "dispatch_wait"


@dataclass
class _Node:
    """A command on the way back from the end."""

    command: Command
    number: int  # among the commands of its kind
    pop: int
    dispatched: int
    dispatched_by: int | None  # command whose pop made room in the queue
    before: int | None  # command that used the engine before


def critical_path(
    machine: AcceleratorMachine, program: Program, events: Events, *, memory: MemoryTiming, limits: Limits | None = None
) -> dict[str, int]:
    """Walk back from the end along the constraints that were binding; every cycle belongs to one class of `CRITICAL`."""
    walk = _Walk(machine, program, events, memory, limits or Limits.of(machine))
    return walk.account()


class _Walk:
    def __init__(self, machine: AcceleratorMachine, program: Program, events: Events, memory: MemoryTiming, limits: Limits) -> None:
        self.machine, self.events, self.memory = machine, events, memory
        self.latency = memory.latency + machine.read_register
        self.ledger = dict.fromkeys(CRITICAL, 0)
        self.out_beats = next((c.values["beats"] for c in reversed(program.commands) if c.op is Op.SET and "beats" in c.values), 1)
        self.nodes: list[_Node] = []
        self.index: dict[Op, list[int]] = {Op.LOAD: [], Op.COMPUTE: [], Op.STORE: []}
        self._build(program, limits)

    def _build(self, program: Program, limits: Limits) -> None:
        queues: dict[Op, list[int]] = {Op.LOAD: [], Op.COMPUTE: [], Op.STORE: []}
        if not self.machine.split:
            queues[Op.STORE] = queues[Op.LOAD]
        previous, self.confirmed = -1, 0
        path: Mapping[str, int] = {}
        arrivals = Arrivals(self.machine.command_interval, self.machine.queue_depth)
        for command in program.commands[:-1]:
            dispatched, by = max(previous + 1, arrivals.earliest()), None
            if command.op is Op.SET:
                path = command.values if "beats" in command.values else path
                previous = max(dispatched, self._idle(), self.confirmed)
                arrivals.take(previous)
                continue
            queue, number = queues[command.op], len(self.index[command.op])
            if len(queue) >= limits.queue_depth and self.nodes[queue[-limits.queue_depth]].pop + 1 > dispatched:
                by = queue[-limits.queue_depth]
                dispatched = self.nodes[by].pop + 1
            pop = self.events.times[f"{command.op.name.lower()}_pop"][number]
            self.nodes.append(_Node(command, number, pop, dispatched, by, queue[-1] if queue else None))
            queue.append(len(self.nodes) - 1)
            self.index[command.op].append(len(self.nodes) - 1)
            previous = dispatched
            arrivals.take(dispatched)
            if command.op is Op.STORE and self.machine.axi:
                unused = empty_beats(self.machine, command.values, path)
                self.confirmed = self._visible(len(self.nodes) - 1) + self.machine.confirmation(self.memory.write_latency, unused)

    def _idle(self) -> int:
        return max((self._visible(found[-1]) for found in self.index.values() if found), default=0)

    def _visible(self, at: int) -> int:
        node = self.nodes[at]
        name = {Op.LOAD: "load_done", Op.COMPUTE: "write_done", Op.STORE: "store_done"}[node.command.op]
        return self.events.times[name][node.number] + 1

    def _free(self, node: _Node) -> int:
        """First cycle in which the engine is free again."""
        times = self.events.times
        if node.command.op is Op.LOAD:
            return times["load_done"][node.number] - self.latency + 1
        return times["read_done"][node.number] + 1 if node.command.op is Op.COMPUTE else times["store_done"][node.number]

    def account(self) -> dict[str, int]:
        found = [(self._visible(numbers[-1]), numbers[-1]) for numbers in self.index.values() if numbers]
        if not found or max(found)[0] < self.events.cycles:
            # only the confirmation of the last write and the dispatch of END came later
            start = max(found, default=(0, -1))[0]
            confirmation = min(max(self.confirmed - start, 0), self.events.cycles - start)
            self.ledger["memory_latency"] += confirmation
            self.ledger["dispatch"] += self.events.cycles - start - confirmation
        if not found:
            return self.ledger
        at: int | None = max(found)[1]
        how = "visible"
        while at is not None:
            at, how = self._back(at, how)
        return self.ledger

    def _back(self, at: int, how: str) -> tuple[int | None, str]:
        """Account for the way from the pop of command ``at`` to where we are; then the command that its pop waited for."""
        node = self.nodes[at]
        self._body(node, how)
        if how != "dispatched":
            following = self._waited(node)
            if following is not None:
                return following
            self.ledger["dispatch"] += node.pop - node.dispatched
        if node.dispatched_by is not None:
            self.ledger["dispatch"] += 1
            return node.dispatched_by, "popped"
        if at == 0:
            self.ledger["dispatch"] += node.dispatched
            return None, ""
        self.ledger["dispatch"] += node.dispatched - self.nodes[at - 1].dispatched
        return at - 1, "dispatched"

    def _body(self, node: _Node, how: str) -> None:
        """Cycles from the pop of a command to its engine free, and further to its result visible."""
        if how in ("popped", "dispatched"):
            return
        ledger, values, op = self.ledger, node.command.values, node.command.op
        ledger["command"] += 1
        busy = self._free(node) - node.pop - 1
        if op is Op.LOAD:
            ledger["load_port"] += load_beats(node.command)
            ledger["credit_stall"] += busy - load_beats(node.command)
        elif op is Op.STORE:
            ledger["store_port"] += store_rows(node.command) * self.out_beats
            ledger["store_latency"] += self.machine.store_latency
        else:
            beats = passes(node.command) * values["k_units"]
            ledger["preload"] += self.machine.preload
            ledger["compute"] += beats
            ledger["array_pad"] += busy - self.machine.preload - beats
        if how == "visible":
            extra = {Op.LOAD: "memory_latency", Op.COMPUTE: "drain", Op.STORE: "command"}[op]
            ledger[extra] += self._visible(self.index[op][node.number]) - self._free(node)

    def _waited(self, node: _Node) -> tuple[int, str] | None:
        """What the pop waited for last, if it was not the dispatcher."""
        times, op = self.events.times, node.command.op
        loads, computes, stores = node.command.waits
        if loads and times["load_done"][loads - 1] + 1 == node.pop:
            return self.index[Op.LOAD][loads - 1], "visible"
        name = "read_done" if op is Op.LOAD else "write_done"
        if computes and times[name][computes - 1] + 1 == node.pop:
            return self.index[Op.COMPUTE][computes - 1], "free" if op is Op.LOAD else "visible"
        if stores and times["store_done"][stores - 1] + 1 == node.pop:
            return self.index[Op.STORE][stores - 1], "visible"
        if node.before is not None and self._free(self.nodes[node.before]) == node.pop:
            return node.before, "free"
        return None
