"""Random hardware x operators x schedules x memories: the RTL must be right in every bit and the model in every cycle."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..compiler.accelerator.convolution import Convolution, Output, gemm
from ..compiler.accelerator.costs import schedule_table
from ..compiler.accelerator.job import expected, image_of, random_operands, result_of
from ..compiler.accelerator.lower import lower
from ..compiler.accelerator.problem import Problem
from ..compiler.accelerator.schedule import ORDERS, Schedule
from ..hw.accelerator.machine import machine_of
from ..hw.design_point import DesignPoint
from ..intrinsics import CelosiaError, ParameterError, ScheduleError
from ..intrinsics.accelerator import Limits, MemoryTiming, predict, predict_interval
from ..intrinsics.accelerator.costs import lower_bound
from ..intrinsics.accelerator.functional import execute
from ..intrinsics.accelerator.machine import BUSES, COMMAND_INPUTS, CORES
from ..intrinsics.accelerator.timing import EVENTS, Events
from ..sim.accelerator import AcceleratorModel, Stalls
from ..sim.accelerator_scorer import score
from .accelerator_run import Progress

POINTS_PER_DESIGN = 200


@dataclass(frozen=True, kw_only=True)
class Case:
    """One point of the test, and all that is needed to run it again."""

    point: DesignPoint
    op: Convolution
    output: Output
    schedule: Schedule
    timing: MemoryTiming
    limits: Limits
    stalls: Stalls
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        parts = {name: dict(getattr(self, name).__dict__) for name in ("op", "output", "schedule", "timing", "limits", "stalls")}
        return {"design": self.point.to_dict(), **parts, "seed": self.seed}


@dataclass(frozen=True, kw_only=True)
class Report:
    """Result of a self-test.

    Parameters
    ----------
    points : int
    exact : int
        Points of which every event was compared and equal (the others ran with back-pressure, jitter or refresh).
    designs : int
    failures : tuple of dict
        Shrunk cases with what went wrong.
    seconds : float
    seed : int
    """

    points: int
    exact: int
    designs: int
    failures: tuple[dict[str, Any], ...]
    seconds: float
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**self.__dict__, "failures": list(self.failures)}


def random_design(rng: np.random.Generator, *, largest: int = 6) -> DesignPoint:
    """A small accelerator of any core."""
    core, channel_words = str(rng.choice(CORES)), int(rng.choice([0, 8, 32]))
    parameters: dict[str, Any] = {
        "core": core,
        "rows": int(rng.integers(1, largest + 1)),
        "cols": int(rng.integers(1, largest + 1)),
        "lanes": int(rng.integers(1, 5)) if core == "dot-product" else 1,
        "port_bytes": int(2 ** rng.integers(0, 6)),
        "split": bool(rng.integers(2)),
        "spad_kib": int(rng.choice([2, 4, 8])),
        "acc_kib": int(rng.choice([2, 4, 8])),
        "channel_words": channel_words,
        "residual_words": int(rng.choice([0, 64, 300])) if channel_words else 0,
        "queue_depth": int(rng.choice([1, 2, 8])),
        "outstanding": int(rng.choice([1, 8, 64])),
        "rounding": str(rng.choice(["half-away-from-zero", "half-up", "half-even", "floor"])),
        "a": str(rng.choice(["int8", "uint8", "int4", "int16"])),
        "b": str(rng.choice(["int8", "uint8", "int4", "int16"])),
        "overflow": str(rng.choice(["forbid", "wrap"])),
        "bus": str(rng.choice(BUSES)),
        "commands": str(rng.choice(COMMAND_INPUTS, p=[0.75, 0.25])),
    }
    return DesignPoint.create("accelerator", **parameters)


def random_operator(rng: np.random.Generator) -> Convolution:
    """A small matrix product, convolution, grouped or depthwise convolution."""
    kind = int(rng.integers(4))
    if kind == 0:
        return gemm(int(rng.integers(1, 40)), int(rng.integers(1, 30)), int(rng.integers(1, 120)))
    while True:
        groups = 1 if kind == 1 else int(rng.integers(2, 20 if kind == 3 else 5))
        channels = 1 if kind == 3 else int(rng.choice([1, 2, 3, 4, 5, 8, 16, 20] if kind == 1 else [1, 2, 4, 8]))
        filters = 1 if kind == 3 else int(rng.integers(1, 20 if kind == 1 else 7))
        try:
            return Convolution(
                images=int(rng.integers(1, 3)),
                height=int(rng.integers(1, 11)),
                width=int(rng.integers(1, 11)),
                channels=groups * channels,
                filters=groups * filters,
                kernel=(int(rng.integers(1, 4)), int(rng.integers(1, 4))),
                stride=int(rng.integers(1, 4)),
                dilation=int(rng.integers(1, 3)),
                pad=int(rng.integers(0, 3)),
                zero_point=int(rng.integers(-128, 128)) if rng.integers(2) else 0,
                groups=groups,
            )
        except ParameterError:
            continue


def random_schedule(rng: np.random.Generator, problem: Problem) -> Schedule:
    """Any schedule; it may not fit."""
    return Schedule(
        m=int(rng.integers(1, min(problem.max_m, 12) + 1)),
        n=int(rng.integers(1, min(problem.max_n, 8) + 1)),
        k=int(rng.integers(1, problem.k_chunks + 1)),
        order=str(rng.choice(ORDERS)),
        a_slots=int(rng.integers(1, 5)),
        b_slots=int(rng.integers(1, 5)),
        c_slots=int(rng.integers(1, 10)),
        lag=int(rng.integers(0, 3)),
    )


def random_output(rng: np.random.Generator, point: DesignPoint) -> Output:
    """Plain sums, or any arithmetic of the store path."""
    if not getattr(point.parameters, "channel_words", 0) or rng.integers(2):
        return Output()
    low = int(rng.integers(-128, 1))
    residual = bool(getattr(point.parameters, "residual_words", 0)) and bool(rng.integers(2))
    return Output(
        narrow=residual or bool(rng.integers(2)),
        bias=bool(rng.integers(2)),
        shift=int(rng.integers(0, 63)),
        zero_point=int(rng.integers(-128, 128)),
        low=low,
        high=int(rng.integers(low, 128 if low < 0 else 256)),
        residual=residual,
        residual_multiplier=int(rng.integers(-(1 << 31), 1 << 31)) if residual else 1,
        residual_zero_point=int(rng.integers(-128, 256)) if residual else 0,
    )


def random_case(rng: np.random.Generator, point: DesignPoint) -> Case:
    """A legal case on this design."""
    machine = machine_of(point)
    while True:
        output = random_output(rng, point)
        try:
            problem = Problem(machine=machine, op=random_operator(rng), output=output)
            schedule = random_schedule(rng, problem)
            lower(problem, schedule)
        except ScheduleError:
            continue
        timing, stalls = _random_memory(rng)
        return Case(
            point=point,
            op=problem.op,
            output=output,
            schedule=schedule,
            timing=timing,
            limits=Limits(
                queue_depth=int(rng.integers(1, machine.queue_depth + 1)), outstanding=int(rng.integers(1, machine.outstanding + 1))
            ),
            stalls=stalls,
            seed=_seed(rng),
        )


def _random_memory(rng: np.random.Generator) -> tuple[MemoryTiming, Stalls]:
    """Mostly a memory whose cycles are exact, else one with jitter or refresh, or one that is not always ready."""
    kind = int(rng.integers(8))
    timing, stalls = MemoryTiming(latency=int(rng.integers(1, 60)), write_latency=int(rng.integers(1, 60))), Stalls(seed=_seed(rng))
    if kind in (0, 1):
        timing = replace(timing, jitter=int(rng.integers(0, 30)))
    if kind in (1, 2):
        interval = int(rng.integers(2, 300))
        timing = replace(timing, refresh_interval=interval, refresh_cycles=int(rng.integers(1, interval // 2 + 1)))
    return timing, _random_stalls(rng) if kind in (2, 3) else stalls


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(1 << 30))


def _random_stalls(rng: np.random.Generator) -> Stalls:
    read, write, command = (float(rng.choice([0.0, 0.1, 0.5, 0.9])) for _ in range(3))
    return Stalls(read=read, write=write, command=command, seed=_seed(rng))


def run_case(case: Case, model: AcceleratorModel) -> str:
    """What is wrong with a case; empty if nothing is."""
    machine, timing, limits = model.machine, case.timing, case.limits
    problem = Problem(machine=machine, op=case.op, output=case.output)
    program = lower(problem, case.schedule)
    predicted = predict(machine, program, memory=timing, limits=limits)
    fault = _check_scorer(problem, case, predicted)
    if fault:
        return fault
    operands = random_operands(problem, np.random.default_rng(case.seed))
    memory, functional, want = image_of(problem, operands), image_of(problem, operands), expected(problem, operands)
    execute(machine, program, functional)
    if not np.array_equal(result_of(program, functional), want):
        return "the functional model differs from the reference"
    slow = timing.refresh_interval / (timing.refresh_interval - timing.refresh_cycles) if timing.refresh_cycles else 1
    bound = int(40 * slow * predicted.cycles) + 20_000
    try:
        run = model.run(program, memory, timing=timing, limits=limits, stalls=case.stalls, max_cycles=bound)
    except CelosiaError as error:
        return str(error)
    if run.error:
        return "the design raised its error flag"
    if not np.array_equal(memory, functional):
        return "the RTL's memory differs from the functional model's"
    return _check_time(case, model, predicted, run.events)


def _check_scorer(problem: Problem, case: Case, predicted: Events) -> str:
    rows = schedule_table(problem, [case.schedule], timing=case.timing, limits=case.limits)
    cycles, ledger = score(rows, ledger=True)
    if cycles[0] != predicted.cycles:
        return f"the compiled scorer says {cycles[0]} cycles, the reference model {predicted.cycles}"
    if ledger is not None and (int(ledger.sum()) != predicted.cycles or int(ledger.min()) < 0):
        return f"the ledger {ledger[0].tolist()} does not sum to {predicted.cycles}"
    bound = int(lower_bound(rows)[0])
    return f"the lower bound {bound} is above {predicted.cycles} cycles" if bound > predicted.cycles else ""


def _check_time(case: Case, model: AcceleratorModel, predicted: Events, observed: Events) -> str:
    stalls = case.stalls
    if stalls.read or stalls.write or stalls.command:
        return (
            "" if observed.cycles >= predicted.cycles else f"back-pressure made the run faster: {observed.cycles}, not {predicted.cycles}"
        )
    if not case.timing.exact:
        program = lower(Problem(machine=model.machine, op=case.op, output=case.output), case.schedule)
        low, high = predict_interval(model.machine, program, memory=case.timing, limits=case.limits)
        return "" if low <= observed.cycles <= high else f"{observed.cycles} cycles are outside of the interval {low}..{high}"
    if observed == predicted:
        return ""
    return first_difference(predicted, observed)


def first_difference(predicted: Events, observed: Events) -> str:
    """The earliest event in which a run and its prediction differ."""
    found = []
    for name in EVENTS:
        pair = predicted.times[name], observed.times[name]
        if len(pair[0]) != len(pair[1]):
            found.append((0, f"{len(pair[1])} events {name}, not {len(pair[0])}"))
        found += [(min(a, b), f"{name} {i} in cycle {b}, predicted {a}") for i, (a, b) in enumerate(zip(*pair, strict=False)) if a != b][:1]
    if not found:
        return f"the end in cycle {observed.cycles}, predicted {predicted.cycles}"
    return min(found)[1]


def shrink(case: Case, fails: Callable[[Case], bool], *, seconds: float = 20.0) -> Case:
    """A smaller case that still fails."""
    deadline = time.monotonic() + seconds
    progress = True
    while progress and time.monotonic() < deadline:
        progress = False
        for smaller in _smaller(case):
            if time.monotonic() > deadline:
                break
            if smaller == case:
                continue
            try:
                failed = fails(smaller)
            except CelosiaError:
                continue
            if failed:
                case, progress = smaller, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    """Cases that are simpler in one respect, the largest steps first."""
    yield replace(case, stalls=Stalls(seed=case.stalls.seed), timing=MemoryTiming(latency=case.timing.latency))
    yield replace(case, output=Output())
    op = case.op
    for name in ("images", "height", "width", "stride", "dilation", "pad", "zero_point"):
        value, least = getattr(op, name), 0 if name in ("pad", "zero_point") else 1
        for smaller in dict.fromkeys((least, value // 2, value - 1)):
            if least <= smaller < value:
                yield from _with_op(case, **{name: smaller})
    if op.groups == 1:
        for name in ("channels", "filters"):
            value = getattr(op, name)
            for smaller in dict.fromkeys((1, value // 2, value - 1)):
                if 1 <= smaller < value:
                    yield from _with_op(case, **{name: smaller})
    else:
        yield from _with_op(case, channels=op.group_channels, filters=op.group_filters, groups=1)
    if op.kernel != (1, 1):
        yield from _with_op(case, kernel=(1, op.kernel[1]))
        yield from _with_op(case, kernel=(op.kernel[0], 1))
    for name in ("m", "n", "k", "a_slots", "b_slots", "c_slots", "lag"):
        value, least = getattr(case.schedule, name), 0 if name == "lag" else 1
        for smaller in dict.fromkeys((least, value - 1)):
            if least <= smaller < value:
                yield replace(case, schedule=replace(case.schedule, **{name: smaller}))
    if case.timing.latency > 1:
        yield replace(case, timing=replace(case.timing, latency=1))


def _with_op(case: Case, **changes: Any) -> Iterator[Case]:
    try:
        yield replace(case, op=replace(case.op, **changes))
    except ParameterError:
        return


def selftest_accelerator(*, minutes: float = 1.0, points: int | None = None, seed: int = 0, progress: Progress | None = None) -> Report:
    """Test random points until the time is up or the points are done.

    Parameters
    ----------
    minutes : float
    points : int, optional
        Stop after so many.
    seed : int
        The same seed tests the same points.
    progress : callable, optional
        Called with a line of text.
    """
    started, tell = time.monotonic(), progress or (lambda line: None)
    rng = np.random.default_rng(seed)
    done = exact = designs = 0
    failures: list[dict[str, Any]] = []

    def over() -> bool:
        return time.monotonic() - started > 60 * minutes or (points is not None and done >= points)

    while not over():
        try:
            point = random_design(rng)
        except ParameterError:
            continue
        model = AcceleratorModel(point)
        designs += 1
        for _ in range(POINTS_PER_DESIGN):
            if over():
                break
            case = random_case(rng, point)
            fault = run_case(case, model)
            done += 1
            exact += case.timing.exact and not (case.stalls.read or case.stalls.write or case.stalls.command)
            if fault:
                small = shrink(case, lambda other, model=model: bool(run_case(other, model)))  # type: ignore[misc]
                failures.append({"seed": seed, "fault": run_case(small, model), "first_fault": fault, "case": small.to_dict()})
                tell(f"failure with seed {seed}: {failures[-1]['fault']}")
                break
        tell(f"{done} points, {exact} exact, {designs} designs, {len(failures)} failures")
    return Report(points=done, exact=exact, designs=designs, failures=tuple(failures), seconds=time.monotonic() - started, seed=seed)
