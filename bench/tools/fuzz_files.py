"""The good files that damaged ones are made of: small, each kind in several forms."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits
from mutations import Parts, parts_of

from gpu_extract.config import ExtractConfig
from gpu_extract.io.fibermap import read_fibermap
from gpu_extract.io.frame import read_frame, write_frame
from gpu_extract.io.image import read_image
from gpu_extract.io.psf import read_psf
from gpu_extract.run import extract
from gpu_extract.simulate import SimConfig, simulate, write_simulation

GRID = (6030.0, 6055.5, 0.85)     # a half-band of 8: tests have its kernels
CONFIG = ExtractConfig(GRID, nspec=2)
READERS: dict[str, Callable[[Path], Any]] = {
    "image": read_image,
    "psf": read_psf,
    "fibermap": read_fibermap,
    "frame": read_frame,
}


@dataclass(frozen=True)
class Base:
    """The good files of a kind, in parts, with what is read from each; the first of them with checksums."""

    files: tuple[tuple[Parts, Any], ...]
    checked: bytes

    @property
    def value(self) -> Any:
        """What is read from the first file."""
        return self.files[0][1]


def make_image(folder: Path) -> tuple[Path, Path]:
    """A small simulated image and its PSF."""
    image, psf = folder / "image.fits", folder / "psf.fits"
    write_simulation(simulate(SimConfig(camera="tiny", nspec=5, seed=1)), image, psf=psf)
    return image, psf


def make_bases(folder: Path) -> tuple[dict[str, Base], Any]:
    """Good files of every kind, small, each in several forms, and the frame that comes of them."""
    image, psf = make_image(folder)
    frame = extract(read_image(image), read_psf(psf), CONFIG, dtype="float32")
    assert frame is not None
    write_frame(folder / "frame.fits", frame)
    plain = {
        "image": [image, *_other_masks(folder, image)],
        "psf": [psf, _old_psf(folder, psf)],
        "frame": [folder / "frame.fits"],
    }
    bases = {}
    for kind, paths in plain.items():
        bases[kind] = Base(tuple((_unsigned(path), READERS[kind](path)) for path in paths), paths[0].read_bytes())
    table = folder / "fibermap.fits"
    with fits.open(image) as hdus:
        fits.HDUList([fits.PrimaryHDU(), hdus["FIBERMAP"]]).writeto(table, checksum=True)
    bases["fibermap"] = Base(((_unsigned(table), read_fibermap(table)),), table.read_bytes())
    return bases, frame


def _unsigned(path: Path) -> Parts:
    """A file in parts, its checksums left out: they would say of each change only that there is one."""
    with fits.open(path, disable_image_compression=True) as hdus:
        for hdu in hdus:
            for key in ("CHECKSUM", "DATASUM"):
                hdu.header.remove(key, ignore_missing=True)
        hdus.writeto(path.with_name("plain.fits"), overwrite=True)
    return parts_of(str(path.with_name("plain.fits")))


def _other_masks(folder: Path, image: Path) -> list[Path]:
    """The same image with masks of other types, which say the same."""
    paths = []
    for name, kind in (("uint8", np.uint8), ("uint16", np.uint16), ("uint32", np.uint32), ("int16", np.int16)):
        with fits.open(image) as hdus:
            bits = (hdus["MASK"].data & 767) != 0 if "MASK" in hdus else np.zeros(hdus[0].shape, bool)
            new = [fits.ImageHDU(bits.astype(kind), name="MASK") if hdu.name == "MASK" else hdu for hdu in hdus]
            fits.HDUList(new).writeto(folder / f"{name}.fits")
        paths.append(folder / f"{name}.fits")
    return paths


def _old_psf(folder: Path, psf: Path) -> Path:
    """The same PSF as version 2: traces among the parameters, wavelengths in columns."""
    with fits.open(psf) as hdus:
        table, ncoef = hdus["PSF"].data, max(hdus[0].shape[1], hdus[1].shape[1], hdus["PSF"].data["COEFF"].shape[2])
        rows = np.zeros(
            len(table) + 2,
            [("PARAM", "S8"), ("WAVEMIN", "f8"), ("WAVEMAX", "f8"), ("COEFF", "f8", (hdus[0].shape[0], ncoef))],
        )
        named = [("X", hdus[0].data, hdus[0].header), ("Y", hdus[1].data, hdus[1].header)]
        named += [(row["PARAM"], row["COEFF"], hdus["PSF"].header) for row in table]
        for row, (name, coeff, header) in zip(rows, named, strict=True):
            row["PARAM"], row["WAVEMIN"], row["WAVEMAX"] = name, header["WAVEMIN"], header["WAVEMAX"]
            row["COEFF"][:, : coeff.shape[1]] = coeff
        new = fits.BinTableHDU(rows, name="PSF")
        for key in ("PSFTYPE", "NPIX_X", "NPIX_Y", "HSIZEX", "HSIZEY", "PSFERR"):
            new.header[key] = hdus["PSF"].header[key]
        new.header["PSFVER"] = 2
        fits.HDUList([fits.PrimaryHDU(), new]).writeto(folder / "old.fits")
    return folder / "old.fits"
