"""Background light under the spots: continuum, stray light, and the tails of other spots beyond their stamps.

It is fitted to the pixels away from lines, or to all pixels together with the traces and shapes (`columns_of`). In the
latter case the free parameters are the polynomials of the tail's amplitude and the amounts of continuum and stray
light.
"""
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpu_extract.data import Array, PsfModel
from gpu_psf.continuum import above_noise, between_lines, profile_image, row_polynomials
from gpu_psf.data import Frame, Parameters, Pixels, Spots
from gpu_psf.light import light_table, median_of, throughput
from gpu_psf.prepare import parameters_of, psf_of, shape_basis, traces_at
from gpu_psf.series import legendre
from gpu_psf.solve import iterate
from gpu_psf.stamps import make_stamps, project
from gpu_psf.state import State, Task, look_at_others, with_columns
from gpu_psf.tail import RADIUS, beyond

PARTS, FREE = 6, 40         # parts of the rows; least number of line-free fibre pixels in each
OF_OTHERS = 2               # polynomials in wavelength of the amount of other bundles' tails
AGAIN = 2                   # times that the light between the spots is fitted with the fitted shapes
ON = 0.1                    # of the highest profile: pixels of fibres


@dataclass(frozen=True)
class Background:
    """Light that does not belong to spots.

    light: (npixel,) in a task's pixels; per_row: (nexposure, ny) continuum in the rows of the bundle, electrons, of a
    fibre of throughput 1; throughput: (nfibre,)
    crowded: whether lines leave too few pixels for fitting a continuum, which is then 0
    """

    light: Array
    per_row: Array
    throughput: Array
    crowded: bool = False


def background(task: Task, state: State, whole: Pixels, *, continuum: bool) -> Background:
    """The light between the spots of a state; whole: the pixels of the bundle. Tails that are not fitted are known."""
    tails = np.zeros_like(whole.value)
    psf = psf_of(task.frame, state.now)
    if psf.tail is not None and psf.tail.amp.coeff.any() and not task.frame.tail:
        tails = sum((beyond(each.psf, each.spots, each.flux, whole) for each in sources_of(task, state, whole)), tails)
    share, kept = throughput(task.spots, state.flux, task.firm, task.frame.nfibre), _kept(task)
    found, per_row = np.zeros_like(whole.value), np.zeros(whole.value.shape[:2])
    lit, profile = _lit(task, state, whole), profile_image(task.frame, state.now, whole, share)
    on_fibres = profile > ON * profile.max()
    crowded = _crowded(lit | ~on_fibres | ~np.isfinite(whole.read_variance), kept)
    if continuum and not crowded:
        without = Pixels(whole.value - tails, whole.read_variance, whole.x0, whole.y0, whole.stored)
        found, per_row = between_lines(without, profile, lit)
    stored = np.zeros_like(task.pixels.value)
    stored[:, :-1] = (found + tails)[:, kept]
    return Background(stored.ravel(), per_row, share, crowded)


def _crowded(taken: np.ndarray, kept: np.ndarray) -> bool:
    """Whether some part of the rows has hardly a pixel without lines, so that polynomials are undetermined there."""
    rows = np.flatnonzero(kept)
    free = np.count_nonzero(~taken, axis=2)[:, rows[0]:rows[-1] + 1]
    return bool(min(part.sum(axis=1).min() for part in np.array_split(free, PARTS, axis=1)) < FREE)


def _kept(task: Task) -> np.ndarray:
    """The rows of the bundle that a task contains."""
    return task.pixels.stored < task.pixels.value.shape[1] - 1


