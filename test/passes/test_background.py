"""A smooth background, separated from the spectra, against explicit least squares."""
from dataclasses import replace

import numpy as np
import pytest

from gpu_extract.bundle import locate, make_normal
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Frame
from gpu_extract.kernels.arena import Arena
from gpu_extract.passes.background import (
    LEAST,
    background,
    background_of,
    coefficients_of,
    in_notes,
    prepare,
    shapes,
    sum_under,
)
from gpu_extract.ranks.comm import SERIAL
from gpu_extract.run import prepare as prepare_job
from gpu_extract.seams import NULL
from gpu_extract.several.bundles import _answer
from gpu_extract.simulate import SimConfig, simulate
from gpu_extract.simulate.config import NO_DEFECTS
from gpu_extract.solve import solve
from gpu_extract.spots import make_spots

GRID = (6040.0, 6056.0, 0.8)
DEGREE = 2


@pytest.fixture(scope="module")
def problem():
    """A small bundle with some masked pixels: job, place, blocks, equations, and A (pixels, bins) itself."""
    made = simulate(SimConfig(camera="tiny", seed=3, truth_grid=GRID, scattered=6.0, defects=NO_DEFECTS))
    job = prepare_job(made.psf, ExtractConfig(GRID, passes=2, background=DEGREE, keep_odd=True))
    ivar = made.image.ivar.copy()
    ivar[60:64, 20:30] = 0
    fibres = job.plan.bundles[0]
    place = locate(replace(made.image, ivar=ivar), job, fibres, Arena())
    blocks, normal = make_normal(job, place, group=SERIAL, recorder=NULL)
    spots, (rows, columns) = make_spots(job.psf, fibres, job.plan.extended), place.cut.root.shape
    dense = np.zeros((rows, columns, *spots.x0.shape))
    for i, j in np.ndindex(*spots.x0.shape):
        y, x = spots.y0[i, j] - place.cut.y0, spots.x0[i, j] - place.cut.x0
        dense[y:y + spots.stamps.shape[2], x:x + spots.stamps.shape[3], i, j] = spots.stamps[i, j]
    return place.cut, blocks, normal, dense


def test_what_lies_under_the_spots_is_the_transposed_times_the_image(problem) -> None:
    cut, blocks, normal, dense = problem
    image = np.random.default_rng(0).standard_normal(cut.root.shape)
    slow = np.einsum("yxij,yx->ij", dense, image)
    # spots are in single precision, and their sums have some 200 terms of at most 0.05
    np.testing.assert_allclose(sum_under(blocks, image, normal.rhs.shape[1]), slow, atol=1e-6)


@pytest.mark.parametrize("whole", [True, False])
def test_spectra_and_background_are_those_of_least_squares(problem, whole: bool) -> None:
    """If the model contains the light of all pixels, the result is the least-squares solution of both together.
    Otherwise x is the best one for the background found, and the residual has no component of B on the pixels with
    known light."""
    cut, blocks, normal, dense = problem
    rows, columns = cut.root.shape
    known = np.array([np.full(columns, 0 if whole else 9), np.full(columns, rows if whole else rows - 12)])
    fit = prepare(cut, known, DEGREE, (blocks, normal, lambda sums: _answer(normal, sums)))
    pixels = np.divide(cut.light, cut.root, out=np.zeros(cut.root.shape), where=cut.root > 0)
    x, c = fit.part(solve(normal).x, pixels)
    basis = np.broadcast_to(shapes(DEGREE, rows)[:, :, None], (DEGREE + 1, rows, columns)).reshape(DEGREE + 1, -1).T
    seen = normal.weight.ravel() > 0
    a, root = dense.reshape(rows * columns, -1)[:, seen], cut.root.ravel()
    k = root > 0
    if not whole:
        y = np.arange(rows * columns) // columns
        k = k & (y >= 9) & (y < rows - 12)
    # A' W (p - A x - B c) = 0, B' K W (p - A x - B c) = 0
    w, both = root[:, None]**2, np.hstack([a, basis])
    tests = np.hstack([a, basis * k[:, None]])
    right = tests.T @ (root * cut.light.ravel())
    slow = np.linalg.solve(tests.T @ (w * both), right)
    np.testing.assert_allclose(c, slow[-DEGREE - 1:], rtol=1e-5, atol=1e-5)
    errors = 1 / np.sqrt(np.diag(a.T @ (w * a)))
    # single precision of the spots under the background alone: 1e-7 of some sigma
    assert np.abs((x.ravel()[seen] - slow[:-DEGREE - 1]) / errors).max() < 1e-5


def test_a_shape_that_no_pixel_tells_of_has_no_part(problem) -> None:
    """The model contains the light of no pixel: nothing is subtracted, and nothing is divided by 0."""
    cut, blocks, normal, _ = problem
    nothing = np.array([np.full(cut.root.shape[1], 9), np.full(cut.root.shape[1], 9)])
    fit = prepare(cut, nothing, DEGREE, (blocks, normal, lambda sums: _answer(normal, sums)))
    x = solve(normal).x
    found, c = fit.part(x, np.ones(cut.root.shape))
    assert not c.any() and np.array_equal(found, x)
    assert 0 < LEAST < 1e-2


def test_a_frame_tells_its_background() -> None:
    class Here:
        y0 = -3
        root = np.zeros((21, 4))

    notes = in_notes(np.array([5.0, 1.0, -0.5]), Here())      # type: ignore[arg-type]
    np.testing.assert_array_equal(coefficients_of(notes), [5.0, 1.0, -0.5])
    assert in_notes(np.zeros(0), Here()) == {} and len(coefficients_of({"fibres": 3})) == 0      # type: ignore[arg-type]
    one = np.ones((1, 2))
    frame = Frame(np.arange(2.0), one, one, one.astype(np.uint32), np.ones((1, 1, 2)), one, np.arange(1),
                  notes={"bundles": {0: notes, 25: {"fibres": 25}}})
    rows = background_of(frame, 30)
    t = np.linspace(-1, 1, 21)
    np.testing.assert_allclose(rows[0, :18], (5 + t - 0.5 * (1.5 * t**2 - 0.5))[3:], rtol=1e-12)
    assert not rows[0, 18:].any() and not rows[1].any()
    np.testing.assert_allclose(background(np.array([5.0, 1.0, -0.5]), (21, 2))[3:, 1], rows[0, :18])
