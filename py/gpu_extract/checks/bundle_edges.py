"""Checks that bundles do not overlap. Each is solved by itself, and counts the light of the next one on its spots as
its own."""
import numpy as np

from gpu_extract.checks.ideal import ideal
from gpu_extract.data import Array, PsfModel
from gpu_extract.kernels.arena import borrowed
from gpu_extract.plan import Plan
from gpu_extract.spots import centres

BINS = 64             # bins of each stretch that is examined: at both ends of the range, and in its middle
TOGETHER = 1e-5       # overlap that is told of, in the other's light: 0.01 errors beside an S/N of 1000


def too_close(psf: PsfModel, plan: Plan) -> list[str]:
    """A sentence if spots of two bundles overlap, else none. It examines the two fibres whose traces are closest.

    psf: of the fibres that can be extracted, numbered as in the plan
    """
    last = np.unique([(lo - 1, hi - 1) for lo, hi in plan.bundles])      # the fibres beside each edge
    last = last[(last >= 0) & (last < psf.nfibre - 1)]
    if not len(last):
        return []
    bins = np.linspace(0, max(len(plan.extended) - BINS, 0), 3).astype(int)
    x = centres(psf, (0, psf.nfibre), plan.extended[bins])[1]
    closest = int(last[np.abs(x[last + 1] - x[last]).min(axis=1).argmin()])
    overlap = max(_overlap(psf, closest, plan.extended[n:n + BINS]) for n in bins)
    if overlap <= TOGETHER:
        return []
    return [f"fibres {plan.kept[closest]} and {plan.kept[closest + 1]} belong to different bundles, but their spots "
            f"overlap by {overlap:.0e}. Bundles are solved one by one, so each counts light of the other as its own. "
            f"Check {'--bundlesize' if psf.bundle is None else 'BUNDLE of the PSF'}. --passes 2 subtracts the light of "
            "other bundles"]


def _overlap(psf: PsfModel, fibre: int, wave: Array) -> float:
    """The relative light that a continuum of a fibre and the next add to each other: rows of icov, summed.

    All pixels have equal weights. With the errors of bright spots wings count more, and the overlap is up to ten times
    as large.
    """
    with borrowed() as arena:
        icov = ideal(psf, (fibre, fibre + 2), wave, arena).icov
        if icov.shape[1] < 2:
            return 0.0
        middle = len(wave) // 2
        return float(np.abs(icov[0, 1, middle]).sum() / icov[:, 0, middle].sum(axis=1).min())
