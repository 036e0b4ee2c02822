"""What the banded core knows as Python values, as tables for the kernels of a device."""
import json
from importlib import resources
from itertools import islice, pairwise
from math import inf
from typing import Any

import numpy as np

from gpu_extract.data import Array
from gpu_extract.decorrelate.limits import Limits
from gpu_extract.decorrelate.narrow import definite
from gpu_extract.decorrelate.poles import LADDER, unit_poles
from gpu_extract.decorrelate.weak import TOLD, UNKNOWN
from gpu_extract.device.cuda.text import measure, names, sweeps

RATIOS = np.array([ratio for _, ratio in LADDER])
STRONG = definite.Questions((), (0.06, 0.12, 0.2, 0.3, 0.5), (6e-4, 4e-4, 2.2e-4))    # beside masks and the CCD's edge
SHARES = definite.Questions((1.0, 0.3, 0.1, 3e-2, 1e-2, 3e-3, 1e-3, 1e-4))          # of what S is compared with
TELLS = SHARES.ratios.index(TOLD / UNKNOWN)          # of them, with UNKNOWN as the unit
MOST = Limits().cond            # it is asked for itself, in place of the next ratio above it
BETWEEN = [definite.Questions([MOST if low < MOST < ratio else ratio for low, ratio in pairwise((inf, *asked.ratios))])
           for asked in definite.BETWEEN]
BEYOND = 2 + 2 * sweeps.MOST      # places in a row of poles_table
SUMMED = BEYOND + 2 + sweeps.OF_BEYOND
OF_RUNG = SUMMED + sweeps.OF_BEYOND * sweeps.GROUP * sweeps.RANK
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
    """(rung, number): what sweeps.Poles says, for a spectrum that ends at 1."""
    most, table = sweeps.MOST, np.zeros((len(LADDER), OF_RUNG))
    for row, (count, ratio), held in zip(table, LADDER, corrections(), strict=True):
        unit, groups = unit_poles(count, ratio), [{int(k): a for k, a in group.items()} for group in held["groups"]]
        others, order = iter(sorted(set(range(count)).difference(*groups))), list[int]()
        parts = row[SUMMED:].reshape(sweeps.OF_BEYOND, sweeps.GROUP, sweeps.RANK)
        for n, group in enumerate(groups):
            order += [*group, *islice(others, sweeps.GROUP - len(group))]
            sums = np.array([*group.values()]) * np.sqrt(unit.shifts[[*group]])[:, None]
            row[BEYOND + 1], row[BEYOND + 2 + n], parts[n, :len(sums), :sums.shape[1]] = sums.shape[1], len(sums), sums
        order += others
        row[:2] = count, unit.weights.sum()
        row[2:2 + count], row[2 + most:2 + most + count] = unit.shifts[order], unit.weights[order]
        row[BEYOND] = SHIFT / held["error"]
    return table


def corrections() -> list[dict[str, Any]]:
    """For every rung the sums of poles that make corrections of the flux, and their largest relative error: what
    bench/half_poles.py has found."""
    file = resources.files("gpu_extract").joinpath("etc", "corrections.json")
    found: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return found
