"""CPU kernels: the strength of couplings between bins of a bundle, measured when icov is read anyway."""
# mypy: disallow-untyped-defs=False
import math

from gpu_extract.arrays import LANE, Array
from gpu_extract.kernels.arena import Arena
from gpu_extract.kernels.compiled import njit
from gpu_extract.solve.simd_couple import LOOK_AHEAD, couple, masks_of
from gpu_extract.solve.simd_factor import VECTOR, transposed
from gpu_extract.vectors.simd import address, number, prefetch, vabs, vmax, vmul, vread, vwrite, write

LINE = 64          # bytes
STRETCH = 12 * LANE    # bins whose product and whose strengths are made together: they stay in the nearest cache


@njit(cache=True)
def inverse_roots(roots, icov):
    """roots[i, margin + j] = 1 / sqrt of the diagonal of icov, 0 where that is 0 and in the margins at both ends."""
    nwave, hw = icov.shape[2], icov.shape[3] // 2
    margin = (roots.shape[1] - nwave) // 2
    roots[:] = 0.0
    for i in range(icov.shape[0]):
        for j in range(nwave):
            value = icov[i, 0, j, hw]
            roots[i, margin + j] = 1.0 / math.sqrt(value) if value > 0.0 else 0.0


@njit()
def _strongest(out, icov, roots, fibres, bins):
    """The largest |A_ij| / sqrt(A_ii A_jj) of bins first .. last - 1 of fibre i with those of fibre j = i + d.

    out: (nwave,); fibres: (i, d); bins: (first, last); roots: of `inverse_roots`, with margins >= hw
    """
    (i, d), (first, last) = fibres, bins
    nwave, width = icov.shape[2], icov.shape[3]
    margin, step = (roots.shape[1] - nwave) // 2, 8 * width
    row = address(icov, ((i * icov.shape[1] + d) * nwave + first) * width)
    near = address(roots, (i + d) * roots.shape[1] + margin - width // 2 + first)
    own, to = address(roots, i * roots.shape[1] + margin + first), address(out, first)
    fours = (last - first) // LANE if width >= LANE else 0
    for _ in range(fours):
        for k in range(0, LANE * step, LINE):
            prefetch(row + LOOK_AHEAD + k)
        tops = transposed(_largest(row, near, width), _largest(row + step, near + 8, width),
                          _largest(row + 2 * step, near + 16, width), _largest(row + 3 * step, near + 24, width))
        vwrite(to, vmul(vmax(vmax(tops[0], tops[1]), vmax(tops[2], tops[3])), vread(own)))
        row, near, own, to = row + LANE * step, near + VECTOR, own + VECTOR, to + VECTOR
    for _ in range(last - first - LANE * fours):
        largest = 0.0
        for k in range(0, step, 8):
            largest = max(largest, abs(number(row + k) * number(near + k)))
        write(to, largest * number(own))
        row, near, own, to = row + step, near + 8, own + 8, to + 8


@njit()
def _largest(row, near, width):
    """The largest absolute products of a row and `near`, in four lanes; the last four may count twice."""
    far = 8 * (width - LANE)
    most = vabs(vmul(vread(row + far), vread(near + far)))
    for k in range(0, far, VECTOR):
        most = vmax(vabs(vmul(vread(row + k), vread(near + k))), most)
    return most


@njit(cache=True)
def strongest(correlations, icov, roots):
    """correlations, filled as in data.Strengths; roots: of `inverse_roots`, with margins >= hw."""
    nfibre, nd, nwave = icov.shape[:3]
    for i in range(nfibre):
        for d in range(1, min(nd, nfibre - i)):
            _strongest(correlations[d - 1, i], icov, roots, (i, d), (0, nwave))


@njit(cache=True)
def multiply(correlations, y, icov, x, margin, roots):
    """y = icov x, as in `simd_factor.room_of`, and `strongest` in the same pass, so that icov is read once."""
    nfibre, nd, nwave, nband = icov.shape
    masks = masks_of(nband)
    y[:] = 0.0
    for i in range(nfibre):
        for d in range(min(nd, nfibre - i)):
            for first in range(0, nwave, STRETCH):
                bins = first, min(first + STRETCH, nwave)
                couple(y, x, icov, masks, margin, (i, d), (True, d > 0), bins)
                if d > 0:
                    _strongest(correlations[d - 1, i], icov, roots, (i, d), bins)


def room(shape: tuple[int, ...], arena: Arena) -> tuple[Array, Array]:
    """Arrays for the correlations and the roots of an icov of this shape: see data.Strengths."""
    nfibre, nd, nwave, nband = shape
    return arena.take(nd - 1, nfibre, nwave), arena.take(nfibre, nwave + 2 * (nband // 2))
