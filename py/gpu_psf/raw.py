"""Raw images as written by a camera: ADU, in any HDU, possibly one of several in a cube."""
import re

import numpy as np

from gpu_extract.data import Card
from gpu_extract.errors import FileName, InputError, file_name
from gpu_extract.io.fits import find, image_of, open_fits
from gpu_extract.io.headers import cards_of

_NAME = re.compile(r"(?P<path>.+?)(?:\[(?P<hdu>[^\[\],]+)(?:,(?P<plane>\d+))?\])?")


def file_of(name: str) -> str:
    """The file of FILE, FILE[HDU] or FILE[HDU,PLANE]."""
    parts = _NAME.fullmatch(name)
    return name if parts is None else parts["path"]


def read_raw(name: FileName) -> tuple[np.ndarray, tuple[Card, ...]]:
    """An image (ny, nx) float64, ADU, and its header.

    name: FILE, FILE[HDU] or FILE[HDU,PLANE]; HDU is a name or a number, the first one with an image if left out; PLANE
        counts from 0 in a cube

    Raises InputError.
    """
    parts = _NAME.fullmatch(file_name(name))
    if parts is None:
        raise InputError(f"{name}: must be FILE, FILE[HDU] or FILE[HDU,PLANE]")
    path, wanted, plane = parts["path"], parts["hdu"], parts["plane"]
    with open_fits(path) as hdus:
        if wanted is None:
            images = [h for h in hdus if h.is_image and len(h.shape) in (2, 3)]
            if not images:
                raise InputError("holds no image; give a FITS file of the camera")
            hdu = images[0]
        elif wanted.isdigit():
            if int(wanted) >= len(hdus):
                raise InputError(f"has {len(hdus)} HDUs, counted from 0, and no number {wanted}")
            hdu = hdus[int(wanted)]
        else:
            hdu = find(hdus, wanted)
        cards = cards_of(hdu.header)
        cube = len(getattr(hdu, "shape", ())) == 3
        array = image_of(hdu, 3 if cube else 2).astype(np.float64)
    if not cube:
        return array, cards
    number = 0 if plane is None and len(array) == 1 else plane
    if number is None or int(number) >= len(array):
        raise InputError(f"{name}: is a cube of {len(array)} images; choose one with {path}[{wanted or 0},0] to "
                         f"[{wanted or 0},{len(array) - 1}]")
    return array[int(number)], cards
