"""Limits of what is neglected in a fibre's Schur complement."""
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of what is neglected in S; coupling may also reach the rounding level, if that is larger (definite.Facts).

    coupling: terms of higher order in the coupling, relative to S in its own norm
    distant: fibres farther than the next are eliminated where the bound on their coupling is above this
    tail: what the band cuts off, in S's own norm: above `plain` it is added to flux and ivar exactly in all bins, and
        R is off by 6e-5 of it `clear` diagonals before the first that is cut off, 2e-4 at 5, 1e-3 there (measured):
        it is less where R's last diagonal is nearer, see `most_tail`
    plain: below it ivar moves by 7e-4 of it and R by 1e-4 (measured): there it is added to the flux alone, where that
        asks for it
    shift: what it moves the flux by, in sigma, beyond which the quick correction (narrow.simd_correct) will not do and
        the exact one is made (narrow.remainder); a device makes it always. The quick one left 1.1e-8 sigma in a
        simulated r frame where this was 2e-8, and 1.4e-8 on a range of 19 bins; now 6e-9 at most (measured)
    share: what the band may move s by, of itself, where the exact correction tells: ivar moves by twice that. Usually
        it is 1e-9 at most; in a short stretch of good pixels, with wings at both ends, 3e-8 (measured)
    added: the same where ivar and R have it: R is off by a tenth of it (measured), ivar by nothing to first order.
        Usually it is 5e-9 at most. Where the tail holds bin by bin only it is a tenth of this (banded.OF_CUT)
    uneven: condition number of S beyond which bins know so different amounts that what is foreseen is up to 1.6 times
        too little: there the limit on what the band moves the flux by is uneven_shift
    widen: diagonals added to icov's half-band in turn until the band is wide enough
    own: whether one diagonal more than the fibres' own blocks have is tried before, see `widths`
    window: correlation of two fibres' bins above which S is made whole around them, see windows.py; less at weak ends
    outside: second order in the coupling outside of windows, in the norm of S, beyond which chains are made there,
        whatever rounding leaves in windows: the flux of bright lines in good bins moves by 0.2 sigma times it
    inner: what windows have beyond the band, in S's own norm: facts are asked of the band alone
    cond: of S: beyond it poles leave the weakest bins 10 eps times its root and more: 3e-9 to 1e-8 sigma. Bins that are
        not wanted may be weaker: those before the wanted range, at the edge of the CCD
    most_coupling: what it may be, whatever rounding leaves: the condition number that tells it is that of the weights,
        too, and beside masks has no end
    ndiag: diagonals of R that are kept on each side, no limit
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
        """What the band may move the flux by, in sigma, without the exact correction."""
        return min(self.uneven_shift, self.shift) if cond > self.uneven else self.shift

    def most_tail(self, half: int) -> float:
        """What a band of this half may cut off: three times less for each four diagonals that R's last one is nearer
        to the first that is cut off."""
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
        condition number where that is more
    shift: what they move the flux by, in sigma, or the same 60 eps times the condition number
    tail: what the band cuts off, in S's own norm, or 600 eps times the condition number where that is more: the flux
        moves by 0.01 to 0.2 of it (measured). Above S/N 1000 that grows with S/N, as what poles leave does, of which it
        is a tenth
    pole: what a group of poles may cut off the band more, relative to its smallest shift
    Tails, their condition numbers and what poles cut off are those with the diagonal scaled to 1: weak bins count
        alike
    cond: condition number with the diagonal as it is: poles leave the weakest bins 10 eps times its root, 3e-9
    widths: half-bands of S, in half-bands of icov: the first that is made, and the widest
    """

    neighbours: float = 1e-10
    shift: float = 1e-8
    tail: float = 5e-8
    pole: float = 3e-9
    cond: float = 1e12
    widths: tuple[float, float] = (6.0, 14.0)
