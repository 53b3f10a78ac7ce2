"""Modules that TVM scheduled lower to programs: command for command those of the native scheduler, bit for bit on data."""

import textwrap
from dataclasses import replace

import numpy as np
import pytest
from tvm import IRModule, te
from tvm.s_tir import Schedule as TvmSchedule
from tvm.s_tir import meta_schedule as ms
from tvm.script import from_source
from tvm.target import Target
from tvm.tirx import For
from tvm_ffi import structural_map

from celosia.compiler import schedule_space, tensorize
from celosia.compiler.accelerator import from_tvm
from celosia.compiler.accelerator.convolution import Convolution, gemm
from celosia.compiler.accelerator.from_tvm import lower_module, tile_instruction, tile_intrinsic, window_tile
from celosia.compiler.accelerator.lower import lower
from celosia.compiler.accelerator.operator_program import place_on
from celosia.compiler.accelerator.problem import Problem
from celosia.compiler.accelerator.schedule import ORDERS, Schedule
from celosia.compiler.accelerator.through_tvm import lower_through_tvm
from celosia.compiler.accelerator.tile_module import tile_module
from celosia.compiler.operators import from_te, parse
from celosia.intrinsics import HashMismatchError, ParameterError, ScheduleError
from celosia.intrinsics.accelerator import Program, predict
from celosia.intrinsics.tensor_intrin import ANNOTATION, TILE_FUNCTION, install_stub, register

from .tile_rig import MACHINE, broken_recorder, make, run


def product(m, n, k, *, acc="int32", start=None, a_last="k"):
    """The unscheduled product of [m, k] and [n, k]; ``start`` adds a matrix to its zero."""
    a = te.placeholder((m, k) if a_last == "k" else (k, m), "int8", name="A")
    b, axis = te.placeholder((n, k), "int8", name="B"), te.reduce_axis((0, k), name="k")

    def value(i, j):
        left = a[i, axis] if a_last == "k" else a[axis, i]
        return te.sum(left.astype(acc) * b[j, axis].astype(acc), axis=axis)

    return te.create_prim_func([a, b, te.compute((m, n), value, name="out")])


def scheduled(m, n, k, tile, order, *, inner=None, machine=MACHINE, intrinsic=None, decompose=0, kind=None):
    """A product cut by ``tile``, its loops in ``order``; ``inner`` cuts each loop around the tile once more."""
    sch = TvmSchedule(product(m, n, k), debug_mask="none", error_render_level="none")
    block = sch.get_sblock("out")
    outside, inside, levels = {}, [], ([], [])
    for axis, loop, size in zip("mnk", sch.get_loops(block), tile, strict=True):
        outside[axis], part = sch.split(loop, [None, size])
        inside.append(part)
    for axis in order:
        outer, middle = sch.split(outside[axis], [None, (inner or {}).get(axis, 1)])
        levels[0].append(outer)
        levels[1].append(middle)
    nest = [*levels[0], *levels[1]]
    sch.reorder(*nest, *inside)
    sch.decompose_reduction(block, nest[decompose])
    sch.tensorize(inside[0], intrinsic or tile_intrinsic(machine, m=tile[0], n=tile[1], k=tile[2]))
    if kind:
        getattr(sch, kind)(nest[0])
    return sch


