"""What doubling parameters buys: every parameter is there, its cycles are those of a search of its own, or a reason is."""

from dataclasses import replace

import pytest

from celosia.compiler.accelerator.convolution import gemm
from celosia.compiler.accelerator.job import typical_output
from celosia.compiler.accelerator.problem import Problem
from celosia.explore import accelerator_sensitivity
from celosia.explore.accelerator import in_words, simulate_accelerator
from celosia.explore.accelerator_operator import problem_on
from celosia.explore.accelerator_search import best_schedule
from celosia.explore.accelerator_sensitivity import LONG, sensitivity
from celosia.hw import DesignPoint
from celosia.hw.accelerator.machine import machine_of
from celosia.hw.options import options
from celosia.intrinsics import ScheduleError
from celosia.intrinsics.accelerator import MemoryTiming

MEMORY = {"memory_latency", "memory_write_latency"}


def make(**parameters):
    given = {"rows": 4, "cols": 4, "spad_kib": 2, "acc_kib": 2, "port_bytes": 4, "channel_words": 8, **parameters}
    return DesignPoint.create("accelerator", **given)


def of_product(output=None):
    return lambda machine: (Problem(machine=machine, op=gemm(30, 20, 60), output=output or typical_output("sums")), None)


DESIGNS = [
    (make(), None),
    (make(core="weight-stationary", bus="axi4", commands="registers", queue_depth=1), None),
    (make(core="dot-product", lanes=2, outstanding=4, residual_words=16), typical_output("int8", residual=True)),
    (make(split=True, bus="axi4", port_bytes=64), typical_output("uint8")),
]


@pytest.mark.parametrize(("point", "output"), DESIGNS, ids=str)
def test_every_parameter_is_doubled_by_a_search_of_its_own(point, output):
    posed, timing = of_product(output), MemoryTiming(latency=9, write_latency=30)
    looked = sensitivity(point, posed, timing=timing)
    assert looked.cycles == best_schedule(posed(machine_of(point))[0], timing=timing).cycles
    assert sorted(change.parameter for change in looked.changes) == sorted({option.name for option in options("accelerator")} | MEMORY)
    for change in looked.changes:
        if change.cycles is None:
            assert change.reason
            assert change.ratio is None
            continue
        memory = {"memory_latency": "latency", "memory_write_latency": "write_latency"}.get(change.parameter)
        values = {} if memory else {change.parameter: change.value}
        changed = DesignPoint("accelerator", replace(point.parameters, **values))
        slower = replace(timing, **{memory: change.value}) if memory else timing
        assert change.cycles == best_schedule(posed(machine_of(changed))[0], timing=slower).cycles
        assert change.ratio == change.cycles / looked.cycles
        before = getattr(timing, memory) if memory else getattr(point.parameters, change.parameter)
        assert change.value == (True if change.parameter == "split" else 2 * before)
    ratios = [change.ratio for change in looked.changes if change.ratio is not None]
    assert ratios == sorted(ratios)


def test_the_reason_is_the_limit_that_is_met():
    point = make(rows=256, cols=2, split=True, queue_depth=64, outstanding=256, acc_kib=8, spad_kib=64)
    reasons = {change.parameter: change.reason for change in sensitivity(point, of_product(), timing=MemoryTiming(latency=600_000)).changes}
    assert reasons["rows"] == "rows must be an integer from 1 to 256, not 512"
    assert reasons["queue_depth"] == "queue_depth must be an integer from 1 to 64, not 128"
    assert reasons["outstanding"] == "outstanding must be an integer from 1 to 256, not 512"
    assert reasons["lanes"] == "lanes of the output-stationary core must be 1, not 2"
    assert reasons["memory_latency"] == "memory latency must be an integer of at most 1000000, not 1200000"
    assert reasons["residual_words"] == "twice 0 is 0"
    assert reasons["split"] == "on already"
    assert {reasons[name] for name in ("core", "bus", "commands", "rounding", "a", "b", "acc", "overflow")} == {"no amount"}
    assert reasons["cols"] == reasons["memory_write_latency"] == ""


def test_an_operator_that_fits_no_longer_says_so():
    point = make(rows=16, cols=4, spad_kib=1, acc_kib=1, port_bytes=8)
    looked = sensitivity(point, lambda machine: problem_on("conv2d:1x30x30x4,4x9x9,p4,g4", machine))
    found = {change.parameter: change for change in looked.changes}
    assert found["spad_kib"].cycles is not None
    assert all(change.reason for change in looked.changes if change.cycles is None)
    with pytest.raises(ScheduleError, match=r"^no schedule fits the memories"):
        sensitivity(make(core="outer-product", spad_kib=1), lambda machine: problem_on("conv2d:1x50x50x4,4x40x40,g4", machine))


def test_what_takes_long_is_given_up(monkeypatch):
    point, posed = make(), of_product()
    base = best_schedule(posed(machine_of(point))[0]).cycles
    looked = sensitivity(point, posed, known=base, most_work=1)
    assert looked.cycles == base
    reasons = {change.parameter: change.reason for change in looked.changes}
    assert reasons["rows"] == reasons["memory_latency"] == LONG
    # nothing is looked for where nothing can change
    assert reasons["channel_words"] == reasons["outstanding"] == reasons["memory_write_latency"] == ""
    with pytest.raises(ScheduleError, match="scores more than 1 steps"):
        sensitivity(point, posed, most_work=1)


def test_designs_that_count_as_the_same_have_the_same_cycles(monkeypatch):
    """With the shortcut broken, so that it takes every design for the first one, the searches say otherwise."""
    point, posed = make(), of_product()
    right = sensitivity(point, posed)
    monkeypatch.setattr(accelerator_sensitivity, "_relevant", lambda problem, timing: None)
    wrong = sensitivity(point, posed)
    assert {change.cycles for change in wrong.changes} == {wrong.cycles, None}
    assert right != wrong


def test_words_name_what_helps_most():
    point, posed = make(), of_product()
    looked = sensitivity(point, posed)
    result = simulate_accelerator(point, (30, 20, 60), fidelity="model")
    best = looked.changes[0]
    assert result.model_cycles == looked.cycles
    assert in_words(result, looked)[2:] == [f"{best.parameter} {best.value} would give {best.ratio - 1:+.0%} cycles"]
    slower = in_words(replace(result, model_cycles=2 * looked.cycles), looked)
    assert slower[2] == f"the best schedule of this design takes {looked.cycles:,} cycles (-50.0%)"
