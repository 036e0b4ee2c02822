"""Is an output there already? Whole, with right checksums, and made of the same input with the same settings."""
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gpu_extract.data import Image
from gpu_extract.errors import InputError
from gpu_extract.io.fibermap import optional_fibermap
from gpu_extract.io.fits import open_fits
from gpu_extract.io.headers import cards_of, in_header

_NEEDED = {"FLUX", "IVAR", "MASK", "WAVELENGTH", "RESOLUTION", "CHI2PIX"}
_NO_PIXELS = np.empty((0, 0))


def frame_is_there(path: str | os.PathLike[str], inputs: tuple[str, str], digest: Callable[[Image], str]) -> bool:
    """Whether a frame need not be made again.

    inputs: names of image and PSF; their folders do not matter
    digest: the digest of the settings for an image with these cards and this fibre map; it has no pixels: a frame
        carries the cards of its image, so that the image itself is not read
    """
    if not os.path.exists(path):
        return False
    try:
        with open_fits(path) as hdus:
            if not _NEEDED.issubset(hdu.name for hdu in hdus):
                return False
            if not all("CHECKSUM" in hdu.header and "DATASUM" in hdu.header for hdu in hdus):
                return False
            header = hdus[0].header
            made_of = tuple(Path(str(header.get(key, ""))).name for key in ("IN_IMG", "IN_PSF"))
            if made_of != tuple(in_header(name) for name in inputs):
                return False
            image = Image(_NO_PIXELS, _NO_PIXELS, cards_of(header), optional_fibermap(hdus, path))
            return bool(header.get("CFGHASH") == digest(image))
    except InputError:
        return False
