"""Opening FITS files: defects are reported in one line, and corruption is always detected."""

import bz2
import errno
import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits

from edge_files import image_hdus, write_image
from gpu_extract.errors import InputError
from gpu_extract.io.checksum import fold, ones_complement
from gpu_extract.io.fits import find, image_of, open_fits
from gpu_extract.io.image import read_image


def refused(path, check=True):
    """The one-line message with which opening fails."""
    with pytest.raises(InputError) as caught, open_fits(path, check=check) as hdus:
        for hdu in hdus:
            _ = hdu.data
    message = str(caught.value)
    assert "\n" not in message and str(path) in message
    return message


def test_plain_and_gzipped_files_give_the_same(tmp_path):
    plain = write_image(tmp_path / "a.fits")
    packed = tmp_path / "a.fits.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    with open_fits(plain) as one, open_fits(packed) as two:
        assert [h.name for h in one] == [h.name for h in two]
        a, b = image_of(find(one, "IMAGE")), image_of(find(two, "image"))
    assert a.dtype == np.float32 and a.dtype.isnative and a.flags.c_contiguous
    np.testing.assert_array_equal(a, b)


def test_missing_folder_empty_foreign(tmp_path):
    assert "no such file" in refused(tmp_path / "no.fits")
    assert "not a regular file" in refused(tmp_path)
    empty = tmp_path / "empty.fits"
    empty.touch()
    assert "empty" in refused(empty)
    foreign = tmp_path / "foreign.fits"
    foreign.write_text("hello, this is no FITS file\n" * 200)
    assert "not a FITS file" in refused(foreign)
    for program in (bz2, lzma):
        foreign.write_bytes(program.compress(b"SIMPLE" * 200))
        assert f"packed by {'bzip2' if program is bz2 else 'xz'}; unpack it" in refused(foreign)


@pytest.mark.parametrize("keep", [100, 2880, 2880 + 999, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused(tmp_path, keep):
    """Cut in a header, in the data, and just before the last block; an exact HDU boundary is no truncation and shows as
    a missing HDU."""
    path = write_image(tmp_path / "a.fits", checksum=False)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole)) if keep < 1 else keep])
    assert "trunc" in refused(path, check=False) or "corrupt" in refused(path, check=False)


def test_gzip_of_several_members_with_zeros_behind(tmp_path):
    """As written by pigz and tapes."""
    whole = write_image(tmp_path / "a.fits").read_bytes()
    path = tmp_path / "a.fits.gz"
    path.write_bytes(gzip.compress(whole[:10000]) + gzip.compress(whole[10000:]) + bytes(3_000_000))
    with open_fits(path) as packed, open_fits(tmp_path / "a.fits") as plain:
        np.testing.assert_array_equal(packed[0].data, plain[0].data)
    path.write_bytes(path.read_bytes()[:20000].rstrip(b"\0") + b"x")
    with pytest.raises(InputError, match="gzip stream"), open_fits(path):
        pass


