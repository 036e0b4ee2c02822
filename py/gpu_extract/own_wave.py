"""Fibres with wavelengths of their own: the orders of an echelle, or arms that share a detector.

All fibres are extracted on one grid of a coordinate that they have in common, so neighbours that overlap are solved
together as ever. A fibre's own wavelength is a series in that coordinate (PsfModel.own), usually a straight line; the
coordinate itself is by convention the wavelength of one of the fibres. What was extracted per Angstrom of the
coordinate is per Angstrom of the fibre's own wavelength in the frame.
"""
from dataclasses import replace

import numpy as np

from gpu_extract.config import ExtractConfig
from gpu_extract.data import Array, Frame, Legendre, PsfModel
from gpu_extract.errors import InputError

STRAIGHT = 1e-9        # by how much a fibre's wavelength may differ from a multiple of the coordinate


def own_wavelengths(own: Legendre, fibres: np.ndarray, wave: Array) -> Array:
    """(nspec, nwave) Angstrom of these fibres at `wave`, the common coordinate."""
    argument = 2.0 * (wave - own.wmin) / (own.wmax - own.wmin) - 1.0
    return np.polynomial.legendre.legval(argument, own.coeff[fibres].T)


def in_own_wavelengths(frame: Frame, psf: PsfModel) -> Frame:
    """The frame with flux and ivar per Angstrom of each fibre's own wavelength; as it is where fibres have none."""
    if psf.own is None:
        return frame
    own = own_wavelengths(psf.own, frame.fibres, frame.wave)
    step = np.gradient(own, axis=1) / np.gradient(frame.wave)      # Angstrom for each one of the coordinate
    flux = (frame.flux / step).astype(frame.flux.dtype, copy=False)
    ivar = (frame.ivar * step**2).astype(frame.ivar.dtype, copy=False)
    return replace(frame, flux=flux, ivar=ivar, own_wave=own)


def check_factor(psf: PsfModel, config: ExtractConfig) -> None:
    """Raise InputError where wavelengths are to be shifted that are no multiples of the coordinate: a factor of the
    coordinate would be another one for each of them."""
    if psf.own is None or config.wave_factor == 1.0:
        return
    ends = np.linspace(*psf.wavelength_range, 9)
    ratio = own_wavelengths(psf.own, np.arange(psf.nfibre), ends) / ends
    if (np.ptp(ratio, axis=1) > STRAIGHT * ratio[:, 0]).any():
        raise InputError(f"{psf.name}: its fibres have their own wavelengths, which are not multiples of one another, "
                         "so no single factor corrects them: extract without --barycentric-correction, and divide "
                         "WAVELENGTH")
