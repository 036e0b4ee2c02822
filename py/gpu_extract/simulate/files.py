"""A simulation's files: preproc image, PSF (GAUSS-HERMITE version 3, or TABULATED), truth, and the raw image."""

import numpy as np

from gpu_extract.data import Card
from gpu_extract.errors import FileName, check_flags, check_kind, file_name
from gpu_extract.io.atomic import check_targets
from gpu_extract.io.image import write_image
from gpu_extract.io.psf import write_psf
from gpu_extract.io.truth import TruthFile, write_truth
from gpu_extract.io.write import image_hdu, write_hdus
from gpu_extract.simulate.defects import CcdMask
from gpu_extract.simulate.frame import Simulation
from gpu_extract.simulate.header import target_id
from gpu_extract.simulate.instrument import DETECTORS

_TARGETS = np.dtype([("FIBRE", "i4"), ("TARGETID", "i8"), ("KIND", "S4"), ("Z", "f4"), ("MAG_R", "f4"),
                     ("THROUGHPUT", "f4")])
_OF_TRUTH = ("CAMERA", "FLAVOR", "PROGRAM", "EXPID", "NIGHT", "EXPTIME", "SIMCAM", "SIMSEED", "SIMVER", "SIMDIG")
_LASTING = CcdMask.BAD | CcdMask.HOT | CcdMask.DEAD | CcdMask.BADAMP      # permanent defects of a detector
BIAS, GAIN, MOST_ADU = 1000.0, 1.2, 65535       # of the raw image: ADU, electron per ADU, ADU


def write_simulation(simulation: Simulation, image: FileName, *, psf: FileName | None = None,
                     truth: FileName | None = None, true_psf: FileName | None = None, raw: FileName | None = None,
                     read_noise: bool = True) -> None:
    """Write the image, with or without READNOISE, and if named the PSF, the truth, the true PSF and the raw image.

    Raises OutputError, and InputError if two of them have one name, or a name does not have an ending of FITS files.
    """
    check_kind("simulation", simulation, Simulation, "a Simulation, which simulate makes")
    check_flags(read_noise=read_noise)
    files = {"image": image, "psf": psf, "truth": truth, "true_psf": true_psf, "raw": raw}
    check_targets({name: file_name(path) for name, path in files.items() if name == "image" or path is not None})
    write_image(image, simulation.image, mask=simulation.mask,
                read_noise=simulation.read_noise if read_noise else None)
    if raw is not None:
        write_raw(raw, simulation)
    cards = tuple(c for c in simulation.image.cards if c.key in _OF_TRUTH)
    of_psf = tuple(c for c in cards if c.key in ("CAMERA", "SIMCAM", "SIMVER"))
    for path, model in ((psf, simulation.psf), (true_psf, simulation.true_psf)):
        if path is not None:
            write_psf(path, model, cards=of_psf)
    if truth is not None:
        content = simulation.truth
        write_truth(truth, TruthFile(content.wave, content.flux, _target_rows(simulation), cards))


def write_raw(path: FileName, simulation: Simulation) -> None:
    """Write the image like a camera: whole numbers of ADU, with the dispersion along the camera's axis.

    The HDU BAD marks known defects of the detector: columns, hot and dead pixels, an amplifier; no cosmics.
    Raises OutputError.
    """
    dispersion = DETECTORS[simulation.config.band].dispersion
    adu = np.clip(np.rint(simulation.image.pix / GAIN + BIAS), 0, MOST_ADU).astype(np.uint16)
    own = (Card("BUNIT", "adu"), Card("GAIN", GAIN, "electron/ADU"), Card("BIAS", BIAS, "ADU"),
           Card("DISPAXIS", 1 if dispersion == "x" else 2, "wavelengths ascend along this axis"))
    cards = tuple(card for card in simulation.image.cards if card.key not in {card.key for card in own})
    bad = ((simulation.mask & _LASTING) != 0).astype(np.uint8)
    arrays = {"RAW": adu.T, "BAD": bad.T} if dispersion == "x" else {"RAW": adu, "BAD": bad}
    write_hdus(path, [image_hdu(arrays["RAW"], "RAW", cards=(*cards, *own), primary=True),
                      image_hdu(arrays["BAD"], "BAD")])


def _target_rows(simulation: Simulation) -> np.ndarray:
    truth = simulation.truth
    rows = [(fibre, target_id(simulation.config, int(fibre)), target.kind.encode(), target.z, target.magnitude, share)
            for fibre, target, share in zip(truth.fibres, truth.targets, truth.throughput, strict=True)]
    return np.array(rows, _TARGETS)
