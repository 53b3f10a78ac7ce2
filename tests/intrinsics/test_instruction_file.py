import os
import re

import pytest

from celosia.intrinsics import Encoding, FormatError, Overflow, ParameterError
from celosia.intrinsics.catalogue import load_instructions, resolve_instruction, resolve_instructions
from celosia.intrinsics.tomlfile import read_toml

GOOD = """
[[instruction]]
name = "my_dot"
einsum = "k,nk->n"
extents = { n = 4, k = 4 }
a = "uint8"
b = "int8"
acc = "int32"
"""


@pytest.fixture
def write(tmp_path):
    def writer(text, name="my isa é.toml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return writer


def test_the_least_entry(write):
    (instruction,) = load_instructions(write(GOOD))
    assert instruction.name == "my_dot"
    assert str(instruction.contraction) == "k,nk->n [n=4, k=4] uint8, int8 -> int32"
    assert (instruction.latency, instruction.initiation_interval, instruction.resident, instruction.encoding) == (1, 1, None, None)
    assert instruction.contraction.overflow is Overflow.FORBID


def test_every_key(write):
    text = (
        GOOD
        + """
overflow = "saturate"
latency = 3
initiation_interval = 2
resident = "acc"
encoding = { isa = "RISC-V custom", mnemonic = "my.dot", opcode = 0x0b, funct3 = 1, funct7 = 2 }
aliases = ["mine"]
source = "here"
"""
    )
    (instruction,) = load_instructions(write(text))
    assert (instruction.latency, instruction.initiation_interval, instruction.resident, instruction.source) == (3, 2, "acc", "here")
    assert instruction.encoding == Encoding(isa="RISC-V custom", mnemonic="my.dot", opcode=11, funct3=1, funct7=2)
    assert instruction.contraction.overflow is Overflow.SATURATE


def test_a_file_stands_for_all_of_its_instructions(write):
    path = write(GOOD + GOOD.replace("my_dot", "other"))
    assert [instruction.name for instruction in resolve_instructions(str(path))] == ["my_dot", "other"]
    assert resolve_instruction(f"{path}:other").name == "other"
    with pytest.raises(ParameterError, match=r"holds 2 instructions; choose one as .*:NAME with NAME one of my_dot, other$"):
        resolve_instruction(str(path))
    with pytest.raises(ParameterError, match=r": no instruction 'third'; it holds my_dot, other$"):
        resolve_instruction(f"{path}:third")


def test_a_file_in_the_current_folder_needs_no_suffix(write, monkeypatch, tmp_path):
    write(GOOD, "mine")
    monkeypatch.chdir(tmp_path)
    assert resolve_instruction("mine").name == "my_dot"


def entry(old, new):
    return GOOD.replace(old, new)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (entry("einsum", "einsom"), r"instruction 'my_dot': unknown key 'einsom'; did you mean 'einsum'\?"),
        (GOOD + "zzzz = 1", r"instruction 'my_dot': unknown key 'zzzz'; allowed: name, einsum, extents, a, b, acc, overflow, .*, source"),
        (entry('acc = "int32"', ""), r"instruction 'my_dot': missing key 'acc'"),
        (entry('name = "my_dot"', ""), r"instruction 1: missing key 'name'"),
        (entry('"my_dot"', "3"), r"instruction 1: name must be a string, not an integer"),
        (entry("{ n = 4, k = 4 }", "4"), r"instruction 'my_dot': extents must be a table, not an integer"),
        (entry("k = 4", "k = 4.0"), r"instruction 'my_dot': extents.k must be an integer, not a number"),
        (entry("k = 4", "k = true"), r"instruction 'my_dot': extents.k must be an integer, not true or false"),
        (GOOD + 'latency = "3"', r"instruction 'my_dot': latency must be an integer, not a string"),
        (GOOD + "latency = true", r"instruction 'my_dot': latency must be an integer, not true or false"),
        (GOOD + "source = 1979-05-27", r"instruction 'my_dot': source must be a string, not date"),
        (GOOD + "aliases = [1]", r"instruction 'my_dot': aliases must be a string, not an integer"),
        (GOOD + 'aliases = ["my_dot"]', r"instruction 1: name 'my_dot' is already used by instruction 1"),
        (GOOD + 'encoding = { isa = "x" }', r"instruction 'my_dot': encoding: missing key 'mnemonic'"),
        (
            GOOD + 'encoding = { isa = "x", mnemonic = "y", opcod = 1 }',
            r"instruction 'my_dot': encoding: unknown key 'opcod'; did you mean 'opcode'\?",
        ),
        (GOOD + 'encoding = { isa = "x", mnemonic = 1 }', r"instruction 'my_dot': encoding.mnemonic must be a string, not an integer"),
        (GOOD + GOOD, r"instruction 2: name 'my_dot' is already used by instruction 1"),
        ("", r"missing key 'instruction'"),
        ("instruction = []", r"holds no \[\[instruction\]\]"),
        ("instruction = 3", r"instruction must be an array, not an integer"),
        ("instruction = [3]", r"instruction 1 must be a table, not an integer"),
        (GOOD.replace("[[instruction]]", "[instruction]"), r"write \[\[instruction\]\] with two brackets, one per entry"),
        (GOOD.replace("[[instruction]]", "[[instructions]]"), r"unknown key 'instructions'; did you mean 'instruction'\?"),
        (entry("n = 4,", "n = ,"), r"not TOML: Invalid value \(at line 5, column 17\)"),
        (b"\n\nname = '\xff'", r"not UTF-8: byte 0xff in line 3"),
    ],
)
def test_format_errors(write, text, message):
    path = write(text)
    with pytest.raises(FormatError, match=f"^{re.escape(str(path))}: {message}$"):
        load_instructions(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            entry("k,nk->n", "k,nk=>n"),
            r"einsum must look like 'mk,kn->mn', not 'k,nk=>n'; '=' \(position 4\) is no axis: axes are letters from a to z",
        ),
        (entry("my_dot", "My Dot"), r"instruction name must be a lower-case identifier .*, not 'My Dot'"),
        (entry("uint8", "u8"), r"dtype must be intN or uintN with N from 1 to 64, such as int8 or uint4, not 'u8'"),
        (entry("int32", "int8"), r"accumulator int8 is too narrow for 4 products of uint8 x int8; .*; nearest legal value: int18"),
        (entry("n = 4", "n = 0"), r"extent of axis 'n' must be a positive integer, not 0; nearest legal value: 1"),
        (GOOD + 'overflow = "clip"', r"overflow must be one of forbid, wrap, saturate, saturate-once, not 'clip'"),
        (GOOD + "latency = 0", r"latency must be an integer of at least 1, not 0; nearest legal value: 1"),
        (GOOD + 'resident = "c"', r"resident must be 'acc', 'b' or absent, not 'c'"),
        (GOOD + 'encoding = { isa = "x", mnemonic = "y", funct3 = 8 }', r"funct3 must be from 0 to 7, not 8"),
    ],
)
def test_parameter_errors_name_file_and_entry(write, text, message):
    path = write(text)
    with pytest.raises(ParameterError, match=rf"^{re.escape(str(path))}: instruction '[^']+': {message}$"):
        load_instructions(path)


def test_files_that_are_none(tmp_path):
    with pytest.raises(FormatError, match=r"none\.toml: no such file$"):
        resolve_instruction(str(tmp_path / "none.toml"))
    with pytest.raises(FormatError, match=r": is a folder, not a TOML file$"):
        resolve_instruction(str(tmp_path))
    with pytest.raises(FormatError, match=r": cannot be read: embedded null byte$"):
        read_toml("a\0b")


@pytest.mark.parametrize("text", ["", "  ", "a b", "-x", "\n"])
def test_strange_names_end_in_one_sentence(text, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((FormatError, ParameterError)) as caught:
        resolve_instruction(text)
    assert caught.value.exit_code == 2


def test_a_file_without_permission(write):
    path = write(GOOD)
    path.chmod(0)
    if os.access(path, os.R_OK):  # the superuser reads everything
        assert load_instructions(path)
        return
    with pytest.raises(FormatError, match=r": cannot be read: Permission denied$"):
        load_instructions(path)
