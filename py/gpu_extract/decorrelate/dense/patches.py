"""The patches of the dense core: as large as their own covariance requires; adjacent ones are joined."""
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gpu_extract.data import Array, IntArray, Normal
from gpu_extract.decorrelate.weak import Factor, told_factor
from gpu_extract.lapack import lapack
from gpu_extract.normal import lower_band, squared
from gpu_extract.plan import SIGNAL, spread

ENDS = 10.0      # times the tolerance: correlation with the ends of a patch up to which it is long enough
LEFT_BEYOND = 1e-3   # share of the tolerance for fibres beyond a patch: masks may couple them ten times as much


@dataclass(frozen=True)
class Cuts:
    """The patches of the dense core: bins `inner` of the grid are kept, in steps of `step`. `pad` bins at both ends and
    `neighbours` fibres on both sides take part, and more of both if masks would leave an error above `tolerance`
    sigma."""

    inner: slice
    step: int
    pad: int
    neighbours: int
    tolerance: float


class Part(NamedTuple):
    """The bins `waves` of the grid that are kept of a patch, and how many fibres and bins on both sides take part."""

    waves: tuple[int, int]
    reach: int
    pad: int

    def bins(self, nwave: int) -> tuple[int, int]:
        """The bins that take part."""
        return spread(*self.waves, self.pad, nwave)


def joined(parts: list[Part], most: int = 0) -> list[list[Part]]:
    """Lists of adjacent parts that together have at most `most` bins, or by default as many as the smallest of pads.

    Pads are most of the work, which grows as the cube of all bins: it is least if a part has as many bins as its pad.
    """
    out: list[list[Part]] = []
    for part in parts:
        if out and out[-1][-1].waves[1] == part.waves[0] and (part.waves[1] - out[-1][0].waves[0]
                                                              <= (most or min(one.pad for one in (*out[-1], part)))):
            out[-1].append(part)
        else:
            out.append([part])
    return out


def as_one(parts: list[Part]) -> Part:
    """Adjacent parts as one."""
    return Part((parts[0].waves[0], parts[-1].waves[1]), max(part.reach for part in parts),
                 max(part.pad for part in parts))


def grown(normal: Normal, fibres: tuple[int, int], waves: tuple[int, int],
           cuts: Cuts) -> tuple[Part, Factor | None]:
    """A patch as large as its own covariance requires, and its factor (`factor_of`).

    The planned sizes are sufficient for good pixels. Where masks let light reach farther, the correlations of the kept
    bins with the patch's ends and with the surrounding fibres show it, and the patch grows until it is large enough.
    """
    nfibre, nwave = normal.rhs.shape
    part = Part(waves, cuts.neighbours, cuts.pad)
    while True:
        (start, stop), among = part.bins(nwave), spread(*fibres, part.reach, nfibre)
        factor = factor_of(normal, among, (start, stop))
        if factor is None:      # it cannot show anything
            return part, None
        places = np.arange(stop - start)[:, None] * (among[1] - among[0]) + np.arange(*among) - among[0]
        kept = _columns(factor, places[slice(*(n - start for n in waves)), slice(*(i - among[0] for i in fibres))])
        left, right = _at_ends(normal, factor, kept, places, among, (start, stop))
        end, enough = max(left if start > 0 else 0.0, right if stop < nwave else 0.0), ENDS * cuts.tolerance
        wider = _beyond(normal, kept, among, (start, stop)) > LEFT_BEYOND * cuts.tolerance / SIGNAL
        if end <= enough and not wider:
            return part, factor
        longer = min(max(np.log(enough) / np.log(min(end, 0.5)), 1.1), 2.0) if end > enough else 1.0
        part = Part(waves, part.reach + wider, math.ceil(part.pad * longer))      # C falls off exponentially


def _columns(factor: Factor, places: IntArray) -> Array:
    """(n, count): columns of C over the roots of C_kk, for k of places."""
    unit = np.zeros((len(factor.diagonal), places.size), order="F")
    unit[places.ravel(), np.arange(places.size)] = 1.0
    columns = factor.solve(unit)
    return columns / np.sqrt(columns[places.ravel(), np.arange(places.size)])


def _at_ends(normal: Normal, factor: Factor, kept: Array, places: IntArray, among: tuple[int, int],
             waves: tuple[int, int]) -> list[float]:
    """The largest correlation coefficient of kept bins with a patch's first and with its last bins.

    These are the outermost bins with light of each fibre: correlations do not cross more than a half-band without any.
    kept: see `_columns`; places: (bins, fibres) in the order of unknowns
    """
    alive, most = normal.weight[slice(*among), slice(*waves)].T > 0.0, []
    for some, where in ((alive, places), (alive[::-1], places[::-1])):
        there = some[:normal.halfband + 1]
        fibres = np.flatnonzero(there.any(axis=0))
        ends = where[there[:, fibres].argmax(axis=0), fibres]
        root = _columns(factor, ends)[ends, np.arange(len(ends))]
        most.append(float((np.abs(kept[ends]) / root[:, None]).max(initial=0.0)))
    return most


def _beyond(normal: Normal, kept: Array, among: tuple[int, int], waves: tuple[int, int]) -> float:
    """The largest squared correlation of kept bins with all bins of a fibre that is coupled to the patch but not in it.

    C_ko C_oo^-1 C_ok / C_kk is the relative change of C_kk by eliminating fibre o; here C_oo^-1 = A_oo, to first order.
    """
    (lo, hi), (nfibre, nd), most = among, normal.icov.shape[:2], 0.0
    kept = kept.reshape(waves[1] - waves[0], hi - lo, -1)
    for fibre in (i for i in range(*spread(lo, hi, nd - 1, nfibre)) if not lo <= i < hi):
        inside = range(*spread(fibre, fibre + 1, nd - 1, nfibre))
        seen = np.sum([_block(normal.icov, fibre, i, waves) @ kept[:, i - lo] for i in inside if lo <= i < hi], axis=0)
        own, info = lapack.dpbtrf(lower_band(normal.icov, (fibre, fibre + 1), waves), lower=1, overwrite_ab=1)
        if info != 0:
            return np.inf
        most = max(most, float((lapack.dtbtrs(own, seen, uplo="L")[0] ** 2).sum(axis=0).max()))
    return most


def _block(icov: Array, i: int, j: int, waves: tuple[int, int]) -> Array:
    """A_ij on a range of bins, (n, n)."""
    block = squared(icov[min(i, j), abs(i - j), slice(*waves)])
    return block if i < j else block.T


def factor_of(normal: Normal, fibres: tuple[int, int], waves: tuple[int, int]) -> Factor | None:
    """The factor of icov of fibres lo .. hi - 1 (weak.told_factor); None if icov is too close to singular."""
    if normal.lifted is not None and normal.lifted[slice(*fibres), slice(*waves)].any():
        return None
    return told_factor(normal.icov, fibres, waves)
