"""Maps of the differences of two frames."""
from typing import TYPE_CHECKING

import numpy as np

from gpu_extract.data import Array
from gpu_extract.errors import FileName
from gpu_extract.figures.canvas import BLUE, GREEN, INK, MASKED, ORANGE, bar, new_figure, pooled, save, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gpu_extract.compare import Differences

COLUMNS = 900            # of a map; more wavelengths are pooled, with the largest difference


def difference_plot(path: FileName, differences: "Differences", *, title: str = "") -> None:
    """Draw maps of the differences of flux, ivar and resolution (fibre against wavelength), and their distributions.

    Raises InputError without matplotlib or for a name without a picture's ending, OutputError if the file cannot be
    written.
    """
    figure = new_figure(14, 11)
    figure.suptitle(title, fontsize=10, x=0.01, ha="left", color=INK)
    axes = figure.subplots(3, 2, width_ratios=(4, 1.1), sharex="col")
    shown = (("flux", "sigma", differences.flux, BLUE), ("ivar", "of the ratio", differences.ivar, GREEN),
             ("resolution, largest element of a bin", "absolute", differences.resolution, ORANGE))
    extent = (differences.wave[0], differences.wave[-1], differences.fibres[0] - 0.5, differences.fibres[-1] + 0.5)
    for (ax, side), (name, unit, values, colour) in zip(axes, shown, strict=True):
        drawn = _map(ax, values, extent)
        bar(figure, drawn, ax, unit)
        tidy(ax, name, ylabel="fibre")
        _share(side, values, colour, unit)
    _mask(axes[0, 0], differences)
    axes[-1, 0].set_xlabel("wavelength [Å] (grey: not judged)", fontsize=8)
    axes[-1, 1].set_xlabel("difference", fontsize=8)
    save(figure, path)


def _map(ax: "Axes", values: Array, extent: tuple[float, float, float, float]) -> object:
    """Draw a logarithmic map of the values, up to the largest number; infinite ones have its colour."""
    from matplotlib.colors import LogNorm

    ax.set_facecolor(MASKED)
    worst = pooled(np.where(np.isnan(values), -1.0, np.maximum(values, 1e-16)), COLUMNS, worst=True)
    numbers = values[np.isfinite(values)]
    high = max(float(numbers.max()), 1e-12) if len(numbers) else 1.0
    return ax.imshow(np.where(worst < 0, np.nan, np.minimum(worst, high)), origin="lower", aspect="auto", extent=extent,
                     interpolation="nearest", cmap="magma_r", norm=LogNorm(max(high * 1e-6, 1e-15), high))


def _share(ax: "Axes", values: Array, colour: str, unit: str) -> None:
    """Draw the share of bins above each difference."""
    judged, lost = np.sort(values[np.isfinite(values)]), np.count_nonzero(np.isinf(values))
    if len(judged) == 0:
        ax.text(0.5, 0.5, "nothing judged", ha="center", transform=ax.transAxes, fontsize=8)
        return
    share = 1 - np.arange(len(judged)) / len(judged)
    picked = np.unique(np.geomspace(1, len(judged), 400).astype(int))
    picked = np.concatenate([len(judged) - picked[::-1], picked - 1])
    picked.sort()
    ax.plot(np.maximum(judged[picked], 1e-16), share[picked], color=colour, lw=1.2)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.grid(alpha=0.3, lw=0.4)
    median, p99, maximum = np.quantile(judged, [0.5, 0.99, 1])
    more = f"\nNaN or infinite: {lost}" if lost else ""
    ax.text(0.04, 0.04, f"{len(judged)} bins [{unit}]\nmedian {median:.1e}\n99 % {p99:.1e}\nmax {maximum:.1e}{more}",
            transform=ax.transAxes, fontsize=8, color=INK, va="bottom")
    tidy(ax, ylabel="share of bins above")


def _mask(ax: "Axes", differences: "Differences") -> None:
    """Mark the bins whose mask bits differ."""
    fibre, wave = np.nonzero(differences.mask)
    if len(fibre):
        ax.plot(differences.wave[wave], differences.fibres[fibre], "s", ms=2.5, mfc="none", mec=BLUE, mew=0.6,
                label=f"mask differs ({len(fibre)} bins)")
        ax.legend(fontsize=7, loc="upper right")
