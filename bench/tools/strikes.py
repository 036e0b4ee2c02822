"""A run that is struck from outside: one of its processes gets a signal when a rank has come to a certain stage."""
import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from ranks import ROOT, processes_with, program, ranks_of

LIMIT = 30.0                # seconds in which all processes must be gone
PAUSE = 2.0                 # seconds that a rank halts at its stage
RANKS = 3
PHASES = ("start", "read", "share", "extract", "gather", "write", "commit")
WHO = ("launcher", "proxy", "keeper", "rank")
SIGNALS = ("TERM", "INT", "HUP", "KILL", "STOP")
GRID = "6012,6098,0.4"


@dataclass(frozen=True)
class Kill:
    """Who gets which signal, when which rank has come to a stage; number: of the keeper or rank that gets it."""

    who: str
    signal: str
    phase: str
    halts: int
    number: int


@dataclass(frozen=True)
class Job:
    """A launcher with what it needs, and the frame that is made under it."""

    launch: tuple[str, ...]
    environment: dict[str, str]
    image: Path
    psf: Path
    whole: dict[str, str]
    words: tuple[str, ...] = ()            # further options

    def command(self, output: Path, kill: Kill | None) -> list[str]:
        """The extraction, with a halt; undisturbed and by one process where there is no kill."""
        options = ["-i", str(self.image), "-p", str(self.psf), "-w", GRID, "-o", str(output), "--loglevel", "warning",
                   "--no-gpu", *self.words]
        if kill is None:
            return [*program("gpu_extract"), *options]
        faulty = str(ROOT / "test" / "ranks" / "faulty.py")
        driver = [sys.executable, faulty, kill.phase, "pause", str(kill.halts), "--"]
        return [*self.launch, *driver, *options]


def processes_of(job: Job, started: int, folder: str) -> dict[str, list[int]]:
    """The processes of a run by what they are."""
    parents = processes_with(folder)
    ranks = [pid for pid in ranks_of(folder) if pid in parents]      # what a rank starts can end between the two looks
    keepers = [parents[pid] for pid in ranks]
    above = sorted({parents[pid] for pid in keepers if pid in parents} - {started})
    return {"launcher": [started], "proxy": above, "keeper": keepers, "rank": ranks}


def wait_until(condition: object, limit: float) -> bool:
    """Whether it came true in time."""
    end = time.monotonic() + limit
    while not condition():         # type: ignore[operator]
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def exists(pid: int) -> bool:
    """Whether a process is there, and not only waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def strike(job: Job, kill: Kill, folder: Path, suspended: float) -> tuple[int | None, float, str] | None:
    """Start, send the signal, wait for the end: exit code, seconds, what was said; None where there is no such process.

    suspended: seconds between SIGSTOP and SIGCONT where all processes get it
    """
    output, marker = folder / "frame.fits", folder.with_suffix(".time")
    environment = {"FAULT_PAUSE": str(PAUSE), **job.environment, "FAULT_TIME": str(marker)}
    with open(folder.with_suffix(".err"), "wb") as said, \
            subprocess.Popen(job.command(output, kill), env=environment, stdin=subprocess.DEVNULL, stdout=said,
                             stderr=said, start_new_session=True) as process:
        if not wait_until(lambda: marker.exists() or process.poll() is not None, 60.0):
            process.kill()
            raise SystemExit(f"it does not come to {kill.phase}")
        if not marker.exists():
            return None                     # it does not come there
        wait_until(lambda: len(ranks_of(str(folder))) == RANKS, LIMIT)
        found = processes_of(job, process.pid, str(folder))
        everyone = sorted({pid for pids in found.values() for pid in pids})
        if kill.who != "all" and len(found[kill.who]) <= kill.number:
            process.terminate()
            process.wait()
            wait_until(lambda: not processes_with(str(folder)), LIMIT)
            return None
        victims = [pid for name in ("launcher", "keeper", "rank") for pid in found[name]] if kill.who == "all" else \
            [found[kill.who][kill.number]]
        struck = time.monotonic()
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, getattr(signal, f"SIG{kill.signal}"))
        if kill.who == "all":
            time.sleep(suspended)
            struck = time.monotonic()
            for pid in reversed(victims):
                os.kill(pid, signal.SIGCONT)
        gone = wait_until(lambda: process.poll() is not None and not any(map(exists, everyone))
                          and not processes_with(str(folder)), 2 * LIMIT)
        seconds = time.monotonic() - struck
        for pid in [] if gone else everyone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return process.returncode, seconds, folder.with_suffix(".err").read_text(errors="replace")
