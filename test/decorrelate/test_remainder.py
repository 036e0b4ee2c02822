"""The remainder of S beyond its band, added to flux, ivar and R exactly to first order."""
import numpy as np
import pytest

from decorrelate.cases import band_and_rest, full_of, make_bundle
from gpu_extract.decorrelate import banded
from gpu_extract.decorrelate.banded import Options, decorrelate
from gpu_extract.decorrelate.limits import Limits
from gpu_extract.decorrelate.narrow import simd_banded, simd_remainder
from gpu_extract.decorrelate.narrow.measure import OF_EDGES
from gpu_extract.decorrelate.narrow.remainder import (
    FARTHER,
    LEFT,
    OF_PLAIN,
    OUTSIDE,
    REACH,
    SHARE,
    add_remainders,
    remainders,
)
from gpu_extract.decorrelate.narrow.schur import Neighbours
from gpu_extract.decorrelate.poles import pole_error, unit_poles
from gpu_extract.kernels.arena import Arena

NBIN = 150
LOOSE = {"tail": 1.0, "coupling": 1e-15, "most_coupling": 1.0, "widen": (0,), "shift": 1e-99}


def lines(bundle, rng):
    """x: bright lines, 300 sigma high, that oscillate slowly and quickly, plus noise."""
    at = np.arange(bundle.x.shape[1])
    for i in range(len(bundle.x)):
        oracle, alive = bundle.oracle(i), bundle.normal.weight[i] > 0
        shape = sum(np.exp(-0.5 * ((at - place) / 1.5) ** 2) for place in rng.uniform(0, len(at), 8))
        noise = np.linalg.lstsq(oracle.q, rng.normal(size=len(at)), rcond=None)[0]
        bundle.x[i] = np.where(alive, noise + 300.0 * shape / np.where(alive, oracle.s, 1.0), 0.0)
    return bundle


def nothing(nfibre, nwave):
    """Empty ivar and R."""
    return np.zeros((nfibre, nwave)), np.zeros((nfibre, 3, nwave))


def added(bundle, fibre, limits):
    """The correction of a fibre's flux in sigma, and that from dense matrices."""
    neighbours = Neighbours(bundle.normal, bundle.x, limits)
    schur = neighbours.complement(fibre)
    n, alive = bundle.x.shape[1], bundle.normal.weight[fibre] > 0
    b, e = band_and_rest(bundle, fibre, schur)
    values, vectors = np.linalg.eigh(b)
    root = np.sqrt(values)
    change = vectors @ (vectors.T @ e @ vectors / np.add.outer(root, root)) @ vectors.T
    sides = np.zeros((n, simd_banded.SIDES))
    sides[:, 0], sides[:, 1] = alive, bundle.x[fibre]
    s, y = np.ascontiguousarray(((vectors * root) @ vectors.T @ sides[:, :2]).T)     # of others it were another kernel
    s[~alive] = 0.0
    flux = np.divide(y, s, out=np.zeros(n), where=s != 0)
    wanted = change @ sides[:, 1] - flux * (change @ sides[:, 0])
    found = flux.copy()
    beyond = remainders(neighbours, [(0, fibre, schur)])
    add_remainders((found[None], *nothing(1, n)), flux[None], s[None, :, None], sides[None], beyond, 0, Arena())
    return ((found - flux) * s)[alive], wanted[alive], schur


@pytest.mark.parametrize("window", [Limits.window, np.inf])
@pytest.mark.parametrize("mask", ["clean", "column", "block", "gap"])
def test_what_is_added_is_of_first_order(mask, window):
    """Poles leave up to SHARE times their error. Windows leave the elements that are cut off from them, 1e-9 here.

    Windows are used beside masks if they are allowed. Otherwise fibres are eliminated one after the other.
    """
    bundle = lines(make_bundle(6, NBIN + 1, mask=mask, wing=0.05, stamp=(11, 13)), np.random.default_rng(5))
    windows = 0
    for fibre in range(6):
        found, wanted, schur = added(bundle, fibre, Limits(window=window, **LOOSE))
        poles = SHARE * pole_error(4, schur.facts.cond)
        assert np.abs(found - wanted).max() <= poles * np.abs(wanted).max() + 1e-9 * bool(schur.windows)
        windows += len(schur.windows)
    assert bool(windows) == (np.isfinite(window) and mask in ("block", "gap"))


