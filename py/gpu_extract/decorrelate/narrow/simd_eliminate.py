"""CPU kernel: elimination of one fibre in bands of any width, for chains of fibres.

narrow.simd_schur does the same for eight fibres at once and literal widths. Here the eliminated block is any symmetric
band matrix M: that of a fibre from which others have been eliminated. With M = L D L^T and G = A_ij, U = G M^-1 G^T is
made row by row, from the last bin to the first:

    Z[j, j + a] = - sum_b l_b[j] Z[j + b, j + a],  Z[j, j] = 1 / D[j] - sum_b l_b[j] Z[j, j + b]      (Z = M^-1)
    V[p, c] = sum_k G[p, p + k] Z[p + k, c],  U[p, p + a] = sum_k V[p, p + a + k] G[p + a, p + a + k]

(Takahashi, Fagan & Chin 1973). Sixteen neighbouring elements of a row, for U and V of two rows, are processed at a
time. Rows of Z begin a multiple of eight columns apart, and G is stored by diagonals, so that vectors of both mostly
lie on cache lines.
"""
# mypy: disallow-untyped-defs=False
import numpy as np

from gpu_extract.decorrelate.narrow.simd_schur_rows import TINY
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import (address, number, vadd, vfma, vfold, vmul, vread16, vset16, vsum, vtake, vwrite,
                                      write)
from gpu_extract.vectors.transpose import turn

LANES = 16
BYTES = 8 * LANES
LINE = 64         # bytes
ROWS = 64         # of Z that are made before those still needed are moved: they stay in the nearest caches


@njit()
def factor_row(wide):
    """Elements of a row of `factor`: those that sixteen lanes read beyond the last diagonal are 0."""
    return (wide + LANES + 7) // 8 * 8


@njit(cache=True)
def factor(low, wide):
    """L D L^T of a band matrix, in place: low[j, 0] = D, low[j, a] = l_a.

    low: (nwave, factor_row(wide)), rows of the upper triangle, `wide` elements each, 0 beyond the end and after them
    Bins whose diagonal is 0, or whose pivot is a rounding error, are decoupled.
    """
    row = 8 * low.shape[1]
    for j in range(len(low)):
        here = address(low, j * low.shape[1])
        scale = number(here) if number(here) > 0.0 else 1.0
        write(here, scale)
        for a in range(0, wide, LANES):
            count = min(wide - 1 - a, j)
            total, beside = vread16(here + 8 * a), vset16(0.0)
            if count % 2 == 1:
                total = _without(here - count * row, count, a, total)
            for b in range(count - count % 2, 0, -2):
                total = _without(here - b * row, b, a, total)
                beside = _without(here - (b - 1) * row, b - 1, a, beside)
            vwrite(here + 8 * a, vadd(total, beside))
        pivot = number(here) if number(here) > TINY * scale else scale
        inverse = vset16(1.0 / pivot)
        for a in range(0, wide, LANES):
            vwrite(here + 8 * a, vmul(vread16(here + 8 * a), inverse))
        write(here, pivot)


@njit(forceinline=True)
def _without(earlier, b, a, total):
    """Elements a .. of a row minus the contribution of the row b before it; earlier: address of that row."""
    weight = vset16(number(earlier) * number(earlier + 8 * b))
    return vtake(weight, vread16(earlier + 8 * (a + b)), total)


@njit()
def _solve(y, low, wide):
    """y = M^-1 y, followed by at least `wide` zeros; y: address."""
    nwave, row = low.shape
    for j in range(nwave):
        value = vset16(number(y + 8 * j))
        for a in range(1, wide, LANES):
            place = y + 8 * (j + a)
            vwrite(place, vtake(vread16(address(low, j * row + a)), value, vread16(place)))
    for j in range(nwave - 1, -1, -1):
        total = vset16(0.0)
        for a in range(1, wide, LANES):
            total = vfma(vread16(address(low, j * row + a)), vread16(y + 8 * (j + a)), total)
        write(y + 8 * j, number(y + 8 * j) / low[j, 0] - vsum(vfold(total)))


