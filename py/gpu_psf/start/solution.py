"""Wavelength against row for every fibre, from lines of known wavelength.

All fibres together: w_i(y) = sum c_kl P_k(y) P_l(i), or, for the orders of an echelle, m_i w_i(y), which is nearly the
same for all orders m (the grating equation). A fibre with enough lines has its own terms in addition. Lines that no
such surface explains are misidentified.
"""
from dataclasses import dataclass, replace

import numpy as np

from gpu_extract.data import Array, IntArray, Legendre
from gpu_extract.errors import InputError
from gpu_psf.series import at_rows, legendre_of_rows, legfit, legval, legvander, legvander2d, one_by_one
from gpu_psf.start.lines import Pairs

DEGREES = (4, 3)           # of the surface, in row and fibre
CLIP = 4.0
OWN = 6                    # lines of a fibre per own term
TOLD = 3                   # lines at different wavelengths per term in row, in addition to a known solution
HELD = 9, 0.03             # rows of each fibre at which a solution from the same lines counts, and its weight
EVEN = 0.07                # weight, per root of a fibre, with which fibres bend alike
# pixels that a line may be off in all fibres alike; expected terms of orders 3 and 4 in row, as shares of the CCD
# (those of DESI and BOSS are below 0.004 and 0.0002)
STIFF = 0.1, (0.01, 0.001)
MOST_LOST = 0.4            # largest share of lines that may be left out
ORDERS = range(8, 160)     # of a grating


@dataclass(frozen=True)
class Solution:
    """wave: (nfibre, ncoef) Angstrom against the row; rms: of the lines used, in pixels; used: (nline,) bool
    orders: (nfibre,) of the grating, or None where all fibres have the same wavelengths"""

    wave: Legendre
    rms: float
    used: np.ndarray
    orders: IntArray | None = None

    def at(self, y: Array) -> Array:
        """(nfibre, len(y)) Angstrom."""
        return at_rows(self.wave, y)


def solve_wavelengths(pairs: Pairs, nfibre: int, ny: int, *, echelle: bool = False,
                      base: Solution | None = None, found: Solution | None = None, even: bool = False) -> Solution:
    """The surface through known lines, or their correction to a solution `base` that is nearly right.

    found: a solution from these and other lines, which constrains what they leave open, between lines that are far
    apart
    even: of what `found` leaves open, too, because the arc is masked in part, all fibres bend alike

    Raises InputError if the lines are too few, or do not lie on one surface.
    """
    orders = _orders(pairs, nfibre, ny) if echelle else None
    return _solve(pairs, nfibre, ny, orders, base, None if found is None else _held(found, nfibre, ny), even)


def _held(found: Solution, nfibre: int, ny: int) -> Pairs:
    """Some of a solution's wavelengths, as pseudo-lines."""
    row, fibre = np.tile(np.linspace(0, ny - 1, HELD[0]), nfibre), np.repeat(np.arange(nfibre), HELD[0])
    return Pairs(fibre, row, one_by_one(found.wave, fibre, row))


def _orders(pairs: Pairs, nfibre: int, ny: int) -> IntArray:
    """The orders of the grating for which the lines lie closest to a surface."""
    best = (np.inf, np.arange(nfibre))
    for first in ORDERS:
        for direction in (1, -1):
            orders = first + direction * np.arange(nfibre)
            if orders.min() < 1:
                continue
            basis = _terms(pairs, nfibre, ny, (2, 2))
            scaled = pairs.wave * orders[pairs.fibre]
            left = scaled - basis @ np.linalg.lstsq(basis, scaled, rcond=None)[0]
            size = float(np.median(np.abs(left / scaled)))
            if size < best[0]:
                best = size, orders
    return best[1]


def _terms(pairs: Pairs, nfibre: int, ny: int, degrees: tuple[int, int]) -> Array:
    """(nline, terms) P_k(y) P_l(i)."""
    u = 2 * pairs.row / (ny - 1) - 1
    v = 2 * pairs.fibre / max(nfibre - 1, 1) - 1
    return legvander2d(u, v, degrees)


def _uneven(degrees: tuple[int, int]) -> Array:
    """(n, terms): one row for each term P_k P_l with k l > 1. Lines determine these, except beside a masked part of the
    arc, which they would leave to itself."""
    order = np.outer(np.arange(degrees[0] + 1), np.arange(degrees[1] + 1)).ravel()
    return np.eye(len(order))[order > 1]


def _degrees(pairs: Pairs) -> tuple[int, int]:
    """As many terms as the lines allow: three lines to a term."""
    fibres, lines = len(np.unique(pairs.fibre)), len(pairs.row)
    most = max(np.unique(pairs.fibre, return_counts=True)[1])
    k, l = min(DEGREES[0], max(int(most) - 1, 1)), min(DEGREES[1], fibres - 1)
    while (k + 1) * (l + 1) * 3 > lines and (k > 1 or l > 0):       # slits are bent: a square across stays longer
        k, l = (k, l - 1) if l > 2 or k == 1 or (k == 2 and l > 1) else (k - 1, l)
    return k, max(l, 0)


