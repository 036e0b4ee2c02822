"""Light of other bundles on a bundle's pixels: their spots, and all spots' tails beyond the stamps.

A stamp has the size that the PSF's file gives. The tail continues beyond it, up to a radius, by the PSF's formula and
in the normalisation of the stamp: the light beyond the stamp is in addition to the sum 1. The tails of a bundle's own
spots count as well, because its normal equations contain the stamps alone.

`tails_of` splits a tail T(r2) in two parts. S is T beyond some NEAR pixels (`nearest`), and within them the Taylor
polynomial of T of third degree in r2. T - S is the rest. S is so smooth that it is computed only on every EVERY-th
pixel and for every few bins, with cubics between them. T - S, and -S on the stamp, differ from 0 on few pixels. A cubic
through nodes h apart is wrong by at most 3/128 h^4 times the fourth derivative of S. The tail fades out towards its
radius, because S would not be smooth at an abrupt end.
"""
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gpu_extract.data import Array, PsfModel, Tail
from gpu_extract.passes import simd_pixels
from gpu_extract.spots import centres, corners, evaluate

NODES = 4096         # of a table of a tail against the square of the distance from the centre
FEW = 1024           # of a table of S or of T - S: the one is smooth, the other short
STRETCH = 128        # bins that share a table; each bin has its own amplitude
EVERY = 2            # pixels from node to node of the grid of S
ROUGH = 4            # the same for small changes of tails
APART = 1.6          # distance of the bins for which S is computed, in units of the grid's
FADE = 0.7           # share of the radius from which on a tail fades out
NEAR = 12.0          # least distance in pixels from a spot's centre beyond which S is T
Window = tuple[int, int, int, int]
Place = tuple[tuple[int, int], Array]


@dataclass(frozen=True)
class Piece:
    """A part of a bundle's model: light (rows, columns), float32, from CCD pixel `corner` (y, x) on."""

    light: np.ndarray
    corner: tuple[int, int]


def overlap(one: Window, other: Window) -> Window:
    """What two windows (y0, x0, rows, columns) share; rows or columns are 0 or less where they are apart."""
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


def add_tails(light: Array, corner: tuple[int, int], psf: PsfModel, place: Place, strengths: Array,
              radius: float) -> None:
    """Add the tails of a bundle's spots beyond their stamps to the image of a window, in place, pixel by pixel.

    corner: CCD pixel of light[0, 0]; place: (fibres, wave) of the spots
    strengths: (nfibre, nwave) photons times the stamp's normalisation
    radius: pixels from a spot's centre at which its tail ends; it fades from FADE of the radius on
    """
    if psf.tail is not None and strengths.size > 0:
        _add(light, corner, psf, place, strengths, _beyond(psf.tail, place, NODES, radius))


def tails_of(psf: PsfModel, place: Place, strengths: Array, radius: float, window: Window,
             every: int = EVERY) -> Piece:
    """The tails of a bundle's spots on a window and around it, as far as they reach, for a PSF that has tails.

    every: pixels from node to node of the smooth part
    place, strengths, radius: see add_tails

    The result differs from that of add_tails by a share of a tail's height NEAR pixels from its centre, and by less
    farther away. The share is 1 % with EVERY. It is a sixth with ROUGH, which takes half of the time.
    """
    far = math.ceil(radius)
    corner, light = (window[0] - far, window[1] - far), np.zeros((window[2] + 2 * far, window[3] + 2 * far))
    near = nearest(psf)
    if FADE * radius <= near:
        add_tails(light, corner, psf, place, strengths, radius)
    elif psf.tail is not None and strengths.size > 0:
        join = (near * scales_of(psf.tail, place).min()) ** 2
        tail, step = _tables(psf.tail, place, FEW, radius, near)
        smooth, _ = _tables(psf.tail, place, FEW, radius, near, join)
        _add(light, corner, psf, place, strengths, (np.hstack([tail - smooth, -smooth]), step, near))
        few, strengths = _fewer(psf, place, strengths, every)
        tails = _beyond(psf.tail, few, FEW, radius, join)
        _on_grid(light, corner, every,
                 lambda grid, at: _add(grid, at, psf, few, strengths, tails, every, stamped=False))
    return Piece(light.astype(np.float32), corner)


