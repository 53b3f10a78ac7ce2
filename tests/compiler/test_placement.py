"""From the mapper's einsum to one program: every kind of operator, bit for bit, or the reason why not."""

from dataclasses import replace

import numpy as np
import pytest
from tvm import te, topi
from tvm.tirx import const

from celosia.compiler.accelerator.convolution import MAX_ROWS, Convolution, gemm
from celosia.compiler.accelerator.operator_program import lower_operator, place_on, problem_of
from celosia.compiler.accelerator.operators import PLAIN_KINDS, convolution_of, einsum_of, placement_of
from celosia.compiler.accelerator.placement import Placement, place
from celosia.compiler.accelerator.schedule import Schedule
from celosia.compiler.einsum_parse import parse as parse_function
from celosia.compiler.operators import from_te, parse
from celosia.compiler.reasons import Reason, Rejected
from celosia.compiler.tasks import task
from celosia.compiler.workloads import workload
from celosia.hw import DesignPoint
from celosia.hw.accelerator.machine import machine_of
from celosia.intrinsics import MappingError, ParameterError, ScheduleError
from celosia.intrinsics.accelerator import Op
from celosia.intrinsics.accelerator.functional import execute

from . import einsum_model

OPERATORS = [
    parse("conv1d:3x16x4,8x3,s2,p1"),
    parse("conv2d:1x9x8x6,5x3x3,s2,p1"),
    parse("conv2d:2x5x6x3,5x1x1"),
    parse("conv2d:1x9x8x6,5x1x1,s2"),
    parse("conv2d:1x7x8x6,5x3x1"),
    parse("conv2d:1x3x3x8,5x3x3"),
    parse("conv2d:1x7x6x1,5x3x3,p1"),
    parse("conv3d:1x4x6x6x3,4x3x3x3,s2,p1"),
    from_te("GRP", (1, 8, 8, 8, 12, 3, 2, 1, 1, 4)),
    from_te("DEP", (1, 5, 6, 5, 3, 1, 1)),
    from_te("DIL", (1, 9, 9, 3, 4, 3, 1, 1, 2)),
    from_te("CAP", (1, 4, 4, 4, 4, 3, 2, 1, 4)),
    from_te("T2D", (2, 5, 4, 3, 5, 3, 2, 1)),
    from_te("T2D", (1, 4, 4, 3, 5, 4, 2, 1)),
    from_te("T2D", (2, 3, 2, 2, 4, 4, 3, 0)),
    parse("conv3d:2x4x1x2x3,1x1x1x1,s3,p1"),
    parse("conv2d:1x2x6x1,1x2x1"),  # one channel, one output row: the products lie first, and last
    parse("conv1d:1x4x1,3x2,s3"),
    parse("conv2d:1x4x2x1,1x3x1,s2"),
    parse("conv3d:1x2x4x4x1,2x2x3x3"),
    from_te("DEP", (1, 3, 3, 5, 3, 1, 0)),
    from_te("GMM", (2, 5, 6, 7)),
    from_te("TBG", (2, 5, 3, 7)),
    from_te("NRM", (2, 5, 6)),
]
MACHINES = [{"core": "output-stationary"}, {"core": "weight-stationary"}, {"core": "dot-product", "lanes": 4}, {"rows": 3, "cols": 5}]


def make(**parameters):
    return machine_of(
        DesignPoint.create("accelerator", **{"rows": 4, "cols": 4, "spad_kib": 4, "acc_kib": 4, "port_bytes": 8, **parameters})
    )


def small_schedules(problem):
    for order, size in (("mnk", 1), ("nmk", 2), ("mkn", 1)):
        sizes = {"m": min(size, problem.max_m), "n": min(size, problem.max_n), "k": min(size, problem.k_chunks)}
        yield Schedule(**sizes, order=order, c_slots=2 if order.endswith("k") else len(problem.n_tiles(1)))


def run(lowered, machine, inputs):
    return lowered.run(inputs, lambda program, memory: execute(machine, program, memory))


@pytest.mark.parametrize("number", range(len(MACHINES)))
def test_every_kind_of_operator_is_one_program(number):
    machine = make(**MACHINES[number])
    for position, operator in enumerate(OPERATORS):
        placement = place_on(operator, machine)
        inputs = operator.random_inputs(np.random.default_rng(1))
        schedule = list(small_schedules(problem_of(placement, machine)))[(number + position) % 3]
        got = run(lower_operator(placement, machine, schedule), machine, inputs)
        assert np.array_equal(got, operator.reference(inputs)), (operator.name, schedule)


