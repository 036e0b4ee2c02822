"""A complete Slurm on this machine: slurmctld, slurmd and munged on the loopback interface, in their own folder.

Needs root and the Debian packages slurmctld, slurmd, slurm-client, munge and libpmix-dev (.ci/run installs them).
"""
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge", "libpmix-dev")
PROGRAMS = ("slurmctld", "slurmd", "munged", "srun", "sbatch", "scancel", "scontrol")
_DEVICES = "/dev/null", "/dev/zero", "/dev/full", "/dev/random"      # stand for GPUs: devices that every machine has
CPUS = 24           # that the node pretends to have: templates request a whole node
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
_CONF = """\
ClusterName=loopback
FirstJobId={first}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
GresTypes=gpu
MailProg=/bin/true
ReturnToService=2
KillWait=10
SchedulerParameters=sched_interval=2,sched_min_interval=0,batch_sched_delay=0
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=1000 Gres=gpu:4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=NO State=UP
OverTimeLimit=0
"""


def missing() -> str:
    """Why Slurm cannot run here; empty if it can."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]
    if absent:
        return f"no Slurm here: {', '.join(absent)} not installed (Debian: {' '.join(PACKAGES)})"
    return "" if os.geteuid() == 0 else "a Slurm of our own is started by root only"


class Cluster:
    """The three daemons, running; a context manager that ends them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.host = socket.gethostname().split(".")[0]
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Cluster":
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        self.folder.chmod(0o755)
        self._conf.write_text(_CONF.format(host=self.host, ports=_free_ports(2), folder=self.folder, cpus=CPUS,
                                           first=_some_number()))
        (self.folder / "gres.conf").write_text("".join(f"Name=gpu File={path}\n" for path in _DEVICES))
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        try:
            self._start("munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket",
                        f"--key-file={key}", f"--pid-file={self.folder}/munged.pid",
                        f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munge.seed")
            _wait((self.folder / "munge.socket").exists)
            self._start("slurmctld", "-D", "-c", "-f", str(self._conf))
            self._start("slurmd", "-D", "-c", "-f", str(self._conf))
            _wait(self._idle)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if len(self._daemons) == 3:          # jobs left by a failed test would continue without Slurm
            self.run("scancel", "--full", "--user=root")
            with suppress(TimeoutError):
                _wait(lambda: not self.run("squeue", "-h").stdout.strip())
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in reversed(self._daemons):
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    @property
    def _conf(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def variables(self) -> dict[str, str]:
        """Environment of a client of this Slurm."""
        return {"SLURM_CONF": str(self._conf), "PATH": _PATH, "PMIX_MCA_psec": "native"}

    def run(self, *words: object, limit: float = 120.0, cwd: Path | None = None,
            variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run one of Slurm's commands for at most `limit` seconds."""
        return subprocess.run([str(word) for word in words], env={**os.environ, **self.variables, **(variables or {})},
                              capture_output=True, text=True, timeout=limit, check=False, cwd=cwd,
                              stdin=subprocess.DEVNULL)

    def state(self, job: str) -> str:
        """A job's state, e.g. PENDING, RUNNING, COMPLETED."""
        fields = dict(word.split("=", 1) for word in self.run("scontrol", "show", "job", job).stdout.split()
                      if "=" in word)
        return fields.get("JobState", "")

    def wait_for(self, job: str, states: tuple[str, ...], limit: float = 120.0) -> str:
        """Wait until a job is in one of these states."""
        _wait(lambda: self.state(job) in states, limit)
        return self.state(job)

    def _start(self, name: str, *words: str) -> None:
        with open(self.folder / f"{name}.out", "wb") as out:
            self._daemons.append(subprocess.Popen(
                [str(shutil.which(name, path=_PATH)), *words], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                env={**os.environ, **self.variables}, start_new_session=True))

    def _idle(self) -> bool:
        dead = [str(daemon.args[0]) for daemon in self._daemons if daemon.poll() is not None]   # type: ignore[index]
        if dead:
            logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in self.folder.glob("*.out"))
            raise RuntimeError(f"{dead[0]} has ended:\n{logs}")
        return "idle" in self.run("sinfo", "-h", "-o", "%T").stdout


def _some_number() -> int:
    """A first job number that no recent Slurm has used: MPICH names its shared memory by job and step."""
    return int.from_bytes(os.urandom(3)) + 1000


def _free_ports(count: int) -> list[int]:
    """Ports that are free now."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _wait(condition: object, limit: float = 30.0) -> None:
    end = time.monotonic() + limit
    while not condition():         # type: ignore[operator]
        if time.monotonic() > end:
            raise TimeoutError("Slurm does not come to the state that is waited for")
        time.sleep(0.1)
