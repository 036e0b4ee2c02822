"""From spectra to an image: A x through the spots. A itself is never built."""
import numpy as np

from gpu_extract.data import Array, Spots
from gpu_extract.spots import simd_project


def add_to_image(image: np.ndarray, spots: Spots, flux: Array) -> None:
    """Add the light of `flux` (nfibre, nwave) to `image` (ny, nx) in place; spots are clipped at its edges.

    Light is added wavelength by wavelength, fibre by fibre. Calls with consecutive wavelengths are therefore bitwise
    equal to one call with all of them.
    """
    simd_project.add_to_image(image, spots.stamps, spots.y0, spots.x0, np.ascontiguousarray(flux))
