"""Where the fibres of a piece come down: at which rows of the rank's part of the frame; integers only."""
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpu_extract.assemble import wanted
from gpu_extract.data import IntArray
from gpu_extract.plan import Plan


@dataclass(frozen=True)
class Landing:
    """The wanted fibres of a piece, close together and in order.

    places: (fibres of the piece,) int64, the place of each among them, -1 where it is not wanted
    runs: (first, last, target): places first .. last - 1 are the rows from `target` on of the rank's rows
    """

    places: IntArray
    runs: tuple[tuple[int, int, int], ...]


def landings(plan: Plan, fibres: tuple[int, int], pieces: Sequence[Sequence[tuple[int, int]]]) -> list[Landing]:
    """One for each piece; fibres: (lo, hi) of the rank's rows; pieces: fibre ranges of each one's bundles."""
    return [_landing(plan, fibres[0], bundles) for bundles in pieces]


def _landing(plan: Plan, start: int, bundles: Sequence[tuple[int, int]]) -> Landing:
    places: list[IntArray] = []
    runs: list[tuple[int, int, int]] = []
    count = 0
    for bundle in bundles:
        lo, hi = wanted(bundle, plan)
        places.append(np.array([count + f - lo if lo <= f < hi else -1 for f in range(*bundle)], dtype=np.int64))
        first, last, target = count, count + hi - lo, lo - start
        if runs and runs[-1][2] + runs[-1][1] - runs[-1][0] == target:
            first, _, target = runs.pop()
        runs.append((first, last, target))
        count = last
    return Landing(np.concatenate(places), tuple(runs))
