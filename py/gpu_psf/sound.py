"""Checks of a fitted bundle against its starting PSF and the list of lines, which raise BundleError."""
from dataclasses import replace

import numpy as np

from gpu_extract.data import Array
from gpu_psf.data import Lines, Pixels, Spots
from gpu_psf.light import expected_light
from gpu_psf.prepare import parameters_of
from gpu_psf.register import explained
from gpu_psf.stamps import centres, make_stamps, project
from gpu_psf.state import State, Task, look_at_others

SEEN, LIGHT = 0.9, 0.7      # least share of the list's brighter lines that are seen, or of the light that they explain
COVERED = 0.7               # of a spot's light on good pixels, at least, for it to move traces and shapes
LIKE = 0.7                  # least share of the spots with expected light that look like it
BRIGHT = 20.0               # signal to noise of a spot whose core is checked
CORE, ODD = 0.25, 0.3       # share of a spot's peak that bounds its core; largest share of odd pixels in cores
WRONG = 0.15                # largest relative error of the model beyond noise
TOLD, FEW = 10.0, 5         # signal to noise of a spot that measures a shift; spots that an arc needs
TURNS, KNOWN = 10, 1e-6     # iterations for the shifts of arcs; share of the best known one from which on one is known
SHIFT = 0.25                # largest shift of arcs against each other, in widths of spots
APART = 6                   # rows between a line and a place without one
EMPTY = 0.6                 # share of the distance of two fibres: a place is dark if no fibre is nearer
BESIDE = 0.2                # share of the light of a bundle's lines: this much beside the bundle belongs to a fibre


class BundleError(Exception):
    """A bundle that cannot be fitted, with the reason."""


def check_fit(task: Task, state: State, whole: Pixels, reach: tuple[float, float]) -> None:
    """Raise BundleError where a fit is not sound; whole: all pixels of the bundle; reach: see check_reach."""
    check_arcs(task, state)
    check_cores(task, state)
    check_spots(task, state)
    check_error(task, state)
    check_beside(task, state, whole)
    check_reach(task, state, reach)


def check_lines(task: Task, state: State, what: tuple[Lines, np.ndarray], whole: Pixels, light: Array) -> None:
    """Raise BundleError where lines and light do not match. Light on hidden spots says nothing.

    what: all lines, and which were to be fitted; light: the clear light of the whole bundle
    """
    lines, chosen = what
    seen, strength = np.isin(np.arange(len(chosen)), task.spots.line[task.firm]), lines.strength[chosen]
    if lines.listed is not None:            # one of its orders is enough
        first, which = np.unique(lines.listed[chosen], return_index=True, return_inverse=True)[1:]
        seen, strength = np.bincount(which, seen) > 0, strength[first]
    brighter = strength >= np.median(strength)
    lit, unknown = np.zeros((2, *light.shape), bool)
    for where, which in ((lit, task.firm), (unknown, hidden(task, state) & ~task.firm)):
        where.ravel()[make_stamps(task.frame, task.spots.cut(which), state.now, whole).place] = True
    share, covered = seen[brighter].mean(), explained(np.where(unknown, 0.0, light), lit)
    if share < SEEN and covered < LIGHT:
        raise BundleError(f"{int(seen.sum())} of {len(seen)} lines of the list are seen, with {100 * covered:.0f} % of "
                          f"the bright light; {100 * SEEN:.0f} % of the brighter lines or {100 * LIGHT:.0f} % of the "
                          "light are needed: give the list of this lamp, or a nearer starting PSF")


def check_spots(task: Task, state: State) -> None:
    """Raise BundleError where many spots are not firm although line and fibre let expect light: then the other spots
    are at places of the list by chance. Only those between the first and last firm one of a fibre count, because an
    amplifier may be dark."""
    spots, firm, shape = task.spots, task.firm, np.maximum(state.stamps.image[:, 0], 0.0)
    covered = (shape.reshape(len(spots), -1) * _usable(task, state)).sum(axis=1) > COVERED * shape.sum(axis=(1, 2))
    first, last = np.full((2, task.frame.nfibre), [[np.inf], [-np.inf]])
    np.minimum.at(first, spots.fibre[firm], spots.wave[firm])
    np.maximum.at(last, spots.fibre[firm], spots.wave[firm])
    expected = covered & (expected_light(spots, state.flux, firm) > TOLD * np.sqrt(state.variance))
    expected &= (spots.wave >= first[spots.fibre]) & (spots.wave <= last[spots.fibre])
    like = int((expected & firm).sum())
    if like < LIKE * expected.sum():
        raise BundleError(f"{like} of {int(expected.sum())} spots look as the others of their line and fibre let "
                          f"expect, {100 * LIKE:.0f} % must: give the list of this lamp, or a nearer starting PSF")


