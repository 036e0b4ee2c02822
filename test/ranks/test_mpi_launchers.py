"""Variables that launchers set, and N processes that MPI does not see as one run."""
import os
import resource
import sys
from pathlib import Path

import pytest

from gpu_extract.cli import ranks
from gpu_extract.cli.ranks import Launch, find_launch
from gpu_extract.errors import InputError
from gpu_extract.ranks.comm import get_comm
from mpi_launch import PROGRAM, Frames, finish, launcher

HYDRA = {"PMI_SIZE": "4", "PMI_RANK": "3", "MPI_LOCALNRANKS": "2", "MPI_LOCALRANKID": "1"}
OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
            "PMIX_RANK": "3"}
SLURM = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3", "SLURM_LOCALID": "1"}
ALL = {*HYDRA, *OPEN_MPI, *SLURM}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ALL:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(("variables", "found"), [
    ({}, None),
    (HYDRA, Launch(4, 3, 1, "mpiexec")),
    (OPEN_MPI, Launch(4, 3, 1, "mpiexec")),
    (SLURM, Launch(4, 3, 1, "srun")),
    ({**SLURM, "PMI_SIZE": "4", "PMI_RANK": "3"}, Launch(4, 3, 1, "srun")),        # srun --mpi=pmi2
    ({**SLURM, "PMIX_RANK": "3"}, Launch(4, 3, 1, "srun")),                        # srun --mpi=pmix
    ({**SLURM, **HYDRA}, Launch(4, 3, 1, "mpiexec")),                              # mpiexec within a job
    ({**SLURM, "SLURM_STEP_NUM_TASKS": "1", **OPEN_MPI}, Launch(4, 3, 1, "mpiexec")),
    ({**SLURM, "SLURM_STEP_NUM_TASKS": "1"}, None),                                # an interactive shell
    ({**HYDRA, "PMI_SIZE": "1", "PMI_RANK": "0"}, None),
    ({"PMIX_RANK": "3"}, Launch(0, 3, 3, "mpiexec"))])
def test_what_launchers_say(environment: pytest.MonkeyPatch, variables: dict[str, str], found: Launch | None) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)
    assert find_launch() == found


def as_if(variables: dict[str, str], rank: str) -> dict[str, str]:
    """Another rank's variables."""
    return {name: rank if name.endswith(("RANK", "ID")) and name != "SLURM_STEP_ID" else value
            for name, value in variables.items()}


@pytest.mark.parametrize("rank", ["0", "1"])
@pytest.mark.parametrize("variables", [OPEN_MPI, SLURM], ids=["mpiexec", "srun"])
def test_separate_worlds_are_refused(frames: Frames, tmp_path: Path, variables: dict[str, str], rank: str) -> None:
    """The wrong MPI sees these variables without their launcher."""
    output = tmp_path / "frame.fits"
    library = finish([sys.executable, "-c", "from mpi4py import MPI; print(MPI.get_vendor()[0])"]).out.strip()
    own = {name: value for name, value in as_if(variables, rank).items() if not name.startswith("PMIX")}
    ended = finish([sys.executable, str(PROGRAM), *frames.options, "-o", str(output)], variables=own)
    assert ended.code == 2 and not output.exists()
    assert len(ended.errors) == (rank == "0")                  # one line per node
    if ended.errors:
        option = {"Open MPI": "--mpi=pmix", "MPICH": "--mpi=pmi2"}[library]
        mend = f"srun {option}" if variables is SLURM else "mpiexec"
        assert "started 4 processes" in ended.errors[0] and f"start it with {mend}" in ended.errors[0]


def test_mpi_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(InputError, match="MPI cannot be loaded"):
        get_comm(True)


def test_mpi_that_is_not_initialized(tmp_path: Path) -> None:
    """Of itself MPI ends the process, with its own words."""
    ended = finish([sys.executable, str(PROGRAM), "--mpi", "-o", str(tmp_path / "frame.fits")],
                   variables={"MPI4PY_RC_INITIALIZE": "0"})
    assert ended.code == 2 and ended.errors == [
        "MPI is not initialized, because MPI4PY_RC_INITIALIZE or mpi4py.rc.initialize says so: unset it, or call "
        "MPI.Init() before"]


@pytest.mark.parametrize(("what", "error"), [("os.fork", "BlockingIOError(11, 'Resource temporarily unavailable')"),
                                             ("threading.Thread.start", "RuntimeError('can\\'t start new thread')")])
def test_a_limit_of_processes(frames: Frames, tmp_path: Path, what: str, error: str) -> None:
    """As under `ulimit -u`, or a container's limit. Without a child there was a traceback, with exit code 1."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, threading\ndef refused(*_):\n"
        f"    raise {error}\n{what} = refused\n")
    output, path = tmp_path / "frame.fits", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    ended = finish([*launcher(2), sys.executable, str(PROGRAM), *frames.options, "-o", str(output)],
                   variables={"PYTHONPATH": path})
    assert ended.code == 4 and "Traceback" not in ended.err and not output.exists()
    assert ended.errors and all("the system allows no further thread or process" in line for line in ended.errors)


def test_few_open_files_are_named_where_a_rank_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below 36 files MPICH's UCX ends a rank in MPI_Init, or aborts it; the launcher, or memory, was blamed."""
    for most, named in ((32, True), (4096, False), (resource.RLIM_INFINITY, False)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, most=most: (most, most))
        line = ranks._lost(Launch(2, 1, 1, "mpiexec"), "ended by signal 6 (SIGABRT)")
        assert (f"only {most} files may be open" in line and line.endswith("raise the limit (ulimit -n)")) == named
