"""Images and spectra in the types of astropy and its affiliated packages: NDData in, specutils.Spectrum out."""
from typing import Any

import numpy as np
from astropy import units
from astropy.nddata import InverseVariance, StdDevUncertainty, VarianceUncertainty

from gpu_extract.data import Card, Frame, Image
from gpu_extract.errors import InputError
from gpu_extract.io.frame import FLUX_UNIT

_NEEDED = "give an NDData (CCDData, Spectrum) of (ny, nx) in electrons with an uncertainty"


def image_of(nddata: Any) -> Image:
    """An NDData of (ny, nx) as Image: ivar from its uncertainty, 0 where its mask is True or its values are not finite.

    meta becomes the header, as far as it holds plain values. Raises InputError for another shape, unit or uncertainty.
    """
    data: Any = getattr(nddata, "data", None)
    uncertainty: Any = getattr(nddata, "uncertainty", None)
    if uncertainty is None or data is None or np.ndim(data) != 2:
        raise InputError(f"the image is {type(nddata).__name__} of shape {np.shape(data)} "
                         f"{'without' if uncertainty is None else 'with'} an uncertainty; {_NEEDED}")
    unit = nddata.unit if nddata.unit is not None else units.electron
    if unit not in (units.electron, units.ph, units.dimensionless_unscaled):
        raise InputError(f"the image is in {unit}; {_NEEDED}")
    ivar = _ivar(uncertainty)
    bad = ~np.isfinite(ivar) | (ivar < 0) | ~np.isfinite(data)
    if nddata.mask is not None:
        bad |= np.asarray(nddata.mask, bool)
    cards = tuple(Card(str(key).upper(), value) for key, value in dict(nddata.meta.get("header", nddata.meta)).items()
                  if isinstance(value, str | int | float) and len(str(key)) <= 8)
    return Image(np.where(np.isfinite(data), data, 0.0), np.where(bad, 0.0, ivar), cards)


def _ivar(uncertainty: Any) -> np.ndarray:
    array = np.asarray(uncertainty.array, np.float64)
    if isinstance(uncertainty, InverseVariance):
        return array
    if not isinstance(uncertainty, StdDevUncertainty | VarianceUncertainty):
        raise InputError(f"the image's uncertainty is {type(uncertainty).__name__}; must be StdDevUncertainty, "
                         "VarianceUncertainty or InverseVariance")
    with np.errstate(divide="ignore"):
        return 1 / (array**2 if isinstance(uncertainty, StdDevUncertainty) else array)


def spectrum_of(frame: Frame) -> Any:
    """A frame as specutils.Spectrum of (nspec, nwave): flux, InverseVariance, mask (True where any bit is set).

    meta has the bits (int_mask), resolution_data, chi2pix and fibres. Raises InputError without specutils, and if
    fibres have their own wavelengths.
    """
    try:
        from specutils import Spectrum
    except ImportError as error:
        raise InputError(f"spectra for specutils need specutils ({error}); pip install specutils") from error
    if frame.own_wave is not None:
        raise InputError("fibres of this frame have their own wavelengths, but a Spectrum has one axis: make one from "
                         "each row of flux, ivar and own_wave")
    flux = np.asarray(frame.flux) * units.Unit(frame.unit or FLUX_UNIT)
    meta = {"header": {card.key: card.value for card in frame.cards}, "int_mask": frame.mask,
            "resolution_data": frame.resolution, "chi2pix": frame.chi2pix, "fibres": frame.fibres}
    return Spectrum(flux=flux, spectral_axis=frame.wave * units.Angstrom,
                    uncertainty=InverseVariance(np.asarray(frame.ivar) / flux.unit**2), mask=frame.mask != 0, meta=meta)
