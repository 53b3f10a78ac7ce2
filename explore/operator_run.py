"""One whole operator on the RTL of one design: tensorized, compiled for this computer, run, compared bit for bit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..compiler.operators import Operator, parse
from ..compiler.schedule import Schedule, schedule_space
from ..hw.design_point import DesignPoint
from ..intrinsics import Machine, Measurement, SimulationError, stream_cycles
from ..intrinsics.numerics import Array
from ..intrinsics.timing import utilization

Progress = Callable[..., None]

SPARE_CYCLES = 100_000
"""A run is stopped when it needs more than twice the cycles of the exact model, and these."""

_tvm = threading.Lock()  # TVM's tables of intrinsics and its schedules are shared by all threads


def simulate_operator(
    point: DesignPoint,
    operator: Operator | str,
    *,
    schedule: Schedule | None = None,
    seed: int = 0,
    max_cycles: int | None = None,
    progress: Progress | None = None,
) -> Measurement:
    """Run a whole operator with random full-range operands.

    Parameters
    ----------
    point : DesignPoint
    operator : Operator or str
        A string takes the types of the design (`typed_for`).
    schedule : Schedule or None
        None takes the fastest loop order of the exact model.
    seed : int, >= 0
        Of the operands.
    max_cycles : int or None
        The run fails when it needs more; default: twice what the exact model says.
    progress : callable, optional
        Called as ``progress("simulate", cycles, expected cycles)``.

    Returns
    -------
    Measurement
        ``source`` is ``"rtl"``; ``model_cycles`` beside it. Whether they agree is for the caller to judge.

    Raises
    ------
    MappingError
        If the operator cannot be tensorized.
    SimulationError, ToolNotFoundError, ToolFailedError
    """
    operator = typed_for(point.machine, parse(operator)) if isinstance(operator, str) else operator
    schedule = schedule or fastest_schedule(operator, point.machine)
    inputs = operator.random_inputs(np.random.default_rng(seed))
    return run_operator(
        point, operator, schedule, inputs=inputs, reference=operator.reference(inputs), max_cycles=max_cycles, progress=progress
    )


def typed_for(machine: Machine, operator: Operator) -> Operator:
    """The operator on the types that a machine computes with; its output is what the accumulator is in memory."""
    contraction = machine.instruction.contraction
    return operator.typed(a=contraction.a, b=contraction.b, out=contraction.acc.container)


def fastest_schedule(operator: Operator, machine: Machine) -> Schedule:
    """The schedule of fewest cycles with every loop whole on its inner level; of equals, the one that packs least."""
    space = schedule_space(operator, machine)
    orders = next(variable.values for variable in space.variables if variable.name == "order")
    schedules = [space.schedule({"route": route.kind, "order": order}) for route in space.routes for order in orders]
    return min(schedules, key=lambda schedule: (stream_cycles(machine, schedule.nest), schedule.bytes_packed))


def run_operator(
    point: DesignPoint,
    operator: Operator,
    schedule: Schedule,
    *,
    inputs: Sequence[Array],
    reference: Array,
    max_cycles: int | None = None,
    progress: Progress | None = None,
) -> Measurement:
    """Build the design (or load it), compile the scheduled operator, run it, compare with ``reference``."""
    from ..sim import Model, build

    machine, expected = point.machine, stream_cycles(point.machine, schedule.nest)
    library = build(point)
    program = _program(operator, machine, schedule)
    report = progress and (lambda cycles: progress("simulate", cycles, expected))
    with Model(library, max_cycles=max_cycles or 2 * expected + SPARE_CYCLES) as model:
        started = time.perf_counter()
        with model.bind():
            output = model.supervise(lambda: program(inputs), progress=report)
        seconds = time.perf_counter() - started
        model.settle()
        counters = model.counters
    if counters.calls != schedule.nest.calls:
        raise SimulationError(
            f"{operator.name} on {machine.name} made {counters.calls} tile calls, but its schedule has {schedule.nest.calls}"
        )
    return Measurement(
        cycles=counters.cycles,
        macs=operator.macs,
        utilization=utilization(machine, operator.macs, counters.cycles),
        source="rtl",
        design_hash=machine.design_hash,
        ledger=counters.ledger,
        matches_reference=bool(output.dtype == reference.dtype and np.array_equal(output, reference)),
        calls=counters.calls,
        model_cycles=expected,
        simulation_seconds=seconds,
        build_seconds=library.build_seconds,
    )


def _program(operator: Operator, machine: Machine, schedule: Schedule) -> Any:
    from ..compiler.host import compile_host
    from ..compiler.tensorize import apply

    with _tvm:
        program = compile_host(apply(operator, machine, schedule), operator, machine)
    program.require(machine.design_hash)
    return program
