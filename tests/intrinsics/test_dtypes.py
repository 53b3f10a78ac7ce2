import re

import numpy as np
import pytest

from celosia.intrinsics import DType, ParameterError


@pytest.mark.parametrize("width", range(1, 65))
@pytest.mark.parametrize("signed", [True, False])
def test_range_names_and_container(width, signed):
    dtype = DType(width, signed)
    values = 1 << width
    assert dtype.max - dtype.min + 1 == values
    assert dtype.min == (-values // 2 if signed else 0)
    assert DType.of(dtype.name) == dtype == DType.of(dtype)
    assert str(dtype) == dtype.name == ("int" if signed else "uint") + str(width)
    assert dtype.short == ("s" if signed else "u") + str(width)
    assert dtype.container_width in (8, 16, 32, 64)
    assert dtype.container_width >= width > (dtype.container_width // 2 if dtype.container_width > 8 else 0)
    info = np.iinfo(dtype.numpy)
    assert (info.bits, info.min <= dtype.min, info.max >= dtype.max) == (dtype.container_width, True, True)


def test_contains_is_inclusion_of_ranges():
    types = [DType(width, signed) for width in (1, 2, 7, 8, 9, 16) for signed in (True, False)]
    for outer in types:
        for inner in types:
            everything = all(outer.min <= value <= outer.max for value in (inner.min, inner.max))
            assert outer.contains(inner) is everything
    assert DType(9).contains(DType(8, signed=False))
    assert not DType(8).contains(DType(8, signed=False))


@pytest.mark.parametrize(("width", "nearest"), [(0, 1), (-3, 1), (65, 64), (2.0, 8), ("8", 8), (None, 8)])
def test_bad_width(width, nearest):
    message = rf"^width of a dtype must be an integer from 1 to 64, not {re.escape(repr(width))}; nearest legal value: {nearest}$"
    with pytest.raises(ParameterError, match=message):
        DType(width)


def test_a_boolean_is_no_width():
    with pytest.raises(ParameterError, match=r"^width of a dtype must be an integer from 1 to 64, not True"):
        DType(True)


@pytest.mark.parametrize("name", ["int", "int0", "int08", "INT8", "u8", "float32", "int8 ", "", 8, None, ["int8"], "int100"])
def test_bad_name(name):
    message = rf"^dtype must be intN or uintN with N from 1 to 64, such as int8 or uint4, not {re.escape(repr(name))}$"
    with pytest.raises(ParameterError, match=message):
        DType.of(name)


def test_name_of_a_width_that_is_too_wide():
    with pytest.raises(ParameterError, match=r"^width of a dtype must be an integer from 1 to 64, not 99; nearest legal value: 64$"):
        DType.of("int99")
