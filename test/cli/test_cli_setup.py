"""gpu_setup: a loader for specutils, templates, and the workflows among them."""
import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from outside import largest_file

from gpu_extract.cli.setup import LOADER_TEXT, main
from gpu_extract.errors import ExitCode
from gpu_extract.io.image import write_image
from gpu_extract.io.psf import write_psf
from gpu_extract.simulate import SimConfig, simulate

ROOT = Path(__file__).resolve().parents[2]
GRID = "6020,6060,0.85"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home folder."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_the_loader_is_put_where_specutils_looks(home, capsys):
    loader = home / ".specutils" / "gpu_extract_frames.py"
    assert main(["specutils"]) == 0 and loader.read_text() == LOADER_TEXT
    assert capsys.readouterr().out == f"written: {loader}\n"
    assert main(["specutils"]) == 0
    assert capsys.readouterr().out == f"is there: {loader}\n"
    loader.write_bytes(b"mine \xff\n")
    assert main(["specutils"]) == ExitCode.INPUT and loader.read_bytes() == b"mine \xff\n"
    assert "exists with other content" in capsys.readouterr().err


def test_specutils_opens_frames_without_an_import(home, tmp_path):
    pytest.importorskip("specutils", reason="specutils is not installed")
    from edge_files import small_frame
    from gpu_extract.io.frame import write_frame

    write_frame(tmp_path / "frame.fits", small_frame())
    code = ("import sys, warnings; warnings.simplefilter('ignore'); from specutils import Spectrum\n"
            "print(Spectrum.read(sys.argv[1]).flux.shape)")

    def read():
        return subprocess.run([sys.executable, "-c", code, str(tmp_path / "frame.fits")], capture_output=True,
                              text=True, env={**os.environ, "HOME": str(home)})

    assert read().returncode != 0                    # as in specutils itself
    assert main(["specutils"]) == 0
    done = read()
    assert done.returncode == 0 and done.stdout.split("\n")[-2] == "(4, 30)", done.stderr


def test_templates_are_copied_and_never_replaced(tmp_path, capsys):
    assert main(["templates", str(tmp_path / "jobs")]) == 0
    assert (tmp_path / "jobs" / "slurm" / "exposure.sh").is_file()
    for path in (tmp_path / "jobs" / "workflow").glob("*.py"):
        ast.parse(path.read_text())
    (tmp_path / "jobs" / "workflow" / "Snakefile").write_text("mine\n")
    assert main(["templates", str(tmp_path / "jobs")]) == ExitCode.INPUT
    assert (tmp_path / "jobs" / "workflow" / "Snakefile").read_text() == "mine\n"
    (tmp_path / "file").write_text("")
    capsys.readouterr()
    assert main(["templates", str(tmp_path / "file" / "jobs")]) == ExitCode.OUTPUT
    assert "is not a folder; remove it" in capsys.readouterr().err


def test_a_full_disk_leaves_no_template(tmp_path, capsys):
    """Only the first two were written, and stayed."""
    mine = tmp_path / "jobs" / "slurm" / "extract.sh"
    mine.parent.mkdir(parents=True)
    shutil.copy(ROOT / "etc" / "slurm" / "extract.sh", mine)
    with largest_file(2000):
        assert main(["templates", str(tmp_path / "jobs")]) == ExitCode.OUTPUT
    assert "File too large" in capsys.readouterr().err
    assert [path for path in (tmp_path / "jobs").rglob("*") if path.is_file()] == [mine]
    assert not (tmp_path / "jobs" / "workflow").exists()


