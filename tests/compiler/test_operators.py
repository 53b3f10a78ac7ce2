"""Operators: strings, shapes, TVM's own definitions, and the independent reference."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from celosia.compiler import Operator, from_te, parse, workload
from celosia.compiler.host import untensorized
from celosia.compiler.workloads import NOT_SUMS, configs
from celosia.intrinsics import DType, FormatError, ParameterError

SMALL = [
    "conv1d:1x18x6,5x3,s2,p1",
    "conv2d:2x9x7x3,5x3x3,s2,p1",
    "conv2d:1x8x9x3,4x1x5,s3,p2",
    "conv2d:1x9x9x4,3x3x3,d2",
    "conv2d:1x6x6x8,12x3x3,p1,g4",
    "conv3d:1x4x5x6x3,4x2x2x2,p1",
    "dep:1x8x7x5x3x2x1x1",
    "dep:1x9x9x3x3x1x1x2",
    "t2d:1x4x3x5x4x4x2x1",
    "cap:1x6x6x3x4x3x2x1x4",
    "gemm:5x7x9",
    "gmm:3x5x6x7",
    "tbg:2x5x3x4",
    "nrm:2x5x7",
]


def test_shapes_of_a_convolution():
    operator = parse("conv2d:1x56x56x64,128x3x3,s2,p1")
    assert (operator.kind, operator.input_shapes, operator.output_shape) == ("C2D", ((1, 56, 56, 64), (3, 3, 64, 128)), (1, 28, 28, 128))
    assert dict(operator.classes) == {"m": 784, "n": 128, "k": 576}
    assert operator.macs == 784 * 128 * 576
    assert operator.roles["rh"] == "ab"
    assert (operator.a, operator.b, operator.out, operator.weight) == (DType(8), DType(8), DType(32), 1)


@pytest.mark.parametrize("text", SMALL)
def test_the_name_is_the_string(text):
    operator = parse(text)
    assert operator.name == text
    assert parse(operator.name) == operator
    assert hash(parse(operator.name)) == hash(operator)


@pytest.mark.parametrize("text", SMALL)
def test_reference_equals_the_plain_operator_compiled_by_tvm(text):
    operator = parse(text)
    inputs = operator.random_inputs(np.random.default_rng(3))
    assert np.array_equal(operator.reference(inputs), untensorized(operator, inputs))


@pytest.mark.parametrize(
    "types", [("uint8", "int8", "int32"), ("int8", "uint8", "int32"), ("int16", "int16", "int32"), ("int32", "int8", "int64")]
)
def test_other_types_and_wrapping(types):
    a, b, out = types
    operator = parse("gemm:5x6x200").typed(a=a, b=b, out=out)
    inputs = operator.random_inputs(np.random.default_rng(4))
    assert operator.reference(inputs).dtype == np.dtype(out)
    assert np.array_equal(operator.reference(inputs), untensorized(operator, inputs))


def test_a_wrong_reference_would_be_seen(monkeypatch):
    from celosia.compiler import references

    operator = parse("conv2d:1x5x5x2,3x3x3,p1")
    inputs = operator.random_inputs(np.random.default_rng(0))
    monkeypatch.setattr(references, "_tap", lambda x, tap, out, p: x[:, : out[0], : out[1]])
    assert not np.array_equal(operator.reference(inputs), untensorized(operator, inputs))


def test_every_operator_of_tvm_is_the_same_function():
    import tvm_ffi
    from tvm import te
    from tvm.s_tir.meta_schedule.testing.te_workload import CONFIGS

    entries = [entry for entry in configs() if entry[0] != "NRM"]
    assert {kind for kind, _ in configs()} | set(NOT_SUMS) == set(CONFIGS)
    for kind, arguments in entries:
        theirs = te.create_prim_func(CONFIGS[kind][0](*arguments, in_dtype="int8", out_dtype="int32"))
        assert tvm_ffi.structural_equal(theirs, from_te(kind, arguments).prim_func()), (kind, arguments)


def test_workloads():
    assert len(workload("operators")) == len(configs())
    resnet = [operator.name for operator in workload("resnet18")]
    assert resnet[1:] == [
        "conv2d:1x56x56x64,64x1x1",
        "conv2d:1x14x14x256,256x3x3,p1",
        "conv2d:1x7x7x512,512x3x3,p1",
        "gemm:128x128x128",
        "gemm:512x32x512",
    ]


def test_a_workload_file(tmp_path):
    path = tmp_path / "net é.toml"
    path.write_text('operators = ["gemm:4x5x6", {operator = "conv2d:1x8x8x3,4x3x3", weight = 3}]', encoding="utf-8")
    operators = workload(str(path))
    assert [(operator.name, operator.weight) for operator in operators] == [("gemm:4x5x6", 1), ("conv2d:1x8x8x3,4x3x3", 3)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('operators = ["gemm:4x5"]', r"operators\[0\]: operator 'gemm:4x5', position 5: expected 3 numbers"),
        ("operator = []", "must hold one list 'operators', not the key 'operator'"),
        ("operators = []", "must hold one list"),
        ("operators = [", "is not TOML"),
        ('operators = [{operator = "gemm:1x1x1", count = 2}]', "must have the keys operator and weight"),
        ("operators = [3]", "must be a string"),
    ],
)
def test_bad_workload_files(tmp_path, text, message):
    path = tmp_path / "net.toml"
    path.write_text(text)
    with pytest.raises(FormatError, match=message):
        workload(str(path))


def test_unknown_workloads(tmp_path):
    with pytest.raises(FormatError, match="must be one of operators, resnet18 or a TOML file, not 'resnet19'"):
        workload("resnet19")
    with pytest.raises(FormatError, match="cannot be read"):
        workload(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("conv:1x2", r"position 0: expected one of conv1d, .* not 'conv'; nearest: conv"),
        ("gemm", r"position 0: .* and a colon"),
        ("gemm:1x2", r"position 5: expected 3 numbers MxNxK, not 2"),
        ("gemm:1x2x", r"position 9: expected a number, not the end"),
        ("gemm:1x2y3", r"position 8: expected 'x' and a number, or the end, not 'y'"),
        ("conv2d:1x2x3x4", r"position 14: expected a comma, not the end"),
        ("conv2d:1x2x3,4x1x1", r"position 7: expected 4 numbers NxHxWxC_in, not 3"),
        ("conv2d:1x2x3x4,4x1", r"position 15: expected 3 numbers C_outxKHxKW, not 2"),
        ("conv2d:1x8x8x4,4x1x1,q3", r"position 21: expected s, p, d or g and a number, not 'q3'"),
        ("conv2d:1x8x8x4,4x1x1,s2,s3", r"position 24: option 's' is given twice"),
        ("gemm:1x2x99999999999", r"at most 9 digits"),
    ],
)
def test_errors_name_the_position(text, message):
    with pytest.raises(FormatError, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gemm:0x2x3", "m of GMM must be an integer of at least 1, not 0"),
        ("conv2d:1x8x8x4,4x3x3,s0", "stride of C2D must be an integer of at least 1"),
        ("conv2d:1x2x2x4,4x3x3", "axis h has no positive extent"),
        ("conv2d:1x8x8x6,4x3x3,g4", "c_in of C2D must be a multiple of its 4 groups, not 6"),
        ("dep:1x8", "DEP takes 5 to 8 numbers"),
    ],
)
def test_numbers_outside_their_domain(text, message):
    with pytest.raises(ParameterError, match=message):
        parse(text)


def test_bad_values_of_operators():
    with pytest.raises(ParameterError, match="must have 8, 16, 32 or 64 bits"):
        parse("gemm:1x2x3").typed(out="int20")
    with pytest.raises(ParameterError, match="has one input"):
        parse("nrm:1x2x3").typed(b="uint8")
    with pytest.raises(ParameterError, match="operator kind must be one of"):
        from_te("SFM", (1, 2))
    with pytest.raises(ParameterError, match="weight"):
        parse("gemm:1x2x3").weighted(0)
    operator = parse("gemm:1x2x3")
    with pytest.raises(ParameterError, match="takes 2 inputs"):
        operator.reference([])
    with pytest.raises(ParameterError, match="an input of gemm:1x2x3 must be int8"):
        operator.reference([np.zeros((1, 1, 3), np.int16), np.zeros((1, 3, 2), np.int8)])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.integers(1, 3),
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(0, 3),
    st.integers(1, 3),
)
def test_any_convolution_has_the_shape_of_its_reference(batch, h, w, kh, kw, stride, pad, dilation):
    text = f"conv2d:{batch}x{h}x{w}x2,3x{kh}x{kw},s{stride},p{pad},d{dilation}"
    try:
        operator: Operator = parse(text)
    except ParameterError:
        assert min(h + 2 * pad - dilation * (kh - 1), w + 2 * pad - dilation * (kw - 1)) < 1
        return
    assert parse(operator.name) == operator
    assert operator.reference(operator.random_inputs(np.random.default_rng(0))).shape == operator.output_shape
