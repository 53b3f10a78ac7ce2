"""Bounds never exclude the optimum, tell enough schedules apart, and say the same of grids as of tables."""

from dataclasses import replace

import numpy as np
import pytest

from celosia.compiler.accelerator.convolution import Convolution, gemm
from celosia.compiler.accelerator.costs import columns, fits, schedule_table, table
from celosia.compiler.accelerator.job import typical_output
from celosia.compiler.accelerator.problem import Problem
from celosia.compiler.accelerator.schedule import ORDERS, Turn
from celosia.explore import accelerator_balanced, accelerator_search
from celosia.explore.accelerator_bounded import Space
from celosia.explore.accelerator_search import SLOTS, best_schedule
from celosia.explore.accelerator_selftest import random_case, random_design, random_schedule
from celosia.hw import DesignPoint
from celosia.hw.accelerator.machine import machine_of
from celosia.intrinsics import ParameterError, ScheduleError
from celosia.intrinsics.accelerator import MemoryTiming
from celosia.intrinsics.accelerator.costs import INDEX, Bounds, lower_bound
from celosia.sim.accelerator_scorer import score

PROBLEMS = [
    ({}, gemm(13, 13, 40), "sums"),
    ({"core": "weight-stationary", "port_bytes": 2}, gemm(9, 11, 24), "sums"),
    ({"core": "outer-product", "outstanding": 3}, Convolution(height=6, width=5, channels=6, filters=6, kernel=(3, 3), groups=6), "sums"),
    ({"split": True, "commands": "registers"}, Convolution(height=5, width=5, channels=4, filters=9, kernel=(3, 3), pad=1), "int8"),
    ({"residual_words": 64, "port_bytes": 4}, gemm(12, 10, 30), "residual"),
    ({"port_bytes": 1, "bus": "axi4"}, Convolution(height=4, width=6, channels=8, filters=8, kernel=(1, 3), groups=2), "sums"),
]


def make(parameters, op, output):
    given = {"rows": 4, "cols": 4, "spad_kib": 1, "acc_kib": 1, "port_bytes": 8, "channel_words": 8, **parameters}
    narrow = typical_output("int8", residual=True) if output == "residual" else typical_output(output)
    return Problem(machine=machine_of(DesignPoint.create("accelerator", **given)), op=op, output=narrow)


def everything(problem, slots=SLOTS):
    """All schedules that fit, as a table, and their cycles."""
    sizes = [np.arange(1, most + 1) for most in (problem.max_m, problem.max_n, problem.k_chunks)]
    m, n, k = (grid.ravel() for grid in np.meshgrid(*sizes, indexing="ij"))
    tables = []
    for a, b, c, lag in slots:
        held = {"a_slots": a, "b_slots": b, "c_slots": c, "lag": lag}
        fit = fits(problem, {"m": m, "n": n, "k": k, **held})
        for order in ORDERS:
            loops = dict(zip(("outer", "middle", "inner"), ("mnk".index(axis) for axis in order), strict=True))
            tables.append(table(problem, m[fit], n[fit], k[fit], **held, **loops))
    rows = np.concatenate(tables)
    return rows, score(rows)[0]


@pytest.mark.parametrize(("parameters", "op", "output"), PROBLEMS, ids=str)
def test_the_search_finds_the_best_of_all(parameters, op, output):
    problem = make(parameters, op, output)
    rows, cycles = everything(problem)
    found = best_schedule(problem)
    assert found.cycles == cycles[cycles >= 0].min() == score(schedule_table(problem, [found.schedule]))[0][0]
    assert found.legal == len(rows)
    assert found.scored < len(rows)


def test_a_bound_that_is_too_high_is_noticed(monkeypatch):
    right = Bounds.cycles

    def wrong(bounds, order, a_slots, b_slots, c_slots):
        return right(bounds, order, a_slots, b_slots, c_slots) * 3 // 2

    monkeypatch.setattr(accelerator_balanced, "MOST_SIZES", 1)  # else the first schedules of problems as small as these are the best
    monkeypatch.setattr(Bounds, "cycles", wrong)
    missed = excluded = 0
    for case in PROBLEMS:
        problem = make(*case)
        rows, cycles = everything(problem)
        missed += best_schedule(problem).cycles > cycles[cycles >= 0].min()
        excluded += bool((lower_bound(rows)[cycles >= 0] > cycles[cycles >= 0]).any())
    assert missed
    assert excluded == len(PROBLEMS)


