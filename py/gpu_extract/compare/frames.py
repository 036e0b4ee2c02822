"""Compares two frames, field by field, at their common fibres and wavelengths."""
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu_extract.checks.sense import in_electrons
from gpu_extract.compare.tolerances import Limit, Limits, load_limits
from gpu_extract.compare.verdict import Comparison, Row
from gpu_extract.data import NOTHING, Array, Frame, IntArray, SpecMask, Status
from gpu_extract.errors import InputError
from gpu_extract.resolution import times_resolution

SAME_WAVELENGTH = 1e-6     # Angstrom
MOST_SUM = 2.0             # a row of R sums to 1, minus what is beyond the diagonals
ROUNDED = 1e-6             # a sum of a stamp's pixels in single precision


@dataclass(frozen=True)
class _Pair:
    """A frame and its reference; indices of the common fibres and wavelengths in each; good: judged bins."""

    frames: tuple[Frame, Frame]
    fibres: tuple[NDArray[np.intp], NDArray[np.intp]]
    waves: tuple[NDArray[np.intp], NDArray[np.intp]]
    good: NDArray[np.bool_]

    def cut(self, field: str) -> Iterator[Array]:
        """The common bins (nfibre, ..., nwave) of a field of both frames, in double precision."""
        for frame, fibres, waves in zip(self.frames, self.fibres, self.waves, strict=True):
            yield getattr(frame, field)[fibres][..., waves].astype(np.float64)

    def flux(self) -> Array:
        """Differences of the flux in units of the reference's error; NaN where there is no error."""
        mine, theirs = self.cut("flux")
        _, ivar = self.cut("ivar")
        return np.asarray(np.abs(mine - theirs) * np.sqrt(np.where((ivar >= 0) & (ivar < np.inf), ivar, np.nan)))

    def ivar(self) -> Array:
        """Deviation of the ratio of the inverse variances from 1 (0 where the reference's is 0)."""
        mine, theirs = self.cut("ivar")
        return np.abs(np.divide(mine, theirs, out=np.ones_like(mine), where=theirs != 0) - 1)

    def chi2pix(self) -> Array:
        """Differences in units of 1 + chi2pix."""
        mine, theirs = self.cut("chi2pix")
        return np.asarray(np.abs(mine - theirs) / (1 + np.abs(theirs)))

    def resolution(self) -> Iterator[tuple[Array, NDArray[np.bool_]]]:
        """For each common diagonal: the differences, and whether the bins of row and column are both judged."""
        mine, theirs = self.cut("resolution")
        centres = [frame.ndiag for frame in self.frames]
        nwave = self.good.shape[1]
        for offset in range(-min(centres), min(centres) + 1):
            near = np.clip(np.arange(nwave) + offset, 0, nwave - 1)
            judged = self.good & self.good[:, near]
            for waves in self.waves:
                judged &= waves[near] == waves + offset        # excludes clipped indices at the ends
            yield np.abs(mine[:, centres[0] + offset] - theirs[:, centres[1] + offset]), judged

    def mask(self, bits: int) -> NDArray[np.bool_]:
        """Bins in which any of `bits` differ."""
        mine, theirs = (_bits(frame)[np.ix_(fibres, waves)] & bits for frame, fibres, waves in
                        zip(self.frames, self.fibres, self.waves, strict=True))
        return np.asarray(mine != theirs)

    def status(self) -> NDArray[np.bool_]:
        """Bins with a flux in only one frame, or without one for different reasons. How a flux was computed depends on
        the core, and is not compared."""
        mine, theirs = (np.where(np.isin(status, NOTHING), status, Status.GOOD) for status in self.cut("status"))
        return np.asarray(mine != theirs)


def compare_frames(frame: Frame, reference: Frame, limits: Limits | str | None = None) -> Comparison:
    """Judge `frame` by `reference` at their common fibres (by number) and wavelengths (to 1e-6 A).

    flux, ivar, resolution and chi2pix are judged in bins whose light falls for more than half on good
    pixels of the reference; resolution on the central diagonals that both have, chi2pix where the
    reference has it; status where both frames have it, by the bins with a flux and the reasons of the others.

    limits: a kind of etc/tolerances.json or its name; None: chosen by the program that made the reference

    Raises InputError if the frames have no fibre or no wavelength in common, fluxes are in different units, fibres' own
    wavelengths differ, or the reference is inconsistent.
    """
    limits, pair = _paired(frame, reference, limits)
    rows, notes = [], _left_out(frame, reference)
    for field, limit in limits.fields.items():
        if field == "status" and (frame.status is None or reference.status is None):
            notes.append("status: not in both frames")
        elif field == "chi2pix" and not reference.chi2pix.any():
            notes.append("chi2pix: the reference has none")
        elif field in ("mask", "status"):
            differ = pair.mask(limits.mask_bits) if field == "mask" else pair.status()
            rows.append(Row(field, differ.size, None, None, float(np.mean(differ)), limit))
        elif field == "resolution":
            rows.append(_row(field, np.concatenate([d[judged] for d, judged in pair.resolution()]), limit))
        else:
            rows.append(_row(field, getattr(pair, field)()[pair.good], limit))
    return Comparison(limits, tuple(rows), len(pair.fibres[0]), len(pair.waves[0]), tuple(notes))


