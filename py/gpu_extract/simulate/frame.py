"""A simulated frame: PSF, truth, expected light, noise, defects, header and fibermap."""
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from gpu_extract.checks.arguments import check_threads, seam
from gpu_extract.data import Array, Image, PsfModel
from gpu_extract.errors import ConfigError, check_kind
from gpu_extract.seams import NULL, Recorder
from gpu_extract.simulate import spectra
from gpu_extract.simulate.config import SimConfig
from gpu_extract.simulate.defects import apply_defects, masked, read_noise_map
from gpu_extract.simulate.header import cards_of, fibermap_of
from gpu_extract.simulate.instrument import DETECTORS, detectors_needed, psf_model
from gpu_extract.simulate.noise import add_noise
from gpu_extract.simulate.spectra import Truth
from gpu_extract.simulate.targets import target_of
from gpu_extract.simulate.troubles import add_troubles, broadened, with_tail
from gpu_extract.spots import add_to_image, centres, make_spots

TILE = 128              # bins projected at a time, so that the spots of a bundle take only a few MB
NOISE_ROWS = 64
Progress = Callable[[str, int, int], None]


def unseen(stage: str, done: int, total: int) -> None:
    """Default of `progress`: nothing is shown."""


@dataclass(frozen=True)
class Simulation:
    """A simulated frame, in memory.

    image: (ny, nx) float32 electron and ivar, 0 where masked; header and fibermap
    mask: (ny, nx) int32, ccdmask bits; read_noise: (ny, nx) float32, electron
    psf: output PSF of the whole camera; truth: of the fibres made (whole bundles)
    expected: (ny, nx) electron without noise and defects
    charge: (ny, nx) float32 electron of cosmic rays
    true_psf: the true PSF of the light, which some settings make different from the output PSF
    """

    config: SimConfig
    image: Image
    mask: np.ndarray
    read_noise: np.ndarray
    psf: PsfModel
    truth: Truth
    expected: Array
    charge: np.ndarray
    true_psf: PsfModel


