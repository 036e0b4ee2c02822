"""Comparisons with S bin by bin. The diagonal D bounds a matrix, and decides where largest values are not enough."""
import numpy as np
import pytest
from scipy.linalg import eigh

from decorrelate.cases import EPS, full_of, make_bundle
from decorrelate.test_schur import exact, lit, relative
from gpu_extract.data import Status
from gpu_extract.decorrelate import banded
from gpu_extract.decorrelate.limits import Limits
from gpu_extract.decorrelate.narrow import simd_remainder
from gpu_extract.decorrelate.narrow.by_bins import SLOWEST, cut_off
from gpu_extract.decorrelate.narrow.coupling import Couplings
from gpu_extract.decorrelate.narrow.schur import Neighbours
from gpu_extract.kernels.arena import Arena


@pytest.mark.parametrize("mask", ["clean", "block", "gap"])
def test_couplings_to_farther_fibres_are_within(mask):
    """For all pairs of fibres at once: D + W and D - W have no eigenvalue below 0, but they have one if D is halved."""
    bundle, n = make_bundle(5, 40, mask=mask, wing=0.3, stamp=(11, 24)), 40
    beyond = Couplings(bundle.normal, bundle.x, 1e-8, 0, Arena()).beyond_next
    far = bundle.dense.copy()
    for i in range(5):
        far[i * n:(i + 1) * n, max(i - 1, 0) * n:(i + 2) * n] = 0.0
    root = np.sqrt(bundle.dense.diagonal())
    scale = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
    far, within = far * scale * scale[:, None], np.diag(beyond.ravel() * scale**2)
    assert np.linalg.eigvalsh(within + far)[0] >= -1e-14 and np.linalg.eigvalsh(within - far)[0] >= -1e-14
    assert min(np.linalg.eigvalsh(0.5 * within + far)[0], np.linalg.eigvalsh(0.5 * within - far)[0]) < -1e-7


@pytest.mark.parametrize("half", [3, 9, 70])
def test_what_a_band_cuts_off_is_within(half):
    """Columns of very different size fall by SLOWEST in four bins. A third of D is no bound."""
    rng = np.random.default_rng(half)
    n = 80
    apart = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    size = 10.0**rng.uniform(-3.0, 0.0, n)
    signs = np.triu(rng.choice([-1.0, 1.0], (n, n)))
    s = np.minimum.outer(size, size) * SLOWEST**(-apart / 4.0) * (signs + np.triu(signs, 1).T)
    roots = 10.0**rng.uniform(-1.0, 1.0, n)
    roots[20:23] = 0.0
    s[20:23], s[:, 20:23] = 0.0, 0.0
    # the largest possible element further out, f^k of one of the band's last ones, determines D
    columns = np.array([s[j, j + half] if j + half < n else 0.0 for j in range(n)])
    rest = np.zeros((n, n))
    for k in range(1, n - half):
        for p in range(n - half - k):
            ends = [abs(columns[q]) * roots[q] * roots[q + half] for q in (p, p + k)]
            live = roots[p] > 0 and roots[p + half + k] > 0
            rest[p, p + half + k] = SLOWEST**(-k / 4.0) * max(ends) / (roots[p] * roots[p + half + k]) if live else 0.0
    rest += rest.T
    band = np.zeros((n, half + 1))
    band[:, half] = columns
    within = np.diag(cut_off(band, roots))
    assert np.isfinite(within).all() and not within[20:23].any()
    scale = np.outer(roots, roots)
    assert np.linalg.eigvalsh((within - rest) * scale)[0] >= -1e-12 * (within * scale).max()
    if half < n // 2:
        assert np.linalg.eigvalsh((within / 3.0 - rest) * scale)[0] < 0.0


