"""Starts processes together, waits for all of them, and reports how each ended.

A process that knows the gate prints the line READY when it has warmed up and
then waits for a line on its standard input. All are released at once when the
last one is ready. A process may print one JSON object as its last line on
standard output: its result. Each runs in its own session, so that ending it
also ends what it started (the ranks under an mpiexec).
"""
import json
import os
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_extract.perf.clock import epoch, now

READY = "ready"
GRACE = 5.0           # seconds between asking a process to end and killing it
LINGER = 2.0          # seconds to wait for the last lines of a process that has ended
TAIL = 2000           # characters of standard error stored with a result
_ROOM = 4096          # bytes: with less a file system may have no block left for a message
_SLURM = "srun: ", "slurmstepd"          # beginnings of lines that follow the program's own

Tick = Callable[[Mapping[int, int]], float]
Events = queue.Queue[tuple[str, int]]


@dataclass(frozen=True)
class Ended:
    """The end of one process.

    status: "ok", "failed", "timeout" or "killed", or what the process says in its result's "status"
    code: exit code, negative for the signal that ended it, None if it could not be started
    started, ended: epoch seconds of its life
    result: the JSON object it printed last, or None; error: the last lines of its standard error
    """

    index: int
    pid: int
    status: str
    code: int | None
    started: float
    ended: float
    result: Mapping[str, Any] | None = None
    error: str = ""

    @property
    def said(self) -> str:
        """The last line of its standard error, but one of Slurm only if there is no other; or ""."""
        lines = self.error.splitlines()
        own = [line for line in lines if not line.startswith(_SLURM)]
        return (own or lines or [""])[-1]

    @property
    def interval(self) -> tuple[float, float]:
        """Epoch seconds (start, end) of its work: its result's "interval", else its life."""
        told = (self.result or {}).get("interval")
        return (float(told[0]), float(told[1])) if told else (self.started, self.ended)


def common_interval(ended: Sequence[Ended]) -> tuple[float, float] | None:
    """(start, end) in epoch seconds during which all of them worked, or None if there is no such time."""
    spans = [e.interval for e in ended if e.code is not None]
    if not spans:
        return None
    start, end = max(s[0] for s in spans), min(s[1] for s in spans)
    return (start, end) if end > start else None


