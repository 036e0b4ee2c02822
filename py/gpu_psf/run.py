"""fit_psf: fits the bundles of a camera on any number of ranks, and joins them to one PSF."""
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.lib.recfunctions import unstructured_to_structured

from gpu_extract.data import Array, Core, Image, Legendre, PsfModel
from gpu_extract.errors import InputError
from gpu_extract.plan import instrument_bundles
from gpu_extract.ranks.comm import SERIAL, Comm
from gpu_psf.begin import shift_scores
from gpu_psf.data import FitConfig, Lines
from gpu_psf.fit import Fit, fit_bundle
from gpu_psf.kept import Kept
from gpu_psf.own_lines import own_lines, wavelengths
from gpu_psf.prepare import make_frame, parameters_of, psf_of
from gpu_psf.register import best_shift
from gpu_psf.series import series_at
from gpu_psf.sound import BundleError, arcs_apart, model_error, odd_share
from gpu_psf.status import Status
from gpu_psf.tables import check_tables, fit_table, stamps_in, with_tables
from gpu_psf.tail import with_tail
from gpu_psf.words import words_on

BUNDLESIZE = 25
LEAST_ERROR = 1e-3          # smallest relative error of the model that is claimed
_SERIES = ("x", "y", "sigma_x", "sigma_y", "gh", "amp")
Tell = Callable[[str], None]

FIBRES = np.dtype([("FIBER", "i4"), ("STATUS", "i2"), ("NLINE", "i4"), ("CHI2", "f8"), ("XSHIFT", "f8"),
                   ("YSHIFT", "f8")])
BUNDLES = np.dtype([("BUNDLE", "i4"), ("FIRST", "i4"), ("LAST", "i4"), ("FITTED", "i2"), ("NSPOT", "i4"),
                    ("NLINE", "i4"), ("NPIX", "i8"), ("NPAR", "i4"), ("CHI2", "f8"), ("PSFERR", "f8"),
                    ("CHI2GH", "f8"), ("ODD", "f8"), ("APART", "f8"), ("UNLISTED", "i4"), ("HOT", "i4"),
                    ("MISPLACED", "i4"), ("SCATTER", "f8"), ("REASON", "S160")])
SPOTS = np.dtype([("EXPOSURE", "i2"), ("FIBER", "i4"), ("WAVELENGTH", "f8"), ("X", "f8"), ("Y", "f8"), ("FLUX", "f8"),
                  ("IVAR", "f8"), ("CHI2", "f8"), ("FIRM", "i2")])


@dataclass(frozen=True)
class FittedPsf:
    """A fitted PSF.

    psf: of all fibres of the starting PSF; fibres, bundles, spots: tables of the outcome (FIBRES, BUNDLES, SPOTS)
    continuum: of the lamps in each fibre, electrons in a row of the detector, mean over the exposures
    misplaced: (n,) wavelengths of lines that are not where the list has them in some bundle, ascending
    """

    psf: PsfModel
    fibres: np.ndarray
    bundles: np.ndarray
    spots: np.ndarray
    continuum: Legendre
    misplaced: Array


def fit_psf(images: Sequence[Image], start: PsfModel, lines: Lines, config: FitConfig | None = None, *,
            comm: Comm = SERIAL, tell: Tell = lambda text: None, kept: Kept | None = None) -> FittedPsf | None:
    """Fit traces and shapes to arcs, from a starting PSF. Returns the result on rank 0, None on other ranks.

    images: arcs with the same or different lamps, all of the starting PSF's CCD; lines: of all their lamps If fibres
    have their own wavelengths (the orders of an echelle), each line is searched for at its own wavelength in each of
    them.
    Raises InputError for images of another size, a starting PSF with two components, and if no bundle can be fitted.
    kept: where bundles are kept until all are done; bundles of an earlier run that was killed are reused
    The bits of the result do not depend on the ranks.
    """
    config = config or FitConfig()
    _check(images, start, config)
    lines = own_lines(lines, start)
    last = start.nfibre if config.nspec is None else config.specmin + config.nspec
    ranges = [(lo, hi) for lo, hi in instrument_bundles(start, BUNDLESIZE) if hi > config.specmin and lo < last]
    if not ranges:
        raise InputError(f"specmin is {config.specmin}, but {start.name} has {start.nfibre} fibres: give a lower one")
    mine = range(comm.rank, len(ranges), comm.size)
    tables = comm.gather([(n, shift_scores(images, start, ranges[n], lines, config)) for n in mine])
    shift = comm.share(lambda: best_shift(np.sum(tables or [], axis=0)))
    parts = []
    for number in mine:
        part = None if kept is None else kept.read(number, shift)
        known, (lo, hi) = part is not None, ranges[number]
        if part is None:
            part = _outcome(images, start, ranges[number], lines, (config, shift))
            if kept is not None and not part["reason"]:
                kept.write(number, shift, part)
        parts.append((number, part))
        tell(f"fibres {lo}-{hi - 1}: {words_on(part)}{' (from an earlier run)' if known else ''}")
    found = comm.gather(parts)
    if found is None:
        return None
    reasons = [part["reason"] for part in found]
    if all(reasons):
        raise InputError(f"no bundle could be fitted; the first of {len(reasons)}: {reasons[0]}")
    return _assembled(start, ranges, found, config)


