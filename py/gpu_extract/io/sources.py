"""The sources of a frame, in its header: names and stamps of its files, settings, version of the mathematics.

With its checksums, they show whether an existing output is valid or has to be made again. A stamp identifies a file
without reading its pixels, by the sums in its headers or by a sample of its bytes.
"""
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from hashlib import blake2b
from itertools import takewhile
from typing import Any, BinaryIO
from urllib.parse import quote_from_bytes, unquote_to_bytes

import numpy as np

from gpu_extract.config import MATHEMATICS, ExtractConfig
from gpu_extract.data import Card, Image, PsfModel
from gpu_extract.errors import FileName, InputError, OutputError
from gpu_extract.io.cards import CARD, MOST_HDUS, Odd, layout_of
from gpu_extract.io.fibermap import optional_fibermap
from gpu_extract.io.fits import open_fits
from gpu_extract.io.headers import cards_of
from gpu_extract.io.psf import ORIGIN
from gpu_extract.io.source import GZIP, Source

# printable ASCII, which is all that a header may hold; without %, which begins what stands for another byte, and &,
# which goes on in the next card
_PLAIN = "".join(chr(c) for c in range(ord(" "), 127) if chr(c) not in "%&")
NOT_THERE = "not there"
_NEEDED = {"FLUX", "IVAR", "MASK", "WAVELENGTH", "RESOLUTION", "CHI2PIX"}
_NO_PIXELS = np.empty((0, 0))
_DEFAULTS = {each.name: each.default for each in fields(ExtractConfig)}
_WORDS = {"IMG": "image", "PSF": "PSF", "FMAP": "fibermap"}
_SAMPLES, _SAMPLE = 64, 4096                                # number and size of pieces, evenly spread
_SMALL = 4 << 20                                            # largest data, in bytes, that are read if they have no sum
_DIGITS = 16                                                # bytes of a digest
# these change with every write, even of the same content
_VOLATILE = b"CHECKSUM", b"DATASUM "


def source_cards(paths: Mapping[str, str]) -> list[Card]:
    """Cards that identify the inputs of a frame. Make them before the files are read, so that a file replaced meanwhile
    counts as replaced.

    paths: of the files, by the ends of their cards' names: IMG, PSF, and FMAP if the fibermap does not come with the
        image
    """
    return [*(Card(f"IN_{key}", as_ascii(path), f"Input {_WORDS[key]}") for key, path in paths.items()),
            *(Card(f"SUM_{key}", stamp(path), f"Stamp of the {_WORDS[key]}") for key, path in paths.items())]


def origin_cards(psf: PsfModel) -> list[Card]:
    """The card that names the original of a PSF with shifted traces, if its header has it (IN_PSF)."""
    return [Card("ORIG_PSF", psf.identity[ORIGIN], "PSF of which the traces were shifted")] if ORIGIN in psf.identity \
        else []


def settings_cards(config: ExtractConfig) -> list[Card]:
    """Cards with the settings of a frame."""
    factor = [] if config.wave_factor == 1 else [
        Card("HELIOCOR", config.wave_factor, "Barycentric factor of the wavelengths")]
    return [Card("CFGHASH", config.digest(), "Digest of the settings of the extraction"),
            Card("CFGTEXT", json.dumps(config.as_dict(), sort_keys=True), "The settings"),
            Card("MATHVER", MATHEMATICS, "Version of the mathematics"), *factor]


def why_again(path: FileName, paths: Mapping[str, str], settings: Callable[[Image], ExtractConfig]) -> str | None:
    """Why a frame has to be made again; None if it need not be.

    paths: see `source_cards`
    settings: the settings for an image with these cards and this fibermap, without pixels: a frame carries the cards of
        its image, so that only the image's headers are read (`stamp`)
    """
    if not os.path.exists(path):
        return NOT_THERE
    try:
        with open_fits(path) as hdus:
            missing = sorted(_NEEDED - {hdu.name for hdu in hdus})
            if missing:
                return f"incomplete: it has no {', '.join(missing)}"
            if not all("CHECKSUM" in hdu.header and "DATASUM" in hdu.header for hdu in hdus):
                return "without checksums"
            header = hdus[0].header
            image = Image(_NO_PIXELS, _NO_PIXELS, cards_of(header), optional_fibermap(hdus))
            return changed_source(header, paths) or changed_settings(header, settings(image))
    except InputError as error:
        return f"damaged: {str(error).removeprefix(f'{os.fspath(path)}: ')}"


def check_replaceable(path: FileName) -> None:
    """Raise OutputError if a FITS file that is not a frame has this name. A damaged file may have been a frame."""
    names: list[str] = []
    with suppress(InputError), open_fits(path, check=False) as hdus:
        names = [hdu.name or "(no name)" for hdu in hdus]
    if names and "FLUX" not in names:
        raise OutputError(f"{path}: exists and is not a frame (its HDUs are {', '.join(names)}); give another output, "
                          "or remove the file")


