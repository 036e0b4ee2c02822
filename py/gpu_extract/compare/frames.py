"""Two frames, field by field, for whatever fibres and wavelengths both have."""
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu_extract.compare.tolerances import Limit, Limits, load_limits
from gpu_extract.compare.verdict import Comparison, Row
from gpu_extract.data import NOTHING, Array, Frame, IntArray, SpecMask, Status
from gpu_extract.errors import InputError

SAME_WAVELENGTH = 1e-6     # Angstrom


@dataclass(frozen=True)
class _Common:
    """Indices of the common fibres and wavelengths in a frame and its reference; good: judged bins."""

    fibres: tuple[NDArray[np.intp], NDArray[np.intp]]
    waves: tuple[NDArray[np.intp], NDArray[np.intp]]
    good: NDArray[np.bool_]

    def cut(self, arrays: tuple[np.ndarray, np.ndarray]) -> Iterator[Array]:
        """The common bins (nfibre, ..., nwave) of a field of both frames, in double precision."""
        for array, fibres, waves in zip(arrays, self.fibres, self.waves, strict=True):
            yield array[fibres][..., waves].astype(np.float64)


def compare_frames(frame: Frame, reference: Frame, limits: Limits | str | None = None) -> Comparison:
    """Judge `frame` by `reference` for whatever fibres (by number) and wavelengths (to 1e-6 A) both have.

    flux, ivar, resolution and chi2pix are judged in bins whose light falls for more than half on good
    pixels of the reference; resolution on the central diagonals that both have, chi2pix where the
    reference has it; status where both frames have it, by what has a flux and why the others have none.

    limits: a kind of etc/tolerances.json or its name; None: chosen by who made the reference
    Raises InputError where the frames have no fibre or no wavelength in common, or fibres' own wavelengths differ.
    """
    if not isinstance(limits, Limits):
        limits = load_limits(limits or limits_for(reference))
    common = _common(frame, reference, limits.ends)
    differences = {
        "flux": lambda: _flux(frame, reference, common)[common.good],
        "ivar": lambda: _ivar(frame, reference, common)[common.good],
        "resolution": lambda: np.concatenate([d[judged] for d, judged in _resolution(frame, reference, common)]),
        "chi2pix": lambda: _chi2pix(frame, reference, common)[common.good],
    }
    rows, notes = [], []
    for field, limit in limits.fields.items():
        if field == "mask":
            differ = _mask(frame, reference, common, limits.mask_bits)
            rows.append(Row("mask", differ.size, None, None, float(np.mean(differ)), limit))
        elif field == "status":
            found = _status(frame, reference, common)
            if found is None:
                notes.append("status: not in both frames")
            else:
                rows.append(Row("status", found.size, None, None, float(np.mean(found)), limit))
        elif field == "chi2pix" and not reference.chi2pix.any():
            notes.append("chi2pix: the reference has none")
        else:
            rows.append(_row(field, differences[field](), limit))
    return Comparison(limits, tuple(rows), len(common.fibres[0]), len(common.waves[0]), tuple(notes))


@dataclass(frozen=True)
class Differences:
    """Where two frames differ: all (nfibre, nwave) over the common fibres (numbers) and wavelengths.

    flux in sigma; ivar of the ratio; resolution: the largest of the bin's elements; NaN where not judged
    mask: whether any of the compared bits differ
    """

    fibres: IntArray
    wave: Array
    flux: Array
    ivar: Array
    resolution: Array
    mask: NDArray[np.bool_]


def difference_maps(frame: Frame, reference: Frame, limits: Limits | str | None = None) -> Differences:
    """The differences that `compare_frames` judges, bin by bin. Raises InputError as that does."""
    if not isinstance(limits, Limits):
        limits = load_limits(limits or limits_for(reference))
    common = _common(frame, reference, limits.ends)
    worst = np.full(common.good.shape, -np.inf)
    for difference, judged in _resolution(frame, reference, common):
        worst[judged] = np.maximum(worst[judged], difference[judged])

    def shown(values: Array) -> Array:
        return np.where(common.good, values, np.nan)

    return Differences(reference.fibres[common.fibres[1]], reference.wave[common.waves[1]],
                       shown(_flux(frame, reference, common)), shown(_ivar(frame, reference, common)),
                       np.where(np.isfinite(worst), worst, np.nan),
                       _mask(frame, reference, common, limits.mask_bits))


def limits_for(reference: Frame) -> str:
    """The kind of limits that suits a reference: that of specter's frames for those, else "frame"."""
    cards = {card.key: str(card.value) for card in reference.cards}
    makers = [value for key, value in cards.items() if key == "CODE" or key.startswith("DEPNAM")]
    if "gpu_extract" in makers or not any("specter" in maker for maker in makers):
        return "frame"
    return "specter-onepatch" if cards.get("NSUBBUN") == "1" else "specter"


