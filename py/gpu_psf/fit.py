"""The fit of one bundle: from the pixels, the lines and a starting PSF to traces and shapes."""
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.linalg import LinAlgError

from gpu_extract.data import Array, Image, IntArray, PsfModel
from gpu_psf.background import Background, background, continuum_series, fit_ground
from gpu_psf.begin import registered, task_of, unsaturated
from gpu_psf.data import FitConfig, Frame, Lines, Pixels
from gpu_psf.left_out import beyond_all, chosen_of, hot_columns, lacking, without
from gpu_psf.misplaced import misplaced
from gpu_psf.own_lines import wavelengths
from gpu_psf.prepare import cut_out, make_frame, parameters_of
from gpu_psf.prior import measured_alone
from gpu_psf.register import clear_light
from gpu_psf.solve import iterate
from gpu_psf.sound import BundleError, check_fit, check_lines
from gpu_psf.state import State, Task, first_look
from gpu_psf.status import Status, states_of
from gpu_psf.unlisted import light_of_no_line

FARTHER = 1.5               # pixels that a bundle's traces may move beyond the reach
SURE = 5                    # well measured fibres needed to know how the others move
EARLY, LATE = (0.3, 0.2, 0.1), (0.05, 0.02)
TURNS = 6                   # fits, each without the misplaced lines that the ones before found


@dataclass(frozen=True)
class Fit:
    """A fitted bundle.

    status, nline: (nfibre,) Status, and number of lines that the fibre is fitted to
    continuum: (nfibre, ncoef) Legendre coefficients of its continuum in wavelength, electrons in a row
    unlisted, hot: numbers of lines that are not in the list and of hot columns, whose pixels are left out
    scatter: of the lines along smooth traces beyond noise, pixels
    misplaced: (n,) wavelengths of lines that are not where the list has them, and are left out
    """

    task: Task
    state: State
    lines: IntArray
    status: IntArray
    nline: IntArray
    continuum: Array
    unlisted: int = 0
    hot: int = 0
    scatter: float = 0.0
    misplaced: Array = field(default_factory=lambda: np.zeros(0))

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
    pixels = unsaturated(cut_out(images, frame, now, config), config)
    light = clear_light(pixels)
    now, chosen, close = registered(frame, now, pixels, lines, config, shift)
    whole, gone = task_of(frame, now, pixels, lines, (chosen, close)), np.zeros(0, np.int64)
    for _ in range(TURNS):
        task, state = _traces(lacking(whole, gone))
        wrong, _ = misplaced(task, state, fitted=False)
        if not len(wrong):
            check_lines(task, state, (lines, chosen), pixels, light)
            shaped = _shapes(task, state, pixels, config)
            task, state = shaped.task, shaped.state
            wrong, scatter = misplaced(task, state, fitted=True)
        if not len(wrong):
            break
        gone = np.concatenate([gone, wrong])
    else:
        raise BundleError(f"{len(gone)} of {len(chosen)} lines or more are not where the list has them: give the list "
                          "of this lamp, or a nearer starting PSF")
    check_lines(task, state, (lines, chosen), pixels, light)
    nline, status = states_of(task, state)
    good = status == Status.FITTED
    if not good.all() and good.sum() > SURE:
        alone = measured_alone(frame, state.now, task.start, good)
        task = replace(task, alone=alone)
        state = iterate(task, state, LATE[-1:], shapes=True)
    check_fit(task, state, pixels, (config.reach[0] + FARTHER, config.reach[1] + FARTHER))
    wrong = chosen[np.sort(gone)]
    return Fit(task, state, chosen, status, nline, continuum_series(frame, state.now, shaped.ground, pixels),
               shaped.unlisted, shaped.hot, scatter,
               lines.wave[wrong] if lines.fibre is None else wavelengths(start, lines.fibre[wrong], lines.wave[wrong]))


def _traces(task: Task) -> tuple[Task, State]:
    """The task with its firm spots, and traces and widths fitted with the starting shapes."""
    state = first_look(task, task.start)
    task = chosen_of(task, state)
    state = iterate(task, state, EARLY, shapes=False)
    return chosen_of(task, state), state


@dataclass(frozen=True)
class _Shaped:
    """A bundle with fitted shapes; ground: light beside the spots; unlisted, hot: see Fit."""

    task: Task
    state: State
    ground: Background
    unlisted: int
    hot: int


def _shapes(task: Task, state: State, pixels: Pixels, config: FitConfig) -> _Shaped:
    """Fit everything together, without what does not belong to the spots; pixels: all of the bundle."""
    beside, unlisted = light_of_no_line(task, state, pixels)
    bright = beyond_all(task, state)
    if unlisted or bright.any():
        task = without(replace(task, left_out=task.left_out | beside), state, bright)
        state = iterate(task, state, EARLY, shapes=False)
    ground = background(task, state, pixels, continuum=config.continuum != "none")
    task = replace(task, background=ground.light)
    state = iterate(task, state, LATE, shapes=True)
    columns = hot_columns(task, state)
    if columns.any():
        task = replace(task, left_out=task.left_out | np.broadcast_to(columns, task.pixels.value.shape).ravel())
        state = iterate(task, state, LATE, shapes=True)
    task, state, ground = fit_ground(task, state, pixels, ground, continuum=config.continuum, errors=LATE[-1:])
    before, task = task.firm, chosen_of(task, state)
    if (before & ~task.firm).any():             # a spot that is not to move the traces has moved them
        state = iterate(task, state, LATE[-1:], shapes=True)
    return _Shaped(task, state, ground, unlisted, int(columns.sum()))
