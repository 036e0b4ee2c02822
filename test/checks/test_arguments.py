"""The arguments of the Python API: units that would be lost, and wrong types, are reported in one line."""
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from astropy import units
from astropy.io import fits
from astropy.nddata import CCDData

from gpu_extract.config import ExtractConfig
from gpu_extract.data import Card, Image, Legendre, Tail
from gpu_extract.device.frames import GpuFrames
from gpu_extract.errors import InputError
from gpu_extract.io.frame import read_frame, write_frame
from gpu_extract.io.image import read_image
from gpu_extract.run import draft, extract, extract_from
from gpu_extract.simulate import SimConfig, simulate, write_simulation

CONFIG = ExtractConfig((6020.0, 6060.0, 0.85))


@pytest.fixture(scope="module")
def made():
    return simulate(SimConfig(camera="tiny", seed=3))


def refused(work, *args, **settings):
    with pytest.raises(InputError) as caught:
        work(*args, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_units_that_are_those_of_an_image():
    pix, ivar = np.ones((4, 3)), np.ones((4, 3))
    for unit in (units.electron, units.ph, units.dimensionless_unscaled):
        image = Image(pix * unit, ivar / unit**2, read_noise=2.5 * unit, noise=pix * unit)
        assert type(image.pix) is type(image.ivar) is type(image.noise) is np.ndarray
        assert type(image.read_noise) is float
    assert type(Image(CCDData(pix, unit="electron"), ivar).pix) is np.ndarray


@pytest.mark.parametrize(("what", "unit", "said"), [
    ("pix", units.adu, "pix is in adu, must be in electron or ph"),
    ("pix", 1000 * units.electron, "pix is in 1000 electron, must"),
    ("ivar", units.electron, "ivar is in electron, must be in 1 / electron2 or 1 / ph2"),
    ("ivar", units.adu**-2, "ivar is in 1 / adu2, must"),
    ("noise", units.adu, "noise is in adu, must"), ("read_noise", units.adu, "read_noise is in adu, must")])
def test_units_that_would_be_lost(what, unit, said):
    arrays = {"pix": np.ones((4, 3)), "ivar": np.ones((4, 3)), "noise": np.ones((4, 3)), "read_noise": np.array(2.5)}
    assert refused(Image, **{**arrays, what: units.Quantity(arrays[what], unit)}).startswith(said)


def test_an_image_in_adu_and_series_with_a_unit():
    assert "must be in electron" in refused(Image, CCDData(np.ones((4, 3)), unit="adu"), np.ones((4, 3)))
    assert "is in pix, must be in no unit" in refused(Legendre, np.ones((2, 1)) * units.pix, 5000.0, 6000.0)


def test_header_cards_of_any_kind(made):
    wanted = Card("CAMERA", "r0"), Card("EXPTIME", 900.0)
    header = fits.Header([("CAMERA", "r0"), ("EXPTIME", 900.0)])
    pairs = [tuple(card[:2]) for card in wanted]
    for given in (wanted, list(wanted), header, header.cards, pairs, dict(pairs)):
        assert replace(made.image, cards=given).cards == wanted
    for given in (None, 3, [3], "CAMERA"):
        assert refused(replace, made.image, cards=given).startswith(f"cards is {type(given).__name__}, must be (key,")


def test_what_is_no_image_psf_or_setting(made):
    image, psf = made.image, made.psf
    for work in (extract, draft):
        assert refused(work, "image.fits", psf, CONFIG).startswith("image is of type str, must be an Image: read_")
        assert refused(work, image, "psf.fits", CONFIG).startswith("psf is of type str, must be a PsfModel: read_psf(")
        assert refused(work, psf, image, CONFIG).startswith("image is of type PsfModel, must be an Image")
        assert refused(work, image, psf, {}).startswith("config is of type dict, must be an ExtractConfig")
        assert "comm is of type SimpleNamespace, must" in refused(work, image, psf, CONFIG, comm=SimpleNamespace())
        nothing = Image(np.zeros((0, 0)), np.zeros((0, 0)))
        assert "the image has shape (0, 0), must have at least one pixel" in refused(work, nothing, psf, CONFIG)
        other = replace(image, cards=(("CAMERA", "b3"),))
        named = replace(psf, identity={"CAMERA": "r0"})
        assert "the image's CAMERA is b3, that of" in refused(work, other, named, CONFIG)
        for threads in (0, -1, 2.0, None, True, 10**7):
            assert f"threads is {threads}, must be a whole" in refused(work, image, psf, CONFIG, threads=threads)
    assert "start is of type Image, must be a Draft: draft(" in refused(extract_from, image, image, psf, CONFIG)
    assert "start is of type str, must be a Draft" in refused(draft, image, psf, CONFIG, start="draft")
    for dtype in ("f2", int, complex, "float33"):
        assert "must be float64 or float32" in refused(extract, image, psf, CONFIG, dtype=dtype)
    assert "fibermap is of type ndarray, must be a FiberMap" in refused(replace, image, fibermap=image.fibermap.rows)
    assert refused(Image, [[1, 2], [3]], [[1, 2], [3]]) == "pix is not an array: its rows differ in length"
    assert "read_noise has shape (2,)" in refused(replace, image, read_noise=np.ones(2))
    assert "read_noise is of type <U3" in refused(replace, image, read_noise="2.6")


@pytest.mark.parametrize(("name", "said"), [
    ("recorder", "must be a Recorder of gpu_extract.perf.recorder, or None"), ("comm", "must be of gpu_extract.ranks"),
    ("backend", "must be GpuFrames(CupyDevice) of gpu_extract.device for a GPU, or None for the CPU")])
def test_what_takes_part_in_the_work(made, name, said):
    """A word, a class in place of an instance, and None, which is the default."""
    for other, is_of in (("gpu", "of type str"), (GpuFrames, "the class GpuFrames"), (np.ones(2), "of type ndarray")):
        assert refused(extract, made.image, made.psf, CONFIG, **{name: other}).startswith(f"{name} is {is_of}, {said}")
    usual, frame = (extract(made.image, made.psf, CONFIG, **given) for given in ({}, {name: None}))
    assert np.array_equal(usual.flux, frame.flux)


def test_words_are_no_flags(tmp_path, made):
    """check="no" once counted as True."""
    path = tmp_path / "i.fits"
    write_simulation(made, path)
    for name in ("check", "fibermap", "noise"):
        assert refused(read_image, path, **{name: "no"}) == f"{name} is of type str, must be True or False"
    frame = extract(made.image, made.psf, CONFIG)
    assert "scores is of type int, must" in refused(write_frame, tmp_path / "f.fits", frame, scores=1)
    assert "commit is of type bool, must be a function" in refused(write_frame, tmp_path / "f.fits", frame, commit=True)
    assert "cards is int, must be (key, value)" in refused(write_frame, tmp_path / "f.fits", frame, cards=3)
    write_frame(tmp_path / "f.fits", frame, cards=[("WHO", "me")], commit=None)
    assert Card("WHO", "me") in read_frame(tmp_path / "f.fits").cards


def test_frames_that_are_none(made):
    frame = extract(made.image, made.psf, CONFIG)
    assert replace(frame, cards={"WHO": "me"}, fibres=frame.fibres.tolist()).cards == (Card("WHO", "me"),)
    for what, value, said in (
            ("wave", 3.0, "wave has shape ()"), ("fibres", "all", "fibres has shape ()"), ("cards", 3, "cards is int"),
            ("flux", None, "flux is of type object"), ("model", "m", "model is of type <U1"),
            ("model", np.ones(3), "model has shape (3,)"), ("notes", None, "notes of the frame is of type NoneType"),
            ("fibermap", frame.flux, "fibermap of the frame is of type ndarray, must be a FiberMap")):
        assert said in refused(replace, frame, **{what: value})
    for what, value in (("name", 3), ("identity", "r0")):
        assert f"{what} of the PSF is of type {type(value).__name__}, must be a" in refused(replace, made.psf,
                                                                                           **{what: value})
    for value in (np.nan, np.inf, -1.0):
        assert f"read_noise is {value}, must be a finite" in refused(replace, made.image, read_noise=value)


def test_simulations_of_what_is_no_setting(tmp_path, made):
    config = SimConfig(camera="tiny", nspec=1)
    assert refused(simulate, "tiny") == "config is of type str, must be a SimConfig"
    for threads in (0, "2", 2.0, np.nan, None):
        assert f"threads is {threads!r}, must be a whole" in refused(simulate, config, threads=threads)
    assert "progress is of type int, must be a function" in refused(simulate, config, progress=3)
    assert "recorder is of type str" in refused(simulate, config, recorder="r")
    assert simulate(config, progress=None, recorder=None).image.shape == made.image.shape
    assert "simulation is of type Image, must be a" in refused(write_simulation, made.image, tmp_path / "i.fits")


def test_settings_are_said_on_one_line_in_short():
    for given in (np.arange(6020.0, 6060.1, 0.85), [602, 606, 0.085] * units.nm):
        said = refused(ExtractConfig, given)
        assert said.endswith("must be three numbers: first, last, step, in Angstrom") and len(said) < 150


def test_settings_whose_square_is_no_number():
    for name in ("regularize", "psferr"):
        assert getattr(ExtractConfig(CONFIG.wavelength, **{name: 1e100}), name) == 1e100
        for value in (1e160, float("inf"), float("nan"), -1.0):
            assert f"{name} is {value}, must lie between 0 and 1e+100" in refused(ExtractConfig, CONFIG.wavelength,
                                                                                  **{name: value})


def test_diagonals_have_an_upper_limit():
    """The banded core has separate kernels for each number of them: those for a thousand take hours to compile."""
    assert ExtractConfig(CONFIG.wavelength, ndiag=64).ndiag == 64
    assert ExtractConfig(CONFIG.wavelength, ndiag=150, core="dense").ndiag == 150
    assert "ndiag is 65, must lie between 0 and 64" in refused(ExtractConfig, CONFIG.wavelength, ndiag=65)


def test_psfs_that_contradict_themselves(made):
    """They once gave chi2 of 3e38, single fibres as bundles, or an internal exception."""
    psf = made.psf
    for bundle in (psf.bundle.tolist(), psf.bundle.astype(float)):
        assert np.array_equal(replace(psf, bundle=bundle).bundle, psf.bundle)
    assert replace(psf, shape=list(psf.shape), stamp=np.array(psf.stamp), offset=list(psf.offset)).shape == psf.shape
    short = replace(psf, bundle=psf.bundle[:5])
    assert "bundle has 5 numbers, must have one for each of 10 fibres" in refused(extract, made.image, short, CONFIG)
    for bundle, said in ((psf.bundle[:, None], "bundle has shape (10, 1)"),
                         (psf.bundle + 0.5, "must be whole numbers"), (np.full(10, np.nan), "must be whole numbers"),
                         (["a"] * 10, "bundle is of type <U1")):
        assert said in refused(replace, psf, bundle=bundle)
    for psferr in (np.nan, np.inf, -0.01, [0.01]):
        assert "psferr of the PSF is" in refused(replace, psf, psferr=psferr)
    assert "has no core" in refused(replace, psf, cores=())
    for what, value, said in (
            ("x", psf.x.coeff, "x of the PSF is of type ndarray, must be a Legendre"),
            ("tail", 5, "tail of the PSF is of type int, must be a Tail"),
            ("cores", psf.cores[0], "a tuple of one Core"),
            ("cores", psf.cores * 3, "the PSF has 3 cores, must have one or two"), ("stamp", 11, "stamp has shape ()"),
            ("stamp", (11.5, 17), "must be whole numbers"), ("stamp", (-11, 17), "stamp is (-11, 17), must be two"),
            ("shape", (0, 104), "shape is (0, 104), must be two"), ("shape", (1, 192, 104), "shape has shape (3,)"),
            ("shape", None, "shape has shape ()"), ("offset", ("a", 7.5), "offset is of type <U")):
        assert said in refused(replace, psf, **{what: value})
    assert replace(psf, stamp=(11.0, 17.0)).stamp == (11, 17)
    core, part = psf.cores[0], replace(psf.x, coeff=psf.x.coeff[:3])
    for series in (part, replace(psf.x, coeff=np.concatenate([psf.x.coeff] * 2)), replace(psf.x, coeff=[psf.x.coeff])):
        for name in ("sigma_x", "sigma_y", "nsig"):
            other = (replace(core, **{name: series}),)
            assert f"core {name} of the PSF has shape" in refused(replace, psf, cores=other)
        assert "tail index of the PSF has shape" in refused(replace, psf, tail=Tail(*[psf.x] * 4, series))
        for name in ("y", "own"):
            assert f"{name} of the PSF has shape" in refused(replace, psf, **{name: series})
        gh = replace(psf.x, coeff=series.coeff[None, None])
        assert "core gh of the PSF has shape" in refused(replace, psf, cores=(replace(core, gh=gh),))
    for coeff in (np.zeros(3), np.zeros((3, 0))):
        assert "must be (fibres, coefficients)" in refused(Legendre, coeff, 6000.0, 6110.0)
    for ends in ((6110.0, 6000.0), (6000.0, 6000.0), (np.nan, 6000.0), (6000.0, np.inf)):
        assert "must be two ascending wavelengths" in refused(Legendre, psf.x.coeff, *ends)
