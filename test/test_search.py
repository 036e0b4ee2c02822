"""Random problems of fixed seeds against the oracle, both cores; bench/search.py has thousands, and --replay SEED."""
import pytest
from judging import judge, report, truth
from problems import KINDS, make, seeds

QUICK = {f"{kind}-{seed}": seed for kind in KINDS for seed in seeds(0, 2, only=kind, quick=True)}


@pytest.mark.parametrize("seed", QUICK.values(), ids=QUICK)
def test_problem(seed):
    """A frame; unflagged bins right to max(1e-8 sigma, 100 eps cond); flags where they are needed and only there."""
    problem = make(seed)
    known = truth(problem)
    for core in ("auto", "dense"):
        verdict = judge(problem, core, known)
        assert not verdict.broken, "\n".join(report(problem, core, verdict, known))


def test_every_kind_has_problems():
    assert len(QUICK) == 2 * len(KINDS)
