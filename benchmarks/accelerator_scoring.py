"""Speed of the exact scorers and of the exhaustive search: ``python benchmarks/accelerator_scoring.py [--json FILE]``.

Medians of several runs, in wall-clock time, since all processors work, and per second of a processor. Three sets of points:

* one structure: 4 x 4 x 5 tiles of a matrix product on 16x16, their sizes random; both scorers
* mixed, self-test: designs, operators and schedules as ``celosia selftest accelerator`` draws them, no two alike
* mixed, layer: random tiles, orders and slots of the whole space of one layer of ResNet

All scorers must agree, and with the reference model on a sample.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from celosia.compiler.accelerator.convolution import gemm
from celosia.compiler.accelerator.costs import fits, schedule_table, table
from celosia.compiler.accelerator.lower import lower
from celosia.compiler.accelerator.problem import Problem
from celosia.compiler.accelerator.schedule import ORDERS, Schedule
from celosia.compiler.accelerator.vectorised import score_structure
from celosia.explore.accelerator_search import SLOTS, best_schedule
from celosia.explore.accelerator_selftest import Case, random_case, random_design
from celosia.hw import DesignPoint
from celosia.hw.accelerator.machine import machine_of
from celosia.intrinsics import ParameterError
from celosia.intrinsics.accelerator import predict
from celosia.intrinsics.accelerator.costs import INDEX
from celosia.intrinsics.numerics import Array
from celosia.sim.accelerator_scorer import score

LAYER = (196, 256, 2304)
RUNS = 7
GOALS = {
    "one_structure_numpy": 1e6,
    "one_structure_compiled": 1e6,
    "mixed_selftest_compiled": 5e5,
    "mixed_layer_compiled": 5e5,
    "search_candidates": 1e6,
}


def layer() -> Problem:
    point = DesignPoint.create("accelerator", rows=16, cols=16, spad_kib=64, port_bytes=16)
    return Problem(machine=machine_of(point), op=gemm(*LAYER))


def one_structure(rng: np.random.Generator, count: int) -> tuple[Array, float]:
    """Rows of one structure, and the commands of each."""
    problem, schedule = layer(), Schedule(m=4, n=4, k=32)
    rows = np.repeat(schedule_table(problem, [schedule]), count, axis=0)
    for name, column in INDEX.items():
        if name.startswith(("a_m_", "c_m_", "b_n_", "c_n_")):
            rows[:, column] = rng.integers(1, 200 if name[0] in "ab" else 5, count)
        elif name == "latency":
            rows[:, column] = rng.integers(1, 60, count)
    return rows, len(lower(problem, schedule).commands)


def mixed_selftest(rng: np.random.Generator, count: int) -> tuple[Array, float]:
    """Rows of random designs, operators and schedules, and the mean of their commands."""
    rows, commands = [], []
    while len(rows) < count:
        try:
            point = random_design(rng)
        except ParameterError:
            continue
        for case in (random_case(rng, point) for _ in range(50)):
            problem, limits = problem_of(case), {"timing": case.timing, "limits": case.limits}
            program = lower(problem, case.schedule)
            rows.append(schedule_table(problem, [case.schedule], **limits))
            commands.append(len(program.commands))
            if not len(rows) % 100:
                assert score(rows[-1])[0][0] == predict(problem.machine, program, memory=case.timing, limits=case.limits).cycles
    order = rng.permutation(len(rows))
    return np.concatenate(rows)[order], statistics.mean(commands)


def problem_of(case: Case) -> Problem:
    return Problem(machine=machine_of(case.point), op=case.op, output=case.output)


def random_columns(problem: Problem, rng: np.random.Generator, size: int) -> dict[str, Array]:
    """Random tiles, orders and slots of the space that `best_schedule` searches: those of ``size`` draws that fit the memories."""
    most = {"m": problem.max_m, "n": problem.max_n, "k": problem.k_chunks}
    columns = {axis: rng.integers(1, blocks + 1, size) for axis, blocks in most.items()}
    slots = np.array(SLOTS)[rng.integers(0, len(SLOTS), size)]
    columns |= {name: slots[:, place] for place, name in enumerate(("a_slots", "b_slots", "c_slots", "lag"))}
    orders = np.array([["mnk".index(axis) for axis in order] for order in ORDERS])[rng.integers(0, len(ORDERS), size)]
    columns |= {name: orders[:, place] for place, name in enumerate(("outer", "middle", "inner"))}
    chosen = fits(problem, columns)
    return {name: values[chosen] for name, values in columns.items()}


def schedule_of(columns: dict[str, Array], row: int) -> Schedule:
    at = {name: int(values[row]) for name, values in columns.items()}
    return Schedule(order="".join("mnk"[at.pop(name)] for name in ("outer", "middle", "inner")), **at)


def mixed_layer(rng: np.random.Generator, count: int) -> tuple[Array, float]:
    """Rows of random schedules of the layer that are legal, and the mean of their commands (of a sample)."""
    problem, kept, commands = layer(), [], []
    while sum(map(len, kept)) < count:
        columns = random_columns(problem, rng, 8 * count)
        rows = table(problem, **columns)
        cycles, _ = score(rows)
        kept.append(rows[cycles >= 0])
        for row in np.flatnonzero(cycles >= 0)[: 200 - len(commands)]:
            program = lower(problem, schedule_of(columns, row))
            assert cycles[row] == predict(problem.machine, program).cycles
            commands.append(len(program.commands))
    return np.concatenate(kept)[:count], statistics.mean(commands)


def rate(action: Callable[[], Any], points: int) -> tuple[float, float]:
    """Points per second, and per second of one processor: medians of `RUNS`."""
    wall, cpu = [], []
    for _ in range(RUNS):
        started, used = time.perf_counter(), time.process_time()
        action()
        wall.append(time.perf_counter() - started)
        cpu.append(time.process_time() - used)
    return points / statistics.median(wall), points / statistics.median(cpu)


def measure(seed: int) -> dict[str, Any]:
    rng, figures, sets = np.random.default_rng(seed), {}, {}
    rows, commands = one_structure(rng, 200_000)
    assert np.array_equal(score_structure(rows), score(rows)[0])
    sets["one_structure"] = {"points": len(rows), "mean_commands": commands}
    figures["one_structure_numpy"] = rate(lambda: score_structure(rows), len(rows))
    figures["one_structure_compiled"] = rate(lambda: score(rows), len(rows))
    for name, draw, count in (("mixed_selftest", mixed_selftest, 4000), ("mixed_layer", mixed_layer, 20_000)):
        mixed, commands = draw(rng, count)
        sets[name] = {"points": len(mixed), "mean_commands": commands}
        figures[f"{name}_compiled"] = rate(lambda rows=mixed: score(rows), len(mixed))
    problem = layer()
    found = best_schedule(problem)
    sets["search"] = {"candidates": found.candidates, "scored": found.scored, "cycles": found.cycles}
    figures["search_candidates"] = rate(lambda: best_schedule(problem), found.candidates)
    return {
        "processors": len(os.sched_getaffinity(0)),
        "sets": sets,
        "per_second": {name: wall for name, (wall, _) in figures.items()},
        "per_processor_second": {name: cpu for name, (_, cpu) in figures.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to a file")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    result = measure(arguments.seed)
    for name, values in result["sets"].items():
        print(name.replace("_", " ") + ": " + ", ".join(f"{value:,.0f} {key.replace('_', ' ')}" for key, value in values.items()))
    for name, value in result["per_second"].items():
        cpu = result["per_processor_second"][name]
        print(f"{name.replace('_', ' '):24}{value:12,.0f} /s{value / GOALS[name]:7.2f} of {GOALS[name]:,.0f}{cpu:12,.0f} /s of a processor")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
