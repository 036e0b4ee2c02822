"""A longer pad where masks leave little of the cores of a fibre's spots at an end of the range."""
from dataclasses import replace

import numpy as np

from gpu_extract.checks.ideal import bins_below, lengths, sums_of, windows
from gpu_extract.checks.probe import SAFETY_CUT, Decay
from gpu_extract.data import Array, Image, IntArray, PsfModel
from gpu_extract.kernels.arena import borrowed
from gpu_extract.known import known
from gpu_extract.lapack import lapack
from gpu_extract.normal import lower_band, make_cut
from gpu_extract.solve import definite_factor
from gpu_extract.spots import centres, recipe

# (row, column) of a core's pixels, and their shares of its light, roughly; the middle one first
CORE = {(dy, dx): 1 / 4 ** (1 + 0.5 * (dy != 0) + 0.5 * (dx != 0)) for dy in (0, -1, 1) for dx in (0, -1, 1)}
LEAST = 0.75     # of the cores' light: with less on good pixels the margins of probe.py may not cover the masks
MIDDLES = 0.1    # of a fibre's cores whose middle is masked: with less the others' pixels are not looked at
EVERY = 4        # of a pad's bins, one is looked at,
FEWEST = 8       # but of a short pad so many
BESIDE = 2       # fibres on both sides that are measured along


def beside_masks(decay: Decay, image: Image, psf: PsfModel, wavelength: tuple[float, float, float],
                 tolerance: float) -> Decay:
    """The decay with a longer pad where masks leave little of the cores of a fibre's spots at an end of the range.

    decay: with all pixels good. The fibres at the ends and in the middle of each row of such fibres are measured with
    the image's own ivar, and those beside them, through which light may reach them, too.
    """
    hidden = _hidden_fibres(psf, wavelength, decay.beyond, image)
    low, high = psf.wavelength_range
    most, beyond = int((high - low) / wavelength[2]) + 1, decay.beyond
    for window in lengths(most) if hidden else ():
        below, above = windows(psf, wavelength, window)
        beyond = max(bins_below(_as_seen(psf, fibre, *end, image), SAFETY_CUT * tolerance, most)
                     for fibre in hidden for end in ((*below, -1), (*above, 1)))
        if beyond < window // 2:
            break
    return replace(decay, beyond=max(decay.beyond, min(most, beyond + decay.aslant)))


def _hidden_fibres(psf: PsfModel, wavelength: tuple[float, float, float], pad: int, image: Image) -> list[int]:
    """Of each row of fibres with little light of their cores at an end of the range the first, the middle and the last.

    The pad counts by itself, and together with a stamp's height of bins inside.
    """
    found = np.zeros(psf.nfibre, dtype=bool)
    inside, ends = known(psf, ("pads", image.shape, wavelength, pad),
                         lambda: _pads(image.shape, psf, wavelength, pad))
    ivar, shares = image.ivar.reshape(-1), np.array([*CORE.values()])
    for cores in ends:
        some = np.flatnonzero(_mean(ivar[cores[0]] == 0, inside).max(axis=0) > MIDDLES)
        if len(some):
            seen = np.tensordot(shares, ivar[cores[:, some]] > 0, 1)
            found[some] |= _mean(seen, inside).min(axis=0) < LEAST
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
                              for dy, dx in CORE]))
    return len(inside), ends


def _mean(of_bins: np.ndarray, inside: int) -> Array:
    """(2, nfibre) of all of a fibre's bins, and of those in the pad; inside: how many are not in it."""
    return np.stack([of_bins.mean(axis=1), of_bins[:, inside:].mean(axis=1)])


def _as_seen(psf: PsfModel, fibre: int, wave: Array, place: int, way: int, image: Image) -> Array:
    """The largest |C| at every distance beyond the end of the range and farther, relative to that of the bin inside.

    place: the bin at the end; way: 1 where higher bins are beyond it, -1 where lower ones are. Bins inside are one of
    EVERY as far as a stamp reaches: masks hide some more than others. Each bin counts in its own errors.
    """
    fibres, nwave = (max(0, fibre - BESIDE), min(psf.nfibre, fibre + BESIDE + 1)), len(wave)
    with borrowed() as arena:
        spots = recipe(psf, fibres, wave, arena)
        cut = make_cut(image, spots.y0[:, :nwave], spots.x0[:, :nwave], psf.stamp, arena)
        if not cut.root.any():      # the usual case of a dead amplifier: nothing more need be made
            return np.zeros(1)
        icov = sums_of(psf, spots, cut, nwave, arena).icov
        lower = lower_band(icov, (0, len(icov)), (0, nwave))
    factor = definite_factor(lower)[1]
    bins = np.clip(place - way * np.arange(0, psf.stamp[0] + 1, EVERY), 0, nwave - 1)
    columns = (bins[:, None] * len(icov) + np.arange(len(icov))).ravel()
    unit = np.zeros((len(factor.T), len(columns)))
    unit[columns, np.arange(len(columns))] = 1.0
    found = np.abs(lapack.dpbtrs(factor, unit, lower=1)[0])
    found /= found[columns, np.arange(len(columns))]
    of_bins = found.reshape(nwave, -1).max(axis=1)[place::way]
    largest: Array = np.maximum.accumulate(of_bins[::-1])[::-1]
    return largest
