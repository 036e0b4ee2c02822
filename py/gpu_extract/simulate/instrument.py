"""The simulated cameras: CCDs, traces and Gauss-Hermite PSFs like those of DESI.

Traces are polynomials of u (place across the detector, -1 at the first fibre,
+1 at the last) and t (wavelength, -1 to +1), fitted to traces measured on the
cameras b0, r0 and z0; the Gauss-Hermite terms have the means and scatters of
an r0 PSF measured on the sky, and run smoothly with fibre and wavelength, with
a small step from bundle to bundle. Cameras of more fibres than a detector
holds are detectors side by side.

"side" is a made-up spectrograph: 60 fibres, a raw image with the dispersion
along x, and tabulated spots.
"""
from dataclasses import dataclass, replace

import numpy as np

from gpu_extract.data import Array, Core, Legendre, PsfModel, with_series
from gpu_extract.simulate.config import BANDS, SimConfig
from gpu_extract.simulate.counter import Purpose, stream
from gpu_extract.simulate.discs import HALF, disc_core

HALF_STAMP_Y, HALF_STAMP_X, GH_DEGREE, WAVE_DEGREE = 5, 8, 6, 3
PSF_SEED = 20190
Terms = tuple[tuple[int, int, float], ...]      # (power of u, power of t, pixels)


@dataclass(frozen=True)
class Detector:
    """One CCD and the fibres on it.

    shape: (ny, nx); wave: wavelengths of the traces' ends in Angstrom
    nfibre, bundlesize; first: x of fibre 0; pitch, gap: between fibres of a bundle, between bundles (pixels)
    pitch_rise: increase of the pitch at the edges (pixels)
    x, y: terms of the traces; x relative to the fibre's place at the middle wavelength
    sigma: (x, y) widths of the core in pixels; widening: relative slope of sigma y with t
    read_noise: electron; cosmic_rate: 1/(cm^2 min)
    dispersion: axis of the raw image along which wavelengths ascend; here they always do along y
    disc: radius and blur (pixels) of tabulated spots, see `discs`; sigma is then not used
    """

    shape: tuple[int, int]
    wave: tuple[float, float]
    nfibre: int
    bundlesize: int
    first: float
    pitch: float
    gap: float
    pitch_rise: float
    x: Terms
    y: Terms
    sigma: tuple[float, float]
    widening: float
    read_noise: float
    cosmic_rate: float
    dispersion: str = "y"
    disc: tuple[float, float] | None = None


DETECTORS = {
    "b": Detector((4096, 4096), (3509.0, 5999.0), 500, 25, 121.0, 7.24, 17.5, 0.17,
                  ((1, 1, 7.0), (1, 2, 16.6), (1, 3, 2.4), (3, 1, 1.1), (3, 2, -6.7)),
                  ((0, 0, 1934.4), (0, 1, 2078.2), (0, 2, 61.5), (0, 3, 22.8), (0, 4, 4.2), (0, 5, -5.1),
                   (2, 0, 70.2), (2, 1, 20.8), (2, 2, 3.9), (4, 1, -3.0), (4, 2, -0.9)),
                  (1.05, 1.10), 0.04, 3.3, 1.5),
    "r": Detector((4128, 4114), (5543.0, 7826.0), 500, 25, 120.0, 7.27, 17.5, 0.11,
                  ((1, 1, 4.3), (1, 2, 23.7), (1, 3, 0.9), (3, 1, 1.1), (3, 2, -19.1)),
                  ((0, 0, 1943.7), (0, 1, 2122.2), (0, 2, 84.4), (0, 3, 37.2), (0, 4, 4.2), (0, 5, -15.2),
                   (2, 0, 117.4), (2, 1, 25.9), (2, 2, 9.0), (4, 1, -7.6), (4, 2, -5.3)),
                  (1.04, 1.12), 0.07, 2.7, 3.0),
    "z": Detector((4128, 4114), (7357.0, 9987.0), 500, 25, 135.0, 7.27, 17.6, 0.16,
                  ((1, 1, 3.2), (1, 2, 22.0), (1, 3, 0.4), (3, 1, 0.5), (3, 2, -16.1)),
                  ((0, 0, 1968.6), (0, 1, 2160.1), (0, 2, 109.9), (0, 3, 28.7), (0, 4, 8.3), (0, 5, -9.1),
                   (2, 0, 129.1), (2, 1, 59.6), (2, 2, -41.4), (4, 1, -32.9), (4, 2, 33.1)),
                  (1.10, 1.29), 0.12, 2.7, 3.0),
    "tiny": Detector((192, 104), (6000.0, 6110.0), 10, 5, 13.0, 7.27, 17.5, 0.0,
                     ((1, 1, 0.3), (1, 2, 0.6)), ((0, 0, 94.0), (0, 1, 102.0), (0, 2, 2.0), (2, 0, 4.0)),
                     (1.04, 1.12), 0.07, 2.7, 3.0),
    "side": Detector((1024, 620), (7480.0, 8320.0), 60, 15, 22.0, 9.3, 18.0, 0.0,
                     ((0, 2, 1.5), (1, 1, 1.2), (1, 2, 2.1)),
                     ((0, 0, 500.0), (0, 1, 520.0), (0, 2, 9.0), (0, 3, 2.0), (1, 0, 3.0), (2, 0, 14.0)),
                     (1.4, 1.4), 0.0, 3.1, 2.0, "x", (2.3, 0.55)),
}

