"""The sequence from a flat and an arc to a starting PSF."""
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gpu_extract.data import Array, Image, PsfModel
from gpu_extract.errors import InputError
from gpu_extract.spots import centres
from gpu_psf.prepare import SAME
from gpu_psf.start import identify
from gpu_psf.start.count import Slit, match_fibres, may_be_missing
from gpu_psf.start.lines import Pairs, Seen, isolated, line_width, seen_lines, select_lines
from gpu_psf.start.make import make_psf, width_surface
from gpu_psf.start.profiles import Traces, fit_profiles, fit_traces
from gpu_psf.start.search import Range, describe
from gpu_psf.start.solution import Solution, solve_wavelengths
from gpu_psf.start.traces import find_traces
from gpu_psf.start.trust import doubts

SAMPLING = 1.4            # smallest bin in sigmas: noise hides the difference between smaller bins
FEWEST = 6                # least number of lines for a width
MOST_MASKED = 0.9         # largest share of an image's pixels


@dataclass(frozen=True)
class Known:
    """The known wavelengths: one of
    psf: a PSF of this spectrograph, a few pixels off;
    pairs: lines whose fibre, row and wavelength were identified; echelle: fibres are orders with their own wavelengths;
    range: of the middle fibre's wavelengths."""

    psf: PsfModel | None = None
    pairs: Pairs | None = None
    range: Range | None = None
    echelle: bool = False


@dataclass(frozen=True)
class Start:
    """A starting PSF, and how it was made.

    rms: of the lines used, pixels, NaN where none was fitted; used: their number; interpolated: fibres that the flat
    does not show; shift: of the given PSF, (x, y) pixels; width: sigma along the dispersion, pixels, the median
    doubts: about the wavelengths, sentences
    """

    psf: PsfModel
    traces: Traces
    solution: Solution
    rms: float
    used: int
    width: float
    shift: tuple[float, float] = (0.0, 0.0)
    doubts: tuple[str, ...] = ()


def start_psf(flat: Image | None, arc: Image | None, lines: Array, known: Known, slit: Slit | None = None, *,
              tell: Callable[[str], None] = lambda text: None) -> Start:
    """Make a Gaussian PSF from a flat and an arc, both with the dispersion along y, in electrons.

    flat: shows the traces; optional if a PSF is given. arc: optional if pairs are given: the widths
    along the dispersion are then those across it
    lines: wavelengths of the lamp, Angstrom, ascending; slit: the number of fibres, if it is known

    Raises InputError for no or too few traces, no lines, lines that do not match the list, and no overlap with the
    given PSF.
    """
    for name, image in (("flat", flat), ("arc", arc)):
        if image is not None:
            _check_light(name, image)
    traces, across = _traces(flat, arc, known, slit, tell)
    shape = (flat if flat is not None else arc).shape          # type: ignore[union-attr]
    lines = _single(lines, known, shape[0])
    seen, width = (None, float("nan"))
    if arc is not None:
        width = line_width(arc, traces)
        seen = seen_lines(arc, traces, width)
        tell(f"{len(seen.row)} lines are seen, their sigma is {width:.2f} pixels")
    solution, pairs, along = _wavelengths(seen, lines, known, len(traces.light), shape[0])
    widths = _widths(seen, lines, solution, traces, width)
    psf = make_psf(traces, solution, widths, shape, bundles=None if slit is None else slit.number)
    doubtful = () if seen is None or known.range is None else doubts(seen, lines, solution, pairs, shape[0])
    return Start(psf, traces, solution, solution.rms, len(pairs.row), float(np.median(widths[:, 0])), (across, along),
                 doubtful)


def _single(lines: Array, known: Known, ny: int) -> Array:
    """The lines (ascending) without those that are listed again, with other digits, as in gpu_psf fit."""
    if known.psf is not None:
        low, high = known.psf.wavelength_range
    elif known.range is not None:
        low, high = known.range.first, known.range.last
    else:
        return lines
    again = np.diff(lines, prepend=-np.inf) < SAME * abs(high - low) / ny
    return np.asarray(lines[~again], np.float64)


def _check_light(name: str, image: Image) -> None:
    """Raise InputError if hardly a pixel can be used."""
    masked = float(np.mean(image.ivar <= 0))
    if masked > MOST_MASKED:
        raise InputError(f"{masked:.1%} of the {name}'s pixels are masked, at most {MOST_MASKED:.0%} may be: if it is "
                         "saturated (gpu_psf preprocess --saturation), give a shorter exposure")


def _other_fibres(seen: int, psf: PsfModel, *, told: bool) -> InputError:
    """The error that the flat shows another number of fibres than the PSF has; told: --fibres was given."""
    dark = psf.nfibre - seen
    gaps_tell = not told and may_be_missing(dark, psf.nfibre)
    return InputError(f"found {seen} traces in the flat, expected {psf.nfibre} as in {psf.name}: give a PSF and a flat "
                      "of the same fibres"
                      + (f", or --fibres {psf.nfibre} if {dark} of them are dark" if gaps_tell else ""))


