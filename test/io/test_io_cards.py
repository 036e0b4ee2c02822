"""Robust headers: a header is believed only within limits and if the file has the bytes; nothing hangs."""

import gzip
import re
import signal
import zlib
from dataclasses import replace

import numpy as np
import pytest
from astropy.io import fits

from edge_files import image_hdus, small_frame, small_psf, write_image
from gpu_extract.errors import InputError
from gpu_extract.io import source
from gpu_extract.io.cards import MOST_HDUS
from gpu_extract.io.frame import read_frame, write_frame
from gpu_extract.io.image import read_image
from gpu_extract.io.psf import read_psf, write_psf

LONGEST = 10  # seconds: the longest that any file may take to be refused


@pytest.fixture(autouse=True)
def hangs_end():
    """A test that hangs fails."""

    def over(*_):
        pytest.fail(f"took more than {LONGEST} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(LONGEST)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def card(key, value):
    return f"{key:<8}= {value:>20}".ljust(80).encode()


def with_card(content, key, value, nth=0):
    """The file with the card `key` of its nth HDU replaced by one that says `value`."""
    start = [m.start() for m in re.finditer(f"{key:<8}= ".encode(), content) if m.start() % 80 == 0][nth]
    return content[:start] + card(key, value) + content[start + 80 :]


def refused(path, content, read=read_image):
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read(path)
    message = str(caught.value)
    assert "\n" not in message and path.name in message
    return message


@pytest.fixture
def good(tmp_path):
    return write_image(tmp_path / "good.fits", checksum=False).read_bytes()


@pytest.mark.parametrize(
    ("key", "value", "nth", "words"),
    [
        ("NAXIS2", "-60", 0, "NAXIS2 is -60, must be 0 or more"),
        ("NAXIS", str(2**63 - 1), 1, "NAXIS is 9223372036854775807, must be between 0 and 999"),
        ("NAXIS", "1.5", 0, "NAXIS is 1.5, must be between 0 and 999"),
        ("NAXIS1", "", 0, "NAXIS1 is empty"),
        ("BITPIX", "7", 0, "BITPIX is 7, must be"),
        ("GCOUNT", "-1", 0, "GCOUNT is -1, must be 1 or more"),
        ("GCOUNT", "2", 0, "GCOUNT is 2, must be 1 for IMAGE"),
        ("PCOUNT", "5", 0, "PCOUNT is 5, must be 0 for IMAGE"),
        ("NAXIS1", str(10**15), 1, "claims"),
        ("NAXIS1", str(10**6), 1, "truncated: "),
        ("TFIELDS", "1000", 0, "TFIELDS is 1000, must be between 0 and 999"),
        ("TFIELDS", "6", 0, "the card TFORM6 is missing"),
        ("TFORM1", "'2147483647E'", 0, "NAXIS1 is 27, but its columns (TFORMn) take"),
        ("TFORM2", "'FOO'", 0, "TFORM2 is 'FOO'"),
        ("TFORM2", "'2PJ(5)'", 0, "a row must have one such array"),
        ("XTENSION", "IMAGE", 0, "XTENSION is IMAGE, must be text in quotes"),
        ("SIMPLE", "T", 0, None),
        ("SIMPLE", "F", 0, "SIMPLE is not T"),
    ],
)
def test_numbers_of_a_header(tmp_path, good, key, value, nth, words):
    content = with_card(good, key, value, nth)
    if words is None:
        (tmp_path / "a.fits").write_bytes(content)
        read_image(tmp_path / "a.fits")
    else:
        assert words in refused(tmp_path / "a.fits", content)


def test_where_the_heap_begins(tmp_path, good):
    content = with_card(good, "TTYPE5", "0").replace(b"TTYPE5  =", b"THEAP   =")
    assert "THEAP is 0, must be between 162 and 162" in refused(tmp_path / "a.fits", content)


@pytest.mark.parametrize("twice", [card("NAXIS1", "59"), b"HIERARCH NAXIS1 = 59".ljust(80), card("naxis1", "59")])
def test_a_card_that_stands_twice(tmp_path, good, twice):
    """astropy would take the first or the last, depending on the caller."""
    content = with_card(good, "EXPTIME", "1")
    content = content.replace(card("EXPTIME", "1"), twice)
    assert "NAXIS1 occurs twice in the header, with different values" in refused(tmp_path / "a.fits", content)


def test_two_hdus_of_one_name(tmp_path):
    hdus = image_hdus()
    hdus.append(fits.ImageHDU(hdus["IVAR"].data * 2, name="IVAR"))
    path = write_image(tmp_path / "a.fits", hdus)
    assert "has two HDUs IVAR; leave one of them out" in refused(path, path.read_bytes())


def test_far_too_many_hdus_and_cards(tmp_path, good):
    empty = b"".join((card("XTENSION", "'IMAGE'"), card("BITPIX", "8"), card("NAXIS", "0"), card("PCOUNT", "0"),
                      card("GCOUNT", "1"), b"END".ljust(80)))  # fmt: skip
    path = tmp_path / "a.fits"
    assert f"has more than {MOST_HDUS} HDUs" in refused(path, good + 2000 * empty.ljust(2880))
    path.write_bytes(good + (MOST_HDUS - 5) * empty.ljust(2880))
    read_image(path)
    assert "after HDU FIBERMAP" in refused(path, good + empty[:-80] + 10**6 * b"COMMENT ".ljust(80))


def test_a_header_that_can_be_taken_in_two_ways(tmp_path, good):
    """astropy accepts no XTENSION with an odd byte, and gives up on the rest of the file; we read on."""
    content = good.replace(b"XTENSION= 'IMAGE   '", b"XTENSION= 'IMAGE  \x10'", 2)
    assert "the header of HDU 1 is corrupt: it is ambiguous" in refused(tmp_path / "a.fits", content)


def test_what_is_quoted_of_a_card_is_one_line(tmp_path, good):
    content = good.replace(b"NAXIS   =                    2", b"NAXIS   =        5\n\x1b\x85        2", 1)
    assert "NAXIS is 5??\ufffd  " in refused(tmp_path / "a.fits", content)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("ZNAXIS1", "2000000", "a compressed image of 2000000 x 120 pixels (ZNAXISn), at most"),
        ("ZNAXIS1", "-1", "ZNAXIS1 is -1, must be 1 or more"),
        ("ZTILE1", str(10**12), "pixels (ZTILEn), the image has 60 x 120"),
        ("ZTILE1", "7", "NAXIS2 is 120, but the compressed image has 1080 tiles"),
        ("ZNAXIS2", "119", "compressed image has 119 tiles"),
        ("ZBITPIX", "1", "ZBITPIX is 1, must be"),
        ("ZCMPTYPE", "'FOO'", "cannot be"),
        ("ZVAL1", "0", "BLOCKSIZE (ZVAL1) is 0, must be one of 16, 32"),
        ("ZVAL2", "2147483647", "BYTEPIX (ZVAL2) is 2147483647, must be one of 1, 2, 4"),
        ("ZVAL2", "x", "ZVAL2 is x, must be an integer"),
        ("ZNAXIS", "0", "ZNAXIS is 0, must be between 1 and 999"),
    ],
)
def test_compressed_images(tmp_path, key, value, words):
    hdus = image_hdus()
    hdus[2] = fits.CompImageHDU(hdus[2].data, name="MASK", compression_type="RICE_1")
    content = write_image(tmp_path / "good.fits", hdus, checksum=False).read_bytes()
    assert words in refused(tmp_path / "a.fits", with_card(content, key, value))


