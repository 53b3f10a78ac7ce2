import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from celosia.intrinsics import Contraction, DType, Overflow, ParameterError
from celosia.intrinsics.numerics import random_operand

from .scalar import contract, operand

EINSUMS = [
    "k,k->",
    "k,nk->n",
    "nk,nk->n",
    "k,kn->n",
    "mk,kn->mn",
    "mk,nk->mn",
    "m,n->mn",
    "c,c->c",
    "gmk,gkn->gmn",
    "mkj,knj->mn",
    "mk,n->mn",
]


@st.composite
def contractions(draw, overflows=tuple(Overflow)):
    einsum = draw(st.sampled_from(EINSUMS))
    axes = sorted(set(einsum) & set("abcdefghijklmnopqrstuvwxyz"))
    extents = {axis: draw(st.integers(1, 4)) for axis in axes}
    a, b = (draw(st.builds(DType, st.integers(1, 16), st.booleans())) for _ in range(2))
    overflow = draw(st.sampled_from(overflows))
    if overflow is not Overflow.FORBID:
        return Contraction(einsum, extents, a, b, draw(st.builds(DType, st.integers(1, 40), st.booleans())), overflow)
    return Contraction(einsum, extents, a, b, Contraction(einsum, extents, a, b, "int64").min_acc)


def check_reference(contraction: Contraction, reference, *, seed: int = 0) -> bool:
    """Whether ``reference`` agrees with scalar loops on full-range operands and on nothing but corners."""
    rng = random.Random(seed)
    for _ in range(4):
        a, b, c = (operand(rng, contraction.shape(name), contraction.dtype(name)) for name in "abc")
        if contraction.overflow is Overflow.FORBID:
            c = np.zeros_like(c)
        if reference(a, b, c).tolist() != contract(contraction, a, b, c).tolist():
            return False
    return True


@settings(deadline=None, derandomize=True, max_examples=150)
@given(contractions(), st.integers(0, 1 << 16))
def test_reference_equals_scalar_loops(contraction, seed):
    assert check_reference(contraction, contraction.reference, seed=seed)


