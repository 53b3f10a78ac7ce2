"""Modules of convolutions over windows: plain, grouped, depthwise and transposed; the same commands as natively, the same bits."""

from dataclasses import replace

import numpy as np
import pytest
from tvm import te
from tvm.s_tir import Schedule as TvmSchedule

from celosia.compiler.accelerator import from_tvm, through_tvm, tile_layout
from celosia.compiler.accelerator.batch import batch_of
from celosia.compiler.accelerator.convolution import Convolution
from celosia.compiler.accelerator.from_tvm import lower_module, tile_intrinsic, window_intrinsic, window_tile
from celosia.compiler.accelerator.lower import lower
from celosia.compiler.accelerator.operator_program import lower_operator, place_on
from celosia.compiler.accelerator.operators import reference
from celosia.compiler.accelerator.problem import Problem
from celosia.compiler.accelerator.schedule import ORDERS, Schedule
from celosia.compiler.accelerator.through_tvm import lower_through_tvm
from celosia.compiler.accelerator.tile_module import tile_inputs, tile_module
from celosia.compiler.operators import from_te, parse
from celosia.intrinsics import MappingError, ScheduleError

from .tile_rig import MACHINE, broken_recorder, make, run

VECTOR = make(core="dot-product", lanes=2)
CORES = {
    "output-stationary": MACHINE,
    "weight-stationary": make(core="weight-stationary"),
    "dot-product": VECTOR,
    "outer-product": make(core="outer-product"),
    "narrow": make(core="outer-product", port_bytes=2),  # too narrow for the vector mode
}


