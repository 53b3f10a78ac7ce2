"""Scored points against RTL, and the command line that repeats such a run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from ..compiler.accelerator.convolution import Convolution
from ..compiler.accelerator.schedule import Schedule
from ..hw.design_point import DesignPoint
from ..hw.options import options
from ..intrinsics.accelerator import MemoryTiming
from .accelerator import AcceleratorResult, require_exact, simulate_accelerator


def audit(
    points: Sequence[tuple[DesignPoint, Convolution, Schedule]], *, timing: MemoryTiming | None = None, seed: int = 0
) -> tuple[AcceleratorResult, ...]:
    """Run scored points on RTL; any difference in a bit or a cycle stops the audit.

    Raises
    ------
    MismatchError
        Holds the command that repeats the run.
    """
    results = []
    for point, op, schedule in points:
        result = simulate_accelerator(point, op, schedule=schedule, fidelity="both", timing=timing, seed=seed)
        require_exact(result, simulate_command(point, operator_string(op), schedule, timing=timing, seed=seed))
        results.append(result)
    return tuple(results)


def simulate_command(
    point: DesignPoint,
    operator: str,
    schedule: Schedule,
    *,
    output: str = "sums",
    timing: MemoryTiming | None = None,
    seed: int = 0,
) -> str:
    """The command line that repeats a run, ready for a shell; ``operator`` is the operator's string, ``output`` a key of `job.OUTPUTS`."""
    timing, words = timing or MemoryTiming(), ["celosia", "simulate", "accelerator"]
    kinds = {option.name: option.kind for option in options(point.family)}
    for name, value in point.parameters.to_dict().items():
        flag = "--" + name.replace("_", "-")
        if kinds[name] == "flag":
            words.append(flag if value else f"--no-{flag[2:]}")
        else:
            words += [flag, str(value)]
    words += ["--operator", operator, "--schedule", json.dumps(schedule.to_dict(), separators=(",", ":"))]
    if output != "sums":
        words += ["--output", output]
    return shlex.join([*words, "--latency", str(timing.latency), "--seed", str(seed)])


def operator_string(op: Convolution) -> str:
    """The string of a convolution or matrix product that pads with zeros."""
    if op.is_gemm and op.images == op.width == 1:
        return f"gemm:{op.height}x{op.filters}x{op.channels}"
    size = f"conv2d:{op.images}x{op.height}x{op.width}x{op.channels},{op.filters}x{op.kernel[0]}x{op.kernel[1]}"
    return f"{size},s{op.stride},p{op.pad},d{op.dilation},g{op.groups}"
