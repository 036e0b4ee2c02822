"""The coupling of a bundle's fibres, and the contribution to one fibre of eliminating another."""
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gpu_extract.data import Array, Normal
from gpu_extract.decorrelate.narrow import simd_eliminate, simd_schur
from gpu_extract.decorrelate.narrow.bands import address_of
from gpu_extract.decorrelate.weak import SAFE, TOLD
from gpu_extract.kernels.arena import Arena
from gpu_extract.lapack import lapack
from gpu_extract.solve import measure_strengths, simd_factor
from gpu_extract.vectors import transpose


class Share(NamedTuple):
    """U = A_ij A_jj^-1 A_ji, which the elimination of fibre j subtracts from fibre i.

    taken: (nwave, half + 1 or more), rows of its upper triangle; moved: (nwave,), all of U, without a cut, times x_i
    at: the addresses of both
    """

    taken: Array
    moved: Array
    at: tuple[int, int]

    def narrowed(self, half: int) -> "Share":
        """The share within `half` diagonals."""
        return share_of(np.ascontiguousarray(self.taken[:, :half + 1]), self.moved)


def share_of(taken: Array, moved: Array) -> Share:
    """The share made of two arrays, which it keeps alive."""
    return Share(taken, moved, (address_of(taken), address_of(moved)))


