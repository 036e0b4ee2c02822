"""Fibres with their own wavelengths: the orders of an echelle, or arms that share a detector.

All fibres are extracted on one grid of a common coordinate, so that overlapping neighbours are solved together as
usual. A fibre's own wavelength is a series in that coordinate (PsfModel.own), usually a straight line. By convention
the coordinate is the wavelength of one of the fibres. Fluxes extracted per Angstrom of the coordinate are per Angstrom
of the fibre's own wavelength in the frame.
"""
from dataclasses import replace

import numpy as np

from gpu_extract.config import ExtractConfig
from gpu_extract.data import Array, Frame, Legendre, PsfModel
from gpu_extract.errors import InputError

SAMPLES = 65           # of a fibre's wavelengths
STRAIGHT = 1e-9        # largest relative deviation of a fibre's wavelength from a multiple of the coordinate


def own_wavelengths(own: Legendre, fibres: np.ndarray, wave: Array) -> Array:
    """(nspec, nwave) Angstrom of these fibres at `wave`, the common coordinate."""
    argument = 2.0 * (wave - own.wmin) / (own.wmax - own.wmin) - 1.0
    return np.polynomial.legendre.legval(argument, own.coeff[fibres].T)


def in_own_wavelengths(frame: Frame, psf: PsfModel) -> Frame:
    """The frame with flux and ivar per Angstrom of each fibre's own wavelength; unchanged if fibres have none."""
    if psf.own is None:
        return frame
    own = own_wavelengths(psf.own, frame.fibres, frame.wave)
    step = np.gradient(own, axis=1) / np.gradient(frame.wave)      # own Angstrom per Angstrom of the coordinate
    flux = (frame.flux / step).astype(frame.flux.dtype, copy=False)
    ivar = (frame.ivar * step**2).astype(frame.ivar.dtype, copy=False)
    return replace(frame, flux=flux, ivar=ivar, own_wave=own)


def ascend(own: Legendre) -> bool:
    """Whether wavelengths ascend with the coordinate in all its range, and are above 0."""
    with np.errstate(all="ignore"):
        wave = np.polynomial.legendre.legval(np.linspace(-1.0, 1.0, SAMPLES), own.coeff.T)
        return bool((np.diff(wave) > 0).all() and (wave > 0).all() and np.isfinite(wave).all())


def check_own(psf: PsfModel, config: ExtractConfig) -> None:
    """Raise InputError if fibres' wavelengths do not ascend, which would make fluxes negative; or if a factor is
    requested for wavelengths that are not multiples of the coordinate: a factor of the coordinate would be a different
    one for each of them."""
    if psf.own is None:
        return
    if not ascend(psf.own):
        raise InputError(f"{psf.name}: the own wavelengths of its fibres must ascend with the common coordinate, and "
                         "be above 0; reverse the coordinate (of all series), or correct them")
    if config.wave_factor == 1.0:
        return
    ends = np.linspace(*psf.wavelength_range, 9)
    ratio = own_wavelengths(psf.own, np.arange(psf.nfibre), ends) / ends
    if (np.ptp(ratio, axis=1) > STRAIGHT * ratio[:, 0]).any():
        raise InputError(f"{psf.name}: its fibres have their own wavelengths, which are not multiples of one another, "
                         "so no single factor corrects them: extract without --barycentric-correction, and divide "
                         "WAVELENGTH")
