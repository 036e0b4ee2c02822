"""Random problems of fixed seeds against the oracle, both cores; bench/search.py has thousands, and --replay SEED."""
import numpy as np
import pytest
from judging import judge, report, truth
from problems import KINDS, OF_EIGHT, drawn, make, seeds
from strange_problems import STRANGE, make_strange

QUICK = {f"{kind}-{seed}": seed for kind, both in OF_EIGHT.items() for seed in both}
OTHERS = {f"{kind}-{seed}": seed for kind in KINDS for seed in seeds(0, 2, only=kind, quick=True)
          if seed not in QUICK.values()}
CASES = [*(pytest.param(seed, id=name) for name, seed in QUICK.items()),
         *(pytest.param(seed, id=name, marks=pytest.mark.slow) for name, seed in OTHERS.items())]


@pytest.mark.parametrize("seed", CASES)
def test_random_problems_are_right_and_flagged_where_needed(seed):
    """A frame exists; unflagged bins are right to max(1e-8 sigma, 100 eps cond); flags are exactly where needed."""
    problem = make(seed)
    known = truth(problem)
    for core in ("auto", "dense"):
        verdict = judge(problem, core, known)
        assert not verdict.broken, "\n".join(report(problem, core, verdict, known))


def test_every_kind_has_problems():
    assert list(OF_EIGHT) == list(KINDS)
    assert all(drawn(seed, np.random.default_rng(seed))[0] == name.split("-")[0] for name, seed in QUICK.items())


@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(seed, id=kind) for seed, kind in enumerate(STRANGE)])
def test_strange_problems_are_right_and_flagged_where_needed(seed):
    """The same for odd PSFs, light and pixels."""
    problem = make_strange(seed)
    if problem is None:
        pytest.skip("the file of its PSF is absent")
    known = truth(problem)
    for core in ("auto", "dense"):
        verdict = judge(problem, core, known)
        assert not verdict.broken, "\n".join(report(problem, core, verdict, known))
