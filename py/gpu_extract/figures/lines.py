"""Time against size, one panel per quantity, with the straight line through the points."""
import os
from collections.abc import Mapping, Sequence

import numpy as np

from gpu_extract.figures.canvas import new_figure, save, tidy


def line_plot(path: str | os.PathLike[str], series: Mapping[str, tuple[Sequence[float], Sequence[float]]], *,
              ylabel: str) -> None:
    """Draw each series (x, y) in its own panel with a straight line fitted to it; the key is the x axis's name."""
    figure = new_figure(4.2 * len(series), 3.4)
    for n, (name, (x, y)) in enumerate(series.items()):
        ax = figure.add_subplot(1, len(series), n + 1)
        fit = np.polynomial.Polynomial.fit(x, y, 1)
        ends = np.array([0.0, max(x)])
        ax.plot(ends, fit(ends), color="0.6", lw=1, label="straight line")
        ax.plot(x, y, "o", ms=5, label="measured")
        ax.set_xlim(0)
        ax.set_ylim(0)
        tidy(ax, xlabel=name, ylabel=ylabel)
        ax.legend(frameon=False, fontsize=8)
    save(figure, path)
