"""What the banded core knows as Python values, as tables for the kernels of a device."""
from itertools import pairwise
from math import inf

import numpy as np

from gpu_extract.data import Array
from gpu_extract.decorrelate.limits import Limits
from gpu_extract.decorrelate.narrow import definite
from gpu_extract.decorrelate.poles import LADDER, unit_poles
from gpu_extract.device.cuda.text import measure, names, poles

RATIOS = np.array([ratio for _, ratio in LADDER])
STRONG = definite.Questions((), (0.06, 0.12, 0.2, 0.3, 0.5), (6e-4, 4e-4, 2.2e-4))    # beside masks and the CCD's edge
SHARES = definite.Questions((1.0, 0.3, 0.1, 3e-2, 1e-2, 3e-3, 1e-3, 1e-4))          # of what S is compared with
MOST = Limits().cond            # it is asked for itself, in place of the next ratio above it
BETWEEN = [definite.Questions([MOST if low < MOST < ratio else ratio for low, ratio in pairwise((inf, *asked.ratios))])
           for asked in definite.BETWEEN]
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
    """(rung, number): how many, the sum of their weights, shifts and weights, for a spectrum that ends at 1."""
    table = np.zeros((len(LADDER), 2 + 2 * poles.MOST))
    for row, (count, ratio) in zip(table, LADDER, strict=True):
        unit = unit_poles(count, ratio)
        row[:2] = count, unit.weights.sum()
        row[2:2 + count], row[2 + poles.MOST:2 + poles.MOST + count] = unit.shifts, unit.weights
    return table
