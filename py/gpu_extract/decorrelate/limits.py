"""Limits of what is neglected in a fibre's Schur complement."""
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of what is neglected in S; coupling may also reach the rounding level, if that is larger (definite.Facts).

    coupling: terms of higher order in the coupling, relative to S in its own norm
    distant: fibres farther than the next are eliminated if the bound on their coupling is above this
    tail: what the band cuts off, in S's own norm. Above `plain` it is added to flux and ivar exactly in all bins. R is
        off by 6e-5 of it `clear` diagonals before the first that is cut off, 2e-4 at 5, 1e-3 there (measured); the
        limit is lower if R's last diagonal is nearer, see `most_tail`
    plain: tail below which ivar moves by 7e-4 of it and R by 1e-4 (measured). It is then added to the flux alone, if
        needed
    shift: change of the flux by the tail, in sigma, above which the quick correction (narrow.simd_correct) does not
        suffice and the exact one is made (narrow.remainder); a device always makes it. With 2e-8 the quick one left
        1.1e-8 sigma in a simulated r frame, and 1.4e-8 on a range of 19 bins; now 6e-9 at most (measured)
    share: relative change of s by the band, known from the exact correction; ivar moves by twice that. Usually it is
        1e-9 at most; in a short stretch of good pixels, with wings at both ends, 3e-8 (measured)
    added: the same if ivar and R are corrected: R is off by a tenth of it (measured), ivar by nothing to first order.
        Usually it is 5e-9 at most. If the tail holds only bin by bin, the limit is a tenth of this (banded.OF_CUT)
    uneven: condition number of S above which the information in bins differs so much that the foreseen change of the
        flux is up to 1.6 times too small; its limit is then uneven_shift
    widen: diagonals added to icov's half-band in turn until the band is wide enough
    own: whether one diagonal more than the fibres' own blocks have is tried first, see `widths`
    window: correlation of two fibres' bins above which all of S is kept around them, see windows; less at weak ends
    outside: second order in the coupling outside of windows, in the norm of S, above which chains are made there,
        whatever the rounding error in windows: the flux of bright lines in good bins moves by 0.2 sigma times it
    inner: elements of windows beyond the band, in S's own norm: facts describe the band alone
    cond: condition number of S: beyond it poles leave errors of 10 eps times its root and more in the weakest bins:
        3e-9 to 1e-8 sigma. Bins outside the requested range, at the edge of the CCD, may be weaker
    most_coupling: largest value of `coupling`, whatever the rounding error: the condition number that determines this
        error includes the range of the weights, and has no bound beside masks
    ndiag: diagonals of R that are kept on each side; not a limit
    """

    coupling: float = 1e-10
    distant: float = 1e-8
    tail: float = 1.5e-5
    clear: int = 9
    plain: float = 1e-6
    shift: float = 1e-8
    share: float = 4e-9
    added: float = 2e-8
    uneven: float = 5e3
    uneven_shift: float = 6e-9
    widen: tuple[int, ...] = (0, 4, 8, 12, 20, 28)
    own: bool = True
    window: float = 2e-3
    outside: float = 1e-8
    inner: float = 1e-2
    cond: float = 1e12
    most_coupling: float = 1e-7
    ndiag: int = 0

    def most_shift(self, cond: float) -> float:
        """How much the band may move the flux, in sigma, without the exact correction."""
        return min(self.uneven_shift, self.shift) if cond > self.uneven else self.shift

    def most_tail(self, half: int) -> float:
        """How much a band of this half may cut off: three times less for every four diagonals by which R's last one is
        nearer to the first that is cut off."""
        near = self.clear - (half + 1 - self.ndiag)
        return min(max(self.tail * 3.0 ** (-near / 4.0), self.plain), self.tail)

    def widths(self, own: int, hw: int) -> list[int]:
        """The half-bands of S to try in turn, from those of a fibre's own block and of all of icov.

        The neighbours' contribution reaches farther than the fibre's own overlaps, but is small. One additional
        diagonal is usually sufficient.
        """
        widths = [hw + extra for extra in self.widen]
        return [max(own + 1, 2), *widths] if self.own and own + 1 < hw else widths


@dataclass(frozen=True)
class WideLimits:
    """Limits of what the wide band may neglect.

    neighbours: change of S by the neighbours that are not eliminated, relative in S's own norm, or 60 eps times the
        condition number if that is larger
    shift: change of the flux by these, in sigma, or the same 60 eps times the condition number
    tail: what the band cuts off, in S's own norm, or 600 eps times the condition number if that is larger. The flux
        would move by up to 0.36 of it (measured), hence wide.OF_TAIL. Above S/N 1000 that grows with S/N, as the error
        of the poles does, of which it is a tenth
    pole: what a group of poles may additionally cut off the band, relative to its smallest shift, if the flux (OF_TAIL)
        does not need more
    Tails, their condition numbers and what poles cut off refer to a diagonal scaled to 1, so that weak bins count
        equally
    cond: condition number with the unscaled diagonal: poles leave 10 eps times its root, 3e-9, in the weakest bins
    widths: half-bands of S, in half-bands of icov: the first that is made, and the widest
    """

    neighbours: float = 1e-10
    shift: float = 1e-8
    tail: float = 5e-8
    pole: float = 3e-9
    cond: float = 1e12
    widths: tuple[float, float] = (6.0, 14.0)