BROKEN = {
    "A as unsigned": lambda it, a, b, c: it.reference(a.astype(np.int64) & it.a.max * 2 + 1, b, c),
    "operands swapped": lambda it, a, b, c: it.reference(b, a, c),
    "last product dropped": lambda it, a, b, c: it.reference(np.where(np.arange(a.shape[-1]) == a.shape[-1] - 1, 0, a), b, c),
    "C overwritten": lambda it, a, b, c: it.reference(a, b, 0),
    "one lane for all": lambda it, a, b, c: np.broadcast_to(it.reference(a, b, c)[:, :1], it.shape("c")),
    "wraps at 16 bits": lambda it, a, b, c: it.reference(a, b, c).astype(np.int16).astype(np.int32),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_the_check_catches_a_broken_reference(fault):
    contraction = Contraction("mk,nk->mn", {"m": 4, "n": 4, "k": 4}, "int8", "int8", "int32", "wrap")
    assert check_reference(contraction, contraction.reference)
    assert not check_reference(contraction, lambda a, b, c: BROKEN[fault](contraction, a, b, c))


def test_the_check_catches_saturation_at_the_wrong_moment():
    extents = {"k": 8}
    each, once = (Contraction("k,k->", extents, "int8", "int8", "int16", mode) for mode in ("saturate", "saturate-once"))
    assert check_reference(each, each.reference)
    assert check_reference(once, once.reference)
    assert not check_reference(each, once.reference)
    assert not check_reference(once, each.reference)


@pytest.mark.parametrize("mode", ["forbid", "wrap", "saturate"])
def test_reference_adds_to_c(mode):
    contraction = Contraction("k,nk->n", {"n": 2, "k": 2}, "uint8", "int8", "int32", mode)
    a, b, c = np.array([255, 1], np.uint8), np.array([[127, -128], [-128, 0]], np.int8), np.array([5, 7], np.int32)
    result = contraction.reference(a, b, c)
    assert result.tolist() == [5 + 255 * 127 - 128, 7 - 255 * 128]
    assert result.dtype == np.int32
    assert contraction.reference(a, b).tolist() == [255 * 127 - 128, -255 * 128]


def test_reference_refuses_a_wrong_shape():
    contraction = Contraction("k,nk->n", {"n": 2, "k": 3})
    with pytest.raises(ParameterError, match=r"^operand b must have shape \(2, 3\), not \(3, 2\)$"):
        contraction.reference(np.zeros(3, np.int8), np.zeros((3, 2), np.int8))


# ---- axes


def test_unit_axes_are_dropped():
    contraction = Contraction("mk,kn->mn", {"m": 1, "k": 8, "n": 4})
    assert contraction == Contraction("k,kn->n", {"k": 8, "n": 4})
    assert hash(contraction) == hash(Contraction("k,kn->n", {"n": 4, "k": 8}))
    assert (contraction.axes, contraction.reduction_axes, contraction.shape("a"), contraction.shape("c")) == ("nk", "k", (8,), (4,))


def test_everything_of_extent_one_is_a_scalar_product():
    contraction = Contraction("mk,kn->mn", {"m": 1, "k": 1, "n": 1})
    assert (contraction.einsum, contraction.axes, contraction.depth, contraction.macs) == (",->", "", 1, 1)
    assert int(contraction.reference(np.array(-128, np.int8), np.array(-128, np.int8), 3)) == 16387
    assert contraction.label == "scalar_s8s8s32"


def test_axes_and_roles():
    contraction = Contraction(" gmk, gkn -> gmn ", {"g": 2, "m": 3, "k": 4, "n": 5})
    assert (contraction.a_axes, contraction.b_axes, contraction.c_axes) == ("gmk", "gkn", "gmn")
    assert {axis: contraction.role(axis) for axis in "gmkn"} == {"g": "abc", "m": "ac", "k": "ab", "n": "bc"}
    assert [contraction.shape(name) for name in "abc"] == [(2, 3, 4), (2, 4, 5), (2, 3, 5)]
    assert [str(contraction.dtype(name)) for name in "abc"] == ["int8", "int8", "int32"]
    assert (contraction.depth, contraction.macs) == (4, 120)
    assert contraction.label == "g2m3n5k4_s8s8s32"
    assert str(contraction) == "gmk,gkn->gmn [g=2, m=3, n=5, k=4] int8, int8 -> int32"


def test_label_names_the_overflow_mode():
    assert Contraction("k,k->", {"k": 4}, "uint4", "int4", "int16", "saturate").label == "k4_u4s4s16_saturate"


# ---- widths


@settings(deadline=None, derandomize=True, max_examples=100)
@given(contractions(overflows=(Overflow.FORBID,)))
def test_min_acc_is_tight(contraction):
    assert contraction.acc == contraction.min_acc
    if contraction.acc.width > 1:
        narrower = DType(contraction.acc.width - 1, contraction.acc.signed)
        with pytest.raises(ParameterError, match="is too narrow for"):
            Contraction(contraction.einsum, contraction.extents, contraction.a, contraction.b, narrower)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    st.builds(DType, st.integers(1, 16), st.booleans()),
    st.builds(DType, st.integers(1, 16), st.booleans()),
    st.builds(DType, st.integers(1, 48), st.booleans()),
)
def test_max_depth_is_tight(a, b, acc):
    contraction = Contraction("k,k->", {"k": 2}, a, b, acc, "wrap")
    products = [x * y for x in (a.min, a.max) for y in (b.min, b.max)]

    def fits(depth):
        return acc.min <= depth * min(products) and depth * max(products) <= acc.max

    assert fits(contraction.max_depth)
    assert not fits(contraction.max_depth + 1)


def test_max_depth_of_int8_in_int32():
    assert Contraction("k,k->", {"k": 16}).max_depth == 131071
    assert Contraction("k,k->", {"k": 16}, "uint8", "int8").max_depth == (1 << 31) // (255 * 128)


