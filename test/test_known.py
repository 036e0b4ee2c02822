"""Facts kept about a PSF belong to its content: see gpu_extract.known."""
from copy import deepcopy
from dataclasses import replace
from itertools import count

import pytest

import oracle
from gpu_extract import known as module
from gpu_extract import run
from gpu_extract.config import ExtractConfig
from gpu_extract.errors import InputError
from gpu_extract.known import FEW, MOST, known, unchanged
from gpu_extract.packing import same
from gpu_extract.run import prepare

CONFIG = ExtractConfig((6050.0, 6114.0, 0.8))


@pytest.fixture
def ask(monkeypatch):
    """ask(psf, question): how many questions were new before."""
    monkeypatch.setattr(module, "_known", ())
    number = count()
    return lambda psf, question="how far": known(psf, question, lambda: next(number))


def test_an_answer_is_found_once(ask):
    """PSFs of equal content are the same; each question has its own answer."""
    psf = oracle.make_psf(oracle.FAMILIES[0])
    assert [ask(psf), ask(psf), ask(deepcopy(psf)), ask(psf, "else"), ask(psf)] == [0, 0, 0, 1, 0]


@pytest.mark.parametrize("change", [
    lambda psf: psf.x.coeff.__iadd__(1e-9), lambda psf: psf.cores[0].gh.coeff[0, 0, 0].__imul__(2.0)])
def test_a_psf_that_was_changed_in_place_is_another(ask, change):
    """A copy of the content is kept, not the caller's arrays."""
    psf = deepcopy(oracle.make_psf(oracle.FAMILIES[0]))
    before = deepcopy(psf)
    assert ask(psf) == 0
    change(psf)
    assert ask(psf) == 1 and ask(before) == 0


def test_an_extraction_compares_its_psf_once(ask, monkeypatch):
    """Within `unchanged` one comparison serves all questions about that PSF. Others are compared, and so is it after
    the end."""
    psf, counted = deepcopy(oracle.make_psf(oracle.FAMILIES[0])), []
    monkeypatch.setattr(module, "same", lambda *pair: counted.append(pair) or same(*pair))
    ask(psf)
    with unchanged(psf):
        assert [ask(psf), ask(psf, "else"), ask(psf, "else")] == [0, 1, 1] and len(counted) == 1
        assert ask(deepcopy(psf)) == 0 and len(counted) == 2
        with unchanged(deepcopy(psf)):
            assert ask(psf) == 0 and len(counted) == 3
        assert ask(psf) == 0 and len(counted) == 3
    psf.x.coeff.__iadd__(1e-9)
    assert ask(psf) == 2


@pytest.mark.parametrize("field", [{"name": "other"}, {"psferr": 0.5}, {"identity": {"CAMERA": "b1"}},
                                   {"shape": (4000, 4001)}, {"stamp": (13, 13)}, {"offset": (1.0, 2.0)}])
def test_psfs_that_differ_in_any_field_have_their_own_answers(ask, field):
    """Two PSFs that differ in any field have their own answers."""
    psf = oracle.make_psf(oracle.FAMILIES[0])
    assert ask(psf) == 0 and ask(replace(psf, **field)) == 1


def test_few_psfs_and_answers_are_kept(ask):
    """The memory is limited, whatever is asked."""
    psf = oracle.make_psf(oracle.FAMILIES[0])
    for n in range(FEW + 3):
        ask(replace(psf, name=str(n)))
    for n in range(3 * MOST):
        ask(psf, n)
    assert len(module._known) == FEW and all(len(answers) <= MOST for _, answers in module._known)


def test_an_answer_that_another_thread_clears_at_once_is_given(monkeypatch):
    """Threads share the answers, and a thread that finds too many clears all."""
    class Cleared(dict):
        def __setitem__(self, question, answer):
            self.clear()

    answers = Cleared()
    monkeypatch.setattr(module, "_answers", lambda psf: answers)
    psf = oracle.make_psf(oracle.FAMILIES[0])
    assert [known(psf, "how far", lambda n=n: n) for n in (1, 2)] == [1, 2]


def test_a_job_of_a_psf_changed_in_place_is_planned_anew(monkeypatch):
    """A fibre that lost its sigma since the last extraction is dropped, and returns when it is repaired."""
    monkeypatch.setattr(module, "_known", ())
    psf = deepcopy(oracle.make_psf(oracle.FAMILIES[0]))
    whole, sigma = prepare(psf, CONFIG), psf.cores[0].sigma_x.coeff
    kept = sigma[1].copy()
    sigma[1] = -1.0
    broken = prepare(psf, CONFIG)
    assert list(whole.dropped) == [] and list(broken.dropped) == [1] and broken.psf.nfibre == psf.nfibre - 1
    broken.dropped.clear()                 # the caller's own
    assert list(prepare(psf, CONFIG).dropped) == [1]
    sigma[1] = kept
    again = prepare(psf, CONFIG)
    assert again.dropped == {} and again.decay == whole.decay


def test_what_is_refused_is_refused_again(monkeypatch):
    """An error is not kept as an answer."""
    monkeypatch.setattr(module, "_known", ())
    psf = deepcopy(oracle.make_psf(oracle.FAMILIES[0]))
    psf.cores[0].sigma_x.coeff[:] = -1.0
    for _ in range(2):
        with pytest.raises(InputError, match="no fibre can be extracted"):
            prepare(psf, CONFIG)


def test_edges_of_bundles_are_compared_once(monkeypatch):
    """Once per PSF and plan; other bundles, wavelengths or fibres are another question."""
    psf, looked = oracle.make_psf(oracle.FAMILIES[0]), count()
    monkeypatch.setattr(module, "_known", ())
    monkeypatch.setattr(run, "too_close", lambda psf, plan: [str(next(looked))])
    jobs = [prepare(psf, config) for config in (CONFIG, replace(CONFIG, bundlesize=2),
                                                replace(CONFIG, wavelength=(6050.0, 6114.0, 1.0)))]
    jobs.append(replace(jobs[0], plan=replace(jobs[0].plan, kept=jobs[0].plan.kept + 1)))
    assert [run._beside(psf, job) for job in jobs * 2] == [["0"], ["1"], ["2"], ["3"]] * 2
