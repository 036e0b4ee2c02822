"""Shifts of traces: from simulated exposures with known truth, up to the program and what it refuses."""
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from psf_errors import READ_NOISE, moved, uneven_lines
from small_arc import echelle

from gpu_extract.data import Array, Image, PsfModel
from gpu_extract.errors import InputError
from gpu_extract.io.image import write_image
from gpu_extract.io.psf import read_psf, write_psf
from gpu_extract.simulate import NO_DEFECTS, SimConfig, simulate
from gpu_extract.simulate.frame import project_lines
from gpu_extract.simulate.instrument import psf_model
from gpu_extract.spots import centres, make_spots
from gpu_psf.cli.psf import main
from gpu_psf.data import Lines
from gpu_psf.own_lines import wavelengths
from gpu_psf.shift.across import half_window, make_filters
from gpu_psf.shift.along import choose, reach, row_filters, row_profiles
from gpu_psf.shift.run import Reference, ShiftConfig, ShiftedPsf, shift_psf
from gpu_psf.shift.surface import Moments, fit_surface, level

TRUE, LINES = psf_model("tiny"), uneven_lines()
FIBRES = 0, TRUE.nfibre
BENT = np.array([[0.0, 0.06, -0.02]])          # pixels, by the order in wavelength


def apart(psf: PsfModel, true: PsfModel = TRUE) -> Array:
    """Largest distances of the spots on the CCD from the true ones, (y, x)."""
    wave = np.linspace(*psf.wavelength_range, 23)
    found, right = centres(psf, (0, psf.nfibre), wave), centres(true, (0, true.nfibre), wave)
    on = (right[0] > 0) & (right[0] < true.shape[0] - 1)
    return np.array([np.abs(axis[on]).max() for axis in found - right])


def exposure(share: Array | None = None, *, noise: bool = True, electrons: float = 400.0) -> Image:
    """The lines over a continuum, with a fibre's throughput."""
    share = np.ones(TRUE.nfibre) if share is None else share
    light = np.zeros(TRUE.shape)
    wave = np.arange(TRUE.wavelength_range[0] + 1, TRUE.wavelength_range[1] - 1, 0.1)
    project_lines(light, TRUE, FIBRES, wave, share[:, np.newaxis] * np.full(len(wave), electrons / 10))
    project_lines(light, TRUE, FIBRES, LINES.wave, share[:, np.newaxis] * np.full(len(LINES.wave), 20 * electrons))
    random = np.random.default_rng(4)
    pix = random.poisson(light) + READ_NOISE * random.standard_normal(light.shape) if noise else light
    return Image(pix.astype(np.float32), (1 / (light + READ_NOISE**2)).astype(np.float32), read_noise=READ_NOISE)


@pytest.mark.parametrize("by", [(0.0, 0.0), (0.5, -0.5), (-0.23, 0.31), (1.7, 4.2)])
def test_shifts_are_found_within_the_noise(by: tuple[float, float]) -> None:
    """Three times the claimed error: the largest of many distances, and profiles that change within a stretch."""
    found = shift_psf(exposure(), moved(TRUE, BENT + [by[0], 0, 0], BENT + [by[1], 0, 0]), LINES)
    assert found.reference is Reference.LINES
    assert (apart(found.psf) < 3 * np.array([found.y.error(), found.x.error()])).all()
    assert found.x.error() < 0.02 and found.y.error() < 0.02
    np.testing.assert_array_equal(found.psf.cores[0].gh.coeff, TRUE.cores[0].gh.coeff)


def test_without_noise_neighbours_of_any_brightness_move_nothing() -> None:
    share = np.where(np.arange(TRUE.nfibre) % 3 == 0, 30.0, 1.0)
    found = shift_psf(exposure(share, noise=False), moved(TRUE, 0.4, -0.4), LINES)
    # light in fibres 30 times fainter than both neighbours, whose profiles are known: below a thousandth of a pixel
    assert (apart(found.psf) < [0.005, 0.005]).all()


