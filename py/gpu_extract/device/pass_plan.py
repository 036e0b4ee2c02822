"""What two passes over a rank's bundles need: the light that is known, tables of the kernels, memory."""
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from gpu_extract.bundle import Job
from gpu_extract.device.cuda.piece import PieceShape
from gpu_extract.device.cuda.text import gradients, image, names, passes
from gpu_extract.device.geometry import BundleGeometry
from gpu_extract.device.memory import Arrays, Sizes
from gpu_extract.device.pass_tails import Tails, reach_of, tables_of, tails_of
from gpu_extract.normal import Cut
from gpu_extract.passes import outliers, variance
from gpu_extract.passes.crosstalk import Window, cubic, overlap
from gpu_extract.passes.outliers import known_rows
from gpu_extract.passes.read_noise import ReadNoise
from gpu_extract.passes.sides import own_columns

AMPLIFIERS = 4       # low and high y, low and high x
GATHERED = 64        # partial counts of a bundle that are added up at once


@dataclass(frozen=True)
class Passes:
    """What several passes over a rank's bundles need.

    known: all bundles whose light falls on the rank's pixels, its own included; numbers: of these in the frame
    tails: of their spots; keep_cosmics: no pixel is rejected; error: of the PSF, in the variance
    split: (y, x) at which the amplifiers meet; core: of spots, see spot_shape.Shape
    noise: type of the read noise if each pixel has its own; None if each amplifier has one
    """

    known: tuple[BundleGeometry, ...]
    numbers: tuple[int, ...]
    tails: Tails | None
    keep_cosmics: bool
    error: float
    split: tuple[int, int]
    noise: Any
    core: tuple[int, int]

    @property
    def far(self) -> int:
        """Pixels beyond a cut-out that tails reach."""
        return self.tails.far if self.tails else 0


def passes_of(job: Job, mine: Sequence[int], geometries: Sequence[BundleGeometry],
              others: Sequence[tuple[int, BundleGeometry]]) -> Passes | None:
    """What the passes of a job need; None for a single pass.

    mine, geometries: the rank's bundles; others: those of all other ranks
    """
    if job.noise is None:
        return None
    far = reach_of(job)
    near = [(n, other) for n, other in others if any(reaches(other, own, far) for own in geometries)]
    listed = sorted([*near, *zip(mine, geometries, strict=True)], key=lambda one: one[0])
    tails = tails_of(job, geometries, [one for _, one in listed])
    return Passes(tuple(one for _, one in listed), tuple(n for n, _ in listed), tails, job.config.keep_cosmics,
                  job.psferr if job.config.psferr_in_ivar else 0.0, job.noise.split, noise_type(job.noise),
                  job.shape.core)


def noise_type(noise: ReadNoise) -> Any:
    """The type in which pixels' read noise is uploaded; None if each amplifier has one number."""
    if noise.values.shape == (2, 2):
        return None
    return np.dtype(np.float32 if noise.values.dtype.kind == "f" and noise.values.dtype.itemsize == 4 else np.float64)


def reaches(one: BundleGeometry, other: BundleGeometry, far: int) -> bool:
    """Whether a bundle's light falls on pixels of another's cut-out."""
    return min(overlap(window_of(one, far), window_of(other))[2:]) > 0


def window_of(geometry: BundleGeometry, far: int = 0) -> Window:
    """Top, left, rows and columns of a bundle's pixels, or of those that its tails reach."""
    top, left, rows, columns = geometry.cut.tolist()
    return top - far, left - far, rows + 2 * far, columns + 2 * far


def frame_tables(job: Job, all_of: Passes) -> dict[str, np.ndarray]:
    """Tables that are the same for all pieces."""
    shape, error = job.shape, outliers.WRONG * job.psferr + job.shape.between
    errors = {name: getattr(outliers, name) for name in ("FAR", "PAIR", "STAY", "GROWN")}
    limits = {**errors, "LENIENT": outliers.LENIENT, "WRONG": error,
              **dict(zip(("UP", "ACROSS", "FALLING", "RISING"), shape.beside, strict=True))}
    first = limits | {name: outliers.FIRST * value for name, value in errors.items()}
    reach = max(max(one.shape.hw for one in all_of.known) + 1, max(variance.WIDTHS))
    turns = np.cos(np.pi * np.outer(np.arange(reach), (np.arange(variance.FREQUENCIES) + 0.5) / variance.FREQUENCIES))
    turns[1:] *= 2.0
    tables: dict[str, np.ndarray] = {"turns": turns, **{name: np.array([of[limit] for limit in names("Limit")[:-1]])
                                                        for name, of in (("limits", limits), ("first_limits", first))},
              "windows": np.array([window_of(one) for one in all_of.known]),
              "reaches": np.array([window_of(one, all_of.far) for one in all_of.known])}
    if all_of.tails:
        for layer in all_of.tails.layers:
            tables[f"cubic_{layer.every}"] = cubic(np.arange(layer.every) / layer.every)
    return tables


