"""Real pixels through gpu_psf and gpu_extract: what doc/real-data.md reports, with its pictures.

    python bench/real_data.py [FOLDER] [--figures doc/figures] [--smallest]

FOLDER holds echelle-ccd.fits.gz, echelle-cmos.fits.gz, uves-star.fits.gz and the text files that belong to them.
Without it, and with --smallest, nothing is measured. Everything that is printed is measured here;
gain and noise are fixed before any chi2 is computed.
"""
import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))

import numpy as np
from real_arc import Arc, arc_chi2, arc_picture, fit_arc, line_widths, valley_noise
from real_plasma import DEUTERIUM, beside, drift, ratios, widths
from real_spectra import boxes, qa_picture, resolution, shifts, spectra_picture, twice, wavelengths
from scipy.ndimage import median_filter
from scipy.optimize import least_squares
from scipy.special import erf

from gpu_extract.config import ExtractConfig
from gpu_extract.data import Frame, Image, Legendre, PsfModel, SpecMask, Tail
from gpu_extract.run import extract
from gpu_psf.data import FitConfig, Lines
from gpu_psf.detector import Detector
from gpu_psf.noise import read_noise_of, with_bias
from gpu_psf.preprocess import preprocess, turned
from gpu_psf.raw import read_raw
from gpu_psf.run import FittedPsf, fit_psf
from gpu_psf.series import at_rows
from gpu_psf.start.count import Slit, match_fibres
from gpu_psf.start.ground import ground_between
from gpu_psf.start.identify import moved_along, refine, sharp_lines
from gpu_psf.start.lines import Pairs, Seen, isolated, line_width, read_pairs, seen_lines, select_lines
from gpu_psf.start.make import make_psf, width_surface
from gpu_psf.start.profiles import Traces, fit_profiles, fit_traces
from gpu_psf.start.run import suggested_grid
from gpu_psf.start.solution import Solution, solve_wavelengths
from gpu_psf.start.traces import find_traces
from gpu_psf.transfer import photon_transfer

SATURATED = 60000.0                     # ADU
LEVELS = ((0, 30), (30, 100), (100, 300), (300, 1000), (1000, 1e7))      # electrons of the model


@dataclass(frozen=True)
class Ccd:
    """The CCD's frames once they are extracted: images without ground, grounds, frames."""

    images: list[Image]
    grounds: list[np.ndarray]
    frames: list[Frame]
    traces: Traces
    solution: Solution
    detector: Detector
    pattern: np.ndarray
    start: PsfModel
    chosen: Seen


def traces_of(flat: Image, slit: Slit) -> Traces:
    found = find_traces(flat)
    print(f"  {len(found.place)} traces, profile {found.width:.1f} pixels wide")
    return match_fibres(fit_traces(found, fit_profiles(flat, found), flat.shape), slit)


