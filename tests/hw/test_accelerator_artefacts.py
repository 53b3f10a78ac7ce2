import json
import re
import subprocess

import pytest
from amaranth.hdl import Module
from amaranth.lib.wiring import In, Out

from celosia.hw import DesignPoint
from celosia.hw.accelerator import emit
from celosia.hw.accelerator.artefacts import emit_accelerator_artefacts
from celosia.hw.accelerator.emit import emit_accelerator
from celosia.hw.accelerator.machine import machine_of
from celosia.hw.shared import SharedPart, part_rtlil
from celosia.intrinsics import ParameterError, ToolFailedError
from celosia.intrinsics.accelerator.command import COMMAND_BITS, FIELDS, Command, Op, encode
from celosia.sim.toolchain import require_compiler

from .test_verilog import verilator

SMALL = {"rows": 2, "cols": 2, "spad_kib": 1, "acc_kib": 1, "port_bytes": 4, "channel_words": 1}
POINT = DesignPoint.create("accelerator", **SMALL)


class _Wire(SharedPart):
    def body(self):
        m = Module()
        m.d.comb += self.q.eq(self.d)
        return m


def test_files_agree_and_carry_the_hash(tmp_path):
    verilog, described, header, testbench = emit_accelerator_artefacts(POINT, tmp_path / "out", prefix="my_")
    data = json.loads(described.read_text())
    assert data["name"] == verilog.stem
    assert verilog.stem.startswith("my_")
    assert all(POINT.hash in path.read_text() for path in (verilog, described, header, testbench))
    assert [path.name for path in (described, header, testbench)] == [f"{verilog.stem}{end}" for end in (".json", ".h", "_tb.v")]
    assert sorted((tmp_path / "out").iterdir()) == sorted((verilog, described, header, testbench))
    names = re.findall(
        r"^  (?:input|output)\s+(?:reg |wire )?\s*(?:\[\d+:0\]\s*)?(\w+);", verilog.read_text().partition("endmodule")[0], re.M
    )
    assert {port["name"] for port in data["ports"]} == set(names)
    assert data["commands"]["LOAD"]["base"] == {"offset": FIELDS[Op.LOAD]["base"].offset, "width": 32, "signed": False}


