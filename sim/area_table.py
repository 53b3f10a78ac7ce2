"""Measure the elements of the usual designs and write the table that is shipped.

``python -m celosia.sim.area_table [FILE]`` writes ``area_elements.toml`` beside this module, or FILE; minutes.
Run it after a change of the RTL, of the elements, of the recipe, or of Yosys.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..hw.design_point import HW_VERSION, DesignPoint
from . import area, area_elements
from .toolchain import version_of

TYPES = (("int8", "int8"), ("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8"), ("int4", "int4"))
MODES = ("wrap", "saturate")
CONTROLLERS = (*itertools.product(("os", "ws", "outer"), area.MEASURED_ROWS), ("dot", 1), ("dot-resident", 1))


def points() -> Iterator[DesignPoint]:
    """Designs whose elements are shipped: 32-bit accumulators, up to 16 rows, up to 16 products per lane."""
    for (a, b), overflow in itertools.product(TYPES, MODES):
        if overflow == "saturate" and (a, b) != ("int8", "int8"):
            continue
        types = {"a": a, "b": b, "acc": "int32", "overflow": overflow}
        yield DesignPoint.create("systolic", rows=16, cols=2, dataflow="weight-stationary", **types)
        yield DesignPoint.create("systolic", rows=2, cols=2, **types)
        for depth, resident in itertools.product(area.MEASURED_COUNTS, (False, True)):
            pipelines = range(5) if (a, b) == ("int8", "int8") and overflow == "wrap" else range(2)
            for pipeline in pipelines:
                yield DesignPoint.create("dot-product", lanes=1, depth=depth, resident=resident, pipeline=pipeline, **types)


def measure() -> dict[str, area_elements.Figure]:
    """Figures of every element of `points`, and of the controllers, by key."""
    area_elements.USE_SHIPPED = False
    with ThreadPoolExecutor(2) as pool:  # Yosys runs in processes of its own
        list(pool.map(area.estimate_area, points()))
        controllers = list(pool.map(lambda pair: area.measured_controller(*pair), CONTROLLERS))
    table = {element.key: figure for element, figure in area_elements.FIGURES.items()}
    for (kind, rows), (transistors, flip_flops) in zip(CONTROLLERS, controllers, strict=True):
        table[area.controller_key(kind, rows)] = area_elements.Figure(round(transistors), round(flip_flops))
    return table


def write(path: Path) -> None:
    """Measure, and write the table as TOML."""
    table = measure()
    lines = [
        "# Figures of elements: [transistors, flip-flops]; see area_elements.py. Made by: python -m celosia.sim.area_table",
        f'yosys = "pyosys {version_of("pyosys")}"',
        f"hw_version = {HW_VERSION}",
        "",
        "[elements]",
        *(f'"{key}" = [{table[key].transistors}, {table[key].flip_flops}]' for key in sorted(table)),
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else area_elements.TABLE_PATH)
