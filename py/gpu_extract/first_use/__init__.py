"""Compiles kernels ahead of their first use, in parallel by short-lived processes, with progress.

The kernels of a run are known beforehand (kernel_list). Missing ones are compiled by separate processes, on the cores
of a node's ranks. Processes of other jobs that need the same kernels share the work (kernel_claims). A rank only starts
the processes, waits, and shows their progress. At the end a mark is left for the problem, so that the next start checks
only one file.
"""
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple
from math import ceil
from pathlib import Path
from threading import Thread

import numba
from numba.core.errors import NumbaError

from gpu_extract.first_use.kernel_claims import is_claimed, take_turns
from gpu_extract.first_use.kernel_list import Kernel, unit_then
from gpu_extract.kernels.kernel_cache import log, store
from gpu_extract.kernels.kernel_store import Store
from gpu_extract.libraries import check_version
from gpu_extract.perf.clock import epoch, now, sleep, thread_cpu
from gpu_extract.perf.recorder import COMPILE, usable_cores
from gpu_extract.seams import Comm, Recorder

check_version(numba)

Tell = Callable[[int, int, float], None]      # kernels done, kernels in all, seconds left
MOST = 16                  # largest number of processes at once; each takes 200 MB
FEW = 1.0                  # CPU seconds of compiling below which no process is started
UNUSED = 30 * 86400.0      # seconds after which an unused folder is removed
_DAY, _PAUSE = 86400.0, 0.1
_ROOT = Path(__file__).resolve().parents[2]
_WORK = f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from gpu_extract.first_use import work; work()"


def is_ready(mark: str) -> bool:
    """Whether the kernels of a problem were compiled before; the folder's age is then reset."""
    kept = store()
    if kept is None or not kept.marked(mark):
        return False
    with suppress(OSError):
        if kept.folder is not None and epoch() - kept.folder.stat().st_mtime > _DAY:
            (kept.folder / mark).unlink(missing_ok=True)      # which sets the folder's time, by the clock of its disk
            kept.leave(mark)
    return True


def get_ready(kernels: Callable[[], Sequence[Kernel]], mark: str, comm: Comm, recorder: Recorder, tell: Tell) -> int:
    """Compile missing kernels; all ranks call this. Returns the number of kernels that this rank has waited for.

    kernels: called if some node has no mark; tell: called on rank 0
    """
    if not comm.asked(lambda: not is_ready(mark)):
        return 0
    (number, ranks), count = comm.on_node(), []

    def fill() -> None:
        with recorder.span(COMPILE):
            count.append(compile_all(kernels, number, ranks, tell if comm.rank == 0 else None))
        kept = store()
        if number == 0 and kept is not None:
            kept.leave(mark)

    take_turns()
    comm.by_node(fill)
    return count[0]


