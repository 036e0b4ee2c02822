"""Existing frames are not made again, unless they are incomplete or were made otherwise. One process."""
import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_extract.cli.exposure import main
from gpu_extract.errors import OutputError
from mpi_launch import finish
from nights import GRID, PROGRAM, Night, assert_all_there, datasums


def states(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Frame -> its outcome, from the table."""
    lines = capsys.readouterr().err.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("state"))
    rows = [line.split() for line in lines[first + 1:] if ".fits" in line and not line.startswith("gpu_")]
    return {row[-1] if row[0] != "failed" else row[3].rstrip(":"): row[0] for row in rows}


def test_a_command_given_again_makes_lost_and_damaged_frames(night: Night, folder: Path,
                                                             capsys: pytest.CaptureFixture[str]) -> None:
    command = [*night.options, "-o", str(folder)]
    names = [path.name for path in night.frames]
    assert main(command) == 0
    assert states(capsys) == dict.fromkeys(names, "done")
    assert_all_there(night, folder)

    before = {name: (folder / name).stat().st_mtime_ns for name in names}
    content = bytearray((folder / names[1]).read_bytes())
    content[len(content) // 2] ^= 1                       # one bit
    (folder / names[1]).write_bytes(content)
    os.truncate(folder / names[2], 30000)
    (folder / names[3]).unlink()
    assert main(command) == 0
    wanted = {name: "done" if n in (1, 2, 3) else "skipped" for n, name in enumerate(names)}
    assert states(capsys) == wanted
    assert_all_there(night, folder)
    untouched = [name for name in names if (folder / name).stat().st_mtime_ns == before[name]]
    assert untouched == [names[0], names[4]]

    assert main([*command, "--psferr", "0.02", "-i", str(night.images[0])]) == 0      # other settings
    assert states(capsys) == {names[0]: "done"}
    assert main([*command, "-i", str(night.images[0])]) == 0
    assert states(capsys) == {names[0]: "done"}
    assert main([*command, "--recompute", "-i", str(night.images[0])]) == 0
    assert states(capsys) == {names[0]: "done"}
    other = folder.parent / "preproc-r0-00000001.fits"                                # the same name elsewhere
    other.symlink_to(night.images[0])
    assert main([*command, "-i", str(other)]) == 0
    assert states(capsys) == {names[0]: "skipped"}
    assert_all_there(night, folder)


@pytest.mark.parametrize("more", [[], ["--recompute"]])
def test_what_is_no_frame_is_not_replaced(night: Night, folder: Path, tmp_path: Path,
                                          capsys: pytest.CaptureFixture[str], more: list[str]) -> None:
    """A list's third word that is no output: a PSF, or an image that no other line names. The others continue."""
    for name, source in (("flat.fits", night.images[2]), ("other.fits.gz", night.psf)):
        content = source.read_bytes()
        (tmp_path / name).write_bytes(gzip.compress(content, 1) if name.endswith("gz") else content)
    before = {name: (tmp_path / name).read_bytes() for name in ("flat.fits", "other.fits.gz")}
    rows = [f"{image} {night.psf} {output}" for image, output in zip(
        night.images, ["flat.fits", "other.fits.gz", "frame.fits"], strict=False)]
    (tmp_path / "list").write_text("\n".join(rows))
    assert main([str(tmp_path / "list"), "-w", GRID, *more]) == 3
    said = capsys.readouterr().err
    assert f"{tmp_path}/flat.fits: exists and is not a frame (its HDUs are IMAGE, IVAR" in said
    assert f"{tmp_path}/other.fits.gz: exists and is not a frame (its HDUs are " in said
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert (tmp_path / "frame.fits").exists()


def test_an_output_is_not_the_list(night: Night, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "list.fits").write_text(f"{night.images[0]} {night.psf} list.fits")
    assert main([str(tmp_path / "list.fits"), "-w", GRID]) == 2
    assert "a frame is the same file as the list" in capsys.readouterr().err


def test_the_barycentric_factor_needs_no_image(night: Night, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The settings of an existing frame are found from its own header."""
    command = ["-i", str(night.images[0]), "-p", str(night.psf), "-w", GRID, "-o", str(folder),
               "--barycentric-correction", "--loglevel", "info"]
    assert main(command) == 0
    assert set(states(capsys).values()) == {"done"}
    assert main(command) == 0
    assert set(states(capsys).values()) == {"skipped"}


def test_bad_input_does_not_stop_the_others(night: Night, folder: Path, tmp_path: Path,
                                            capsys: pytest.CaptureFixture[str]) -> None:
    whole = night.images[1].read_bytes()
    (tmp_path / "preproc-r7-1.fits").write_bytes(whole[:len(whole) // 2])
    (tmp_path / "preproc-r8-1.fits").mkdir()
    (tmp_path / "list").write_text(
        f"{night.images[0]} {night.psf}\n{tmp_path}/preproc-r7-1.fits {night.psf}\n{night.images[1]} no-psf.fits\n"
        f"{tmp_path}/preproc-r8-1.fits {night.psf}\n{night.images[2]} {night.psf}\n"
        f"{night.images[3]} {night.psf}\n{night.images[4]} {night.psf}\n")
    assert main([str(tmp_path / "list"), "-o", str(folder), "-w", GRID]) == 2
    err = capsys.readouterr().err
    for name, words in (("frame-r7-1.fits", "truncated"), ("frame-r1-00000001.fits", "no such file"),
                        ("frame-r8-1.fits", "not a regular file")):
        assert f"error: {name}: " in err and f"failed           -     0  {name}: " in err and words in err
    assert "7 frames: 4 done, 3 failed" in err
    last = err.splitlines()[-1]
    assert last.startswith("gpu_extract_exposure: error: 3 of 7 frames failed: frame-r7-1.fits, ")
    assert_all_there(night, folder, [0, 2, 3, 4])
    assert main([str(tmp_path / "list"), "-o", str(folder), "-w", GRID, "--groups", "0"]) == 2


def test_an_absurd_header_costs_its_own_frame_alone(night: Night, folder: Path, tmp_path: Path) -> None:
    """Such a header once kept the reader busy for ever, and the next frames waiting."""
    content = night.images[0].read_bytes()
    start = content.index(b"NAXIS2  =")
    absurd = tmp_path / "preproc-r7-1.fits"
    absurd.write_bytes(content[:start] + b"NAXIS2  =                  -60".ljust(80) + content[start + 80:])
    words = ["-i", str(absurd), str(night.images[1]), "-p", str(night.psf), "-w", GRID, "-o", str(folder)]
    ended = finish([sys.executable, str(PROGRAM), *words], 120)
    assert ended.code == 2 and "frame-r7-1.fits: " in ended.err and "NAXIS2 is -60, must be 0 or more" in ended.err
    assert_all_there(night, folder, [1])


def test_a_disk_that_is_full(night: Night, folder: Path) -> None:
    """Room for three and a half frames."""
    room = int(3.5 * night.frames[0].stat().st_size)
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={room}", "tmpfs", str(folder)], capture_output=True,
                          check=False)
    if made.returncode != 0:
        pytest.skip("cannot mount a small file system")
    try:
        ended = finish([sys.executable, str(PROGRAM), *night.options, "-o", str(folder)])
        assert ended.code == 3 and "2 failed" in ended.err
        assert "No space left" in ended.err or "MB are free" in ended.err
        assert_all_there(night, folder, [0, 1, 2])
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        ended = finish([sys.executable, str(PROGRAM), *night.options, "-o", str(folder)])
        assert ended.code == 3 and "3 skipped, 2 failed" in ended.err and "not writable" in ended.err
        assert_all_there(night, folder, [0, 1, 2])
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_run_that_fails_leaves_no_empty_folder(night: Night, tmp_path: Path,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    """It is made when the first frame is written, and removed if that fails."""
    new = tmp_path / "new" / "out"
    cut = tmp_path / "preproc-r7-1.fits"
    cut.write_bytes(night.images[0].read_bytes()[:20000])
    for images, code in (([str(tmp_path / "no*.fits")], 2), ([str(cut)], 2)):
        assert main(["-i", *images, "-p", str(night.psf), "-w", GRID, "-o", str(new)]) == code
        assert not new.parent.exists()
    (tmp_path / "file").touch()
    assert main([*night.options, "-o", str(tmp_path / "file" / "out")]) == 3
    assert "is not a folder; remove it, or give another name" in capsys.readouterr().err
    assert main(["-i", str(cut), str(night.images[0]), "-p", str(night.psf), "-w", GRID, "-o", str(new)]) == 2
    assert_all_there(night, new, [0])


def test_the_folder_is_taken_away_where_the_first_write_fails(night: Night, tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        assert (tmp_path / "out").is_dir()
        raise OutputError("no room")

    monkeypatch.setattr("gpu_extract.io.frame.write_frame", full)
    assert main(["-i", str(night.images[0]), "-p", str(night.psf), "-w", GRID, "-o", str(tmp_path / "out")]) == 3
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("words", "said"), [
    ([], "nothing is given; give a list, -i PATTERN or --simulate N"),
    (["list", "--simulate", "3"], "a list and --simulate is given"),
    (["--simulate", "0", "-o", "o"], "--simulate is 0"),
    (["--simulate", "2"], "--simulate needs -o FOLDER"),
    (["--simulate", "2", "-p", "x", "-o", "o"], "leave -p out")])
def test_options_that_make_no_sense(words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                    capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert said in capsys.readouterr().err


def test_simulated_frames_are_made_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--simulate", "2", "--camera", "tiny,tiny3", "-w", GRID, "-o", str(folder)]
    assert main(command) == 0
    assert capsys.readouterr().err.count("simulating ") == 2
    sums = [datasums(folder / f"frame-{camera}-0000000{n}.fits") for n, camera in ((1, "tiny"), (2, "tiny3"))]
    assert sums[0]["FLUX"] != sums[1]["FLUX"]
    assert main([*command, "--recompute"]) == 0
    err = capsys.readouterr().err
    assert "simulating " not in err and "2 frames: 2 done" in err


def test_options_without_effect_are_said_to_be_ignored(night: Night, folder: Path,
                                                       capsys: pytest.CaptureFixture[str]) -> None:
    """As in gpu_extract; the frame is that of a run without them."""
    words = ["-i", str(night.images[0]), "-p", str(night.psf), "-w", GRID, "-o", str(folder)]
    assert main([*words, "--tail-radius", "20", "--nsubbundles", "2"]) == 0
    text = capsys.readouterr().err
    assert "warning: --tail-radius is ignored: there is only one pass" in text
    assert "warning: --nsubbundles is ignored by the banded core" in text
    assert_all_there(night, folder, [0])
    assert main([*words, "--background"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "background is 2, but a single pass fits none" in line
