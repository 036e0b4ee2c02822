"""Header of what is written: the input's cards, what was extracted, with what, and how."""
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from gpu_extract.data import Card, Frame, Status
from gpu_extract.fibermap import FIBRES_PER_SPECTROGRAPH, spectrograph_of
from gpu_extract.io.facts import count_bins
from gpu_extract.perf.source import version, versions

_PACKAGES = ("numpy", "scipy", "numba", "astropy")
_DEFAULT_FLAVOR = "science"
_HISTORY_WIDTH = 72


def frame_cards(frame: Frame, extra: Sequence[Card] = ()) -> list[Card]:
    """Cards that describe a frame, in addition to those of its input image.

    extra: what only the caller knows (IN_IMG, IN_PSF, HELIOCOR, ...)
    """
    wave = frame.wave
    step = (wave[-1] - wave[0]) / max(len(wave) - 1, 1)
    cards = [
        Card("NSPEC", len(frame.fibres), "Number of spectra"),
        Card("WAVEMIN", round(float(wave[0]), 6), "First wavelength [Angstrom]"),
        Card("WAVEMAX", round(float(wave[-1]), 6), "Last wavelength [Angstrom]"),
        Card("WAVESTEP", round(float(step), 6), "Wavelength step size [Angstrom]"),
        Card("SPECMIN", int(frame.fibres[0]), "First fibre within the camera"),
        Card("FIBERMIN", fibermin(frame), "Smallest fibre number"),
    ]
    if next((c.value for c in frame.cards if c.key == "FLAVOR"), None) is None:
        cards.append(Card("FLAVOR", _DEFAULT_FLAVOR, "Assumed: the input has none"))
    return [*cards, *extra, *_history(frame), *dependencies([*frame.cards, *extra])]


def fibermin(frame: Frame) -> int:
    """Smallest fibre number: from FIBER of the fibermap, else counted through the spectrographs."""
    if frame.fibermap is not None and "FIBER" in (frame.fibermap.rows.dtype.names or ()):
        return int(np.min(frame.fibermap.rows["FIBER"]))
    number = spectrograph_of(frame.cards)
    return int(np.min(frame.fibres)) + (number or 0) * FIBRES_PER_SPECTROGRAPH


def dependencies(there: Sequence[Card]) -> list[Card]:
    """DEPNAMnn and DEPVERnn of Python, the libraries and this code, after or in place of those `there`."""
    named = {str(c.value): c.key[6:] for c in there if re.fullmatch(r"DEPNAM\d\d", c.key)}
    used = {int(n) for n in named.values()}
    free = (n for n in range(100) if n not in used)
    cards = []
    for name, what in _versions().items():
        number = named.get(name) or f"{next(free):02d}"
        cards += [Card(f"DEPNAM{number}", name), Card(f"DEPVER{number}", what)]
    return cards


@cache
def _versions() -> dict[str, str]:
    return {**versions(_PACKAGES), "gpu_extract": version()}


def _history(frame: Frame) -> list[Card]:
    """How the frame was made, in HISTORY cards: the notes, and how many bins did not go the normal way."""
    lines = [f"{key}: {_plain(value)}" for key, value in _flat(frame.notes)]
    if frame.status is not None:
        counts = count_bins(frame.status, frame.mask)
        lines += [f"{counts[state]} bins: {state.sentence}" for state in Status
                  if state != Status.GOOD and counts[state]]
    return [Card("HISTORY", part) for line in lines
            for part in textwrap.wrap(f"gpu_extract {line}", _HISTORY_WIDTH, subsequent_indent="    ")]


def _flat(notes: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Notes within notes, one line for each inner one: bundles 25: iterations 3, ..."""
    for key, value in notes.items():
        if isinstance(value, Mapping):
            yield from ((f"{key} {inner}", content) for inner, content in value.items())
        elif not isinstance(value, np.ndarray):      # of pixels: too many for a header
            yield key, value


def _plain(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(content)}" for key, content in value.items())
    return "; ".join(map(str, value)) if isinstance(value, tuple) else str(value)
