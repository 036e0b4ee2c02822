"""gpu_extract with a fault planted: faulty.py PHASE KIND RANK -- options of gpu_extract.

The fault strikes when rank RANK reaches the place that PHASE names; the functions there are wrapped before the program
starts, in this process only. RANK may be several, separated by commas. The file named by FAULT_TIME records the time of
the fault (seconds of time.monotonic). FAULT_PATIENCE is the time in seconds for which a rank or its keeper may be
stopped.
"""
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

from gpu_extract import cpu_frame
from gpu_extract.cli import extract
from gpu_extract.errors import InputError, OutputError
from gpu_extract.io import frame, image
from gpu_extract.ranks import keeper, mpi_ranks, transport

MET = Event()    # all ranks have met
DELAY = 2.0      # seconds between SIGSTOP and SIGKILL


def strike(kind: str) -> None:
    """Cause the fault on this rank."""
    Path(os.environ["FAULT_TIME"]).write_text(str(time.monotonic()))
    if kind == "exception":
        raise ValueError("planted")
    if kind == "input":
        raise InputError("planted: nothing can be done with this")
    if kind == "output":
        raise OutputError("planted: this cannot be written")
    if kind.startswith("exit"):
        os._exit(int(kind[4:]))
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "kill keeper":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)
    if kind == "stop and kill":
        subprocess.Popen(["sh", "-c", f"sleep {DELAY}; kill -KILL {os.getpid()}"], start_new_session=True)
    if kind.startswith("stop"):
        os.kill(os.getpid(), signal.SIGSTOP)
    if kind == "pause":               # for faults from outside
        time.sleep(float(os.environ["FAULT_PAUSE"]))
    if kind == "full disk":
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))


def plant(place: tuple[Any, str], kind: str, victim: int) -> None:
    """Wrap a function or method so that the fault strikes on rank `victim` before its work."""
    holder, name = place
    original: Callable[..., Any] = getattr(holder, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if rank() == victim:
            if name == "read_image":      # read ahead, while MPI starts: an exit code there is reported as MPI's
                MET.wait(60)
            strike(kind)
        return original(*args, **kwargs)

    setattr(holder, name, wrapped)


def wait_for_others() -> None:
    """Set MET when all ranks have met."""
    tell = keeper.tell

    def told(mark: keeper.Mark, code: int = 0) -> None:
        tell(mark, code)
        if mark == keeper.Mark.MET:
            MET.set()

    keeper.tell = told


def rank() -> int:
    """This process's rank, also before MPI starts."""
    names = "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"
    return next(int(os.environ[name]) for name in names if name in os.environ)


# phase -> where it strikes on rank 0, and on the others
PLACES: dict[str, tuple[tuple[Any, str], tuple[Any, str]]] = {
    "start": ((extract, "start_ranks"), (extract, "start_ranks")),
    "read": ((image, "read_image"), (mpi_ranks.MpiComm, "share")),
    "share": ((transport, "enough_room"), (transport, "enough_room")),
    "extract": ((cpu_frame, "extract_bundle"), (cpu_frame, "extract_bundle")),
    "gather": ((mpi_ranks.MpiComm, "gather"), (transport, "send")),
    "write": ((frame, "write_hdus"), (mpi_ranks.MpiComm, "barrier")),
    "commit": ((mpi_ranks.MpiComm, "barrier"), (mpi_ranks.MpiComm, "barrier")),
}

if __name__ == "__main__":
    phase, kind, victims = sys.argv[1:4]
    keeper.STOPPED = float(os.environ.get("FAULT_PATIENCE", keeper.STOPPED))
    wait_for_others()
    for victim in map(int, victims.split(",")):
        plant(PLACES[phase][victim > 0], kind, victim)
    raise SystemExit(extract.main(sys.argv[sys.argv.index("--") + 1:]))
