"""Files appear complete or not at all: real full disks, read-only folders and interrupted writers."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from outside import largest_file

from gpu_extract.cli.exposure import no_empty_folder
from gpu_extract.errors import InputError, OutputError
from gpu_extract.io.atomic import atomic, check_apart, check_target, temporary_name
from gpu_extract.io.whose import remove_unclaimed


@contextmanager
def tiny_disk(folder, size="64k"):
    """A real file system of this size."""
    folder.mkdir(exist_ok=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip(f"cannot mount a small file system: {made.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_the_file_is_there_when_the_block_ends_and_not_before(tmp_path):
    path = tmp_path / "frame.fits"
    path.write_text("old")
    with atomic(path) as temporary:
        assert temporary.parent == tmp_path and temporary.suffix == ".fits"
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new" and os.listdir(tmp_path) == ["frame.fits"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, OutputError])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "frame.fits"
    path.write_text("old")
    with pytest.raises(error), atomic(path) as temporary:
        temporary.write_text("half")
        raise error
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["frame.fits"]


def test_names_are_unique_say_who_and_keep_the_extension(tmp_path):
    names = [temporary_name(tmp_path / "frame-r0.fits.gz") for _ in range(50)]
    assert len(set(names)) == 50
    assert all(re.fullmatch(rf"\.frame-r0\.tmp-[^/]+-{os.getpid()}-[0-9a-f]{{8}}\.fits\.gz", n.name) for n in names)
    assert len(temporary_name(tmp_path / ("x" * 250 + ".fits")).name) <= 255
    assert temporary_name(Path("/a/b.c.fits")).name.startswith(".b.c.tmp-")


def test_a_full_disk_leaves_the_old_file(tmp_path):
    with tiny_disk(tmp_path / "disk") as disk:
        path = disk / "frame.fits"
        path.write_text("old")
        with (
            pytest.raises(OutputError, match="No space left on device; no file was changed"),
            atomic(path) as temporary,
        ):
            temporary.write_bytes(bytes(200_000))
        assert path.read_text() == "old" and os.listdir(disk) == ["frame.fits"]


def test_a_file_that_may_not_grow(tmp_path):
    with (
        largest_file(1000),
        pytest.raises(OutputError, match="File too large"),
        atomic(tmp_path / "a.fits") as temporary,
    ):
        temporary.write_bytes(bytes(5000))
    assert os.listdir(tmp_path) == []


def test_targets_that_cannot_be_files(tmp_path):
    for path, words in (
        (tmp_path, "is a folder"),
        (tmp_path / "no" / "a.fits", "does not exist"),
        (Path("/dev/null"), "not a regular file"),
    ):
        with pytest.raises(OutputError, match=words):
            check_target(path)
    assert Path("/dev/null").is_char_device()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OutputError, match="not a regular file"), atomic(tmp_path / "pipe"):
        pass


def test_a_link_to_an_open_pipe_is_no_target():
    """As /dev/stdout is before `| less`: it was noticed only when the file was written, after the work."""
    ends = os.pipe()
    try:
        with pytest.raises(OutputError, match="not a regular file"):
            check_target(f"/proc/self/fd/{ends[1]}")
    finally:
        for end in ends:
            os.close(end)


def test_a_folder_that_may_not_be_written():
    """Root may write everywhere, so the check runs as another user."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    code = (
        "import os, sys\n"
        "from gpu_extract.io.atomic import check_target\n"
        "from gpu_extract.errors import OutputError\n"
        "os.getuid() or os.setuid(65534)\n"
        "try:\n    check_target(sys.argv[1])\n"
        "except OutputError as error:\n    print(error)\n"
    )
    try:
        found = subprocess.run(
            [sys.executable, "-c", code, str(folder / "a.fits")], capture_output=True, text=True, check=True
        )
    finally:
        folder.rmdir()
    assert "is not writable; change its permissions" in found.stdout


def test_a_name_that_is_too_long(tmp_path):
    with pytest.raises(OutputError, match="cannot be written: File name too long; change the permissions, or give"):
        check_target(tmp_path / ("x" * 251 + ".fits"))


@pytest.mark.parametrize("check", ["check_target", "check_folder"])
def test_a_folder_that_may_not_be_searched(check):
    """No file in it can be checked: Path.is_dir and Path.exists raise there."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o000)
    code = (
        "import os, sys\n"
        f"from gpu_extract.io.atomic import {check} as check\n"
        "from gpu_extract.errors import OutputError\n"
        "os.getuid() or os.setuid(65534)\n"
        "try:\n    check(sys.argv[1])\n"
        "except OutputError as error:\n    print(error)\n"
    )
    try:
        found = subprocess.run(
            [sys.executable, "-c", code, str(folder / "a" / "b.fits")], capture_output=True, text=True, check=True
        )
    finally:
        folder.rmdir()
    assert "cannot be written: Permission denied; change the permissions" in found.stdout


def test_an_output_is_no_input_and_no_other_output(tmp_path):
    """Under any name, links included; options that name no file are no file."""
    image, link, new = (str(tmp_path / name) for name in ("image", "link", "new"))
    Path(image).touch()
    Path(link).symlink_to(image)
    for one, other in ((image, image), (image, link), (link, image), (image, f"{tmp_path}/x/../image")):
        for inputs, outputs in (([("-i", one)], [("-o", other)]), ([], [("-i", one), ("-o", other)])):
            with pytest.raises(InputError, match="-o is the same file as -i; give it another name"):
                check_apart(inputs, outputs)
    check_apart([("-i", image), ("-p", image), ("-f", None)], [("-o", new), ("-m", None), ("-q", None)])


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "real.fits").write_text("old")
    link = tmp_path / "link.fits"
    link.symlink_to(tmp_path / "data" / "real.fits")
    with atomic(link) as temporary:
        temporary.write_text("new")
    assert link.is_symlink() and (tmp_path / "data" / "real.fits").read_text() == "new"


def test_a_killed_writer_leaves_the_old_file(tmp_path):
    path = tmp_path / "frame.fits"
    path.write_text("old")
    code = (
        "import os, sys, signal\nfrom gpu_extract.io.atomic import atomic\n"
        "with atomic(sys.argv[1]) as t:\n    t.write_text('half')\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -signal.SIGKILL
    assert path.read_text() == "old"


def test_names_that_nothing_can_have_hold_up_nobody(tmp_path):
    """Path.exists raises for them; the check whether such an output can be written reports it."""
    name = tmp_path / ("x" * 300)
    remove_unclaimed([name])
    with no_empty_folder(str(name)):
        pass
