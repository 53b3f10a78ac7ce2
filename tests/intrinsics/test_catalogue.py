"""Facts of the catalogue, and semantics against loops written from each instruction's own pseudocode."""

import doctest
import importlib
import random

import numpy as np
import pytest

from celosia.intrinsics import Overflow, ParameterError
from celosia.intrinsics.catalogue import aliases, catalogue, resolve_instruction, resolve_instructions

from .scalar import contract, operand


def s32(value):
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def vpdpbusd(a, b, c):
    return [s32(int(c[i]) + sum(int(a[i][j]) * int(b[i][j]) for j in range(4))) for i in range(16)]


def vpdpbusds(a, b, c):
    sums = [int(c[i]) + sum(int(a[i][j]) * int(b[i][j]) for j in range(4)) for i in range(16)]
    return [min(max(total, -(1 << 31)), (1 << 31) - 1) for total in sums]


def tdpbusd(a, b, c):
    out = [[int(c[m][n]) for n in range(16)] for m in range(16)]
    for m in range(16):
        for k in range(16):
            for n in range(16):
                out[m][n] = s32(out[m][n] + sum(int(a[m][4 * k + i]) * int(b[n][4 * k + i]) for i in range(4)))
    return out


def sdot_element(a, b, c):
    return [s32(int(c[e]) + sum(int(b[e][i]) * int(a[i]) for i in range(4))) for e in range(4)]


def smmla(a, b, c):
    return [[s32(int(c[i][j]) + sum(int(a[i][k]) * int(b[j][k]) for k in range(8))) for j in range(2)] for i in range(2)]


def dp4a_u8s8(a, b, c):
    total = int(c)
    for i in range(4):
        total += int(a[i]) * int(b[i])
    return s32(total)


def sdotusp_h(a, b, c):
    return s32(int(c) + int(a[0]) * int(b[0]) + int(a[1]) * int(b[1]))


def vrmpy_scalar(a, b, c):
    return [s32(int(c[i]) + sum(int(b[i][j]) * int(a[j]) for j in range(4))) for i in range(32)]


def olimp_macc(a, b, c):
    return [s32(int(c[lane]) + sum(int(a[i]) * int(b[lane][i]) for i in range(8))) for lane in range(2)]


PSEUDOCODE = {
    "avx512_vpdpbusd_512": vpdpbusd,
    "avx512_vpdpbusds_512": vpdpbusds,
    "amx_tdpbusd": tdpbusd,
    "arm_sdot_element": sdot_element,
    "arm_smmla": smmla,
    "nvidia_dp4a_u8s8": dp4a_u8s8,
    "corev_sdotusp_h": sdotusp_h,
    "hexagon_vrmpy_s8u8_scalar": vrmpy_scalar,
    "olimp_vec_8u8_16i8_2s32": olimp_macc,
}


def operands(contraction, seed):
    rng = random.Random(seed)
    return [operand(rng, contraction.shape(name), contraction.dtype(name)) for name in "abc"]


@pytest.mark.parametrize("name", PSEUDOCODE)
@pytest.mark.parametrize("seed", range(4))
def test_reference_equals_the_pseudocode_of_the_manual(name, seed):
    contraction = catalogue()[name].contraction
    a, b, c = operands(contraction, seed)
    assert contraction.reference(a, b, c).tolist() == PSEUDOCODE[name](a, b, c)


@pytest.mark.parametrize("name", [name for name in catalogue() if not name.startswith(("amx", "rvv", "nvidia_imma_m16"))])
def test_reference_equals_scalar_loops(name):
    contraction = catalogue()[name].contraction
    a, b, c = operands(contraction, 5)
    assert contraction.reference(a, b, c).tolist() == contract(contraction, a, b, c).tolist()


def test_the_check_catches_a_wrong_signedness():
    """The published RTL of OLIMP multiplies its unsigned data as signed; full-range operands tell the two apart, 1..9 do not."""
    olimp = catalogue()["olimp_vec_8u8_16i8_2s32"].contraction
    a, b, c = operands(olimp, 0)
    assert olimp.reference(a.view(np.int8), b, c).tolist() != olimp_macc(a, b, c)
    small = a % 9 + 1
    assert olimp.reference(small.view(np.int8), b, c).tolist() == olimp_macc(small, b, c)


def test_vpdpbusds_saturates_once():
    instruction = resolve_instruction("avx512_vpdpbusds_512").contraction
    a = np.full((16, 4), 255, np.uint8)
    b = np.tile(np.array([127, -128, 127, -128], np.int8), (16, 1))
    high = np.full(16, (1 << 31) - 1, np.int32)
    assert set(instruction.reference(a, b, high).tolist()) == {(1 << 31) - 1 - 2 * 255}


