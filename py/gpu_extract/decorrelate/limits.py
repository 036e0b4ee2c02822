"""Limits of what is neglected in a fibre's Schur complement."""
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of what is neglected in S; coupling may also reach the rounding level, if that is larger (definite.Facts).

    coupling: terms of higher order in the coupling, relative to S in its own norm
    distant: fibres farther than the next are eliminated where the bound on their coupling exceeds this
    tail: the elements cut off by the band, in S's own norm; ivar and R change by 4e-4 of it (measured)
    shift: change of the flux by the band, in sigma, above which the quick correction (narrow.simd_correct) is
        insufficient and the exact one is made (narrow.remainder); a device, which has only the quick one, takes a
        wider band
    noisy_shift: the same on a device where x oscillates with noise, not signal: there the quick correction leaves a
        sixth to a third (measured)
    bright: share of bins with signal to noise above 10 up to which a fibre counts as noisy there
    widen: diagonals added to icov's half-band in turn until the band is wide enough
    own: whether one diagonal more than the fibres' own blocks have is tried first, see `widths`
    window: correlation of two fibres' bins above which all of S is computed around them, see the package windows
    inner: elements of windows beyond the band, in S's own norm, up to which the facts of the band alone are used
    cond: of S: above it poles leave an error of more than 1e-8 sigma in the weakest bins, 10 eps times its root
        (measured)
    most_coupling: upper limit of the coupling, whatever the rounding level: the condition number that gives that level
        is also that of the weights, and is unbounded beside masks
    """

    coupling: float = 1e-10
    distant: float = 1e-8
    tail: float = 2.5e-6
    shift: float = 2e-8
    noisy_shift: float = 5e-8
    bright: float = 0.25
    widen: tuple[int, ...] = (0, 4, 8, 12)
    own: bool = True
    window: float = 2e-3
    inner: float = 1e-2
    cond: float = 1e13
    most_coupling: float = 1e-7

    def widths(self, own: int, hw: int) -> list[int]:
        """The half-bands of S to try in turn, from those of a fibre's own block and of all of icov.

        The neighbours' contribution reaches farther than the fibre's own overlaps, but is small. One additional
        diagonal is usually sufficient.
        """
        widths = [hw + extra for extra in self.widen]
        return [max(own + 1, 2), *widths] if self.own and own + 1 < hw else widths
