"""The structure of a FITS file, from its raw cards, validated before it is used.

astropy trusts headers: one that claims 2^63 axes or -60 rows keeps it busy for ever, and one that claims 10^15 pixels
makes it allocate the memory. Here a header is trusted only if the file has the bytes that it claims, and its numbers
are within the limits below.
"""
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, takewhile
from math import ceil, prod

BLOCK, CARD = 2880, 80
MOST_HDUS = 256
MOST_BLOCKS = 1000           # of a header: 36000 cards
MOST_AXES = 999              # and columns: the FITS standard's own limit
MOST_BYTES = 512 << 20       # of a compressed image, unpacked
_INTEGER = re.compile(rb" *([+-]?\d{1,19}) *(/.*)?")
_STRING = re.compile(rb" *'((?:[^']|'')*)'")
_SINGLE = ("SIMPLE", "XTENSION", "BITPIX", "NAXIS", "PCOUNT", "GCOUNT", "GROUPS", "TFIELDS", "THEAP", "EXTNAME",
           "EXTVER", "CHECKSUM", "DATASUM", "BZERO", "BSCALE", "BLANK", "ZIMAGE", "ZBITPIX", "ZNAXIS", "ZCMPTYPE",
           "ZSCALE")
_NUMBERED = ("NAXIS", "TTYPE", "TFORM", "TBCOL", "TSCAL", "TZERO", "TNULL", "TDIM", "ZNAXIS", "ZTILE",
             "ZNAME", "ZVAL")
_OF_INTEREST = re.compile(rf"({'|'.join(_SINGLE)}|({'|'.join(_NUMBERED)})[1-9]\d*)".encode())
_PARAMETERS = {"BLOCKSIZE": (16, 32), "BYTEPIX": (1, 2, 4)}     # of Rice; other values crash decompressors
_FORM = re.compile(r"(\d{0,10})([LXBIJKAEDCMPQ])(.*)")
_ASCII_FORM = re.compile(r"[AIFED](\d{1,9})(\.\d{1,9})?")
_WIDTH = {"L": 1, "B": 1, "I": 2, "J": 4, "K": 8, "A": 1, "E": 4, "D": 8, "C": 8, "M": 16, "P": 8, "Q": 16}


class Odd(Exception):
    """An error in a header, in words that name the card, its value and the allowed values."""


@dataclass(frozen=True)
class Layout:
    """The layout of one HDU, from its cards: kind (IMAGE, BINTABLE, ...), axes as NAXIS1, NAXIS2, ..., bytes of its
    data.

    header, data, end: byte offsets in its file; checksum, datasum: their cards
    lossy: whether it is a compressed image whose pixels were rounded; scaled: whether its numbers are scaled values
    """

    kind: str
    bitpix: int
    axes: tuple[int, ...]
    size: int
    name: str
    header: int
    data: int
    end: int
    checksum: str | None
    datasum: str | None
    version: int
    lossy: bool
    scaled: bool


