import math
import random
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from celosia.intrinsics import DType, Overflow, ParameterError, Rounding
from celosia.intrinsics.numerics import (
    MAX_SHIFT,
    accumulate,
    bounds_of_product,
    min_acc_width,
    random_operand,
    requantize,
    saturate,
    settle,
    shift_right,
    wrap,
)

from .scalar import into_range, operand

fast = settings(deadline=None, derandomize=True, max_examples=100)
dtypes = st.builds(DType, st.integers(1, 32), st.booleans())
int64s = st.integers(-(1 << 63), (1 << 63) - 1)


@fast
@given(st.lists(int64s, min_size=1, max_size=8), st.builds(DType, st.integers(1, 64), st.booleans()))
def test_wrap_is_modulo(values, dtype):
    got = wrap(np.array(values, np.int64), dtype)
    assert got.dtype == dtype.numpy
    assert [int(x) for x in got] == [into_range(value, dtype, Overflow.WRAP) for value in values]


@fast
@given(st.lists(int64s, min_size=1, max_size=8), st.builds(DType, st.integers(1, 63), st.booleans()))
def test_saturate_is_a_clamp(values, dtype):
    got = saturate(np.array(values, np.int64), dtype)
    assert got.dtype == dtype.numpy
    assert [int(x) for x in got] == [into_range(value, dtype, Overflow.SATURATE) for value in values]


@pytest.mark.parametrize("mode", list(Overflow))
def test_settle_picks_wrap_or_clamp(mode):
    values = np.array([-300, -129, -128, 0, 127, 128, 300], np.int64)
    assert settle(values, DType(8), mode).tolist() == [into_range(int(value), DType(8), mode) for value in values]


@fast
@given(st.lists(st.integers(-(1 << 40), 1 << 40), max_size=20), st.integers(-(1 << 40), 1 << 40), dtypes, st.sampled_from(list(Overflow)))
def test_accumulate_adds_one_after_another(steps, start, dtype, mode):
    start = into_range(start, dtype, Overflow.SATURATE)
    total = start
    for step in steps:
        total += step
        if mode is Overflow.SATURATE:
            total = into_range(total, dtype, mode)
    got = accumulate(np.array(steps, np.int64).reshape(-1, 1), dtype, mode, start=start)
    assert got.dtype == dtype.numpy
    assert got.tolist() == [into_range(total, dtype, mode)]


def test_saturation_depends_on_the_order_and_on_how_often():
    acc = DType(8)
    steps = np.array([[100], [100], [-100]], np.int64)
    assert accumulate(steps, acc, Overflow.SATURATE).tolist() == [27]
    assert accumulate(steps[::-1], acc, Overflow.SATURATE).tolist() == [100]
    assert accumulate(steps, acc, Overflow.SATURATE_ONCE).tolist() == [100]


def every_corner_sum(a, b, depth):
    """Each sum of ``depth`` products of corner operands lies between these two, which are both reached."""
    products = [x * y for x in (a.min, a.max) for y in (b.min, b.max)]
    assert bounds_of_product(a, b) == (min(products), max(products))
    return depth * min(products), depth * max(products)


@fast
@given(dtypes, dtypes, st.integers(1, 1 << 20))
def test_min_acc_width_is_sufficient_and_minimal(a, b, depth):
    low, high = every_corner_sum(a, b, depth)
    width = min_acc_width(a, b, depth)
    assert -(1 << (width - 1)) <= low
    assert high <= (1 << (width - 1)) - 1
    narrower = width - 1
    assert narrower == 0 or low < -(1 << (narrower - 1)) or high > (1 << (narrower - 1)) - 1


@fast
@given(st.integers(1, 32), st.integers(1, 32), st.integers(1, 1 << 20))
def test_min_acc_width_unsigned(a, b, depth):
    high = depth * ((1 << a) - 1) * ((1 << b) - 1)
    width = min_acc_width(DType(a, signed=False), DType(b, signed=False), depth, signed=False)
    assert high < 1 << width
    assert width == 1 or high >= 1 << (width - 1)


@pytest.mark.parametrize("a", [DType(2), DType(3), DType(2, signed=False), DType(1)])
@pytest.mark.parametrize("b", [DType(2), DType(3, signed=False)])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_no_operands_whatever_reach_beyond_the_corners(a, b, depth):
    low, high = every_corner_sum(a, b, depth)
    reached = {0}
    for _ in range(depth):
        reached = {total + x * y for total in reached for x in range(a.min, a.max + 1) for y in range(b.min, b.max + 1)}
    assert (min(reached), max(reached)) == (low, high)


def test_unsigned_accumulator_of_signed_products_is_refused():
    message = r"^an unsigned accumulator cannot hold sums of int8 x uint8, which reach -130560; use a signed one$"
    with pytest.raises(ParameterError, match=message):
        min_acc_width(DType(8), DType(8, signed=False), 4, signed=False)


