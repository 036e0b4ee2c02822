"""What the banded core knows as Python values, as tables for the kernels of a device."""
from itertools import combinations_with_replacement, pairwise
from math import inf

import numpy as np

from gpu_extract.data import Array
from gpu_extract.decorrelate.limits import Limits
from gpu_extract.decorrelate.narrow import definite
from gpu_extract.decorrelate.poles import LADDER, Poles, unit_poles
from gpu_extract.decorrelate.weak import TOLD, UNKNOWN
from gpu_extract.device.cuda.text import measure, names, sweeps

RATIOS = np.array([ratio for _, ratio in LADDER])
STRONG = definite.Questions((), (0.06, 0.12, 0.2, 0.3, 0.5), (6e-4, 4e-4, 2.2e-4))    # beside masks and the CCD's edge
SHARES = definite.Questions((1.0, 0.3, 0.1, 3e-2, 1e-2, 3e-3, 1e-3, 1e-4))          # of what S is compared with
TELLS = SHARES.ratios.index(TOLD / UNKNOWN)          # of them, with UNKNOWN as the unit
MOST = Limits().cond            # it is asked for itself, in place of the next ratio above it
BETWEEN = [definite.Questions([MOST if low < MOST < ratio else ratio for low, ratio in pairwise((inf, *asked.ratios))])
           for asked in definite.BETWEEN]
BEYOND, OF_RUNG = 2 + 2 * sweeps.MOST, 4 + 2 * sweeps.MOST + sweeps.MOST // 2      # a row of poles_table
SHIFT = 1e-8    # sigma: error of a correction of the flux that is allowed, as that of the CPU's is
FAR, COUPLED, SHARE = (len(RATIOS) + n for n in (1, 2, 3))      # numbers of sets: about farther fibres, of these two


def questions_table() -> Array:
    """(set, question, number) as kernels `ask` and `learn` take them: the first set, the second, for every rung but the
    first one about ratios up to it, then those that have names."""
    sets = [definite.FIRST, definite.THEN, *BETWEEN, definite.FAR, STRONG, SHARES]
    table = np.zeros((len(sets), measure.QUESTIONS, measure.ASKED))
    for rows, asked in zip(table, sets, strict=True):
        rows[:, :3] = asked.lanes.reshape(3, -1).T
        told = {"COND": asked.ratios, "THETA": asked.thetas, "GAMMA": asked.gammas}
        rows[:, 3:] = [(names("Fact").index(fact), value) for fact, values in told.items() for value in values]
    return table


def poles_table() -> Array:
    """(rung, number): what sweeps.Pole says, for a spectrum that ends at 1. Poles of the corrections come first."""
    most, table = sweeps.MOST, np.zeros((len(LADDER), OF_RUNG))
    for row, (count, ratio) in zip(table, LADDER, strict=True):
        unit, order = unit_poles(count, ratio), [*range(1, count, 2), *range(0, count, 2)]
        weights, error = half_of(unit, ratio)
        row[:2] = count, unit.weights.sum()
        row[2:2 + count], row[2 + most:2 + most + count] = unit.shifts[order], unit.weights[order]
        row[BEYOND:BEYOND + 2 + count // 2] = count // 2, SHIFT / error, *weights
    return table


def half_of(unit: Poles, ratio: float) -> tuple[Array, float]:
    """Weights d_k for the second, fourth, ... of these poles, with which sum_k d_k t_k / ((p + t_k) (q + t_k)) is
    1 / (sqrt p + sqrt q) for p and q in [1/ratio, 1], by least squares, and the largest relative error.

    That is the derivative of the root, which a correction needs to fewer digits (doc/method-banded.md). Weights have
    nine digits, so that they do not depend on the library that solves for them.
    """
    p, q = np.array([*combinations_with_replacement(np.geomspace(1.0 / ratio, 1.0, 40), 2)]).T[:, :, None]
    shifts = unit.shifts[1::2]
    parts = shifts * (np.sqrt(p) + np.sqrt(q)) / ((p + shifts) * (q + shifts))
    size = np.linalg.norm(parts, axis=0)
    found = np.linalg.lstsq(parts / size, np.ones(len(parts)))[0] / size
    weights = np.array([float(f"{weight:.8e}") for weight in found])
    return weights, float(np.abs(parts @ weights - 1.0).max())