def columns_of(task: Task, state: State, whole: Pixels, *, continuum: bool) -> Array:
    """Light beside the stamps per unit of each amount of the ground, (ncolumn, npixel). First, if the tail is fitted,
    come tails whose amplitude is one of the shapes' polynomials, and the tails of other bundles, whose amounts are
    independent because their light is. Then come continuum and stray light in each exposure."""
    frame, kept, columns = task.frame, _kept(task), []
    shape = task.pixels.value.shape
    if frame.tail:
        sources = sources_of(task, state, whole)
        columns += [np.sum([beyond(_unit_tail(each.psf), each.spots, each.flux * each.spots.shape[:, k], whole)[:, kept]
                            for each in sources], axis=0) for k in range(frame.nshape)]
        columns += [beyond(_unit_tail(each.psf), each.spots, each.flux * each.spots.trace[:, k], whole)[:, kept]
                    for each in neighbours(task, state) for k in range(OF_OTHERS)]
    if continuum:
        share = throughput(task.spots, state.flux, task.firm, frame.nfibre)
        profile = profile_image(frame, state.now, whole, share)
        parts = row_polynomials(len(profile))
        for exposure in range(shape[0]):
            for image, part in zip((profile, np.ones_like(profile)), parts, strict=True):
                for polynomial in part.T:
                    light = np.zeros((shape[0], kept.sum(), shape[2]))
                    light[exposure] = (image * polynomial[:, np.newaxis])[kept]
                    columns.append(light)
    found = np.zeros((len(columns), *shape))
    for row, light in zip(found, columns, strict=True):
        row[:, :-1] = light
    return found.reshape(len(columns), -1)


def _near_fibres(task: Task, state: State, whole: Pixels) -> np.ndarray:
    """The pixels of a task within half a stamp of the bundle's fibres, (npixel,): beyond lies the light of other
    bundles' spots."""
    frame, half = task.frame, task.frame.start.stamp[1] // 2
    x, y = traces_at(frame, state.now, np.linspace(*frame.x_range, 256))
    column, rows = np.arange(whole.value.shape[2]) + whole.x0, np.arange(len(whole.stored)) + whole.y0
    up = slice(None, None, 1 if y[0, -1] > y[0, 0] else -1)
    ends = [np.interp(rows, y[fibre, up], x[fibre, up])[:, np.newaxis] for fibre in (0, -1)]
    inside = (column >= np.minimum(*ends) - half) & (column <= np.maximum(*ends) + half)
    near = np.zeros(task.pixels.value.shape, bool)
    near[:, :-1] = inside[_kept(task)]
    return near.ravel()


def _with_amounts(background: Background, now: Parameters) -> Background:
    """The same, plus the continuum that was fitted with the spots."""
    polynomials, stray = row_polynomials(background.per_row.shape[1])
    each, count = polynomials.shape[1] + stray.shape[1], len(background.per_row)
    amounts = now.ground[len(now.ground) - count * each:].reshape(count, each)
    more = amounts[:, :polynomials.shape[1]] @ polynomials.T
    return replace(background, per_row=background.per_row + more)


def _unit_tail(psf: PsfModel) -> PsfModel:
    """A PSF with a tail of amplitude 1."""
    if psf.tail is None:
        return psf
    return replace(psf, tail=replace(psf.tail, amp=psf.tail.amp.same(1.0)))


def _lit(task: Task, state: State, whole: Pixels) -> np.ndarray:
    """Where there may be light of lines, in the shape of the bundle's pixels."""
    lit = np.zeros_like(whole.value, dtype=bool)
    lit.ravel()[make_stamps(task.frame, task.spots, state.now, whole).place] = True
    lit[:, _kept(task)] |= task.left_out.reshape(task.pixels.value.shape)[:, :-1]
    return lit


def fit_ground(task: Task, state: State, whole: Pixels, ground: Background, *, continuum: str,
               errors: Sequence[float]) -> tuple[Task, State, Background]:
    """The fit with tails, and with a continuum that is fitted together with the spots, if requested.

    continuum: see FitConfig; errors: see solve.iterate A tail's light beyond the stamps is computed from the previous
    fluxes. Two rounds suffice, because it hardly changes them.
    """
    frame, lit = task.frame, continuum != "none"
    if frame.tail or (lit and (continuum == "under" or ground.crowded)):
        for _ in range(AGAIN):
            columns = columns_of(task, state, whole, continuum=lit)
            task = replace(task, columns=columns, near=_near_fibres(task, state, whole))
            state = iterate(task, with_columns(task, state), errors, shapes=True)
        return task, state, _with_amounts(ground, state.now) if lit else ground
    # and the continuum came from the starting profiles, which matters where it is bright
    again = AGAIN if above_noise(ground.light, task.pixels.read_variance.ravel(), ~task.left_out) else 1
    for _ in range(again if again > 1 or frame.start.tail is not None else 0):
        ground = background(task, state, whole, continuum=lit)
        task = replace(task, background=ground.light)
        state = iterate(task, state, errors, shapes=True)
    return task, state, ground


