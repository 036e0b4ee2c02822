"""Seeded damage to files: cards, HDUs, bytes, sizes, gzip, lines of text; each says what it did to the data."""

import gzip
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

from gpu_extract.io.cards import BLOCK
from gpu_extract.io.fits import layouts

CARD = 80
# fmt: off
ABSURD = (
    "-60", "-1", "0", "1", "2", "3", "7", "255", "999", "1000", "5000", "100000", "2147483647", "2147483648",
    "4294967296", "1000000000000000", "9223372036854775807", "9223372036854775808", "1" + 40 * "0",
    "-9223372036854775808", "1.5", "1E400", "-0.0", "NaN", "T", "F", "'text'", "''", "", "'no end", "'\x1b[31m'",
    "(1, 2)", "'8X'", "'1PJ(5)'", "'1QB'", "'0A'", "'2147483647E'", "'D'", "'I4'", "'(3,3)'", "'GZIP_1'", "'PLIO_1'",
    "'HCOMPRESS_1'", "'BINTABLE'", "'TABLE'", "'IMAGE'", "'FOO'", "'PSF'", "'IVAR'", "'GAUSS-HERMITE2'", "8", "16",
    "32", "64", "-32", "-64",
)
STRUCTURE = (
    "SIMPLE", "XTENSION", "BITPIX", "NAXIS", "PCOUNT", "GCOUNT", "TFIELDS", "TFORM", "TTYPE", "TDIM", "EXT",
    "EXTNAME", "Z", "BZERO", "BSCALE", "HSIZE", "NPIX", "PSFTYPE", "PSFVER", "WAVE", "LEGDEG", "GHDEG", "CHECKSUM",
    "DATASUM", "CAMERA", "PSFERR", "TUNIT", "TNULL", "END",
)
ADDED = (
    "GROUPS", "ZIMAGE", "THEAP", "BLANK", "BSCALE", "BZERO", "TDIM1", "TDIM2", "TNULL1", "TSCAL1", "TZERO2", "TDISP1",
    "EXTNAME", "EXTVER", "NAXIS1", "NAXIS3", "PCOUNT", "GCOUNT", "CONTINUE", "HIERARCH NAXIS1", "HIERARCH A B",
    "ZSCALE", "ZZERO", "ZBLANK", "ZQUANTIZ", "ZDITHER0", "ZMASKCMP", "OBJECT", "COMMENT", "HISTORY", "naxis2",
    "CHECKSUM", "PSFERR", "BLOCKED", "INHERIT",
)
# keywords that say nothing about what the numbers are: data must be the same whatever these say
HARMLESS = (
    "OBJECT", "COMMENT", "HISTORY", "EXPTIME", "EXPID", "NIGHT", "DATE", "MJD", "RA", "DEC", "SEED", "TARGTRA",
    "TARGTDEC", "FLAVOR", "PROGRAM", "INHERIT", "HIERARCH A", "AIRMASS", "TUNIT", "CAMERA", "BUNIT",
)
# fmt: on


@dataclass
class Parts:
    """A FITS file in parts: (header, data) of each HDU; what was done to it, and whether its data are left alone."""

    hdus: list[tuple[bytes, bytes]]
    done: list[str] = field(default_factory=list)
    harmless: bool = True

    def bytes(self) -> bytes:
        """The file."""
        return b"".join(header + data for header, data in self.hdus)


def parts_of(path: str) -> Parts:
    """A good file in parts."""
    with layouts(path, check=False) as (source, found):
        return Parts([(source.read(e.header, e.data), source.read(e.data, e.end)) for e in found])


def cards_in(header: bytes) -> list[bytes]:
    """The cards in front of END."""
    cards = [header[n : n + CARD] for n in range(0, len(header), CARD)]
    return cards[: next((n for n, card in enumerate(cards) if card.startswith(b"END ")), len(cards))]


