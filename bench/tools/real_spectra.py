"""The CMOS camera's spectra: wavelengths, lines that are on two orders, resolution, a picture. Used by real_data.py."""
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from real_arc import Arc

from gpu_extract.data import Array, Frame
from gpu_extract.figures import qa_page
from gpu_extract.resolution import row_of_resolution
from gpu_psf.data import Lines
from gpu_psf.shift.run import shift_psf
from gpu_psf.start.identify import rows_of
from gpu_psf.start.lines import Pairs, Seen, along, seen_lines
from gpu_psf.start.profiles import Traces
from gpu_psf.start.solution import Solution

HALF, AROUND = 5, 14        # bins to each side of a line that are added up, and that tell the light beneath it
LEAST = 30.0                # signal to noise of a line that is compared
EDGE = 25                   # bins at the ends of an order that are left out
MOVED = 0.5, -1.3           # pixels (x, y) of a PSF that is moved on purpose
LEAST_FLAT = 100.0          # electrons of the flat in a row


def line_at(frame: Frame, fibre: int, wave: float) -> tuple[float, float, float]:
    """Electrons of a line without what is beneath it, their error, and its centroid (Angstrom); NaN near the ends, or
    where bins are masked."""
    own = np.asarray(frame.own_wave)[fibre]
    middle = int(np.abs(own - wave).argmin())
    if not EDGE <= middle < len(own) - EDGE:
        return (float("nan"),) * 3
    near, wide = (slice(middle - n, middle + n + 1) for n in (HALF, AROUND))
    if frame.mask[fibre, near].any():
        return (float("nan"),) * 3
    step = abs(own[1] - own[0])
    part = (frame.flux[fibre, near] - np.median(frame.flux[fibre, wide])) * step
    error = float(np.sqrt(np.sum(step**2 / np.maximum(frame.ivar[fibre, near], 1e-30))))
    core = slice(HALF - 2, HALF + 3)
    centre = float((part[core] * own[near][core]).sum() / part[core].sum())
    return float(part.sum()), error, centre


def wavelengths(found: Arc, used: Pairs) -> Array:
    """Angstrom, and bins, by which each identified line lies beside its wavelength in the arc's spectra, (n, 2)."""
    rows = []
    for fibre, wave in zip(used.fibre, used.wave, strict=True):
        light, error, centre = line_at(found.frames[0], int(fibre), float(wave))
        if light > LEAST * error:
            own = np.asarray(found.frames[0].own_wave)[fibre]
            rows.append((centre - wave, (centre - wave) / abs(own[1] - own[0])))
    table = np.array(rows)
    print(f"  {len(table)} of {len(used.wave)} lines in the spectra: mean {table[:, 0].mean():+.4f} A, rms "
          f"{table[:, 0].std():.4f} A, {table[:, 1].std():.2f} bins")
    return table


@dataclass(frozen=True)
class Box:
    """Light added up across each order: lines of the arc as they are seen, and the flat along the orders, (n, ny)."""

    seen: Seen
    flat: Array
    solution: Solution

    def at(self, fibre: int, wave: float) -> tuple[float, float]:
        """Light of a line and of the flat around it; NaN where the line is not seen or the flat is faint."""
        row = float(rows_of(self.solution, np.array([wave]))[fibre, 0])
        close = np.flatnonzero((self.seen.fibre == fibre) & (np.abs(self.seen.row - row) < 2))
        if not len(close):
            return float("nan"), float("nan")
        flat = float(np.median(self.flat[fibre, max(int(row) - 2 * AROUND, 0):int(row) + 2 * AROUND + 1]))
        return float(self.seen.light[close[0]]), flat if flat > LEAST_FLAT else float("nan")


def boxes(found: Arc, traces: Traces, solution: Solution, width: float) -> Box:
    """What a sum across the orders has; width: sigma along the dispersion, pixels."""
    return Box(seen_lines(found.images[0], traces, width), along(found.images[1], traces)[0], solution)


def twice(found: Arc, used: Pairs, camera: Box) -> Array:
    """Lines on two neighbouring orders: how much brighter they are on one, over how much brighter the flat is there at
    that wavelength. It is 1 whatever lamp and orders are. (n, 3): extracted; lines and flat added up across the orders,
    ground subtracted; and the relative error of the extracted light."""
    arc, flat = found.frames
    rows = []
    for wave in np.unique(used.wave):
        for fibre in range(len(arc.flux) - 1):
            pair = [line_at(arc, fibre + n, float(wave)) for n in (0, 1)]
            smooth = [_smooth(flat, fibre + n, float(wave)) for n in (0, 1)]
            if all(light > LEAST * error for light, error, _ in pair) and min(smooth) > 0:
                boxes = [camera.at(fibre + n, float(wave)) for n in (0, 1)]
                relative = float(np.hypot(*(error / light for light, error, _ in pair)))
                rows.append((pair[0][0] / pair[1][0] * smooth[1] / smooth[0],
                             boxes[0][0] / boxes[1][0] * boxes[1][1] / boxes[0][1], relative))
    table = np.array(rows).reshape(-1, 3)
    for name, column in (("extracted", table[:, 0]), ("added up", table[:, 1])):
        middle = np.nanmedian(column)
        print(f"  {np.isfinite(column).sum()} lines on two orders against the flat, {name}: median {middle:.3f}, "
              f"scatter {1.4826 * np.nanmedian(np.abs(column - middle)):.3f}")
    print(f"  error of the extracted light {np.median(table[:, 2]):.3f}")
    return table