def test_a_c_program_reads_a_command_by_the_header(tmp_path):
    _, _, header, _ = emit_accelerator_artefacts(POINT, tmp_path)
    values = {name: 0 for name in FIELDS[Op.COMPUTE] if name not in ("op", "wait", "wait_load", "wait_compute", "wait_store")}
    word = encode(Command(Op.COMPUTE, {**values, "k_units": 513, "m_blocks": 3, "n_blocks": 2}))
    macro = header.stem.upper()
    bytes_of = ", ".join(str(byte) for byte in word.to_bytes(COMMAND_BITS // 8, "little"))
    (tmp_path / "read.c").write_text(
        f'#include <stdio.h>\n#include "{header.name}"\nstatic const unsigned char w[] = {{{bytes_of}}};\n'
        "static unsigned get(int bit, int n) {\n"
        "    unsigned v = 0;\n"
        "    for (int i = 0; i < n; ++i) v |= (w[(bit + i) / 8] >> (bit + i) % 8 & 1u) << i;\n"
        "    return v;\n}\n"
        f"#define F(name) get({macro}_COMPUTE_##name##_BIT, {macro}_COMPUTE_##name##_WIDTH)\n"
        'int main(void) { printf("%u %u %u %u\\n", F(OP), F(K_UNITS), F(M_BLOCKS), F(N_BLOCKS)); }\n'
    )
    subprocess.run([*require_compiler().command, "-x", "c", "read.c", "-o", "read"], cwd=tmp_path, check=True)
    done = subprocess.run([str(tmp_path / "read")], capture_output=True, text=True, check=True)
    assert done.stdout == f"{Op.COMPUTE.value} 513 3 2\n"


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(ParameterError, match="output folder must be a folder"):
        emit_accelerator_artefacts(POINT, tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"


def test_the_instruction_and_the_sizes_of_memories_are_told(tmp_path):
    _, described, header, _ = emit_accelerator_artefacts(POINT, tmp_path)
    data = json.loads(described.read_text())
    assert data["instruction"]["einsum"] == POINT.instruction.contraction.einsum
    assert data["instruction"]["macs"] == 4
    machine = machine_of(POINT)
    sizes = data["capacities"]
    assert sizes["a_banks"] * sizes["a_words"] * sizes["a_word_bytes"] == 1024  # spad_kib of each operand
    assert sizes["acc_rows"] * sizes["acc_cols"] * 4 == 1024
    assert (sizes["b_words"], sizes["channel_words"], sizes["residual_word_bytes"]) == (machine.b_words, 1, 0)
    macro = header.stem.upper()
    defined = dict(re.findall(rf"^#define {macro}_(\w+) (\d+)$", header.read_text(), re.M))
    assert {name: int(defined[name.upper()]) for name in sizes} == sizes


@pytest.mark.parametrize(
    "parameters",
    [
        {"core": "output-stationary"},
        {"core": "weight-stationary", "bus": "axi4", "commands": "registers", "residual_words": 16},
        {"core": "outer-product", "split": True, "residual_words": 16},
    ],
)
def test_lint_has_nothing_to_say(parameters, tmp_path):
    point = DesignPoint.create("accelerator", **{**SMALL, **parameters})
    rtl = emit_accelerator(point)
    path = tmp_path / "top.v"
    path.write_text(rtl.verilog)
    lint = verilator("--lint-only", "--top-module", rtl.top, path)
    assert (lint.returncode, lint.stderr) == (0, "")


def test_the_datapath_is_a_module_with_the_name_of_the_design():
    rtl = emit_accelerator(POINT, prefix="my")
    assert re.findall(r"^module (\w+)", rtl.verilog, re.M) == [rtl.top, f"{rtl.top}_datapath"]
    assert f"  {rtl.top}_datapath datapath (" in rtl.verilog


def test_a_datapath_that_cannot_be_made_is_told(monkeypatch):
    monkeypatch.setattr(emit, "_DATAPATH", ("celosia.hw.accelerator.emit", "no_such_function"))
    with pytest.raises(ToolFailedError, match=r"^Yosys failed with status 1: .*no_such_function"):
        emit_accelerator(POINT)


def test_a_part_made_elsewhere_needs_clock_and_reset():
    """Its instance connects both."""
    with pytest.raises(ValueError, match=r"^module alone has no clk and no rst$"):
        part_rtlil(_Wire({"d": In(1), "q": Out(1)}), name="alone")


def test_lint_sees_a_combinational_loop(tmp_path):
    """Amaranth's own search is left out (`hw.shared`)."""
    rtl = emit_accelerator(POINT)
    used = re.search(r"  assign command_ready = (.*);", rtl.verilog)
    loop = "  wire loop_a, loop_b;\n  assign loop_a = loop_b | rst;\n  assign loop_b = loop_a & command_valid;\n"
    path = tmp_path / "top.v"
    path.write_text(rtl.verilog.replace(used[0], f"{loop}  assign command_ready = {used[1]} | loop_a;"))
    lint = verilator("--lint-only", "--top-module", rtl.top, path)
    assert "UNOPTFLAT" in lint.stderr


@pytest.mark.parametrize(("cols", "port_bytes", "near"), [(64, 1, 2), (256, 4, 8), (255, 2, 4)])
def test_a_port_too_narrow_for_a_row_is_refused(cols, port_bytes, near):
    with pytest.raises(ParameterError, match=rf"beats of a row of {cols} sums; a store has at most 255; nearest legal value: {near}$"):
        DesignPoint.create("accelerator", rows=1, cols=cols, port_bytes=port_bytes)
    DesignPoint.create("accelerator", rows=1, cols=cols, port_bytes=near, spad_kib=64)
    DesignPoint.create("accelerator", rows=1, cols=63, port_bytes=1, spad_kib=64)


@pytest.mark.parametrize("mode", ["saturate", "saturate-once"])
def test_sums_that_saturate_are_refused(mode):
    with pytest.raises(
        ParameterError, match=rf"^overflow of an accelerator must be one of forbid, wrap, not '{mode}': .*legal value: wrap$"
    ):
        DesignPoint.create("accelerator", rows=2, cols=2, overflow=mode)
