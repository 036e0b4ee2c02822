"""What the definiteness of a few matrices says about a fibre: eight questions at once, each answered for certain."""
from dataclasses import dataclass

import numpy as np

from gpu_extract.backend import cpu_band_tests
from gpu_extract.backend.cpu_banded import aligned
from gpu_extract.cores.poles import LADDER
from gpu_extract.data import Array


@dataclass(frozen=True)
class Questions:
    """One pass of factorisations.

    rungs: is the spectrum above bound / M-to-m of these rungs of LADDER? thetas: is the coupling below these?
    gammas: is the spectrum above these once the diagonal is scaled to 1?
    """

    rungs: tuple[int, ...]
    thetas: tuple[float, ...]
    gammas: tuple[float, ...]

    def values(self, bound: float) -> Array:
        """b, c and 1 - g of S + b U - c I - g diag(S): (24,)."""
        b, c, rest = np.zeros(8), np.zeros(8), np.ones(8)
        low, high = len(self.rungs), len(self.rungs) + len(self.thetas)
        c[:low] = [bound / LADDER[n][1] for n in self.rungs]
        b[low:high] = [1.0 - 1.0 / theta for theta in self.thetas]
        rest[high:] = [1.0 - gamma for gamma in self.gammas]
        return np.concatenate([b, c, rest])


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
    half = band.shape[1] - 1
    values = aligned(4 * cpu_band_tests.LANES)
    values[:3 * cpu_band_tests.LANES] = questions.values(bound)
    cpu_band_tests.definite(half)(values, aligned(cpu_band_tests.ring_size(half)), band, taken)
    flags = values[3 * cpu_band_tests.LANES:] > 0
    low, high = len(questions.rungs), len(questions.rungs) + len(questions.thetas)
    rungs = [r for r, yes in zip(questions.rungs, flags[:low], strict=True) if yes]
    thetas = [t for t, yes in zip(questions.thetas, flags[low:high], strict=True) if yes]
    gammas = [g for g, yes in zip(questions.gammas, flags[high:], strict=True) if yes]
    return Facts(min(rungs, default=None), min(thetas, default=1.0), max(gammas, default=0.0))
