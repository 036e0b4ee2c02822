"""The steps of a piece, each as the kernels it queues: pixels, spots, normal equations, x, quality. Nothing waits."""
from dataclasses import dataclass, field
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpu_extract.data import Status
from gpu_extract.device.cuda.lanes import (
    SHORT,
    couple_numbers,
    couple_parts,
    places_of,
    rows_together,
    tile_of,
    tiles_of,
)
from gpu_extract.device.cuda.piece import PieceShape
from gpu_extract.device.cuda.seam import Device, DeviceArray
from gpu_extract.device.cuda.text import assembly, gradients, image, normal, quality, spots, sweeps
from gpu_extract.device.geometry import PsfTables, Terms
from gpu_extract.device.memory import GIVEN_UP, UNSEEN, Sizes
from gpu_extract.normal import FAINT_LIGHT, LEAST_LIGHT
from gpu_extract.quality import BAD_FIT, BAD_FIT_ALONE, FEW_FIBRES
from gpu_extract.solve import TOLERANCE

NONE = Terms(0, 0, 0, False)      # a core that is not there
LONGER = 10     # times as many iterations where they did not suffice: the CPU allows itself 100, each of them worth two


def iterations_for(hw: int) -> int:
    """Iterations that are queued for pieces of this half-band; pieces that need more are queued again.

    Needed were 3 to 14 on PSFs with half-bands up to 13, masks included, and 21 with a half-band of 28.
    """
    return 20 if hw <= 16 else 48


