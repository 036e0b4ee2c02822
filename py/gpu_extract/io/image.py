"""CCD images (preproc-{camera}-{expid}.fits[.gz])."""
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from astropy.io import fits

from gpu_extract.data import Card, Image
from gpu_extract.errors import FileName, InputError, check_flags
from gpu_extract.io.fibermap import optional_fibermap
from gpu_extract.io.fits import find, find_optional, image_of, open_fits, optional_image, refuse_other
from gpu_extract.io.headers import cards_of
from gpu_extract.io.write import fibermap_hdus, image_hdu, write_hdus

# ccdmask bits 0-7 and 9 take a pixel out; 8 (BADREADNOISE) does not
MASKING_BITS = 767
_TAKEN = "IMAGE", "0", "IVAR"      # HDUs, the second one a primary without a name
_PACKED = "", "COMPRESSED_IMAGE"   # names given by fpack
_TILE_ROWS = 64    # of a compressed mask
_ROWS = 256        # of an image at a time
_NOISE_ROWS = 16   # rows of READNOISE to read: it is constant over an amplifier
# cards that describe how a frame was made; they would be wrong in another frame that lacks its own
_OF_FRAMES = frozenset(("HELIOCOR", "PASSES", "RDNFROM", "NREJECT", "NCOSMIC", "NODDPIX", "ORIG_PSF", "IN_FMAP",
                        "SUM_FMAP"))
_NOISE_CARD = re.compile(r"OBSRDN[A-D1-4]|RDNOISE[A-D0-4]?|READNOIS")


def read_image(path: FileName, *, check: bool = True, fibermap: bool = True, noise: bool = True) -> Image:
    """Pixels, inverse variance and header of an image.

    ivar is 0 where MASK & 767; pixels of ivar 0 that are NaN or infinite become 0.
    MASK (plain or compressed), READNOISE and FIBERMAP may be absent. The read noise is the smallest in some rows of
    READNOISE, else that of the header (OBSRDNA, RDNOISE0, ...).

    check: verify CHECKSUM and DATASUM
    fibermap: False leaves the image's FIBERMAP out
    noise: False leaves the image READNOISE out, which only further passes need

    Raises InputError for a file that cannot be read, a missing HDU, different shapes, an image without a finite pixel,
    negative, NaN or infinite ivar, and NaN or infinite pixels with ivar > 0.
    """
    check_flags(fibermap=fibermap, noise=noise)
    with open_fits(path, check=check, take=_TAKEN) as hdus:
        refuse_other(hdus, "an image")
        image = _image_hdu(hdus)
        _same_shapes(image, hdus)
        pix = _floating(image_of(image))
        of_ivar = find(hdus, "IVAR")
        unit, ivar = str(of_ivar.header.get("BUNIT", "")).strip(), _floating(image_of(of_ivar))
        mask = optional_image(hdus, "MASK")
        table = optional_fibermap(hdus) if fibermap else None
        cards = tuple(card for card in cards_of(image.header) if card.key not in _OF_FRAMES)
        of_all = find_optional(hdus, "READNOISE")
        least = _read_noise(of_all, cards)
        every = _floating(image_of(of_all)) if noise and of_all is not None else None
        _check_ivar(ivar)
        if mask is not None:
            if mask.dtype.kind not in "iu":
                raise InputError(f"MASK is of type {mask.dtype}, must be integers (ccdmask bits)")
            bits = np.array(MASKING_BITS).astype(mask.dtype)         # those that fit into the type of the mask
            for rows in _slabs(len(mask)):
                ivar[rows][(mask[rows] & bits) != 0] = 0
        if every is not None and every.shape != pix.shape:
            raise InputError(f"READNOISE has shape {every.shape}, IMAGE has {pix.shape}; they must be the same")
        return Image(_cleared(pix, ivar), ivar, cards, table, least, every, unit)


def bare(image: Image) -> Image:
    """The part of an image that an extraction needs: no fibermap, and of its header only the read noise."""
    return Image(image.pix, image.ivar, tuple(card for card in image.cards if _NOISE_CARD.fullmatch(card.key)),
                 None, image.read_noise, image.noise)


def _slabs(rows: int) -> list[slice]:
    """All rows of an image, some at a time, so that temporary arrays stay small."""
    return [slice(first, first + _ROWS) for first in range(0, rows, _ROWS)]


