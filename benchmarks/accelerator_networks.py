"""Whole networks on one accelerator: ``python benchmarks/accelerator_networks.py [--rtl] [--json FILE]``.

Every layer has 8-bit outputs (bias, multiplier, shift, clamp) and gets its best schedule (exhaustive search, exact cycles).
Utilization is useful MACs / (cycles x 256 multipliers) over all layers, each counted as often as the network has it. ``--rtl`` runs
every distinct layer on RTL: all events must be those of the model.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from celosia.compiler.accelerator.job import typical_operands, typical_output
from celosia.compiler.accelerator.operators import convolution_of
from celosia.compiler.workloads import workload
from celosia.explore.accelerator import require_exact, simulate_accelerator
from celosia.hw import DesignPoint

FOLDER = Path(__file__).parents[1] / "examples" / "workloads"
PORT = {"rows": 16, "cols": 16, "spad_kib": 64, "port_bytes": 16}
RUNS = (
    ("resnet18-convolutions", {"core": "output-stationary"}, 0.90),
    ("resnet18-convolutions", {"core": "weight-stationary"}, 0.90),
    ("mobilenet-v1-025", {"core": "outer-product"}, 0.35),
    ("mobilenet-v1-025", {"core": "outer-product", "split": True}, 0.35),
)
"""Workload, design, and the utilization to reach."""


def network(name: str, design: dict[str, Any], *, rtl: bool) -> dict[str, Any]:
    """Cycles of every layer and of the network."""
    point = DesignPoint.create("accelerator", **PORT, **design)
    layers = []
    for operator in workload(str(FOLDER / f"{name}.toml")):
        fidelity = "both" if rtl else "model"
        options: dict[str, Any] = {"output": typical_output("int8"), "make_operands": typical_operands, "fidelity": fidelity}
        result = simulate_accelerator(point, convolution_of(operator), **options)
        require_exact(result, operator.name)
        layers.append(
            {"operator": operator.name, "count": operator.weight, "macs": result.macs, "cycles": result.cycles}
            | {"utilization": result.utilization, "events_equal": result.events_equal, "simulation_seconds": result.simulation_seconds}
        )
    macs, cycles = (sum(layer[key] * layer["count"] for layer in layers) for key in ("macs", "cycles"))
    peak = PORT["rows"] * PORT["cols"]
    return {"workload": name, "design": design, "macs": macs, "cycles": cycles, "utilization": macs / (cycles * peak), "layers": layers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rtl", action="store_true", help="also run every distinct layer on RTL, and stop if an event differs from the model"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures of every network and layer in a file")
    arguments = parser.parse_args()
    results = []
    for name, design, goal in RUNS:
        found = network(name, design, rtl=arguments.rtl) | {"goal": goal}
        results.append(found)
        print(f"{name} on {design}: {found['cycles']:,} cycles, utilization {found['utilization']:.4f} (goal {goal})", flush=True)
        for layer in found["layers"]:
            equal = {True: "every event equal", False: "EVENTS DIFFER", None: ""}[layer["events_equal"]]
            print(f"  {layer['count']} x {layer['operator']:<36} {layer['cycles']:>10,} {layer['utilization']:.3f} {equal}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