def _common(frame: Frame, reference: Frame, ends: int) -> _Common:
    _, mine, theirs = np.intersect1d(frame.fibres, reference.fibres, return_indices=True)
    if len(mine) == 0:
        raise InputError(f"no fibre in common: {_span(frame.fibres)} in the frame, {_span(reference.fibres)} "
                         "in its reference; compare frames of the same fibres")
    near = np.clip(np.searchsorted(frame.wave, reference.wave - SAME_WAVELENGTH), 0, len(frame.wave) - 1)
    same = np.abs(frame.wave[near] - reference.wave) <= SAME_WAVELENGTH
    same[:ends] = False
    same[len(same) - ends:] = False
    if not same.any():
        raise InputError(f"no wavelength in common: {_span(frame.wave)} A in the frame, "
                         f"{_span(reference.wave)} A in its reference "
                         f"(equal to {SAME_WAVELENGTH:g} A, {ends} bins off at both ends); "
                         "compare frames of the same grid")
    waves = near[same], np.flatnonzero(same)
    own = [np.broadcast_to(f.wave if f.own_wave is None else f.own_wave, f.flux.shape) for f in (frame, reference)]
    if (np.abs(own[0][np.ix_(mine, waves[0])] - own[1][np.ix_(theirs, waves[1])]) > SAME_WAVELENGTH).any():
        raise InputError("fibres have other wavelengths of their own in the frame than in its reference; compare "
                         "frames that were made with the same OWNWAVE of the PSF")
    good = ~_masked(reference)[theirs][:, waves[1]] & (reference.ivar[theirs][:, waves[1]] > 0)
    return _Common((mine, theirs), waves, good)


def _span(values: np.ndarray) -> str:
    return f"{values.min():g} to {values.max():g}"


def _masked(frame: Frame) -> NDArray[np.bool_]:
    """Bins with half of their light or more on masked pixels, by the fraction where the frame has it."""
    if frame.pixmask_fraction is not None:
        return np.asarray(frame.pixmask_fraction >= 0.5)
    return (frame.mask & (SpecMask.SOMEBADPIX | SpecMask.NODATA | SpecMask.BADFIBER)) != 0


def _row(field: str, difference: Array, limit: Limit) -> Row:
    size = difference.size
    if not size:
        return Row(field, 0, None, None, None, limit)
    median, p99, maximum = (float(v) for v in np.quantile(difference, [0.5, 0.99, 1.0]))
    return Row(field, size, median, p99, maximum, limit)


def _flux(frame: Frame, reference: Frame, common: _Common) -> Array:
    """Differences of the flux in units of the reference's error."""
    mine, theirs = common.cut((frame.flux, reference.flux))
    _, ivar = common.cut((frame.ivar, reference.ivar))
    return np.asarray(np.abs(mine - theirs) * np.sqrt(ivar))


def _ivar(frame: Frame, reference: Frame, common: _Common) -> Array:
    """How far the ratio of the inverse variances is from 1 (0 where the reference's is 0)."""
    mine, theirs = common.cut((frame.ivar, reference.ivar))
    return np.abs(np.divide(mine, theirs, out=np.ones_like(mine), where=theirs > 0) - 1)


def _chi2pix(frame: Frame, reference: Frame, common: _Common) -> Array:
    mine, theirs = common.cut((frame.chi2pix, reference.chi2pix))
    return np.asarray(np.abs(mine - theirs) / (1 + np.abs(theirs)))


def _resolution(frame: Frame, reference: Frame, common: _Common) -> Iterator[tuple[Array, NDArray[np.bool_]]]:
    """For each common diagonal: the differences, and where the bins of row and column are both judged."""
    mine, theirs = common.cut((frame.resolution, reference.resolution))
    ndiag = min(frame.ndiag, reference.ndiag)
    nwave = common.good.shape[1]
    for offset in range(-ndiag, ndiag + 1):
        near = np.clip(np.arange(nwave) + offset, 0, nwave - 1)
        judged = common.good & common.good[:, near]
        for waves in common.waves:
            judged &= waves[near] == waves + offset        # the row's own bin, not the last one at an end
        yield np.abs(mine[:, frame.ndiag + offset] - theirs[:, reference.ndiag + offset]), judged


def _mask(frame: Frame, reference: Frame, common: _Common, bits: int) -> NDArray[np.bool_]:
    """Bins in which any of `bits` differ."""
    mine, theirs = (found[np.ix_(fibres, waves)] & bits for found, fibres, waves in zip(
        (_bits(frame), _bits(reference)), common.fibres, common.waves, strict=True))
    return np.asarray(mine != theirs)


def _status(frame: Frame, reference: Frame, common: _Common) -> NDArray[np.bool_] | None:
    """Bins of which one frame has a flux and the other none, or none for another reason: which way a flux was come by
    depends on the core. None where a frame does not say."""
    if frame.status is None or reference.status is None:
        return None
    mine, theirs = common.cut((frame.status, reference.status))
    reasons = [np.where(np.isin(status, NOTHING), status, Status.GOOD) for status in (mine, theirs)]
    return np.asarray(reasons[0] != reasons[1])


def _bits(frame: Frame) -> NDArray[np.uint32]:
    """MASK, with the bits for bad pixels from pixmask_fraction where a frame has only that."""
    bits = frame.mask.astype(np.uint32)
    if frame.pixmask_fraction is not None:
        bits = np.where(frame.pixmask_fraction > 0.5, bits | SpecMask.SOMEBADPIX, bits)
        bits = np.where(frame.pixmask_fraction == 1, bits | SpecMask.ALLBADPIX, bits)
    return bits
