"""The fit of one bundle: from the pixels, the lines and a starting PSF to traces and shapes."""
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from scipy.linalg import LinAlgError

from gpu_extract.data import Array, Image, IntArray, PsfModel
from gpu_psf.background import background, continuum_series, fit_ground
from gpu_psf.data import FitConfig, Frame, Lines, Parameters, Pixels, Spots
from gpu_psf.light import expected_light
from gpu_psf.prepare import cut_out, lines_of, make_frame, make_spots, parameters_of, traces_at
from gpu_psf.prior import measured_alone
from gpu_psf.register import best_shift, clear_light, scores
from gpu_psf.series import legendre
from gpu_psf.solve import State, Task, first_look, iterate
from gpu_psf.sound import COVERED, BundleError, check_fit, check_lines, hidden
from gpu_psf.stamps import centres, make_stamps
from gpu_psf.unlisted import light_of_no_line

APART = 1.5                 # pixels between lines that can be separated
SIGNAL = 5.0                # signal to noise from which on a spot moves traces and shapes
ODD = 3.0                   # factor from the light that is expected from line and fibre
FEWEST = 4                  # lines that a bundle must have
NEARBY = 2, 3               # pixels (x, y) by which a bundle may be shifted against its camera
FARTHER = 1.5               # pixels that a bundle's traces may move beyond the reach
GAP = 0.3, 1.5              # longest gap between a fibre's lines: share of the range, factor from the list's own
UNSURE = 0.1                # largest uncertainty (pixels) that a fibre's own lines may leave to its trace between them
SURE = 5                    # well measured fibres needed to know how the others move
EARLY, LATE = (0.3, 0.2, 0.1), (0.05, 0.02)
OF_COLUMN = 0.4, 0.1        # least share of odd pixels in a hot column, largest share in other columns
MARGIN = 4                  # rows around a stamp into which its spot may move


class Status(IntEnum):
    """The outcome for a fibre."""

    FITTED = 0              # its own lines determine its trace
    FEW_LINES = 1           # fewer lines than coefficients, faint lines or a long gap: the neighbours help
    INTERPOLATED = 2        # no line: interpolated from its neighbours in the bundle
    NOT_FITTED = 3          # its bundle could not be fitted: the starting PSF, moved like the nearest bundles


@dataclass(frozen=True)
class Fit:
    """A fitted bundle.

    status, nline: (nfibre,) Status, and number of lines that the fibre is fitted to
    continuum: (nfibre, ncoef) Legendre coefficients of its continuum in wavelength, electrons in a row
    unlisted, hot: numbers of lines that are not in the list and of hot columns, whose pixels are left out
    """

    task: Task
    state: State
    lines: IntArray
    status: IntArray
    nline: IntArray
    continuum: Array
    unlisted: int = 0
    hot: int = 0

    @property
    def frame(self) -> Frame:
        """The meaning of the parameters."""
        return self.task.frame


def fit_bundle(images: Sequence[Image], start: PsfModel, fibres: tuple[int, int], lines: Lines, config: FitConfig,
               shift: tuple[int, int] | None = None) -> Fit:
    """Fit the fibres lo .. hi - 1; shift: offset of the camera in pixels (x, y), if known.

    Raises BundleError.
    """
    try:
        return _fit_bundle(images, start, fibres, lines, config, shift)
    except LinAlgError as error:
        raise BundleError("light that belongs to no line outshines the lines; remove it, or mask it") from error


