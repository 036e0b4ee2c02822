"""Reading CCD images: what masks, what is refused, and what may be absent."""

import gzip
import os
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from astropy.io import fits

from edge_files import NX, NY, image_hdus, write_image
from gpu_extract.errors import InputError, InternalError
from gpu_extract.io import source
from gpu_extract.io.fits import image_of, layouts, open_fits
from gpu_extract.io.image import read_image
from gpu_extract.io.image import write_image as write


def refused(path):
    with pytest.raises(InputError) as caught:
        read_image(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_pixels_header_and_fibermap(tmp_path):
    hdus = image_hdus()
    image = read_image(write_image(tmp_path / "a.fits", hdus))
    assert image.shape == (NY, NX) and image.pix.dtype == image.ivar.dtype == np.float32
    assert image.pix.dtype.isnative and image.pix.flags.c_contiguous
    np.testing.assert_array_equal(image.pix, hdus[0].data)
    assert image.get("CAMERA") == "r3" and image.get("EXPTIME") == 900.0
    card = next(c for c in image.cards if c.key == "EXPID")
    assert card.comment == "exposure number"
    keys = {c.key for c in image.cards}
    assert not keys & {"SIMPLE", "BITPIX", "NAXIS", "NAXIS1", "EXTNAME", "CHECKSUM", "DATASUM", "EXTEND"}
    rows = image.fibermap.rows
    assert rows["FIBER"].tolist() == list(range(1500, 1506)) and rows["FIBER"].dtype.isnative
    assert rows["NAME"].tolist() == [f"t{i}" for i in range(6)]
    assert rows["GOOD"].dtype == bool and rows["GOOD"].tolist() == [False, True] * 3
    assert image.fibermap.units == {"RA": "deg"}
    assert ("PETAL", 3, "spectrograph") in image.fibermap.cards
    assert read_image(tmp_path / "a.fits", fibermap=False).fibermap is None


def test_what_a_fibermap_says_of_its_columns_is_written_with_an_image(tmp_path):
    image = read_image(write_image(tmp_path / "a.fits"))
    said = {"RA": "of the target"}
    write(tmp_path / "b.fits", replace(image, fibermap=replace(image.fibermap, comments=said)))
    assert read_image(tmp_path / "b.fits").fibermap.comments == said


@pytest.mark.parametrize("dtype", [np.int16, np.int32])
@pytest.mark.parametrize("compressed", [False, True])
def test_bits_of_the_mask_take_pixels_out(tmp_path, dtype, compressed):
    """Bits 0-7 and 9 take a pixel out, 8 (BADREADNOISE) does not."""
    hdus = image_hdus()
    mask = np.zeros((NY, NX), dtype)
    for bit in range(11):
        mask[bit, 5] = 1 << bit
    mask[20, 5] = 256 + 4
    hdus[2] = (
        fits.CompImageHDU(mask, name="MASK", compression_type="RICE_1")
        if compressed
        else fits.ImageHDU(mask, name="MASK")
    )
    ivar = read_image(write_image(tmp_path / "a.fits", hdus)).ivar
    zero = set(np.flatnonzero(ivar[:, 5] == 0).tolist())
    assert zero == {0, 1, 2, 3, 4, 5, 6, 7, 9, 20}
    assert np.count_nonzero(ivar == 0) == len(zero)


def test_what_a_header_has_from_another_frame_is_left_out(tmp_path):
    """A residual image with a frame's header: its spectra were once called corrected by HELIOCOR, and of two passes."""
    hdus = image_hdus()
    hdus[0].header.update(HELIOCOR=1.0001, PASSES=2, NCOSMIC=7, IN_FMAP="there.fits", EXPID=9)
    image = read_image(write_image(tmp_path / "a.fits", hdus))
    assert not {card.key for card in image.cards} & {"HELIOCOR", "PASSES", "NCOSMIC", "IN_FMAP"}
    assert image.get("EXPID") == 9


def test_the_unit_of_ivar_is_kept_for_whoever_compares(tmp_path):
    hdus = image_hdus()
    assert read_image(write_image(tmp_path / "a.fits", hdus)).ivar_unit == ""
    hdus[1].header["BUNIT"] = "electron2 "
    assert read_image(write_image(tmp_path / "b.fits", hdus)).ivar_unit == "electron2"


def test_optional_hdus_may_be_absent(tmp_path):
    image = read_image(write_image(tmp_path / "a.fits", image_hdus()[:2]))
    assert image.fibermap is None and (image.ivar > 0).all()


def test_a_primary_without_a_name_is_the_image(tmp_path):
    hdus = image_hdus()
    del hdus[0].header["EXTNAME"]
    assert read_image(write_image(tmp_path / "a.fits", hdus)).shape == (NY, NX)


@pytest.mark.parametrize("name", [None, "COMPRESSED_IMAGE"])
def test_a_primary_without_a_name_that_was_packed(tmp_path, name):
    """fpack leaves an empty primary HDU, and names the image COMPRESSED_IMAGE."""
    hdus = image_hdus()
    del hdus[0].header["EXTNAME"]
    plain = read_image(write_image(tmp_path / "a.fits", hdus))
    packed = fits.CompImageHDU(hdus[0].data, hdus[0].header, name=name, compression_type="GZIP_1", quantize_level=0)
    image = read_image(write_image(tmp_path / "b.fits", fits.HDUList([fits.PrimaryHDU(), packed, *hdus[1:]])))
    np.testing.assert_array_equal(image.pix, plain.pix)
    assert {card.key: card.value for card in image.cards} == {card.key: card.value for card in plain.cards}
    packed.header["EXTNAME"] = "OTHER"
    assert "no HDU IMAGE" in refused(write_image(tmp_path / "c.fits", fits.HDUList([fits.PrimaryHDU(), packed])))


def test_float64_is_kept_and_integers_become_float64(tmp_path):
    hdus = image_hdus()
    hdus[0].data = hdus[0].data.astype(np.int16)
    hdus[1].data = hdus[1].data.astype(np.float64)
    image = read_image(write_image(tmp_path / "a.fits", hdus))
    assert image.pix.dtype == image.ivar.dtype == np.float64
    np.testing.assert_array_equal(image.pix, hdus[0].data)


def test_masked_pixels_may_be_anything(tmp_path):
    hdus = image_hdus()
    hdus[0].data[3, 4], hdus[0].data[5, 6], hdus[0].data[7, 8] = np.nan, np.inf, 1e30
    hdus[1].data[3, 4] = 0
    hdus[2].data[5, 6] = hdus[2].data[7, 8] = 1
    image = read_image(write_image(tmp_path / "a.fits", hdus))
    assert np.isfinite(image.pix).all()
    assert (image.ivar[[3, 5, 7], [4, 6, 8]] == 0).all()


def test_a_nan_pixel_that_is_trusted_is_refused_with_a_count(tmp_path):
    hdus = image_hdus()
    hdus[0].data[3, 4:9] = np.nan
    hdus[2].data[3, 4] = 2
    assert "4 NaN or infinite pixels with ivar > 0" in refused(write_image(tmp_path / "a.fits", hdus))


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (-1.0, "0 NaN, 2 negative and 0 infinite"),
        (np.nan, "2 NaN"),
        (np.inf, "2 infinite"),
        (-np.inf, "2 negative and 2 infinite"),
    ],
)
def test_impossible_ivar_is_refused_even_where_masked(tmp_path, value, word):
    hdus = image_hdus()
    hdus[1].data[3, 4] = hdus[1].data[9, 9] = value
    hdus[2].data[3, 4] = 1
    assert word in refused(write_image(tmp_path / "a.fits", hdus))