def test_a_mask_of_another_shape_is_not_unpacked(tmp_path, monkeypatch):
    """5000 x 5000 pixels packed into some kilobytes: refused by what the header says."""
    hdus = image_hdus()
    hdus[2] = fits.CompImageHDU(
        np.zeros((5000, 5000), np.int32), name="MASK", compression_type="RICE_1", tile_shape=(100, 5000)
    )
    path = write_image(tmp_path / "a.fits", hdus)
    monkeypatch.setattr(fits.CompImageHDU, "data", property(lambda _: pytest.fail("unpacked")))
    assert "MASK has shape (5000, 5000), IMAGE has (120, 60)" in refused(path, path.read_bytes())


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_masks_of_every_type_mean_the_same(tmp_path, kind):
    """Bits 0-7 mask in all of them; bit 8 does not, and bit 9 does where it exists."""
    hdus = image_hdus()
    bits = np.zeros((120, 60), np.int64)
    bits[3, :8] = 1 << np.arange(8)
    if np.dtype(kind).itemsize > 1:
        bits[4, 8], bits[4, 9] = 256, 512
    hdus[2] = fits.ImageHDU(bits.astype(kind), name="MASK")
    ivar = read_image(write_image(tmp_path / "a.fits", hdus)).ivar
    wanted = np.full((120, 60), 1 / 64, np.float32)
    wanted[(bits & 767) != 0] = 0
    np.testing.assert_array_equal(ivar, wanted)