def test_chains_beside_windows_are_wider_than_the_fibre_s_band():
    """The share of a fibre beyond the next is handed over in the band of chains, not in that of S."""
    limits = Limits(**{**LOOSE, "widen": (0, 4, 28), "outside": 0.0})
    bundle = lines(make_bundle(6, NBIN + 1, mask="gap", wing=0.1), np.random.default_rng(5))
    chained = 0
    for fibre in range(6):
        found, wanted, schur = added(bundle, fibre, limits)
        poles = SHARE * pole_error(4, schur.facts.cond)
        assert np.abs(found - wanted).max() <= poles * np.abs(wanted).max() + 1e-10
        neighbours = Neighbours(bundle.normal, bundle.x, limits)
        around = neighbours.remainder(fibre, neighbours.complement(fibre)).around
        chained += any(beyond is not None and beyond.taken.shape[1] > schur.room.half + 1 for _, _, beyond in around)
    assert chained


def test_fibres_together_are_what_each_is_alone():
    """Bitwise, whatever poles, windows and memory each of them needs."""
    bundle = lines(make_bundle(6, NBIN + 1, mask="block", wing=0.05, stamp=(11, 13)), np.random.default_rng(5))
    bundle.x[[1, 4]] *= 1e4
    neighbours = Neighbours(bundle.normal, bundle.x, Limits(**LOOSE))
    some = [(i, i, neighbours.complement(i)) for i in (3, 1, 0, 4, 5)]
    plain, sides = np.zeros(bundle.x.shape), np.zeros((*bundle.x.shape, simd_banded.SIDES))
    sides[:, :, 0], sides[:, :, 1] = bundle.normal.weight > 0, bundle.x

    def found(wanted):
        beyond, flux = remainders(neighbours, wanted), np.zeros(bundle.x.shape)
        shares = add_remainders((flux, *nothing(*flux.shape)), plain, sides, sides, beyond, 0, Arena())
        return flux, shares, beyond

    flux, shares, beyond = found(some)
    alone = [found([one]) for one in some]
    assert len({len(one.poles[0]) for _, _, one in alone}) > 1
    assert len({len(schur.windows) for _, _, schur in some}) > 1
    assert beyond.size == max(one.size for _, _, one in alone) > alone[-1][2].size
    np.testing.assert_array_equal(flux, sum(one for one, _, _ in alone))
    assert shares == {n: share for _, one, _ in alone for n, share in one.items()}
    assert (flux[[i for i, _, _ in some]] != 0.0).any(axis=1).all()


@pytest.mark.parametrize("mask", ["block", "gap"])
def test_stretches_without_windows_take_poles_for_what_is_outside_of_them(mask):
    """Each fibre has two ranges of poles: for the condition number of all of S, and for that of the bins beside
    windows. The latter is the first of the tested ones that is above it."""
    bundle = lines(make_bundle(6, NBIN + 1, mask=mask, wing=0.05, stamp=(11, 13)), np.random.default_rng(5))
    neighbours, fewer = Neighbours(bundle.normal, bundle.x, Limits(**LOOSE)), 0
    for fibre in range(6):
        schur = neighbours.complement(fibre)._replace(shift=1e-4)
        row = remainders(neighbours, [(0, fibre, schur)])
        outside, cond = np.ones(bundle.x.shape[1], dtype=bool), schur.facts.cond
        for first, block in schur.windows:
            outside[first:first + len(block)] = False
        least = np.linalg.eigvalsh(full_of(schur.band)[np.ix_(outside, outside)])[0]
        if schur.windows:
            cond = min([ratio for ratio in OUTSIDE.ratios if ratio > schur.bound / least] + [cond])
        for ratio, (begin, end) in zip((schur.facts.cond, cond), row.fibres[0, 6:10].reshape(2, 2), strict=True):
            count = simd_remainder.POLES * (end - begin)
            assert SHARE * pole_error(count, ratio) * schur.shift < LEFT
            assert SHARE * pole_error(count - simd_remainder.POLES, ratio) * schur.shift >= LEFT
            np.testing.assert_array_equal(row.poles[0][begin:end].ravel(), unit_poles(count, ratio).shifts)
        fewer += cond < schur.facts.cond
        flux, sides = np.zeros((2, 1, NBIN + 1)), np.ones((1, NBIN + 1, simd_banded.SIDES))
        for found, unused in zip(flux, ([], [8, 9] if schur.windows else [6, 7]), strict=True):
            row.fibres[0, unused] = 0       # all of a fibre is one stretch
            add_remainders((found, *nothing(1, NBIN + 1)), np.zeros((1, NBIN + 1)), sides, sides, row, 0, Arena())
        np.testing.assert_array_equal(*flux)
        assert flux.any()
    assert fewer


