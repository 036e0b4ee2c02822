"""A longer pad where masks leave a fibre nothing but the wings of its spots at an end of the range."""
from dataclasses import replace

import numpy as np

from gpu_extract.checks.ideal import bins_below, lengths, scaled_envelope, sums_of, windows
from gpu_extract.checks.probe import SAFETY_CUT, Decay
from gpu_extract.data import Array, Image, IntArray, PsfModel
from gpu_extract.kernels.arena import borrowed
from gpu_extract.known import known
from gpu_extract.normal import make_cut
from gpu_extract.spots import centres, recipe

CORE = -1, 0, 1  # rows and columns of the core of a spot: where all its pixels are masked, only wings are left
DARK = 0.25      # share of a pad's bins without core beyond which the margins of probe.py may not cover the masks
EVERY = 4        # of a pad's bins, one is looked at,
FEWEST = 8       # but of a short pad so many


def beside_masks(decay: Decay, image: Image, psf: PsfModel, wavelength: tuple[float, float, float],
                 tolerance: float) -> Decay:
    """The decay with a longer pad where masks leave a fibre nothing but wings at an end of the range.

    decay: with all pixels good. The fibres at the ends and in the middle of each row of such fibres are measured with
    the image's own ivar, as one is that the CCD's edge cuts off.
    """
    dark = _dark_fibres(psf, wavelength, decay.beyond, image)
    low, high = psf.wavelength_range
    most, beyond = int((high - low) / wavelength[2]) + 1, decay.beyond
    for window in lengths(most) if dark else ():
        envelopes = [found for fibre in dark for wave, place in windows(psf, wavelength, window)
                     for found in _as_seen(psf, fibre, wave, place, image)]
        beyond = max((bins_below(e, SAFETY_CUT * tolerance, most) for e in envelopes), default=0)
        if beyond < window // 2:
            break
    return replace(decay, beyond=max(decay.beyond, min(most, beyond + decay.aslant)))


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
    """The envelope of a fibre from the image's good pixels; nothing where it has none."""
    with borrowed() as arena:
        spots = recipe(psf, (fibre, fibre + 1), wave, arena)
        cut = make_cut(image, spots.y0[:, :len(wave)], spots.x0[:, :len(wave)], psf.stamp, arena)
        if not cut.root.any():      # the usual case of a dead amplifier: nothing more need be made
            return []
        return scaled_envelope(sums_of(psf, spots, cut, len(wave), arena).icov[:, 0], place)
