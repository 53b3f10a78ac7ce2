"""The plot of a study: every evaluated candidate, and the verified front. matplotlib is imported when a plot is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMATS = ("png", "svg")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LABELS = {
    "cycles": "cycles of the whole workload",
    "area_transistors": "area in transistors",
    "multipliers": "multipliers",
    "stream_bits": "operand bits per cycle",
    "bytes_packed": "bytes packed on the host",
    "memory_kib": "memories in KiB",
    "port_bytes": "bytes per cycle of the memory port",
}
PLACES = ((7, 7, "left"), (-7, -13, "right"), (7, -13, "left"), (-7, 7, "right"))


@dataclass(frozen=True, kw_only=True)
class Dot:
    """One candidate in the plot.

    Parameters
    ----------
    x, y : float
    group : str
        Family or table of the study; decides colour and marker.
    label : str
        Shown beside members of the front.
    """

    x: float
    y: float
    group: str
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class Plot:
    """What is drawn.

    Parameters
    ----------
    title, subtitle : str
    x_name, y_name : str
        Objectives.
    evaluated, front : sequence of Dot
        ``front`` holds the members that are verified.
    line : sequence of (x, y)
        The whole front of the search; empty if it has more than two objectives.
    """

    title: str
    subtitle: str
    x_name: str
    y_name: str
    evaluated: Sequence[Dot]
    front: Sequence[Dot]
    line: Sequence[tuple[float, float]] = ()

    def save(self, folder: Path, stem: str = "front") -> tuple[Path, ...]:
        """Write ``<stem>.png`` and ``<stem>.svg`` into ``folder``."""
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        paths = tuple(folder / f"{stem}.{kind}" for kind in FORMATS)
        with mpl.rc_context({"svg.hashsalt": "celosia", "svg.fonttype": "path", "font.size": 10, "font.family": "DejaVu Sans"}):
            figure = Figure(figsize=(9.5, 6.2), layout="constrained")
            FigureCanvasAgg(figure)
            self._draw(figure.add_subplot())
            for path in paths:
                figure.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else None)
        return paths

    def _draw(self, axes: Any) -> None:
        groups = list(dict.fromkeys(dot.group for dot in [*self.front, *self.evaluated]))
        self._points(axes, sorted(groups))
        self._staircase(axes)
        self._labels(axes)
        self._frame(axes)

    def _points(self, axes: Any, groups: Sequence[str]) -> None:
        for place, group in enumerate(groups):
            style = {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place % len(MARKERS)], "linewidths": 0}
            light = [dot for dot in self.evaluated if dot.group == group]
            members = [dot for dot in self.front if dot.group == group]
            axes.scatter([d.x for d in light], [d.y for d in light], s=13, alpha=0.22, zorder=2, rasterized=True, **style)
            edge = {**style, "linewidths": 1.0, "edgecolors": "white"}
            axes.scatter([d.x for d in members], [d.y for d in members], s=82, zorder=5, label=group, **edge)

    def _staircase(self, axes: Any) -> None:
        """What the whole front dominates begins above this line."""
        corner = sorted(self.line)
        if corner:
            axes.step([x for x, _ in corner], [y for _, y in corner], where="post", color="#444444", lw=1.1, zorder=3)

    def _labels(self, axes: Any) -> None:
        """Labels below the front, where no candidate can be; steep stretches get them on the left."""
        for place, dot in enumerate(sorted(self.front, key=lambda dot: (dot.x, dot.y))):
            dx, dy, align = PLACES[1] if place % 2 else (-7, -4, "right")
            axes.annotate(
                dot.label, (dot.x, dot.y), xytext=(dx, dy), textcoords="offset points", ha=align, fontsize=8, color="#222222", zorder=6
            )

    def _frame(self, axes: Any) -> None:
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(LABELS.get(self.x_name, self.x_name))
        axes.set_ylabel(LABELS.get(self.y_name, self.y_name))
        axes.grid(visible=True, which="major", color="#dddddd", lw=0.8, zorder=0)
        axes.grid(visible=True, which="minor", color="#f0f0f0", lw=0.5, zorder=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(0.09)
        axes.tick_params(which="both", color="#888888")
        axes.set_title(self.title, loc="left", fontsize=13, fontweight="bold", pad=26)
        axes.text(0, 1.025, self.subtitle, transform=axes.transAxes, fontsize=9, color="#555555")
        if self.front:
            axes.legend(title="verified on RTL", frameon=False, loc="upper right", alignment="left")
