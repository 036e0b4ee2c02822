"""Files are read back before they get their names: a defective file never gets one."""

import os
from dataclasses import replace

import numpy as np
import pytest
from astropy.io import fits

import gpu_extract.io.write
from edge_files import small_frame, without_fibermap
from gpu_extract.data import FiberMap, SpecMask
from gpu_extract.errors import OutputError
from gpu_extract.io.content import Content
from gpu_extract.io.frame import read_frame, write_frame, write_model, write_spectra
from gpu_extract.io.readback import keep_promise


@pytest.fixture
def written_over(monkeypatch):
    """Have the temporary file changed between writing and reading back."""

    def arrange(change):
        def spoilt(written, path, *promise):
            change(written)
            keep_promise(written, path, *promise)

        monkeypatch.setattr(gpu_extract.io.write, "keep_promise", spoilt)

    return arrange


def refused(folder, write=write_frame, frame=None):
    """The message with which writing fails; the old file is still there, and no other is."""
    path = folder / "frame.fits"
    path.write_text("old")
    with pytest.raises(OutputError) as caught:
        write(path, frame or small_frame())
    message = str(caught.value)
    assert message.startswith(f"{path}: not written: ") and "\n" not in message and ".tmp-" not in message
    assert path.read_text() == "old" and os.listdir(folder) == ["frame.fits"]
    return message


def edited(hdu, change):
    """A change by astropy that renews the checksums, as by a program that writes the wrong thing."""

    def edit(path):
        with fits.open(path, mode="update", checksum=True) as hdus:
            change(hdus[hdu])

    return edit


def test_a_bit_that_the_disk_has_lost(tmp_path, written_over):
    def flip(path):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        path.write_bytes(content)

    written_over(flip)
    assert "differs in the 1048576 bytes from 0 on" in refused(tmp_path)


def test_a_file_that_is_cut_after_writing_is_refused(tmp_path, written_over):
    written_over(lambda path: os.truncate(path, os.path.getsize(path) - 2880))
    assert "differs in the" in refused(tmp_path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("hdu", ["FLUX", "IVAR", "RESOLUTION", "CHI2PIX", "PIXMASK_FRACTION", "WAVELENGTH"])
def test_a_number_that_is_not_finite(tmp_path, written_over, hdu, value):
    written_over(edited(hdu, lambda hdu: hdu.data.reshape(-1).__setitem__(-1, value)))
    assert "differs in the" in refused(tmp_path)


@pytest.mark.parametrize("kind", ["f4", "f8", "c8", "(3,)f8"])
def test_a_number_of_a_table_that_is_not_finite(tmp_path, written_over, kind):
    rows = np.zeros(4, [("FIBER", np.int32), ("X", kind), ("NAME", "S3")])
    rows["FIBER"] = 0x7F800001  # would be a NaN as a float: integer columns are not checked
    frame = replace(small_frame(), fibermap=FiberMap(rows))
    write_frame(tmp_path / "frame.fits", frame)
    written_over(edited("FIBERMAP", lambda hdu: hdu.data["X"].__setitem__(3, np.nan)))
    assert "differs in the" in refused(tmp_path, frame=frame)


def test_ivar_where_there_are_no_data(tmp_path):
    frame = small_frame()
    frame.ivar[1, 7] = 1e-30
    assert "IVAR is not 0 where MASK marks no data" in refused(tmp_path, frame=frame)
    assert "IVAR is not 0 where MASK marks" in refused(tmp_path, write_spectra, frame)
    frame.mask[1, 7] = SpecMask.BAD2DFIT | SpecMask(1 << 31)  # its other content does not matter
    write_frame(tmp_path / "frame.fits", frame)


def test_shapes_and_checksums_that_are_missing(tmp_path, written_over):
    written_over(edited("CHI2PIX", lambda hdu: setattr(hdu, "data", hdu.data[:, 1:])))
    assert "differs in the" in refused(tmp_path)

    written_over(
        lambda path: path.write_bytes(
            path.read_bytes().replace(b"DATASUM =", b"DATASUX =").replace(b"CHECKSUM=", b"X       =")
        )
    )
    assert "differs in the" in refused(tmp_path)

    written_over(lambda path: path.write_bytes(path.read_bytes() + bytes(2880)))
    assert "differs in the" in refused(tmp_path)


def test_content_whose_sums_are_not_right(tmp_path, monkeypatch):
    """As if something other than the summed content was written: every byte is on the disk."""
    content_of = gpu_extract.io.write.content_of

    def spoilt(hdus):
        whole = bytearray(content_of(hdus).read())
        whole[len(whole) // 2] ^= 4
        return Content([bytes(whole)])

    monkeypatch.setattr(gpu_extract.io.write, "content_of", spoilt)
    assert "DATASUM of HDU RESOLUTION" in refused(tmp_path)
    with pytest.raises(OutputError, match="DATASUM of HDU RESOLUTION"):
        write_frame(tmp_path / "frame.fits.gz", small_frame())


def test_the_model_and_packed_files_are_read_back_too(tmp_path, written_over):
    write_frame(tmp_path / "good.fits.gz", without_fibermap(small_frame()))
    assert read_frame(tmp_path / "good.fits.gz").flux.shape == (4, 30)
    os.unlink(tmp_path / "good.fits.gz")
    written_over(edited(0, lambda hdu: hdu.data.__setitem__((2, 3), np.nan)))
    assert "differs in the" in refused(tmp_path, write_model)
