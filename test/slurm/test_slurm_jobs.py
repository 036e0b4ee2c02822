"""The templates of slurm/ on a real Slurm: jobs that run, are killed, requeued, cancelled."""
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cluster import Cluster

from gpu_perf.sweep_results import read_rows
from mpi_launch import ROOT, wait_for_none
from nights import GRID, Night, assert_all_there

PROGRAM = ROOT / "bin" / "gpu_extract_exposure"
DRIVER = ROOT / "test" / "exposure" / "faulty.py"


def variables(python: str = sys.executable, mpi: str = "pmi2") -> dict[str, str]:
    """What the templates require."""
    return {"PYTHON": python, "MPI": mpi}


def submit(slurm: Cluster, template: Path, log: Path, *words: object, options: tuple[str, ...] = (),
           wait: bool = False, **more: str) -> subprocess.CompletedProcess[str]:
    """sbatch a template from the project's folder; more: variables that it uses."""
    return slurm.run("sbatch", *(["-W"] if wait else []), f"--output={log}", *options, template, *words, cwd=ROOT,
                     variables={**variables(), **more}, limit=200)


def number_of(submitted: subprocess.CompletedProcess[str]) -> str:
    """The job's number."""
    match = re.search(r"Submitted batch job (\d+)", submitted.stdout)
    assert match, submitted.stderr
    return match[1]


def template(name: str) -> Path:
    return ROOT / "slurm" / name


def slowed(tmp_path: Path) -> Path:
    """The template for exposures, with a program whose bundles take half a second more."""
    path = tmp_path / "slow.sh"
    path.write_text(template("exposure.sh").read_text().replace(
        '-m gpu_extract.cli.exposure', f"{DRIVER} slow 0 --"))
    return path


def test_the_template_for_exposures_makes_all_frames(slurm: Cluster, night: Night, folder: Path,
                                                     tmp_path: Path) -> None:
    log = tmp_path / "log"
    job = number_of(submit(slurm, template("exposure.sh"), log, *night.options, "-o", folder,
                           options=("--ntasks-per-node=2",)))
    assert slurm.wait_for(job, ("COMPLETED", "FAILED")) == "COMPLETED", log.read_text()       # sbatch -W polls rarely
    assert "5 frames: 5 done" in log.read_text() and "on 2 ranks" in log.read_text()
    assert_all_there(night, folder)


def test_the_template_for_one_frame_makes_it(slurm: Cluster, night: Night, folder: Path, tmp_path: Path) -> None:
    output = folder / night.frames[0].name
    log = tmp_path / "log"
    job = number_of(submit(slurm, template("extract.sh"), log, "-i", night.images[0], "-p", night.psf, "-w", GRID,
                           "-o", output, options=("--ntasks=2",)))
    assert slurm.wait_for(job, ("COMPLETED", "FAILED")) == "COMPLETED", log.read_text()
    assert_all_there(night, folder, [0])


@pytest.mark.parametrize("name", ["exposure-gpu.sh", "extract-gpu.sh"])
def test_gpu_templates_come_as_far_as_there_are_gpus(slurm: Cluster, night: Night, folder: Path, tmp_path: Path,
                                                     name: str) -> None:
    """The node pretends to have GPUs: the job is placed, its ranks start, and report that there is none."""
    if not (ROOT / "bin" / "mps_wrapper").exists():
        pytest.skip("bin/mps_wrapper is not there")
    if any(Path("/dev").glob("nvidia[0-9]")):
        pytest.skip("this machine has a GPU, which a rank would find")
    log = tmp_path / "log"
    words = ["-i", night.images[0], "-p", night.psf, "-w", GRID,
             "-o", folder if name.startswith("exposure") else folder / "frame.fits"]
    done = submit(slurm, template(name), log, *words, options=("--ntasks-per-node=2", "--gpus-per-node=1"), wait=True)
    assert done.returncode == 2 and "error: --gpu: " in log.read_text(), log.read_text()
    assert list(folder.iterdir()) == []


