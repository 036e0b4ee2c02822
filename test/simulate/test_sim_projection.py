"""Pixels against an independent projection: the Gauss-Hermite density, integrated numerically over each pixel."""
import numpy as np
import pytest

from gpu_extract.data import PsfModel
from gpu_extract.simulate import NO_DEFECTS, SimConfig, simulate
from gpu_extract.simulate.frame import project
from gpu_extract.simulate.instrument import psf_model
from gpu_extract.simulate.spectra import Truth

NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)
BAR = 1e-6          # of the spot's sum


def _value(series, fibre: int, wave: float) -> np.ndarray:
    argument = 2 * (wave - series.wmin) / (series.wmax - series.wmin) - 1
    coeff = series.coeff[..., fibre, :]
    return np.polynomial.legendre.legval(argument, np.moveaxis(coeff, -1, 0))


def _profiles(first: int, count: int, centre: float, sigma: float, degree: int) -> np.ndarray:
    """Integral of He_k(u) exp(-u^2/2) / sqrt(2 pi) over each pixel, (degree + 1, count)."""
    pixel = first + np.arange(count)
    u = (pixel[:, None] + 0.5 * NODES - centre) / sigma
    density = np.exp(-0.5 * u**2) / np.sqrt(2 * np.pi)
    return np.array([(np.polynomial.hermite_e.hermeval(u, np.eye(degree + 1)[k]) * density) @ WEIGHTS * 0.5 / sigma
                     for k in range(degree + 1)])


def _add_spot(image: np.ndarray, psf: PsfModel, fibre: int, wave: float, electrons: float) -> None:
    """FORMATS' spot: a stamp of 11 x 17 pixels whose first is floor(centre - half size + 0.5), clipped, normalised."""
    core, (ny, nx) = psf.cores[0], psf.stamp
    x, y = float(_value(psf.x, fibre, wave)), float(_value(psf.y, fibre, wave))
    x0, y0 = int(np.floor(x - nx // 2 + 0.5)), int(np.floor(y - ny // 2 + 0.5))
    of_x = _profiles(x0, nx, x, float(_value(core.sigma_x, fibre, wave)), 6)
    of_y = _profiles(y0, ny, y, float(_value(core.sigma_y, fibre, wave)), 6)
    spot = np.einsum("ji,jy,ix->yx", _value(core.gh, fibre, wave), of_y, of_x)
    spot = np.maximum(spot, 0)
    spot *= electrons / spot.sum()
    rows, columns = np.arange(y0, y0 + ny), np.arange(x0, x0 + nx)
    on_y, on_x = ((index >= 0) & (index < size) for index, size in zip((rows, columns), image.shape, strict=True))
    image[np.ix_(rows[on_y], columns[on_x])] += spot[np.ix_(on_y, on_x)]


def test_every_pixel_of_a_small_frame() -> None:
    config = SimConfig(camera="tiny", truth_step=0.8, defects=NO_DEFECTS, noise=False, seed=5)
    made = simulate(config)
    electrons = made.truth.electrons()
    image, reach = np.zeros(made.expected.shape), np.zeros(made.expected.shape)
    for row, fibre in enumerate(made.truth.fibres):
        for column, wave in enumerate(made.truth.wave):
            _add_spot(image, made.psf, int(fibre), float(wave), electrons[row, column])
    # a pixel gathers light of some 20 spots: the limit is that of the brightest of them
    for row, fibre in enumerate(made.truth.fibres):
        x, y = _value(made.psf.x, int(fibre), made.truth.wave[0]), 0
        reach[:, max(int(x) - 12, y):int(x) + 13] = np.maximum(reach[:, max(int(x) - 12, y):int(x) + 13],
                                                              electrons[row].max())
    assert image.max() > 10
    assert np.abs(made.expected - image).max() < BAR * electrons.max()
    assert np.all(np.abs(made.expected - image) <= BAR * np.maximum(reach, 1e-3))


@pytest.mark.parametrize("band", ["b", "r", "z"])
def test_single_spots_all_over_a_camera(band: str) -> None:
    """Corners, edges (half off the CCD) and the middle; each spot alone against its own sum."""
    psf = psf_model(band, 3)
    low, high = psf.wavelength_range
    wave = np.linspace(low, high, 24)
    for fibre in (0, 24, 25, 250, 499):
        flux = np.zeros((1, len(wave)), np.float32)
        flux[0] = 1000 * (1 + np.arange(len(wave)) % 3)
        truth = Truth(wave, flux, np.array([fibre]), (), np.ones(1))
        image = np.zeros(psf.shape)
        for w, e in zip(wave, truth.electrons()[0], strict=True):
            _add_spot(image, psf, fibre, w, e)
        ours = project(psf, truth, ncolumn=psf.shape[1])
        assert np.abs(ours - image).max() < BAR * truth.electrons().min()
        assert (ours > 0).sum() > 20 * 100
