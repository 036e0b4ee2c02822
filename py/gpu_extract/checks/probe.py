"""How far a PSF reaches through the normal equations: pads from the measured decay.

Light of omitted bins enters through C = icov^-1. Two numbers are measured on a small ideal problem (every pixel good,
equal errors): how fast C decays along a fibre, and how strongly neighbouring fibres are correlated. They give the
number of bins and fibres that must take part.
"""
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.linalg import LinAlgError

from gpu_extract.data import LANE, Array, Image, IntArray, PsfModel, Recipe
from gpu_extract.errors import InputError
from gpu_extract.kernels.arena import Arena, borrowed
from gpu_extract.known import known
from gpu_extract.lapack import lapack
from gpu_extract.normal import VECTOR, Cut, Sums, add_tile, empty_sums, half_bands, make_cut, place_blocks
from gpu_extract.plan import MOST_NEIGHBOURS, Plan, enough_neighbours
from gpu_extract.spots import centres, corners, recipe, select

WINDOWS = 192, 320    # bins of the small problem: the second if light reaches beyond the first, then
                      # twice as many and so on, until the whole decay is covered
ITERATIONS = 12  # of the power iteration for the correlation between fibres: it is needed to a few per cent
# Measured on real frames (doc/method.md): a solution cut at distance k has an error of about 5 C(k)/C(0) sigma,
# patches with the exact x 0.1 of that; masked pixels increase both up to 10 times. The margins below cover masks.
SAFETY_CUT = 0.02
SAFETY_PATCH = 1.0
CORE = -1, 0, 1  # rows and columns of the core of a spot: where all its pixels are masked, only wings are left
DARK = 0.25      # share of a pad's bins without core beyond which the margins above may not cover the masks
EVERY = 4        # of a pad's bins, one is looked at,
FEWEST = 8       # but of a short pad so many
WIDER = 1.2      # by which steps are tried, up to one where that is below FINE
FINE = 1e5       # the narrow band still holds there


@contextmanager
def _told_apart(psf: PsfModel, wavelength: tuple[float, float, float]) -> Iterator[None]:
    """Raise InputError if bins or fibres cannot be distinguished even with ideal pixels."""
    try:
        yield
    except LinAlgError as error:
        raise InputError(f"{psf.name}: bins of {wavelength[2]:g} Angstrom cannot be told from each other with this "
                         "PSF: the step is far below the resolution, or fibres lie on one trace; take a larger step "
                         "(-w), or another PSF") from error


@dataclass(frozen=True)
class Decay:
    """beyond: bins to add beyond the ends of the requested range; patch: bins of padding for a dense patch.

    hidden: the least C_jj icov_jj of the bins measured, all pixels good: how much the other bins hide each (weak.py)
    """

    beyond: int
    patch: int
    hidden: float = 1.0


