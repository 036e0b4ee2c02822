"""A small ideal problem, all pixels good and of equal errors: its normal equations, and how fast C = icov^-1 decays."""
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from numpy.linalg import LinAlgError

from gpu_extract.data import LANE, Array, PsfModel, Recipe
from gpu_extract.errors import InputError
from gpu_extract.kernels.arena import Arena
from gpu_extract.lapack import lapack
from gpu_extract.normal import VECTOR, Cut, Sums, add_tile, empty_sums, half_bands, place_blocks, squared
from gpu_extract.spots import recipe

WINDOWS = 192, 320    # bins of the small problem: the second if light reaches beyond the first, then
                      # twice as many and so on, until the whole decay is covered
SAME = 1e-6      # of a step: the PSF may end this far before a bin that it holds
ITERATIONS = 12  # of the power iteration for the correlation between fibres, which is needed to a few per cent


@contextmanager
def told_apart(psf: PsfModel, wavelength: tuple[float, float, float]) -> Iterator[None]:
    """Raise InputError if bins or fibres cannot be distinguished even with ideal pixels."""
    try:
        yield
    except LinAlgError as error:
        raise InputError(f"{psf.name}: bins of {wavelength[2]:g} Angstrom cannot be told from each other with this "
                         "PSF: the step is far below the resolution, or fibres share a trace; use a larger step (-w), "
                         "or another PSF") from error


def lengths(most: int) -> Iterator[int]:
    """The lengths of the stretches to try in turn, up to one that holds all bins of the PSF."""
    yield from WINDOWS
    bins = WINDOWS[-1]
    while bins < most:
        bins *= 2
        yield bins


