"""Reading and writing PSFs, against the numbers in the files."""

from dataclasses import replace

import numpy as np
import pytest
from astropy.io import fits

from edge_files import legendre, small_psf
from gpu_extract.data import Core, Tail
from gpu_extract.errors import InputError
from gpu_extract.io.psf import read_psf, write_psf


def equal(one, two):
    assert (one.wmin, one.wmax) == (two.wmin, two.wmax)
    np.testing.assert_array_equal(one.coeff, two.coeff)


def rows_of(hdu):
    return {row["PARAM"].strip(): row for row in hdu.data}


def test_a_psf_file_of_version_3_is_read(shared):
    path = shared / "data/psf/psf-r0-00051060.fits"
    psf = read_psf(path)
    with fits.open(path) as hdus:
        rows = rows_of(hdus["PSF"])
        np.testing.assert_array_equal(psf.x.coeff, hdus["XTRACE"].data)
        np.testing.assert_array_equal(psf.y.coeff, hdus["YTRACE"].data)
        (core,) = psf.cores
        np.testing.assert_array_equal(core.sigma_x.coeff, rows["GHSIGX"]["COEFF"])
        np.testing.assert_array_equal(core.sigma_y.coeff, rows["GHSIGY"]["COEFF"])
        for i in range(7):
            for j in range(7):
                np.testing.assert_array_equal(core.gh.coeff[j, i], rows[f"GH-{i}-{j}"]["COEFF"])
    assert core.gh.coeff.shape == (7, 7, 500, 4) and core.nsig is None and psf.tail is None
    assert (psf.x.wmin, psf.x.wmax, core.gh.wmin, core.gh.wmax) == (5543, 7826, 5543, 7827)
    assert (psf.stamp, psf.offset, psf.shape) == ((11, 17), (4.5, 7.5), (4128, 4114))
    assert psf.bundle.tolist() == [i // 25 for i in range(500)] and psf.psferr == 0.01


def test_version_2_with_tails(shared):
    path = shared / "data/psf/psf-r0-v2-tails.fits"
    psf = read_psf(path)
    with fits.open(path) as hdus:
        rows = rows_of(hdus[1])
        for series, name in (
            (psf.x, "X"),
            (psf.y, "Y"),
            (psf.tail.amp, "TAILAMP"),
            (psf.tail.index, "TAILINDE"),
            (psf.tail.core, "TAILCORE"),
            (psf.tail.xscale, "TAILXSCA"),
            (psf.tail.yscale, "TAILYSCA"),
            (psf.cores[0].sigma_y, "GHSIGY"),
        ):
            np.testing.assert_array_equal(series.coeff, rows[name]["COEFF"])
            assert (series.wmin, series.wmax) == (rows[name]["WAVEMIN"], rows[name]["WAVEMAX"])
        np.testing.assert_array_equal(psf.cores[0].gh.coeff[3, 8], rows["GH-8-3"]["COEFF"])
    assert (psf.stamp, psf.offset, psf.bundle) == ((17, 29), (7.5, 13.5), None)
    assert psf.cores[0].gh.coeff.shape[:2] == (9, 9)


def test_a_psf_of_two_components_is_read(shared):
    path = shared / "data/psf/psf-gausshermite2-boss.fits"
    psf = read_psf(path)
    with fits.open(path) as hdus:
        rows = rows_of(hdus[1])
        first, second = psf.cores
        np.testing.assert_array_equal(first.gh.coeff[6, 2], rows["GH-2-6"]["COEFF"])
        np.testing.assert_array_equal(second.gh.coeff[1, 3], rows["GH2-3-1"]["COEFF"])
        np.testing.assert_array_equal(second.sigma_x.coeff, rows["GHSIGX2"]["COEFF"])
        np.testing.assert_array_equal(first.nsig.coeff, rows["GHNSIG"]["COEFF"])
    assert second.nsig is None and psf.tail is not None and psf.nfibre == 25
    assert (psf.stamp, psf.offset) == ((20, 20), (10.0, 10.0))


def with_tail(psf):
    series = [legendre(np.full((psf.nfibre, 2), value)) for value in (1e-3, 1.0, 0.9, 1.1, 2.2)]
    return replace(psf, tail=Tail(*series))


@pytest.mark.parametrize("change", [lambda p: p, with_tail, lambda p: replace(p, bundle=None)])
def test_what_is_read_is_what_was_written(tmp_path, change):
    psf = change(small_psf())
    write_psf(tmp_path / "p.fits", psf)
    back = read_psf(tmp_path / "p.fits")
    equal(back.x, psf.x)
    equal(back.y, psf.y)
    equal(back.cores[0].gh, psf.cores[0].gh)
    equal(back.cores[0].sigma_x, psf.cores[0].sigma_x)
    assert (back.tail is None) == (psf.tail is None)
    if psf.tail is not None:
        equal(back.tail.index, psf.tail.index)
    assert (back.stamp, back.offset, back.shape, back.psferr) == (psf.stamp, psf.offset, psf.shape, psf.psferr)
    assert (back.bundle is None) == (psf.bundle is None)
    if psf.bundle is not None:
        np.testing.assert_array_equal(back.bundle, psf.bundle)


def test_a_real_psf_survives_writing(shared, tmp_path):
    psf = read_psf(shared / "data/psf/psf-r0-00051060.fits")
    write_psf(tmp_path / "p.fits", psf)
    back = read_psf(tmp_path / "p.fits")
    equal(back.x, psf.x)
    equal(back.cores[0].gh, psf.cores[0].gh)


def test_what_version_3_cannot_hold(shared, tmp_path):
    two = read_psf(shared / "data/psf/psf-gausshermite2-boss.fits")
    with pytest.raises(InputError, match="one core"):
        write_psf(tmp_path / "p.fits", two)
    assert not list(tmp_path.iterdir())


def changed(tmp_path, change):
    """The small PSF's file after `change(hdus)`; returns the message with which reading fails."""
    write_psf(tmp_path / "p.fits", small_psf())
    with fits.open(tmp_path / "p.fits") as hdus:
        hdus = change(hdus) or hdus
        hdus.writeto(tmp_path / "q.fits", overwrite=True)
    with pytest.raises(InputError) as caught:
        read_psf(tmp_path / "q.fits", check=False)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def rename(hdus, old, new):
    names = hdus["PSF"].data["PARAM"]
    names[names == old] = new


def words_for_numbers(hdus):
    table = hdus["PSF"]
    words = fits.Column("COEFF", "60A", dim="(6,10)", array=np.full((len(table.data), 10), "1.5"))
    columns = [column for column in table.columns if column.name != "COEFF"]
    hdus["PSF"] = fits.BinTableHDU.from_columns([*columns, words], header=table.header)


def set_key(hdu, key, value):
    def change(hdus):
        for h in [hdus[hdu]] if hdu is not None else hdus:
            if value is None:
                h.header.remove(key, ignore_missing=True)
            elif key in h.header:
                h.header[key] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            set_key(None, "PSFTYPE", "PSFEX"),
            "PSF of type 'PSFEX', version 3; must be GAUSS-HERMITE with PSFVER 2 or 3",
        ),
        (set_key(None, "PSFVER", 4), "version 4; must be"),
        (set_key(None, "PSFVER", "x"), "without a version"),
        (set_key(None, "PSFTYPE", None), "not a PSF"),
        (set_key("PSF", "HSIZEX", None), "needs an integer HSIZEX"),
        (set_key("PSF", "HSIZEY", 0), "HSIZEY is 0, must be between 1 and 64"),
        (set_key("PSF", "PSFERR", -1), "PSFERR is -1"),
        (set_key("YTRACE", "WAVEMIN", None), "YTRACE has WAVEMIN None"),
        (set_key("PSF", "WAVEMAX", 5.0), "two ascending wavelengths"),
        (lambda hdus: fits.HDUList([hdus[0], hdus[2]]), "no HDU YTRACE"),
        (lambda hdus: fits.HDUList(hdus[:2]), "no HDU PSF"),
        (lambda hdus: rename(hdus, "GHSIGY", "GHSIGX"), "two parameters GHSIGX"),
        (lambda hdus: words_for_numbers(hdus), "COEFF of the PSF's table is of type <U6, must be numbers"),
    ],
)
def test_bad_psfs_are_refused(tmp_path, change, words):
    assert words in changed(tmp_path, change)


