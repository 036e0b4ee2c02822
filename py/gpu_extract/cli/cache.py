"""Where the user's cache is, and the embedded frame that is kept there."""
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_extract.simulate import EmbeddedFiles


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/gpu_extract, else ~/.cache/gpu_extract; a relative XDG_CACHE_HOME does not count."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(given) if os.path.isabs(given) else Path.home() / ".cache"
    return base / "gpu_extract"


def embedded_default(specmin: int, nspec: int | None, log: Callable[[str], None], *,
                     threads: int = 1) -> "EmbeddedFiles":
    """Files of the embedded simulated frame in the user's cache (see simulate.embedded)."""
    from gpu_extract.simulate import embedded_default as make

    return make(specmin, nspec, log, folder=cache_folder(), threads=threads)