def test_all_is_written_though_nobody_reads_what(tmp_path):
    """With `| head`, templates after those that were printed were once missing."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, str(ROOT / "bin" / "gpu_setup"), "templates", str(tmp_path / "jobs")],
                          stdout=write, stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    os.close(write)
    assert done.returncode == ExitCode.DONE and done.stderr == b""
    assert main(["templates", str(tmp_path / "whole")]) == 0
    names = [sorted(path.name for path in (tmp_path / folder).rglob("*")) for folder in ("jobs", "whole")]
    assert names[0] == names[1]


def test_the_preset_template_can_be_used():
    from gpu_extract.io.presets import find_preset

    file = str(ROOT / "etc" / "workflow" / "presets.ini")
    assert find_preset(file, "r3").name == "coarse-r" and find_preset(f"{file}:halpha").wavelength[2] == 0.4


@pytest.fixture
def small_night(tmp_path):
    """Two small exposures of a camera, with their PSFs: (folder, environment)."""
    night = tmp_path / "night"
    night.mkdir()
    for expid in (1, 2):
        made = simulate(SimConfig(camera="tiny", expid=expid, seed=expid))
        write_image(night / f"preproc-r0-{expid:08d}.fits", made.image, mask=made.mask)
        write_psf(night / f"psf-r0-{expid:08d}.fits", made.psf)
    programs = tmp_path / "programs"
    programs.mkdir()
    program = programs / "gpu_extract"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} {ROOT / 'bin' / 'gpu_extract'} \"$@\"\n")
    program.chmod(0o755)
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return night, {**os.environ, "PATH": path}


def frames(folder):
    return sorted(path.name for path in folder.glob("frame-*.fits"))


@pytest.mark.slow
def test_a_night_with_snakemake(small_night, tmp_path):
    pytest.importorskip("snakemake", reason="snakemake is not installed")
    night, environment = small_night
    words = [sys.executable, "-m", "snakemake", "-s", str(ROOT / "etc/workflow/Snakefile"), "--cores", "2", "--config",
             f"night={night}", "frames=frames", "suffix=.fits", f"options=-w {GRID}"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert frames(tmp_path / "frames") == ["frame-r0-00000001.fits", "frame-r0-00000002.fits"]
    again = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0 and "Nothing to be done" in again.stdout + again.stderr


@pytest.mark.slow
def test_a_night_with_parsl(small_night, tmp_path):
    """One frame fails without its PSF, the other is made; started again with the PSF, it makes the first."""
    pytest.importorskip("parsl", reason="parsl is not installed")
    night, environment = small_night
    psf = night / "psf-r0-00000002.fits"
    shutil.move(psf, tmp_path / "psf.fits")
    words = [sys.executable, str(ROOT / "etc/workflow/night_with_parsl.py"), str(night), "frames", "--", "-w", GRID]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "2 frames started, 1 failed" in done.stdout, done.stderr
    assert "r0-00000002: gpu_extract: error: " in done.stderr and "psf-r0-00000002.fits" in done.stderr
    assert frames(tmp_path / "frames") == ["frame-r0-00000001.fits"]
    shutil.move(tmp_path / "psf.fits", psf)
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "1 frames started, 0 failed" in done.stdout, done.stderr
    assert len(frames(tmp_path / "frames")) == 2


@pytest.mark.slow
def test_the_checks_of_reframe(small_night, tmp_path):
    """A correct installation has its speed measured; one that gives other numbers does not."""
    pytest.importorskip("reframe", reason="reframe is not installed")
    _, environment = small_night

    def check():
        words = [Path(sys.executable).parent / "reframe", "-c", ROOT / "etc/workflow/reframe_check.py", "-r",
                 "--prefix", tmp_path / "out", "-n", "CorrectCheck", "-n", "RanksCheck.*ranks=1",
                 "--performance-report"]
        return subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500)

    done = check()
    assert done.returncode == 0 and "2/2 test case(s)" in done.stdout, done.stdout + done.stderr
    assert "extraction" in done.stdout
    program = tmp_path / "programs" / "gpu_extract"
    program.write_text("#!/bin/sh\necho 'they differ'\nexit 1\n")
    broken = check()
    assert broken.returncode != 0 and "2 failure(s)" in broken.stdout
