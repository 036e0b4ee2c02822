"""Pixels that stand out from the model: found where there are cosmic rays, not where the model may be wrong."""
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm, poisson

from gpu_extract.data import Legendre, PsfModel, with_series
from gpu_extract.normal import Cut
from gpu_extract.passes.outliers import FEWEST, find_outliers, known_rows, rarity
from gpu_extract.passes.spot_shape import DARK, Shape, shape_of
from gpu_extract.simulate.instrument import psf_model
from gpu_extract.spots import make_spots

SIGMA = 3.0
SHAPE = Shape((0.65, 0.65, 0.42, 0.42), (4, 4), 0.0)
NONE = np.zeros((0, 2), dtype=np.int64)


def cut_of(excess: np.ndarray, model: np.ndarray) -> Cut:
    """Pixels that lie above the model by this much."""
    root = np.full(excess.shape, 1 / SIGMA)
    return Cut(root, (excess + model) * root, 0, 0)


def found(excess: np.ndarray, model: np.ndarray | None = None, *, shape: Shape = SHAPE, error: float = 0.01,
          known: np.ndarray = NONE, rows: np.ndarray | None = None, bad: tuple = ()) -> set[tuple[int, int]] | None:
    """The outliers' places."""
    model = np.zeros(excess.shape, np.float32) if model is None else model.astype(np.float32)
    cut = cut_of(excess, model)
    for place in bad:
        cut.root[place] = cut.light[place] = 0.0
    ends = np.array([[0], [len(excess)]]).repeat(excess.shape[1], axis=1) if rows is None else rows
    places = find_outliers(cut, model, ends, shape=shape, error=error, known=known)
    return None if places is None else {(int(y), int(x)) for y, x in places}


def hit(height: float, *places: tuple[int, int]) -> np.ndarray:
    excess = np.zeros((60, 40))
    for place in places:
        excess[place] = height * SIGMA
    return excess


def blob(height: float) -> np.ndarray:
    y, x = np.mgrid[:60, :40]
    return height * SIGMA * np.exp(-((y - 30) ** 2 + (x - 20) ** 2) / 2.2)


def test_a_hit_is_found_from_five_and_a_half_sigma_on_a_track_by_its_pairs() -> None:
    assert found(hit(6.0, (30, 20))) == {(30, 20)}
    assert found(hit(5.0, (30, 20))) == set()
    track = [(30 + n, 10 + n) for n in range(8)]
    assert found(hit(4.0, *track)) == set(track)


@pytest.mark.parametrize("light", [0.05, 0.3, 2.0, 20.0, 1e3, 1e6])
@pytest.mark.parametrize("noise", [0.03, 0.5, 3.0])
def test_errors_are_those_of_a_gaussian_that_is_exceeded_as_rarely(light: float, noise: float) -> None:
    """Against the sum over all counts. Without read noise counts are whole numbers, so they agree to a photon."""
    sigma = np.hypot(noise, np.sqrt(light))
    for excess in np.linspace(2.5, 9, 14) * sigma:
        counts = np.arange(int(light + 60 * sigma + 60))
        chance = np.sum(poisson.pmf(counts, light) * norm.sf((light + excess - counts) / noise))
        low, found, high = rarity(np.array([excess - 1, excess, excess + 1]), np.full(3, 1 / sigma), np.full(3, light))
        assert low - 0.2 < norm.isf(chance) < high + 0.2, (excess, found, norm.isf(chance))
        if noise > 0.4:
            assert norm.isf(chance) == pytest.approx(found, abs=0.25)


def test_errors_of_all_that_there_may_be() -> None:
    """Hits near full well, no light at all, light near the limits of single precision, pixels below the model."""
    above, variance, light = [1e-3, 1.0, 30.0, 1e5, 1e20], [1e-4, 1.0, 9.0, 1e5, 1e30], [0.0, 0.3, 9.0, 1e5, 1e30]
    excess, root, lit = np.meshgrid(above, 1 / np.sqrt(variance), light)
    excess, root, lit = (array.ravel() for array in (excess, root, lit))
    found = rarity(excess, root, lit)
    assert np.isfinite(found).all() and (found > 0).all() and (found <= excess * root).all()
    np.testing.assert_array_equal(rarity(-excess, root, lit), -excess * root)
    np.testing.assert_array_equal(rarity(excess, 0 * root, lit), 0)
    np.testing.assert_allclose(rarity(excess, root, 0 * lit), rarity(excess, root, 0 * lit + FEWEST))


