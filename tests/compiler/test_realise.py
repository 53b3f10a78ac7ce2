"""Maps become programs that TVM tensorizes, schedules and compiles, equal to references in NumPy bit for bit."""

from __future__ import annotations

import random

import numpy as np
import pytest

from celosia.compiler.coverage import coverage
from celosia.compiler.enumerate import best_map, enumerate_maps
from celosia.compiler.mapping import Mapped
from celosia.compiler.operators import from_te
from celosia.compiler.realise import CONTRACT, matchable, realise, tensorize
from celosia.compiler.reasons import Rejected
from celosia.compiler.tasks import task
from celosia.compiler.verify import prepared_operands, random_inputs, run, verify
from celosia.intrinsics.tensor_intrin import ANNOTATION, install_stub, register

from .fixtures.small_operators import INSTRUCTIONS, instruction, small_tasks

TASKS = small_tasks()
BY_NAME = {entry.name: entry for entry in INSTRUCTIONS}

NEW_FORMS = (
    instruction("c_c_c", "c,c->c", c=8),
    instruction("ck_ck_c", "ck,ck->c", c=8, k=4),
    instruction("n_n", "n,->n", n=8),
    instruction("m_n", "m,n->mn", m=4, n=5),
    instruction("km_kn_nm", "km,kn->nm", m=4, n=4, k=8),
    instruction("batched", "gmk,gkn->gmn", g=2, m=2, n=4, k=4),
    instruction("two_k", "mkr,nkr->mn", m=2, n=2, k=3, r=4),
    instruction("k_nk_u8s8", "k,nk->n", a="uint8", n=4, k=4),
    instruction("scalar", "k,k->", k=1),
    instruction("wide", "mk,nk->mn", a="int16", b="int16", overflow="wrap", m=2, n=2, k=8),
)


def check(name, entry, mapped, **options):
    item = TASKS[name]
    reference = item.operator.reference if item.operator else item.reference
    proof = verify(mapped, item.parsed, reference=reference, **options)
    assert proof.reference == "numpy"
    return proof


# ---- numbers

SAMPLE = (
    ("C2D", "mma4x4x16"),
    ("C2D_c3", "tile16"),
    ("C3D", "outer8x8"),
    ("CAP", "vnni4x4"),
    ("DEP", "mma4x4x16t"),
    ("GMM_odd", "tile16"),
    ("GRP", "gemv16"),
    ("T2D", "dot4"),
    ("TBG", "mma4x4x16"),
    ("NRM", "dot4"),
    ("dense_zp", "vnni4x4"),
    ("dense_u8s8", "outer8x8"),
    ("NCHW_grp", "mma4x4x16"),
    ("bias_mm", "mma4x4x16t"),
)


@pytest.mark.parametrize(("name", "entry"), SAMPLE)
def test_best_maps_compute_what_the_operator_does(name, entry):
    mapped = best_map(TASKS[name].parsed.einsum, BY_NAME[entry])
    assert check(name, BY_NAME[entry], mapped).matches


@pytest.mark.slow
def test_all_maps_of_the_fixture_compute_what_the_operator_does():
    report = coverage(TASKS.values(), INSTRUCTIONS, verify="all")
    assert sum(pair.verified is True for pair in report.pairs) == 167
    assert report.failed == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TASKS if name not in ("SFM", "dense_s16")])
def test_any_map_computes_what_the_operator_does(name):
    chooser = random.Random(name)
    for entry in (*INSTRUCTIONS, *NEW_FORMS):
        found = enumerate_maps(TASKS[name].parsed.einsum, entry, limit=None, prune=False)
        if not isinstance(found, Rejected):
            for mapped in chooser.sample(found, min(3, len(found))):
                assert check(name, entry, mapped).matches, mapped.words


