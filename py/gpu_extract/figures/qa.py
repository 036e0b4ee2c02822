"""One page for judging a frame by eye."""
from typing import TYPE_CHECKING, Any

import numpy as np

from gpu_extract.data import Array, Frame, Image, PsfModel, SpecMask
from gpu_extract.errors import FileName
from gpu_extract.figures import canvas
from gpu_extract.figures.rejected import draw_rejected
from gpu_extract.figures.spectra import View, blurred_truth, choose_view, wave_of
from gpu_extract.io.facts import masked_pixels
from gpu_extract.io.truth import TruthFile
from gpu_extract.resolution import row_of_resolution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

ZOOM = 50                # CCD rows on both sides of the brightest
CLOSE = 25               # bins on both sides of a spectrum's brightest


def qa_page(path: FileName, image: Image, frame: Frame, *, truth: TruthFile | None = None,
            psf: PsfModel | None = None, before: Frame | None = None) -> None:
    """Draw image, model and residual of one bundle, spectra, rows of R, the chi2 map and the mask on one page.

    truth: the input spectra, if known; psf: gives the place of the bundle on the CCD
    before: the `shown` fibres in one pass, if the frame is of several passes, whose changes are then drawn

    Raises InputError without matplotlib or for a name without a picture's ending, OutputError if the file cannot be
    written.
    """
    figure = canvas.new_figure(15, 18 if before is None else 20.5, arranged=False)
    view = choose_view(image, frame, psf)
    heights = (0.3, 6.8, 6.9, 4.0, *([] if before is None else [2.5]))
    parts: Any = figure.subfigures(len(heights), 1, height_ratios=heights, hspace=0)      # one below the other
    title, pixels, spectra, maps, *more = parts
    title.suptitle(_title(frame), fontsize=12, x=0.01, y=0.4, ha="left", color=canvas.INK)
    _pixels(pixels, view)
    pulls = _spectra(spectra, frame, view.rows, truth)
    _maps(maps, frame, view, pulls)
    if before is not None:
        draw_rejected(more[0], frame, view, before, psf)
    canvas.save(figure, path)


def shown(image: Image, frame: Frame, psf: PsfModel | None) -> tuple[int, int]:
    """First fibre of the bundle that a page shows, and the number of its fibres: for a frame `before`."""
    rows = choose_view(image, frame, psf).rows
    return int(frame.fibres[rows[0]]), int(frame.fibres[rows[-1]] - frame.fibres[rows[0]]) + 1


def _title(frame: Frame) -> str:
    cards = {card.key: card.value for card in frame.cards}
    names = [str(cards[key]) for key in ("CAMERA", "EXPID", "NIGHT", "FLAVOR") if key in cards]
    good = frame.mask == 0
    wave = frame.wave if frame.own_wave is None else np.asarray(frame.own_wave)
    chi2 = f"{np.median(frame.chi2pix[good]):.2f}" if good.any() else "none"
    return "   ".join([" ".join(names) or "frame", *_passes(frame),
                       f"fibres {frame.fibres[0]}-{frame.fibres[-1]}, {wave.min():.1f}-{wave.max():.1f} Å, "
                       f"{frame.flux.size} bins, {np.mean(~good):.2%} masked, median chi2pix {chi2}"])


def _passes(frame: Frame) -> list[str]:
    """The rejections of further passes in words, if there were any."""
    passes = frame.notes.get("passes", 1)
    if passes == 1:
        return []
    bins = np.count_nonzero(frame.mask & SpecMask.COSMIC)
    return [f"{passes} passes: {masked_pixels(frame, 'rejected')} pixels rejected, {bins} bins COSMIC"]


def _pixels(figure: "SubFigure", view: View) -> None:
    """Image, model and residual of the bundle on its side, each with a close-up of the brightest rows."""
    from matplotlib.colors import AsinhNorm

    axes = canvas.grid(figure, (4.2, 1), 3, edges=(0.55, 0.6, 0.45, 0.65), gaps=(0.2, 0.4), sharey=True, sharex="col")
    ny, nx = view.pix.shape
    high = max(float(np.nanquantile(view.pix, 0.9998)) if np.isfinite(view.pix).any() else 1.0, 10.0)
    light: dict[str, Any] = {"norm": AsinhNorm(linear_width=10, vmin=-10, vmax=high), "cmap": "viridis"}
    sigma: dict[str, Any] = {"vmin": -5, "vmax": 5, "cmap": "RdBu_r"}
    shown = (("image", view.pix, light, "electron"), ("model", view.model, light, "electron"),
             ("(image - model) / error", view.chi, sigma, "sigma"))
    seen = view.pix if view.model is None else np.where(np.isfinite(view.pix), view.model, 0)
    brightest = int(np.argmax(np.nansum(seen, axis=1)))
    first = int(np.clip(brightest - ZOOM, 0, max(ny - 2 * ZOOM, 0)))
    for (wide, close), (name, pixels, style, unit) in zip(axes, shown, strict=True):
        wide.set_facecolor(canvas.MASKED)
        close.set_facecolor(canvas.MASKED)
        canvas.tidy(wide, name, ylabel="CCD column")
        canvas.tidy(close, "close-up")
        if pixels is None:
            wide.text(0.5, 0.5, "no model image was kept", ha="center", va="center", transform=wide.transAxes)
            continue
        box = (view.y0 - 0.5, view.y0 + ny - 0.5, view.x0 - 0.5, view.x0 + nx - 0.5)
        for ax in (wide, close):
            drawn = ax.imshow(pixels.T, origin="lower", aspect="auto", extent=box, interpolation="nearest"
                              if ax is close else "auto", **style)
        made = canvas.bar(figure, drawn, close, unit)
        if unit == "electron":
            made.set_ticks([t for t in (-10, 0, 10, 100, 1000, 10000) if t <= high])
        wide.set_xlim(box[0], box[1])
        close.set_xlim(view.y0 + first, view.y0 + min(first + 2 * ZOOM, ny))
        for edge in close.get_xlim():
            wide.axvline(edge, color=canvas.ORANGE, lw=0.8)
    axes[-1, 0].set_xlabel("CCD row (grey: masked)", fontsize=8)
    axes[-1, 1].set_xlabel("CCD row", fontsize=8)
    if view.wave is not None:
        _wavelength_axis(axes[0, 0], view.y0, view.wave)