def header_of(cards: list[bytes]) -> bytes:
    """Cards with END and padding."""
    whole = b"".join(card[:CARD].ljust(CARD) for card in [*cards, b"END"])
    return whole.ljust(-(-len(whole) // BLOCK) * BLOCK)


def a_card(key: str, value: str) -> bytes:
    """A card of any content."""
    text = f"{key:<8}= {value:>20}" if len(key) <= 8 else f"{key} = {value}"
    return text.encode("ascii", "replace")[:CARD].ljust(CARD)


def change_card(parts: Parts, chance: random.Random) -> None:
    """One card replaced, deleted, duplicated, garbled, moved, or a new one."""
    where = chance.randrange(len(parts.hdus))
    header, data = parts.hdus[where]
    cards = cards_in(header)
    told = [n for n, card in enumerate(cards) if card.decode("ascii", "replace").startswith(STRUCTURE)]
    n = chance.choice(told) if told and chance.random() < 0.7 else chance.randrange(max(len(cards), 1))
    key = cards[n][:8].decode("ascii", "replace").strip() if cards else ""
    what = chance.choice(("value", "value", "value", "delete", "double", "garble", "move", "new", "new"))
    if what == "new" or not cards:
        key = chance.choice(ADDED)
        cards.insert(chance.randint(0, len(cards)), a_card(key, chance.choice(ABSURD)))
    elif what == "value":
        cards[n] = a_card(key, chance.choice(ABSURD))
    elif what == "delete":
        del cards[n]
    elif what == "double":
        cards.insert(n, a_card(key, chance.choice(ABSURD)) if chance.random() < 0.5 else cards[n])
    elif what == "garble":
        place = chance.randrange(CARD)
        cards[n] = cards[n][:place] + bytes([chance.randrange(256)]) + cards[n][place + 1 :]
        key = "" if place < 10 else key
    else:
        cards.insert(chance.randint(0, len(cards)), cards.pop(n))
        key = "" if key in ("SIMPLE", "XTENSION", "BITPIX", "NAXIS", "CONTINUE", "") else "OBJECT"
    parts.hdus[where] = header_of(cards), data
    parts.harmless &= key.startswith(HARMLESS)
    parts.done.append(f"HDU {where}: {what} {key} {cards[min(n, len(cards) - 1)] if cards else b''!r}")


def change_hdus(parts: Parts, chance: random.Random) -> None:
    """HDUs swapped, duplicated, left out, emptied; far too many of them; a header far too long."""
    what = chance.choice(("swap", "double", "delete", "empty", "many", "long", "cards"))
    one, other = (chance.randrange(len(parts.hdus)) for _ in range(2))
    harmless = False
    if what == "swap":
        parts.hdus[one], parts.hdus[other] = parts.hdus[other], parts.hdus[one]
        harmless = one == other or min(one, other) > 0
    elif what == "double":
        parts.hdus.insert(other, parts.hdus[one])
    elif what == "delete":
        del parts.hdus[one]
    elif what == "empty":
        parts.hdus[one] = parts.hdus[one][0], b""
    elif what == "many":
        cards = [
            a_card("XTENSION", "'IMAGE   '"),
            a_card("BITPIX", "8"),
            a_card("NAXIS", "0"),
            a_card("PCOUNT", "0"),
            a_card("GCOUNT", "1"),
        ]
        parts.hdus += [(header_of(cards), b"")] * chance.choice((2, 100, 300, 5000))
    else:
        header, data = parts.hdus[one]
        count = chance.choice((40, 1000, 40000))
        more = [a_card(f"K{n}", str(n)) for n in range(count)] if what == "cards" else [b"COMMENT " + 72 * b"x"] * count
        parts.hdus[one] = header_of(cards_in(header) + more), data
        harmless = True
    parts.harmless &= harmless
    parts.done.append(f"HDU {one}, {other}: {what}")


def change_bytes(content: bytes, chance: random.Random) -> tuple[bytes, str, bool]:
    """Bytes flipped, cut off, left out, put in, doubled, blanked: a file, what was done, whether one bit at most."""
    what = chance.choice(("flip", "flip", "flips", "cut", "out", "in", "double", "blank", "tail"))
    place = chance.randrange(len(content)) if chance.random() < 0.5 else chance.randrange(min(len(content), 4 * BLOCK))
    if chance.random() < 0.4:
        place -= place % BLOCK
    size = chance.choice((1, 80, BLOCK, chance.randrange(1, len(content))))
    changed = bytearray(content)
    if what == "flip":
        changed[place] ^= 1 << chance.randrange(8)
    elif what == "flips":
        for _ in range(chance.randint(2, 200)):
            changed[chance.randrange(len(content))] = chance.randrange(256)
    elif what == "cut":
        del changed[place:]
    elif what == "out":
        del changed[place : place + size]
    elif what == "in":
        changed[place:place] = chance.randbytes(size)
    elif what == "double":
        changed[place:place] = content[place : place + size]
    elif what == "blank":
        changed[place : place + size] = bytes([chance.choice((0, 32, 255))]) * len(changed[place : place + size])
    else:
        changed += bytes([chance.choice((0, 32, 88))]) * size
    return bytes(changed), f"{what} at {place} ({size})", what == "flip"


def packed(content: bytes, chance: random.Random) -> tuple[bytes, str, bool]:
    """A gzip file of it: good, of several members, damaged, cut, or a bomb; whether it unpacks to the content."""
    what = chance.choice((*3 * ("good", "members", "damage", "cut", "tail"), "bomb", "heavy"))
    place = chance.randrange(len(content) + 1)
    members = [content] if what not in ("members", "cut") else [content[:place], content[place:]]
    if what in ("bomb", "heavy"):
        size = chance.choice((1, 60, 300)) << 20
        front = gzip.compress(content, 1, mtime=0) if what == "heavy" else b""
        return front + zeros_packed(size), f"gzip {what} of {size}", what == "heavy" and size < (64 << 20)
    whole = b"".join(gzip.compress(member, 1, mtime=0) for member in members)
    if what == "damage":
        whole = change_bytes(whole, chance)[0]
    elif what == "cut":
        whole = whole[: chance.randrange(len(whole))]
    elif what == "tail":
        whole += bytes(chance.randrange(5000))
    return whole, f"gzip {what}", what in ("good", "members", "tail")


@cache
def zeros_packed(size: int) -> bytes:
    """A gzip file of so many zeros."""
    packer, piece = zlib.compressobj(9, zlib.DEFLATED, 31), bytes(1 << 20)
    return b"".join([*(packer.compress(piece) for _ in range(size >> 20)), packer.flush()])


def change_text(content: str, chance: random.Random) -> tuple[str, str]:
    """Lines of a text garbled, doubled, left out, joined; odd characters and words."""
    lines = content.splitlines() or [""]
    what = chance.choice(("word", "odd", "delete", "double", "join", "quote", "cut", "many"))
    n = chance.randrange(len(lines))
    words = lines[n].split() or [""]
    if what == "word":
        words[chance.randrange(len(words))] = chance.choice(
            (*ABSURD, "/", "..", "~", "x" * 5000, "a/b/c.fits", "/dev/zero", "*", "{x}")
        )
        lines[n] = " ".join(words)
    elif what == "odd":
        place = chance.randint(0, len(lines[n]))
        odd = chance.choice(
            ("\0", "\x1b[2J", "\u202e", "é", "\ud800", "\t", "\\", "\x85", "\ufeff", '"', "{", "[", "}", "]")
        )
        lines[n] = lines[n][:place] + odd + lines[n][place:]
    elif what == "delete":
        del lines[n]
    elif what == "double":
        lines.insert(n, lines[n])
    elif what == "join":
        lines = [" ".join(lines)]
    elif what == "quote":
        lines[n] = chance.choice(("'", '"', "# ")) + lines[n]
    elif what == "cut":
        lines = [content[: chance.randint(0, len(content))]]
    else:
        lines += lines * (3000 // len(lines))
    return "\n".join(lines) + "\n", f"{what} line {n}"


def damaged(parts: Parts, chance: random.Random) -> tuple[bytes, str, bool, bool]:
    """One to three of these on a file: its bytes, what was done, whether data are left alone, whether it is gzipped."""
    parts = Parts(list(parts.hdus))
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        if parts.hdus:
            change: Callable[[Parts, random.Random], None] = change_card if chance.random() < 0.75 else change_hdus
            change(parts, chance)
    content, harmless = parts.bytes(), parts.harmless
    if content and chance.random() < 0.25:
        content, what, _ = change_bytes(content, chance)
        parts.done.append(what)
        harmless = False
    if content and chance.random() < 0.12:
        content, what, same = packed(content, chance)
        return content, "; ".join([*parts.done, what]), harmless and same, True
    return content, "; ".join(parts.done), harmless, False
