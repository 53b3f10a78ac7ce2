"""``celosia simulate accelerator`` and ``celosia selftest accelerator``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..intrinsics import CelosiaError, FormatError
from .console import Console, table
from .parser import Parser, add_family, add_output_options, add_verb, design_point, gemm_shape, natural, path, positive, positive_number

if TYPE_CHECKING:
    from ..hw.design_point import DesignPoint
    from ..intrinsics.accelerator import MemoryTiming

SIMULATE_EXAMPLE = (
    "celosia simulate accelerator --core output-stationary --rows 16 --cols 16 --spad-kib 64 --port-bytes 16 "
    "--gemm 196x256x2304 --schedule best --fidelity both"
)
SELFTEST_EXAMPLE = "celosia selftest accelerator --minutes 5"


def add_simulate(families: Any) -> None:
    """Add the family to ``simulate``."""
    parser: Parser = add_family(families, "accelerator", SIMULATE_EXAMPLE)
    parser.add_argument("--gemm", metavar="MxNxK", help="matrix product C[M,N] = A[M,K] x B[K,N]")
    parser.add_argument("--operator", metavar="OP", help="operator, such as conv2d:1x56x56x64,64x3x3,s1,p1")
    parser.add_argument(
        "--schedule",
        metavar="best|JSON",
        help="best (default): the fastest of all tile sizes, the 6 loop orders, 1, 2 or 4 slots of A and of B, and 1 slot of C with lag 0 "
        "or 2 with lag 1, by the cycles of the whole program where an operator is several convolutions; or a schedule as JSON, such as an "
        "earlier run printed (m, n in blocks of rows and of cols, k in words of a scratchpad)",
    )
    parser.add_argument(
        "--through",
        metavar="native|tvm",
        help="who cuts and orders the loops: the accelerator's scheduler (default), or TVM",
    )
    parser.add_argument("--fidelity", default="both", metavar="model|rtl|both", help="exact model, RTL, or both compared (default)")
    parser.add_argument("--latency", type=positive, default=20, metavar="N", help="cycles from a read request to its data (default 20)")
    parser.add_argument(
        "--write-latency", type=positive, metavar="N", help="axi4: cycles from a burst's last beat to its response (default 20)"
    )
    parser.add_argument(
        "--output",
        metavar="sums|int8|uint8",
        help="32-bit sums (default), or requantised with bias; uint8: clamped at 0",
    )
    parser.add_argument("--residual", action="store_true", default=None, help="add a tensor from memory to an int8 or uint8 output")
    parser.add_argument("--save-program", type=path, metavar="FILE", help="write the program, and its memory image as FILE.image")
    parser.add_argument("--program", type=path, metavar="FILE", help="run a program that was saved, on FILE.image")
    parser.add_argument("--image", type=path, metavar="FILE", help="memory image for --program")
    parser.add_argument("--save-result", type=path, metavar="FILE", help="write the memory image after --program")
    parser.add_argument("--seed", type=natural, metavar="N", help="seed of the random operands (default 0)")
    parser.add_argument(
        "--sensitivity",
        action=argparse.BooleanOptionalAction,
        help="say what doubling each parameter would buy, with the best schedule each time: by default where each search is done in about "
        "a second, with --sensitivity however long it takes, with --no-sensitivity not at all",
    )
    parser.set_defaults(handler=simulate)


def simulate(arguments: argparse.Namespace, console: Console) -> int:
    """Schedule, predict, run and compare; exit code 1 if an event or a result differs."""
    point = design_point(arguments)
    if sum(given is not None for given in (arguments.gemm, arguments.operator, arguments.program)) != 1:
        raise FormatError("simulate needs one of --gemm MxNxK, --operator OP and --program FILE, such as --gemm 196x256x2304")
    _refuse_idle(arguments)
    if arguments.program is not None:
        return _run_program(point, arguments, console)
    operator = gemm_shape(arguments.gemm) if arguments.gemm is not None else arguments.operator
    from ..compiler.accelerator.job import typical_operands, typical_output
    from ..explore.accelerator import in_words
    from ..explore.accelerator_operator import simulate_operator

    timing = _timing(point, arguments)
    output = typical_output("sums" if arguments.output is None else arguments.output, residual=bool(arguments.residual))
    target = arguments.save_program
    result = simulate_operator(
        point,
        operator,
        through="native" if arguments.through is None else arguments.through,
        schedule=_schedule(arguments.schedule),
        fidelity=arguments.fidelity,
        output=output,
        timing=timing,
        seed=arguments.seed or 0,
        make_operands=typical_operands,
        keep=None if target is None else lambda program, memory: _save(target, program, memory),
        progress=console.note if console.progress.enabled else None,
    )
    looked, why_not = _sensitivity(point, operator, output, timing, arguments, result)
    words = [*in_words(result, looked), *why_not]
    data = {"name": point.name, "design_point": point.to_dict(), **result.to_dict(), "words": words}
    data["best_cycles"] = looked and looked.cycles
    data["sensitivity"] = looked and [vars_of(change) for change in looked.changes]
    console.result(data, _describe(point.name, result, words, looked))
    return 0 if result.passed else 1


def _sensitivity(point: DesignPoint, operator: Any, output: Any, timing: Any, arguments: argparse.Namespace, result: Any) -> Any:
    """What doubling each parameter would buy, or none, and why not."""
    from ..explore.accelerator_bounded import MOST_WORK, TooLongError
    from ..explore.accelerator_operator import problem_on
    from ..explore.accelerator_sensitivity import LONG, QUICK_WORK, sensitivity

    if arguments.sensitivity is False:
        return None, []
    native = arguments.through in (None, "native")
    try:
        looked = sensitivity(
            point,
            lambda machine: problem_on(operator, machine, output if native else None),
            timing=timing,
            known=result.model_cycles if native and result.search else None,
            most_work=MOST_WORK if arguments.sensitivity else QUICK_WORK,
        )
    except TooLongError as error:
        why = str(error) if arguments.sensitivity else "the search takes long; --sensitivity does it all the same"
        return None, [f"what doubling parameters would buy is not known: {why}"]
    except CelosiaError as error:
        return None, [f"what doubling parameters would buy is not known: {error}"]
    long = [change.parameter for change in looked.changes if change.reason == LONG]
    return looked, [f"--sensitivity also says what doubling {', '.join(long)} would buy, which takes longer"] if long else []


_IDLE_WITH_PROGRAM = ("schedule", "through", "output", "residual", "seed", "sensitivity", "save_program")
_IDLE_WITHOUT = ("image", "save_result")


def _refuse_idle(arguments: argparse.Namespace) -> None:
    """Refuse options that would say nothing."""
    saved = arguments.program is not None
    values = {name: getattr(arguments, name) for name in (_IDLE_WITH_PROGRAM if saved else _IDLE_WITHOUT)}
    given = [name for name, value in values.items() if value is not None]
    if given:
        option = "--" + given[0].replace("_", "-")
        other = "a saved program runs as it is" if saved else "nothing else has an image"
        raise FormatError(f"{option} goes with {'--gemm or --operator' if saved else '--program'} only; {other}")


def _save(target: Path, program: Any, memory: Any) -> None:
    _write(target, program.to_bytes())
    _write(_image_path(target), memory.tobytes())


def _image_path(program: Path) -> Path:
    return program.with_name(program.name + ".image")


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise FormatError(f"{path} cannot be written ({error.strerror or error})") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FormatError(f"{path} cannot be read ({error.strerror or error})") from None


def _timing(point: DesignPoint, arguments: argparse.Namespace) -> MemoryTiming:
    from ..intrinsics.accelerator import MemoryTiming

    given = {} if arguments.write_latency is None else {"write_latency": arguments.write_latency}
    if given and point.parameters.bus != "axi4":  # type: ignore[attr-defined]
        raise FormatError("--write-latency is that of AXI4's responses to writes; the native port has none; allowed with --bus axi4")
    return MemoryTiming(latency=arguments.latency, **given)


def _run_program(point: DesignPoint, arguments: argparse.Namespace, console: Console) -> int:
    import numpy as np

    from ..explore.accelerator_run import simulate_program
    from ..intrinsics.accelerator import Program

    program = Program.from_bytes(_read(arguments.program))
    memory = np.frombuffer(_read(arguments.image or _image_path(arguments.program)), np.uint8).copy()
    result = simulate_program(
        point,
        program,
        memory,
        fidelity=arguments.fidelity,
        timing=_timing(point, arguments),
        progress=console.note if console.progress.enabled else None,
    )
    if arguments.save_result is not None:
        _write(arguments.save_result, memory.tobytes())
    data = {"name": point.name, "design_point": point.to_dict(), **result.to_dict()}
    console.result(data, _describe_program(point.name, data))
    return 0 if result.passed else 1


def _describe_program(name: str, data: dict[str, Any]) -> str:
    verdict = "equals the functional model's" if data["matches_functional"] else "DIFFERS FROM THE FUNCTIONAL MODEL'S"
    return "\n".join(
        [
            name,
            f"memory {verdict}; model {data['model_cycles']:,} cycles, {_rtl_words(data['rtl_cycles'], data['events_equal'])}",
            f"{data['macs']:,} MACs, utilization {data['utilization']:.3f}; {data['commands']:,} commands",
            "",
            _ledgers(data["ledger"], data["critical_path"], data["cycles"]),
            "",
            f"built in {data['build_seconds']:.2f} s, simulated in {data['simulation_seconds']:.2f} s",
        ]
    )


def _rtl_words(cycles: int | None, events_equal: bool | None) -> str:
    if cycles is None:
        return "RTL not run"
    return f"RTL {cycles:,} cycles ({'every event equal' if events_equal else 'EVENTS DIFFER'})"


def _ledgers(array: Any, critical: Any, cycles: int) -> str:
    rows = [["what the array did", "", ""], *_share(array, cycles), ["what was critical", "", ""], *_share(critical, cycles)]
    return table(["ledger", "cycles", "%"], rows)


def vars_of(record: Any) -> dict[str, Any]:
    """Fields of a flat record."""
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def _schedule(text: str | None) -> Any:
    from ..compiler.accelerator.schedule import Schedule

    return "best" if text in (None, "best") else Schedule.from_json(str(text))


def _describe(name: str, result: Any, words: list[str], looked: Any) -> str:
    verdict = "equals the reference" if result.matches_reference else "DIFFERS FROM THE REFERENCE"
    schedule = " ".join(f"{key}={value}" for key, value in result.schedule.to_dict().items())
    lines = [
        name,
        f"output {verdict}; model {result.model_cycles:,} cycles, {_rtl_words(result.rtl_cycles, result.events_equal)}",
        f"{result.macs:,} MACs, utilization {result.utilization:.3f}; schedule {schedule}; {result.commands:,} commands",
        *_searched(result),
        _mapped(result.mapping),
        *words,
        "",
        _ledgers(result.ledger, result.critical_path, result.cycles),
    ]
    if looked is not None:
        lines += ["", *_doubled(looked.changes)]
    return "\n".join([*lines, "", f"built in {result.build_seconds:.2f} s, simulated in {result.simulation_seconds:.2f} s"])


def _searched(result: Any) -> list[str]:
    """What the schedule is the best of."""
    if not result.search:
        return []
    legal, turns = result.search["legal"], result.mapping.get("turns", 1)
    if result.mapping["through"] != "native":
        return [f"TVM was given tiles, order and slots of the fastest of {legal:,} native schedules of one convolution"]
    follow = f" and all {turns} convolutions follow" if turns > 1 else ""
    return [f"of {legal:,} schedule{'s' if legal > 1 else ''} that fit{follow} none is faster; found in {result.search['seconds']:.2f} s"]


def _doubled(changes: Any) -> list[str]:
    """A table of what doubling buys, and the parameters that cannot be doubled, by their reasons."""
    rows, reasons = [], dict[str, list[str]]()
    for change in changes:
        if change.cycles is None:
            reasons.setdefault(change.reason, []).append(change.parameter)
        else:
            rows.append([change.parameter, str(change.value), f"{change.cycles:,}", f"{100 * change.ratio - 100:+.1f}"])
    return [
        table(["doubled", "to", "cycles", "change %"], rows),
        *(f"{', '.join(names)} not doubled: {why}" for why, names in reasons.items()),
    ]


def _mapped(mapping: Any) -> str:
    if mapping["through"] == "native":
        moved = ", ".join(f"{name} {how}" for name, how in mapping["movement"].items())
        return f"{mapping['turns']} convolution{'s' if mapping['turns'] > 1 else ''}; {moved}"
    tile = " x ".join(map(str, mapping["tile"]))
    copied = ", ".join(mapping["copied"]) or "nothing"
    return f"through TVM, route {mapping['route']}, tile {tile}; the module copies {copied} on the host"


def _share(ledger: Any, cycles: int) -> list[list[str]]:
    return [[f"  {key}", f"{count:,}", f"{100 * count / cycles:.1f}"] for key, count in ledger.items() if count]


def add_selftest(verbs: Any) -> None:
    """Add the verb ``selftest``."""
    parser = add_verb(verbs, "selftest", "random hardware x shapes x schedules on RTL, bit-exact and cycle-exact", SELFTEST_EXAMPLE)
    subjects = parser.add_subparsers(dest="subject", metavar="SUBJECT", required=True, parser_class=Parser)
    subject: Parser = subjects.add_parser("accelerator", help="the accelerator with memory", epilog=f"example: {SELFTEST_EXAMPLE}")
    subject.add_argument("--minutes", type=positive_number, default=1.0, metavar="N", help="how long (default 1)")
    subject.add_argument("--points", type=positive, metavar="N", help="stop after so many points")
    subject.add_argument("--seed", type=natural, default=0, metavar="N", help="the same seed tests the same points (default 0)")
    add_output_options(subject)
    subject.set_defaults(handler=selftest)


def selftest(arguments: argparse.Namespace, console: Console) -> int:
    """Test random points; exit code 1 if one fails, with its shrunk reproducer."""
    from ..explore.accelerator_selftest import selftest_accelerator

    tell = console.note if console.progress.enabled else None
    report = selftest_accelerator(minutes=arguments.minutes, points=arguments.points, seed=arguments.seed, progress=tell)
    text = (
        f"{report.points} points on {report.designs} designs, {report.exact} of them compared event by event, "
        f"{len(report.failures)} failed; seed {report.seed}; {report.seconds:.0f} s"
    )
    console.result(report.to_dict(), "\n".join([text, *(json.dumps(failure, default=str) for failure in report.failures)]))
    return 1 if report.failures else 0