def random_tables(seed, designs):
    rng, done = np.random.default_rng(seed), 0
    while done < designs:
        try:
            point = random_design(rng)
        except ParameterError:
            continue
        done += 1
        for _ in range(6):
            case = random_case(rng, point)
            problem = Problem(machine=machine_of(point), op=case.op, output=case.output)
            schedules = [
                replace(random_schedule(rng, problem), **{f"{name}_slots": int(rng.integers(1, 4)) for name in "abc"}) for _ in range(40)
            ]
            yield problem, schedule_table(problem, schedules, timing=case.timing, limits=case.limits)


def test_no_run_undercuts_its_bound():
    near = []
    for _, rows in random_tables(5, 12):
        cycles, _ = score(rows)
        bounds = lower_bound(rows)[cycles >= 0]
        assert (bounds <= cycles[cycles >= 0]).all()
        near.append(cycles[cycles >= 0] / bounds)
    assert np.median(np.concatenate(near)) < 1.15


def test_a_grid_has_the_bounds_of_its_tiles():
    for case in PROBLEMS:
        problem = make(*case)
        sizes = [np.arange(1, most + 1) for most in (problem.max_m, problem.max_n, problem.k_chunks)]
        m, n, k = np.ix_(*sizes)
        bounds = Bounds({name: np.asarray(value) for name, value in columns(problem, m, n, k).items()})
        flat = [grid.ravel() for grid in np.meshgrid(*sizes, indexing="ij")]
        for order in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
            for a, b, c, lag in ((1, 1, 1, 0), (2, 4, 2, 1), (4, 1, 2, 1)):
                loops = dict(zip(("outer", "middle", "inner"), order, strict=True))
                rows = table(problem, *flat, a_slots=a, b_slots=b, c_slots=c, lag=lag, **loops)
                grid = np.broadcast_to(bounds.cycles(order, a, b, c), [len(size) for size in sizes])
                assert np.array_equal(grid.ravel(), lower_bound(rows))
                assert (bounds.least() <= grid).all()


def test_a_search_that_is_too_long_is_given_up(monkeypatch):
    problem = make(*PROBLEMS[0])
    with pytest.raises(ScheduleError, match=r"^the search scores more than 5 steps of schedules; allowed: a schedule of your own, "):
        best_schedule(problem, most_work=5)
    monkeypatch.setattr(accelerator_search, "MOST_KEPT", 3)
    monkeypatch.setattr(accelerator_search, "_first", lambda space: (None, 0))
    with pytest.raises(ScheduleError, match=r"^more than 3 schedules cannot be told apart by their bounds, too many to search"):
        best_schedule(problem)


def test_schedules_that_evict_unfinished_outputs_are_left_out():
    for _, rows in random_tables(6, 6):
        cycles, _ = score(rows)
        get = {name: rows[:, place] for name, place in INDEX.items()}
        finishes = Bounds(get).finishes([get[name] for name in ("outer", "middle", "inner")], get["c_slots"])
        assert np.array_equal(finishes, cycles >= 0)


def test_work_is_what_the_scorer_walks():
    problem = make({"outstanding": 8}, gemm(400, 4, 8), "sums")
    slow, quick = (table(problem, *([np.array([1])] * 3), timing=MemoryTiming(latency=latency)) for latency in (20, 5))
    steps = slow[0, INDEX["tiles_m"]] * slow[0, INDEX["tiles_n"]] * slow[0, INDEX["tiles_k"]]
    space = Space(problem=problem, timing=None, limits=None, orders=ORDERS, slots=SLOTS)
    assert space._work(slow) == 4 * steps
    assert space._work(quick) == 64 < steps
    assert replace(space, sums=((Turn(), Turn(a=1)), (Turn(c=1),)))._work(quick) == 3 * steps
