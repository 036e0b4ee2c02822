"""What a fit works on, and what follows from parameters: fluxes, weights and residuals.

Weights come from the model, and odd pixels are left out.
"""
from dataclasses import dataclass, replace

import numpy as np

from gpu_extract.data import Array, IntArray
from gpu_psf.data import Frame, Parameters, Pixels, Spots
from gpu_psf.normal import Scene, fluxes, grams
from gpu_psf.pairs import FAR, Pairs, clusters, find_pairs
from gpu_psf.prior import ALONE
from gpu_psf.stamps import Stamps, make_stamps, project

CLIP = 5.0                      # standard deviations from which on a pixel is odd


@dataclass(frozen=True)
class Task:
    """The data of a series of steps.

    firm: (nspot,) spots that move traces and shapes; the other spots only have a flux
    left_out: pixels near unfitted lines (flat); background: light that does not belong to spots (flat)
    start, alone: see prior.precision
    columns: (ncolumn, npixel) light beside the stamps of each amount of the ground that is free
    near: (npixel,) with columns: the pixels outside stamps that count
    close: spots of lines that cannot be separated; only their tails count
    """

    frame: Frame
    pixels: Pixels
    spots: Spots
    firm: np.ndarray
    left_out: np.ndarray
    background: Array
    start: Parameters
    alone: tuple[float, ...] = ALONE
    columns: Array | None = None
    close: Spots | None = None
    near: np.ndarray | None = None

    def beneath(self, now: Parameters) -> Array:
        """Light outside the stamps of spots, (npixel,)."""
        if self.columns is None:
            return self.background
        return self.background + now.ground[:len(self.columns)] @ self.columns


@dataclass(frozen=True)
class State:
    """Parameters, and everything that follows from them.

    pairs, groups, blocks: spots that share light, see pairs.py and normal.grams
    flux, variance: (nspot,) electrons and their variance; weight, residual: (npixel,) of the pixels
    chi2: weighted sum of squares, npixel: pixels in it
    """

    now: Parameters
    stamps: Stamps
    pairs: list[Pairs]
    groups: list[IntArray]
    blocks: list[Array]
    flux: Array
    variance: Array
    weight: Array
    residual: Array

    @property
    def chi2(self) -> float:
        """Weighted sum of squares."""
        return float((self.weight * self.residual**2).sum())

    @property
    def npixel(self) -> int:
        """The number of pixels in the weighted sum of squares."""
        return int(np.count_nonzero(self.weight))


def scene_of(task: Task, state: State, *, shapes: bool) -> Scene:
    """The scene for the normal equations: spots that are not firm move nothing."""
    flux = np.where(task.firm, state.flux, 0.0)
    columns = task.columns if shapes else None
    if columns is not None and state.stamps.tail is not None:           # the tails' light on the stamps
        columns = columns.copy()
        for k, order in enumerate(task.spots.shape.T):
            light = (flux * order)[:, np.newaxis] * state.stamps.tail.reshape(len(flux), -1)
            columns[k] += np.bincount(state.stamps.place.ravel(), light.ravel(), columns.shape[1])
    return Scene(task.frame, task.spots, state.stamps, flux, state.weight, state.residual, shapes, columns)


def look(task: Task, now: Parameters, weight: Array, state: State | None = None) -> State:
    """The state for parameters and weights (flat): fluxes and residuals."""
    stamps = (state.stamps if state is not None and state.now is now else
              make_stamps(task.frame, task.spots, now, task.pixels))
    if state is None:
        pairs = find_pairs(task.spots, stamps, FAR if task.frame.start.tail is None else np.inf)
        groups = clusters(pairs, len(task.spots))
    else:
        pairs, groups = state.pairs, state.groups
    empty = np.zeros(0)
    light = task.pixels.value.ravel() - task.beneath(now)
    scene = Scene(task.frame, task.spots, stamps, empty, weight, empty)
    blocks = grams(scene, pairs, groups)
    flux, variance = fluxes(scene, groups, blocks, light)
    residual = light - project(task.pixels, stamps, flux).ravel()
    return State(now, stamps, pairs, groups, blocks, flux, variance, weight, residual)


