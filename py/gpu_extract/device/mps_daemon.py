"""NVIDIA's multi-process service (MPS): one daemon for the ranks of a node, for as long as any of them needs it.

Every rank holds a shared lock on a file in the daemon's directory while its command runs. The command inherits the
lock, in case the rank is killed before it. The first rank starts the daemon and waits until it answers. A rank that
leaves and can get an exclusive lock is the last, and stops it. Ranks join and leave one at a time.
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
PIPES = "/tmp/nvidia-mps"      # where the daemon listens by default
READY = 20.0                   # seconds within which it must answer
STEP = 0.05
LONGEST = 90                   # characters of the directory: names of sockets in it have at most 107


class MpsError(GpuExtractError):
    """MPS is unavailable; the message says why in one line."""


def control_pid(pipes: str) -> int | None:
    """The process of the daemon that listens in `pipes`, None if none runs."""
    try:
        pid = int((Path(pipes) / f"{CONTROL}.pid").read_text().strip())
    except (OSError, ValueError):
        return None
    return pid if Path(f"/proc/{pid}").exists() else None


def directory_for(environ: Mapping[str, str], parent: int) -> Path:
    """The directory of this user's daemon for this job and step on this node.

    parent: the process that started this one. All ranks of a step on a node have the same parent (slurmstepd, the
    launcher's proxy). If no batch system names the step, the parent identifies it, so that steps of a job stay apart.
    """
    base = environ.get("GPU_EXTRACT_MPS_DIR") or environ.get("TMPDIR") or "/tmp"
    job = environ.get("SLURM_JOB_ID") or environ.get("PBS_JOBID") or environ.get("PMIX_NAMESPACE") or "0"
    step = environ.get("SLURM_STEP_ID") or f"p{parent}"
    name = "".join(c if c.isalnum() or c in ".-" else "-" for c in f"{os.getuid()}-{job}-{step}")
    path = Path(base) / f"mps-{name}"
    return path if len(str(path)) <= LONGEST else Path("/tmp") / path.name


class Daemon:
    """The daemon of a directory, as seen by this rank.

    environ: of the daemon's programs. The daemon does not get CUDA_VISIBLE_DEVICES: it would renumber the devices, and
    each rank's own choice would then select others.
    """

    def __init__(self, path: Path, environ: Mapping[str, str]):
        self.path, self.pipes, self.logs = path, path / "pipe", path / "log"
        self._environ = {**environ, **self.variables()}
        self._environ.pop("CUDA_VISIBLE_DEVICES", None)
        self._users = -1

    def variables(self) -> dict[str, str]:
        """The environment variables with which a program uses this daemon."""
        return {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipes), "CUDA_MPS_LOG_DIRECTORY": str(self.logs)}

    def join(self) -> None:
        """Register this rank, start the daemon if it does not run, and wait until it answers.

        Raises MpsError if that fails; the rank is not registered then.
        """
        if shutil.which(CONTROL, path=self._environ.get("PATH")) is None:
            raise MpsError(f"{CONTROL} is not on the PATH")
        try:
            with _gate(self.path):
                self._users = os.open(self.path / "users", os.O_RDWR | os.O_CREAT, 0o600)
                fcntl.flock(self._users, fcntl.LOCK_SH)
                os.set_inheritable(self._users, True)
                try:
                    self._start()
                except (MpsError, OSError):
                    self._release()
                    raise
        except OSError as error:
            raise MpsError(f"{self.path}: the daemon's folder cannot be used ({error.strerror}); set "
                           "GPU_EXTRACT_MPS_DIR to a folder of yours on a local disk") from error

    def leave(self) -> bool:
        """Unregister this rank. Returns whether it was the last, which stops the daemon."""
        with _gate(self.path):
            return self._release()

    def _release(self) -> bool:
        """Release the lock on the file of users, and stop the daemon if nobody else holds it."""
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
        """Start the daemon unless it runs, and wait until it answers."""
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
        """Stop the daemon, and wait until it has ended."""
        pid = control_pid(str(self.pipes))
        if pid is None:
            return
        self._run([CONTROL], "quit\n")
        end = now() + READY
        while Path(f"/proc/{pid}").exists() and now() < end:
            sleep(STEP)

    def _run(self, command: list[str], text: str = "") -> tuple[int, str]:
        """Run the control program. Returns its exit code, and its output in one line.

        The daemon that it leaves behind holds none of our descriptors, and no pipe whose end we would wait for.
        """
        with TemporaryFile(dir=self.path) as said:
            try:
                done = subprocess.run(command, input=text.encode(), stdout=said, stderr=said, env=self._environ,
                                      check=False, timeout=READY, start_new_session=True)
            except (OSError, subprocess.TimeoutExpired) as error:
                return 1, str(error)
            said.seek(0)
            return done.returncode, " ".join(said.read().decode(errors="replace").split())


@contextmanager
def _gate(path: Path) -> Iterator[None]:
    """Only one rank at a time may join or leave: a lock on a file in the directory, which the last one removes."""
    while True:
        path.mkdir(mode=0o700, exist_ok=True)
        if path.is_symlink() or path.lstat().st_uid != os.getuid():
            raise MpsError(f"{path} belongs to another user; set GPU_EXTRACT_MPS_DIR to your own folder")
        try:
            gate = os.open(path / "gate", os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            continue                        # the last of earlier ranks has just removed the directory
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
    """Call run(environment), with MPS if it is available, and return its result.

    The processes that it starts must inherit descriptors: one of these registers them as users of the daemon. A daemon
    that already runs where `environ` points is used and not stopped.
    say: called with one line if there is no MPS; if MPS is required, MpsError is raised instead
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
