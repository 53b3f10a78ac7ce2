"""Speed of building and stepping RTL, as ratios within one run: ``python benchmarks/simulation.py [--json FILE] [--quick]``.

Times are CPU seconds of the process and its children, since other work on the machine then disturbs them least; each
figure is the median of several runs. The strongest simple alternatives are the yardsticks: a hand-written C++ main on the same
model, PyVerilator signal by signal, Amaranth's simulator, and ``verilator --cc --exe --build -O3``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from celosia.hw.design_point import DesignPoint
from celosia.intrinsics.numerics import random_operand
from celosia.intrinsics.reference import gemm_reference
from celosia.sim import Library, Model, build, interactive
from celosia.sim.toolchain import require_compiler, require_verilator

SMALL = DesignPoint.create("systolic", rows=8, cols=8, depth=256)
LARGE = DesignPoint.create("systolic", rows=16, cols=16, depth=256)

MAIN = """
#include "Vbare.h"
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>
int main(int argc, char** argv) {
    const long beats = atol(argv[1]);
    std::vector<unsigned char> a(beats * 8), b(beats * 8);
    srand(1);
    for (auto& value : a) value = rand();
    for (auto& value : b) value = rand();
    Vbare* t = new Vbare;
    t->rst = 1; t->clk = 0; t->eval(); t->clk = 1; t->eval(); t->rst = 0;
    t->o_c_ready = 1;
    const clock_t start = clock();
    long cycles = 0, results = 0;
    unsigned long sum = 0;
    for (long i = 0; i < beats || results < beats / 256 * 8; ++cycles) {
        const bool offer = i < beats;
        t->i_a_valid = t->i_b_valid = offer;
        if (offer) {
            std::memcpy(&t->i_a_data, &a[i * 8], 8);
            std::memcpy(&t->i_b_data, &b[i * 8], 8);
            t->i_a_last = i % 256 == 255;
        }
        t->clk = 0; t->eval();
        const bool took = offer && t->i_a_ready;
        if (t->o_c_valid) { ++results; sum += t->o_c_data[0]; }
        t->clk = 1; t->eval();
        i += took;
    }
    std::printf("%f %lu\\n", cycles / (double(clock() - start) / CLOCKS_PER_SEC), sum);
}
"""
FIRST_CYCLE = """
import sys, time
from celosia.hw.design_point import DesignPoint
from celosia.sim import Model, build
library = build(DesignPoint.create("systolic", rows=8, cols=8, depth=int(sys.argv[1])))
model = Model(library)
"""
BASELINE = """
import sys, tempfile, os
from amaranth.back import rtlil
from celosia.hw.design_point import DesignPoint
from pyosys import libyosys
point = DesignPoint.create("systolic", rows=8, cols=8, depth=int(sys.argv[1]))
os.chdir(sys.argv[2])
open("bare.il", "w").write(rtlil.convert(point.component(), name="bare", emit_src=False))
design = libyosys.Design()
script = ("read_rtlil bare.il", "proc -nomux -norom", "memory_collect", "attrmap -remove src", "write_verilog -norename bare.v")
for command in script:
    libyosys.run_pass("tee -q " + command, design)
