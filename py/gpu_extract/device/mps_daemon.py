"""NVIDIA's multi-process service (MPS) for as long as the ranks of a node need it: one daemon, shared and counted.

Every rank holds a shared lock on a file beside the daemon's directory while its command runs, and so does the command
itself, should the rank be killed before it. Whoever comes first starts the daemon and waits until it answers; who
leaves and can have the lock for itself alone is the last, and stops it. Coming and leaving exclude each other.
"""
import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from gpu_extract.errors import GpuExtractError
from gpu_extract.io.whose import is_at
from gpu_extract.perf.clock import now, sleep

CONTROL = "nvidia-cuda-mps-control"
PIPES = "/tmp/nvidia-mps"      # where the daemon listens if it is not told otherwise
READY = 20.0                   # seconds that it may take to answer
STEP = 0.05
LONGEST = 90                   # characters of the directory: names of sockets in it end at 107


class MpsError(GpuExtractError):
    """MPS cannot be had; says why in one line."""


def control_pid(pipes: str) -> int | None:
    """The process of the daemon that listens in `pipes`, None where none runs."""
    try:
        pid = int((Path(pipes) / f"{CONTROL}.pid").read_text().strip())
    except (OSError, ValueError):
        return None
    return pid if Path(f"/proc/{pid}").exists() else None


def directory_for(environ: Mapping[str, str], parent: int) -> Path:
    """The directory of this user's daemon for this job and step on this node.

    parent: process that started this one. All ranks of a step on a node have one parent (slurmstepd, the launcher's
    proxy): it stands for the step where no batch system names it, so that steps of one job do not meet.
    """
    base = environ.get("GPU_EXTRACT_MPS_DIR") or environ.get("TMPDIR") or "/tmp"
    job = environ.get("SLURM_JOB_ID") or environ.get("PBS_JOBID") or environ.get("PMIX_NAMESPACE") or "0"
    step = environ.get("SLURM_STEP_ID") or f"p{parent}"
    name = "".join(c if c.isalnum() or c in ".-" else "-" for c in f"{os.getuid()}-{job}-{step}")
    path = Path(base) / f"mps-{name}"
    return path if len(str(path)) <= LONGEST else Path("/tmp") / path.name


class Daemon:
    """The daemon of a directory, from this rank's view.

    environ: of the daemon's programs. CUDA_VISIBLE_DEVICES is not for the daemon: it would number the devices anew, and
    each rank's own choice would then mean others.
    """

    def __init__(self, path: Path, environ: Mapping[str, str]):
        self.path, self.pipes, self.logs = path, path / "pipe", path / "log"
        self._environ = {**environ, **self.variables()}
        self._environ.pop("CUDA_VISIBLE_DEVICES", None)
        self._users = -1

    def variables(self) -> dict[str, str]:
        """What tells a program to use this daemon."""
        return {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipes), "CUDA_MPS_LOG_DIRECTORY": str(self.logs)}

    def join(self) -> None:
        """Be counted, start the daemon if it does not run, wait until it answers.

        Raises MpsError where that fails; the rank is not counted then.
        """
        if shutil.which(CONTROL, path=self._environ.get("PATH")) is None:
            raise MpsError(f"{CONTROL} is not on the PATH")
        with _gate(self.path):
            self._users = os.open(self.path / "users", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._users, fcntl.LOCK_SH)
            os.set_inheritable(self._users, True)
            try:
                self._start()
            except MpsError:
                self._release()
                raise

    def leave(self) -> bool:
        """Be counted no more; whether this was the last, which has stopped the daemon."""
        with _gate(self.path):
            return self._release()

    def _release(self) -> bool:
        """Give up the lock on the users, and stop the daemon if nobody else has it."""
        try:
            fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._users)
            return False
        self._stop()
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._users)
        return True

    def _start(self) -> None:
        """Start it unless it runs, and wait until it answers."""
        for folder in (self.pipes, self.logs):
            folder.mkdir(mode=0o700, exist_ok=True)
        if control_pid(str(self.pipes)) is None:
            code, said = self._run([CONTROL, "-d"])
            if code != 0:
                raise MpsError(f"{CONTROL} -d ended with {code}: {said or 'no message'}")
        end = now() + READY
        while self._run([CONTROL], "get_server_list\n")[0] != 0:
            if now() > end:
                raise MpsError(f"{CONTROL} did not answer within {READY:.0f} s; its log is in {self.logs}")
            sleep(STEP)

    def _stop(self) -> None:
        """Stop it, and wait until it is gone."""
        pid = control_pid(str(self.pipes))
        if pid is None:
            return
        self._run([CONTROL], "quit\n")
        end = now() + READY
        while Path(f"/proc/{pid}").exists() and now() < end:
            sleep(STEP)

    def _run(self, command: list[str], text: str = "") -> tuple[int, str]:
        """Run the control program: its exit code, and what it said in one line.

        The daemon it leaves behind holds none of our descriptors, and no pipe that we would wait at the end of.
        """
        with TemporaryFile() as said:
            try:
                done = subprocess.run(command, input=text.encode(), stdout=said, stderr=said, env=self._environ,
                                      check=False, timeout=READY, start_new_session=True)
            except (OSError, subprocess.TimeoutExpired) as error:
                return 1, str(error)
            said.seek(0)
            return done.returncode, " ".join(said.read().decode(errors="replace").split())


@contextmanager
def _gate(path: Path) -> Iterator[None]:
    """Only one rank at a time may come or go: a lock on a file in the directory, which the last one removes."""
    while True:
        path.mkdir(mode=0o700, exist_ok=True)
        if path.is_symlink() or path.lstat().st_uid != os.getuid():
            raise MpsError(f"{path} belongs to another user; set GPU_EXTRACT_MPS_DIR to your own folder")
        try:
            gate = os.open(path / "gate", os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            continue                        # removed since: by the last of the ranks before us
        fcntl.flock(gate, fcntl.LOCK_EX)
        if is_at(path / "gate", gate):
            break
        os.close(gate)
    try:
        yield
    finally:
        os.close(gate)


def run_with(environ: Mapping[str, str], parent: int, run: Callable[[dict[str, str]], int],
             say: Callable[[str], None], *, required: bool) -> int:
    """run(environment), with MPS where it can be had; returns what it returns.

    What it starts must inherit descriptors: one of them counts it among the daemon's users.

    A daemon that runs already where `environ` points is used and left alone.
    say: told in one line why there is no MPS; raises MpsError in that case where it is required.
    """
    named = environ.get("CUDA_MPS_PIPE_DIRECTORY")
    if named and control_pid(named) is not None:
        return run(dict(environ))
    daemon = Daemon(directory_for(environ, parent), environ)
    try:
        daemon.join()
    except MpsError as error:
        if required:
            raise
        say(f"MPS unavailable: {error}")
        return run(dict(environ))
    try:
        return run({**environ, **daemon.variables()})
    finally:
        daemon.leave()