def hidden(task: Task, state: State) -> np.ndarray:
    """Which spots have much of their light on masked pixels, such as saturated ones, (nspot,)."""
    shape = np.maximum(state.stamps.image[:, 0], 0.0).reshape(len(task.spots), -1)
    good = np.isfinite(task.pixels.read_variance.ravel())[state.stamps.place]
    return np.asarray((shape * good).sum(axis=1) <= COVERED * shape.sum(axis=1))


def _usable(task: Task, state: State) -> np.ndarray:
    """Which pixels of the stamps are neither masked nor left out, (nspot, npixel)."""
    return np.asarray((np.isfinite(task.pixels.read_variance.ravel()) & ~task.left_out)[state.stamps.place])


def odd_share(task: Task, state: State) -> float:
    """Share of the pixels in the cores of bright spots that are left out as odd."""
    stamps, spots = state.stamps, task.spots
    shape = stamps.image[:, 0].reshape(len(spots), -1)
    bright = state.flux > BRIGHT * np.sqrt(state.variance)
    core = _usable(task, state) & (shape > CORE * shape.max(axis=1, keepdims=True)) & bright[:, np.newaxis]
    odd = core & (state.weight[stamps.place] == 0)
    return float(odd.sum() / max(core.sum(), 1))


def check_cores(task: Task, state: State) -> None:
    """Raise BundleError where many pixels in the cores of bright spots are odd, because lines are not at the
    wavelengths of the list. Chi squared does not show it, because odd pixels are left out."""
    share = odd_share(task, state)
    if share > ODD:
        raise BundleError(f"{100 * share:.0f} % of the pixels in the cores of bright lines disagree with the fit, at "
                          f"most {100 * ODD:.0f} % may: give the list of this lamp, or a nearer starting PSF")


def arcs_apart(task: Task, state: State) -> tuple[Array, Array]:
    """Shifts (x, y) of arcs against each other in pixels, 0 where they may be noise; and the same in widths of spots.

    A spot's shift is the projection of its residuals on its derivatives, with no pixel left out. Arcs with too few
    bright spots are not counted, and do not affect the others.
    """
    stamps, spots = state.stamps, task.spots
    variance = (task.pixels.read_variance + np.maximum(project(task.pixels, stamps, state.flux), 0.0)).ravel()
    weight = np.where(task.left_out, 0.0, 1 / variance)
    slope = stamps.image[:, 1:3].reshape(len(spots), 2, -1) * state.flux[:, np.newaxis, np.newaxis]
    pull = (slope * (weight * state.residual)[stamps.place][:, np.newaxis]).sum(axis=2)
    known = (slope**2 * weight[stamps.place][:, np.newaxis]).sum(axis=2)
    told = (state.flux > TOLD * np.sqrt(state.variance)) & (known > 0).all(axis=1)
    arcs = [told & (spots.exposure == n) for n in np.unique(spots.exposure)]
    arcs = [mine for mine in arcs if mine.sum() >= FEW]
    if len(arcs) < 2:
        return np.zeros(2), np.zeros(2)
    told = np.any(arcs, axis=0)
    mine, of_arc = spots.cut(told), np.array(arcs, dtype=np.float64)[:, told]
    apart = np.array([_most_apart(mine, of_arc, pull[told, n] / known[told, n], known[told, n]) for n in (0, 1)])
    return apart, apart / np.median(np.array(stamps.sigma), axis=1)


def _most_apart(spots: Spots, arcs: Array, shift: Array, weight: Array) -> float:
    """The largest shift of two arcs against each other that is not noise, from spots' shifts against the fit.

    arcs: (narc, nspot) 1 for the spots of each arc; shift, weight: (nspot,) pixels, and their inverse variance

    Where arcs have different lines, traces bend towards those of either and hide a part of the shift, or all of it. So
    what a trace can do is taken out of `arcs`, and what is left is fitted to the shifts. Sums of absolute values are
    minimised: odd spots then hardly count.
    """
    free = arcs.copy()
    for fibre in np.unique(spots.fibre):
        own = spots.fibre == fibre
        root, basis = np.sqrt(weight[own]), spots.trace[own]
        free[:, own] -= (basis @ np.linalg.lstsq(basis * root[:, np.newaxis], (arcs[:, own] * root).T)[0]).T
    by, less = np.zeros(len(arcs)), weight
    for _ in range(TURNS):
        by = np.linalg.pinv((free * less) @ free.T, rcond=KNOWN, hermitian=True) @ (free @ (less * shift))
        less = weight / np.maximum(np.sqrt(weight) * np.abs(shift - by @ free), 1.0)
    error = 0.5 * np.pi * np.linalg.pinv((free * weight) @ free.T, rcond=KNOWN, hermitian=True)
    own, apart = error.diagonal(), np.abs(np.subtract.outer(by, by))
    noise = 6 * np.sqrt(np.maximum(np.add.outer(own, own) - 2 * error, 0.0))
    return float(np.where(apart > noise, apart, 0.0).max())


