"""Lines of a lamp at their own wavelengths, not on bins: what a fit of the PSF needs."""
import numpy as np

from gpu_extract.data import Array, PsfModel
from gpu_extract.simulate.config import SimConfig
from gpu_extract.simulate.spectra import Truth, deposit, lamp_lines
from gpu_extract.spots import add_to_image, make_spots


def lamp_flux(config: SimConfig, truth: Truth) -> np.ndarray:
    """What the lines are of the truth's flux: (nfibre, nwave) float32, electron/Angstrom."""
    lines = deposit(truth.wave, *lamp_lines(config)) / truth.step
    return (truth.throughput[:, np.newaxis] * lines).astype(np.float32)


def add_lines(expected: Array, config: SimConfig, psf: PsfModel, truth: Truth) -> None:
    """Add the lamp's lines to the expected light (ny, ncolumn), in place."""
    wave, electrons = lamp_lines(config)
    inside = (wave > truth.wave[0]) & (wave < truth.wave[-1])
    fibres = int(truth.fibres[0]), int(truth.fibres[-1]) + 1
    project_lines(expected, psf, fibres, wave[inside], truth.throughput[:, np.newaxis] * electrons[inside])


def project_lines(image: Array, psf: PsfModel, fibres: tuple[int, int], wave: Array, electrons: Array) -> None:
    """Add the light of lines in the fibres lo .. hi - 1 to an image (ny, nx), in place.

    wave: (nline,) Angstrom; electrons: (nfibre, nline)
    """
    add_to_image(image, make_spots(psf, fibres, np.ascontiguousarray(wave)), np.ascontiguousarray(electrons))
