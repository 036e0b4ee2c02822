"""What a frame cannot be: a reference that contradicts itself is none to judge by."""
from collections.abc import Iterator

import numpy as np

from gpu_extract.data import NOTHING, Frame, SpecMask
from gpu_extract.errors import InputError
from gpu_extract.resolution import times_resolution

MOST = 2.0           # a row of R sums to 1, less what is beyond the diagonals
ROUNDED = 1e-6       # a sum of a stamp's pixels in single precision


def check_reference(reference: Frame, judged: np.ndarray) -> None:
    """Raise InputError, with all that is wrong of it, where a reference contradicts itself; judged: (nspec, nwave) bins
    that have most of their light on good pixels."""
    said = "; ".join(_contradictions(reference, judged))
    if said:
        raise InputError(f"the reference contradicts itself: {said}; take another one, or make it again")


def check_ascending(wave: np.ndarray, what: str) -> None:
    """Raise InputError for wavelengths that bins cannot be found by."""
    if not (np.isfinite(wave).all() and (np.diff(wave) > 0).all()):
        raise InputError(f"wavelengths of {what} do not ascend from bin to bin; take another frame, or make it again")


def _contradictions(frame: Frame, judged: np.ndarray) -> Iterator[str]:
    """A sentence for each kind, and how many bins it is about."""
    told = (frame.ivar > 0) & np.isfinite(frame.ivar)
    nothing = {"MASK": (frame.mask & np.uint32(SpecMask.NODATA)) > 0}
    if frame.status is not None:
        nothing["STATUS"] = np.isin(frame.status, NOTHING)
    r = frame.resolution
    with np.errstate(invalid="ignore"):       # infinite less infinite
        sums = times_resolution(r, np.ones(frame.flux.shape))
    kinds = {
        "an IVAR that is negative, infinite or NaN": ~(np.isfinite(frame.ivar) & (frame.ivar >= 0)),
        "a FLUX that is infinite or NaN, with an IVAR above 0": told & ~np.isfinite(frame.flux),
        "a RESOLUTION that is infinite or NaN, with an IVAR above 0": told & ~np.isfinite(r).all(axis=1),
        f"a row of RESOLUTION whose sum is not between 0 and {MOST:g}":
            told & judged & ((sums <= 0) | (sums > MOST)),
        **{f"no data by {name}, with an IVAR above 0": told & bins for name, bins in nothing.items()}}
    if frame.pixmask_fraction is not None:
        share = frame.pixmask_fraction
        kinds["a PIXMASK_FRACTION that is not between 0 and 1"] = ~((share >= -ROUNDED) & (share <= 1 + ROUNDED))
    for kind, bins in kinds.items():
        if count := np.count_nonzero(bins):
            yield f"{count} bin{'s have' if count > 1 else ' has'} {kind}"