def test_the_bound_on_farther_fibres_holds():
    """The bound matters if largest values exclude a fibre. Nearly all of S is in the band here, so nothing else is left
    out."""
    bundle = make_bundle(6, 26, mask="block", wing=0.1, stamp=(11, 17))
    neighbours = Neighbours(bundle.normal, bundle.x, Limits(widen=(0, 4, 12), tail=1e-12, distant=1e-2, window=np.inf))
    neighbours.prepare((0, 6))
    found = 0
    for i in range(6):
        best = neighbours._best[i]
        quick = neighbours._higher_orders(i, best.facts)
        neighbours._by_bins.add(i)
        close = neighbours._higher_orders(i, best.facts)
        s = exact(bundle, i)
        left = relative(*lit(bundle, i, s, full_of(best.band)))
        assert close <= quick
        assert left <= close + best.tail + 100 * EPS * np.linalg.cond(s)
        found += close < 0.3 * quick
    assert found >= 1


def test_a_fibre_that_largest_values_leave_out_is_kept():
    """Its spectrum agrees with the dense matrix."""
    bundle = make_bundle(6, 110, mask="block", wing=0.1, stamp=(11, 17))
    neighbours = Neighbours(bundle.normal, bundle.x, Limits(window=np.inf))
    schur = neighbours.complement(0)
    assert schur.holds and 0 in neighbours._by_bins
    options = banded.Options(limits=Limits(window=np.inf))
    out, oracle = banded.decorrelate(bundle.normal, bundle.x, (0, 1), ndiag=3, options=options), bundle.oracle(0)
    assert out.status[0, 0] == 0
    bound = max(1e-8, 100 * EPS * oracle.cond)
    assert (np.abs(out.flux[0] - oracle.flux(bundle.x[0])) * np.abs(oracle.s)).max() <= bound
    np.testing.assert_allclose(out.ivar[0], oracle.s**2, rtol=max(1e-9, 100 * EPS * oracle.cond))


@pytest.mark.parametrize("windows", [(), ((0, np.eye(3)),)])
def test_a_tail_is_compared_in_the_widest_band_alone(windows):
    """To rounding, because windows have their own elements beyond the band."""
    bundle = make_bundle(2, 40, mask="gap")
    neighbours = Neighbours(bundle.normal, bundle.x, Limits())
    schur = neighbours.complement(0)
    half = schur.room.half
    roots = neighbours.couplings.roots[0, neighbours.couplings.margin:-neighbours.couplings.margin]
    schur.band[:, half] = np.where(roots > 0, 1e-9 * schur.band[:, 0], 0.0)
    neighbours._best[0] = schur._replace(excess=3.0, windows=windows)
    most = eigh(np.diag(cut_off(schur.band, roots)), full_of(schur.band), eigvals_only=True)[-1]
    for widths, widest in (([half], True), ([half, half + 4], False)):
        neighbours.widths = widths
        for share, held in ((1.001, True), (0.999, False)):
            neighbours.limits = Limits(tail=share * most)
            assert neighbours._holds(0, 0.0) == (held and widest and not windows)


@pytest.mark.parametrize(("excess", "most"), [(3.0, 10.0), (0.05, 1.0)])
def test_what_the_band_moves_is_asked_of_such_fibres(monkeypatch, excess, most):
    """Around the bins whose tail counts, also for ivar, with a tenth of the limit."""
    bundle = make_bundle(3, 60)
    complement, added = Neighbours.complement, []

    def found(self, fibre):
        tail = excess * self.limits.tail
        return complement(self, fibre)._replace(excess=excess, tail=tail, little=excess > 1.0)

    def add(result, plain, spectra, sides, of, first, arena):
        added.append(of.fibres[0, 1])
        return {0: 1.0}
    monkeypatch.setattr(Neighbours, "complement", found)
    monkeypatch.setattr(banded, "add_remainders", add)
    for share in (0.99 * most, 1.01 * most):
        options = banded.Options(limits=Limits(**{"added" if excess > 1.0 else "share": share}))
        out = banded.decorrelate(bundle.normal, bundle.x, (1, 2), ndiag=3, options=options)
        assert (out.status[0, 0] == Status.GOOD) == (share > most)
    assert added == 2 * [simd_remainder.IVAR if excess > 1.0 else simd_remainder.FLUX]
