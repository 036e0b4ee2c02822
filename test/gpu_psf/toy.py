"""A small made-up spectrograph in numpy, with its truth: flats and arcs of Gaussian spots over pixels."""
from dataclasses import dataclass

import numpy as np
from scipy.special import erf

from gpu_extract.data import Image

NOISE = 3.0


@dataclass(frozen=True)
class Toy:
    """Fibres along y: the place of each in the middle row, the bends of traces and wavelengths; sigma in pixels."""

    ny: int = 600
    place: tuple[float, ...] = tuple(20.0 + 7.3 * n + 9.0 * (n // 6) for n in range(18))
    sigma_x: float = 1.05
    sigma_y: float = 1.2
    first: float = 5000.0
    last: float = 5420.0

    @property
    def nx(self) -> int:
        return int(max(self.place)) + 24

    def x(self, y: np.ndarray) -> np.ndarray:
        u = 2 * y / (self.ny - 1) - 1
        place = np.array(self.place)[:, None]
        return place + 3.0 * u**2 - 1.0 * u + 0.004 * (place - self.nx / 2) * u

    def wave(self, y: np.ndarray) -> np.ndarray:
        u = 2 * y / (self.ny - 1) - 1
        v = np.linspace(-1, 1, len(self.place))[:, None]
        middle, half = (self.first + self.last) / 2, (self.last - self.first) / 2
        return middle + half * u - 12.0 * (u**2 - 0.3) + 1.5 * v**2 + 0.4 * v


def pixel_integrated(centre: np.ndarray, sigma: float, pixels: np.ndarray) -> np.ndarray:
    """(..., pixel) Gaussians of sum 1."""
    upper, lower = ((pixels + side - centre[..., None]) / (np.sqrt(2) * sigma) for side in (0.5, -0.5))
    return 0.5 * (erf(upper) - erf(lower))


def flat(toy: Toy, light: np.ndarray | float = 4000.0, seed: int = 1) -> Image:
    """Light of each fibre (electron in a row), (nfibre,) or one number."""
    y = np.arange(toy.ny, dtype=float)
    profiles = pixel_integrated(toy.x(y), toy.sigma_x, np.arange(toy.nx))
    each = np.broadcast_to(np.asarray(light, dtype=float), (len(toy.place),))
    return noisy(np.einsum("i,iyx->yx", each, profiles), seed)


def arc(toy: Toy, lines: np.ndarray, light: np.ndarray, seed: int = 2) -> Image:
    """Lines (Angstrom) of so many electrons on every fibre."""
    y = np.arange(toy.ny, dtype=float)
    wave, x = toy.wave(y), toy.x(y)
    image = np.zeros((toy.ny, toy.nx))
    for i in range(len(toy.place)):
        rows = np.interp(lines, wave[i], y, left=-100.0, right=-100.0)
        along = pixel_integrated(rows, toy.sigma_y, y) * light[:, None]
        across = pixel_integrated(np.interp(rows, y, x[i]), toy.sigma_x, np.arange(toy.nx))
        image += along.T @ across
    return noisy(image, seed)


def noisy(image: np.ndarray, seed: int) -> Image:
    """Poisson and read noise; ivar of the truth."""
    rng = np.random.default_rng(seed)
    pix = rng.poisson(image) + rng.normal(0, NOISE, image.shape)
    return Image(pix.astype(np.float32), (1 / (image + NOISE**2)).astype(np.float32), read_noise=NOISE)


def lamp(toy: Toy, count: int = 36, seed: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Wavelengths at random, some of them off the CCD, and their light."""
    rng = np.random.default_rng(seed)
    return np.sort(rng.uniform(toy.first - 20, toy.last + 20, count)), rng.uniform(1500, 30000, count)
