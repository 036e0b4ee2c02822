"""Spots whose tails reach a bundle: its own, those of lines that cannot be separated, and those of other bundles."""
from dataclasses import dataclass, replace

import numpy as np

from gpu_extract.data import Array, PsfModel
from gpu_psf.data import Pixels, Spots
from gpu_psf.light import light_table, median_of
from gpu_psf.prepare import parameters_of, psf_of, shape_basis
from gpu_psf.series import legendre
from gpu_psf.solve import State, Task, look_at_others
from gpu_psf.stamps import make_stamps, project
from gpu_psf.tail import RADIUS


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