def ccd(folder: Path) -> Ccd:
    """Three dark and four bright frames of a plasma, a flat, lines identified on another day."""
    print("CCD")
    raw = [read_raw(f"{folder}/echelle-ccd.fits.gz[SCIENCE,{n}]")[0] for n in range(7)]
    flat = read_raw(f"{folder}/echelle-ccd.fits.gz[FLAT]")[0]
    darks, bias = raw[:3], np.median(raw[:3], axis=0)
    noise = with_bias(read_noise_of(darks), 3)
    transfer = photon_transfer(turned(flat - bias, "x"), noise, SATURATED)
    detector = Detector(transfer.gain, noise * transfer.gain, SATURATED)
    print(f"  gain {transfer.gain:.3f} electron/ADU, read noise {read_noise_of(darks):.2f} ADU, with the bias' "
          f"{detector.read_noise:.2f} electron")
    traces = traces_of(preprocess(flat, bias, detector, dispersion="x")[0], Slit(28, skip=1))
    pattern = (np.loadtxt(folder / "pattern.txt") - 3.5) / 8
    apart = at_rows(traces.x, np.arange(1024.0)).T - pattern
    print(f"  traces against the instrument's own: mean {apart.mean():+.3f}, rms {apart.std():.3f} rows")
    solution = solve_wavelengths(read_pairs(folder / "Th_wavelength.txt", (0, 3, 4), "nm"), 28, 1024, echelle=True)
    print(f"  {np.count_nonzero(solution.used)} of {len(solution.used)} lines, rms {solution.rms:.3f} pixels, orders "
          f"{solution.orders}")
    images = [preprocess(frame, bias, detector, dispersion="x")[0] for frame in raw[3:]]
    grounds = [ground_between(image, traces) for image in images]
    clean = [replace(image, pix=(image.pix - ground).astype(np.float32))
             for image, ground in zip(images, grounds, strict=True)]
    width = line_width(clean[1], traces)
    seen = seen_lines(clean[1], traces, width)
    shift = beside(seen, solution)
    solution = moved_along(solution, shift)
    print(f"  the list's columns count from elsewhere: moved by {shift:+.2f} pixels")
    alone = isolated(seen, width)
    chosen = select_lines(alone, alone.light > 5000)
    along = width_surface(chosen.fibre, chosen.row, chosen.sigma, chosen.light, 28, 1024)
    psf = make_psf(traces, solution, along, images[0].shape, name="CCD")
    print(f"  sigma along {np.median(along[:, 0]):.2f} pixels from {len(chosen.row)} lines of the plasma, across "
          f"{np.median(traces.sigma.coeff[:, 0]):.2f} rows")
    grid = suggested_grid(psf)
    config = ExtractConfig(wavelength=grid, passes=2, keep_cosmics=True, any_psf=True, model=True)
    frames = [extract(image, psf, config) for image in clean]
    print("  bins beside odd pixels:", [int(np.count_nonzero(f.mask & (1 << 25))) for f in frames if f is not None])
    return Ccd(clean, grounds, [frame for frame in frames if frame is not None], traces, solution, detector, pattern,
               psf, chosen)


SHARP, ONE_LINE = 1.2, 0.4      # times the typical width: blends are broader; Angstrom: the same line on two orders


def ccd_fitted(found: Ccd, spots: str = "gauss-hermite") -> tuple[FittedPsf, Ccd]:
    """The PSF fitted to the plasma's own lone lines in all exposures together, and these extracted with it.

    The wavelengths are those that the solution has where the lines are seen: the fit is of the spots, it says nothing
    about wavelengths.
    """
    chosen = found.chosen
    sharp = np.flatnonzero(chosen.sigma < SHARP * np.median(found.start.cores[0].sigma_y.coeff[:, 0]))
    wave = np.array([found.solution.at(chosen.row[n:n + 1])[chosen.fibre[n], 0] for n in sharp])
    order = np.argsort(wave)
    wave, light = wave[order], chosen.light[sharp][order]
    group = np.cumsum(np.diff(wave, prepend=wave[0]) > ONE_LINE)
    strength = np.bincount(group, light)
    lines = Lines(np.bincount(group, wave * light) / strength, strength)
    print("  lines of the plasma:", " ".join(f"{value:.1f}" for value in lines.wave))
    config = FitConfig(degree_gh=4, degree_wave=0, degree_across=1, reach=(1, 2),
                       saturation=0.8 * SATURATED * found.detector.gain, spots=spots, positions=2)
    fitted = fit_psf(found.images, found.start, lines, config, tell=lambda text: print(f"  {text}"))
    assert fitted is not None
    extraction = ExtractConfig(wavelength=suggested_grid(found.start), passes=2, keep_cosmics=True, any_psf=True,
                               model=True)
    frames = [extract(image, fitted.psf, extraction) for image in found.images]
    return fitted, replace(found, frames=[frame for frame in frames if frame is not None])