def _smooth(frame: Frame, fibre: int, wave: float) -> float:
    """The flat's light around a wavelength; NaN beyond the order."""
    own = np.asarray(frame.own_wave)[fibre]
    middle = int(np.abs(own - wave).argmin())
    if not EDGE <= middle < len(own) - EDGE:
        return float("nan")
    return float(np.median(frame.flux[fibre, middle - AROUND:middle + AROUND + 1]))


def resolution(found: Arc, seen: Seen, windows: Array) -> tuple[float, float, float]:
    """Median full widths at half height, in pixels along the dispersion: of lines in pixels added up across the order,
    as the instrument's own software has its spectra; of rows of the resolution matrix; and of that software's windows.

    windows: (n, 2) first and last column of each line in its list
    """
    box = 2.355 * float(np.median(seen.sigma[seen.light > np.median(seen.light)]))
    frame = found.frames[0]
    middle = len(frame.wave) // 2
    bins = [_half_width(row_of_resolution(frame.resolution[fibre], middle)) for fibre in range(len(frame.flux))]
    rows = float(np.median(bins)) * 2560 / len(frame.wave)
    window = float(np.median(windows[:, 1] - windows[:, 0] + 1))
    print(f"  FWHM in pixels: {box:.2f} of lines added up across the order, {rows:.2f} of rows of R; windows of "
          f"{window:.0f} columns in the instrument's list")
    return box, rows, window


def _half_width(values: Array) -> float:
    """Full width at half height, in bins, of a peak in the middle."""
    fine = np.linspace(0, len(values) - 1, 40 * len(values))
    inside = fine[np.interp(fine, np.arange(len(values)), values) >= values.max() / 2]
    return float(inside[-1] - inside[0])


def spectra_picture(found: Arc, used: Pairs, folder: Path) -> None:
    """All orders of flat and arc against wavelength, and a stretch that is on two orders."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(3, 1, figsize=(10, 9), layout="constrained")
    for ax, frame, title in zip(axes, found.frames[::-1], ("CMOS, flat: all orders", "thorium-argon arc: all orders"),
                                strict=False):
        own = np.asarray(frame.own_wave)
        for fibre, colour in enumerate(("C0", "C1") * (len(own) // 2 + 1)):
            if fibre < len(own):
                ax.plot(own[fibre], frame.flux[fibre], color=colour, lw=0.5)
        ax.set_title(title, loc="left", fontsize=10)
        ax.set_yscale("symlog", linthresh=1000)
        ax.set_ylabel("electron / Å")
    arc, flat = found.frames
    own = np.asarray(arc.own_wave)
    for fibre, colour in ((20, "C0"), (21, "C1")):
        scale = np.median(flat.flux[20]) / np.array([_smooth(flat, fibre, wave) for wave in own[fibre]])
        axes[2].step(own[fibre], arc.flux[fibre] * scale, where="mid", color=colour, lw=0.9, label=f"order {fibre}")
    low, high = own[20].min(), own[21].max()
    inside = (used.wave > low) & (used.wave < high)
    axes[2].plot(np.unique(used.wave[inside]), np.full(len(np.unique(used.wave[inside])), -2000.0), "k|", label="list")
    axes[2].set_title("the stretch that two orders have, over their flat", loc="left", fontsize=10)
    axes[2].set(xlim=(low, high), xlabel="wavelength (Å, air)", ylabel="electron / Å")
    axes[2].legend(fontsize=8)
    fig.savefig(folder / "real-cmos-spectra.png", dpi=60)


def shifts(found: Arc, wave: Array) -> dict[str, tuple[float, float]]:
    """What gpu_psf shift finds, mean of (x, y) in pixels: the flat beside the arc's PSF, the arc beside it, and beside
    the PSF moved by MOVED. wave: the lines that were identified."""
    psf, lines = found.fitted.psf, Lines(wave, np.ones(len(wave)))
    off = replace(psf, x=psf.x.plus(MOVED[0]), y=psf.y.plus(MOVED[1]))
    table = {}
    for name, image, start in (("flat", found.images[1], psf), ("arc", found.images[0], psf),
                               ("arc, moved", found.images[0], off)):
        shifted = shift_psf(image, start, lines)
        table[name] = tuple(float((s.grid() @ s.coeff).mean()) for s in (shifted.x, shifted.y))
        print(f"  gpu_psf shift, {name}: {table[name][0]:+.3f}, {table[name][1]:+.3f} pixels ({shifted.reference}), "
              f"known to {shifted.x.error():.3f} and {shifted.y.error():.3f}")
    return table


def qa_picture(found: Arc, folder: Path) -> None:
    """The quality-assurance page of the arc, small enough for a document."""
    from PIL import Image as Picture

    path = folder / "real-cmos-qa.png"
    qa_page(path, found.images[0], found.frames[0], psf=found.fitted.psf)
    page = Picture.open(path)
    small = page.resize((1100, 1100 * page.height // page.width)).convert("RGB")
    small.quantize(256, Picture.Quantize.FASTOCTREE).save(path, optimize=True)
