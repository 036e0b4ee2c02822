"""Which traces are not where those of the other fibres have them?"""
import numpy as np

from gpu_extract.data import Array, IntArray

APART = 0.5            # pixels: traces closer than this count as one trace
IN_PLACE = 0.5         # of the distance of two fibres: a trace farther from its place may be that of another fibre


def astray(x: Array, candidates: IntArray) -> dict[int, str]:
    """The candidates outside the largest set of fibres whose traces are in order and apart, with reasons.

    x: (nfibre, nwave) of the traces, which may increase or decrease with the fibre number, whichever keeps more fibres.
        The order must hold at all wavelengths: traces that cross count as one
    Several sets are as large if two fibres share a trace, or have each other's. A fibre that is in some of them is kept
    if the fibres that are in all of them have it there: it would get the spectrum of another fibre otherwise.
    """
    steps = np.diff(x[candidates], axis=0)
    if np.all(steps >= APART) or np.all(steps <= -APART):
        return {}
    rising, falling = _ranks(x[candidates]), _ranks(-x[candidates])
    upwards = rising.max() >= falling.max()
    place, rank = (x, rising) if upwards else (-x, falling)
    certain = candidates[_alone(rank)]
    in_place = [i for i in candidates[rank > 0] if i in certain or _in_place(x, i, certain)]
    good = np.array(in_place, dtype=int)
    good = good[_alone(_ranks(place[good]))]
    reasons = {}
    for i in np.setdiff1d(candidates, good).tolist():
        rivals = next(r for r in (_rivals(place, i, good), _rivals(place, i, candidates)) if len(r))
        at_left = bool(rivals[0] < i) == upwards
        other = rivals[rivals < i][-1] if rivals[0] < i else rivals[0]
        reasons[i] = f"its trace is not {'right' if at_left else 'left'} of that of fibre {other}"
    return reasons


def _rivals(x: Array, fibre: int, others: IntArray) -> IntArray:
    """Those of the others, in order, with which a fibre is not in order; x rises with the number."""
    side = np.sign(others - fibre)[:, None]
    return others[(side[:, 0] != 0) & ((side * (x[others] - x[fibre])).min(axis=1) < APART)]


def _in_place(x: Array, fibre: int, certain: IntArray) -> bool:
    """Whether a trace lies where the two certain fibres about it, or the two next to it, would have it."""
    if len(certain) < 2:
        return False
    first = np.clip(np.searchsorted(certain, fibre) - 1, 0, len(certain) - 2)
    below, above = certain[first:first + 2]
    distance = (x[above] - x[below]) / (above - below)
    return bool(np.all(np.abs(x[fibre] - x[below] - (fibre - below) * distance) < IN_PLACE * np.abs(distance)))


def _ranks(x: Array) -> IntArray:
    """Of each trace its place, from 1, in the longest selections in which each x exceeds the last; 0: in none of them.

    x: (n, nwave). It exceeds another if it does by APART or more everywhere.
    """
    after = np.array([(trace - x).min(axis=1) >= APART for trace in x]).reshape(len(x), len(x))
    upto, beyond = np.ones(len(x), dtype=int), np.ones(len(x), dtype=int)
    for n in range(len(x)):
        upto[n] += np.max(upto[:n], where=after[n, :n], initial=0)
    for n in reversed(range(len(x))):
        beyond[n] += np.max(beyond[n + 1:], where=after[n + 1:, n], initial=0)
    return np.where(upto + beyond - 1 == upto.max(initial=0), upto, 0)


def _alone(ranks: IntArray) -> np.ndarray:
    """(n,) which traces are in all of the longest selections."""
    return (ranks > 0) & (np.bincount(ranks)[ranks] == 1)
