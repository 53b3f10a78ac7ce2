from dataclasses import replace

import numpy as np
import pytest

from celosia.compiler.accelerator.convolution import Convolution, gemm
from celosia.compiler.accelerator.costs import schedule_table, table
from celosia.compiler.accelerator.job import typical_output
from celosia.compiler.accelerator.lower import check_fit, lower
from celosia.compiler.accelerator.problem import Problem
from celosia.compiler.accelerator.schedule import ORDERS, Schedule
from celosia.compiler.accelerator.vectorised import score_structure
from celosia.explore import accelerator_search
from celosia.explore.accelerator import in_words, require_exact, simulate_accelerator
from celosia.explore.accelerator_audit import audit
from celosia.explore.accelerator_balanced import BALANCED_SLOTS
from celosia.explore.accelerator_search import SLOTS, best_schedule
from celosia.explore.accelerator_selftest import random_case, random_design, selftest_accelerator, shrink
from celosia.hw import DesignPoint
from celosia.hw.accelerator.machine import machine_of
from celosia.intrinsics import MismatchError, ParameterError, ScheduleError, memory
from celosia.intrinsics.accelerator import MemoryTiming, predict
from celosia.intrinsics.accelerator.costs import INDEX, LEDGER, lower_bound
from celosia.intrinsics.accelerator.ledger import array_ledger
from celosia.sim.accelerator_scorer import score


def make(**parameters):
    given = {"rows": 4, "cols": 4, "spad_kib": 2, "acc_kib": 2, "port_bytes": 8, "channel_words": 8, **parameters}
    return DesignPoint.create("accelerator", **given)


LARGE = DesignPoint.create("accelerator", rows=16, cols=16, spad_kib=64, port_bytes=16)


def test_the_compiled_scorer_is_the_reference_model():
    rng, points = np.random.default_rng(0), 0
    while points < 40:
        try:
            point = random_design(rng)
        except ParameterError:
            continue
        case = random_case(rng, point)
        problem = Problem(machine=machine_of(point), op=case.op, output=case.output)
        rows = schedule_table(problem, [case.schedule], timing=case.timing, limits=case.limits)
        cycles, ledger = score(rows, ledger=True)
        program = lower(problem, case.schedule)
        events = predict(problem.machine, program, memory=case.timing, limits=case.limits)
        assert cycles[0] == events.cycles, case.to_dict()
        assert dict(zip(LEDGER, ledger[0].tolist(), strict=True)) == array_ledger(problem.machine, program, events)
        points += 1


def test_the_scorer_notices_another_constant():
    problem = Problem(machine=machine_of(make()), op=gemm(20, 20, 64))
    rows = schedule_table(problem, [Schedule(m=1, n=1, k=2)])
    changed = rows.copy()
    changed[:, list(range(rows.shape[1]))] = rows
    changed[0, INDEX["latency"]] += 1
    assert score(changed)[0][0] != score(rows)[0][0]


def test_the_vectorised_scorer_is_the_compiled_one():
    rng = np.random.default_rng(1)
    compared = 0
    while compared < 12:
        core = str(rng.choice(["output-stationary", "weight-stationary", "outer-product"]))
        point = make(core=core, split=bool(rng.integers(2)), queue_depth=int(rng.choice([1, 2, 8])), spad_kib=8, acc_kib=8)
        problem = Problem(machine=machine_of(point), op=gemm(*(int(size) for size in rng.integers(1, 90, 3))))
        order = str(rng.choice(ORDERS))
        shape = {name: "mnk".index(letter) for name, letter in zip(("outer", "middle", "inner"), order, strict=True)}
        slots = dict(
            zip(
                ("a_slots", "b_slots", "c_slots", "lag"),
                (int(rng.integers(1, 4)), int(rng.integers(1, 4)), 40, int(rng.integers(3))),
                strict=True,
            )
        )
        sizes = [np.full(8, int(rng.integers(1, most + 1))) for most in (problem.max_m, problem.max_n, problem.k_chunks)]
        rows = table(problem, *sizes, timing=MemoryTiming(latency=7), **shape, **slots)
        rows[:, INDEX["latency"]] = rng.integers(1, 60, len(rows))
        cycles, _ = score(rows)
        if cycles[0] < 0:
            with pytest.raises(ScheduleError):
                score_structure(rows)
            continue
        assert np.array_equal(score_structure(rows), cycles)
        compared += 1


def test_rows_of_another_structure_are_refused():
    problem = Problem(machine=machine_of(make()), op=gemm(20, 20, 64))
    rows = schedule_table(problem, [Schedule(m=1, n=1, k=2), Schedule(m=1, n=1, k=2, lag=0)])
    with pytest.raises(ParameterError, match=r"^rows differ in lag \(0 and 1\); score them one structure at a time$"):
        score_structure(rows)
    with pytest.raises(ParameterError, match=r"^a cost table must have"):
        score(rows[:, :5])


