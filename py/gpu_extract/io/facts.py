"""The description of a frame in its file: its header, the meaning of STATUS, the tables BUNDLES and BACKGROUND."""
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from gpu_extract.data import NOT_MEASURED, Card, Frame, SpecMask, Status
from gpu_extract.fibermap import FIBRES_PER_SPECTROGRAPH, spectrograph_of
from gpu_extract.io.headers import merged
from gpu_extract.passes.background import coefficients_of
from gpu_extract.perf.source import version, versions

_PACKAGES = ("numpy", "scipy", "numba", "astropy")
_DEFAULT_FLAVOR = "science"
_HISTORY_WIDTH = 72
_OWN_BITS = (SpecMask.WEAKBIN, SpecMask.ODDPIX)
_COUNTED: dict[str, Status | SpecMask] = {
    "NEMPTY": Status.EMPTY, "NFAILED": Status.FAILED, "NDROPPED": Status.DROPPED,
    "NWEAK": SpecMask.WEAKBIN}      # in the header
# column of BUNDLES: type, meaning; from a bundle's notes, -1 if unknown
_FACTS = {
    "HALFBAND": (np.int32, "bins at which spots overlap"),
    "OWNBAND": (np.int32, "the same within a fibre"),
    "NEIGHBOURS": (np.int32, "fibres at which spots overlap"),
    "ITERATIONS": (np.int32, "for the deconvolved flux, 0: solved directly"),
    "ERROR": (np.float64, "what they leave of it, sigma, all bins"),
    "COUPLING": (np.float64, "largest correlation of two fibres"),
    "COND": (np.float64, "bound on a fibre's condition number"),
    "SELFCHECK": (np.float64, "largest error of a fibre's squares"),
}


def frame_cards(frame: Frame, extra: Sequence[Card] = ()) -> tuple[Card, ...]:
    """The header of a frame's files: the cards of its input image, then those that describe the frame.

    extra: cards from the caller (IN_IMG, IN_PSF, HELIOCOR, ...)
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
    return merged(frame.cards, [*cards, *extra, *_history(frame), *_dependencies([*frame.cards, *extra])])


def fibermin(frame: Frame) -> int:
    """Smallest fibre number: from FIBER of the fibermap, else counted through the spectrographs."""
    if frame.fibermap is not None and "FIBER" in (frame.fibermap.rows.dtype.names or ()):
        return int(np.min(frame.fibermap.rows["FIBER"]))
    number = spectrograph_of(frame.cards)
    return int(np.min(frame.fibres)) + (number or 0) * FIBRES_PER_SPECTROGRAPH


def _dependencies(there: Sequence[Card]) -> list[Card]:
    """DEPNAMnn and DEPVERnn of Python, the libraries and this code, added to those in `there`, or replacing them."""
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
    """HISTORY cards on how the frame was made: the notes, and the numbers of bins with other statuses than GOOD."""
    lines = [f"{key}: {_plain(value)}" for key, value in _flat(frame.notes)]
    if frame.status is not None:
        counts = count_bins(frame.status, frame.mask)
        lines += [f"{counts[state]} bins: {state.sentence}" for state in Status
                  if state != Status.GOOD and counts[state]]
    return [Card("HISTORY", part) for line in lines
            for part in textwrap.wrap(f"gpu_extract {line}", _HISTORY_WIDTH, subsequent_indent="    ")]


def _flat(notes: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Nested notes, one line for each inner one: bundles 25: iterations 3, ..."""
    for key, value in notes.items():
        if isinstance(value, Mapping):
            yield from ((f"{key} {inner}", content) for inner, content in value.items())
        elif not isinstance(value, np.ndarray):      # arrays of pixels are too large for a header
            yield key, value


def _plain(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(content)}" for key, content in value.items())
    return "; ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def count_bins(status: np.ndarray, mask: np.ndarray) -> dict[Status | SpecMask, int]:
    """Number of bins with each status, and with each mask bit of this program."""
    top, bits = status.max(initial=0), int(np.bitwise_or.reduce(mask, axis=None))     # usually few, which is quick
    of_status = {state: int(np.count_nonzero(status == state)) if state <= top else 0 for state in Status}
    return of_status | {bit: int(np.count_nonzero(mask & np.uint32(bit))) if bits & bit else 0 for bit in _OWN_BITS}


