"""Lines of the list that are not where it has them, in all fibres alike. One such line at the end of a trace pulls the
trace along, and no pixel is odd then.

The places of the lines are compared with traces as smooth as those of the fit. A line is judged by how well the others
agree with each other without it, because lists have errors of their own.
"""
from dataclasses import replace

import numpy as np
from scipy.special import stdtrit

from gpu_extract.data import Array, IntArray
from gpu_psf.data import Parameters
from gpu_psf.series import legendre
from gpu_psf.stamps import make_stamps
from gpu_psf.state import State, Task, look, weights

# light of another line moves a line as long as shapes are not fitted: within so many widths, from so many times the
# line's own light on. The shapes' core matters nearby, their wings farther away
BLENDS = (5.0, 0.03), (10.0, 10.0)
TURNS, NEAR = 6, 0.1        # iterations towards the light, and the step (pixels) from which on they are not needed
FARTHEST = 1.0              # pixels: largest step, derivatives hold no farther
ANY, SURE = 1e6, 0.1        # allowed error of the model: so that light counts wherever it is; once lines are there
SCATTER, LISTS = 0.01, 10   # pixels by which good lists scatter, and for how many lines this knowledge counts
ODD = 3.0                   # standard deviations from its line from which on a spot counts less
KNOWN = 1e-9                # share of the best known combination of lines from which on one is known
# pixels: nearer lines are not left out, since they hardly matter; or are judged later, when light beside them and
# shapes that are not fitted yet no longer move them
LEAST, EARLY = 0.05, 0.3
CHANCE = 1e-5               # that a good line is taken for a misplaced one
SHARE = 3                   # one in so many of the lines that the traces leave free may be misplaced