def test_an_image_of_nan_is_refused(tmp_path):
    hdus = image_hdus()
    hdus[0].data[:] = np.nan
    hdus[1].data[:] = 0
    assert "no finite pixel" in refused(write_image(tmp_path / "a.fits", hdus))


def test_a_fully_masked_image_is_fine(tmp_path):
    hdus = image_hdus()
    hdus[2].data[:] = 1
    assert not read_image(write_image(tmp_path / "a.fits", hdus)).ivar.any()


@pytest.mark.parametrize(("hdu", "name"), [(1, "IVAR"), (2, "MASK")])
def test_shapes_must_agree(tmp_path, hdu, name):
    hdus = image_hdus()
    hdus[hdu].data = hdus[hdu].data[:-1]
    message = refused(write_image(tmp_path / "a.fits", hdus))
    assert f"{name} has shape (119, 60), IMAGE has (120, 60)" in message


def test_missing_hdu_table_for_image_and_float_mask(tmp_path):
    hdus = image_hdus()
    assert "no HDU IVAR" in refused(write_image(tmp_path / "a.fits", fits.HDUList([hdus[0], hdus[2]])))
    table = fits.BinTableHDU(np.zeros(3, [("A", "f4")]), name="IVAR")
    assert "HDU IVAR is a table" in refused(write_image(tmp_path / "b.fits", fits.HDUList([hdus[0], table])))
    hdus[2].data = hdus[2].data.astype(np.float32)
    assert "MASK is of type float32" in refused(write_image(tmp_path / "c.fits", hdus))


