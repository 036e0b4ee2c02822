"""Changes of level in a series of measurements, beyond its noise.

Each commit's value is the Hodges-Lehmann mean of the logarithms of its repeats. The noise s of these values comes from
the differences of neighbours, so that a change of level affects it only where it happens. Differences beyond four
robust standard deviations are left out. For every place k the two-sample statistic

    t_k = (mean after k - mean before k) / (s sqrt(1/n_before + 1/n_after))

is formed; the largest |t_k| is a change where its two-sided probability in Student's distribution, times the number of
places that were tried, is below `alpha`, and the change is larger than `LEAST`. Both sides of a change are searched
again in the same way (binary segmentation). Fewer than `FEWEST` commits are not judged.
"""
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import stdtr

ALPHA = 0.005           # probability that a flat history of any length is flagged
LEAST = 0.03            # smaller changes are not reported
FEWEST = 6
_FLOOR = 1e-3           # least noise: clocks and schedulers are not better
_CLIP = 4.0
_GAUSS = 1.4826         # median absolute deviation to standard deviation
_SHARE = 2 / 3          # degrees of freedom per difference of neighbours, which overlap


@dataclass(frozen=True)
class Change:
    """place: the first commit at the new level; ratio: new to old level; t: the statistic; p: corrected probability"""

    place: int
    ratio: float
    t: float
    p: float


def centres(repeats: Sequence[Sequence[float]]) -> np.ndarray:
    """Hodges-Lehmann mean of the logarithms of each commit's repeats: the median of the means of all their pairs,
    including each with itself."""
    lengths = np.array([len(r) for r in repeats])
    found = np.empty(len(repeats))
    for length in np.unique(lengths):
        chosen = np.nonzero(lengths == length)[0]
        logs = np.log(np.array([list(repeats[int(i)]) for i in chosen], dtype=np.float64))
        i, j = np.triu_indices(length)
        found[chosen] = np.median((logs[:, i] + logs[:, j]) / 2, axis=1)
    return found


def find_changes(repeats: Sequence[Sequence[float]], *, alpha: float = ALPHA) -> list[Change]:
    """The changes of level in a history, in order.

    repeats: the positive measurements of each commit, in the commits' order
    """
    if len(repeats) < FEWEST:
        return []
    values = centres(repeats)
    found: list[Change] = []
    _search(values, 0, len(values), (*noise_of(values), alpha), found)
    return _levels(values, sorted(found, key=lambda c: c.place))


def noise_of(values: np.ndarray) -> tuple[float, float]:
    """Standard deviation of single values, and its degrees of freedom."""
    steps = np.diff(values) / np.sqrt(2)
    rough = max(_GAUSS * float(np.median(np.abs(steps))), _FLOOR)
    kept = steps[np.abs(steps) <= _CLIP * rough]
    if len(kept) < 2:
        return rough, 1.0
    return max(float(np.sqrt(np.mean(kept**2))), _FLOOR), max(_SHARE * len(kept), 1.0)


def _search(values: np.ndarray, first: int, last: int, setting: tuple[float, float, float],
            found: list[Change]) -> None:
    """Find the largest change between first and last - 1, then on both sides of it."""
    noise, freedom, alpha = setting
    n = last - first
    if n < 2:
        return
    part = values[first:last]
    before = np.arange(1, n)
    sums = np.cumsum(part)
    step = (sums[-1] - sums[:-1]) / (n - before) - sums[:-1] / before
    t = step / (noise * np.sqrt(1 / before + 1 / (n - before)))
    best = int(np.argmax(np.abs(t)))
    p = min(2 * float(stdtr(freedom, -abs(t[best]))) * (len(values) - 1), 1.0)
    if p >= alpha or abs(np.expm1(step[best])) < LEAST:
        return
    place = first + best + 1
    found.append(Change(place, float(np.exp(step[best])), float(t[best]), p))
    _search(values, first, place, setting, found)
    _search(values, place, last, setting, found)


def _levels(values: np.ndarray, found: list[Change]) -> list[Change]:
    """The changes, with the ratios of the levels on both sides."""
    edges = [0, *(c.place for c in found), len(values)]
    levels = [float(np.mean(values[a:b])) for a, b in pairwise(edges)]
    ratios = [float(np.exp(b - a)) for a, b in pairwise(levels)]
    return [Change(c.place, ratio, c.t, c.p) for c, ratio in zip(found, ratios, strict=True)
            if abs(ratio - 1) >= LEAST]