def misplaced(task: Task, state: State, *, fitted: bool) -> tuple[IntArray, float]:
    """Numbers (Spots.line) of the lines that are not where the list has them, and the scatter of the others around
    smooth traces beyond noise, pixels. If most lines are elsewhere, none is told: the traces follow the list then.

    fitted: whether the shapes are fitted; otherwise blends cannot be judged
    """
    judged = task.firm if fitted else task.firm & _alone(task, state)
    lines = np.unique(task.spots.line[judged])
    if len(lines) < task.frame.trace + 1 + SHARE:
        return lines[:0], 0.0
    shift, known = _shifts(task, state) if fitted else _places(task, state, judged)
    matrix, pull = _of_lines(task, lines, shift, _agreeing(task, lines, shift, np.where(judged, known, 0.0)))
    values, vectors = np.linalg.eigh(matrix)
    told = values > KNOWN * values[-1]
    values, vectors = values[told], vectors[:, told]
    along, less = vectors.T @ pull, 1 + SCATTER**2 * values       # the list's own scatter, independent for each line
    chi2, scatter = float((along**2 / values / less).sum()), _scatter(along, values)
    matrix, pull = (vectors * (values / less)) @ vectors.T, vectors @ (along / less)
    order = _worst_first(matrix, pull, len(values) // SHARE)
    for count in range(len(order), 0, -1):
        if _all_wrong((matrix, pull, chi2), order[:count], len(values) - count, LEAST if fitted else EARLY):
            return np.sort(lines[order[:count]]), scatter
    return lines[:0], scatter


def _scatter(along: Array, values: Array) -> float:
    """Scatter of lines beyond noise, pixels, from what is known of their combinations: the mean of along^2 / values is
    1 + scatter^2 values."""
    return float(np.sqrt(max((along**2 / values - 1).sum(), 0.0) / values.sum()))


def _alone(task: Task, state: State) -> np.ndarray:
    """Which spots have little light of other lines beside them, (nspot,) bool, see BLENDS."""
    spots, y, flux = task.spots, state.stamps.y, state.flux
    alone = np.ones(len(spots), bool)
    strip = spots.exposure * task.frame.nfibre + spots.fibre
    for number in np.unique(strip):
        mine = np.flatnonzero(strip == number)
        apart = np.abs(np.subtract.outer(y[mine], y[mine])) / state.stamps.sigma[1][mine]
        np.fill_diagonal(apart, np.inf)
        for near, share in BLENDS:
            alone[mine] &= ((apart < near) * flux[mine]).max(axis=1) < share * flux[mine]
    return alone


def _shifts(task: Task, state: State) -> tuple[Array, Array]:
    """Shifts of the light against the spots along y by their derivative, and inverse variances: (nspot,) each."""
    slope = state.stamps.image[:, 2].reshape(len(state.flux), -1) * state.flux[:, np.newaxis]
    known = (slope**2 * state.weight[state.stamps.place]).sum(axis=1)
    pull = (slope * (state.weight * state.residual)[state.stamps.place]).sum(axis=1)
    return np.where(known > 0, pull / np.where(known > 0, known, 1.0), 0.0), known


def _places(task: Task, state: State, judged: np.ndarray) -> tuple[Array, Array]:
    """The same where lines may be pixels away. They go to their light by the median of the fibres, and all pixels
    count; then odd ones are left out."""
    now, listed, ends = state.now, task.spots, task.frame.x_range
    wave, slope = listed.wave.copy(), _slope(task, now)
    groups = [np.flatnonzero(judged & (listed.line == line)) for line in np.unique(listed.line[judged])]
    moved, found = task, look(task, now, weights(task, now, state.stamps, state.flux, ANY), state)
    for _ in range(TURNS):
        shift = _shifts(moved, found)[0]
        steps = [float(np.clip(np.median(shift[group]), -FARTHEST, FARTHEST)) for group in groups]
        if np.abs(steps).max() < NEAR:
            break
        for group, step in zip(groups, steps, strict=True):
            wave[group] += step / slope[group].mean()
        moved = replace(task, spots=replace(listed, wave=wave, trace=legendre(wave, ends, task.frame.trace)))
        stamps = make_stamps(task.frame, moved.spots, now, task.pixels)
        found = look(moved, now, weights(moved, now, stamps, found.flux, ANY))
    if moved is task:
        return _shifts(task, state)
    shift, known = _shifts(moved, look(moved, now, weights(moved, now, found.stamps, found.flux, SURE), found))
    return shift + ((moved.spots.trace - listed.trace) * now.y[listed.fibre]).sum(axis=1), known


def _agreeing(task: Task, lines: IntArray, shift: Array, known: Array) -> Array:
    """Inverse variances, (nspot,): a spot that disagrees with the others of its line counts less."""
    known = known.copy()
    for line in lines:
        group = np.flatnonzero((known > 0) & (task.spots.line == line))
        apart = np.abs(shift[group] - np.median(shift[group])) * np.sqrt(known[group])
        known[group] /= np.maximum(apart / ODD, 1.0)
    return known


def _slope(task: Task, now: Parameters) -> Array:
    """Rows per Angstrom at the spots, (nspot,)."""
    ends, spots = task.frame.x_range, task.spots
    step = 1e-4 * (ends[1] - ends[0])
    beside = legendre(spots.wave + step, ends, task.frame.trace) - legendre(spots.wave - step, ends, task.frame.trace)
    return np.asarray((beside * now.y[spots.fibre]).sum(axis=1) / (2 * step))


def _of_lines(task: Task, lines: IntArray, shift: Array, known: Array) -> tuple[Array, Array]:
    """What the spots tell about common shifts of lines where each trace, and each arc along it, is free to follow: the
    information (nline, nline), and its product with the shifts, (nline,)."""
    matrix, pull = np.zeros((len(lines), len(lines))), np.zeros(len(lines))
    for fibre in range(task.frame.nfibre):
        mine = np.flatnonzero((task.spots.fibre == fibre) & (known > 0))
        if not len(mine):
            continue
        root = np.sqrt(known[mine])
        arcs = task.spots.exposure[mine, np.newaxis] == np.unique(task.spots.exposure[mine])[1:]
        free = np.concatenate([task.spots.trace[mine], arcs], axis=1) * root[:, np.newaxis]
        basis, values, _ = np.linalg.svd(free, full_matrices=False)
        basis = basis[:, values > 1e-6 * values[0]]
        of_line = (task.spots.line[mine, np.newaxis] == lines) * root[:, np.newaxis]
        of_line -= basis @ (basis.T @ of_line)
        matrix += of_line.T @ of_line
        pull += of_line.T @ (root * shift[mine])
    return matrix, pull


def _worst_first(matrix: Array, pull: Array, most: int) -> IntArray:
    """Up to `most` lines, each the one whose shift gains most chi squared beside those of the lines before."""
    order: list[int] = []
    least = 1e-6 * matrix.diagonal()
    for _ in range(most):
        own = matrix.diagonal()
        gain = np.where(own > least, pull**2 / np.where(own > least, own, 1.0), 0.0)
        gain[order] = 0.0
        worst = int(gain.argmax())
        if gain[worst] <= 0:
            break
        order.append(worst)
        beside = matrix[:, worst] / own[worst]
        pull = pull - beside * pull[worst]
        matrix = matrix - np.outer(beside, matrix[worst])
    return np.array(order, np.int64)


def _all_wrong(known: tuple[Array, Array, float], chosen: IntArray, free: int, least: float) -> bool:
    """Whether all the chosen lines are away from where the other lines let expect them, by `least` pixels or more:
    Student's test, in which what is known about lists counts as LISTS lines.

    known: matrix, pull, and chi squared without shifts; free: how many lines are left beyond those that traces need
    """
    matrix, pull, chi2 = known
    inverse = np.linalg.inv(matrix[np.ix_(chosen, chosen)])
    shift = inverse @ pull[chosen]
    scale = max((LISTS + chi2 - float(pull[chosen] @ shift)) / (LISTS + free), 1.0)
    most = stdtrit(LISTS + free, 1 - CHANCE / 2)
    return bool((np.abs(shift) > np.maximum(most * np.sqrt(scale * inverse.diagonal()), least)).all())
