"""The functional model of the accelerator: ``python benchmarks/accelerator_functional.py [--json FILE]``.

Programs of about 800,000 rows (what loads bring and stores write) on several designs; every result is compared with NumPy's. Printed
are rows per CPU second, the check of the program included, and how many of the program's cycles that is: RTL, measured by
`accelerator_rtl.py`, takes about a second for a million.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from celosia.compiler.accelerator.convolution import Convolution, gemm
from celosia.compiler.accelerator.job import expected, image_of, result_of, typical_operands, typical_output
from celosia.compiler.accelerator.lower import lower
from celosia.compiler.accelerator.problem import Problem
from celosia.compiler.accelerator.schedule import Schedule
from celosia.hw import DesignPoint
from celosia.hw.accelerator.machine import machine_of
from celosia.intrinsics.accelerator import Op, Program, predict
from celosia.intrinsics.accelerator.functional import execute

LARGE = {"rows": 16, "cols": 16, "spad_kib": 64, "port_bytes": 16}
WINDOWS = Convolution(height=112, width=112, channels=64, filters=80, kernel=(3, 3), pad=1)
RUNS: tuple[tuple[str, dict[str, Any], Convolution, Schedule, str], ...] = (
    ("matrix product", LARGE, gemm(3136, 192, 576), Schedule(m=8, n=1, k=2), "sums"),
    ("convolution", LARGE, WINDOWS, Schedule(m=4, n=1, k=4), "sums"),
    ("convolution, 8-bit output", LARGE, WINDOWS, Schedule(m=4, n=1, k=4), "int8"),
    ("convolution, weight-stationary", LARGE | {"core": "weight-stationary"}, WINDOWS, Schedule(m=64, n=1, k=4), "sums"),
    (
        "convolution, 4x4",
        {"rows": 4, "cols": 4, "spad_kib": 8, "port_bytes": 8},
        Convolution(height=56, width=56, channels=64, filters=160, kernel=(3, 3), pad=1),
        Schedule(m=8, n=2, k=8),
        "sums",
    ),
    (
        "depthwise, vector mode",
        LARGE | {"core": "outer-product"},
        Convolution(height=112, width=112, channels=672, filters=672, kernel=(3, 3), pad=1, groups=672),
        Schedule(m=4, n=1, k=1),
        "sums",
    ),
)
"""What is computed, on which design, and how."""


def rows_of(program: Program) -> int:
    """Rows that loads bring and stores write."""
    loads = sum(command.values["rows"] for command in program.commands if command.op is Op.LOAD)
    stores = (command.values for command in program.commands if command.op is Op.STORE)
    return loads + sum((values["m_blocks"] - 1) * values["rows"] + values["last_rows"] for values in stores)


def measured(design: dict[str, Any], op: Convolution, schedule: Schedule, output: str) -> dict[str, Any]:
    """Rows, cycles and CPU seconds of one program."""
    machine = machine_of(DesignPoint.create("accelerator", **design))
    problem = Problem(machine=machine, op=op, output=typical_output(output))
    program = lower(problem, schedule)
    operands = typical_operands(problem, np.random.default_rng(0))
    memory = image_of(problem, operands)
    start = time.process_time()
    execute(machine, program, memory)
    seconds = time.process_time() - start
    if not np.array_equal(result_of(program, memory), expected(problem, operands)):
        raise SystemExit(f"{program.title}: the result is not NumPy's")
    cycles = predict(machine, program).cycles
    return {"commands": len(program.commands), "rows": rows_of(program), "cycles": cycles, "cpu_seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures of every program in a file")
    arguments = parser.parse_args()
    results = []
    for name, design, op, schedule, output in RUNS:
        found = {"program": name, **measured(design, op, schedule, output)}
        results.append(found)
        rows, cycles = (found[key] / found["cpu_seconds"] for key in ("rows", "cycles"))
        size = f"{found['rows']:,} rows in {found['commands']:,} commands"
        print(f"{name:<31} {size}: {found['cpu_seconds']:.2f} CPU s, {rows:,.0f} rows/s, {cycles / 1e6:.1f} million cycles/s", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