def compile_all(kernels: Callable[[], Sequence[Kernel]], number: int = 0, ranks: int = 1,
                tell: Tell | None = None, *, few: float = FEW) -> int:
    """Compile missing kernels, as one of `ranks` on this node; returns their number.

    few: CPU seconds of compiling below which kernels are compiled when they are needed
    """
    kept = store()
    if kept is None or kept.folder is None:
        return 0
    missing = sorted((kernel for kernel in kernels() if _is_known(kernel) and not kept.has(kernel.file)),
                     key=lambda kernel: -kernel.seconds)
    seconds = sum(kernel.seconds for kernel in missing)
    if seconds <= few:
        return 0
    if number == 0:
        remove_unused(kept.folder)
    at_once = min(max(usable_cores() // ranks, 1), MOST, ceil(seconds / max(kernel.seconds for kernel in missing)) + 1,
                  len(missing) - number)
    workers = _started(missing, at_once)
    try:
        if number > 0:
            for worker in workers:
                worker.wait()
        else:
            _watch(kept, missing, workers, Estimate(missing, at_once * min(ranks, len(missing))), tell)
    finally:
        for worker in workers:
            if worker.stdin is not None:
                with suppress(OSError):
                    worker.stdin.close()              # which ends it
            worker.wait()
    return len(missing)


def _started(missing: Sequence[Kernel], count: int) -> list["subprocess.Popen[str]"]:
    """The compiling processes; none if the system does not allow any."""
    found = []
    with suppress(OSError):
        for _ in range(count):
            worker = subprocess.Popen([sys.executable, "-c", _WORK], stdin=subprocess.PIPE, text=True,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            found.append(worker)
            if worker.stdin is not None:
                worker.stdin.write(json.dumps([astuple(kernel) for kernel in missing]) + "\n")
                worker.stdin.flush()
    return found


def _watch(kept: Store, missing: Sequence[Kernel], workers: Sequence["subprocess.Popen[str]"], estimate: "Estimate",
           tell: Tell | None) -> None:
    """Wait until all kernels exist; those that no process makes are made here."""
    left, said = list(missing), -1
    while left:
        alive = any(worker.poll() is None for worker in workers)
        left = [kernel for kernel in left if not kept.has(kernel.file)]
        if tell is not None and len(missing) - len(left) != said:
            said = len(missing) - len(left)
            tell(said, len(missing), estimate.left(left))
        if not alive:
            break
        sleep(_PAUSE)
    for kernel in left:
        if kept.folder is None:             # nothing can be cached any more: each process compiles its own kernels
            return
        compile_one(kernel)
    if tell is not None and left:
        tell(len(missing), len(missing), 0.0)


def compile_one(kernel: Kernel) -> None:
    """Compile a kernel of the list. One whose arguments have changed is compiled when it is needed."""
    try:
        kernel.dispatcher.compile(kernel.types)
    except (NumbaError, TypeError):
        _out_of_date(kernel)


def _is_known(kernel: Kernel) -> bool:
    try:
        return bool(kernel.file)
    except (ImportError, AttributeError, TypeError):
        _out_of_date(kernel)
        return False


def _out_of_date(kernel: Kernel) -> None:
    log.warning(f"etc/kernels.json is out of date for {kernel.module}.{kernel.title}, which is compiled when it is "
                "needed; make the list again with bench/kernel_list.py --write")


class Estimate:
    """The time left: at first from a benchmark of this machine, then from the progress."""

    def __init__(self, kernels: Sequence[Kernel], at_once: int):
        self._all, self._at_once = sum(kernel.seconds for kernel in kernels), at_once
        self._slower, self._start = unit() / unit_then(), now()

    def left(self, kernels: Sequence[Kernel]) -> float:
        """Seconds for these remaining kernels; the longest come first, and those in progress are half done."""
        rest = sum(kernel.seconds for kernel in kernels)
        rest -= sum(kernel.seconds for kernel in kernels[:self._at_once]) / 2 if rest < self._all else 0.0
        done = max(self._all - rest, 1e-9)
        slower = (now() - self._start) * self._at_once / done if rest < self._all else self._slower
        return slower * max(rest / self._at_once, max((kernel.seconds for kernel in kernels), default=0.0) / 2)


def unit() -> float:
    """CPU seconds of a piece of Python on this machine, as compiling also runs Python.

    It is not wall-clock time, in which processes that load their libraries at this moment would count.
    """
    found = []
    for _ in range(5):
        start, total = thread_cpu(), 0
        for n in range(80000):
            total += n % 7
        found.append(thread_cpu() - start)
    return 5.0 * sorted(found)[2]


def work() -> None:
    """Run as one of the processes: compile the kernels listed on standard input that no other process compiles; end
    with the input."""
    rows = json.loads(sys.stdin.readline())
    Thread(target=_end_with_starter, daemon=True).start()
    take_turns()
    kept = store()
    for module, name, numbers, arguments, seconds in rows:
        kernel = Kernel(module, name, tuple(numbers), arguments, seconds)
        if kept is None or kept.folder is None:
            return
        if not is_claimed(kept.folder, kernel.file) and not kept.has(kernel.file):
            compile_one(kernel)


def _end_with_starter() -> None:
    """End this process when its starter has ended, or closes its input."""
    import os

    sys.stdin.read()
    os._exit(0)


def remove_unused(folder: Path) -> None:
    """Remove other kernel folders beside this one that were unused for UNUSED seconds, by the disk's clock."""
    with suppress(OSError):
        latest = folder.stat().st_mtime
        for other in folder.parent.iterdir():
            if other != folder and len(other.name) == len(folder.name) and latest - other.stat().st_mtime > UNUSED:
                shutil.rmtree(other, ignore_errors=True)