def test_missing_parameters_and_fibres(tmp_path):
    def rename(hdus):
        hdus["PSF"].data["PARAM"][0] = "OTHER"

    assert "no parameter GHSIGX" in changed(tmp_path, rename)

    def cut(hdus):
        hdus["XTRACE"].data = hdus["XTRACE"].data[:5]
        hdus["YTRACE"].data = hdus["YTRACE"].data[:5]

    assert "5" in changed(tmp_path, cut) and "6" in changed(tmp_path, cut)


@pytest.mark.parametrize("number", [np.nan, np.inf, 1.5])
def test_bundle_numbers_that_are_none(tmp_path, number):
    def spoil(hdus):
        hdus["PSF"].data["COEFF"][hdus["PSF"].data["PARAM"] == "BUNDLE", 4, 0] = number

    assert f"BUNDLE of fibre 4 is {number:g}, must be a whole number" in changed(tmp_path, spoil)


def test_gauss_hermite_terms_left_out_are_zero(tmp_path):
    psf = small_psf()
    write_psf(tmp_path / "p.fits", psf)
    with fits.open(tmp_path / "p.fits") as hdus:
        keep = [row["PARAM"].strip() != "GH-1-2" for row in hdus["PSF"].data]
        hdus["PSF"].data = hdus["PSF"].data[np.array(keep)]
        hdus.writeto(tmp_path / "q.fits")
    gh = psf.cores[0].gh.coeff.copy()
    gh[2, 1] = 0
    back = read_psf(tmp_path / "q.fits", check=False)
    np.testing.assert_array_equal(back.cores[0].gh.coeff, gh)
    assert isinstance(back.cores[0], Core)