@pytest.mark.parametrize(("electrons", "stray"), [(400.0, 50.0), (60.0, 200.0)])
def test_stray_light_moves_nothing(electrons: float, stray: float) -> None:
    """Without noise, against the same exposure without it: it once moved traces up to 0.012 pixel, or hid all light."""
    image, psf = exposure(noise=False, electrons=electrons), moved(TRUE, 0.4, -0.4)
    lit = replace(image, pix=image.pix + np.float32(stray), ivar=1 / (1 / image.ivar + np.float32(stray)))
    plain, found = shift_psf(image, psf, LINES), shift_psf(lit, psf, LINES)
    assert (apart(found.psf, plain.psf) < 5e-4).all()
    assert found.x.error() > 1.03 * plain.x.error()         # it has its own noise


def test_filters_answer_to_their_own_light_alone() -> None:
    """A, B and G against sums over the pixels of newly computed spots: own ones, moved ones and neighbours'."""
    wave, half = np.array([6050.0, 6051.0]), half_window(TRUE)
    made = make_filters(TRUE, FIBRES, wave, half, stray=True)
    for fibre in (2, 3):
        def sums(psf: PsfModel, other: int, fibre: int = fibre) -> Array:
            spots = make_spots(psf, FIBRES, wave)
            line = np.zeros(TRUE.shape[1] + 60)
            first = int(spots.x0[other, 0]) + 30
            line[first:first + psf.stamp[1]] = spots.stamps[other, 0].sum(axis=0)
            at = int(made.column[fibre, 0]) + 30
            return np.asarray(made.weight[fibre, 0] @ line[at:at + 2 * half + 1])

        np.testing.assert_allclose(sums(TRUE, fibre), [1, 0, 0], atol=1e-6)
        np.testing.assert_allclose(made.weight[fibre, 0].sum(axis=1), [0, 0, 1], atol=1e-6)
        for other in (fibre - 1, fibre + 1):
            np.testing.assert_allclose(sums(TRUE, other), [0, 0, 0], atol=1e-4)
        # the derivative by central differences: a spot of sigma 1.1 pixels moved by 0.1 loses 2 % of that
        np.testing.assert_allclose(sums(moved(TRUE, 0.1, 0.0), fibre)[1], 0.1, atol=0.006)


def test_cosmic_rays_and_masked_pixels() -> None:
    image, random = exposure(), np.random.default_rng(2)
    pix, ivar = image.pix.copy(), image.ivar.copy()
    pix[random.random(pix.shape) < 0.002] += 3000
    bad = random.random(pix.shape) < 0.01
    pix[bad], ivar[bad] = np.nan, 0
    found = shift_psf(replace(image, pix=pix, ivar=ivar), moved(TRUE, 0.3, -0.2), LINES)
    assert (apart(found.psf) < 0.03).all()


def test_a_neighbour_of_another_brightness_than_the_list_has_moves_nothing() -> None:
    """Doublets 4.4 pixels apart, whose fainter lines have a third of the list's light.

    The last step is off by a fraction of it, as the doublet's slope differs slightly from the list's.
    """
    beside = LINES.wave[::3] + 2.4
    order = np.argsort(every := np.concatenate([LINES.wave, beside]))
    listed = np.concatenate([LINES.strength, 0.6 * LINES.strength[::3]])
    light, bright = np.zeros(TRUE.shape), np.concatenate([LINES.strength, 0.2 * LINES.strength[::3]])
    project_lines(light, TRUE, FIBRES, every[order], np.tile(0.4 * bright[order], (TRUE.nfibre, 1)))
    image = Image(light.astype(np.float32), (1 / (light + READ_NOISE**2)).astype(np.float32), read_noise=READ_NOISE)
    found = shift_psf(image, moved(TRUE, 0.2, 0.3), Lines(every[order], listed[order]))
    assert apart(found.psf)[0] < 0.012


