"""The arithmetic of the stages of an extraction, counted on paper, for comparison with their times.

One bin's spot has ny x nx pixels; spots of bins k apart on one fibre, and of fibres d apart, overlap on about
(ny - k py)(nx - d px) of them, with py and px the pixels from bin to bin and from fibre to fibre. With n bins, the
half-bands h (bins) and f (fibres), i iterations of conjugate gradients and p poles:

    normal       2 n (sum of the overlaps of all pairs)                  products of A^T W A
    solve        n h^2 + i n [4 h + 4 (2 h + 1) f]                       one factorisation; solves and couplings
    decorrelate  p n [h^2 + 8 h + 2 h^2]                                 factorise, two solves, selected inverse
    quality      6 n ny nx                                               A x, and three sums over each spot

The bytes are the least that must come from memory: the band with its couplings once an iteration (solve), the spots
in single precision (quality). The counts are of the banded core.
"""
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu_extract.perf.record import BUNDLE, Run

POLES = 20


@dataclass(frozen=True)
class Work:
    """Operations, and bytes from memory, of one stage; None: not counted."""

    flop: float | None = None
    nbytes: float | None = None


def work_of(run: Run) -> dict[str, Work]:
    """The work of the stages over all ranks; empty if the record does not hold enough."""
    problem: Mapping[str, Any] = run.facts.get("problem") or {}
    bundles: Mapping[str, Any] = problem.get("bundles") or {}
    told = all(name in notes for notes in bundles.values() for name in BUNDLE)
    if not bundles or not told or not problem.get("stamp") or not problem.get("pitch"):
        return {}
    sums = {name: [0.0, 0.0] for name in ("normal", "solve", "decorrelate", "quality")}
    for notes in bundles.values():
        for name, (flop, nbytes) in _bundle(problem, notes, problem["fibres"] / len(bundles)).items():
            sums[name][0] += flop
            sums[name][1] += nbytes
    banded = (run.facts.get("config") or {}).get("core") != "dense"
    return {name: Work(flop, nbytes or None) for name, (flop, nbytes) in sums.items()
            if banded or name != "decorrelate"}


def _bundle(problem: Mapping[str, Any], notes: Mapping[str, Any], fibres: float) -> dict[str, tuple[float, float]]:
    ny, nx = problem["stamp"]
    py, px = problem["pitch"]
    h, f, steps = int(notes["halfband"]), int(notes["neighbours"]), float(notes["iterations"])
    n = fibres * problem["bins"]
    overlap = sum(max(ny - abs(k) * py, 0.0) * max(nx - d * px, 0.0)
                  for d in range(f + 1) for k in range(-h if d else 0, h + 1))
    couplings = 2 * (2 * h + 1) * f
    return {"normal": (2 * n * overlap, 0.0),
            "solve": (n * h**2 + steps * n * (4 * h + 2 * couplings), 8 * n * steps * (h + 1 + couplings / 2)),
            "decorrelate": (POLES * n * (3 * h**2 + 8 * h), 0.0),
            "quality": (6 * n * ny * nx, 4 * n * ny * nx)}