def operands(op, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.integers(-128, 128, (op.images, op.height, op.width, op.channels)).astype(np.int8)
    return x, rng.integers(-128, 128, (op.filters, op.depth)).astype(np.int8)


def check(op, tile, machine=MACHINE, *, order="mnk", seed=0, **slots):
    """A module of ``op`` cut by ``tile``, against NumPy."""
    lowered = lower_module(tile_module(op, machine, tile=tile, order=order), machine, **slots)
    x, w = operands(op, seed)
    result = run(lowered, tile_inputs(op, x, w, tile=tile), machine).reshape(-1, op.filters)
    assert np.array_equal(result, reference(op, x, w))
    return lowered


@pytest.mark.parametrize(
    ("op", "tile"),
    [
        (Convolution(height=5, width=8, channels=16, filters=8, kernel=(3, 3), pad=1), {"pixels": (1, 4), "filters": 4, "channels": 8}),
        (
            Convolution(height=5, width=8, channels=16, filters=8, kernel=(3, 3), pad=1, stride=2),
            {"pixels": (3, 4), "filters": 8, "window": (1, 3), "channels": 16},
        ),
        (
            Convolution(images=2, height=6, width=10, channels=8, filters=4, kernel=(3, 3), pad=1, dilation=2, zero_point=-3),
            {"pixels": (1, 4), "filters": 4, "window": (3, 3), "channels": 8},  # 8 columns, padded to 8 of 2 tiles
        ),
        (
            Convolution(height=3, width=8, channels=8, filters=4, kernel=(1, 3), corner=(0, -1), out=(3, 8)),
            {"pixels": (1, 8), "filters": 4, "channels": 8},
        ),
        (Convolution(height=4, width=4, channels=8, filters=4, stride=2), {"filters": 4, "channels": 8}),
        (
            Convolution(height=6, width=7, channels=3, filters=5, kernel=(3, 3), pad=1),
            {"pixels": (1, 4), "filters": 5, "window": (1, 3), "channels": 3},  # 7 columns, padded to 8
        ),
        (
            Convolution(height=7, width=7, channels=8, filters=8, kernel=(3, 3), corner=(2, 1), out=(3, 4)),
            {"pixels": (3, 4), "filters": 8, "channels": 8},  # windows begin inside of the image
        ),
        (
            Convolution(height=5, width=6, channels=8, filters=12, kernel=(3, 3), pad=1, groups=4),
            {"pixels": (1, 6), "filters": 3, "window": (1, 3), "channels": 2},
        ),
        (
            Convolution(height=5, width=6, channels=16, filters=16, kernel=(3, 3), pad=1, groups=2, stride=2),
            {"pixels": (3, 3), "filters": 4, "channels": 8},
        ),
    ],
)
def test_convolutions(op, tile):
    for core in ("output-stationary", "weight-stationary", "narrow"):
        machine = CORES[core]
        lowered = check(op, window_tile(machine, stride=op.stride, dilation=op.dilation, **tile), machine)
        assert ("a" in lowered.copied) == (min(op.first_window) < 0), core


DEPTHWISE = [
    Convolution(height=5, width=6, channels=4, filters=4, kernel=(3, 3), groups=4, pad=1),
    Convolution(height=9, width=9, channels=8, filters=8, kernel=(3, 3), groups=8, pad=1, stride=2),
    Convolution(height=7, width=8, channels=3, filters=3, kernel=(2, 3), groups=3),
    Convolution(images=2, height=6, width=8, channels=6, filters=6, kernel=(1, 3), groups=6, corner=(0, -1), out=(6, 8), zero_point=7),
]


@pytest.mark.parametrize("op", DEPTHWISE, ids=str)
def test_depthwise_in_vector_mode(op):
    """A tile is a strip of whole windows and a block of channels: one command."""
    columns = {6: 3, 5: 5, 8: 4}[op.out_width]
    for core in ("dot-product", "outer-product"):
        machine = make(core=core, rows=5 if columns == 5 else 4)
        tile = window_tile(machine, pixels=(1, columns), filters=min(4, op.channels), window=op.kernel, stride=op.stride, depthwise=True)
        assert check(op, tile, machine).problem.vector


@pytest.mark.parametrize("op", DEPTHWISE, ids=str)
def test_depthwise_on_cores_without_vector_mode(op):
    for core in ("output-stationary", "weight-stationary", "narrow"):
        for window in ((1, op.kernel[1]), op.kernel):
            tile = window_tile(CORES[core], pixels=(1, op.out_width), window=window, stride=op.stride, depthwise=True)
            assert not check(op, tile, CORES[core]).problem.vector


# tensors that hold their own border, as the module's copies do
STRIPS = Convolution(height=6, width=10, channels=8, filters=8, kernel=(3, 3), groups=8, corner=(0, 0), out=(4, 8))
GROUPED = Convolution(height=6, width=6, channels=16, filters=16, kernel=(3, 3), groups=2, corner=(0, 0), out=(4, 4))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("core", "op", "tile", "sizes"),
    [
        ("outer-product", STRIPS, {"pixels": (2, 4), "filters": 4, "window": (3, 3), "depthwise": True}, {"m": 2, "n": 1, "k": 1}),
        ("output-stationary", GROUPED, {"pixels": (2, 4), "filters": 8, "window": (1, 3), "channels": 8}, {"m": 2, "n": 2, "k": 3}),
    ],
)
def test_the_same_tiles_in_the_same_order_are_the_same_commands(order, core, op, tile, sizes):
    slots = {"a_slots": 2, "b_slots": 2, "c_slots": 2 if order.endswith("k") else 8, "lag": 1}
    machine = make(core=core, acc_kib=64)
    native = lower(Problem(machine=machine, op=op), Schedule(**sizes, order=order, **slots))
    lowered = check(op, window_tile(machine, **tile), machine, order=order, **slots)
    assert lowered.program.commands == native.commands
    assert lowered.program == native


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize(
    "operator",
    [
        from_te("DEP", (1, 5, 6, 5, 3, 1, 1)),
        from_te("DEP", (2, 8, 8, 8, 3, 2, 1)),
        from_te("T2D", (1, 4, 4, 3, 5, 4, 2, 1)),
        from_te("T2D", (2, 3, 4, 8, 12, 3, 2, 1)),
        from_te("T2D", (1, 3, 3, 4, 8, 3, 3, 0)),
        from_te("GRP", (1, 6, 6, 8, 12, 3, 2, 1, 1, 4)),
        from_te("CAP", (1, 3, 3, 4, 4, 3, 2, 1, 4)),
        from_te("TBG", (2, 5, 3, 7)),
        from_te("GMM", (2, 13, 6, 7)),
        from_te("C3D", (1, 4, 4, 4, 3, 4, 3, 2, 1)),
        from_te("NRM", (2, 5, 6)),
        parse("conv1d:2x12x1,6x4,s2,p2"),
    ],
    ids=str,
)
def test_operators(operator, core):
    machine = CORES[core]
    placement = place_on(operator, machine)
    schedules = Schedule(m=2, n=1, k=1), Schedule(m=3, n=2, k=2, order="nmk", c_slots=1, lag=0)
    found, mapping = lower_through_tvm(operator, placement, machine, schedules[list(CORES).index(core) % 2])
    assert mapping["route"] == "direct"
    inputs = operator.random_inputs(np.random.default_rng(0))
    assert np.array_equal(run(found, inputs, machine), operator.reference(inputs))
    assert found.program.macs == placement.macs


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize(
    "name", ["conv2d:1x1x2x3,3x1x1,s2", "conv2d:1x5x5x4,4x1x1,s5", "dep:1x3x1x1x1x3x0x1", "conv3d:1x2x2x2x3,3x1x1x1,s2"]
)
def test_one_output_pixel_of_a_larger_input(name, core):
    """A matrix product of a slice of the activations: they are no operand of it as they lie."""
    machine, operator = CORES[core], parse(name)
    placement, schedule = place_on(operator, machine), Schedule(m=1, n=1, k=2)
    assert placement.op.is_gemm
    assert placement.copies[0] > 1
    found, mapping = lower_through_tvm(operator, placement, machine, schedule)
    assert (mapping["route"], mapping["copied"]) == ("direct", [])
    inputs = operator.random_inputs(np.random.default_rng(0))
    assert np.array_equal(run(found, inputs, machine), operator.reference(inputs))
    assert found.program.commands == lower_operator(placement, machine, schedule).program.commands


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("name", ["conv2d:1x2x6x1,1x2x1", "conv1d:1x4x1,3x2,s3", "conv2d:1x4x2x1,1x3x1,s2", "conv3d:1x2x4x4x1,2x2x3x3"])
def test_one_channel_and_one_position_along_the_kernel(name, core):
    machine, operator = CORES[core], parse(name)
    found, mapping = lower_through_tvm(operator, place_on(operator, machine), machine, Schedule(m=1, n=1, k=1))
    assert mapping["route"] == "direct"
    inputs = operator.random_inputs(np.random.default_rng(0))
    assert np.array_equal(run(found, inputs, machine), operator.reference(inputs))


