"""Tables for the banded core on a device, and the sizes of its work arrays."""
import json
from dataclasses import dataclass, replace
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
from gpu_extract.device.cuda.lanes import LONG, tiles_of
from gpu_extract.device.cuda.piece import PieceShape
from gpu_extract.device.cuda.text import eliminate, measure, names, sweeps
from gpu_extract.device.memory import Arrays

RATIOS = np.array([ratio for _, ratio in LADDER])
STRONG = definite.Questions((), (0.06, 0.12, 0.2, 0.3, 0.5), (6e-4, 4e-4, 2.2e-4))    # beside masks, edges of the CCD
SHARES = definite.Questions((1.0, 0.3, 0.1, 3e-2, 1e-2, 3e-3, 1e-3, 1e-4))          # what S is compared to
TELLS = SHARES.ratios.index(TOLD / UNKNOWN)          # one of them, in units of UNKNOWN
MOST = Limits().cond            # this limit is asked for itself, in place of the next ratio above it
BETWEEN = [definite.Questions([MOST if low < MOST < ratio else ratio for low, ratio in pairwise((inf, *asked.ratios))])
           for asked in definite.BETWEEN]
BEYOND = 2 + 2 * sweeps.MOST      # places in a row of poles_table
SUMMED = BEYOND + 2 + sweeps.OF_BEYOND
OF_RUNG = SUMMED + sweeps.OF_BEYOND * sweeps.GROUP * sweeps.RANK
SHIFT = 1e-8    # sigma: allowed error of a correction of the flux, as on the CPU
FAR, COUPLED, SHARE = (len(RATIOS) + n for n in (1, 2, 3))      # numbers of sets: about farther fibres, STRONG, SHARES

SETS = 3             # sets of questions that are asked at once: the first, the second, the far one
WIDEN = 0, 4, 12, 20, 32     # the bands of S that are tried have so many diagonals more than icov. Beside masks and CCD
                             # edges, where the CPU has windows, S is kept as far as it reaches
DEEPEST = 23         # most fibres in a row beyond a neighbour that are eliminated one after the other


def questions_table() -> Array:
    """(set, question, number) for the kernels `ask` and `learn`: the first set; the second; for every rung but the
    first, one about ratios up to it; then FAR, COUPLED and SHARE."""
    sets = [definite.FIRST, definite.THEN, *BETWEEN, definite.FAR, STRONG, SHARES]
    table = np.zeros((len(sets), measure.QUESTIONS, measure.ASKED))
    for rows, asked in zip(table, sets, strict=True):
        rows[:, :3] = asked.lanes.reshape(3, -1).T
        told = {"COND": asked.ratios, "THETA": asked.thetas, "GAMMA": asked.gammas}
        rows[:, 3:] = [(names("Fact").index(fact), value) for fact, values in told.items() for value in values]
    return table


def poles_table() -> Array:
    """(rung, number): the numbers of sweeps.Poles, for a spectrum that ends at 1."""
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
    """For every rung the sums of poles that correct the flux, and their largest relative error, as found by
    bench/half_poles.py."""
    file = resources.files("gpu_extract").joinpath("etc", "corrections.json")
    found: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return found


@dataclass(frozen=True)
class Sizes:
    """Numbers that follow from a piece's shape.

    halves: half-bands of S that are tried; half: the widest; wide: diagonals of the inverse of a block that it needs;
    ndiag: diagonals of Q; kept: elements of a row of sums; width: of a row of the poles' work; chunks: of a fibre;
    groups: of its chunks; deepest: most fibres of a chain beyond a neighbour
    """

    shape: PieceShape
    halves: tuple[int, ...]
    half: int
    wide: int
    ndiag: int
    kept: int
    width: int
    chunks: int
    groups: int
    deepest: int

    @staticmethod
    def of(shape: PieceShape) -> "Sizes":
        """The sizes for pieces of a shape. If icov couples no fibres, each is a bundle of its own."""
        if shape.nd == 1:
            shape = replace(shape, bundles=shape.fibres, nfibre=1)
        halves, chunks = tuple(shape.hw + extra for extra in WIDEN), -(-shape.nwave // measure.CHUNK)
        ndiag, half = shape.ndiag, max(halves)
        return Sizes(shape, halves, half, 2 * shape.hw + half, ndiag, sweeps.SIDES + ndiag + 1,
                     sweeps.SIDES + 1 + half, chunks, -(-chunks // measure.GATHERED),
                     max(min(DEEPEST, shape.nfibre - 2), 0))

    def arrays(self) -> Arrays:
        """The work arrays."""
        s, fibres, n = self.shape, self.shape.fibres, self.shape.nwave * self.shape.fibres
        rows, most = self.half + 1, max(measure.SUMS, measure.SQUARES)
        elements = {"blocks": s.nd * (2 * s.hw + 1) * n, "sides": sweeps.SIDES * n, "roots": n,
                    "inverse": (self.wide + 1) * n, "shares": 2 * rows * n, "band": rows * n, "taken": rows * n,
                    "pair_low": 2 * rows * n, "sums": self.kept * n, "left": sweeps.SIDES * n,
                    "reciprocal": n, "tops": max(s.nd * (2 * s.hw + 1), rows + 1) * eliminate.STRETCHES * fibres,
                    "sizes": s.nd * fibres, "facts": len(names("Fact")) * fibres,
                    "yes": SETS * measure.QUESTIONS * fibres, "chunks": self.chunks * most * fibres,
                    "groups": self.groups * most * fibres, "scratch": self.scratch(),
                    "far": rows * n if s.nd > 2 else 1}
        integers = {"flags": len(names("Flag")), "depth": 2, "listed": 2 * max(self.deepest, 1), "wider": 4, "own": 6,
                    "pair_halo": 2 * tiles_of(s.nwave),
                    "pole_halo": tiles_of(s.nwave, LONG)}
        return {**{name: ((size,), np.float64) for name, size in elements.items()},
                **{name: ((size * fibres,), np.int32) for name, size in integers.items()}}

    def scratch(self) -> int:
        """Elements of the memory that several steps use in turn."""
        return max(last for _, last in self.parts().values())

    def parts(self) -> dict[str, tuple[int, int]]:
        """Names and places of the arrays in `scratch`: those for pairs of fibres, then those for poles."""
        n, rows, wide = self.shape.nwave * self.shape.fibres, 2 * (self.half + 1), 2 * (self.wide + 1)
        vectors, of_sums = (sweeps.SIDES * many for many in (max(sweeps.GROUP, 2 * sweeps.RANK), sweeps.RANK))
        places = {}
        for users in ({"v": wide, "pair_band": rows, "pair_inverse": wide},
                      {"v": wide, "pair_shares": rows},
                      {"work": sweeps.GROUP * self.width, "found": sweeps.GROUP * self.kept, "mixed": of_sums,
                       "moved": vectors, "half_way": vectors, "beyond": of_sums}):
            first = 0
            for name, count in users.items():
                places[name] = first, first + count * n
                first += count * n
        return places
