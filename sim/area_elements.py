"""The parts that blocks are made of, each small enough to be synthesised by itself: RTL, measurement, and cached figures.

An element is one register with all the logic in front of it, as `hw` writes it, because synthesis works from register to
register: the figures then add up. Operands that come from other elements are ports.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..intrinsics import FormatError, ToolFailedError, ToolNotFoundError
from ..intrinsics.tomlfile import read_toml
from .cache import Cache, cache_root, digest
from .toolchain import version_of

TABLE_PATH = Path(__file__).with_name("area_elements.toml")
SCRIPT = Path(__file__).with_name("area_yosys.py")
TIMEOUT_SECONDS = 3600
MEMORY = "top_memory"
"""What `SCRIPT` puts in the place of a design's memories."""
PARALLEL_BITS = 64
"""Bits of a linear element that are measured together, so that what they share is spread thin."""


@dataclass(frozen=True)
class Figure:
    """What one element costs.

    Parameters
    ----------
    transistors : int
        Two-input static CMOS gates and flip-flops, as Yosys ``stat -tech cmos`` counts them (16 for a flip-flop).
    flip_flops : int
    """

    transistors: int
    flip_flops: int


@dataclass(frozen=True)
class Element:
    """Name of an element; its words say what is built.

    Parameters
    ----------
    kind : str
        Key of `area_rtl.KINDS`.
    arguments : tuple of int, str
        Types as ``s8``, numbers as they are.
    """

    kind: str
    arguments: tuple[int | str, ...] = ()

    @property
    def key(self) -> str:
        """The element in one word, as in the shipped table: ``mac:u8:s8:s32:wrap``."""
        return ":".join([self.kind, *map(str, self.arguments)])


LINEAR = ("delay", "flag", "gated", "select", "enable")
"""Elements of one bit; `PARALLEL_BITS` of them are measured and their figures are for all of these."""


def synthesize_rtlil(text: str) -> Figure:
    """Synthesise RTLIL with top module ``top`` and count; nothing reaches stdout.

    Raises
    ------
    ToolNotFoundError, ToolFailedError
    """
    if not version_of("pyosys"):
        raise ToolNotFoundError(f'Yosys: no Python package pyosys in {sys.prefix}; pip install "pyosys>=0.60"')
    with tempfile.TemporaryDirectory(prefix="celosia-area-") as folder:
        Path(folder, "in.il").write_text(text, encoding="utf-8")
        command = [sys.executable, str(SCRIPT.resolve()), "in.il", "out.json"]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise ToolFailedError(f"Yosys did not finish within {TIMEOUT_SECONDS} s") from None
        report = Path(folder, "out.json")
        if done.returncode or not report.exists():
            last = " | ".join((done.stdout + done.stderr).strip().splitlines()[-20:])
            raise ToolFailedError(f"Yosys failed (exit status {done.returncode}); its last lines: {last}")
        return _figure(json.loads(report.read_text(encoding="utf-8"))["design"])


def _figure(statistics: dict[str, Any]) -> Figure:
    cells = statistics["num_cells_by_type"]
    unknown = [name for name in cells if name not in ("$_DFF_P_", "$_NAND_", "$_NOR_", "$_NOT_", MEMORY, "$scopeinfo")]
    transistors = str(statistics.get("estimated_num_transistors", 0))
    if MEMORY in cells or "$scopeinfo" in cells:
        transistors = transistors.rstrip("+")
    if unknown or transistors.endswith("+"):
        raise ToolFailedError(f"Yosys left cells whose transistors it does not count: {', '.join(unknown) or transistors}")
    return Figure(transistors=int(transistors), flip_flops=cells.get("$_DFF_P_", 0))


def cached_figure(text: str) -> Figure:
    """`synthesize_rtlil`, remembered in the cache folder by the text, the recipe and the version of Yosys."""
    key = digest([text, SCRIPT.read_text(encoding="utf-8"), version_of("pyosys")])

    def make(folder: Path) -> None:
        figure = synthesize_rtlil(text)
        counts = {"transistors": figure.transistors, "flip_flops": figure.flip_flops}
        (folder / "figure.json").write_text(json.dumps(counts), encoding="utf-8")

    cache = Cache(cache_root())
    entry = cache.ensure("area", key, make)
    try:
        return Figure(**json.loads((entry / "figure.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        cache.discard("area", key)
        return Figure(**json.loads((cache.ensure("area", key, make) / "figure.json").read_text(encoding="utf-8")))


USE_SHIPPED = True
"""Whether `figure_of` may answer from the shipped table; off while that table is made."""
FIGURES: dict[Element, Figure] = {}
"""Every figure that this process has used."""


@functools.cache
def _table() -> dict[str, Figure]:
    rows = read_toml(TABLE_PATH).get("elements", {}) if TABLE_PATH.exists() else {}
    try:
        return {key: Figure(*counts) for key, counts in rows.items()}
    except TypeError:
        raise FormatError(f"{TABLE_PATH}: every element must be [transistors, flip-flops]") from None


def shipped() -> dict[str, Figure]:
    """Figures of the common elements that come with Celosia, by `Element.key`."""
    return _table() if USE_SHIPPED else {}


def figure_of(element: Element) -> Figure:
    """Figure of an element: shipped, cached, or measured now (a second or so)."""
    figure = FIGURES.get(element)
    if figure is None:
        figure = FIGURES[element] = shipped().get(element.key) or _measured(element)
    return figure


def _measured(element: Element) -> Figure:
    from .area_rtl import rtlil_of  # Amaranth loads slowly, and the table mostly has the answer

    return cached_figure(rtlil_of(element))
