"""The scorers against the reference model on programs, and against each other on tables that no operator has."""

import numpy as np
import pytest

from celosia.compiler.accelerator.convolution import Convolution, gemm
from celosia.compiler.accelerator.costs import schedule_table
from celosia.compiler.accelerator.lower import lower
from celosia.compiler.accelerator.problem import Problem
from celosia.compiler.accelerator.schedule import ORDERS, Schedule
from celosia.compiler.accelerator.vectorised import score_structure
from celosia.hw import DesignPoint
from celosia.hw.accelerator.machine import machine_of
from celosia.intrinsics import ParameterError, ScheduleError
from celosia.intrinsics.accelerator import MemoryTiming, predict
from celosia.intrinsics.accelerator.costs import COLUMNS, INDEX, LEDGER
from celosia.intrinsics.accelerator.ledger import array_ledger
from celosia.sim.accelerator_scorer import STRETCHES, load, passed_over, score, sources

FACTORS = [name for name in COLUMNS if name[:4] in ("a_m_", "c_m_", "s_m_", "b_n_", "c_n_", "a_k_", "b_k_", "c_k_")]


def random_structure(rng, most=400):
    """A row of a table of any structure, its sizes random."""
    row = dict.fromkeys(COLUMNS, 1)
    while True:
        period_m, period_n, tiles_k = (int(x) for x in rng.integers(1, 13, 3))
        groups_m, groups_n = (int(x) for x in rng.choice([1, 1, 1, 2, 3], 2))
        tiles_m, tiles_n = period_m * groups_m, period_n * groups_n
        if tiles_m * tiles_n * tiles_k <= most:
            break
    order = rng.permutation(3)
    c_slots = int(rng.integers(1, 5)) if order[2] == 2 or rng.random() < 0.05 else tiles_m * tiles_n + int(rng.integers(3))
    row |= {"tiles_m": tiles_m, "tiles_n": tiles_n, "tiles_k": tiles_k, "period_m": period_m, "period_n": period_n}
    row |= dict(zip(("outer", "middle", "inner"), order.tolist(), strict=True))
    row |= {"a_slots": rng.integers(1, 5), "b_slots": rng.integers(1, 5), "c_slots": c_slots, "lag": rng.integers(4)}
    row |= {"a_share": period_n * (groups_n > 1 and rng.integers(2)), "residual": rng.integers(2), "split": rng.integers(2)}
    row |= {"queue_depth": rng.choice([1, 2, 8]), "prologue": rng.integers(2)}
    row |= {"command_interval": 16 * (rng.random() < 0.3), "command_depth": rng.integers(1, 5)}
    return np.array([row[name] for name in COLUMNS], np.int64)


def random_rows(rng, count, *, limited):
    """``count`` rows of one structure."""
    rows = np.repeat(random_structure(rng)[None], count, axis=0)

    def draw(name, low, high):
        rows[:, INDEX[name]] = rng.integers(low, high, count)

    for name in FACTORS:
        draw(name, 1, int(rng.choice([4, 30, 200])))
    for name in ("tail_0", "tail_1", "tail_2", "tail_3", "latency"):
        draw(name, 1, 40)
    draw("outstanding", 1, 60) if limited else draw("outstanding", 40, 60)
    for name, low, high in (("sets", 3, 6), ("preload", 0, 6), ("store_latency", 0, 4), ("confirmation", 0, 9)):
        draw(name, low, high)
    rows[:, INDEX["prologue"]] *= rng.integers(1, 30, count)
    return rows


def long_rows(rng, count, most=4000):
    """Rows of a structure each, with long loops, many tiles of which are alike, and mostly with commands that take few cycles."""
    rows = []
    while len(rows) < count:
        row = random_rows(rng, 1, limited=False)
        if rng.random() < 0.7:
            row[:, [INDEX[name] for name in FACTORS]] = rng.integers(1, 5, len(FACTORS))
        tiles, longest = rng.integers(1, 9, 3), row[0, INDEX["inner"]] if rng.integers(2) else rng.integers(3)
        tiles[longest] = rng.integers(8, 60)
        groups = rng.integers(1, 3, 2)
        values = {"tiles_m": tiles[0] * groups[0], "period_m": tiles[0], "tiles_n": tiles[1] * groups[1], "period_n": tiles[1]}
        values |= {"tiles_k": tiles[2], "a_share": tiles[1] * (groups[1] > 1 and rng.integers(2))}
        values |= {name: rng.integers(1, rng.choice([4, 4, 80])) for name in ("a_slots", "b_slots")}
        values["c_slots"] = rng.integers(1, 4) if row[0, INDEX["inner"]] == 2 else tiles[0] * tiles[1] * groups.prod()
        if rng.integers(2):
            names = [name for name in COLUMNS if name[:-1] in ("a_m_", "c_m_", "s_m_", "u_m_", "tail_", "b_n_", "c_n_")]
            values |= {name: row[0, INDEX[name[:-1] + "0"]] for name in names}
        for name, value in values.items():
            row[:, INDEX[name]] = value
        if tiles.prod() * groups.prod() < most:
            rows.append(row)
    return np.concatenate(rows)