def _fit_bundle(images: Sequence[Image], start: PsfModel, fibres: tuple[int, int], lines: Lines, config: FitConfig,
                shift: tuple[int, int] | None) -> Fit:
    frame = make_frame(start, fibres, config)
    now = parameters_of(frame)
    pixels = _unsaturated(cut_out(images, frame, now, config), config)
    light = clear_light(pixels)
    now, chosen, close = _registered(frame, now, pixels, lines, config, shift)
    task = _task(frame, now, pixels, lines, (chosen, close))
    state = first_look(task, now)
    task = _chosen(task, state)
    state = iterate(task, state, EARLY, shapes=False)
    task = _chosen(task, state)
    check_lines(task, state, (lines, chosen), pixels, light)
    beside, unlisted = light_of_no_line(task, state, pixels)
    bright = _beyond_all(task, state)
    if unlisted or bright.any():
        task = _without(replace(task, left_out=task.left_out | beside), state, bright)
        state = iterate(task, state, EARLY, shapes=False)
    ground = background(task, state, pixels, continuum=config.continuum != "none")
    task = replace(task, background=ground.light)
    state = iterate(task, state, LATE, shapes=True)
    columns = _hot_columns(task, state)
    if columns.any():
        task = replace(task, left_out=task.left_out | np.broadcast_to(columns, task.pixels.value.shape).ravel())
        state = iterate(task, state, LATE, shapes=True)
    task, state, ground = fit_ground(task, state, pixels, ground, continuum=config.continuum, errors=LATE[-1:])
    before, task = task.firm, _chosen(task, state)
    if (before & ~task.firm).any():             # a spot that is not to move the traces has moved them
        state = iterate(task, state, LATE[-1:], shapes=True)
    check_lines(task, state, (lines, chosen), pixels, light)
    nline, status = _fibres(task, state)
    good = status == Status.FITTED
    if not good.all() and good.sum() > SURE:
        alone = measured_alone(frame, state.now, task.start, good)
        task = replace(task, alone=alone)
        state = iterate(task, state, LATE[-1:], shapes=True)
    check_fit(task, state, pixels, (config.reach[0] + FARTHER, config.reach[1] + FARTHER))
    return Fit(task, state, chosen, status, nline, continuum_series(frame, state.now, ground, pixels), unlisted,
               int(columns.sum()))


def _task(frame: Frame, now: Parameters, pixels: Pixels, lines: Lines, which: tuple[IntArray, IntArray]) -> Task:
    """The task of a fit: the rows that the lines reach, their spots on the CCD, and the pixels near lines that are not
    fitted."""
    chosen, close = which
    spots = make_spots(frame, lines, chosen, len(pixels.value))
    x, y = centres(spots, now)
    ny, nx = frame.start.shape
    spots = spots.cut((x > -0.5) & (x < nx - 0.5) & (y > -0.5) & (y < ny - 0.5))
    if not len(spots):
        raise BundleError(f"no line can be fitted: {len(close)} of the list are within {APART:g} pixels of another, "
                          "and no other is on the CCD; give a list of single lines, or a nearer starting PSF")
    rows = np.rint(centres(spots, now)[1]).astype(int) - pixels.y0
    reach = frame.start.stamp[0] // 2 + MARGIN
    needed = np.zeros(len(pixels.stored), bool)
    needed[np.clip(rows[:, np.newaxis] + np.arange(-reach, reach + 1), 0, len(needed) - 1)] = True
    pixels = pixels.rows(needed)
    left_out, odd = np.zeros(pixels.value.size, bool), None
    if len(close):
        odd = make_spots(frame, lines, close, len(pixels.value))
        left_out[make_stamps(frame, odd, now, pixels).place] = True
    return Task(frame, pixels, spots, np.ones(len(spots), bool), left_out, np.zeros(pixels.value.size), now, close=odd)


def _beyond_all(task: Task, state: State) -> np.ndarray:
    """Which spots, (nspot,) bool, have a saturated core and ODD times the light of any firm spot.

    No firm spot tells their wings as well as these would have to be known. Chi squared and the model's error would be
    theirs, and the spots beside them would be wrong. A masked core alone leaves the light uncertain, not that high.
    """
    least = state.flux - SIGNAL * np.sqrt(np.where(np.isfinite(state.variance), state.variance, 0.0))
    brightest = state.flux[task.firm].max(initial=0.0)
    return np.asarray(hidden(task, state) & ~task.firm & (least > ODD * brightest))


def _without(task: Task, state: State, chosen: np.ndarray) -> Task:
    """The task without the pixels of some spots, of which the tails count."""
    if not chosen.any():
        return task
    left_out, spots = task.left_out.copy(), task.spots.cut(chosen)
    left_out[state.stamps.place[chosen]] = True
    close = spots if task.close is None else Spots(*(np.concatenate(parts) for parts in zip(
        vars(task.close).values(), vars(spots).values(), strict=True)))
    return replace(task, left_out=left_out, close=close)


def _hot_columns(task: Task, state: State) -> np.ndarray:
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


def _unsaturated(pixels: Pixels, config: FitConfig) -> Pixels:
    """The pixels, with the saturated ones and their neighbours masked."""
    full = pixels.value.astype(np.float32) >= np.float32(config.saturation)      # as images have them in files
    if not full.any():
        return pixels
    from scipy.ndimage import binary_dilation

    grown = binary_dilation(full, np.ones((1, 3, 3), bool))
    return replace(pixels, read_variance=np.where(grown, np.inf, pixels.read_variance))


