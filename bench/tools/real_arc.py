"""The CMOS camera's PSF from its arc: fitted as tables, then arc and flat extracted with it. Used by real_data.py."""
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.ndimage import maximum_filter

from gpu_extract.config import ExtractConfig
from gpu_extract.data import Array, Frame, Image, Legendre, PsfModel
from gpu_extract.run import extract
from gpu_extract.spots import centres, make_spots
from gpu_psf.data import FitConfig, Lines
from gpu_psf.run import FittedPsf, fit_psf
from gpu_psf.series import at_rows, legendre
from gpu_psf.start.ground import ground_between
from gpu_psf.start.profiles import Traces
from gpu_psf.start.run import suggested_grid

GROUPS = 0, 7, 13, 18, 24   # first orders of the groups that are fitted together, as bundles: they share no light
CONFIG = FitConfig(degree_gh=6, degree_wave=1, degree_across=1, reach=(4, 6), saturation=25000.0, spots="tables",
                   positions=2)
FINER = 0.7                 # times the suggested step: between bins of 1.4 sigma a bright sharp line leaves its place
ROWS = 24                   # places along an order at which the flat is compared with the PSF
PROBES = np.arange(-6.0, 6.01, 0.5)     # pixels across
BESIDE = 101, 81            # rows and columns around a saturated pixel that its light reaches


@dataclass(frozen=True)
class Arc:
    """An arc with its PSF, and what was extracted with it.

    start: Gaussian spots; fitted: tables; images, grounds, noises, frames: of the arc, then of the flat; plain: frames
        with the starting PSF; moved: pixels by which the flat lies beside the arc, mean and scatter
    """

    start: PsfModel
    fitted: FittedPsf
    images: list[Image]
    grounds: list[Array]
    noises: list[float]
    frames: list[Frame]
    plain: list[Frame]
    moved: tuple[float, float]


def fit_arc(arc: Image, flat: Image, traces: Traces, start: PsfModel, wave: Array) -> Arc:
    """The PSF of the arc, and both images extracted with it. wave: the lines that were identified, Angstrom."""
    start = replace(start, bundle=np.searchsorted(GROUPS, np.arange(start.nfibre), side="right") - 1)
    fitted = fit_psf([arc], start, Lines(wave, np.ones(len(wave))), CONFIG, tell=lambda text: print(f"  {text}"))
    assert fitted is not None
    grounds = [ground_between(image, traces) for image in (arc, flat)]
    images = [replace(image, pix=(image.pix - ground).astype(np.float32))
              for image, ground in zip((arc, flat), grounds, strict=True)]
    across, moved = beside(images[1], fitted.psf)
    print(f"  the flat beside the arc: {moved[0]:+.2f} pixels across, scatter {moved[1]:.2f}")
    first, last, step = suggested_grid(start)
    config = ExtractConfig(wavelength=(first, last, FINER * step), any_psf=True, model=True, keep_cosmics=True)
    psfs = fitted.psf, replace(fitted.psf, x=across)
    frames = [extract(image, psf, config) for image, psf in zip(images, psfs, strict=True)]
    plain = [extract(image, psf, config) for image, psf in zip(images, (_placed(start, psfs[0]), start), strict=True)]
    noises = [float(image.read_noise or 0.0) for image in images]
    return Arc(start, fitted, images, grounds, noises, [f for f in frames if f], [f for f in plain if f], moved)


def _placed(start: PsfModel, psf: PsfModel) -> PsfModel:
    """The starting PSF's Gaussians on the fitted traces: what is compared are spots, not places."""
    return replace(start, x=psf.x, y=psf.y)


def beside(image: Image, psf: PsfModel) -> tuple[Legendre, tuple[float, float]]:
    """Traces in x moved to where the light of a flat is, and the mean and the scatter of the moves, pixels.

    In each order at some places the spots' own profile is shifted across until it is like that of the flat; a parabola
    along the order goes through the shifts.
    """
    low, high = psf.wavelength_range
    wave = np.linspace(low, high, ROWS + 2)[1:-1]
    spots = make_spots(psf, (0, psf.nfibre), wave).stamps.sum(axis=2)       # (nfibre, ROWS, nx)
    y, x = centres(psf, (0, psf.nfibre), wave)
    half, coeff, every = psf.stamp[1] // 2, psf.x.coeff.copy(), []
    basis = legendre(wave, (psf.x.wmin, psf.x.wmax), 2)
    for fibre in range(psf.nfibre):
        shifts = np.array([_shift(image, spots[fibre, n], (x[fibre, n], y[fibre, n]), half) for n in range(ROWS)])
        good = np.isfinite(shifts)
        if np.count_nonzero(good) < ROWS // 3:
            continue                            # without light: as the arc has it
        good[good] = np.abs(shifts[good] - np.median(shifts[good])) < 1.5
        fit = np.linalg.lstsq(basis[good], shifts[good], rcond=None)[0]
        coeff[fibre, :3] += fit
        every.append(basis @ fit)
    return replace(psf.x, coeff=coeff), (float(np.mean(every)), float(np.std(every)))


