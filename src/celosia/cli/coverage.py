"""``celosia coverage``: which operators an instruction can tensorize, how well, and why not the rest."""

from __future__ import annotations

import argparse
import os
import shutil
import textwrap
from pathlib import Path
from typing import Any

from ..intrinsics import CelosiaError, DType, FormatError, Instruction
from .console import Console, table
from .parser import add_output_options, add_verb, design_from_text, fraction, natural

EXAMPLE = "celosia coverage --isa vnni --isa my_isa.toml --workload operators --json"

MATRIX_FROM = 40
"""From so many pairs on, people get a matrix instead of a list, unless they ask for the list."""


def add(verbs: Any) -> None:
    """Add the verb."""
    parser = add_verb(verbs, "coverage", "operators x instructions: mapped or not, how well used, and why not", EXAMPLE)
    what = parser.add_argument_group("what is asked (each may be repeated)")
    for name, metavar, text in (
        ("--isa", "NAME|FILE", "instruction of the catalogue, or a TOML file"),
        ("--design", "POINT", "hardware design point, such as systolic:rows=8,cols=8"),
        ("--workload", "NAME|FILE", "operators (default), resnet18, a TOML file, or a Python file with PrimFuncs"),
        ("--operator", "OP", "single operator, such as conv2d:1x56x56x64,64x3x3,s2,p1 or gemm:196x256x2304"),
    ):
        what.add_argument(name, action="append", default=[], metavar=metavar, help=text)
    for name, text in (("--a", "data (default int8)"), ("--b", "weights (default int8)")):
        what.add_argument(name, default="int8", metavar="DTYPE", help=f"type of the operators' {text}; PrimFuncs have their own")
    parser.add_argument("--list", action="store_true", help="list the instructions of the catalogue and stop")
    parser.add_argument("--floor", type=fraction, default=0.1, metavar="U", help="utilization that counts in the totals (default 0.1)")
    parser.add_argument("--verify", type=_verify, default=0, metavar="N|all", help="compile, run and compare N mapped pairs, or all")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of what is verified and of its operands")
    parser.add_argument("--compare-tvm", action="store_true", help="put the verdict of TVM's own routes beside ours")
    parser.add_argument("--long", action="store_true", help="one line per pair also for large tables")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the pairs as CSV")
    parser.add_argument("--heatmap", type=Path, metavar="FILE", help="write a picture, .png, .svg or .pdf")
    add_output_options(parser)
    parser.set_defaults(handler=run)


