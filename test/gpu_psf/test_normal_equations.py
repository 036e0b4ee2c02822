"""Stamps, derivatives and normal equations against slow, simple methods: finite differences, dense matrices."""
from dataclasses import replace

import numpy as np
import pytest
from small_arc import Small

from gpu_extract.data import Array
from gpu_extract.spots import make_spots
from gpu_psf.data import Parameters
from gpu_psf.normal import Scene, fluxes, gradient, grams, normal_equations, reduced
from gpu_psf.pairs import clusters, find_pairs
from gpu_psf.prepare import make_spots as spots_of
from gpu_psf.prepare import parameters_of, psf_of
from gpu_psf.profile import by_centre, by_sigma, profiles
from gpu_psf.solve import ENOUGH, curvature_of, iterate, step_from
from gpu_psf.stamps import make_stamps, project
from gpu_psf.state import look, scene_of

STEP = 1e-5
SHORT = 1e-9         # of a parameter: hardly any pixel's clipping changes within it


def density(u: float, series: list[float]) -> float:
    """A Hermite series times the normal density."""
    return float(np.polynomial.hermite_e.hermeval(u, series) * np.exp(-u * u / 2) / np.sqrt(2 * np.pi))


def test_profiles_are_integrals_and_their_derivatives_those_of_profiles() -> None:
    from scipy.integrate import quad

    centre, sigma, first = np.array([5.3, 4.8]), np.array([1.1, 0.8]), np.array([0, 0])
    found = profiles(centre, sigma, first, 11, 8)
    for n in range(2):
        for k in (0, 1, 4, 8):
            series = [0.0] * k + [1.0]
            for pixel in (2, 5, 6):
                low, high = ((pixel + side - centre[n]) / sigma[n] for side in (-0.5, 0.5))
                value, _ = quad(density, low, high, args=(series,), epsabs=1e-13)
                assert found[n, k, pixel] == pytest.approx(value, abs=1e-11)
    for derivative, ends in ((by_centre(found, sigma, 7), ((centre + STEP, sigma), (centre - STEP, sigma))),
                             (by_sigma(found, sigma, 7), ((centre, sigma + STEP), (centre, sigma - STEP)))):
        high, low = (profiles(*end, first, 11, 8)[:, :7] for end in ends)
        # truncation: a third derivative below 1e4 times the step squared; rounding 1e-13 / step
        np.testing.assert_allclose(derivative, (high - low) / (2 * STEP), atol=1e-6)


def test_stamps_are_those_of_the_extraction(small: Small) -> None:
    fit = small.fit
    wave = np.unique(fit.task.spots.wave)
    theirs = make_spots(psf_of(fit.frame, fit.state.now), (0, 5), wave)
    stamps = fit.state.stamps
    for n in range(0, len(fit.task.spots), 7):
        i, j = fit.task.spots.fibre[n], int(np.searchsorted(wave, fit.task.spots.wave[n]))
        ours = stamps.image[n, 0] / stamps.image[n, 0].sum()
        assert (stamps.corner[0][n], stamps.corner[1][n]) == (theirs.x0[i, j], theirs.y0[i, j])
        np.testing.assert_allclose(ours, theirs.stamps[i, j], atol=1e-12)


@pytest.fixture(scope="module")
def scene(small: Small) -> tuple[Scene, Parameters, Array]:
    """Some lines, two of them blended, at the fitted parameters, and the pixels' light."""
    task = small.fit.task
    lines = replace(small.lines, wave=np.array([6020.0, 6022.1, 6050.0, 6051.5, 6080.0]), strength=np.ones(5))
    spots = spots_of(small.fit.frame, lines, np.arange(5), 1)
    random = np.random.default_rng(2)
    now = small.fit.state.now
    stamps = make_stamps(small.fit.frame, spots, now, task.pixels)
    flux = 1000 + 500 * random.random(len(spots))
    weight = random.random(task.pixels.value.size) * 0.1
    light = project(task.pixels, stamps, flux).ravel() + random.standard_normal(weight.size)
    residual = light - project(task.pixels, stamps, flux).ravel()
    return Scene(small.fit.frame, spots, stamps, flux, weight, residual), now, light


def dense(scene: Scene, now: Parameters, small: Small) -> tuple[Array, Array]:
    """Derivatives of the model by the parameters (npixel, size), by finite differences, and by the fluxes."""
    pixels, size = small.fit.task.pixels, scene.size

    def model(step: Array) -> Array:
        stamps = make_stamps(scene.frame, scene.spots, now.moved(step), pixels)
        return project(pixels, stamps, scene.flux).ravel()

    columns = []
    for n in range(size):
        step = np.zeros(size)
        step[n] = SHORT
        columns.append((model(step) - model(-step)) / (2 * SHORT))
    lights = [project(pixels, scene.stamps, np.eye(len(scene.flux))[n]).ravel() for n in range(len(scene.flux))]
    return np.stack(columns, axis=1), np.stack(lights, axis=1)