def chi2_table(found: Ccd) -> list[list[float]]:
    """For each frame the median of chi2 per pixel, over that of a normal number, at each level of the model."""
    rows = []
    for image, ground, frame in zip(found.images, found.grounds, found.frames, strict=True):
        z2, model, good = squares(image, ground, frame, found.detector)
        row = [float(np.median(z2[good]) / 0.4549)]
        for low, high in LEVELS:
            inside = good & (model >= low) & (model < high)
            row.append(float(np.median(z2[inside]) / 0.4549))
        rows.append(row)
        print("  chi2 per pixel, all and by level:", " ".join(f"{value:.2f}" for value in row),
              f"mean of the faintest {np.mean(z2[good & (model >= 0) & (model < 30)]):.2f}")
    return rows


def squares(image: Image, ground: np.ndarray, frame: Frame,
            detector: Detector) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """chi2 of each pixel with the variance of the model, the model, and which pixels count."""
    model = np.asarray(frame.model)
    variance = detector.read_noise**2 + np.maximum(model + ground, 0)
    return (image.pix - model)**2 / variance, model, image.ivar > 0


@dataclass(frozen=True)
class Cmos:
    """The CMOS camera: arc and flat in electrons, traces, wavelengths, the lines that gave these, and starting PSF."""

    arc: Image
    flat: Image
    traces: Traces
    solution: Solution
    used: Pairs
    start: PsfModel


CMOS_LINES, WIDTH = "Th_wavelength_CMOS_only_Th-Ar.txt", 2.5      # sigma along the dispersion, pixels, about


def cmos(folder: Path) -> Cmos:
    """A thorium-argon arc and a flat: traces, wavelengths and Gaussian spots.

    The noise of the arc is that between its orders: 10 s of the detector's own signal are in it, and pixels differ.
    """
    print("CMOS")
    arc, flat, dark = (read_raw(f"{folder}/echelle-cmos.fits.gz[{name}]")[0] for name in ("ARC", "FLAT", "FLATBKG"))
    noise = read_noise_of([turned(dark, "x")])
    transfer = photon_transfer(turned(flat - dark, "x"), noise * 2**0.5, SATURATED)
    detector = Detector(transfer.gain, noise * transfer.gain, SATURATED)
    print(f"  gain {transfer.gain:.3f} electron/ADU, read noise {detector.read_noise:.2f} electron (one dark frame)")
    lit = preprocess(flat, float(np.median(dark)), detector, dispersion="x")[0]
    traces = traces_of(lit, Slit(29, skip=1))
    image = preprocess(arc, float(np.median(arc)), detector, dispersion="x")[0]
    noise = valley_noise(image, traces)
    print(f"  noise between the orders of the arc: {noise:.2f} electron")
    image = preprocess(arc, float(np.median(arc)), replace(detector, read_noise=noise), dispersion="x")[0]
    pairs = read_pairs(folder / CMOS_LINES, (0, 3, 4), "nm")
    given = solve_wavelengths(pairs, 29, 2560, echelle=True)
    print(f"  lines as given: {np.count_nonzero(given.used)} of {len(given.used)}, rms {given.rms:.2f} pixels, orders "
          f"{given.orders}")
    width = line_width(image, traces)
    seen = seen_lines(image, traces, width)
    solution, used = refine(seen, np.unique(pairs.wave), given, ny=2560)
    print(f"  lines as seen: {len(used.row)}, rms {solution.rms:.3f} pixels, sigma {width:.2f}")
    sharp = sharp_lines(seen, np.unique(used.wave), solution)
    along = width_surface(sharp.fibre, sharp.row, sharp.sigma, sharp.light, 29, 2560)
    return Cmos(image, lit, traces, solution, used, make_psf(traces, solution, along, image.shape, name="CMOS"))


