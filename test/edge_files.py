"""Small images, PSFs and frames for tests of files and commands, with values that show where they came from."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from astropy.io import fits

from gpu_extract.data import Array, Card, Core, FiberMap, Frame, Legendre, PsfModel

NY, NX = 120, 60
WMIN, WMAX = 6000.0, 6100.0
GRID = "6010,6090,1.0"  # a grid well inside


def legendre(coeff: Array) -> Legendre:
    """A series over the small PSF's wavelengths."""
    return Legendre(np.asarray(coeff, np.float64), WMIN, WMAX)


def small_psf(nfibre: int = 6, ny: int = NY, nx: int = NX) -> PsfModel:
    """Straight traces 8 pixels apart, one Angstrom per pixel along y from 10 to 110, slightly skewed spots."""
    x = np.stack([8.0 + 8.0 * np.arange(nfibre), np.full(nfibre, 0.3)], axis=1)
    y = np.stack([np.full(nfibre, 60.0), np.full(nfibre, 50.0)], axis=1)
    sigma = np.stack([np.full(nfibre, 0.95), np.full(nfibre, 0.05)], axis=1)
    gh = np.zeros((3, 3, nfibre, 2))
    gh[0, 0, :, 0] = 1.0
    gh[1, 2, :, 0] = 0.01 * np.arange(nfibre)
    gh[2, 1, :, 1] = -0.005
    core = Core(legendre(sigma), legendre(sigma + 0.1), legendre(gh))
    return PsfModel(
        legendre(x),
        legendre(y),
        (core,),
        None,
        (9, 11),
        (3.5, 4.5),
        (ny, nx),
        bundle=np.arange(nfibre) // 3,
        psferr=0.02,
        name="small",
    )


def image_hdus(ny: int = NY, nx: int = NX, nfibre: int = 6) -> fits.HDUList:
    """An image of flat sky and noise with IVAR, MASK, READNOISE and FIBERMAP."""
    rng = np.random.default_rng(3)
    pix = rng.normal(50.0, 8.0, (ny, nx)).astype(np.float32)
    table = np.zeros(
        nfibre, [("TARGETID", np.int64), ("FIBER", np.int32), ("RA", np.float64), ("NAME", "S6"), ("GOOD", np.bool_)]
    )
    table["FIBER"] = 1500 + np.arange(nfibre)
    table["TARGETID"] = 10**15 + np.arange(nfibre)
    table["NAME"] = [f"t{i}" for i in range(nfibre)]
    table["RA"] = 0.1 * np.arange(nfibre)
    table["GOOD"] = np.arange(nfibre) % 2
    primary = fits.PrimaryHDU(pix)
    primary.header["EXTNAME"] = "IMAGE"
    for key, value, comment in (
        ("CAMERA", "r3", "camera"),
        ("FLAVOR", "science", "kind"),
        ("EXPTIME", 900.0, "s"),
        ("BUNIT", "electron", ""),
        ("EXPID", 12345, "exposure number"),
    ):
        primary.header[key] = (value, comment)
    hdus = fits.HDUList(
        [
            primary,
            fits.ImageHDU(np.full((ny, nx), 1 / 64, np.float32), name="IVAR"),
            fits.ImageHDU(np.zeros((ny, nx), np.int32), name="MASK"),
            fits.ImageHDU(np.full((ny, nx), 3.0, np.float32), name="READNOISE"),
            fits.BinTableHDU(table, name="FIBERMAP"),
        ]
    )
    hdus["FIBERMAP"].columns.change_unit("RA", "deg")
    hdus["FIBERMAP"].header["PETAL"] = (3, "spectrograph")
    return hdus


def write_image(path: Path, hdus: fits.HDUList | None = None, checksum: bool = True) -> Path:
    """Write an image file."""
    (image_hdus() if hdus is None else hdus).writeto(path, checksum=checksum)
    return path


def small_frame(nspec: int = 4, nwave: int = 30, specmin: int = 1) -> Frame:
    """A frame of recognisable numbers; all fibres and bins differ."""
    rng = np.random.default_rng(5)
    wave = 6000.0 + 0.8 * np.arange(nwave)
    ivar = rng.uniform(0.1, 2.0, (nspec, nwave))
    ivar[1, 7] = 0
    mask = np.zeros((nspec, nwave), np.uint32)
    mask[1, 7] = 256 + 2 + 1
    mask[2, 3] = 2**31
    table = np.zeros(nspec, [("TARGETID", np.int64), ("FIBER", np.int32), ("NAME", "U5")])
    table["FIBER"] = 1500 + specmin + np.arange(nspec)
    table["NAME"] = [f"n{i}" for i in range(nspec)]
    cards = (
        Card("CAMERA", "r3", "camera"),
        Card("FLAVOR", "science", "kind"),
        Card("EXPID", 12345, "number"),
        Card("DEPNAM00", "numpy"),
        Card("DEPVER00", "0.0.1"),
        Card("HISTORY", "made by hand"),
    )
    return Frame(
        wave,
        rng.normal(100, 10, (nspec, nwave)),
        ivar,
        mask,
        rng.normal(0.1, 0.01, (nspec, 11, nwave)),
        rng.uniform(0.5, 1.5, (nspec, nwave)),
        specmin + np.arange(nspec),
        rng.uniform(0, 1, (nspec, nwave)),
        np.zeros((nspec, nwave), np.int8),
        rng.normal(0, 1, (20, 10)),
        cards,
        FiberMap(table),
        {"core": "dense", "pad": 50},
    )


def without_fibermap(frame: Frame) -> Frame:
    """The same without its fibermap."""
    return replace(frame, fibermap=None)
