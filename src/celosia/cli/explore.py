"""``celosia explore``: parameters in, a verified Pareto front and Verilog out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .console import Console
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
    raise NotImplementedError
