"""Is an output there already? Whole, with right checksums, and made of the same input with the same settings."""
import os
from collections.abc import Callable

import numpy as np

from gpu_extract.config import ExtractConfig
from gpu_extract.data import Image
from gpu_extract.errors import InputError
from gpu_extract.io.fibermap import optional_fibermap
from gpu_extract.io.fits import open_fits
from gpu_extract.io.headers import cards_of
from gpu_extract.io.sources import Sources, changed_settings, changed_source

NOT_THERE = "not there"
_NEEDED = {"FLUX", "IVAR", "MASK", "WAVELENGTH", "RESOLUTION", "CHI2PIX"}
_NO_PIXELS = np.empty((0, 0))


def why_again(path: str | os.PathLike[str], sources: Sources, settings: Callable[[Image], ExtractConfig]) -> str | None:
    """Why a frame has to be made; None where it need not be made again.

    settings: the settings for an image with these cards and this fibre map; it has no pixels: a frame carries the
        cards of its image, so that of the image only the headers are read (io.stamp)
    """
    if not os.path.exists(path):
        return NOT_THERE
    try:
        with open_fits(path) as hdus:
            missing = sorted(_NEEDED - {hdu.name for hdu in hdus})
            if missing:
                return f"not whole: it has no {', '.join(missing)}"
            if not all("CHECKSUM" in hdu.header and "DATASUM" in hdu.header for hdu in hdus):
                return "without checksums"
            header = hdus[0].header
            image = Image(_NO_PIXELS, _NO_PIXELS, cards_of(header), optional_fibermap(hdus, path))
            return changed_source(header, sources) or changed_settings(header, settings(image))
    except InputError as error:
        return f"damaged: {str(error).removeprefix(f'{os.fspath(path)}: ')}"