def test_every_operator_of_the_workload_has_a_place():
    for operator in workload("operators"):
        placement = placement_of(operator)
        assert isinstance(placement, Placement), operator.name
        if operator.kind not in ("T2D", "C3D"):
            assert placement.macs == operator.macs
        assert placement.macs <= operator.macs


def test_the_form_of_an_operator_says_what_its_function_says():
    for operator in OPERATORS:
        if operator.kind in PLAIN_KINDS:
            ours, theirs = place(einsum_of(operator)), place(task(operator).parsed.einsum)
            assert (ours.op, ours.sums, ours.copies) == (theirs.op, theirs.sums, theirs.copies)
            assert ours.movement == theirs.movement


def test_what_is_known_of_a_placement():
    placement = placement_of("conv3d:1x4x6x6x3,4x3x3x3,s2,p1")
    assert placement.op == Convolution(height=6, width=6, channels=3, filters=4, kernel=(3, 3), stride=2, pad=1)
    assert [[turn.a for turn in summed] for summed in placement.sums] == [[0, 1], [1, 2, 3]]
    assert placement.copies == (4, 3, 2)
    assert placement.movement == {"activations": "in place", "weights": "packed at compile time", "output": "in place"}
    assert placement_of(from_te("T2D", (1, 4, 4, 3, 5, 4, 2, 1))).movement["output"] == "scattered"
    assert placement_of(from_te("TBG", (2, 5, 3, 7))).movement["weights"] == "rows copied"
    assert placement_of("gemm:5x6x7").op == gemm(5, 6, 7)
    assert gemm(MAX_ROWS + 1, 6, 7).height == (MAX_ROWS + 1) // 2
    with pytest.raises(MappingError, match=r"is 5 convolutions; allowed: an operator that is one"):
        convolution_of("conv3d:1x4x6x6x3,4x3x3x3,s2,p1")


# ---- functions of one's own


def function(a_shape, b_shape, c_shape, reductions, body, *, a="int8", b="int8", pad=None):
    """A PrimFunc of a sum; ``body(A, B, output indices, reduction axes)`` gives the factors."""
    x, y = te.placeholder(a_shape, a, name="A"), te.placeholder(b_shape, b, name="B")
    padded = x if pad is None else topi.nn.pad(x, *pad)
    axes = [te.reduce_axis((0, extent), name=name) for name, extent in reductions.items()]

    def value(*at):
        left, right = body(padded, y, at, axes)
        return te.sum(left.astype("int32") * right.astype("int32"), axis=axes)

    return te.create_prim_func([x, y, te.compute(c_shape, value, name="out")])