def test_nan_in_the_fibermap_is_refused_with_its_column(tmp_path):
    hdus = image_hdus()
    hdus["FIBERMAP"].data["RA"][2] = np.nan
    path = write_image(tmp_path / "a.fits", hdus)
    assert "NaN or infinite values in RA" in refused(path)
    assert read_image(path, fibermap=False).fibermap is None


def test_pixels_of_a_real_frame_are_those_of_its_file(shared):
    image = read_image(shared / "data/frames/preproc-r0-fibres000-049.fits.gz")
    with fits.open(shared / "data/frames/preproc-r0-fibres000-049.fits.gz") as hdus:
        masked = (hdus["MASK"].data & 767) != 0
        np.testing.assert_array_equal(image.ivar, np.where(masked, 0, hdus["IVAR"].data))
        np.testing.assert_array_equal(image.pix, hdus["IMAGE"].data)
    assert masked.any()


@pytest.mark.parametrize("compressed", [False, True])
def test_reading_takes_little_more_than_what_is_kept(tmp_path, compressed):
    """A frame is read while another is worked on: pixels, ivar and mask once each, and never the whole file."""
    shape = (3000, 1000)
    whole = 4 * shape[0] * shape[1]
    mask = np.arange(shape[0] * shape[1], dtype=np.int32).reshape(shape) // 1000 % 3
    hdus = [fits.PrimaryHDU(np.ones(shape, np.float32)), fits.ImageHDU(np.ones(shape, np.float32), name="IVAR"),
            (fits.CompImageHDU if compressed else fits.ImageHDU)(mask, name="MASK")]
    hdus[0].header["EXTNAME"] = "IMAGE"
    path = write_image(tmp_path / "a.fits", fits.HDUList(hdus))
    tracemalloc.start()
    try:
        image = read_image(path)
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert image.pix.nbytes == image.ivar.nbytes == whole
    assert kept < 2.1 * whole and most < 3.4 * whole


@pytest.mark.parametrize(("hdu", "cards", "noise"), [
    (True, {"OBSRDNA": 2.0}, 3.0), (False, {"OBSRDNA": 2.7, "OBSRDNB": 2.6, "OBSRDNC": -1.0, "OBSRDN": 0.1}, 2.6),
    (False, {"RDNOISE0": 3.5, "RDNOISE1": "bad"}, 3.5), (False, {}, None)])
def test_read_noise_of_the_hdu_else_of_the_header(tmp_path, hdu, cards, noise):
    hdus = image_hdus()
    hdus["READNOISE"].data[:, :20] = 0.0       # an amplifier without a measured value
    if not hdu:
        del hdus["READNOISE"]
    hdus[0].header.update(cards)
    assert read_image(write_image(tmp_path / "a.fits", hdus)).read_noise == noise


def packed(path):
    """The same file as a gzip file."""
    name = path.with_name(path.name + ".gz")
    name.write_bytes(gzip.compress(path.read_bytes(), 1))
    return name