@pytest.mark.parametrize("limited", [False, True])
def test_all_scorers_agree_on_any_structure(limited):
    """Single rows jump and keep a ledger, lanes do neither, NumPy leaves terms out."""
    rng, compared = np.random.default_rng(4), 0
    for _ in range(24):
        rows = random_rows(rng, 21, limited=limited)
        cycles, ledger = score(rows, ledger=True)
        assert np.array_equal(score(rows, threads=1)[0], cycles)
        if cycles[0] < 0:
            with pytest.raises(ScheduleError, match="output tile"):
                score_structure(rows)
            continue
        assert np.array_equal(ledger.sum(axis=1), cycles)
        assert np.array_equal(score_structure(rows), cycles)
        compared += 1
    assert compared > 18


def test_rows_of_many_structures_are_scored_in_any_company():
    """Lanes take neighbours of one structure, threads take blocks: no row depends on which others there are."""
    rng = np.random.default_rng(5)
    table = np.concatenate([random_rows(rng, int(rng.integers(1, 40)), limited=bool(rng.integers(2))) for _ in range(30)])
    alone = np.array([score(row[None], ledger=True)[0][0] for row in table])
    assert np.array_equal(score(table)[0], alone)
    order = rng.permutation(len(table))
    assert np.array_equal(score(table[order], threads=3)[0], alone[order])


@pytest.mark.parametrize(
    "op",
    [
        gemm(60, 24, 200),
        Convolution(images=3, height=9, width=9, channels=8, filters=12, kernel=(3, 3), pad=1),
        Convolution(images=2, height=8, width=8, channels=16, filters=32, kernel=(1, 1), groups=4),
    ],
    ids=["gemm", "images", "groups"],
)
@pytest.mark.parametrize("core", ["output-stationary", "weight-stationary"])
def test_long_programs_are_exact(op, core):
    """Thousands of commands, of which the compiled scorer walks through few."""
    point = DesignPoint.create("accelerator", core=core, rows=4, cols=4, spad_kib=4, acc_kib=8, port_bytes=8, outstanding=64)
    problem, rng, steps, passed = Problem(machine=machine_of(point), op=op), np.random.default_rng(6), 0, 0
    for order in ORDERS * 3:
        c_slots = int(rng.integers(1, 4)) if order[2] == "k" else 64
        slots = {"a_slots": int(rng.integers(1, 5)), "b_slots": int(rng.integers(1, 5)), "c_slots": c_slots, "lag": int(rng.integers(3))}
        m, n, k = (int(rng.choice(sizes)) for sizes in ([1, 1, 2, 3], [1, 1, 2], [1, 2, 5]))
        schedule = Schedule(m=m, n=n, k=k, order=order, **slots)
        try:
            program = lower(problem, schedule)
        except ScheduleError:
            continue
        timing = MemoryTiming(latency=int(rng.integers(1, 63)))
        events = predict(problem.machine, program, memory=timing)
        row = schedule_table(problem, [schedule], timing=timing)
        cycles, ledger = score(row, ledger=True)
        assert cycles[0] == events.cycles, schedule
        assert dict(zip(LEDGER, ledger[0].tolist(), strict=True)) == array_ledger(problem.machine, program, events)
        steps += np.prod([row[0, INDEX[f"tiles_{axis}"]] for axis in "mnk"])
        passed += passed_over(row)[1].sum()
    assert steps > 2000
    assert passed > steps / 2


