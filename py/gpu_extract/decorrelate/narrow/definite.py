"""Facts about a fibre from the definiteness of a few matrices: eight tests at once, each with a certain answer."""
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import compress, pairwise

import numpy as np

from gpu_extract.data import Array
from gpu_extract.decorrelate.narrow import simd_band_tests
from gpu_extract.decorrelate.poles import LADDER
from gpu_extract.decorrelate.weak import TOLD


class Questions:
    """One pass of eight factorisations; lanes: see simd_band_tests.positive; kinds: the answers' bits of each kind.

    ratios: is the spectrum above bound / ratio? thetas: is the coupling below these?
    gammas: is the spectrum above these once the diagonal is scaled to 1?
    """

    def __init__(self, ratios: Sequence[float], thetas: Sequence[float] = (), gammas: Sequence[float] = ()):
        self.ratios, self.thetas, self.gammas = ratios, thetas, gammas
        low, high = len(ratios), len(ratios) + len(thetas)
        lanes = np.zeros((3, simd_band_tests.LANES))
        lanes[0, low:high] = [1.0 - 1.0 / theta for theta in thetas]
        lanes[1, :low] = [1.0 / ratio for ratio in ratios]
        lanes[2] = 1.0
        lanes[2, high:high + len(gammas)] = [1.0 - gamma for gamma in gammas]
        self.lanes = lanes.ravel()
        self.kinds = [(1 << low) - 1, (1 << high) - (1 << low), (1 << high + len(gammas)) - (1 << high)]

    def facts(self, answers: int) -> "Facts":
        """The facts that follow from answers; answers: one bit for every test, the lowest for the first."""
        yes = (answers >> n & 1 for n in range(simd_band_tests.LANES))
        ratios, thetas, gammas = (list(compress(asked, [next(yes) for _ in asked]))
                                  for asked in (self.ratios, self.thetas, self.gammas))
        return Facts(min(ratios, default=math.inf), min(thetas, default=1.0), max(gammas, default=0.0))


EPS = float(np.finfo(float).eps)
RATIOS = [ratio for _, ratio in LADDER]
FIRST = Questions(RATIOS[:2], (1e-6, 1e-5, 1e-4), (3e-3, 1.7e-3, 8e-4))
THEN = Questions(RATIOS[2:], (2.5e-4, 3e-2), (1e-4, 1e-5))
BETWEEN = [Questions(np.geomspace(*pair, 10)[1:-1].tolist()) for pair in pairwise(RATIOS)]
KINDS = np.array([FIRST.kinds, THEN.kinds])
FINER = {low: Questions((), (), np.geomspace(low, high, 10)[1:-1].tolist())
         for low, high in pairwise(sorted((*FIRST.gammas, *THEN.gammas)))}      # up to the next answer, a no
STRONG = [Questions((), np.geomspace(THEN.thetas[0], THEN.thetas[1], 10)[1:-1].tolist()),      # below the last of them
          Questions((), (0.045, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7))]      # and above
SETS = np.array([each.lanes for each in (FIRST, THEN, *BETWEEN, *STRONG)])
ABOVE = Questions((), (0.5,))      # S > U
SHARES = Questions((), (1e-6, 3e-7, 1e-7, 3e-8, 1e-8, 3e-9, 1e-9, 1e-10))      # shares of S, see by_bins
FAR = Questions((), (1e-11, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-4, 1e-2))


@dataclass(frozen=True)
class Facts:
    """The facts that the answers establish.

    cond: bound / cond lies below the spectrum of S; infinite if no answer was yes
    theta: an upper limit of the coupling, 1 if no answer was yes: U < theta (S + U)
    gamma: D^-1/2 S D^-1/2 > gamma, D the diagonal of S; 0 if no answer was yes
    """

    cond: float = math.inf
    theta: float = 1.0
    gamma: float = 0.0

    @cached_property
    def rung(self) -> int | None:
        """Index into LADDER of the first rung whose range contains the spectrum, None if there is none."""
        return next((n for n, ratio in enumerate(RATIOS) if ratio >= self.cond), None)

    @cached_property
    def may_be_weak(self) -> bool:
        """Whether the answers do not exclude that a bin is nearly weak, see decorrelate.weak.

        C_jj icov_jj is below 1 / gamma and below cond, each times 1 / (1 - theta).
        """
        return self.theta >= 1.0 or (self.gamma == 0.0 and self.cond > TOLD)

    @cached_property
    def rounding(self) -> float:
        """The rounding error, in S's own norm, if the condition number is known, else 0."""
        return 40.0 * EPS * self.cond if self.cond < math.inf else 0.0

    def finer(self, excess: float) -> bool:
        """Whether a number that goes with 1 / gamma, `excess` times its limit, may be within it by answers of FINER."""
        return excess > 1.0 and self.gamma in FINER and self.gamma * excess <= FINER[self.gamma].gammas[-1]

    def also(self, other: "Facts") -> "Facts":
        """The best of two sets of answers."""
        return Facts(min(self.cond, other.cond), min(self.theta, other.theta), max(self.gamma, other.gamma))


@cache
def facts_of(first: int, then: int, between: int, strong: int) -> Facts:
    """The facts from the answers to FIRST, THEN, one of BETWEEN and one of STRONG, see simd_measure; 0 stands for a
    test not made.

    Easy fibres are tested once, others up to four times. For those that need more poles than the first rung has, the
    condition number is found within a factor of 2.4 to 3.2.
    """
    facts = FIRST.facts(first).also(THEN.facts(then))
    facts = facts.also(STRONG[facts.theta == 1.0].facts(strong)) if strong else facts
    return facts.also(BETWEEN[facts.rung - 1].facts(between)) if facts.rung else facts


def ask(band: Array, taken: Array, bound: float, questions: Questions, work: Array) -> Facts:
    """The answers to one set of tests; work: on a cache line, see simd_band_tests.work_size."""
    return questions.facts(simd_band_tests.definite(band.shape[1] - 1)(questions.lanes, bound, work, band, taken))
