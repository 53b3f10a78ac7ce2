"""What people read of ``celosia coverage``: reasons with changes, tables that fit the terminal, types, mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from celosia.cli import main

ENTRY = """
[[instruction]]
name = "form_{number}"
einsum = "{einsum}"
extents = {{ {extents} }}
a = "int8"
b = "int8"
acc = "int32"
"""
FORMS = {"k,k->": "k = 4", "mk,kn->mn": "m = 4, n = 4, k = 4", "m,n->mn": "m = 4, n = 4", "c,c->c": "c = 4"}


@pytest.fixture
def isa(tmp_path: Path) -> str:
    path = tmp_path / "forms.toml"
    entries = (ENTRY.format(number=number, einsum=einsum, extents=extents) for number, (einsum, extents) in enumerate(FORMS.items()))
    path.write_text("".join(entries))
    return str(path)


def run(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(("coverage", *arguments, "--quiet"))
    return code, *capfd.readouterr()


def test_rejections_say_why_and_what_would_change_it(capfd, isa, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    code, out, _ = run(capfd, "--isa", isa, "--operator", "nrm:1x8x8", "--operator", "gemm:8x8x8")
    assert code == 0
    text = " ".join(out.split())
    assert "nrm:1x8x8 on form_2: no axis of i (reduction), j (reduction) runs along m (a and output), n (b and output)" in text
    assert "nearest change: an instruction such as k,k->, at the price of an adder tree" in text
    assert max(len(line) for line in out.partition("not mapped:")[2].partition("\n\n")[0].splitlines()) <= 100


def test_large_tables_fit_the_terminal_and_show_tvm(capfd, isa, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    operators = [f"--operator=gemm:4x4x{depth}" for depth in range(4, 14)]
    code, out, _ = run(capfd, "--isa", isa, *operators, "--compare-tvm")
    assert code == 0
    matrix, tvm = out.split("TVM's own routes:")
    assert max(len(line) for line in matrix.splitlines()) <= 60
    assert all(matrix.count(f"form_{number}") == 1 for number in range(4))
    assert matrix.count("gemm:4x4x13 ") == 2
    assert "direct" in tvm
    assert tvm.rstrip().splitlines()[-1].split()[-1].endswith("/10")


def test_types_of_the_data(capfd):
    code, out, _ = run(capfd, "--isa", "vnni", "--a", "uint8", "--operator", "gemm:8x32x8", "--json")
    (pair,) = json.loads(out)["pairs"]
    assert (code, pair["types"], pair["activation_bytes"]) == (0, "uint8 x int8 -> int32", 0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--isa", "vnni", "--a", "float32"), "dtype must be intN or uintN"),
        (("--isa", "vnni", "--operator", "sfm:2x2"), "position 4: this kind has the shapes of TVM only"),
        (("--design", "systolic:rows=8,cols=8,rows=4"), "rows is given twice"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(capfd, arguments, says):
    code, out, err = run(capfd, *arguments)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert says in err