def test_filters_along_the_rows_see_no_smooth_continuum() -> None:
    """A constant, a slope and a bend beside a line give neither light nor moment; the line has light 1 and moment 0."""
    marks, rows = choose(TRUE, LINES), 2 * reach(TRUE) + 1
    made = make_filters(TRUE, FIBRES, marks.lines.wave[marks.chosen], half_window(TRUE), stray=False)
    profiles = row_profiles(TRUE, FIBRES, marks, made, rows)
    weight = row_filters(profiles, np.ones_like(profiles[:, :, 0], dtype=bool))
    for power in range(3):
        np.testing.assert_allclose(weight @ np.linspace(-1, 1, rows)**power, 0, atol=1e-5)
    np.testing.assert_allclose((weight * profiles[:, :, :1]).sum(axis=3), np.broadcast_to([1, 0], weight.shape[:3]),
                               atol=1e-5)


@pytest.mark.parametrize(("clear", "taken"), [(0.2, [6500.0]), (0.05, [6500.0, 6510.0])])
def test_a_doublet_is_taken_where_no_clear_line_is_nearly_as_bright(clear: float, taken: list[float]) -> None:
    lines = Lines(np.array([6500.0, 6510.0, 6512.3]), np.array([clear, 1.0, 0.6]))         # the last two 4.2 rows apart
    marks = choose(psf_model("r"), lines)
    assert lines.wave[marks.chosen].tolist() == taken


def test_light_without_lines_moves_x_alone() -> None:
    light = np.zeros(TRUE.shape)
    wave = np.arange(6001.0, 6109, 0.1)
    project_lines(light, TRUE, FIBRES, wave, np.full((TRUE.nfibre, len(wave)), 60.0))
    start = moved(TRUE, 0.3, 0.4)
    found = shift_psf(Image(light, 1 / (light + 9), read_noise=3.0), start, LINES)
    assert found.reference is Reference.NONE
    np.testing.assert_array_equal(found.psf.y.coeff, start.y.coeff)
    assert apart(found.psf)[1] < 0.01


@pytest.mark.parametrize("seed", [3100720, 3100727])
def test_noise_is_no_line(seed: int) -> None:
    """Of a flat: where its noise resembles lines most, 6 or 5 pixels away, nothing is found."""
    made = simulate(SimConfig(camera="tiny", flavor="flat", variance="data", exptime=30.0, seed=seed))
    found = shift_psf(made.image, made.psf)
    assert found.reference is Reference.NONE
    assert not found.y.coeff.any() and np.abs(found.x.coeff).max() < 0.02


def test_a_science_frame_under_the_night_sky() -> None:
    made = simulate(SimConfig(camera="tiny", flexure=(0.31, -0.44), defects=NO_DEFECTS, seed=2))
    found = shift_psf(made.image, made.psf)
    # in these 100 A the sky has one bright line: y is known there, as is its claimed error
    assert apart(found.psf, made.true_psf)[1] < 0.03
    assert apart(found.psf, made.true_psf)[0] < 4 * found.y.error()


def test_the_surface_is_that_of_weighted_least_squares() -> None:
    random, flat = np.random.default_rng(1), level(20, (0.0, 10.0), 2)
    fibre, wave = random.integers(0, 20, 400), random.uniform(0, 10, 400)
    right = np.array([0.3, 0.02, -0.01, 0.04, 0.0, 0.02])
    light, noise = random.uniform(1e4, 2e4, 400), random.uniform(50, 90, 400)
    terms = flat.basis(fibre, wave)
    moment = light * (terms @ right) + noise * random.standard_normal(400)
    found = fit_surface(flat, Moments(fibre, wave, moment, light, noise**2))
    pulls = (found.coeff - right) / np.sqrt(np.diag(found.covariance))
    assert np.abs(pulls).max() < 4
    moment[:20] += 1e5                      # windows that contain something else
    again = fit_surface(flat, Moments(fibre, wave, moment, light, noise**2))
    assert np.abs(again.coeff - found.coeff).max() < 0.002


