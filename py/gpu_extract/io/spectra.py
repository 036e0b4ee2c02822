"""Spectra files: `{BAND}_WAVELENGTH`, `_FLUX`, `_IVAR`, `_MASK`, `_RESOLUTION` and an empty primary.

The layout of survey spectra files: opens in specutils ("DESI spectra") and desispec.io.read_spectra
without any loader of ours.
"""
import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpu_extract.data import Card, FiberMap, Frame, SpecMask
from gpu_extract.errors import InputError
from gpu_extract.io.atomic import Commit, at_once
from gpu_extract.io.frame import FLUX_UNIT, IVAR_UNIT, fibermap_hdus, frame_images, refuse_not_finite, score_table
from gpu_extract.io.headers import merged
from gpu_extract.io.provenance import fibermin, frame_cards
from gpu_extract.io.scores import band_of
from gpu_extract.io.write import image_hdu, table_hdu, table_hdus, write_hdus


def write_spectra(path: str | os.PathLike[str], frame: Frame, *, cards: Sequence[Card] = (),
                  commit: Commit = at_once) -> None:
    """Write a frame as a spectra file of its one band (B, R or Z). Raises OutputError.

    Raises InputError where fibres have wavelengths of their own, for which such files have no room.
    """
    if frame.own_wave is not None:
        raise InputError(f"{path}: a spectra file has one wavelength grid, and fibres of this PSF have their own; "
                         "leave --spectra out, the frame has all")
    images = frame_images(frame)
    scores = score_table(frame, images)
    refuse_not_finite(path, frame, images, scores)
    band = band_of(frame.wave)
    named = frame if frame.fibermap is not None else replace(frame, fibermap=_minimal(frame))
    units = {"WAVELENGTH": "Angstrom", "FLUX": FLUX_UNIT, "IVAR": IVAR_UNIT}
    hdus = [image_hdu(None, "", cards=merged(frame.cards, frame_cards(frame, cards)), primary=True),
            *fibermap_hdus(named)]
    hdus += [image_hdu(images[name], f"{band}_{name}", bunit=units.get(name, ""))
             for name in ("WAVELENGTH", "FLUX", "IVAR", "MASK", "RESOLUTION")]
    # without SCORES specutils does not know the file: identities where nothing can be scored
    write_hdus(path, [*hdus, *(table_hdus("SCORES", scores) or [table_hdu(_minimal(frame).rows, "SCORES")])], commit,
               nodata=SpecMask.NODATA)


def _minimal(frame: Frame) -> FiberMap:
    """A fibermap that says which fibres these are; TARGETID is negative, as for fibres without a target."""
    rows = np.empty(len(frame.fibres), [("TARGETID", np.int64), ("FIBER", np.int32)])
    rows["FIBER"] = frame.fibres - frame.fibres[0] + fibermin(frame)
    rows["TARGETID"] = -1 - rows["FIBER"].astype(np.int64)
    return FiberMap(rows)
