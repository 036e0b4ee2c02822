"""Bundle results to a frame: cut to the wanted fibres, photons per bin to photons per Angstrom."""
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpu_extract.data import BundleResult, FiberMap, Frame, Image
from gpu_extract.plan import Plan


def assemble(results: Sequence[BundleResult], plan: Plan, image: Image, notes: Mapping[str, Any]) -> Frame:
    """The frame of the wanted fibres; results: all bundles of the plan, in order.

    flux /= dw, ivar *= dw^2 with dw = gradient(wave). The models of the bundles are added in order.
    """
    lo, hi = plan.fibres
    step = np.gradient(plan.wave)

    def rows(name: str) -> np.ndarray:
        parts = [getattr(r, name)[max(lo - r.fibres[0], 0):hi - r.fibres[0]] for r in results]
        return np.concatenate(parts)

    model = add_models(results, image.shape) if any(r.model is not None for r in results) else None
    return Frame(plan.wave, rows("flux") / step, rows("ivar") * step**2, rows("mask"), rows("resolution"),
                 rows("chi2pix"), np.arange(lo, hi), rows("pixmask_fraction"), rows("status"), model, image.cards,
                 cut_fibermap(image.fibermap, lo, hi), notes)


def add_models(results: Sequence[BundleResult], shape: tuple[int, int]) -> np.ndarray:
    """The model image (ny, nx), electron: those of the bundles, added in order."""
    whole = np.zeros(shape)
    for result in results:
        if result.model is not None:
            whole[:, result.model_x0:result.model_x0 + result.model.shape[1]] += result.model
    return whole


def cut_fibermap(fibermap: FiberMap | None, lo: int, hi: int) -> FiberMap | None:
    """The rows of fibres lo .. hi - 1, or None where the table does not reach that far."""
    if fibermap is None or len(fibermap.rows) < hi:
        return None
    return FiberMap(fibermap.rows[lo:hi], fibermap.units, fibermap.cards)
