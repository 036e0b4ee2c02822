"""Header cards to and from astropy, with their comments and without structural keywords."""
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import astropy
from astropy.io import fits

from gpu_extract.data import Card
from gpu_extract.libraries import check_version

check_version(astropy)

# set by the writer of the HDU; copies would be wrong in the new one
_STRUCTURAL = frozenset((
    "SIMPLE", "XTENSION", "BITPIX", "NAXIS", "EXTEND", "PCOUNT", "GCOUNT", "GROUPS", "BLOCKED", "BSCALE",
    "BZERO", "BLANK", "TFIELDS", "THEAP", "CHECKSUM", "DATASUM", "EXTNAME", "EXTVER", "EXTLEVEL", "INHERIT",
    "LONGSTRN", "CONTINUE", "END"))
_NUMBERED = re.compile(r"(NAXIS|TTYPE|TFORM|TUNIT|TDIM|TNULL|TSCAL|TZERO|TDISP|TBCOL)\d+")
_COMMENTARY = ("COMMENT", "HISTORY", "")
_PLAIN_KEY = re.compile(r"[A-Z0-9_-]{1,8}")
_ANY_KEY = re.compile(r"([!-<>-~]+ ?)*")           # valid keywords of a card, HIERARCH or not


def cards_of(header: fits.Header) -> tuple[Card, ...]:
    """All cards except structural ones; of several with one keyword the first, which is the one that readers see.

    A card that cannot be parsed is left out, because its name or value is unknown.
    """
    cards: dict[str | int, Card] = {}
    for card in header.cards:
        key = card.keyword.upper()
        if key in _STRUCTURAL or _NUMBERED.fullmatch(key) or not _ANY_KEY.fullmatch(key):
            continue
        try:
            value, comment = card.value, card.comment
        except (fits.VerifyError, ValueError):
            continue
        cards.setdefault(len(cards) if key in _COMMENTARY else key,
                         Card(key, None if isinstance(value, fits.card.Undefined) else value, comment))
    return tuple(cards.values())


def number_of(value: Any) -> float:
    """The value of a card, a number or text, as a number; NaN if it is not one."""
    try:
        return float("nan" if isinstance(value, bool) else value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def header_of(cards: Iterable[Card]) -> fits.Header:
    """An astropy header of these cards; structural ones are left out."""
    header = fits.Header()
    for card in cards:
        if card.key not in _STRUCTURAL and not _NUMBERED.fullmatch(card.key):
            header.append(_astropy_card(card), end=True)
    return header


def _astropy_card(card: Card) -> fits.Card:
    if card.key in _COMMENTARY:
        return fits.Card(card.key, _ascii(card.value)[:72])
    key = card.key if _PLAIN_KEY.fullmatch(card.key) else f"HIERARCH {card.key}"
    bare = fits.Card(key, _astropy_value(card.value))
    image = str(bare).rstrip()
    if len(image) > 80:                  # a long string continues in CONTINUE cards
        return bare
    comment = _ascii(card.comment)[:max(80 - len(image) - 3, 0)]
    return fits.Card(key, bare.value, comment)


def _astropy_value(value: object) -> object:
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)                # FITS has no such number
    if value is None or isinstance(value, (bool, int, float, complex)):
        return value
    return _ascii(value)


def _ascii(value: object) -> str:
    """A text as printable ASCII, which is all that a header may hold; other characters are escaped, so that different
    texts stay different."""
    text = str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if " " <= c <= "~" else c.encode("unicode_escape").decode("ascii") for c in text)


def merged(*groups: Sequence[Card]) -> tuple[Card, ...]:
    """The cards of all groups; a later card replaces an earlier one of the same keyword."""
    cards = enumerate(card for group in groups for card in group)
    placed = {number if card.key in _COMMENTARY else card.key: card for number, card in cards}
    return tuple(placed.values())