@dataclass(frozen=True)
class Differences:
    """Maps of differences: all (nfibre, nwave) over the common fibres (numbers) and wavelengths.

    flux in sigma; ivar of the ratio; resolution: the largest of the bin's elements; NaN where not judged, infinite
        where the frame has no number
    mask: whether any of the compared bits differ
    """

    fibres: IntArray
    wave: Array
    flux: Array
    ivar: Array
    resolution: Array
    mask: NDArray[np.bool_]


def difference_maps(frame: Frame, reference: Frame, limits: Limits | str | None = None) -> Differences:
    """The differences that `compare_frames` judges, bin by bin. Raises the same InputError."""
    limits, pair = _paired(frame, reference, limits)
    worst = np.full(pair.good.shape, np.nan)
    for difference, judged in pair.resolution():
        worst[judged] = np.fmax(worst[judged], _or_infinite(difference[judged]))
    flux, ivar = (np.where(pair.good, _or_infinite(values), np.nan) for values in (pair.flux(), pair.ivar()))
    return Differences(reference.fibres[pair.fibres[1]], reference.wave[pair.waves[1]], flux, ivar, worst,
                       pair.mask(limits.mask_bits))


def _or_infinite(values: Array) -> Array:
    return np.where(np.isnan(values), np.inf, values)


def limits_for(reference: Frame) -> str:
    """The kind of limits for a reference: that of specter for specter's frames, else "frame"."""
    cards = {card.key: str(card.value) for card in reference.cards}
    makers = [value for key, value in cards.items() if key == "CODE" or key.startswith("DEPNAM")]
    if "gpu_extract" in makers or not any("specter" in maker for maker in makers):
        return "frame"
    return "specter-onepatch" if cards.get("NSUBBUN") == "1" else "specter"


def _paired(frame: Frame, reference: Frame, limits: Limits | str | None) -> tuple[Limits, _Pair]:
    """The common part of both frames, and the limits."""
    if not isinstance(limits, Limits):
        limits = load_limits(limits or limits_for(reference))
    if frame.unit and reference.unit and _spelt(frame.unit) != _spelt(reference.unit):
        raise InputError(f"FLUX of the frame is in {frame.unit}, that of the reference in {reference.unit} (BUNIT); "
                         "compare frames in the same unit")
    _check_ascending(frame.wave, "the frame")
    _check_ascending(reference.wave, "the reference")
    masked, ends = _masked(reference), limits.ends
    if said := "; ".join(_contradictions(reference, ~masked)):
        raise InputError(f"the reference is inconsistent: {said}; give another one, or make it again")
    _, mine, theirs = np.intersect1d(frame.fibres, reference.fibres, return_indices=True)
    if len(mine) == 0:
        raise InputError(f"no fibre in common: {_span(frame.fibres)} in the frame, {_span(reference.fibres)} in the "
                         "reference; compare frames of the same fibres")
    near, same = _same_waves(frame, reference)
    same[:ends] = False
    same[len(same) - ends:] = False
    if not same.any():
        raise InputError(f"no wavelength in common: {_span(frame.wave)} A in the frame, {_span(reference.wave)} A in "
                         f"its reference (equal to {SAME_WAVELENGTH:g} A, {ends} bins left out at both ends); compare "
                         "frames on the same grid")
    waves = near[same], np.flatnonzero(same)
    own = [np.broadcast_to(f.wave if f.own_wave is None else f.own_wave, f.flux.shape) for f in (frame, reference)]
    if (np.abs(own[0][np.ix_(mine, waves[0])] - own[1][np.ix_(theirs, waves[1])]) > SAME_WAVELENGTH).any():
        raise InputError("fibres have other own wavelengths in the frame than in the reference; compare frames that "
                         "were made with the same OWNWAVE of the PSF")
    good = ~masked[theirs][:, waves[1]] & (reference.ivar[theirs][:, waves[1]] != 0)
    return limits, _Pair((frame, reference), (mine, theirs), waves, good)


def _spelt(unit: str) -> str:
    """A unit in standard spelling, for electrons, also called photons, and per Angstrom."""
    words = re.sub(r"[\s*.^]+", " ", unit.lower()).strip()
    words = re.sub(r"\b(?:aa|a|å|ångströms?|angstroms?)(?![a-z])", "angstrom", words)
    light = re.fullmatch(r"(.+?) ?/ ?angstrom|(.+?) angstrom ?-1|angstrom ?-1 (.+)", words)
    counted = next((part for part in light.groups() if part), "") if light else ""
    return "electron / angstrom" if in_electrons(counted) else words