def test_the_time_limit_is_near(slurm: Cluster, night: Night, folder: Path, tmp_path: Path) -> None:
    """Slurm's warning comes, the job ends with 75, requeues itself, and finishes with the same bits."""
    log = tmp_path / "log"
    job = number_of(submit(slurm, slowed(tmp_path), log, *night.options, "-o", folder,
                           options=("--ntasks-per-node=2",)))
    wait_for_a_frame(folder)
    assert slurm.run("scancel", "--signal=USR1", job).returncode == 0       # as --signal=USR1@60 does at its time
    asked = time.monotonic()
    slurm.wait_for(job, ("COMPLETING", "PENDING", "REQUEUED", "COMPLETED"), 30)
    assert time.monotonic() - asked < 15                # ten for the program, as in its own tests, the rest for Slurm
    requeued(slurm, job)
    assert slurm.wait_for(job, ("COMPLETED", "FAILED")) == "COMPLETED", log.read_text()
    text = log.read_text()
    assert "stopped on request" in text and re.search(r"5 frames: \d done, \d skipped", text)
    assert_all_there(night, folder)


def test_a_killed_job_is_requeued_and_finishes(slurm: Cluster, night: Night, folder: Path, tmp_path: Path) -> None:
    """As when a node fails: everything is killed at once, silently, and the job starts again."""
    log = tmp_path / "log"
    job = number_of(submit(slurm, slowed(tmp_path), log, *night.options, "-o", folder,
                           options=("--ntasks-per-node=2",)))
    wait_for_a_frame(folder)
    for pid in wait_for_none(str(folder), 0):
        os.kill(pid, signal.SIGKILL)
    assert slurm.run("scontrol", "requeue", job).returncode == 0
    requeued(slurm, job)
    assert slurm.wait_for(job, ("COMPLETED", "FAILED")) == "COMPLETED", log.read_text()
    assert_all_there(night, folder)


def test_a_cancelled_job_ends_soon_and_leaves_no_partial_frame(slurm: Cluster, night: Night, folder: Path,
                                                               tmp_path: Path) -> None:
    job = number_of(submit(slurm, slowed(tmp_path), tmp_path / "log", *night.options, "-o", folder,
                           options=("--ntasks-per-node=2",)))
    wait_for_a_frame(folder)
    assert slurm.run("scancel", job).returncode == 0
    asked = time.monotonic()
    assert slurm.wait_for(job, ("CANCELLED", "FAILED", "COMPLETED"), 30) == "CANCELLED"
    assert wait_for_none(str(folder), 10) == [] and time.monotonic() - asked < 15
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def wait_for_a_frame(folder: Path) -> None:
    """Wait until the first has its name."""
    end = time.monotonic() + 90
    while not any(path.name.startswith("frame") for path in folder.iterdir()):
        assert time.monotonic() < end, "no frame came"
        time.sleep(0.05)


def requeued(slurm: Cluster, job: str) -> None:
    """Wait until a job is in the queue again; let it start in two seconds, not after the two minutes that Slurm gives
    the machine (a start within the second in which the first one ended would be refused)."""
    slurm.wait_for(job, ("PENDING",), 60)
    slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now+2")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["strong", "weak"])
def test_the_templates_for_sweeps_measure_each_number_of_ranks(slurm: Cluster, tmp_path: Path, mode: str) -> None:
    log = tmp_path / "log"
    done = submit(slurm, template(f"sweep-{mode}.sh"), log, tmp_path / "sweep", "-n", "50", "--repeats", "1", "--",
                  "-w", "6000,6060,0.8", options=("--ntasks-per-node=2",), wait=True, RANKS="1,2")
    assert done.returncode == 0, log.read_text()
    rows = read_rows(tmp_path / "sweep", "extract")
    assert [len(row.repeats[0].run.ranks) for row in rows] == [1, 2]
    assert f"{mode}, auto" in log.read_text() and "efficient on 2 ranks" in log.read_text()


@pytest.mark.slow
def test_the_template_for_profiles_writes_record_and_trace(slurm: Cluster, night: Night, tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = submit(slurm, template("profile.sh"), log, tmp_path / "out", "-i", night.images[0], "-p", night.psf, "-w",
                  GRID, options=("--ntasks-per-node=2",), wait=True)
    assert done.returncode == 0, log.read_text()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"frame.fits", "run.json", "trace.json",
                                                                     "report.html"}