def run_together(argv: Sequence[str], procs: int, log: Path, *, gate: bool = False,
                 timeout: float | None = None, tick: Tick | None = None,
                 started: Callable[[Mapping[int, int]], None] | None = None) -> list[Ended]:
    """Run `procs` copies of a command at once; returns how each ended, in order.

    argv: no shell; "{process}" and "{procs}" in it become the copy's number and the number of copies
    log: their output goes to LOG.N.out and LOG.N.err
    gate: whether the command uses the gate (see above)
    timeout: seconds after which all running processes are ended
    tick: called with {number: pid} of the running ones, at once and again after the seconds it returns
    started: called with {number: pid} once, when all run
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    events: Events = queue.Queue()
    children: dict[int, _Child] = {}
    failed: list[Ended] = []
    try:
        for index in range(procs):
            words = [w.replace("{process}", str(index)).replace("{procs}", str(procs)) for w in argv]
            begun = epoch()
            try:
                children[index] = _Child(index, words, Path(f"{log}.{index}"), gate=gate, events=events)
            except OSError as error:
                reason = f"{words[0]} cannot be started: {error.strerror}"
                failed.append(Ended(index, 0, "failed", None, begun, begun, error=reason))
        if started is not None:
            started({i: c.pid for i, c in children.items()})
        _wait_for_all(children, events, gate=gate, timeout=timeout, tick=tick)
    finally:
        _end(list(children.values()))
    return sorted([c.outcome() for c in children.values()] + failed, key=lambda e: e.index)


class _Child:
    """One running process and the threads that listen to it."""

    def __init__(self, index: int, argv: Sequence[str], log: Path, *, gate: bool, events: Events):
        self.index = index
        self.started = epoch()
        self.ended = self.started
        self.code: int | None = None
        self.late = False
        self._last = ""
        self._out, self._err = Path(f"{log}.out"), Path(f"{log}.err")
        with open(self._err, "wb") as errors:
            self._popen = subprocess.Popen(
                argv, stdin=subprocess.PIPE if gate else subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=errors, text=True, errors="replace", start_new_session=True)
        self.pid = self._popen.pid
        self._reader = threading.Thread(target=self._read, args=(events,), daemon=True)
        self._waiter = threading.Thread(target=self._wait, args=(events,), daemon=True)
        self._reader.start()
        self._waiter.start()

    def _read(self, events: Events) -> None:
        if self._popen.stdout is None:
            return
        with open(self._out, "w", encoding="utf-8") as out, self._popen.stdout as lines:
            for line in lines:
                out.write(line)
                out.flush()
                if line.strip() == READY:
                    events.put((READY, self.index))
                elif line.strip():
                    self._last = line.strip()

    def _wait(self, events: Events) -> None:
        self.code = self._popen.wait()
        self.ended = epoch()
        events.put(("ended", self.index))

    def go(self) -> None:
        """Let the process through the gate; no effect if it has ended already."""
        if self._popen.stdin is not None:
            with suppress(OSError):
                self._popen.stdin.write("go\n")
                self._popen.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and all its descendants."""
        with suppress(OSError):
            os.killpg(self.pid, number)

    def join(self, seconds: float) -> None:
        """Wait for its end, at most for `seconds`."""
        self._waiter.join(seconds)

    def outcome(self) -> Ended:
        """Its outcome, after its end."""
        self._reader.join(LINGER)
        result, error = _result(self._last), _tail(self._err)
        status = "ok" if self.code == 0 else "failed"
        if self.late:
            status = "timeout"
        elif self.code is not None and self.code < 0:
            status = "killed"
            error = "; ".join(filter(None, [f"ended by signal {_signal_name(-self.code)}", error]))
        elif result and isinstance(result.get("status"), str):
            status = result["status"]
        if status == "failed" and not error:
            error = _without_room(self._err)
        return Ended(self.index, self.pid, status, self.code, self.started, self.ended, result, error)


def _wait_for_all(children: Mapping[int, _Child], events: Events, *, gate: bool,
                  timeout: float | None, tick: Tick | None) -> None:
    """Open the gate when all wait at it, then sample and watch the time until all have ended."""
    running, waiting = set(children), set(children) if gate else set()
    forever = float("inf")
    deadline = forever if timeout is None else now() + timeout
    next_tick = forever if tick is None else now()
    while running:
        if tick is not None and now() >= next_tick:
            next_tick = tick({i: children[i].pid for i in sorted(running)}) + now()
        if now() >= deadline:
            for index in running:
                children[index].late = True
            return
        until = min(deadline, next_tick)
        try:
            kind, index = events.get(timeout=None if until == forever else max(until - now(), 0.0))
        except queue.Empty:
            continue
        if kind == "ended":
            running.discard(index)
        if index in waiting:
            waiting.discard(index)
            if not waiting:
                for child in children.values():
                    child.go()


def _end(children: Sequence[_Child]) -> None:
    """End the running ones, first by request, then by force."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        left = [c for c in children if c.code is None]
        for child in left:
            child.signal(number)
        limit = now() + GRACE
        for child in left:
            child.join(max(limit - now(), 0.0))


def _result(line: str) -> dict[str, Any] | None:
    with suppress(ValueError):
        value = json.loads(line)
        return value if isinstance(value, dict) else None
    return None


def _tail(path: Path) -> str:
    """The end of a log."""
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(file.tell() - TAIL, 0))
        return file.read().decode("utf-8", "replace").strip()


def _without_room(path: Path) -> str:
    """Why an empty log may be without a message, if its disk is full; else ""."""
    with suppress(OSError):
        free = shutil.disk_usage(path.parent).free
        if free < _ROOM:
            return f"no message: {free / 1e3:.0f} kB are free on the disk of {path}; free some space and start again"
    return ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