def rounded(value: int, shift: int, rounding: Rounding) -> int:
    """By the decimal module where it has the mode, by fractions where it has not."""
    if rounding is Rounding.HALF_UP:
        return math.floor(Fraction(value, 1 << shift) + Fraction(1, 2))
    mode = {Rounding.HALF_AWAY_FROM_ZERO: ROUND_HALF_UP, Rounding.HALF_EVEN: ROUND_HALF_EVEN, Rounding.FLOOR: ROUND_FLOOR}[rounding]
    with localcontext() as context:
        context.prec = 200
        return int((Decimal(value) / Decimal(1 << shift)).to_integral_value(rounding=mode))


@pytest.mark.parametrize("rounding", list(Rounding))
@pytest.mark.parametrize("shift", [0, 1, 2, 3, 7])
def test_shift_right_exhaustive_near_zero(rounding, shift):
    values = range(-70, 71)
    assert shift_right(np.array(values), shift, rounding).tolist() == [rounded(value, shift, rounding) for value in values]


@fast
@given(st.integers(-(1 << 62), 1 << 62), st.integers(0, MAX_SHIFT), st.sampled_from(list(Rounding)))
def test_shift_right(value, shift, rounding):
    assert int(shift_right(value, shift, rounding)) == rounded(value, shift, rounding)


@fast
@given(st.integers(-(1 << 20), 1 << 20), st.integers(1, 30), st.sampled_from(list(Rounding)))
def test_shift_right_ties(half, shift, rounding):
    value = (2 * half + 1) << (shift - 1)
    assert int(shift_right(value, shift, rounding)) == rounded(value, shift, rounding)


@pytest.mark.parametrize(("shift", "nearest"), [(-1, 0), (63, 62), (400, 62)])
def test_shift_out_of_range(shift, nearest):
    with pytest.raises(ParameterError, match=rf"^shift must be from 0 to 62, not {shift}; nearest legal value: {nearest}$"):
        shift_right([1], shift, Rounding.FLOOR)


@fast
@given(
    st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=1, max_size=6),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(0, MAX_SHIFT),
    st.integers(-128, 255),
    st.sampled_from([DType(8), DType(8, signed=False), DType(4)]),
    st.sampled_from(list(Rounding)),
)
def test_requantize(acc, multiplier, shift, zero_point, dtype, rounding):
    got = requantize(acc, multiplier=multiplier, shift=shift, zero_point=zero_point, dtype=dtype, rounding=rounding)
    scaled = [rounded(x * multiplier, shift, rounding) + zero_point for x in acc]
    assert got.tolist() == [into_range(value, dtype, Overflow.SATURATE) for value in scaled]


def test_requantize_per_channel():
    acc = np.array([[1000, -1000], [7, 9]], np.int32)
    got = requantize(acc, multiplier=np.array([1 << 10, 3 << 10]), shift=14, zero_point=3, dtype=DType(8), rounding=Rounding.HALF_EVEN)
    scaled = [[rounded(int(acc[i, j]) * (1 << 10, 3 << 10)[j], 14, Rounding.HALF_EVEN) + 3 for j in range(2)] for i in range(2)]
    assert got.tolist() == [[into_range(value, DType(8), Overflow.SATURATE) for value in row] for row in scaled]


@pytest.mark.parametrize("dtype", [DType(8), DType(8, signed=False), DType(1), DType(4), DType(16), DType(32), DType(32, signed=False)])
def test_random_operand_has_corners_and_the_full_range(dtype):
    values = random_operand(np.random.default_rng(1), (40, 100), dtype).astype(np.int64)
    assert (values.min(), values.max()) == (dtype.min, dtype.max)
    for corner in (dtype.min, dtype.max, 0):
        assert (values == corner).mean() > 0.02
    if dtype.width > 1:
        quarters = np.histogram(values, bins=4, range=(dtype.min, dtype.max))[0]
        assert quarters.min() > 0.1 * values.size


def test_random_operand_is_the_same_for_the_same_seed():
    first, second = (random_operand(np.random.default_rng(7), (50,), DType(8)) for _ in range(2))
    assert first.tolist() == second.tolist()
    assert first.dtype == np.int8


def broken_wrap(values, dtype):
    """Keeps the low bits but forgets the sign."""
    return np.asarray(values, np.int64) & dtype.max


def broken_half_even(value, shift):
    """Adds half, always."""
    return (value + (1 << shift >> 1)) >> shift


def test_the_checks_catch_broken_arithmetic():
    rng = random.Random(0)
    values = [rng.randint(-(1 << 20), 1 << 20) for _ in range(50)]
    assert [int(x) for x in broken_wrap(values, DType(8))] != [into_range(value, DType(8), Overflow.WRAP) for value in values]
    assert [broken_half_even(value, 2) for value in range(16)] != [rounded(value, 2, Rounding.HALF_EVEN) for value in range(16)]
    assert operand(rng, (50,), DType(8)).min() == -128