@pytest.mark.parametrize("shapes", [True, False])
def test_normal_equations_are_those_of_dense_matrices(scene: tuple[Scene, Parameters, Array], small: Small,
                                                      shapes: bool) -> None:
    made, now, light = scene
    made = replace(made, shapes=shapes)
    slopes, lights = dense(made, now, small)
    pairs = find_pairs(made.spots, made.stamps)
    groups = clusters(pairs, len(made.spots))
    assert 1 < len(groups) < len(made.spots)
    matrix, mixed = normal_equations(made, pairs)
    expected = slopes.T @ (made.weight[:, np.newaxis] * slopes)
    unit = np.sqrt(np.maximum(np.outer(expected.diagonal(), expected.diagonal()), 1e-12))
    # finite differences are good to 1e-6 of a derivative; light shared by spots 9 widths apart is left out
    assert np.abs((matrix - expected) / unit).max() < 1e-4
    along = lights.T @ (made.weight[:, np.newaxis] * slopes)
    own = np.sqrt((made.weight[:, np.newaxis] * lights**2).sum(axis=0))
    assert np.abs((mixed - along) / own[:, np.newaxis] / np.sqrt(expected.diagonal())).max() < 1e-4
    pull = gradient(made)
    weighted = made.weight * made.residual
    np.testing.assert_allclose(pull, slopes.T @ weighted, atol=2e-4 * np.abs(pull).max())
    gram = lights.T @ (made.weight[:, np.newaxis] * lights)
    blocks = grams(made, pairs, groups)
    for group, block in zip(groups, blocks, strict=True):
        np.testing.assert_allclose(block, gram[np.ix_(group, group)], atol=1e-7 * gram.max())
    without = expected - along.T @ np.linalg.solve(gram, along)
    assert np.abs((reduced(made, pairs, groups, blocks) - without) / unit).max() < 2e-4
    found, variance = fluxes(made, groups, blocks, light)
    np.testing.assert_allclose(found, np.linalg.solve(gram, lights.T @ (made.weight * light)), rtol=1e-5)
    np.testing.assert_allclose(variance, np.linalg.inv(gram).diagonal(), rtol=1e-5)


def test_light_that_is_not_firm_moves_nothing(small: Small) -> None:
    task = replace(small.fit.task, firm=np.zeros(len(small.fit.task.spots), bool))
    state = look(task, small.fit.state.now, small.fit.state.weight)
    scene = scene_of(task, state, shapes=True)
    assert not reduced(scene, state.pairs, state.groups, state.blocks).any()
    assert not gradient(scene).any()


def test_leaving_out_pairs_without_firm_spots_changes_nothing(small: Small) -> None:
    """Against fluxes of practically 0, with no pair left out."""
    spots, state = small.fit.task.spots, small.fit.state
    task = replace(small.fit.task, firm=(spots.fibre + spots.line) % 3 == 0)
    made = scene_of(task, state, shapes=True)
    every = replace(made, flux=np.where(made.flux == 0, 1e-30, made.flux))
    for found, right in zip(normal_equations(made, state.pairs), normal_equations(every, state.pairs), strict=True):
        np.testing.assert_allclose(found, right, atol=1e-12 * np.abs(right).max())
        assert np.abs(right).max() > 0


def test_steps_with_the_curvature_of_another_state_end_where_those_with_their_own_do(small: Small) -> None:
    task, state = small.fit.task, small.fit.state
    random = np.random.default_rng(3)
    scale = 1 / np.sqrt(curvature_of(task, state, shapes=True).matrix.diagonal())
    off = state.now.moved(0.5 * scale * random.standard_normal(len(scale)))
    begun = look(task, off, state.weight, state)
    other, kept, own, gains = curvature_of(task, begun, shapes=True), begun, begun, []
    for _ in range(6):
        own, _ = step_from(task, own, curvature_of(task, own, shapes=True))
    for _ in range(15):
        kept, gain = step_from(task, kept, other)
        gains.append(gain)
    assert gains[0] > 50 and gains[-1] < ENOUGH[0]
    assert kept.chi2 == pytest.approx(own.chi2, abs=ENOUGH[0])
    assert iterate(task, begun, (0.02,), shapes=True).chi2 < begun.chi2


def test_a_psf_goes_into_parameters_and_back(small: Small) -> None:
    frame = small.fit.frame
    again = parameters_of(replace(frame, start=replace(psf_of(frame, small.fit.state.now), bundle=None)))
    np.testing.assert_allclose(again.vector(), small.fit.state.now.vector(), atol=1e-9)