def _check(images: Sequence[Image], start: PsfModel, config: FitConfig) -> None:
    if len(start.cores) != 1:
        raise InputError(f"{start.name}: has two Gauss-Hermite components, must have one; give such a PSF to start "
                         "from")
    if start.tabulated:
        raise InputError(f"{start.name}: its spots are tables, must be Gauss-Hermite spots: start from such a PSF, as "
                         "made by gpu_psf start")
    if config.spots == "tables":
        check_tables(start, config)
    for number, image in enumerate(images):
        (rows, columns), (ny, nx) = image.pix.shape, start.shape
        if rows != ny or columns > nx:                  # an image that ends after some of the bundles is accepted
            raise InputError(f"arc {number + 1} of {len(images)} has {columns} x {rows} pixels, the starting PSF has "
                             f"{nx} x {ny}; give the PSF of this camera")
    if not images:
        raise InputError("no arc is given, at least one is needed")


def _outcome(images: Sequence[Image], start: PsfModel, fibres: tuple[int, int], lines: Lines,
             how: tuple[FitConfig, tuple[int, int]]) -> dict[str, Any]:
    """The outcome as sent between ranks: numbers and arrays; reason is empty if the bundle was fitted."""
    try:
        fit = fit_bundle(images, start, fibres, lines, *how)
    except BundleError as error:
        return {"reason": str(error)}
    plain, more = _quality(fit)["chi2"], {}
    if how[0].spots == "tables":
        table = fit_table(fit, how[0].positions)
        fit, more = table.fit, {"stamps": stamps_in(table, how[0])}
    psf = psf_of(fit.frame, fit.state.now)
    return {"reason": "", "status": fit.status, "nline": fit.nline, "spots": _spots(fit), "plain": plain,
            "continuum": fit.continuum, "unlisted": fit.unlisted, "hot": fit.hot, "misplaced": fit.misplaced,
            "scatter": fit.scatter, **_series_of(psf), **_quality(fit), **more}


def _series_of(psf: PsfModel) -> dict[str, Array]:
    core, none = psf.cores[0], np.zeros((psf.nfibre, 1))
    series = (s.coeff for s in (psf.x, psf.y, core.sigma_x, core.sigma_y, core.gh))
    return dict(zip(_SERIES, (*series, none if psf.tail is None else psf.tail.amp.coeff), strict=True))


def _quality(fit: Fit) -> dict[str, float | int]:
    """Chi squared, and the sums that give the error of the model."""
    state, task = fit.state, fit.task
    excess, light = model_error(task, state)
    lit = int(np.isfinite(state.variance).sum())            # spots on good pixels
    return {"chi2": state.chi2, "npix": state.npixel, "nspot": int(task.firm.sum()), "lines": int((fit.nline > 0).any()
            and len(np.unique(task.spots.line[task.firm]))), "npar": lit + state.now.vector().size,
            "excess": excess, "light": light, "odd": odd_share(task, state),
            "apart": float(arcs_apart(task, state)[0].max())}


def _spots(fit: Fit) -> Array:
    """The spots as rows of numbers, in the order of SPOTS."""
    task, state = fit.task, fit.state
    local = (state.weight * state.residual**2)[state.stamps.place].sum(axis=1)
    count = np.maximum((state.weight > 0)[state.stamps.place].sum(axis=1), 1)
    fibre = task.spots.fibre + fit.frame.first
    wave, light = wavelengths(fit.frame.start, fibre, task.spots.wave), state.stamps.image[:, 0].sum(axis=(1, 2))
    return np.stack([task.spots.exposure, fibre, wave, state.stamps.x, state.stamps.y, state.flux * light,
                     1 / (state.variance * light**2), local / count, task.firm], axis=1).astype(np.float64)


