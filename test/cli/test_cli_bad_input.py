"""Bad input: one clear line, the stated exit code, no traceback, nothing lost. Every row runs the real command."""

import gzip
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits

from edge_files import GRID, image_hdus, small_psf, write_image
from gpu_extract.io.psf import write_psf

OLD = b"the output of an earlier run"
BIN = Path(__file__).resolve().parents[2] / "bin" / "gpu_extract"


def listing(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def refused(extract, files):
    """Run the command; it must fail with `code`, print `words` in one line, and change no file."""

    def check(*options, code=2, words=()):
        if not files.output.exists() and files.output.parent.is_dir():
            files.output.write_bytes(OLD)
        before = listing(files.image.parent)
        done = extract(*options)
        message = done.error
        assert done.code == code, message
        for word in [words] if isinstance(words, str) else words:
            assert word in message, message
        assert done.out == "" and listing(files.image.parent) == before
        return message

    return check


def rewrite(path, change):
    """The small image's file, after `change(hdus)`."""
    hdus = image_hdus()
    return write_image(path, change(hdus) or hdus)


def set_pixels(hdu, value, where=(slice(3, 5), 4)):
    def change(hdus):
        hdus[hdu].data[where] = value

    return change


BAD_IMAGES = {
    "missing HDU IVAR": (lambda h: fits.HDUList([h[0], *h[2:]]), "no HDU IVAR; the file has IMAGE, MASK"),
    "missing HDU IMAGE": (lambda h: fits.HDUList([fits.PrimaryHDU(), *h[1:]]), "no HDU IMAGE"),
    "shapes differ": (
        lambda h: setattr(h[1], "data", h[1].data[:, 1:]),
        "IVAR has shape (120, 59), IMAGE has (120, ",
    ),
    "mask of another shape": (lambda h: setattr(h[2], "data", h[2].data[1:]), "MASK has shape (119, 60)"),
    "three axes": (lambda h: setattr(h[0], "data", h[0].data[None]), "must be an image with 2 axes"),
    "all NaN": (set_pixels(0, np.nan, ...), "no finite pixel"),
    "NaN with ivar": (set_pixels(0, np.nan), "2 NaN or infinite pixels with ivar > 0"),
    "infinite pixel with ivar": (set_pixels(0, np.inf), "2 NaN or infinite pixels with ivar > 0"),
    "negative ivar": (set_pixels(1, -1), "2 negative"),
    "infinite ivar": (set_pixels(1, np.inf), "2 infinite"),
    "NaN ivar": (set_pixels(1, np.nan), "2 NaN"),
    "NaN in the fibermap": (
        lambda h: h[4].data["RA"].__setitem__(1, np.nan),
        "NaN or infinite values in RA",
    ),
    "too short a fibermap": (lambda h: setattr(h[4], "data", h[4].data[:3]), "no row for 3 fibres (first FIBER 1503)"),
}


@pytest.mark.parametrize("name", BAD_IMAGES)
def test_images_that_cannot_be_used_are_refused(refused, tmp_path, name):
    change, words = BAD_IMAGES[name]
    path = rewrite(tmp_path / "bad.fits", change)
    message = refused("-i", path, words=words)
    assert "fibermap has" in message or str(path) in message


def test_missing_and_foreign_files_are_refused(refused, files, tmp_path):
    (tmp_path / "text.fits").write_text("no FITS file")
    (tmp_path / "empty.fits").touch()
    for option in ("-i", "-p", "-f", "-t"):
        refused(option, tmp_path / "no.fits", words=("no.fits: no such file", "check the path"))
        refused(option, tmp_path / "text.fits", words="not a FITS file")
        refused(option, tmp_path / "empty.fits", words="the file is empty")
        refused(option, tmp_path, words="not a regular file")
    refused("-f", files.psf, words="no HDU FIBERMAP")
    refused("-t", files.psf, words="this is a PSF (GAUSS-HERMITE), not a frame: give a frame")
    refused("-i", files.psf, words="this is a PSF (GAUSS-HERMITE), not an image")
    refused("-p", files.image, words="not a PSF")


@pytest.mark.parametrize("option", ["-i", "-p", "-f"])
def test_a_pipe_that_nobody_writes_to(refused, tmp_path, option):
    """The command once waited for ever when it looked at the file's type."""
    os.mkfifo(tmp_path / "pipe.fits")
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("the command waits"))
    signal.alarm(30)
    try:
        refused(option, tmp_path / "pipe.fits", words="pipe.fits: not a regular file; give a FITS file")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("option", ["-i", "-p"])
