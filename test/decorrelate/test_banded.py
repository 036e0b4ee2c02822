"""The banded core against the oracle: C = icov^-1 of the whole bundle, diagonalised fibre by fibre.

Bounds, with cond of the fibre's S: flux max(1e-8, 100 eps cond) of its error, ivar (relative) and elements of R
max(1e-9, 100 eps cond).
"""
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from decorrelate.cases import EPS, MASKS, make_bundle
from gpu_extract.data import NOT_MEASURED, Status
from gpu_extract.decorrelate import banded
from gpu_extract.decorrelate.banded import Options, decorrelate
from gpu_extract.decorrelate.limits import Limits
from gpu_extract.decorrelate.narrow import simd_banded
from gpu_extract.decorrelate.narrow.schur import Neighbours
from gpu_extract.decorrelate.poles import LADDER
from gpu_extract.decorrelate.wide import neighbours


def check(bundle, ndiag=5, statuses=(Status.GOOD,), fibres=None, options=None):
    """Decorrelate all fibres and compare them with the oracle; returns the result."""
    nfibre = len(bundle.x)
    result = decorrelate(bundle.normal, bundle.x, (0, nfibre), ndiag=ndiag, options=options)
    for i in range(nfibre) if fibres is None else fibres:
        alive = bundle.normal.weight[i] > 0
        assert set(result.status[i]) <= {int(s) for s in statuses}
        oracle = bundle.oracle(i)
        rounding = 100 * EPS * oracle.cond
        flux = np.abs((result.flux[i] - oracle.flux(bundle.x[i])) * oracle.s)
        assert flux.max() <= max(1e-8, rounding)
        np.testing.assert_allclose(result.ivar[i][alive], oracle.s[alive]**2, rtol=max(1e-9, rounding))
        np.testing.assert_allclose(result.resolution[i], oracle.diagonals(ndiag), rtol=0, atol=max(1e-9, rounding))
        np.testing.assert_array_equal(result.flux[i][~alive], 0)
        np.testing.assert_array_equal(result.ivar[i][~alive], 0)
        check_facts(result.facts[i], oracle.cond if alive.any() else None)
    return result


def check_facts(facts, cond):
    """The bound on the condition number holds, and exceeds the larger of the first rung and the truth by at most a
    factor of 3.2, with a factor of 2 for the largest eigenvalue; cond: None: the fibre has no weight."""
    if cond is None:
        np.testing.assert_array_equal(facts, NOT_MEASURED)
    else:
        assert (1 - 1e-9) * cond <= facts[0] <= max(LADDER[0][1], 6.4 * cond)
        assert 0 <= facts[1] <= banded.AGREEMENT


@pytest.mark.parametrize("mask", MASKS)
def test_masks_and_dead_fibres_agree_with_the_oracle(mask):
    """DESI-like spots; a masked column, a block over the middle fibre and its neighbours, a dead fibre, a gap."""
    statuses = (Status.GOOD,) if mask in ("clean", "column") else (Status.GOOD, Status.WIDE_BAND)
    check(make_bundle(mask=mask), statuses=statuses)


@pytest.mark.parametrize("mask", ["clean", "block", "gap"])
def test_strong_coupling_needs_the_wide_band(mask):
    """A third of the light is in the wings: second neighbours count, and the wide band is needed."""
    check(make_bundle(mask=mask, wing=0.3), statuses=(Status.GOOD, Status.WIDE_BAND))


@pytest.mark.parametrize("ndiag", [0, 1, 3, 8, 13])
def test_any_number_of_diagonals_of_r_agrees_with_the_oracle(ndiag):
    """Also more than in the band of S."""
    result = check(make_bundle(3, 70), ndiag=ndiag)
    assert result.resolution.shape == (3, 2 * ndiag + 1, 70)


@pytest.mark.parametrize(("stamp", "step", "nwave"), [((5, 15), 2.6, 60), ((17, 29), 1.48, 90), ((23, 17), 1.2, 90)])
def test_any_half_band_agrees_with_the_oracle(stamp, step, nwave):
    """Spots that overlap two bins, v2's 12, and 20, beyond the narrow kernels."""
    check(make_bundle(4, nwave, stamp=stamp, step=step), statuses=(Status.GOOD, Status.WIDE_BAND))


@pytest.mark.parametrize(("nfibre", "nwave"), [(1, 40), (2, 30), (3, 7), (2, 1), (5, 2)])
def test_bundles_of_few_fibres_and_bins_agree_with_the_oracle(nfibre, nwave):
    check(make_bundle(nfibre, nwave), ndiag=2, statuses=(Status.GOOD, Status.WIDE_BAND))


@pytest.mark.parametrize("mask", ["clean", "block"])
def test_a_fibre_without_neighbours_in_the_wide_band(monkeypatch, mask):
    monkeypatch.setattr(banded, "NARROW", -1)
    check(make_bundle(1, 60, mask=mask), statuses=(Status.WIDE_BAND,))


