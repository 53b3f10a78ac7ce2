"""Speed of the search without RTL: ``python benchmarks/evaluation.py [--json FILE] [--budget N]``.

Times are CPU seconds of this process, since other work on the machine then disturbs them least; medians of several runs.
``candidates_per_second`` decodes and evaluates the proposals of a real search of examples/resnet18.toml, in their order,
with empty caches at the start; hashing and journal are measured beside it, and so is what ask and tell of each optimiser cost.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from celosia.explore.evaluator import ModelEvaluator, objectives_of
from celosia.explore.front import hypervolume
from celosia.explore.hardware import InfeasibleError, Vector
from celosia.explore.journal import Journal
from celosia.explore.problem import Problem
from celosia.explore.run import estimated_area
from celosia.explore.search import Search, SearchResult
from celosia.explore.study import Study

STUDY = Path(__file__).parents[1] / "examples" / "resnet18.toml"
OPTIMIZERS = ("TwoPointsDE", "DE", "NGOpt", "PortfolioDiscreteOnePlusOne", "DiscreteOnePlusOne", "RandomSearch")
RUNS = 3


class Recording(Problem):
    """Keeps the vectors that a search turns into candidates."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.vectors: list[Vector] = []

    def candidate(self, vector: Any) -> Any:
        self.vectors.append(tuple(vector))
        return super().candidate(vector)


def study(budget: int, **search: Any) -> Study:
    data = Study.load(STUDY, budget=budget).to_dict()
    return Study.from_dict({**data, "search": {**data["search"], **search}})


def searched(work: Study, operators: list[Any], problem: Problem) -> tuple[SearchResult, float]:
    with tempfile.TemporaryDirectory() as folder, Journal(Path(folder) / "journal.jsonl", work.hash) as journal:
        search = Search(problem, ModelEvaluator(operators, estimated_area, work.limits), journal)
        started = time.process_time()
        return search.run(), time.process_time() - started


def cpu(action: Callable[[], Any]) -> float:
    started = time.process_time()
    action()
    return time.process_time() - started


def evaluation(budget: int, operators: list[Any]) -> dict[str, float]:
    work = study(budget)
    recording = Recording(work, operators)
    searched(work, operators, recording)
    vectors = list(dict.fromkeys(recording.vectors))

    def evaluate() -> None:
        problem, evaluator = Problem(work, operators), ModelEvaluator(operators, estimated_area, work.limits)
        for vector in vectors:
            try:
                evaluator.evaluate(problem.candidate(vector))
            except InfeasibleError:
                continue

    cold = statistics.median(cpu(evaluate) for _ in range(RUNS))
    candidates = [recording.candidate(vector) for vector in vectors]
    hashed = cpu(lambda: [candidate.hash for candidate in candidates])
    return {"candidates": len(vectors), "candidates_per_second": len(vectors) / cold, "hash_milliseconds": 1e3 * hashed / len(vectors)}


def optimizers(budget: int, operators: list[Any], seeds: int) -> dict[str, dict[str, float]]:
    """Log-hypervolume of the front by Nevergrad alone, and with the rest of the search, over the best one found by any."""
    volumes: dict[str, dict[str, list[float]]] = {}
    cost: dict[str, list[float]] = {}
    for name in OPTIMIZERS:
        for kind, changes in (("alone", {"refine": 0.0, "warm_start": False}), ("whole", {})):
            for seed in range(seeds):
                work = Study.from_dict({**study(budget, optimizer=name, **changes).to_dict(), "seed": seed})
                found, seconds = searched(work, operators, Problem(work, operators))
                volumes.setdefault(name, {}).setdefault(kind, []).append(volume(found, work))
                if kind == "alone":
                    cost.setdefault(name, []).append(1e3 * seconds / budget)
    best = max(value for kinds in volumes.values() for each in kinds.values() for value in each)
    return {
        name: {
            **{f"front_{kind}": statistics.median(each) / best for kind, each in kinds.items()},
            "milliseconds_per_proposal": statistics.median(cost[name]),
        }
        for name, kinds in volumes.items()
    }


def volume(found: SearchResult, work: Study) -> float:
    points = [objectives_of(record.measurements or {}, work.objectives) for record in found.front(work.objectives)]
    return hypervolume([tuple(math.log(x) for x in point) for point in points], (math.log(1e9), math.log(1e8)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures to a file")
    parser.add_argument("--budget", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="no comparison of optimisers")
    arguments = parser.parse_args()
    import nevergrad  # noqa: F401  # its import is not part of the figures

    operators = study(1).workload.resolve()
    figures: dict[str, Any] = evaluation(arguments.budget, operators)
    if not arguments.quick:
        figures["optimizers"] = optimizers(arguments.budget, operators, arguments.seeds)
    text = json.dumps(figures, indent=2)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
