"""Tails of a piece's spots: tables for the kernels of text/tails.h, made once for a PSF, by the rules of crosstalk."""
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpu_extract.bundle import Job
from gpu_extract.data import Array
from gpu_extract.device.cuda.text import tails
from gpu_extract.device.geometry import BundleGeometry
from gpu_extract.errors import InternalError
from gpu_extract.passes import crosstalk


@dataclass(frozen=True)
class Layer:
    """A part of all tails: from some sources, on some pixels, up to a distance.

    every: pixels from node to node, 1 for all pixels; nodes: of a table; reach: pixels from a source
    stamped: whether the sources are spots, which have stamps
    parts: factors in a table: of the tail and of its smooth part beyond the stamp, and of the smooth part on the stamp
    taps: sources to which a bin contributes; count: largest number of sources of a fibre
    """

    every: int
    nodes: int
    reach: float
    stamped: bool
    parts: tuple[float, float, float]
    taps: int
    count: int

    @property
    def stretches(self) -> int:
        """Tables of a fibre."""
        return -(-self.count // tails.STRETCH)

    def grid(self, window: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns of nodes for a window."""
        rows, columns = window if self.every == 1 else (((n - 1) // self.every + 4) for n in window)
        return rows, columns


@dataclass(frozen=True)
class Tails:
    """The layers of tails: of all pixels; of the smooth part, once for tails and once for changes of them.

    window: rows and columns that hold every bundle's pixels with tails; far: pixels beyond the cut-out on each side
    """

    layers: tuple[Layer, ...]
    window: tuple[int, int]
    far: int


def reach_of(job: Job) -> int:
    """Distance in pixels that tails reach beyond a bundle's pixels."""
    return 0 if job.psf.tail is None else math.ceil(job.config.tail_radius)


def tails_of(job: Job, geometries: Sequence[BundleGeometry], known: Sequence[BundleGeometry]) -> Tails | None:
    """The tails of some bundles; None if there are none. known: all bundles whose tails are kept."""
    psf, radius, nwave = job.psf, job.config.tail_radius, len(job.plan.extended)
    if psf.tail is None or radius == 0:
        return None
    far, near = reach_of(job), crosstalk.nearest(psf)
    window = np.array([geometry.cut[2:] for geometry in known]).max(axis=0) + 2 * far
    if crosstalk.FADE * radius <= near:
        layers: tuple[Layer, ...] = (Layer(1, crosstalk.NODES, radius, True, (1.0, 0.0, 0.0), 1, nwave),)
    else:
        few = {every: max(len(crosstalk.few_of(psf, (geometry.fibres, job.plan.extended), every)[0][1])
                          for geometry in geometries) for every in (crosstalk.EVERY, crosstalk.ROUGH)}
        layers = (Layer(1, crosstalk.FEW, near, True, (1.0, -1.0, -1.0), 1, nwave),
                  *(Layer(every, crosstalk.FEW, radius, False, (0.0, 1.0, 0.0), 4, most)
                    for every, most in few.items()))
    return Tails(layers, (int(window[0]), int(window[1])), far)


def tables_of(job: Job, geometries: Sequence[BundleGeometry], layer: Layer, every: Tails) -> dict[str, np.ndarray]:
    """Tables of a layer for a piece's bundles: sources, their ranges, forms and rulers of tails, weights of bins."""
    sources, ranges, shapes, of_tables, weights = zip(*(_of_bundle(job, geometry, layer, every)
                                                        for geometry in geometries), strict=True)
    together = np.array([len(one) for one in weights], dtype=np.int64)
    return {"sources": np.concatenate(sources, axis=1), "ranges": np.concatenate(ranges, axis=1).astype(np.int32),
            "shapes": np.stack(shapes), "rulers": np.stack(of_tables), "together": together,
            "weights": np.stack([np.pad(one, ((0, max(together) - len(one)), (0, 0))) for one in weights])}


def _of_bundle(job: Job, geometry: BundleGeometry, layer: Layer,
               every: Tails) -> tuple[Array, np.ndarray, Array, Array, Array]:
    """The same for one bundle: sources, ranges, forms, rulers, and weights (bins of a source, taps)."""
    psf, tail = job.psf, job.psf.tail
    whole: crosstalk.Place = geometry.fibres, job.plan.extended
    place, weights = whole, np.ones((1, 1))
    if not layer.stamped:
        place, together = crosstalk.few_of(psf, whole, layer.every)
        weights = crosstalk.cubic(np.arange(together) / together) if together > 1 else np.array([[1.0, 0.0, 0.0, 0.0]])
    if tail is None:
        raise InternalError("a PSF without tails has no layers of them")
    edge = every.far + (layer.every if layer.every > 1 else 0)
    corner = int(geometry.cut[0]) - edge, int(geometry.cut[1]) - edge
    centre, scales, first, amplitude = crosstalk.sources_of(psf, tail, place, corner, layer.every)
    nodes = np.arange(layer.grid(every.window)[0])
    ranges = np.stack([_range(y, nodes, layer.reach / layer.every) for y in centre[0]], axis=1)
    form = np.concatenate(crosstalk.forms(tail, place), axis=1).reshape(len(amplitude), -1, 2)
    radius = job.config.tail_radius
    node, end = crosstalk.rulers(tail, place, layer.nodes, radius, layer.reach)
    join = (crosstalk.nearest(psf) * float(crosstalk.scales_of(tail, whole).min())) ** 2 if layer.parts[1] else 0.0
    sources = np.stack([*centre, *scales, *first, amplitude])
    return (np.pad(sources, ((0, 0), (0, 0), (0, layer.count - sources.shape[2]))), ranges,
            np.pad(form, ((0, 0), (0, layer.stretches - form.shape[1]), (0, 0)), constant_values=1.0),
            np.array([node, join, end**2]), weights)


def _range(y: Array, rows: np.ndarray, reach: float) -> np.ndarray:
    """(2, rows) first and last + 1 of the sources along a trace that reach each row."""
    up = bool(y[-1] >= y[0])
    rising = y if up else y[::-1]
    first, last = np.searchsorted(rising, rows - reach, "left"), np.searchsorted(rising, rows + reach, "right")
    return np.stack([first, last] if up else [len(y) - last, len(y) - first])
