"""Bundle results to a frame: cut to the wanted fibres, photons per bin to photons per Angstrom."""
from collections.abc import Mapping
from typing import Any

import numpy as np

from gpu_extract.data import BundleResult, FiberMap, Frame, Image
from gpu_extract.plan import Plan

BY_BIN = ("flux", "ivar", "mask", "resolution", "chi2pix", "pixmask_fraction", "status")


def assemble(results: list[BundleResult], plan: Plan, image: Image, notes: Mapping[str, Any]) -> Frame:
    """The frame of the wanted fibres; results: all bundles of the plan, in order.

    flux /= dw, ivar *= dw^2 with dw = gradient(wave). The models of the bundles are added in order. The list is emptied
    on the way: a frame is large, and need not be in memory twice.
    """
    lo, hi = plan.fibres
    step = np.gradient(plan.wave)
    arrays = {name: np.empty((hi - lo, *getattr(results[0], name).shape[1:]), getattr(results[0], name).dtype)
              for name in BY_BIN}
    model = np.zeros(image.shape) if any(r.model is not None for r in results) else None
    while results:
        result = results.pop(0)
        first, last = max(lo, result.fibres[0]), min(hi, result.fibres[1])
        for name, array in arrays.items():
            array[first - lo:last - lo] = getattr(result, name)[first - result.fibres[0]:last - result.fibres[0]]
        if result.model is not None and model is not None:
            model[:, result.model_x0:result.model_x0 + result.model.shape[1]] += result.model
    arrays["flux"] /= step
    arrays["ivar"] *= step**2
    return Frame(wave=plan.wave, fibres=np.arange(lo, hi), model=model, cards=image.cards,
                 fibermap=cut_fibermap(image.fibermap, lo, hi), notes=notes, **arrays)


def cut_fibermap(fibermap: FiberMap | None, lo: int, hi: int) -> FiberMap | None:
    """The rows of fibres lo .. hi - 1, or None where the table does not reach that far."""
    if fibermap is None or len(fibermap.rows) < hi:
        return None
    return FiberMap(fibermap.rows[lo:hi], fibermap.units, fibermap.cards)
