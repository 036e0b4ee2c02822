"""Tabulated spots fitted to arcs: splines, spots that no Gauss-Hermite series follows, and the chain from raw
images."""
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from psf_errors import Judge, cold, make_arc, uneven_lines
from small_arc import FIBRES, Small

from gpu_extract.cli.simulate import main as gpu_simulate
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Frame, PsfModel
from gpu_extract.errors import ConfigError, InputError
from gpu_extract.io.image import read_image
from gpu_extract.io.psf import read_psf
from gpu_extract.resolution import times_resolution
from gpu_extract.run import extract
from gpu_extract.simulate.discs import HALF, disc_core
from gpu_extract.simulate.instrument import psf_model
from gpu_extract.spots import select
from gpu_extract.spots.tables import SAMPLES, core_of
from gpu_psf.cli.psf import main as gpu_psf
from gpu_psf.data import FitConfig
from gpu_psf.fit import fit_bundle
from gpu_psf.prepare import psf_of
from gpu_psf.tables import FittedTable, _b_spline, check_tables, fit_table, splines_of, stamps_in, table_waves

WAVE = np.linspace(6010, 6100, 12)


def discs() -> PsfModel:
    """The camera tiny with images of round fibres, with flat tops."""
    psf, core = psf_model("tiny"), psf_model("tiny").cores[0]
    u = np.linspace(-1, 1, psf.nfibre)
    return replace(psf, stamp=(2 * HALF + 1, 2 * HALF + 1), offset=(HALF - 0.5, HALF - 0.5),
                   cores=(disc_core((2.3, 0.55), u, (core.gh.wmin, core.gh.wmax)),))


def gaussian(psf: PsfModel) -> PsfModel:
    """A start for it, with Gaussian spots."""
    start = cold(psf_model("tiny"), 3, (0.4, -0.7), rough=0.1)
    core = start.cores[0]
    wide = (replace(series, coeff=series.coeff * 1.25) for series in (core.sigma_x, core.sigma_y))
    return replace(start, cores=(replace(core, **dict(zip(("sigma_x", "sigma_y"), wide, strict=True))),),
                   stamp=psf.stamp, offset=psf.offset)


def of_table(table: FittedTable, config: FitConfig) -> PsfModel:
    """The tabulated PSF of a bundle."""
    frame, now = table.fit.frame, table.fit.state.now
    like, waves = select(discs(), range(*FIBRES)), table_waves(frame.range, config)
    core = core_of(stamps_in(table, config), np.arange(frame.nfibre), waves, frame.range, frame.nfibre)
    return replace(like, cores=(core,), x=replace(like.x, coeff=now.x, wmin=frame.x_range[0], wmax=frame.x_range[1]),
                   y=replace(like.y, coeff=now.y, wmin=frame.x_range[0], wmax=frame.x_range[1]))


def test_the_splines_are_those_of_tables() -> None:
    at = np.linspace(-3.5, 3.5, 57)
    sums = _b_spline(at[:, np.newaxis] - np.arange(-8, 9)).sum(axis=1)
    np.testing.assert_allclose(sums, 1, atol=1e-14)
    np.testing.assert_allclose(_b_spline(np.arange(4.0)), [*SAMPLES, 0], atol=1e-15)


def test_what_gathers_is_the_transpose_of_what_spreads(small: Small) -> None:
    splines, random = splines_of(small.fit, 2), np.random.default_rng(4)
    terms = random.standard_normal((splines.orders.shape[1], splines.y.shape[2], splines.x.shape[2]))
    light = random.standard_normal((len(splines.y), splines.y.shape[1], splines.x.shape[1]))
    assert (splines.light(terms) * light).sum() == pytest.approx((splines.gathered(light) * terms).sum(), rel=1e-10)


def test_spots_that_no_gauss_hermite_follows() -> None:
    """Bright lines on flat-topped spots: degree 4 leaves 7 times the noise, its table nothing above it."""
    true, lines, config = discs(), uneven_lines(electrons=300000.0), FitConfig(positions=2, degree_gh=4)
    arc = make_arc(true, FIBRES, (lines.wave, lines.strength), 1)
    fit = fit_bundle([arc], gaussian(true), FIBRES, lines, config)
    table = fit_table(fit, config.positions)
    judge = Judge(select(true, range(*FIBRES)), WAVE)
    before, after = judge.errors(psf_of(fit.frame, fit.state.now)), judge.errors(of_table(table, config))
    assert fit.state.chi2 > 3 * fit.state.npixel
    assert table.fit.state.chi2 < 1.1 * table.fit.state.npixel
    assert after.stamp < 0.5 * before.stamp
    assert after.shape < 0.5 * before.shape


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="spots"):
        FitConfig(spots="table")
    with pytest.raises(ConfigError, match="positions is 1, must be 2 to 8"):
        FitConfig(positions=1)
    start, config = gaussian(discs()), FitConfig(spots="tables")
    with pytest.raises(InputError, match="its stamps have 15 x 14 pixels, must be odd numbers"):
        check_tables(replace(start, stamp=(14, 15)), config)
    with pytest.raises(InputError, match=r"positions are \d+ numbers, at most 16777216 are allowed: give fewer"):
        check_tables(replace(start, stamp=(129, 129)), replace(config, positions=8))