def measure_decay(psf: PsfModel, wavelength: tuple[float, float, float], tolerance: float) -> Decay:
    """Measure the decay of C along the first, middle and last fibre, at both ends of the range; return the slowest.

    wavelength: (first, last, step); tolerance: acceptable error, in sigma.
    """
    few = select(psf, sorted({0, psf.nfibre // 2, psf.nfibre - 1}))
    cut = _cut_fibres(psf, wavelength)
    low, high = psf.wavelength_range
    most = int((high - low) / wavelength[2]) + 1
    for window in _lengths(most):
        envelopes, hidden = [], np.inf
        for wave, place in _windows(psf, wavelength, window):
            with borrowed() as arena, _told_apart(psf, wavelength):
                bands = ideal(few, (0, few.nfibre), wave, arena, apart=True).icov[:, 0]
                columns = _columns(bands, place)
            envelopes += [*_envelope(columns, place)]
            hidden = min(hidden, float((columns[:, place] * bands[:, place, bands.shape[2] // 2]).min()))
            envelopes += [found for fibre in cut for found in _at_the_side(psf, fibre, wave, place)]
        beyond, patch = (max(_bins(e, safety * tolerance, most) for e in envelopes)
                         for safety in (SAFETY_CUT, SAFETY_PATCH))
        if beyond < window // 2:      # measured, not extrapolated
            break
    return Decay(beyond, patch, hidden)


def too_fine(psf: PsfModel, decay: Decay, wavelength: tuple[float, float, float], tolerance: float, most: float) -> str:
    """That the step is so fine that even good pixels hardly tell any bin from the next, or nothing.

    decay: as measured for this PSF, these wavelengths and this tolerance; most: decay.hidden of a step that will do
    """
    if decay.hidden <= most:
        return ""
    (first, last, step), hidden = wavelength, decay.hidden
    while hidden > FINE:
        step *= WIDER
        hidden = measure_decay(psf, (first, last, step), tolerance).hidden
    return (f"bins of {wavelength[2]:g} Angstrom are too narrow for this PSF: the other bins increase the variance of "
            f"each by a factor of {decay.hidden:.0e}. Many may be flagged, and most are solved from their pixels, "
            f"which takes minutes per bundle; take a step of {step:.2g} or more (-w)")


def _cut_fibres(psf: PsfModel, wavelength: tuple[float, float, float]) -> list[int]:
    """Fibres of whose spots the CCD's left or right edge cuts off a part at one of the ends of the range, or more."""
    x0 = corners(psf, centres(psf, (0, psf.nfibre), np.asarray(wavelength[:2], dtype=float)))[1]
    return np.flatnonzero(((x0 < 0) | (x0 + psf.stamp[1] > psf.shape[1])).any(axis=1)).tolist()


def _at_the_side(psf: PsfModel, fibre: int, wave: Array, place: int) -> list[Array]:
    """The envelope of a fibre that the CCD's edge cuts off, from the part that is there; nothing where that tells
    too little.

    Wings alone look much the same from bin to bin: C falls off along the fibre far more slowly than where the spots'
    cores are seen.
    """
    with borrowed() as arena:
        bands = ideal(psf, (fibre, fibre + 1), wave, arena, there=True).icov[:, 0]
        if not (bands[0, :, bands.shape[2] // 2] > 0.0).all():
            return []
        return _scaled_envelope(bands, place)


def beside_masks(decay: Decay, image: Image, psf: PsfModel, wavelength: tuple[float, float, float],
                 tolerance: float) -> Decay:
    """The decay with a longer pad where masks leave a fibre nothing but wings at an end of the range.

    decay: with all pixels good. The fibres at the ends and in the middle of each row of such fibres are measured with
    the image's own ivar, as one is that the CCD's edge cuts off.
    """
    dark = _dark_fibres(psf, wavelength, decay.beyond, image)
    low, high = psf.wavelength_range
    most, beyond = int((high - low) / wavelength[2]) + 1, decay.beyond
    for window in _lengths(most) if dark else ():
        envelopes = [found for fibre in dark for wave, place in _windows(psf, wavelength, window)
                     for found in _as_seen(psf, fibre, wave, place, image)]
        beyond = max((_bins(e, SAFETY_CUT * tolerance, most) for e in envelopes), default=0)
        if beyond < window // 2:
            break
    return replace(decay, beyond=max(decay.beyond, beyond))


def _dark_fibres(psf: PsfModel, wavelength: tuple[float, float, float], pad: int, image: Image) -> list[int]:
    """Of each row of fibres with masked cores at an end of the range the first, the middle and the last.

    The pad counts by itself, and together with a stamp's height of bins inside.
    """
    found = np.zeros(psf.nfibre, dtype=bool)
    inside, ends = known(psf, ("pads", image.shape, wavelength, pad),
                         lambda: _pads(image.shape, psf, wavelength, pad))
    ivar = image.ivar.reshape(-1)
    for cores in ends:
        some = np.flatnonzero(_dark(ivar[cores[len(cores) // 2]] == 0, inside))
        if len(some):
            found[some] |= _dark((ivar[cores[:, some]] == 0).all(axis=0), inside)
    if not found.any():
        return []
    edges = np.flatnonzero(np.diff(np.pad(found, 1).astype(int)))
    return sorted({n for start, stop in edges.reshape(-1, 2).tolist() for n in (start, (start + stop) // 2, stop - 1)})


def _pads(shape: tuple[int, int], psf: PsfModel, wavelength: tuple[float, float, float],
          pad: int) -> tuple[int, list[IntArray]]:
    """Cores of some bins inside of either end of the range, so many, and in the pads: of each end (pixels of a core,
    nfibre, n) pixels of an image of this shape, as one row. Those off it are taken to be the nearest on it."""
    first, last, step = wavelength
    inside = np.arange(-psf.stamp[0], 0, EVERY)
    bins = np.concatenate([inside, np.arange(0, pad + 1, min(EVERY, pad // FEWEST + 1))])
    ends = []
    for edge, outwards in (first, -step), (last, step):
        wave = np.clip(edge + outwards * bins, *psf.wavelength_range)
        y, x = np.rint(centres(psf, (0, psf.nfibre), wave)).astype(int)
        ends.append(np.stack([np.clip(y + dy, 0, shape[0] - 1) * shape[1] + np.clip(x + dx, 0, shape[1] - 1)
                              for dy in CORE for dx in CORE]))
    return len(inside), ends


def _dark(masked: np.ndarray, inside: int) -> np.ndarray:
    """Whether so many of a fibre's bins are masked, of all or of those in the pad; inside: how many are not in it."""
    return np.asarray((masked.mean(axis=1) > DARK) | (masked[:, inside:].mean(axis=1) > DARK))


def _as_seen(psf: PsfModel, fibre: int, wave: Array, place: int, image: Image) -> list[Array]:
    """The envelope of a fibre from the image's good pixels, each bin in its own errors; nothing where it has none.

    A bin without a good pixel is decoupled from the others. The bin of the end is the nearest that has one.
    """
    with borrowed() as arena:
        spots = recipe(psf, (fibre, fibre + 1), wave, arena)
        cut = make_cut(image, spots.y0[:, :len(wave)], spots.x0[:, :len(wave)], psf.stamp, arena)
        if not cut.root.any():      # the usual case of a dead amplifier: nothing more need be made
            return []
        bands = _sums(psf, spots, cut, len(wave), arena).icov[:, 0]
        hw = bands.shape[2] // 2
        seen = np.flatnonzero(bands[0, :, hw] > 0.0)
        if not len(seen):
            return []
        bands[0, bands[0, :, hw] == 0.0, hw] = 1.0
        return _scaled_envelope(bands, int(seen[np.abs(seen - place).argmin()]))


def _scaled_envelope(bands: Array, place: int) -> list[Array]:
    """The envelope of one fibre's block with its diagonal scaled to 1; nothing where double precision cannot tell.

    bands: (1, n, 2 hw + 1) with a positive diagonal
    """
    hw = bands.shape[2] // 2
    unit = 1.0 / np.sqrt(bands[0, :, hw])
    padded = np.pad(unit, hw)
    scaled = bands * unit[:, None] * np.lib.stride_tricks.sliding_window_view(padded, 2 * hw + 1)
    try:
        return [*_envelope(_columns(scaled, place), place)]
    except LinAlgError:
        return []


def measure_neighbours(psf: PsfModel, wavelength: tuple[float, float, float], tolerance: float) -> int:
    """Neighbours that a dense patch needs on each side if all pixels are good.

    Omitting the fibres beyond n changes S_i, relative to itself, by the square of their own correlation with fibre i
    and by the correlation of neighbours to the power 2 (n + 1). A spectrum of SIGNAL errors turns that into sigma.
    """
    worst = np.zeros(1)
    for fibre in sorted({0, psf.nfibre // 2, max(0, psf.nfibre - MOST_NEIGHBOURS - 1)}):
        for wave, _ in _windows(psf, wavelength, WINDOWS[-1]):
            with borrowed() as arena, _told_apart(psf, wavelength):
                sums = ideal(psf, (fibre, min(fibre + MOST_NEIGHBOURS + 1, psf.nfibre)), wave, arena)
                found = np.array([_correlation(sums, d) for d in range(1, sums.icov.shape[1])])
            size = max(len(worst), len(found))
            worst = np.maximum(np.pad(worst, (0, size - len(worst))), np.pad(found, (0, size - len(found))))
    return enough_neighbours(worst, tolerance)


def _lengths(most: int) -> Iterator[int]:
    """The lengths of the stretches to try in turn, up to one that holds all bins of the PSF."""
    yield from WINDOWS
    bins = WINDOWS[-1]
    while bins < most:
        bins *= 2
        yield bins


def _windows(psf: PsfModel, wavelength: tuple[float, float, float], bins: int) -> list[tuple[Array, int]]:
    """A stretch of so many bins around each end of the range, as far as the PSF reaches, and the bin of that end.

    If that bin is within a quarter of the stretch from its end, another bin replaces it, since C differs there.
    """
    low, high = psf.wavelength_range
    step, found = wavelength[2], []
    for centre in wavelength[:2]:
        start = max(low, min(centre - 0.5 * bins * step, high - bins * step))
        count = min(bins, int((high - start) / step) + 1)
        place = min(max(round((centre - start) / step), count // 4), count - 1 - count // 4)
        found.append((np.asarray(start + step * np.arange(count), dtype=float), place))
    return found


def ideal(psf: PsfModel, fibres: tuple[int, int], wave: Array, arena: Arena, *, apart: bool = False,
           there: bool = False) -> Sums:
    """Normal equations of a few fibres where every pixel is good and has unit errors, on the CCD or not.

    apart: the fibres are moved side by side, so that none sees another and the image is small.
    there: only pixels between the CCD's left and right edge are good
    """
    spots = recipe(psf, fibres, wave, arena)
    y0, x0 = spots.y0 - spots.y0.min(), spots.x0 - spots.x0.min()
    if apart:
        y0, x0 = y0 - y0.min(axis=1, keepdims=True), x0 - x0.min(axis=1, keepdims=True)
        x0 += (x0.max() + psf.stamp[1]) * np.arange(len(x0))[:, None]
    rows, columns = int(y0.max()) + psf.stamp[0], int(x0.max()) + psf.stamp[1] + LANE
    ones = arena.take(rows, columns + -columns % VECTOR)
    ones[:] = 1.0
    if there:
        first = int(spots.x0.min())
        ones[:, :max(-first, 0)] = ones[:, max(psf.shape[1] - first, 0):] = 0.0
    return _sums(psf, replace(spots, x0=x0, y0=y0), Cut(ones, ones, 0, 0), len(wave), arena)


def _sums(psf: PsfModel, spots: Recipe, cut: Cut, nwave: int, arena: Arena) -> Sums:
    """The normal equations of spots on a cut-out."""
    y0, x0 = (first[:, :nwave] for first in (spots.y0, spots.x0))
    bands = half_bands(y0 - cut.y0, x0 - cut.x0, psf.stamp, (cut.root.shape[0], cut.root.shape[1]))
    sums = empty_sums(len(y0), nwave, bands, arena)
    add_tile(sums, spots, place_blocks(spots, cut, arena, keep=False), cut, (0, nwave, 0))
    if not np.isfinite(sums.icov).all():
        raise InputError(f"{psf.name}: its spots come to numbers that are not finite; give another PSF")
    return sums


def _cholesky(bands: Array) -> Array:
    """Lower banded Cholesky factor of a fibre's block, bands (n, 2 hw + 1). Raises LinAlgError."""
    hw = bands.shape[1] // 2
    factor, info = lapack.dpbtrf(np.ascontiguousarray(bands[:, hw:].T), lower=1)
    _positive(info)
    return np.asarray(factor)


def _solved(lower: Array, b: Array) -> Array:
    """The solution of a banded system, lower bands (hw + 1, n). Raises LinAlgError."""
    if not np.isfinite(lower).all():
        raise LinAlgError("a band holds what is no finite number")
    if len(lower) == 2:
        _, _, x, info = lapack.dptsv(lower[0], lower[1, :-1], b)
    else:
        _, x, info = lapack.dpbsv(lower, b, lower=1)
    _positive(info)
    return np.asarray(x)


def _positive(info: int) -> None:
    """Raise LinAlgError where LAPACK found a matrix not positive definite."""
    if info > 0:
        raise LinAlgError(f"leading minor {info} is not positive")


def _columns(bands: Array, place: int) -> Array:
    """|C| between a bin of every fibre and all its others: (nfibre, n).

    bands: (nfibre, n, 2 hw + 1) of the fibres' own blocks. They form one matrix, since nothing couples the last bin of
    a fibre to the first of the next
    """
    nfibre, n, hw = len(bands), bands.shape[1], bands.shape[2] // 2
    unit = np.zeros((nfibre, n))
    unit[:, place] = 1.0
    lower = bands[..., hw:].reshape(-1, hw + 1)
    return np.abs(_solved(lower.T, unit.ravel())).reshape(nfibre, n)


def _envelope(columns: Array, place: int) -> Array:
    """Largest |C| at every distance from a bin and beyond, relative to that bin's own: (nfibre, distances).

    columns: of `_columns`; distances: up to the farther end
    """
    n = columns.shape[1]
    reach = np.zeros((len(columns), max(place + 1, n - place)))
    for side in (columns[:, place:], columns[:, place::-1]):
        part = reach[:, :side.shape[1]]
        np.maximum(part, side / columns[:, place, None], out=part)
    return np.maximum.accumulate(reach[:, ::-1], axis=1)[:, ::-1]


def _correlation(sums: Sums, d: int) -> float:
    """Largest canonical correlation of the first fibre and fibre d: the norm of L_0^-1 icov_0d L_d^-T."""
    if len(sums.icov) <= d:
        return 0.0
    between = _band_matrix(sums.icov[0, d])
    factors = [_cholesky(sums.icov[i, 0]) for i in (0, d)]
    v = np.where(np.arange(len(between)) % 2, -1.0, 1.0)
    square = 0.0
    for _ in range(ITERATIONS):
        half = lapack.dpbtrs(factors[0], between @ v, lower=1)[0]
        image = lapack.dpbtrs(factors[1], between.T @ half, lower=1)[0]
        size = float(np.linalg.norm(image))
        if size == 0.0:       # squares of less than 1e-160 are 0, although the image is not
            return 0.0
        square, v = size / float(np.linalg.norm(v)), image / size
    return square**0.5


def _band_matrix(bands: Array) -> Array:
    """The square matrix of bands (n, 2 hw + 1)."""
    n, hw = len(bands), bands.shape[1] // 2
    matrix, rows = np.zeros((n, n)), np.arange(n)
    for k in range(-hw, hw + 1):
        inside = rows[max(0, -k):n - max(0, k)]
        matrix[inside, inside + k] = bands[inside, hw + k]
    return matrix


def _bins(envelope: Array, limit: float, most: int) -> int:
    """First distance at which the envelope is below the limit; extrapolated by its last decay if it never is.

    most: bins of the PSF, the upper limit of a pad
    """
    below = np.nonzero(envelope < limit)[0]
    if len(below):
        return int(below[0])
    half = len(envelope) // 2
    rate = np.log(envelope[0] / envelope[half]) / half if half else 0.0
    return int(min(most, np.ceil(np.log(envelope[0] / limit) / rate))) if rate > 0 else most


def on_ccd(psf: PsfModel, plan: Plan) -> Plan:
    """The plan without the bins beyond the ends for which no fibre has a pixel of its spots on the CCD."""
    if _seen(psf, plan.extended[[0, -1]]).all():
        return plan
    seen, inner = np.ones(len(plan.extended), dtype=bool), plan.inner
    for pad in (slice(0, inner.start), slice(inner.stop, None)):
        seen[pad] = _seen(psf, plan.extended[pad])
    first, last = np.flatnonzero(seen)[[0, -1]].tolist()
    return replace(plan, extended=plan.extended[first:last + 1], inner=slice(inner.start - first, inner.stop - first))


def _seen(psf: PsfModel, wave: Array) -> np.ndarray:
    """(nwave,) whether the spot of some fibre touches the CCD."""
    first = corners(psf, centres(psf, (0, psf.nfibre), wave))
    stamp, shape = np.array(psf.stamp)[:, None, None], np.array(psf.shape)[:, None, None]
    return np.asarray(((first > -stamp) & (first < shape)).all(axis=0).any(axis=0))
