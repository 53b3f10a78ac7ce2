"""Stand-ins for what takes long: an area without synthesis, a verifier that answers from the exact model."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

from celosia.compiler.schedule import schedule_space
from celosia.explore.candidate import Candidate
from celosia.explore.rtl import check
from celosia.explore.study import Study
from celosia.intrinsics import Measurement, stream_cycles
from celosia.intrinsics.timing import utilization

SMALL = {
    "name": "small",
    "seed": 5,
    "budget": 120,
    "front_limit": 4,
    "hardware": {
        "systolic": {
            "dataflow": ["output-stationary", "weight-stationary"],
            "rows": {"min": 1, "max": 5},
            "cols": {"min": 2, "max": 4, "step": 2},
        },
        "dot-product": {"lanes": {"min": 1, "max": 4, "power_of_two": True}, "depth": [2, 8], "resident": [False, True]},
    },
    "workload": {"operators": ["gemm:12x16x20", {"operator": "gemm:7x9x33", "weight": 3}]},
}


def small_study(**changes: Any) -> Study:
    return Study.from_dict({**SMALL, **changes})


def fake_area(point: Any) -> float:
    parameters = point.parameters
    if point.family == "dot-product":
        return point.macs_per_cycle * 4300.0 + parameters.lanes * (2000 if parameters.resident else 700)
    return point.macs_per_cycle * (4400.0 if parameters.weight_stationary else 4900.0) + 400 * (parameters.rows + parameters.cols)


@dataclasses.dataclass
class FakeVerifier:
    """Answers as RTL would if the model is right; ``change`` breaks an answer."""

    operators: list[Any]
    change: Callable[[Candidate, str, Measurement], Measurement] = lambda candidate, name, run: run
    calls: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    lock: Any = dataclasses.field(default_factory=threading.Lock)

    def run(self, candidate: Candidate, name: str, *, progress: Callable[..., None] | None = None) -> Measurement:
        with self.lock:
            self.calls.append((candidate.hash, name))
        operator = next(operator for operator in self.operators if operator.name == name)
        machine = candidate.design.machine
        cycles = stream_cycles(machine, schedule_space(operator, machine).schedule(candidate.schedule(name)).nest)
        if progress:
            progress("simulate", cycles // 2, cycles)
        run = Measurement(
            cycles=cycles,
            macs=operator.macs,
            utilization=utilization(machine, operator.macs, cycles),
            source="rtl",
            design_hash=machine.design_hash,
            matches_reference=True,
            model_cycles=cycles,
        )
        return self.change(candidate, name, run)

    def check(self, run: Any, candidate: Candidate, name: str, *, expected: int | None) -> None:
        check(run, candidate, name, expected=expected, seed=5)