def zeros(size):
    packer, piece = zlib.compressobj(9, zlib.DEFLATED, 31), bytes(1 << 20)
    return b"".join([*(packer.compress(piece) for _ in range(size >> 20)), packer.flush()])


def test_a_gzip_bomb_costs_no_memory(tmp_path, good):
    """Bytes outside the headers' HDUs are not kept; those within must be below the limit."""
    import tracemalloc

    path = tmp_path / "a.fits.gz"
    bomb = zeros(64 << 20)
    tracemalloc.start()
    assert "not a FITS file" in refused(path, bomb)
    path.write_bytes(gzip.compress(good) + bomb)  # zeros behind the last HDU are padding, and are not kept
    read_image(path)
    large = with_card(good, "NAXIS1", str(source.UNPACKED_LARGEST), 1)
    assert f"at most {source.UNPACKED_LARGEST} are allowed for a file" in refused(
        path, gzip.compress(large) + bomb
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20  # the good file is 0.15 MB, a piece 1 MB; the bomb is 64 MB


def test_a_gzip_file_ends_somewhere(tmp_path, good, monkeypatch):
    monkeypatch.setattr(source, "BEHIND_LARGEST", 8 << 20)
    assert "unpacks to more than 8388608 bytes after its last HDU" in refused(
        tmp_path / "a.fits.gz", gzip.compress(good) + zeros(16 << 20)
    )


@pytest.fixture
def good_psf(tmp_path):
    write_psf(tmp_path / "psf.fits", small_psf())
    with fits.open(tmp_path / "psf.fits") as hdus:
        for hdu in hdus:
            del hdu.header["CHECKSUM"], hdu.header["DATASUM"]
        hdus.writeto(tmp_path / "plain.fits")
    return (tmp_path / "plain.fits").read_bytes()


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("HSIZEX", "5000", "HSIZEX is 5000, must be between 1 and 64"),
        ("HSIZEY", "4.5", "needs an integer HSIZEY"),
        ("HSIZEY", "1E400", "needs an integer HSIZEY"),
        ("HSIZEY", "T", "needs an integer HSIZEY"),
        ("NPIX_X", "2147483647", "NPIX_X is 2147483647, must be between 1 and 1048576"),
        ("PSFVER", "1E400", "without a version"),
        ("PSFVER", "3.5", "without a version"),
        ("PSFVER", "", "without a version"),
        ("PSFERR", "T", "PSFERR is True, must be a number"),
        ("NAXIS2", "5", "must be (5, any)"),
        ("WAVEMIN", "F", "XTRACE has WAVEMIN False and WAVEMAX 6100.0"),
    ],
)
def test_numbers_of_a_psf_beyond_their_limits_are_refused(tmp_path, good_psf, key, value, words):
    assert words in refused(tmp_path / "a.fits", with_card(good_psf, key, value), read_psf)


def test_degrees_of_a_psf_that_would_take_gigabytes(tmp_path, good_psf):
    content = good_psf.replace(b"GH-2-2\0\0", b"GH-99999", 1).replace(b"GH-1-2\0\0", b"GH-999-1", 1)
    message = refused(tmp_path / "a.fits", content, read_psf)
    assert "go up to degrees 999 and 2" in message and "at most degree 20" in message


def test_what_astropy_raises_is_an_error_of_the_input(tmp_path, good, monkeypatch):
    """And what we raise is not: our defect must not look like one of the file."""
    path = tmp_path / "a.fits"
    assert "cannot be interpreted (VerifyError: Unparsable" in refused(path, with_card(good, "EXTNAME", "'IVAR", 1))
    path.write_bytes(good)
    monkeypatch.setattr("gpu_extract.io.image._floating", lambda array: {}["ours"])
    with pytest.raises(KeyError):
        read_image(path)


def test_frames_are_read_with_the_same_sense(tmp_path):
    write_frame(tmp_path / "a.fits", replace(small_frame(), fibermap=None))
    content = (tmp_path / "a.fits").read_bytes()
    assert "GCOUNT is -1" in refused(tmp_path / "b.fits", with_card(content, "GCOUNT", "-1"), read_frame)
