"""Opening FITS files, with any error reported in one line.

Only the modules of this folder know FITS.
"""
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, BinaryIO

import numpy as np
from astropy.io import fits
from astropy.utils.exceptions import AstropyWarning

from gpu_extract.errors import FileName, GpuExtractError, InputError, about, check_flags, file_name
from gpu_extract.io.cards import MOST_HDUS, Layout, Odd, layout_of
from gpu_extract.io.checksum import verify
from gpu_extract.io.headers import number_of
from gpu_extract.io.source import Source, source_of
from gpu_extract.io.taken import Taken, can_be_taken, give, take_out, taken_of

_AGAIN = "fetch or make the file again"
_PACKED = {b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip",
           b"\x1f\x9d": "compress"}              # how files begin that these have packed


@contextmanager
def open_fits(path: FileName, *, check: bool = True, take: Sequence[str] = ()) -> Iterator[fits.HDUList]:
    """Open a FITS file, gzipped or not, for reading.

    check: compare CHECKSUM and DATASUM, if the file has them, with the bytes
    take: names of HDUs, or numbers of those without one, whose images `image_of` will be asked for, once each

    Raises InputError if the file is missing, unreadable, empty, not FITS, truncated, or corrupt; also for whatever
    astropy raises on the content while the file is open.
    """
    name = file_name(path)
    check_flags(check=check)
    taken: dict[int, Taken] = {}
    with about(name), layouts(name, check=check, take=take, taken=taken) as (source, found), warnings.catch_warnings():
        # the causes of these warnings are detected and reported here
        warnings.simplefilter("ignore", AstropyWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        source.handle.seek(0)
        try:
            hdus = fits.open(source.handle, memmap=False, lazy_load_hdus=False)
            _same_places(hdus, found)
            for number, image in taken.items():
                give(hdus[number], image)
            taken.clear()
            yield hdus
        except GpuExtractError:
            raise
        except Exception as error:
            if not _of_astropy(error) or (isinstance(error, OSError) and error.errno):     # it is the disk
                raise
            raise InputError(f"its content cannot be interpreted ({_short(error)}); {_AGAIN}") from error


@contextmanager
def layouts(name: str, *, check: bool = True, content: BinaryIO | None = None, take: Sequence[str] = (),
            taken: dict[int, Taken] | None = None) -> Iterator[tuple[Source, list[Layout]]]:
    """A file's bytes, and the layouts of its HDUs, after checking that all of them are complete.

    content: the file's, unpacked, if known
    take, taken: names of HDUs whose images are put into `taken`, by number, as they are come by: their bytes cannot be
        read any more
    """
    taken = {} if taken is None else taken
    with source_of(name) if content is None else nullcontext(Source(content)) as source:
        found = _walk(source, take, taken)
        if check:
            known = {found[n].data: (found[n].data + found[n].size, image.sum)
                     for n, image in taken.items()}
            verify(source.handle, found, known)
        yield source, found


def _walk(source: Source, wanted: Sequence[str], taken: dict[int, Taken]) -> list[Layout]:
    """The HDUs one after the other; each is searched for only after the previous one was found complete."""
    found: list[Layout] = []
    start = 0
    while source.read(start, start + 9) == (b"XTENSION=" if found else b"SIMPLE  ="):
        header = source.header(start)
        if header is None:
            break
        if len(found) >= MOST_HDUS:
            raise InputError(f"has more than {MOST_HDUS} HDUs; give a file of one image, PSF or frame")
        try:
            layout = layout_of(header, start, len(found))
        except Odd as error:
            raise InputError(f"the header of HDU {len(found)} is corrupt: {error}; {_AGAIN}") from error
        if layout.end > source.limit:         # no more is unpacked
            raise InputError(f"its header claims {layout.end} bytes up to the end of HDU {layout.name}, at most "
                             f"{source.limit} are allowed for a file of this size; {_AGAIN}")
        if layout.name.upper() in wanted and can_be_taken(layout) and source.may_reach(layout.end):
            taken[len(found)] = take_out(source, layout)
        size = source.reach(layout.end)
        if layout.end > size:
            raise InputError(f"truncated: {size} bytes, but HDU {layout.name} needs {layout.end}; {_AGAIN}")
        found.append(layout)
        start = layout.end
    if not found:
        raise InputError(_foreign(source.read(0, max(map(len, _PACKED)))))
    last = found[-1]
    if not source.is_blank_from(last.end):
        raise InputError(f"truncated or corrupt: after HDU {last.name}, at byte {last.end}, no complete HDU follows; "
                         f"{_AGAIN}")
    _unlike(found)
    _exact(found)
    return found


def _foreign(start: bytes) -> str:
    """What is wrong with a file that begins like this, and with no FITS header."""
    for mark, program in _PACKED.items():
        if start.startswith(mark):
            return f"packed by {program}; unpack it, or give a FITS file that is packed by gzip or fpack"
    return ("not a FITS file, or its header is corrupt (its first header must begin with SIMPLE and end with END); "
            "give a FITS file, gzipped or not")


def _unlike(found: Sequence[Layout]) -> None:
    """Raise InputError if two HDUs have one name, because it would be undefined which is read."""
    keys = Counter((layout.name.upper(), layout.version) for layout in found)
    (twice, _), count = keys.most_common(1)[0]
    if count > 1:
        raise InputError(f"has two HDUs {twice}; leave one of them out")


def _exact(found: Sequence[Layout]) -> None:
    """Raise InputError if an ivar or a mask has lossy compression, which changes zeros and bits."""
    for layout in found:
        if layout.lossy and layout.name.upper().endswith(("IVAR", "MASK")):
            raise InputError(f"HDU {layout.name} has lossy compression, so its values are rounded (a masked pixel may "
                             "have a weight); compress the original without loss (fpack -g -q 0), or give it "
                             "uncompressed")


def _same_places(hdus: fits.HDUList, found: Sequence[Layout]) -> None:
    """Raise InputError if astropy interprets a header differently."""
    ours = [(layout.data, layout.end) for layout in found]
    infos = [hdu.fileinfo() for hdu in hdus if hasattr(hdu, "fileinfo")]         # what it gives up on has none
    theirs = [(info["datLoc"], info["datLoc"] + info["datSpan"]) for info in infos]
    if ours != theirs:
        odd = next((n for n, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one != other), len(theirs))
        raise InputError(f"the header of HDU {odd} is corrupt: it is ambiguous; {_AGAIN}")


def _of_astropy(error: BaseException) -> bool:
    """Whether an exception comes from astropy, and therefore concerns the file, not this program."""
    return any(str(frame.f_globals.get("__name__")).startswith("astropy.")
               for frame, _ in traceback.walk_tb(error.__traceback__))


def _short(error: BaseException) -> str:
    """The first sentence of a message, on one line, with the type of the error if that says more."""
    text = " ".join(str(error).split()).split(". ")[0].rstrip(".")[:120]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def find(hdus: fits.HDUList, name: str) -> Any:
    """The HDU called `name`. Raises InputError that lists the existing ones."""
    hdu = find_optional(hdus, name)
    if hdu is None:
        there = ", ".join(h.name or "(no name)" for h in hdus)
        raise InputError(f"no HDU {name}; the file has {there}")
    return hdu


def refuse_other(hdus: fits.HDUList, wanted: str) -> None:
    """Raise InputError if a file is clearly of another kind than wanted: "an image", "a PSF" or "a frame"."""
    names = {h.name.upper() for h in hdus}
    kind = next((str(h.header["PSFTYPE"]).strip() for h in hdus if "PSFTYPE" in h.header), "")
    for there, sign, advice in (
            ("an image", {"IMAGE", "IVAR"} <= names, "-i is for the image, -p for the PSF"),
            ("a frame", {"FLUX", "IVAR", "RESOLUTION"} <= names, "its spectra are already extracted"),
            ("a PSF", bool(kind), "-i is for the image, -p for the PSF")):
        if sign and there == wanted:
            return
        if sign:
            what = f"{there} ({kind})" if there == "a PSF" else there
            raise InputError(f"this is {what}, not {wanted}: " + (
                "give a frame" if wanted == "a frame" else f"{advice}; give the other file"))


def find_optional(hdus: fits.HDUList, name: str) -> Any:
    """The HDU called `name`, or None. Raises InputError if there are several, each with its own EXTVER."""
    named = [h for h in hdus if h.name.upper() == name.upper()]
    if len(named) > 1:
        versions = ", ".join(str(hdu.ver) for hdu in named)
        raise InputError(f"has {len(named)} HDUs {named[0].name} (EXTVER {versions}), so the choice is ambiguous; give "
                         "a file with one of them")
    return named[0] if named else None


def optional_image(hdus: fits.HDUList, name: str, ndim: int = 2) -> np.ndarray | None:
    """The image of the HDU called `name`, see `image_of`, or None if there is none."""
    hdu = find_optional(hdus, name)
    return None if hdu is None else image_of(hdu, ndim)


def data_of(hdu: Any) -> np.ndarray:
    """The array or table of an HDU. Raises InputError if it has none, or it cannot be unpacked."""
    try:
        data = hdu.data
    except Exception as error:
        raise InputError(f"the data of HDU {hdu.name} cannot be read ({_short(error)}); {_AGAIN}") from error
    if data is None:
        raise InputError(f"HDU {hdu.name} holds no data")
    return data


def image_of(hdu: Any, ndim: int = 2) -> np.ndarray:
    """The image of an HDU in native byte order, C order, float32 and float64 kept as they are, NaN where it is BLANK.

    The caller owns the array: the HDU releases it (and reads it again on demand, unless it was taken), and no copy is
    made.
    """
    taken, blank = taken_of(hdu), _blank(hdu.header)        # astropy removes cards when it reads the data
    data = data_of(hdu) if taken is None else taken
    if data.dtype.names is not None or data.ndim != ndim or data.size == 0:
        what = "a table" if data.dtype.names is not None else f"of shape {data.shape}"
        raise InputError(f"HDU {hdu.name} is {what}, must be an image with {ndim} axes")
    if taken is None:
        del hdu.data
    if not data.dtype.isnative and data.flags.writeable and data.flags.c_contiguous:
        data.byteswap(inplace=True)
        data = data.view(data.dtype.newbyteorder("="))
    if blank is not None and (undefined := data == blank).any():
        data = np.where(undefined, np.nan, data)
    return native(data)


def _blank(header: fits.Header) -> float | None:
    """The number for "no value" in an image; astropy ignores it in images of unsigned integers, and if it is 0 in the
    file."""
    if header.get("BITPIX", -32) < 0 or not np.isfinite(blank := number_of(header.get("BLANK"))):
        return None
    return number_of(header.get("BSCALE", 1)) * blank + number_of(header.get("BZERO", 0))


def native(array: np.ndarray) -> np.ndarray:
    """The same values in this machine's byte order, contiguous."""
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
