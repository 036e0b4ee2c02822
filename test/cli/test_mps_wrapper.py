"""bin/mps_wrapper under a real mpiexec, with a stand-in for NVIDIA's daemon."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from gpu_extract.device.mps_daemon import LONGEST, directory_for
from mpi_launch import VARIABLES, Ended, finish, launcher, wait_for_none

ROOT = Path(__file__).resolve().parents[2]
WRAPPER = [sys.executable, str(ROOT / "bin" / "mps_wrapper")]
# A rank: uses MPI, checks for the daemon at its start and end, and lasts as long as its number says
RANK = """
import os, sys, time
from pathlib import Path
from mpi4py import MPI
rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
def daemon():
    pid = int((Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"]) / "nvidia-cuda-mps-control.pid").read_text())
    return pid if Path(f"/proc/{pid}").exists() else None
first = daemon()
total = MPI.COMM_WORLD.allreduce(rank)
MPI.Finalize()
time.sleep(0.3 * (size - rank))
line = f"{time.time():.6f} rank {rank} {size} {total} {first} {daemon()}\\n"
with open(os.environ["RANKS_LOG"], "a") as log:
    log.write(line)
sys.exit(int(sys.argv[1]) if rank == 2 else 0)
"""


class Place(NamedTuple):
    """The folders of a test."""

    folder: Path
    variables: dict[str, str]

    def daemon(self) -> list[list[str]]:
        """What the daemon logged: time, started or stopped, directory, CUDA_VISIBLE_DEVICES."""
        log = self.folder / "daemon.log"
        return [line.split() for line in log.read_text().splitlines()] if log.exists() else []

    def run(self, *command: str, **more: str) -> Ended:
        return finish([*WRAPPER, *command], 60.0, {**self.variables, **more})


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A PATH with the stand-in on it, and separate folders."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "nvidia-cuda-mps-control"
    program.write_text(f"#!{sys.executable}\n" + (ROOT / "test" / "fake_mps.py").read_text())
    program.chmod(0o755)
    (tmp_path / "mps").mkdir()
    return Place(tmp_path, {"PATH": f"{programs}:{os.environ['PATH']}", "GPU_EXTRACT_MPS_DIR": str(tmp_path / "mps"),
                            "FAKE_MPS_LOG": str(tmp_path / "daemon.log"), "RANKS_LOG": str(tmp_path / "ranks.log")})


@pytest.mark.parametrize("code", [0, 3])
def test_four_ranks_share_one_daemon(place: Place, code: int) -> None:
    command = [*launcher(4), *WRAPPER, sys.executable, "-c", RANK, str(code)]
    ended = finish(command, 90.0, {**place.variables, "CUDA_VISIBLE_DEVICES": "2,3"})
    assert ended.code == code, ended.err
    ranks = [line.split() for line in (place.folder / "ranks.log").read_text().splitlines()]
    assert sorted(int(rank[2]) for rank in ranks) == [0, 1, 2, 3]
    assert {rank[3] for rank in ranks} == {"4"} and {rank[4] for rank in ranks} == {"6"}, "MPI works as without"
    assert len({rank[5] for rank in ranks}) == 1 and "None" not in ranks[0], "one daemon, the same for all"
    assert all(rank[5] == rank[6] for rank in ranks), "the daemon was there until each rank's end"
    (started, stopped) = place.daemon()
    assert (started[1], stopped[1]) == ("started", "stopped")
    assert float(stopped[0]) > max(float(rank[0]) for rank in ranks), "stopped after the last rank only"
    assert started[3] == "-", "the daemon sees all devices, each rank chooses its own"
    assert not list((place.folder / "mps").iterdir()), "its folder is removed"


def test_commands_one_after_the_other(place: Place) -> None:
    for _ in range(2):
        assert place.run("true").code == 0
    assert [line[1] for line in place.daemon()] == ["started", "stopped"] * 2


def test_the_exit_code_is_the_commands(place: Place) -> None:
    assert place.run("sh", "-c", "exit 75").code == 75
    assert place.run("sh", "-c", "kill -KILL $$").code == -signal.SIGKILL
    assert place.run("no-such-program").code == 127
    assert [line[1] for line in place.daemon()] == ["started", "stopped"] * 3


def test_options_of_the_command_are_its_own(place: Place) -> None:
    assert place.run("echo", "--require", "-h").out == "--require -h\n"
    assert place.run("--", "echo", "x").out == "x\n"


def test_the_commands_environment(place: Place) -> None:
    """Only variables of MPS are new, and none is changed."""
    given = {**os.environ, **VARIABLES, **place.variables, "NUMBA_NUM_THREADS": "0"}
    found = json.loads(place.run(sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))",
                                 NUMBA_NUM_THREADS="0").out)
    new = {name for name in found if found[name] != given.get(name)} - {"PYTHONPATH", "LC_CTYPE"}
    assert new == {"CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"}


@pytest.mark.parametrize("where", ["/no/such/folder", "/dev/null", "/proc"])
def test_a_folder_that_cannot_be_used(where: str, place: Place) -> None:
    """The command runs without MPS, as it does where there is none."""
    given = {"GPU_EXTRACT_MPS_DIR": where}
    ended = place.run("echo", "done", **given)
    assert (ended.code, ended.out) == (0, "done\n") and "MPS unavailable" in ended.err
    assert "set GPU_EXTRACT_MPS_DIR" in ended.err and len(ended.err.splitlines()) == 1
    needed = place.run("--require", "echo", "done", **given)
    assert (needed.code, needed.out) == (4, "") and "the daemon's folder cannot be used" in needed.err


def test_a_signal_reaches_the_command(place: Place) -> None:
    script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen([*WRAPPER, "sh", "-c", script], env={**os.environ, **place.variables},
                          stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        process.terminate()
        assert process.wait(20) == 9
    assert [line[1] for line in place.daemon()] == ["started", "stopped"]


def test_a_signal_while_the_daemon_starts_waits_for_the_command(place: Place) -> None:
    """Nothing else would stop the daemon: it starts, the command gets the signal, and the daemon is stopped."""
    environ = {**os.environ, **place.variables, "FAKE_MPS_TAKES": "2"}
    with subprocess.Popen([*WRAPPER, "sleep", "30"], env=environ) as process:
        end = time.monotonic() + 20
        while not list((place.folder / "mps").iterdir()) and time.monotonic() < end:
            time.sleep(0.01)
        process.terminate()
        assert process.wait(20) == -signal.SIGTERM
    assert [line[1] for line in place.daemon()] == ["started", "stopped"]


def test_a_killed_wrapper_leaves_its_command_the_daemon(place: Place) -> None:
    """The command still counts: another that comes and goes meanwhile does not stop the daemon."""
    environ = {**os.environ, **place.variables, "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "1"}
    mark = f"marked-{place.folder.name}"
    with subprocess.Popen([*WRAPPER, "sh", "-c", f": {mark}; echo ready; sleep 3; exit 0"], env=environ,
                          stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        process.kill()
        process.wait()
        assert subprocess.run([*WRAPPER, "true"], env=environ, check=False).returncode == 0
        assert [line[1] for line in place.daemon()] == ["started"]
        assert wait_for_none(mark, 10.0) == []
    assert subprocess.run([*WRAPPER, "true"], env=environ, check=False).returncode == 0
    assert [line[1] for line in place.daemon()] == ["started", "stopped"]


def test_a_daemon_of_somebody_else_is_used_and_left_alone(place: Place) -> None:
    pipes = place.folder / "own"
    pipes.mkdir()
    own = {**place.variables, "CUDA_MPS_PIPE_DIRECTORY": str(pipes), "CUDA_MPS_LOG_DIRECTORY": str(pipes)}
    control = shutil.which("nvidia-cuda-mps-control", path=place.variables["PATH"])
    assert control is not None
    subprocess.run([control, "-d"], env={**os.environ, **own}, check=True)
    end = time.monotonic() + 10
    while not (pipes / "nvidia-cuda-mps-control.pid").exists() and time.monotonic() < end:
        time.sleep(0.05)
    try:
        shown = place.run("sh", "-c", "echo $CUDA_MPS_PIPE_DIRECTORY", **own)
        assert shown.out == f"{pipes}\n"
        assert [line[1] for line in place.daemon()] == ["started"]
    finally:
        subprocess.run([control], input=b"quit\n", env={**os.environ, **own}, check=True)


def test_without_mps_the_command_runs(place: Place) -> None:
    for variables in ({"FAKE_MPS_FAILS": "1"}, {"PATH": "/usr/bin:/bin"}):
        ended = place.run("--log-times", "off", "sh", "-c", "exit 5", **variables)
        assert ended.code == 5
        assert ended.err.startswith("mps_wrapper: MPS unavailable: ") and ended.err.count("\n") == 1
        assert place.run("--require", "true", **variables).code == 4
    assert not list((place.folder / "mps").iterdir())


def test_its_lines_are_those_of_the_log(place: Place) -> None:
    said = place.run("--log-times", "on", "true", FAKE_MPS_FAILS="1")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d [\d:]{8}Z mps_wrapper: MPS unavailable: .*\n", said.err)
    quiet = place.run("--loglevel", "error", "true", FAKE_MPS_FAILS="1")
    assert (quiet.code, quiet.err) == (0, "")


def test_a_missing_command_is_an_error_of_usage(place: Place) -> None:
    ended = place.run()
    assert ended.code == 2 and ended.err.count("\n") == 1


def test_each_user_job_and_step_has_a_directory() -> None:
    """Users, jobs and steps have separate ones; names are short, and stay in their folder."""
    slurm = {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "3", "TMPDIR": "/scratch"}
    assert str(directory_for(slurm, 99)) == f"/scratch/mps-{os.getuid()}-12-3"
    assert directory_for({**slurm, "SLURM_STEP_ID": "4"}, 99) != directory_for(slurm, 99)
    assert directory_for({}, 99) != directory_for({}, 100), "two mpiexec of one user"
    assert directory_for({"PMIX_NAMESPACE": "../../x"}, 99).parent == Path("/tmp")
    assert len(str(directory_for({"TMPDIR": "/" + "long" * 40}, 99))) <= LONGEST
