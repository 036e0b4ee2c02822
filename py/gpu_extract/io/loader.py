"""Frames in specutils: ``import gpu_extract.io.loader``, then ``Spectrum.read("frame-r0-....fits")``.

specutils finds loaders that are registered when it is used; it has no entry points, so this module
must be imported once (a one-line file in ``~/.specutils`` does it for good). Without it specutils
takes a frame for a "DESI spectra" file and returns an empty list.
"""
from typing import Any

import numpy as np
from astropy import units
from astropy.nddata import InverseVariance
from astropy.table import Table
from specutils import Spectrum
from specutils.io.parsing_utils import read_fileobj_or_hdulist
from specutils.io.registers import data_loader

from gpu_extract.io.fits import native

LABEL = "gpu_extract frame"
_NEEDED = ("FLUX", "IVAR", "WAVELENGTH", "RESOLUTION")


def is_frame(origin: str, *args: Any, **kwargs: Any) -> bool:
    """Whether a file that specutils is about to read is a frame: it has all image HDUs."""
    if origin != "read":
        return False
    with read_fileobj_or_hdulist(*args, **kwargs) as hdus:
        return all(name in hdus for name in _NEEDED)


# above the priority (10) with which specutils reads anything that has FIBERMAP and SCORES as spectra
@data_loader(LABEL, identifier=is_frame, dtype=Spectrum, extensions=["fits", "fits.gz"], priority=20)
def frame_loader(source: Any, **kwargs: Any) -> Spectrum:
    """A frame as one Spectrum of (nspec, nwave).

    flux with its unit, InverseVariance, mask (True where any bit is set); meta has the header, the
    bits (int_mask), resolution_data, chi2pix and, if the file has them, fibermap and scores.
    """
    with read_fileobj_or_hdulist(source, **kwargs) as hdus:
        if "GRID" in hdus:
            raise ValueError("fibres of this frame have their own wavelengths, but a Spectrum has one axis: read it "
                             "with gpu_extract.read_frame, and make a Spectrum of each row")
        unit = units.Unit(hdus["FLUX"].header.get("BUNIT", "electron/Angstrom"))
        flux = native(hdus["FLUX"].data) * unit
        bits = native(hdus["MASK"].data) if "MASK" in hdus else np.zeros(flux.shape, np.uint32)
        meta = {"header": hdus[0].header.copy(), "int_mask": bits,
                "resolution_data": native(hdus["RESOLUTION"].data)}
        if "CHI2PIX" in hdus:
            meta["chi2pix"] = native(hdus["CHI2PIX"].data)
        meta |= {name.lower(): Table(hdus[name].data, copy=True)
                 for name in ("FIBERMAP", "SCORES") if name in hdus}
        return Spectrum(flux=flux, spectral_axis=native(hdus["WAVELENGTH"].data) * units.Angstrom,
                        uncertainty=InverseVariance(native(hdus["IVAR"].data) / flux.unit**2),
                        mask=bits != 0, meta=meta)
