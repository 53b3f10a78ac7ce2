"""What the compiled scorer passes over, on rows where it matters: extreme costs, shares of any size, states that are soon forgotten."""

import numpy as np
import pytest

from celosia.compiler.accelerator.vectorised import score_structure
from celosia.intrinsics.accelerator.costs import COLUMNS, INDEX
from celosia.sim.accelerator_scorer import load, passed_over, sources

from .test_scorers import FACTORS

PERMUTATIONS = np.array([[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])
BY_TILE = ("a_m_", "c_m_", "s_m_", "u_m_", "tail_", "b_n_", "c_n_")


def extreme_rows(rng, count, *, shares="of a period", most=3000):
    """Rows of a structure each: few tiles, many of which cost next to nothing and some a lot, behind a slow or a fast dispatcher."""
    rows = np.ones((count, len(COLUMNS)), np.int64)

    def put(**values):
        for name, value in values.items():
            rows[:, INDEX[name]] = value

    def pick(*values):
        return rng.choice(values, count)

    def often(share):
        return rng.random(count) < share

    order = PERMUTATIONS[rng.integers(0, 6, count)]
    period_m, period_n, tiles_k = (pick(1, 2, 2, 3, 3, 4, 5, 7, 10) for _ in range(3))
    groups_m, groups_n = pick(1, 1, 1, 2, 3, 4), pick(1, 1, 1, 2, 3, 4)
    tiles_m, tiles_n = period_m * groups_m, period_n * groups_n
    put(outer=order[:, 0], middle=order[:, 1], inner=order[:, 2])
    put(period_m=period_m, period_n=period_n, tiles_m=tiles_m, tiles_n=tiles_n, tiles_k=tiles_k)
    put(c_slots=np.where(order[:, 2] == 2, rng.integers(1, 5, count), tiles_m * tiles_n + rng.integers(0, 3, count)))
    for name in ("a_slots", "b_slots"):
        put(**{name: np.where(often(0.5), rng.integers(1, 5, count), rng.integers(1, 60, count))})
    share = np.where((groups_n > 1) & often(0.5), period_n, 0)
    put(a_share=share if shares == "of a period" else np.where(often(0.6), rng.integers(1, 8, count), share))
    put(lag=rng.integers(0, 4, count), residual=rng.integers(0, 2, count), split=rng.integers(0, 2, count), queue_depth=pick(1, 1, 2, 3, 8))
    put(
        command_interval=np.where(often(0.3), pick(1, 2, 5, 16, 40), 0), command_depth=rng.integers(1, 5, count), prologue=0, confirmation=0
    )
    largest = pick(2, 2, 4, 30, 300)
    for name in FACTORS:
        put(**{name: np.where(often(0.5), rng.integers(1, largest + 1), 1)})
    latency = pick(1, 2, 3, 7, 20, 39)
    put(latency=latency, outstanding=latency + rng.integers(1, 20, count), sets=rng.integers(3, 6, count))
    put(preload=rng.integers(0, 6, count) * often(0.5), store_latency=rng.integers(0, 4, count))
    put(**{f"tail_{kind}": rng.integers(1, pick(2, 40) + 1) for kind in range(4)})
    alike = often(0.5)
    for name in (name for name in COLUMNS if name[:-1] in BY_TILE):
        rows[alike, INDEX[name]] = rows[alike, INDEX[name[:-1] + "0"]]
    return rows[tiles_m * tiles_n * tiles_k < most]


def stale_rows(rng, count):
    """Rows whose A tiles are kept while M tiles go round, some of them costly, and whose commands come slowly."""
    rows = extreme_rows(rng, count)
    count = len(rows)

    def put(**values):
        for name, value in values.items():
            rows[:, INDEX[name]] = value

    def pick(*values):
        return rng.choice(values, count)

    period_m, period_n, tiles_k = pick(2, 3, 4, 5, 6), pick(1, 2, 3), pick(1, 1, 1, 2)
    tiles_m, groups_n = period_m * pick(2, 3, 4), pick(1, 2, 3)
    put(outer=1, middle=0, inner=2, period_m=period_m, tiles_m=tiles_m, tiles_k=tiles_k, period_n=period_n, tiles_n=period_n * groups_n)
    put(a_slots=tiles_m * tiles_k + pick(0, 0, 1, 2), b_slots=pick(1, 2, 3, 8), c_slots=pick(1, 2, 3, 4), residual=pick(0, 1))
    put(a_share=np.where(groups_n > 1, period_n * pick(0, 1, 1), 0), command_interval=pick(0, 5, 16, 40), queue_depth=pick(1, 1, 2, 3))
    costs = dict.fromkeys(FACTORS, (1, 1, 1, 2, 5, 20)) | {f"c_m_{kind}": (1, 1, 50, 200, 1000) for kind in range(4)}
    put(**{name: pick(*values) for name, values in costs.items()} | dict.fromkeys(("c_n_0", "c_n_1", "c_k_0", "c_k_1"), 1))
    return rows


def build(*changes):
    """The scorer with texts replaced by others, one change after the other."""
    texts = sources()
    for old, new in changes:
        assert any(old in text for _, text in texts), old
        texts = tuple((name, text.replace(old, new)) for name, text in texts)
    return load(texts)


FORGETFUL = ("kMost = 1024", "kMost = 4")

GUARDS = {
    "tiles-loaded-once": ("move->to == state && !(axis.fresh && axis.renewal > 1)", "move->to == state"),
    "iterations-that-come-back": ("move->to == state && !(axis.fresh && axis.renewal > 1)", "!(axis.fresh && axis.renewal > 1)"),
    "shares-of-iterations": ("engine.unbounded && axis.regular() && engine.still(kLevel)", "engine.unbounded && engine.still(kLevel)"),
    "shares-of-steps": ("engine.unbounded && engine.axis(2).regular() ? learn_steps()", "engine.unbounded ? learn_steps()"),
    "gaps": ("watch.age = 0;\n        } else", "\n        } else"),
}
"""What keeps the scorer from passing over too much, and the same without it."""


@pytest.fixture(scope="module")
def table():
    """Rows of both kinds of shares."""
    rng = np.random.default_rng(12)
    return np.concatenate([extreme_rows(rng, 8000), extreme_rows(rng, 8000, shares="any")])


def test_extreme_rows_are_exact(table):
    """Against the walk that passes nothing over, and a few against NumPy."""
    cycles, passed = passed_over(table)
    walked, none = passed_over(table, build(("engine.unbounded &&", "false &&")))
    assert not none.any()
    assert np.array_equal(cycles, walked)
    assert ((passed > 0).sum(axis=0) > 1000).all()
    forgetful, fewer = passed_over(table, build(FORGETFUL))
    assert np.array_equal(forgetful, cycles)
    assert fewer.sum() < passed.sum()
    few = [row for row, end in zip(table[::400], cycles[::400], strict=True) if end >= 0 and row[INDEX["a_share"]]]
    assert len(few) > 8
    assert [int(score_structure(row[None])[0]) for row in few] == passed_over(np.array(few))[0].tolist()


@pytest.mark.parametrize("guard", GUARDS)
def test_a_missing_guard_is_noticed(guard, table):
    assert (passed_over(table, build(GUARDS[guard]))[0] != passed_over(table)[0]).any()


def test_states_of_before_are_not_taken_for_later_ones(table):
    """Numbers of states hold until all are forgotten, which a loop inside may do."""
    careless = build(FORGETFUL, ("from >= 0 && generation == memory.generation", "from >= 0"))
    assert (passed_over(table, careless)[0] != passed_over(table, build(FORGETFUL))[0]).any()


WALKED = (
    ("    bool real;  // the engine", "    bool wrong;\n    bool real;  // the engine"),
    ("state = -1, real = true;", "state = -1, real = true, wrong = false;"),
    # iterations
    (
        "            Sums start;\n            if (learns",
        "            Sums start, stop;\n            int to = -1;\n            Int cycles = 0;\n            if (learns",
    ),
    (
        "                    pass(*move, many);\n                    axis.skip(many - 1);\n                    continue;\n",
        "                    static_cast<void>(many);\n                    to = move->to, cycles = move->sums.cycles;\n",
    ),
    (
        "                learn(from, kind, start);\n            }\n            if (kSingle",
        "                mark(stop);\n                if (to >= 0) wrong |= state != to || stop.cycles - start.cycles != cycles;\n"
        "                else learn(from, kind, start);\n            }\n            if (kSingle",
    ),
    # steps, and the rest behind them
    (
        "            pass(*move, many);\n            axis.skip(many);\n",
        "            const int same = move->to;\n            const Int length = move->sums.cycles;\n"
        "            for (Int index = 0; index < many; ++index) {\n                const Int before = now.dispatched;\n"
        "                axis.next();\n                engine.compute(now, engine.plan());\n"
        "                engine.clock = now, state = -1;\n                remember();\n"
        "                wrong |= state != same || now.dispatched - before != length;\n            }\n",
    ),
    ("    Int rest = 0;   //", "    int to = -1;\n    Int cycles = 0, rest = 0;   //"),
    (
        "            if (const Move* known = memory.find(state, rest)) {\n                pass(*known, 1);\n"
        "                axis.rewind();\n                return;\n            }\n",
        "            const Move* const known = memory.find(state, rest);\n            to = known ? known->to : -1;\n"
        "            cycles = known ? known->sums.cycles : 0;\n",
    ),
    (
        "    if (from >= 0) learn(from, rest, start);",
        "    if (from >= 0 && to >= 0) wrong |= state != to || engine.clock.dispatched - start.cycles != cycles;\n"
        "    else if (from >= 0) learn(from, rest, start);",
    ),
    (
        "    end = engine.finish(rows.read<Time>(confirmation_));",
        "    end = engine.finish(rows.read<Time>(confirmation_));\n    if constexpr (kSingle)\n        if (wrong) end = -2;",
    ),
)
"""The scorer that walks what it could pass over, and ends at -2 where it then is in another state, or at another time, than it knew."""


def test_what_could_be_passed_over_leads_where_it_is_known_to(table):
    """Also where a difference would hardly ever show in the cycles: in which slot a tile is kept."""
    stale = stale_rows(np.random.default_rng(13), 12_000)
    for rows in (table, stale):
        assert np.array_equal(passed_over(rows, build(*WALKED))[0], passed_over(rows)[0])
    without = build(("axis.regular() && engine.still(kLevel)", "axis.regular()"), *WALKED)
    assert (passed_over(stale, without)[0] == -2).any()
