"""The processes of a job step on this node: one group under srun, which lets them wait for one that is lost.

The keepers among them are told to end by a signal. It would kill whoever has no handler for it, and srun would end
with the code of that: wrappers of ranks, which end with what they wrap, and ranks that have not yet come to their
keeper. So it is sent to those alone that look out for it, as often as it takes until nobody else is left.
"""
import os
import signal
from collections.abc import Iterator
from contextlib import suppress

from gpu_extract.perf.clock import process_state, sleep

_PARENT, _GROUP = 1, 2             # of process_state
_LOOK, _LOOKS = 0.1, 150           # seconds between two looks, and how many; then whoever is left is killed


def end_group(number: int) -> None:
    """Send signal `number` to others of this process's group that handle it, until all others have ended.

    Not waited for: this one's ancestors, and whoever blocks the signal: it is about to end, or ends others as well.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    for _ in range(_LOOKS):
        left = False
        for pid in _others():
            handled, blocked = _is_in(pid, "SigCgt", number), _is_in(pid, "SigBlk", number)
            if handled or blocked:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            left |= not blocked
        if not left:
            return
        sleep(_LOOK)
    os.killpg(0, signal.SIGKILL)


def _others() -> Iterator[int]:
    """Processes of this one's group that have not ended, without itself and its ancestors."""
    states = {pid: process_state(pid) for pid in map(int, filter(str.isdigit, os.listdir("/proc")))}
    spared, pid = set(), os.getpid()
    while states.get(pid):
        spared.add(pid)
        pid = int(states[pid][_PARENT])
    for other, state in states.items():
        if state and state[0] not in "ZX" and int(state[_GROUP]) == os.getpgrp() and other not in spared:
            yield other


def _is_in(pid: int, signals: str, number: int) -> bool:
    """Whether a signal is in a set that Linux tells of a process (proc(5), status)."""
    with suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        told = next((line.split()[1] for line in file if line.startswith(f"{signals}:")), "0")
        return bool(int(told, 16) >> (number - 1) & 1)
    return False
