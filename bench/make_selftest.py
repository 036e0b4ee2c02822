"""Make the cut-out that `--test` extracts: image, PSF, and the oracle's frame of it.

usage: make_selftest.py [FOLDER]     (the shipped files are in py/gpu_extract/etc/selftest)

Without a folder nothing is kept: the pixels and the frame are compared with the shipped ones, and the exit code is
1 where they differ. This is its real and its smallest size (--smallest).

Two bundles of ten fibres, 100 bins, a made-up PSF of the size and roughness of a real one. The image is
A f plus noise, with the oracle's own A, and has spectra from 15 to 20000 photons per bin, cosmics and a bad
column. The first bundle is well conditioned; the second has a dark fibre, a masked block that leaves bins
without any good pixel, and runs off the lower edge. The frame is the oracle's, from the files as read back.
"""
import sys
from math import factorial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from gpu_extract.compare import compare_frames
from gpu_extract.compare.selftest import load_cutout
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Card, Core, Frame, Legendre, PsfModel
from gpu_extract.io.frame import frame_images, read_frame
from gpu_extract.io.image import read_image
from gpu_extract.io.psf import read_psf, write_psf
from gpu_extract.io.write import image_hdu, write_hdus
from gpu_extract.oracle import expected_image, oracle_extract, wavelength_grid

WMIN, WMAX = 6000.0, 6150.0                 # domain of the PSF, Angstrom
SHAPE = (276, 172)                          # the CCD, (ny, nx) pixels
NFIBRE, PER_BUNDLE = 20, 10
DISPERSION = 0.62                           # Angstrom per pixel
READ_NOISE = 2.7                            # electron
PAD = 60
CONFIG = ExtractConfig(wavelength=(6037.5, 6111.75, 0.75))     # dyadic: exact in any arithmetic


def series(value: np.ndarray | float, rough: float, rng: np.random.Generator) -> Legendre:
    """A series in wavelength of mean `value` that varies by `rough` (relative) along and between fibres."""
    mean = np.asarray(value, dtype=float)
    size = rough * rng.uniform(-1, 1, (*mean.shape, NFIBRE, 4)) * [1, 1, 0.5, 0.3]
    return Legendre(mean[..., None, None] * (np.array([1.0, 0, 0, 0]) + size), WMIN, WMAX)


