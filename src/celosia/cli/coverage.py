"""``celosia coverage``: which operators an instruction can tensorize, how well, and why not the rest."""

from __future__ import annotations

import argparse
from typing import Any

from ..intrinsics import FormatError
from .console import Console, table
from .parser import add_output_options, add_verb

EXAMPLE = "celosia coverage --isa vnni --isa my_isa.toml --workload operators --json"


def add(verbs: Any) -> None:
    """Add the verb."""
    parser = add_verb(verbs, "coverage", "operators x instructions: mapped or not, how well used, and why not", EXAMPLE)
    parser.add_argument(
        "--isa", action="append", default=[], metavar="NAME|FILE", help="instruction of the catalogue, or a TOML file; repeatable"
    )
    parser.add_argument("--workload", action="append", default=[], metavar="NAME|FILE", help="operators, resnet18, or a file; repeatable")
    parser.add_argument(
        "--operator", action="append", default=[], metavar="OP", help="single operator, such as gemm:196x256x2304; repeatable"
    )
    parser.add_argument("--list", action="store_true", help="list the instructions of the catalogue and stop")
    add_output_options(parser)
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Answer every pair and summarise per instruction."""
    from ..intrinsics.catalogue import catalogue, resolve_instructions

    if arguments.list:
        return _list(catalogue(), console)
    if not arguments.isa:
        raise FormatError("coverage needs at least one --isa NAME|FILE, such as --isa vnni; --list shows the catalogue")
    instructions = [instruction for name in arguments.isa for instruction in resolve_instructions(name)]
    from ..compiler.coverage import coverage
    from ..compiler.operators import parse
    from ..compiler.workloads import workload

    names = arguments.workload or ([] if arguments.operator else ["operators"])
    operators = [operator for name in names for operator in workload(name)]
    operators += [parse(text) for text in arguments.operator]
    report = coverage(operators, instructions, progress=console.progress)
    console.result(report.to_dict(), _text(report))
    return 0


def _list(entries: Any, console: Console) -> int:
    rows = [
        [name, str(entry.contraction), entry.encoding.isa if entry.encoding else "", str(entry.latency)] for name, entry in entries.items()
    ]
    data = [{"name": name, "contraction": str(entry.contraction), "source": entry.source} for name, entry in entries.items()]
    console.result({"instructions": data}, table(["instruction", "computes", "isa", "latency"], rows))
    return 0


def _text(report: Any) -> str:
    rows = [
        [
            pair.operator,
            pair.instruction,
            pair.status,
            pair.words,
            f"{pair.utilization:.3f}" if pair.status == "mapped" else "-",
            pair.detail,
        ]
        for pair in report.pairs
    ]
    summary = [
        [entry["instruction"], f"{entry['mapped']}/{entry['operators']}", f"{100 * entry['mac_share']:.1f}"] for entry in report.summary
    ]
    header = ["operator", "instruction", "status", "map", "utilization", "reason"]
    return table(header, rows) + "\n\n" + table(["instruction", "operators mapped", "MACs %"], summary)