def test_a_transposed_convolution_has_the_turns_of_the_native_way():
    operator = from_te("T2D", (1, 4, 4, 8, 8, 4, 2, 1))
    placement = place_on(operator, MACHINE)
    assert [batch_of(placement).bounds(start) for start in batch_of(placement).corner] == [(-1, 0), (-1, 0)]
    found, _ = lower_through_tvm(operator, placement, MACHINE, Schedule(m=2, n=2, k=4))
    native = lower_operator(placement, MACHINE, Schedule(m=2, n=2, k=4))
    assert [command.op for command in found.program.commands] == [command.op for command in native.program.commands]


def test_products_that_fit_only_in_padded_parts_are_packed():
    operator = parse("gmm:2x5x6x2003")  # a prime number, longer than the scratchpad
    found, mapping = lower_through_tvm(operator, place_on(operator, MACHINE), MACHINE, Schedule(m=1, n=1, k=4))
    assert mapping["route"] == "layout"
    inputs = operator.random_inputs(np.random.default_rng(0))
    assert np.array_equal(run(found, inputs), operator.reference(inputs))


def test_one_convolution_is_no_batch():
    assert not batch_of(place_on(parse("conv2d:1x6x8x16,8x3x3,p1"), MACHINE)).extents
    assert batch_of(place_on(parse("conv3d:1x4x4x4x3,4x3x3x3,s2,p1"), MACHINE)).sums == {"rd": 3}


def random_case(rng):
    """A core, a convolution of 4 to 12 channels and filters per group, and a tile of it that may leave a part over."""
    machine = CORES[list(CORES)[int(rng.integers(len(CORES)))]]
    groups, channels, filters = int(rng.integers(1, 4)), 4 * int(rng.integers(1, 4)), 4 * int(rng.integers(1, 4))
    kernel, out = rng.integers(1, 4, 2).tolist(), rng.integers(1, 9, 2).tolist()
    stride, dilation = rng.integers(1, 3, 2).tolist()
    height, width = ((length - 1) * stride + (taps - 1) * dilation + 1 for length, taps in zip(out, kernel, strict=True))
    op = Convolution(
        images=int(rng.integers(1, 3)),
        height=height,
        width=width,
        channels=channels * groups,
        filters=filters * groups,
        kernel=tuple(kernel),
        stride=stride,
        dilation=dilation,
        corner=(0, -1),
        out=tuple(out),
        groups=groups,
    )
    pixels = (1, int(rng.integers(1, out[1] + 1))) if rng.integers(2) else (int(rng.integers(1, out[0] + 1)), out[1])
    window = (int(rng.choice([1, kernel[0]])), kernel[1])
    sizes = {"filters": int(rng.choice([4, filters])) if filters % 4 == 0 else filters, "channels": channels}
    return machine, op, window_tile(machine, pixels=pixels, window=window, stride=stride, dilation=dilation, **sizes)