def extracted(bundle, shift, bins=slice(None)):
    """All fibres, in the first band."""
    options = Options(Limits(tail=1.0, coupling=1e-6, shift=shift))
    return decorrelate(bundle.normal, bundle.x, (0, len(bundle.x)), ndiag=5, options=options, bins=bins)


def test_ivar_and_resolution_have_it_as_well(monkeypatch):
    """A band changes ivar by 1e-8. After the correction 2e-11 of ivar is left, as by the poles, and 1e-10 of R. Both do
    not depend on x, and stay unchanged if the tail is small."""
    bundle, before = lines(make_bundle(6, 200, mask="block", wing=0.05, stamp=(11, 13)), np.random.default_rng(5)), []

    def kept(result, *others):
        before.extend(array.copy() for array in result)
        return add_remainders(result, *others)
    monkeypatch.setattr(banded, "add_remainders", kept)
    options = Options(Limits(tail=1e-3, added=1e-3))
    out = decorrelate(bundle.normal, bundle.x, (0, 6), ndiag=5, options=options)

    def error(ivar, resolution, i):
        oracle = bundle.oracle(i)
        exact = [np.diagonal(oracle.q / oracle.s[:, None], -k) for k in range(-5, 6)]
        found = [resolution[i, 5 + k, max(-k, 0):200 - max(k, 0)] for k in range(-5, 6)]
        return (np.abs(ivar[i] / oracle.s**2 - 1.0).max(),
                max(np.abs(one - other).max() for one, other in zip(found, exact, strict=True)))
    much = [2, 4]
    band, after = (np.array([error(*of, i) for i in much]) for of in (before[1:3], (out.ivar, out.resolution)))
    assert band[:, 0].max() > 1e-8 and band[:, 1].max() > 1e-9
    assert after[:, 0].max() < 5e-11 and after[:, 1].max() < 1e-10
    np.testing.assert_array_equal(out.ivar[[0, 1, 5]], before[1][[0, 1, 5]])
    for times in (0.1, 0.0):
        other = decorrelate(bundle.normal, times * bundle.x, (0, 6), ndiag=5, options=options)
        np.testing.assert_array_equal(other.ivar, out.ivar)
        np.testing.assert_array_equal(other.resolution, out.resolution)