def changed_source(header: Mapping[str, Any], paths: Mapping[str, str]) -> str | None:
    """Why a frame with this header does not belong to these files; None if it does.

    A missing file cannot be compared, nor can the frame be made again: only its name is compared.
    """
    for key in _WORDS:
        if (f"SUM_{key}" in header) != (key in paths):
            if key == "FMAP":
                return "other fibermap"
            return "made by an older version, which did not record its input"
    for key, path in paths.items():
        was = from_ascii(str(header.get(f"IN_{key}", "")))
        if os.path.basename(was) != os.path.basename(path):
            return f"other {_WORDS[key]}: was {os.path.basename(was)}"
        found = stamp(path)
        if found and found != header[f"SUM_{key}"]:
            folders = [os.path.dirname(name) or "." for name in (was, path)]
            return f"{_WORDS[key]} replaced" if os.path.normpath(folders[0]) == os.path.normpath(folders[1]) else \
                f"{_WORDS[key]} of another folder: was {folders[0]}"
    return None


def changed_settings(header: Mapping[str, Any], config: ExtractConfig) -> str | None:
    """Why a frame with this header does not belong to these settings; None if it does.

    A setting that did not exist when the frame was made counts as its default, so that a new setting alone invalidates
    no frame.
    """
    version = header.get("MATHVER", 0)
    if version != MATHEMATICS:
        return f"made by version {version} of the mathematics, this is {MATHEMATICS}"
    if header.get("CFGHASH") == config.digest():
        return None
    try:
        was = _DEFAULTS | json.loads(header["CFGTEXT"])
    except (KeyError, ValueError, TypeError, RecursionError):
        return "other settings"
    now = json.loads(json.dumps(config.as_dict()))
    differ = [f"{key} was {was.get(key)}" for key in sorted({*was, *now} - {"model"}) if was.get(key) != now.get(key)]
    return "other settings: " + ", ".join(differ) if differ else None


def as_ascii(path: str) -> str:
    """A path in printable ASCII; other bytes as %XX."""
    text = quote_from_bytes(os.fsencode(path), safe=_PLAIN)
    return text[:-1] + "%20" if text.endswith(" ") else text       # trailing blanks of a card's value are dropped


def from_ascii(text: str) -> str:
    """The inverse of `as_ascii`."""
    return os.fsdecode(unquote_to_bytes(text))


def stamp(path: FileName) -> str:
    """A text that differs if the files differ; empty if there is no such file. It fits on a header card.

    A pipe is not opened, because that could wait for ever.

    sums DIGEST: of all header cards and the DATASUM of every HDU, or of its bytes if it has none and is small, like
        compressed masks are; the file may be copied, touched and moved
    gzip SIZE DIGEST: of a sample of the packed bytes, whose end holds the CRC of the content
    file SIZE TIME DIGEST: of a sample of the bytes, if a larger HDU has no DATASUM; TIME in ns
    """
    if not os.path.isfile(path):
        return ""
    try:
        with open(path, "rb") as handle:
            status = os.fstat(handle.fileno())
            if handle.read(2) == GZIP:
                return f"gzip {status.st_size} {_sample(handle, status.st_size)}"
            sums = _sums(Source(handle), status.st_size)
            if sums is not None:
                return f"sums {sums}"
            return f"file {status.st_size} {status.st_mtime_ns} {_sample(handle, status.st_size)}"
    except OSError:
        return ""


def _sample(handle: BinaryIO, size: int) -> str:
    """Digest of pieces spread over the file, including its first and last bytes."""
    digest = blake2b(digest_size=_DIGITS)
    last = max(size - _SAMPLE, 0)
    for number in range(_SAMPLES):
        handle.seek(last * number // (_SAMPLES - 1))
        digest.update(handle.read(_SAMPLE))
    return digest.hexdigest()


def _sums(source: Source, size: int) -> str | None:
    """Digest of all headers with their DATASUMs; None if one is missing or the file is invalid."""
    digest = blake2b(digest_size=_DIGITS)
    end = 0
    for number in range(MOST_HDUS):
        header = source.header(end) or b""
        try:
            layout = layout_of(header, end, number)
        except Odd:
            return None
        start, end = layout.data, layout.end
        datasum = (layout.datasum or "").encode()
        if not datasum and layout.size > _SMALL:
            return None
        cards = takewhile(lambda card: card.rstrip() != b"END",
                          (header[n:n + CARD] for n in range(0, len(header), CARD)))
        digest.update(b"".join(card for card in cards if not card.startswith(_VOLATILE)))
        digest.update(datasum or source.read(start, start + layout.size))
        if end >= size:
            return digest.hexdigest() if end == size else None
    return None
