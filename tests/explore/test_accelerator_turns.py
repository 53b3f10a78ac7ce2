"""Operators that are several convolutions: cycles, bounds and optimum of the whole program."""

from dataclasses import replace

import numpy as np
import pytest

from celosia.compiler.accelerator.costs import fits, schedule_table
from celosia.compiler.accelerator.operator_program import lower_operator, place_on, problem_of
from celosia.compiler.accelerator.operators import placement_of
from celosia.compiler.accelerator.placement import Placement
from celosia.compiler.accelerator.schedule import ORDERS, Schedule
from celosia.compiler.operators import from_te
from celosia.explore.accelerator_operator import simulate_operator
from celosia.explore.accelerator_search import best_schedule
from celosia.explore.accelerator_selftest import random_design, random_schedule
from celosia.explore.accelerator_turns import SOURCES, score_turns, turns_of
from celosia.hw import DesignPoint
from celosia.hw.accelerator.machine import machine_of
from celosia.intrinsics import CelosiaError, DType, ScheduleError
from celosia.intrinsics.accelerator import Limits, MemoryTiming, predict
from celosia.intrinsics.accelerator.costs import INDEX, Bounds, Sum, Turns
from celosia.sim.accelerator_scorer import load, score, sources

LIMITS = {
    "GMM": ((2, 5), (1, 20), (1, 20), (1, 30)),
    "C3D": ((1, 2), (2, 5), (2, 6), (2, 6), (1, 9), (1, 9), (1, 4), (1, 3), (0, 2)),
    "T2D": ((1, 3), (2, 6), (2, 6), (1, 9), (1, 9), (2, 5), (2, 4), (0, 2)),
    "TBG": ((2, 3), (2, 9), (1, 4), (2, 9)),
}


def random_placements(seed, designs):
    """Operators of several convolutions on random designs, with a memory each."""
    rng, done = np.random.default_rng(seed), 0
    while done < designs:
        kind = str(rng.choice(list(LIMITS)))
        try:
            machine = machine_of(random_design(rng))
            operator = from_te(kind, tuple(int(rng.integers(*limits)) for limits in LIMITS[kind]))
            found = place_on(operator.typed(a=machine.a, b=machine.b, out=DType(32)), machine)
            if not isinstance(found, Placement) or found.copies == (1, 1, 1):
                continue
            problem = problem_of(found, machine)
        except CelosiaError:
            continue
        done += 1
        timing = MemoryTiming(latency=int(rng.integers(1, 60)), write_latency=int(rng.integers(1, 60)))
        limits = Limits(
            queue_depth=int(rng.integers(1, machine.queue_depth + 1)), outstanding=int(rng.integers(1, machine.outstanding + 1))
        )
        yield rng, found, problem, {"timing": timing, "limits": limits}


def random_rows(seed, designs):
    """Schedules of random placements: their programs' cycles, None where there is no program, and their rows of costs."""
    for rng, found, problem, memory in random_placements(seed, designs):
        for _ in range(8):
            schedule = random_schedule(rng, problem)
            if rng.integers(2):
                schedule = replace(schedule, **{f"{name}_slots": int(rng.integers(1, 3)) for name in "abc"})
            if not fits(problem, {name: np.array([value]) for name, value in schedule.to_dict().items() if name not in ("order", "lag")})[
                0
            ]:
                continue
            try:
                program = lower_operator(found, problem.machine, schedule).program
                cycles = predict(problem.machine, program, memory=memory["timing"], limits=memory["limits"]).cycles
            except ScheduleError:
                cycles = None
            yield found, problem, schedule, memory["timing"], cycles, schedule_table(problem, [schedule], **memory)


def differences(seed, designs, library=None):
    """How many schedules the scorer takes for others than the model does, and how many there are."""
    wrong = count = 0
    for found, problem, schedule, timing, cycles, rows in random_rows(seed, designs):
        scored = score_turns(problem, found.sums, rows, np.array([schedule.n]), timing=timing, library=library)[0]
        wrong += scored != (-1 if cycles is None else cycles)
        count += 1
    return wrong, count


def test_the_scorer_is_the_reference_model():
    wrong, count = differences(3, 30)
    assert not wrong
    assert count > 100


@pytest.mark.parametrize(
    ("right", "broken"),
    [
        ("left = *corner, configure();", "left = *corner;"),
        ("confirmed = stored + next.confirmation;", "confirmed = stored;"),
        ("for (; many > 0; --many) store();", ""),
        ("turn.b * tiles_n + n", "n"),
        ("if (!first || live[slot]) {", "if (false) {"),
        ("written = free_compute + at(tail_0_ + m_kind);", "written = free_compute;"),
    ],
)
def test_a_broken_scorer_is_noticed(right, broken):
    ((name, text),) = sources(SOURCES)
    assert right in text
    assert differences(3, 30, load(((name, text.replace(right, broken)),)))[0]


def test_of_one_convolution_it_is_the_other_scorer():
    rng = np.random.default_rng(2)
    machine = machine_of(DesignPoint.create("accelerator", rows=3, cols=4, spad_kib=2, acc_kib=2, port_bytes=8, split=True))
    placed = placement_of("conv2d:2x6x7x8,10x3x3,s1,p1,g2")
    problem = problem_of(placed, machine)
    schedules = [random_schedule(rng, problem) for _ in range(50)]
    rows = schedule_table(problem, schedules)
    assert np.array_equal(score_turns(problem, placed.sums, rows, np.array([schedule.n for schedule in schedules])), score(rows)[0])