def count_cards(frame: Frame) -> list[Card]:
    """Cards with the numbers of bins without data, by reason, of weak bins, and of odd pixels; none without a status.

    The odd pixels of a frame that was read are unknown: their card is kept.
    """
    if frame.status is None:
        return []
    counts = count_bins(frame.status, frame.mask)
    odd = [] if not frame.notes else [
        Card("NODDPIX", masked_pixels(frame, "odd_pixels"), "Odd pixels, treated as masked")]
    passes = [] if frame.notes.get("passes", 1) == 1 else [
        Card("PASSES", int(frame.notes["passes"]), "How often the image was solved"),
        Card("RDNFROM", str(frame.notes["read_noise"]), "Source of the read noise"),
        Card("NREJECT", masked_pixels(frame, "rejected"), "Pixels that stood out from the model, masked"),
        Card("NCOSMIC", int(np.count_nonzero(frame.mask & SpecMask.COSMIC)), "Bins with mask bit COSMIC")]
    return [*(Card(key, counts[each], f"Bins {_having(each)} {each.name}") for key, each in _COUNTED.items()), *odd,
            *passes]


def masked_pixels(frame: Frame, which: str) -> int:
    """Number of pixels that were treated as masked, summed over the bundles.

    which: "odd_pixels", whose value or ivar makes no sense, or "rejected", which stood out from the model of the image
    """
    return sum(int(notes.get(which, 0)) for notes in frame.notes.get("bundles", {}).values())


def _having(each: Status | SpecMask) -> str:
    return "of status" if isinstance(each, Status) else "with mask bit"


def status_cards() -> list[Card]:
    """The name and the sentence of each value of STATUS."""
    return [Card(f"STATUS{state.value}", f"{state.name}: {state.sentence}") for state in Status]


def bundle_table(frame: Frame) -> tuple[np.ndarray, dict[str, str]] | None:
    """The rows of BUNDLES and the meaning of each column, or None if it is unknown how the frame was made.

    A row is an instrument bundle, whose fibres were solved together; bins are counted in its requested fibres.
    """
    bundles: Mapping[int, Mapping[str, Any]] = frame.notes.get("bundles", {})
    if frame.status is None or not bundles or not all("fibres" in notes for notes in bundles.values()):
        return None
    counted = [*Status, *_OWN_BITS]
    meant = {"FIRST": "first fibre within the camera", "NFIBRE": "fibres of the bundle",
             "NSPEC": "spectra of it in this file", "CORE": "what decorrelated: banded, dense, both",
             **{name: text for name, (_, text) in _FACTS.items()},
             **{str(each.name): f"bins {_having(each)} {each.name}" for each in counted},
             "ON_CPU": "fibres that a device left to the CPU"}
    if frame.notes.get("passes", 1) > 1:
        meant["REJECTED"] = "pixels that stood out from the model"
    types = {**dict.fromkeys(meant, np.int32), "CORE": "S6", **{name: kind for name, (kind, _) in _FACTS.items()}}
    rows = np.zeros(len(bundles), list(types.items()))
    for n, (first, notes) in enumerate(sorted(bundles.items())):
        mine = slice(*np.searchsorted(frame.fibres, [first, first + notes["fibres"]]))
        counts = count_bins(frame.status[mine], frame.mask[mine])
        facts = [notes.get(name.lower(), NOT_MEASURED) for name in _FACTS]
        facts = [fact if np.isfinite(fact) else NOT_MEASURED for fact in facts]      # a fact must not lose the frame
        rows[n] = (first, notes["fibres"], len(frame.fibres[mine]), _core(str(frame.notes.get("core")), counts),
                   *facts, *(counts[each] for each in counted), notes.get("on_cpu", 0),
                   *([notes.get("rejected", 0)] if "REJECTED" in meant else []))
    return rows, meant


def background_table(frame: Frame) -> tuple[np.ndarray, dict[str, str]] | None:
    """The rows of BACKGROUND, one for each instrument bundle, and the meaning of each column, or None without a
    background."""
    bundles = {first: notes for first, notes in sorted(frame.notes.get("bundles", {}).items())
               if "background_first" in notes}
    if not bundles:
        return None
    found = [coefficients_of(notes) for notes in bundles.values()]
    meant = {"FIRST": "first fibre of the bundle", "ROW_FIRST": "of the CCD, where polynomials are at -1",
             "ROW_LAST": "of the CCD, where they are at 1",
             "COEFF": "electron a pixel, of Legendre polynomials"}
    rows = np.zeros(len(bundles), [("FIRST", np.int32), ("ROW_FIRST", np.int32), ("ROW_LAST", np.int32),
                                   ("COEFF", np.float64, (max(map(len, found)),))])
    for row, (first, notes), values in zip(rows, bundles.items(), found, strict=True):
        row["FIRST"], row["ROW_FIRST"], row["ROW_LAST"] = first, notes["background_first"], notes["background_last"]
        row["COEFF"][:len(values)] = values
    return rows, meant


def _core(asked: str, counts: Mapping[Status | SpecMask, int]) -> str:
    """The core that decorrelated: the requested one, or the one from the status."""
    if asked == "dense" or not counts[Status.DENSE]:
        return "dense" if asked == "dense" else "banded"
    return "both" if counts[Status.GOOD] or counts[Status.WIDE_BAND] else "dense"