@pytest.mark.parametrize("kind", [">f4", ">f8"])
def test_images_are_taken_while_the_file_is_looked_through(tmp_path, monkeypatch, kind):
    """In pieces that end within a number: astropy's numbers, and their sum with that of the block's padding."""
    monkeypatch.setattr(source, "_CHUNK", 1000)
    hdus = image_hdus()
    chance = np.random.default_rng(3)
    hdus[0].data = chance.normal(size=(NY, NX - 1)).astype(kind)
    hdus[1].data = chance.uniform(size=(NY, NX - 1)).astype(kind)
    for hdu in hdus[2:4]:
        hdu.data = hdu.data[:, 1:]
    path = write_image(tmp_path / "a.fits", hdus)
    for name in (path, packed(path)):
        image = read_image(name)
        assert image.pix.dtype.isnative and image.pix.dtype.itemsize == int(kind[-1])
        np.testing.assert_array_equal(image.pix, fits.getdata(path, 0))
        keep = fits.getdata(path, "MASK") & 767 == 0
        np.testing.assert_array_equal(image.ivar[keep], fits.getdata(path, 1)[keep])
    with fits.open(path) as opened:
        starts = [hdu.fileinfo()["datLoc"] for hdu in opened[:2]]
    whole = path.read_bytes()
    size = NY * (NX - 1) * int(kind[-1])
    for place in (starts[0], starts[0] + size - 1, starts[0] + size, starts[1] + size // 2, starts[1] + size + 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1:])
        for name in (path, packed(path)):
            assert f"DATASUM of HDU {('IMAGE', 'IVAR')[place >= starts[1]]}" in refused(name)
            read_image(name, check=False)


def test_what_is_taken_of_a_gzip_file_is_not_kept(tmp_path):
    """Only the rest stays in memory, and it cannot be taken twice."""
    hdus = fits.HDUList([fits.PrimaryHDU(np.ones((2000, 1000), np.float32)), fits.ImageHDU(np.ones(700), name="REST")])
    hdus.writeto(tmp_path / "a.fits")
    taken = {}
    with layouts(str(packed(tmp_path / "a.fits")), take=("0",), taken=taken) as (held, found):
        assert os.fstat(held.handle.fileno()).st_blocks * 512 < 2.2 * source._CHUNK < found[0].size / 3
    assert (taken[0].image == 1).all()
    with open_fits(tmp_path / "a.fits", take=("0",)) as opened:
        assert image_of(opened[0]).shape == (2000, 1000)
        with pytest.raises(InternalError, match="already taken"):
            image_of(opened[0])


def test_numbers_that_stand_for_others_are_scaled(tmp_path):
    hdus = image_hdus()
    path = write_image(tmp_path / "a.fits", hdus)
    once = read_image(path).ivar
    fits.setval(path, "BSCALE", value=2.0, ext=1)
    np.testing.assert_array_equal(read_image(path, check=False).ivar, 2 * once)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int32, np.uint32])
@pytest.mark.parametrize("blank", [0, 7])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_number_that_stands_for_none_is_none(tmp_path, dtype, blank, compressed):
    """BLANK is a number of the file; astropy applies it to signed integers, unless it is 0."""
    array = np.full((NY, NX), 100, dtype)
    array[3, 4] = blank
    hdu = (fits.CompImageHDU if compressed else fits.ImageHDU)(array, name="IMAGE")
    hdu.header["BLANK"] = blank - {"uint16": 1 << 15, "uint32": 1 << 31}.get(np.dtype(dtype).name, 0)
    path = write_image(tmp_path / "a.fits", fits.HDUList([fits.PrimaryHDU(), hdu, image_hdus()["IVAR"]]))
    assert "IMAGE has 1 NaN or infinite pixels with ivar > 0" in refused(path)
    with open_fits(path) as opened:
        expected = np.where(np.arange(NY * NX).reshape(NY, NX) == 3 * NX + 4, np.nan, 100)
        np.testing.assert_array_equal(image_of(opened["IMAGE"]), expected)


@pytest.mark.parametrize("name", ["IMAGE", "IVAR", "MASK"])
def test_several_hdus_of_a_name(tmp_path, name):
    """EXTVER distinguishes them, but nothing says which belong together: the first of each was read."""
    hdus = image_hdus()
    again = fits.ImageHDU(hdus[name].data, name=name, ver=2)
    said = refused(write_image(tmp_path / "a.fits", fits.HDUList([*hdus, again])))
    assert f"has 2 HDUs {name} (EXTVER 1, 2), so the choice is ambiguous" in said
    others = [fits.ImageHDU(hdus[0].data, name="SKY", ver=version) for version in (1, 2)]
    assert read_image(write_image(tmp_path / "b.fits", fits.HDUList([*hdus, *others]))).shape == (NY, NX)
