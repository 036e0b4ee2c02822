"""What the definiteness of a few matrices says about a fibre: eight questions at once, each answered for certain."""
from dataclasses import dataclass

import numpy as np

from gpu_extract.backend import cpu_band_tests
from gpu_extract.backend.cpu_banded import aligned
from gpu_extract.cores.poles import LADDER
from gpu_extract.data import Array


class Questions:
    """One pass of eight factorisations.

    rungs: is the spectrum above bound / M-to-m of these rungs of LADDER? thetas: is the coupling below these?
    gammas: is the spectrum above these once the diagonal is scaled to 1?
    """

    def __init__(self, rungs: tuple[int, ...], thetas: tuple[float, ...], gammas: tuple[float, ...]):
        self.rungs, self.thetas, self.gammas = rungs, thetas, gammas
        low, high = len(rungs), len(rungs) + len(thetas)
        self.lanes = np.zeros((3, cpu_band_tests.LANES))
        self.lanes[0, low:high] = [1.0 - 1.0 / theta for theta in thetas]
        self.lanes[1, :low] = [1.0 / LADDER[n][1] for n in rungs]
        self.lanes[2] = 1.0
        self.lanes[2, high:high + len(gammas)] = [1.0 - gamma for gamma in gammas]


FIRST = Questions((0, 1, 2), (1e-7, 1e-6, 1e-5, 1e-4), (3e-3,))
THEN = Questions((3, 4), (1e-2, 0.1, 0.3), (1e-3, 1e-4, 1e-5))
FAR = Questions((), (1e-11, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-4, 1e-2), ())


@dataclass(frozen=True)
class Facts:
    """The answers.

    rung: index into LADDER of the first rung whose range holds the spectrum of S, None where there is none
    theta: the coupling is below it, 1 where no answer was yes: U < theta (S + U)
    gamma: D^-1/2 S D^-1/2 > gamma, D the diagonal of S; 0 where no answer was yes
    """

    rung: int | None = None
    theta: float = 1.0
    gamma: float = 0.0

    @property
    def complete(self) -> bool:
        """Whether each kind of question got a yes."""
        return self.rung is not None and self.theta < 1.0 and self.gamma > 0.0


def examine(band: Array, taken: Array, bound: float) -> Facts:
    """Facts about S (`band`) and what the neighbours took from it (`taken`): (nwave, half + 1) each.

    bound: on the largest eigenvalue of S. Easy fibres are asked once, others twice.
    """
    facts = ask(band, taken, bound, FIRST)
    if facts.complete:
        return facts
    more = ask(band, taken, bound, THEN)
    rungs = [r for r in (facts.rung, more.rung) if r is not None]
    return Facts(min(rungs, default=None), min(facts.theta, more.theta), max(facts.gamma, more.gamma))


def ask(band: Array, taken: Array, bound: float, questions: Questions) -> Facts:
    """The answers to one set of questions."""
    half, lanes = band.shape[1] - 1, cpu_band_tests.LANES
    work = aligned(4 * lanes + cpu_band_tests.ring_size(half))
    values = work[:4 * lanes]
    values[:3 * lanes] = questions.lanes.ravel()
    values[lanes:2 * lanes] *= bound
    cpu_band_tests.definite(half)(values, work[4 * lanes:], band, taken)
    flags = (values[3 * lanes:] > 0).tolist()
    answers = iter(flags)
    rungs = [r for r in questions.rungs if next(answers)]
    thetas = [t for t in questions.thetas if next(answers)]
    gammas = [g for g in questions.gammas if next(answers)]
    return Facts(min(rungs, default=None), min(thetas, default=1.0), max(gammas, default=0.0))
