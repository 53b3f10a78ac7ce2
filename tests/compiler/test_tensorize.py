"""Schedules performed by TVM: bit-exact on every route, equal to their nest, and rejected where the intrinsic is absent."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from celosia.compiler import parse, routes, schedule_space
from celosia.compiler.host import compile_host, untensorized
from celosia.compiler.nest import find, statements, tensorized_blocks
from celosia.compiler.tensorize import apply, design_space, generator, sketches
from celosia.intrinsics import Contraction, Instruction, ScheduleError
from celosia.intrinsics.tensor_intrin import FAULTS, register


def instruction(einsum="mk,kn->mn", *types, **extents):
    return Instruction(name="block", contraction=Contraction(einsum, extents, *types))


MMA = instruction(m=4, n=4, k=8)
TILES = [
    MMA,
    instruction("mk,nk->mn", m=2, n=5, k=4),
    instruction("mk,kn->nm", m=3, n=2, k=7),
    instruction("k,kn->n", n=4, k=8),
    instruction("k,nk->n", n=4, k=4),
    instruction("mk,k->m", m=4, k=3),
    instruction("m,n->mn", m=3, n=5),
    instruction("m,->m", m=4),
    instruction("k,k->", k=4),
    instruction(",->"),
    instruction("ck,ck->c", c=2, k=3),
    instruction("c,c->c", c=4),
]

OPERATORS = [
    "conv2d:1x8x8x8,8x3x3,p1",
    "conv2d:1x13x13x3,10x7x7,s2,p3",
    "conv2d:1x9x9x8,4x3x3,d2",
    "conv2d:1x4x4x8,8x1x1",
    "conv2d:1x6x6x16,8x3x3,p1,g2",
    "conv2d:1x4x4x16,8x1x1,g2",
    "conv2d:1x5x7x3,4x1x3,p1",
    "conv1d:1x18x8,12x3,s2,p1",
    "conv3d:1x3x4x4x3,4x2x2x2",
    "cap:1x4x4x8x4x3x2x1x4",
    "dep:1x6x6x8x3x1x1x1",
    "tbg:1x8x2x8",
    "gemm:16x16x32",
    "gemm:13x11x17",
    "gemm:1x8x16",
    "gemm:8x1x16",
    "gemm:8x8x1",
    "gemm:1x1x1",
    "gmm:3x5x6x7",
]


def found(operator, target):
    return [(operator, target, route) for route in routes(operator, target)]


def cases(operators=OPERATORS, tiles=TILES):
    from celosia.compiler import Route, examine

    for text, tile in itertools.product(operators, tiles):
        for route in examine(parse(text), tile).values():
            if isinstance(route, Route):
                yield pytest.param(text, tile, route.kind, id=f"{text}-{tile.contraction.einsum}-{route.kind}")


CASES = list(cases())


def extents(nest):
    return [loop.extent for loop in nest.loops]


def check(operator, target, schedule, *, seed=0, intrinsic=None):
    """Perform a schedule; compare nest and result with what they must be. Returns whether the result is right."""
    module = apply(operator, target, schedule, intrinsic=intrinsic)
    nest = find(module)
    assert [extent for _, extent in nest.loops if extent > 1] == extents(schedule.nest)
    inputs = operator.random_inputs(np.random.default_rng(seed))
    return np.array_equal(compile_host(module, operator)(inputs), operator.reference(inputs))


def random_schedule(operator, target, kind, seed=0):
    space = schedule_space(operator, target)
    rng = np.random.default_rng(seed)
    while True:
        schedule = space.random(rng)
        if schedule.route.kind == kind:
            return schedule


def test_every_combination_is_in_the_list():
    assert {case.values[2] for case in CASES} == {"direct", "padded", "layout"}
    assert {case.values[0] for case in CASES} == set(OPERATORS)
    assert len({case.values[1] for case in CASES}) == len(TILES)
    assert len(CASES) > 150


@pytest.mark.parametrize(("text", "target", "kind"), CASES[::9])
def test_a_sample_is_bit_exact(text, target, kind):
    operator = parse(text)
    assert check(operator, target, random_schedule(operator, target, kind))


@pytest.mark.slow
@pytest.mark.parametrize(("text", "target", "kind"), CASES)
def test_everything_is_bit_exact(text, target, kind):
    operator = parse(text)
    for seed in (1, 2):
        assert check(operator, target, random_schedule(operator, target, kind, seed), seed=seed)


@pytest.mark.parametrize("kind", ["direct", "padded", "layout"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_instruction_is_caught_on_every_route(kind, fault):
    operator = parse({"direct": "gemm:8x8x16", "padded": "gemm:9x7x10", "layout": "conv2d:1x7x7x3,5x3x3,s2"}[kind])
    faulty = register(MMA, fault=fault)
    schedule = schedule_space(operator, MMA).schedule({"route": kind})
    assert check(operator, MMA, schedule)
    assert not check(operator, MMA, schedule, intrinsic=faulty)


@pytest.mark.parametrize("types", [("uint8", "int8"), ("int8", "uint8"), ("int5", "uint3"), ("int16", "int12")])
def test_other_operand_types(types):
    target = instruction("mk,kn->mn", *types, "int32", m=2, n=3, k=4) if types[0] != "int16" else None
    target = target or instruction("mk,kn->mn", *types, "int40", m=2, n=3, k=4)
    operator = parse("conv2d:1x6x6x8,6x3x3").typed(a=types[0], b=types[1], out=target.contraction.acc.container.name)
    for kind in ("direct", "layout"):
        if any(route.kind == kind for route in routes(operator, target)):
            assert check(operator, target, random_schedule(operator, target, kind))
    assert np.array_equal(
        *(f(operator.random_inputs(np.random.default_rng(5))) for f in (operator.reference, lambda x: untensorized(operator, x)))
    )


@settings(max_examples=5, deadline=None, derandomize=True)
@given(st.integers(1, 17), st.integers(1, 17), st.integers(1, 17), st.sampled_from(TILES[:8]), st.integers(0, 1000))
def test_any_matrix_product(m, n, k, target, seed):
    operator = parse(f"gemm:{m}x{n}x{k}")
    space = schedule_space(operator, target) if routes_exist(operator, target) else None
    if space is not None:
        assert check(operator, target, space.random(np.random.default_rng(seed)), seed=seed)


@pytest.mark.slow
@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.integers(1, 17), st.integers(1, 17), st.integers(1, 17), st.sampled_from(TILES), st.integers(0, 1000))
def test_any_matrix_product_long(m, n, k, target, seed):
    operator = parse(f"gemm:{m}x{n}x{k}")
    if routes_exist(operator, target):
        assert check(operator, target, schedule_space(operator, target).random(np.random.default_rng(seed)), seed=seed)


def routes_exist(operator, target):
    from celosia.compiler import Route, examine

    return any(isinstance(answer, Route) for answer in examine(operator, target).values())


@pytest.mark.parametrize("order", ["mnk", "mkn", "nmk", "nkm", "kmn", "knm"])
def test_the_nest_is_what_tvm_builds_in_every_order(order):
    operator = parse("conv2d:2x20x28x24,40x3x5,p1")
    for route in schedule_space(operator, MMA).routes:
        values = {"route": route.kind, "order": order} | {
            f"{route.kind}.{loop.name}": max(f for f in range(1, loop.extent) if loop.extent % f == 0) for loop in route.split_loops
        }
        schedule = schedule_space(operator, MMA).schedule(values)
        nest = find(apply(operator, MMA, schedule))
        assert [extent for _, extent in nest.loops if extent > 1] == extents(schedule.nest)


def test_the_design_space_is_one_sketch_per_route_and_order_and_repeats_by_seed():
    operator = parse("gemm:16x16x32")
    first, again, other = (design_space(operator, MMA, seed=seed) for seed in (1, 1, 2))
    assert len(first) == len(sketches(operator, MMA)) == 12
    decisions = [[[list(map(int, d)) for d in design.trace.decisions.values()] for design in designs] for designs in (first, again, other)]
    assert decisions[0] == decisions[1] != decisions[2]
    assert all(len(design) == 3 for design in decisions[0])


def test_metaschedule_postprocessors_give_what_apply_gives():
    import tvm_ffi

    operator = parse("gemm:16x16x32")
    schedule = schedule_space(operator, MMA).schedule({"order": "nkm"})
    applied = apply(operator, MMA, schedule)
    (design,) = design_space(operator, MMA, only=[(schedule.route, "nkm")])
    from tvm.s_tir import Schedule as TvmSchedule
    from tvm.s_tir.schedule import Trace

    samples = [inst for inst in design.trace.insts if inst.kind.name == "SamplePerfectTile"]
    decisions = {
        inst: [loop.extent // inner, inner] for inst, loop, inner in zip(samples, schedule.route.split_loops, schedule.inner, strict=True)
    }
    sch = TvmSchedule(applied.__class__({"main": operator.prim_func()}), debug_mask="none", error_render_level="none")
    Trace(design.trace.insts, decisions).apply_to_schedule(sch, remove_postproc=True)
    assert not tensorized_blocks(sch.mod["main"].body)
    sch.enter_postproc()
    assert all(postproc.apply(sch) for postproc in generator(operator, MMA).postprocs)
    assert tvm_ffi.structural_equal(sch.mod, applied)


def test_require_intrinsic_rejects_what_tvm_silently_left_alone(capfd):
    operator = parse("gemm:16x16x32")
    wrong = register(instruction("mk,nk->mn", m=4, n=4, k=8))
    (design,) = design_space(operator, MMA, only=sketches(operator, MMA)[:1], intrinsic=wrong)
    design.enter_postproc()
    rewrite, require = generator(operator, MMA).postprocs
    assert rewrite.apply(design)
    assert not require.apply(design)
    assert capfd.readouterr().out == ""


def test_require_intrinsic_rejects_other_blocks_inside_the_nest():
    operator = parse("gemm:13x16x32")
    schedule = schedule_space(operator, MMA).schedule({"route": "padded", "order": "mnk", "padded.m": 1})
    from tvm.s_tir import Schedule as TvmSchedule

    from celosia.compiler.postproc import RequireIntrinsic

    sch = TvmSchedule(apply(operator, MMA, schedule), debug_mask="none", error_render_level="none")
    assert RequireIntrinsic().apply(sch)
    (tile,) = [block for block in sch.get_child_blocks(sch.get_sblock("root")) if "celosia.intrinsic" in sch.get(block).annotations]
    outer = next(loop for loop in sch.get_loops(tile) if int(sch.get(loop).extent) > 1)
    (pack,) = [block for block in sch.get_producers(tile) if sch.get(block).name_hint == "A_pad"]
    sch.compute_at(pack, outer)
    assert tensorized_blocks(sch.mod["main"].body) == 1
    assert not RequireIntrinsic().apply(sch)


def test_apply_says_why_tvm_refuses():
    operator = parse("gemm:16x16x32")
    wrong = register(instruction("mk,nk->mn", m=4, n=4, k=8))
    with pytest.raises(ScheduleError, match="gemm:16x16x32 on block, route direct: TVM refuses the tile"):
        apply(operator, MMA, schedule_space(operator, MMA).default(), intrinsic=wrong)


def test_pack_and_unpack_lie_outside_the_nest():
    module = apply(parse("conv2d:1x9x9x3,5x3x3,s2"), MMA, schedule_space(parse("conv2d:1x9x9x3,5x3x3,s2"), MMA).default())
    tops = statements(module)
    at = [position for position, statement in enumerate(tops) if tensorized_blocks(statement)]
    assert len(at) == 1
    assert 0 < at[0] < len(tops) - 1