# mean and scatter of GH-i-j at [j][i], in 1e-4; GH-0-0 is 1
_GH_MEAN = ((0, -8, -16, -1, -25, -1, 53), (-4, -32, -57, 0, 8, 2, 1), (278, 0, -94, 4, 128, 0, -3),
            (-58, -8, 9, 1, -3, 0, -1), (82, 2, 132, 1, 12, 0, 4), (-2, 0, 1, 0, -1, 0, 0), (64, 0, -4, 0, 3, 0, 1))
_GH_SCATTER = ((0, 180, 109, 113, 86, 16, 6), (184, 300, 197, 78, 28, 14, 3), (245, 193, 179, 49, 22, 5, 4),
               (145, 98, 61, 36, 10, 7, 2), (76, 38, 32, 15, 17, 3, 2), (19, 12, 6, 7, 3, 1, 0),
               (6, 4, 4, 2, 2, 0, 0))


def detectors_needed(config: SimConfig) -> int:
    """Number of detectors side by side that hold the requested fibres."""
    nfibre = DETECTORS[config.band].nfibre
    last = config.specmin + (config.nspec or 1)
    return -(-last // nfibre)


def psf_model(band: str, spectrograph: int = 0, ndetector: int = 1, *, wider: float = 0.0) -> PsfModel:
    """The PSF of all fibres of a camera (GAUSS-HERMITE or tables, no tails).

    band: a key of DETECTORS; the scatter of the PSF's terms differs from spectrograph to spectrograph.
    wider: share by which the spots of tables are larger
    """
    det = DETECTORS[band]
    place, u = _places(det, spectrograph)
    wmin, wmax = det.wave
    x = Legendre(_series(det.x, u, place), wmin, wmax)
    y = Legendre(_series(det.y, u, np.zeros(det.nfibre)), wmin, wmax)
    hy, hx = HALF_STAMP_Y, HALF_STAMP_X
    if det.disc is None:
        core = _core(det, u, 10 * BANDS.index(band) + spectrograph)
    else:
        core, hy, hx = disc_core(det.disc, u, (wmin, wmax + 1.0), wider=wider), HALF, HALF
    number = np.arange(ndetector * det.nfibre)
    psf: PsfModel = with_series(PsfModel(
        x=x, y=y, cores=(core,), tail=None, stamp=(2 * hy + 1, 2 * hx + 1), offset=(hy - 0.5, hx - 0.5),
        shape=(det.shape[0], det.shape[1] * ndetector), bundle=number // det.bundlesize, psferr=0.01,
        name=f"simulated {band}{spectrograph}"), lambda series: _repeat(series, ndetector))
    psf.x.coeff[:, 0] += det.shape[1] * (number // det.nfibre)
    return psf


def _repeat(series: Legendre, count: int) -> Legendre:
    """The series for `count` times as many fibres."""
    times = (1,) * (series.coeff.ndim - 2) + (count, 1)
    return replace(series, coeff=np.tile(series.coeff, times))


def _places(det: Detector, spectrograph: int) -> tuple[Array, Array]:
    """x of the fibres at the middle wavelength, and u."""
    n = det.nfibre
    index = np.arange(n)
    across = (2 * index[1:] - n) / max(n - 1, 1)
    widening = det.pitch_rise * (across**2 - 1 / 3)
    new_bundle = index[1:] % det.bundlesize == 0
    steps = np.where(new_bundle, det.gap, det.pitch) * (1 + widening / det.pitch)
    jitter = 0.03 * stream(PSF_SEED + spectrograph, Purpose.PSF, 10**6).standard_normal(n)
    place = det.first + np.concatenate([[0.0], np.cumsum(steps)])
    u = (2 * place - place[0] - place[-1]) / (place[-1] - place[0])
    return place + np.clip(jitter, -0.08, 0.08), u


def _series(terms: Terms, u: Array, constant: Array) -> Array:
    """Legendre coefficients (nfibre, ncoef) of a polynomial in u and t, plus a constant per fibre."""
    power = np.zeros((len(u), 7))
    for of_u, of_t, pixels in terms:
        power[:, of_t] += pixels * u**of_u
    power[:, 0] += constant
    to_legendre = np.zeros((7, 7))
    for k in range(7):
        column = np.polynomial.legendre.poly2leg(np.eye(7)[k])
        to_legendre[k, :len(column)] = column
    coeff = np.zeros_like(power)
    for k in range(7):
        coeff += power[:, k, None] * to_legendre[k]
    return coeff


def _core(det: Detector, u: Array, camera: int) -> Core:
    """Widths and Gauss-Hermite terms; their own wavelength range is a little longer than the traces'."""
    wmin, wmax = det.wave[0], det.wave[1] + 1.0
    sigma = []
    for axis, (width, slope) in enumerate(zip(det.sigma, (0.01, det.widening), strict=True)):
        coeff = width * 0.03 * _wander(u, det.bundlesize, camera, 50 + axis)
        coeff[:, 0] += width
        coeff[:, 1] += width * slope
        sigma.append(Legendre(coeff, wmin, wmax))
    n = GH_DEGREE + 1
    gh = np.zeros((n, n, len(u), WAVE_DEGREE + 1))
    for j in range(n):
        for i in range(n):
            gh[j, i] = 1e-4 * _GH_SCATTER[j][i] * _wander(u, det.bundlesize, camera, n * j + i)
            gh[j, i, :, 0] += 1e-4 * _GH_MEAN[j][i]
    gh[0, 0, :, 0] = 1.0
    return Core(sigma_x=sigma[0], sigma_y=sigma[1], gh=Legendre(gh, wmin, wmax))


def _wander(u: Array, bundlesize: int, camera: int, term: int) -> Array:
    """Legendre coefficients in wavelength (nfibre, 4) of a smooth random function of size about 1, at most 2."""
    random = stream(PSF_SEED, Purpose.PSF, camera, term)
    size = np.array([0.6, 0.5, 0.3, 0.15])
    amplitude = np.clip(random.standard_normal((4, WAVE_DEGREE + 1)), -1.5, 1.5) * size[:, None] * size
    shape = np.polynomial.legendre.legvander(u, 3)
    smooth = np.zeros((len(u), WAVE_DEGREE + 1))
    for k in range(4):
        smooth += shape[:, k, None] * amplitude[k]
    nbundle = -(-len(u) // bundlesize)
    steps = np.clip(random.standard_normal((nbundle, WAVE_DEGREE + 1)), -2, 2) * size * 0.2
    return smooth + steps[np.arange(len(u)) // bundlesize]
