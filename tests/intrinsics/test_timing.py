"""The closed equations against a simulation that places every beat by itself."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from celosia.intrinsics import Contraction, Loop, LoopNest, ParameterError, StreamTiming, stream_cycles
from celosia.intrinsics.timing import pass_lengths, utilization

from .test_machine import machine

ROLES = ["ac", "bc", "ab", "abc"]


def calls_of(nest):
    """The loop indices of every call, in the order of issue."""
    return list(itertools.product(*(range(loop.extent) for loop in nest.loops)))


def passes_of(block, nest):
    """Calls of each pass: a new one where the resident tile changes or the accumulators are full."""
    operand = {"acc": "c", "b": "b", None: None}[block.instruction.resident]
    limit = block.max_calls_per_pass
    lengths, previous = [], None
    for call in calls_of(nest):
        tile = tuple(index for index, loop in zip(call, nest.loops, strict=True) if operand and operand in loop.role)
        if operand and tile == previous and (limit is None or lengths[-1] < limit):
            lengths[-1] += 1
        else:
            lengths.append(1)
        previous = tile
    return lengths


def simulate(block, nest):
    """Place each activation beat in the first cycle that the rules of `StreamTiming` allow; return cycles."""
    timing, beats = block.timing, block.beats_per_call
    clock, last_result, earlier = timing.preload - 1, -1, []
    for calls in passes_of(block, nest):
        placed = []
        for beat in range(calls * beats):
            clock += 1
            if beat < len(earlier):
                clock = max(clock, earlier[beat] + timing.min_interval)
            placed.append(clock)
        earlier = placed
        last_result = max(last_result, clock + timing.latency + timing.result_interval * (timing.result_beats - 1))
    return last_result + 1


timings = st.builds(
    StreamTiming,
    preload=st.integers(0, 5),
    min_interval=st.integers(1, 9),
    latency=st.integers(1, 9),
    result_interval=st.integers(1, 3),
    result_beats=st.integers(1, 5),
)
nests = st.lists(st.builds(Loop, st.integers(1, 4), st.sampled_from(ROLES)), max_size=4).map(lambda loops: LoopNest(tuple(loops)))


@st.composite
def blocks(draw):
    resident = draw(st.sampled_from(["acc", "b", None]))
    acc = draw(st.sampled_from(["int17", "int18", "int19", "int32"]))
    extents = {"m": draw(st.integers(1, 3)), "n": 2, "k": draw(st.integers(1, 2))}
    contraction = Contraction("mk,kn->mn", extents, "int8", "int8", acc)
    a = "m/k" if resident == "b" else "k/m"
    return machine(contraction, resident=resident, timing=draw(timings), a=a)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(blocks(), nests)
def test_cycles_equal_the_simulation_of_every_beat(block, nest):
    assert stream_cycles(block, nest) == simulate(block, nest)
    lengths = passes_of(block, nest)
    claimed = [(count, calls) for count, calls in pass_lengths(block, nest) if count]
    assert sum(count for count, _ in claimed) == len(lengths)
    assert {calls: count for count, calls in claimed} == {calls: lengths.count(calls) for calls in lengths}


@settings(deadline=None, derandomize=True, max_examples=100)
@given(nests, st.sampled_from("abc"))
def test_run_length_is_the_longest_common_stretch(nest, operand):
    tiles = [tuple(i for i, loop in zip(call, nest.loops, strict=True) if operand in loop.role) for call in calls_of(nest)]
    stretches = [len(list(group)) for _, group in itertools.groupby(tiles)]
    assert set(stretches) == {nest.run_length(operand)}
    assert nest.calls == len(tiles)


def test_the_simulation_catches_a_wrong_equation():
    block = machine(Contraction("mk,kn->mn", {"m": 3, "n": 2, "k": 2}), timing=StreamTiming(min_interval=7, latency=4))
    nest = LoopNest((Loop(3, "ac"), Loop(2, "ab")))
    right = simulate(block, nest)
    assert stream_cycles(block, nest) == right == 2 * 7 + 4 + 4
    without_interval = 3 * 4 + 4
    interval_after_the_last = 3 * 7 + 4
    assert right not in (without_interval, interval_after_the_last)


def test_utilization_is_one_for_a_full_stream():
    block = machine(Contraction("mk,kn->mn", {"m": 2, "n": 2, "k": 4}))
    assert utilization(block, macs=16, cycles=4) == 1.0
    assert utilization(block, macs=8, cycles=8) == 0.25


def test_nothing_to_do_is_refused():
    block = machine(Contraction("mk,kn->mn", {"m": 2, "n": 2, "k": 4}))
    with pytest.raises(ParameterError, match=r"^a loop nest must issue at least one tile call$"):
        stream_cycles(block, LoopNest((Loop(0, "ac"),)))
