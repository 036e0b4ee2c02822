"""Light of other bundles and of tails beyond the stamps, against the plain definition."""
from dataclasses import replace

import numpy as np

from gpu_extract.passes.crosstalk import add_pieces, add_tails, cut_piece
from gpu_extract.simulate.instrument import psf_model
from gpu_extract.simulate.troubles import CORE, INDEX, tail_scale, with_tail
from gpu_extract.spots import centres, make_spots

WAVE = np.arange(6040.0, 6060.0, 0.8)
FIBRES = (0, 3)


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
            tail = 0.002 * r2 / (CORE**2 + r2) ** (1 + INDEX / 2)
            slow += strengths[i, j] * np.where(stamp | (r2 >= radius**2), 0, tail)
    # tables are interpolated between nodes: (step / r2)^2 / 8 of the tail at the stamp's edge, some 1e-5
    np.testing.assert_allclose(light, slow, rtol=1e-4, atol=1e-12)
    assert light.max() > 0


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
    # what Gauss-Hermite terms have below 0 is cut off of the core alone, but not where the tail lifts it: 1e-4 of light
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
