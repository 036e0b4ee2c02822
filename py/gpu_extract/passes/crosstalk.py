"""Light of other bundles on a bundle's pixels: their spots, and all spots' tails beyond the stamps.

A stamp ends where its PSF's file says. Its tail goes on: by the PSF's formula, in the normalisation of the stamp (the
light beyond it comes on top of the sum 1), up to a radius. The tails of a bundle's own spots beyond their stamps count
as well; no other pixel of them is in its normal equations.
"""
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpu_extract.data import Array, PsfModel, Tail
from gpu_extract.passes import simd_pixels
from gpu_extract.spots import centres, corners, evaluate

NODES = 4096         # of a table of a tail against the square of the radius
STRETCH = 128        # bins that have a table in common; its height is each bin's own
ROUGH = 4            # pixels, and bins, that are taken together where a tenth of a tail does not matter
Window = tuple[int, int, int, int]


@dataclass(frozen=True)
class Piece:
    """A part of a bundle's model: light (rows, columns), float32, from CCD pixel `corner` (y, x) on."""

    light: np.ndarray
    corner: tuple[int, int]


def overlap(one: Window, other: Window) -> Window:
    """What two windows (y0, x0, rows, columns) have in common; rows or columns are 0 or less where nothing."""
    y, x = max(one[0], other[0]), max(one[1], other[1])
    return (y, x, min(one[0] + one[2], other[0] + other[2]) - y, min(one[1] + one[3], other[1] + other[3]) - x)


def cut_piece(model: np.ndarray, corner: tuple[int, int], window: Window) -> Piece | None:
    """The part of a model that lies in a window; None where there is none, or no light in it."""
    y, x, rows, columns = overlap((*corner, *model.shape), window)      # type: ignore[arg-type]
    if rows <= 0 or columns <= 0:
        return None
    part = model[y - corner[0]:y - corner[0] + rows, x - corner[1]:x - corner[1] + columns]
    return Piece(part.copy(), (y, x)) if part.any() else None


def add_pieces(light: np.ndarray, corner: tuple[int, int], pieces: Sequence[Piece]) -> None:
    """Add pieces that lie within an image's window to it, in place, in their order."""
    for piece in pieces:
        y, x = piece.corner[0] - corner[0], piece.corner[1] - corner[1]
        light[y:y + piece.light.shape[0], x:x + piece.light.shape[1]] += piece.light


def add_tails(light: Array, corner: tuple[int, int], psf: PsfModel, place: tuple[tuple[int, int], Array],
              strengths: Array, radius: float, every: int = 1) -> None:
    """Add the tails of a bundle's spots beyond their stamps to the image of a window, in place.

    corner: CCD pixel of light[0, 0]; place: (fibres, wave) of the spots; strengths: (nfibre, nwave) photons times the
    stamp's normalisation; radius: pixels from a spot's centre up to which there is a tail
    every: the image has every so many-th pixel of every so many-th row alone
    """
    if psf.tail is None or strengths.size == 0:
        return
    fibres, wave = place
    centre = centres(psf, fibres, wave)
    first = corners(psf, centre)
    tables, step = _tables(psf.tail, fibres, wave, radius)
    scales = np.stack([evaluate(series, fibres, wave) ** 2 for series in (psf.tail.yscale, psf.tail.xscale)])
    strengths = strengths * evaluate(psf.tail.amp, fibres, wave)
    group = np.arange(len(wave)) // STRETCH + np.arange(len(centre[0]))[:, None] * -(-len(wave) // STRETCH)
    origin = np.array(corner, dtype=float)[:, None, None]
    sources = np.stack([*(centre - origin) / every, strengths, group, *scales * every**2, *(first - origin) / every,
                        np.ones(group.shape)]).reshape(9, -1)
    (y, x), radius = sources[:2], radius / every
    reaches = ((y > -radius) & (y < light.shape[0] + radius) & (x > -radius) & (x < light.shape[1] + radius)
               & (sources[2] != 0.0))
    simd_pixels.add_tails(light, np.ascontiguousarray(sources[:, reaches]), tables,
                          (float(radius), step, psf.stamp[0] / every, psf.stamp[1] / every))


def tails_of(psf: PsfModel, place: tuple[tuple[int, int], Array], strengths: Array, radius: float,
             window: Window) -> Piece | None:
    """The tails of a bundle's spots on a window and around it, as far as they reach; None where there are none.

    place, strengths, radius: see add_tails
    """
    if psf.tail is None or radius == 0:
        return None
    far = math.ceil(radius)
    corner, light = (window[0] - far, window[1] - far), np.zeros((window[2] + 2 * far, window[3] + 2 * far))
    add_tails(light, corner, psf, place, strengths, radius)
    return Piece(light.astype(np.float32), corner)


def rough_tails(psf: PsfModel, place: tuple[tuple[int, int], Array], strengths: Array, radius: float,
                piece: Piece) -> Piece:
    """The same on a piece's pixels in a fiftieth of the time, right to a tenth or so: for small changes of strengths.

    Bins are taken together by fours, pixels by fours in both directions, with straight lines between.
    """
    fibres, wave = place
    groups = np.arange(0, len(wave), ROUGH)
    fewer = np.add.reduceat(wave, groups) / np.diff(groups, append=len(wave))
    light = np.zeros([-(-(n - 1) // ROUGH) + 2 for n in piece.light.shape])
    add_tails(light, piece.corner, psf, (fibres, fewer), np.add.reduceat(strengths, groups, axis=1), radius, ROUGH)
    for n in piece.light.shape:
        first, share = np.divmod(np.arange(n), ROUGH)
        light = (light[first] + (share / ROUGH)[:, None] * (light[first + 1] - light[first])).T
    return Piece(light.astype(np.float32), piece.corner)


def _tables(tail: Tail, fibres: tuple[int, int], wave: Array, radius: float) -> tuple[Array, float]:
    """The tail with amplitude 1 against r2, for each fibre and stretch of bins, and the distance of two nodes."""
    middle = wave[np.minimum(np.arange(0, len(wave), STRETCH) + STRETCH // 2, len(wave) - 1)]
    core, index, *scales = (evaluate(series, fibres, middle) for series in (tail.core, tail.index, tail.yscale,
                                                                             tail.xscale))
    most = max(float(np.max(scale)) for scale in scales)
    step = 1.05 * (most * radius) ** 2 / (NODES - 2)
    r2 = step * np.arange(NODES)
    core, index = core[..., None], index[..., None]
    return (r2 / (core**2 + r2) ** (1.0 + index / 2.0)).reshape(-1, NODES), step