@pytest.mark.parametrize(
    ("name", "einsum", "extents", "types", "mode"),
    [
        ("avx512_vpdpbusd_512", "nk,nk->n", {"n": 16, "k": 4}, "u8s8s32", Overflow.WRAP),
        ("avx512_vpdpbusd_256_broadcast", "k,nk->n", {"n": 8, "k": 4}, "u8s8s32", Overflow.WRAP),
        ("avx512_vpdpbusd_128_broadcast", "k,nk->n", {"n": 4, "k": 4}, "u8s8s32", Overflow.WRAP),
        ("avx512_vpdpbusds_512_broadcast", "k,nk->n", {"n": 16, "k": 4}, "u8s8s32", Overflow.SATURATE_ONCE),
        ("avx_vnni_int8_vpdpbsud_256", "nk,nk->n", {"n": 8, "k": 4}, "s8u8s32", Overflow.WRAP),
        ("amx_tdpbsud", "mk,nk->mn", {"m": 16, "n": 16, "k": 64}, "s8u8s32", Overflow.WRAP),
        ("arm_udot_vector", "nk,nk->n", {"n": 4, "k": 4}, "u8u8u32", Overflow.WRAP),
        ("arm_usmmla", "mk,nk->mn", {"m": 2, "n": 2, "k": 8}, "u8s8s32", Overflow.WRAP),
        ("nvidia_imma_m16n8k32_s8", "mk,nk->mn", {"m": 16, "n": 8, "k": 32}, "s8s8s32", Overflow.WRAP),
        ("nvidia_imma_m8n8k16_s8", "mk,nk->mn", {"m": 8, "n": 8, "k": 16}, "s8s8s32", Overflow.WRAP),
        ("hexagon_vrmpy_u8s8", "nk,nk->n", {"n": 32, "k": 4}, "u8s8s32", Overflow.WRAP),
        ("olimp_vec_8u8_16i8_2s32", "k,nk->n", {"n": 2, "k": 8}, "u8s8s32", Overflow.WRAP),
    ],
)
def test_facts(name, einsum, extents, types, mode):
    contraction = catalogue()[name].contraction
    assert (contraction.einsum, dict(contraction.extents), contraction.overflow) == (einsum, extents, mode)
    assert "".join(dtype.short for dtype in (contraction.a, contraction.b, contraction.acc)) == types


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("zvdot4a8i_vdot4a_vv_v128", (0x57, 2, 0b1011001)),
        ("zvdot4a8i_vdot4au_vx_v128", (0x57, 6, 0b1010001)),
        ("zvdot4a8i_vdot4aus_vx_v128", (0x57, 6, 0b1011101)),
        ("corev_sdotsp_b", (0x7B, 1, 0b1010100)),
        ("corev_sdotup_h", (0x7B, 0, 0b1001100)),
        ("corev_sdotusp_b", (0x7B, 1, 0b1010000)),
    ],
)
def test_riscv_fields(name, fields):
    encoding = catalogue()[name].encoding
    assert (encoding.opcode, encoding.funct3, encoding.funct7) == fields


def test_every_entry_names_its_source_and_its_encoding():
    assert len(catalogue()) >= 60
    for name, instruction in catalogue().items():
        assert instruction.name == name
        assert instruction.source
        assert instruction.encoding
        if "timing nominal" in instruction.source:
            assert (instruction.latency, instruction.initiation_interval) == (1, 1)
        else:
            assert "manual" in instruction.source or "timing" in instruction.source


def test_the_catalogue_is_read_only():
    with pytest.raises(TypeError):
        catalogue()["mine"] = None


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("vnni", "avx512_vpdpbusd_512_broadcast"),
        ("sdot", "arm_sdot_element"),
        ("amx", "amx_tdpbssd"),
        ("dp4a", "nvidia_dp4a_s8s8"),
        ("smmla", "arm_smmla"),
        ("olimp", "olimp_vec_8u8_16i8_2s32"),
        ("vrmpy", "hexagon_vrmpy_s8u8_scalar"),
    ],
)
def test_aliases(alias, name):
    assert resolve_instruction(alias).name == name == resolve_instruction(name).name
    assert resolve_instructions(alias) == (catalogue()[name],)


def test_no_alias_hides_a_name():
    assert not set(aliases()) & set(catalogue())
    assert set(aliases().values()) <= set(catalogue())


def test_unknown_name_gives_the_closest():
    message = r"^unknown instruction 'VNNI2', and no file of that name; closest: vnni \(celosia coverage --list shows all\)$"
    with pytest.raises(ParameterError, match=message):
        resolve_instruction("VNNI2")
    with pytest.raises(ParameterError, match=r"closest: arm_sdot_element, "):
        resolve_instruction("arm_sdot_elements")
    with pytest.raises(ParameterError, match=r"^unknown instruction 'qqqq', and no file of that name; known are vnni, vpdpbusd, "):
        resolve_instruction("qqqq")


@pytest.mark.parametrize("module", ["catalogue"])
def test_examples_in_docstrings(module):
    result = doctest.testmod(importlib.import_module(f"celosia.intrinsics.{module}"))
    assert result.attempted > 0
    assert result.failed == 0