def operands(m, n, k, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(-128, 128, (m, k)).astype(np.int8), rng.integers(-128, 128, (n, k)).astype(np.int8)


def check(lowered, m, n, k, machine=MACHINE):
    a, b = operands(m, n, k)
    assert np.array_equal(run(lowered, [a, b], machine), a.astype(np.int32) @ b.T.astype(np.int32))


@pytest.mark.parametrize("order", ORDERS)
def test_the_same_tiles_in_the_same_order_are_the_same_commands(order):
    m, n, k = 24, 16, 48
    slots = {"a_slots": 2, "b_slots": 3, "c_slots": 2 if order.endswith("k") else 6, "lag": 1}
    lowered = lower_module(scheduled(m, n, k, (8, 8, 16), order), MACHINE, **slots)
    native = lower(Problem(machine=MACHINE, op=gemm(m, n, k)), Schedule(m=2, n=2, k=2, order=order, **slots))
    assert lowered.program.commands == native.commands
    assert lowered.program == native
    assert lowered.copied == ()
    check(lowered, m, n, k)


def test_a_convolution_of_whole_rows_is_the_native_one():
    """TVM's border is part of the tensor, the loader's is not: the same convolution without a border."""
    op = Convolution(height=6, width=8, channels=16, filters=8, kernel=(3, 3), out=(4, 4), corner=(0, 0))
    tile = window_tile(MACHINE, pixels=(1, 4), filters=8, channels=16)
    lowered = lower_module(tile_module(op, MACHINE, tile=tile, order="mnk"), MACHINE)
    native = lower(lowered.problem, Schedule(m=1, n=2, k=2))
    assert lowered.program.commands == native.commands


@pytest.mark.parametrize("seed", range(6))
def test_random_tiles_and_orders(seed):
    rng = np.random.default_rng(seed)
    cores = [{}, {"core": "weight-stationary"}, {"core": "dot-product", "lanes": 4}, {"rows": 3, "cols": 5}]
    machine = make(acc_kib=64, **cores[seed % 4])
    chunk = Problem(machine=machine, op=gemm(1, 1, 1)).chunk
    tile = tuple(int(size) for size in (rng.integers(2, 9), 4 * rng.integers(1, 4), chunk))
    counts = [int(count) for count in rng.integers(1, 5, 3)]
    inner = {
        axis: int(rng.choice([part for part in range(1, count + 1) if count % part == 0]))
        for axis, count in zip("mnk", counts, strict=True)
    }
    m, n, k = (size * count for size, count in zip(tile, counts, strict=True))
    order = ORDERS[int(rng.integers(6))]
    sch = scheduled(m, n, k, tile, order, inner=inner, machine=machine)
    lowered = lower_module(sch, machine, c_slots=max(2, counts[0] * counts[1]))
    check(lowered, m, n, k, machine)
    assert lowered.program.macs == m * n * k


@pytest.mark.parametrize(
    ("size", "tile"),
    [((30, 10, 40), (8, 8, 16)), ((30, 12, 40), (1, 4, 8)), ((1, 1, 16), (1, 1, 16))],
)
def test_products_and_odd_tiles(size, tile):
    op, part = gemm(*size), tile_instruction(MACHINE, **dict(zip("mnk", tile, strict=True))).contraction
    lowered = lower_module(tile_module(op, MACHINE, tile=part), MACHINE)
    check(lowered, *size)
    assert ("a" in lowered.copied) == (size[0] % tile[0] > 0)


@pytest.mark.parametrize(
    "operator",
    [
        parse("gemm:5x6x7"),
        parse("conv2d:1x6x6x6,5x3x3,s2,p1"),
        from_te("GRP", (1, 6, 6, 8, 12, 3, 2, 1, 1, 4)),
        from_te("C3D", (1, 4, 4, 4, 3, 4, 3, 2, 1)),
        from_te("GMM", (2, 5, 6, 7)),
        from_te("TBG", (2, 5, 3, 7)),
    ],
    ids=str,
)
def test_operators_by_a_packing_route(operator):
    """Our own sketch, as MetaSchedule would produce it: the module packs, the accelerator multiplies, the module unpacks."""
    instruction = tile_instruction(MACHINE, m=4, n=8, k=8)
    schedule = schedule_space(operator, instruction).random(np.random.default_rng(2))
    order = schedule.order.replace("k", "") + "k"
    module = tensorize.apply(operator, instruction, replace(schedule, order=order, inner=tuple(1 for _ in schedule.inner)), intrinsic=NAME)
    lowered = lower_module(module, MACHINE)
    inputs = operator.random_inputs(np.random.default_rng(0))
    assert np.array_equal(run(lowered, inputs), operator.reference(inputs))
    assert lowered.copied == ("a", "b", "c")


NAME = tile_intrinsic(MACHINE, m=4, n=8, k=8)


def test_candidates_of_metaschedule_lower_as_they_come():
    """Its own sampling of our sketches: loops cut in two levels, in every order."""
    install_stub()
    operator, machine = parse("gemm:16x16x32"), make(acc_kib=64)
    context = ms.TuneContext(
        mod=IRModule({"main": operator.prim_func()}),
        target=Target({"kind": "llvm", "num-cores": 1}),
        space_generator=tensorize.generator(operator, tile_instruction(machine, m=4, n=8, k=8), intrinsic=NAME),
        search_strategy="replay-trace",
        rand_state=3,
        num_threads=1,
    )
    context.pre_tuning(3, 3, context.generate_design_space())
    inputs = operator.random_inputs(np.random.default_rng(0))
    orders = set()
    for candidate in context.generate_measure_candidates():
        lowered = lower_module(candidate.sch, machine, c_slots=16)
        assert np.array_equal(run(lowered, inputs, machine), operator.reference(inputs))
        orders.add(tuple((command.op, *command.values.items()) for command in lowered.program.commands))
    assert len(orders) > 1


def test_an_operator_goes_through_tvm_by_the_nearest_tile():
    for text, route in (("conv2d:1x6x8x16,8x3x3,p1", "direct"), ("gmm:2x5x6x2003", "layout"), ("gemm:20x12x32", "direct")):
        operator = parse(text)
        found, mapping = lower_through_tvm(operator, place_on(operator, MACHINE), MACHINE, Schedule(m=1, n=2, k=1))
        assert mapping["route"] == route
        inputs = operator.random_inputs(np.random.default_rng(0))
        assert np.array_equal(run(found, inputs), operator.reference(inputs))


def test_programs_of_modules_are_saved_and_belong_to_their_design():
    lowered = lower_module(scheduled(16, 8, 32, (8, 8, 16), "mnk"), MACHINE)
    again = Program.from_bytes(lowered.program.to_bytes())
    assert np.array_equal(again.words, lowered.program.words)
    assert again.buffers == lowered.program.buffers
    assert predict(MACHINE, again).times == predict(MACHINE, lowered.program).times
    other = make(queue_depth=2)
    with pytest.raises(HashMismatchError):
        run(lowered, operands(16, 8, 32), other)


# ---- refusals

LOOPS = register(tile_instruction(MACHINE, m=4, n=4, k=8))


def in_parallel(sch):
    """The module with its outermost loop around the tile run in parallel, which TVM itself would not do."""
    from celosia.compiler.nest import find

    top = find(sch.mod).top
    loop = For(top.loop_var, top.min, top.extent, 1, top.body)
    return IRModule({"main": structural_map(sch.mod["main"], (For, lambda node: loop if node.same_as(top) else node), order="post")})


ZERO = """
for i, j in T.grid(8, 8):
    with T.sblock("zero"):
        v = T.axis.spatial(16, m * 8 + i)
        w = T.axis.spatial(8, j)
        C[v, w] = {start}
"""
STRAY = """
with T.sblock("other"):
    u = T.axis.spatial(2, m)
    D[u] = 0
"""
TILE = """
with T.sblock("tile"):
    vm, vk = T.axis.remap("SR", [m, k])
    T.reads(C[vm * 8:vm * 8 + 8, 0:8], A[{row}:{row} + 8, {at}:{at} + 8], B[0:8, {at}:{at} + 8])
    T.writes(C[vm * 8:vm * 8 + 8, 0:8])
    T.sblock_attr({{"{annotation}": "tile"}})
    X = T.match_buffer(A[{row}:{row} + 8, {at}:{at} + 8], (8, 8), "int8", strides=("a0", "a1"), offset_factor=1)
    Y = T.match_buffer(B[0:8, {at}:{at} + 8], (8, 8), "int8", strides=("b0", "b1"), offset_factor=1)
    Z = T.match_buffer(C[vm * 8:vm * 8 + 8, 0:8], (8, 8), "int32", strides=("c0", "c1"), offset_factor=1)
    T.evaluate(T.call_packed("{function}", "{name}", {arguments}))
"""
ARGUMENTS = ", ".join(f"{name}.data, {name}.elem_offset, {name}.strides[0], {name}.strides[1]" for name in "XYZ")


def written(*, start="0", again=False, other=False, rows=2, row="vm * 8", at="vk * 8", shape=(16, 16)):
    """A module as text: [16, 16] x [8, 16] in tiles of 8 x 8 x 8, with one thing about it changed."""
    name = tile_intrinsic(MACHINE, m=8, n=8, k=8)
    tile = TILE.format(row=row, at=at, name=name, function=TILE_FUNCTION, annotation=ANNOTATION, arguments=ARGUMENTS)
    zero = ZERO.format(start=start)
    inside = textwrap.indent((zero if again else "") + (STRAY if other else "") + tile, " " * 12)
    text = f"""
@T.prim_func(s_tir=True)
def main(A: T.Buffer({shape}, "int8"), B: T.Buffer((8, 16), "int8"), C: T.Buffer((16, 8), "int32")):
    D = T.alloc_buffer((2,), "int32")
    for m in range({0 if again else 2}):
{textwrap.indent(zero, " " * 8)}
    for m in range({rows}):
        for k in range(2):
{inside}
"""
    return IRModule({"main": from_source(text)})


def test_a_module_as_text_lowers_as_it_is():
    lowered = lower_module(written(), MACHINE)
    check(lowered, 16, 8, 16)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (lambda: scheduled(16, 8, 24, (8, 8, 12), "mnk"), r"^a tile of 12 products begins at product 12; allowed: multiples of 8, or the"),
        (lambda: scheduled(16, 15, 16, (8, 5, 16), "mnk"), r"^tiles of 5 columns do not begin at beats of the port; allowed: multiples of"),
        (lambda: scheduled(16, 8, 32, (8, 4, 16), "kmn"), r"^schedule has too few slots for its unfinished output tiles; allowed: more"),
        (lambda: scheduled(128, 8, 32, (128, 8, 32), "mnk"), r"^tiles need 256 words per bank of the A scratchpad, which has 128: too sm"),
        (lambda: in_parallel(scheduled(16, 8, 32, (8, 8, 16), "mnk")), r"is parallel, so its calls have no one order; allowed: serial"),
        (lambda: scheduled(16, 8, 16, (4, 4, 8), "mnk", intrinsic=LOOPS), r"^the module's tile is no recorded one; allowed: the intrinsic"),
        (lambda: written(again=True), r"^an output tile is set again while it is summed, which the accelerator cannot do; allowed: one"),
        (lambda: written(start="T.int32(1)"), r"^an output tile does not start at zero, which the accelerator cannot do"),
        (lambda: written(start='T.cast(A[0, 0], "int32")'), r"^an output tile does not start at zero"),
        (
            lambda: written(other=True),
            r"^block other lies in the loops of the tile, where the accelerator runs alone; allowed: blocks before",
        ),
        (lambda: written(rows=1), r"^1 tiles of 8 along m do not make up 16; allowed: tiles that cover every output once"),
        (lambda: written(at="0"), r"^1 tiles of 8 along k do not make up 16; allowed"),
        (
            lambda: written(row="(1 - vm) * 8"),
            r"^tile call 0 \(a at 128, b at 0, c at 0\) does not belong to a matrix product of its tensors$",
        ),
        (lambda: written(shape=(32, 16), row="vm * 16"), r"are no matrix product; allowed besides: NHWC activations"),
        (lambda: written(shape=(16, 32)), r"are no matrix product; allowed besides: NHWC activations"),
        (lambda: TvmSchedule(product(8, 8, 8)), r"^the module has 0 tensorized blocks; allowed: one, tensorized by the intrinsic"),
    ],
)
def test_what_no_command_expresses_is_refused(module, message):
    with pytest.raises(ScheduleError, match=message):
        lower_module(module(), MACHINE)


