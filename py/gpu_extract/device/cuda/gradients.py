"""Kernels: conjugate gradients for all bundles of a piece at once, preconditioned by the fibres' own blocks.

Each bundle goes at its own pace: its state says whether it still moves, and the lanes of one that has arrived return at
once, so that the number of iterations can be queued without asking the device. Scalars are never on the host.
The preconditioner's recursions along wavelength are in sweeps.py, the couplings between fibres in text/gradients.h.
"""
# mypy: disallow-untyped-defs=False
import math

from numba import njit

from gpu_extract.device.cuda.kernels import kernel
from gpu_extract.device.cuda.normal import PARTS
from gpu_extract.device.cuda.text import text_kernel

# A bundle's state: does it move (1 or 0), r M^-1 r, beta, iterations, floor, smallest r M^-1 r, iterations without
# a smaller one
MOVES, NORM, BETA, DONE, FLOOR, BEST, STALLED, STATE = 0, 1, 2, 3, 4, 5, 6, 7
PATIENCE = 5
R, Z, P, Q, S, T, VECTORS = 0, 1, 2, 3, 4, 5, 6      # the vectors: (VECTORS, fibres, nwave)


@kernel("f8[3] f8[2]")
def begin(n, vectors, rhs):
    """The vectors before the first iteration, r = rhs, everything else 0: a lane for each bin."""
    nwave = rhs.shape[1]
    f, j = n // nwave, n % nwave
    for v in range(VECTORS):
        vectors[v, f, j] = 0.0
    vectors[R, f, j] = rhs[f, j]


@njit(cache=True)
def _sum_of(values, start, count):
    total = 0.0
    for i in range(start, start + count):
        total += values[i]
    return total


@kernel("f8[2]", block=32)
def start(n, state):
    """States before the first `judge`, every bundle moves: a lane for each bundle."""
    for s in range(STATE):
        state[n, s] = 0.0
    state[n, MOVES] = 1.0
    state[n, DONE] = -1.0


@kernel("f8[2] f8[1] f8[1] i8 f8", block=32)
def judge(n, state, dots, curvatures, nfibre, tolerance):
    """Where a bundle stands after an iteration, or before the first, and whether it goes on: a lane for each bundle.

    sqrt(norm) is the error in sigma up to the coupling between fibres: norm = r M^-1 r, M: the fibres' own blocks
    """
    if state[n, MOVES] == 0.0:
        return
    first = state[n, DONE] < 0.0
    if not first and not _sum_of(curvatures, n * nfibre, nfibre) > 0.0:
        state[n, MOVES] = 0.0
        return
    norm = _sum_of(dots, n * nfibre, nfibre)
    if first:
        state[n, FLOOR] = 1e-15 * math.sqrt(norm)
    else:
        state[n, BETA] = norm / state[n, NORM]
        state[n, STALLED] = 0.0 if norm < state[n, BEST] else state[n, STALLED] + 1.0
    state[n, BEST] = norm if first else min(state[n, BEST], norm)
    state[n, NORM] = norm
    state[n, DONE] += 1.0
    if not math.sqrt(norm) > max(tolerance, state[n, FLOOR]) or state[n, STALLED] >= PATIENCE:
        state[n, MOVES] = 0.0


BINS = 4      # of one lane of between (text/gradients.h)
between = text_kernel("gradients.between", "f8[3] f8[3] f8[4] f8[2] i8 i8 i8 i8 i8", block=64)


@kernel("f8[3] f8[2] f8[2] i8")
def advance(n, vectors, parts, state, nfibre):
    """The direction and its image, p = z + beta p and q = r + t + beta q, at every 64th bin of a fibre, and their share
    of p q into parts (fibres, PARTS): a lane for each part of a fibre."""
    f, c = n // PARTS, n % PARTS
    b = f // nfibre
    if state[b, MOVES] == 0.0:
        return
    beta, total = state[b, BETA], 0.0
    for j in range(c, vectors.shape[2], PARTS):
        p = vectors[Z, f, j] + beta * vectors[P, f, j]
        q = vectors[R, f, j] + vectors[T, f, j] + beta * vectors[Q, f, j]
        vectors[P, f, j] = p
        vectors[Q, f, j] = q
        total += p * q
    parts[f, c] = total


@kernel("f8[1] f8[2]", block=32)
def add_parts(n, whole, parts):
    """Sums over the parts of a fibre, in order: a lane for each fibre."""
    total = 0.0
    for c in range(parts.shape[1]):
        total += parts[n, c]
    whole[n] = total


@kernel("f8[3] f8[1] f8[2] i8")
def step(n, vectors, curvatures, state, nfibre):
    """A step along the direction, s += alpha p, r -= alpha q: a lane for each bin."""
    nwave = vectors.shape[2]
    f, j = n // nwave, n % nwave
    b = f // nfibre
    if state[b, MOVES] == 0.0:
        return
    curvature = _sum_of(curvatures, b * nfibre, nfibre)
    if curvature > 0.0:
        alpha = state[b, NORM] / curvature
        vectors[S, f, j] += alpha * vectors[P, f, j]
        vectors[R, f, j] -= alpha * vectors[Q, f, j]


@kernel("f8[2] f8[3] f8[3]")
def arrive(n, x, vectors, sums):
    """The solution, x = s, 0 where weight (sums[0]) is 0: a lane for each bin."""
    nwave = x.shape[1]
    f, j = n // nwave, n % nwave
    x[f, j] = vectors[S, f, j] if sums[0, f, j] > 0.0 else 0.0