def fibres_made(config: SimConfig) -> tuple[int, int]:
    """Fibre range of the bundles that are made.

    Raises ConfigError if the range begins beyond the camera's end, or if dead or broken fibres do not exist.
    """
    detector = DETECTORS[config.band]
    nspec = config.nspec if config.nspec is not None else detector.nfibre - config.specmin
    if nspec < 1:
        raise ConfigError(f"specmin is {config.specmin}, but camera {config.camera} has {detector.nfibre} fibres: give "
                          "nspec to simulate more, or a lower specmin")
    size = detector.bundlesize
    made = config.specmin // size * size, -(-(config.specmin + nspec) // size) * size
    count = -(-made[1] // detector.nfibre) * detector.nfibre        # fibres of the detectors that hold these
    for name in ("dead_fibres", "broken_fibres"):
        beyond = [fibre for fibre in getattr(config.defects, name) if fibre >= count]
        if beyond:
            raise ConfigError(f"{name} has fibre {beyond[0]}, must lie between 0 and {count - 1}")
    return made


def simulate(config: SimConfig, *, threads: int = 1, recorder: Recorder | None = NULL,
             progress: Progress | None = unseen) -> Simulation:
    """Make a frame. `threads` changes no bit; `progress` is called with (stage, done, total).

    Raises ConfigError if the fibre range does not fit the camera.
    """
    check_kind("config", config, SimConfig, "a SimConfig")
    check_threads(threads)
    recorder, progress = seam("recorder", recorder, NULL), seam("progress", progress, unseen)
    lo, hi = fibres_made(config)
    detector = DETECTORS[config.band]
    camera = config.band, config.spectrograph, detectors_needed(replace(config, specmin=lo, nspec=hi - lo))
    psf = with_tail(psf_model(*camera), config.tails)
    given = psf_model(*camera, wider=config.psf_error) if psf.tabulated else broadened(psf, config.psf_error)
    psf = replace(psf, x=psf.x.plus(config.flexure[0]), y=psf.y.plus(config.flexure[1]))
    with recorder.span("truth"):
        truth = make_truth(config, psf, (lo, hi))
    ncolumn = _columns(config, psf, hi)
    with recorder.span("project"):
        binned = _without_lines(config, truth) if config.exact_lines else truth
        expected = project(psf, binned, ncolumn=ncolumn, threads=threads, progress=progress)
        if config.exact_lines:
            _add_lines(expected, config, psf, truth)
        add_troubles(expected, config, psf, truth)
    read_noise = read_noise_map(detector, ncolumn)
    with recorder.span("noise"):
        pix = _noisy(config, expected, read_noise, threads)
    with recorder.span("defects"):
        mask, charge = np.zeros(pix.shape, np.int32), np.zeros(pix.shape, np.float32)
        ivar = _ivar(config, pix, expected, read_noise)
        apply_defects(pix, mask, config=config, detector=detector, charge=charge)
        if config.defects.hidden_cosmics:
            ivar = _ivar(config, pix, expected, read_noise)         # a pipeline would take them for light
        ivar[masked(mask)] = 0.0
    image = Image(pix, ivar, cards_of(config, detector, given), fibermap_of(config, given), float(read_noise.min()),
                  read_noise)
    return Simulation(config, image, mask, read_noise, given, truth, expected, charge, psf)


def make_truth(config: SimConfig, psf: PsfModel, fibres: tuple[int, int]) -> Truth:
    """Spectra of fibres lo .. hi - 1 over the PSF's whole wavelength range."""
    wave = spectra.truth_wave(config, psf.wavelength_range)
    common = spectra.common_light(config, wave)
    per_detector = DETECTORS[config.band].nfibre
    numbers = np.arange(*fibres)
    targets = tuple(target_of(config, int(f)) for f in numbers)
    throughput = np.array([spectra.fibre_throughput(config, int(f), per_detector) for f in numbers])
    flux = np.empty((len(numbers), len(wave)), np.float32)
    for row, target, share in zip(flux, targets, throughput, strict=True):
        row[:] = share * (common + spectra.target_light(config, target, wave))
    return Truth(wave, flux, numbers, targets, throughput)


def project(psf: PsfModel, truth: Truth, *, ncolumn: int, threads: int = 1,
            progress: Progress = unseen) -> Array:
    """Expected light of the truth on the CCD, (ny, ncolumn) electron.

    Bundles are projected one by one onto images of their own, in tiles of TILE
    bins, then summed in their order: the bits do not depend on the threads,
    nor, where only one bundle's light falls, on the other bundles.
    """
    ny = psf.shape[0]
    total = np.zeros((ny, ncolumn))
    bundle = psf.bundle[truth.fibres] if psf.bundle is not None else np.zeros(len(truth.fibres), int)
    cuts = [0, *(np.flatnonzero(np.diff(bundle)) + 1).tolist(), len(bundle)]
    ranges = list(pairwise(cuts))
    with ThreadPoolExecutor(threads) as pool:
        parts = pool.map(lambda rows: _bundle_image(psf, truth, rows), ranges)
        for done, (x0, part) in enumerate(parts):
            first, last = max(x0, 0), min(x0 + part.shape[1], ncolumn)
            if first < last:
                total[:, first:last] += part[:, first - x0:last - x0]
            progress("bundles projected", done + 1, len(ranges))
    return total


def _without_lines(config: SimConfig, truth: Truth) -> Truth:
    """The truth without a lamp's lines."""
    lines = spectra.deposit(truth.wave, *spectra.lamp_lines(config)) / truth.step
    return replace(truth, flux=truth.flux - (truth.throughput[:, np.newaxis] * lines).astype(np.float32))


def _add_lines(expected: Array, config: SimConfig, psf: PsfModel, truth: Truth) -> None:
    """Add the lamp's lines, at their exact wavelengths, to the expected light (ny, ncolumn), in place."""
    wave, electrons = spectra.lamp_lines(config)
    inside = (wave > truth.wave[0]) & (wave < truth.wave[-1])
    fibres = int(truth.fibres[0]), int(truth.fibres[-1]) + 1
    project_lines(expected, psf, fibres, wave[inside], truth.throughput[:, np.newaxis] * electrons[inside])


def project_lines(image: Array, psf: PsfModel, fibres: tuple[int, int], wave: Array, electrons: Array) -> None:
    """Add the light of lines in the fibres lo .. hi - 1 to an image (ny, nx), in place.

    wave: (nline,) Angstrom; electrons: (nfibre, nline)
    """
    add_to_image(image, make_spots(psf, fibres, np.ascontiguousarray(wave)), np.ascontiguousarray(electrons))


def _bundle_image(psf: PsfModel, truth: Truth, rows: tuple[int, int]) -> tuple[int, Array]:
    """(first column, image) of the fibres in rows lo .. hi - 1 of the truth."""
    lo, hi = int(truth.fibres[rows[0]]), int(truth.fibres[rows[1] - 1]) + 1
    x = centres(psf, (lo, hi), truth.wave)[1]
    x0 = int(np.floor(x.min())) - psf.stamp[1]
    image = np.zeros((psf.shape[0], int(np.ceil(x.max())) + psf.stamp[1] - x0))
    electrons = truth.electrons(slice(*rows))
    for start in range(0, len(truth.wave), TILE):
        tile = slice(start, start + TILE)
        spots = make_spots(psf, (lo, hi), truth.wave[tile])
        add_to_image(image, replace(spots, x0=spots.x0 - x0), electrons[:, tile])
    return x0, image


def _columns(config: SimConfig, psf: PsfModel, hi: int) -> int:
    """Width of the image: the CCD's, or up to the last column that the bundles made can touch."""
    if not config.crop:
        return psf.shape[1]
    x = centres(psf, (hi - 1, hi), np.linspace(*psf.wavelength_range, 200))[1]
    return min(psf.shape[1], (int(x.max()) + 32) // 8 * 8)


def _noisy(config: SimConfig, expected: Array, read_noise: np.ndarray, threads: int) -> np.ndarray:
    """Pixels as read out, float32."""
    if not config.noise:
        return expected.astype(np.float32)
    pix = np.empty(expected.shape, np.float32)

    def rows(first: int) -> None:
        part = slice(first, first + NOISE_ROWS)
        add_noise(pix[part], expected[part], read_noise[part], seed=config.seed, camera=config.number, first_row=first)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(rows, range(0, len(pix), NOISE_ROWS)))
    return pix


def _ivar(config: SimConfig, pix: np.ndarray, expected: Array, read_noise: np.ndarray) -> np.ndarray:
    """Inverse variance, float32, before any mask: read noise squared plus the electrons expected, or those seen."""
    light = expected if config.variance == "model" else pix
    variance = read_noise * read_noise
    variance += np.maximum(light, 0.0)
    return np.reciprocal(variance, out=variance)
