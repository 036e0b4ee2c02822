"""Packing as gzip: every reader finds the content, the number of threads changes nothing, damage is found."""

import gzip
import io
import os
import shutil
import subprocess
import zlib

import numpy as np
import pytest
from astropy.io import fits

import gpu_extract.io.write
from edge_files import small_frame, without_fibermap
from gpu_extract.errors import InputError, OutputError
from gpu_extract.io import pack
from gpu_extract.io.content import Content, content_of
from gpu_extract.io.frame import read_frame, write_frame
from gpu_extract.io.image import read_image
from gpu_extract.io.readback import keep_promise


@pytest.fixture
def content():
    """Noise and zeros, some pieces long and a bit."""
    chance = np.random.default_rng(5)
    return chance.normal(size=pack.PIECE * 5 // 8).astype(np.float32).tobytes() + bytes(pack.PIECE) + b"end"


@pytest.mark.parametrize("size", [0, 1, pack.PIECE - 1, pack.PIECE, pack.PIECE + 1, None])
def test_others_unpack_it(tmp_path, content, size):
    """zlib and gunzip; as one member with nothing behind it: cfitsio stops at the end of the first."""
    path = tmp_path / "a.fits.gz"
    packed = pack.write_packed(path, Content([content[:size]]))
    member = zlib.decompressobj(31)
    assert member.decompress(path.read_bytes()) == content[:size] and member.eof and not member.unused_data
    assert gzip.decompress(path.read_bytes()) == content[:size]
    if shutil.which("gunzip"):
        assert subprocess.run(["gunzip", "-c", path], capture_output=True, check=True).stdout == content[:size]
    pack.check_packed(path, Content([content[:size]]), packed)


def test_any_number_of_cores_gives_the_same_bytes(tmp_path, content, monkeypatch):
    found = set()
    for cores in (1, 2, 5):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        packed = pack.write_packed(tmp_path / "a.gz", Content([content]))
        pack.check_packed(tmp_path / "a.gz", Content([content]), packed)
        found.add((tmp_path / "a.gz").read_bytes())
    assert len(found) == 1


def test_each_damaged_byte_is_found(tmp_path):
    """In the head, the stream and the tail; also truncation, and bytes appended."""
    path = tmp_path / "a.gz"
    content = Content([bytes(range(200))])
    packed = pack.write_packed(path, content)
    good = path.read_bytes()
    damaged = [good[:n] + bytes([good[n] ^ 0x55]) + good[n + 1 :] for n in range(len(good))]
    for bad in (*damaged, good[:-1], good + b"x", b""):
        path.write_bytes(bad)
        with pytest.raises(InputError, match="gzip stream is corrupt"):
            pack.check_packed(path, content, packed)
    path.write_bytes(good)
    with pytest.raises(InputError, match="gzip stream is corrupt"):        # sound, but with other content
        pack.check_packed(path, Content([bytes(200)]), packed)


def test_a_packed_frame_is_read_back_from_the_disk(tmp_path, monkeypatch):
    path = tmp_path / "frame.fits.gz"
    write_frame(path, without_fibermap(small_frame()))
    whole, plain = path.read_bytes(), tmp_path / "frame.fits"
    write_frame(plain, without_fibermap(small_frame()))
    assert gzip.decompress(whole) == plain.read_bytes()
    np.testing.assert_array_equal(read_frame(path).flux, read_frame(plain).flux)

    def spoilt(written, name, *promise):
        place = len(whole) // 2
        written.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        keep_promise(written, name, *promise)

    monkeypatch.setattr(gpu_extract.io.write, "keep_promise", spoilt)
    with pytest.raises(OutputError, match=r"not written: the file read back .* gzip stream is corrupt"):
        write_frame(path, without_fibermap(small_frame()))
    assert path.read_bytes() == whole and sorted(os.listdir(tmp_path)) == ["frame.fits", "frame.fits.gz"]


def test_content_is_what_astropy_writes():
    """Of every kind of HDU that is written, and of any piece of it, also one that begins within a number."""
    chance = np.random.default_rng(4)
    arrays = [chance.normal(size=shape).astype(kind) for shape, kind in (
        ((7, 901), "f4"), ((11,), "f8"), ((3, 5), ">f4"), ((4, 30), "u1"), ((9, 2), "i2"), ((1500, 3), "i8"))]
    arrays += [chance.integers(0, np.iinfo(kind).max, (5, 7), np.dtype(kind), endpoint=True) for kind in ("u2", "u4")]
    rows = np.array([(1, b"a", (2.5, -1.0), True), (3, b"bc", (4.0, 0.0), False)],
                    [("n", "i4"), ("name", "S3"), ("pair", "f8", 2), ("good", "?")])
    hdus = fits.HDUList([fits.PrimaryHDU(arrays[0][:, ::2]), *(fits.ImageHDU(array, name=f"A{n}") for n, array in
                                                                enumerate(arrays)),
                         gpu_extract.io.write.table_hdu(rows, "ROWS", units={"n": "s"}), fits.ImageHDU()])
    for hdu in hdus:
        hdu.add_checksum()
    meant = io.BytesIO()
    content = content_of(hdus)
    hdus.writeto(meant)
    whole = meant.getvalue()
    assert content.read() == whole and len(content) == len(whole) > 3 * 2880
    for start, stop in chance.integers(0, len(whole) + 9, (300, 2)):
        assert content.piece(start, stop).tobytes() == whole[start:stop]


def fpacked(path, quantised=(), codes="RICE_1"):
    """An image as fpack leaves it: an empty primary, and compressed images; those named are rounded."""
    chance = np.random.default_rng(2)
    pix, ivar = (chance.normal(100, 10, (64, 80)).astype(np.float32) for _ in range(2))
    ivar[3] = 0
    hdus = [fits.PrimaryHDU()]
    for name, array in (("IMAGE", pix), ("IVAR", ivar), ("MASK", (ivar == 0).astype(np.int32))):
        lossy = {"compression_type": codes, "hcomp_scale": 4, "tile_shape": (16, 80)} if name in quantised else {}
        lossless = {"compression_type": "GZIP_1" if name != "MASK" else "RICE_1", "quantize_level": 0}
        hdus.append(fits.CompImageHDU(array, name=name, **({**lossless, **lossy, "quantize_level": 16} if lossy
                                                           else lossless)))
    fits.HDUList(hdus).writeto(path, checksum=True)
    return pix, ivar


@pytest.mark.parametrize("quantised", [(), ("IMAGE",)])
def test_fpacked_images(tmp_path, quantised):
    """Lossless: the same bits; lossy: each pixel within half a step of its tile (FITS 4.0, 10.2)."""
    path = tmp_path / "a.fits.fz"
    pix, ivar = fpacked(path, quantised)
    image = read_image(path)
    np.testing.assert_array_equal(image.ivar, ivar)
    with fits.open(path, disable_image_compression=True) as hdus:
        steps = np.repeat(hdus["IMAGE"].data["ZSCALE"], 16)[:, None] if quantised else 0
    assert (np.abs(image.pix - pix) <= np.asarray(steps) / 2 * (1 + 1e-5) + 1e-5 * bool(quantised)).all()
    assert not quantised or np.abs(image.pix - pix).max() > 0


@pytest.mark.parametrize(("name", "codes"), [("IVAR", "RICE_1"), ("IVAR", "GZIP_2"), ("MASK", "HCOMPRESS_1")])
def test_rounded_weights_and_masks_are_refused(tmp_path, name, codes):
    fpacked(tmp_path / "a.fits.fz", (name,), codes)
    with pytest.raises(InputError, match=rf"HDU {name} has lossy compression.*fpack -g -q 0"):
        read_image(tmp_path / "a.fits.fz")