def test_ivar_is_corrected_around_the_bins_whose_tail_counts(monkeypatch):
    """Corrected are the bins half a reach on both sides, and those between two such stretches. There ivar agrees with
    that corrected in all bins, but for a tenth of the correction: a stretch ends beyond half a reach from the last of
    these bins, and E does not."""
    bundle, before = make_bundle(6, 400, mask="column", wing=0.05, stamp=(11, 13)), []

    def kept(result, *others):
        before.append(result[1].copy())
        return add_remainders(result, *others)
    monkeypatch.setattr(banded, "add_remainders", kept)
    schur = Neighbours(bundle.normal, bundle.x, Limits()).complement(2)
    edges = schur.room.edges[schur.place, :400] * OF_EDGES / schur.facts.gamma
    counts, reach = edges > OF_PLAIN * 0.9 * schur.tail, REACH * schur.room.half // 2
    some, all_bins = (decorrelate(bundle.normal, bundle.x, (0, 6), ndiag=5, options=Options(Limits(plain=plain)))
                      for plain in (0.9 * schur.tail, 1e-99))
    changed = some.ivar[2] != before[0][2]
    near, far = (np.convolve(counts, np.ones(2 * bins + 1), "same") > 0 for bins in (reach, 2 * reach))
    assert changed[near].all() and not changed[~far].any() and not far.all()
    assert np.abs(some.ivar - all_bins.ivar)[2, near].max() < 0.1 * np.abs(all_bins.ivar - before[0])[2].max()


@pytest.mark.parametrize(("mask", "uneven"), [("clean", False), ("gap", True)])
def test_uneven_fibres_are_worked_on_farther(mask, uneven):
    """A narrower band does not decay faster. Once, a tenth of the flux's error was left where stretches met."""
    bundle = make_bundle(3, NBIN, mask=mask)
    neighbours = Neighbours(bundle.normal, bundle.x, Limits())
    schur = neighbours.complement(1)
    found = remainders(neighbours, [(1, 1, schur)]).fibres[0]
    assert (schur.facts.cond > Limits.uneven) == uneven
    assert found[5] == REACH * (max(schur.room.half, bundle.normal.halfband + FARTHER) if uneven else schur.room.half)


def test_bins_that_are_not_wanted_change_nothing():
    """Neither the first requested bin nor the number of bins matters."""
    bundle = lines(make_bundle(4, NBIN, wing=0.05), np.random.default_rng(6))
    whole, part = (extracted(bundle, 1e-99, bins) for bins in (slice(None), slice(20, 90)))
    np.testing.assert_array_equal(part.flux, whole.flux[:, 20:90])
    assert (extracted(bundle, 1.0).flux != whole.flux).any(axis=1).all()


def test_stretches_are_long_enough():
    """Half a reach around the bins that count, the flux is that with all bins corrected, to a thousandth of the shift.
    Elsewhere the quick correction remains."""
    bundle = make_bundle(3, 420, wing=0.05)
    bundle.x[:] = 0.0
    bundle.x[:, 150] = 3000.0
    bundle.x[1, 300] = 3000.0
    whole, quick = extracted(bundle, 1e-99), extracted(bundle, 1.0)
    error = np.sqrt(whole.ivar)
    shift = np.abs(whole.flux - quick.flux) * error
    part = extracted(bundle, 0.01 * shift.max())
    reach, at = REACH * 9 // 2, np.arange(420)
    for fibre, places in enumerate(([150], [150, 300], [150])):
        near = np.any([abs(at - place) <= reach for place in places], axis=0)
        assert (np.abs(part.flux - whole.flux) * error)[fibre, near].max() < 1e-3 * shift[fibre].max()
        far = np.all([abs(at - place) > 3 * reach for place in places], axis=0)
        np.testing.assert_array_equal(part.flux[fibre, far], quick.flux[fibre, far])


def test_rows_of_r_are_divided_where_s_has_grown():
    """Each stored element of R by the growth of its row's s, to the last bit; stretches at both ends and between."""
    rng, count, ndiag = np.random.default_rng(5), 40, 4
    share = 1e-3 * rng.random(count)
    share[3:12] = share[20:35] = 0.0
    ivar, r = rng.random(count), rng.random((2 * ndiag + 1, count))
    grown, expected = 1.0 + share, r.copy()
    for k in range(2 * ndiag + 1):
        for j in range(max(ndiag - k, 0), count - max(k - ndiag, 0)) if k > ndiag else range(ndiag - k, count):
            expected[k, j] /= grown[j - ndiag + k]
    was = ivar.copy()
    simd_remainder._rescale(ivar, r, share.copy())
    np.testing.assert_array_equal(ivar, was * (grown * grown))
    np.testing.assert_array_equal(r, expected)