def piece_tables(job: Job, all_of: Passes, geometries: Sequence[BundleGeometry], mine: Sequence[int],
                 cut: tuple[int, int]) -> dict[str, np.ndarray]:
    """Tables of a piece, the same in every frame; mine: its bundles' numbers in the frame; cut: rows and columns."""
    ends, sides = (np.zeros((len(geometries), 2, size), dtype=np.int32) for size in cut[::-1])
    for rows, columns, one in zip(ends, sides, geometries, strict=True):
        top, left, high, wide = (int(n) for n in one.cut)
        nothing = np.broadcast_to(0.0, (high, wide))
        y0, x0 = (array.astype(np.int64) for array in one.corners)
        rows[:, :wide] = known_rows(Cut(nothing, nothing, top, left), y0, x0, job.psf.stamp, one.reach,
                                     max(one.rows, job.psf.shape[0]))
        columns[:, :high] = own_columns(job.psf, one.fibres, (top, left, high, wide), y0, x0)
    tables: dict[str, np.ndarray] = {"ends": ends, "sides": sides,
                                     "numbers_of": np.array([all_of.numbers.index(n) for n in mine], dtype=np.int64)}
    if all_of.tails:
        tables["corners"] = np.array([window_of(one, all_of.far)[:2] for one in geometries])
        for k, layer in enumerate(all_of.tails.layers):
            tables |= {f"{name}_{k}": table
                       for name, table in tables_of(job, geometries, layer, all_of.tails).items()}
    return tables


def noise_numbers(noise: ReadNoise) -> np.ndarray:
    """The read noise of the amplifiers, 0 if each pixel has its own."""
    return noise.values.ravel().astype(np.float64) if noise.values.shape == (2, 2) else np.zeros(AMPLIFIERS)


def pass_arrays(shape: PieceShape, sizes: Sizes, all_of: Passes) -> Arrays:
    """Work arrays of a piece."""
    pixels, bins, counted = (shape.bundles, sizes.cut[1], sizes.cut[0]), (shape.fibres, shape.nwave), passes.COUNTED
    arrays: dict[str, tuple[tuple[int, ...], Any]] = {
        "noises": ((AMPLIFIERS,), np.float64), "share": (bins, np.float64),
        "marks": (pixels, np.int8), "seeds": (pixels, np.int8), "lines": (bins, np.int8), "found": (bins, np.int8),
        "beyond": (bins, np.int8), "row": ((shape.fibres, shape.hw + 1), np.float64),
        "left": ((shape.fibres,), np.float64), **shared_arrays(shape),
        "tallies": ((shape.bundles, counted, image.LOOKERS), np.float64),
        "some_tallies": ((shape.bundles, counted, image.LOOKERS // GATHERED), np.float64),
        "tallied": ((shape.bundles, counted), np.float64)}
    if all_of.noise is not None:
        arrays["noise"] = (shape.bundles, sizes.pixels), all_of.noise
    if all_of.tails:
        layers, window = all_of.tails.layers, all_of.tails.window
        nodes = max((prod(one.grid(window)) for one in layers if one.every > 1), default=1)
        arrays |= {"change": (bins, np.float64), "bright": (bins, np.float64),
                   "tail_now": ((shape.bundles, *window[::-1]), np.float32),
                   "strengths": ((shape.fibres, max(layer.count for layer in layers)), np.float64),
                   "heights": ((shape.fibres * max(2 * one.stretches * one.nodes for one in layers),), np.float64),
                   "fine": ((shape.bundles, *window[::-1]), np.float64),
                   "grid": ((shape.bundles * nodes,), np.float64)}
    return arrays


def shared_arrays(shape: PieceShape) -> Arrays:
    """Work arrays for lines that all fibres of a bundle show."""
    bins, common, fibres = (shape.fibres, shape.nwave), (shape.bundles, shape.nwave), (shape.fibres,)
    return {"sure": (bins, np.int8), "common": (common, np.int8), "common_lines": (common, np.int8),
            "mean": (common, np.float64), "bundle_lines": ((shape.bundles,), np.int32),
            **{f"fibre_{name}": (fibres, np.float64) for name in ("weight", "gain", "level")}}


def past_arrays(fibres: int, bundles: int, nwave: int, sizes: Sizes) -> tuple[Arrays, Arrays]:
    """Arrays of a rank's bundles that the device keeps from pass to pass, until the next frame: by fibre, by bundle."""
    pixels = (bundles, sizes.cut[1], sizes.cut[0])
    return {"past_bright": ((fibres, nwave), np.float64)}, {
        "root": (pixels, np.float64), "light": (pixels, np.float64), "others": (pixels, np.float32),
        "expected": (pixels, np.float32), "rejected": (pixels, np.int8), "past_rejected": (pixels, np.int8),
        "looks": ((bundles, passes.LOOKED), np.float64)}


def known_arrays(sizes: Sizes, all_of: Passes) -> Arrays:
    """Arrays for the light of all known bundles."""
    count, tails = len(all_of.known), all_of.tails
    return {"models": ((count, sizes.cut[1], sizes.cut[0]), np.float32),
            **({"tails": ((count, *tails.window[::-1]), np.float32)} if tails else {})}


def told_of_passes(shape: PieceShape, sizes: Sizes) -> Arrays:
    """What is downloaded after a pass, in addition to memory.told_arrays."""
    return {"tail_state": ((shape.bundles, gradients.STATE), np.float64),
            "looks": ((shape.bundles, passes.LOOKED), np.float64),       # of past_arrays
            "packed": ((shape.bundles, sizes.cut[1], -(-sizes.cut[0] // 32)), np.uint32)}
