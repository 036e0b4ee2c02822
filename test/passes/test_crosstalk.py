"""Light of other bundles and of tails beyond the stamps, against the definition."""
from dataclasses import replace

import numpy as np
import pytest

from gpu_extract.passes import simd_pixels
from gpu_extract.passes.crosstalk import EVERY, NEAR, ROUGH, add_pieces, add_tails, cubic, cut_piece, tails_of
from gpu_extract.simulate.instrument import psf_model
from gpu_extract.simulate.troubles import CORE, INDEX, tail_scale, with_tail
from gpu_extract.spots import centres, make_spots

WAVE = np.arange(6040.0, 6060.0, 0.8)
FIBRES = (0, 3)


def faded(r2: np.ndarray, radius: float) -> np.ndarray:
    """1 up to 0.7 of a radius, then a smooth step of degree 7 in r2, 0 from the radius on."""
    s = np.clip((radius**2 - r2) / (radius**2 - (0.7 * radius)**2), 0, 1)
    return 35 * s**4 - 84 * s**5 + 70 * s**6 - 20 * s**7


def test_tails_are_the_formula_beyond_the_stamps_up_to_the_radius() -> None:
    psf = with_tail(psf_model("tiny", 0), 0.002)
    strengths = np.random.default_rng(0).random((3, len(WAVE)))
    radius, corner, shape = 25.0, (40, 5), (90, 70)
    light = np.zeros(shape)
    add_tails(light, corner, psf, (FIBRES, WAVE), strengths, radius)
    spots, centre = make_spots(psf, FIBRES, WAVE), centres(psf, FIBRES, WAVE)
    y, x = np.mgrid[:shape[0], :shape[1]] + np.array(corner)[:, None, None]
    slow = np.zeros(shape)
    for i in range(3):
        for j in range(len(WAVE)):
            r2 = (y - centre[0, i, j]) ** 2 + (x - centre[1, i, j]) ** 2
            dy, dx = y - spots.y0[i, j], x - spots.x0[i, j]
            stamp = (dy >= 0) & (dy < psf.stamp[0]) & (dx >= 0) & (dx < psf.stamp[1])
            tail = 0.002 * r2 / (CORE**2 + r2) ** (1 + INDEX / 2) * faded(r2, radius)
            slow += strengths[i, j] * np.where(stamp, 0, tail)
    # tables are interpolated between nodes: (step / r2)^2 / 8 of the tail at the stamp's edge, some 1e-5
    np.testing.assert_allclose(light, slow, rtol=1e-4, atol=1e-12)
    assert light.max() > 0


@pytest.mark.parametrize("every", [EVERY, ROUGH])
@pytest.mark.parametrize("step", [0.25, 0.8])
@pytest.mark.parametrize("xscale", [1.0, 1.2])
def test_tails_in_two_parts_are_the_same_within_a_per_cent(step: float, xscale: float, every: int) -> None:
    """A per cent of T(NEAR) for each spot, wherever it lies on the grid and between the bins that stand for all. Smooth
    spectra are far more accurate. On a coarser grid the error grows like that of a cubic, as h^4."""
    psf = with_tail(psf_model("tiny", 0), 0.002)
    assert psf.tail is not None
    psf = replace(psf, tail=replace(psf.tail, xscale=replace(psf.tail.xscale, coeff=xscale * psf.tail.xscale.coeff)))
    wave, window, radius = np.arange(6030.0, 6070.0, step), (40, 10, 80, 60), 40.0
    height = 0.002 * NEAR**2 / (CORE**2 + NEAR**2) ** (1 + INDEX / 2)
    lone = np.zeros((len(wave), 3, len(wave)))
    some = range(20, 36, 3)
    for n in some:
        lone[n, 1, n] = 1.0
    for strengths, most in [*((lone[n], height) for n in some), (np.ones((3, len(wave))), None)]:
        found = tails_of(psf, (FIBRES, wave), strengths, radius, window, every)
        slow = np.zeros(found.light.shape)
        add_tails(slow, found.corner, psf, (FIBRES, wave), strengths, radius)
        if most is None:
            most = slow.max() / 10
        np.testing.assert_allclose(found.light, slow, rtol=0, atol=0.01 * (every / EVERY)**4 * most)
        assert (slow > 0.1 * most).sum() > 1000


def test_a_cubic_is_what_its_nodes_make_of_it() -> None:
    nodes = np.arange(-1.0, 7.0)
    grid, fine = nodes[:, None]**3 - 2 * nodes[None, :]**2, np.arange(15) / 3
    image = np.ones((15, 15))
    simd_pixels.enlarge(image, grid, cubic(np.arange(3) / 3))
    np.testing.assert_allclose(image, 1 + fine[:, None]**3 - 2 * fine[None, :]**2, atol=1e-12)


def test_the_scale_of_a_tail_is_what_normalised_its_stamp() -> None:
    psf = with_tail(psf_model("tiny", 0), 0.002)
    scale = tail_scale(psf, FIBRES, WAVE)
    bare = make_spots(replace(psf, tail=None), FIBRES, WAVE).stamps
    full = make_spots(psf, FIBRES, WAVE).stamps
    spots, centre = make_spots(psf, FIBRES, WAVE), centres(psf, FIBRES, WAVE)
    ny, nx = psf.stamp
    r2 = ((spots.y0 - centre[0])[..., None, None] + np.arange(ny)[:, None]) ** 2 \
        + ((spots.x0 - centre[1])[..., None, None] + np.arange(nx)) ** 2
    tail = scale[..., None, None] * 0.002 * r2 / (CORE**2 + r2) ** (1 + INDEX / 2)
    core = (full - tail) / (full - tail).sum(axis=(2, 3), keepdims=True)
    # Gauss-Hermite terms below 0 are clipped for the component alone, but not where the tail raises them: 1e-4 of light
    np.testing.assert_allclose(core, bare, atol=2e-4)


def test_pieces_of_a_model_arrive_where_they_lie() -> None:
    model = np.arange(1.0, 31.0, dtype=np.float32).reshape(5, 6)
    piece = cut_piece(model, (10, 20), (12, 15, 10, 8))
    assert piece is not None and piece.corner == (12, 20)
    light = np.zeros((10, 8), np.float32)
    add_pieces(light, (12, 15), [piece, piece])
    np.testing.assert_array_equal(light[:3, 5:], 2 * model[2:, :3])
    assert light.sum() == 2 * model[2:, :3].sum()
    assert cut_piece(model, (10, 20), (15, 15, 10, 8)) is None
    assert cut_piece(np.zeros_like(model), (10, 20), (12, 15, 10, 8)) is None
