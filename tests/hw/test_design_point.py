"""Design points: every bad parameter gives one sentence, every good one a stable record."""

import re
import subprocess
import sys

import pytest
from hypothesis import given, settings

from celosia.hw import FAMILIES, Dataflow, DesignPoint, DotProductParameters, SystolicParameters, options
from celosia.intrinsics import DType, FormatError, Overflow, ParameterError

from .test_blocks import points

SYSTOLIC = {"rows": 3, "cols": 3}
WEIGHTS = {**SYSTOLIC, "dataflow": "weight-stationary"}
BAD = [
    ("systolic", {"rows": 0, "cols": 8}, "rows must be an integer from 1 to 256, not 0; nearest legal value: 1"),
    ("systolic", {"rows": 8, "cols": 300}, "cols must be an integer from 1 to 256, not 300; nearest legal value: 256"),
    ("systolic", {"rows": 3.5, "cols": 8}, "rows must be an integer from 1 to 256, not 3.5; nearest legal value: 1"),
    ("systolic", {"rows": True, "cols": 8}, "rows must be an integer from 1 to 256, not True; nearest legal value: 1"),
    ("systolic", {"cols": 8}, "systolic needs rows"),
    ("outer-product", {}, "outer-product needs rows and cols"),
    ("systolic", {**SYSTOLIC, "depth": -1}, "depth must be an integer from 1 to 65536, not -1; nearest legal value: 1"),
    (
        "systolic",
        {**WEIGHTS, "depth": 4},
        "depth of this weight-stationary array must be rows (3) or absent, not 4; nearest legal value: 3",
    ),
    (
        "systolic",
        {**SYSTOLIC, "vectors": 4},
        "vectors of this output-stationary array must be rows (3) or absent, not 4; nearest legal value: 3",
    ),
    (
        "systolic",
        {**SYSTOLIC, "dataflow": "weight-stationery"},
        "dataflow must be one of output-stationary, weight-stationary, not 'weight-stationery'; did you mean 'weight-stationary'?",
    ),
    ("systolic", {**SYSTOLIC, "a": "int1"}, "operand a must be 2 to 16 bits wide, not int1; nearest legal value: int2"),
    ("systolic", {**SYSTOLIC, "b": "uint17"}, "operand b must be 2 to 16 bits wide, not uint17; nearest legal value: uint16"),
    ("systolic", {**SYSTOLIC, "b": "float"}, "dtype must be intN or uintN with N from 1 to 64, such as int8 or uint4, not 'float'"),
    (
        "systolic",
        {**SYSTOLIC, "acc": "int9"},
        "accumulator int9 is too narrow for 16 products of int8 x int8; allowed: int20 or wider, "
        "or overflow 'wrap' or 'saturate'; nearest legal value: int20",
    ),
    (
        "systolic",
        {**SYSTOLIC, "overflow": "saturate-once"},
        "overflow of systolic must be one of forbid, wrap, saturate, not 'saturate-once': it adds one product at a time; "
        "nearest legal value: saturate",
    ),
    (
        "systolic",
        {**SYSTOLIC, "overflow": "saturate", "acc": "int63"},
        "a saturating accumulator must be at most 62 bits wide, not int63; nearest legal value: int62",
    ),
    ("systolic", {**SYSTOLIC, "overflow": "clip"}, "overflow must be one of forbid, wrap, saturate, saturate-once, not 'clip'"),
    (
        "systolic",
        {"row": 3, "cols": 3},
        "systolic has no parameter 'row'; allowed: rows, cols, dataflow, depth, vectors, a, b, acc, overflow; did you mean 'rows'?",
    ),
    ("dot-product", {"lanes": 4, "depth": 0}, "depth must be an integer from 1 to 256, not 0; nearest legal value: 1"),
    ("dot-product", {"lanes": 4, "depth": 4, "pipeline": 5}, "pipeline must be an integer from 0 to 4, not 5; nearest legal value: 4"),
    ("dot-product", {"lanes": 4, "depth": 4, "resident": 1}, "resident must be true or false, not 1"),
    ("outer-product", {"rows": 4, "cols": 4, "depth": "2"}, "depth must be an integer from 1 to 65536, not '2'; nearest legal value: 1"),
]


@pytest.mark.parametrize(("family", "parameters", "message"), BAD)
def test_bad_parameters_are_refused_in_one_sentence(family, parameters, message):
    with pytest.raises(ParameterError, match=f"^{re.escape(message)}$"):
        DesignPoint.create(family, **parameters)


def test_unknown_family_names_the_nearest():
    with pytest.raises(ParameterError, match=r"^family must be one of systolic, .*, not 'systolc'; did you mean 'systolic'\?$"):
        DesignPoint.create("systolc", rows=1, cols=1)


def test_record_of_another_family_is_refused():
    with pytest.raises(ParameterError, match=r"^parameters of family systolic must be a SystolicParameters, not DotProductParameters$"):
        DesignPoint("systolic", DotProductParameters(lanes=1, depth=1))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], r"^a design point must be a table of family and parameters, not \[\]$"),
        ({"rows": 3}, "^a design point needs the key 'family'; given: rows$"),
    ],
)
def test_from_dict_refuses_other_shapes(data, message):
    with pytest.raises(FormatError, match=message):
        DesignPoint.from_dict(data)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(points())
