"""What a fit leaves out: spots that cannot move it, saturated ones that outshine all others, hot columns."""
from dataclasses import replace

import numpy as np

from gpu_extract.data import IntArray
from gpu_psf.data import Spots
from gpu_psf.light import expected_light
from gpu_psf.sound import COVERED, BundleError, hidden
from gpu_psf.state import State, Task

SIGNAL = 5.0                # signal to noise from which on a spot moves traces and shapes
ODD = 3.0                   # factor from the light that is expected from line and fibre
FEWEST = 4                  # lines that a bundle must have
OF_COLUMN = 0.4, 0.1        # least share of odd pixels in a hot column, largest share in other columns


def chosen_of(task: Task, state: State) -> Task:
    """The task with its firm spots: those with enough light that resemble the spots around them.

    Raises BundleError where too few lines are left.
    """
    signal = state.flux / np.sqrt(state.variance)
    good = (state.weight > 0)[state.stamps.place]
    shape = np.maximum(state.stamps.image[:, 0].reshape(len(good), -1), 0)
    firm = (signal > SIGNAL) & ((shape * good).sum(axis=1) > COVERED * shape.sum(axis=1))
    expected = expected_light(task.spots, state.flux, firm)
    firm &= (state.flux < ODD * expected) & (state.flux * ODD > expected)
    count = len(np.unique(task.spots.line[firm]))
    if count < FEWEST:
        full = int(np.isinf(state.variance).sum())
        raise BundleError(f"{count} of {len(np.unique(task.spots.line))} lines have light that can be fitted, at least "
                          f"{FEWEST} are needed" + (f" ({full} spots are saturated or masked)" if full else ""))
    return replace(task, firm=firm)


def lacking(task: Task, lines: IntArray) -> Task:
    """The task without lines, all other spots firm again."""
    kept = ~np.isin(task.spots.line, lines)
    return replace(task, spots=task.spots.cut(kept), firm=np.ones(int(kept.sum()), bool))


def beyond_all(task: Task, state: State) -> np.ndarray:
    """Which spots, (nspot,) bool, have a saturated core and ODD times the light of any firm spot.

    No firm spot tells their wings as well as these would have to be known. Chi squared and the model's error would be
    theirs, and the spots beside them would be wrong. A masked core alone leaves the light uncertain, not that high.
    """
    least = state.flux - SIGNAL * np.sqrt(np.where(np.isfinite(state.variance), state.variance, 0.0))
    brightest = state.flux[task.firm].max(initial=0.0)
    return np.asarray(hidden(task, state) & ~task.firm & (least > ODD * brightest))


def without(task: Task, state: State, chosen: np.ndarray) -> Task:
    """The task without the pixels of some spots, of which the tails count."""
    if not chosen.any():
        return task
    left_out, spots = task.left_out.copy(), task.spots.cut(chosen)
    left_out[state.stamps.place[chosen]] = True
    close = spots if task.close is None else Spots(*(np.concatenate(parts) for parts in zip(
        vars(task.close).values(), vars(spots).values(), strict=True)))
    return replace(task, left_out=left_out, close=close)


def hot_columns(task: Task, state: State) -> np.ndarray:
    """Which columns, (ncolumn,) bool, are hot: many of their pixels are odd in the exposures together.

    A hot column is seen between the lines. On bright spots its light is below their noise, and would pull at the trace.
    """
    shape = task.pixels.value.shape
    reached = np.bincount(state.stamps.place.ravel(), minlength=task.left_out.size) > 0
    reached &= np.isfinite(task.pixels.read_variance.ravel()) & ~task.left_out
    odd, count = (part.reshape(shape).sum(axis=(0, 1)) for part in (reached & (state.weight == 0), reached))
    share = odd / np.maximum(count, 1)
    usual = np.median(share[count > 0]) if (count > 0).any() else 1.0
    return (share > OF_COLUMN[0]) & (usual < OF_COLUMN[1])
