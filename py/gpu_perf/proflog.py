"""What Python's own profiler recorded, as text."""
import pstats
from io import StringIO

from gpu_extract.errors import InputError, reading

_DICTIONARY = b"{", b"\xfb"      # what marshal's own begin with, the second where it refers to itself


def profile_text(path: str, top: int | None = None) -> str:
    """A profile dump (python -m cProfile -o FILE ...) as lines, sorted by cumulative time.

    top: only so many lines. Raises InputError where the file is not a profile.
    """
    if top is not None and top < 1:
        raise InputError(f"the number of lines is {top}, must be 1 or more")
    lines = StringIO()
    try:
        with reading(path):
            with open(path, "rb") as dump:
                if dump.read(1)[:1] not in _DICTIONARY:       # marshal believes what other files say of their size
                    raise ValueError
            stats = pstats.Stats(path, stream=lines)
    except (EOFError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} is not a profile: make one with python -m cProfile -o FILE ...") from error
    stats.strip_dirs().sort_stats(pstats.SortKey.CUMULATIVE).print_stats(*([] if top is None else [top]))
    return lines.getvalue()
