"""What a slot of the device holds while it works on a piece: every array, its shape and its bytes, in one place."""
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpu_extract.backend.cuda.gradients import STATE, VECTORS
from gpu_extract.backend.cuda.normal import PARTS
from gpu_extract.backend.cuda.piece import PieceShape
from gpu_extract.backend.cuda.seam import Device, DeviceArray
from gpu_extract.gpu_frame.geometry import PsfTables

Arrays = Mapping[str, tuple[tuple[int, ...], Any]]      # name -> (shape, dtype)


@dataclass(frozen=True)
class Sizes:
    """What all pieces of a job have in common.

    stamp: (ny, nx) of a spot; cut: (rows, columns) that hold every bundle's cut-out; pixels: most pixels of one
    dtype: of the images, float32 or float64, in the host's byte order
    nseries: numbers of a bin; nprofile, nmixed: of its profiles and their mixture, for the larger core
    model: whether the model image is wanted
    """

    stamp: tuple[int, int]
    cut: tuple[int, int]
    pixels: int
    dtype: Any
    nseries: int
    nprofile: int
    nmixed: int
    model: bool


def sizes_of(stamp: tuple[int, int], cuts: np.ndarray, tables: PsfTables, dtype: Any, *, model: bool) -> Sizes:
    """Sizes for cut-outs (nbundle, 4) and a PSF."""
    ny, nx = stamp
    rows, columns = cuts[:, 2:].max(axis=0)
    return Sizes(stamp, (int(rows), int(columns)), int(cuts[:, 2:].prod(axis=1).max()), np.dtype(dtype),
                 tables.series.shape[1], max(t.nj * ny + t.ni * nx for t in tables.cores),
                 max(t.nj * nx for t in tables.cores), model)


def input_arrays(shape: PieceShape, sizes: Sizes) -> Arrays:
    """What comes up."""
    return {"pixels": ((shape.bundles, 2, sizes.pixels), sizes.dtype), "cuts": ((shape.bundles, 4), np.int64),
            "y0": ((shape.fibres, shape.nwave), np.int32), "x0": ((shape.fibres, shape.nwave), np.int32)}


def work_arrays(shape: PieceShape, sizes: Sizes) -> Arrays:
    """What lives on the device alone; numbers, profiles and mixed serve one bundle after another."""
    f, nwave, lanes = shape.fibres, shape.nwave, sizes.stamp[0] * sizes.stamp[1]
    pixels, one = (shape.bundles, sizes.cut[1], sizes.cut[0]), shape.nfibre
    double, bins = np.float64, (f, nwave)
    return {
        "root": (pixels, double), "light": (pixels, double), "chi": (pixels, double), "good": (pixels, double),
        "numbers": ((one, sizes.nseries, nwave), double), "profiles": ((one, sizes.nprofile, nwave), double),
        "mixed": ((one, sizes.nmixed, nwave), double),
        "white": ((f, lanes, nwave), double), "single": ((f, lanes, nwave), np.float32),
        "ranges": ((2, f, sizes.cut[0]), np.int32), "sums": ((2, *bins), double), "rhs": (bins, double),
        "weak": (bins, np.int8), "x": (bins, double),
        "icov": ((f, shape.nd, 2 * shape.hw + 1, nwave), double),
        "factor": ((nwave, shape.hw + 1, f), double), "vectors": ((VECTORS, *bins), double),
        "parts": ((f, PARTS), double), "dots": ((f,), double), "curvatures": ((f,), double),
    }


def output_arrays(shape: PieceShape, sizes: Sizes) -> Arrays:
    """What goes down; state: of the conjugate gradients, regularised: bins of each fibre, model: (columns, rows)."""
    kept = shape.fibres, shape.nout
    model = {"model": ((shape.bundles, sizes.cut[1], sizes.cut[0]), np.float64)} if sizes.model else {}
    return {**model, "flux": (kept, np.float64), "ivar": (kept, np.float64),
            "resolution": ((shape.fibres, 2 * shape.ndiag + 1, shape.nout), np.float64),
            "status": (kept, np.int8), "chi2pix": (kept, np.float64), "fraction": (kept, np.float64),
            "state": ((shape.bundles, STATE), np.float64), "regularised": ((shape.fibres,), np.float64)}


def nbytes(arrays: Arrays) -> int:
    """Bytes of all of them."""
    return sum(bytes_of(*array) for array in arrays.values())


def bytes_of(shape: tuple[int, ...], dtype: Any) -> int:
    """Bytes of one array."""
    return prod(shape) * np.dtype(dtype).itemsize


class Slot:
    """Device memory for one piece at a time, large enough for any of `plans`, and views of it."""

    def __init__(self, device: Device, plans: list[Arrays]):
        self._raw: dict[str, DeviceArray] = {}
        for name in plans[0]:
            self._raw[name] = device.empty((max(bytes_of(*plan[name]) for plan in plans),), np.uint8)
        self._views: dict[PieceShape, SimpleNamespace] = {}

    def views(self, shape: PieceShape, arrays: Arrays) -> SimpleNamespace:
        """The arrays of a piece of this shape, by name; the same ones for the same shape."""
        if shape not in self._views:
            made = {name: self._raw[name].seen_as(*array) for name, array in arrays.items()}
            self._views[shape] = SimpleNamespace(**made)
        return self._views[shape]
