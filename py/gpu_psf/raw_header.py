"""The header of a raw image: what it says about the detector, none of which is used, and what no longer holds."""
import re
from collections.abc import Iterator, Sequence

from gpu_extract.data import Card
from gpu_extract.io.headers import number_of
from gpu_psf.detector import Detector

_AMPLIFIER = r"_?[A-H0-9]{0,2}"
_GAIN, _SATURATION = re.compile("E?GAIN" + _AMPLIFIER), re.compile("SATU(R|RATE|LEV|RLEV)?" + _AMPLIFIER)
_NOISE = re.compile("(RDNOISE?|OBSRDN|READNOIS|RON)" + _AMPLIFIER)
# places on the image as it was read: sections, world and detector coordinates
_PLACES = re.compile(r"[A-Z]{2,6}SEC[A-H0-9]{0,2}|(CTYPE|CUNIT|CRPIX|CRVAL|CDELT|CROTA|CNAME|LTV|ATV|DTV)\d+[A-Z]?|"
                     r"(CD|PC|LTM|ATM|DTM)\d+_\d+[A-Z]?")
GAIN, NOISE = 0.01, 0.1             # relative differences that count


def holding(cards: Sequence[Card], *, turned: bool) -> Iterator[Card]:
    """The cards that hold for the image in electrons: none about gain, noise and saturation in ADU; if the image is
    turned, none about places."""
    for card in cards:
        if not any(kind.fullmatch(card.key) for kind in (_GAIN, _NOISE, _SATURATION, *([_PLACES] if turned else []))):
            yield card


def unused(cards: Sequence[Card], detector: Detector) -> list[str]:
    """Warnings, as sentences, about values in the header that differ from those that are used."""
    gain, noise, full = (_values(cards, kind) for kind in (_GAIN, _NOISE, _SATURATION))
    return [*_gain(gain, detector), *_noise(noise, detector), *_saturation(full, detector)]


def _values(cards: Sequence[Card], kind: re.Pattern[str]) -> dict[str, float]:
    """Values above 0 of the cards of a kind, by their names."""
    return {card.key: value for card in cards if kind.fullmatch(card.key) and (value := number_of(card.value)) > 0}


def _listed(values: dict[str, float]) -> str:
    return ", ".join(f"{key} {value:.4g}" for key, value in values.items())


def _gain(values: dict[str, float], detector: Detector) -> Iterator[str]:
    """About gains that differ from the one that is used, in electron/ADU or ADU/electron."""
    used = detector.gain
    if any(min(abs(value / used - 1), abs(value * used - 1)) > GAIN for value in values.values()):
        yield (f"the raw image's header has {_listed(values)}, which is not used: all pixels have the gain {used:.4g} "
               "electron/ADU; if its amplifiers differ, so does the light on them")


def _noise(values: dict[str, float], detector: Detector) -> Iterator[str]:
    """About amplifiers of unequal read noise where that of the pixels is not measured. Its unit is unknown."""
    if detector.noise is None and values and max(values.values()) > (1 + NOISE) * min(values.values()):
        yield (f"the raw image's header has {_listed(values)}, which is not used: all pixels have the read noise "
               f"{detector.read_noise:.3g} electron; give dark frames (--dark), and it is measured")


def _saturation(values: dict[str, float], detector: Detector) -> Iterator[str]:
    """About a saturation below the one that is used: saturated pixels would count as light."""
    if values and min(values.values()) < detector.saturation:
        yield (f"the raw image's header has {_listed(values)}, which is not used: pixels below "
               f"{detector.saturation:.6g} ADU are taken to be unsaturated; give --saturation")
