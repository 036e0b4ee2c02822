"""What becomes of a fibre: whether its own lines determine its trace."""
from enum import IntEnum

import numpy as np

from gpu_extract.data import IntArray
from gpu_psf.series import legendre
from gpu_psf.state import State, Task

GAP = 0.3, 1.5              # longest gap between a fibre's lines: share of the range, factor from the list's own
UNSURE = 0.1                # largest uncertainty (pixels) that a fibre's own lines may leave to its trace between them


class Status(IntEnum):
    """The outcome for a fibre."""

    FITTED = 0              # its own lines determine its trace
    FEW_LINES = 1           # fewer lines than coefficients, faint lines or a long gap: the neighbours help
    INTERPOLATED = 2        # no line: interpolated from its neighbours in the bundle
    NOT_FITTED = 3          # its bundle could not be fitted: the starting PSF, moved like the nearest bundles


def states_of(task: Task, state: State) -> tuple[IntArray, IntArray]:
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