def test_wide_band_and_narrow_band_agree(monkeypatch):
    bundle = make_bundle(4, 90)
    narrow = check(bundle)
    monkeypatch.setattr(banded, "NARROW", -1)
    wide = check(bundle, statuses=(Status.WIDE_BAND,))
    np.testing.assert_allclose(wide.flux, narrow.flux, rtol=0, atol=1e-8 / np.sqrt(narrow.ivar.min()))
    np.testing.assert_allclose(wide.ivar, narrow.ivar, rtol=1e-9)


def test_a_fibre_does_not_depend_on_what_it_is_asked_for_with():
    """Bitwise, also next to a masked block, where neighbours are chained."""
    bundle = make_bundle(7, 100, mask="block")
    whole = decorrelate(bundle.normal, bundle.x, (0, 7), ndiag=5)
    for fibres in ((0, 1), (2, 5), (3, 4), (6, 7), (1, 7)):
        part = decorrelate(bundle.normal, bundle.x, fibres, ndiag=5)
        for name in ("flux", "ivar", "resolution", "status"):
            np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[slice(*fibres)])


def test_threads_do_not_disturb_each_other():
    bundle = make_bundle(6, 110)
    whole = decorrelate(bundle.normal, bundle.x, (0, 6), ndiag=5)
    with ThreadPoolExecutor(3) as pool:
        parts = list(pool.map(lambda i: decorrelate(bundle.normal, bundle.x, (i, i + 2), ndiag=5), [0, 2, 4] * 3))
    for n, part in enumerate(parts):
        first = 2 * (n % 3)
        np.testing.assert_array_equal(part.flux, whole.flux[first:first + 2])
        np.testing.assert_array_equal(part.resolution, whole.resolution[first:first + 2])


@pytest.mark.parametrize("scale", [2.0**-40, 2.0**30])
def test_units_do_not_matter(scale):
    """Powers of two change only the units, bitwise: nothing is compared with an absolute number."""
    bundle = make_bundle(3, 80, mask="gap")
    normal = bundle.normal
    scaled = replace(normal, icov=normal.icov * scale**2, rhs=normal.rhs * scale, weight=normal.weight * scale**2)
    first = decorrelate(normal, bundle.x, (0, 3), ndiag=4)
    second = decorrelate(scaled, bundle.x / scale, (0, 3), ndiag=4)
    np.testing.assert_array_equal(second.flux * scale, first.flux)
    np.testing.assert_array_equal(second.ivar / scale**2, first.ivar)
    np.testing.assert_array_equal(second.resolution, first.resolution)


def test_a_fibre_without_light_is_empty():
    bundle = make_bundle(3, 60)
    n = slice(60, 120)
    dense, weight, x = bundle.dense.copy(), bundle.normal.weight.copy(), bundle.x.copy()
    dense[n], dense[:, n], weight[1], x[1] = 0.0, 0.0, 0.0, 0.0
    icov = bundle.normal.icov.copy()
    icov[1], icov[0, 1] = 0.0, 0.0
    normal = replace(bundle.normal, icov=icov, weight=weight)
    result = decorrelate(normal, x, (0, 3), ndiag=5)
    assert set(result.status[1]) == {Status.EMPTY}
    assert not result.flux[1].any()
    assert not result.resolution[1].any()
    assert set(result.status[0]) == {Status.GOOD}


def test_inputs_are_not_changed():
    bundle = make_bundle(5, 60, mask="block", wing=0.3)
    normal = bundle.normal
    before = [array.copy() for array in (normal.icov, normal.weight, normal.rhs, bundle.x)]
    decorrelate(normal, bundle.x, (0, 5), ndiag=5)
    for was, array in zip(before, (normal.icov, normal.weight, normal.rhs, bundle.x), strict=True):
        np.testing.assert_array_equal(array, was)


def test_what_is_not_definite_is_given_up():
    bundle = make_bundle(3, 60)
    icov = bundle.normal.icov.copy()
    icov[1, 0, 30, bundle.normal.halfband] *= -1.0
    result = decorrelate(replace(bundle.normal, icov=icov), bundle.x, (0, 3), ndiag=5)
    assert set(result.status[1]) == {Status.FAILED}
    assert not result.flux[1].any()
    assert not result.ivar[1].any()


@pytest.mark.parametrize("wrong", [1 + 1e-6, np.nan])
def test_a_wrong_pole_sum_is_noticed(monkeypatch, wrong):
    """One bin of the pole sum is off by 1e-6 of it: no number is returned without a status that says so."""
    true = simd_banded.pole_sum

    def spoiled(half, ndiag):
        def kernel(out, *rest):
            true(half, ndiag)(out, *rest)
            out[:, 20] *= wrong
        return kernel
    bundle = make_bundle(3, 60)
    monkeypatch.setattr(simd_banded, "pole_sum", spoiled)
    monkeypatch.setattr(banded.wide, "complement", lambda *_: None)
    result = decorrelate(bundle.normal, bundle.x, (0, 3), ndiag=5)
    assert set(result.status.ravel()) == {Status.FAILED}
    assert not result.ivar.any()