def conv(*, stride=(1, 1), dilation=(1, 1), before=(1, 1), after=(1, 1), fill=0, size=(7, 8), channels=4, filters=5, wide=lambda v: v):
    sides = [(low + extent + high) for low, extent, high in zip(before, size, after, strict=True)]
    out = tuple((side - d * 2 - 1) // s + 1 for side, d, s in zip(sides, dilation, stride, strict=True))

    def body(x, w, at, taps):
        (n, h, v, co), (r, c, k) = at, taps
        return wide(x(n, h * stride[0] + r * dilation[0], v * stride[1] + c * dilation[1], k)), w(r, c, k, co)

    pad = ([0, *before, 0], [0, *after, 0], const(fill, "int8"))
    shapes = (1, *size, channels), (3, 3, channels, filters), (1, *out, filters)
    return function(*shapes, {"r": 3, "c": 3, "k": channels}, body, pad=pad)


def matmul(a="mk", b="nk", shapes=(6, 5, 9), *, left=lambda v: v, right=lambda v: v, **types):
    sizes = dict(zip("mnk", shapes, strict=True))

    def body(x, y, at, taps):
        where = {"m": at[0], "n": at[1], "k": taps[0]}
        return left(x(*(where[axis] for axis in a))), right(y(*(where[axis] for axis in b)))

    dims = [tuple(sizes[axis] for axis in spec) for spec in (a, b, "mn")]
    return function(*dims, {"k": sizes["k"]}, body, **types)


ACCEPTED = {
    "rows and columns of different strides": conv(stride=(2, 1)),
    "rows and columns of different dilation": conv(dilation=(1, 2), before=(2, 2), after=(2, 2)),
    "a border on two sides": conv(before=(0, 2), after=(1, 0)),
    "a border of another value": conv(fill=-7),
    "no border": conv(before=(0, 0), after=(0, 0)),
    "a border that is a zero point": conv(fill=-7, wide=lambda v: v.astype("int32") + 7),
    "weights [k, n]": matmul(b="kn"),
    "a zero point of the activations": matmul(left=lambda v: v.astype("int32") - 3),
    "transposed output": function((6, 9), (5, 9), (5, 6), {"k": 9}, lambda x, y, at, k: (x(at[1], k[0]), y(at[0], k[0]))),
    "two batch dimensions": function(
        (2, 3, 4, 9), (2, 3, 5, 9), (2, 3, 4, 5), {"k": 9}, lambda x, y, at, k: (x(*at[:3], k[0]), y(*at[:2], at[3], k[0]))
    ),
    "a matrix times a vector": function((6, 9), (9,), (6,), {"k": 9}, lambda x, y, at, k: (x(at[0], k[0]), y(k[0]))),
    "a channel multiplier": function(
        (1, 5, 5, 4),
        (3, 3, 8),
        (1, 3, 3, 8),
        {"r": 3, "c": 3},
        lambda x, w, at, taps: (x(at[0], at[1] + taps[0], at[2] + taps[1], at[3] // 2), w(*taps, at[3])),
    ),
    "a walk backwards": function((9, 4), (5, 4), (6, 5), {"k": 4}, lambda x, y, at, k: (x(8 - at[0], k[0]), y(at[1], k[0]))),
    "two dimensions of products": function(
        (6, 3, 4), (5, 3, 4), (6, 5), {"r": 3, "k": 4}, lambda x, y, at, taps: (x(at[0], *taps), y(at[1], *taps))
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_functions_of_all_kinds_become_programs(name):
    machine = make()
    einsum = parse_function(ACCEPTED[name], name="function").einsum
    lowered = lower_operator(ACCEPTED[name], machine, Schedule(m=1, n=1, k=1))
    rng = np.random.default_rng(3)
    operands = {access.tensor: rng.integers(-128, 128, access.shape).astype(np.int8) for access in (einsum.a, einsum.b)}
    got = run(lowered, machine, [operands["A"], operands["B"]])
    want = einsum_model.evaluate(einsum, operands[einsum.a.tensor], operands[einsum.b.tensor])
    assert np.array_equal(got, want.astype(np.int32))


def test_weights_in_front_change_places():
    func = function((5, 9), (6, 9), (6, 5), {"k": 9}, lambda w, x, at, k: (w(at[1], k[0]), x(at[0], k[0])))
    einsum = parse_function(func, constants=(0,)).einsum
    placement = place(einsum)
    assert placement.swapped
    rng = np.random.default_rng(0)
    w, x = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((5, 9), (6, 9)))
    machine = make()
    got = run(lower_operator(placement, machine, Schedule(m=1, n=1, k=1)), machine, [w, x])
    assert np.array_equal(got, x.astype(np.int32) @ w.T.astype(np.int32))


REFUSED = {
    "transposed activations": (matmul(a="km"), Reason.LAYOUT, "reduction k is not the last dimension of operand A"),
    "channels first": (
        function(
            (1, 4, 6, 6),
            (5, 4, 3, 3),
            (1, 5, 4, 4),
            {"k": 4, "r": 3, "c": 3},
            lambda x, w, at, t: (x(at[0], t[0], at[2] + t[1], at[3] + t[2]), w(at[1], *t)),
        ),
        Reason.LAYOUT,
        "reduction k is not the last dimension of operand A",
    ),
    "a zero point of the weights": (matmul(right=lambda v: v.astype("int32") - 3), Reason.OPERAND_EXPRESSION, "has the zero point 3"),
    "a triangle": (
        function(
            (6, 6),
            (5, 6),
            (6, 5),
            {"k": 6},
            lambda x, y, at, k: (te.if_then_else(k[0] <= at[0], x(at[0], k[0]), const(0, "int8")), y(at[1], k[0])),
        ),
        Reason.GUARDED,
        "which is no border of the tensor",
    ),
    "a diagonal": (
        function((9, 9), (5, 9), (6, 5), {"k": 4}, lambda x, y, at, k: (x(at[0], at[0] + k[0]), y(at[1], k[0]))),
        Reason.NON_AFFINE,
        "moves along two dimensions",
    ),
    "a maximum": (
        (lambda x, k: te.create_prim_func([x, te.compute((6,), lambda m: te.max(x[m, k], axis=k), name="out")]))(
            te.placeholder((6, 9), "int8", name="A"), te.reduce_axis((0, 9), name="k")
        ),
        Reason.NOT_SUM,
        "combines by max",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_place_says_why(name):
    func, reason, detail = REFUSED[name]
    answer = place_on(func, make())
    assert isinstance(answer, Rejected)
    assert answer.reason is reason, answer
    assert detail in answer.detail
    with pytest.raises(MappingError):
        lower_operator(func, make(), Schedule(m=1, n=1, k=1))


@pytest.mark.parametrize("name", ["a triangle", "a diagonal"])
def test_what_a_copy_would_change_says_so(name):
    answer = place_on(REFUSED[name][0], make())
    assert answer.change == "copy operand A into the order in which it is read, 0 where it is not, at the price of one more pass"
    assert isinstance(place_on(matmul(), make()), Placement)  # what the copy is read as


def test_a_copy_with_the_inserted_zeros_is_the_nearest_change_of_a_sparse_transposed_convolution():
    sparse, copied = from_te("T2D", (2, 2, 3, 2, 6, 1, 2, 0)), parse("conv2d:2x3x5x2,6x1x1")
    answer = place_on(sparse, make())
    assert (answer.reason, answer.change[:14]) == (Reason.NON_AFFINE, "copy operand A")
    x, w = sparse.random_inputs(np.random.default_rng(0))
    spread = np.zeros((2, 3, 5, 2), x.dtype)
    spread[:, ::2, ::2] = x
    machine = make()
    got = run(lower_operator(copied, machine, Schedule(m=1, n=1, k=1)), machine, [spread, w])
    assert np.array_equal(got.reshape(-1), sparse.reference([x, w]).reshape(-1))


def test_activations_as_weights_must_lie_right():
    einsum = parse_function(matmul(b="kn"), constants=()).einsum
    answer = place(einsum)
    assert isinstance(answer, Rejected)
    assert answer.reason is Reason.LAYOUT
    assert answer.detail == "the reduction k is not the last dimension of operand B, which is no constant"


def test_types_and_machines_must_agree():
    answer = place_on(matmul(a="mk"), make(a="uint8"))
    assert answer.reason is Reason.TOO_WIDE
    assert answer.detail == "operand A is int8, which uint8 of the design does not hold"
    assert place_on(parse("gemm:5x6x7").typed(a="int4"), make(a="int16")).reason is Reason.OPERAND_DTYPE
    assert place_on(parse("gemm:5x6x7"), make(acc="int18", overflow="wrap")).reason is Reason.ACCUMULATOR
    shifted = matmul(left=lambda v: v.astype("int32") - 3)
    answer = place_on(shifted, make(channel_words=0))
    assert answer.reason is Reason.OPERAND_EXPRESSION
    assert answer.change == "a design with channel_words above 0"


@pytest.mark.parametrize("size", [(1, 5), (5, 1)])
@pytest.mark.parametrize("steps", [(4, 4, 1), (4, 5, 1), (3, 2, 0)])
def test_transposed_convolutions_of_one_row_keep_their_corners(size, steps):
    """Their phases read neighbours, so their pixels are no column."""
    operator = from_te("T2D", (1, *size, 3, 4, *steps))
    inputs = operator.random_inputs(np.random.default_rng(0))
    lowered = lower_operator(operator, make(), Schedule(m=1, n=1, k=1))
    assert np.array_equal(run(lowered, make(), inputs), operator.reference(inputs))


def test_sums_over_turns_may_need_k_inside():
    operator = parse("conv3d:1x4x6x6x3,4x3x3x3,s2,p1")
    with pytest.raises(ScheduleError, match="too few slots for its unfinished output tiles"):
        lower_operator(operator, make(), Schedule(m=1, n=1, k=3, order="kmn"))


def test_a_turn_left_out_or_displaced_is_noticed():
    """The checks above must be able to fail."""
    machine, operator = make(), parse("conv3d:1x4x6x6x3,4x3x3x3,s2,p1")
    inputs = operator.random_inputs(np.random.default_rng(1))
    placement, schedule = place_on(operator, machine), Schedule(m=1, n=1, k=1)
    want = operator.reference(inputs)
    broken = [
        replace(placement, sums=(placement.sums[0], placement.sums[1][1:])),
        replace(placement, sums=tuple(tuple(replace(turn, b=0) for turn in summed) for summed in placement.sums)),
        replace(placement, op=replace(placement.op, pad=0, corner=(-1, 0), out=(3, 3))),
    ]
    for wrong in broken:
        assert not np.array_equal(run(lower_operator(wrong, machine, schedule), machine, inputs), want)
    lowered = lower_operator(placement, machine, schedule)
    index = next(number for number, command in enumerate(lowered.program.commands) if command.op is Op.COMPUTE)
    commands = lowered.program.commands
    dropped = replace(lowered, program=replace(lowered.program, commands=commands[:index] + commands[index + 1 :]))
    with pytest.raises(ParameterError, match=r"^command \d+ \(STORE\) waits for COMPUTE \d+, of \d+ before it"):
        run(dropped, machine, inputs)
