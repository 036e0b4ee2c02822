"""If a frame's inputs have changed, it is made again, with the reason logged. Two runs in one folder."""
import gzip
import json
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from astropy.io import fits

from gpu_extract.cli.exposure import main
from gpu_extract.cli.exposure_list import find_entries
from gpu_extract.cli.exposure_options import build_parser
from gpu_extract.cli.exposure_work import Files
from gpu_extract.cli.extract import main as extract_one
from gpu_extract.config import MATHEMATICS, ExtractConfig
from gpu_extract.exposure.frames import State
from gpu_extract.io import sources
from gpu_extract.io.sources import stamp
from gpu_extract.io.whose import claim, lock_name
from gpu_extract.simulate import SimConfig, simulate, write_simulation
from mpi_launch import finish
from nights import GRID, PROGRAM, Night, assert_all_there


def rebuilt(path: Path, seed: int, *, sums: bool = True) -> None:
    """Another image under the same name; `sums`: with DATASUM, as ours have."""
    write_simulation(simulate(SimConfig(camera="tiny", seed=seed)), path, psf=path.with_name("unused.fits"))
    path.with_name("unused.fits").unlink()
    if not sums:
        strip(path)


def strip(path: Path) -> None:
    """Remove the sums from a file."""
    with fits.open(path) as hdus:
        for hdu in hdus:
            for key in ("CHECKSUM", "DATASUM"):
                hdu.header.remove(key, ignore_missing=True)
        hdus.writeto(path, overwrite=True)