def end_of(header: bytes) -> int | None:
    """The end of a header's last block, None if it continues after these bytes."""
    start = header.find(b"END" + b" " * 77)
    while start >= 0 and start % CARD:
        start = header.find(b"END" + b" " * 77, start + 1)
    return None if start < 0 else (start // BLOCK + 1) * BLOCK


def layout_of(header: bytes, start: int, number: int) -> Layout:
    """The layout of HDU `number`, from the header at byte `start`. Raises Odd."""
    cards = _Cards(header)
    if number == 0 and not cards.logical("SIMPLE"):
        raise Odd("SIMPLE is not T: the file declares itself not to be standard FITS")
    kind = "IMAGE" if number == 0 else cards.text("XTENSION").upper()
    bitpix = _bitpix(cards, "BITPIX")
    axes = tuple(cards.integer(f"NAXIS{n + 1}", lowest=0) for n in range(cards.integer("NAXIS", 0, MOST_AXES)))
    groups = number == 0 and cards.logical("GROUPS")
    extra = groups or number > 0
    pcount = cards.integer("PCOUNT", 0, default=0 if number == 0 else None) if extra else 0
    gcount = cards.integer("GCOUNT", 1, default=1 if number == 0 else None) if extra else 1
    random = groups and bool(axes) and axes[0] == 0
    elements = prod(axes[1:] if random else axes) if axes else 0
    size = abs(bitpix) // 8 * gcount * (pcount + elements)
    if not random and kind in ("IMAGE", "TABLE") and pcount:
        raise Odd(f"PCOUNT is {pcount}, must be 0 for {kind}")
    if not random and kind in ("IMAGE", "TABLE", "BINTABLE") and gcount != 1:
        raise Odd(f"GCOUNT is {gcount}, must be 1 for {kind}")
    if kind in ("BINTABLE", "A3DTABLE", "TABLE"):
        _check_columns(cards, kind, bitpix, axes, pcount)
    lossy = cards.logical("ZIMAGE") and _compressed(cards, kind, axes)
    data = start + len(header)
    return Layout(kind, bitpix, axes, size, cards.text("EXTNAME", "") or str(number), start, data,
                  data + ceil(size / BLOCK) * BLOCK, cards.text("CHECKSUM", "") or None,
                  cards.text("DATASUM", "") or None, cards.integer("EXTVER", default=1), lossy,
                  any(cards.holds(key) for key in ("BSCALE", "BZERO", "BLANK")))


def _bitpix(cards: "_Cards", key: str) -> int:
    value = cards.integer(key)
    if value not in (8, 16, 32, 64, -32, -64):
        raise Odd(f"{key} is {value}, must be 8, 16, 32, 64, -32 or -64")
    return value


def _check_columns(cards: "_Cards", kind: str, bitpix: int, axes: tuple[int, ...], pcount: int) -> None:
    """Check that the columns of a table fill its rows."""
    if bitpix != 8 or len(axes) != 2:
        raise Odd(f"a table with BITPIX {bitpix} and NAXIS {len(axes)}, must be 8 and 2")
    forms = [cards.text(f"TFORM{n + 1}").upper() for n in range(cards.integer("TFIELDS", 0, MOST_AXES))]
    if kind == "TABLE":
        for n, form in enumerate(forms, 1):
            match, first = _ASCII_FORM.fullmatch(form), cards.integer(f"TBCOL{n}", 1)
            if match is None or first - 1 + int(match[1]) > axes[0]:
                raise Odd(f"TFORM{n} is {form!r} from byte {first} of a row on, rows have {axes[0]} bytes")
        return
    width = 0
    for n, form in enumerate(forms, 1):
        match = _FORM.match(form)
        if match is None:
            raise Odd(f"TFORM{n} is {form!r}, must be a number and one of {''.join(sorted({*_WIDTH, 'X'}))}")
        repeat = int(match[1] or 1)
        if match[2] in "PQ" and repeat > 1:
            raise Odd(f"TFORM{n} is {form!r}: a row must have one such array, or none")
        width += ceil(repeat / 8) if match[2] == "X" else repeat * _WIDTH[match[2]]
    if width != axes[0]:
        raise Odd(f"NAXIS1 is {axes[0]}, but its columns (TFORMn) take {width} bytes")
    if axes[0] == 0 and axes[1] > MOST_BLOCKS:
        raise Odd(f"NAXIS2 is {axes[1]}, but its rows have no bytes")
    heap = cards.integer("THEAP", default=prod(axes))
    if not prod(axes) <= heap <= prod(axes) + pcount:
        raise Odd(f"THEAP is {heap}, must be between {prod(axes)} and {prod(axes) + pcount}")


def _compressed(cards: "_Cards", kind: str, axes: tuple[int, ...]) -> bool:
    """Whether a compressed image is lossy; checks that it is no larger than allowed, and has a row for each tile."""
    if kind != "BINTABLE":
        raise Odd(f"ZIMAGE in an HDU of type {kind}, must be BINTABLE")
    bitpix = _bitpix(cards, "ZBITPIX")
    sizes = [cards.integer(f"ZNAXIS{n + 1}", 1) for n in range(cards.integer("ZNAXIS", 1, MOST_AXES))]
    if prod(sizes) * abs(bitpix) // 8 > MOST_BYTES:
        raise Odd(f"a compressed image of {_times(sizes)} pixels (ZNAXISn), at most {MOST_BYTES} bytes are allowed")
    tiles = [cards.integer(f"ZTILE{n + 1}", 1, default=size if n == 0 else 1) for n, size in enumerate(sizes)]
    if any(tile > size for tile, size in zip(tiles, sizes, strict=True)):
        raise Odd(f"tiles of {_times(tiles)} pixels (ZTILEn), the image has {_times(sizes)}")
    rows = prod(ceil(size / tile) for tile, size in zip(tiles, sizes, strict=True))
    if rows != axes[1]:
        raise Odd(f"NAXIS2 is {axes[1]}, but the compressed image has {rows} tiles")
    for name, key in cards.parameters():
        if name in _PARAMETERS and cards.integer(key) not in _PARAMETERS[name]:
            raise Odd(f"{name} ({key}) is {cards.integer(key)}, must be one of "
                      f"{', '.join(map(str, _PARAMETERS[name]))}")
    return _rounded(cards)


def _rounded(cards: "_Cards") -> bool:
    """Whether a compressed image lost digits (FITS 4.0, 10.1.3 and 10.2): floats stored as scaled integers, or
    HCOMPRESS with a scale."""
    columns = {cards.text(f"TTYPE{n + 1}", "").upper() for n in range(cards.integer("TFIELDS", 0, MOST_AXES))}
    scaled = "ZSCALE" in columns or cards.holds("ZSCALE")
    coarse = any(name == "SCALE" and cards.positive(key) for name, key in cards.parameters())
    return scaled or (cards.text("ZCMPTYPE", "").upper() == "HCOMPRESS_1" and coarse)


def _times(sizes: Iterable[int]) -> str:
    return " x ".join(map(str, sizes))


class _Cards:
    """The cards that describe the position and the interpretation of data. Raises Odd if one occurs twice with
    different values."""

    def __init__(self, header: bytes):
        self._values: dict[str, bytes] = {}
        for key, value in _relevant(header):
            if self._values.setdefault(key, value).split(b"/")[0].strip() != value.split(b"/")[0].strip():
                raise Odd(f"{key} occurs twice in the header, with different values")

    def integer(self, key: str, lowest: int | None = None, highest: int | None = None, *,
                default: int | None = None) -> int:
        """The integer of a card, within these limits; the default if the card is missing, else Odd is raised."""
        if key not in self._values and default is not None:
            return default
        match = _INTEGER.fullmatch(self._raw(key))
        value = int(match[1]) if match else None
        if value is None or (lowest is not None and value < lowest) or (highest is not None and value > highest):
            limits = " an integer" if lowest is None else f" {lowest} or more" if highest is None else (
                f" between {lowest} and {highest}")
            raise Odd(f"{key} is {self._shown(key)}, must be{limits}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """The text of a card, with ? for unprintable characters; raises Odd if it is missing and there is no
        default."""
        if key not in self._values and default is not None:
            return default
        match = _STRING.match(self._raw(key))
        if match is None:
            if default is not None:
                return default
            raise Odd(f"{key} is {self._shown(key)}, must be text in quotes")
        return _printable(match[1].replace(b"''", b"'").decode("ascii", "replace").strip())

    def parameters(self) -> Iterator[tuple[str, str]]:
        """The parameters of a compression: each one's name, and the card of its value."""
        for n in takewhile(lambda n: self.holds(f"ZNAME{n}"), count(1)):
            yield self.text(f"ZNAME{n}", "").upper(), f"ZVAL{n}"

    def holds(self, key: str) -> bool:
        """Whether there is such a card."""
        return key in self._values

    def positive(self, key: str) -> bool:
        """Whether a card is a number above 0."""
        try:
            return float(self._values.get(key, b"").split(b"/")[0]) > 0
        except ValueError:
            return False

    def logical(self, key: str) -> bool:
        """Whether a card exists and is T."""
        return self._values.get(key, b"").split(b"/")[0].strip() == b"T"

    def _raw(self, key: str) -> bytes:
        if key not in self._values:
            raise Odd(f"the card {key} is missing")
        return self._values[key]

    def _shown(self, key: str) -> str:
        text = self._values[key].split(b"/")[0].decode("ascii", "replace").strip()[:30]
        return _printable(text) or "empty"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def _relevant(header: bytes) -> Iterator[tuple[str, bytes]]:
    """Keyword and value of the relevant cards, found in the same way as by astropy."""
    for start in range(0, len(header), CARD):
        card = header[start:start + CARD]
        key = card[:8]
        where = card.find(b"= ")
        if 0 <= where <= 8:
            key = card[:where]
        elif key == b"HIERARCH":
            where = card.find(b"=")
            key = card[8:where]
        else:
            continue
        key = key.strip().upper()
        if _OF_INTEREST.fullmatch(key):
            yield key.decode(), card[where + 1:]