def bound_of(problem, sums, rows):
    get = {name: rows[:, place] for name, place in INDEX.items()}
    bounds, order = Bounds(get, turns_of(problem, sums)), [get[name] for name in ("outer", "middle", "inner")]
    return bounds.cycles(order, *(get[f"{name}_slots"] for name in "abc"))[0], bounds.finishes(order, get["c_slots"])[0]


def test_no_program_undercuts_its_bound():
    near = []
    for found, problem, schedule, _, cycles, rows in random_rows(4, 30):
        bound, finishes = bound_of(problem, found.sums, rows)
        assert finishes == (cycles is not None), schedule
        if cycles is not None:
            assert bound <= cycles, schedule
            near.append(cycles / bound)
    assert np.median(near) < 1.3


def test_what_bounds_know_of_turns():
    machine = machine_of(DesignPoint.create("accelerator", rows=4, cols=4))
    for kind, sizes, turns in (
        ("GMM", (3, 5, 6, 7), Turns(sums=(Sum(outputs=3),), a=3, b=3)),
        ("T2D", (1, 4, 4, 3, 5, 4, 2, 1), Turns(sums=(Sum(outputs=4),), a=4, b=4, switches=3)),
        ("C3D", (1, 4, 5, 5, 3, 4, 3, 1, 1), Turns(sums=(Sum(outputs=2, turns=2, a=2, b=2), Sum(outputs=2, turns=3, a=3, b=3)), a=4, b=3)),
    ):
        placed = placement_of(from_te(kind, sizes))
        assert turns_of(problem_of(placed, machine), placed.sums) == turns


FEW = ((1, 1, 1, 0), (1, 2, 2, 1), (4, 2, 1, 0), (2, 4, 2, 1))

SMALL = [
    ({}, "GMM", (3, 9, 6, 40)),
    ({"core": "weight-stationary", "split": True}, "GMM", (2, 5, 9, 24)),
    ({}, "T2D", (1, 4, 4, 8, 9, 4, 2, 1)),
    ({"core": "outer-product", "bus": "axi4"}, "C3D", (1, 3, 4, 4, 2, 6, 3, 1, 1)),
]


def everything(placed, machine):
    """Cycles of the programs of all schedules, as the model predicts them."""
    problem = problem_of(placed, machine)
    for m in range(1, problem.max_m + 1):
        for n in range(1, problem.max_n + 1):
            for k in range(1, problem.k_chunks + 1):
                for order in ORDERS:
                    for a, b, c, lag in FEW:
                        schedule = Schedule(m=m, n=n, k=k, order=order, a_slots=a, b_slots=b, c_slots=c, lag=lag)
                        try:
                            program = lower_operator(placed, machine, schedule).program
                        except ScheduleError:
                            continue
                        yield predict(machine, program).cycles


@pytest.mark.parametrize(("parameters", "kind", "sizes"), SMALL, ids=str)
def test_the_optimum_is_that_of_all_programs(parameters, kind, sizes):
    given = {"rows": 4, "cols": 4, "spad_kib": 1, "acc_kib": 1, "port_bytes": 8, **parameters}
    machine, placed = machine_of(DesignPoint.create("accelerator", **given)), placement_of(from_te(kind, sizes))
    found = best_schedule(problem_of(placed, machine), sums=placed.sums, slots=FEW)
    program = lower_operator(placed, machine, found.schedule).program
    assert found.cycles == min(everything(placed, machine)) == predict(machine, program).cycles


def test_the_optimum_of_one_convolution_is_not_that_of_several():
    machine, placed = machine_of(DesignPoint.create("accelerator", rows=16, cols=16)), placement_of(from_te("GMM", (12, 128, 128, 128)))
    problem = problem_of(placed, machine)
    alone, together = best_schedule(problem), best_schedule(problem, sums=placed.sums)
    assert predict(machine, lower_operator(placed, machine, alone.schedule).program).cycles > 1.05 * together.cycles


@pytest.mark.parametrize(
    "operator", [from_te("GMM", (3, 9, 6, 40)), from_te("T2D", (1, 4, 4, 8, 9, 4, 2, 1)), "conv3d:1x3x4x4x8,6x3x3x3,p1"]
)
def test_the_best_schedule_of_several_runs_on_rtl(operator):
    point = DesignPoint.create("accelerator", rows=4, cols=4, spad_kib=4, acc_kib=4, port_bytes=8)
    result = simulate_operator(point, operator)
    placed = placement_of(operator)
    best = best_schedule(problem_of(placed, machine_of(point)), sums=placed.sums)
    assert result.passed
    assert result.schedule == best.schedule
    assert result.rtl_cycles == result.model_cycles == best.cycles


def test_a_schedule_of_ones_own_is_not_changed():
    point = DesignPoint.create("accelerator", rows=4, cols=4, spad_kib=4, acc_kib=4, port_bytes=8)
    outer = Schedule(m=1, n=1, k=1, order="kmn", c_slots=1, lag=0)
    with pytest.raises(ScheduleError, match="unfinished output tiles; allowed: more c_slots, or k as the innermost loop"):
        simulate_operator(point, "conv3d:1x3x4x4x8,6x3x3x3,p1", schedule=outer, fidelity="model")
