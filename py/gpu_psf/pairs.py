"""Which spots share pixels."""
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from gpu_extract.data import Array, IntArray
from gpu_psf.data import Spots
from gpu_psf.stamps import Stamps

FAR = 9.0           # widths: spots without tails that are farther apart share no light, nor do their derivatives


@dataclass(frozen=True)
class Pairs:
    """Spots `second` at the same step in line and fibre from the spots `first`: no spot occurs twice in either.

    across: fibre of the second minus that of the first
    """

    first: IntArray
    second: IntArray
    across: int

    def cut(self, chosen: np.ndarray) -> "Pairs":
        """A subset of the pairs; pairs of spots with themselves stay such."""
        first = self.first[chosen]
        return Pairs(first, first if self.first is self.second else self.second[chosen], self.across)


def find_pairs(spots: Spots, stamps: Stamps, far: float = FAR) -> list[Pairs]:
    """Every pair once, the spots with themselves first; far: widths, see FAR."""
    every = np.arange(len(spots))
    table = np.full((spots.exposure.max() + 1, spots.line.max() + 1, spots.fibre.max() + 1), -1)
    table[spots.exposure, spots.line, spots.fibre] = every
    found = [Pairs(every, every, 0)]
    for lines in range(_farthest(spots, stamps) + 1):
        kinds = [_pairs_of(table, spots, stamps, (lines, across), far) for across in range(-2 if lines else 1, 3)]
        found += [pairs for pairs in kinds if len(pairs.first)]
    return found


def _farthest(spots: Spots, stamps: Stamps) -> int:
    """Largest number of lines between spots that share rows: lines between them may be on other fibres."""
    count = spots.line.max() + 1
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(low, spots.line, stamps.y)
    np.maximum.at(high, spots.line, stamps.y)
    near = low[:, np.newaxis] - high < stamps.open.shape[1]
    near &= near.T
    first, second = np.nonzero(near)
    return int((second - first).max(initial=0))


def _pairs_of(table: IntArray, spots: Spots, stamps: Stamps, step: tuple[int, int], far: float) -> Pairs:
    """Pairs that are `step` lines and fibres apart and share light."""
    lines, across = step
    line, fibre = spots.line + lines, spots.fibre + across
    inside = (line < table.shape[1]) & (fibre >= 0) & (fibre < table.shape[2])
    first = np.flatnonzero(inside)
    second = table[spots.exposure[first], line[first], fibre[first]]
    first, second = first[second >= 0], second[second >= 0]
    ny, nx = stamps.open.shape[1:]
    dx, dy = (np.abs(c[second] - c[first]) for c in (stamps.x, stamps.y))
    near = (dx / stamps.sigma[0][first]) ** 2 + (dy / stamps.sigma[1][first]) ** 2 < far**2
    near &= (dx < nx) & (dy < ny)
    return Pairs(first[near], second[near], across)


def clusters(pairs: list[Pairs], count: int) -> list[IntArray]:
    """The spots, in groups that share no pixel with each other."""
    first = np.concatenate([p.first for p in pairs])
    second = np.concatenate([p.second for p in pairs])
    graph = coo_array((np.ones(len(first), np.int8), (first, second)), shape=(count, count))
    number, label = connected_components(graph, directed=False)
    order = np.argsort(label, kind="stable")
    return np.split(order, np.searchsorted(label[order], np.arange(1, number)))


def beside(rows: Array, shift: IntArray) -> Array:
    """Profiles (p, ..., size) on a pixel range that begins `shift` (p,) pixels earlier: zero beyond their ends."""
    size = rows.shape[-1]
    moved = np.zeros(rows.shape)
    for by in np.unique(shift):
        mine = shift == by
        if abs(by) < size:
            moved[mine, ..., max(by, 0):size + min(by, 0)] = rows[mine, ..., max(-by, 0):size + min(-by, 0)]
    return moved


def moved(images: Array, by: tuple[IntArray, IntArray]) -> Array:
    """Images (p, ..., ny, nx) on a pixel range that begins `by` columns and rows (p,) earlier."""
    return beside(beside(images, by[0]).swapaxes(-1, -2), by[1]).swapaxes(-1, -2)