def _traces(flat: Image | None, arc: Image | None, known: Known, slit: Slit | None,
            tell: Callable[[str], None]) -> tuple[Traces, float]:
    """Traces from the flat, or those of the given PSF moved to the arc's light, and the shift."""
    if flat is not None:
        found = find_traces(flat)
        traces = fit_traces(found, fit_profiles(flat, found), flat.shape)
        traces = traces if slit is None else match_fibres(traces, slit)
        tell(f"{len(found.place)} traces are found, {len(traces.light)} are used"
             + (f", of which {np.count_nonzero(traces.interpolated)} are interpolated between their neighbours"
                if traces.interpolated.any() else ""))
        if known.psf is not None and known.psf.nfibre != len(traces.light):
            raise _other_fibres(len(traces.light), known.psf, told=slit is not None)
        return traces, 0.0
    if known.psf is None or arc is None:
        raise InputError("neither a flat nor a PSF gives the traces: give --flat, or --psf with --arc")
    if known.psf.tabulated:
        raise InputError(f"{known.psf.name}: its spots are tables, which do not give their widths: also give --flat")
    shift = identify.shift_across(np.where(arc.ivar > 0, arc.pix, 0.0).astype(np.float64), known.psf)
    tell(f"the arc's light lies {shift:+.2f} pixels in x from the traces of {known.psf.name}")
    return identify.traces_of(replace(known.psf, x=known.psf.x.plus(shift)), arc.shape[0]), shift


def _wavelengths(seen: Seen | None, lines: Array, known: Known, nfibre: int, ny: int) -> tuple[Solution, Pairs, float]:
    """The solution, the lines it uses, and the shift of the given PSF."""
    along = 0.0
    if known.pairs is not None:
        _check_pairs(known.pairs, nfibre, ny)
        solution = solve_wavelengths(known.pairs, nfibre, ny, echelle=known.echelle)
        lines = np.union1d(lines, known.pairs.wave)
        if seen is None:
            return solution, known.pairs.cut(solution.used), along
    elif seen is None:
        raise InputError("without an arc, only known lines give the wavelengths: give --arc, or --pairs")
    elif known.psf is not None:
        solution, along = identify.shifted(identify.solution_of(known.psf, ny), seen, lines)
    elif known.range is not None:
        solution = describe(known.range, seen, lines, nfibre, ny)
    else:
        raise InputError("nothing gives the wavelengths: give --psf, --pairs or --range")
    solution, pairs = identify.refine(seen, lines, solution, ny=ny, kept=known.psf is not None,
                                      found=known.range is not None)
    return solution, pairs, along


def _check_pairs(pairs: Pairs, nfibre: int, ny: int) -> None:
    if pairs.fibre.min() < 0 or pairs.fibre.max() >= nfibre or pairs.row.min() < 0 or pairs.row.max() > ny - 1:
        raise InputError(f"the known lines are on fibres {pairs.fibre.min()} to {pairs.fibre.max()} and rows "
                         f"{pairs.row.min():g} to {pairs.row.max():g}, but there are {nfibre} fibres and {ny} rows, "
                         "counted from 0: correct --columns, --skip or --fibres")


def _widths(seen: Seen | None, lines: Array, solution: Solution, traces: Traces, width: float) -> Array:
    """(nfibre, 2) series of sigma along the dispersion."""
    ny, n = int(solution.wave.wmax) + 1, len(traces.light)
    if seen is None:
        return np.stack([traces.sigma.coeff[:, 0], np.zeros(n)], axis=1)
    chosen = identify.sharp_lines(isolated(seen, width), lines, solution)
    if len(chosen.row) < FEWEST:
        chosen = select_lines(seen, seen.sigma < 1.3 * width)
    return width_surface(chosen.fibre, chosen.row, chosen.sigma, chosen.light, n, ny)


def suggested_grid(psf: PsfModel) -> tuple[float, float, float]:
    """(first, last, step) for -w: the range that is on the CCD for every fibre, in bins of SAMPLING sigmas."""
    low, high = psf.wavelength_range
    coordinate = np.linspace(low, high, 1025)
    y = centres(psf, (0, psf.nfibre), coordinate)[0]
    margin = psf.stamp[0] // 2
    on = ((y >= margin) & (y <= psf.shape[0] - 1 - margin)).all(axis=0)
    if not on.any():
        return low, high, (high - low) / psf.shape[0]
    inside = coordinate[on]
    per_pixel = float(np.max((coordinate[1] - coordinate[0]) / np.abs(np.diff(y, axis=1))))
    sigma = float(np.max(psf.cores[0].sigma_y.coeff[:, 0]))
    return float(inside[0]), float(inside[-1]), SAMPLING * sigma * per_pixel