class Couplings:
    """The couplings of a bundle, measured and eliminated on first request.

    distant: fibres farther than the next are eliminated if the bound on their coupling exceeds this
    margin: bins of zeros at both ends of `roots`, 1 / sqrt of icov's diagonal, and of `spread`, x: (nfibre, margin +
        nwave + margin) both
    """

    def __init__(self, normal: Normal, x: Array, distant: float, margin: int, arena: Arena):
        self.icov, self.hw, self.distant, self._arena = normal.icov, normal.halfband, distant, arena
        self.x, self.margin = np.ascontiguousarray(x), margin + normal.halfband + transpose.LANES
        self.nfibre, self.nwave = normal.rhs.shape
        self._strengths = normal.strengths or measure_strengths(normal.icov, arena)
        self._factor = self._strengths.factor
        self.own = normal.own_halfband
        self.roots = arena.zeros(self.nfibre, self.nwave + 2 * self.margin)
        self.roots[:, self.margin - self.hw:self.hw - self.margin] = self._strengths.roots
        self.spread = arena.zeros(*self.roots.shape)
        self.spread[:, self.margin:-self.margin] = x
        self._sizes: dict[int, list[float]] = {}
        self._eliminated: dict[int, list[int]] = {}
        self._shares: dict[tuple[int, int, int], Share] = {}
        self._tells: dict[int, bool] = {}
        self._works: dict[tuple[int, ...], tuple[Array, ...]] = {}

    def size(self, i: int, j: int) -> float:
        """A bound on the coupling of two fibres with all diagonals scaled to 1 (not yet that in S's norm)."""
        distance = abs(j - i)
        if distance >= self.icov.shape[1]:
            return 0.0
        if distance not in self._sizes:
            largest = self.correlations(distance).max(axis=1)
            self._sizes[distance] = (self.icov.shape[3] * largest).tolist()
        return self._sizes[distance][min(i, j)]

    def correlations(self, distance: int) -> Array:
        """(nfibre - distance, nwave) largest |A_ij| / sqrt(A_ii A_jj) of every bin of fibre i, j = i + distance."""
        return self._strengths.correlations[distance - 1, :max(self.nfibre - distance, 0)]

    def around(self, fibre: int, first: int) -> list[int]:
        """Fibres at distances first .. that icov couples to `fibre`."""
        distances = range(first, self.icov.shape[1])
        return [j for d in distances for j in (fibre - d, fibre + d) if 0 <= j < self.nfibre]

    @cached_property
    def farthest(self) -> list[float]:
        """For each fibre the largest coupling to fibres that are not next to it."""
        largest = [0.0] * self.nfibre
        for d in range(2, self.icov.shape[1]):
            for i in range(self.nfibre - d):
                size = self.size(i, i + d)
                largest[i], largest[i + d] = max(largest[i], size), max(largest[i + d], size)
        return largest

    @cached_property
    def beyond_next(self) -> Array:
        """(nfibre, nwave): diagonal matrices D_i that bound, bin by bin, the couplings W_ij of each fibre to those
        farther than the next: |x' W_ij y| <= (x' D_i x + y' D_j y) / 2."""
        sums = np.zeros((self.nfibre, self.nwave))
        roots = self.roots[:, self.margin:-self.margin]
        reach = min(self.hw, self.nwave - 1)
        for d in range(2, min(self.icov.shape[1], self.nfibre)):
            for k in range(-reach, reach + 1):
                own, other = slice(max(0, -k), self.nwave - max(0, k)), slice(max(0, k), self.nwave + min(0, k))
                size = np.abs(self.icov[:-d, d, own, self.hw + k]) * roots[:-d, own] * roots[d:, other]
                sums[:-d, own] += size
                sums[d:, other] += size
        return sums * self.icov[:, 0, :, self.hw]

    def tells(self, fibre: int) -> bool:
        """Whether a fibre's own block distinguishes its bins from one another: see decorrelate.weak.

        It does if it is still definite after subtracting 1 / TOLD of its diagonal. Pivots alone do not suffice.
        """
        if fibre not in self._tells:
            rows = np.asfortranarray(self.icov[fibre, 0, :, self.hw:self.hw + self.own + 1].T)
            diagonal = np.where(rows[0] > 0.0, rows[0], 1.0)
            rows[0] = diagonal * (1.0 - 1.0 / TOLD)
            factor, info = lapack.dpbtrf(rows, lower=1, overwrite_ab=1)
            self._tells[fibre] = bool(info == 0 and (factor[0]**2 > SAFE * diagonal).all())
        return self._tells[fibre]

    def eliminated(self, fibre: int) -> list[int]:
        """The fibres that are eliminated for one fibre: its next neighbours, and others with a significant coupling."""
        if fibre not in self._eliminated:
            near, far = self.around(fibre, 1), self.farthest[fibre] > self.distant
            self._eliminated[fibre] = [j for j in near
                                       if abs(j - fibre) == 1 or (far and self.size(fibre, j) > self.distant)]
        return self._eliminated[fibre]

    @cached_property
    def distances(self) -> list[int]:
        """Distances of fibres that are eliminated somewhere in the bundle."""
        return [1, *(d for d in range(2, self.icov.shape[1])
                     if any(self.size(i, i + d) > self.distant for i in range(self.nfibre - d)))]

    def eliminate(self, fibres: Sequence[int], half: int) -> None:
        """Eliminate each of `fibres` alone, eight at a time, from all around it, unless that is done already."""
        done = {(j, h) for j, _, h in self._shares}
        wanted = np.array([j for j in fibres if (j, half) not in done])
        if not len(wanted):
            return
        distances = np.array([side * d for d in self.distances for side in (-1, 1)])
        bins = simd_schur.padded(self.nwave)
        taken = self._arena.take(len(wanted), len(distances), bins, half + 1)
        moved = self._arena.take(*taken.shape[:3])
        sizes = simd_schur.work_sizes(self.nwave, self.hw, self.own, half=half, distances=len(distances))
        if sizes not in self._works:
            self._works[sizes] = tuple(self._arena.take(size) for size in sizes)
        simd_schur.eliminate(taken, moved, self.icov, self.x, wanted, distances, self._works[sizes], own=self.own)
        places, row = (address_of(taken), address_of(moved)), 8 * bins
        for n, j in enumerate(wanted.tolist()):
            for e, d in enumerate(distances.tolist()):
                before = (n * len(distances) + e) * row
                self._shares[j, j + d, half] = Share(taken[n, e, :self.nwave], moved[n, e, :self.nwave],
                                                     (places[0] + before * (half + 1), places[1] + before))

    def share(self, j: int, fibre: int, half: int) -> Share:
        """The contribution to `fibre` of eliminating fibre j alone, with `half` diagonals."""
        if (j, fibre, half) not in self._shares:
            self.eliminate([j], half)
        return self._shares[j, fibre, half]

    def share_of_rest(self, j: int, fibre: int, half: int, beyond: Share) -> Share:
        """The contribution to `fibre` of eliminating fibre j once the fibre beyond it is eliminated, in its band."""
        first, wide = min(j, fibre), beyond.taken.shape[1]
        share = share_of(np.empty((self.nwave, half + 1)), np.empty(self.nwave))
        sizes = self.nwave, self.hw, half, wide
        if sizes not in self._works:
            self._works[sizes] = (self._arena.take(simd_eliminate.work_size(*sizes)),)
        simd_eliminate.eliminate(share.taken, share.moved, self.icov[j, 0], beyond.taken,
                                 (self.icov[first, abs(j - fibre)], j == first), self.x[fibre], *self._works[sizes])
        return share

    @cached_property
    def begin(self) -> int:
        """The address of icov."""
        return address_of(self.icov)

    @cached_property
    def factors(self) -> list[tuple[int, int, int, int]]:
        """L D L^T of the fibres' own blocks: the address of 1 / D of the first bin, the bytes from there to the next
        bin's, those from L[j, j - k] to L[j, j - k - 1], where L[j, j] holds 1 / D, and the half-band."""
        if self._factor is None:
            shape = simd_factor.factor_shape(self.nfibre, self.nwave, self.own)
            self._factor, roots = self._arena.take(*shape), self._arena.take(self.nfibre, self.nwave)
            simd_factor.factorise(self._factor, roots, self.icov[:, 0, :, self.hw - self.own:self.hw + 1])
        group, _, element, lane = self._factor.strides
        size, lanes, first = self._factor.shape[2], self._factor.shape[3], address_of(self._factor)
        rows = (simd_factor.row_of(fibre, self.nfibre) for fibre in range(self.nfibre))
        return [(first + row // lanes * group + (size - 1) * element + row % lanes * lane, size * element, element,
                 size - 1) for row in rows]
