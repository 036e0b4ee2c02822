"""Where the user's cache is, and the embedded frame that is kept there."""
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_extract import user_cache
from gpu_extract.errors import OutputError

if TYPE_CHECKING:
    from gpu_extract.simulate import EmbeddedFiles


def cache_folder() -> Path:
    """See user_cache. Raises OutputError for a user without a home."""
    folder = user_cache.cache_folder()
    if folder is None:
        raise OutputError("you have no home folder to keep a simulated frame in; set XDG_CACHE_HOME to a folder that "
                          "can be written to, or give -i and -p")
    return folder


def embedded_default(specmin: int, nspec: int | None, log: Callable[[str], None], *,
                     threads: int = 1) -> "EmbeddedFiles":
    """Files of the embedded simulated frame in the user's cache (see simulate.embedded)."""
    from gpu_extract.simulate.embedded import embedded_default as make

    return make(specmin, nspec, log, folder=cache_folder(), threads=threads)


def embedded_there(specmin: int, nspec: int | None) -> "EmbeddedFiles | None":
    """The same files, where they are there and sound; nothing is made."""
    from gpu_extract.simulate.embedded import embedded_there as there

    return there(specmin, nspec, folder=cache_folder())