def test_truncated_files_are_refused(refused, files, tmp_path, option):
    content = (files.image if option == "-i" else files.psf).read_bytes()
    packed = gzip.compress(content)
    for name, piece in (("half", content[: len(content) // 2]), ("stub", content[:1000]), ("end", content[:-3000])):
        (tmp_path / f"{name}.fits").write_bytes(piece)
        assert "truncated" in refused(option, tmp_path / f"{name}.fits") or name == "stub"
    (tmp_path / "half.fits.gz").write_bytes(packed[: len(packed) // 2])
    refused(option, tmp_path / "half.fits.gz", words="its gzip stream breaks off")
    (tmp_path / "more.fits.gz").write_bytes(packed + b"more")
    refused(option, tmp_path / "more.fits.gz", words="or other bytes follow its end")


@pytest.mark.parametrize("option", ["-i", "-p"])
def test_corrupt_files_and_the_switch_to_ignore(refused, extract, files, tmp_path, option):
    source = files.image if option == "-i" else files.psf
    with fits.open(source) as hdus:
        where = hdus[0].fileinfo()["datLoc"] + 7  # the last bits of a number: harmless, but not what was written
    content = bytearray(source.read_bytes())
    content[where] ^= 1
    (tmp_path / "bad.fits").write_bytes(content)
    refused(option, tmp_path / "bad.fits", words=("DATASUM of HDU", "--ignore-checksums"))
    assert extract(option, tmp_path / "bad.fits", "--ignore-checksums").code == 0


def test_odd_files_of_astropys_own_tests(refused, shared):
    """As image and as PSF: none is valid as either."""
    for path in sorted((shared / "data" / "corrupt").glob("*.fits")):
        for option in ("-i", "-p"):
            refused(option, path, words=path.name)
            refused(option, path, "--ignore-checksums", words=path.name)


def test_psfs_that_cannot_be_used_are_refused(refused, tmp_path):
    for key, value, words in (
        ("PSFTYPE", "SPOTGRID", "PSF of type 'SPOTGRID', version 3; must be GAUSS-HERMITE with PSFVER 2 or 3"),
        ("PSFVER", 7, "version 7; must be"),
    ):
        write_psf(tmp_path / "psf7.fits", small_psf())
        with fits.open(tmp_path / "psf7.fits", mode="update") as hdus:
            for hdu in hdus:
                hdu.header.remove("CHECKSUM")
                if key in hdu.header:
                    hdu.header[key] = value
        refused("-p", tmp_path / "psf7.fits", words=words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-w", "5900,6050,1.0"), ("wavelengths 5900 to 6050", "covers 6000 to 6100", "choose --wavelength within")),
        (("-w", "6050,6150,1.0"), ("wavelengths 6050 to 6150", "covers 6000 to 6100")),
        (("-w", "6090,6010,1.0"), ("6090,6010,1 must ascend", "e.g. 5760,7620,0.8")),
        (("-w", "6010,6090,-1.0"), "must ascend"),
        (("-w", "6010,6090,0"), "must ascend"),
        (("-w", "6010,6090,nan"), "must be finite numbers"),
        (("-w", "6010,6090,0.0003"), "bins of 0.0003 Angstrom cannot be told from each other"),
        (("-w", "6010,6090"), ("'6010,6090' is not a grid", "e.g. 5760,7620,0.8")),
        (("-w", "a,b,c"), "is not a grid"),
        (("-n", "0"), "nspec is 0, must be 1 or more"),
        (("-n", "-3"), "nspec is -3"),
        (("-s", "-1"), "specmin is -1"),
        (("-s", "6"), ("fibres from 6 on", "has fibres 0 to 5", "choose --specmin and --nspec")),
        (("-s", "4", "-n", "3"), "fibres 4 to 6 were requested"),
        (("-n", "many"), ("--nspec", "many")),
        (("-n", "0", "-s", "-1", "--bundlesize", "0", "-r", "-1", "--psferr", "nan", "--tolerance", "2"),
         ("specmin is -1", "nspec is 0", "bundlesize is 0", "regularize is -1", "psferr is nan", "tolerance is 2")),
        (("--core", "sparse"), ("'sparse'", "banded")),
        (("--preset", "desi-x"), "no preset 'desi-x'; known: desi-b"),
        (("--loglevel", "loud"), "invalid choice: 'loud' (choose from 'debug', 'info'"),
        (("--threads", "0"), "--threads is 0"),
        (("--threads", "1000000000"), "--threads is 1000000000, must be 4096 or less"),
        (("-r", "1e160"), "regularize is 1e+160, must lie between 0 and 1e+100"),
        (("--no-such-option",), "unrecognized arguments: --no-such-option"),
        ((__file__, "3"), "test_cli_bad_input.py 3; files follow their options: -i FILE; see gpu_extract --help"),
        (("3",), "unrecognized arguments: 3; see gpu_extract --help"),
        (("--gpu", "--no-gpu"), "not allowed with"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_used_are_refused(refused, options, words):
    refused(*options, words=words)


@pytest.mark.parametrize(("options", "words"), [(("-w", "9000,5000,1"), "must ascend"), (("--nspec", "0"), "nspec")])
def test_bad_options_come_before_the_embedded_frame(run, files, monkeypatch, options, words):
    monkeypatch.setattr("gpu_extract.simulate.embedded.embedded_default",
                        lambda *_, **__: pytest.fail("simulated a frame"))
    done = run(*options, "-o", files.output)
    assert done.code == 2 and words in done.error


def test_a_missing_output_or_half_an_input(run, files):
    done = run("-i", files.image, "-p", files.psf)
    assert done.code == 2 and "-o/--output" in done.error and "--help" in done.error
    done = run("-i", files.image, "-o", files.output)
    assert done.code == 2 and "-i is given without -p" in done.error


def test_outputs_that_cannot_be(refused, files, tmp_path):
    refused("-o", tmp_path / "no" / "frame.fits", code=3, words=("does not exist", "make it"))
    refused("-o", tmp_path, code=3, words="is a folder")
    refused("-o", "/dev/null", code=3, words="not a regular file")
    assert Path("/dev/null").is_char_device()
    refused("-m", tmp_path / "no" / "model.fits", code=3, words="does not exist")
    refused("-o", files.image, words="-o is the same file as -i")
    refused("-m", files.output, words="-m is the same file as -o")
    refused("--no-overwrite", words=("exists", "--no-overwrite"))


def test_names_of_outputs_come_before_any_work(refused, files, monkeypatch):
    monkeypatch.setattr("gpu_extract.io.image.read_image", lambda *_, **__: pytest.fail("read the image"))
    for option in ("-o", "-m", "--spectra"):
        for name in ("e.txt", "frame", "frame.fit", "frame.fits.bz2", "frame.FITS"):
            refused(option, files.output.with_name(name), words=(name, "a FITS file must end in .fits or .fits.gz"))
    for name in ("qa", "qa.fits", "qa.doc"):
        refused("--qa", files.output.with_name(name), words=(name, "a picture cannot be written as", ".png, .pdf"))


def test_names_do_not_reach_the_terminal_as_they_are(refused, extract, files):
    """A file name may contain terminal controls or characters that reverse the line."""
    message = refused("-i", "a\x1b[31m\u202eb\x9b\x7f\udc80.fits", words="no such file")
    assert "a\\x1b[31m\\u202eb\\x9b\\x7f\\udc80.fits: no such file" in message
    odd = files.output.with_name("é \x1b]0;title\x07.fits")
    done = extract("-o", odd)
    assert done.code == 0 and odd.exists()
    assert "\x1b" not in done.err and "\x07" not in done.err and "é \\x1b]0;title\\x07.fits" in done.err


def test_no_overwrite_comes_before_any_work(extract, files):
    assert extract("--no-overwrite").code == 0
    first = files.output.read_bytes()
    done = extract("--no-overwrite")
    assert done.code == 2 and "settings" not in done.err and files.output.read_bytes() == first


AS_SOMEBODY = (
    "import os, sys\n"
    "import gpu_extract.cli.job, gpu_extract.cli.report, gpu_extract.io.image, gpu_extract.io.psf, gpu_extract.plan\n"
    "import concurrent.futures.thread, gpu_extract.io.frame, gpu_extract.io.presets, gpu_extract.cli.device\n"
    "import encodings.ascii, gpu_extract.run\n"
    "from gpu_extract.cli.extract import main\n"
    "os.getuid() or os.setuid(65534)\n"
    "sys.exit(main(sys.argv[1:]))\n"
)


@pytest.mark.parametrize("what", ["image", "input's folder", "folder"])
def test_files_and_folders_without_permission_are_refused(files, what):
    """Root may do everything, so the command runs as another user."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        for source in (files.image, files.psf):
            (folder / source.name).write_bytes(source.read_bytes())
        (folder / "out").mkdir()
        (folder / "out").chmod(0o555 if what == "folder" else 0o777)
        image = folder / "image.fits"
        if what == "image":
            image.chmod(0)
        elif what == "input's folder":
            (folder / "closed").mkdir(0o700)
            image = image.rename(folder / "closed" / image.name)
        words = ["-i", image, "-p", folder / "psf.fits", "-o", folder / "out" / "f.fits", "-w", GRID]
        done = subprocess.run([sys.executable, "-c", AS_SOMEBODY, *map(str, words)], capture_output=True, text=True,
                              check=False)  # fmt: skip
        (line,) = done.stderr.splitlines()
        if what == "image":
            assert done.returncode == 2 and "image.fits: cannot be read: permission denied" in line
        elif what == "input's folder":
            assert done.returncode == 2 and "image.fits: cannot be accessed: permission denied for a folder" in line
        else:
            assert done.returncode == 3 and "is not writable" in line
        assert os.listdir(folder / "out") == []


def full_disk_says(files, output, **more):
    """The command, with far too little room for the frame."""
    output.write_bytes(OLD)
    words = ["-i", files.image, "-p", files.psf, "-o", output, "-w", GRID, "--loglevel", "error"]
    done = subprocess.run(
        [sys.executable, str(BIN), *map(str, words)], capture_output=True, text=True, check=False, **more
    )
    (line,) = done.stderr.splitlines()
    assert done.returncode == 3 and line.startswith(f"gpu_extract: error: {output}: cannot be written: ")
    assert "no file was changed" in line
    assert output.read_bytes() == OLD and os.listdir(output.parent) == [output.name]
    return line


def test_a_full_disk_leaves_the_old_file_and_no_other(files, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", str(disk)]
    made = subprocess.run(mount, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"cannot mount a small file system: {made.stderr.strip()}")
    try:
        line = full_disk_says(files, disk / "frame.fits")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert "No space left on device" in line or "MB are free on the disk" in line


def test_a_file_that_may_not_grow(files):
    limit = 20_000
    full_disk_says(files, files.output, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))


def test_traceback_only_when_debugging(extract, tmp_path):
    assert "Traceback" not in extract("-i", tmp_path / "no.fits").err
    done = extract("-i", tmp_path / "no.fits", "--loglevel", "debug")
    assert done.code == 2 and "Traceback" in done.err
    assert sum(line.startswith("gpu_extract: error: ") for line in done.err.splitlines()) == 1


def test_an_unexpected_exception_is_one_line_and_code_4(extract, files, monkeypatch):
    def explode(*_, **__):
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr("gpu_extract.run.extract", explode)
    done = extract()
    assert done.code == 4 and "internal error: ZeroDivisionError: two lines" in done.error
    monkeypatch.setattr("gpu_extract.run.extract", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt()))
    done = extract()
    assert done.code == 75 and "start again" in done.error
    monkeypatch.setattr("gpu_extract.run.extract", lambda *_, **__: (_ for _ in ()).throw(MemoryError()))
    done = extract()
    assert done.code == 4 and "out of memory" in done.error
    assert not files.output.exists()
