"""Lists of lamp lines: the one that comes with the package, and a user's own."""
import os
from pathlib import Path

import numpy as np

from gpu_extract.errors import InputError, check_local
from gpu_extract.io.lines import arc_lines
from gpu_psf.data import Lines


def shipped_lines() -> Lines:
    """Lines of Hg, Cd, Ne, Ar, Kr and Xe lamps, vacuum wavelengths."""
    wave, strength = arc_lines()
    return Lines(wave, strength)


def read_lines(path: str | os.PathLike[str]) -> Lines:
    """Lines from a text file: in each line a wavelength in Angstrom and, if known, a strength; # begins a comment.

    Raises InputError.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        check_local(str(path))
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InputError(f"{path}: the list of lines cannot be read: {why}") from error
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].replace(",", " ").split()
        if words:
            rows.append(_row(words, f"{path}, line {number}"))
    if not rows:
        raise InputError(f"{path}: has no line; needed are a wavelength in Angstrom and, if known, a strength in each "
                         "line of text")
    wave, strength = np.array(sorted(rows)).T
    kept = np.concatenate([[True], np.diff(wave) > 0])
    return Lines(wave[kept], strength[kept])


def _row(words: list[str], where: str) -> tuple[float, float]:
    try:
        wave, strength = float(words[0]), _strength(words[1:])
    except ValueError:
        wave = strength = float("nan")
    if not (0 < wave < 1e6 and 0 <= strength < np.inf):
        raise InputError(f"{where}: is {' '.join(words[:4])!r}, needed are a wavelength in Angstrom and, if known, a "
                         "strength")
    return wave, strength


def _strength(words: list[str]) -> float:
    """The second word where it is a number; 1 where there is none (other words are names)."""
    try:
        return float(words[0]) if words else 1.0
    except ValueError:
        return 1.0
