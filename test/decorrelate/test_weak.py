"""The limit of weak bins: on both sides of it, in each form in which it is asked, and the same in all its copies."""
import numpy as np
import pytest
from scipy.linalg import toeplitz

from gpu_extract.decorrelate.dense.pixels import WHOLE, Block, Patch, decorrelate
from gpu_extract.decorrelate.weak import SAFE, TOLD, UNKNOWN, band_tells, factor_tells
from gpu_extract.oracle import exact


def test_the_copy_is_the_same() -> None:
    """The oracle has a limit of its own, which no import connects."""
    assert exact.WEAK == UNKNOWN


def test_rounding_flags_no_whole_bin() -> None:
    """It raises C_jj icov_jj of a whole bin, up to WHOLE, by 1e4 at most (dense.pixels._raised)."""
    assert 1e4 * WHOLE <= UNKNOWN


def overlapping(raised: float) -> np.ndarray:
    """icov of two bins whose variances are raised so much because the other one is unknown."""
    share = np.sqrt(1.0 - 1.0 / raised)
    return np.array([[1.0, share], [share, 1.0]])


@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e9])
@pytest.mark.parametrize("most", [UNKNOWN, TOLD])
def test_two_bins(most: float, scale: float) -> None:
    """C_jj icov_jj a tenth of the limit is told, ten times the limit is not; in any unit."""
    for raised, right in ((0.1 * most, True), (10.0 * most, False)):
        icov = scale * overlapping(raised)
        assert factor_tells(np.linalg.cholesky(icov), icov.diagonal(), most) == right
    for raised, right in ((0.1 * TOLD, True), (10.0 * TOLD, False)):      # S of the first bin and its diagonal in icov
        own = np.array([[scale / raised, 0.0]])
        assert band_tells(own, np.array([scale])) == right


@pytest.mark.parametrize(("raised", "weak"), [(0.1 * UNKNOWN, False), (10.0 * UNKNOWN, True)])
def test_two_bins_from_their_pixels(raised: float, weak: bool) -> None:
    """The dense core's flag, from whitened spots: a tenth of the limit has none, ten times the limit has one."""
    far = 1.0 / np.sqrt(raised)
    spots = np.array([[1.0, np.sqrt(1.0 - far**2)], [0.0, far]])
    rows = np.column_stack([spots, spots @ [100.0, 120.0]])
    made = decorrelate(lambda moved=0.0, way=0: Patch([Block(rows * (1.0 + moved), 0)], np.array([0, 1]), 2))
    assert made.weak.tolist() == [weak, weak]


def test_a_chain_of_bins_is_not_told_by_its_pivots() -> None:
    """Gaussian spots on a fine grid: all pivots are far above SAFE, on both sides of the limit."""
    said = []
    for size in np.arange(1.0, 2.7, 0.05):
        icov = toeplitz(np.exp(-((np.arange(30) / size) ** 2) / 2))
        factor, raised = np.linalg.cholesky(icov), np.linalg.inv(icov).diagonal().max()
        if 1e-2 * UNKNOWN < raised < 1e2 * UNKNOWN:
            assert (factor.diagonal() ** 2 > 10.0 * SAFE).all()
            assert factor_tells(factor, icov.diagonal()) == (raised <= UNKNOWN)
            said.append(raised <= UNKNOWN)
    assert any(said) and not all(said)
