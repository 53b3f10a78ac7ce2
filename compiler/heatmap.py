"""A picture of a coverage table: operators down, instructions across, utilisation as colour."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..intrinsics import ParameterError
from .coverage import Coverage

FORMATS = (".png", ".svg", ".pdf")


def write_heatmap(coverage: Coverage, path: str | Path) -> Path:
    """Draw a coverage table (imports Matplotlib).

    Parameters
    ----------
    coverage : Coverage
    path : str or Path
        File to write; its ending chooses PNG, SVG or PDF.

    Returns
    -------
    Path of the file.
    """
    path = Path(path)
    check_path(path)
    from matplotlib.figure import Figure

    operators, instructions = coverage.operators, coverage.instructions
    figure = Figure(figsize=(4.2 + 0.72 * len(instructions), 2.6 + 0.27 * len(operators)), layout="constrained")
    axes = figure.subplots()
    image = _cells(axes, coverage, operators, instructions)
    axes.set_xticks(range(len(instructions)), instructions, rotation=40, ha="left", rotation_mode="anchor", fontsize=8)
    axes.set_yticks(range(len(operators)), operators, fontsize=8)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.set_xticks([edge - 0.5 for edge in range(1, len(instructions))], minor=True)
    axes.set_yticks([edge - 0.5 for edge in range(1, len(operators))], minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set_visible(False)
    figure.suptitle("Utilisation: useful / issued MACs", x=0.01, ha="left", fontsize=11, fontweight="bold")
    axes.set_xlabel(f"grey: not mapped · italic: below {coverage.floor:g}, not counted in the totals", fontsize=8, loc="right")
    bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02, aspect=30, shrink=min(1.0, 10 / max(len(operators), 1)), anchor=(0, 1))
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, length=0)
    figure.savefig(path, dpi=150)
    return path


def check_path(path: Path) -> None:
    """Refuse a file that no picture can be written to."""
    if path.suffix.lower() not in FORMATS:
        raise ParameterError(f"heat map must end in {', '.join(FORMATS)}, not {path.name!r}; nearest legal value: {path.stem}.png")
    if not path.parent.is_dir():
        raise ParameterError(f"heat map cannot be written: there is no folder {str(path.parent)!r}")


def _cells(axes: Any, coverage: Coverage, operators: list[str], instructions: list[str]) -> Any:
    """Draw one cell per pair; a number or a dash in it."""
    import numpy as np
    from matplotlib import colormaps

    values = np.full((len(operators), len(instructions)), np.nan)
    for pair in coverage.pairs:
        if pair.status == "mapped":
            values[operators.index(pair.operator), instructions.index(pair.instruction)] = pair.utilization
    colours = colormaps["YlGnBu"].with_extremes(bad="#e8e8e8")
    image = axes.imshow(values, vmin=0, vmax=1, cmap=colours, aspect="auto")
    for row, column in np.ndindex(*values.shape):
        value = values[row, column]
        known = not np.isnan(value)
        style = "italic" if known and value < coverage.floor else "normal"
        ink = "#999999" if not known else "white" if value > 0.55 else "black"
        text = f"{value:.2g}" if known else "–"
        axes.text(column, row, text, ha="center", va="center", fontsize=7, color=ink, style=style)
    return image
