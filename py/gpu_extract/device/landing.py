"""Where the fibres of a piece come down: at which rows of the rank's part of the frame; integers only."""
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

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


def landing_of(plan: Plan, start: int, bundles: Sequence[tuple[int, int]]) -> Landing:
    """Of a piece; start: the first fibre of the rank's rows; bundles: the fibre ranges of the piece's."""
    fibres = np.concatenate([np.arange(*bundle) for bundle in bundles])
    kept = np.isin(fibres, np.concatenate([np.arange(*wanted(bundle, plan)) for bundle in bundles]))
    targets = fibres[kept] - start
    ends = [0, *(np.flatnonzero(np.diff(targets) != 1) + 1).tolist(), len(targets)]
    runs = tuple((first, last, int(targets[first])) for first, last in pairwise(ends) if first < last)
    return Landing(np.where(kept, np.cumsum(kept) - 1, -1), runs)