def _shift(image: Image, profile: Array, place: tuple[float, float], half: int) -> float:
    """Pixels by which the flat's profile around a place lies beside a spot's; NaN at the edge or without light."""
    x0, y0 = int(np.floor(place[0] - half + 0.5)), round(place[1])
    if not (x0 >= 0 and x0 + len(profile) <= image.shape[1] and 4 <= y0 < image.shape[0] - 4):
        return float("nan")
    light = np.median(image.pix[y0 - 4:y0 + 5, x0:x0 + len(profile)], axis=0).astype(float)
    at = np.arange(len(profile), dtype=float)
    left = []
    for probe in PROBES:
        shape = np.interp(at - probe, at, profile, left=0.0, right=0.0)
        left.append(np.sum((light - shape * (shape @ light) / (shape @ shape))**2))
    best = int(np.argmin(left))
    if not 0 < best < len(PROBES) - 1 or light.max() < 30:
        return float("nan")
    before, least, after = left[best - 1:best + 2]
    return float(PROBES[best] + 0.5 * (before - after) / (before - 2 * least + after) * (PROBES[1] - PROBES[0]))


def valley_noise(image: Image, traces: Traces) -> float:
    """Scatter of second differences across the middle between orders, electron: the noise where there is no line."""
    rows = np.arange(image.shape[0])
    x = at_rows(traces.x, rows.astype(float))
    middle = np.rint((x[1:] + x[:-1]) / 2).astype(int)[5:20]
    value = image.pix[rows, middle].astype(float)
    second = value[:, 2:] - 2 * value[:, 1:-1] + value[:, :-2]
    return float(1.4826 * np.median(np.abs(second - np.median(second))) / 6**0.5)


def arc_chi2(found: Arc, levels: tuple[tuple[float, float], ...]) -> dict[str, list[list[float]]]:
    """For the fitted and the starting PSF, for arc and flat: chi2 per pixel near an order, its median over that of
    normal noise; all, then by level of the model of the fitted PSF."""
    table: dict[str, list[list[float]]] = {}
    parts = []
    for image, frame in zip(found.images, found.frames, strict=True):
        model = np.asarray(frame.model)
        near = (model > 0) & (image.ivar > 0)
        parts.append([near, *(near & (model >= low) & (model < high) for low, high in levels)])
    for name, frames in (("fitted", found.frames), ("start", found.plain)):
        rows = []
        for image, ground, noise, frame, inside in zip(found.images, found.grounds, found.noises, frames, parts,
                                                       strict=True):
            model = np.asarray(frame.model)
            z2 = (image.pix - model)**2 / (noise**2 + np.maximum(model + ground, 0))
            rows.append([float(np.median(z2[part]) / 0.4549) if part.any() else float("nan") for part in inside])
        table[name] = rows
        for what, row in zip(("arc", "flat"), rows, strict=True):
            print(f"  chi2 per pixel, {name}, {what}: " + " ".join(f"{value:.2f}" for value in row))
    _beside_saturated(found, levels)
    return table


def _beside_saturated(found: Arc, levels: tuple[tuple[float, float], ...]) -> None:
    """The same levels of the arc, with the fitted PSF, far from saturated pixels; how many of the brightest are not."""
    image, ground, noise, model = found.images[0], found.grounds[0], found.noises[0], np.asarray(found.frames[0].model)
    saturated = (image.ivar == 0) & (model > levels[-1][0])
    beside = maximum_filter(saturated, BESIDE)
    z2 = (image.pix - model)**2 / (noise**2 + np.maximum(model + ground, 0))
    near = (model > 0) & (image.ivar > 0)
    values = [np.median(z2[near & ~beside & (model >= low) & (model < high)]) / 0.4549 for low, high in levels]
    brightest = near & (model >= levels[-1][0])
    print(f"  {np.count_nonzero(saturated)} saturated pixels in the arc; of {np.count_nonzero(brightest)} in the last "
          f"level {np.count_nonzero(brightest & beside)} are beside them; farther away: "
          + " ".join(f"{value:.2f}" for value in values))