def _add(light: Array, corner: tuple[int, int], psf: PsfModel, place: Place, strengths: Array,
         tails: tuple[Array, float, float], every: int = 1, stamped: bool = True) -> None:
    """Add tails to an image that holds every n-th pixel of every n-th row, with n = `every`.

    tails: tables as simd_pixels.add_tails takes them, the distance between their nodes, and the radius
    stamped: whether pixels of a stamp take the second half of its table
    """
    wave, (tables, step, radius) = place[1], tails
    if psf.tail is None:
        return
    centre, scales, first, amplitude = sources_of(psf, psf.tail, place, corner, every)
    group = np.arange(len(wave)) // STRETCH + np.arange(len(centre[0]))[:, None] * -(-len(wave) // STRETCH)
    sources = np.stack([*centre, strengths * amplitude, group, *scales, *first,
                        np.full(group.shape, float(stamped))]).reshape(9, -1)
    (y, x), radius = sources[:2], radius / every
    reaches = ((y > -radius) & (y < light.shape[0] + radius) & (x > -radius) & (x < light.shape[1] + radius)
               & (sources[2] != 0.0))
    simd_pixels.add_tails(light, np.ascontiguousarray(sources[:, reaches]), tables,
                          (float(radius), step, psf.stamp[0] / every, psf.stamp[1] / every))


def sources_of(psf: PsfModel, tail: Tail, place: Place, corner: tuple[int, int],
               every: int) -> tuple[Array, Array, Array, Array]:
    """What the kernel needs of spots: centre, squared scales and first pixel along y and x, and the tail's amplitude.

    Each is (nfibre, nwave). Positions count from CCD pixel `corner`, in steps of `every` pixels.
    """
    centre = centres(psf, *place)
    origin = np.array(corner, dtype=float)[:, None, None]
    return ((centre - origin) / every, np.square(scales_of(tail, place)) * every**2,
            (corners(psf, centre) - origin) / every, evaluate(tail.amp, *place))