@pytest.mark.parametrize("entry", NEW_FORMS, ids=lambda entry: entry.contraction.einsum + entry.name[-3:])
@pytest.mark.parametrize("name", ["DEP", "GRP"])
def test_new_forms_of_instruction_need_no_change(name, entry):
    mapped = best_map(TASKS[name].parsed.einsum, entry)
    assert isinstance(mapped, Mapped)
    assert check(name, entry, mapped).matches


@pytest.mark.parametrize("arguments", [(1, 4, 4, 8, 8, 3, 2, 1), (1, 3, 3, 4, 8, 5, 3, 1), (1, 3, 3, 4, 4, 2, 4, 0)])
def test_transposed_convolutions_whose_phases_differ(arguments):
    item = task(from_te("T2D", arguments))
    mapped = best_map(item.parsed.einsum, BY_NAME["vnni4x4"])
    assert any("phases" in note for note in mapped.einsum.notes)
    assert verify(mapped, item.parsed, reference=item.operator.reference).matches


@pytest.mark.parametrize("text", ["conv2d:1x7x7x16,16x3x3,p1", "conv2d:1x6x5x8,8x3x3,p1,d2", "conv3d:1x3x4x4x4,8x3x3x3,p1"])
def test_joined_rows(text):
    item = task(text)
    found = enumerate_maps(item.parsed.einsum, BY_NAME["tile16"], limit=None, prune=False)
    joined = next(mapped for mapped in found if any("joined" in note for note in mapped.einsum.notes))
    assert verify(joined, item.parsed, reference=item.operator.reference).matches


# ---- a proof can fail


@pytest.mark.parametrize("name", ["C2D", "DEP", "dense_zp", "NRM"])
@pytest.mark.parametrize("fault", ["index", "signedness"])
def test_broken_instructions_are_caught(name, fault):
    mapped = best_map(TASKS[name].parsed.einsum, BY_NAME["dot4"])
    assert not check(name, BY_NAME["dot4"], mapped, fault=fault).matches


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TASKS if name not in ("SFM", "dense_s16")])
def test_broken_instructions_are_caught_on_every_operator(name):
    for entry in (BY_NAME["dot4"], BY_NAME["vnni4x4"]):
        mapped = best_map(TASKS[name].parsed.einsum, entry)
        assert check(name, entry, mapped).matches
        for fault in ("index", "signedness"):
            assert not check(name, entry, mapped, fault=fault).matches


# ---- the program


def blocks_of(func):
    from celosia.compiler.einsum_parse import blocks

    return [block.name_hint for block in blocks(func)]


def test_what_lies_right_is_not_packed():
    for name, entry, packs in (
        ("GMM", "mma4x4x16", ()),
        ("dense_nt", "mma4x4x16t", ()),
        ("C2D", "vnni4x4", ("pack_a", "pack_b")),
        ("DIL", "mma4x4x16", ("pack_a",)),
        ("dense_zp", "mma4x4x16t", ("pack_b", "unpack", "correct")),
    ):
        mapped = best_map(TASKS[name].parsed.einsum, BY_NAME[entry])
        made = realise(mapped, TASKS[name].parsed).packs
        assert set(made) <= {*packs, "unpack", "correct"}, (name, made)
        if not packs:
            assert made == ()


def test_weights_are_packed_in_a_function_of_their_own():
    item = TASKS["dense_u8s8"]
    mapped = best_map(item.parsed.einsum, BY_NAME["mma4x4x16"])
    realised = realise(mapped, item.parsed, offline=True)
    assert "pack_b" in blocks_of(realised.prepare)
    assert "sum_b" in blocks_of(realised.prepare)
    assert not {"pack_b", "sum_b"} & set(blocks_of(realised.func))
    assert check("dense_u8s8", BY_NAME["mma4x4x16"], mapped, offline=True).matches
    assert not check("dense_u8s8", BY_NAME["mma4x4x16"], mapped, offline=True, fault="signedness").matches


