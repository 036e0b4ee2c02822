"""The wide band beside masks: a broad PSF with strong tails, against the dense core without any cut.

Bounds: flux max(1e-8 sigma, 100 eps cond), with cond of icov with its diagonal scaled to 1; ivar 1e-8. Bins at the ends
are left out: x there contains light from beyond them.
"""
from collections.abc import Callable

import numpy as np
import pytest

import oracle
from extraction import dense_normal, moved, normals
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Array, Decorrelated, Image, Normal, PsfModel, Status
from gpu_extract.decorrelate import banded, dense, wide
from gpu_extract.decorrelate.poles import LADDER, scaled_poles
from gpu_extract.decorrelate.wide import neighbours
from gpu_extract.io.psf import read_psf
from gpu_extract.solve import solve
from gpu_extract.spots import add_to_image, centres, make_spots, select

NDIAG = 10
ENDS = 40
Mask = Callable[[Array, int, int], None]


@pytest.fixture(scope="module")
def psf(shared) -> PsfModel:
    return read_psf(shared / "data" / "psf" / "psf-gausshermite2-boss.fits")


def block(rows: int, columns: int, right: int = 0) -> Mask:
    """Mask this many pixels around a point right of the middle of the bundle."""
    def mask(ivar: Array, y: int, x: int) -> None:
        ivar[y - rows // 2:y + rows - rows // 2, x + right - columns // 2:x + right + columns - columns // 2] = 0
    return mask


def two_blocks(ivar: Array, y: int, x: int) -> None:
    block(40, 20, -10)(ivar, y - 30, x)
    block(30, 20, 10)(ivar, y + 30, x)


def cosmics(ivar: Array, y: int, x: int) -> None:
    ivar[np.random.default_rng(5).random(ivar.shape) < 0.03] = 0


def edge(ivar: Array, y: int, x: int) -> None:
    """The CCD ends at the middle of the range, on the last trace."""
    ivar[y:] = ivar[:, x + 14:] = 0


RED, MIDDLE, BLUE = 9900.0, 7000.0, 5600.0
# name: (fibres, first wavelength, what is masked)
CASES: dict[str, tuple[int, float, Mask]] = {
    "block": (4, RED, block(40, 40)), "long": (4, RED, block(100, 40)),
    "rows": (4, RED, block(30, 1000)), "columns": (4, RED, block(1000, 3)), "two": (4, RED, two_blocks),
    "cosmics": (4, RED, cosmics), "edge": (4, RED, edge),
    "blue": (4, BLUE, block(40, 40)), "middle": (4, MIDDLE, block(40, 40)),
    "beside": (9, MIDDLE, block(30, 30, 20)), "narrow": (9, BLUE, block(50, 14, 10)),
}


def made(psf: PsfModel, nfibre: int, first: float, mask: Mask) -> Normal:
    """The normal equations of a simulated image."""
    psf, wave = select(psf, range(nfibre)), np.arange(max(first - 250.0, 5465.0), min(first + 300.0, 10135.0))
    rng = np.random.default_rng(3)
    photons = 100 * (1 + 0.3 * np.sin(wave / 7)) * np.ones((nfibre, 1))
    for centre in rng.uniform(wave[0], wave[-1], len(wave) // 12):
        photons = photons + rng.uniform(100, 3000) * np.exp(-(((wave - centre) / 0.7) ** 2) / 2)
    clean = np.zeros(psf.shape)
    add_to_image(clean, make_spots(psf, (0, nfibre), wave), photons)
    pix, ivar = clean + rng.normal(size=clean.shape) * np.sqrt(clean + 9.0), 1 / (clean + 9.0)
    y, x = centres(psf, (0, nfibre), np.array([first + 25.0]))
    mask(ivar, int(y[nfibre // 2, 0]), int(x[nfibre // 2, 0]))
    # only the core is tested: a short pad suffices
    _, (normal,) = normals(Image(pix, ivar), psf, ExtractConfig(wavelength=(first, first + 50.0, 1.0), tolerance=1e-3))
    return normal


def exact(normal: Normal, x: Array) -> Decorrelated:
    """The result of the dense core in one patch of everything."""
    nfibre, n = x.shape
    cuts = dense.Cuts(slice(0, n), n, 0, nfibre, 1e-8)
    parts = [dense.decorrelate(normal, x, (i, i + 1), ndiag=NDIAG, cuts=cuts) for i in range(nfibre)]
    return Decorrelated(*(np.concatenate([getattr(part, name) for part in parts])
                          for name in ("flux", "ivar", "resolution", "status", "weak")))


def cond(normal: Normal) -> float:
    """The condition number of icov with its diagonal scaled to 1, without the bins that have no weight."""
    matrix = dense_normal(normal)
    alive = matrix.diagonal() > 0
    matrix = matrix[np.ix_(alive, alive)]
    scale = 1 / np.sqrt(matrix.diagonal())
    spectrum = np.linalg.eigvalsh(matrix * scale * scale[:, None])
    return float(spectrum[-1] / spectrum[0])


@pytest.mark.parametrize("name", CASES)
def test_masks_leave_the_wide_band_right(psf, name):
    """Bins beside a mask have a thousandth of others' weight and less: no limit may be relative to those of others."""
    normal = made(psf, *CASES[name])
    x = solve(normal).x
    found, reference = banded.decorrelate(normal, x, (0, len(x)), ndiag=NDIAG), exact(normal, x)
    assert set(found.status.ravel()) == {Status.WIDE_BAND}
    inner = slice(ENDS, x.shape[1] - ENDS)
    ivar = reference.ivar[:, inner]
    bound = max(1e-8, 100 * np.finfo(float).eps * cond(normal))
    assert bound < 3e-7
    off = np.abs(found.flux - reference.flux)[:, inner] * np.sqrt(ivar)
    assert off.max() < bound
    np.testing.assert_allclose(found.ivar[:, inner], ivar, rtol=1e-8)
    assert np.abs(found.resolution - reference.resolution)[..., inner].max() < 1e-8


def test_neighbours_are_counted_where_others_are_masked(psf):
    """A block that a fibre and the next ones do not touch: those after it still reach through it."""
    normal = made(psf, *CASES["beside"])
    nothing = np.zeros(normal.icov.shape[2])
    # after those of couplings, light and the next fibres' weight
    places = neighbours._places(normal.icov, 2, 20, nothing)[5:]
    assert places
    weight = normal.weight[:, places]
    assert (weight[:5] > 0.3 * np.median(weight[:5])).all() and (weight[5:].min(axis=0) < 0.05 * weight[2]).all()


def test_what_neighbours_take_is_followed_to_its_end():
    """A fibre at the CCD's left edge, with the columns up to the next trace masked above a row: the neighbours have
    light in the wings alone there, and their contribution to the fibre falls far more slowly along them than S.

    Followed only over the width of S, it left 1e-4 of S in the last bins with light. The bound is rounding.
    """
    psf = moved(oracle.make_psf("tails", 3, (1380, 45), dispersion=0.15, first_row=14), 0.0, -8.3, (1380, 45))
    good = np.ones(psf.shape)
    good[323:, :16] = 0
    config = ExtractConfig(wavelength=(6030.0, 6060.0, 0.2), tolerance=1e-2)
    _, (normal,) = normals(Image(good, good), psf, config)
    n, matrix = normal.rhs.shape[1], dense_normal(normal)
    scale = np.sqrt(np.where(matrix.diagonal() > 0, matrix.diagonal(), 1.0))
    matrix = matrix / scale / scale[:, None]
    own = np.flatnonzero(normal.weight[0] > 0)
    others = n + np.flatnonzero(normal.weight[1:].ravel() > 0)
    taken = np.linalg.solve(matrix[np.ix_(others, others)], matrix[np.ix_(others, own)])
    exact = (matrix[np.ix_(own, own)] - matrix[np.ix_(own, others)] @ taken).diagonal()
    schur = wide.complement(normal.icov, 0, np.ones((n, 2)), wide.WideLimits())
    assert schur is not None
    np.testing.assert_allclose(schur.band[own, 0] / scale[own] ** 2, exact, rtol=1e-12)


@pytest.mark.parametrize("side", [1, -1])
def test_neighbours_are_counted_where_couplings_in_a_row_are_strong(side):
    """The second neighbour matters at one bin only, where the first is not coupled most: a line that is bright in all.

    Left out, it removed 5e-7 of S in a fibre without any masked pixel.
    """
    icov = np.zeros((5, 2, 200, 5))
    icov[:, 0, :, 2] = 1.0
    first, second = (2, 3) if side > 0 else (1, 0)         # the lower fibre of each pair
    icov[first, 1, 50, 2], icov[first, 1, 150, 2], icov[second, 1, 150, 2] = 0.5, 0.4, 0.4
    assert wide.count_neighbours(icov, 2, np.zeros(200), wide.WideLimits()) >= 2


def test_neighbours_are_counted_where_light_is_bright():
    """The second neighbour changes S by less than the limit everywhere, but a bright line shows 1e4 times that.

    Without counting by flux, a clean frame of a broad PSF was off by 6e-8 sigma where S/N is 31.
    """
    icov, x = np.zeros((5, 2, 200, 5)), np.zeros(200)
    icov[:, 0, :, 2], icov[:4, 1, :, 2] = 1.0, 2.4e-3
    icov[:4, 1, 50, 2] = 2.5e-3         # the coupling that is examined first: 2 x 2.5e-3^4 = 8e-11 of S
    assert wide.count_neighbours(icov, 2, x, wide.WideLimits()) == 1
    x[150] = 1e4
    assert wide.count_neighbours(icov, 2, x, wide.WideLimits()) >= 2


def test_nine_neighbours_are_not_all_of_a_bundle():
    """In a chain of couplings c the n-th neighbour removes c^2n of S: for 0.3, 4e-10 the ninth, 4e-11 the tenth."""
    icov = np.zeros((25, 2, 40, 5))
    icov[:, 0, :, 2], icov[:24, 1, :, 2] = 1.0, 0.3
    assert 8 < wide.count_neighbours(icov, 12, np.zeros(40), wide.WideLimits()) <= neighbours.MOST_NEIGHBOURS


@pytest.mark.parametrize("level", [1e4, 1e6, 1e8])
def test_flux_of_bright_light_is_right_to_what_poles_leave(level):
    """Up to S/N 5e4, with faint fibres between: the poles give Q to 1e-10 (poles.LADDER), hence sigmas to that times
    S/N, and the band cuts off no more."""
    psf = oracle.make_psf("tails", nfibre=6, shape=(360, 64), first_row=20)
    first, last, step = grid = (6050.0, 6120.4, 1.1)
    wave, rng = np.arange(first - 40 * step, last + 40 * step, step), np.random.default_rng(3)
    photons = level * (1 + 0.3 * np.sin(wave / 7)) * np.where(np.arange(6) % 2, 1.0, 0.01)[:, np.newaxis]
    for centre in rng.uniform(wave[0], wave[-1], 8):
        photons = photons + level * rng.uniform(1, 30) * np.exp(-(((wave - centre) / 0.7) ** 2) / 2)
    clean = np.zeros(psf.shape)
    add_to_image(clean, make_spots(psf, (0, 6), wave), photons)
    image = Image(clean + rng.normal(size=clean.shape) * np.sqrt(clean + 9.0), 1 / (clean + 9.0))
    _, (normal,) = normals(image, psf, ExtractConfig(wavelength=grid, tolerance=1e-3))
    x = solve(normal).x
    found, reference = banded.decorrelate(normal, x, (0, 6), ndiag=NDIAG), exact(normal, x)
    assert set(found.status.ravel()) == {Status.WIDE_BAND}
    inner = slice(12, x.shape[1] - 12)
    error = np.sqrt(reference.ivar)[:, inner]
    off = np.abs(found.flux - reference.flux)[:, inner] * error
    assert off.max() < max(1e-8, 1e-10 * float((reference.flux[:, inner] * error).max()))
    np.testing.assert_allclose(found.ivar[:, inner], reference.ivar[:, inner], rtol=1e-9)


def test_what_the_band_cuts_off_moves_no_line():
    """Two lines, 1e6 and -1e6, where the ninth diagonal is 1.1e-8 of the first: the tail allows a band of eight, which
    moves the flux by 3e-8 sigma or more. What is kept moves it by OF_TAIL of the tail, times two at most."""
    n, wide_half = 60, 12
    band = np.zeros((n, wide_half + 1))
    band[:, 0], band[:, 1], band[:, 9] = 1.0, 0.3, 1.1e-8
    x = np.zeros(n)
    x[20:24] = 10.0, -10.0, 10.0, -10.0
    tails, allowed = 4.0 * np.abs(band).max(axis=0), 5e-8

    def flux(half: int) -> Array:
        rows = np.where(np.arange(wide_half + 1) <= half, band, 0.0)
        upper = sum(np.diag(rows[:n - k, k], k) for k in range(wide_half + 1))
        value, vector = np.linalg.eigh(upper + np.triu(upper, 1).T)
        return vector @ (np.sqrt(value) * (vector.T @ x))

    kept, most = wide._kept(band, x, tails, allowed)
    assert most == wide.OF_TAIL * allowed
    assert int(np.argmax(tails <= allowed)) < 9 <= kept
    assert np.abs(flux(8) - flux(12)).max() > 2 * most
    assert np.abs(flux(kept) - flux(12)).max() <= 2 * most
    assert wide._kept(band, x / 100, tails, allowed)[0] < 9


def test_what_groups_of_poles_cut_off_moves_no_line():
    """The tenth diagonal is 2e-11 of the first: less than 3e-9 of the larger shifts. It moves lines of 1000 sigma by
    1e-8 and more through these poles, unless their band is as wide as the flux needs."""
    n, x = 60, np.zeros(60)
    band = np.zeros((n, 11))
    band[:, 0], band[:, 1], band[:, 10], x[20:24] = 1.0, 0.3, 2e-11, [1000.0, -1000.0, 1000.0, -1000.0]
    sides, top = np.column_stack([np.ones(n), x]), np.abs(band).max(axis=0)
    made = {}
    for shift in (0.0, 4e-9, np.inf):
        schur = wide.WideSchur(band, 1.6, 0, np.zeros(3), 0.0, shift, 10.0, top)
        made[shift] = wide.pole_sum(schur, scaled_poles(*LADDER[0], 1.6), sides, 2, wide.WideLimits())[:, 1]
    assert np.abs(made[np.inf] - made[0.0]).max() > 1e-8
    assert np.abs(made[4e-9] - made[0.0]).max() <= 4e-9