def continuum_series(frame: Frame, now: Parameters, ground: Background, pixels: Pixels) -> Array:
    """The continuum of each fibre as a series in wavelength, mean over the exposures: (nfibre, ncoef) Legendre
    coefficients over the range of the shapes, electrons in a row."""
    wave = np.linspace(*frame.range, 64)
    basis = legendre(wave, frame.range, frame.wave)
    y = traces_at(frame, now, wave)[1]
    rows, series = np.arange(ground.per_row.shape[1]) + pixels.y0, np.zeros((frame.nfibre, frame.wave + 1))
    mean = ground.per_row.mean(axis=0)
    for fibre in range(frame.nfibre):
        on = (y[fibre] >= 0) & (y[fibre] < frame.start.shape[0])
        if on.sum() > frame.wave:
            light = ground.throughput[fibre] * np.interp(y[fibre, on], rows, mean)
            series[fibre] = np.linalg.lstsq(basis[on], light, rcond=None)[0]
    return series


@dataclass(frozen=True)
class Source:
    """Spots that have tails, their PSF and their fluxes."""

    psf: PsfModel
    spots: Spots
    flux: Array


def sources_of(task: Task, state: State, whole: Pixels) -> list[Source]:
    """The bundle's spots. Spots of lines that cannot be separated are not known individually, but their total light is,
    and it lies in one place."""
    psf = psf_of(task.frame, state.now)
    found = [Source(psf, task.spots, np.maximum(state.flux, 0.0))]
    if task.close is not None:
        stamps = make_stamps(task.frame, task.spots, state.now, whole)
        own = project(whole, stamps, state.flux).ravel()
        close = look_at_others(task, state.now, task.close, whole, (own, whole.value.ravel()))
        found.append(Source(psf, task.close, close.flux))
    return found


def neighbours(task: Task, state: State) -> list[Source]:
    """The fibres before and after the bundle within the reach of tails. They are moved like its first and last fibre.
    Their brightness is unknown, and taken to be the median of the bundle's fibres."""
    frame, now, start = task.frame, state.now, task.frame.start
    spots, last, found = task.spots, frame.first + frame.nfibre, []
    begun = parameters_of(frame)
    kind, table = light_table(spots, state.flux, task.firm, frame.nfibre)
    one = np.unique(kind, return_index=True)[1]
    light = median_of(table, axis=1)[kind[one]]
    for edge, fibres in ((0, range(frame.first)), (frame.nfibre - 1, range(last, start.nfibre))):
        place = start.x.coeff[:, 0]
        near = [n for n in fibres if abs(place[n] - place[frame.first + edge]) < RADIUS]
        if not near:
            continue
        other = replace(frame, first=near[0], nfibre=len(near))
        moved = parameters_of(other)
        moved = replace(moved, x=moved.x + now.x[edge] - begun.x[edge], y=moved.y + now.y[edge] - begun.y[edge],
                        shape=now.shape, ground=now.ground)
        line, fibre = np.repeat(np.arange(len(one)), len(near)), np.tile(np.arange(len(near)), len(one))
        wave = spots.wave[one][line]
        theirs = Spots(spots.exposure[one][line], spots.line[one][line], fibre, wave,
                       legendre(wave, frame.x_range, frame.trace), shape_basis(frame, np.full(len(wave), edge), wave))
        found.append(Source(psf_of(other, moved), theirs, np.maximum(light, 0.0)[line]))
    return found
