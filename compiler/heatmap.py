"""A picture of a coverage table: operators down, instructions across, utilisation as colour."""

from __future__ import annotations

from pathlib import Path

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
    if path.suffix.lower() not in FORMATS:
        raise ParameterError(f"heat map must end in {', '.join(FORMATS)}, not {path.name!r}; nearest legal value: {path.stem}.png")
    if not path.parent.is_dir():
        raise ParameterError(f"heat map cannot be written: {str(path.parent)!r} is no folder")
    import numpy as np
    from matplotlib.figure import Figure

    operators, instructions = coverage.operators, coverage.instructions
    values = np.full((len(operators), len(instructions)), np.nan)
    for pair in coverage.pairs:
        if pair.status == "mapped":
            values[operators.index(pair.operator), instructions.index(pair.instruction)] = pair.utilization
    figure = Figure(figsize=(3.2 + 0.75 * len(instructions), 1.8 + 0.24 * len(operators)), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(values, vmin=0, vmax=1, cmap="viridis", aspect="auto")
    axes.set_xticks(range(len(instructions)), instructions, rotation=45, ha="right", fontsize=7)
    axes.set_yticks(range(len(operators)), operators, fontsize=7)
    for row, column in np.ndindex(*values.shape):
        known = not np.isnan(values[row, column])
        text = f"{values[row, column]:.2g}" if known else "×"
        colour = "black" if known and values[row, column] > 0.6 else "white" if known else "grey"
        axes.text(column, row, text, ha="center", va="center", fontsize=6, color=colour)
    axes.set_title(f"Utilisation of each instruction (× = not mapped; totals count from {coverage.floor:g})", fontsize=8)
    figure.colorbar(image, ax=axes, label="useful / issued MACs")
    figure.savefig(path, dpi=130)
    return path
