"""Tabulated spots of a made-up spectrograph: images of round fibres with a flat top, slightly blurred and unevenly
lit.

A spot is a disc of light whose brightness has a slope, blurred by a Gaussian, averaged over each pixel. The disc is a
sum of points (Gauss's radii of equal area, evenly spaced angles), and each point a pixel-integrated Gaussian: smooth as
the blur is, the sum is the integral to 1e-6 of the peak.
"""
import numpy as np

from gpu_extract.data import Array, Core

HALF = 7                        # half-size of a stamp, pixels
POSITIONS, WAVES, FIBRES = 3, 5, 7      # per pixel along each axis, along wavelength, across the detector
RADII, ANGLES = 8, 24
DEFOCUS, TILT = 0.15, 0.25      # growth of the blur towards both ends of the range; slopes of the light


def disc_core(disc: tuple[float, float], place: Array, domain: tuple[float, float], *, wider: float = 0.0) -> Core:
    """The core of all fibres.

    disc: radius and blur (sigma) in pixels; place: (nfibre,) of the fibres, -1 to 1; domain: Angstrom
    wider: share by which the spots are larger
    """
    from gpu_extract.spots.tables import core_of, nodes_of  # loads kernels, which a kept frame does not need

    fibres = np.unique(np.linspace(0, len(place) - 1, FIBRES).astype(np.int64))
    waves = nodes_of(WAVES, domain)
    t = (2 * waves - domain[0] - domain[1]) / (domain[1] - domain[0])
    stamps = np.stack([[stamps_of_disc(disc[0] * (1 + wider), disc[1] * (1 + wider) * (1 + DEFOCUS * at * at),
                                       (TILT * float(place[fibre]), -TILT * float(at))) for at in t]
                       for fibre in fibres])
    return core_of(stamps, fibres, waves, domain, len(place))


def stamps_of_disc(radius: float, blur: float, slope: tuple[float, float]) -> Array:
    """(py, px, ny, nx): pixel-integrated stamps of a disc for all positions within a pixel.

    slope: of the light along x and y, as a share from the middle to the edge
    """
    node, weight = np.polynomial.legendre.leggauss(RADII)
    r, angle = np.sqrt((node + 1) / 2), 2 * np.pi * np.arange(ANGLES) / ANGLES
    x, y = (np.outer(r, turn).ravel() for turn in (np.cos(angle), np.sin(angle)))
    light = np.repeat(weight, ANGLES) * (1 + slope[0] * x + slope[1] * y)
    centre = (np.arange(POSITIONS) + 0.5) / POSITIONS - 0.5
    along_x, along_y = (_in_pixels(centre[:, np.newaxis] + radius * at, blur) for at in (x, y))
    stamps: Array = np.einsum("k,pky,qkx->pqyx", light, along_y, along_x, optimize=True)
    return np.maximum(stamps, 0.0)


def _in_pixels(centre: Array, sigma: float) -> Array:
    """(..., 2 HALF + 1) Gaussians of sum 1, averaged over pixels around 0."""
    from scipy.special import erf  # loads in 0.1 s, and is not needed for a kept frame

    edges = np.arange(-HALF - 0.5, HALF + 1)
    steps = 0.5 * erf((edges - centre[..., np.newaxis]) / (np.sqrt(2) * sigma))
    return np.diff(steps, axis=-1)
