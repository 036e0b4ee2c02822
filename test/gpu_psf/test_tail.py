"""Tails with fitted amplitudes, and a continuum under the spots, against the truth and slow, simple methods."""
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from psf_errors import cold, least_errors, true_part, uneven_lines
from psf_tails import CORE, INDEX, rising_tail, tailed_arc
from small_arc import FIBRES

from gpu_extract.data import Array, Image, PsfModel
from gpu_extract.errors import ConfigError
from gpu_extract.io.image import write_image
from gpu_extract.io.psf import read_psf, write_psf
from gpu_extract.simulate.instrument import psf_model
from gpu_extract.spots import evaluate, make_spots
from gpu_psf.background import columns_of
from gpu_psf.cli.psf import main
from gpu_psf.data import FitConfig, Lines, Parameters
from gpu_psf.fit import Fit, fit_bundle
from gpu_psf.normal import gradient, normal_equations
from gpu_psf.prepare import cut_out, psf_of
from gpu_psf.run import fit_psf
from gpu_psf.series import legendre
from gpu_psf.stamps import make_stamps, project
from gpu_psf.state import look, scene_of

SHAPE = CORE, 1.0, 1.0, INDEX
AMPLITUDE, GLOW = 0.004, 3.0            # of the tail; electrons of the continuum in a row
WAVE = np.linspace(6010, 6100, 12)
SHORT = 1e-7


def amplitudes(psf: PsfModel) -> Array:
    """(nfibre, nwave) of the first bundle."""
    assert psf.tail is not None
    return evaluate(psf.tail.amp, (0, 5), WAVE)


@pytest.fixture(scope="module")
def true() -> PsfModel:
    return rising_tail(psf_model("tiny"), AMPLITUDE)


@pytest.fixture(scope="module")
def start(true: PsfModel) -> PsfModel:
    return replace(cold(true, 3, rough=0.1), tail=None)


@pytest.fixture(scope="module")
def fit(true: PsfModel, start: PsfModel) -> Fit:
    image, _ = tailed_arc(true, FIBRES, uneven_lines(), GLOW, 1)
    return fit_bundle([image], start, FIBRES, uneven_lines(), FitConfig(tail=SHAPE))


class Amplitudes:
    """Collects the amplitudes of PSFs that are drawn."""

    def __init__(self) -> None:
        self.found: list[Array] = []

    def errors(self, psf: PsfModel) -> None:
        self.found.append(amplitudes(psf))


def test_the_amplitude_is_found_where_noise_allows(fit: Fit, true: PsfModel) -> None:
    """Four standard deviations for the mean; 1.6 times the root mean square of the rest, as for other errors of this
    bundle, plus 1 % for tails beyond 60 pixels and unfitted lines at the edges."""
    drawn = Amplitudes()
    least_errors(fit, true, drawn, draws=40)                                    # type: ignore[arg-type, type-var]
    right, found = amplitudes(true_part(true, FIBRES)), amplitudes(psf_of(fit.frame, fit.state.now))
    spread = np.array(drawn.found) / right - 1
    away = found / right - 1
    assert np.sqrt((spread**2).mean()) < 0.06
    assert abs(away.mean()) < 4 * spread.mean(axis=(1, 2)).std() + 0.01
    assert np.sqrt((away**2).mean()) < 1.6 * np.sqrt((spread**2).mean()) + 0.01
    freedom = fit.state.npixel - len(fit.task.spots)
    assert fit.state.chi2 / freedom == pytest.approx(1, abs=0.06)


def test_lines_that_cannot_be_told_apart_have_tails_too(true: PsfModel, start: PsfModel) -> None:
    """Three pairs 0.7 rows apart, with half as much light as all others together. Without their tails the amplitude is
    wrong by a tenth and more."""
    plain = uneven_lines()
    pairs = np.array([6020.8, 6041.8, 6075.5])
    wave = np.concatenate([plain.wave, pairs, pairs + 0.4])
    order = np.argsort(wave)
    strength = np.concatenate([plain.strength, np.full(6, 3e4)])
    lines = Lines(wave[order], strength[order])
    image, _ = tailed_arc(true, FIBRES, lines, GLOW, 1)
    fit = fit_bundle([image], start, FIBRES, lines, FitConfig(tail=SHAPE))
    assert fit.task.close is not None and len(np.unique(fit.task.close.wave)) == 6
    away = amplitudes(psf_of(fit.frame, fit.state.now)) / amplitudes(true_part(true, FIBRES)) - 1
    assert abs(away.mean()) < 0.06
    assert np.sqrt((away**2).mean()) < 0.08