@pytest.mark.parametrize(
    ("core", "op"),
    [
        ("output-stationary", gemm(13, 13, 40)),
        ("weight-stationary", gemm(5, 13, 24)),
        ("outer-product", Convolution(height=4, width=3, channels=4, filters=7, kernel=(3, 3), pad=1)),
    ],
)
def test_the_search_finds_what_trying_everything_finds(core, op):
    problem = Problem(machine=machine_of(make(core=core)), op=op)
    slots = SLOTS[:2]
    found = best_schedule(problem, slots=slots)
    best, legal = None, 0
    for m in range(1, problem.max_m + 1):
        for n in range(1, problem.max_n + 1):
            for k in range(1, problem.k_chunks + 1):
                for order in ORDERS:
                    for a, b, c, lag in slots:
                        schedule = Schedule(m=m, n=n, k=k, order=order, a_slots=a, b_slots=b, c_slots=c, lag=lag)
                        try:
                            program = lower(problem, schedule)
                        except ScheduleError:
                            continue
                        legal += 1
                        cycles = predict(problem.machine, program).cycles
                        best = cycles if best is None else min(best, cycles)
    assert found.cycles == best == predict(problem.machine, lower(problem, found.schedule)).cycles
    assert found.legal >= legal > 0


def test_the_layer_of_resnet_and_its_direct_convolution():
    """Best known before: 482263 cycles for the matrix product alone."""
    machine = machine_of(LARGE)
    product = best_schedule(Problem(machine=machine, op=gemm(196, 256, 2304)), orders=("mnk",), slots=((2, 2, 2, 1),))
    assert product.cycles <= 482_263
    direct = Convolution(height=14, width=14, channels=256, filters=256, kernel=(3, 3), pad=1)
    assert best_schedule(Problem(machine=machine, op=direct), orders=("mnk",), slots=((2, 2, 2, 1),)).cycles <= 1.03 * product.cycles


def test_no_schedule_is_an_answer():
    # a strip holds all taps of its windows
    op = Convolution(height=50, width=50, channels=4, filters=4, kernel=(40, 40), groups=4)
    problem = Problem(machine=machine_of(make(core="outer-product")), op=op)
    with pytest.raises(ScheduleError, match=r"^no schedule fits the memories"):
        best_schedule(problem)


def test_simulation_by_the_model_and_its_words():
    result = simulate_accelerator(make(), (10, 9, 20), fidelity="model")
    assert result.matches_reference
    assert result.rtl_cycles is None
    assert sum(result.ledger.values()) == sum(result.critical_path.values()) == result.model_cycles
    words = in_words(result)
    assert words[0].startswith(("port-bound: ", "array-bound: "))
    with pytest.raises(ParameterError, match=r"^fidelity must be one of model, rtl, both, not 'fast'$"):
        simulate_accelerator(make(), (3, 2, 5), fidelity="fast")


def test_a_difference_stops_the_run():
    result = simulate_accelerator(make(), "gemm:5x6x7", fidelity="model")
    require_exact(result, "x")
    with pytest.raises(MismatchError, match=r"^the result differs from the reference; reproduce: x$"):
        require_exact(replace(result, matches_reference=False), "x")
    with pytest.raises(MismatchError, match=r"differ in an event; reproduce: x$"):
        require_exact(replace(result, events_equal=False, rtl_cycles=1), "x")


def test_an_audit_stops_at_a_difference_and_names_the_point(monkeypatch):
    from celosia.explore import accelerator_audit as module

    point, op, schedule = make(), gemm(5, 6, 7), Schedule(m=1, n=1, k=1)
    result = simulate_accelerator(point, op, schedule=schedule, fidelity="model")
    monkeypatch.setattr(module, "simulate_accelerator", lambda *arguments, **options: result)
    assert module.audit([(point, op, schedule)]) == (result,)
    wrong = replace(result, events_equal=False, rtl_cycles=result.model_cycles + 1)
    monkeypatch.setattr(module, "simulate_accelerator", lambda *arguments, **options: wrong)
    with pytest.raises(MismatchError, match=r"reproduce: celosia simulate accelerator .* --operator gemm:5x6x7 .* --seed 4$"):
        module.audit([(point, op, schedule)], seed=4)


@pytest.mark.slow
def test_an_audit_on_rtl_passes():
    point = make(core="outer-product")
    points = [(point, op, best_schedule(Problem(machine=machine_of(point), op=op)).schedule) for op in (gemm(9, 8, 30), gemm(1, 3, 9))]
    assert [result.events_equal for result in audit(points)] == [True, True]