def cmos_arc(found: Cmos) -> Arc:
    """The PSF fitted to the arc, the spectra, chi2 and the widths of the lines."""
    arc = fit_arc(found.arc, found.flat, found.traces, found.start, np.unique(found.used.wave))
    arc_chi2(arc, LEVELS)
    wave, width, power = line_widths(arc).T
    print(f"  {len(wave)} lines: FWHM {width.min():.2f} to {width.max():.2f} A, R {power.min():.0f} to "
          f"{power.max():.0f}, median {np.median(power):.0f}")
    return arc


def cmos_spectra(found: Cmos, arc: Arc, folder: Path) -> tuple[np.ndarray, np.ndarray, tuple[float, float, float]]:
    """Wavelengths in the arc's spectra, lines on two orders, resolution: see real_spectra."""
    box = boxes(arc, found.traces, found.solution, WIDTH)
    windows = np.loadtxt(folder / CMOS_LINES, usecols=(1, 2), comments="#")
    return wavelengths(arc, found.used), twice(arc, found.used, box), resolution(arc, box.seen, windows)


def uves(folder: Path) -> tuple[Image, Traces]:
    """A star with cosmics: its own light shows the traces."""
    print("UVES")
    raw, _ = read_raw(f"{folder}/uves-star.fits.gz[0]")
    image = preprocess(raw, 0.0, Detector(2.03, 3.9, 60000), dispersion="x")[0]
    found = find_traces(image)
    traces = fit_traces(found, fit_profiles(image, found), image.shape)
    print(f"  {len(traces.light)} traces, sigma across {np.median(traces.sigma.coeff[:, 0]):.2f} pixels, rms of the "
          f"blocks about them {np.median(traces.error):.2f} pixels")
    return image, traces


STAR_ERROR = 0.05                       # fractional, of the star's PSF
ORDERS = slice(1, 34)                   # the two at the edges are hardly on the CCD


@dataclass(frozen=True)
class Star:
    """The star in two passes, `frames` without rejection and with it; near: pixels of the spots."""

    image: Image
    noise: float
    near: np.ndarray
    frames: tuple[Frame, Frame]


def star(folder: Path, image: Image, traces: Traces) -> Star:
    """The star's PSF from its own light: a Gaussian and a tail; what two passes reject, and chi2 before and after.

    Without an arc the wavelength is the row's number in units of a tenth of an Angstrom, and spots are as long as wide.
    """
    raw, _ = read_raw(f"{folder}/uves-star.fits.gz[0]")
    rows = np.arange(float(image.shape[0]))
    noise = _valley_noise(image, at_rows(traces.x, rows))
    image = preprocess(raw, 0.0, Detector(2.03, noise, 60000), dispersion="x")[0]
    traces = replace(traces, light=traces.light[ORDERS], error=traces.error[ORDERS],
                     interpolated=traces.interpolated[ORDERS],
                     **{name: replace(series, coeff=series.coeff[ORDERS]) for name, series in
                        (("x", traces.x), ("sigma", traces.sigma))})
    clean = replace(image, pix=(image.pix - ground_between(image, traces)).astype(np.float32))
    x = at_rows(traces.x, rows)
    psf = _star_psf(traces, _profile(clean, x), clean.shape)
    config = ExtractConfig(wavelength=suggested_grid(psf), passes=2, any_psf=True, model=True, psferr=STAR_ERROR)
    kept, found = (extract(clean, psf, replace(config, keep_cosmics=keep)) for keep in (True, False))
    assert kept is not None and found is not None
    apart = np.abs(np.arange(image.shape[1])[None, :, None] - x.T[:, None, :]).min(axis=2)
    near = (apart < 4.5) & (rows > 60)[:, None] & (rows < len(rows) - 60)[:, None]
    measured = Star(clean, noise, near, (kept, found))
    places = found.notes["rejected"]
    print(f"  read noise {noise:.2f} electron between the orders; {len(places)} pixels rejected, "
          f"{np.count_nonzero(near[tuple(places.T)])} of them among the {np.count_nonzero(near)} near an order; "
          f"{np.count_nonzero(found.mask & SpecMask.COSMIC)} of {found.mask.size} bins have COSMIC")
    for name, row in zip(("kept", "rejected"), star_chi2(measured), strict=True):
        print(f"  chi2 per pixel, {name}: all " + " ".join(f"{mean:.2f} ({median:.2f})" for mean, median in row))
    return measured


