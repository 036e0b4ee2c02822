"""The picture of a fit: shifts, widths, chi squared of fibres and bundles, residuals of spots."""
from typing import Any

import numpy as np

from gpu_extract.errors import FileName
from gpu_extract.figures.canvas import BLUE, GREY, INK, ORANGE, new_figure, save, tidy
from gpu_psf.run import FittedPsf
from gpu_psf.series import series_at
from gpu_psf.status import Status


def qa_page(path: FileName, fitted: FittedPsf) -> None:
    """Draw the page. Raises InputError without matplotlib, OutputError where the file cannot be written."""
    figure = new_figure(11, 8.5)
    axes = figure.subplots(3, 2)
    fibres, spots = fitted.fibres, fitted.spots
    firm = spots[spots["FIRM"] > 0]
    _shifts(axes[0, 0], fibres)
    _widths(axes[0, 1], fitted)
    _chi2(axes[1, 0], fitted)
    _states(axes[1, 1], fibres)
    _scatter(axes[2, 0], firm["WAVELENGTH"], firm["CHI2"], "chi squared of spots by wavelength", "wavelength (A)")
    signal = firm["FLUX"] * np.sqrt(firm["IVAR"])
    _scatter(axes[2, 1], signal, firm["CHI2"], "chi squared of spots by signal to noise", "signal to noise")
    axes[2, 1].set_xscale("log")
    counts = ", ".join(f"{int((fibres['STATUS'] == state).sum())} {state.name.lower().replace('_', ' ')}"
                       for state in Status if (fibres["STATUS"] == state).any())
    figure.suptitle(f"{len(fibres)} fibres ({counts}); {len(firm)} spots; PSFERR {fitted.psf.psferr:.4f}", fontsize=10,
                    color=INK)
    save(figure, path)


def _shifts(ax: Any, fibres: np.ndarray) -> None:
    known = fibres["STATUS"] != Status.NOT_FITTED
    for name, colour, label in (("XSHIFT", BLUE, "x"), ("YSHIFT", ORANGE, "y")):
        ax.plot(fibres["FIBER"][known], fibres[name][known], ".", ms=3, color=colour, label=label)
        ax.plot(fibres["FIBER"][~known], fibres[name][~known], "x", ms=3, color=GREY)
    ax.legend(fontsize=7)
    tidy(ax, "mean shift against the starting PSF (grey: not fitted)", "fibre", "pixels")


def _widths(ax: Any, fitted: FittedPsf) -> None:
    if fitted.psf.tabulated:
        rows = fitted.bundles[fitted.bundles["FITTED"] > 0]
        ax.plot(rows["BUNDLE"], rows["CHI2GH"], "o", color=ORANGE, label="Gauss-Hermite")
        ax.plot(rows["BUNDLE"], rows["CHI2"], "o", color=BLUE, label="tables")
        ax.legend(fontsize=7)
        tidy(ax, "chi squared of bundles", "bundle", "")
        return
    core = fitted.psf.cores[0]
    for series, colour, label in ((core.sigma_x, BLUE, "x"), (core.sigma_y, ORANGE, "y")):
        values = series_at(series, slice(None), np.linspace(series.wmin, series.wmax, 7)[1:-1])
        ax.plot(fitted.fibres["FIBER"], values, color=colour, lw=0.6)
        ax.plot([], [], color=colour, label=label)
    ax.legend(fontsize=7)
    tidy(ax, "widths of the Gaussian at five wavelengths", "fibre", "pixels")


def _chi2(ax: Any, fitted: FittedPsf) -> None:
    rows = fitted.bundles[fitted.bundles["FITTED"] > 0]
    ax.plot(fitted.fibres["FIBER"], np.where(fitted.fibres["CHI2"] > 0, fitted.fibres["CHI2"], np.nan), ".", ms=3,
            color=GREY, label="fibre: mean of its spots")
    ax.hlines(rows["CHI2"], rows["FIRST"] - 0.5, rows["LAST"] + 0.5, color=INK, lw=1.5, label="bundle, per degree of "
              "freedom")
    ax.axhline(1, color=BLUE, lw=0.5)
    ax.legend(fontsize=7)
    tidy(ax, "chi squared", "fibre", "")


def _states(ax: Any, fibres: np.ndarray) -> None:
    ax.plot(fibres["FIBER"], fibres["NLINE"], ".", ms=3, color=BLUE)
    odd = fibres["STATUS"] != Status.FITTED
    ax.plot(fibres["FIBER"][odd], fibres["NLINE"][odd], "x", ms=5, color=ORANGE, label="few lines, none, not fitted")
    if odd.any():
        ax.legend(fontsize=7)
    tidy(ax, "lines of each fibre", "fibre", "")


def _scatter(ax: Any, x: np.ndarray, y: np.ndarray, title: str, xlabel: str) -> None:
    ax.plot(x, y, ",", color=BLUE)
    ax.axhline(1, color=INK, lw=0.5)
    if len(y):
        ax.set_ylim(0, max(3.0, float(np.quantile(y, 0.999)) * 1.2))
    tidy(ax, title, xlabel, "")
