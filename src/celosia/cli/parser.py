"""The parser of every verb. Only light modules are imported here, so that ``--help`` stays quick."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any, NoReturn

from .. import __version__
from ..hw import FAMILIES, Option, options
from ..hw.design_point import DesignPoint
from ..hw.parameters import family_of
from ..intrinsics.errors import FormatError


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line and exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Print one sentence and leave."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def build_parser() -> Parser:
    """Build the parser of the whole command line."""
    from . import accelerator, coverage, doctor, emit, explore, simulate

    parser = Parser(
        prog="celosia",
        description="Explore accelerator hardware and software schedules together, with numbers measured on RTL.",
        epilog="example: celosia simulate systolic --rows 8 --cols 8 --gemm 64x64x64",
    )
    parser.add_argument("--version", action="version", version=f"celosia {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=Parser)
    for module in (emit, simulate, coverage, explore, doctor):
        module.add(verbs)
    accelerator.add_selftest(verbs)
    return parser


def add_verb(verbs: Any, name: str, summary: str, example: str) -> Parser:
    """Add a verb with the options that every verb has."""
    parser: Parser = verbs.add_parser(
        name, help=summary, description=summary, epilog=f"example: {example}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    return parser


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """``--json`` and ``--quiet``."""
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout and nothing else there")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")


def add_families(parser: Parser, example: str) -> tuple[Any, list[Parser]]:
    """Add one sub-command per family of stream blocks; returns the sub-commands' container and their parsers."""
    families = parser.add_subparsers(dest="family", metavar="FAMILY", required=True, parser_class=Parser)
    return families, [add_family(families, family, example) for family in FAMILIES]


def add_family(families: Any, family: str, example: str) -> Parser:
    """Add the sub-command of a family, with an option per parameter."""
    summary = (family_of(family).__doc__ or family).splitlines()[0]
    parser: Parser = families.add_parser(family, help=summary, description=summary, epilog=f"example: {example}")
    group = parser.add_argument_group("design parameters")
    for option in options(family):
        _add_option(group, option)
    add_output_options(parser)
    return parser


def _add_option(group: Any, option: Option) -> None:
    default = "" if option.default is None or option.kind == "flag" else f" (default {option.default})"
    keywords: dict[str, Any] = {"dest": f"parameter_{option.name}", "help": option.help + default, "default": None}
    if option.kind == "flag":
        keywords |= {"action": argparse.BooleanOptionalAction, "help": option.help}
    elif option.kind == "integer":
        keywords |= {"type": _integer, "metavar": "N", "required": option.required}
    elif option.kind == "choice":
        keywords |= {"metavar": "|".join(option.choices)}
    else:
        keywords |= {"metavar": "DTYPE"}
    group.add_argument("--" + option.name.replace("_", "-"), **keywords)


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be an integer, not {text!r}") from None


def design_point(arguments: argparse.Namespace) -> DesignPoint:
    """Build the design point that the family's options describe."""
    values = {
        name.removeprefix("parameter_"): value
        for name, value in vars(arguments).items()
        if name.startswith("parameter_") and value is not None
    }
    return DesignPoint.create(arguments.family, **values)


def design_from_text(text: str) -> DesignPoint:
    """Parse ``family:name=value,…``, such as ``systolic:rows=8,cols=8,dataflow=weight-stationary``."""
    family, _, rest = text.partition(":")
    kinds = {option.name: option.kind for option in options(family)}
    values: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        name, equals, value = part.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise FormatError(f"design {text!r}: {part!r} must be name=value, such as rows=8")
        if name in values:
            raise FormatError(f"design {text!r}: {name} is given twice")
        values[name] = _design_value(kinds.get(name, ""), value.strip(), f"design {text!r}: {name}")
    return DesignPoint.create(family, **values)


def _design_value(kind: str, value: str, place: str) -> Any:
    if kind == "integer":
        try:
            return int(value)
        except ValueError:
            raise FormatError(f"{place} must be an integer, not {value!r}") from None
    if kind == "flag":
        if value not in ("true", "false"):
            raise FormatError(f"{place} must be true or false, not {value!r}")
        return value == "true"
    return value


def positive(text: str) -> int:
    """Parse an integer of at least 1."""
    value = _integer(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {value}; nearest legal value: 1")
    return value


def path(text: str) -> Path:
    """Parse a path; an empty one would mean the current folder."""
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(f"must be a path, not {text!r}")
    return Path(text)


def natural(text: str) -> int:
    """Parse an integer of at least 0."""
    value = _integer(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be at least 0, not {value}; nearest legal value: 0")
    return value


def positive_number(text: str) -> float:
    """Parse a number above 0."""
    return _number(text, 1e6, above=True)


def probability(text: str) -> float:
    """Parse a probability that leaves some progress: at most 0.95."""
    return _number(text, 0.95)


def fraction(text: str) -> float:
    """Parse a number from 0 to 1."""
    return _number(text, 1.0)


def _number(text: str, high: float, *, above: bool = False) -> float:
    """Parse a number from 0 to ``high``, or above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 < value <= high if above else 0 <= value <= high):
        allowed = f"above 0, at most {high:.0f}" if above else f"from 0 to {high:g}"
        near = f"{high:.0f}" if above and value > high else f"{high:g}" if value > high else "" if above or math.isnan(value) else "0"
        raise argparse.ArgumentTypeError(f"must be a number {allowed}, not {text!r}" + (f"; nearest legal value: {near}" if near else ""))
    return value


_MOST_DIGITS = 18


def gemm_shape(text: str) -> tuple[int, int, int]:
    """Parse ``MxNxK``."""
    parts = text.lower().split("x")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) <= _MOST_DIGITS for part in parts):
        raise FormatError(f"--gemm must be MxNxK with three positive integers, such as 64x64x64, not {text[:80]!r}")
    m, n, k = (int(part) for part in parts)
    return m, n, k