def star_chi2(found: Star) -> list[list[tuple[float, float]]]:
    """For kept and rejected: mean of chi2 per pixel that has a part, and its median over that of a normal number; all,
    then by level of the model."""
    table = []
    for frame in found.frames:
        model, good = np.asarray(frame.model), found.near & (found.image.ivar > 0)
        places = frame.notes["rejected"]
        good[tuple(places.T)] = False
        z2 = (found.image.pix - model)**2 / (found.noise**2 + np.maximum(model, 0))
        parts = [good, *(good & (model >= (low or -np.inf)) & (model < high) for low, high in LEVELS)]
        table.append([(float(z2[part].mean()), float(np.median(z2[part]) / 0.4549)) for part in parts])
    return table


def _valley_noise(image: Image, x: np.ndarray) -> float:
    """Scatter of the difference of neighbours in the middle between two orders, electron."""
    middle, rows = np.rint((x[1:] + x[:-1]) / 2).astype(int)[2:20], np.arange(image.shape[0])
    apart = image.pix[rows, middle] - image.pix[rows, middle + 1]
    return float(1.4826 * np.median(np.abs(apart - np.median(apart))) / 2**0.5)


def _profile(image: Image, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distances across the orders and the median share of light there, all bright orders together."""
    at, rows, near = np.arange(-10.0, 10.01, 0.25), np.arange(100, image.shape[0] - 100), np.arange(-10, 11)[:, None]
    distance, share = [], []
    for trace in x[8:, rows]:
        column = np.rint(trace).astype(int) + near
        light = image.pix[rows, np.clip(column, 0, image.shape[1] - 1)]
        total = median_filter(light[7:14].sum(axis=0), 21)
        good = (column >= 0) & (column < image.shape[1]) & (total > 500)
        distance.append((column - trace)[good])
        share.append((light / np.where(total > 500, total, 1.0))[good])
    where, every = np.rint((np.concatenate(distance) + 10) / 0.25).astype(int), np.concatenate(share)
    return at, np.array([np.median(every[where == n]) for n in range(len(at))])


def _star_psf(traces: Traces, profile: tuple[np.ndarray, np.ndarray], shape: tuple[int, int]) -> PsfModel:
    """Spots whose profile across the orders is the one seen: a Gaussian and a tail."""
    at, seen = profile
    inner, along = np.abs(at) <= 3.5, np.arange(-60, 60.01, 0.25)

    def share(numbers: np.ndarray) -> np.ndarray:
        sigma, amp, core, index = numbers
        r2 = at[:, None]**2 + along**2
        light = (erf((at + 0.5) / sigma / 2**0.5) - erf((at - 0.5) / sigma / 2**0.5)) / 2
        light = light + amp * (r2 / (core**2 + r2) ** (1 + index / 2)).sum(axis=1) * 0.25
        return np.asarray(light / light[inner].sum())

    wanted = seen / seen[inner].sum()
    numbers = least_squares(lambda p: (share(p) - wanted) / (0.02 * wanted + 1e-4), [0.85, 0.05, 2.0, 3.0]).x
    sigma, amp, core, index = np.abs(numbers)
    print(f"  across: sigma {sigma:.3f} pixels, tail {amp:.3f} r2 / ({core:.2f}^2 + r2)^{1 + index / 2:.2f}")
    last, n = shape[0] - 1.0, len(traces.light)
    rows = Solution(Legendre(np.tile([4000 + 0.05 * last, 0.05 * last], (n, 1)), 0.0, last), 0.0, np.zeros(0, bool))
    psf = make_psf(traces, rows, np.full((n, 1), sigma), shape, name="UVES")
    like = psf.cores[0].sigma_x

    def same(value: float) -> Legendre:
        return Legendre(np.full((n, 1), value), like.wmin, like.wmax)

    return replace(psf, cores=(replace(psf.cores[0], sigma_x=same(sigma), sigma_y=same(sigma)),),
                   tail=Tail(same(amp), same(core), same(1.0), same(1.0), same(index)), stamp=(13, 15),
                   offset=(5.5, 6.5))


def star_picture(found: Star, folder: Path) -> None:
    """A part of the image, what was rejected of it, what is left; and an order before and after."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows, columns = slice(600, 900), slice(280, 460)
    model, places = np.asarray(found.frames[1].model), found.frames[1].notes["rejected"]
    sigma = np.sqrt(found.noise**2 + np.maximum(model, 0))
    left = (found.image.pix - model) / sigma
    left[tuple(places.T)] = np.nan
    here = places[(places[:, 0] >= rows.start) & (places[:, 0] < rows.stop) & (places[:, 1] >= columns.start)
                  & (places[:, 1] < columns.stop)]
    fig, axes = plt.subplots(4, 1, figsize=(10, 12), layout="constrained")
    extent = (rows.start - 0.5, rows.stop - 0.5, columns.start - 0.5, columns.stop - 0.5)
    plain = np.log10(np.maximum(found.image.pix[rows, columns].T, 5))
    axes[0].imshow(plain, aspect="auto", origin="lower", cmap="gray_r", extent=extent)
    axes[1].imshow(plain, aspect="auto", origin="lower", cmap="gray_r", extent=extent)
    axes[1].plot(here[:, 0], here[:, 1], ".", ms=3, color="tab:red")
    shown = axes[2].imshow(left[rows, columns].T, aspect="auto", origin="lower", cmap="RdBu_r", vmin=-5, vmax=5,
                           extent=extent)
    fig.colorbar(shown, ax=axes[2], label="sigma")
    for ax, title in zip(axes, ("UVES, a star: the image", "pixels rejected", "(image - model) / sigma, the rest"),
                         strict=False):
        ax.set_title(title, loc="left", fontsize=10)
        ax.set_ylabel("x (across)")
    order, wave = 12, np.asarray(found.frames[0].wave)
    for frame, name, colour in zip(found.frames, ("cosmics kept", "cosmics rejected"), ("tab:red", "black"),
                                   strict=True):
        axes[3].step((wave - 4000) * 10, frame.flux[order] / 10, where="mid", lw=0.8, color=colour, label=name)
    axes[3].legend(fontsize=8)
    axes[3].set(xlabel="y (along the dispersion)", ylabel="electron / row", xlim=(rows.start, rows.stop))
    axes[3].set_title(f"order {order + 1} of 33", loc="left", fontsize=10)
    fig.savefig(folder / "real-star.png", dpi=60)


def pictures(found: Ccd, camera: Cmos, traced: tuple[Image, Traces], folder: Path) -> None:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    image, ground, frame = found.images[1], found.grounds[1], found.frames[1]
    z2, model, good = squares(image, ground, frame, found.detector)
    pull = np.where(good, np.sign(image.pix - model) * np.sqrt(z2), 0)
    fig, axes = plt.subplots(3, 1, figsize=(10, 8), sharex=True, layout="constrained")
    for ax, values, title, limits, colours in zip(
            axes, (image.pix, model, pull),
            ("CCD, plasma: electrons, ground subtracted", "model: all orders together", "(image - model) / sigma"),
            ((-20, 300), (-20, 300), (-5, 5)), ("viridis", "viridis", "RdBu_r"), strict=True):
        shown = ax.imshow(values.T, aspect="auto", origin="lower", vmin=limits[0], vmax=limits[1], cmap=colours)
        ax.set_title(title, loc="left", fontsize=10)
        ax.set_ylabel("x (across)")
        fig.colorbar(shown, ax=ax)
    axes[-1].set_xlabel("y (along the dispersion)")
    fig.savefig(folder / "real-ccd.png", dpi=60)
    fig, (*axes, last) = plt.subplots(3, 1, figsize=(10, 8.5), layout="constrained")
    for n, spectrum in enumerate(found.frames):
        for ax, wave in zip(axes, (DEUTERIUM["D-beta"], DEUTERIUM["D-gamma"]), strict=True):
            own = np.asarray(spectrum.own_wave)
            fibre = int(np.abs(own - wave).min(axis=1).argmin())
            near = np.abs(own[fibre] - wave) < 25
            ax.step(own[fibre][near], spectrum.flux[fibre][near], where="mid", lw=0.9, label=f"exposure {n + 3}")
            ax.set_yscale("symlog", linthresh=100)
    axes[0].legend(fontsize=8)
    axes[0].set_title("CCD: D-beta and D-gamma in the four exposures", loc="left", fontsize=10)
    axes[1].set_xlabel("wavelength (Å, air)")
    for ax in axes:
        ax.set_ylabel("electron / Å")
    for name, light in drift(found.frames).items():
        last.plot(np.arange(3, 3 + len(light)), light, "o-", label=name)
    last.set(xlabel="exposure", ylabel="light over its mean", xticks=np.arange(3, 3 + len(found.frames)))
    last.legend(fontsize=8, ncols=2)
    fig.savefig(folder / "real-ccd-lines.png", dpi=60)
    fig, axes = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
    shots = (camera.arc, camera.traces), traced
    for ax, (shot, traces), title in zip(axes, shots, ("CMOS: ThAr arc and the traces of its flat",
                                                       "UVES: star, and the traces of its own light"), strict=True):
        ax.imshow(np.log10(np.maximum(shot.pix.T, 3)), aspect="auto", origin="lower", cmap="gray_r")
        rows = np.linspace(0, shot.shape[0] - 1, 60)
        for line in at_rows(traces.x, rows):
            ax.plot(rows, line, color="tab:orange", lw=0.6)
        ax.set(title=title, xlabel="y (along the dispersion)", ylabel="x", ylim=(-10, shot.shape[1] + 10))
        ax.title.set_size(10)
    fig.savefig(folder / "real-traces.png", dpi=60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--smallest", action="store_true", help="nothing: it takes minutes")
    parser.add_argument("--figures", type=Path, help="draw the page's pictures into this folder")
    args = parser.parse_args()
    if args.folder is None or args.smallest:
        print("nothing measured: give the folder with the images (they are not part of this repository)")
        return
    found = ccd(args.folder)
    chi2_table(found)
    ratios(found.frames)
    fitted, better = ccd_fitted(found)
    print(f"  the fit: chi2 {fitted.bundles['CHI2'][0]:.2f}, PSFERR {fitted.psf.psferr:.3f}")
    chi2_table(better)
    ratios(better.frames)
    widths(found.images, found.traces, found.solution, WIDTH)
    tabled, tables = ccd_fitted(found, "tables")
    print(f"  the tables: chi2 {tabled.bundles['CHI2'][0]:.2f}, PSFERR {tabled.psf.psferr:.3f}")
    chi2_table(tables)
    ratios(tables.frames)
    camera = cmos(args.folder)
    arc = cmos_arc(camera)
    cmos_spectra(camera, arc, args.folder)
    shifts(arc, np.unique(camera.used.wave))
    traced = uves(args.folder)
    spectra = star(args.folder, *traced)
    if args.figures:
        args.figures.mkdir(parents=True, exist_ok=True)
        pictures(better, camera, traced, args.figures)
        arc_picture(arc, args.figures)
        spectra_picture(arc, camera.used, args.figures)
        qa_picture(arc, args.figures)
        star_picture(spectra, args.figures)


if __name__ == "__main__":
    main()