# ---- errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mk,kn", {}), r"einsum must look like 'mk,kn->mn', not 'mk,kn'"),
        (
            ("MK,KN->MN", {}),
            r"einsum must look like 'mk,kn->mn', not 'MK,KN->MN'; 'M' \(position 0\) is no axis: axes are letters from a to z",
        ),
        ((7, {}), r"einsum must look like 'mk,kn->mn', not 7"),
        (("kk,k->", {"k": 2}), r"einsum 'kk,k->' uses an axis twice in operand 'kk'; each axis may index an operand once"),
        (("k,k->n", {"k": 2, "n": 2}), r"einsum 'k,k->n': axis 'n' of the output \(position 5\) is in no operand"),
        (("mk,kn->mn", {"m": 2}), r"einsum 'mk,kn->mn' needs an extent for axis k \(position 1\), n \(position 4\); given: m"),
        (("k,k->", {}), r"einsum 'k,k->' needs an extent for axis k \(position 0\); given: none"),
        (
            ("mK,Kn->mn", {}),
            r"einsum must look like 'mk,kn->mn', not 'mK,Kn->mn'; 'K' \(position 1\) is no axis: axes are letters from a to z",
        ),
        (("k,k->", {"k": 2, "x": 3}), r"extent of axis x is given, but einsum 'k,k->' has only k"),
        (("k,k->", {"k": 0}), r"extent of axis 'k' must be a positive integer, not 0; nearest legal value: 1"),
        (("k,k->", {"k": 2.0}), r"extent of axis 'k' must be a positive integer, not 2.0; nearest legal value: 1"),
        (("k,k->", {"k": True}), r"extent of axis 'k' must be a positive integer, not True; nearest legal value: 1"),
        (("k,k->", {"k": 2}, "int33"), r"operand a must be at most 32 bits wide, not int33"),
        (("k,k->", {"k": 2}, "int8", "uint64"), r"operand b must be at most 32 bits wide, not uint64"),
        (
            ("k,k->", {"k": 16}, "int8", "int8", "int16"),
            r"accumulator int16 is too narrow for 16 products of int8 x int8; allowed: int20 or wider, or overflow 'wrap' or 'saturate'; "
            r"nearest legal value: int20",
        ),
        (
            ("k,k->", {"k": 2}, "uint8", "int8", "uint32"),
            r"accumulator uint32 cannot hold the negative sums of 2 products of uint8 x int8; allowed: int17 or wider, "
            r"or overflow 'wrap' or 'saturate'; "
            r"nearest legal value: int17",
        ),
        (
            ("k,k->", {"k": 4}, "int32", "int32", "int64"),
            r"no accumulator of up to 64 bits holds 4 products of int32 x int32; allowed: overflow 'wrap', narrower operands or a depth of "
            r"at most 1",
        ),
        (
            ("k,k->", {"k": 4}, "int8", "int8", "int64", "saturate"),
            r"accumulator int64 is too wide to saturate over products of int8 x int8 in 64-bit arithmetic; allowed: 62 bits or fewer with "
            r"operands of up to 30 bits",
        ),
        (
            ("k,k->", {"k": 4}, "int8", "int8", "int8", "clamp"),
            r"overflow must be one of forbid, wrap, saturate, saturate-once, not 'clamp'",
        ),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ParameterError, match=f"^{message}$"):
        Contraction(*arguments)


def test_unsigned_accumulator_of_unsigned_operands():
    contraction = Contraction("k,k->", {"k": 3}, "uint2", "uint2", "uint5")
    assert str(contraction.min_acc) == "uint5"
    assert int(contraction.reference(np.full(3, 3, np.uint8), np.full(3, 3, np.uint8))) == 27


def test_records_are_frozen():
    contraction = Contraction("k,k->", {"k": 4})
    with pytest.raises(AttributeError, match=re.escape("cannot assign to field 'einsum'")):
        contraction.einsum = "m,m->"


def test_int64_wraps_exactly():
    contraction = Contraction("k,k->", {"k": 8}, "int32", "int32", "int64", "wrap")
    a, b = (random_operand(np.random.default_rng(seed), (8,), DType(32)) for seed in (1, 2))
    assert contraction.reference(a, b).tolist() == contract(contraction, a, b, np.zeros((), np.int64)).tolist()
