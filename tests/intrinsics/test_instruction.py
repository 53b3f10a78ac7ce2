import re

import pytest

from celosia.intrinsics import Contraction, Encoding, Instruction, ParameterError

DOT = Contraction("k,nk->n", {"n": 4, "k": 4})


def test_throughput():
    assert Instruction(name="dot", contraction=DOT).macs_per_cycle == 16
    assert Instruction(name="dot", contraction=DOT, initiation_interval=4, latency=9).macs_per_cycle == 4


@pytest.mark.parametrize("name", ["Dot", "4dot", "dot product", "dot-4", "", "dot\n", "ünit", 3])
def test_bad_name(name):
    message = rf"^instruction name must be a lower-case identifier \(\[a-z\]\[a-z0-9_\]\*\), not {re.escape(repr(name))}$"
    with pytest.raises(ParameterError, match=message):
        Instruction(name=name, contraction=DOT)


@pytest.mark.parametrize("key", ["latency", "initiation_interval"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2"])
def test_bad_timing(key, value):
    message = rf"^{key} must be an integer of at least 1, not {re.escape(repr(value))}; nearest legal value: 1$"
    with pytest.raises(ParameterError, match=message):
        Instruction(name="dot", contraction=DOT, **{key: value})


def test_bad_resident():
    with pytest.raises(ParameterError, match=r"^resident must be 'acc', 'b' or absent, not 'a'$"):
        Instruction(name="dot", contraction=DOT, resident="a")


@pytest.mark.parametrize(("field", "high"), [("opcode", 127), ("funct3", 7), ("funct7", 127)])
def test_encoding_fields(field, high):
    assert getattr(Encoding(isa="x", mnemonic="y", **{field: high}), field) == high
    for value in (-1, high + 1, "1"):
        with pytest.raises(ParameterError, match=rf"^{field} must be from 0 to {high}, not {re.escape(repr(value))}$"):
            Encoding(isa="x", mnemonic="y", **{field: value})