@njit()
def _invert(here, weights, wide, reach, step):
    """Z[j, j + a], a = 0 .. reach[0], and Z[j + a, j], a = 1 .. reach[1], from the rows after it.

    here: address of Z[j, j]; weights: of the factor's row; step: bytes from Z[j, c] to Z[j + 1, c]
    Other elements that are written are not used.
    """
    for near in range((here + 8) // LINE * LINE, here + 8 * reach[0] + 8, BYTES):
        total, beside = vset16(0.0), vset16(0.0)
        for b in range(1, wide - 1, 2):
            total = vtake(vset16(number(weights + 8 * b)), vread16(near + b * step), total)
            beside = vtake(vset16(number(weights + 8 * b + 8)), vread16(near + (b + 1) * step), beside)
        if wide % 2 == 0:
            total = vtake(vset16(number(weights + 8 * (wide - 1))), vread16(near + (wide - 1) * step), total)
        vwrite(near, vadd(total, beside))
    total = vset16(0.0)
    for a in range(1, wide, LANES):
        total = vfma(vread16(weights + 8 * a), vread16(here + 8 * a), total)
    write(here, 1.0 / number(weights) - vsum(vfold(total)))
    for a in range(1, reach[1] + 1):
        write(here + a * step, number(here + 8 * a))


@njit()
def _rows(rooms, given, near, sizes, step):
    """Rows p and p + 1 of V and of U: the elements of Z and G that both need are read once.

    rooms: addresses of two rows of U, filled: element 1 + a of the second is U[p + 1, p + 1 + a]; and of two of V
    given: (address of G[p, p - hw], bytes to the next diagonal); near: address of Z[p - hw, p - hw]
    sizes: (hw, half); step: as in `_invert`
    """
    (hw, half), (diagonal, apart), (u, other, v, beside) = sizes, given, rooms
    v, beside, end = v + near % LINE, beside + near % LINE, near + 8 * (2 * hw + half + 1)
    for at in range(near // LINE * LINE, end + 1, BYTES):
        here, last = vread16(at), vread16(at + (2 * hw + 1) * step)
        one, two = vmul(vset16(number(diagonal)), here), vmul(vset16(number(diagonal + 2 * hw * apart + 8)), last)
        for k in range(1, 2 * hw + 1):
            here = vread16(at + k * step)
            one = vfma(vset16(number(diagonal + k * apart)), here, one)
            two = vfma(vset16(number(diagonal + (k - 1) * apart + 8)), here, two)
        vwrite(v + at - near, one)
        vwrite(beside + at - near, two)
    for a in range(0, 8 * half + 16, BYTES):
        here = vread16(diagonal + a)
        one, two = vmul(vread16(v + a), here), vmul(vread16(beside + a), here)
        for k in range(1, 2 * hw + 1):
            here = vread16(diagonal + a + k * apart)
            one, two = vfma(vread16(v + a + 8 * k), here, one), vfma(vread16(beside + a + 8 * k), here, two)
        vwrite(u + a, one)
        vwrite(other + a, two)


@njit()
def _sweep(taken, low, wide, given, z, rooms):
    """Rows of Z and of U, from the last bin to the first.

    given: (address of G[0, -hw], bytes to the next diagonal); z: memory, see `_layout`; rooms: addresses, see `_rows`
    Z[r, c] is element (r - first + hw) step + c - first + hw from `begin` on, while bins from `first` on are made.
    """
    (nwave, columns), hw, half = taken.shape, rooms[4], taken.shape[1] - 1
    back, step, begin, moved = _layout(hw, half, wide)
    z[:] = 0.0
    start, turned = address(z, begin), ROWS * (step + 1)
    for first in range((nwave - 1 + hw) // ROWS * ROWS, -1, -ROWS):
        z[turned:turned + moved] = z[:moved]
        for n in range(ROWS - 1, -1, -1):
            p, here = first + n, start + 8 * n * (step + 1)
            if hw <= p < nwave + hw:
                _invert(here, address(low, (p - hw) * low.shape[1]), wide,
                        (2 * hw + half, min(back, nwave - 1 + hw - p)), 8 * step)
            if n % 2 == 0 and p < nwave:
                _rows(rooms[:4], (given[0] + 8 * p, given[1]), here, (hw, half), 8 * step)
                for m in range(min(2, nwave - p)):
                    for a in range(columns):
                        taken[p + m, a] = number(rooms[m] + 8 * (a + m))


@njit()
def _layout(hw, half, wide):
    """Of rows of Z: how many are needed again, elements from one to the next, place of the first one's diagonal,
    and elements of the rows needed again."""
    back = max(2 * hw, wide)
    step = (back + 2 * hw + half + 2 * LANES + 7) // 8 * 8
    return back, step, (back + 15) // 8 * 8, (back + 1) * (step + 1)


@njit()
def _margin(hw, half, wide):
    """Zeros on both sides of arrays with a number per bin."""
    return (max(hw + half, wide) + LANES + 7) // 8 * 8


@njit()
def _places(nwave, hw, half, wide):
    """The places in `work` of L, G by diagonals, x, y, Z, two rows of U and two of V; and the end of it."""
    length, (back, step, begin, _) = nwave + 2 * _margin(hw, half, wide), _layout(hw, half, wide)
    row = 2 * hw + half + 2 + 2 * LANES
    sizes = (nwave * factor_row(wide), (2 * hw + 1) * length, length, length,
             begin + (ROWS + back + 1) * (step + 1), half + 2 + LANES, half + 2 + LANES, row, row)
    places = np.zeros(10, dtype=np.int64)
    for n in range(9):
        places[n + 1] = places[n] + (sizes[n] + 7) // 8 * 8
    return places


@njit(cache=True)
def work_size(nwave, hw, half, wide):
    """Elements of the work array of `eliminate`; wide: elements of a row of the band that is eliminated."""
    return _places(nwave, hw, half, wide)[-1]


@njit(cache=True, loops=False)
def eliminate(taken, moved, own, beyond, between, x, work):
    """taken = U = G M^-1 G^T, moved = U x.

    taken: (nwave, half + 1), filled with rows of the upper triangle; moved: (nwave,), filled: all of U, without a cut
    own, beyond: M = own - beyond: (nwave, 2 hw + 1), its rows, and (nwave, some), rows of the upper triangle
    between: (block, later): (nwave, 2 hw + 1), [p, hw + k] = A[p, p + k], 0 if p + k is no bin; and whether G is its
        transpose, which it is if the eliminated fibre comes first
    work: (work_size,), starts on a cache line
    """
    (block, later), (nwave, columns), wide = between, taken.shape, beyond.shape[1]
    hw, half = block.shape[1] // 2, columns - 1
    places, margin, row = _places(nwave, hw, half, wide), _margin(hw, half, wide), factor_row(wide)
    length = nwave + 2 * margin
    low = work[:places[1]].reshape((nwave, row))
    for j in range(nwave):
        for a in range(wide):
            low[j, a] = (own[j, hw + a] if a <= hw else 0.0) - beyond[j, a]
        low[j, wide:] = 0.0
    factor(low, wide)
    work[places[1]:places[4]] = 0.0
    diagonals = address(work, places[1] + margin)
    turn(diagonals, 8 * length, address(block, 0), 8 * (2 * hw + 1), nwave, 2 * hw + 1)
    # with `later` G[p, p + k] = A[p + k, p]
    given = (diagonals + 8 * (2 * hw * length - hw), 8 * (1 - length)) if later else (diagonals, 8 * length)
    _move(moved, low, wide, given, (address(work, places[2] + margin), address(work, places[3] + margin)), x, hw)
    rooms = (address(work, places[5]), address(work, places[6]), address(work, places[7]), address(work, places[8]), hw)
    _sweep(taken, low, wide, given, work[places[4]:places[5]], rooms)


@njit()
def _move(moved, low, wide, given, rooms, x, hw):
    """moved = G M^-1 G^T x; rooms: addresses of x and of the solution, between zeros."""
    (diagonal, apart), (padded, y) = given, rooms
    nwave = len(x)
    for p in range(nwave):
        write(padded + 8 * p, x[p])
    for q in range(0, 8 * nwave, BYTES):
        total = vset16(0.0)
        for k in range(2 * hw + 1):
            at = q - 8 * (k - hw)
            total = vfma(vread16(diagonal + k * apart + at), vread16(padded + at), total)
        vwrite(y + q, total)
    for q in range(nwave, nwave + LANES):
        write(y + 8 * q, 0.0)
    _solve(y, low, wide)
    for q in range(0, 8 * nwave, BYTES):
        total = vset16(0.0)
        for k in range(2 * hw + 1):
            total = vfma(vread16(diagonal + k * apart + q), vread16(y + q + 8 * (k - hw)), total)
        vwrite(padded + q, total)
    for p in range(nwave):
        moved[p] = number(padded + 8 * p)