def test_types_inputs_and_overflow_are_checked():
    module = scheduled(16, 8, 16, (8, 8, 16), "mnk")
    with pytest.raises(ScheduleError, match=r"^tiles are int8 x int8; the design computes with uint8 x int8$"):
        lower_module(module, make(a="uint8"))
    with pytest.raises(ScheduleError, match=r"^the design's sums wrap in int18, the module's in int32; allowed: acc of 32 bits$"):
        lower_module(module, make(acc="int18", overflow="wrap"))
    for wrong, found in ((None, "NoneType"), (IRModule({}), "a module of nothing")):
        with pytest.raises(ParameterError, match=rf"^a scheduled module must be a TVM schedule or an IRModule .*, not {found}$"):
            lower_module(wrong, MACHINE)
    lowered = lower_module(module, MACHINE)
    with pytest.raises(ParameterError, match=r"^the module takes int8\[16, 16\], int8\[8, 16\], not int8\[8, 16\], int8\[16, 16\]$"):
        run(lowered, operands(8, 16, 16))


# ---- the checks can fail


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.pop(3), r"^the module makes 15 tile calls, 15 of them different, where 16 products of tiles make the whole$"),
        (lambda rows: rows.append(rows[0]), r"^the module makes 17 tile calls, 16 of them different"),
        (lambda rows: rows[2].__setitem__(1, 31), r"^the strides of operand a differ between tiles"),
        (lambda rows: [row.__setitem__(1, 31) for row in rows], r"^rows of a tile lie 31 elements apart in operand a \(A\); allowed: 32"),
        (lambda rows: [row.__setitem__(2, 2) for row in rows], r"^neighbours of a tile along k lie 2 elements apart in operand a \(A\)"),
        (lambda rows: rows[5].__setitem__(3, rows[5][3] + 16), r"^tile call 5 \(.*\) does not belong to a matrix product"),
    ],
)
def test_a_broken_recorder_is_caught(monkeypatch, change, message):
    broken_recorder(monkeypatch, change)
    with pytest.raises(ScheduleError, match=message):
        lower_module(scheduled(32, 16, 32, (8, 8, 16), "mnk"), MACHINE)


def test_a_dropped_call_would_show_in_the_result(monkeypatch):
    """Without the check of completeness, the comparison with NumPy still tells."""
    broken_recorder(monkeypatch, lambda rows: rows.pop(2))
    monkeypatch.setattr(from_tvm, "_check_whole", lambda layout, order, tiles: None)
    with pytest.raises((AssertionError, ScheduleError)):
        check(lower_module(scheduled(32, 16, 48, (8, 8, 16), "mnk"), MACHINE, c_slots=8), 32, 16, 48)


def test_a_module_that_calls_otherwise_on_other_data_is_noticed():
    lowered = lower_module(scheduled(16, 8, 16, (8, 8, 8), "mnk"), MACHINE)
    lowered._module.calls.offsets["c"] = np.zeros(5, np.int64)
    with pytest.raises(ScheduleError, match=r"^the module made 4 tile calls where it had made 5$"):
        run(lowered, operands(16, 8, 16))
