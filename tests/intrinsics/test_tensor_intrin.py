"""The generated description and implementation of every instruction against the NumPy reference of the same record."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from celosia.intrinsics import Contraction, Instruction, MappingError, Overflow, ParameterError, tensor_intrin
from celosia.intrinsics.catalogue import catalogue
from celosia.intrinsics.numerics import random_operand

FORMS = [
    ("mk,kn->mn", {"m": 4, "n": 3, "k": 5}),
    ("mk,nk->mn", {"m": 2, "n": 2, "k": 8}),
    ("mk,kn->nm", {"m": 3, "n": 4, "k": 2}),
    ("k,nk->n", {"n": 4, "k": 4}),
    ("mk,k->m", {"m": 3, "k": 7}),
    ("m,n->mn", {"m": 8, "n": 3}),
    ("m,->m", {"m": 4}),
    (",n->n", {"n": 4}),
    ("k,k->", {"k": 4}),
    ("c,c->c", {"c": 8}),
    ("nk,nk->n", {"n": 3, "k": 4}),
    (",->", {}),
    ("abk,bkn->abn", {"a": 2, "b": 3, "k": 4, "n": 2}),
]

DTYPES = [
    ("int8", "int8", "int32"),
    ("uint8", "int8", "int32"),
    ("int8", "uint8", "int32"),
    ("int5", "uint3", "int32"),
    ("int16", "int12", "int64"),
]


def agrees(contraction, func, seed=0):
    """Whether ``func`` computes what the reference does, on top of full-range accumulators that wrap; four draws."""
    import tvm

    library = tvm.compile(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}), target="llvm")
    wrapping = Contraction(contraction.einsum, contraction.extents, contraction.a, contraction.b, contraction.acc.container, "wrap")
    rng = np.random.default_rng(seed)
    for _ in range(4):
        a, b, c = (random_operand(rng, contraction.shape(operand), contraction.dtype(operand)) for operand in "abc")
        out = tvm.runtime.tensor(c.copy())
        library(tvm.runtime.tensor(a), tvm.runtime.tensor(b), out)
        if not np.array_equal(out.numpy(), wrapping.reference(a, b, c)):
            return False
    return True


@pytest.mark.parametrize(("einsum", "extents"), FORMS)
def test_description_and_implementation_equal_the_reference(einsum, extents):
    contraction = Contraction(einsum, extents, "uint8", "int8", "int32")
    assert agrees(contraction, tensor_intrin.description(contraction))
    assert agrees(contraction, tensor_intrin.implementation(contraction))


@st.composite
def contractions(draw):
    """Any einsum of two operands on any types, wrap or not."""
    axes = draw(st.lists(st.sampled_from("abckmn"), unique=True, max_size=4))
    roles = {axis: draw(st.sampled_from(["ac", "bc", "ab", "abc"])) for axis in axes}
    operand = {name: "".join(draw(st.permutations([axis for axis in axes if name in roles[axis]]))) for name in "abc"}
    a, b, acc = draw(st.sampled_from(DTYPES))
    extents = {axis: draw(st.integers(1, 5)) for axis in axes}
    return Contraction(f"{operand['a']},{operand['b']}->{operand['c']}", extents, a, b, acc)


@settings(max_examples=6, deadline=None, derandomize=True)
@given(contractions(), st.integers(0, 2**32 - 1))
def test_any_einsum(contraction, seed):
    assert agrees(contraction, tensor_intrin.description(contraction), seed)
    assert agrees(contraction, tensor_intrin.implementation(contraction), seed)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True)
@given(contractions(), st.integers(0, 2**32 - 1))
def test_any_einsum_long(contraction, seed):
    assert agrees(contraction, tensor_intrin.description(contraction), seed)
    assert agrees(contraction, tensor_intrin.implementation(contraction), seed)


def sums(instruction):
    return instruction.contraction.overflow in (Overflow.FORBID, Overflow.WRAP)


def by_contraction():
    """One instruction of the catalogue per contraction: many differ in name and timing only."""
    return {item.contraction: item for item in catalogue().values() if sums(item)}


TESTED = list(by_contraction().values())


def test_the_tested_list_is_the_catalogue():
    assert {item.contraction for item in TESTED} == {item.contraction for item in catalogue().values() if sums(item)}
    assert len(TESTED) >= 20


@pytest.mark.parametrize("instruction", TESTED[::6], ids=lambda item: item.name)
def test_a_sample_of_the_catalogue(instruction):
    name = tensor_intrin.register(instruction)
    assert tensor_intrin.registered()[name] == instruction.contraction
    assert agrees(instruction.contraction, tensor_intrin.description(instruction.contraction))
    assert agrees(instruction.contraction, tensor_intrin.implementation(instruction.contraction))


@pytest.mark.slow
@pytest.mark.parametrize("instruction", TESTED, ids=lambda item: item.name)
def test_the_catalogue(instruction):
    tensor_intrin.register(instruction)
    assert agrees(instruction.contraction, tensor_intrin.description(instruction.contraction))
    assert agrees(instruction.contraction, tensor_intrin.implementation(instruction.contraction))


@pytest.mark.parametrize("fault", tensor_intrin.FAULTS)
@pytest.mark.parametrize(("einsum", "extents"), [form for form in FORMS if form[0] != ",->"])
def test_a_broken_implementation_is_caught(einsum, extents, fault):
    contraction = Contraction(einsum, extents)
    assert not agrees(contraction, tensor_intrin.implementation(contraction, fault=fault))


def test_a_scalar_tile_has_no_index_to_break():
    with pytest.raises(ParameterError, match="no operand axis"):
        tensor_intrin.implementation(Contraction(",->", {}), fault="index")
    with pytest.raises(ParameterError, match="fault must be one of"):
        tensor_intrin.implementation(Contraction("k,k->", {"k": 2}), fault="speed")


def test_registration_is_idempotent_and_names_say_what_is_computed():
    contraction = Contraction("mk,kn->mn", {"m": 4, "n": 4, "k": 16})
    first = tensor_intrin.register(Instruction(name="one", contraction=contraction))
    again = tensor_intrin.register(Instruction(name="two", contraction=contraction, latency=9))
    assert first == again == "celosia_mk_kn_mn_m4n4k16_s8s8s32_loops"
    extern = tensor_intrin.register(Instruction(name="one", contraction=contraction), design_hash="0123456789ab")
    assert extern == "celosia_mk_kn_mn_m4n4k16_s8s8s32_0123456789ab"


def test_a_name_that_describes_something_else_is_refused(monkeypatch):
    monkeypatch.setattr(tensor_intrin, "intrinsic_name", lambda *_, **__: "celosia_taken_by_the_test")
    tensor_intrin.register(Instruction(name="x", contraction=Contraction("k,k->", {"k": 4})))
    with pytest.raises(ParameterError, match="already describes"):
        tensor_intrin.register(Instruction(name="x", contraction=Contraction("k,k->", {"k": 8})))


@pytest.mark.parametrize("overflow", ["saturate", "saturate-once"])
def test_saturation_is_no_sum(overflow):
    instruction = Instruction(name="x", contraction=Contraction("k,k->", {"k": 4}, overflow=overflow))
    with pytest.raises(MappingError, match="saturates"):
        tensor_intrin.register(instruction)


def test_the_call_passes_pointers_and_every_stride():
    contraction = Contraction("mk,kn->mn", {"m": 4, "n": 4, "k": 16})
    text = tensor_intrin.implementation(contraction, symbol="celosia_0_push").script()
    assert text.count("address_of") == 3
    assert text.count("strides[") == 6


def test_the_stub_saves_the_import_and_leaves_a_real_module_alone():
    code = (
        "import sys, celosia.intrinsics.tensor_intrin as t; assert 'tvm' not in sys.modules; t.install_stub();"
        "stub = sys.modules['tvm.s_tir.tensor_intrin']; import tvm.s_tir; t.install_stub();"
        "assert sys.modules['tvm.s_tir.tensor_intrin'] is stub"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
