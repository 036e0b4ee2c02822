"""The places of spots, pixels and rows of a job's bundles: integers, computed on the host.

They are bitwise those of the CPU: the first pixel of a spot must not depend on the device.
"""
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from gpu_extract.assemble import wanted
from gpu_extract.bundle import Job
from gpu_extract.checks.odd_pixels import columns
from gpu_extract.data import Array, IntArray, Legendre, PsfModel
from gpu_extract.device.cuda.piece import PieceShape
from gpu_extract.device.cuda.text import image
from gpu_extract.normal import cut_window, half_bands
from gpu_extract.plan import Plan
from gpu_extract.spots import centres, corners, legendre_basis

LINE = 16     # pixels, a multiple of which the host copies as whole cache lines (simd_stage)


@dataclass(frozen=True)
class BundleGeometry:
    """One bundle.

    fibres: (lo, hi); corners: (2, nfibre, nwave) int32, first pixel (y, x) of the spots on the CCD
    cut: (4,) int64, normal.cut_window, the pixels that they touch; shape: of a piece of this bundle alone
    looked: the columns that are searched for odd pixels; ccd: its rows and columns
    reach: bins over which spots overlap
    """

    fibres: tuple[int, int]
    corners: IntArray
    cut: IntArray
    shape: PieceShape
    looked: slice
    ccd: tuple[int, int]
    reach: int

    @property
    def rows(self) -> int:
        """Rows of the CCD."""
        return self.ccd[0]

    @cached_property
    def window(self) -> tuple[slice, slice]:
        """The part of the cut-out that is on the CCD."""
        first = np.maximum(self.cut[:2], 0)
        (top, left), (bottom, right) = first, np.maximum(np.minimum(self.cut[:2] + self.cut[2:], self.ccd), first)
        return slice(int(top), int(bottom)), slice(int(left), int(right))

    @cached_property
    def staged(self) -> slice:
        """The columns of an image that are uploaded, in all rows: those of the cut-out and those that are searched for
        odd pixels; a multiple of LINE, if the CCD has as many."""
        both = [part for part in (self.looked, self.window[1]) if part.start < part.stop] or [slice(0, 0)]
        start, end = min(part.start for part in both), max(part.stop for part in both)
        wide = -(-(end - start) // LINE) * LINE
        end = min(start + wide, self.ccd[1])
        return slice(max(end - wide, 0), end)

    @cached_property
    def pixels(self) -> int:
        """The number of uploaded pixels."""
        return self.rows * (self.staged.stop - self.staged.start)

    @property
    def place(self) -> IntArray:
        """The places of the cut-out and of the searched columns in the uploaded pixels (text/image.h): (5,) int64."""
        first, end = self.staged.start, self.staged.stop
        return np.array([self.cut[image.LEFT] - first, end - first, self.looked.start - first, self.looked.stop - first,
                         self.rows], dtype=np.int64)


def bundle_geometry(job: Job, fibres: tuple[int, int], ccd: tuple[int, int]) -> BundleGeometry:
    """The geometry of the bundle of fibres lo .. hi - 1; ccd: shape of the image."""
    psf, plan = job.psf, job.plan
    both = corners(psf, centres(psf, fibres, plan.extended))
    nd, hw, _ = half_bands(both[0], both[1], psf.stamp, ccd)
    shape = PieceShape(1, fibres[1] - fibres[0], nd + 1, max(hw, 2), len(plan.extended), plan.inner.start,
                       plan.inner.stop, job.ndiag)
    cut = np.array(cut_window(both[0], both[1], psf.stamp, ccd))
    return BundleGeometry(fibres, both.astype(np.int32), cut, shape, columns(psf, range(*fibres), ccd[1]), ccd, hw)


@dataclass(frozen=True)
class Terms:
    """A Gauss-Hermite component among a bin's numbers: terms along y and x, first coefficient, whether it is cut."""

    nj: int
    ni: int
    first: int
    cut: bool


@dataclass(frozen=True)
class PsfTables:
    """A PSF in the form that the kernels need; see text/spots.h for the order of the series.

    series: (nfibre, nseries, ncoef); domain: from by_domain; basis: (ndomain, ncoef, nwave) polynomials
    """

    series: Array
    domain: IntArray
    basis: Array
    cores: tuple[Terms, ...]
    tail: bool


def psf_tables(psf: PsfModel, wave: Array) -> PsfTables:
    """All series of a PSF, and the polynomials at `wave` (Angstrom)."""
    cores = [[core.sigma_y, core.sigma_x, core.nsig] for core in psf.cores] + [[None] * 3] * (2 - len(psf.cores))
    t = psf.tail
    tail = [None] * 5 if t is None else [t.amp, t.core, t.xscale, t.yscale, t.index]
    listed: list[Legendre | None] = [psf.y, psf.x, *cores[0], *cores[1], *tail]
    terms = []
    for core in psf.cores:
        nj, ni = core.gh.coeff.shape[:2]
        terms.append(Terms(nj, ni, len(listed), core.nsig is not None))
        listed += [Legendre(core.gh.coeff[j, i], core.gh.wmin, core.gh.wmax) for j in range(nj) for i in range(ni)]
    known = [s for s in listed if s is not None]
    domains = sorted({(s.wmin, s.wmax) for s in known})
    ncoef = max(s.coeff.shape[-1] for s in known)
    basis = np.zeros((len(domains), ncoef, len(wave)))
    for n, (wmin, wmax) in enumerate(domains):
        basis[n] = legendre_basis(wave, Legendre(np.zeros((1, ncoef)), wmin, wmax))
    series, domain = np.zeros((psf.nfibre, len(listed), ncoef)), np.zeros(len(listed), dtype=np.int64)
    for n, s in enumerate(listed):
        if s is not None:
            series[:, n, :s.coeff.shape[-1]] = s.coeff
            domain[n] = domains.index((s.wmin, s.wmax))
    return PsfTables(series, by_domain(domain, len(domains)), basis, tuple(terms), psf.tail is not None)


def by_domain(domain: IntArray, count: int) -> IntArray:
    """The place where the series of each of `count` domains begin, and the end; then the series, domain by domain."""
    order = np.argsort(domain, kind="stable")
    return np.concatenate([np.searchsorted(domain[order], np.arange(count + 1)), order])


@dataclass(frozen=True)
class Piece:
    """Bundles that are processed together: their shape, and their numbers among the rank's bundles."""

    shape: PieceShape
    bundles: tuple[int, ...]


def cut_pieces(geometries: Sequence[BundleGeometry], most: int) -> list[Piece]:
    """Pieces of at most `most` bundles of equal shape.

    Large pieces use the device best, but the first upload and the last download overlap with nothing. So the smallest
    pieces come first and last; if all would be large, two small ones are cut off.
    """
    alike: dict[PieceShape, list[int]] = {}
    for n, geometry in enumerate(geometries):
        alike.setdefault(geometry.shape, []).append(n)
    end = max(1, 2 * most // 5)
    lacking = max(0, 2 - sum(len(numbers) <= end for numbers in alike.values()))
    pieces = []
    for shape, numbers in sorted(alike.items(), key=lambda item: -len(item[1])):
        while lacking and len(numbers) > most:
            pieces.append(Piece(replace(shape, bundles=end), tuple(numbers[:end])))
            numbers, lacking = numbers[end:], lacking - 1
        pieces += [Piece(replace(shape, bundles=len(group)), tuple(numbers[n] for n in group))
                   for group in even(len(numbers), most)]
    pieces.sort(key=lambda piece: (len(piece.bundles), piece.bundles))
    return [*pieces[:1], *pieces[2:], *pieces[1:2]]


def even(count: int, most: int) -> list[range]:
    """`count` things in the fewest groups of at most `most`, of nearly equal size."""
    groups = -(-count // most)
    return [range(count * g // groups, count * (g + 1) // groups) for g in range(groups)]


@dataclass(frozen=True)
class Landing:
    """The requested fibres of a piece, contiguous and in order.

    places: (fibres of the piece,) int64, the place of each among them, -1 if it is not requested
    runs: (first, last, target): places first .. last - 1 are the rank's rows from `target` on
    """

    places: IntArray
    runs: tuple[tuple[int, int, int], ...]


def landing_of(plan: Plan, start: int, bundles: Sequence[tuple[int, int]]) -> Landing:
    """The landing of a piece; start: the first fibre of the rank's rows; bundles: their fibre ranges."""
    fibres = np.concatenate([np.arange(*bundle) for bundle in bundles])
    kept = np.isin(fibres, np.concatenate([np.arange(*wanted(bundle, plan)) for bundle in bundles]))
    targets = fibres[kept] - start
    ends = [0, *(np.flatnonzero(np.diff(targets) != 1) + 1).tolist(), len(targets)]
    runs = tuple((first, last, int(targets[first])) for first, last in pairwise(ends) if first < last)
    return Landing(np.where(kept, np.cumsum(kept) - 1, -1), runs)
