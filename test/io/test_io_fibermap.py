"""Rows of the fibermap: by FIBER, or by position without that column."""

import numpy as np
import pytest
from astropy.io import fits

from edge_files import write_image
from gpu_extract.data import FiberMap
from gpu_extract.errors import InputError
from gpu_extract.fibermap import cut_fibermap
from gpu_extract.io.fibermap import read_fibermap
from gpu_extract.io.write import table_hdu


def table(fibers):
    rows = np.zeros(len(fibers), [("FIBER", np.int32), ("X", np.float64)])
    rows["FIBER"] = fibers
    rows["X"] = np.arange(len(fibers))
    return FiberMap(rows, {"X": "mm"})


def test_without_fiber_it_is_by_position():
    bare = table(range(20))
    bare = FiberMap(bare.rows[["X"]].copy(), bare.units)
    cut = cut_fibermap(bare, np.arange(5, 9), 20, spectrograph=3)
    assert cut.rows["X"].tolist() == [5, 6, 7, 8] and cut.units == {"X": "mm"}
    with pytest.raises(InputError, match="20 rows and no column FIBER, but fibres 15-20 are requested"):
        cut_fibermap(bare, np.arange(15, 21), 500)
    with pytest.raises(InputError, match="20 rows for 10 fibres, and no column FIBER"):
        cut_fibermap(bare, np.arange(5), 10)


@pytest.mark.parametrize("spectrograph", [None, 2])
@pytest.mark.parametrize("size", [20, 500])
def test_fiber_counts_through_spectrographs(size, spectrograph):
    """500 numbers for each, or as many as the camera has fibres; without CAMERA the table itself decides."""
    first = 2 * size
    cut = cut_fibermap(table(range(first, first + 20)), np.arange(5, 9), 20, spectrograph=spectrograph)
    assert cut.rows["FIBER"].tolist() == [first + n for n in (5, 6, 7, 8)] and cut.units == {"X": "mm"}


def test_a_table_of_just_the_wanted_fibres_will_do():
    assert cut_fibermap(table(range(10, 50)), np.arange(10, 50), 500).rows["X"].tolist() == list(range(40))
    with pytest.raises(InputError, match=r"no row for 1 fibres \(first FIBER 50\)"):
        cut_fibermap(table(range(50)), np.arange(10, 51), 500)


def test_another_order_is_put_right():
    """A row goes with its fibre's spectrum, wherever it is in the table."""
    fibers = np.random.default_rng(3).permutation(500) + 1500
    cut = cut_fibermap(table(fibers), np.arange(7, 12), 500, spectrograph=3)
    assert cut.rows["FIBER"].tolist() == [1507, 1508, 1509, 1510, 1511]
    np.testing.assert_array_equal(fibers[cut.rows["X"].astype(int)], cut.rows["FIBER"])


def test_fiber_in_small_letters_is_fiber(tmp_path):
    """As FITS defines; rows were once taken by position."""
    rows = np.zeros(20, [("Fiber", np.int32), ("x", np.float64), ("X", np.float64)])
    rows["Fiber"] = np.arange(20)[::-1]
    hdu = fits.BinTableHDU(rows, name="FIBERMAP")
    hdu.header["TUNIT1"], hdu.header.comments["TTYPE1"] = "one", "which"
    hdu.writeto(tmp_path / "a.fits")
    found = read_fibermap(tmp_path / "a.fits")
    assert found.rows.dtype.names == ("FIBER", "x", "X")
    assert found.units == {"FIBER": "one"} and found.comments == {"FIBER": "which"}
    assert cut_fibermap(found, np.arange(3), 20).rows["FIBER"].tolist() == [0, 1, 2]
    hdu.columns[2].name = "FIBER"
    hdu.writeto(tmp_path / "b.fits")
    assert read_fibermap(tmp_path / "b.fits").rows.dtype.names == ("Fiber", "x", "FIBER")


def test_what_contradicts_is_an_error():
    with pytest.raises(InputError, match="FIBER 1000 to 1499, but fibres 2000 to 2499 of spectrograph 4, which the im"):
        cut_fibermap(table(range(1000, 1500)), np.arange(500), 500, spectrograph=4)
    twice = table([0, 1, 1, 2])
    with pytest.raises(InputError, match="2 different rows of FIBER 1"):
        cut_fibermap(twice, np.arange(3), 500)
    assert cut_fibermap(twice, np.arange(2, 3), 500).rows["X"].tolist() == [3]        # not one of those wanted
    twice.rows["X"] = 5.0
    assert cut_fibermap(twice, np.arange(3), 500).rows["FIBER"].tolist() == [0, 1, 2]
    wrong = FiberMap(np.zeros(3, [("FIBER", "S4")]))
    with pytest.raises(InputError, match=r"FIBER of the fibermap is of type .S4, must be whole numbers"):
        cut_fibermap(wrong, np.arange(3), 500)
    with pytest.raises(InputError, match="the fibermap has no rows"):
        cut_fibermap(table([]), np.arange(3), 500)


def test_by_fibre_number_in_any_order():
    fibers = np.random.default_rng(2).permutation(100)
    cut = cut_fibermap(table(fibers), np.arange(3, 8), 20, spectrograph=4)
    assert cut.rows["FIBER"].tolist() == [83, 84, 85, 86, 87]
    np.testing.assert_array_equal(fibers[cut.rows["X"].astype(int)], cut.rows["FIBER"])


def test_missing_rows_are_named():
    fibers = [f for f in range(100) if f not in (84, 86)]
    with pytest.raises(InputError, match=r"no row for 2 fibres \(first FIBER 84\)"):
        cut_fibermap(table(fibers), np.arange(3, 8), 20, spectrograph=4)
    with pytest.raises(InputError, match="the image has no CAMERA"):
        cut_fibermap(table(range(100)), np.arange(3, 8), 20)


def test_from_a_file_of_its_own(tmp_path):
    rows = read_fibermap(write_image(tmp_path / "a.fits")).rows
    assert rows["FIBER"].tolist() == list(range(1500, 1506))
    from edge_files import image_hdus

    with pytest.raises(InputError, match="no HDU FIBERMAP"):
        read_fibermap(write_image(tmp_path / "b.fits", image_hdus()[:3]))


@pytest.mark.parametrize(("kind", "value"), [("O", "some"), ("U4", "\xe4"), ("M8[s]", 0), ([("a", "i4")], (1,))])
def test_columns_that_fits_cannot_hold(kind, value):
    """The message names the column; astropy's did not."""
    with pytest.raises(InputError, match=r"^FIBERMAP: a table of FITS cannot hold column N of type .*; leave it out"):
        table_hdu(np.array([(3, value)], [("FIBER", "i4"), ("N", kind)]), "FIBERMAP")


def test_columns_that_hold_nothing_are_left_out(tmp_path):
    """TFORM 0J is allowed; the frame was once made, and then refused on reading back."""
    columns = [fits.Column("FIBER", "J", array=np.arange(3)), fits.Column("NONE", "0J"), fits.Column("X", "E")]
    fits.BinTableHDU.from_columns(columns, name="FIBERMAP").writeto(tmp_path / "f.fits")
    assert read_fibermap(tmp_path / "f.fits").rows.dtype.names == ("FIBER", "X")
