"""``celosia emit``: Verilog, description, C header and self-checking testbench of one design."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .console import Console
from .parser import add_families, add_family, add_verb, design_point, path

EXAMPLE = "celosia emit systolic --rows 8 --cols 8 --dataflow output-stationary -o out/"
ACCELERATOR_EXAMPLE = "celosia emit accelerator --core output-stationary --rows 8 --cols 8 --bus axi4 --commands registers -o out/"


def add(verbs: Any) -> None:
    """Add the verb."""
    parser = add_verb(verbs, "emit", "write the Verilog of a design, its description, C header and testbench", EXAMPLE)
    families, made = add_families(parser, EXAMPLE)
    for family in [*made, add_family(families, "accelerator", ACCELERATOR_EXAMPLE)]:
        family.add_argument("-o", "--out", type=path, default=Path(), metavar="DIR", help="folder to write into (default: this one)")
        family.add_argument("--prefix", metavar="NAME", help="prefix of the Verilog module's name")
        family.set_defaults(handler=run)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Write the artefacts and list them."""
    from ..hw.artefacts import emit_artefacts

    point = design_point(arguments)
    files = emit_artefacts(point, arguments.out, prefix=arguments.prefix)
    data = {"name": point.name, "design_hash": point.hash, "design_point": point.to_dict(), "files": [str(path) for path in files]}
    console.result(data, "\n".join(str(path) for path in files))
    return 0
