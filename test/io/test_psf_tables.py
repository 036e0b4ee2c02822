"""Files of tabulated spots: written, read, and extracted by the command; defects are reported in one line."""
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits

from edge_files import GRID, image_hdus, small_psf, write_image
from gpu_extract.cli.extract import main
from gpu_extract.data import Card, Legendre
from gpu_extract.errors import InputError
from gpu_extract.io.frame import read_frame
from gpu_extract.io.psf import read_psf, write_psf
from gpu_extract.spots.tables import tabulated


def small_table():
    return tabulated(small_psf(), 3, (2, 3))


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    psf = replace(small_table(), own=Legendre(np.tile([6050.0, 50.0], (6, 1)), 6000.0, 6100.0))
    write_psf(tmp_path / "p.fits", psf, cards=[Card("CAMERA", "r3")], tables={"SHIFTS": np.zeros(2, [("X", "f8")])})
    back = read_psf(tmp_path / "p.fits")
    np.testing.assert_array_equal(back.x.coeff, psf.x.coeff)
    np.testing.assert_array_equal(back.y.coeff, psf.y.coeff)
    np.testing.assert_array_equal(back.bundle, psf.bundle)
    np.testing.assert_array_equal(back.own.coeff, psf.own.coeff)
    np.testing.assert_allclose(back.cores[0].gh.coeff, psf.cores[0].gh.coeff, rtol=0, atol=1e-13)
    for series in ("sigma_x", "sigma_y"):
        np.testing.assert_array_equal(getattr(back.cores[0], series).coeff, getattr(psf.cores[0], series).coeff)
    assert back.tabulated and back.tail is None and back.identity == {"CAMERA": "r3"}
    assert (back.stamp, back.offset, back.shape, back.psferr) == (psf.stamp, psf.offset, psf.shape, psf.psferr)
    assert back.wavelength_range == psf.wavelength_range
    with fits.open(tmp_path / "p.fits") as hdus:
        assert [hdu.name for hdu in hdus] == ["XTRACE", "YTRACE", "STAMPS", "WAVES", "BUNDLE", "OWNWAVE", "SHIFTS"]
        assert hdus["STAMPS"].data.shape == (6, 3, 2, 3, 9, 11)


@pytest.mark.parametrize("what", ("STATUS", "CONT"))
def test_no_parameter_is_dropped_without_a_word(tmp_path: Path, what: str) -> None:
    psf = small_table()
    given = {"status": np.zeros(6, int)} if what == "STATUS" else {"continuum": psf.x}
    with pytest.raises(InputError, match=f"cannot hold {what}"):
        write_psf(tmp_path / "p.fits", psf, **given)
    assert not (tmp_path / "p.fits").exists()


def test_the_command_takes_it(tmp_path: Path) -> None:
    """The same command, with the same spectra up to the table's difference from its spots.

    By the dense core, as no other test needs the kernels of these bins.
    """
    image = str(write_image(tmp_path / "image.fits", image_hdus()))
    frames = []
    for name, psf in (("gh", small_psf()), ("table", tabulated(small_psf(), 5, (3, 3)))):
        write_psf(tmp_path / f"{name}.fits", psf)
        out = str(tmp_path / f"{name}-frame.fits")
        asked = ["-i", image, "-p", str(tmp_path / f"{name}.fits"), "-o", out, "-w", GRID, "--core", "dense"]
        assert main([*asked, "--any-psf", "-n", "3"]) == 0
        frames.append(read_frame(out))
    apart = np.abs(frames[0].flux - frames[1].flux) * np.sqrt(frames[0].ivar)
    assert apart.max() < 0.05 and (frames[0].ivar > 0).mean() > 0.9


def some(values: np.ndarray, at: tuple[int, ...], value: float) -> np.ndarray:
    values = values.copy()
    values[at] = value
    return values