@pytest.mark.parametrize("offset", [0.0, 0.2])
def test_a_line_that_lies_elsewhere_in_all_fibres_is_left_out(offset: float) -> None:
    """By less than the noise of a window, so no window shows it. The other 11 lines agree within their errors."""
    random, flat = np.random.default_rng(3), level(100, (0.0, 11.0), 2)
    fibre, wave = (part.ravel() for part in np.meshgrid(np.arange(100), np.arange(12.0)))
    right = np.array([0.3, 0.02, -0.01, 0.04, 0.0, 0.02])
    moment = flat.basis(fibre, wave) @ right + 0.3 * random.standard_normal(1200) + offset * (wave == 2)
    light = np.full(1200, 1e4)
    found = fit_surface(flat, Moments(fibre, wave, 1e4 * moment, light, (0.3 * light) ** 2))
    pulls = (found.coeff - right) / np.sqrt(np.diag(found.covariance))
    assert np.abs(pulls).max() < 4 and (found.used < 1150) == (offset > 0)


@pytest.mark.parametrize("apart", [0.01, 0.05])
def test_lines_that_do_not_agree_are_in_the_errors(apart: float) -> None:
    """The mean square of 40 pulls, two of each of 20 cameras, is 1 to 22 %."""
    flat, pulls = level(100, (0.0, 23.0), 1), []
    fibre, wave = (part.ravel() for part in np.meshgrid(np.arange(100), np.arange(24)))
    light = np.full(2400, 1e4)
    for seed in range(20):
        random = np.random.default_rng(seed)
        moment = light * (apart * random.standard_normal(24)[wave] + 0.01 * random.standard_normal(2400))
        found = fit_surface(flat, Moments(fibre, wave.astype(float), moment, light, (0.01 * light) ** 2))
        pulls += (found.coeff / np.sqrt(np.diag(found.covariance)))[(found.orders[:, 0] == 0)].tolist()
    assert 0.4 < np.mean(np.square(pulls)) < 1.9


def bad(kind: str) -> tuple[Image, PsfModel]:
    image = exposure()
    if kind == "no light":
        noise = READ_NOISE * np.random.default_rng(1).standard_normal(image.shape)
        return replace(image, pix=noise), TRUE
    if kind == "masked":
        return replace(image, ivar=np.zeros(image.shape)), TRUE
    if kind == "another CCD":
        return Image(image.pix[:-3], image.ivar[:-3]), TRUE
    return image, moved(TRUE, *{"too far in x": (5.0, 0.0), "too far in y": (0.0, 8.0)}[kind])


@pytest.mark.parametrize(("kind", "words"), [
    ("no light", "no more light than the pixels beside them"), ("masked", "no more light than the pixels beside them"),
    ("another CCD", "give the PSF of this camera"),
    ("too far in x", "the light lies -5 pixels in x"),
    ("too far in y", "the light lies -8 pixels in y")])
