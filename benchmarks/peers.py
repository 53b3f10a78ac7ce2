"""Celosia beside SCALE-Sim and ZigZag: ``python benchmarks/peers.py [--json FILE]``; install them with ``pip install "celosia[bench]"``.

On the same matrix products and output-stationary arrays: how many (hardware, schedule) points each evaluates per CPU second, and the
cycles that each predicts, beside those of Celosia's RTL. Every tool runs in a process of its own; its start and imports are not counted.

What is timed is each tool's fastest documented way to evaluate one point:

* SCALE-Sim, array: ideal memory (InterfaceBandwidth CALC), no traces; its "compute cycles" are those of the array alone
* SCALE-Sim, memory: its memory model with given bandwidths (USER); its "total cycles"
* ZigZag, mapper: every mapping that LOMA makes and costs, with its limit of 6 loop factors; the least latency counts
* ZigZag, fixed: the cost model alone, again and again on the best of these mappings, all parsing and allocation left out
* Celosia: cost table and exact compiled score of random schedules of the space that its search covers, all of them different

What the tools cannot express of the same machine:

* SCALE-Sim chooses its schedule itself; every operand has a port of its own instead of a share of one, and outputs are words of a
  byte. It fills and drains the array for every tile, and reports the number of the last cycle, one less than their count
* ZigZag's description of hardware has no commands, queues or bursts; the array is drained once per layer (systolic_dimensions)
* ours waits 20 cycles for what it reads; the peers were given no latency of memory
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PEERS = {"scalesim": "SCALE-Sim", "zigzag": "ZigZag"}
GOALS = {"SCALE-Sim": 10_000, "ZigZag": 1_000}
POINTS = 20_000
LOMA_FACTORS = 6
TIMEOUT_SECONDS = 600


@dataclass(frozen=True, kw_only=True)
class Case:
    """A matrix product on an array of ``side`` x ``side``, with a memory port as wide as a row."""

    m: int
    n: int
    k: int
    side: int
    spad_kib: int = 64
    acc_kib: int = 64

    @property
    def name(self) -> str:
        return f"{self.m}x{self.n}x{self.k} on {self.side}x{self.side}"


CASES = tuple(Case(m=m, n=n, k=k, side=side) for side in (8, 16) for m, n, k in ((64, 64, 64), (100, 72, 200), (128, 128, 256)))


# ---- one tool, in a process of its own: cases in, (cycles, points, CPU seconds) out


def timed(action: Callable[[], Any]) -> tuple[Any, float]:
    started = time.process_time()
    result = action()
    return result, time.process_time() - started


SCALESIM_CONFIG = """[general]
run_name = point
[run_presets]
InterfaceBandwidth: {mode}
UseRamulatorTrace: False
[architecture_presets]
ArrayHeight: {side}
ArrayWidth: {side}
IfmapSramSzkB: {spad_kib}
FilterSramSzkB: {spad_kib}
OfmapSramSzkB: {acc_kib}
IfmapOffset: 0
FilterOffset: 10000000
OfmapOffset: 20000000
Dataflow: os
Bandwidth: {side}
ReadRequestBuffer: 64
WriteRequestBuffer: 64
[layout]
IfmapCustomLayout: False
IfmapSRAMBankBandwidth: {side}
IfmapSRAMBankNum: 1
IfmapSRAMBankPort: 2
FilterCustomLayout: False
FilterSRAMBankBandwidth: {side}
FilterSRAMBankNum: 1
FilterSRAMBankPort: 2
[sparsity]
SparsitySupport: False
"""


def scalesim(case: Case, mode: str) -> dict[str, float]:
    from scalesim.scale_sim import scalesim as simulator

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "point.cfg").write_text(SCALESIM_CONFIG.format(mode=mode, **asdict(case)), encoding="utf-8")
        (folder / "gemm.csv").write_text(f"Layer,M,N,K,\ngemm,{case.m},{case.n},{case.k},\n", encoding="utf-8")
        (folder / "layout.csv").write_text("Layer,\n", encoding="utf-8")
        files = {"config": "point.cfg", "topology": "gemm.csv", "layout": "layout.csv"}

        def run() -> Any:
            paths = {key: str(folder / file) for key, file in files.items()}
            simulation = simulator(save_disk_space=True, verbose=False, input_type_gemm=True, **paths)
            simulation.run_scale(top_path=name)
            return simulation.runner.single_layer_sim_object_list[0].get_compute_report_items()

        report, seconds = timed(run)
    # total cycles, those of the array, stalls
    return {"cycles": float(report[1 if mode == "CALC" else 0]), "points": 1, "seconds": seconds}


def scalesim_array(case: Case) -> dict[str, float]:
    return scalesim(case, "CALC")


def scalesim_memory(case: Case) -> dict[str, float]:
    return scalesim(case, "USER")


def zigzag_machine(case: Case) -> dict[str, Any]:
    """Registers for sums, two scratchpads, an accumulator memory and a shared port; sizes and widths in bits."""
    row, ends = 8 * case.side, {"served_dimensions": ["D1", "D2"]}

    def memory(size: int, operands: str, **ports: tuple[int, str]) -> dict[str, Any]:
        kinds = {"r": "read", "w": "write", "rw": "read_write"}
        names = [f"{kind.rstrip('12')}_port_{kind[-1] if kind[-1].isdigit() else 1}" for kind in ports]
        made = [
            {"name": name, "type": kinds[name.split("_")[0]], "bandwidth_min": 8, "bandwidth_max": width, "allocation": uses.split(";")}
            for name, (width, uses) in zip(names, ports.values(), strict=True)
        ]
        costs = {"r_cost": 1.0, "w_cost": 1.0, "area": 0, "latency": 1, "auto_cost_extraction": False}
        return {"size": size, "operands": operands.split(), "ports": made, **costs}

    sums = {"r1": (32, "O, tl"), "w1": (32, "O, fh"), "w2": (32, "O, fl"), "r2": (32, "O, th")}
    every = ";".join(
        f"{operand}, {end}" for operand, used in (("I1", "fh tl"), ("I2", "fh tl"), ("O", "fh tl fl th")) for end in used.split()
    )
    memories = {
        "registers": memory(32, "O", **sums) | {"served_dimensions": []},
        "a": memory(case.spad_kib << 13, "I1", r=(row, "I1, tl"), w=(row, "I1, fh")) | ends,
        "b": memory(case.spad_kib << 13, "I2", r=(row, "I2, tl"), w=(row, "I2, fh")) | ends,
        "acc": memory(case.acc_kib << 13, "O", r=(4 * row, "O, tl;O, th"), w=(4 * row, "O, fl;O, fh")) | ends,
        "dram": memory(1 << 40, "I1 I2 O", rw=(row, every)) | ends,
    }
    array = {
        "unit_energy": 1.0,
        "unit_area": 1.0,
        "dimensions": ["D1", "D2"],
        "sizes": [case.side] * 2,
        "systolic_dimensions": ["D1", "D2"],
    }
    return {"name": "array", "memories": memories, "operational_array": array}


def zigzag_mappings(case: Case) -> tuple[list[Any], float]:
    """Cost model evaluations of all of LOMA's mappings, and CPU seconds."""
    import yaml
    from zigzag.mapping.temporal_mapping import TemporalMappingType
    from zigzag.stages.evaluation.cost_model_evaluation import CostModelStage
    from zigzag.stages.main import MainStage
    from zigzag.stages.mapping.spatial_mapping_generation import SpatialMappingGeneratorStage
    from zigzag.stages.mapping.temporal_mapping_generator_stage import TemporalMappingGeneratorStage
    from zigzag.stages.parser.accelerator_parser import AcceleratorParserStage
    from zigzag.stages.parser.workload_parser import WorkloadParserStage
    from zigzag.stages.workload_iterator import WorkloadStage

    logging.disable(logging.CRITICAL)
    stages = [WorkloadParserStage, AcceleratorParserStage, WorkloadStage]
    stages += [SpatialMappingGeneratorStage, TemporalMappingGeneratorStage, CostModelStage]
    mapping = {
        "name": "default",
        "spatial_mapping": {"D1": [f"M, {case.side}"], "D2": [f"N, {case.side}"]},
        "memory_operand_links": {"O": "O", "W": "I2", "I": "I1"},
    }
    layer = {"id": 0, "name": "gemm", "operator_type": "Gemm", "equation": "O[m][n]+=I[m][k]*W[n][k]", "dimension_relations": []}
    layer |= {"loop_dims": ["M", "N", "K"], "loop_sizes": [case.m, case.n, case.k], "operand_source": {"I": 0, "W": 0}}
    layer |= {"operand_precision": {"W": 8, "I": 8, "O": 32, "O_final": 32}}
    with tempfile.TemporaryDirectory() as name:
        files = {"accelerator": (zigzag_machine(case), "machine.yaml"), "mapping": ([mapping], "mapping.yaml")}
        for data, file in files.values():
            (Path(name) / file).write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
        options = {"loma_lpf_limit": LOMA_FACTORS, "loma_show_progress_bar": False, "nb_mappings_generated": 1}
        options |= {"temporal_mapping_type": TemporalMappingType.UNEVEN, "enable_mix_spatial_mapping_generation": False}
        paths = {key: str(Path(name) / file) for key, (_, file) in files.items()}
        main = MainStage(stages, workload=[layer], access_same_data_considered_as_no_access=True, **paths, **options)
        found, seconds = timed(main.run)
    return [cost for cost, _ in found], seconds