def _check_ascending(wave: np.ndarray, what: str) -> None:
    """Raise InputError for wavelengths that do not ascend."""
    if not (np.isfinite(wave).all() and (np.diff(wave) > 0).all()):
        raise InputError(f"wavelengths of {what} do not ascend from bin to bin; give another frame, or make it again")


def _contradictions(frame: Frame, judged: np.ndarray) -> Iterator[str]:
    """A sentence for each kind of inconsistency, with its number of bins; judged: (nspec, nwave) bins with most of
    their light on good pixels."""
    told = (frame.ivar > 0) & np.isfinite(frame.ivar)
    nothing = {"MASK": (frame.mask & np.uint32(SpecMask.NODATA)) > 0}
    if frame.status is not None:
        nothing["STATUS"] = np.isin(frame.status, NOTHING)
    r = frame.resolution
    with np.errstate(invalid="ignore"):       # infinite minus infinite
        sums = times_resolution(r, np.ones(frame.flux.shape))
    kinds = {
        "an IVAR that is negative, infinite or NaN": ~(np.isfinite(frame.ivar) & (frame.ivar >= 0)),
        "a FLUX that is infinite or NaN, with an IVAR above 0": told & ~np.isfinite(frame.flux),
        "a RESOLUTION that is infinite or NaN, with an IVAR above 0": told & ~np.isfinite(r).all(axis=1),
        f"a row of RESOLUTION whose sum is not between 0 and {MOST_SUM:g}":
            told & judged & ((sums <= 0) | (sums > MOST_SUM)),
        **{f"no data by {name}, with an IVAR above 0": told & bins for name, bins in nothing.items()}}
    if frame.pixmask_fraction is not None:
        share = frame.pixmask_fraction
        kinds["a PIXMASK_FRACTION that is not between 0 and 1"] = ~((share >= -ROUNDED) & (share <= 1 + ROUNDED))
    for kind, bins in kinds.items():
        if count := np.count_nonzero(bins):
            yield f"{count} bin{'s have' if count > 1 else ' has'} {kind}"


def _same_waves(frame: Frame, reference: Frame) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """For each of the reference's wavelengths: a bin of the frame, and whether it is the same."""
    near = np.clip(np.searchsorted(frame.wave, reference.wave - SAME_WAVELENGTH), 0, len(frame.wave) - 1)
    return near, np.abs(frame.wave[near] - reference.wave) <= SAME_WAVELENGTH


def _left_out(frame: Frame, reference: Frame) -> list[str]:
    """A note on unmatched bins between common ones: rounded wavelengths, or another grid."""
    between = np.abs(reference.wave - (frame.wave[0] + frame.wave[-1]) / 2) <= (frame.wave[-1] - frame.wave[0]) / 2
    left = int(np.count_nonzero(between & ~_same_waves(frame, reference)[1]))
    return [f"{left} of the reference's {np.count_nonzero(between)} wavelengths within the frame's range are not in "
            f"the frame (to {SAME_WAVELENGTH:g} A), and were not judged"] if left else []


def _span(values: np.ndarray) -> str:
    return f"{values.min():g} to {values.max():g}"


def _masked(frame: Frame) -> NDArray[np.bool_]:
    """Bins with at least half of their light on masked pixels, by pixmask_fraction if the frame has it."""
    if frame.pixmask_fraction is not None:
        return np.asarray(frame.pixmask_fraction >= 0.5)
    return (frame.mask & (SpecMask.SOMEBADPIX | SpecMask.NODATA | SpecMask.BADFIBER)) != 0


def _row(field: str, difference: Array, limit: Limit) -> Row:
    size = difference.size
    if not size:
        return Row(field, 0, None, None, None, limit)
    with np.errstate(invalid="ignore"):       # NaN between two infinite values, which fails the limits
        median, p99, maximum = (float(v) for v in np.quantile(difference, [0.5, 0.99, 1.0]))
    return Row(field, size, median, p99, maximum, limit)


def _bits(frame: Frame) -> NDArray[np.uint32]:
    """MASK, with the bits for bad pixels from pixmask_fraction if a frame has only that; ivar 0 counts as no data."""
    bits = np.where(frame.ivar == 0, frame.mask | np.uint32(SpecMask.NODATA), frame.mask).astype(np.uint32)
    if frame.pixmask_fraction is not None:
        bits = np.where(frame.pixmask_fraction > 0.5, bits | SpecMask.SOMEBADPIX, bits)
        bits = np.where(frame.pixmask_fraction == 1, bits | SpecMask.ALLBADPIX, bits)
    return bits