def test_a_photon_is_no_hit() -> None:
    """If 0.01 photons are expected, every hundredth pixel has one. Several in a pixel are still a hit."""
    model, light = np.full((60, 40), 0.01), np.full((60, 40), 0.01, np.float32)
    ends = np.array([[0], [60]]).repeat(40, axis=1)
    pix = (np.random.default_rng(1).random((60, 40)) < 0.01).astype(float)
    pix[30, 20] = 8.0
    root = np.full(pix.shape, 1 / np.sqrt(0.03**2 + 0.01))
    counts, gaussian = (find_outliers(Cut(root, root * pix, 0, 0), model.astype(np.float32), ends, shape=SHAPE,
                                      error=0.01, known=NONE, lit=lit) for lit in (light, None))
    assert counts.tolist() == [[30, 20]] and len(gaussian) > 15


def test_what_lies_below_the_model_is_none() -> None:
    assert found(-hit(20.0, (30, 20))) == set()


def test_neighbours_that_lie_above_the_model_are_taken_along() -> None:
    excess = hit(20.0, (30, 20)) + hit(2.5, (30, 21), (31, 20), (30, 23)) + hit(1.5, (29, 20))
    assert found(excess) == {(30, 20), (30, 21), (31, 20)}


def test_what_is_as_wide_as_a_spot_is_light() -> None:
    assert found(blob(12.0)) == set()


def test_the_core_of_a_line_is_none_where_the_psf_or_the_step_explain_it() -> None:
    line = blob(2000.0)
    sharp = hit(30.0, (30, 20))
    assert found(sharp, line) == set()                                           # 1 % of the line is 20 sigma
    assert found(sharp, line, error=0.001) == {(30, 20)}
    assert found(sharp, line, error=0.001, shape=SHAPE._replace(between=0.05)) == set()
    assert found(hit(60.0, (30, 20)), line) == {(30, 20)}


def test_a_model_below_zero_is_no_light() -> None:
    """Beside a cosmic ray x oscillates. A model below 0 does not count as an excess of the pixel."""
    model = -hit(30.0, (30, 20))
    assert found(-model, model) == set()         # the pixels are 0


def test_outliers_stay_as_long_as_they_lie_above_the_model() -> None:
    """A single pixel stays if it would be an outlier now, one of a pair from a lower limit on."""
    known = np.array([(30, 20), (10, 10)])
    assert found(hit(6.0, (30, 20)), known=known) == {(30, 20)} and found(hit(4.5, (30, 20)), known=known) == set()
    pair = np.array([(30, 20), (31, 21), (10, 10)])
    assert found(hit(4.5, (30, 20), (31, 21)), known=pair) == {(30, 20), (31, 21)}


def test_bad_pixels_are_never_found_and_say_nothing_of_others() -> None:
    assert found(hit(20.0, (30, 20), (30, 21)), bad=((30, 21),)) == {(30, 20)}


def test_nothing_is_rejected_where_everything_stands_out() -> None:
    assert found(np.random.default_rng(1).permutation(np.arange(2400.0)).reshape(60, 40)) is None


@pytest.mark.parametrize(("below", "broad", "share", "lit", "rejected"), [
    (0, 0, 0.03, True, True), (0, 0, 0.12, True, False), (30, 0, 0.03, True, True), (60, 0, 0.03, True, False),
    (60, 0, 0.03, False, True), (0, 3, 0.03, True, True), (0, 12, 0.03, True, False)])
