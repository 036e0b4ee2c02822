"""From the results of bundles to a frame: select the requested fibres, convert from per bin to per Angstrom."""
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from gpu_extract.data import OUTPUTS, Frame, Image, Rows, SpecMask, Status
from gpu_extract.plan import Plan

BY_BIN = tuple(OUTPUTS)
REAL = tuple(name for name, output in OUTPUTS.items() if output.kind is None)


def wanted(fibres: tuple[int, int], plan: Plan) -> tuple[int, int]:
    """The requested ones of the fibres lo .. hi - 1: a range, empty if there are none."""
    lo = max(plan.fibres[0], fibres[0])
    return lo, max(lo, min(plan.fibres[1], fibres[1]))


def rows_of(result: Rows, plan: Plan, dtype: DTypeLike = np.float64) -> Rows:
    """The requested fibres of a bundle: flux / dw and ivar dw^2 with dw = gradient(wave). dtype: of real numbers."""
    lo, hi = wanted(result.fibres, plan)
    arrays = {name: getattr(result, name)[lo - result.fibres[0]:hi - result.fibres[0]] for name in BY_BIN}
    step = np.gradient(plan.wave)
    arrays["flux"], arrays["ivar"] = arrays["flux"] / step, arrays["ivar"] * step**2
    with np.errstate(over="ignore", under="ignore"):
        arrays |= {name: arrays[name].astype(dtype, copy=False) for name in REAL}
    return held(replace(result, fibres=(lo, hi), **arrays))


def held(rows: Rows) -> Rows:
    """Replace numbers that exceed the type of the rows, in place.

    A bin whose flux or ivar exceeds it, or whose ivar is so small that it loses digits, has no data and is FAILED. A
    chi2pix that exceeds it becomes the largest number of the type.
    """
    kind = np.finfo(rows.ivar.dtype)
    lost = np.flatnonzero(rows.ivar < kind.tiny)
    lost = lost[(rows.mask.ravel()[lost] & SpecMask.NODATA) == 0]
    # sums are not finite if an element is not
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(rows.flux.sum() + rows.ivar.sum())
    if not finite:
        lost = np.union1d(lost, np.flatnonzero(np.isinf(rows.flux) | np.isinf(rows.ivar)))
    if len(lost):
        bins = np.unravel_index(lost, rows.ivar.shape)
        rows.flux[bins] = rows.ivar[bins] = 0
        rows.resolution.transpose(0, 2, 1)[bins] = 0
        rows.mask[bins] |= np.uint32(SpecMask.NODATA)
        rows.status[bins] = Status.FAILED
    if rows.chi2pix.max(initial=0.0) > kind.max:
        np.minimum(rows.chi2pix, kind.max, out=rows.chi2pix)
    return rows


def assemble(parts: list[Rows], plan: Plan, image: Image, notes: Mapping[str, Any], *,
             like: tuple[int, DTypeLike]) -> Frame:
    """The frame of the requested fibres; parts: all of its rows, in order; like: its ndiag, and the type of real
    numbers.

    The models of the bundles are added in order. The list is emptied meanwhile, so that a large frame is not in memory
    twice. A single part with all requested fibres becomes the frame without a copy. It has no fibermap yet.
    """
    lo, hi = plan.asked
    alone = len(parts) == 1 and parts[0].fibres == plan.fibres and plan.fibres[1] - plan.fibres[0] == hi - lo
    arrays: dict[str, Any] = {name: getattr(parts[0], name) if alone else np.zeros(*room)
              for name, room in rooms(hi - lo, len(plan.wave), *like).items()}
    model = np.zeros(image.shape) if any(part.models for part in parts) else None
    while parts:
        part = parts.pop(0)
        rows = plan.kept[slice(*part.fibres)] - lo
        for name, array in arrays.items():
            if not alone:
                array[rows] = getattr(part, name)
        for share, (y, x) in part.models:
            model[y:y + share.shape[0], x:x + share.shape[1]] += share      # type: ignore[index]
    if plan.fibres[1] - plan.fibres[0] < hi - lo:
        dropped = np.setdiff1d(np.arange(lo, hi), plan.kept) - lo
        for name, output in OUTPUTS.items():
            arrays[name][dropped] = output.dropped
    return Frame(wave=plan.wave, fibres=np.arange(lo, hi), model=model, cards=image.cards, fibermap=None,
                 notes=notes, **arrays)


def rooms(nfibre: int, nwave: int, ndiag: int, dtype: DTypeLike) -> dict[str, tuple[tuple[int, ...], DTypeLike]]:
    """Shape and type of each array for this many rows of a frame; dtype: of real numbers."""
    return {name: ((nfibre, 2 * ndiag + 1, nwave) if name == "resolution" else (nfibre, nwave),
                   dtype if output.kind is None else output.kind) for name, output in OUTPUTS.items()}