def test_round_trip_and_hash(point):
    again = DesignPoint.from_dict(point.to_dict())
    assert again == point
    assert hash(again) == hash(point)
    assert again.hash == point.hash
    assert re.fullmatch(r"[0-9a-f]{12}", point.hash)
    assert re.fullmatch(r"celosia_[a-z0-9_]+", point.name)
    assert point.machine.design_hash == point.hash


def test_defaults_are_filled_in():
    assert DesignPoint.create("systolic", rows=8, cols=4).to_dict() == {
        "family": "systolic",
        "rows": 8,
        "cols": 4,
        "dataflow": "output-stationary",
        "depth": 16,
        "vectors": 8,
        "a": "int8",
        "b": "int8",
        "acc": "int32",
        "overflow": "forbid",
    }
    weights = DesignPoint.create("systolic", rows=8, cols=4, dataflow=Dataflow.WEIGHT_STATIONARY).parameters
    assert (weights.depth, weights.vectors) == (8, 8)


def test_spelling_does_not_change_the_point():
    spelt = SystolicParameters(rows=2, cols=2, a=DType(8), acc=DType(32), overflow=Overflow.FORBID, depth=16)
    assert DesignPoint("systolic", spelt) == DesignPoint.create("systolic", rows=2, cols=2, a="int8")


def test_every_parameter_changes_the_hash():
    base = {"rows": 2, "cols": 2, "depth": 3, "a": "int8", "b": "int8", "acc": "int32", "overflow": "forbid"}
    other = {"rows": 3, "cols": 3, "depth": 4, "a": "uint8", "b": "int7", "acc": "int31", "overflow": "wrap"}
    hashes = {DesignPoint.create("systolic", **{**base, name: other[name]}).hash for name in base}
    assert len(hashes | {DesignPoint.create("systolic", **base).hash}) == len(base) + 1


@pytest.mark.parametrize(
    ("a", "b", "depth", "acc"), [("int8", "int8", 16, "int32"), ("int16", "int16", 16, "int36"), ("uint16", "int16", 1, "int32")]
)
def test_default_accumulator(a, b, depth, acc):
    assert DesignPoint.create("systolic", rows=2, cols=2, a=a, b=b, depth=depth).parameters.acc == DType.of(acc)


def test_saturation_of_a_dot_product_is_once_per_beat():
    point = DesignPoint.create("dot-product", lanes=2, depth=4, overflow="saturate", acc="int12")
    assert point.instruction.contraction.overflow is Overflow.SATURATE_ONCE


@pytest.mark.parametrize(
    ("family", "parameters", "einsum", "name", "resident", "macs"),
    [
        ("systolic", {"rows": 8, "cols": 4}, "mk,kn->mn", "celosia_systolic_os_m8n4k16_s8s8s32", "acc", 32),
        ("systolic", {**WEIGHTS, "vectors": 5}, "mk,kn->mn", "celosia_systolic_ws_m5n3k3_s8s8s32", "b", 9),
        ("systolic", {"rows": 1, "cols": 1}, "k,k->", "celosia_systolic_os_k16_s8s8s32", "acc", 1),
        ("systolic", {"rows": 1, "cols": 1, "depth": 1}, ",->", "celosia_systolic_os_scalar_s8s8s32", "acc", 1),
        ("dot-product", {"lanes": 2, "depth": 4}, "k,kn->n", "celosia_dot_n2k4_s8s8s32", None, 8),
        ("dot-product", {"lanes": 1, "depth": 4, "resident": True}, "k,k->", "celosia_dot_k4_s8s8s32", "acc", 4),
        ("outer-product", {"rows": 2, "cols": 4}, "m,n->mn", "celosia_outer_m2n4_s8s8s32", "acc", 8),
    ],
)
def test_instruction(family, parameters, einsum, name, resident, macs):
    point = DesignPoint.create(family, **parameters)
    assert (point.instruction.contraction.einsum, point.instruction.name) == (einsum, name)
    assert (point.instruction.resident, point.macs_per_cycle) == (resident, macs)


@pytest.mark.parametrize("family", FAMILIES)
def test_options_describe_every_parameter(family):
    described = {option.name: option for option in options(family)}
    required = {option.name: 4 for option in described.values() if option.required}
    point = DesignPoint.create(family, **required)
    assert set(point.to_dict()) == {"family", *described}
    assert all(option.help for option in described.values())
    for option in described.values():
        if option.kind == "choice":
            assert point.to_dict()[option.name] == option.default
            assert all(DesignPoint.create(family, **{**required, option.name: choice}) for choice in option.choices)


def test_no_hdl_is_imported_for_a_machine():
    code = (
        "import sys; from celosia.hw import DesignPoint; import celosia.hw.verilog; "
        "DesignPoint.create('systolic', rows=2, cols=2).machine; print('amaranth' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