def _stiff(degrees: tuple[int, int], ny: int) -> Array:
    """(n, terms): one row for each term of order 3 or more in row. The few lines of a lamp leave them open beyond the
    last line, and in gaps."""
    order = np.repeat(np.arange(degrees[0] + 1), degrees[1] + 1)
    rows = np.eye(len(order))[order > 2]
    return rows * np.array([STIFF[0] / (STIFF[1][k - 3] * ny) for k in order[order > 2]]).reshape(-1, 1)


def _solve(pairs: Pairs, nfibre: int, ny: int, orders: IntArray | None, base: Solution | None,
           held: Pairs | None, even: bool) -> Solution:
    if len(pairs.row) < 4:
        raise InputError(f"{len(pairs.row)} lines with known wavelengths are too few for a solution, at least 4 are "
                         "needed: give more")
    factor = np.ones(nfibre) if orders is None else orders.astype(float)
    values, degrees = pairs.wave * factor[pairs.fibre], _degrees(pairs)
    least = 1e-7 * values.mean()
    if base is not None:            # which cannot be checked away from lines, and stays unchanged there
        values -= one_by_one(base.wave, pairs.fibre, pairs.row) * factor[pairs.fibre]
        different = len(np.unique(pairs.wave))
        if different < TOLD:
            raise InputError(f"{different} lines of the list are seen apart from others, at least {TOLD} are needed: "
                             "give the list of this lamp, or an arc with more lines")
        degrees = min(degrees[0], different // TOLD - 1), degrees[1]
    basis = _terms(pairs, nfibre, ny, degrees)
    used = np.ones(len(values), dtype=bool)
    weak, told = basis[:0], values[:0]
    if held is not None:
        weak, told = HELD[1] * _terms(held, nfibre, ny, degrees), HELD[1] * held.wave * factor[held.fibre]
    if held is not None and orders is None:
        stiff = np.sqrt(nfibre) * _stiff(degrees, ny)
        weak, told = np.concatenate([weak, stiff]), np.append(told, np.zeros(len(stiff)))
    if even:
        uneven = EVEN * np.sqrt(nfibre) * _uneven(degrees)
        weak, told = np.concatenate([weak, uneven]), np.append(told, np.zeros(len(uneven)))
    for _ in range(10):
        coeff = np.linalg.lstsq(np.concatenate([basis[used], weak]), np.append(values[used], told), rcond=None)[0]
        left = values - basis @ coeff
        limit = CLIP * max(1.4826 * np.median(np.abs(left[used])), least)
        again = np.abs(left) <= limit
        if (again == used).all() or np.count_nonzero(again) < basis.shape[1] + 2:
            break
        used = again
    surface = coeff.reshape(degrees[0] + 1, degrees[1] + 1)
    v = 2 * np.arange(nfibre) / max(nfibre - 1, 1) - 1
    wave = (surface @ legvander(v, degrees[1]).T).T / factor[:, None]
    if base is not None:
        terms = max(base.wave.coeff.shape[1], wave.shape[1])
        wave = np.sum([np.pad(each, ((0, 0), (0, terms - each.shape[1]))) for each in (base.wave.coeff, wave)], axis=0)
    _add_own(wave, pairs, used, ny)
    solution = Solution(legendre_of_rows(wave, ny), 0.0, used, orders)
    return _judged(solution, pairs, ny)


def _add_own(wave: Array, pairs: Pairs, used: np.ndarray, ny: int) -> None:
    """A few own terms of each fibre, from the residuals of its lines."""
    for i in np.unique(pairs.fibre[used]):
        own = used & (pairs.fibre == i)
        terms = min(np.count_nonzero(own) // OWN, wave.shape[1])
        if terms:
            argument = 2 * pairs.row[own] / (ny - 1) - 1
            left = pairs.wave[own] - legval(argument, wave[i])
            wave[i, :terms] += legfit(argument, left, terms - 1)


def _judged(solution: Solution, pairs: Pairs, ny: int) -> Solution:
    """The solution with its rms in pixels. Raises InputError if too many lines are left out, or wavelengths reverse on
    the CCD."""
    y = np.linspace(0, ny - 1, 129)
    slopes = np.diff(solution.at(y), axis=1) / np.diff(y)
    lost = 1 - np.count_nonzero(solution.used) / len(solution.used)
    if lost > MOST_LOST:
        raise InputError(f"{lost:.0%} of the {len(pairs.row)} lines do not lie on one smooth solution, at most "
                         f"{MOST_LOST:.0%} may be left out: count fibres and rows from 0, give the right list, and use "
                         "--echelle for orders")
    if not ((slopes > 0).all() or (slopes < 0).all()):
        raise InputError("the wavelengths of the solution reverse on the CCD: the known lines cover too little of it; "
                         "give more of them")
    step = np.abs(slopes).mean(axis=1)[pairs.fibre]
    left = ((pairs.wave - one_by_one(solution.wave, pairs.fibre, pairs.row)) / step)[solution.used]
    return replace(solution, rms=float(np.sqrt(np.mean(left**2))))
