import json
import re
import subprocess

import pytest

from celosia.hw import DesignPoint
from celosia.hw.accelerator.artefacts import emit_accelerator_artefacts
from celosia.intrinsics import ParameterError
from celosia.intrinsics.accelerator.command import COMMAND_BITS, FIELDS, Command, Op, encode
from celosia.sim.toolchain import require_compiler

POINT = DesignPoint.create("accelerator", rows=2, cols=2, spad_kib=1, acc_kib=1, port_bytes=4, channel_words=1)


def test_files_agree_and_carry_the_hash(tmp_path):
    verilog, described, header = emit_accelerator_artefacts(POINT, tmp_path / "out", prefix="my_")
    data = json.loads(described.read_text())
    assert data["name"] == verilog.stem
    assert verilog.stem.startswith("my_")
    assert all(POINT.hash in path.read_text() for path in (verilog, described, header))
    names = re.findall(r"^  (?:input|output)\s+(?:reg |wire )?\s*(?:\[\d+:0\]\s*)?(\w+);", verilog.read_text(), re.M)
    assert {port["name"] for port in data["ports"]} == set(names)
    assert data["commands"]["LOAD"]["base"] == {"offset": FIELDS[Op.LOAD]["base"].offset, "width": 32, "signed": False}


def test_a_c_program_reads_a_command_by_the_header(tmp_path):
    _, _, header = emit_accelerator_artefacts(POINT, tmp_path)
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
