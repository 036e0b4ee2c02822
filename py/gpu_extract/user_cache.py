"""The location of a user's caches."""
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
