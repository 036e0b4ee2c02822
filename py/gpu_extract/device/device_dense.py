"""The dense core on a device: every fibre by itself in patches of one shape, many at once.

As decorrelate.dense: Cholesky of a patch with its neighbours first, whose last block L gives S = C_ii^-1 = L L^T. Its
square root comes from the eigenvectors of S, for which a batched solver exists, and not from those of C_ii, where a bin
that sees little would drown all others in its rounding: in S such a bin is a small number. Against the singular
values of L, which the CPU takes, the weakest bins lose digits as their share of the largest element of S, the
others none.

PATCHES matrices go through the library at a time, always as many, so that no result depends on how much is done at
once. A patch that fails (a code of the library, a residual, neighbours that do not suffice beside a mask, pivots so
small that bins may be weak) is FAILED: the CPU's core does its fibre.
"""
from functools import partial
from typing import Any

import numpy as np

from gpu_extract.decorrelate.dense import Cuts
from gpu_extract.device.cuda import decide, matrices, measure, patches
from gpu_extract.device.cuda.piece import PieceNormal, PieceOut, PieceShape
from gpu_extract.device.cuda.seam import Device, Empty
from gpu_extract.plan import enough_neighbours
from gpu_extract.seams import Recorder

PATCHES = 256
AGREEMENT = 1e-8     # of the squares of Q with S