def test_the_flux_is_corrected_for_what_the_band_cuts_off():
    """With the narrowest band forced, the correction removes most of its effect on noise."""
    bundle = make_bundle(3, 150, wing=0.15, seed=8)
    noise = np.random.default_rng(4).normal(size=(3, 150))
    loose = Options(Limits(coupling=1.0, tail=1.0, shift=1.0, widen=(0,)))
    bundle.x[:] = [np.linalg.solve(bundle.oracle(i).q, noise[i]) for i in range(3)]
    oracle = bundle.oracle(1)
    with_it = decorrelate(bundle.normal, bundle.x, (1, 2), ndiag=5, options=loose)
    left = np.abs((with_it.flux[0] - oracle.flux(bundle.x[1])) * oracle.s).max()
    schur = Neighbours(bundle.normal, bundle.x, loose.limits).complement(1)
    assert np.abs(schur.rest).max() > 0
    matrix = bundle.oracle(1).q @ bundle.oracle(1).q
    cut = np.where(np.abs(np.subtract.outer(np.arange(150), np.arange(150))) <= schur.band.shape[1] - 1, matrix, 0.0)
    values, vectors = np.linalg.eigh(cut)
    q = (vectors * np.sqrt(values)) @ vectors.T
    without = np.abs(q @ bundle.x[1] / q.sum(axis=1) - oracle.flux(bundle.x[1])) * oracle.s
    assert left < 0.4 * without.max()


@pytest.mark.parametrize(("dim", "weak"), [(1e-6, slice(0, 4)), (1e-6, slice(4, 8)), (1e-6, slice(196, 200))])
def test_bins_that_are_not_wanted_may_be_as_weak_as_they_are(dim, weak):
    """Bins with next to no information before or after the requested ones: condition 1e13 and more.

    Unless their light stands out: sums of poles leave some of it everywhere.
    """
    bundle, light, wanted = make_bundle(4, 200), np.ones(200), slice(20, 180)
    light[weak] = dim
    icov, half = bundle.normal.icov.copy(), bundle.normal.halfband
    for k in range(-half, half + 1):
        p = np.arange(max(0, -k), 200 - max(0, k))
        icov[:, :, p, half + k] *= light[p] * light[p + k]
    normal = replace(bundle.normal, icov=icov, weight=bundle.normal.weight * light, rhs=bundle.normal.rhs * light)
    x = bundle.x / light
    x[:, weak] *= 0.01
    found = decorrelate(normal, x, (0, 4), ndiag=5, bins=wanted)
    assert set(found.status.ravel()) == {int(Status.GOOD)}
    bright = x * np.array([1.0, 1.0, -1e4, 1.0])[:, None]
    assert (decorrelate(normal, bright, (0, 4), ndiag=5, bins=wanted).status[:, 0] == Status.GOOD).tolist() == [
        True, True, False, True]
    assert (decorrelate(normal, x, (0, 4), ndiag=5).status != Status.GOOD).all()
    for i in range(4):
        own = slice(200 * i, 200 * (i + 1))
        values, vectors = np.linalg.eigh(np.linalg.inv(bundle.covariance[own, own]) * np.outer(light, light))
        q = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        assert values[-1] / np.abs(values[0]) > 1e12
        ones, flux = q.sum(axis=1)[wanted], (q @ x[i])[wanted]
        assert np.abs(found.flux[i] * ones - flux).max() <= 1e-8
        np.testing.assert_allclose(found.ivar[i], ones**2, rtol=1e-9)


def test_options_reach_the_wide_band():
    """Fewer neighbours and a narrower band than the defaults leave larger errors, within the limits of the options."""
    bundle = make_bundle(5, 100, wing=0.3)
    loose = Options(wide=banded.WideLimits(neighbours=1e-3, tail=1e-3))
    tight, rough = (decorrelate(bundle.normal, bundle.x, (0, 5), ndiag=5, options=o) for o in (None, loose))
    oracle = bundle.oracle(2)
    errors = [np.abs(r.ivar[2] / oracle.s**2 - 1).max() for r in (tight, rough)]
    assert errors[0] <= 1e-9 < errors[1] < 1e-3


def test_a_stretch_without_any_weight_asks_for_no_more_neighbours():
    """Fibres that leave the CCD: a stretch for counting neighbours may have no weight."""
    icov = make_bundle(5, 120).normal.icov.copy()
    icov[2, :, 60:] = 0.0
    icov[1, 1, 50:] = icov[0, 2, 50:] = 0.0
    assert neighbours._count(icov, 2, np.zeros(120), (70, 40), banded.WideLimits()) == 1
