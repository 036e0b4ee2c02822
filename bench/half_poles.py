"""Which sums of half of the poles make corrections of the flux on a device? Writes etc/corrections.json.

usage: half_poles.py [--write] [--smallest]

In the eigenvectors of B a correction multiplies an element of E by 1 / (sqrt p + sqrt q), p and q eigenvalues
(doc/method-banded.md). Every second pole makes 1 / (p + t_k). Here are sums of these, g_r(p) = sum_k a_kr sqrt(t_k) /
(p + t_k), with which sum_r g_r(p) g_r(q) is that in the range of a rung, so that E is applied to a few vectors in place
of one for each pole. A device works on some poles at a time, its groups: a sum is of one group.

The start is the best of that rank of what weights for each pole by itself make, by least squares; then steps of Gauss
and Newton, in which elements with large errors count more and more (Lawson 1961), so that the largest relative error
becomes small. Prints it for every rung, of as few groups and sums as reach GOAL, and that of the table; --write: writes
the table, in which numbers have five digits (the last ones may depend on the library that solves). Ends with exit code
1 where the table's errors are not what it says. --smallest: one rung.
"""
import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import numpy as np
from parsing import parser_of

import gpu_extract
from gpu_extract.decorrelate.poles import LADDER, unit_poles
from gpu_extract.device.cuda.text import sweeps
from gpu_extract.device.device_tables import corrections

TABLE = Path(gpu_extract.__file__).with_name("etc") / "corrections.json"
GOAL, GRID, FINE, STEPS, BEGIN = 8e-3, 40, 200, 80, 8
DAMPING, FLOOR = 1e-6, 0.05      # of steps, relative; of what small errors count, relative to the mean one


def kernel(parts: list[np.ndarray], at: np.ndarray, shifts: list[np.ndarray]) -> np.ndarray:
    """(sqrt p + sqrt q) times what the sums make, for all p and q in `at`; parts: (poles, sums) of each group."""
    made = np.hstack([columns(at, t) @ a for a, t in zip(parts, shifts, strict=True)])
    return (np.sqrt(at)[:, None] + np.sqrt(at)) * (made @ made.T)


def columns(at: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    """sqrt(t) / (p + t) for all p in `at` and poles."""
    return np.sqrt(shifts) / (at[:, None] + shifts)


def start(at: np.ndarray, shifts: list[np.ndarray], rank: int) -> list[np.ndarray]:
    """The best sums of the poles' own weights, of each group."""
    made, root = columns(at, np.concatenate(shifts)), np.sqrt(at)
    upper = np.triu_indices(len(at))
    each = ((root[:, None] + root)[:, :, None] * made[:, None] * made)[upper]
    size = np.linalg.norm(each, axis=0)
    weights = np.linalg.lstsq(each / size, np.ones(len(each)))[0] / size
    found = []
    for t, own in zip(shifts, np.split(weights, np.cumsum([len(t) for t in shifts])[:-1]), strict=True):
        triangle = np.linalg.qr(columns(at, t) * np.sqrt(2.0 * root)[:, None])[1]
        values, vectors = np.linalg.eigh(triangle * own @ triangle.T)
        best = np.argsort(-values)[:rank]
        found.append(np.linalg.solve(triangle, vectors[:, best] * np.sqrt(np.maximum(values[best], 0.0))))
    return found


def sums(shifts: list[np.ndarray], ratio: float, rank: int) -> tuple[list[np.ndarray], float]:
    """Parts of the poles of each group in its sums, and the largest relative error."""
    at = np.geomspace(1.0 / ratio, 1.0, GRID)
    parts, root, upper = start(at, shifts, rank), np.sqrt(at), np.triu_indices(GRID)
    counts, best, least = np.ones(len(upper[0])), parts, np.inf
    for step in range(STEPS):
        wrong = (kernel(parts, at, shifts) - 1.0)[upper]
        if np.abs(wrong).max() < least:
            best, least = parts, float(np.abs(wrong).max())
        if step > BEGIN:
            counts *= np.sqrt(np.abs(wrong) / np.abs(wrong).mean()) + FLOOR
            counts /= counts.mean()
        slopes = []
        for t, a in zip(shifts, parts, strict=True):
            made = columns(at, t)
            each = np.einsum("pk,qr->rkpq", made, made @ a).reshape(-1, GRID, GRID)
            slopes.append(((each + each.transpose(0, 2, 1)) * (root[:, None] + root))[:, *upper])
        slope = np.concatenate(slopes).T * np.sqrt(counts)[:, None]
        size = np.linalg.norm(slope, axis=0)
        slope /= size
        change = np.linalg.solve(slope.T @ slope + DAMPING * np.eye(len(size)), -slope.T @ (wrong * np.sqrt(counts)))
        ends = np.cumsum([a.size for a in parts])[:-1]
        parts = [a + moved.reshape(a.T.shape).T
                 for a, moved in zip(parts, np.split(change / size, ends), strict=True)]
    best = [np.array([[float(f"{one:.4e}") for one in row] for row in a]) for a in best]
    return best, largest(best, shifts, ratio)


def largest(parts: list[np.ndarray], shifts: list[np.ndarray], ratio: float) -> float:
    """The largest relative error, on a finer grid."""
    return float(np.abs(kernel(parts, np.geomspace(1.0 / ratio, 1.0, FINE), shifts) - 1.0).max())


def of_rung(count: int, ratio: float) -> dict[str, Any]:
    """As few groups, and as few sums of each, as reach GOAL."""
    shifts, half = unit_poles(count, ratio).shifts, np.arange(1, count, 2)
    for many in range(-(-len(half) // sweeps.CORRECTING), sweeps.OF_BEYOND + 1):
        groups = np.array_split(half, many)
        for rank in range(1, sweeps.RANK + 1):
            parts, error = sums([shifts[own] for own in groups], ratio, rank)
            if error < GOAL:
                held = [{str(k): row.tolist() for k, row in zip(own, a, strict=True)}
                        for own, a in zip(groups, parts, strict=True)]
                return {"poles": count, "ratio": ratio, "error": float(f"{error:.2e}"), "groups": held}
    sys.exit(f"half_poles.py: no sums of the rung of {count} poles and {ratio:g} are good to {GOAL}")


def error_of(rung: dict[str, Any]) -> float:
    """The largest relative error of what the table has of a rung."""
    shifts, groups = unit_poles(rung["poles"], rung["ratio"]).shifts, rung["groups"]
    return largest([np.array([*group.values()]) for group in groups],
                   [shifts[[int(k) for k in group]] for group in groups], rung["ratio"])


def main() -> int:
    """Compare or write the table."""
    args = parser_of(__doc__, write=False).parse_args()
    found = [of_rung(*rung) for rung in LADDER[:1 if args.smallest else None]]
    if args.write:
        rows = re.sub(r"\[\s+(-?\d[^\]]*?)\s+\]", lambda row: "[" + re.sub(r"\s+", " ", row[1]) + "]",
                      json.dumps(found, indent=1))
        TABLE.write_text(rows + "\n", encoding="utf-8")
    held = corrections()
    print("poles    ratio  groups: poles in sums          error  that of the table")
    for rung, known in zip(found, held, strict=not args.smallest):
        sizes = ", ".join(f"{len(group)} in {len(next(iter(group.values())))}" for group in rung["groups"])
        print(f"{rung['poles']:5} {rung['ratio']:8.0e}  {sizes:28} {rung['error']:7.1e}  {error_of(known):7.1e}")
    return int(any(abs(error_of(rung) / rung["error"] - 1.0) > 5e-3 for rung in held))


if __name__ == "__main__":
    sys.exit(main())
