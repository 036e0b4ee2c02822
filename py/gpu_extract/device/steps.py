"""The steps of a piece, each as the kernels it queues: pixels, spots, normal equations, x, quality. No step waits."""
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpu_extract.data import Status
from gpu_extract.device.cuda.lanes import MIDDLES, SHORT, couple_launches, make_rows, places_of, tile_of, tiles_of
from gpu_extract.device.cuda.piece import PieceShape
from gpu_extract.device.cuda.seam import Device, DeviceArray
from gpu_extract.device.cuda.text import TextKernel, assembly, gradients, image, normal, quality, spots, sweeps
from gpu_extract.device.geometry import PsfTables, Terms
from gpu_extract.device.memory import GIVEN_UP, UNSEEN, Sizes
from gpu_extract.normal import FAINT_LIGHT, LEAST_LIGHT
from gpu_extract.quality import BAD_FIT, BAD_FIT_ALONE, BAD_FIT_LEAST, FEW_FIBRES
from gpu_extract.solve import TOLERANCE

NONE = Terms(0, 0, 0, False)      # a component that the PSF does not have
LONGER = 10     # times as many iterations if they did not suffice: the CPU allows 100, each of which is worth two


def iterations_for(hw: int) -> int:
    """Iterations that are queued for pieces of this half-band; pieces that need more are queued again.

    PSFs with half-bands up to 13 needed 3 to 14, including masks, and one with a half-band of 28 needed 21.
    """
    return 20 if hw <= 16 else 48


