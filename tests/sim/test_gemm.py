"""Whole GEMMs on RTL: every family, every order of loops, gaps, saturation, and broken blocks that must be caught."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from celosia.hw.design_point import DesignPoint
from celosia.intrinsics import ParameterError, SimulationError
from celosia.intrinsics.numerics import random_operand
from celosia.intrinsics.reference import ORDERS, GemmTiling, gemm_reference
from celosia.sim import Model, build, simulate_gemm

from .blocks import toy

DESIGNS = {
    "os": DesignPoint.create("systolic", rows=3, cols=2, depth=5),
    "ws": DesignPoint.create("systolic", rows=3, cols=2, dataflow="weight-stationary", a="uint4", b="int5", acc="int15"),
    "dot": DesignPoint.create("dot-product", lanes=3, depth=4, pipeline=1),
    "dot-resident": DesignPoint.create("dot-product", lanes=2, depth=3, resident=True, acc="int14", overflow="saturate"),
    "outer": DesignPoint.create("outer-product", rows=2, cols=3, a="uint5", acc="int12", overflow="saturate"),
}
"""Every family, both dataflows, odd widths, both saturating modes."""

SLOW_DESIGNS = {
    "os-saturate": DesignPoint.create("systolic", rows=2, cols=3, acc="int15", overflow="saturate"),
    "ws-saturate": DesignPoint.create("systolic", rows=2, cols=2, dataflow="weight-stationary", acc="int15", overflow="saturate"),
    "os-1x1-wrap": DesignPoint.create("systolic", rows=1, cols=1, acc="int9", overflow="wrap"),
    "os-limited": DesignPoint.create("systolic", rows=2, cols=3, a="uint4", b="uint4", acc="uint13"),
    "ws-16-bit": DesignPoint.create("systolic", rows=1, cols=4, dataflow="weight-stationary", a="int16", b="uint16", vectors=5),
}
SIZES = ((7, 5, 11), (1, 1, 1), (8, 1, 20), (1, 7, 3))


def check_orders(point: DesignPoint) -> None:
    for m, n, k in SIZES:
        for order in ORDERS:
            run = simulate_gemm(point, m=m, n=n, k=k, order=order, seed=m + n)
            assert run.matches_reference, (point.name, m, n, k, order)
            assert run.cycles == run.model_cycles, (point.name, m, n, k, order)
            assert sum(run.ledger.values()) == run.cycles
            assert run.macs == m * n * k
            assert 0 < run.utilization <= 1
            assert run.source == "rtl"


@pytest.mark.parametrize("name", DESIGNS)
def test_every_order_is_bit_exact_and_takes_the_modelled_cycles(name: str) -> None:
    check_orders(DESIGNS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW_DESIGNS)
def test_every_order_is_bit_exact_and_takes_the_modelled_cycles_on_more_designs(name: str) -> None:
    check_orders(SLOW_DESIGNS[name])


@pytest.mark.parametrize("name", DESIGNS)
def test_gaps_and_back_pressure_change_cycles_but_not_results(name: str) -> None:
    smooth = simulate_gemm(DESIGNS[name], m=7, n=5, k=11, order="mnk")
    rough = simulate_gemm(DESIGNS[name], m=7, n=5, k=11, order="mnk", gaps=0.4, backpressure=0.5, seed=3)
    assert rough.matches_reference
    assert rough.model_cycles is None
    assert rough.cycles > smooth.cycles
    assert sum(rough.ledger.values()) == rough.cycles
    assert rough.ledger["stall"] > smooth.ledger["stall"]


def test_the_same_seed_gives_the_same_run() -> None:
    runs = [simulate_gemm(DESIGNS["ws"], m=4, n=5, k=6, gaps=0.3, backpressure=0.3, seed=5).cycles for _ in range(2)]
    other = simulate_gemm(DESIGNS["ws"], m=4, n=5, k=6, gaps=0.3, backpressure=0.3, seed=6).cycles
    assert runs[0] == runs[1] != other


def test_the_best_order_is_the_default() -> None:
    tiling = GemmTiling(DESIGNS["ws"].machine, 9, 2, 12)
    run = simulate_gemm(DESIGNS["ws"], m=9, n=2, k=12)
    assert run.cycles == min(tiling.cycles(order) for order in ORDERS)


@pytest.mark.parametrize("name", DESIGNS)
def test_tile_calls_one_by_one_measure_what_one_call_measures(name: str) -> None:
    point = DESIGNS[name]
    contraction = point.instruction.contraction
    rng = np.random.default_rng(1)
    tiling = GemmTiling(point.machine, 7, 5, 11)
    for order in ("mnk", "nkm"):
        a = random_operand(rng, tiling.padded("mk"), contraction.a)
        b = random_operand(rng, tiling.padded("kn"), contraction.b)
        with Model(build(point)) as whole, Model(build(point)) as pieces:
            expected = whole.gemm(a, b, order=order)
            c = push_all(pieces, tiling, order, a, b)
            assert np.array_equal(c, expected)
            assert pieces.counters == whole.counters


def push_all(model: Model, tiling: GemmTiling, order: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    c = np.zeros(tiling.padded("mn"), tiling.machine.instruction.contraction.acc.numpy)
    for index in np.ndindex(*(tiling.count(axis) for axis in order)):
        at = dict(zip(order, index, strict=True))
        part = {axis: slice(at[axis] * tiling.tile(axis), (at[axis] + 1) * tiling.tile(axis)) for axis in order}
        kept = {axis: part[axis] if tiling.tile(axis) > 1 else at[axis] for axis in order}
        c_tile = c[kept["m"], kept["n"]] if tiling.tile("m") > 1 or tiling.tile("n") > 1 else c[at["m"] : at["m"] + 1, at["n"]].reshape(())
        model.push(a[kept["m"], kept["k"]], b[kept["k"], kept["n"]], c_tile)
    model.flush()
    return c


def test_a_second_run_without_reset_adds_up() -> None:
    point = DESIGNS["os"]
    rng = np.random.default_rng(2)
    with Model(build(point)) as model:
        for runs in range(1, 6):
            a, b = (random_operand(rng, shape, point.instruction.contraction.a) for shape in ((4, 9), (9, 3)))
            assert np.array_equal(model.gemm(a, b), gemm_reference(point.machine, a, b))
            counters = model.counters
            assert counters.runs == runs
            assert counters.cycles == runs * GemmTiling(point.machine, 4, 3, 9).cycles("mnk")
            model.settle(5)
            assert model.counters == counters


EXTENT = st.integers(1, 4)
OPERAND = st.sampled_from(["int2", "int4", "uint4", "int7", "int8", "uint8", "int11", "int16", "uint16"])


@st.composite
def points(draw: st.DrawFn) -> DesignPoint:
    types = {"a": draw(OPERAND), "b": draw(OPERAND)}
    mode = draw(st.sampled_from(["forbid", "wrap", "saturate"]))
    if mode != "forbid":
        types |= {"acc": f"int{draw(st.integers(4, 40))}"}
    family = draw(st.sampled_from(["os", "ws", "dot-product", "outer-product"]))
    if family == "dot-product":
        shape = {"lanes": draw(EXTENT), "depth": draw(EXTENT), "resident": draw(st.booleans()), "pipeline": draw(st.integers(0, 2))}
        return DesignPoint.create(family, overflow=mode, **types, **shape)
    shape = {"rows": draw(EXTENT), "cols": draw(EXTENT)}
    if family == "outer-product":
        return DesignPoint.create(family, overflow=mode, depth=draw(EXTENT), **types, **shape)
    if family == "os":
        return DesignPoint.create("systolic", overflow=mode, depth=draw(st.integers(1, 9)), **types, **shape)
    return DesignPoint.create("systolic", overflow=mode, dataflow="weight-stationary", vectors=draw(st.integers(1, 9)), **types, **shape)


SIZE = st.integers(1, 13)
RATE = st.sampled_from([0.0, 0.3, 0.8])


Sizes = list[tuple[int, int, int]]


def check_random(point: DesignPoint, sizes: Sizes, gaps: float, backpressure: float) -> None:
    for (m, n, k), order in zip(sizes, ORDERS, strict=True):
        smooth = simulate_gemm(point, m=m, n=n, k=k, order=order)
        assert smooth.matches_reference
        assert smooth.cycles == smooth.model_cycles
        assert simulate_gemm(point, m=m, n=n, k=k, order=order, gaps=gaps, backpressure=backpressure, seed=m).matches_reference


SIZE_LISTS = st.lists(st.tuples(SIZE, SIZE, SIZE), min_size=6, max_size=6)


@settings(deadline=None, derandomize=True, max_examples=3)
@given(points(), SIZE_LISTS, RATE, RATE)
def test_random_designs_on_random_sizes(point: DesignPoint, sizes: Sizes, gaps: float, backpressure: float) -> None:
    check_random(point, sizes, gaps, backpressure)


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(points(), SIZE_LISTS, RATE, RATE)
def test_many_random_designs_on_random_sizes(point: DesignPoint, sizes: Sizes, gaps: float, backpressure: float) -> None:
    check_random(point, sizes, gaps, backpressure)


# ---- checks that must be able to fail


def test_the_sound_block_passes() -> None:
    run = simulate_gemm(toy(), m=5, n=6, k=7)
    assert run.matches_reference
    assert run.cycles == run.model_cycles


@pytest.mark.parametrize("mutation", ["signedness", "dropped-lane"])
def test_wrong_arithmetic_is_seen(mutation: str) -> None:
    assert simulate_gemm(toy(mutation), m=5, n=6, k=7).matches_reference is False


def test_a_beat_lost_under_back_pressure_is_seen() -> None:
    with pytest.raises(SimulationError, match=r"no handshake .* o_c: valid low"):
        simulate_gemm(toy("lost-beat"), m=5, n=6, k=7, backpressure=0.5)


def test_a_double_firing_handshake_is_seen() -> None:
    with pytest.raises(SimulationError, match="a result beat came though none was due"):
        simulate_gemm(toy("double-firing"), m=1, n=2, k=2)


@pytest.mark.parametrize(
    ("mutation", "named"),
    [
        ("no-result", r"o_c: valid low for \d+ cycles while 45 result beats are due; i_a: every beat accepted"),
        ("deaf-b", r"i_b: \d+ beats waiting, ready low"),
    ],
)
def test_the_watchdog_names_the_stuck_stream(mutation: str, named: str) -> None:
    with pytest.raises(SimulationError, match=named):
        simulate_gemm(toy(mutation), m=5, n=6, k=6)


def test_the_cycle_bound_holds() -> None:
    needed = simulate_gemm(DESIGNS["os"], m=5, n=6, k=7).cycles
    assert simulate_gemm(DESIGNS["os"], m=5, n=6, k=7, max_cycles=needed).cycles == needed
    with pytest.raises(SimulationError, match=f"not finished after {needed - 1} cycles"):
        simulate_gemm(DESIGNS["os"], m=5, n=6, k=7, max_cycles=needed - 1)


@pytest.mark.parametrize(
    "bad",
    [{"k": 0}, {"m": -1}, {"n": 2.5}, {"order": "mmk"}, {"gaps": 1.0}, {"backpressure": -0.1}, {"max_cycles": 0}, {"seed": -1}],
)
def test_bad_input_is_one_sentence(bad: dict[str, object]) -> None:
    arguments = {"m": 2, "n": 2, "k": 2, **bad}
    with pytest.raises(ParameterError) as caught:
        simulate_gemm(DESIGNS["os"], **arguments)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_progress_comes_with_the_expected_cycles() -> None:
    seen: list[tuple[int, int]] = []
    simulate_gemm(toy(), m=100, n=100, k=100, gaps=0.95, progress=lambda done, expected: seen.append((done, expected)))
    assert seen
    assert seen == sorted(seen)
    assert {expected for _, expected in seen} == {100 * 50 * 50 + 1}
