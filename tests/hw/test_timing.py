"""The named timing constants and the cycle model, measured on the RTL."""

import numpy as np
import pytest

from celosia.hw import DesignPoint
from celosia.intrinsics import Loop, LoopNest, stream_cycles

from .rig import IDS, KINDS, paused, point_of, run

SHAPES = [(1, 1), (1, 4), (4, 1), (3, 5), (4, 2)]


def one_beat_point(kind, rows, cols):
    """A point whose tile is one activation beat, so that passes are as short as they can be."""
    free = {"os": {"depth": 1}, "ws": {"vectors": 1}}.get(IDS[KINDS.index(kind)], {})
    return point_of(kind, rows, cols, **free)


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_constants(kind, shape):
    point = one_beat_point(kind, *shape)
    timing = point.machine.timing
    block = point.component()
    stimulus, trace = run(point, [1] * 6, block=block)
    assert trace.matches(stimulus)
    assert trace.a_cycles[0] == timing.preload
    assert set(np.diff(trace.a_cycles)) == {timing.min_interval}
    assert trace.c_cycles[0] - trace.a_cycles[0] == timing.latency == block.latency
    assert len(trace.c_cycles) == 6 * timing.result_beats
    first_pass = trace.c_cycles[: timing.result_beats]
    assert set(np.diff(first_pass)) <= {timing.result_interval}
    assert first_pass[-1] - trace.a_cycles[0] == timing.drain


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("calls", [1, 2, 5])
def test_model_is_exact(kind, shape, calls):
    point = one_beat_point(kind, *shape)
    shared = {"acc": "ab", "b": "ac", None: "abc"}[point.instruction.resident]
    nest = LoopNest((Loop(4, "abc"), Loop(calls, shared)))
    stimulus, trace = run(point, [calls] * 4)
    assert trace.matches(stimulus)
    assert trace.cycles == stream_cycles(point.machine, nest)


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_instruction_latency_and_initiation_interval(kind):
    point = point_of(kind, 3, 4)
    block = point.component()
    _, trace = run(point, [1] * 4, block=block)
    assert trace.c_cycles[0] == point.instruction.latency
    starts = trace.a_cycles[:: point.machine.beats_per_call]
    ends = trace.a_cycles[point.machine.beats_per_call - 1 :: point.machine.beats_per_call]
    distances = np.diff(starts if point.instruction.resident == "b" else ends)
    assert set(distances) == {point.instruction.initiation_interval} == {block.initiation_interval}


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[4]], ids=["os", "outer"])
def test_passes_of_different_length_keep_their_last_beats_apart(kind):
    point = one_beat_point(kind, 4, 2)
    calls = [5, 2, 9, 1, 3]
    stimulus, trace = run(point, calls)
    assert trace.matches(stimulus)
    ends = np.array(trace.a_cycles)[np.cumsum(calls) - 1]
    assert list(np.diff(ends)) == [max(length, point.machine.timing.min_interval) for length in calls[1:]]


def test_passes_of_different_length_keep_their_first_beats_apart():
    point = DesignPoint.create("systolic", rows=4, cols=2, dataflow="weight-stationary", vectors=1)
    calls = [5, 2, 9, 1, 3]
    stimulus, trace = run(point, calls)
    assert trace.matches(stimulus)
    starts = np.array(trace.a_cycles)[np.cumsum([0, *calls[:-1]])]
    assert list(np.diff(starts)) == [max(length, point.machine.timing.min_interval) for length in calls[:-1]]


def test_model_is_exact_when_the_accumulator_splits_a_pass():
    point = DesignPoint.create("systolic", rows=4, cols=1, depth=1, acc="int17")
    limit = point.machine.max_calls_per_pass
    assert limit == 3
    nest = LoopNest((Loop(3, "abc"), Loop(4, "ab")))
    stimulus, trace = run(point, [3, 1] * 3)
    assert trace.matches(stimulus)
    assert trace.cycles == stream_cycles(point.machine, nest)


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_a_stall_costs_its_own_length(kind):
    """The global enable only stretches time: no result is lost, and nothing is slower than that."""
    point = point_of(kind, 3, 2)
    _, free = run(point, [2] * 4)
    _, stalled = run(point, [2] * 4, accept=paused(3, 0.25))
    pauses = sum(not paused(3, 0.25)(cycle) for cycle in range(stalled.cycles))
    assert free.cycles < stalled.cycles <= free.cycles + pauses