def _image_hdu(hdus: fits.HDUList) -> Any:
    """The HDU IMAGE, or a primary image without a name, which fpack moves to HDU 1."""
    hdu = find_optional(hdus, "IMAGE")
    if hdu is None and "EXTNAME" not in hdus[0].header:
        if hdus[0].header.get("NAXIS") == 2:
            return hdus[0]
        if len(hdus) > 1 and isinstance(hdus[1], fits.CompImageHDU) and hdus[1].name in _PACKED:
            return hdus[1]
    return find(hdus, "IMAGE") if hdu is None else hdu


def _same_shapes(image: Any, hdus: fits.HDUList) -> None:
    """Raise InputError if IVAR or MASK has another shape than IMAGE, before any of them is read or unpacked."""
    shape = getattr(image, "shape", ())
    for name in ("IVAR", "MASK"):
        other = find_optional(hdus, name)
        if len(shape) == 2 and other is not None and other.is_image and other.shape != shape:
            raise InputError(f"{name} has shape {other.shape}, IMAGE has {shape}; they must be the same")


def _floating(array: np.ndarray) -> np.ndarray:
    """A writable float array: float32 and float64 as they are, integers as float64."""
    if array.dtype in (np.float32, np.float64):
        return array if array.flags.writeable else array.copy()
    return array.astype(np.float64)


def _read_noise(hdu: Any, cards: Iterable[Card]) -> float | None:
    """The smallest read noise of any amplifier, None if unknown."""
    if isinstance(hdu, fits.ImageHDU) and len(hdu.shape) == 2:
        every = max(hdu.shape[0] // _NOISE_ROWS, 1)
        values = [float(value) for row in range(0, hdu.shape[0], every) for value in np.unique(hdu.section[row])]
    else:
        values = [float(card.value) for card in cards if _NOISE_CARD.fullmatch(card.key)
                  and isinstance(card.value, (int, float)) and not isinstance(card.value, bool)]
    return min((value for value in values if 0 < value < np.inf), default=None)


def _check_ivar(ivar: np.ndarray) -> None:
    lowest, highest = float(ivar.min()), float(ivar.max())       # NaN if there is one
    if lowest >= 0 and highest < np.inf:
        return
    nan, negative = int(np.isnan(ivar).sum()), int((ivar < 0).sum())
    infinite = int(np.isinf(ivar).sum())
    raise InputError(f"IVAR has {nan} NaN, {negative} negative and {infinite} infinite values; all must be finite and "
                     ">= 0, with 0 for pixels to leave out")


def _cleared(pix: np.ndarray, ivar: np.ndarray) -> np.ndarray:
    """The pixels, finite everywhere: others must have ivar 0, and become 0."""
    odd = [(rows, bad) for rows in _slabs(len(pix)) if (bad := ~np.isfinite(pix[rows])).any()]
    count = sum(int(bad.sum()) for _, bad in odd)
    if count == pix.size:
        raise InputError(f"IMAGE has no finite pixel (all {count} are NaN or infinite); make the image again")
    trusted = sum(int((ivar[rows][bad] > 0).sum()) for rows, bad in odd)
    if trusted:
        raise InputError(f"IMAGE has {trusted} NaN or infinite pixels with ivar > 0; mask them, or set their ivar to 0")
    for rows, bad in odd:
        pix[rows][bad] = 0
    return pix


def write_image(path: FileName, image: Image, *, mask: np.ndarray | None = None,
                read_noise: np.ndarray | None = None) -> None:
    """Write IMAGE and IVAR (float32), MASK (int32, Rice-compressed), READNOISE (float32), FIBERMAP.

    mask: (ny, nx) ccdmask bits; read_noise: (ny, nx) electron. HDUs without content are left out.
    Equal content gives equal bytes. (READNOISE is not compressed for that: FITS compresses floats without
    loss by gzip, whose streams carry the time of day.)

    Raises OutputError if the file cannot be written.
    """
    hdus: list[Any] = [image_hdu(image.pix.astype(np.float32, copy=False), "IMAGE", cards=image.cards, primary=True),
                       image_hdu(image.ivar.astype(np.float32, copy=False), "IVAR", bunit="1/electron2")]
    if mask is not None:
        tile = min(_TILE_ROWS, mask.shape[0]), mask.shape[1]        # of several rows, for a short table
        hdus.append(fits.CompImageHDU(mask.astype(np.int32, copy=False), name="MASK", compression_type="RICE_1",
                                      tile_shape=tile))
    if read_noise is not None:
        hdus.append(image_hdu(read_noise.astype(np.float32, copy=False), "READNOISE", bunit="electron"))
    write_hdus(path, [*hdus, *fibermap_hdus(image.fibermap)])