def test_a_failure_is_shrunk():
    rng = np.random.default_rng(3)
    case = next(
        case for case in (random_case(rng, make(core="outer-product")) for _ in range(200)) if case.op.height > 3 and case.schedule.lag
    )
    small = shrink(case, lambda other: other.op.height > 2)
    assert small.op.height == 3
    assert small.op.width == small.op.channels == small.op.filters == small.schedule.m == 1


@pytest.mark.slow
def test_the_self_test_passes_and_finds_a_wrong_model(monkeypatch):
    report = selftest_accelerator(minutes=5, points=25, seed=11)
    assert report.points == 25
    assert report.exact > 10
    assert report.failures == ()
    from celosia.explore import accelerator_selftest as module

    right = module.predict
    monkeypatch.setattr(module, "_check_scorer", lambda *arguments: "")

    def wrong(machine, program, **options):
        events = right(machine, program, **options)
        events.times["write_done"][-1] += 1
        return events

    monkeypatch.setattr(module, "predict", wrong)
    report = selftest_accelerator(minutes=5, points=25, seed=11)
    assert report.failures
    assert "write_done" in report.failures[0]["fault"]


def test_bounds_prune_but_never_exclude():
    problem = Problem(machine=machine_of(make()), op=gemm(40, 40, 128))
    rng = np.random.default_rng(0)
    schedules = [
        Schedule(m=int(rng.integers(1, 5)), n=int(rng.integers(1, 5)), k=int(rng.integers(1, 9)), order=str(rng.choice(ORDERS)), c_slots=30)
        for _ in range(200)
    ]
    rows = schedule_table(problem, schedules)
    cycles, _ = score(rows)
    assert (lower_bound(rows)[cycles >= 0] <= cycles[cycles >= 0]).all()


def test_the_space_is_exactly_what_fits():
    """Tiles are cut off by bisection and tested some at a time; one by one the same ones fit."""
    problem = Problem(machine=machine_of(make()), op=gemm(50, 40, 90))
    slots = ((1, 1, 1, 0), (4, 2, 2, 1))
    fitting = 0
    for m in range(1, problem.max_m + 1):
        for n in range(1, problem.max_n + 1):
            for k in range(1, problem.k_chunks + 1):
                for a, b, c, lag in slots:
                    try:
                        check_fit(problem, Schedule(m=m, n=n, k=k, a_slots=a, b_slots=b, c_slots=c, lag=lag))
                    except ScheduleError:
                        continue
                    fitting += 1
    found = best_schedule(problem, slots=slots, orders=("mnk",))
    assert found.legal == fitting < found.candidates == 2 * problem.max_m * problem.max_n * problem.k_chunks


def test_slots_of_one_tile_of_a_and_b_with_two_of_c_are_searched():
    point = make(core="outer-product", rows=3, cols=3, spad_kib=1, acc_kib=1, port_bytes=32, queue_depth=2, outstanding=4, bus="axi4")
    op = Convolution(height=4, width=5, channels=3, filters=3, kernel=(3, 3), pad=1, groups=3)
    problem = Problem(machine=machine_of(point), op=op, output=typical_output("int8"))
    assert {(a, b) for a, b, _, _ in SLOTS} == {(a, b) for a in (1, 2, 4) for b in (1, 2, 4)}
    found, few = (best_schedule(problem, timing=MemoryTiming(latency=5), slots=slots) for slots in (SLOTS, BALANCED_SLOTS))
    assert found.cycles < few.cycles


def test_long_operators_are_searched_at_once(monkeypatch):
    problem = Problem(machine=machine_of(make()), op=gemm(8191 * 100, 1, 1))
    assert best_schedule(problem).seconds < 10
    monkeypatch.setattr(accelerator_search, "MOST_LEGAL", 100)
    with pytest.raises(ScheduleError, match=r"^more than 100 schedules fit the memories, too many to search; allowed: "):
        best_schedule(problem)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ((100_000, 100_000, 100), "^the tensors need 40.0 GB of memory; allowed: the 4.3 GB that 32-bit"),
        ((10**11, 3, 1), "GB of memory; allowed"),
    ],
)
def test_tensors_beyond_the_addresses_are_refused(shape, reason):
    with pytest.raises(ScheduleError, match=reason):
        simulate_accelerator(make(), shape, fidelity="model")


def test_an_operator_beyond_the_memory_of_this_machine_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "_available_bytes", lambda: 1 << 20)
    with pytest.raises(ParameterError, match=r"^the operator needs about .* GB of memory are available; make it smaller"):
        simulate_accelerator(make(), (1000, 100, 100), fidelity="model")
