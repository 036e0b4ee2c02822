"""The limit of weak bins, tested on both sides and in each form of the test; its copies are equal."""
import exact
import numpy as np
import pytest
from scipy.linalg import toeplitz

from decorrelate.cases import make_bundle
from gpu_extract.decorrelate.dense.pixels import WHOLE, Patch, decorrelate
from gpu_extract.decorrelate.dense.turning import Block
from gpu_extract.decorrelate.weak import SAFE, TOLD, UNKNOWN, Factor, band_tells, factor_tells, told_factor
from gpu_extract.normal import lower_band


def test_the_limit_of_the_oracle_is_that_of_the_code() -> None:
    """The oracle has a limit of its own, which no import connects to this one."""
    assert exact.WEAK == UNKNOWN


def test_rounding_flags_no_whole_bin() -> None:
    """It raises C_jj icov_jj of a whole bin, up to WHOLE, by 1e4 at most (dense.pixels._raised)."""
    assert 1e4 * WHOLE <= UNKNOWN


def factor(icov: np.ndarray) -> Factor:
    """The factor of some bins, as a band that contains everything."""
    rows = np.zeros(icov.shape, order="F")
    for k in range(len(icov)):
        rows[k, :len(icov) - k] = np.diagonal(np.linalg.cholesky(icov), -k)
    return Factor(rows, icov.diagonal())


def overlapping(raised: float) -> np.ndarray:
    """icov of two bins whose variances increase this much because the other one is unknown."""
    share = np.sqrt(1.0 - 1.0 / raised)
    return np.array([[1.0, share], [share, 1.0]])


@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e9])
@pytest.mark.parametrize("most", [UNKNOWN, TOLD])
def test_a_factor_tells_two_bins_apart_up_to_the_limit(most: float, scale: float) -> None:
    """A C_jj icov_jj of a tenth of the limit passes, ten times the limit does not. Units do not matter."""
    for raised, right in ((0.1 * most, True), (10.0 * most, False)):
        icov = scale * overlapping(raised)
        assert factor_tells(factor(icov), most) == right
    for raised, right in ((0.1 * TOLD, True), (10.0 * TOLD, False)):      # S of the first bin and its diagonal in icov
        own = np.array([[scale / raised, 0.0]])
        assert band_tells(own, np.array([scale])) == right


@pytest.mark.parametrize(("raised", "weak"), [(0.1 * UNKNOWN, False), (10.0 * UNKNOWN, True)])
def test_pixels_tell_two_bins_apart_up_to_the_limit(raised: float, weak: bool) -> None:
    """The dense core flags the bins, from whitened spots, at ten times the limit and not at a tenth of it."""
    far = 1.0 / np.sqrt(raised)
    spots = np.array([[1.0, np.sqrt(1.0 - far**2)], [0.0, far]])
    rows = np.column_stack([spots, spots @ [100.0, 120.0]])
    made = decorrelate(lambda moved=0.0, way=0: Patch([Block(rows * (1.0 + moved), 0)], np.array([0, 1]), 2, int))
    assert made.weak.tolist() == [weak, weak]


@pytest.mark.parametrize("touch", [0.0, 3e-12])
def test_a_bin_that_a_direction_without_information_touches(touch: float) -> None:
    """Two bins differ by 1e-20 on a dim pixel, and by `touch` of a third: its C_jj icov_jj is (touch / 1e-20)^2.

    A direction counts as 1e-15 at least, hence this as 1e7, below the limit. The touch is there however spots are
    rounded.
    """
    spots = np.array([[1.0, 0.0, touch], [0.0, 1.0, 1.0], [0.0, 0.0, 1e-20]])
    rows = np.column_stack([spots, spots @ [100.0, 120.0, 90.0]])

    def ask(moved: float = 0.0, way: int = 0) -> Patch:
        signs = np.random.default_rng(way).integers(0, 2, rows.shape) * 2 - 1
        return Patch([Block(rows * (1.0 + moved * signs), 0)], np.arange(3), 3, int)

    assert decorrelate(ask).weak.tolist() == [touch > 0.0, True, True]


def test_a_chain_of_bins_is_not_told_by_its_pivots() -> None:
    """Gaussian spots on a fine grid: all pivots are far above SAFE, on both sides of the limit."""
    said = []
    for size in np.arange(1.0, 2.7, 0.05):
        icov = toeplitz(np.exp(-((np.arange(30) / size) ** 2) / 2))
        made, raised = factor(icov), np.linalg.inv(icov).diagonal().max()
        if 1e-2 * UNKNOWN < raised < 1e2 * UNKNOWN:
            assert (made.band[0] ** 2 > 10.0 * SAFE).all()
            assert factor_tells(made) == (raised <= UNKNOWN)
            said.append(raised <= UNKNOWN)
    assert any(said) and not all(said)


@pytest.mark.parametrize(("nfibre", "nwave"), [(1, 1), (1, 60), (2, 4), (5, 60)])
def test_a_band_of_several_fibres_is_icov_ordered_by_bins(nfibre: int, nwave: int) -> None:
    """icov, element by element to rounding, bins first, with 1 for masked bins; its inverse, and the 1-norm of that."""
    bundle = make_bundle(5, 80, mask="gap")
    fibres, bins = (0, nfibre), (7, 7 + nwave)
    icov = bundle.dense.reshape(5, 80, 5, 80)[:nfibre, slice(*bins), :nfibre, slice(*bins)]
    icov = icov.transpose(1, 0, 3, 2).reshape(nfibre * nwave, -1).copy()
    icov[np.diag_indices(len(icov))] += icov.diagonal() == 0.0
    rows = lower_band(bundle.normal.icov, fibres, bins)
    whole = sum(np.diag(row[:len(icov) - k], -k) for k, row in enumerate(rows))
    assert np.allclose(whole, np.tril(icov), rtol=0.0, atol=1e-15 * icov.diagonal().max())
    made = told_factor(bundle.normal.icov, fibres, bins)
    assert made is not None
    inverse, root = np.linalg.inv(icov), np.sqrt(icov.diagonal())
    assert np.allclose(made.solve(np.eye(len(icov))), inverse, rtol=0.0, atol=1e-10 * inverse.max())
    norm = np.abs(inverse * root * root[:, None]).sum(axis=0).max()
    assert 0.99 * norm <= made.size <= (1.0 + 1e-9) * norm