@dataclass(frozen=True)
class Steps:
    """Queues the kernels of one piece on one stream.

    arrays: inputs, work arrays, downloaded arrays and the piece's part of the kept ones, by name (memory.py); the
        PSF's tables (series, domain, basis); widths of the bins and their squares
    patient: queue LONGER times the usual iterations
    """

    device: Device
    stream: Any
    shape: PieceShape
    sizes: Sizes
    arrays: SimpleNamespace
    patient: bool = field(default=False, kw_only=True)

    @cached_property
    def _known(self) -> dict[str, Any]:
        """Arguments of kernels, arrays and numbers, by their names in the headers."""
        shape, sizes, (ny, nx), (rows, columns) = self.shape, self.sizes, self.sizes.stamp, self.sizes.cut
        return {**vars(self.arrays), **vars(shape), "fibres": shape.fibres, "lanes": shape.fibres, "nout": shape.nout,
                "bins": shape.fibres * shape.nwave, "ny": ny, "nx": nx, "rows": rows, "columns": columns,
                "size": sizes.pixels, "nseries": sizes.nseries}

    def _launch(self, kernel: TextKernel, lanes: int, /, **own: Any) -> None:
        """Queue a kernel; own: arguments that are not in `_known`, or have another name there."""
        self.device.launch(kernel, lanes, kernel.bound(own, self._known), self.stream)

    def pixels(self) -> None:
        """Whiten the pixels, and make their extremes for the search of odd pixels; every fibre is to be solved."""
        self.device.clear(self.arrays.gate, self.stream)
        self._launch(image.look[self.sizes.dtype.itemsize], self.shape.bundles * image.LOOKERS, parts="looked",
                     lookers=image.LOOKERS)
        seen = self.shape.bundles * image.SEEN
        self._add_parts("glimpsed", "looked", seen * image.GLIMPSES, image.LOOKERS // image.GLIMPSES, largest=True)
        self._add_parts("seen", "glimpsed", seen, image.GLIMPSES, largest=True)
        self.whiten()

    def whiten(self) -> None:
        """Make the pixels of the cut-outs in units of their errors."""
        self._launch(image.whiten[self.sizes.dtype.itemsize], self.shape.bundles * prod(self.sizes.cut))

    def numbers(self, tables: PsfTables) -> None:
        """Evaluate the series of the PSF for each bin."""
        ndomain, _, ncoef = tables.basis.shape[0], *tables.series.shape[1:]
        self._launch(spots.evaluate.sized(ncoef), self.shape.fibres * -(-self.shape.nwave // spots.TOGETHER),
                     ndomain=ndomain)

    def see(self, tables: PsfTables) -> None:
        """Make spots, weights and right-hand sides."""
        one, other = cores = [*tables.cores, NONE][:2]
        numbers = [number for core in cores for number in (core.nj, core.ni, int(core.cut))]
        rows = make_rows(self.sizes.stamp[0], sum(core.ni + core.cut for core in cores))
        lanes = self.shape.fibres * places_of(self.shape.nwave)
        self._launch(spots.make.sized(*numbers, int(tables.tail), rows), lanes, first=one.first, second=other.first)

    def normal(self, ridge: float) -> None:
        """Make the normal equations."""
        shape = self.shape
        bins = shape.fibres * shape.nwave
        for numbers, parts, distances in couple_launches(shape.hw, shape.nd, self.sizes.stamp[0]):
            couple = normal.couple.sized(*numbers)
            self._launch(couple, shape.fibres * -(-shape.nwave // couple.threads) * len(distances) * parts, parts=parts,
                         nearest=distances.start)
        self._launch(normal.give_up, bins, marks="given_up", least=LEAST_LIGHT, faint=FAINT_LIGHT, ridge=ridge)
        self._launch(normal.take_out, bins * shape.nd, marks="given_up")
        self._count(UNSEEN, self.arrays.given_up, normal.GIVEN_UP, (shape.first, shape.first + shape.nout))

    def solve(self, *, again: bool = False) -> None:
        """Compute x and the state of the iteration; again: not the first time in this piece."""
        self._factorise()
        self.answer(self.arrays.x, self.arrays.rhs, self.arrays.state, again=again)

    def answer(self, x: DeviceArray, rhs: DeviceArray, state: DeviceArray, *, again: bool) -> None:
        """Compute x for a right-hand side and the state of the iteration, with the existing factors."""
        shape = self.shape
        n, bins, parts = shape.fibres, shape.fibres * shape.nwave, shape.fibres * normal.PARTS
        r, z, p, q, s, t = (self.arrays.vectors.part(v, v + 1) for v in range(gradients.VECTORS))
        self._launch(gradients.begin, bins, rhs=rhs)
        self._launch(gradients.start, shape.bundles, state=state, again=int(again))
        self._precondition(z, r, t, state)
        self._launch(gradients.judge, shape.bundles, state=state, tolerance=TOLERANCE)
        for _ in range(iterations_for(shape.hw) * (LONGER if self.patient else 1)):
            self._launch(gradients.between, n * -(-shape.nwave // gradients.BINS), moved=t, z=z, state=state)
            self._launch(gradients.advance, parts, p=p, q=q, r=r, z=z, t=t, state=state)
            self._add_parts("curvatures", "parts", n, normal.PARTS)
            self._launch(gradients.step, parts, s=s, r=r, p=p, q=q, state=state)
            self._precondition(z, r, t, state)
            self._launch(gradients.judge, shape.bundles, state=state, tolerance=TOLERANCE)
        self._launch(gradients.arrive, bins, x=x, s=s)

    def _factorise(self) -> None:
        """Factorise the fibres' own blocks; icov holds their upper triangles from its diagonal hw on."""
        shape, nwave = self.shape, self.shape.nwave
        matrix = {"band": "icov", "open": 0, "place": shape.hw * nwave, "row": 1, "element": nwave,
                  "between": shape.nd * (2 * shape.hw + 1) * nwave, "tile": tile_of(nwave)}
        for kernel in sweeps.settle, sweeps.factor:
            self._launch(kernel.sized(shape.hw), tiles_of(nwave) * shape.fibres, **matrix)

    def _precondition(self, z: DeviceArray, r: DeviceArray, t: DeviceArray, state: DeviceArray) -> None:
        """z = M^-1 r, where M are the fibres' own blocks, and r z of every fibre; t holds the intermediate result."""
        n, nwave, half = self.shape.fibres, self.shape.nwave, self.shape.hw
        tiles, cut = tiles_of(nwave, SHORT), {"tile": tile_of(nwave), "fine": tile_of(nwave, SHORT)}
        known = {"y": t, "r": r, "state": state, "facts": gradients.STATE, **cut}
        self._launch(sweeps.precondition_down.sized(half), tiles * n, **known)
        self._launch(sweeps.precondition_up.sized(half), tiles * n, z=z, nparts=tiles, **known)
        self._add_parts("dots", "parts", n, tiles)

    def quality(self, psferr: float) -> None:
        """Compute chi2pix, pixmask_fraction and, if requested, the model image."""
        self.touch()
        if self.sizes.model:
            self._light(quality.project)
        self._light(quality.chi_square, psferr=psferr)
        self._launch(quality.weigh, self.shape.fibres * self.shape.nout, begin=self.shape.first)

    def touch(self) -> None:
        """Find which bins and fibres touch each pixel."""
        self._launch(quality.bins_of_row, self.shape.fibres * self.sizes.cut[0])
        self._launch(quality.near_fibres, self.shape.bundles * self.sizes.cut[0])

    def _light(self, kernel: TextKernel, x: DeviceArray | str = "x", **own: Any) -> None:
        """Queue a kernel that uses the light of the spots with fluxes x."""
        rows, columns = self.sizes.cut
        self._launch(quality.join, self.shape.fibres * self.shape.nwave, x=x)
        self._launch(kernel, self.shape.bundles * rows * -(-columns // quality.ABREAST), **own)

    def assemble(self) -> None:
        """Make the piece's rows of the frame."""
        a, shape, kept = self.arrays, self.shape, self.sizes.kept
        bins, real = shape.fibres * shape.nout, np.finfo(kept)
        self._count(GIVEN_UP, a.status, int(Status.FAILED))
        self._launch(assembly.mark, bins, marks="given_up")
        self._launch(assembly.find_middles.sized(MIDDLES), shape.fibres)
        self._launch(assembly.write[kept.itemsize], bins, factor=BAD_FIT, alone=BAD_FIT_ALONE,
                     lowest=BAD_FIT_LEAST, few=FEW_FIBRES, least=real.tiny, largest=real.max)
        self._launch(assembly.resolve[kept.itemsize], prod(a.resolution.shape), width=a.resolution.shape[1])

    def _add_parts(self, whole: DeviceArray | str, parts: DeviceArray | str, lanes: int, count: int, *,
                   largest: bool = False) -> None:
        """whole = sums of `count` parts each, in order, or their largest values."""
        self._launch(gradients.add_parts, lanes, whole=whole, parts=parts, count=count, largest=int(largest))

    def _count(self, what: int, marks: DeviceArray, wanted: int, bins: tuple[int, int] | None = None) -> None:
        """Count the bins with a mark of every fibre, in all bins by default, into one row of the counts."""
        fibres, nwave = self.shape.fibres, marks.shape[1]
        first, end = bins or (0, nwave)
        self._launch(normal.count_marks, fibres * normal.PARTS, marks=marks, wanted=wanted, first=first, end=end,
                     nwave=nwave)
        self._add_parts(self.arrays.counts.part(what, what + 1), "parts", fibres, normal.PARTS)
