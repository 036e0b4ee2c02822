"""The frame that an extraction of a simulated image must return, made by the oracle.

The oracle's dense matrices hold a few thousand bins. A long spectrum is therefore
made in windows, each with PAD bins more at both ends than are kept: cutting
the solution there leaves less than 1e-8 sigma in what is kept (PSFs like
those simulated here; beside heavily masked stretches it may be more).
"""
from itertools import pairwise
from typing import Any

import numpy as np

from gpu_extract.config import ExtractConfig
from gpu_extract.data import Frame
from gpu_extract.fibermap import cut_fibermap
from gpu_extract.oracle import bundle_ranges, mask_bits, oracle_extract
from gpu_extract.simulate.frame import Progress, Simulation

PAD, BINS = 60, 6000
_ARRAYS = ("flux", "ivar", "chi2pix", "pixmask_fraction", "resolution")


def reference_frame(simulation: Simulation, grid: tuple[float, float, float], *,
                    progress: Progress = lambda stage, done, total: None) -> Frame:
    """Extract the requested fibres of a simulation on `grid` (first, last, step in Angstrom) with the oracle.

    Raises InputError if the grid reaches beyond the PSF.
    """
    psf, asked = simulation.psf, simulation.config
    last = simulation.truth.fibres[-1] + 1 if asked.nspec is None else asked.specmin + asked.nspec
    bundles = [b for b in bundle_ranges(psf, 25) if b.stop > asked.specmin and b.start < last]
    parts = []
    for done, bundle in enumerate(bundles):
        frame = _bundle(simulation, bundle, grid)
        kept = np.isin(frame.fibres, np.arange(asked.specmin, last))
        parts.append({name: getattr(frame, name)[kept] for name in (*_ARRAYS, "mask", "status", "fibres")})
        progress("bundles extracted by the oracle", done + 1, len(bundles))
    whole: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    table = simulation.image.fibermap
    return Frame(wave=frame.wave, cards=simulation.image.cards, notes={"core": "oracle"},
                 fibermap=None if table is None else cut_fibermap(table, whole["fibres"], psf.nfibre), **whole)


def _bundle(simulation: Simulation, bundle: range, grid: tuple[float, float, float]) -> Frame:
    """One whole bundle, window by window."""
    first, stop, step = grid
    ndiag = simulation.psf.stamp[0] // 2
    nwave = int(np.ceil((stop - first) / step + 0.5))
    length = max(BINS // len(bundle) - 2 * (PAD + ndiag), 20)
    cuts = [*range(0, nwave, length), nwave]
    pieces = []
    for lo, hi in pairwise(cuts):
        low, high = max(lo - ndiag, 0), min(hi + ndiag, nwave)
        config = ExtractConfig(wavelength=(first + low * step, first + (high - 1) * step, step),
                               specmin=bundle.start, nspec=len(bundle))
        frame = oracle_extract(simulation.image, simulation.psf, config, pad=PAD)
        kept = slice(lo - low, hi - low)
        pieces.append({name: getattr(frame, name)[..., kept] for name in (*_ARRAYS, "status")})
    joined: dict[str, Any] = {name: np.concatenate([piece[name] for piece in pieces], axis=-1) for name in pieces[0]}
    mask = mask_bits(joined["chi2pix"], joined["pixmask_fraction"], joined["ivar"])
    wave = np.asarray(first + step * np.arange(nwave), dtype=np.float64)
    return Frame(wave=wave, fibres=np.array(bundle), mask=mask, **joined)
