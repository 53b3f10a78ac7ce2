"""Ports, registers and C driver of an accelerator behind AXI4 and AXI4-Lite."""

import json
import subprocess

import numpy as np
import pytest

from celosia.hw import DesignPoint
from celosia.hw.accelerator.artefacts import emit_accelerator_artefacts
from celosia.hw.accelerator.register_map import IRQ, register_map
from celosia.intrinsics import ParameterError
from celosia.intrinsics.accelerator.command import COMMON, FIELDS, Command, Op, encode
from celosia.sim.toolchain import require_compiler

SIZES = {"rows": 1, "cols": 2, "spad_kib": 1, "acc_kib": 1, "port_bytes": 8, "channel_words": 0}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    point = DesignPoint.create("accelerator", **SIZES, bus="axi4", commands="registers")
    return emit_accelerator_artefacts(point, tmp_path_factory.mktemp("axi"))


def test_the_ports_are_those_of_the_standard(files):
    ports = {port["name"]: (port["width"], port["direction"]) for port in json.loads(files[1].read_text())["ports"]}
    address = ("id", "addr", "len", "size", "burst", "lock", "cache", "prot", "qos", "valid", "ready")
    wanted = {f"m_axi_{channel}{name}" for channel in ("ar", "aw") for name in address}
    wanted |= {f"m_axi_r{name}" for name in ("id", "data", "resp", "last", "valid", "ready")}
    wanted |= {f"m_axi_w{name}" for name in ("data", "strb", "last", "valid", "ready")}
    wanted |= {f"m_axi_b{name}" for name in ("id", "resp", "valid", "ready")}
    wanted |= {f"s_axi_{channel}{name}" for channel in ("ar", "aw") for name in ("addr", "prot", "valid", "ready")}
    wanted |= {f"s_axi_{name}" for name in ("wdata", "wstrb", "wvalid", "wready", "bresp", "bvalid", "bready")}
    wanted |= {f"s_axi_r{name}" for name in ("data", "resp", "valid", "ready")}
    assert set(ports) == wanted | {"clk", "rst", "done", "irq", "error", "waiting", "events"}
    assert ports["m_axi_araddr"] == (64, "out")
    assert ports["m_axi_rdata"] == (64, "in")
    assert ports["m_axi_wstrb"] == (8, "out")


def test_the_description_holds_the_register_map(files):
    described = json.loads(files[1].read_text())["register_map"]
    found = register_map(base=True)
    assert {name: entry["offset"] for name, entry in described.items()} == {name: register.offset for name, register in found.items()}
    assert len({register.offset for register in found.values()}) == len(found)
    assert list(described["IRQ_STATUS"]["fields"]) == list(IRQ)
    assert described["COMMAND_7"] | {"help": ""} == {"offset": 0x5C, "access": "write", "help": "", "fields": {}}


def run_c(folder, header, body):
    """Compile a C program against the header, with its registers in an array and every write noted, and run it."""
    macro = header.stem.upper()
    (folder / "main.c").write_text(
        "#include <stdio.h>\n#include <stdint.h>\nuint32_t registers[64];\n"
        f"#define {macro}_READ(device, offset) ((device)[(offset) / 4])\n"
        f"#define {macro}_WRITE(device, offset, value) "
        '((void)(device), (void)printf("%02x=%x\\n", (unsigned)(offset), (unsigned)(value)))\n'
        f'#include "{header}"\n#define F(name) {header.stem}_##name\n#define M(name) {macro}_##name\n'
        f"int main(void)\n{{\n{body}\n    return 0;\n}}\n"
    )
    warnings = ("-Wall", "-Wextra", "-Wno-unused-function", "-Werror")
    subprocess.run([*require_compiler().command, "-x", "c", "-std=c99", *warnings, "main.c", "-o", "main"], cwd=folder, check=True)
    return subprocess.run([str(folder / "main")], capture_output=True, text=True, check=True).stdout.split()


def test_a_c_program_drives_the_registers(files, tmp_path):
    lines = run_c(
        tmp_path,
        files[2],
        """
    uint32_t command[M(COMMAND_WORDS)] = {M(OP_END), 2, 3, 4, 5, 6, 7, 8};
    registers[M(REG_ID) / 4] = M(ID);
    registers[M(REG_HASH_LOW) / 4] = M(HASH_LOW);
    printf("%d", F(matches)(registers));
    registers[M(REG_HASH_HIGH) / 4] = M(HASH_HIGH);
    printf("%d ", F(matches)(registers));
    printf("%d\\n", F(push)(registers, command));
    registers[M(REG_QUEUE) / 4] = 2u << M(QUEUE_SPACE_BIT) | 6u << M(QUEUE_LEVEL_BIT);
    printf("%u %d\\n", F(space)(registers), F(push)(registers, command));
    registers[M(REG_STATUS) / 4] = 1u << M(STATUS_BUSY_BIT);
    registers[M(REG_IRQ_STATUS) / 4] = M(IRQ_DONE);
    printf("%d %u\\n", F(busy)(registers), (unsigned)F(happened)(registers));
    F(clear)(registers, M(IRQ_DONE) | M(IRQ_ILLEGAL));
    F(interrupts)(registers, M(IRQ_WRITE_ERROR));
    F(place)(registers, 0x123456789000u);""",
    )
    pushed = ["40=5", *(f"{0x40 + 4 * word:02x}={word + 1}" for word in range(1, 8))]
    assert lines == ["01", "0", *pushed, "2", "1", "1", "1", "14=3", "18=8", "38=56789000", "3c=1234"]


@pytest.mark.parametrize("op", [Op.LOAD, Op.COMPUTE, Op.STORE])
def test_a_c_program_makes_the_words_of_the_encoder(files, tmp_path, op):
    rng = np.random.default_rng(int(op))
    values = {name: int(rng.integers(field.limits[0], field.limits[1] + 1)) for name, field in FIELDS[op].items() if name not in COMMON}
    puts = [f"PUT({name.upper()}, (uint32_t){value}ll)" for name, value in values.items()]
    body = "\n    ".join(
        [
            "uint32_t c[M(COMMAND_WORDS)] = {0};\n    int word;",
            f"#define PUT(name, value) F(put)(c, M({op.name}_##name##_BIT), M({op.name}_##name##_WIDTH), value);",
            f"PUT(OP, M(OP_{op.name}))",
            *puts,
            'for (word = 0; word < M(COMMAND_WORDS); ++word) printf("%x\\n", (unsigned)c[word]);',
        ]
    ).replace("#define PUT", "\n#define PUT")
    word = encode(Command(op, values))
    assert [int(line, 16) for line in run_c(tmp_path, files[2], body)] == [word >> 32 * index & 0xFFFFFFFF for index in range(8)]


def test_a_header_of_a_command_stream_has_no_registers(tmp_path):
    point = DesignPoint.create("accelerator", **SIZES, bus="axi4")
    verilog, described, header, _ = emit_accelerator_artefacts(point, tmp_path)
    assert "REG_" not in header.read_text()
    assert "register_map" not in json.loads(described.read_text())
    assert "memory_base" in verilog.read_text()


def test_buses_are_named():
    with pytest.raises(ParameterError, match=r"^bus must be one of native, axi4, not 'axi3'$"):
        DesignPoint.create("accelerator", **SIZES, bus="axi3")
    with pytest.raises(ParameterError, match=r"^commands must be one of stream, registers, not 'wishes'$"):
        DesignPoint.create("accelerator", **SIZES, commands="wishes")
