"""The emitted Verilog of every family, broken in one place: the flow that measures designs must see each fault."""

from __future__ import annotations

import dataclasses
import re

import pytest

from celosia.hw.design_point import DesignPoint
from celosia.hw.verilog import RtlDesign, emit_rtl
from celosia.intrinsics import Measurement, SimulationError
from celosia.sim import simulate_gemm

POINTS = {
    "os": DesignPoint.create("systolic", rows=2, cols=2, depth=2),
    "ws": DesignPoint.create("systolic", rows=2, cols=2, dataflow="weight-stationary"),
    "dot": DesignPoint.create("dot-product", lanes=2, depth=2),
    "dot-resident": DesignPoint.create("dot-product", lanes=1, depth=2, resident=True),
    "outer": DesignPoint.create("outer-product", rows=2, cols=2),
}

AGAIN = "reg again = 1'h0;\n  always @(posedge clk) again <= i_a_valid & i_a_ready;\n  "
TURN = "reg turn = 1'h0;\n  always @(posedge clk) turn <= ~turn;\n  "

MUTATIONS = {
    "signedness": (r"\$signed\((\S+)\) \* \$signed\(", r"$unsigned(\1) * $signed(", ""),
    "dropped-lane": (r"i_a_data\[15:8\]", r"8'h00", ""),
    "double-firing": (r"assign fire = ", r"assign fire = again | ", AGAIN),
    "slow-handshake": (r"assign (go|i_a_ready|i_b_ready) = (en|go) & ", r"assign \1 = turn & \2 & ", TURN),
}
"""Pattern, what it becomes, and declarations that this needs."""


def broken(name: str, mutation: str) -> RtlDesign:
    rtl = emit_rtl(POINTS[name])
    pattern, becomes, declarations = MUTATIONS[mutation]
    text, places = re.subn(pattern, becomes, rtl.verilog)
    assert places, "the fault is in"
    return dataclasses.replace(rtl, verilog=re.sub(r"^  assign ", f"  {declarations}assign ", text, count=1, flags=re.MULTILINE))


def measure(design: DesignPoint | RtlDesign, gaps: float = 0.0) -> Measurement | None:
    """The run, or None where the simulation itself saw that something is wrong."""
    try:
        return simulate_gemm(design, m=5, n=3, k=7, order="mnk", gaps=gaps, seed=2)
    except SimulationError:
        return None


def check_caught(name: str, mutation: str) -> None:
    run = measure(broken(name, mutation), gaps=0.3 if mutation == "double-firing" else 0.0)
    if mutation == "slow-handshake":
        assert run is not None
        assert run.matches_reference, "only the cycle model sees this one"
        assert run.model_cycles is not None
        assert run.cycles > run.model_cycles
    elif mutation == "double-firing":
        assert run is None or run.matches_reference is False
    else:
        assert run is not None
        assert run.matches_reference is False
        assert run.cycles == run.model_cycles, "only the comparison sees this one"


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_fault_in_a_systolic_array_is_caught(mutation: str) -> None:
    check_caught("os", mutation)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("name", [name for name in POINTS if name != "os"])
def test_a_fault_in_any_family_is_caught(name: str, mutation: str) -> None:
    check_caught(name, mutation)


@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_without_a_fault_the_same_run_passes(gaps: float) -> None:
    run = measure(emit_rtl(POINTS["os"]), gaps)
    assert run is not None
    assert run.matches_reference
    assert run.model_cycles in (None, run.cycles)