@pytest.mark.parametrize("seed", range(4))
def test_random_tiles(seed):
    rng = np.random.default_rng(seed)
    for _ in range(5):
        machine, op, tile = random_case(rng)
        check(op, tile, machine, order=["mnk", "nmk"][int(rng.integers(2))], seed=seed)


# ---- modules that somebody wrote


def by_hand(tile, *, spread=False, steps=(1, 1)):
    """3x3 windows over 6 x 10 x 16 to 4 x 8 x 8 (or as ``steps`` say), tensorized tap by tap by a tile of a matrix product."""
    stride, dilation = steps
    a = te.placeholder((1, 3 * stride + 2 * dilation + 1, 7 * stride + 2 * dilation + 1, 16), "int8", name="A")
    b = te.placeholder((3, 3, 8, 16) if spread else (8, 3, 3, 16), "int8", name="B")
    rh, rw, rc = (te.reduce_axis((0, size), name=name) for name, size in (("rh", 3), ("rw", 3), ("rc", 16)))

    def value(n, h, w, co):
        pixel = a[n, h * stride + rh * dilation, w * stride + rw * dilation, rc].astype("int32")
        return te.sum(pixel * (b[rh, rw, co, rc] if spread else b[co, rh, rw, rc]).astype("int32"), axis=[rh, rw, rc])

    sch = TvmSchedule(te.create_prim_func([a, b, te.compute((1, 4, 8, 8), value, name="out")]), debug_mask="none")
    block = sch.get_sblock("out")
    n, h, w, co, rh, rw, rc = sch.get_loops(block)
    outer, inside = [], []
    for loop, size in ((w, tile[0]), (co, tile[1]), (rc, tile[2])):
        parts = sch.split(loop, [None, size])
        outer.append(parts[0])
        inside += parts[1:] if size > 1 else []
        outer += parts[1:] if size == 1 else []
    sch.reorder(n, h, *outer[:2], rh, rw, *outer[2:], *inside)
    sch.decompose_reduction(block, n)
    sch.tensorize(inside[0], tile_intrinsic(MACHINE, m=tile[0], n=tile[1], k=tile[2]))
    return sch


@pytest.mark.parametrize(
    ("tile", "options"),
    [((4, 8, 16), {"spread": True}), ((1, 8, 8), {"spread": True, "steps": (2, 1)}), ((1, 4, 16), {"spread": True, "steps": (1, 3)})],
)
def test_taps_as_matrix_products(tile, options):
    """The steps of the windows are found from the calls."""
    lowered = lower_module(by_hand(tile, **options), MACHINE)
    stride, dilation = options.get("steps", (1, 1))
    assert (lowered.problem.op.stride, lowered.problem.op.dilation) == (stride, dilation)
    x, w = operands(lowered.problem.op)
    taps = w.reshape(8, 3, 3, 16)
    given = [x, np.ascontiguousarray(taps.transpose(1, 2, 0, 3))] if options.get("spread") else [x, taps]
    assert np.array_equal(run(lowered, given).reshape(-1, 8), reference(lowered.problem.op, x, w))


def test_a_depthwise_operator_of_the_workloads_takes_the_intrinsic():
    """The operator's own function, without ours in between: its border and weights as they are."""
    operator = from_te("DEP", (1, 8, 8, 8, 3, 1, 1))
    sch = TvmSchedule(operator.prim_func(), debug_mask="none", error_render_level="none")
    block = next(block for block in sch.get_child_blocks(sch.get_sblock("root")) if "pad" not in sch.get(block).name_hint.lower())
    n, h, w, c, rh, rw = sch.get_loops(block)
    (h, y), (w, x), (c, z) = (sch.split(loop, [None, size]) for loop, size in ((h, 4), (w, 4), (c, 4)))
    sch.reorder(n, h, w, c, y, x, z, rh, rw)
    sch.decompose_reduction(block, n)
    sch.tensorize(y, window_intrinsic(VECTOR, pixels=(4, 4), filters=4, window=(3, 3), depthwise=True))
    lowered = lower_module(sch, VECTOR)
    inputs = operator.random_inputs(np.random.default_rng(0))
    assert np.array_equal(run(lowered, inputs, VECTOR), operator.reference(inputs))
    assert len([command for command in lowered.program.commands if command.op.name == "COMPUTE"]) == 8