def windows(psf: PsfModel, wavelength: tuple[float, float, float], bins: int) -> list[tuple[Array, int]]:
    """A stretch of this many bins around each end of the range, as far as the PSF reaches, and the bin of that end.

    If that bin is within a quarter of the stretch from its end, another bin replaces it, since C differs there. The
    bins are those of the range: with about one to a row, C is far larger where they lie on the edges of rows than in
    their middles.
    """
    low, high = psf.wavelength_range
    step, found = wavelength[2], []
    for centre in wavelength[:2]:
        below, above = (int(room / step + SAME) for room in (centre - low, high - centre))
        first = min(max(bins // 2, bins - 1 - above), below)
        count = min(bins, first + above + 1)
        wave = np.clip(centre + step * np.arange(-first, count - first), low, high)
        found.append((wave, min(max(first, count // 4), count - 1 - count // 4)))
    return found


def ideal(psf: PsfModel, fibres: tuple[int, int], wave: Array, arena: Arena, *, apart: bool = False,
           there: bool = False) -> Sums:
    """Normal equations of a few fibres if every pixel, on the CCD or not, is good and has unit errors.

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
    return sums_of(psf, replace(spots, x0=x0, y0=y0), Cut(ones, ones, 0, 0), len(wave), arena)


def sums_of(psf: PsfModel, spots: Recipe, cut: Cut, nwave: int, arena: Arena) -> Sums:
    """The normal equations of spots on a cut-out."""
    y0, x0 = (first[:, :nwave] for first in (spots.y0, spots.x0))
    bands = half_bands(y0 - cut.y0, x0 - cut.x0, psf.stamp, (cut.root.shape[0], cut.root.shape[1]))
    sums = empty_sums(len(y0), nwave, bands, arena)
    add_tile(sums, spots, place_blocks(spots, cut, arena, keep=False), cut, (0, nwave, 0))
    if not np.isfinite(sums.icov).all():
        raise InputError(f"{psf.name}: its spots have values that are not finite; give another PSF")
    return sums


def columns_of(bands: Array, place: int) -> Array:
    """|C| between a bin of every fibre and all its others: (nfibre, n).

    bands: (nfibre, n, 2 hw + 1) of the fibres' own blocks. They form one matrix, since nothing couples the last bin of
    a fibre to the first of the next
    """
    nfibre, n, hw = len(bands), bands.shape[1], bands.shape[2] // 2
    unit = np.zeros((nfibre, n))
    unit[:, place] = 1.0
    lower = bands[..., hw:].reshape(-1, hw + 1)
    return np.abs(_solved(lower.T, unit.ravel())).reshape(nfibre, n)


def envelopes_of(columns: Array, place: int) -> Array:
    """Largest |C| at every distance from a bin and beyond, relative to that bin's own: (nfibre, distances).

    columns: of `columns_of`; distances: up to the farther end
    """
    n = columns.shape[1]
    reach = np.zeros((len(columns), max(place + 1, n - place)))
    for side in (columns[:, place:], columns[:, place::-1]):
        part = reach[:, :side.shape[1]]
        np.maximum(part, side / columns[:, place, None], out=part)
    return np.maximum.accumulate(reach[:, ::-1], axis=1)[:, ::-1]


def scaled_envelope(bands: Array, place: int) -> list[Array]:
    """The envelope of one fibre's block, each bin in its own errors; nothing where double precision cannot tell.

    bands: (1, n, 2 hw + 1), changed in place. A bin without a good pixel is decoupled from the others, and the nearest
    bin that has one takes its place.
    """
    hw = bands.shape[2] // 2
    seen = np.flatnonzero(bands[0, :, hw] > 0.0)
    if not len(seen):
        return []
    place = int(seen[np.abs(seen - place).argmin()])
    bands[0, bands[0, :, hw] == 0.0, hw] = 1.0
    unit = 1.0 / np.sqrt(bands[0, :, hw])
    padded = np.pad(unit, hw)
    scaled = bands * unit[:, None] * np.lib.stride_tricks.sliding_window_view(padded, 2 * hw + 1)
    try:
        return [*envelopes_of(columns_of(scaled, place), place)]
    except LinAlgError:
        return []


def carried(bands: Array, first: int, gap: int) -> float:
    """The largest canonical correlation, given the noise, between the bins below `first` and those from `first` + `gap`
    on: so many sigma the former are off by where the latter are left out, over the S/N of these.

    bands: (n, 2 hw + 1), one fibre's block A of icov. The bins between are eliminated, which leaves blocks that couple
    by B, of h bins on both sides, and have the inverses P and R there: K^2 is the largest eigenvalue of B' P B R. So
    no small number is a difference of large ones.
    """
    hw, n = bands.shape[1] // 2, len(bands)
    lower, after = bands[:, hw:].T, first + gap
    if not (hw and first > 0 and after < n):
        return 0.0
    low, high = max(first - hw, 0), min(after + hw, n)
    near = squared(bands[low:high])
    left, between, right = (slice(a - low, b - low) for a, b in ((low, first), (first, after), (after, high)))
    into = near[between]
    through = _solved(np.ascontiguousarray(lower[:, first:after]), np.hstack([into[:, left], into[:, right]]))
    toward = near[left, right] - into[:, left].T @ through[:, first - low:]
    inverses = []
    for whole, part, here, solved in ((slice(0, first), left, slice(low, first), through[:, :first - low]),
                                      (slice(after, n), right, slice(after, high), through[:, first - low:])):
        unit = np.zeros((whole.stop - whole.start, here.stop - here.start))
        rows = np.arange(here.start, here.stop) - whole.start
        unit[rows, np.arange(len(rows))] = 1.0
        alone = _solved(np.ascontiguousarray(lower[:, whole]), unit)[rows]
        inverses.append(np.linalg.inv(np.linalg.inv(alone) - into[:, part].T @ solved))
    square = np.linalg.eigvals(toward.T @ inverses[0] @ toward @ inverses[1]).real.max()
    return float(np.sqrt(max(square, 0.0)))


def bins_below(envelope: Array, limit: float, most: int) -> int:
    """First distance at which the envelope is below the limit; extrapolated by its last decay if it never is.

    most: bins of the PSF, the upper limit of a pad
    """
    below = np.nonzero(envelope < limit)[0]
    if len(below):
        return int(below[0])
    half = len(envelope) // 2
    rate = np.log(envelope[0] / envelope[half]) / half if half else 0.0
    return int(min(most, np.ceil(np.log(envelope[0] / limit) / rate))) if rate > 0 else most


def correlation(sums: Sums, d: int) -> float:
    """Largest canonical correlation of the first fibre and fibre d: the norm of L_0^-1 icov_0d L_d^-T."""
    if sums.icov.shape[1] <= d:      # their spots do not overlap
        return 0.0
    between = squared(sums.icov[0, d])
    factors = [_cholesky(sums.icov[i, 0]) for i in (0, d)]
    v = np.where(np.arange(len(between)) % 2, -1.0, 1.0)
    square = 0.0
    for _ in range(ITERATIONS):
        half = lapack.dpbtrs(factors[0], between @ v, lower=1)[0]
        image = lapack.dpbtrs(factors[1], between.T @ half, lower=1)[0]
        size = float(np.linalg.norm(image))
        if size == 0.0:       # squares of numbers below 1e-160 are 0, although the image is not
            return 0.0
        square, v = size / float(np.linalg.norm(v)), image / size
    return square**0.5


def _cholesky(bands: Array) -> Array:
    """Lower banded Cholesky factor of a fibre's block, bands (n, 2 hw + 1). Raises LinAlgError."""
    hw = bands.shape[1] // 2
    factor, info = lapack.dpbtrf(np.ascontiguousarray(bands[:, hw:].T), lower=1)
    _positive(info)
    return np.asarray(factor)


def _solved(lower: Array, b: Array) -> Array:
    """The solution of a banded system, lower bands (hw + 1, n). Raises LinAlgError."""
    if not np.isfinite(lower).all():
        raise LinAlgError("a band holds a number that is not finite")
    if len(lower) == 2:
        _, _, x, info = lapack.dptsv(lower[0], lower[1, :-1], b)
    else:
        _, x, info = lapack.dpbsv(lower, b, lower=1)
    _positive(info)
    return np.asarray(x)


def _positive(info: int) -> None:
    if info > 0:
        raise LinAlgError(f"leading minor {info} is not positive")
