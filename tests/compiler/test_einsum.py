"""The einsum front end: index algebra, reading PrimFuncs, and rewrites that leave the result unchanged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from celosia.compiler.einsum import Access, Guard, Index, Quotient, merge_guards, quotient
from celosia.compiler.einsum_parse import Parsed, parse
from celosia.compiler.einsum_transform import diagonals, fit, joined_rows, split_phases
from celosia.compiler.operators import from_te
from celosia.compiler.reasons import Reason, Rejected
from celosia.compiler.tasks import task
from celosia.intrinsics import DType

from .einsum_model import evaluate, value
from .fixtures.small_operators import small_tasks

TASKS = small_tasks()
EXTENTS = {"i": 5, "j": 7, "k": 3}


def einsum_of(name):
    return TASKS[name].parsed.einsum


# ---- index algebra

terms = st.dictionaries(st.sampled_from("ijk"), st.integers(-9, 9), max_size=3)
indices = st.builds(lambda parts, const: Index.of(parts, const), terms, st.integers(-20, 20))


def points():
    return [{"i": i, "j": j, "k": k} for i in range(5) for j in range(7) for k in range(3)]


@settings(deadline=None, derandomize=True, max_examples=150)
@given(indices, st.integers(1, 8), st.integers(0, 6), indices)
def test_quotient_is_simplified_without_changing_its_value(index, divisor, modulus, other):
    simple = quotient(index, divisor, modulus, EXTENTS) + other
    plain = Index(((Quotient(index, divisor, modulus), 1),)) + other
    low, high = simple.bounds(EXTENTS)
    for at in points():
        assert value(simple, at) == value(plain, at)
        assert low <= value(simple, at) <= high


@settings(deadline=None, derandomize=True, max_examples=50)
@given(indices, indices, st.integers(1, 4))
def test_substitution_is_evaluation(index, inner, divisor):
    outer = quotient(index, divisor, 0, EXTENTS)
    replaced = outer.substitute({"i": inner}, EXTENTS)
    whole = Index(((Quotient(index, divisor), 1),))
    for at in points()[::7]:
        assert value(replaced, at) == value(whole, {**at, "i": value(inner, at)})


@settings(deadline=None, derandomize=True, max_examples=50)
@given(
    st.lists(
        st.builds(lambda index, low, size: Guard(index, low, low + size), indices, st.integers(-20, 20), st.integers(0, 20)), max_size=4
    )
)
def test_merged_guards_say_the_same(guards):
    merged = merge_guards(guards, EXTENTS)
    for at in points()[::5]:
        assert all(g.low <= value(g.index, at) < g.high for g in merged) == all(g.low <= value(g.index, at) < g.high for g in guards)


# ---- reading


def test_convolution_is_read_with_its_padding_inlined():
    einsum = einsum_of("C2D")
    assert einsum.extents == {"h": 5, "w": 5, "co": 32, "rh": 3, "rw": 3, "rc": 16}
    assert [str(index) for index in einsum.a.index] == ["0", "2*h + rh + -1", "2*w + rw + -1", "rc"]
    assert [str(guard) for guard in einsum.a.guards] == ["1 <= 2*h + rh < 11", "1 <= 2*w + rw < 11"]
    assert einsum.roles == {"h": "ac", "w": "ac", "co": "bc", "rh": "ab", "rw": "ab", "rc": "ab"}
    assert (einsum.a.constant, einsum.b.constant) == (False, True)


def test_groups_are_split_where_the_function_divides():
    einsum = einsum_of("GRP")
    assert einsum.extents == {"h": 8, "w": 8, "co_o": 4, "co_i": 16, "rh": 3, "rw": 3, "rc": 8}
    assert einsum.roles["co_o"] == "abc"
    assert einsum.roles["co_i"] == "bc"


@pytest.mark.parametrize(("name", "zero_points"), [("dense_zp", (3, -5)), ("dense_zp_pre", (3, 0))])
def test_zero_points_are_carried_as_algebra(name, zero_points):
    einsum = einsum_of(name)
    assert (einsum.a.zero_point, einsum.b.zero_point) == zero_points
    assert (einsum.a.dtype, einsum.b.dtype) == (DType(8), DType(8))


def test_transposes_are_read_through():
    einsum = einsum_of("TBG")
    assert (einsum.a.tensor, einsum.b.tensor) == ("A", "B")
    assert [str(index) for index in einsum.a.index] == ["0", "m", "h", "k"]


SMALL = {"C1D": "conv1d:1x7x3,4x3,s2,p1", "C2D": "conv2d:1x5x5x2,3x3x3,p1", "GRP": "conv2d:1x4x4x4,6x2x2,g2", "T2D": "t2d:1x3x3x2x2x4x2x1"}
PHASES = {"T2D k3 s2": (1, 3, 3, 2, 2, 3, 2, 1), "T2D k5 s3": (1, 2, 2, 1, 2, 5, 3, 1), "T2D k2 s4": (1, 2, 2, 2, 1, 2, 4, 0)}


def small(text):
    found = task(text)
    assert isinstance(found.parsed, Parsed)
    inputs = found.operator.random_inputs(np.random.default_rng(3))
    return found.parsed.einsum, inputs, found.operator.reference(inputs)


@pytest.mark.parametrize("text", SMALL.values(), ids=SMALL)
def test_einsum_computes_what_the_operator_does(text):
    einsum, inputs, want = small(text)
    assert np.array_equal(evaluate(einsum, *inputs), want)


# ---- rewrites


@pytest.mark.parametrize("arguments", PHASES.values(), ids=PHASES)
def test_phases_drop_inserted_zeros_only(arguments):
    found = task(from_te("T2D", arguments))
    inputs = found.operator.random_inputs(np.random.default_rng(4))
    einsum = found.parsed.einsum
    phased = split_phases(einsum)
    assert phased.macs < einsum.macs / 2
    assert not any(guard.index.quotients for guard in phased.a.guards if "h" in guard.index.axes)
    assert np.array_equal(evaluate(phased, *inputs), found.operator.reference(inputs))


def test_joined_rows_compute_the_same():
    einsum, inputs, want = small("conv2d:1x4x5x2,2x3x3,p1")
    joined = list(joined_rows(einsum))
    assert len(joined) == 1
    assert joined[0].extents["h_w"] == 3 * 7 + 5
    assert np.array_equal(evaluate(joined[0], *inputs), want)


def test_strided_rows_are_not_joined():
    assert list(joined_rows(einsum_of("C2D"))) == []


def test_diagonal_computes_the_same():
    found = task("dep:1x3x3x4x3x1x1")
    inputs = found.operator.random_inputs(np.random.default_rng(5))
    forms = list(diagonals(found.parsed.einsum, {2, 4}))
    assert len(forms) == 2
    for form in forms:
        assert np.array_equal(evaluate(form, *inputs), found.operator.reference(inputs))


@pytest.mark.parametrize(
    ("have", "want", "shift"),
    [
        ("uint8", "int8", -128),
        ("int8", "uint8", 128),
        ("int8", "int16", 0),
        ("uint8", "int16", 0),
        ("int4", "int8", 0),
        ("uint4", "int8", 0),
    ],
)
def test_types_are_fitted_by_half_the_range(have, want, shift):
    access = fit(Access(tensor="A", shape=(2,), dtype=DType.of(have), index=(Index.axis("i"),)), DType.of(want))
    assert access is not None
    assert access.shift == shift
    assert DType.of(want).min <= DType.of(have).min + shift
    assert DType.of(have).max + shift <= DType.of(want).max


@pytest.mark.parametrize(("have", "want"), [("int16", "int8"), ("uint8", "int4"), ("uint16", "int8")])
def test_too_wide_data_does_not_fit(have, want):
    access = Access(tensor="A", shape=(2,), dtype=DType.of(have), index=(Index.axis("i"),))
    assert fit(access, DType.of(want)) is None


# ---- reasons


def _function(body, *, a="int8", shape=(4, 4), out=(4,)):
    from tvm import te

    x = te.placeholder(shape, a, name="A")
    y = te.placeholder(shape, a, name="B")
    k = te.reduce_axis((0, shape[1]), "k")
    return te.create_prim_func([x, y, te.compute(out, lambda i: body(x, y, i, k), name="C")])


def _maximum(x, y, i, k):
    from tvm import te

    return te.max(x[i, k], axis=k)


def _first(x, y, i, k):
    return x[i, 0]


def _total(x, y, i, k):
    from tvm import te

    return te.sum(x[i, k].astype("int32"), axis=k)


def _gather(x, y, i, k):
    from tvm import te

    return te.sum(x[i, (i * k) % 4].astype("int32") * y[i, k].astype("int32"), axis=k)


def _square(x, y, i, k):
    from tvm import te

    return te.sum((x[i, k] * x[i, k]).astype("int32") * y[i, k].astype("int32"), axis=k)


@pytest.mark.parametrize(
    ("body", "options", "reason", "words"),
    [
        (_maximum, {}, Reason.NOT_SUM, "block C combines by max over k, not by a sum"),
        (_total, {}, Reason.NOT_PRODUCT, "block C sums values over k that are no product of two operands"),
        (_gather, {}, Reason.NON_AFFINE, "is not affine in i, k"),
        (_square, {}, Reason.OPERAND_EXPRESSION, "is no tensor element with casts"),
        (_first, {}, Reason.NO_REDUCTION, "no block of the function sums anything up"),
    ],
    ids=["max", "no product", "non-affine", "product inside", "no sum"],
)
def test_what_is_no_einsum_is_rejected_with_its_reason(body, options, reason, words):
    answer = parse(_function(body, **options))
    assert isinstance(answer, Rejected)
    assert answer.reason is reason
    assert words in answer.detail
    assert answer.change


def test_floating_point_is_rejected():
    from tvm import te

    x, y = te.placeholder((4, 4), "float32", name="A"), te.placeholder((4, 4), "float32", name="B")
    k = te.reduce_axis((0, 4), "k")
    answer = parse(te.create_prim_func([x, y, te.compute((4, 4), lambda i, j: te.sum(x[i, k] * y[j, k], axis=k), name="C")]))
    assert isinstance(answer, Rejected)
    assert (answer.reason, answer.detail) == (Reason.OPERAND_DTYPE, "float32 data is not integer, which instructions compute with")


def test_dynamic_shapes_are_rejected():
    import tvm
    from tvm import te

    n = tvm.tirx.Var("n", "int32")
    x, y = te.placeholder((n, 4), "int8", name="A"), te.placeholder((4, 4), "int8", name="B")
    k = te.reduce_axis((0, 4), "k")

    def body(i, j):
        return te.sum(x[i, k].astype("int32") * y[j, k].astype("int32"), axis=k)

    answer = parse(te.create_prim_func([x, y, te.compute((n, 4), body, name="C")]))
    assert isinstance(answer, Rejected)
    assert answer.reason is Reason.DYNAMIC_SHAPE
    assert answer.detail == "dimension 0 of A is n, not a number"


def test_softmax_is_rejected_by_its_maximum():
    answer = TASKS["SFM"].parsed
    assert isinstance(answer, Rejected)
    assert answer.reason is Reason.NOT_SUM