@pytest.mark.slow
def test_a_made_up_spectrograph_from_raw_images_to_spectra(tmp_path: Path) -> None:
    """Arc, flat and science frame in ADU, dispersion along x; traces from the flat, wavelengths from a range; spots as
    tables; spectra within noise of the truth."""
    def at(name: str) -> str:
        return str(tmp_path / f"{name}.fits")

    side = ("--camera", "side", "-n", "15", "--crop", "--no-defects", "--truth-grid", "7510,8290,2", "--flexure",
            "0.4,-0.7")
    for name, more in (("science", ()), ("flat", ("--flavor", "flat")),
                       ("arc", ("--flavor", "arc", "--exact-lines", "--exptime", "40", "--true-psf", at("true")))):
        assert gpu_simulate(["-o", at(name), "--raw", at(f"raw-{name}"), *side, *more]) == 0
        assert gpu_psf(["preprocess", "-i", at(f"raw-{name}"), "--bias", "1000", "--gain", "1.2", "--read-noise", "3.1",
                        "--saturation", "55000", "--dispersion", "x", "-o", at(f"image-{name}")]) == 0
        made, turned = read_image(at(name)), read_image(at(f"image-{name}"))
        assert np.abs(made.pix - turned.pix).max() <= 0.5 * 1.2 + 0.01
    assert gpu_psf(["start", "--flat", at("image-flat"), "--arc", at("image-arc"), "--range", "7495,8305,7902",
                    "--fibres", "15", "--bundlesize", "15", "-o", at("start")]) == 0
    found = {}
    for kind in ("gauss-hermite", "tables"):
        assert gpu_psf(["fit", "-i", at("image-arc"), "-p", at("start"), "--spots", kind, "-o", at(kind)]) == 0
        with fits.open(at(kind)) as hdus:
            row = hdus["BUNDLES"].data[0]
            assert (hdus["FITTED" if kind == "tables" else "FIBRES"].data["STATUS"] == 0).all()
            found[kind] = float(row["CHI2"])
    assert found["gauss-hermite"] > 1.4 and found["tables"] < 1.05
    config = ExtractConfig((7600.0, 8200.0, 2.0), nspec=15, psferr=0.001)
    science = replace(read_image(at("science")), fibermap=None)         # with the variance of the truth
    frames = {name: extract(science, read_psf(at(name)), config) for name in ("true", "gauss-hermite", "tables")}
    with fits.open(at("science-truth")) as hdus:
        chosen = np.searchsorted(hdus["WAVELENGTH"].data, frames["true"].wave - 0.01)
        truth = hdus["FLUX"].data[:, chosen].astype(float)
    pull = pulls(frames["tables"], truth)
    assert abs(pull.mean()) < 0.05 and pull.std() < 1.05
    far = {name: float(np.std((frame.flux - frames["true"].flux) * np.sqrt(frame.ivar)))
           for name, frame in frames.items()}
    assert far["tables"] < 0.8 * far["gauss-hermite"] and far["tables"] < 0.05
    chi2 = {name: float(frame.chi2pix.mean()) for name, frame in frames.items()}
    assert abs(chi2["tables"] - chi2["true"]) < 0.005 < chi2["gauss-hermite"] - chi2["true"]
    bright = frames["true"].flux * np.sqrt(frames["true"].ivar) > 20
    bias = {name: float(abs((frame.flux / frames["true"].flux)[bright].mean() - 1)) for name, frame in frames.items()}
    assert bias["tables"] < 0.5 * bias["gauss-hermite"]


def pulls(frame: Frame, truth: np.ndarray) -> np.ndarray:
    """(flux - R truth) / sigma, away from the ends."""
    return ((frame.flux - times_resolution(frame.resolution, truth)) * np.sqrt(frame.ivar))[:, 12:-12]