def _assembled(start: PsfModel, ranges: Sequence[tuple[int, int]], found: Sequence[Mapping[str, Any]],
               config: FitConfig) -> FittedPsf:
    """One PSF of all fibres: the fitted bundles, and elsewhere the starting PSF, moved like its neighbours."""
    frames = [make_frame(start, fibres, config) for fibres in instrument_bundles(start, BUNDLESIZE)]
    base = [_series_of(psf_of(frame, parameters_of(frame))) for frame in frames]
    whole = {name: np.concatenate([part[name] for part in base], axis=2 if name == "gh" else 0) for name in _SERIES}
    before = {name: whole[name].copy() for name in ("x", "y")}
    continuum = np.zeros((start.nfibre, config.degree_wave + 1))
    fibres = np.zeros(start.nfibre, FIBRES)
    fibres["FIBER"], fibres["STATUS"] = np.arange(start.nfibre), Status.NOT_FITTED
    for (lo, hi), part in zip(ranges, found, strict=True):
        if part["reason"]:
            continue
        for name in _SERIES:
            whole[name][(..., slice(lo, hi), slice(None))] = part[name]
        fibres["STATUS"][lo:hi], fibres["NLINE"][lo:hi] = part["status"], part["nline"]
        continuum[lo:hi] = part["continuum"]
    _move_others(whole, before, fibres["STATUS"] != Status.NOT_FITTED, instrument_bundles(start, BUNDLESIZE))
    core = start.cores[0]
    ends = (core.gh.wmin, core.gh.wmax)
    traces = [Legendre(whole[name], start.x.wmin, start.x.wmax) for name in ("x", "y")]
    shapes = [Legendre(whole[name], *ends) for name in ("sigma_x", "sigma_y", "gh")]
    bundles = _bundle_rows(start, ranges, found)
    spots = unstructured_to_structured(np.concatenate([p["spots"] for p in found if not p["reason"]]), SPOTS)
    tail = with_tail(start, config).tail
    if tail is not None and config.tail is not None:
        tail = replace(tail, amp=Legendre(whole["amp"], *ends))
    psf = replace(start, x=traces[0], y=traces[1], cores=(Core(*shapes),), tail=tail, psferr=_error(found))
    _describe(fibres, psf, before, spots)
    if config.spots == "tables":
        psf = with_tables(psf, ranges, [part.get("stamps") for part in found], config)
    misplaced = np.unique(np.concatenate([part["misplaced"] for part in found if not part["reason"]]))
    return FittedPsf(psf, fibres, bundles, spots, Legendre(continuum, *ends), misplaced)


def _move_others(whole: dict[str, Array], before: Mapping[str, Array], fitted: np.ndarray,
                 bundles: Sequence[tuple[int, int]]) -> None:
    """Move the traces of bundles that were not fitted like those of the nearest fitted ones, interpolated linearly."""
    known = [n for n, (lo, hi) in enumerate(bundles) if fitted[lo:hi].any()]
    for name in ("x", "y"):
        moves = np.array([(whole[name] - before[name])[slice(*bundles[n])].mean(axis=0) for n in known])
        for n, (lo, hi) in enumerate(bundles):
            if n not in known:
                whole[name][lo:hi] += [np.interp(n, known, move) for move in moves.T]


def _error(found: Sequence[Mapping[str, Any]]) -> float:
    """The relative error of the model, from the excess of the residuals over noise."""
    excess, light = (sum(part[name] for part in found if not part["reason"]) for name in ("excess", "light"))
    return float(max(np.sqrt(max(excess, 0.0) / max(light, 1e-30)), LEAST_ERROR))


def _bundle_rows(start: PsfModel, ranges: Sequence[tuple[int, int]], found: Sequence[Mapping[str, Any]]) -> np.ndarray:
    rows = np.zeros(len(ranges), BUNDLES)
    for row, (lo, hi), part in zip(rows, ranges, found, strict=True):
        row["BUNDLE"] = start.bundle[lo] if start.bundle is not None else lo // BUNDLESIZE
        row["FIRST"], row["LAST"], row["FITTED"] = lo, hi - 1, not part["reason"]
        row["REASON"] = part["reason"].encode("ascii", "replace")[:160].rstrip()       # FITS drops trailing spaces
        if not part["reason"]:
            row["NSPOT"], row["NLINE"], row["NPIX"] = part["nspot"], part["lines"], part["npix"]
            row["NPAR"], row["CHI2"] = part["npar"], part["chi2"] / (part["npix"] - part["npar"])
            row["PSFERR"], row["CHI2GH"] = _error([part]), part["plain"] / (part["npix"] - part["npar"])
            for column in ("ODD", "APART", "UNLISTED", "HOT", "SCATTER"):
                row[column] = part[column.lower()]
            row["MISPLACED"] = len(part["misplaced"])
    return rows


def _describe(fibres: np.ndarray, psf: PsfModel, before: Mapping[str, Array], spots: np.ndarray) -> None:
    """Write chi squared and mean shift of each fibre into its row."""
    wave = np.linspace(psf.x.wmin, psf.x.wmax, 65)
    for column, trace, begun in (("XSHIFT", psf.x, before["x"]), ("YSHIFT", psf.y, before["y"])):
        fibres[column] = series_at(replace(trace, coeff=trace.coeff - begun), slice(None), wave).mean(axis=1)
    firm = spots[spots["FIRM"] > 0]
    count = np.bincount(firm["FIBER"], minlength=len(fibres))
    fibres["CHI2"] = np.bincount(firm["FIBER"], firm["CHI2"], len(fibres)) / np.maximum(count, 1)
