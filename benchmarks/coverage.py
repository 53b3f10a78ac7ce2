"""Figures of the mapper: python benchmarks/coverage.py [--verify]. Run by hand; times are of this machine."""

from __future__ import annotations

import argparse
import importlib.util
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from celosia.compiler.coverage import Coverage, coverage
from celosia.compiler.enumerate import enumerate_maps
from celosia.compiler.tasks import task, tasks

FIXTURE = Path(__file__).parents[1] / "tests" / "compiler" / "fixtures" / "small_operators.py"
DIRECT = (
    "conv2d:1x56x56x64,64x3x3,p1",
    "conv2d:1x56x56x64,128x3x3,s2,p1",
    "conv2d:1x28x28x128,128x3x3,p1",
    "conv2d:1x14x14x256,256x3x3,p1",
    "conv2d:1x7x7x512,512x3x3,p1",
)
LEFT_OUT = ("nrm:1x1024x1024", "nrm:1x4096x1024", "sfm:", "cbr:")
"""What the table of 42 shapes does not hold; the rest of TVM's CONFIGS is 42 shapes."""


def fixture() -> Any:
    spec = importlib.util.spec_from_file_location("small_operators", FIXTURE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def describe(what: str, report: Coverage, seconds: float) -> None:
    mapped = [pair for pair in report.pairs if pair.status == "mapped"]
    times = [1e3 * pair.seconds for pair in report.pairs]
    print(f"{what}: {len(report.pairs)} pairs answered, {len(mapped)} mapped, in {seconds:.1f} s")
    print(
        f"  at utilisation >= 0.25: {sum(pair.utilization >= 0.25 for pair in mapped)}, >= 0.5: {sum(p.utilization >= 0.5 for p in mapped)}"
    )
    high = sorted(times)[int(0.95 * len(times))]
    print(f"  answer: median {statistics.median(times):.1f} ms, 95 % below {high:.1f} ms, max {max(times):.1f} ms")
    for entry in report.summary:
        share = f"{100 * entry['mac_share']:.1f} % of MACs at utilisation {entry['utilization']:.3f}"
        print(f"  {entry['instruction']:12} {entry['mapped']}/{entry['operators']} mapped, {share}")


def full(instructions: Any) -> None:
    start = time.perf_counter()
    everything = tasks("operators")
    report = coverage(everything, instructions)
    seconds = time.perf_counter() - start
    describe(f"CONFIGS, {len(everything)} shapes", report, seconds)
    kept = tuple(pair for pair in report.pairs if not pair.operator.startswith(LEFT_OUT))
    mapped = sum(pair.status == "mapped" for pair in kept)
    print(f"  of these without SFM, CBR and the two largest NRM: {mapped} of {len(kept)} mapped")


def small(module: Any, verify: bool) -> None:
    start = time.perf_counter()
    report = coverage(module.small_tasks().values(), module.INSTRUCTIONS, verify="all" if verify else 0)
    describe("26 small operators", report, time.perf_counter() - start)
    if verify:
        proved = [pair.verified for pair in report.pairs if pair.verified is not None]
        print(f"  verified against NumPy: {sum(proved)} of {len(proved)}")


def direct(instructions: Any) -> None:
    worst = 0.0
    for text in DIRECT:
        einsum = task(text).parsed.einsum
        padded = math.prod(high - low + 1 for low, high in (index.bounds(einsum.extents) for index in einsum.a.index))
        for entry in instructions:
            (found,) = enumerate_maps(einsum, entry, limit=1, gather=False)
            worst = max(worst, found.activation_bytes / padded)
    pairs = f"{len(DIRECT)} shapes x {len(instructions)} instructions"
    print(f"direct 3x3 convolutions: at most {worst:.3f} x the padded input is moved, over {pairs}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--verify", action="store_true", help="prove every map of the small operators (minutes)")
    module = fixture()
    options = parser.parse_args()
    full(module.INSTRUCTIONS)
    direct(module.INSTRUCTIONS)
    small(module, options.verify)


if __name__ == "__main__":
    main()