def shift_scores(images: Sequence[Image], start: PsfModel, fibres: tuple[int, int], lines: Lines,
                 config: FitConfig) -> Array:
    """How well the lines of some fibres coincide with light for each shift, see register.scores."""
    frame = make_frame(start, fibres, config)
    now = parameters_of(frame)
    pixels = cut_out(images, frame, now, config)
    return scores(pixels, *_places(frame, now, lines, lines_of(frame, now, lines, APART)[0]), config.reach)


def _places(frame: Frame, now: Parameters, lines: Lines, chosen: IntArray) -> tuple[Array, Array]:
    """x and y of lines in all fibres that show them, flat."""
    fibre, line = np.indices((frame.nfibre, len(chosen)))
    on = lines.on(chosen[line], fibre + frame.first)
    x, y = traces_at(frame, now, lines.wave[chosen])
    return x[on], y[on]


def _registered(frame: Frame, now: Parameters, pixels: Pixels, lines: Lines, config: FitConfig,
                shift: tuple[int, int] | None) -> tuple[Parameters, IntArray, IntArray]:
    """The parameters moved to the lines, the lines to fit, and the lines that are too close to others.

    shift: of the camera, if known
    """
    every = lines_of(frame, now, lines, APART)[0]
    if not len(every):
        low, high = frame.range
        raise BundleError(f"none of the {len(lines.wave)} lines lies within the starting PSF's {low:.0f} to {high:.0f} "
                          "A")
    if shift is None:
        shift = best_shift(scores(pixels, *_places(frame, now, lines, every), config.reach))
    now = _moved(now, shift)
    reach = min(NEARBY[0], config.reach[0]), min(NEARBY[1], config.reach[1])
    now = _moved(now, best_shift(scores(pixels, *_places(frame, now, lines, every), reach)))
    every, close = lines_of(frame, now, lines, APART)
    return now, np.setdiff1d(every, close), close


def _moved(now: Parameters, shift: tuple[int, int]) -> Parameters:
    x, y = now.x.copy(), now.y.copy()
    x[:, 0] += shift[0]
    y[:, 0] += shift[1]
    return replace(now, x=x, y=y)


def _chosen(task: Task, state: State) -> Task:
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


def _fibres(task: Task, state: State) -> tuple[IntArray, IntArray]:
    """The number of lines of each fibre, and its Status: (nfibre,) each."""
    spots, nfibre = task.spots, task.frame.nfibre
    nline, status = np.zeros(nfibre, np.int64), np.full(nfibre, int(Status.FITTED), np.int64)
    every = np.unique(spots.wave)
    for fibre in range(nfibre):
        listed = np.unique(spots.wave[spots.fibre == fibre]) if task.frame.start.own is not None else every
        most = max(GAP[0] * (every[-1] - every[0]), GAP[1] * np.diff(listed).max(initial=0.0))
        wave = np.unique(spots.wave[task.firm & (spots.fibre == fibre)])
        nline[fibre] = len(wave)
        gaps = np.diff(np.concatenate([listed[:1], wave, listed[-1:]]))
        if len(wave) == 0:
            status[fibre] = Status.INTERPOLATED
        elif len(wave) <= task.frame.trace or gaps.max() > most or _unsure(task, state, fibre):
            status[fibre] = Status.FEW_LINES
    return nline, status


def _unsure(task: Task, state: State, fibre: int) -> bool:
    """Whether a fibre's own lines leave its trace uncertain by more than UNSURE pixels somewhere between them. The
    uncertainty of a line's place is its width over its S/N."""
    mine = task.firm & (task.spots.fibre == fibre)
    basis, wave = task.spots.trace[mine], task.spots.wave[mine]
    signal = state.flux[mine] ** 2 / state.variance[mine]
    between = legendre(np.linspace(wave.min(), wave.max(), 64), task.frame.x_range, task.frame.trace)
    for sigma in state.stamps.sigma:
        known = basis.T @ (basis * (signal / sigma[mine] ** 2)[:, np.newaxis])
        # undetermined places stay finite: a thousand pixels
        covariance = np.linalg.inv(known + 1e-6 * np.eye(len(known)))
        if np.einsum("ni,ij,nj->n", between, covariance, between).max() > UNSURE**2:
            return True
    return False