def line_widths(found: Arc) -> Array:
    """Wavelength, FWHM of the spot along the dispersion (Angstrom) and R of each firm line, (nline, 3)."""
    spots = found.fitted.spots[found.fitted.spots["FIRM"] > 0]
    psf, rows = found.fitted.psf, []
    assert psf.own is not None
    for spot in spots:
        series = np.polynomial.Legendre(psf.own.coeff[spot["FIBER"]], (psf.own.wmin, psf.own.wmax))
        at = np.linspace(*psf.wavelength_range, 2049)
        coordinate = float(np.interp(spot["WAVELENGTH"], series(at), at))
        fibre = int(spot["FIBER"])
        profile = make_spots(psf, (fibre, fibre + 1), np.array([coordinate])).stamps[0, 0].sum(axis=1)
        y = centres(psf, (fibre, fibre + 1), np.array([coordinate - 0.1, coordinate + 0.1]))[0][0]
        scale = 0.2 * float(series.deriv()(coordinate)) / abs(float(y[1] - y[0]))
        width = _half_width(profile) * scale
        rows.append((spot["WAVELENGTH"], width, spot["WAVELENGTH"] / width))
    return np.array(rows)


def _half_width(profile: Array) -> float:
    """Full width at half maximum, pixels, by straight lines between pixels."""
    peak, half = int(profile.argmax()), profile.max() / 2
    below = np.flatnonzero(profile[:peak] < half)[-1]
    above = peak + np.flatnonzero(profile[peak:] < half)[0]
    low = below + (half - profile[below]) / (profile[below + 1] - profile[below])
    high = above - (half - profile[above]) / (profile[above - 1] - profile[above])
    return float(high - low)


def arc_picture(found: Arc, folder: Path) -> None:
    """A part of the arc, the models with both PSFs, and what they leave; profiles of a bright spot."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    spots = found.fitted.spots[found.fitted.spots["FIRM"] > 0]
    spot = spots[np.argsort(-spots["FLUX"])[4]]
    y, x = (int(np.rint(spot[name])) for name in ("Y", "X"))
    part = np.s_[max(y - 150, 0):y + 150, max(x - 90, 0):x + 90]
    image, noise = found.images[0], found.noises[0]
    pulls = [(image.pix - np.asarray(f.model)) / np.sqrt(noise**2 + np.maximum(np.asarray(f.model), 0))
             for f in (found.plain[0], found.frames[0])]
    fig, axes = plt.subplots(4, 1, figsize=(10, 13), layout="constrained")
    extent = (part[0].start - 0.5, part[0].start + image.pix[part].shape[0] - 0.5, part[1].start - 0.5,
              part[1].start + image.pix[part].shape[1] - 0.5)
    for ax, values, title, limits, colours in zip(
            axes, (image.pix, *pulls), ("CMOS, thorium-argon: electrons", "(image - model) / sigma: Gaussian spots",
                                        "(image - model) / sigma: tables fitted to the arc"),
            ((-20, 400), (-10, 10), (-10, 10)), ("viridis", "RdBu_r", "RdBu_r"), strict=False):
        shown = ax.imshow(values[part].T, aspect="auto", origin="lower", vmin=limits[0], vmax=limits[1], cmap=colours,
                          extent=extent)
        ax.set_title(title, loc="left", fontsize=10)
        ax.set_ylabel("x (across)")
        fig.colorbar(shown, ax=ax)
    axes[2].set_xlabel("y (along the dispersion)")
    rows, columns = slice(y - 6, y + 7), slice(max(x - 30, 0), x + 31)
    at = np.arange(columns.start, columns.start + image.pix[rows, columns].shape[1])
    for values, name, style in ((image.pix, "pixels", "k."), (np.asarray(found.plain[0].model), "Gaussian", "C1-"),
                                (np.asarray(found.frames[0].model), "table", "C0-")):
        axes[3].plot(at, values[rows, columns].sum(axis=0), style, label=name, ms=4)
    axes[3].set_title(f"{spot['WAVELENGTH']:.1f} A, across the order, 13 rows added up", loc="left", fontsize=10)
    axes[3].set(xlabel="x", ylabel="electrons")
    axes[3].legend(fontsize=8)
    fig.savefig(folder / "real-cmos.png", dpi=60)