# ---- refusals


def lowered_module(op, machine=MACHINE, **tile):
    steps = {"stride": op.stride, "dilation": op.dilation}
    return lower_module(tile_module(op, machine, tile=window_tile(machine, **steps, **tile)), machine)


PLAIN = Convolution(height=6, width=10, channels=16, filters=12, kernel=(3, 3))
CHANNELS = Convolution(height=6, width=10, channels=8, filters=8, kernel=(3, 3), groups=8)


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (
            lambda: lowered_module(PLAIN, pixels=(2, 4), filters=12, window=(3, 3), channels=16),
            r"^a tile of 2 x 4 pixels leaves out parts of its output rows of 8; allowed: whole rows, or parts of one$",
        ),
        (
            lambda: lowered_module(PLAIN, pixels=(1, 8), filters=3, window=(3, 3), channels=16),
            r"^tiles of 3 columns do not begin at beats of the port; allowed: multiples of 2$",
        ),
        (
            lambda: lowered_module(PLAIN, pixels=(1, 8), filters=12, window=(1, 1), channels=4),
            r"^a tile of 4 products begins at product 4; allowed: multiples of 8, or the whole of 144$",
        ),
        (lambda: lowered_module(PLAIN, filters=5, channels=16), r"^a tile of 5 filters does not divide 12; allowed: 1, 2, 3, 4, 6, 12$"),
        (lambda: lowered_module(PLAIN, filters=12, window=(2, 3)), r"^a tile of 2 kernel rows does not divide 3; allowed: 1, 3$"),
        (
            lambda: lower_module(tile_module(PLAIN, MACHINE, tile=window_tile(MACHINE, stride=2)), MACHINE),
            r"^a tile of stride 2 and dilation 1 is none of stride 1 and dilation 1; allowed: those of the convolution$",
        ),
        (lambda: lowered_module(CHANNELS, channels=1), r"^tiles of depthwise convolutions are depthwise, those of others are not$"),
        (
            lambda: lowered_module(CHANNELS, VECTOR, pixels=(1, 4), filters=4, window=(1, 3), depthwise=True),
            r"^a depthwise tile of 3 products is a part of a window of 9; allowed: all of it$",
        ),
        (
            lambda: lowered_module(CHANNELS, VECTOR, pixels=(1, 8), filters=4, window=(3, 3), depthwise=True),
            r"^a depthwise tile of 1 x 8 pixels is no strip; allowed: at most 4 x 4$",
        ),
        (
            lambda: lowered_module(CHANNELS, VECTOR, pixels=(1, 4), filters=2, window=(3, 3), depthwise=True),
            r"^depthwise tiles of 2 channels do not begin at blocks of columns; allowed: 4, or all 8 if fewer$",
        ),
        (
            lambda: lowered_module(CHANNELS, pixels=(1, 8), filters=4, window=(3, 3), depthwise=True),
            r"^a depthwise tile of 4 channels needs the vector mode, which the design does not have here; allowed: 1$",
        ),
    ],
)
def test_what_no_command_expresses_is_refused(make_it, message):
    with pytest.raises(ScheduleError, match=message):
        make_it()


def test_the_obstacle_is_that_of_the_convolution():
    """Not that of the way that was tried last, which depthwise convolutions never have."""
    machine = make(core="dot-product", lanes=2)
    operator = from_te("DEP", (2, 8, 9, 8, 3, 1, 1))
    with pytest.raises(ScheduleError, match=r"^vector mode takes several images only if their width is a multiple of 4 rows, not 9$"):
        lower_through_tvm(operator, place_on(operator, machine), machine, Schedule(m=1, n=1, k=1))


def test_rows_are_halved_where_the_nearest_tile_is_too_large():
    """27 filters are no whole blocks of 2, so that TVM's tile has all of them: with 25 rows it does not fit."""
    machine = make(core="dot-product", rows=2, cols=2, port_bytes=4, spad_kib=8, acc_kib=4)
    operator = from_te("T2D", (2, 5, 5, 1, 3, 3, 3, 0))
    placement, schedule = place_on(operator, machine), Schedule(m=13, n=2, k=1, order="nmk")
    found, mapping = lower_through_tvm(operator, placement, machine, schedule)
    assert mapping["tile"] == [5, 27, 1]
    assert found.schedule.m < schedule.m
    inputs = operator.random_inputs(np.random.default_rng(0))
    assert np.array_equal(run(found, inputs, machine), operator.reference(inputs))