def test_truncated_and_corrupt_gzip(tmp_path):
    packed = gzip.compress(write_image(tmp_path / "a.fits").read_bytes())
    path = tmp_path / "a.fits.gz"
    path.write_bytes(packed[: len(packed) // 2])
    assert "truncated" in refused(path)
    path.write_bytes(packed[:40] + bytes([packed[40] ^ 0xFF]) + packed[41:])
    assert "corrupt" in refused(path)


def test_garbage_after_the_last_hdu(tmp_path):
    path = write_image(tmp_path / "a.fits")
    path.write_bytes(path.read_bytes() + b"XTENSION= 'IMA")
    assert "no complete HDU" in refused(path)


@pytest.mark.parametrize("hdu", [0, 1, 4])
def test_one_flipped_bit_is_found_and_can_be_ignored(tmp_path, hdu):
    path = write_image(tmp_path / "a.fits")
    with fits.open(path) as hdus:
        where = hdus[hdu].fileinfo()["datLoc"] + 13
        name = hdus[hdu].name
    content = bytearray(path.read_bytes())
    content[where] ^= 0x10
    path.write_bytes(content)
    message = refused(path)
    assert f"DATASUM of HDU {name}" in message and "--ignore-checksums" in message
    with open_fits(path, check=False) as hdus:
        assert len(hdus) == 5


def test_a_card_with_a_line_break_leaves_the_message_one_line(tmp_path):
    path = write_image(tmp_path / "a.fits")
    content = path.read_bytes()
    at = content.index(b"DATASUM = '") + len(b"DATASUM = '") + 2
    path.write_bytes(content[:at] + b"\n" + content[at + 1:])
    message = refused(path)
    assert "DATASUM of HDU" in message and "?" in message and "\n" not in message


def test_a_changed_header_is_found_by_its_checksum(tmp_path):
    path = write_image(tmp_path / "a.fits")
    path.write_bytes(path.read_bytes().replace(b"900.0", b"901.0"))
    assert "CHECKSUM of HDU IMAGE" in refused(path)


def test_compressed_images_are_verified_too(tmp_path):
    hdus = image_hdus()
    hdus[2] = fits.CompImageHDU(hdus[2].data, name="MASK", compression_type="RICE_1")
    path = write_image(tmp_path / "a.fits", hdus)
    with open_fits(path) as opened:
        assert opened["MASK"].data.shape == (120, 60)
    with fits.open(path, disable_image_compression=True) as raw:
        where = raw[2].fileinfo()["datLoc"] + 4
    content = bytearray(path.read_bytes())
    content[where] ^= 1
    path.write_bytes(content)
    assert "HDU MASK" in refused(path)


def test_the_sum_against_arithmetic_in_integers():
    """Any number of words; the definition word by word, with end-around carry."""
    import io

    rng = np.random.default_rng(1)
    for count in (0, 1, 720, 5000):
        words = rng.integers(0, 2**32, count, dtype=np.uint64)
        total = 0
        for word in words.tolist():
            total += word
            total = (total & 0xFFFFFFFF) + (total >> 32)
        data = words.astype(">u4").tobytes()
        assert ones_complement(io.BytesIO(data), 0, len(data)) == total
    assert fold(0xFFFFFFFF + 1) == 1


def test_odd_files_of_astropys_own_tests(shared):
    """Every one is opened or refused in one line."""
    refused_files = set()
    for path in sorted((shared / "data" / "corrupt").glob("*.fits")):
        try:
            with open_fits(path) as hdus:
                assert len(hdus) >= 1
        except InputError as error:
            assert "\n" not in str(error)
            refused_files.add(path.name)
    assert refused_files == {"astropy-checksum_false.fits"}
    with open_fits(shared / "data" / "corrupt" / "astropy-checksum_false.fits", check=False) as hdus:
        assert hdus[0].data.shape == (40, 30)


def test_a_missing_hdu_lists_those_there(tmp_path):
    path = write_image(tmp_path / "a.fits")
    with pytest.raises(InputError, match=f"^{path}: no HDU XTRACE; the file has IMAGE, IVAR, MASK"), \
            open_fits(path) as hdus:
        find(hdus, "XTRACE")


def test_a_disk_that_cannot_be_read_is_an_error_of_the_input():
    """It was once reported for standard output, with exit code 3, and as internal error for a list's frames."""
    if not Path("/proc/self/mem").exists():
        pytest.skip("no file here that cannot be read")
    with pytest.raises(InputError, match="/proc/self/mem: cannot be read: Input/output error; fetch the file again"):
        read_image("/proc/self/mem")


def test_a_disk_that_fails_while_astropy_reads(tmp_path, monkeypatch):
    path = write_image(tmp_path / "a.fits", image_hdus())

    def fails(*_, **__):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fits, "open", fails)
    with pytest.raises(InputError, match="cannot be read: Input/output error; fetch"):
        read_image(path)
