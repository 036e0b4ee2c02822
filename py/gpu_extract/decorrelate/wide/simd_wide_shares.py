"""CPU kernel of the wide band: what each neighbour of a fibre adds to its C = S^-1, on a short stretch of bins."""
# mypy: disallow-untyped-defs=False
import numpy as np

from gpu_extract.arrays import Array, IntArray
from gpu_extract.decorrelate.wide.simd_wide_eliminate import BY_FIBRES, factor, fill, follow, tiles_back
from gpu_extract.kernels.arena import Arena
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.tiles import CORNER, EDGE, LANES, TILE


@njit(cache=True)
def _shares(x, icov, fibres, stretch, works):
    """See `shares`; x: (rows of tiles, 24 columns); works: L and where its tiles lie, the band it has."""
    low, tiles, wide = works
    own, hw = fibres[0], icov.shape[3] // 2
    corners = np.zeros((EDGE // LANES, CORNER))
    for c in range(x.shape[1] // TILE):
        fill(low, tiles, icov, fibres, c, (stretch[0], stretch[1], BY_FIBRES))
        if not factor(low, corners, c, wide):
            return False
        for r in range(min(len(x), c + 1)):
            row = x[r]
            row[c * TILE:(c + 1) * TILE] = 0.0
            if r == c:
                for t in range(min(EDGE, stretch[1] - r * EDGE)):
                    if icov[own, 0, stretch[0] + r * EDGE + t, hw] > 0.0:
                        row[c * TILE + t * (EDGE + 1)] = 1.0
            follow(row, low, corners, (c, r * EDGE), wide)
    return True


def shares(icov: Array, fibres: IntArray, stretch: tuple[int, int]) -> Array | None:
    """(bins of the stretch, all unknowns): rows of L'^-1 for the first of some fibres; None where icov is not definite.

    With L L' of icov for the fibres, one behind the other, on a stretch of bins (first, number). Rows of bins without
    weight are 0.
    """
    size, count = stretch[1], -(-len(fibres) * stretch[1] // EDGE)
    apart = np.abs(np.subtract.outer(fibres, fibres)) < icov.shape[1]
    places = np.arange(len(fibres))
    wide = int(np.abs(np.subtract.outer(places, places))[apart].max() + 1) * size - 1
    back = tiles_back(wide)
    arena = Arena()
    x = arena.zeros(-(-size // EDGE), count * TILE)
    works = arena.zeros((back + 1)**2 * TILE), np.empty(back + 1, dtype=np.int64), wide
    if not _shares(x, icov, fibres, stretch, works):
        return None
    rows = x.reshape(len(x), count * EDGE, EDGE).transpose(0, 2, 1).reshape(len(x) * EDGE, count * EDGE)
    return np.ascontiguousarray(rows[:size, :len(fibres) * size])