def _verify(text: str) -> int | str:
    return text if text == "all" else natural(text)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Answer every pair and summarise per instruction; exit code 1 if a verified pair is wrong."""
    if arguments.list:
        return _list(console)
    instructions = _instructions(arguments)
    from ..compiler.coverage import coverage
    from ..compiler.tasks import task, tasks, typed

    _check_files(arguments)
    names = arguments.workload or ([] if arguments.operator else ["operators"])
    types = {name: DType.of(getattr(arguments, name)) for name in "ab"}
    given = [item for name in names for item in tasks(name)] + [task(text) for text in arguments.operator]
    work = [typed(item, **types) for item in given]
    report = coverage(
        work,
        instructions,
        floor=arguments.floor,
        verify=arguments.verify,
        seed=arguments.seed,
        compare_tvm=arguments.compare_tvm,
        progress=console.progress,
    )
    _write_files(arguments, report)
    console.result(report.to_dict(), _text(report, arguments))
    for pair in report.failed:
        console.error(f"{pair.operator} on {pair.instruction}: {pair.proof}")
    return 1 if report.failed else 0


def _instructions(arguments: argparse.Namespace) -> list[Instruction]:
    from ..intrinsics.catalogue import resolve_instructions

    if not arguments.isa and not arguments.design:
        raise FormatError("coverage needs --isa NAME|FILE or --design POINT, such as --isa vnni; --list shows the catalogue")
    known = [instruction for name in arguments.isa for instruction in resolve_instructions(name)]
    return known + [design_from_text(text).instruction for text in arguments.design]


def _check_files(arguments: argparse.Namespace) -> None:
    """Refuse what cannot be written before the slow part."""
    for path in filter(None, (arguments.csv, arguments.heatmap)):
        if path.is_dir():
            raise CelosiaError(f"{str(path)!r} is a folder; name a file in it")
        if not path.parent.is_dir():
            raise CelosiaError(f"{str(path)!r} cannot be written: there is no folder {str(path.parent)!r}")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise CelosiaError(f"{str(path)!r} cannot be written: permission denied or read-only")
    if arguments.heatmap:
        from ..compiler.heatmap import check_path

        check_path(arguments.heatmap)


def _write_files(arguments: argparse.Namespace, report: Any) -> None:
    path = arguments.csv
    try:
        if path:
            path.write_text(report.to_csv(), encoding="utf-8")
        path = arguments.heatmap
        if path:
            from ..compiler.heatmap import write_heatmap

            write_heatmap(report, path)
    except OSError as error:
        raise CelosiaError(f"{str(path)!r} cannot be written: {error.strerror or error}") from error


def _list(console: Console) -> int:
    from ..intrinsics.catalogue import aliases, catalogue

    rows, data = [], []
    for name, entry in catalogue().items():
        isa = entry.encoding.isa if entry.encoding else ""
        short = [alias for alias, full in aliases().items() if full == name]
        rows.append([name, ", ".join(short), str(entry.contraction), isa, str(entry.latency), str(entry.initiation_interval)])
        timing = {"latency": entry.latency, "initiation_interval": entry.initiation_interval}
        data.append({"name": name, "aliases": short, "contraction": str(entry.contraction), "isa": isa, **timing, "source": entry.source})
    console.result({"instructions": data}, table(["instruction", "alias", "computes", "isa", "latency", "interval"], rows))
    return 0


def _text(report: Any, arguments: argparse.Namespace) -> str:
    width = shutil.get_terminal_size((120, 0)).columns
    if len(report.pairs) >= MATRIX_FROM and not arguments.long:
        parts = [_matrix(report.rows(), width)]
        parts += [f"TVM's own routes:\n{_matrix(_tvm_rows(report), width)}"] if arguments.compare_tvm else []
    else:
        parts = [_pairs(report, compare=arguments.compare_tvm)]
    return "\n\n".join([*parts, *_why_not(report, width), _summary(report)])


def _matrix(rows: list[list[str]], width: int) -> str:
    """A table whose columns go on below where the terminal ends."""
    sizes = [max(len(row[column]) for row in rows) + 2 for column in range(len(rows[0]))]
    blocks: list[list[int]] = []
    used = width
    for column, size in enumerate(sizes[1:], 1):
        if used + size > width + 2:
            blocks.append([])
            used = sizes[0]
        blocks[-1].append(column)
        used += size
    cut = ([[row[0], *(row[column] for column in block)] for row in rows] for block in blocks)
    return "\n\n".join(table(header, body) for header, *body in cut)


def _pairs(report: Any, *, compare: bool) -> str:
    verified = {None: "", True: "ok", False: "WRONG"}
    header = ["operator", "instruction", "map, or why not", "utilization", "moved", "verified"]
    rows = [
        [
            pair.operator,
            pair.instruction,
            pair.words if pair.status == "mapped" else pair.reason,
            f"{pair.utilization:.3f}" if pair.status == "mapped" else "-",
            pair.answer.status if pair.status == "mapped" else "",
            verified[pair.verified],
        ]
        for pair in report.pairs
    ]
    if compare:
        header.append("TVM")
        rows = [[*row, _tvm(pair.tvm)] for row, pair in zip(rows, report.pairs, strict=True)]
    return table(header, rows)


def _why_not(report: Any, width: int) -> list[str]:
    """A paragraph per reason: what is rejected, why, and the nearest change; nothing if all is mapped."""
    groups: dict[tuple[str, str], dict[str, list[str]]] = {}
    for pair in report.pairs:
        if pair.status == "rejected":
            groups.setdefault((pair.detail, pair.answer.change), {}).setdefault(pair.operator, []).append(pair.instruction)
    lines = []
    for (detail, change), where in groups.items():
        everywhere = all(len(names) == len(report.instructions) for names in where.values())
        on = [] if everywhere else list(dict.fromkeys(name for names in where.values() for name in names))
        subject = ", ".join(where) + (f" on {', '.join(on)}" if on else "")
        text = f"{subject}: {detail}" + (f"; nearest change: {change}" if change else "")
        lines.append(textwrap.fill(text, max(width - 2, 60), subsequent_indent="    ", break_long_words=False, break_on_hyphens=False))
    return ["not mapped:\n" + "\n".join(f"  {line}" for line in lines)] if lines else []


def _summary(report: Any) -> str:
    header = ["instruction", "mapped", f"MACs % (utilization >= {report.floor:g})", "their utilization", "verified"]
    rows = [
        [
            entry["instruction"],
            f"{entry['mapped']}/{entry['operators']}",
            f"{100 * entry['mac_share']:.1f}",
            f"{entry['utilization']:.3f}",
            f"{entry['verified']}/{entry['verified'] + entry['failed']}" if entry["verified"] + entry["failed"] else "-",
        ]
        for entry in report.summary
    ]
    if any(entry["tvm"] is not None for entry in report.summary):
        header.append("TVM")
        rows = [[*row, f"{entry['tvm']}/{entry['operators']}"] for row, entry in zip(rows, report.summary, strict=True)]
    return table(header, rows)


def _tvm_rows(report: Any) -> list[list[str]]:
    verdicts = {(pair.operator, pair.instruction): _tvm(pair.tvm) for pair in report.pairs}
    rows = [[name, *(verdicts[name, other] for other in report.instructions)] for name in report.operators]
    return [["operator", *report.instructions], *rows]


def _tvm(verdict: Any) -> str:
    """The route by which TVM tensorizes; where there is none, what it claims all the same."""
    if not verdict:
        return ""
    claims = [name.replace("_", " ") for name in ("loop_map", "proposal") if verdict.get(name)]
    return verdict.get("tensorized") or "no" + (f" (claims {', '.join(claims)})" if claims else "")
