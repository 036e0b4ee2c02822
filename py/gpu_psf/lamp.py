"""Lists of lamp lines: the list of the package, and a user's own."""
import re
from contextlib import suppress
from pathlib import Path

import numpy as np

from gpu_extract.errors import FileName, InputError, reading
from gpu_extract.io.lines import arc_lines
from gpu_psf.data import Lines

DECIMAL_COMMA = re.compile(r"\s*\d+,\d")      # no wavelength of a lamp is a whole number


def shipped_lines() -> Lines:
    """Lines of Hg, Cd, Ne, Ar, Kr and Xe lamps, vacuum wavelengths."""
    wave, strength = arc_lines()
    return Lines(wave, strength)


def read_lines(path: FileName) -> Lines:
    """Lines from a text file: in each line a wavelength in Angstrom and, if known, a strength; # begins a comment.

    Of several lines at one wavelength the strongest is used. Raises InputError.
    """
    try:
        with reading(path, "the list of lines "):
            text = Path(path).read_text(encoding="utf-8-sig")     # Windows editors write a byte order mark
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: the list of lines is not a text file") from error
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        said = line.partition("#")[0]
        words = said.replace(",", " ").split()
        if DECIMAL_COMMA.match(said):
            raise InputError(f"{path}, line {number}: is {said.strip()[:40]!r}, which has a decimal comma; write "
                             "decimal points, and a space after a comma that ends a column")
        if words:
            rows.append(_row(words, f"{path}, line {number}"))
    if not rows:
        raise InputError(f"{path}: lists no line; each line of text must hold a wavelength in Angstrom and, if known, "
                         "a strength")
    wave, strength = np.array(sorted(rows, key=lambda row: (row[0], -row[1]))).T
    kept = np.concatenate([[True], np.diff(wave) > 0])
    return Lines(wave[kept], strength[kept])


def _row(words: list[str], where: str) -> tuple[float, float]:
    """A wavelength and a strength, which is 1 unless the second word is a number: other words are names."""
    wave, strength = float("nan"), 1.0
    with suppress(ValueError):
        wave = float(words[0])
    with suppress(ValueError, IndexError):
        strength = float(words[1])
    if not (0 < wave < 1e6 and 0 <= strength < np.inf):
        raise InputError(f"{where}: is {' '.join(words[:4])!r}, must be a wavelength in Angstrom and, if known, a "
                         "strength")
    return wave, strength
