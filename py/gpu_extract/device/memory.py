"""The arrays of a slot of device memory, with their shapes and types."""
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from gpu_extract.assemble import rooms
from gpu_extract.device.cuda.lanes import places_of, tiles_of
from gpu_extract.device.cuda.piece import PieceShape
from gpu_extract.device.cuda.seam import Device, DeviceArray
from gpu_extract.device.cuda.text import gradients, image, normal, quality
from gpu_extract.device.geometry import LINE, BundleGeometry, PsfTables

ALIGN = 64
UNSEEN, GIVEN_UP, BEYOND = 0, 1, 2      # counts of a fibre's bins: removed by normal.give_up; given up by the core;
                                        # with several passes, those with an x of which no model can be made
Arrays = Mapping[str, tuple[tuple[int, ...], Any]]      # name -> (shape, dtype)


@dataclass(frozen=True)
class Sizes:
    """Sizes and types that all pieces of a job have in common.

    stamp: (ny, nx) of a spot; cut: (rows, columns) that hold every bundle's cut-out; pixels: most uploaded per bundle
    dtype: of the images, float32 or float64, in the host's byte order; kept: of the frame, float32 or float64
    nseries: numbers of a bin
    model: whether the model image is requested; several: whether there are several passes
    """

    stamp: tuple[int, int]
    cut: tuple[int, int]
    pixels: int
    dtype: Any
    kept: Any
    nseries: int
    model: bool
    several: bool = False


def sizes_of(stamp: tuple[int, int], bundles: Sequence[BundleGeometry], tables: PsfTables, *, dtypes: tuple[Any, Any],
             model: bool, several: bool = False) -> Sizes:
    """Sizes for bundles and a PSF; dtypes: of the images and of the frame; model, several: see Sizes."""
    rows, columns = np.array([bundle.cut[2:] for bundle in bundles]).max(axis=0)
    pixels = -(-max(bundle.pixels for bundle in bundles) // LINE) * LINE
    return Sizes(stamp, (int(rows), int(columns)), pixels, np.dtype(dtypes[0]), np.dtype(dtypes[1]),
                 tables.series.shape[1], model, several)


def work_arrays(shape: PieceShape, sizes: Sizes) -> Arrays:
    """The pixels, which are uploaded with every frame, and the arrays that exist on the device alone."""
    f, nwave, stamp = shape.fibres, shape.nwave, sizes.stamp
    pixels, spots = (shape.bundles, sizes.cut[1], sizes.cut[0]), (f, prod(stamp) * places_of(nwave))
    double, bins, kept = np.float64, (f, nwave), (f, shape.nout)
    return {
        "pixels": ((shape.bundles, 2, sizes.pixels), sizes.dtype),
        "looked": ((shape.bundles, image.SEEN, image.LOOKERS), double),
        "glimpsed": ((shape.bundles, image.SEEN, image.GLIMPSES), double),
        "root": (pixels, double), "light": (pixels, double), "chi": (pixels, double),
        "near": ((shape.bundles, -(-sizes.cut[1] // quality.ABREAST), sizes.cut[0]), np.int32),
        "numbers": ((f, sizes.nseries, nwave), double), "scale": (bins, double),
        "white": (spots, double), "single": (spots, np.float32),
        "ranges": ((2, f, sizes.cut[0]), np.int32), "sums": ((2, *bins), double), "rhs": (bins, double),
        "given_up": (bins, np.int8), "x": (bins, double), "lit": (bins, double), "origins": (bins, np.int64),
        "icov": ((f, shape.nd, 2 * shape.hw + 1, nwave), double),
        "low": ((nwave * (shape.hw + 1) * f,), double), "vectors": ((gradients.VECTORS, *bins), double),
        "halo": ((tiles_of(nwave) * f,), np.int32), "gate": ((f,), np.int32),
        "parts": ((f, normal.PARTS), double), "dots": ((f,), double), "curvatures": ((f,), double),
        "flux": (kept, double), "ivar": (kept, double), "status": (kept, np.int8), "fraction": (kept, double),
        "resolution": ((f, 2 * shape.ndiag + 1, shape.nout), double),
        "middles": ((2, f), double),
    }


def kept_arrays(fibres: int, nwave: int) -> Arrays:
    """The arrays of all fibres of the rank that stay on the device until the next frame. The CPU needs them when it
    takes over a fibre, since the mask of a bundle depends on all of its fibres; bits: mask bits except BAD2DFIT."""
    return {"chi2pix": ((fibres, nwave), np.float64), "bits": ((fibres, nwave), np.uint32)}


def told_arrays(shape: PieceShape, sizes: Sizes) -> Arrays:
    """The report of a piece, which is downloaded beside its rows; state: of the conjugate gradients; counts: of bins of
    each fibre; seen: extremes of the pixels (image.look); model: (rows, columns)."""
    model = {"model": ((shape.bundles, *sizes.cut), np.float64)} if sizes.model else {}
    return {**model, "state": ((shape.bundles, gradients.STATE), np.float64),
            "counts": ((3 if sizes.several else 2, shape.fibres), np.float64),
            "seen": ((shape.bundles, image.SEEN), np.float64)}


def piece_rows(shape: PieceShape, sizes: Sizes) -> Arrays:
    """The rows of the frame that a piece makes, on the device."""
    return {f"to_{name}": array for name, array in rooms(shape.fibres, shape.nout, shape.ndiag, sizes.kept).items()}


def in_one_block(arrays: Arrays) -> tuple[dict[str, int], int]:
    """The first byte of each array in one block, and the bytes of the block."""
    places, size = {}, 0
    for name, array in arrays.items():
        places[name] = size
        size += -(-bytes_of(*array) // ALIGN) * ALIGN
    return places, size


def bytes_of(shape: tuple[int, ...], dtype: Any) -> int:
    """Bytes of one array."""
    return prod(shape) * np.dtype(dtype).itemsize


def tables_on(device: Device, tables: Mapping[str, np.ndarray]) -> dict[str, DeviceArray]:
    """Upload tables, and wait until they are there."""
    stream, found = device.stream(), {}
    staged = {name: device.pinned(table.shape, table.dtype) for name, table in tables.items()}
    for name, table in tables.items():
        staged[name][...] = table
        found[name] = device.empty(table.shape, table.dtype)
        device.upload(staged[name], found[name], stream)
    device.finish(device.record(stream))
    return found


def tables_from(device: Device, arrays: Mapping[str, DeviceArray], stream: Any) -> dict[str, np.ndarray]:
    """Device arrays by name, copied to the host; waits for them and everything queued on the stream before."""
    found = {}
    for name, source in arrays.items():
        found[name] = device.pinned(source.shape, source.dtype)
        device.download(source, found[name], stream)
    device.finish(device.record(stream))
    return found


class Slot:
    """Device memory for one piece, or one core, at a time, large enough for any of `plans`, and views of it."""

    def __init__(self, device: Device, plans: Sequence[Arrays]):
        names = {name: None for plan in plans for name in plan}      # in their order
        self._raw = {name: device.empty((max(bytes_of(*plan[name]) for plan in plans if name in plan),), np.uint8)
                     for name in names}

    def views(self, arrays: Arrays) -> dict[str, DeviceArray]:
        """The arrays of one of the plans, by name."""
        return {name: self._raw[name].seen_as(*array) for name, array in arrays.items()}
