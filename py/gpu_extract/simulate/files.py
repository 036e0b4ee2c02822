"""A simulation's files: preproc image, PSF (GAUSS-HERMITE version 3), truth."""
import os

import numpy as np

from gpu_extract.io.image_write import write_image
from gpu_extract.io.psf import write_psf
from gpu_extract.io.truth import TruthFile, write_truth
from gpu_extract.simulate.frame import Simulation
from gpu_extract.simulate.header import target_id

_TARGETS = np.dtype([("FIBRE", "i4"), ("TARGETID", "i8"), ("KIND", "S4"), ("Z", "f4"), ("MAG_R", "f4"),
                     ("THROUGHPUT", "f4")])
_OF_TRUTH = ("CAMERA", "FLAVOR", "PROGRAM", "EXPID", "NIGHT", "EXPTIME", "SIMCAM", "SIMSEED", "SIMVER", "SIMDIG")
Path = str | os.PathLike[str]


def write_simulation(simulation: Simulation, image: Path, *, psf: Path | None = None,
                     truth: Path | None = None, true_psf: Path | None = None, read_noise: bool = True) -> None:
    """Write the image, with READNOISE or without, and where named the PSF, the truth and the PSF that the light has.

    Raises OutputError.
    """
    write_image(image, simulation.image, mask=simulation.mask,
                read_noise=simulation.read_noise if read_noise else None)
    cards = tuple(c for c in simulation.image.cards if c.key in _OF_TRUTH)
    of_psf = tuple(c for c in cards if c.key in ("CAMERA", "SIMCAM", "SIMVER"))
    for path, model in ((psf, simulation.psf), (true_psf, simulation.true_psf)):
        if path is not None:
            write_psf(path, model, cards=of_psf)
    if truth is not None:
        content = simulation.truth
        write_truth(truth, TruthFile(content.wave, content.flux, _target_rows(simulation), cards))


def _target_rows(simulation: Simulation) -> np.ndarray:
    truth = simulation.truth
    rows = np.zeros(len(truth.fibres), _TARGETS)
    for row, fibre, target, share in zip(rows, truth.fibres, truth.targets, truth.throughput, strict=True):
        row["FIBRE"], row["TARGETID"] = fibre, target_id(simulation.config, int(fibre))
        row["KIND"], row["Z"], row["MAG_R"] = target.kind.encode(), target.z, target.magnitude
        row["THROUGHPUT"] = share
    return rows
