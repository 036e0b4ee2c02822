"""Facts about the machine that need no GPU: processor, cores, memory."""
import platform
from pathlib import Path
from typing import Any

from gpu_extract.perf.recorder import usable_cores
from gpu_extract.perf.source import cpu_name

GIB = 2.0**30
_CGROUP = Path("/sys/fs/cgroup")


def machine() -> dict[str, Any]:
    """Host name, system, processor, cores this process may use, bytes of memory."""
    return {"host": platform.node(), "system": f"{platform.system()} {platform.release()}",
            "python": platform.python_version(), "processor": cpu_name(), "cores": usable_cores(),
            "memory": _meminfo("MemTotal"), "memory_available": memory_available()}


def memory_available() -> int | None:
    """Bytes that can be allocated without swapping, or None if the system does not report it.

    The smaller of what the operating system calls available and what a control group (a batch job) has left.
    """
    known = [n for n in (_meminfo("MemAvailable"), _group_left()) if n is not None]
    return min(known) if known else None


def _meminfo(key: str) -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith(f"{key}:")]
    return int(found[0]) * 1024 if found else None


def _group_left() -> int | None:
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = (_CGROUP / "memory.current").read_text().strip()
    except OSError:
        return None
    return None if limit == "max" else max(int(limit) - int(used), 0)
