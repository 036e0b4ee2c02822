"""How large the work arrays of the banded core on a device are."""
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_extract.decorrelate.banded import NARROW
from gpu_extract.decorrelate.limits import Limits
from gpu_extract.decorrelate.narrow.simd_correct import HALF
from gpu_extract.device.cuda.lanes import tiles_of
from gpu_extract.device.cuda.piece import PieceShape
from gpu_extract.device.cuda.text import eliminate, measure, names, sweeps

SETS = 3             # of questions asked at once: the first, the second, the far one
DEEPEST = 8          # fibres in a row beyond a neighbour that are eliminated one after the other


@dataclass(frozen=True)
class Sizes:
    """Numbers that follow from a piece's shape.

    halves: half-bands of S that are tried; half: the widest; wide: diagonals of the inverse of a block that this asks
    for; ndiag: diagonals of Q; kept: elements of a row of sums; width: of a row of the poles' work; chunks: of a fibre
    """

    shape: PieceShape
    halves: tuple[int, ...]
    half: int
    wide: int
    ndiag: int
    kept: int
    width: int
    chunks: int
    deepest: int

    @staticmethod
    def of(shape: PieceShape, limits: Limits) -> "Sizes":
        """The sizes for pieces of a shape."""
        halves = tuple(shape.hw + extra for extra in limits.widen)
        ndiag, half = max(shape.ndiag, HALF), max(halves)
        return Sizes(shape, halves, half, 2 * shape.hw + half, ndiag, sweeps.SIDES + ndiag + 1,
                     sweeps.SIDES + 1 + half, -(-shape.nwave // measure.CHUNK),
                     max(min(DEEPEST, shape.nfibre - 2), 0))

    def arrays(self) -> dict[str, tuple[int, Any]]:
        """Elements and types of the work arrays."""
        s, fibres, n = self.shape, self.shape.fibres, self.shape.nwave * self.shape.fibres
        if s.hw > NARROW:
            return {"flags": (len(names("Flag")) * fibres, np.int32)}
        rows = self.half + 1
        elements = {"blocks": s.nd * (2 * s.hw + 1) * n, "sides": sweeps.SIDES * n, "roots": n, "low": (s.hw + 1) * n,
                    "inverse": (self.wide + 1) * n, "shares": 2 * rows * n, "band": rows * n, "taken": rows * n,
                    "moved": 2 * n, "half_way": 2 * n, "ux": n, "sums": self.kept * n,
                    "reciprocal": n, "tops": max(s.nd * (2 * s.hw + 1), rows + 1) * eliminate.STRETCHES * fibres,
                    "sizes": s.nd * fibres, "facts": len(names("Fact")) * fibres,
                    "yes": SETS * measure.QUESTIONS * fibres, "chunks": self.chunks * measure.SUMS * fibres,
                    "scratch": self.scratch(), "far": rows * n if s.nd > 2 else 1, "far_ux": n if s.nd > 2 else 1}
        arrays = {name: (size, np.float64) for name, size in elements.items()}
        return arrays | {"flags": (len(names("Flag")) * fibres, np.int32), "depth": (2 * fibres, np.int32),
                         "wider": (3 * fibres, np.int32), "all": (fibres, np.int32), "own": (2 * fibres, np.int32),
                         "halo": (2 * tiles_of(s.nwave) * fibres, np.int32)}

    def scratch(self) -> int:
        """Elements of what is used for one thing after the other."""
        return max(last for _, last in self.parts().values())

    def parts(self) -> dict[str, tuple[int, int]]:
        """Names and places of what lies in `scratch`: pairs of fibres, then poles, then the flux's correction."""
        n, rows, wide = self.shape.nwave * self.shape.fibres, 2 * (self.half + 1), 2 * (self.wide + 1)
        work, found = sweeps.GROUP * self.width * n, sweeps.GROUP * self.kept * n
        places = {"work": (0, work), "found": (work, work + found)}
        for users in ({"v": wide, "pair_band": rows, "pair_low": rows, "pair_inverse": wide},
                      {"v": wide, "pair_shares": rows, "pair_moved": 2},
                      {"q": HALF + 1, "q_low": HALF + 1, "left": 1}):
            first = 0
            for name, count in users.items():
                places[name] = first, first + count * n
                first += count * n
        return places
