"""Two frames, field by field, for whatever fibres and wavelengths both have."""
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu_extract.data import Array, Frame, SpecMask
from gpu_extract.errors import InputError
from gpu_extract.tolerances import Limit, Limits, load_limits

SAME_WAVELENGTH = 1e-6     # Angstrom

_UNITS = {"flux": "sigma", "ivar": "of the ratio", "resolution": "absolute", "chi2pix": "of 1 + chi2pix",
          "mask": "of the bins"}
_HEAD = ["field", "differences", "bins", "median", "99 %", "max", "limits", "verdict", "why this limit"]


@dataclass(frozen=True)
class Row:
    """What one field's differences came to: `bins` of them, judged by `limit`."""

    field: str
    bins: int
    median: float | None
    p99: float | None
    maximum: float | None
    limit: Limit

    @property
    def passed(self) -> bool:
        """Whether anything was compared and all that is bounded lies within its bound."""
        limit = self.limit
        pairs = (self.median, limit.median), (self.p99, limit.p99), (self.maximum, limit.maximum)
        within = [bound is None or (got is not None and got <= bound) for got, bound in pairs]
        return self.bins > 0 and all(within)


@dataclass(frozen=True)
class Comparison:
    """The verdict on a frame: one row per field, over the fibres and wavelengths that both frames have.

    limits: the kind of comparison; fibres, waves: how many are common; notes: what could not be compared
    """

    limits: Limits
    rows: tuple[Row, ...]
    fibres: int
    waves: int
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every field lies within its limits."""
        return all(row.passed for row in self.rows)

    def table(self) -> str:
        """The comparison as text: a line per field with its figures, limits and verdict."""
        cells = [_HEAD, *(_cells(row) for row in self.rows)]
        widths = [max(len(line[k]) for line in cells) for k in range(len(_HEAD))]
        lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
        title = (f"limits: {self.limits.name} ({self.limits.about}); "
                 f"{self.fibres} fibres x {self.waves} wavelengths in common")
        verdict = "all within their limits" if self.passed else "NOT within the limits: " + ", ".join(
            row.field for row in self.rows if not row.passed)
        return "\n".join([title, *lines, *self.notes, verdict])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}" if value else "0"


def _cells(row: Row) -> list[str]:
    bounds = (row.limit.median, row.limit.p99, row.limit.maximum)
    verdict = "ok" if row.passed else "FAILED" if row.bins else "FAILED: no bins"
    return [row.field, _UNITS[row.field], str(row.bins), *map(_number, (row.median, row.p99, row.maximum)),
            " / ".join("-" if b is None else f"{b:g}" for b in bounds), verdict, row.limit.why]


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
    reference has it.

    limits: a kind of etc/tolerances.json or its name; None: chosen by who made the reference
    Raises InputError where the frames have no fibre or no wavelength in common.
    """
    if not isinstance(limits, Limits):
        limits = load_limits(limits or limits_for(reference))
    common = _common(frame, reference, limits.ends)
    differences = {
        "flux": lambda: _flux(frame, reference, common), "ivar": lambda: _ivar(frame, reference, common),
        "resolution": lambda: _resolution(frame, reference, common),
        "chi2pix": lambda: _chi2pix(frame, reference, common),
    }
    rows, notes = [], []
    for field, limit in limits.fields.items():
        if field == "mask":
            rows.append(_mask_row(frame, reference, common, limits))
        elif field == "chi2pix" and not reference.chi2pix.any():
            notes.append("chi2pix: the reference has none")
        else:
            rows.append(_row(field, differences[field](), limit))
    return Comparison(limits, tuple(rows), len(common.fibres[0]), len(common.waves[0]), tuple(notes))


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
    """Differences of the flux in units of the reference's error, judged bins only."""
    mine, theirs = common.cut((frame.flux, reference.flux))
    _, ivar = common.cut((frame.ivar, reference.ivar))
    return (np.abs(mine - theirs) * np.sqrt(ivar))[common.good]


def _ivar(frame: Frame, reference: Frame, common: _Common) -> Array:
    """How far the ratio of the inverse variances is from 1."""
    mine, theirs = (cut[common.good] for cut in common.cut((frame.ivar, reference.ivar)))
    return np.abs(mine / theirs - 1)


def _chi2pix(frame: Frame, reference: Frame, common: _Common) -> Array:
    mine, theirs = (cut[common.good] for cut in common.cut((frame.chi2pix, reference.chi2pix)))
    return np.abs(mine - theirs) / (1 + np.abs(theirs))


def _resolution(frame: Frame, reference: Frame, common: _Common) -> Array:
    """Differences of R's elements on the common diagonals, where the bins of row and column are judged."""
    mine, theirs = common.cut((frame.resolution, reference.resolution))
    ndiag = min(frame.ndiag, reference.ndiag)
    nwave = common.good.shape[1]
    found = []
    for offset in range(-ndiag, ndiag + 1):
        near = np.clip(np.arange(nwave) + offset, 0, nwave - 1)
        judged = common.good & common.good[:, near]
        for waves in common.waves:
            judged &= waves[near] == waves + offset        # the row's own bin, not the last one at an end
        found.append(np.abs(mine[:, frame.ndiag + offset] - theirs[:, reference.ndiag + offset])[judged])
    return np.concatenate(found)


def _mask_row(frame: Frame, reference: Frame, common: _Common, limits: Limits) -> Row:
    """Share of all common bins whose mask bits differ, out of the bits that the limits name."""
    mine, theirs = (bits[np.ix_(fibres, waves)] & limits.mask_bits for bits, fibres, waves in zip(
        (_bits(frame), _bits(reference)), common.fibres, common.waves, strict=True))
    share = np.count_nonzero(mine != theirs) / mine.size
    return Row("mask", mine.size, None, None, share, limits.fields["mask"])


def _bits(frame: Frame) -> NDArray[np.uint32]:
    """MASK, with the bits for bad pixels from pixmask_fraction where a frame has only that."""
    bits = frame.mask.astype(np.uint32)
    if frame.pixmask_fraction is not None:
        bits = np.where(frame.pixmask_fraction > 0.5, bits | SpecMask.SOMEBADPIX, bits)
        bits = np.where(frame.pixmask_fraction == 1, bits | SpecMask.ALLBADPIX, bits)
    return bits
