"""Gauss-Newton steps with the fluxes eliminated."""
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from gpu_extract.data import Array
from gpu_psf.data import Parameters
from gpu_psf.normal import gradient, reduced
from gpu_psf.prior import away, precision
from gpu_psf.stamps import project
from gpu_psf.state import State, Task, look, reweighted, scene_of

DAMPING = 0.0, 1e-3, 1e-2, 1e-1, 1.0, 10.0
NARROWEST, FARTHEST = 0.3, 2.0  # pixels: smallest width, largest step of a trace
MORE = 12                       # largest number of steps after those with limits of their own
# the curvature is computed again after a step that gains more than these shares of chi squared (shapes fixed, free) and
# of the gain of the previous step: 1/4 is half of the way
LITTLE, SLOW = (0.3, 0.01), 0.25
ENOUGH = 1.0, 1e-3              # gain of chi squared at which to stop: at the end; as a share, with fixed shapes


@dataclass(frozen=True)
class Curvature:
    """The matrix of a step. It is computed at one state and used for later states nearby, which have their own
    gradient.

    matrix: with the fluxes eliminated and the prior added; known: the prior only; shapes: see Scene
    """

    matrix: Array
    known: Array
    shapes: bool


def curvature_of(task: Task, state: State, *, shapes: bool) -> Curvature:
    """The curvature of chi squared at a state."""
    known = precision(task.frame, task.alone, shapes=shapes, columns=0 if task.columns is None else len(task.columns))
    matrix = reduced(scene_of(task, state, shapes=shapes), state.pairs, state.groups, state.blocks)
    return Curvature(matrix + known, known, shapes)


def step_from(task: Task, state: State, curved: Curvature) -> tuple[State, float]:
    """The state after one step, and the expected gain in chi squared; the unchanged state if no step gains anything.

    The fluxes of a state fit best under its weights. Therefore the gradient by the fluxes is 0, and the gradient by the
    parameters equals that with the fluxes eliminated. It is exact for any state of `curved`, and so is the point to
    which the steps converge.
    """
    scene, known = scene_of(task, state, shapes=curved.shapes), curved.known
    pull = gradient(scene) - known @ away(state.now, task.start, scene.size)
    counts = _of_firm(task, state)
    before = _chi2_on(state, counts) + _known(task, state.now, known)
    own = np.diag(curved.matrix)
    if not (own > 0).all():            # light that outshines the spots; the checks of lines and light report it
        return state, 0.0
    scale = 1 / np.sqrt(own)
    unit = curved.matrix * scale * scale[:, np.newaxis]
    for damping in DAMPING:
        try:
            factor = cho_factor(unit + damping * np.eye(len(unit)))
        except LinAlgError:
            continue
        step = scale * cho_solve(factor, scale * pull)
        now = state.now.moved(step)
        if not _sensible(task, now, step):
            continue
        tried = look(task, now, state.weight, state)
        if _chi2_on(tried, counts) + _known(task, now, known) <= before + 1e-6 * before:
            return tried, float(pull @ step)
    return state, 0.0


def _of_firm(task: Task, state: State) -> np.ndarray:
    """The pixels, (npixel,) bool, in which firm spots have as much light as the others or more.

    Only these judge a step. It does not look at the other spots, which may fit worse where traces and shapes are right.
    """
    if task.firm.all():
        return np.ones(state.weight.shape, bool)
    firm, others = (project(task.pixels, state.stamps, np.abs(np.where(which, state.flux, 0.0))).ravel()
                    for which in (task.firm, ~task.firm))
    return np.asarray(firm >= others)


def _chi2_on(state: State, counts: np.ndarray) -> float:
    return float((state.weight * state.residual**2)[counts].sum())


def _known(task: Task, now: Parameters, known: Array) -> float:
    gone = away(now, task.start, len(known))
    return float(gone @ known @ gone)


def _sensible(task: Task, now: Parameters, step: Array) -> bool:
    """Whether widths are valid, and traces have moved no farther than derivatives hold."""
    widths = task.spots.shape @ now.shape[:2].T
    frame = task.frame
    moves = step[:frame.ntrace].reshape(2 * frame.nfibre, -1)
    far = max(np.abs((task.spots.trace * moves[task.spots.fibre + k * frame.nfibre]).sum(axis=1)).max() for k in (0, 1))
    return bool(np.isfinite(step).all() and widths.min() > NARROWEST and far < FARTHEST)


def iterate(task: Task, state: State, errors: Sequence[float], *, shapes: bool) -> State:
    """Steps with increasingly strict limits for odd pixels, repeated under the last limit until nothing is gained.

    Computing the curvature takes most of a step's time. It is kept from the previous state while steps gain little chi
    squared, and less each time.
    """
    curved, fresh = None, False
    gain = before = np.inf
    for number, error in enumerate((*errors, *[errors[-1]] * MORE)):
        enough = gain < (ENOUGH[0] if shapes else ENOUGH[1] * state.chi2) and (fresh or gain > 0)
        if number >= len(errors) and enough:
            break
        state = reweighted(task, state, error)
        fresh = curved is None or gain > LITTLE[shapes] * state.chi2 or gain > SLOW * before or gain == 0
        if curved is None or fresh:
            curved = curvature_of(task, state, shapes=shapes)
        before = gain
        state, gain = step_from(task, state, curved)
    return reweighted(task, state, errors[-1])