def weights(task: Task, now: Parameters, stamps: Stamps, flux: Array, error: float) -> Array:
    """Inverse variances from the model, (npixel,): 0 for masked pixels, odd pixels and pixels that do not count.

    error: the allowed error of the model, as a share of its highest value nearby
    """
    pixels = task.pixels
    model = project(pixels, stamps, flux)
    beneath = task.beneath(now).reshape(model.shape)
    variance = pixels.read_variance + np.maximum(model + beneath, 0.0)
    wrong = error * _highest(model)
    apart = pixels.value - beneath - model
    reached = np.bincount(stamps.place.ravel(), minlength=model.size).reshape(model.shape) > 0
    if task.near is not None:
        reached |= task.near.reshape(model.shape)
    good = reached & (apart * apart < CLIP**2 * (variance + wrong * wrong)) & ~task.left_out.reshape(model.shape)
    return np.where(good, 1 / variance, 0.0).ravel()


def _highest(model: Array) -> Array:
    """The highest value in the 3 x 3 pixels around each, except on the rim. Faster than scipy's filter."""
    rows = np.pad(model, ((0, 0), (1, 1), (1, 1)))
    rows = np.maximum(np.maximum(rows[:, :-2], rows[:, 2:]), rows[:, 1:-1])
    return np.maximum(np.maximum(rows[..., :-2], rows[..., 2:]), rows[..., 1:-1])


def reweighted(task: Task, state: State, error: float) -> State:
    """The same parameters under weights of their own model."""
    return look(task, state.now, weights(task, state.now, state.stamps, state.flux, error), state)


def look_at_others(task: Task, now: Parameters, spots: Spots, whole: Pixels, light: tuple[Array, Array]) -> State:
    """The state of other spots than those of the task, on all pixels of its bundle.

    light: of the task's own spots, and the light whose photon noise counts (both flat)
    """
    own, noisy = light
    others = Task(task.frame, whole, spots, np.ones(len(spots), bool), np.zeros(own.size, bool), own, task.start)
    return look(others, now, 1 / (whole.read_variance.ravel() + np.maximum(noisy, 0.0)))


def first_look(task: Task, now: Parameters) -> State:
    """The first state: fluxes are medians over the pixels of each spot's core, which an odd pixel does not change."""
    stamps = make_stamps(task.frame, task.spots, now, task.pixels)
    flux = median_flux(task, stamps)
    return look(task, now, weights(task, now, stamps, flux, 0.3))


def median_flux(task: Task, stamps: Stamps) -> Array:
    """Medians of pixel over model in the spots' cores, (nspot,); 0 where no pixel is left."""
    shape = stamps.image[:, 0].reshape(len(stamps.x), -1)
    light = (task.pixels.value.ravel() - task.background)[stamps.place]
    usable = np.isfinite(task.pixels.read_variance.ravel())[stamps.place] & ~task.left_out[stamps.place]
    core = usable & (shape > 0.25 * shape.max(axis=1, keepdims=True))
    ratio = np.where(core, light / np.where(core, shape, 1.0), np.nan)
    ratio.sort(axis=1)          # NaN comes last
    count = core.sum(axis=1)
    middle = np.maximum(count - 1, 0) // 2
    value = ratio[np.arange(len(ratio)), middle]
    return np.where(count > 0, np.maximum(value, 0.0), 0.0)


def with_columns(task: Task, state: State) -> State:
    """The state with as many amounts of ground as the task has columns; new ones are 0."""
    count, now = 0 if task.columns is None else len(task.columns), state.now
    ground = np.concatenate([now.ground, np.zeros(max(count - len(now.ground), 0))])
    return look(task, replace(now, ground=ground), state.weight, state)
