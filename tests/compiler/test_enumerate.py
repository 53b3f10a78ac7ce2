"""The enumerator: exact optimum, figures of the fixture, reasons; no TVM beyond reading the operators."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from celosia.compiler.einsum import Access, Axis, Einsum, Index
from celosia.compiler.enumerate import best_map, enumerate_maps
from celosia.compiler.mapping import Mapped, balanced_bandwidth
from celosia.compiler.operators import parse as parse_operator
from celosia.compiler.reasons import Reason, Rejected
from celosia.compiler.tasks import task
from celosia.intrinsics import DType, ParameterError

from .fixtures.small_operators import INSTRUCTIONS, instruction, small_tasks

TASKS = small_tasks()
BY_NAME = {entry.name: entry for entry in INSTRUCTIONS}


def einsum_of(name):
    return TASKS[name].parsed.einsum


def answers():
    for name, item in TASKS.items():
        for entry in INSTRUCTIONS:
            parsed = item.parsed
            yield name, entry.name, parsed if isinstance(parsed, Rejected) else best_map(parsed.einsum, entry)


# ---- the fixture


def test_every_pair_of_the_fixture_is_answered_as_it_should_be():
    mapped = {}
    rejected = {}
    for name, entry, answer in answers():
        (mapped if isinstance(answer, Mapped) else rejected)[name, entry] = answer
    assert len(mapped) == 167
    assert sum(answer.utilization >= 0.25 for answer in mapped.values()) == 152
    assert {pair for pair, answer in rejected.items() if answer.reason is Reason.NOT_SUM} == {("SFM", entry) for entry in BY_NAME}
    assert {pair for pair, answer in rejected.items() if answer.reason is Reason.TOO_WIDE} == {("dense_s16", entry) for entry in BY_NAME}
    assert [pair for pair, answer in rejected.items() if answer.reason is Reason.NO_PARALLELISM] == [("NRM", "outer8x8")]
    assert all(answer.detail for answer in rejected.values())


@pytest.mark.slow
@pytest.mark.parametrize("entry", INSTRUCTIONS, ids=lambda entry: entry.name)
@pytest.mark.parametrize("name", ["C2D_c3", "C3D", "CAP", "T2D", "GRP"])
def test_pruning_keeps_the_optimum_of_operators_with_many_maps(name, entry):
    check_pruning(name, entry)


@pytest.mark.parametrize("entry", INSTRUCTIONS, ids=lambda entry: entry.name)
@pytest.mark.parametrize("name", ["C2D", "GMM_odd", "NRM", "dense_u8s8"])
def test_pruning_keeps_the_optimum(name, entry):
    check_pruning(name, entry)


def check_pruning(name, entry):
    pruned = enumerate_maps(einsum_of(name), entry, limit=3)
    everything = enumerate_maps(einsum_of(name), entry, limit=None, prune=False)
    if isinstance(everything, Rejected):
        assert pruned == everything
        return
    costs = [found.cycles for found in everything]
    assert costs == sorted(costs)
    assert [(found.words, found.cycles) for found in pruned] == [(found.words, found.cycles) for found in everything[:3]]


ROLES = ("ac", "bc", "ab", "abc")


@st.composite
def contractions(draw):
    """An einsum of bare axes, some shared in sums of two, as convolutions have them."""
    axes = [
        Axis(f"x{number}", draw(st.integers(2, 9)), role == "ab")
        for number, role in enumerate(draw(st.lists(st.sampled_from(ROLES), min_size=2, max_size=5)))
    ]
    roles = {axis.name: "ab" if axis.reduction else draw(st.sampled_from(("ac", "bc", "abc"))) for axis in axes}
    operands = {}
    for letter in "abc":
        index = [Index.axis(axis.name) for axis in axes if letter in roles[axis.name]]
        if letter == "a" and len(index) > 1 and draw(st.booleans()):
            index = [index[0] + index[1], *index[2:]]
        operands[letter] = tuple(index)
    extents = {axis.name: axis.extent for axis in axes}
    shapes = {letter: tuple(index.bounds(extents)[1] + 1 for index in found) for letter, found in operands.items()}
    a, b = (
        Access(tensor=letter, shape=shapes[letter], dtype=DType(8), index=operands[letter], constant=letter == "b" and draw(st.booleans()))
        for letter in "ab"
    )
    macs = math.prod(extents.values())
    return Einsum(
        name="random", axes=tuple(axes), a=a, b=b, out="c", out_shape=shapes["c"], out_index=operands["c"], acc=DType(32), macs=macs
    )


@settings(deadline=None, derandomize=True, max_examples=40)
@given(contractions(), st.sampled_from(INSTRUCTIONS), st.sampled_from((0.5, 8.0, 1000.0)))
def test_the_optimum_is_exact_for_random_einsums(einsum, entry, bandwidth):
    everything = enumerate_maps(einsum, entry, limit=None, bandwidth=bandwidth, prune=False)
    best = best_map(einsum, entry, bandwidth=bandwidth)
    if isinstance(everything, Rejected):
        assert isinstance(best, Rejected)
        return
    assert isinstance(best, Mapped)
    assert best.cycles == min(found.cycles for found in everything)
    assert all(0 < found.utilization <= 1 for found in everything)


# ---- what a map says


def test_words_and_figures_of_a_convolution():
    found = best_map(einsum_of("C2D_c3"), BY_NAME["mma4x4x16"])
    assert found.words == "co→m, h·w→n, rh·rw·rc→k (operands swapped)"
    assert found.calls == 4 * 9 * 10
    assert found.utilization == pytest.approx(147 / 160)
    assert found.padding == "rh·rw·rc 147 → 160 on k: 8 % padding"
    assert found.to_dict()["map"] == found.words


def test_weights_are_free_at_run_time_and_activations_are_not():
    found = best_map(einsum_of("C2D_1x1"), BY_NAME["vnni4x4"])
    assert (found.status, found.activation_bytes, found.weight_bytes, found.moved_bytes("c")) == ("weights packed", 0, 16 * 32, 0)
    attention = best_map(einsum_of("TBG"), BY_NAME["vnni4x4"])
    assert attention.weight_bytes == 0


def test_cost_is_calls_fill_and_moved_bytes():
    entry = BY_NAME["tile16"]
    found = best_map(einsum_of("C2D"), entry, bandwidth=4.0)
    moved = found.activation_bytes + found.moved_bytes("c")
    assert found.cycles == found.calls * entry.initiation_interval + entry.latency + moved / 4.0
    assert balanced_bandwidth(entry) == 512


def test_bandwidth_decides_between_direct_and_gathered():
    einsum = task("conv2d:1x14x14x64,64x3x3,p1").parsed.einsum
    slow, fast = (best_map(einsum, BY_NAME["mma4x4x16"], bandwidth=bandwidth) for bandwidth in (4.0, 1e6))
    assert (slow.status, fast.status) == ("direct", "gathered")
    assert slow.activation_bytes < 20_000 < fast.activation_bytes
    assert slow.utilization < fast.utilization


SHAPES = ("conv2d:1x56x56x64,64x3x3,p1", "conv2d:1x56x56x64,128x3x3,s2,p1", "conv2d:1x14x14x256,256x3x3,p1", "conv2d:1x7x7x512,512x3x3,p1")


@pytest.mark.parametrize("entry", INSTRUCTIONS, ids=lambda entry: entry.name)
@pytest.mark.parametrize("text", SHAPES)
def test_direct_convolutions_move_their_input_once(text, entry):
    einsum = task(text).parsed.einsum
    padded = math.prod(high - low + 1 for low, high in (index.bounds(einsum.extents) for index in einsum.a.index))
    (found,) = enumerate_maps(einsum, entry, limit=1, gather=False)
    assert found.activation_bytes <= 1.2 * padded


# ---- types


def test_mixed_signs_fold_into_zero_points():
    found = best_map(einsum_of("dense_u8s8"), BY_NAME["mma4x4x16t"])
    assert (found.einsum.a.shift, found.einsum.a.offset) == (-128, -128)
    exact = best_map(einsum_of("dense_u8s8"), instruction("us", "mk,nk->mn", a="uint8", m=4, n=4, k=16))
    assert (exact.einsum.a.offset, exact.status) == (0, "in place")


def test_operands_are_swapped_where_only_that_fits():
    found = best_map(einsum_of("dense_u8s8"), instruction("su", "mk,nk->mn", b="uint8", m=4, n=4, k=16))
    assert found.swapped
    assert found.einsum.a.offset == found.einsum.b.offset == 0


def test_narrow_accumulators_are_checked_against_the_whole_sum():
    narrow = instruction("narrow", "k,nk->n", acc="int20", n=4, k=4)
    answer = best_map(einsum_of("C2D"), narrow)
    assert answer.reason is Reason.ACCUMULATOR
    assert answer.detail == "144 products of rh·rw·rc need 23 bits, more than the accumulator int20 of narrow has"
    assert isinstance(best_map(einsum_of("GMM"), narrow), Mapped)


def test_accumulators_are_checked_in_the_order_of_the_operands_that_is_taken():
    """17 products of 4-bit with 8-bit data need 16 bits where the 4-bit operand is made unsigned, and 17 where the other is."""
    einsum = task(replace(parse_operator("gemm:4x4x17"), a=DType(4))).parsed.einsum
    for a, b, swapped in (("uint8", "int8", False), ("int8", "uint8", True)):
        narrow = instruction("narrow", "k,nk->n", a=a, b=b, acc="int16", overflow="wrap", n=2, k=1)
        found = enumerate_maps(einsum, narrow, limit=None)
        assert {mapped.swapped for mapped in found} == {swapped}
        wide = instruction("wide", "k,nk->n", a=a, b=b, acc="int17", overflow="wrap", n=2, k=1)
        assert {mapped.swapped for mapped in enumerate_maps(einsum, wide, limit=None)} == {False, True}


def test_zeros_off_a_diagonal_need_no_wider_accumulator():
    narrow = instruction("narrow", "mk,kn->mn", acc="int19", overflow="wrap", m=4, n=4, k=4)
    found = enumerate_maps(einsum_of("DEP"), narrow, limit=None)
    assert any("diagonal" in mapped.words for mapped in found)


def test_saturating_accumulators_map_where_no_sum_can_saturate():
    saturating = instruction("vpdpbusds", "k,nk->n", a="uint8", overflow="saturate-once", n=8, k=4)
    assert isinstance(best_map(einsum_of("C2D"), saturating), Mapped)
    deep = task("gemm:1x8x131072").parsed.einsum
    answer = best_map(deep, saturating)
    assert answer.reason is Reason.OVERFLOW


@pytest.mark.parametrize(("a", "b", "parts"), [("int8", "int8", 4), ("int16", "int8", 2), ("int8", "int16", 2), ("int4", "int12", 8)])
def test_too_wide_data_is_priced_in_the_better_order(a, b, parts):
    answer = best_map(einsum_of("dense_s16"), instruction("narrow", "mk,nk->mn", a=a, b=b, acc="int64", m=4, n=4, k=4))
    assert answer.reason is Reason.TOO_WIDE
    assert f"{parts}x the calls" in answer.change


@pytest.mark.parametrize(
    ("options", "words"),
    [({"limit": 0}, "limit of maps must be at least 1, not 0"), ({"bandwidth": 0.0}, "bandwidth must be positive, not 0.0")],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(ParameterError, match=words):
        enumerate_maps(einsum_of("GMM"), BY_NAME["dot4"], **options)