def reasons(capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Frame -> its outcome, and frame -> why it was made again."""
    err = capsys.readouterr().err
    again = dict(line.split(": extracted again: ") for line in err.splitlines() if ": extracted again: " in line)
    rows = [line.split() for line in err[err.index("\nstate  "):].splitlines() if ".fits" in line]
    return {row[-1]: row[0] for row in rows}, again


@pytest.fixture
def inputs(night: Night, tmp_path: Path) -> Path:
    """Copies of two images and the PSF."""
    made = tmp_path / "in"
    made.mkdir()
    for path in (*night.images[:2], night.psf):
        shutil.copy2(path, made / path.name)
    return made


def replace_image(folder: Path) -> None:
    rebuilt(folder / "preproc-r0-00000001.fits", 99)


def edit_header(folder: Path) -> None:
    with fits.open(folder / "preproc-r0-00000001.fits", mode="update", disable_image_compression=True) as hdus:
        hdus[0].header["OBJECT"] = "another"
        hdus[0].add_checksum()


def touch(folder: Path) -> None:
    for path in folder.iterdir():
        os.utime(path)


def checksum_again(folder: Path) -> None:
    """Rewritten with the same content: other dates in the comments of the sums."""
    with fits.open(folder / "preproc-r0-00000001.fits", mode="update", disable_image_compression=True) as hdus:
        for hdu in hdus:
            if "DATASUM" in hdu.header:
                hdu.add_checksum(when="another day")


@pytest.mark.parametrize(("change", "reason"), [
    (replace_image, "image replaced"), (edit_header, "image replaced"), (touch, None), (checksum_again, None)])
def test_an_image_that_was_replaced(inputs: Path, folder: Path, capsys: pytest.CaptureFixture[str], change: object,
                                    reason: str | None) -> None:
    """The other frames are skipped, as is that of an image with the same content."""
    command = ["-i", f"{inputs}/preproc-*.fits", "-p", str(inputs / "psf.fits"), "-w", GRID, "-o", str(folder)]
    assert main(command) == 0
    capsys.readouterr()
    change(inputs)               # type: ignore[operator]
    assert main(command) == 0
    first, second = "frame-r0-00000001.fits", "frame-r1-00000001.fits"
    expected = {first: "done" if reason else "skipped", second: "skipped"}, {first: reason} if reason else {}
    assert reasons(capsys) == expected


def test_a_dropped_fibre_is_told_of(inputs: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the frame that it is dropped from."""
    with fits.open(inputs / "psf.fits", mode="update") as hdus:
        hdus["PSF"].data["COEFF"][0, 1] = float("nan")
        for hdu in hdus[1:]:
            hdu.add_checksum()
    image = inputs / "preproc-r0-00000001.fits"
    assert main(["-i", str(image), "-p", str(inputs / "psf.fits"), "-w", GRID, "-o", str(folder)]) == 0
    said = capsys.readouterr().err
    assert "frame-r0-00000001.fits: fibre 1 is dropped: its PSF has values that are not finite" in said
    assert "frame-r0-00000001.fits: a dropped fibre is not modelled" in said


def test_what_else_was_replaced(night: Night, inputs: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """PSF, settings, folder, version: each is reported; a run in between without changes skips."""
    image, psf, name = inputs / "preproc-r0-00000001.fits", inputs / "psf.fits", "frame-r0-00000001.fits"
    other = inputs / "night2"
    other.mkdir()
    words = ["-w", GRID, "-o", str(folder)]

    def again(reason: str | None, *options: str, image: Path = image) -> None:
        assert main(["-i", str(image), "-p", str(psf), *words, *options]) == 0
        assert reasons(capsys) == ({name: "done" if reason else "skipped"}, {name: reason} if reason else {})

    assert main(["-i", str(image), "-p", str(psf), *words]) == 0
    capsys.readouterr()
    again(None)
    with fits.open(psf, mode="update") as hdus:
        hdus[0].header["PSFERR"] = 0.011
        hdus[0].add_checksum()
    again("PSF replaced", "--psferr", "0.01")
    again(None, "--psferr", "0.01")
    again("other settings: psferr was 0.01", "--psferr", "0.02")
    again("--recompute", "--psferr", "0.02", "--recompute")
    shutil.copy(image, other / image.name)                      # the same content
    again(None, "--psferr", "0.02", image=other / image.name)
    rebuilt(other / image.name, 98)
    again(f"image of another folder: was {inputs}", "--psferr", "0.02", image=other / image.name)


def test_frames_of_other_versions_are_made_again(night: Night, folder: Path, capsys: pytest.CaptureFixture[str],
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    command, name = ["-i", str(night.images[0]), *night.options[6:], "-o", str(folder)], night.frames[0].name
    assert main(command) == 0
    capsys.readouterr()
    with monkeypatch.context() as later:
        later.setattr(sources, "MATHEMATICS", MATHEMATICS + 1)
        assert main(command) == 0
        said = f"made by version {MATHEMATICS} of the mathematics, this is {MATHEMATICS + 1}"
        assert reasons(capsys)[1] == {name: said}
    assert main(command) == 0
    capsys.readouterr()
    with fits.open(folder / name, mode="update") as hdus:
        del hdus[0].header["SUM_IMG"]
        hdus[0].add_checksum()
    assert main(command) == 0
    assert reasons(capsys)[1] == {name: "made by an older version, which did not record its input"}
    with fits.open(folder / name, mode="update") as hdus:           # from before settings had a stamp
        was = json.loads(hdus[0].header["CFGTEXT"])
        del was["background"]
        hdus[0].header["CFGTEXT"], hdus[0].header["CFGHASH"] = json.dumps(was), "another"
        hdus[0].add_checksum()
    assert main(command) == 0
    assert reasons(capsys) == ({name: "skipped"}, {})


def test_a_fibermap_of_its_own(night: Night, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A frame that gpu_extract made with -f differs from an exposure's; with the same settings and -m it does not."""
    name, (image, *_) = night.frames[0].name, night.images
    one = ["-i", str(image), "-p", str(night.psf), "-w", GRID, "-o", str(folder / name)]
    table = tmp_path / "fibermap.fits"
    with fits.open(image) as hdus:
        fits.HDUList([fits.PrimaryHDU(), hdus["FIBERMAP"]]).writeto(table)
    command = ["-i", str(image), *night.options[6:], "-o", str(folder)]
    assert extract_one([*one, "-f", str(table)]) == 0
    assert fits.getheader(folder / name)["IN_FMAP"] == str(table)
    assert main(command) == 0
    assert reasons(capsys)[1] == {name: "other fibermap"}
    assert extract_one([*one, "-m", str(folder / "model.fits")]) == 0
    assert main(command) == 0
    assert reasons(capsys) == ({name: "skipped"}, {})
    frame, model = fits.getheader(folder / name), fits.getheader(folder / "model.fits")
    for key in ("CFGHASH", "CFGTEXT", "MATHVER", "IN_IMG", "IN_PSF", "SUM_IMG", "SUM_PSF"):
        assert frame[key] == model[key]


@pytest.mark.parametrize("name", ["préproc-räumlich 1%.fits", "a\udcff&.fits ", "plain.fits"])
def test_names_that_are_not_ascii(night: Night, folder: Path, tmp_path: Path, name: str,
                                  capsys: pytest.CaptureFixture[str]) -> None:
    assert sources.from_ascii(sources.as_ascii(name)) == name and sources.as_ascii(name).isascii()
    image, output = tmp_path / "Nächte" / name, folder / "frame.fits"
    image.parent.mkdir()
    image.symlink_to(night.images[0])
    made_of = {"IMG": str(image), "PSF": str(night.psf)}
    assert extract_one(["-i", str(image), "-p", str(night.psf), "-w", GRID, "-o", str(output)]) == 0
    header = fits.getheader(output)
    assert sources.from_ascii(header["IN_IMG"]) == str(image)
    settings = ExtractConfig(**{**json.loads(header["CFGTEXT"]), "wavelength": tuple(map(float, GRID.split(",")))})
    assert sources.why_again(output, made_of, lambda _: settings) is None
    other = {**made_of, "IMG": str(image)[:-1] + "x"}
    assert sources.why_again(output, other, lambda _: settings) == f"other image: was {name}"


def test_two_runs_in_one_folder_share_frames(night: Night, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One frame is claimed by another run, one was by a killed run, and one is made while it is looked at."""
    command, names = [*night.options, "-o", str(folder)], [path.name for path in night.frames]
    theirs = claim(folder / names[0])
    assert theirs is not None
    lock_name(folder / names[1]).touch()
    assert main(command) == 75
    err = capsys.readouterr().err
    assert f"elsewhere        -     0  {names[0]}" in err
    assert "another run is working on 1 of the frames; 5 frames: 4 done, 1 elsewhere; start again" in err
    assert sorted(path.name for path in folder.iterdir()) == sorted([lock_name(folder / names[0]).name, *names[1:]])
    theirs.release()
    assert main(command) == 0
    assert_all_there(night, folder)


@pytest.mark.slow
def test_two_runs_at_once_make_each_frame_once(night: Night, folder: Path) -> None:
    command = [sys.executable, str(PROGRAM), *night.options, "-o", str(folder)]
    with ThreadPoolExecutor() as two:
        ended = list(two.map(finish, [command, command]))
    assert {one.code for one in ended} <= {0, 75}
    done = [line.split()[-1] for one in ended for line in one.err.splitlines() if line.startswith("done ")]
    assert sorted(done) == sorted(path.name for path in night.frames)
    assert_all_there(night, folder)


def test_a_frame_that_another_run_has_made_meanwhile_is_skipped(night: Night, folder: Path) -> None:
    parser = build_parser()
    args = parser.parse_args([*night.options, "-o", str(folder)])
    files = Files(find_entries(args), args)
    assert not files.is_done(0)
    shutil.copy(night.frames[0], folder)
    assert files.claim(0) == State.SKIPPED and not lock_name(folder / night.frames[0].name).exists()
    assert files.claim(1) is None
    assert Files(find_entries(args), args).claim(1) == State.ELSEWHERE
    files.tidy_up()
    assert [path.name for path in folder.iterdir()] == [night.frames[0].name]


def test_stamps_of_files_notice_changes_of_their_content(night: Night, tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """By kind: what they notice, and what they do not."""
    monkeypatch.setattr("gpu_extract.io.sources._SMALL", 10_000)         # the mask is small, the images are not
    plain, packed, bare = (tmp_path / name for name in ("plain.fits", "packed.fits.gz", "bare.fits"))
    shutil.copy(night.images[0], plain)
    packed.write_bytes(gzip.compress(plain.read_bytes(), mtime=1))
    shutil.copy(plain, bare)
    strip(bare)
    files = plain, packed, bare
    before = [stamp(path) for path in files]
    assert [text.split()[0] for text in before] == ["sums", "gzip", "file"] and max(map(len, before)) <= 68
    for path in files:
        os.utime(path, (1, 1))
    assert [stamp(path) == text for path, text in zip(files, before, strict=True)] == [True, True, False]
    content = bytearray(plain.read_bytes())
    content[len(content) // 2 + 7] ^= 1                    # within the pixels
    packed.write_bytes(gzip.compress(bytes(content), mtime=1))
    assert stamp(packed) != before[1]
    assert stamp(tmp_path / "none.fits") == "" and stamp(tmp_path) == ""
    mask = bytearray(plain.read_bytes())
    mask[mask.index(b"XTENSION= 'BINTABLE'") + 2880 + 100] ^= 1          # within an HDU without DATASUM
    plain.write_bytes(mask)
    assert stamp(plain).startswith("sums ") and stamp(plain) != before[0]
    for cards in (b"", b"SIMPLE  = T", b"SIMPLE  =                    T" + b" " * 50 + b"NAXIS   = 9999999999",
                  plain.read_bytes()[:5000], plain.read_bytes() + b"x"):
        bare.write_bytes(cards.ljust(2880))
        assert stamp(bare).startswith("file ")