def test_other_bundles_have_tails_too(true: PsfModel, start: PsfModel) -> None:
    """Both bundles of the camera lit. Light of the other one's fibres was once taken for a tail of another amplitude,
    and chi squared was 1.26."""
    image, _ = tailed_arc(true, (0, 10), uneven_lines(), GLOW, 1)
    fitted = fit_psf([image], start, uneven_lines(), FitConfig(tail=SHAPE))
    assert fitted is not None and (fitted.bundles["CHI2"] < 1.08).all()
    assert fitted.psf.tail is not None
    away = evaluate(fitted.psf.tail.amp, (0, 10), WAVE) / evaluate(true.tail.amp, (0, 10), WAVE) - 1   # type: ignore
    assert abs(away.mean()) < 0.03
    assert np.sqrt((away**2).mean()) < 0.08


def test_without_a_tail_none_is_found(start: PsfModel) -> None:
    true = rising_tail(psf_model("tiny"), 0.0)
    image, _ = tailed_arc(true, FIBRES, uneven_lines(), 0.0, 2)
    fit = fit_bundle([image], start, FIBRES, uneven_lines(), FitConfig(tail=SHAPE))
    assert np.abs(amplitudes(psf_of(fit.frame, fit.state.now))).mean() < 0.05 * AMPLITUDE


def test_a_tail_that_is_kept_explains_light_beyond_the_stamps(true: PsfModel) -> None:
    """Three standard deviations of chi squared per pixel of 9000 pixels; without the light beyond, it is 1.09."""
    image, _ = tailed_arc(true, FIBRES, uneven_lines(), GLOW, 1)
    lines = uneven_lines()
    known = fit_bundle([image], cold(true, 3, rough=0.1), FIBRES, lines, FitConfig())
    none = fit_bundle([image], replace(cold(true, 3, rough=0.1), tail=None), FIBRES, lines, FitConfig())
    freedom = known.state.npixel - len(known.task.spots)
    assert known.state.chi2 / freedom == pytest.approx(1, abs=0.045)
    assert none.state.chi2 > 1.1 * known.state.chi2
    assert psf_of(known.frame, known.state.now).tail is not None


def test_stamps_with_tails_are_those_of_the_extraction(fit: Fit) -> None:
    wave, stamps = np.unique(fit.task.spots.wave), fit.state.stamps
    theirs = make_spots(psf_of(fit.frame, fit.state.now), (0, 5), wave)
    for n in range(0, len(fit.task.spots), 7):
        i, j = fit.task.spots.fibre[n], int(np.searchsorted(wave, fit.task.spots.wave[n]))
        ours = stamps.image[n, 0] / stamps.image[n, 0].sum()
        np.testing.assert_allclose(ours, theirs.stamps[i, j], atol=1e-12)


