"""The location of a user's caches, and of files that any user may make."""
import os
from pathlib import Path


def cache_folder() -> Path | None:
    """$XDG_CACHE_HOME/gpu_extract, else ~/.cache/gpu_extract; a relative XDG_CACHE_HOME is ignored.

    None for a user without a home.
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(given):
        return Path(given) / "gpu_extract"
    try:
        return Path.home() / ".cache" / "gpu_extract"
    except RuntimeError:
        return None


def temporary_folder() -> Path:
    """$TMPDIR if it is the name of a folder, else /tmp.

    tempfile.gettempdir writes a file to find out: it fails where the disk is full or read-only, or falls back to the
    current folder.
    """
    given = os.environ.get("TMPDIR", "")
    return Path(given if os.path.isabs(given) and os.path.isdir(given) else "/tmp")
