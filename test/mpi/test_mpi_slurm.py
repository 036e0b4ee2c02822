"""The same under srun, where there is a Slurm to ask."""
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_mpi_bits import differences

from mpi_launch import PROGRAM, Ended, Frames, finish

pytestmark = pytest.mark.slow
DRIVER = Path(__file__).with_name("faulty.py")


@pytest.fixture(scope="module")
def library() -> str:
    """The MPI of this Python; skips where Slurm does not answer."""
    found = shutil.which("sinfo")
    if not found or subprocess.run([found], capture_output=True, check=False).returncode != 0:
        pytest.skip("no Slurm here: sinfo is missing or does not answer")
    return finish([sys.executable, "-c", "from mpi4py import MPI; print(MPI.get_vendor()[0])"]).out.strip()


def srun(option: str, *words: object, **variables: str) -> Ended:
    """Three ranks by srun."""
    command = ["srun", option, "-n", "3", "--overcommit", sys.executable, *(str(word) for word in words)]
    return finish(command, variables={"PMIX_MCA_psec": "native", **variables})


def test_srun_changes_no_bit(frames: Frames, tmp_path: Path, library: str) -> None:
    option = {"MPICH": "--mpi=pmi2", "Open MPI": "--mpi=pmix"}[library]
    ended = srun(option, PROGRAM, *frames.options, "-o", tmp_path / "frame.fits")
    assert (ended.code, ended.errors) == (0, [])
    assert differences(tmp_path / "frame.fits", frames.frame) == []


@pytest.mark.parametrize("option", ["--mpi=none", "wrong"])
def test_srun_with_the_wrong_option(frames: Frames, tmp_path: Path, library: str, option: str) -> None:
    wrong = {"MPICH": "--mpi=pmix", "Open MPI": "--mpi=pmi2"}[library]
    right = {"MPICH": "--mpi=pmi2", "Open MPI": "--mpi=pmix"}[library]
    ended = srun(wrong if option == "wrong" else option, PROGRAM, *frames.options, "-o", tmp_path / "frame.fits")
    assert ended.code == 2
    assert len(ended.errors) == 1 and f"srun {right}" in ended.errors[0]


@pytest.mark.parametrize("kind", ["kill", "exit0", "exception", "stop"])
def test_srun_loses_a_rank(frames: Frames, tmp_path: Path, library: str, kind: str) -> None:
    option = {"MPICH": "--mpi=pmi2", "Open MPI": "--mpi=pmix"}[library]
    output = tmp_path / "frame.fits"
    ended = srun(option, DRIVER, "extract", kind, "1", "--", *frames.options, "-o", output,
                 FAULT_TIME=str(tmp_path / "time"))
    assert ended.code == 4 and not output.exists()
    assert len(ended.errors) == 1 and "rank 1" in ended.errors[0]