def test_what_cannot_be_shifted_is_said(kind: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        shift_psf(*bad(kind), LINES)


@pytest.mark.parametrize("columns", [slice(0, 56), slice(0, 40)])
def test_fibres_beyond_a_cut_image_move_with_the_last_one(columns: slice) -> None:
    """Fibres beyond it are not used: they move like the last one within it."""
    image, start = exposure(), moved(TRUE, 0.4, -0.3)
    x = centres(TRUE, FIBRES, np.linspace(*TRUE.wavelength_range, 9))[1]
    there = int((x < columns.stop - 1).any(axis=1).sum())
    assert 0 < there < TRUE.nfibre
    found = shift_psf(Image(image.pix[:, columns], image.ivar[:, columns], read_noise=READ_NOISE), start, LINES)
    for shift, by in ((found.x, -0.4), (found.y, 0.3)):
        series = shift.series()
        assert series.shape[0] == TRUE.nfibre and shift.error() < 0.05
        np.testing.assert_allclose(series[:there, 0], by, atol=3 * shift.error())
        np.testing.assert_array_equal(series[there:], np.broadcast_to(series[there - 1], series[there:].shape))


def lines_of(fibres: Sequence[int]) -> Lines:
    """The wavelengths of the exposure's lines in some of these fibres."""
    wave = np.concatenate([wavelengths(echelle(TRUE), np.full(len(LINES.wave), fibre), LINES.wave) for fibre in fibres])
    order = np.argsort(wave)
    return Lines(wave[order], np.tile(LINES.strength, len(fibres))[order])


@pytest.mark.parametrize("fibres", [range(10), (0, 4, 9)])
def test_orders_of_an_echelle_are_moved_by_their_own_lines(fibres: Sequence[int]) -> None:
    off = moved(echelle(TRUE), BENT + [-0.23, 0, 0], BENT + [2.31, 0, 0])
    found = shift_psf(exposure(), off, lines_of(fibres))
    assert found.reference is Reference.LINES
    assert 0.9 < found.lines / (len(choose(TRUE, LINES).chosen) * len(fibres)) < 1.1     # rows differ at the edges
    assert (apart(found.psf) < 3 * np.array([found.y.error(), found.x.error()])).all()
    assert found.x.error() < 0.02 and found.y.error() < 0.05
    assert found.psf.own is off.own


@pytest.mark.parametrize("number", [4, 9])
def test_one_line_in_each_order_or_in_all(number: int) -> None:
    line = Lines(LINES.wave[number:number + 1], np.ones(1))
    own = [wavelengths(echelle(TRUE), np.array([fibre]), line.wave)[0] for fibre in range(10)]
    for start, lines in ((TRUE, line), (echelle(TRUE), Lines(np.array(own), np.ones(10)))):
        found = shift_psf(exposure(), moved(start, 0.0, -0.4), lines, ShiftConfig(0))
        assert found.reference is Reference.NONE                # ten spots; twenty are needed
        assert found.x.coeff[0] == pytest.approx(0.0, abs=0.02)


def test_lines_of_no_order_are_refused() -> None:
    with pytest.raises(InputError, match=r"none of the 1 lines lies apart from others within the PSF's 6001 to 11611"):
        shift_psf(exposure(), echelle(TRUE), Lines(np.array([15000.0]), np.ones(1)))


def test_the_program_writes_a_shifted_psf(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    frame, start, lines, out = (tmp_path / name for name in ("i.fits", "p.fits", "l.txt", "o.fits"))
    image = exposure()
    write_image(frame, image, mask=np.zeros(image.shape, np.int32),
                read_noise=np.full(image.shape, READ_NOISE, np.float32))
    write_psf(start, moved(TRUE, 0.4, -0.3))
    lines.write_text("\n".join(f"{wave}" for wave in LINES.wave), encoding="utf-8")
    words = ["shift", "-i", str(frame), "-p", str(start), "--lines", str(lines), "-o", str(out)]
    assert main(words) == 0
    psf = read_psf(out)
    assert (apart(psf) < 0.03).all()
    assert psf.identity["IN_PSF"] == "p.fits"
    with fits.open(out) as hdus:
        assert hdus["SHIFTS"].data["XSHIFT"] == pytest.approx(-0.4, abs=0.03)
        assert hdus["SHIFTS"].data["YSHIFT"] == pytest.approx(0.3, abs=0.03)
        assert hdus[0].header["YREF"] == "LINES"
    assert "known to" in capfd.readouterr().err
    assert main([*words, "--degree", "5"]) == 2
    lines.write_text("5000\n", encoding="utf-8")
    assert main(words) == 2
    assert "none of the 1 lines lies apart from others within" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("camera", ["r", "z"])
def test_a_whole_camera_to_five_thousandths_of_a_pixel(camera: str) -> None:
    """Root mean squares over all fibres and wavelengths; single corners within three times the error claimed there."""
    made = simulate(SimConfig(camera=camera, flexure=(0.5, -0.37), seed=5))
    found: ShiftedPsf = shift_psf(made.image, made.psf, config=ShiftConfig())
    wave = np.linspace(*made.psf.wavelength_range, 23)[1:-1]
    errors = centres(found.psf, (0, 500), wave) - centres(made.true_psf, (0, 500), wave)
    assert (np.sqrt((errors**2).mean(axis=(1, 2))) < 0.005).all()
    assert (np.abs(errors).max(axis=(1, 2)) < 3 * np.array([found.y.error(), found.x.error()])).all()
