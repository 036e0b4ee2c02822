"""The commit of the source, and the versions of its libraries."""
import importlib.metadata
import platform
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from gpu_extract import __version__

_PACKAGES = ("numpy", "scipy", "numba", "astropy", "mpi4py", "cupy-cuda12x", "cupy-cuda13x")
_SECONDS = 5.0        # for git on a slow disk
# git, for the folder that it is given: hooks set variables that name another repository. It takes no lock in passing,
# which would refuse a commit that is made meanwhile
GIT = ("env", *(word for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY",
                                  "GIT_COMMON_DIR", "GIT_PREFIX") for word in ("-u", name)),
       "git", "--no-optional-locks")
_DIGITS = 12          # of a commit, appended to the version


def version() -> str:
    """The version of this package, followed by the commit if known: 0.1.0+d05421e62fb0."""
    known = commit()
    if known is None:
        return __version__
    return f"{__version__}+{known[:_DIGITS]}{'+' * known.endswith('+')}"


@cache
def commit() -> str | None:
    """The commit of the clone that this package runs from, followed by "+" if files were changed.

    None if it was installed, or git is missing.
    """
    folder = Path(__file__).resolve().parent
    found = _git(folder, "rev-parse", "HEAD")
    if not found or _git(folder, "ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    return found + ("+" if _git(folder, "status", "--porcelain", "-uno", "--", "..") else "")


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run([*GIT, "-C", str(folder), *words], capture_output=True, text=True, check=False,
                              timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def versions(packages: Iterable[str] = _PACKAGES) -> dict[str, str]:
    """Versions of Python, and of those of these libraries that are installed."""
    found = {"python": platform.python_version()}
    for name in packages:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def cpu_name() -> str:
    """The processor's name, as reported by the system."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
