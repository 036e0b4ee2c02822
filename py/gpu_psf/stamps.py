"""The spots of the model: stamps, and their derivatives by centre and width."""
from dataclasses import dataclass

import numpy as np

from gpu_extract.data import Array, IntArray
from gpu_psf.data import Frame, Parameters, Pixels, Spots
from gpu_psf.profile import by_centre, by_sigma, profiles
from gpu_psf.series import one_by_one
from gpu_psf.tail import tail_images

IMAGES = 5           # of a spot: itself, its derivatives by x, y, sigma x, sigma y


@dataclass(frozen=True)
class Stamps:
    """Spots of one electron each, not normalised to sum 1 (the fitted flux absorbs the factor).

    image: (n, IMAGES, ny, nx); open: (n, ny, nx) 0 where the model is negative and is clipped
    tail: (n, ny, nx) tails of amplitude 1, where their amplitude is fitted
    px, py: (n, degree + 1, nx or ny) profiles; x, y, sigma: centres and widths
    place: (n, ny * nx) indices of the pixels in Pixels.value.ravel()
    """

    image: Array
    open: Array
    px: Array
    py: Array
    x: Array
    y: Array
    sigma: tuple[Array, Array]
    corner: tuple[IntArray, IntArray]
    place: IntArray
    tail: Array | None = None


def centres(spots: Spots, now: Parameters) -> tuple[Array, Array]:
    """x and y of the spots, pixels."""
    return ((spots.trace * now.x[spots.fibre]).sum(axis=1), (spots.trace * now.y[spots.fibre]).sum(axis=1))


def make_stamps(frame: Frame, spots: Spots, now: Parameters, pixels: Pixels) -> Stamps:
    """Stamps of all spots."""
    x, y = centres(spots, now)
    terms = spots.shape @ now.shape.T
    sx, sy = terms[:, 0], terms[:, 1]
    count, (ny, nx) = frame.degree + 1, frame.start.stamp
    gh = np.concatenate([np.ones((len(x), 1)), terms[:, 2:]], axis=1).reshape(-1, count, count)
    y0, x0 = (np.floor(c - o).astype(np.int64) for c, o in zip((y, x), frame.start.offset, strict=True))
    px, py = profiles(x, sx, x0, nx, count + 1), profiles(y, sy, y0, ny, count + 1)
    along_x, along_y = gh @ px[:, :count], py[:, :count].transpose(0, 2, 1)
    image = np.empty((len(x), IMAGES, ny, nx))
    image[:, 0] = along_y @ along_x
    image[:, 1] = along_y @ (gh @ by_centre(px, sx, count))
    image[:, 2] = by_centre(py, sy, count).transpose(0, 2, 1) @ along_x
    image[:, 3] = along_y @ (gh @ by_sigma(px, sx, count))
    image[:, 4] = by_sigma(py, sy, count).transpose(0, 2, 1) @ along_x
    tails = tail_images(frame, spots, (x, y), (x0, y0))
    if tails is not None and frame.start.tail is not None:
        amplitude = spots.shape @ now.ground[:frame.nshape] if frame.tail else one_by_one(
            frame.start.tail.amp, frame.first + spots.fibre, spots.wave)
        image[:, :3] += amplitude[:, np.newaxis, np.newaxis, np.newaxis] * tails
    opened = (image[:, 0] > 0).astype(np.float64)
    image *= opened[:, np.newaxis]
    tail = tails[:, 0] * opened if tails is not None and frame.tail else None
    return Stamps(image, opened, px[:, :count], py[:, :count], x, y, (sx, sy), (x0, y0),
                  _place(pixels, (x0, y0), (ny, nx), spots), tail)


def _place(pixels: Pixels, corner: tuple[IntArray, IntArray], stamp: tuple[int, int], spots: Spots) -> IntArray:
    _, ny, nx = pixels.value.shape
    row = np.clip(corner[1] - pixels.y0, 0, len(pixels.stored) - stamp[0])[:, np.newaxis] + np.arange(stamp[0])
    first = (spots.exposure[:, np.newaxis] * ny + pixels.stored[row]) * nx
    first = first + np.clip(corner[0] - pixels.x0, 0, nx - stamp[1])[:, np.newaxis]
    return (first[:, :, np.newaxis] + np.arange(stamp[1])).reshape(len(row), stamp[0] * stamp[1])


def project(pixels: Pixels, stamps: Stamps, flux: Array) -> Array:
    """Light of all spots, in the shape of Pixels.value."""
    light = (stamps.image[:, 0].reshape(len(flux), -1) * flux[:, np.newaxis]).ravel()
    total = np.bincount(stamps.place.ravel(), light, pixels.value.size).astype(np.float64)
    return total.reshape(pixels.value.shape)