def test_the_native_way_is_named_only_where_it_is_open():
    operator = parse("conv2d:1x5x1x1,5x2x1,s3,p1")
    placement = place_on(operator, MACHINE)
    with pytest.raises(ScheduleError, match=r"does not perform the route layout; the native way, without TVM, takes it$"):
        lower_through_tvm(operator, placement, MACHINE, Schedule(m=1, n=1, k=1))
    lower_operator(placement, MACHINE, Schedule(m=1, n=1, k=1))
    closed = Schedule(m=1, n=1, k=1, c_slots=1 << 16)
    with pytest.raises(ScheduleError, match=r"does not perform the route layout$"):
        lower_through_tvm(operator, placement, MACHINE, closed)
    with pytest.raises(ScheduleError):
        lower_operator(placement, MACHINE, closed)


def test_zero_points_are_not_corrected():
    operator = parse("conv2d:1x6x8x16,8x3x3,p1")
    placement = place_on(operator, MACHINE)
    shifted = replace(placement.einsum, a=replace(placement.einsum.a, zero_point=3))
    with pytest.raises(MappingError, match=r"has a zero point, which no module through TVM corrects; allowed: the native way$"):
        lower_through_tvm(operator, replace(placement, einsum=shifted), MACHINE, Schedule(m=1, n=1, k=1))


# ---- the checks can fail


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.pop(3), r"^the module makes 7 tile calls, 7 of them different, where 8 products of tiles make the whole$"),
        (lambda rows: rows[3].__setitem__(0, rows[3][0] + 8), r"^tile call 3 \(.*\) does not belong to a convolution of its tensors$"),
        (lambda rows: rows[3].__setitem__(4, rows[3][4] + 1), r"^tile call 3 \(.*\) does not belong to a convolution"),
        (lambda rows: rows[3].__setitem__(8, rows[3][8] + 1), r"^tile call 3 \(.*\) does not belong to a convolution"),
        (lambda rows: [row.__setitem__(2, 16) for row in rows], r"^rows of a tile lie 16 elements apart in operand a \(A\); allowed: 8, "),
        (lambda rows: [row.__setitem__(0, row[0] + 8 * 12) for row in rows], r"^tile call 0 \(.*\) does not belong to a convolution"),
    ],
)
def test_a_broken_recorder_is_caught(monkeypatch, change, message):
    broken_recorder(monkeypatch, change)
    tile = window_tile(VECTOR, pixels=(2, 4), filters=4, window=(3, 3), depthwise=True)
    with pytest.raises(ScheduleError, match=message):
        check(STRIPS, tile, VECTOR)


def test_a_wrong_group_would_show_in_the_result(monkeypatch):
    monkeypatch.setattr(from_tvm, "_group", lambda problem, tile: 0)
    with pytest.raises(AssertionError):
        check(STRIPS, window_tile(VECTOR, pixels=(2, 4), filters=4, window=(3, 3), depthwise=True), VECTOR)
    with pytest.raises(AssertionError):
        check(GROUPED, window_tile(MACHINE, pixels=(2, 4), filters=8, window=(1, 3), channels=8))


def test_a_wrong_corner_would_show_in_the_result(monkeypatch):
    right = tile_layout._turns

    def wrong(*arguments):
        turns, turn, same = right(*arguments)
        return tuple(replace(turn, corner=turns[0].corner) for turn in turns), turn, same

    monkeypatch.setattr(tile_layout, "_turns", wrong)
    operator = from_te("T2D", (1, 4, 4, 8, 8, 4, 2, 1))
    found, _ = lower_through_tvm(operator, place_on(operator, MACHINE), MACHINE, Schedule(m=2, n=2, k=4))
    inputs = operator.random_inputs(np.random.default_rng(0))
    assert not np.array_equal(run(found, inputs), operator.reference(inputs))


def test_a_wrong_slice_would_show_in_the_result(monkeypatch):
    operator = parse("conv2d:1x5x5x4,4x1x1,s5")
    right = through_tvm.batch_of

    def next_slice(placement):
        batch = right(placement)
        (size, index), *rest = batch.slices
        return replace(batch, slices=((size, index + 1), *rest))

    monkeypatch.setattr(through_tvm, "batch_of", next_slice)
    found, _ = lower_through_tvm(operator, place_on(operator, MACHINE), MACHINE, Schedule(m=1, n=1, k=1))
    inputs = operator.random_inputs(np.random.default_rng(0))
    assert not np.array_equal(run(found, inputs), operator.reference(inputs))
