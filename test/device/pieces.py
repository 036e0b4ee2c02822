"""Pieces of frames on a device, made of bundles of normal equations, and the results of a core of the device."""
from collections.abc import Sequence
from typing import Any

import numpy as np

from decorrelate.cases import Bundle
from gpu_extract.data import Decorrelated
from gpu_extract.device.cuda.lanes import tile_of, tiles_of
from gpu_extract.device.cuda.piece import PieceNormal, PieceOut, PieceShape
from gpu_extract.device.cuda.text import names, sweeps
from gpu_extract.seams import NULL


def shape_of(bundles: Sequence[Bundle], inner: slice, ndiag: int) -> PieceShape:
    """The shape of a piece of these bundles."""
    nfibre, nd, nwave, width = bundles[0].normal.icov.shape
    return PieceShape(len(bundles), nfibre, nd, width // 2, nwave, inner.start, inner.stop, ndiag)


def known(lanes: int, **values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Facts and flags of this many fibres; only the named ones are known."""
    facts, flags = np.full((len(names("Fact")), lanes), np.nan), np.full((len(names("Flag")), lanes), -99, np.int32)
    for name, value in values.items():
        if name in names("Fact"):
            facts[names("Fact").index(name)] = value
        else:
            flags[names("Flag").index(name)] = value
    return facts, flags


def edges(s: np.ndarray, u: np.ndarray, factor: float) -> tuple[np.ndarray, float]:
    """Questions (5, 8, 5) about S - c, S + b U and S - (1 - g) diag(S), BOUND 2, definite if `factor` is below 1,
    exactly as eigenvalues say; and the least eigenvalue of S."""
    diagonal, least = np.diag(s), np.linalg.eigvalsh(s)[0]
    most = 1 / np.linalg.eigvals(np.linalg.solve(s, u)).real.max()
    scaled = np.linalg.eigvalsh(s / np.sqrt(np.outer(diagonal, diagonal)))[0]
    asked = np.zeros((5, 8, 5))
    asked[:, :3, :3] = ((0.0, least * factor / 2.0, 1.0), (-most * factor, 0.0, 1.0), (0.0, 0.0, 1.0 - scaled * factor))
    asked[4, 1, 0] *= 2         # U of farther fibres is half of U
    return asked, float(least)


def upload(device: Any, array: np.ndarray, stream: Any) -> Any:
    """The array on the device."""
    staged = device.pinned(array.shape, array.dtype)
    staged[...] = array
    there = device.empty(array.shape, array.dtype)
    device.upload(staged, there, stream)
    return there


def factors(device: Any, icov: Any, stream: Any) -> tuple[Any, Any]:
    """Factors of the fibres' own blocks, and their halos."""
    fibres, nd, width, nwave = icov.shape
    hw, tile, lanes = width // 2, tile_of(nwave), tiles_of(nwave) * fibres
    low, halo = device.empty((nwave * (hw + 1) * fibres,)), device.empty((lanes,), np.int32)
    matrix = icov, 0, hw * nwave, nd * width * nwave, 1, nwave, nwave, tile, fibres
    device.launch(sweeps.settle.sized(hw), lanes, (halo, None, *matrix), stream)
    device.launch(sweeps.factor.sized(hw), lanes, (low, halo, None, *matrix), stream)
    return low, halo


def decorrelate(device: Any, core: Any, bundles: Sequence[Bundle], inner: slice, ndiag: int, *,
                recorder: Any = NULL) -> Decorrelated:
    """All fibres of the bundles, by a core made for their shape."""
    stream = device.stream()
    icov, weight, x = (np.concatenate(arrays) for arrays in (
        [b.normal.icov.transpose(0, 1, 3, 2) for b in bundles], [b.normal.weight for b in bundles],
        [np.where(b.normal.weight > 0, b.x, 0.0) for b in bundles]))
    there = [upload(device, np.ascontiguousarray(array), stream) for array in (icov, weight, x)]
    fibres, nout = len(x), inner.stop - inner.start
    normal = PieceNormal(*there, *factors(device, there[0], stream))
    out = PieceOut(device.empty((fibres, nout)), device.empty((fibres, nout)),
                   device.empty((fibres, 2 * ndiag + 1, nout)), device.empty((fibres, nout), np.int8))
    core.run(normal, out, stream, recorder)
    arrays = []
    for made in (out.flux, out.ivar, out.resolution, out.status):
        arrays.append(device.pinned(made.shape, made.dtype))
        device.download(made, arrays[-1], stream)
    device.finish(device.record(stream))
    return Decorrelated(*arrays, np.zeros((fibres, nout), dtype=bool))