def closest_allowed(neighbours: int, tolerance: float) -> float:
    """The largest correlation with the next fibre for which so many neighbours on each side are enough."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if enough_neighbours(np.array([middle]), tolerance) <= neighbours else (low, middle)
    return low


def layout(shape: PieceShape, cuts: Cuts, fibres: int, count: int) -> np.ndarray:
    """The numbers of device.cuda.patches for a piece of so many fibres; count: patches at a time."""
    first, last = cuts.inner.start, cuts.inner.stop
    bins = -(-(min(cuts.step, last - first) + 2 * cuts.pad) // patches.ALIGN + 1) * patches.ALIGN
    tiles = -(-(last - first) // cuts.step)
    where = np.zeros(patches.LAYOUT, dtype=np.int64)
    where[[patches.BINS, patches.AROUND, patches.STEP, patches.PAD]] = (
        min(bins, -(-shape.nwave // patches.ALIGN) * patches.ALIGN), min(cuts.neighbours, shape.nfibre - 1),
        cuts.step, cuts.pad)
    where[[patches.FIRST, patches.LAST, patches.TILES, patches.NFIBRE]] = first, last, tiles, shape.nfibre
    where[[patches.BATCH, patches.TOTAL]] = count, tiles * fibres
    return where


class DenseCore:
    """Decorrelates pieces of one shape; its work arrays are made once.

    count: patches at a time; room: gives memory for the arrays, None: the device
    Raises what the device raises where memory is exhausted.
    """

    captured = False

    def __init__(self, device: Device, shape: PieceShape, cuts: Cuts, *, count: int = PATCHES,
                 room: Empty | None = None):
        self._device, self._cuts, self._count = device, cuts, count
        self._where = where = layout(shape, cuts, shape.fibres, count)
        bins, size = int(where[patches.BINS]), int(where[patches.BINS] * (2 * where[patches.AROUND] + 1))
        self._closest = closest_allowed(cuts.neighbours, cuts.tolerance)
        shapes = {"matrices": (count, size, size), "tails": (count, bins, bins), "roots": (count, bins, bins),
                  "sides": (2, count, bins), "made": (2, count, bins), "wanted": (2, count, bins),
                  "values": (count, bins), "diagonal": (count, bins), "errors": (count, bins)}
        empty = room or device.empty
        self._arrays = {name: empty(s) for name, s in shapes.items()}
        self._arrays |= {"codes": empty((2, count), np.int32), "flags": empty((count,), np.int32),
                         "where": device.empty(where.shape, np.int64)}
        self._factor_codes, self._eigen_codes = (self._arrays["codes"].part(n, n + 1) for n in range(2))
        stream, ready, staged = device.stream(), device.event(), device.pinned(where.shape, np.int64)
        staged[:] = where
        device.upload(staged, self._arrays["where"], stream)
        device.record(ready, stream)
        device.finish(ready)

    def run(self, normal: PieceNormal, out: PieceOut, stream: Any, recorder: Recorder) -> None:
        """Queue everything for one piece of the shape; nothing is waited for.

        recorder: times each batch of patches (perf.recorder)
        """
        for begin in range(0, int(self._where[patches.TOTAL]), self._count):
            with recorder.device_span("patches"):
                self._roots(normal, begin, stream)
                self._results(normal, out, begin, stream)

    def _launch(self, kernel: Any, count: int, *args: Any, stream: Any) -> None:
        values = tuple(self._arrays[arg] if isinstance(arg, str) else arg for arg in args)
        self._device.launch(kernel, count, values, stream)

    def _roots(self, normal: PieceNormal, begin: int, stream: Any) -> None:
        """Q of so many patches, in `tails`; what it must agree with in `wanted` and `diagonal`."""
        launch, a, algebra = partial(self._launch, stream=stream), self._arrays, self._device.linalg
        elements, rows = a["tails"].data.size, a["values"].data.size
        launch(patches.fill, a["matrices"].data.size, "matrices", normal.icov, "where", begin)
        launch(patches.sides, rows, "sides", normal.weight, normal.x, "where", begin)
        self._device.call(lambda: algebra.cholesky(a["matrices"].data, self._factor_codes.data[0]), stream)
        launch(patches.tail, elements, "tails", "matrices", "codes")
        launch(patches.secure, self._count, "codes", "tails", normal.icov, "where", begin)
        launch(matrices.outer, elements, "roots", "tails")
        launch(patches.decouple, self._count, "roots", "diagonal", "sides")
        launch(matrices.products, rows, "wanted", "roots", "sides")
        self._device.call(lambda: algebra.eigh(a["roots"].data, a["values"].data, self._eigen_codes.data[0]), stream)
        launch(matrices.roots, elements, "roots", "values")
        launch(matrices.inner, elements, "tails", "roots")

    def _results(self, normal: PieceNormal, out: PieceOut, begin: int, stream: Any) -> None:
        """The checks, and what is kept of so many patches."""
        launch, rows = partial(self._launch, stream=stream), self._arrays["values"].data.size
        kept = self._count * self._cuts.step
        launch(matrices.products, rows, "made", "tails", "sides")
        launch(matrices.squares, rows, "errors", "tails", "diagonal")
        launch(patches.verdict, self._count, "flags", "codes", "errors", "made", "wanted", "sides", normal.icov,
               "where", begin, self._closest, AGREEMENT)
        launch(patches.write, kept, out.flux, out.ivar, out.status, "made", "flags", "where", begin)
        launch(patches.diagonals, kept * out.resolution.shape[1], out.resolution, "tails", "made", "sides", "flags",
               "where", begin)


class NoCore:
    """Leaves every fibre to the CPU: for what the device has no way to do (several fibres in a patch)."""

    captured = True

    def __init__(self, device: Device, shape: PieceShape, *, room: Empty | None = None):
        self._device, self._fibres = device, shape.fibres
        self._flags = (room or device.empty)((measure.FLAGS * shape.fibres,), np.int32)

    def run(self, normal: PieceNormal, out: PieceOut, stream: Any, recorder: Recorder) -> None:
        """Mark all fibres FAILED, those without weight EMPTY."""
        self._device.launch(decide.give_up, self._fibres, (self._flags, normal.weight), stream)
        for array in (out.flux, out.ivar, out.resolution):
            self._device.clear(array, stream)
        self._device.launch(decide.marked, out.status.data.size, (out.status, self._flags), stream)