def check_arcs(task: Task, state: State) -> None:
    """Raise BundleError where arcs are shifted against each other, so that the fit agrees with none of them."""
    apart, widths = arcs_apart(task, state)
    if widths.max() > SHIFT:
        raise BundleError(f"the arcs are shifted against each other by {apart[0]:.2f} pixels in x, {apart[1]:.2f} in y "
                          f"or more, at most {SHIFT:g} widths of a spot are allowed: fit them one by one")


def model_error(task: Task, state: State) -> tuple[float, float]:
    """Sums whose ratio is the square of the model's relative error, from the excess of the residuals over noise:
    residual^2 has the mean 1/w + error^2 model^2 and, without error, the variance 2/w^2."""
    good = state.weight > 0
    model = (task.pixels.value.ravel() - task.beneath(state.now) - state.residual)[good]
    w, r = state.weight[good], state.residual[good]
    return float((model**2 * (r**2 - 1 / w) * w**2).sum()), float((model**4 * w**2).sum())


def check_error(task: Task, state: State) -> None:
    """Raise BundleError where spots differ from the model by a large share of their light, beyond noise."""
    excess, light = model_error(task, state)
    if excess > WRONG**2 * light and excess > 5 * np.sqrt(2 * light):
        raise BundleError(f"the spots differ from the model by {100 * np.sqrt(excess / light):.0f} % of their light, "
                          f"at most {100 * WRONG:.0f} % is allowed: give the list of this lamp, or a nearer starting "
                          "PSF")


def check_reach(task: Task, state: State, reach: tuple[float, float]) -> None:
    """Raise BundleError where traces moved by more than `reach` pixels (x, y), because they followed other lines."""
    begun, firm = parameters_of(task.frame), task.spots.cut(task.firm)
    apart = [float(np.median(np.abs(now - before))) for now, before in
             zip(centres(firm, state.now), centres(firm, begun), strict=True)]
    if apart[0] > reach[0] or apart[1] > reach[1]:
        raise BundleError(f"the traces moved by {apart[0]:.1f} and {apart[1]:.1f} pixels in x and y, at most "
                          f"{reach[0]} and {reach[1]} are allowed: give the list of this lamp, or a nearer starting "
                          "PSF")


def check_beside(task: Task, state: State, whole: Pixels) -> None:
    """Raise BundleError where there are lines one fibre's distance beside the bundle, although the starting PSF has no
    fibre there: each fibre was then taken for its neighbour."""
    frame, now = task.frame, state.now
    if frame.nfibre < 2:
        return
    own = project(whole, make_stamps(frame, task.spots, now, whole), state.flux).ravel()
    for edge, inner in ((0, 1), (frame.nfibre - 1, frame.nfibre - 2)):
        step = now.x[edge] - now.x[inner]
        if not _dark(task, edge, float(step[0])):
            continue
        mine = np.flatnonzero(task.spots.fibre == edge)
        firm = np.isin(task.spots.line, task.spots.line[task.firm])[mine]
        if not firm.any():
            continue
        spots = task.spots.cut(mine[firm])
        usual = np.median(state.flux[task.firm])
        x, found = now.x.copy(), []
        x[edge] += step
        for rows in (0, APART):
            y = now.y.copy()
            y[edge, 0] += rows
            found.append(look_at_others(task, replace(now, x=x, y=y), spots, whole, (own, own)))
        light = found[0].flux - found[1].flux
        seen = (light > BESIDE * usual) & (light > 5 * np.sqrt(found[0].variance + found[1].variance))
        if seen.mean() > 0.5:
            raise BundleError(f"{int(seen.sum())} of {len(seen)} lines are seen {step[0]:+.1f} pixels beside fibre "
                              f"{frame.first + edge} as well, where the starting PSF has no fibre: it is off by one "
                              "fibre; give a nearer one")


def _dark(task: Task, edge: int, step: float) -> bool:
    """Whether the starting PSF has no fibre where the next one beside the bundle would be."""
    start, first = task.frame.start, task.frame.first
    there = start.x.coeff[first + edge, 0] + step
    beside = np.delete(start.x.coeff[:, 0], first + edge)
    return bool(np.abs(beside - there).min(initial=np.inf) > EMPTY * abs(step))
