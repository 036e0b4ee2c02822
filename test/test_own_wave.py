"""Fibres with their own wavelengths: the same light per Angstrom of another wavelength."""
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge_files import image_hdus, small_psf, write_image
from extraction import extracted
from gpu_extract.compare import compare_frames
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Legendre, PsfModel
from gpu_extract.errors import InputError
from gpu_extract.io.frame import read_frame, write_frame, write_spectra
from gpu_extract.io.image import read_image
from gpu_extract.io.psf import read_psf, write_psf
from gpu_extract.own_wave import own_wavelengths
from gpu_extract.run import draft
from gpu_extract.spots import select


def echelle(psf: PsfModel, *, straight: bool = True) -> PsfModel:
    """A PSF whose fibre n has 1 / (1 + n / 10) times the coordinate as its wavelength, or a curve near it."""
    low, high = psf.x.wmin, psf.x.wmax
    factor = 1 / (1 + np.arange(psf.nfibre) / 10)
    coeff = factor[:, None] * np.array([(low + high) / 2, (high - low) / 2, 0.0 if straight else 1.0])
    return replace(psf, own=Legendre(coeff, low, high))


def config(psf: PsfModel, **more: float) -> ExtractConfig:
    low, high = psf.wavelength_range
    middle = (low + high) / 2
    return ExtractConfig(wavelength=(middle - 10.0, middle + 10.0, 1.0), any_psf=True, **more)


def test_the_light_is_that_of_the_common_coordinate(tmp_path: Path) -> None:
    image, psf = read_image(write_image(tmp_path / "image.fits", image_hdus())), small_psf()
    plain = extracted(image, psf, config(psf))
    own = extracted(image, echelle(psf), config(psf))
    factor = 1 / (1 + plain.fibres[:, None] / 10)
    assert own.own_wave is not None and plain.own_wave is None
    np.testing.assert_array_equal(own.wave, plain.wave)
    np.testing.assert_allclose(own.own_wave, factor * plain.wave, rtol=1e-13)
    np.testing.assert_allclose(own.flux, plain.flux / factor, rtol=1e-10)
    np.testing.assert_allclose(own.ivar, plain.ivar * factor**2, rtol=1e-10)
    np.testing.assert_array_equal(own.resolution, plain.resolution)


def test_files_keep_the_wavelengths(tmp_path: Path) -> None:
    image, psf = read_image(write_image(tmp_path / "image.fits", image_hdus())), echelle(small_psf(), straight=False)
    write_psf(tmp_path / "psf.fits", psf)
    again = read_psf(tmp_path / "psf.fits")
    assert again.own is not None and psf.own is not None
    np.testing.assert_array_equal(again.own.coeff, psf.own.coeff)
    frame = extracted(image, psf, config(psf, specmin=2, nspec=3))
    np.testing.assert_allclose(frame.own_wave, own_wavelengths(psf.own, np.arange(2, 5), frame.wave))
    write_frame(tmp_path / "frame.fits", frame)
    back = read_frame(tmp_path / "frame.fits")
    np.testing.assert_array_equal(back.own_wave, frame.own_wave)
    np.testing.assert_array_equal(back.wave, frame.wave)
    with pytest.raises(InputError, match="have their own"):
        write_spectra(tmp_path / "spectra.fits", frame)


def test_a_file_whose_wavelengths_do_not_ascend(tmp_path: Path) -> None:
    psf = echelle(small_psf())
    assert psf.own is not None
    for wrong in (-psf.own.coeff, psf.own.coeff[:3], psf.own.coeff * np.nan):
        bad = object.__new__(Legendre)
        bad.__dict__.update(coeff=wrong, wmin=psf.own.wmin, wmax=psf.own.wmax)
        broken = object.__new__(PsfModel)
        broken.__dict__.update({**psf.__dict__, "own": bad})
        write_psf(tmp_path / "psf.fits", broken)
        with pytest.raises(InputError, match="OWNWAVE must have a series for each of the 6 fibres"):
            read_psf(tmp_path / "psf.fits")


def test_one_factor_for_multiples_only(tmp_path: Path) -> None:
    image, psf = read_image(write_image(tmp_path / "image.fits", image_hdus())), small_psf()
    assert extracted(image, echelle(psf), config(psf, wave_factor=1.0001)).own_wave is not None
    for work in (extracted, draft):
        with pytest.raises(InputError, match="not multiples of one another"):
            work(image, echelle(psf, straight=False), config(psf, wave_factor=1.0001))


def test_wavelengths_that_descend_are_refused(tmp_path: Path) -> None:
    """Of a model from no file, too: every flux was below 0."""
    image, psf = read_image(write_image(tmp_path / "image.fits", image_hdus())), echelle(small_psf())
    assert psf.own is not None
    coeff = psf.own.coeff * [1, -1, 1]
    for work in (extracted, draft):
        with pytest.raises(InputError, match="own wavelengths of its fibres must ascend"):
            work(image, replace(psf, own=replace(psf.own, coeff=coeff)), config(psf))


def test_some_fibres_keep_theirs() -> None:
    psf = select(echelle(small_psf()), [1, 4])
    assert psf.own is not None and len(psf.own.coeff) == 2


def test_frames_of_other_wavelengths_are_not_compared(tmp_path: Path) -> None:
    """With the same coordinate and flux, their bins still have other wavelengths."""
    image, psf = read_image(write_image(tmp_path / "image.fits", image_hdus())), small_psf()
    frame, other = extracted(image, echelle(psf), config(psf)), extracted(image, psf, config(psf))
    assert frame.own_wave is not None
    assert compare_frames(frame, frame).passed
    for changed in (other, replace(frame, own_wave=frame.own_wave + 1e-3)):
        with pytest.raises(InputError, match=r"^fibres have other own wavelengths in the frame"):
            compare_frames(frame, changed)
