"""``celosia explore``: parameters in, a verified Pareto front and Verilog out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .console import Console, table
from .parser import add_output_options, add_verb, natural, positive

EXAMPLE = "celosia explore examples/resnet18.toml --out runs/resnet18 --workers 2"


def add(verbs: Any) -> None:
    """Add the verb."""
    parser = add_verb(verbs, "explore", "search hardware and schedules together; verify the front on RTL", EXAMPLE)
    parser.add_argument("study", type=Path, metavar="STUDY.toml", help="what to explore: hardware domains, workload, objectives")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the results (default: runs/<name of the study>)")
    parser.add_argument("--budget", type=positive, metavar="N", help="candidates to evaluate (default: the study's)")
    parser.add_argument("--seed", type=natural, metavar="N", help="seed of the search (default: the study's)")
    parser.add_argument("--workers", type=positive, default=1, metavar="N", help="members verified at the same time (default 1)")
    parser.add_argument("--resume", action="store_true", help="go on from the journal in the folder, if there is one")
    add_output_options(parser)
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Explore, verify and show the front; exit code 1 if a member failed on RTL."""
    from ..explore.study import Study

    study = Study.load(arguments.study, budget=arguments.budget, seed=arguments.seed)
    from ..explore.run import explore  # slow, so after the study's mistakes
    from ..explore.verify import AuditError

    folder = arguments.out or Path("runs") / study.name
    try:
        result = explore(study, folder, resume=arguments.resume, workers=arguments.workers, progress=console.progress)
    except AuditError as unequal:
        if console.json_wanted:
            console.result(difference(study, folder, unequal), "")
        raise
    if result.interrupted:
        raise KeyboardInterrupt(result.resume_hint)
    data = result.to_dict()
    console.result(data, describe(result))
    for reason, count in data["failures"].items():
        console.note(f"{count} candidates have no measurements: {reason}")
    if not result.front and not result.rejected:
        reason = f"; most often: {result.commonest_failure}" if result.commonest_failure else ""
        console.error(
            f"no candidate of {result.evaluated} could be measured, so the front is empty; widen the domains or the limits{reason}"
        )
    for failure in result.rejected:
        error = failure["error"]
        console.error(f"{failure['name']} failed its verification on {failure['operator']}: {error['class']}: {error['message']}")
    return result.exit_code


def difference(study: Any, folder: Path, error: Any) -> dict[str, Any]:
    """Plain data of a study that a difference between RTL and model stopped."""
    reason = {"class": type(error).__name__, "message": str(error)}
    return {"study": study.to_dict(), "study_hash": study.hash, "folder": str(folder), "error": reason, "reproduce": error.reproduce}


def describe(result: Any) -> str:
    """Lay the front out for people."""
    names = result.study.objectives
    sources = result.front[0].sources if result.front else {}
    checks = {"bit-exact": "matches_reference"}
    if result.study.of_accelerators:
        checks["events equal"] = "events_equal"
    header = ["member", *(f"{name} ({sources.get(name, '')})" for name in names), "multipliers", "utilization", *checks]
    rows = [
        [
            member.name,
            *(f"{member.objectives[name]:,.0f}" for name in names),
            str(member.candidate.design.macs_per_cycle),
            f"{member.utilization:.3f}",
            *(f"{sum(bool(run[key]) for run in member.operators.values())}/{len(member.operators)}" for key in checks.values()),
        ]
        for member in result.front
    ]
    seconds = sum(result.seconds.values())
    return "\n".join(
        [
            table(header, rows),
            "",
            f"{result.evaluated:,} candidates by the exact model, {result.infeasible} of them infeasible, {result.failed} failed; "
            f"front of {result.front_size}, {len(result.front)} verified on RTL over every whole operator"
            f"{_sample(result)}; seed {result.study.seed}; {seconds:.0f} s",
            f"results in {result.folder}: front.json, front.csv, front.png, front.svg, results.json, verilog/",
        ]
    )


def _sample(result: Any) -> str:
    return f", {len(result.sample)} others audited likewise" if result.sample else ""
