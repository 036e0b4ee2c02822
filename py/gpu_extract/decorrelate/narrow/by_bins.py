"""Comparisons with S bin by bin, if largest values at different wavelengths are insufficient.

A diagonal matrix D bounds a neglected matrix E, |x' E x| <= x' D x. Whether D is below a share of S is one test for
definiteness (doc/method-banded.md, "How large v is" and "The columns of S").
"""
import numpy as np

from gpu_extract.data import Array
from gpu_extract.decorrelate.narrow.definite import Facts, Questions, ask
from gpu_extract.decorrelate.narrow.measure import Schur

SLOWEST = 3.0       # least factor by which the part cut off falls in four diagonals (measured: 3 to 8)
FARTHEST = 40       # diagonals beyond a band that are counted: there it has fallen by 6e4


def compared(schur: Schur, diagonal: Array, questions: Questions, work: Array) -> Facts:
    """The answers to questions that compare a diagonal matrix (nwave,) with a fibre's S."""
    matrix = np.zeros_like(schur.band)
    matrix[:, 0] = diagonal
    return ask(schur.band, matrix, schur.bound, questions, work)


def cut_off(band: Array, roots: Array) -> Array:
    """(nwave,): D for the part that a band cuts off, from its last diagonal.

    band: (nwave, half + 1), wider than icov; roots: 1 / sqrt of icov's diagonal, 0 if that is 0
    With f = SLOWEST^(-1/4), element (p, p + half + k) is at most f^k of (p, p + half), and of (p + k, p + k + half).
    """
    nwave, half = band.shape[0], band.shape[1] - 1
    ends = np.zeros(nwave)
    last = max(nwave - half, 0)
    ends[:last] = np.abs(band[:last, half]) * roots[:last] * roots[half:half + last]
    fall = SLOWEST**-0.25
    weights = fall**np.arange(FARTHEST)
    weights[0] = fall / (1.0 - fall)
    above = np.convolve(ends[::-1], weights)[:nwave][::-1]          # of p, p + 1, p + 2 ..
    below = np.zeros(nwave)
    below[half:] = np.convolve(ends, weights)[:last]                # of p - half, p - half - 1 ..
    scale = np.divide(1.0, roots**2, out=np.zeros(nwave), where=roots > 0.0)
    return (above + below) * scale
