"""The rejections of further passes, and their effect on a spectrum: a strip of the QA page."""
from typing import TYPE_CHECKING

import numpy as np

from gpu_extract.data import Array, Frame, PsfModel, SpecMask
from gpu_extract.figures.canvas import BLUE, GREEN, GREY, MASKED, ORANGE, bar, grid, tidy
from gpu_extract.figures.spectra import View
from gpu_extract.spots import centres

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

CLOSE, AROUND = 25, 14        # bins, and pixels, on both sides of the largest change


def draw_rejected(figure: "SubFigure", frame: Frame, view: View, before: Frame, psf: PsfModel | None) -> None:
    """Draw one spectrum with one pass and with several, and the rejected pixels at its largest change.

    before: the same fibres in one pass, including all of view.rows
    """
    known = np.flatnonzero(np.isin(frame.fibres[view.rows], before.fibres))
    rows = view.rows[known]
    once = np.searchsorted(before.fibres, frame.fibres[rows])
    moved = (before.flux[once] - frame.flux[rows]) * np.sqrt(frame.ivar[rows])
    hit = (frame.mask[rows] & SpecMask.COSMIC) > 0
    fibre, at = np.unravel_index(int(np.argmax(np.abs(moved) * (hit if hit.any() else 1))), moved.shape)
    row, fibre_number = int(rows[fibre]), int(frame.fibres[rows[fibre]])
    wide, close, pixels = grid(figure, (3.4, 1.25, 1.35), edges=(0.6, 0.5, 0.45, 0.3), gaps=(0.55, 0))
    near = slice(max(int(at) - CLOSE, 0), int(at) + CLOSE + 1)
    for ax, part in ((wide, slice(None)), (close, near)):
        _both(ax, frame.wave[part], before.flux[once[fibre], part], frame.flux[row, part], hit[fibre, part])
    good = frame.ivar[row] > 0
    if good.any():
        low, high = np.quantile(frame.flux[row][good], [0.01, 0.99])
        wide.set_ylim(min(0.0, low) - 0.1 * (high - low) - 1e-9, high + 0.5 * (high - low) + 1e-9)
    tidy(wide, f"fibre {fibre_number}: {np.count_nonzero(hit[fibre])} bins COSMIC", "wavelength [Å]", "electron/Å")
    tidy(close, f"moved by {abs(moved[fibre, at]):.1f} sigma", "wavelength [Å]")
    wide.legend(fontsize=6.5, loc="upper left", ncols=3, frameon=False)
    _pixels(pixels, figure, frame, view, _place(frame, view, psf, (fibre_number, float(frame.wave[at]))))


def _both(ax: "Axes", wave: Array, before: np.ndarray, after: np.ndarray, hit: np.ndarray) -> None:
    """A spectrum before and after, and its bins with the bit COSMIC."""
    ax.plot(wave, before, color=ORANGE, lw=0.9, drawstyle="steps-mid", label="one pass")
    ax.plot(wave, after, color=BLUE, lw=0.8, drawstyle="steps-mid", label="this frame")
    ax.plot(wave[hit], np.full(np.count_nonzero(hit), 0.02), "|", color=GREEN, ms=5, label="bins COSMIC",
            transform=ax.get_xaxis_transform())
    ax.set_xlim(wave[0], wave[-1])


def _place(frame: Frame, view: View, psf: PsfModel | None, spot: tuple[int, float]) -> tuple[float, float]:
    """(y, x) on the CCD of a fibre's bin; without a PSF, of a rejected pixel, or the middle of the view."""
    if psf is not None:
        y, x = centres(psf, (spot[0], spot[0] + 1), np.array([spot[1]]))[:, 0, 0]
        return float(y), float(x)
    places = frame.notes.get("rejected", ())
    return tuple(places[0]) if len(places) else (view.y0 + view.pix.shape[0] / 2, view.x0 + view.pix.shape[1] / 2)


def _pixels(ax: "Axes", figure: "SubFigure", frame: Frame, view: View, place: tuple[float, float]) -> None:
    """The residual around a place, rejected pixels marked."""
    shown = view.pix if view.chi is None else view.chi
    first = [int(np.clip(round(at) - origin - AROUND, 0, max(n - 2 * AROUND - 1, 0)))
             for at, origin, n in zip(place, (view.y0, view.x0), shown.shape, strict=True)]
    part = shown[first[0]:first[0] + 2 * AROUND + 1, first[1]:first[1] + 2 * AROUND + 1]
    y, x = view.y0 + first[0] - 0.5, view.x0 + first[1] - 0.5
    ax.set_facecolor(MASKED)
    drawn = ax.imshow(part.T, origin="lower", aspect="auto", extent=(y, y + part.shape[0], x, x + part.shape[1]),
                      vmin=-10, vmax=10, cmap="RdBu_r", interpolation="nearest")
    bar(figure, drawn, ax, "sigma")
    places = np.asarray(frame.notes.get("rejected", np.zeros((0, 2))))
    inside = ((places[:, 0] > y) & (places[:, 0] < y + part.shape[0])
              & (places[:, 1] > x) & (places[:, 1] < x + part.shape[1]))
    ax.plot(places[inside, 0], places[inside, 1], "x", color=GREEN, ms=4, mew=1.0)
    ax.plot(*place, "+", color=GREY, ms=8)
    tidy(ax, "(image - model) / error; x: rejected", "CCD row", "CCD column")