def test_weights_that_lie_right_still_give_their_sums_at_compile_time():
    item = TASKS["dense_u8s8"]
    mapped = best_map(item.parsed.einsum, BY_NAME["mma4x4x16t"])
    realised = realise(mapped, item.parsed, offline=True)
    assert blocks_of(realised.prepare) == ["sum_b"]
    assert check("dense_u8s8", BY_NAME["mma4x4x16t"], mapped, offline=True).matches


def outermost(schedule, block):
    return schedule.get(schedule.get_loops(schedule.get_sblock(block))[0]).loop_var


@pytest.mark.parametrize(("name", "entry"), [("DIL", "mma4x4x16"), ("C2D", "vnni4x4"), ("GMM_odd", "mma4x4x16t"), ("T2D", "mma4x4x16")])
def test_packs_and_unpacks_fuse_into_the_tile_loops(name, entry):
    item = TASKS[name]
    realised = realise(best_map(item.parsed.einsum, BY_NAME[entry]), item.parsed)
    schedule = tensorize(realised, register(BY_NAME[entry]), fuse=True)
    tiles = outermost(schedule, f"{CONTRACT}_init")
    for block in realised.packs:
        assert outermost(schedule, block).same_as(tiles), block
    *inputs, out = item.parsed.func.params
    operands = random_inputs(inputs, seed=1)
    assert np.array_equal(run(schedule.mod, operands, out), item.operator.reference(operands))


@pytest.mark.parametrize("name", ["C2D", "GRP", "dense_zp"])
def test_metaschedule_schedules_mapped_programs(name):
    import tvm

    install_stub()
    from tvm.s_tir import Schedule
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.schedule import Trace
    from tvm.target import Target

    item = TASKS[name]
    entry = BY_NAME["mma4x4x16"]
    reference = item.operator.reference if item.operator else item.reference
    mapped = best_map(item.parsed.einsum, entry)
    module = tvm.IRModule({"main": realise(mapped, item.parsed).func.with_attr("global_symbol", "main")})
    reuse = ms.schedule_rule.ReuseType(req="may", levels=[1, 2], scope="global")
    rule = ms.schedule_rule.MultiLevelTilingWithIntrin(register(entry), structure="SSRSRS", max_innermost_factor=64, reuse_write=reuse)
    posts = [ms.postproc.RewriteReductionBlock(), ms.postproc.RewriteTensorize(vectorize_init_loop=False)]
    generator = ms.space_generator.PostOrderApply(sch_rules=[rule], postprocs=posts, mutator_probs={})
    target = Target({"kind": "llvm", "num-cores": 2})
    context = ms.TuneContext(mod=module, target=target, space_generator=generator, task_name=name, rand_state=1, num_threads=1)
    *inputs, out = item.parsed.func.params
    operands = random_inputs(inputs, seed=3)
    sketches = context.generate_design_space()
    assert len(sketches) > 1
    for number, sketch in enumerate(sketches):
        schedule = Schedule(module, seed=number + 1)
        Trace(sketch.trace.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
        schedule.enter_postproc()
        assert all(post.apply(schedule) for post in generator.postprocs)
        assert ANNOTATION in schedule.mod.script()
        assert np.array_equal(run(schedule.mod, operands, out), reference(operands))


def test_saturating_instructions_are_matched_as_wrapping_ones():
    entry = instruction("vpdpbusds", "k,nk->n", a="uint8", overflow="saturate-once", n=8, k=4)
    assert matchable(entry).contraction.overflow.value == "wrap"
    assert check("C2D", entry, best_map(TASKS["C2D"].parsed.einsum, entry)).matches


def test_prepared_operands_are_the_inputs_where_nothing_is_prepared():
    item = TASKS["GMM"]
    realised = realise(best_map(item.parsed.einsum, BY_NAME["mma4x4x16"]), item.parsed, offline=True)
    *inputs, _ = item.parsed.func.params
    operands = random_inputs(inputs, seed=0)
    assert all(left is right for left, right in zip(prepared_operands(realised, inputs, operands), operands, strict=True))