BAD = {
    "nan": ("STAMPS", lambda v: some(v, (4, 1, 0, 2, 3, 3), np.nan),
            "1 of 108 STAMPS have pixels .* first at [4, 1, 0, 2]"),
    "negative": ("STAMPS", lambda v: some(v, (0, 0, 0, 0, 0, 0), -1e-9), "not finite or below 0"),
    "dark": ("STAMPS", lambda v: some(v, (2, 2), 0.0), "6 of 108 STAMPS have .* no light, the first at [2, 2, 0, 0]"),
    "huge": ("STAMPS", lambda v: some(v, (0,), 1e308), "STAMPS have pixels"),
    "axes": ("STAMPS", lambda v: v[0], "STAMPS is of shape (3, 2, 3, 9, 11), must be an image with 6 axes"),
    "even": ("STAMPS", lambda v: v[..., :10], "STAMPS have 10 x 9 pixels, must be odd numbers from 3 to 129"),
    "one position": ("STAMPS", lambda v: v[:, :, :1], "STAMPS have 3 x 1 positions per pixel, must be 2 to 8"),
    "fewer fibres": ("STAMPS", lambda v: v[:4], "STAMPS are for 4 fibres, the traces for 6: an HDU FIBRES must assign"),
    "waves": ("WAVES", lambda v: v[:2], "WAVES must be 3 ascending numbers, one for each of STAMPS"),
    "waves fall": ("WAVES", lambda v: v[::-1], "WAVES must be 3 ascending numbers"),
    "waves apart": ("WAVES", lambda v: 6050 + 0.1 * (v - 6050), "errors .* times as large, at most 10 times"),
    "bundle": ("BUNDLE", lambda v: v[:3], "BUNDLE must be 6 whole numbers, one for each fibre"),
    "y": ("YTRACE", lambda v: v[:3], "y of the PSF has shape (3, 2), must be (6, any)"),
}


@pytest.mark.parametrize("name", BAD)
def test_tables_that_cannot_be_spots_are_refused(tmp_path: Path, name: str) -> None:
    hdu, change, words = BAD[name]
    write_psf(tmp_path / "p.fits", small_table())
    with fits.open(tmp_path / "p.fits") as hdus:
        hdus[hdu].data = change(hdus[hdu].data)
        hdus.writeto(tmp_path / "q.fits")
    pattern = ".*".join(part.replace("[", r"\[").replace("(", r"\(").replace(")", r"\)") for part in words.split(".*"))
    with pytest.raises(InputError, match=pattern) as caught:
        read_psf(tmp_path / "q.fits", check=False)
    assert "\n" not in str(caught.value) and str(caught.value).startswith(str(tmp_path))


@pytest.mark.parametrize(("hdu", "key", "value", "words"), [
    ("STAMPS", "NPIX_X", None, "needs an integer NPIX_X"),
    ("STAMPS", "NPIX_Y", 0, "NPIX_Y is 0, must be between 1 and"),
    ("STAMPS", "WAVEMIN", 7000.0, "STAMPS has WAVEMIN 7000.0 and WAVEMAX 6100.0; must be two ascending wavelengths"),
    ("XTRACE", "PSFVER", 2, "PSF of type 'TABULATED', version 2; must be .*TABULATED with PSFVER 1"),
    ("STAMPS", "EXTNAME", "STAMP", "STAMPS"),
])
def test_headers_beyond_their_limits_are_refused(tmp_path: Path, hdu: str, key: str, value: object, words: str) -> None:
    write_psf(tmp_path / "p.fits", small_table())
    with fits.open(tmp_path / "p.fits") as hdus:
        if value is None:
            del hdus[hdu].header[key]
        else:
            hdus[hdu].header[key] = value
        hdus.writeto(tmp_path / "q.fits")
    with pytest.raises(InputError, match=words) as caught:
        read_psf(tmp_path / "q.fits", check=False)
    assert "\n" not in str(caught.value)


def test_stamps_of_some_fibres_serve_all(tmp_path: Path) -> None:
    """Tables of three fibres serve six; the fibres must be named, and correct."""
    write_psf(tmp_path / "p.fits", small_table())
    with fits.open(tmp_path / "p.fits") as hdus:
        hdus["STAMPS"].data = hdus["STAMPS"].data[[0, 2, 5]]
        for fibres, words in (([0, 2, 5], ""), ([0, 2, 6], "FIBRES must be whole numbers between 0 and 5"),
                              ([0, 5, 2], "FIBRES must be 3 ascending numbers")):
            listed = fits.HDUList([*hdus, fits.ImageHDU(np.array(fibres, np.int32), name="FIBRES")])
            listed.writeto(tmp_path / "q.fits", overwrite=True)
            if words:
                with pytest.raises(InputError, match=words):
                    read_psf(tmp_path / "q.fits", check=False)
            else:
                read = read_psf(tmp_path / "q.fits", check=False).cores[0].gh.coeff
                np.testing.assert_allclose(read[:, :, 2], small_table().cores[0].gh.coeff[:, :, 2], rtol=0, atol=1e-12)
