"""The tail of spots: amplitude r2 / (core^2 + r2)^(1 + index / 2), r2 = (dx xscale)^2 + (dy yscale)^2.

Its amplitude may be fitted; its shape is given. It continues beyond the stamps, where it is light between the lines.
"""
from dataclasses import replace

import numpy as np

from gpu_extract.data import Array, IntArray, PsfModel, Tail
from gpu_extract.passes.crosstalk import add_tails
from gpu_psf.data import TAIL, FitConfig, Frame, Pixels, Spots
from gpu_psf.series import one_by_one

RADIUS = 60.0           # pixels at which a tail ends
_SHAPE = "core", "xscale", "yscale", "index"


def with_tail(start: PsfModel, config: FitConfig) -> PsfModel:
    """A starting PSF with the tail whose amplitude is to be fitted, with amplitude 0 if it has none."""
    if config.tail is None:
        return start
    same = start.cores[0].gh.same
    known = start.tail or Tail(*map(same, (0.0, *TAIL)))
    shape = {name: same(value) for name, value in zip(_SHAPE, config.tail, strict=False)}
    return replace(start, tail=replace(known, **shape))


def tail_images(frame: Frame, spots: Spots, centre: tuple[Array, Array], corner: tuple[IntArray, IntArray]
                ) -> Array | None:
    """Tails of amplitude 1 and their derivatives by the centre's x and y: (n, 3, ny, nx); None without tails.

    centre: (n,) x and y, pixels; corner: first pixels of the stamps, x and y
    """
    tail, (ny, nx) = frame.start.tail, frame.start.stamp
    if tail is None:
        return None
    core, xscale, yscale, index = (one_by_one(getattr(tail, name), frame.first + spots.fibre, spots.wave)
                                   [:, np.newaxis, np.newaxis] for name in _SHAPE)
    (x, y), (x0, y0) = centre, corner
    dx: Array = (((x0 - x)[:, np.newaxis] + np.arange(nx))[:, np.newaxis, :]) * xscale
    dy: Array = (((y0 - y)[:, np.newaxis] + np.arange(ny))[:, :, np.newaxis]) * yscale
    r2, power = dx * dx + dy * dy, 1 + index / 2
    around = core * core + r2
    low = around**-power
    slope = low * (1 - power * r2 / around)             # by r2
    return np.stack([r2 * low, -2 * slope * dx * xscale, -2 * slope * dy * yscale], axis=1)


def beyond(psf: PsfModel, spots: Spots, flux: Array, pixels: Pixels) -> Array:
    """The tails' light beyond the stamps, in the shape of Pixels.value.

    psf: of the bundle's fibres; flux: (nspot,) electrons of a spot before it is normalised
    """
    light: Array = np.zeros(pixels.value.shape)
    wave, which = np.unique(spots.wave, return_inverse=True)
    whole = np.zeros((len(pixels.stored), light.shape[2]))
    for n in range(len(light)):
        mine = spots.exposure == n
        strengths = np.zeros((psf.nfibre, len(wave)))
        strengths[spots.fibre[mine], which[mine]] = flux[mine]
        whole[:] = 0.0
        add_tails(whole, (pixels.y0, pixels.x0), psf, ((0, psf.nfibre), wave), strengths, RADIUS)
        light[n, pixels.stored] = whole
    return light