def test_many_pixels_stand_out(below: int, broad: int, share: float, lit: bool, rejected: bool) -> None:
    """They are hits if they are narrow, no more than 10 %, and, except in the first pass, if half as many lie below the
    model at most. Of 2400 pixels, 3 % are 72 hits; a blob adds nine broad pixels, a pair of columns narrow ones."""
    rng = np.random.default_rng(3)
    places = np.stack(np.unravel_index(np.arange(0, 2400, 8 if share > 0.1 else 32), (60, 40)), axis=1)
    places[:, 1] += rng.integers(0, 4, len(places))
    excess = hit(20.0, *map(tuple, places.tolist()))
    excess[tuple((places[:below] + [0, 4]).clip(0, 39).T)] -= 20 * SIGMA
    for n in range(broad):
        y, x = 3 + 11 * (n // 4), 5 + 10 * (n % 4)
        excess[y - 1:y + 2, x - 1:x + 2] = 20 * SIGMA
    model = np.zeros(excess.shape, np.float32)
    ends = np.array([[0], [60]]).repeat(40, axis=1)
    out = find_outliers(cut_of(excess, model), model, ends, shape=SHAPE, error=0.01, known=NONE,
                        lit=model if lit else None)
    assert (out is not None) == rejected
    assert out is None or len(out) > 60


def test_where_the_model_does_not_have_the_light_only_slender_hits_are_found() -> None:
    """They stand out from both adjacent columns. Hits on two columns do not, nor do broad light, a hit beside a bad
    pixel, the neighbours of a hit, and, unless they are slender, pixels that were rejected before."""
    rows = np.array([[55], [60]]).repeat(40, axis=1)
    assert found(hit(20.0, (30, 20), (40, 20), (41, 20)), rows=rows) == {(30, 20), (40, 20), (41, 20)}
    assert found(hit(20.0, (30, 20)) + hit(3.0, (31, 20)), rows=rows) == {(30, 20)}
    assert found(hit(20.0, (30, 20), (30, 21)), rows=rows) == set() == found(blob(300.0), rows=rows)
    assert found(hit(20.0, (30, 20)), rows=rows, bad=((30, 21),)) == set()
    assert found(hit(4.5, (30, 20)), rows=rows, known=np.array([(30, 20)])) == set()


@pytest.mark.parametrize(("height", "slender"), [(85.0, False), (95.0, True)])
def test_a_slender_hit_on_light_exceeds_its_noise(height: float, slender: bool) -> None:
    """With 50 errors of 3 electrons beside it, a pixel may have 50 / (0.8 x 0.65) = 96.2 of light, 288.5 electrons. The
    variance is 9 + 288.5 + (18 + 300) / (4 x 0.52^2) = 591.5, of which 5.5 errors are 134 electrons or 44.6 errors: the
    limit is 50 + 90.8. In the light of a line, the model's error of 2 x 1 % of it counts as well."""
    rows = np.array([[55], [60]]).repeat(40, axis=1)
    excess = hit(50.0, (30, 19), (30, 20), (30, 21)) + hit(height, (30, 20))
    assert found(excess, rows=rows) == ({(30, 20)} if slender else set())
    assert found(hit(20.0, (30, 20)), blob(2000.0), rows=rows) == set()


def test_known_rows_are_those_that_no_bin_beyond_the_ends_reaches() -> None:
    """By definition: no stamp of bins beyond both ends, or of the last few bins, has a pixel there."""
    psf = psf_model("tiny", 0)
    wave = np.arange(6000.0, 6090.0, 0.8)
    part, reach = slice(30, 80), 4
    spots = make_spots(psf, (0, 5), wave)
    y0, x0 = spots.y0[:, part], spots.x0[:, part]
    top, left = y0.min(), x0.min()
    shape = int(y0.max() - top) + psf.stamp[0], int(x0.max() - left) + psf.stamp[1]
    cut = Cut(*np.ones((2, *shape)), int(top), int(left))
    rows = known_rows(cut, y0, x0, psf.stamp, reach, 1000)
    outside = np.zeros(cut.root.shape, dtype=bool)
    inner = slice(30 + 2 * reach + 1, 80 - 2 * reach - 1)
    for j in [j for j in range(len(wave)) if not inner.start <= j < inner.stop]:
        for i in range(5):
            y, x = spots.y0[i, j] - top, spots.x0[i, j] - left
            outside[max(y, 0):max(y + psf.stamp[0], 0), max(x, 0):max(x + psf.stamp[1], 0)] = True
    at = np.arange(len(cut.root))[:, None]
    known = (at >= rows[0]) & (at < rows[1])
    assert not (known & outside).any() and known.sum() > 0.5 * (~outside).sum()


def test_all_rows_are_known_up_to_an_edge_of_the_ccd_beyond_which_the_bins_are() -> None:
    """Of traces that rise or fall: there no bin sends any light, at the other end those of the range do."""
    psf = psf_model("tiny", 0)
    spots = make_spots(psf, (0, 5), np.arange(6000.0, 6090.0, 0.8))
    bins = slice(30, int(np.flatnonzero((spots.y0 < 150).any(axis=0))[-1]) + 1)
    top, left = int(spots.y0[:, bins].min()), int(spots.x0[:, bins].min())
    cut = Cut(*np.ones((2, 170 - top, 56)), top, left)
    for y0, x0 in ((spots.y0[:, bins], spots.x0[:, bins]), (spots.y0[:, bins][:, ::-1], spots.x0[:, bins][:, ::-1])):
        at_edge, beyond = (known_rows(cut, y0, x0, psf.stamp, 4, ny) for ny in (150, 170))
        assert (at_edge[1] == 170 - top).all() and (beyond[1] < 150 - top).any()
        np.testing.assert_array_equal(at_edge[0], beyond[0])
        mirrored = known_rows(replace(cut, y0=150 - 170), 150 - psf.stamp[0] - y0, x0, psf.stamp, 4, 150)
        np.testing.assert_array_equal(mirrored, (170 - top - at_edge)[::-1])


@pytest.mark.parametrize("step", [0.4, 0.8])
def test_the_shape_of_spots_is_measured(step: float) -> None:
    """Spots of the tiny camera have a sigma of a little more than a pixel. The model misses per cents of a line between
    two bins of 0.8 A, and next to nothing between two of 0.4 A."""
    shape = shape_of(psf_model("tiny", 0), step)
    assert all(0.4 < beside < 0.85 for beside in shape.beside) and shape.beside[2] < shape.beside[0]
    assert all(2 <= reach <= 5 for reach in shape.core)
    assert (0.01 < shape.between < 0.2) if step == 0.8 else shape.between < 0.005


def test_bins_of_which_none_reaches_a_line_between_them() -> None:
    """The model misses the whole line: the result is large but finite, without a division by 0."""
    assert shape_of(psf_model("tiny", 0), 4.0).between < shape_of(psf_model("tiny", 0), 40.0).between == 1 / DARK


def test_the_shape_is_the_same_when_fibres_are_counted_from_the_other_side() -> None:
    """A mirrored image has the same outliers: its spectra once differed by up to 3.9 sigma beside hits."""
    some = replace(psf_model("b", 0), bundle=None)
    psf, other = (with_series(some, lambda series, fibres=fibres: replace(series, coeff=series.coeff[..., fibres, :]))
                  for fibres in (slice(50), slice(49, None, -1)))
    shape, reverse = shape_of(psf, 0.8), shape_of(other, 0.8)
    assert (reverse.beside, reverse.core) == (shape.beside, shape.core)
    assert reverse.between == pytest.approx(shape.between, rel=1e-9)


@pytest.mark.parametrize("step", [0.4, 0.8])
def test_the_shape_is_the_same_where_wavelengths_are_counted_from_the_other_end(step: float) -> None:
    """When lines and bins were counted from the lowest wavelength, `between` was 8 % larger in r, and after two passes
    over the tiny camera bins beside a hit differed by 0.4 sigma."""
    psf = psf_model("tiny", 0)
    low, high = psf.wavelength_range
    other = with_series(psf, lambda series: Legendre(series.coeff * (-1.0) ** np.arange(series.coeff.shape[-1]),
                                                     low + high - series.wmax, low + high - series.wmin))
    shape, reverse = shape_of(psf, step), shape_of(other, step)
    assert reverse.core == shape.core and reverse.beside == pytest.approx(shape.beside, rel=1e-9)
    assert reverse.between == pytest.approx(shape.between, rel=1e-9)


def test_the_shape_is_that_of_the_sharpest_fibre_wherever_it_is() -> None:
    """Its line between two bins leaves a larger residual, and its spots have less light beside the brightest pixel."""
    plain, sharp = shape_of(psf_model("tiny", 0), 0.85), shape_of(sharp_fibre(0.7), 0.85)
    assert sharp.between > 1.3 * plain.between
    assert all(one < 0.9 * other for one, other in zip(sharp.beside, plain.beside, strict=True))


def sharp_fibre(scale: float) -> PsfModel:
    """The tiny camera with one fibre whose spots are this many times as broad."""
    psf = psf_model("tiny", 0)
    sigmas = {name: getattr(psf.cores[0], name) for name in ("sigma_x", "sigma_y")}
    factor = np.where(np.arange(psf.nfibre) == 4, scale, 1.0)[:, None]
    sharp = {name: replace(series, coeff=series.coeff * factor) for name, series in sigmas.items()}
    return replace(psf, cores=(replace(psf.cores[0], **sharp), *psf.cores[1:]))