def test_the_equations_with_columns_are_those_of_dense_matrices(fit: Fit) -> None:
    """Traces, widths, terms, tail and continuum by central differences, spots separately."""
    task = replace(fit.task, firm=np.ones(len(fit.task.spots), bool))
    state = look(task, fit.state.now, fit.state.weight, fit.state)
    scene, now = scene_of(task, state, shapes=True), fit.state.now
    assert scene.columns is not None and scene.size == len(now.vector())

    def model(moved: Parameters) -> Array:
        stamps = make_stamps(scene.frame, scene.spots, moved, task.pixels)
        return project(task.pixels, stamps, scene.flux).ravel() + task.beneath(moved)

    chosen = [0, 40, 71, scene.frame.ntrace + 3, scene.frame.ntrace + 20, *range(scene.local, scene.size)]
    slopes = []
    for n in chosen:
        step = np.zeros(scene.size)
        step[n] = SHORT * (1e4 if n >= scene.local + scene.frame.nshape else 1.0)
        slopes.append((model(now.moved(step)) - model(now.moved(-step))) / (2 * step[n]))
    dense = np.stack(slopes)
    matrix, mixed = normal_equations(scene, state.pairs)
    expected = (dense * scene.weight) @ dense.T
    unit = np.sqrt(np.outer(expected.diagonal(), expected.diagonal()))
    # derivatives by differences of 1e-7 are good to 1e-5
    assert np.abs((matrix[np.ix_(chosen, chosen)] - expected) / unit).max() < 1e-4
    lights = np.stack([project(task.pixels, scene.stamps, one).ravel() for one in np.eye(len(scene.flux))])
    own = np.sqrt((scene.weight * lights**2).sum(axis=1))
    along = (lights * scene.weight) @ dense.T
    assert np.abs((mixed[:, chosen] - along) / own[:, np.newaxis] / np.sqrt(expected.diagonal())).max() < 1e-4
    pull = gradient(scene)[chosen]
    right = dense @ (scene.weight * scene.residual)
    assert np.abs((pull - right) / np.sqrt(expected.diagonal())).max() < 1e-2


def test_tails_beyond_the_stamps_are_the_formula(fit: Fit) -> None:
    """A pixel 20 columns and 10 rows from a spot, which fades from 0.7 times 60 pixels on."""
    image, _ = tailed_arc(psf_model("tiny"), FIBRES, uneven_lines(), 0.0, 1)
    pixels = cut_out([image], fit.frame, fit.state.now, FitConfig())
    only = np.zeros(len(fit.state.flux))
    n = int(np.flatnonzero(fit.task.spots.fibre == 0)[5])
    only[n] = 1000.0
    state = replace(fit.state, flux=only)
    column = columns_of(fit.task, state, pixels, continuum=False)[0].reshape(fit.task.pixels.value.shape)[0]
    x, y = fit.state.stamps.x[n], fit.state.stamps.y[n]
    at_x, at_y = round(float(x)) + 20, round(float(y)) + 3
    r2 = (at_x - x) ** 2 + (at_y - y) ** 2
    row = fit.task.pixels.stored[at_y - pixels.y0]
    assert column[row, at_x - pixels.x0] == pytest.approx(1000 * r2 / (CORE**2 + r2) ** (1 + INDEX / 2), rel=0.01)
    assert column[row, round(float(x)) - pixels.x0] == 0                       # the stamp's own


def crowded() -> Lines:
    """Lines so close that hardly any pixel of a fibre is free of them."""
    random = np.random.default_rng(4)
    wave = np.arange(6004.0, 6106.0, 4.4)
    return Lines(wave + random.uniform(-0.7, 0.7, len(wave)), random.uniform(5000, 20000, len(wave)))


def fitted_continuum(image: Image, kind: str) -> Array:
    """(nfibre, nwave) electrons in a row of a fibre."""
    fit = fit_bundle([image], cold(psf_model("tiny"), 3, (0.3, -0.5), 0.1), FIBRES, crowded(),
                     FitConfig(continuum=kind))
    return fit.continuum @ legendre(WAVE, fit.frame.range, fit.frame.wave).T


def test_a_continuum_is_fitted_under_the_spots() -> None:
    """Among lines 8 pixels apart, whose stamps leave no pixel between, 20 electrons are found to 1.5: a row of a fibre
    between two lines has a variance of 60, a third of 900 such rows measure 0.45 electrons for each of 6 polynomials,
    1.1 in all. Polynomials fitted between the lines were once off by hundreds."""
    image, light = tailed_arc(psf_model("tiny"), FIBRES, crowded(), 20.0, 3)
    assert np.abs(fitted_continuum(image, "between") - light(WAVE)).mean() < 1.5


def test_other_kinds_of_continuum_among_close_lines() -> None:
    """One that was to be fitted between them is that under them."""
    image, _ = tailed_arc(psf_model("tiny"), FIBRES, crowded(), 20.0, 3)
    found = {kind: fitted_continuum(image, kind) for kind in ("under", "between", "none")}
    np.testing.assert_array_equal(found["between"], found["under"])
    assert not found["none"].any()


