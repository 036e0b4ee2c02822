"""CPU kernel: what S has beyond its band, added to a fibre's flux to first order.

Let S = B + E, B the band, E small. Then Q(S) x = Q x + e, and to first order in E the matrix L that makes e = L x
solves Q L + L Q = E (the derivative of the square root). E oscillates from bin to bin, so that it connects only the
part of the spectrum where Q is smallest; there Q x = q x, where q is the sum of a row of Q with alternating signs, and

    (Q + q) e = E x,

one solution with the diagonals of Q that are at hand.
"""
import numpy as np
from numba import njit, types

from gpu_extract.backend.cpu_banded import SIDES
from gpu_extract.backend.emit import Emit, call, written_out

HALF = 5           # diagonals of Q that are used
WIDTH = HALF + 1
SPREAD = 1.2       # where Q is smallest it is 1 to 1.5 times its smallest value: measured, see doc/method-banded.md
LEAST = 0.02       # of a row's sum: no eigenvalue of Q is smaller there


def _eliminate(e, places):  # type: ignore[no-untyped-def]
    """Row of L D L^T = Q + q and of the forward substitution: (low, e, q, rest, scale), all at this row."""
    low, target, q, rest, scale = places
    row = [e.load(q, a) for a in range(WIDTH)]
    alternating = row[0]
    for a in range(1, WIDTH):
        pair = e.add(row[a], e.load(q, a - a * WIDTH))
        alternating = e.add(alternating, e.negative(pair) if a % 2 else pair)
    least = e.larger(e.absolute(alternating), e.multiply(e.constant(LEAST), e.absolute(e.load(scale, 0))))
    row[0] = e.fma(e.constant(SPREAD), least, row[0])
    value = e.load(rest, 0)
    for b in range(HALF, 0, -1):
        factor = e.load(low, b - b * WIDTH)
        scaled = e.negative(e.multiply(factor, e.load(low, -b * WIDTH)))
        for a in range(WIDTH - b):
            row[a] = e.fma(scaled, e.load(low, a + b - b * WIDTH), row[a])
        value = e.fma(e.negative(factor), e.load(target, -b), value)
    inverse = e.divide(e.one, row[0])
    e.store(low, 0, row[0])
    for a in range(1, WIDTH):
        e.store(low, a, e.multiply(row[a], inverse))
    e.store(target, 0, value)


@written_out
def _eliminate_row(typingctx, low, correction, q, rest, scale, row):  # type: ignore[no-untyped-def]
    """`_eliminate` at row `row`; low, correction and q have HALF rows before the first."""
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        e = Emit(context, builder, 1)
        inner = builder.add(args[5], e.index(HALF))
        wide = builder.mul(inner, e.index(WIDTH))
        at = wide, inner, wide, args[5], args[5]
        places = [e.pointer(kind, array, index) for kind, array, index in zip(signature.args, args, at, strict=False)]
        return call(context, builder, "correct", places, _eliminate, 1)
    return types.void(low, correction, q, rest, scale, types.intp), codegen


@njit(nogil=True, cache=True, error_model="numpy")
def correct(flux, out, sides, rest, total):  # type: ignore[no-untyped-def]
    """flux += e / s; flux: (nwave,).

    out: as backend.cpu_banded.finish left it, with HALF diagonals at least; sides: as there; rest: (nwave,) E x
    total: sum_k c_k
    """
    nwave = len(flux)
    q, low = np.zeros((HALF + nwave, WIDTH)), np.zeros((HALF + nwave, WIDTH))
    e, scale = np.zeros(nwave + 2 * HALF), np.empty(nwave)
    for j in range(nwave):
        scale[j] = sides[j, 0] * total - out[j, 0]
        for a in range(WIDTH):
            q[HALF + j, a] = -out[j, SIDES + a]
    for j in range(nwave):
        _eliminate_row(low, e, q, rest, scale, j)
    e1 = e2 = e3 = e4 = e5 = 0.0        # of the bins after j; what the next one waits for is subtracted last
    for j in range(nwave - 1, -1, -1):
        row = low[HALF + j]
        value = e[HALF + j] / row[0] - row[5] * e5 - row[4] * e4 - row[3] * e3 - row[2] * e2 - row[1] * e1
        e1, e2, e3, e4, e5 = value, e1, e2, e3, e4
        flux[j] += value / scale[j] if scale[j] != 0.0 else 0.0
