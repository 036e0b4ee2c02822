"""Writing a CCD image as a preproc file."""
import os
from typing import Any

import numpy as np
from astropy.io import fits

from gpu_extract.data import Image
from gpu_extract.io.write import image_hdu, table_hdu, write_hdus

_TILE_ROWS = 64


def write_image(path: str | os.PathLike[str], image: Image, *, mask: np.ndarray | None = None,
                read_noise: np.ndarray | None = None) -> None:
    """Write IMAGE and IVAR (float32), MASK (int32, Rice-compressed), READNOISE (float32), FIBERMAP.

    mask: (ny, nx) ccdmask bits; read_noise: (ny, nx) electron. HDUs without content are left out.
    Equal content gives equal bytes. (READNOISE is not compressed for that: FITS compresses floats without
    loss by gzip, whose streams carry the time of day.)

    Raises OutputError where the file cannot be written.
    """
    hdus: list[Any] = [image_hdu(image.pix.astype(np.float32, copy=False), "IMAGE", cards=image.cards, primary=True),
                       image_hdu(image.ivar.astype(np.float32, copy=False), "IVAR", bunit="1/electron2")]
    if mask is not None:
        tile = min(_TILE_ROWS, mask.shape[0]), mask.shape[1]        # of several rows: the table of tiles is short
        hdus.append(fits.CompImageHDU(mask.astype(np.int32, copy=False), name="MASK", compression_type="RICE_1",
                                      tile_shape=tile))
    if read_noise is not None:
        hdus.append(image_hdu(read_noise.astype(np.float32, copy=False), "READNOISE", bunit="electron"))
    if image.fibermap is not None:
        table = image.fibermap
        hdus.append(table_hdu(table.rows, "FIBERMAP", units=table.units, cards=table.cards))
    write_hdus(path, hdus)