"""
CACHED = """
import time
from celosia.hw.design_point import DesignPoint
import celosia.sim.builder as builder
point = DesignPoint.create("systolic", rows=8, cols=8, depth=256)
wall, cpu = time.perf_counter(), time.process_time()
builder.build(point)
print(time.perf_counter() - wall, time.process_time() - cpu)
"""


def median(measure: Callable[[], float], runs: int) -> float:
    return statistics.median(measure() for _ in range(runs))


def children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def seconds_of(*commands: list[str], cwd: str | None = None, env: dict[str, str] | None = None) -> tuple[float, float]:
    """Wall and CPU seconds."""
    before, start = children_seconds(), time.perf_counter()
    for command in commands:
        subprocess.run(command, check=True, cwd=cwd, env=env, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start, children_seconds() - before


# ---- stepping, cycles per second at 8x8


def stream_rate(model: Model, beats: int) -> float:
    """The harness' stream entry, as `Model.stream` calls it."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 256, (beats, 8), np.uint8) for _ in range(2))
    last = np.zeros(beats, np.uint8)
    last[255::256] = 1
    out = np.zeros((beats // 256 * 8, 32), np.uint8)
    model.reset()
    pointers = (beats, a.ctypes.data, last.ctypes.data, beats, b.ctypes.data, len(out), out.ctypes.data)
    start = time.process_time()
    assert model.library.handle.celosia_stream(model.pointer, *pointers) == 0
    return model.counters.cycles / (time.process_time() - start)


def build_bare(library: Library, folder: Path) -> Path:
    """The same Verilog, flags and runtime under a hand-written main."""
    verilator, compiler = require_verilator(), require_compiler()
    (folder / "main.cc").write_text(MAIN)
    verilog = str(library.path.parent / "block.v")
    flags = ["--cc", "-Wno-fatal", "-Wno-WIDTH", "--x-assign", "fast", "--x-initial", "fast", "--noassert", "--no-timing"]
    top = ["--top-module", library.record["top"], "--prefix", "Vbare", "--Mdir", "bare", verilog]
    subprocess.run([str(verilator.binary), *flags, *top], check=True, cwd=folder, env=verilator.environment, stdout=subprocess.DEVNULL)
    include = verilator.root / "include"
    names = sorted(path.name for path in (folder / "bare").glob("*.cpp"))
    (folder / "bare" / "unity.cc").write_text("".join(f'#include "{name}"\n' for name in names) + '#include "../main.cc"\n')
    plain = [flag for flag in compiler.model_flags if flag not in ("-DVL_USER_FINISH", "-DVM_TRACE=1", "-DVM_TRACE_VCD=1")]
    sources = ["bare/unity.cc", str(include / "verilated.cpp"), str(include / "verilated_threads.cpp")]
    command = [*compiler.command, *plain, f"-I{include}", f"-I{include / 'vltstd'}", "-Ibare", *sources, "-o", "main", "-lpthread"]
    subprocess.run(command, check=True, cwd=folder)
    return folder / "main"


def bare_rate(main: Path, beats: int) -> float:
    return float(subprocess.run([str(main), str(beats)], check=True, capture_output=True, text=True).stdout.split()[0])


def pyverilator_rate(cycles: int) -> float:
    with interactive(SMALL) as session:
        io, clock = session.io, session.clock
        io.o_c_ready = 1
        start = time.process_time()
        for cycle in range(cycles):
            io.i_a_valid = io.i_b_valid = 1
            io.i_a_last = cycle % 256 == 255
            io.i_a_data = io.i_b_data = cycle
            clock.tick()
            _ = io.i_a_ready, io.o_c_valid
        return cycles / (time.process_time() - start)


def amaranth_rate(cycles: int) -> float:
    from amaranth.sim import Simulator

    block: Any = SMALL.component()

    async def drive(context: Any) -> None:
        context.set(block.o_c.ready, 1)
        context.set(block.i_a.valid, 1)
        context.set(block.i_b.valid, 1)
        for cycle in range(cycles):
            context.set(block.i_a.payload.last, cycle % 256 == 255)
            context.set(block.i_a.payload.data[0], cycle % 100)
            await context.tick()

    simulator = Simulator(block)
    simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    start = time.process_time()
    simulator.run()
    return cycles / (time.process_time() - start)


# ---- building, seconds at 8x8


def first_cycle_seconds(depth: int) -> tuple[float, float]:
    """From parameters to a reset model, nothing of the design cached, Verilator's runtime cached."""
    return seconds_of([sys.executable, "-c", FIRST_CYCLE, str(depth)])


def baseline_seconds(depth: int) -> tuple[float, float]:
    """The obvious way: Amaranth's default Verilog, then Verilator's own build."""
    verilator = require_verilator()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "main.cc").write_text('#include "Vbare.h"\nint main() { Vbare t; t.eval(); }\n')
        elaborate = [sys.executable, "-c", BASELINE, str(depth), folder]
        flags = ["--cc", "--exe", "--build", "-O3", "-Wno-fatal", "--top-module", "bare", "--prefix", "Vbare"]
        return seconds_of(
            elaborate, [str(verilator.binary), *flags, "bare.v", "main.cc"], ["obj_dir/Vbare"], cwd=folder, env=verilator.environment
        )


def cached_seconds() -> float:
    done = subprocess.run([sys.executable, "-c", CACHED], check=True, capture_output=True, text=True)
    return float(done.stdout.split()[1])


# ---- whole GEMMs, MACs per second at 16x16


def push_rate(model: Model, m: int, n: int, k: int) -> float:
    rng = np.random.default_rng(0)
    a, b = (random_operand(rng, shape, LARGE.instruction.contraction.a) for shape in ((m, k), (k, n)))
    model.reset()
    start = time.process_time()
    c = model.gemm(a, b)
    seconds = time.process_time() - start
    assert np.array_equal(c, gemm_reference(LARGE.machine, a, b))
    return m * n * k / seconds


def measure(*, quick: bool) -> list[dict[str, Any]]:
    runs = 1 if quick else 5
    beats = 256 * (400 if quick else 4000)
    small = build(SMALL)
    with Model(small) as model, tempfile.TemporaryDirectory() as folder:
        main = build_bare(small, Path(folder))
        pairs = [(stream_rate(model, beats), bare_rate(main, beats)) for _ in range(runs)]
    batch = statistics.median(ours for ours, _ in pairs)
    to_bare = statistics.median(ours / bare for ours, bare in pairs)
    to_pyverilator = batch / median(lambda: pyverilator_rate(2_000), runs)
    to_amaranth = batch / median(lambda: amaranth_rate(200), runs)
    depths = iter(range(1000 + time.time_ns() % 50_000, 65_536))  # never built before
    builds = [(baseline_seconds(depth := next(depths)), first_cycle_seconds(depth)) for _ in range(min(runs, 3))]
    with Model(build(LARGE)) as model:
        macs = median(lambda: push_rate(model, 256, 256, 512 if quick else 2048), runs)
    return [
        row("batch stepping / bare C++ main, 8x8", to_bare, 0.9, "ratio"),
        row("batch stepping / PyVerilator per signal, 8x8", to_pyverilator, 50, "ratio"),
        row("batch stepping / Amaranth's simulator, 8x8", to_amaranth, 500, "ratio"),
        row("verilator --build -O3 / parameters to first cycle, 8x8", statistics.median(x[0] / y[0] for x, y in builds), 5, "ratio"),
        row("the same in CPU time of all cores", statistics.median(x[1] / y[1] for x, y in builds), None, "ratio"),
        row("parameters to first cycle, 8x8", statistics.median(y[0] for _, y in builds), None, "seconds"),
        row("loads of a cached design below 50 ms", 0.05 / median(cached_seconds, runs), 1, "ratio"),
        row("batch stepping, 8x8", batch, None, "cycles per second"),
        row("GEMM through the push path, 16x16, depth 256", macs / 1e6, 100, "million MACs per second"),
    ]


def row(name: str, value: float, goal: float | None, unit: str) -> dict[str, Any]:
    return {"name": name, "value": value, "goal": goal, "unit": unit, "reached": None if goal is None else value >= goal}


def main() -> int:
    parser = argparse.ArgumentParser(description="Speed of building and stepping RTL.")
    parser.add_argument("--json", type=Path, help="also write the figures into this file")
    parser.add_argument("--quick", action="store_true", help="one run of each")
    options = parser.parse_args()
    rows = measure(quick=options.quick)
    for entry in rows:
        verdict = "" if entry["goal"] is None else f"goal {entry['goal']:>6g}  {'reached' if entry['reached'] else 'MISSED'}"
        print(f"{entry['name']:<58} {entry['value']:>12.4g} {entry['unit']:<24} {verdict}")
    if options.json:
        record = {"figures": rows, "load_average": os.getloadavg(), "cores": os.cpu_count()}
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if all(entry["reached"] is not False for entry in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