def test_a_continuum_under_sparse_lines_is_that_between_them() -> None:
    image, light = tailed_arc(psf_model("tiny"), FIBRES, uneven_lines(), 20.0, 3)
    for kind in ("under", "between"):
        start = cold(psf_model("tiny"), 3, rough=0.1)
        made = fit_bundle([image], start, FIBRES, uneven_lines(), FitConfig(continuum=kind))
        found = made.continuum @ legendre(WAVE, made.frame.range, made.frame.wave).T
        assert (made.task.columns is not None) == (kind == "under")
        assert np.abs(found - light(WAVE)).mean() < 1.5, kind


@pytest.fixture(scope="module")
def files(true: PsfModel, start: PsfModel, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder, lines = tmp_path_factory.mktemp("tail"), uneven_lines()
    image, _ = tailed_arc(true, FIBRES, lines, GLOW, 1)
    single = Image(image.pix.astype(np.float32), image.ivar.astype(np.float32))
    write_image(folder / "arc.fits", single,
                mask=np.zeros(image.pix.shape, np.int32), read_noise=np.full(image.pix.shape, 2.7, np.float32))
    write_psf(folder / "start.fits", start)
    rows = [f"{wave} {strength}" for wave, strength in zip(lines.wave, lines.strength, strict=True)]
    (folder / "lines.txt").write_text("\n".join(rows), encoding="utf-8")
    return folder, ["fit", "-i", str(folder / "arc.fits"), "-p", str(folder / "start.fits"), "--lines",
                    str(folder / "lines.txt"), "-n", "5", "-o", str(folder / "psf.fits")]


def test_the_file_has_tail_and_continuum(files: tuple[Path, list[str]], true: PsfModel) -> None:
    folder, words = files
    assert main([*words, "--tail", ",".join(map(str, SHAPE))]) == 0
    psf = read_psf(folder / "psf.fits")
    assert psf.tail is not None
    np.testing.assert_allclose(amplitudes(psf) / amplitudes(true), 1, atol=0.2)
    for name, value in zip(("core", "xscale", "yscale", "index"), SHAPE, strict=True):
        assert (getattr(psf.tail, name).coeff[:, 0] == value).all()
    assert not psf.tail.amp.coeff[5:].any()                     # the bundle that was not fitted
    with fits.open(folder / "psf.fits") as hdus:
        table = hdus["PSF"].data
        row = table[[name.strip() for name in table["PARAM"]].index("CONT")]
        assert hdus[0].header["FITTAIL"] and hdus[0].header["FITCONT"] == "between"
    assert row["COEFF"][:5, 0] == pytest.approx(0.75 * GLOW, abs=0.5 * GLOW)
    assert not row["COEFF"][5:].any()
    # the result is a starting PSF with a tail, whose shape is kept
    assert main([*words[:3], "-p", str(folder / "psf.fits"), *words[5:-1], str(folder / "again.fits"), "--tail"]) == 0
    again = read_psf(folder / "again.fits")
    assert again.tail is not None and (again.tail.core.coeff[:, 0] == CORE).all()
    np.testing.assert_allclose(amplitudes(again), amplitudes(psf), rtol=0.05)


@pytest.mark.parametrize(("more", "words"), [
    (("--tail", "1,2"), "--tail: '1,2' is not four numbers"), (("--tail", "a,1,1,2"), "is not four numbers"),
    (("--tail", "0,1,1,2"), "core of the tail is 0, must be 0.1 to 100"),
    (("--tail", "1,1,1,nan"), "index of the tail is nan, must be 0 to 10"),
    (("--continuum", "above"), "continuum is 'above'")])
def test_bad_options_are_one_line(files: tuple[Path, list[str]], tmp_path: Path, more: tuple[str, str], words: str,
                                  capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*files[1][:-1], str(tmp_path / "psf.fits"), *more]) == 2
    said = [line for line in capfd.readouterr().err.splitlines() if "error" in line]
    assert len(said) == 1 and words in said[0]
    assert not (tmp_path / "psf.fits").exists()


def test_a_tail_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="core of the tail is 1000"):
        FitConfig(tail=(1000.0, 1.0, 1.0, 2.0))
    assert FitConfig(tail=()).tail == ()