def _on_grid(light: Array, corner: tuple[int, int], every: int,
             add: Callable[[Array, tuple[int, int]], None]) -> None:
    """Add to an image what `add` puts on a grid of every n-th pixel around it, n = `every`, and cubics between."""
    grid = np.zeros([(n - 1) // every + 4 for n in light.shape])
    add(grid, (corner[0] - every, corner[1] - every))
    simd_pixels.enlarge(light, grid, cubic(np.arange(every) / every))


def cubic(share: Array) -> Array:
    """(n, 4) weights of values at -1, 0, 1, 2 in the cubic through them, at `share` of the way from 0 to 1."""
    s = share[:, None]
    return np.concatenate([-s * (s - 1) * (s - 2) / 6, (s + 1) * (s - 1) * (s - 2) / 2, -(s + 1) * s * (s - 2) / 2,
                           (s + 1) * s * (s - 1) / 6], axis=1)


def _fewer(psf: PsfModel, place: Place, strengths: Array, every: int) -> tuple[Place, Array]:
    """Fewer spots, and their strengths, with the same smooth light on nodes `every` pixels apart.

    The sum is the same for light that is a cubic along the trace.
    """
    few, together = few_of(psf, place, every)
    if together == 1:
        return place, strengths
    weights, out = cubic(np.arange(together) / together), np.zeros((len(strengths), len(few[1])))
    for k in range(4):
        for first in range(together):
            part = strengths[:, first::together] * weights[first, k]
            out[:, k:k + part.shape[1]] += part
    return few, out


def few_of(psf: PsfModel, place: Place, every: int) -> tuple[Place, int]:
    """The place of these spots, the first a step before the first bin, and how many bins apart; 1: all spots."""
    fibres, wave = place
    if len(wave) < 2:
        return place, 1
    step = (wave[-1] - wave[0]) / (len(wave) - 1)
    pitch = np.abs(np.diff(centres(psf, fibres, wave[[0, -1]])[0])).max() / (len(wave) - 1)
    together = int(APART * every / max(pitch, 1e-3))
    if together < 2 or together > len(wave):
        return place, 1
    return (fibres, wave[0] + step * together * (np.arange((len(wave) - 1) // together + 4) - 1.0)), together


def nearest(psf: PsfModel) -> float:
    """Pixels from a spot's centre up to which T is not S: NEAR, or more where the stamp reaches farther."""
    sides = (max(offset + 1.0, size - offset) for size, offset in zip(psf.stamp, psf.offset, strict=True))
    return max(NEAR, math.hypot(*sides))


def scales_of(tail: Tail, place: Place) -> Array:
    """(2, nfibre, nwave) scales of a tail along y and x."""
    return np.stack([evaluate(series, *place) for series in (tail.yscale, tail.xscale)])


def _tables(tail: Tail, place: Place, nodes: int, radius: float, most: float,
            join: float = 0.0) -> tuple[Array, float]:
    """The tail with amplitude 1 against r2, for each fibre and stretch of bins, and the distance between nodes.

    radius: pixels at which the tail ends; most: pixels up to which the table reaches
    join: r2 below which the table has the Taylor polynomial around it
    """
    step, end = rulers(tail, place, nodes, radius, most)
    r2: Array = step * np.arange(nodes, dtype=np.float64)
    core, power = forms(tail, place)
    found: Array = r2 / (core + r2) ** power
    inside = r2 < join
    if inside.any():
        found[:, inside] = _taylor(r2[inside] - join, core, power, join)
    found *= _fading(r2, end)
    return found, step


def rulers(tail: Tail, place: Place, nodes: int, radius: float, most: float) -> tuple[float, float]:
    """Of such tables the distance between nodes, in r2, and the radius, in r."""
    scales = scales_of(tail, place)
    return 1.05 * (float(scales.max()) * most) ** 2 / (nodes - 2), float(scales.min()) * radius


def forms(tail: Tail, place: Place) -> tuple[Array, Array]:
    """The squared core and the power of the tail in the middle of each stretch: (stretches of all fibres, 1)."""
    fibres, wave = place
    middle = fibres, wave[np.minimum(np.arange(0, len(wave), STRETCH) + STRETCH // 2, len(wave) - 1)]
    core, index = (evaluate(series, *middle).reshape(-1, 1) for series in (tail.core, tail.index))
    return core**2, 1.0 + index / 2.0


def _beyond(tail: Tail, place: Place, nodes: int, radius: float, join: float = 0.0) -> tuple[Array, float, float]:
    """Tables of tails up to their radius, 0 on the stamps, as `_add` takes them; join: see _tables."""
    tables, step = _tables(tail, place, nodes, radius, radius, join)
    return np.hstack([tables, np.zeros_like(tables)]), step, radius


def _fading(r2: Array, radius: float) -> Array:
    """1 up to FADE of a radius and 0 from the radius on, with three continuous derivatives."""
    s = np.clip((radius**2 - r2) / (1.0 - FADE**2) / radius**2, 0.0, 1.0)
    return s**4 * (35.0 - s * (84.0 - s * (70.0 - 20.0 * s)))


def _taylor(beside: Array, core: Array, power: Array, join: float) -> Array:
    """The Taylor polynomial of r2 (core + r2)^-power around r2 = join, of third degree; beside: r2 - join.

    r2 (core + r2)^-power = (core + r2)^(1 - power) - core (core + r2)^-power
    """
    total = np.zeros(np.broadcast_shapes(core.shape, beside.shape))
    one, other = (core + join) ** (1.0 - power), -core * (core + join) ** -power
    for k in range(4):
        total += (one + other) * beside**k / math.factorial(k)
        one, other = -one * (power - 1.0 + k) / (core + join), -other * (power + k) / (core + join)
    return total