def zigzag_mapper(case: Case) -> dict[str, float]:
    costs, seconds = zigzag_mappings(case)
    return {"cycles": min(float(cost.latency_total2) for cost in costs), "points": len(costs), "seconds": seconds}


def zigzag_fixed(case: Case) -> dict[str, float]:
    from zigzag.cost_model.cost_model import CostModelEvaluation

    best = min(zigzag_mappings(case)[0], key=lambda cost: cost.latency_total2)
    names = ("accelerator", "layer", "spatial_mapping", "spatial_mapping_int", "temporal_mapping")
    point = {name: getattr(best, name) for name in names}
    runs = [timed(lambda: CostModelEvaluation(access_same_data_considered_as_no_access=True, **point)) for _ in range(100)]
    return {
        "cycles": float(runs[0][0].latency_total2),
        "points": 1,
        "seconds": statistics.median(seconds for _, seconds in runs),
    }


def celosia(case: Case) -> dict[str, float]:
    """Model and RTL must agree in every event; ``cycles`` are the RTL's."""
    import numpy as np
    from accelerator_scoring import random_columns

    from celosia.compiler.accelerator.convolution import gemm
    from celosia.compiler.accelerator.costs import table
    from celosia.compiler.accelerator.problem import Problem
    from celosia.explore.accelerator import simulate_accelerator
    from celosia.hw import DesignPoint
    from celosia.hw.accelerator.machine import machine_of
    from celosia.sim.accelerator_scorer import score

    sizes = {"rows": case.side, "cols": case.side, "port_bytes": case.side, "spad_kib": case.spad_kib, "acc_kib": case.acc_kib}
    point = DesignPoint.create("accelerator", core="output-stationary", **sizes)
    problem, rng = Problem(machine=machine_of(point), op=gemm(case.m, case.n, case.k)), np.random.default_rng(0)
    columns = random_columns(problem, rng, 3 * POINTS)
    legal = np.flatnonzero(score(table(problem, **columns))[0] >= 0)[:POINTS]
    columns = {name: values[legal] for name, values in columns.items()}
    runs = [timed(lambda: score(table(problem, **columns)))[1] for _ in range(5)]
    result = simulate_accelerator(point, (case.m, case.n, case.k), fidelity="both")
    if not result.passed or result.rtl_cycles is None:
        raise RuntimeError(f"{case.name}: model and RTL differ")
    return {"cycles": result.rtl_cycles, "points": len(legal), "seconds": statistics.median(runs)}


