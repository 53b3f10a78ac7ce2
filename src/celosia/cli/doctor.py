"""``celosia doctor``: the toolchain that was found, and what to do about the rest."""

from __future__ import annotations

import argparse
import platform
import sys
from typing import Any

from .. import __version__
from .console import Console, table
from .parser import add_output_options, add_verb


def add(verbs: Any) -> None:
    """Add the verb."""
    parser = add_verb(verbs, "doctor", "show the tools that were found, where, which version, and what to do", "celosia doctor --json")
    add_output_options(parser)
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """List the tools; exit code 3 if one that is needed is missing."""
    from ..sim import toolchain_report

    tools = toolchain_report()
    complete = all(tool["found"] for tool in tools)
    data = {
        "celosia": __version__,
        "python": platform.python_version(),
        "platform": sys.platform,
        "complete": complete,
        "tools": tools,
    }
    rows = [
        [tool["tool"], "yes" if tool["found"] else "NO", tool["version"] or "", str(tool["path"] or ""), tool["hint"] or ""]
        for tool in tools
    ]
    verdict = "everything that Celosia needs is here" if complete else "something is missing: see the hints"
    console.result(data, table(["tool", "found", "version", "path", "hint"], rows) + f"\n\n{verdict}")
    return 0 if complete else 3