@dataclass(frozen=True)
class Steps:
    """Queues kernels of one piece on one stream.

    arrays: inputs, work arrays and what comes down, by name (memory.py), the piece's part of what is kept as
    well; tables: the PSF's (series, domain, basis); widths: of the bins, and their squares
    patient: queue LONGER times the usual iterations
    """

    device: Device
    stream: Any
    shape: PieceShape
    sizes: Sizes
    arrays: SimpleNamespace
    patient: bool = field(default=False, kw_only=True)

    def _launch(self, kernel: Any, count: int, *args: Any) -> None:
        self.device.launch(kernel, count, args, self.stream)

    def pixels(self) -> None:
        """Whitened pixels, and what is seen of them all; every fibre is to be solved."""
        self.device.clear(self.arrays.gate, self.stream)
        a, size, pixels = self.arrays, self.sizes.dtype.itemsize, self.sizes.pixels
        self._launch(image.look[size], self.shape.bundles * image.LOOKERS, a.looked, a.pixels, a.places, pixels,
                     image.LOOKERS)
        seen = self.shape.bundles * image.SEEN
        self._launch(image.see, seen * image.GLIMPSES, a.glimpsed, a.looked, image.LOOKERS // image.GLIMPSES)
        self._launch(image.see, seen, a.seen, a.glimpsed, image.GLIMPSES)
        self.whiten()

    def whiten(self) -> None:
        """The pixels of the cut-outs, in units of their errors."""
        a, cut = self.arrays, self.sizes.cut
        self._launch(image.whiten[self.sizes.dtype.itemsize], self.shape.bundles * prod(cut), a.root, a.light, a.pixels,
                     a.cuts, a.places, self.sizes.pixels, *cut)

    def numbers(self, tables: PsfTables) -> None:
        """What the PSF says of each bin."""
        a, shape = self.arrays, self.shape
        nseries, nwave = self.sizes.nseries, shape.nwave
        self._launch(spots.evaluate.sized(tables.series.shape[2]), shape.fibres * -(-nwave // spots.TOGETHER),
                     a.numbers, a.series, a.domain, a.basis, a.starts, shape.nfibre, nseries, a.basis.shape[0], nwave)

    def see(self, tables: PsfTables) -> None:
        """Spots, weights and right sides: what spots see of the pixels."""
        a, shape, (ny, nx) = self.arrays, self.shape, self.sizes.stamp
        nseries, nwave = self.sizes.nseries, shape.nwave
        cores = [*tables.cores, NONE][:2]
        numbers = [number for core in cores for number in (core.nj, core.ni, int(core.cut))]
        rows = rows_together(ny, sum(core.ni + core.cut for core in cores))
        self._launch(spots.make.sized(*numbers, int(tables.tail), rows), shape.fibres * places_of(nwave), a.white,
                     a.single, a.scale, a.sums, a.numbers, a.root, a.light, a.gate, a.y0, a.x0,
                     a.cuts, *(core.first for core in cores), shape.nfibre, nx, ny, nseries, nwave, *self.sizes.cut,
                     shape.fibres)

    def normal(self, ridge: float) -> None:
        """Normal equations."""
        a, shape, (ny, nx) = self.arrays, self.shape, self.sizes.stamp
        bins, lanes, parts = shape.fibres * shape.nwave, places_of(shape.nwave) * shape.nd, couple_parts(shape.hw)
        self._launch(normal.couple.sized(*couple_numbers(shape.hw, ny)), shape.fibres * lanes * parts, a.icov, a.white,
                     a.scale, a.gate, a.y0, a.x0, shape.nfibre, nx, ny, shape.nd, shape.hw, shape.nwave, parts)
        self._launch(normal.give_up, bins, a.icov, a.rhs, a.given_up, a.sums, a.gate, LEAST_LIGHT, FAINT_LIGHT, ridge,
                     shape.nd, shape.hw, shape.nwave, shape.fibres)
        self._launch(normal.take_out, bins * shape.nd, a.icov, a.given_up, a.gate, shape.nd, shape.hw, shape.nwave,
                     shape.nfibre)
        self._count(UNSEEN, a.given_up, normal.GIVEN_UP, (shape.first, shape.first + shape.nout))

    def solve(self, *, again: bool = False) -> None:
        """x, and the state of the iteration; again: not for the first time in this piece."""
        self._factorise()
        self.answer(self.arrays.x, self.arrays.rhs, self.arrays.state, again=again)

    def answer(self, x: DeviceArray, rhs: DeviceArray, state: DeviceArray, *, again: bool) -> None:
        """x that belongs to a right side, and the state of the iteration, by factors that are there."""
        a, shape = self.arrays, self.shape
        n, bins, nfibre = shape.fibres, shape.fibres * shape.nwave, shape.nfibre
        r, z, p, q, s, t = (a.vectors.part(v, v + 1) for v in range(gradients.VECTORS))
        each = state, nfibre, shape.nwave
        self._launch(gradients.begin, bins, a.vectors, rhs, bins)
        self._launch(gradients.start, shape.bundles, state, a.gate, int(again), nfibre)
        self._precondition(state)
        self._launch(gradients.judge, shape.bundles, state, a.dots, a.curvatures, nfibre, TOLERANCE)
        for _ in range(iterations_for(shape.hw) * (LONGER if self.patient else 1)):
            self._launch(gradients.between, n * -(-shape.nwave // gradients.BINS), t, z, a.icov, state, nfibre,
                         shape.nd, shape.hw, shape.nwave)
            self._launch(gradients.advance, n * normal.PARTS, a.parts, p, q, r, z, t, *each)
            self._launch(gradients.add_parts, n, a.curvatures, a.parts, normal.PARTS)
            self._launch(gradients.step, n * normal.PARTS, s, r, p, q, a.curvatures, *each)
            self._precondition(state)
            self._launch(gradients.judge, shape.bundles, state, a.dots, a.curvatures, nfibre, TOLERANCE)
        self._launch(gradients.arrive, bins, x, s, a.sums, a.gate, shape.nwave)

    def _factorise(self) -> None:
        """Factors of the fibres' own blocks, of which icov holds the upper triangle from its diagonal hw on."""
        a, shape = self.arrays, self.shape
        n, nwave, width = shape.fibres, shape.nwave, 2 * shape.hw + 1
        matrix = 0, shape.hw * nwave, shape.nd * width * nwave, 1, nwave, nwave, tile_of(nwave), n
        self._launch(sweeps.settle.sized(shape.hw), tiles_of(nwave) * n, a.halo, a.gate, a.icov, *matrix)
        self._launch(sweeps.factor.sized(shape.hw), tiles_of(nwave) * n, a.factor, a.halo, a.gate, a.icov, *matrix)

    def _precondition(self, state: DeviceArray) -> None:
        """z = M^-1 r, M the fibres' own blocks, and r z of every fibre; t is room for what lies between."""
        a, shape = self.arrays, self.shape
        n, nwave = shape.fibres, shape.nwave
        r, z, *_, t = (a.vectors.part(v, v + 1) for v in range(gradients.VECTORS))
        cut, tiles = (nwave, tile_of(nwave), tile_of(nwave, SHORT), n), tiles_of(nwave, SHORT)
        self._launch(sweeps.precondition_down.sized(shape.hw), tiles * n, t, r, a.factor, a.halo, state,
                     gradients.STATE, shape.nfibre, *cut)
        self._launch(sweeps.precondition_up.sized(shape.hw), tiles * n, z, a.parts, t, r, a.factor, a.halo, state,
                     gradients.STATE, shape.nfibre, tiles, *cut)
        self._launch(gradients.add_parts, n, a.dots, a.parts, tiles)

    def quality(self, psferr: float) -> None:
        """chi2pix and pixmask_fraction, and the model image where it is wanted."""
        a, shape, (ny, nx) = self.arrays, self.shape, self.sizes.stamp
        rows, columns = self.sizes.cut
        self.touch()
        pixels, lit, counts = self.lit()
        if self.sizes.model:
            self._launch(quality.project, pixels, a.model, *lit, *counts)
        self._launch(quality.chi_square, pixels, a.chi, a.root, a.light, *lit, *counts, psferr)
        self._launch(quality.weigh, shape.fibres * shape.nout, a.chi2pix, a.fraction, a.chi, a.single, a.scale, a.y0,
                     a.x0, a.cuts, shape.nfibre, nx, ny, shape.nwave, shape.nout, shape.first, rows, columns)

    def touch(self) -> None:
        """Which bins and fibres touch each pixel."""
        a, shape, (ny, nx) = self.arrays, self.shape, self.sizes.stamp
        rows, columns = self.sizes.cut
        self._launch(quality.bins_of_row, shape.fibres * rows, a.ranges, a.y0, a.cuts, shape.nfibre, ny, shape.nwave,
                     rows, shape.fibres)
        self._launch(quality.near_fibres, shape.bundles * rows, a.near, a.ranges, a.x0, a.cuts, shape.nfibre, nx,
                     shape.nwave, rows, columns, shape.fibres)

    def lit(self, x: DeviceArray | None = None) -> tuple[int, tuple[DeviceArray, ...], tuple[int, ...]]:
        """What kernels on the light of spots take: lanes, arrays and numbers; x: another spectrum."""
        a, shape, (ny, nx), (rows, columns) = self.arrays, self.shape, self.sizes.stamp, self.sizes.cut
        return (shape.bundles * rows * -(-columns // quality.ABREAST),
                (a.near, a.ranges, a.single, a.scale, a.x if x is None else x, a.y0, a.x0, a.cuts),
                (shape.nfibre, nx, ny, shape.nwave, rows, columns, shape.fibres))

    def assemble(self) -> None:
        """The piece's rows of the frame."""
        a, shape, kept = self.arrays, self.shape, self.sizes.kept
        bins, real = shape.fibres * shape.nout, np.finfo(kept)
        self._count(GIVEN_UP, a.status, int(Status.FAILED))
        self._launch(assembly.mark, bins, a.bits, a.middles, a.ivar, a.fraction, a.given_up, shape.first, shape.nwave,
                     shape.nout, shape.fibres)
        self._launch(assembly.find_middles, shape.fibres * -(-shape.nout // assembly.MANY), a.middles, a.chi2pix,
                     a.bits, shape.nout, shape.fibres)
        self._launch(assembly.write[kept.itemsize], bins, a.to_flux, a.to_ivar, a.to_chi2pix, a.to_pixmask_fraction,
                     a.to_mask, a.to_status, a.status, a.flux, a.ivar, a.chi2pix, a.fraction, a.bits, a.middles,
                     a.targets, a.widths, BAD_FIT, BAD_FIT_ALONE, FEW_FIBRES, real.tiny, real.max, shape.nfibre,
                     shape.nout, shape.fibres)
        self._launch(assembly.resolve[kept.itemsize], prod(a.resolution.shape), a.to_resolution, a.resolution,
                     a.targets, a.status, a.resolution.shape[1], shape.nout)

    def _count(self, what: int, marks: DeviceArray, wanted: int, bins: tuple[int, int] | None = None) -> None:
        """How many of the bins, all by default, of every fibre have a mark, into one row of the counts."""
        parts, fibres, nwave = self.arrays.parts, self.shape.fibres, marks.shape[1]
        self._launch(normal.count_marks, fibres * normal.PARTS, parts, marks, wanted, *(bins or (0, nwave)), nwave)
        self._launch(gradients.add_parts, fibres, self.arrays.counts.part(what, what + 1), parts, normal.PARTS)
