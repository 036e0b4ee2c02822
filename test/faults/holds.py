"""What a frame that was made in spite of a fault must satisfy: a sentence for the table, and its check."""
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from case import BUNDLE, Change

from gpu_extract.assemble import BY_BIN
from gpu_extract.data import Frame, SpecMask, Status

FrameOf = Callable[[Change], Frame]


@dataclass(frozen=True)
class Seen:
    """A frame, the frames that one process makes of other changes of the case, and the frame of the unchanged case."""

    frame: Frame
    frame_of: FrameOf
    good: Frame


@dataclass(frozen=True)
class Holds:
    """A sentence about a frame, and its check."""

    text: str
    check: Callable[[Seen], None]


def same_bits(frame: Frame, other: Frame, rows: slice = slice(None), *, but: int = 0) -> None:
    """All rows, or some, have the same bits; but: bits of the mask that may differ."""
    for name in BY_BIN:
        one, two = getattr(frame, name)[rows], getattr(other, name)[rows]
        if name == "mask":
            one, two = one & ~np.uint32(but), two & ~np.uint32(but)
        np.testing.assert_array_equal(one, two, err_msg=name)


def contract(frame: Frame) -> None:
    """What every frame satisfies, whatever it is made of."""
    for name in BY_BIN:
        assert np.isfinite(getattr(frame, name)).all(), name
    nodata = (frame.mask & SpecMask.NODATA) > 0
    assert (frame.ivar >= 0).all()
    np.testing.assert_array_equal(nodata, frame.ivar == 0)
    np.testing.assert_array_equal(frame.flux[nodata], 0)
    np.testing.assert_array_equal(nodata, np.isin(frame.status, (Status.EMPTY, Status.FAILED, Status.DROPPED)))


def _of_good(seen: Seen) -> None:
    same_bits(seen.frame, seen.good)


def _neighbours(seen: Seen) -> None:
    same_bits(seen.frame, seen.good, slice(BUNDLE, None))


SAME = Holds("bitwise equal to the frame of the good input", _of_good)
APART = Holds("the other bundle is bitwise unchanged", _neighbours)


def like(text: str, change: Change) -> Holds:
    """The frame of another change of the case."""
    return Holds(f"bitwise equal to the frame {text}", lambda seen: same_bits(seen.frame, seen.frame_of(change)))


def odd(change: Change) -> Holds:
    """The frame with the pixels masked, and with flagged bins."""
    def check(seen: Seen) -> None:
        same_bits(seen.frame, seen.frame_of(change), but=int(SpecMask.ODDPIX))
        marked = (seen.frame.mask & SpecMask.ODDPIX) > 0
        assert marked[:BUNDLE].any() and not marked[BUNDLE:].any()

    return Holds("bitwise equal to the frame with it masked; bins that touch it are ODDPIX", check)


def dropped(*fibres: int) -> Holds:
    """These fibres are given up, and no others."""
    def check(seen: Seen) -> None:
        lost = (seen.frame.mask & SpecMask.BADFIBER) > 0
        assert [int(n) for n in np.nonzero(lost.all(axis=1))[0]] == list(fibres)
        assert lost.any(axis=1).sum() == len(fibres) and (seen.frame.ivar[lost] == 0).all()
        assert (seen.frame.ivar[~lost] > 0).all()

    return Holds(f"fibre{'s' * (len(fibres) > 1)} {', '.join(map(str, fibres))} DROPPED (NODATA, BADFIBER); "
                 "all others have data", check)


def nodata(fibres: slice, text: str) -> Holds:
    """Most inner bins of these fibres have no data, and all such bins are flagged."""
    def check(seen: Seen) -> None:
        inner = seen.frame.ivar[fibres, 10:-10]
        assert (inner == 0).mean() > 0.6, "bins that see no good pixel"
        assert (seen.frame.mask[fibres][seen.frame.ivar[fibres] == 0] & SpecMask.NODATA).all()

    return Holds(text, check)


def everywhere(text: str, state: Status) -> Holds:
    """All bins have one status and no data."""
    def check(seen: Seen) -> None:
        assert set(seen.frame.status.ravel()) == {state} and not seen.frame.ivar.any()

    return Holds(text, check)


def shaped(nspec: int, nwave: int) -> Holds:
    """So many fibres and bins, all with data."""
    def check(seen: Seen) -> None:
        assert seen.frame.flux.shape == (nspec, nwave)
        assert (seen.frame.ivar > 0).all()

    return Holds(f"{nspec} x {nwave} bins, all with data", check)


def first_rows_of(text: str, change: Change, start: int = 0) -> Holds:
    """The rows are some of another frame's."""
    def check(seen: Seen) -> None:
        whole = seen.frame_of(change)
        for name in BY_BIN:
            rows = getattr(seen.frame, name)
            np.testing.assert_array_equal(rows, getattr(whole, name)[start:start + len(rows)], err_msg=name)

    return Holds(f"its rows are bitwise equal to those of {text}", check)


def _used(seen: Seen) -> None:
    assert (seen.frame.ivar > 0).all() and not np.array_equal(seen.frame.flux[:BUNDLE], seen.good.flux[:BUNDLE])


USED = Holds("the value is used as given", _used)
