"""A whole frame by the oracle: grid, bundles, mask bits, photons per Angstrom."""
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_extract.config import ExtractConfig
from gpu_extract.data import Array, Frame, Image, PsfModel, SpecMask, Status
from gpu_extract.errors import InputError
from gpu_extract.oracle.bundle import solve_bundle
from gpu_extract.oracle.spots import design_matrix


def mask_bits(chi2pix: Array, pixmask_fraction: Array, ivar: Array) -> NDArray[np.uint32]:
    """MASK (nfibre, nwave) of a whole instrument bundle on the wanted wavelengths, bit by bit as defined."""
    mask = np.zeros(ivar.shape, dtype=np.uint32)
    mask[pixmask_fraction > 0.5] |= np.uint32(SpecMask.SOMEBADPIX)
    mask[pixmask_fraction == 1] |= np.uint32(SpecMask.ALLBADPIX)
    mask[ivar == 0] |= np.uint32(SpecMask.NODATA)
    good = mask == 0
    nfibre, nwave = ivar.shape
    medians = [np.median(chi2pix[i, good[i]]) for i in range(nfibre) if good[i].any()]
    for i in range(nfibre):
        for j in range(nwave):
            if nfibre < 5:
                bad = chi2pix[i, j] > 100
            else:
                over_fibres, over_waves = chi2pix[good[:, j], j], chi2pix[i, good[i]]
                bad = (len(over_fibres) > 0 and chi2pix[i, j] > 5 * np.median(over_fibres)
                       and len(over_waves) > 0 and chi2pix[i, j] > 5 * np.median(over_waves))
                bad |= (chi2pix[i, j] > 10
                        and sum(chi2pix[i, j] > 100 * median for median in medians) > len(medians) / 2)
            if bad:
                mask[i, j] |= np.uint32(SpecMask.BAD2DFIT)
    return mask


def bundle_ranges(psf: PsfModel, bundlesize: int) -> list[range]:
    """Fibres of each instrument bundle: as the PSF numbers them, else every `bundlesize` fibres from 0."""
    number = np.arange(psf.nfibre) // bundlesize if psf.bundle is None else psf.bundle
    edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), psf.nfibre]
    return [range(lo, hi) for lo, hi in pairwise(edges)]


def wavelength_grid(config: ExtractConfig, psf: PsfModel, pad: int) -> tuple[Array, slice]:
    """All wavelengths to solve for, `pad` beyond each end but none beyond the PSF, and which are wanted."""
    first, last, step = config.wavelength
    nwave = int(np.ceil((last - first) / step + 0.5))       # both ends, the last one to half a step
    index = np.arange(-pad, nwave + pad)
    wave = np.asarray((first + index * step) / config.wave_factor, dtype=float)
    low, high = psf.wavelength_range
    rounded = 4 * np.finfo(float).eps * high        # of the bin and of the limit
    inside = (wave >= low - rounded) & (wave <= high + rounded)
    wanted = (index >= 0) & (index < nwave)
    if not inside[wanted].all():
        raise InputError(f"wavelengths {first:g} to {last:g} A reach beyond the PSF ({low:g} to {high:g} A): "
                         "choose a range within it")
    start = int(np.argmax(wanted[inside]))
    return wave[inside], slice(start, start + nwave)


def oracle_extract(image: Image, psf: PsfModel, config: ExtractConfig, *, pad: int = 60) -> Frame:
    """The frame that every other way to extract must give, for small cases.

    pad: extra bins solved for beyond each end (METHOD: 50 leave 3e-9 sigma on DESI PSFs, gh2 needs more)
    notes: "cond", the largest condition number of a bundle's icov, scaled to a unit diagonal
    Raises InputError where a bundle has too many bins or the PSF does not reach.
    """
    wave, wanted = wavelength_grid(config, psf, pad)
    stored = wave[wanted] * config.wave_factor
    dw = np.gradient(stored)
    last = psf.nfibre if config.nspec is None else min(psf.nfibre, config.specmin + config.nspec)
    fibres = np.arange(config.specmin, last)
    ndiag = psf.stamp[0] // 2 if config.ndiag is None else config.ndiag
    psferr = psf.psferr if config.psferr is None else config.psferr
    rows: list[dict[str, np.ndarray]] = []
    model, cond = np.zeros(image.shape), 1.0
    for bundle in bundle_ranges(psf, config.bundlesize):
        if bundle.stop <= config.specmin or bundle.start >= last:
            continue
        design = design_matrix(psf, bundle, wave, image.shape)
        solved = solve_bundle(design, image, len(bundle), psferr=psferr, ridge=config.regularize)
        cut = {name: getattr(solved, name)[:, wanted] for name in ("ivar", "chi2pix", "pixmask_fraction")}
        mask = mask_bits(cut["chi2pix"], cut["pixmask_fraction"], cut["ivar"])
        model, cond = model + solved.model, max(cond, solved.cond)
        for k in (f - bundle.start for f in fibres if f in bundle):
            rows.append({"flux": solved.flux[k, wanted] / dw, "ivar": cut["ivar"][k] * dw**2, "mask": mask[k],
                         "chi2pix": cut["chi2pix"][k], "pixmask_fraction": cut["pixmask_fraction"][k],
                         "resolution": diagonals(solved.resolution[k][wanted, wanted], ndiag)})
    frame: dict[str, Any] = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    status = np.where(frame["ivar"] > 0, Status.GOOD, Status.EMPTY).astype(np.int8)
    return Frame(wave=stored, fibres=fibres, status=status, model=model if config.model else None,
                 notes={"cond": cond}, **frame)


def diagonals(resolution: Array, ndiag: int) -> Array:
    """(2 ndiag + 1, n) from R (n, n): [k, j] = R[j - ndiag + k, j], 0 where that row does not exist."""
    n = len(resolution)
    stored = np.zeros((2 * ndiag + 1, n))
    for k in range(2 * ndiag + 1):
        for j in range(max(0, ndiag - k), min(n, n + ndiag - k)):
            stored[k, j] = resolution[j - ndiag + k, j]
    return stored
