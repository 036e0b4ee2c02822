"""How large the work arrays of the banded core on a device are."""
from dataclasses import dataclass, replace

import numpy as np

from gpu_extract.device.cuda.lanes import LONG, tiles_of
from gpu_extract.device.cuda.piece import PieceShape
from gpu_extract.device.cuda.text import eliminate, measure, names, sweeps
from gpu_extract.device.memory import Arrays

SETS = 3             # of questions asked at once: the first, the second, the far one
WIDEN = 0, 4, 12, 20, 32     # diagonals that the bands of S that are tried have more than icov: beside masks and the
                             # CCD's edge, where the CPU has windows, S is kept as far as it reaches
DEEPEST = 23         # fibres in a row beyond a neighbour that are eliminated one after the other


@dataclass(frozen=True)
class Sizes:
    """Numbers that follow from a piece's shape.

    halves: half-bands of S that are tried; half: the widest; wide: diagonals of the inverse of a block that this asks
    for; ndiag: diagonals of Q; kept: elements of a row of sums; width: of a row of the poles' work; chunks: of a fibre;
    groups: of its chunks
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
        """The sizes for pieces of a shape. Fibres that touch no other are bundles of their own: icov couples no two."""
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
        """Elements of what is used for one thing after the other."""
        return max(last for _, last in self.parts().values())

    def parts(self) -> dict[str, tuple[int, int]]:
        """Names and places of what lies in `scratch`: pairs of fibres, then poles."""
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
