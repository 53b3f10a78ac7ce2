"""Speed of the accelerator's RTL: ``python benchmarks/accelerator_rtl.py [--json FILE] [--quick] [--core CORE]``.

Cycles per CPU second of the model on a whole GEMM, whose result and events are checked, and the time from parameters to the first
cycle with nothing cached but Verilator's runtime: elaboration, Yosys, Verilator, compiler and linker, in wall time, as
`celosia simulate` tells it; and what the whole process takes, with Python's start and its imports.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from celosia.compiler.accelerator.convolution import gemm
from celosia.compiler.accelerator.job import expected, image_of, random_operands, result_of
from celosia.compiler.accelerator.lower import lower
from celosia.compiler.accelerator.problem import Problem
from celosia.explore.accelerator_search import best_schedule
from celosia.hw.design_point import DesignPoint
from celosia.intrinsics.accelerator import predict
from celosia.sim.accelerator import AcceleratorModel

GEMMS = {4: (96, 64, 1200), 8: (98, 128, 1152), 16: (196, 256, 2304)}
RATE_GOALS = {16: 0.9}
COLD_GOALS = {8: 3.0, 16: 10.0}

COLD = """
import sys
from celosia.hw.design_point import DesignPoint
from celosia.sim.accelerator import AcceleratorModel
rows, core = int(sys.argv[1]), sys.argv[2]
print(AcceleratorModel(DesignPoint.create("accelerator", core=core, rows=rows, cols=rows, spad_kib=64)).library.build_seconds)
"""


def point_of(core: str, size: int) -> DesignPoint:
    """An int8 design with 64 KiB per operand and a 16-byte port."""
    return DesignPoint.create("accelerator", core=core, rows=size, cols=size, spad_kib=64)


def rate(core: str, size: int, runs: int) -> float:
    """Millions of cycles per CPU second."""
    model = AcceleratorModel(point_of(core, size))
    problem = Problem(machine=model.machine, op=gemm(*GEMMS[size]))
    program = lower(problem, best_schedule(problem).schedule)
    operands = random_operands(problem, np.random.default_rng(0))
    events, found = predict(model.machine, program), []
    for _ in range(runs):
        memory = image_of(problem, operands)
        start = time.thread_time()
        run = model.run(program, memory)
        found.append(run.cycles / (time.thread_time() - start) / 1e6)
        assert run.events == events
        assert np.array_equal(result_of(program, memory), expected(problem, operands))
    return statistics.median(found)


def cold(core: str, size: int, folder: str) -> tuple[float, float, float]:
    """Seconds from parameters to a model, and wall and CPU seconds of the process that made it."""
    environment = {**os.environ, "CELOSIA_CACHE": folder}
    shutil.rmtree(Path(folder) / "libraries", ignore_errors=True)
    before, start = _children(), time.perf_counter()
    done = subprocess.run([sys.executable, "-c", COLD, str(size), core], check=True, env=environment, stdout=subprocess.PIPE, text=True)
    return float(done.stdout), time.perf_counter() - start, _children() - before


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(core: str, *, quick: bool) -> list[dict[str, Any]]:
    rows = []
    for size in GEMMS:
        value = rate(core, size, 1 if quick else 5)
        goal = RATE_GOALS.get(size)
        rows.append(row(f"RTL, {size}x{size}", value, goal, "million cycles per CPU second", goal is None or value >= goal))
    with tempfile.TemporaryDirectory() as runtime:
        cold(core, 2, runtime)  # makes Verilator's runtime
        for size in GEMMS:
            runs = [cold(core, size, runtime) for _ in range(1 if quick else 5)]
            built, wall, cpu = (statistics.median(values) for values in zip(*runs, strict=True))
            goal = COLD_GOALS.get(size)
            rows.append(row(f"parameters to first cycle, {size}x{size}", built, goal, "seconds", goal is None or built <= goal))
            rows.append(row("the whole process", wall, None, "seconds", True))
            rows.append(row("the same on both cores", cpu, None, "CPU seconds", True))
    return rows


def row(name: str, value: float, goal: float | None, unit: str, reached: bool) -> dict[str, Any]:
    return {"name": name, "value": value, "goal": goal, "unit": unit, "reached": None if goal is None else reached}


def main() -> int:
    parser = argparse.ArgumentParser(description="Speed of the accelerator's RTL.")
    parser.add_argument("--json", type=Path, help="also write the figures into this file")
    parser.add_argument("--quick", action="store_true", help="one run of each")
    parser.add_argument("--core", default="output-stationary", help="array core (default: output-stationary)")
    options = parser.parse_args()
    rows = measure(options.core, quick=options.quick)
    for entry in rows:
        verdict = "" if entry["goal"] is None else f"goal {entry['goal']:>5g}  {'reached' if entry['reached'] else 'MISSED'}"
        print(f"{entry['name']:<36} {entry['value']:>8.3g} {entry['unit']:<32} {verdict}")
    if options.json:
        record = {"core": options.core, "figures": rows, "load_average": os.getloadavg(), "cores": os.cpu_count()}
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if all(entry["reached"] is not False for entry in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
