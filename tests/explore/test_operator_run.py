"""Whole operators through TVM on the RTL, against a convolution written out here; faults in RTL, timing and host code."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from celosia.compiler.operators import parse
from celosia.compiler.schedule import schedule_space
from celosia.explore.operator_run import run_operator, simulate_operator, typed_for
from celosia.explore.run import explore
from celosia.hw.design_point import DesignPoint
from celosia.hw.parameters import DotProductParameters
from celosia.hw.verilog import emit_rtl
from celosia.intrinsics import DType, SimulationError
from celosia.sim import build

from .fakes import fake_area, small_study

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")  # of Nevergrad's own imports

OS = DesignPoint.create("systolic", rows=3, cols=4, depth=5, a="uint8")
WS = DesignPoint.create("systolic", rows=4, cols=3, dataflow="weight-stationary", vectors=6, a="uint8")
DOT = DesignPoint.create("dot-product", lanes=3, depth=4, resident=True, a="uint8")


def convolve(x: Any, w: Any, *, stride: int = 1, pad: int = 0, dilation: int = 1, groups: int = 1) -> Any:
    """Sum by sum over every output element; x is (n, space…, ci), w is (taps…, ci / groups, co)."""
    taps, (depth, c_out) = w.shape[:-2], w.shape[-2:]
    x = np.pad(x.astype(np.int64), [(0, 0), *[(pad, pad)] * len(taps), (0, 0)])
    space = [(size - dilation * (tap - 1) - 1) // stride + 1 for size, tap in zip(x.shape[1:-1], taps, strict=True)]
    y = np.zeros((len(x), *space, c_out), np.int64)
    for n, *at, co in np.ndindex(*y.shape):
        first = co // (c_out // groups) * depth
        for tap in np.ndindex(*taps):
            where = tuple(p * stride + t * dilation for p, t in zip(at, tap, strict=True))
            y[(n, *at, co)] += x[(n, *where)][first : first + depth] @ w[tap][:, co].astype(np.int64)
    return y


CONVOLUTIONS = [
    ("conv2d:1x7x7x3,5x3x3,s2,p1", {"stride": 2, "pad": 1}),
    ("conv2d:2x4x3x4,5x3x3,p1", {"pad": 1}),
    ("conv2d:1x7x7x4,6x3x3,d2,p2", {"dilation": 2, "pad": 2}),
    ("conv2d:1x4x4x8,12x3x3,p1,g4", {"pad": 1, "groups": 4}),
    ("conv2d:1x5x5x6,7x1x1,s2", {"stride": 2}),
    ("conv1d:2x11x5,6x3,s2,p1", {"stride": 2, "pad": 1}),
    ("conv3d:1x3x4x3x3,4x2x2x2", {}),
]


def check(point: DesignPoint, text: str, options: dict[str, int] | None, **schedule: Any) -> None:
    operator = parse(text).typed(a="uint8")
    inputs = operator.random_inputs(np.random.default_rng(len(text)))
    exact = convolve(*inputs, **options) if options is not None else inputs[0].astype(np.int64) @ inputs[1]
    chosen = schedule_space(operator, point.machine).schedule(schedule)
    run = run_operator(point, operator, chosen, inputs=inputs, reference=exact.astype(np.int32))
    assert run.matches_reference, (point.name, text, chosen)
    assert run.cycles == run.model_cycles == sum(run.ledger.values()), (point.name, text, chosen)


@pytest.mark.parametrize(("point", "number"), [(OS, 0), (WS, 3), (DOT, 2)], ids=["os", "ws", "dot"])
def test_a_convolution_equals_its_sums(point: DesignPoint, number: int) -> None:
    check(point, *CONVOLUTIONS[number])


@pytest.mark.slow
@pytest.mark.parametrize(("text", "options"), CONVOLUTIONS)
@pytest.mark.parametrize("point", [OS, WS, DOT], ids=["os", "ws", "dot"])
def test_every_convolution_equals_its_sums_on_every_route_and_order(point: DesignPoint, text: str, options: dict[str, int]) -> None:
    space = schedule_space(parse(text).typed(a="uint8"), point.machine)
    for route in space.routes:
        for order in space.variables[1].values:
            check(point, text, options, route=route.kind, order=order)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["gemm:1x9x17", "gemm:13x1x8", "gemm:5x7x1", "gemm:1x1x1", "gmm:3x5x6x7"])
@pytest.mark.parametrize("point", [OS, WS, DOT], ids=["os", "ws", "dot"])
def test_matrices_with_ones_equal_their_sums(point: DesignPoint, text: str) -> None:
    check(point, text, None)


def test_an_operator_string_takes_the_types_of_the_design() -> None:
    run = simulate_operator(OS, CONVOLUTIONS[0][0])
    assert run.matches_reference
    assert run.cycles == run.model_cycles
    machine = DesignPoint.create("dot-product", lanes=2, depth=3, a="uint5", b="int16", acc="int40").machine
    typed = typed_for(machine, parse("gemm:4x4x4"))
    assert (typed.a, typed.b, typed.out) == (DType(5, False), DType(16), DType(64))


def test_a_program_without_its_flush_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from celosia.compiler import host

    text = "conv2d:1x5x5x3,5x3x3"
    assert simulate_operator(WS, parse(text).typed(a="uint8")).matches_reference
    monkeypatch.setattr(host, "_flush", lambda module, design_hash: module)
    with pytest.raises(SimulationError, match="a result beat came though none was due"):
        simulate_operator(WS, parse(text).typed(a="uint8"))


# ---- one fault per study; each has a shape of its own, since a design has one library per process


def study_on(**shape: int) -> Any:
    return small_study(
        budget=4, front_limit=1, objectives=["cycles"], hardware={"dot-product": shape}, workload={"operators": ["gemm:5x7x9"]}
    )


def rejected(study: Any, folder: Path) -> str:
    result = explore(study, folder, area=fake_area)
    assert result.exit_code == 1
    assert result.front == ()
    (failure,) = result.rejected
    return str(failure["error"]["class"])


def test_a_study_on_broken_rtl_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(point: DesignPoint) -> Any:
        rtl = emit_rtl(point)
        text, places = re.subn(r"\$signed\((\S+)\) \* \$signed\(", r"$unsigned(\1) * $signed(", rtl.verilog)
        assert places
        return build(dataclasses.replace(rtl, verilog=text))

    monkeypatch.setattr("celosia.sim.build", broken)
    assert rejected(study_on(lanes=2, depth=5), tmp_path / "x") == "MismatchError"


def test_a_study_on_a_model_that_is_off_by_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = DotProductParameters.timing.fget
    assert right is not None
    late = property(lambda parameters: dataclasses.replace(right(parameters), latency=right(parameters).latency + 1))
    monkeypatch.setattr(DotProductParameters, "timing", late)
    assert rejected(study_on(lanes=3, depth=5), tmp_path / "x") == "CyclesDifferError"