TOOLS: dict[str, tuple[str, Callable[[Case], dict[str, float]]]] = {
    "Celosia": ("Celosia", celosia),
    "SCALE-Sim, array": ("SCALE-Sim", scalesim_array),
    "SCALE-Sim, memory": ("SCALE-Sim", scalesim_memory),
    "ZigZag, mapper": ("ZigZag", zigzag_mapper),
    "ZigZag, fixed": ("ZigZag", zigzag_fixed),
}


def work(tool: str, case: Case) -> None:
    """Evaluate the case twice, the first time to warm up, and print the second as the only line."""
    with contextlib.redirect_stdout(io.StringIO()):
        run = TOOLS[tool][1]
        if tool.startswith("SCALE-Sim"):  # numba and NumPy are loaded by a small one
            run(Case(m=8, n=8, k=8, side=8))
        found = run(case)
    print(json.dumps(found))


def evaluate(tool: str, case: Case) -> dict[str, Any]:
    command = [sys.executable, os.fspath(Path(__file__)), "--tool", tool, "--case", json.dumps(asdict(case))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return {"error": f"no answer in {TIMEOUT_SECONDS} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return {**found, "points_per_second": found["points"] / found["seconds"]}


# ---- all of them


def compare(cases: tuple[Case, ...]) -> dict[str, Any]:
    rows = {}
    for case in cases:
        rows[case.name] = {tool: evaluate(tool, case) for tool in TOOLS}
        for tool, found in rows[case.name].items():
            print(f"{case.name:28} {tool:18} {line(found, rows[case.name])}", flush=True)
    return {"cases": rows, "ratios": ratios(rows), "goals": GOALS}


def line(found: dict[str, Any], row: dict[str, Any]) -> str:
    if "error" in found:
        return f"failed: {found['error']}"
    rtl = row["Celosia"].get("cycles")
    beside = f"{found['cycles'] / rtl:7.2f} of RTL" if rtl else ""
    return f"{found['cycles']:10,.0f} cycles{beside:14}{found['points_per_second']:14,.1f} points/s"


def ratios(rows: dict[str, dict[str, dict[str, Any]]]) -> dict[str, dict[str, float]]:
    """Celosia's points per second over those of the fastest way of each peer: least and median of all cases."""
    result: dict[str, dict[str, float]] = {}
    for peer in GOALS:
        factors = []
        for row in rows.values():
            speeds = [found["points_per_second"] for tool, found in row.items() if TOOLS[tool][0] == peer and "error" not in found]
            if speeds and "error" not in row["Celosia"]:
                factors.append(row["Celosia"]["points_per_second"] / max(speeds))
        if factors:
            result[peer] = {"least": min(factors), "median": statistics.median(factors)}
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to a file")
    parser.add_argument("--quick", action="store_true", help="the smallest product only")
    parser.add_argument("--tool", choices=TOOLS, help=argparse.SUPPRESS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.tool:
        work(arguments.tool, Case(**json.loads(arguments.case)))
        return 0
    missing = [name for package, name in PEERS.items() if importlib.util.find_spec(package) is None]
    if missing:
        print(f'{" and ".join(missing)} not found; install with: pip install "celosia[bench]"', file=sys.stderr)
        return 3
    result = compare(CASES[::3] if arguments.quick else CASES)
    for peer, ratio in result["ratios"].items():
        print(f"points per second, Celosia / {peer}: median {ratio['median']:,.0f}, least {ratio['least']:,.0f}; goal {GOALS[peer]:,}")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