def _wavelength_axis(ax: "Axes", y0: int, of_row: Array) -> None:
    """Add the wavelengths of the bundle's middle fibre above the first strip."""
    inside = np.flatnonzero(np.diff(of_row, prepend=np.nan) != 0)
    inside = inside[np.argsort(of_row[inside], kind="stable")]
    wave, y = of_row[inside], y0 + inside
    step = float(np.array([10, 20, 50, 100, 200, 500])[np.searchsorted([100, 200, 500, 1000, 2500],
                                                                       wave[-1] - wave[0])])
    ticks = np.arange(np.ceil(wave[0] / step) * step, wave[-1], step)
    top = ax.secondary_xaxis("top")
    top.set_xticks(np.interp(ticks, wave, y), [f"{t:.0f}" for t in ticks], fontsize=7)
    top.tick_params(length=2.5, pad=1)
    top.set_xlabel("Å (fibre in the middle)", fontsize=8, labelpad=2)


def _spectra(figure: "SubFigure", frame: Frame, rows: np.ndarray, truth: TruthFile | None) -> Array:
    """Draw a faint, a medium and a bright fibre of the bundle with errors and truth; returns the pulls of all
    fibres."""
    good = frame.mask[rows] == 0
    level = np.array([np.median(frame.flux[r][g]) if g.any() else -np.inf for r, g in zip(rows, good, strict=True)])
    order = rows[np.argsort(level, kind="stable")]
    usable = order[np.isfinite(np.sort(level))]
    order = usable if len(usable) else order
    axes = canvas.grid(figure, (4.2, 1.25), 3, edges=(0.6, 0.15, 0.45, 0.3), gaps=(0.5, 0.45))
    for (wide, close), row in zip(axes, (order[0], order[len(order) // 2], order[-1]), strict=True):
        _spectrum(wide, close, frame, int(row), None if truth is None else blurred_truth(truth, frame, int(row)))
    axes[-1, 0].set_xlabel("wavelength [Å]", fontsize=8)
    axes[-1, 1].set_xlabel("wavelength [Å]", fontsize=8)
    known = [] if truth is None else [(r, blurred_truth(truth, frame, int(r))) for r in rows]
    pulls = [((frame.flux[r] - t) * np.sqrt(frame.ivar[r]))[frame.mask[r] == 0] for r, t in known if t is not None]
    return np.concatenate(pulls) if pulls else np.zeros(0)


def _spectrum(wide: "Axes", close: "Axes", frame: Frame, row: int, truth: Array | None) -> None:
    flux, ivar, good = frame.flux[row], frame.ivar[row], frame.mask[row] == 0
    error, wave = np.where(ivar > 0, 1 / np.sqrt(np.where(ivar > 0, ivar, 1)), 0), wave_of(frame, row)
    title = f"fibre {frame.fibres[row]}: median signal to noise {np.median(flux * np.sqrt(ivar)):.1f}"
    shown = np.where(good, flux, np.nan)
    if truth is not None and good.any():
        title += f", pulls {_spread(((flux - truth) * np.sqrt(ivar))[good])}"
    for ax in (wide, close):
        ax.fill_between(wave, shown - error, shown + error, step="mid", color=canvas.BLUE, alpha=0.25, lw=0,
                        label="error")
        ax.plot(wave, shown, color=canvas.BLUE, lw=0.7, drawstyle="steps-mid", label="extracted")
        if truth is not None:
            ax.plot(wave, truth, color=canvas.ORANGE, lw=0.8 if ax is wide else 1.2, label="R × truth", zorder=3)
        ax.fill_between(wave, 0, 1, where=~good, step="mid", transform=ax.get_xaxis_transform(),
                        color=canvas.MASKED, lw=0)
    canvas.tidy(wide, title, ylabel="electron/Å")
    canvas.tidy(close, "brightest line")
    wide.set_xlim(wave[0], wave[-1])
    if good.any():
        low, high = np.quantile(flux[good], [0.01, 0.985])
        wide.set_ylim(min(0.0, low) - 0.1 * (high - low) - 1e-9, high + 0.25 * (high - low) + 1e-9)
        peak = int(np.nanargmax(shown))
        near = slice(max(peak - CLOSE, 0), peak + CLOSE + 1)
        close.set_xlim(wave[near][0], wave[near][-1])
        span = shown[near][np.isfinite(shown[near])]
        close.set_ylim(span.min() - 0.05 * np.ptp(span) - 1e-9, span.max() + 0.08 * np.ptp(span) + 1e-9)
    wide.legend(fontsize=6.5, loc="upper left", ncols=3, frameon=False)


def _maps(figure: "SubFigure", frame: Frame, view: View, pulls: Array) -> None:
    """Draw rows of R, chi2 and mask of all fibres, and the distribution of the residuals."""
    of_r, of_chi2, of_mask, of_pulls = canvas.grid(figure, (1, 1.25, 1.25, 1), edges=(0.45, 0.15, 0.45, 0.3),
                                                   gaps=(0.95, 0))
    _resolution(of_r, frame, int(view.rows[len(view.rows) // 2]))
    extent = (frame.wave[0], frame.wave[-1], frame.fibres[0] - 0.5, frame.fibres[-1] + 0.5)
    where = "wavelength [Å]" if frame.own_wave is None else "wavelength of the fibre in the middle [Å]"
    from matplotlib.colors import LogNorm

    of_chi2.set_facecolor(canvas.MASKED)
    chi2 = np.where(frame.ivar > 0, np.maximum(frame.chi2pix, 1e-3), np.nan)
    drawn = of_chi2.imshow(canvas.pooled(chi2, 700), origin="lower", aspect="auto", extent=extent,
                           norm=LogNorm(0.25, 10), cmap="magma", interpolation="nearest")
    canvas.bar(figure, drawn, of_chi2, "chi2pix")
    for ax in (of_chi2, of_mask):
        ax.yaxis.get_major_locator().set_params(integer=True)
    canvas.tidy(of_chi2, "chi2 of the pixels under each bin", where, "fibre")
    canvas.draw_mask(of_mask, frame.mask, extent)
    canvas.tidy(of_mask, "mask", where, "fibre")
    _distribution(of_pulls, view, pulls)


def _resolution(ax: "Axes", frame: Frame, row: int) -> None:
    offset = np.arange(-frame.ndiag, frame.ndiag + 1)
    n = len(frame.wave)
    for at, colour in zip((n // 10, n // 2, n - 1 - n // 10), (canvas.BLUE, canvas.GREEN, canvas.ORANGE), strict=True):
        values = row_of_resolution(frame.resolution[row], at)
        label = f"{wave_of(frame, row)[at]:.0f} Å, sum {values.sum():.4f}"
        ax.plot(offset, values, "o-", color=colour, ms=2.5, lw=1, label=label)
    ax.axhline(0, color=canvas.GREY, lw=0.6)
    ax.legend(fontsize=6, frameon=False, loc="upper right")
    ax.set_ylim(-0.05, max(1.3 * float(np.max(frame.resolution[row], initial=0.0)), 0.1))
    canvas.tidy(ax, f"rows of R, fibre {frame.fibres[row]}", "bins from the row's own", "")


def _spread(values: Array) -> str:
    """Median and half the width of the middle 68 %, which are insensitive to a few bins of bright lines."""
    low, middle, high = np.quantile(values, [0.1587, 0.5, 0.8413])
    return f"{middle:+.3f} ± {(high - low) / 2:.3f}"


def _distribution(ax: "Axes", view: View, pulls: Array) -> None:
    """Histograms of the pixels' residuals and of the pulls against a unit normal distribution."""
    edges = np.linspace(-6, 6, 61)
    middle = 0.5 * (edges[1:] + edges[:-1])
    chi = np.zeros(0) if view.chi is None else view.chi[np.isfinite(view.chi) & (view.model != 0)]
    for values, colour, name in ((chi, canvas.BLUE, "pixels"), (pulls, canvas.ORANGE, "flux - R × truth")):
        if len(values):
            density = np.histogram(np.clip(values, -5.99, 5.99), edges)[0] / len(values) / np.diff(edges)
            ax.step(middle, density, where="mid", color=colour, lw=1, label=f"{name}: {_spread(values)}")
    ax.plot(middle, np.exp(-(middle**2) / 2) / np.sqrt(2 * np.pi), color=canvas.INK, lw=0.8, ls="--", label="normal")
    ax.set_yscale("log")
    ax.set_ylim(1e-6, 2)
    ax.legend(fontsize=6, frameon=False, loc="upper left")
    canvas.tidy(ax, "residuals of the bundle (median ± 68 %)", "sigma", "density")
