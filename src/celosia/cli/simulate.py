"""``celosia simulate``: a GEMM or a whole operator on the RTL of one design, compared bit for bit."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from ..intrinsics import FormatError, Measurement, ParameterError
from . import accelerator
from .console import Console, table
from .parser import add_families, add_verb, design_point, gemm_shape, natural, positive, probability

EXAMPLE = "celosia simulate systolic --rows 8 --cols 8 --gemm 64x64x64 --seed 0 --json"


def add(verbs: Any) -> None:
    """Add the verb."""
    parser = add_verb(verbs, "simulate", "run a GEMM or an operator on the RTL of a design and compare it with a reference", EXAMPLE)
    families, made = add_families(parser, EXAMPLE)
    for family in made:
        family.add_argument("--gemm", metavar="MxNxK", help="matrix product C[M,N] = A[M,K] x B[K,N]")
        family.add_argument("--operator", metavar="OP", help="operator, such as conv2d:1x56x56x64,64x3x3,s2,p1; TVM tensorizes it")
        family.add_argument("--order", metavar="LOOPS", help="loop order of a GEMM's tiles, outermost first (default: fastest)")
        family.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of the random operands (default 0)")
        family.add_argument("--gaps", type=probability, default=0.0, metavar="P", help="probability that an operand beat is withheld")
        family.add_argument("--backpressure", type=probability, default=0.0, metavar="P", help="probability that a result is not taken")
        family.add_argument("--max-cycles", type=positive, default=None, metavar="N", help="give up after this many cycles")
        family.set_defaults(handler=run)
    accelerator.add_simulate(families)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Simulate and report; exit code 1 if the output differs from the reference."""
    point = design_point(arguments)
    if (arguments.gemm is None) == (arguments.operator is None):
        raise FormatError("simulate needs one of --gemm MxNxK and --operator OP, such as --gemm 64x64x64")
    measurement = _gemm(arguments, point, console) if arguments.gemm is not None else _operator(arguments, point, console)
    data = {"name": point.name, "design_point": point.to_dict(), **measurement.to_dict()}
    console.result(data, describe(point.name, measurement))
    return 0 if measurement.matches_reference and measurement.model_cycles in (None, measurement.cycles) else 1


def _gemm(arguments: argparse.Namespace, point: Any, console: Console) -> Measurement:
    m, n, k = gemm_shape(arguments.gemm)
    from ..sim import simulate_gemm

    return simulate_gemm(
        point,
        m=m,
        n=n,
        k=k,
        seed=arguments.seed,
        order=arguments.order,
        max_cycles=arguments.max_cycles,
        gaps=arguments.gaps,
        backpressure=arguments.backpressure,
        progress=partial(console.progress, "simulated cycles"),
        building=console.progress.stage,
    )


def _operator(arguments: argparse.Namespace, point: Any, console: Console) -> Measurement:
    for name, idle in (("order", None), ("gaps", 0.0), ("backpressure", 0.0)):
        if getattr(arguments, name) != idle:
            raise ParameterError(f"--{name} goes with --gemm only; an operator runs in the order of its schedule")
    from ..explore.operator_run import simulate_operator

    return simulate_operator(point, arguments.operator, seed=arguments.seed, max_cycles=arguments.max_cycles, progress=console.progress)


def describe(name: str, measurement: Measurement) -> str:
    """Lay a measurement out for people."""
    verdict = {True: "equals the reference", False: "DIFFERS FROM THE REFERENCE", None: "not compared"}[measurement.matches_reference]
    rows = [[key, f"{cycles:,}", f"{100 * cycles / measurement.cycles:.1f}"] for key, cycles in measurement.ledger.items()]
    rows.append(["total", f"{measurement.cycles:,}", "100.0"])
    lines = [
        name,
        f"output {verdict}; {measurement.macs:,} MACs in {measurement.cycles:,} cycles ({measurement.source}), "
        f"utilization {measurement.utilization:.3f}, {measurement.calls:,} tile calls",
    ]
    if measurement.model_cycles is not None:
        agreement = "equal" if measurement.model_cycles == measurement.cycles else "NOT EQUAL"
        lines.append(f"cycle model: {measurement.model_cycles:,} cycles ({agreement})")
    seconds = f"built in {measurement.build_seconds:.2f} s, simulated in {measurement.simulation_seconds:.2f} s"
    return "\n".join([*lines, "", table(["ledger", "cycles", "%"], rows), "", seconds])