def test_what_is_passed_over_is_exact():
    """Every kind of stretch, against the walk that passes nothing over, and NumPy; also where states are soon forgotten."""
    rng = np.random.default_rng(7)
    table, few = long_rows(rng, 400), long_rows(rng, 20, most=400)
    cycles, passed = passed_over(table)
    assert ((passed > 0).sum(axis=0) >= 40).all(), dict(zip(STRETCHES, (passed > 0).sum(axis=0), strict=True))
    walked, none = passed_over(table, changed("engine.unbounded &&", "false &&"))
    assert not none.any()
    assert np.array_equal(cycles, walked)
    assert np.array_equal(score(table, ledger=True)[0], cycles)
    forgetful = passed_over(table, changed("kMost = 1024", "kMost = 4"))
    assert np.array_equal(forgetful[0], cycles)
    assert forgetful[1].sum() < passed.sum()
    assert passed_over(few)[0].tolist() == [int(score_structure(row[None])[0]) for row in few]


def changed(old, new):
    """The scorer with another text at every place of one."""
    texts = dict(sources())
    assert any(old in text for text in texts.values())
    return load(tuple((name, text.replace(old, new)) for name, text in texts.items()))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Four{step - next.step,", "Four{Int(0),"),
        ("clock.arrived + interval - 1", "clock.arrived + interval"),
        ("load_ahead = std::max(clock.free_load - base, Int(0))", "load_ahead = Int(0)"),
        ("writer.put(&last(), depth, base);", "writer.put(&last(), depth, base + 3);"),
        ("const Int around = 8 * engine.axis(0).code() + engine.axis(1).code();", "const Int around = 0;"),
        ("axis.code() + (kLevel ? 8 * engine.axis(0).code() : 0)", "axis.code()"),
    ],
    ids=["ages-of-stores", "arrivals", "port", "queues", "tiles-around", "outer-tiles"],
)
def test_states_that_lack_something_are_noticed(old, new):
    table = long_rows(np.random.default_rng(8), 400)
    assert (passed_over(table, changed(old, new))[0] != passed_over(table)[0]).any()


def test_long_runs_leave_32_bits():
    rows = random_rows(np.random.default_rng(0), 20, limited=False)
    for name in ("tiles_m", "tiles_n", "tiles_k", "period_m", "period_n"):
        rows[:, INDEX[name]] = 2
    rows[:, [INDEX["outer"], INDEX["middle"], INDEX["inner"]]] = 0, 1, 2
    rows[:, INDEX["a_share"]] = 0
    rows[:, INDEX["c_m_0"] : INDEX["c_m_0"] + 4] = 1 << 20
    rows[:, INDEX["c_k_0"] : INDEX["c_k_0"] + 2] = 1 << 20
    cycles, _ = score(rows)
    assert (cycles > 1 << 40).all()
    assert np.array_equal(score(rows, ledger=True)[0], cycles)
    assert np.array_equal(score_structure(rows), cycles)


def test_every_difference_of_structure_is_refused():
    rows = random_rows(np.random.default_rng(1), 3, limited=False)
    rows[:, INDEX["prologue"]] = 0, 5, 5
    with pytest.raises(ParameterError, match=r"^rows differ in having a prologue \(False and True\); score them one structure at a time$"):
        score_structure(rows)


def test_an_empty_table_has_no_cycles():
    rows = np.zeros((0, len(COLUMNS)), np.int64)
    assert score_structure(rows).shape == score(rows)[0].shape == (0,)


@pytest.mark.parametrize("name", ["a_m_2", "c_k_1", "s_m_3", "latency", "tail_3", "store_latency", "sets", "confirmation"])
def test_every_scorer_notices_another_constant(name):
    """A column that a scorer forgot would leave its cycles as they are."""
    row = dict.fromkeys(COLUMNS, 1) | {"tiles_m": 3, "tiles_n": 2, "tiles_k": 4, "period_m": 3, "period_n": 2, "lag": 0, "a_share": 0}
    row |= {"outer": 0, "middle": 1, "inner": 2, "outstanding": 64, "command_interval": 0, "prologue": 0}
    changed = row | {name: row[name] + 3}
    table, other = (np.array([[values[column] for column in COLUMNS]] * 16, np.int64) for values in (row, changed))
    for scorer in (lambda rows: score(rows[:1])[0], lambda rows: score(rows)[0], score_structure):
        assert scorer(other)[0] > scorer(table)[0]