def make_psf(rng: np.random.Generator) -> PsfModel:
    """Traces 7.27 pixels apart with a gap between the bundles; sigma 1.04 and 1.12 pixels, He to degree 6."""
    fibre = np.arange(NFIBRE)
    x = 12 + 7.27 * fibre + 10.2 * (fibre // PER_BUNDLE)
    span = (WMAX - WMIN) / DISPERSION
    y = span / 2 + np.where(fibre < PER_BUNDLE, 16, -24) - 0.004 * (fibre - 12.0) ** 2
    norm = np.sqrt([factorial(k) for k in range(7)])
    gh = 0.04 * rng.uniform(-1, 1, (7, 7)) / np.outer(norm, norm)
    gh[0, 0] = 1.0
    one = np.ones(NFIBRE)
    return PsfModel(
        x=Legendre(np.stack([x, 0.9 * one, -0.6 * one], axis=-1), WMIN, WMAX),
        y=Legendre(np.stack([y, span / 2 * one, -1.1 * one, 0.2 * one], axis=-1), WMIN, WMAX),
        cores=(Core(series(1.04, 0.03, rng), series(1.12, 0.03, rng), series(gh, 0.3, rng)),),
        tail=None, stamp=(11, 17), offset=(4.5, 7.5), shape=SHAPE, bundle=fibre // PER_BUNDLE, name="cut-out")


def make_photons(wave: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(NFIBRE, nwave) photons per bin: sky lines on continua of many heights; fibre 13 is dark."""
    sky = np.full(len(wave), 15.0)
    for centre, height in zip(rng.uniform(wave[0], wave[-1], 14), np.geomspace(60, 12000, 14), strict=True):
        sky += height * np.exp(-((wave - centre) / 0.6) ** 2 / 2)
    level = rng.permutation(np.geomspace(1, 3000, NFIBRE))[:, None]
    shape = 1 + 0.4 * np.sin(wave / rng.uniform(4, 25, (NFIBRE, 1)) + rng.uniform(0, 6, (NFIBRE, 1)))
    line = np.exp(-((wave - rng.uniform(wave[60], wave[-60], (NFIBRE, 1))) / 1.5) ** 2 / 2)
    photons = rng.uniform(0.8, 1.2, (NFIBRE, 1)) * sky + level * (shape + 4 * line)
    photons[13] = 0
    return photons


def make_mask(rng: np.random.Generator) -> np.ndarray:
    """(ny, nx) ccdmask: a bad column (1), a dead block (4) and cosmics (16)."""
    mask = np.zeros(SHAPE, dtype=np.int32)
    mask[:, 47] = 1
    mask[98:126, 112:142] = 4
    for y, x, length in zip(rng.integers(0, SHAPE[0] - 6, 40), rng.integers(0, SHAPE[1] - 6, 40),
                            rng.integers(1, 6, 40), strict=True):
        for step in range(length):
            mask[y + step, x + step * (length % 2)] = 16
    return mask


def write_reference(path: Path, frame: Frame) -> None:
    """The oracle's frame in double precision, as gpu_extract's frames but for that."""
    arrays = {**frame_images(frame), "FLUX": frame.flux, "IVAR": frame.ivar, "RESOLUTION": frame.resolution,
              "CHI2PIX": frame.chi2pix, "PIXMASK_FRACTION": frame.pixmask_fraction}
    cards = (Card("CODE", "oracle", "explicit A, dense algebra"), Card("SPECMIN", 0),
             Card("COND", float(frame.notes["cond"]), "largest condition number of a bundle's icov"))
    write_hdus(path, [image_hdu(array, name, cards=cards if name == "FLUX" else (), primary=name == "FLUX")
                      for name, array in arrays.items()])


def main() -> int:
    """Make the three files in the folder that is named, or compare them with the shipped ones."""
    words = [word for word in sys.argv[1:] if word != "--smallest"]
    if len(words) > 1 or any(word.startswith("-") for word in words):
        print(__doc__)
        return 2
    if words:
        Path(words[0]).mkdir(parents=True, exist_ok=True)
        make(Path(words[0]))
        return 0
    with TemporaryDirectory() as folder:
        make(Path(folder))
        return compare(Path(folder))


def compare(folder: Path) -> int:
    """Whether the files in a folder hold what the shipped ones hold: 0 or 1."""
    shipped = load_cutout()
    image = read_image(folder / "image.fits")
    pixels = np.array_equal(image.pix, shipped.image.pix) and np.array_equal(image.ivar, shipped.image.ivar)
    print(f"pixels are {'' if pixels else 'not '}those of the shipped image")
    comparison = compare_frames(read_frame(folder / "reference.fits"), shipped.reference, "oracle")
    print(comparison.table())
    return 0 if pixels and comparison.passed else 1


def make(folder: Path) -> None:
    """Write image.fits, psf.fits and reference.fits."""
    rng = np.random.default_rng(20201109)
    psf = make_psf(rng)
    wave, _ = wavelength_grid(CONFIG, psf, PAD)
    clean = expected_image(psf, range(NFIBRE), wave, make_photons(wave, rng), SHAPE)
    mask = make_mask(rng)
    pix = rng.poisson(clean) + rng.normal(0, READ_NOISE, SHAPE)
    ivar = 1 / (np.maximum(pix, 0) + READ_NOISE**2)
    pix[mask == 16] += rng.uniform(300, 20000, np.count_nonzero(mask == 16))
    pix[mask == 4] = 0
    write_hdus(folder / "image.fits", [
        image_hdu(pix.astype(np.float32), "IMAGE", bunit="electron", primary=True, cards=(
            Card("FLAVOR", "science"), Card("CAMERA", "r0"), Card("EXPTIME", 900.0))),
        image_hdu(ivar.astype(np.float32), "IVAR"), image_hdu(mask, "MASK")])
    write_psf(folder / "psf.fits", psf)
    frame = oracle_extract(read_image(folder / "image.fits"), read_psf(folder / "psf.fits"), CONFIG, pad=PAD)
    write_reference(folder / "reference.fits", frame)
    print(f"{frame.flux.size} bins, condition {frame.notes['cond']:.1e}, mask bits {np.unique(frame.mask)}, "
          f"median chi2pix {np.median(frame.chi2pix):.2f}, {np.mean(frame.ivar == 0):.1%} without data")


if __name__ == "__main__":
    raise SystemExit(main())
