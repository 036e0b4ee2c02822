"""Bins so fine that spots hardly show some patterns of them.

Where bins are fine for their spots, light may move from a bin to the next ones and back with hardly any effect on a
pixel. The noise of x is then thousands of electrons from bin to bin. A whole spectrum of this kind is a good model of
the image, a stretch of it is not: at its ends the noise no longer cancels. The spectrum for the variance has such
stretches, on lines. There x is replaced by the spectrum without the patterns that spots do not show.
"""
import numpy as np

from gpu_extract.data import Array, Normal
from gpu_extract.lapack import lapack
from gpu_extract.passes.variance import multiply

FINE = 5e-4          # Shape.least below which bins are fine. DESI: 1e-3 or more at 0.8 Angstrom, 3e-6 or less at 0.5
HIDDEN = 1e-3        # share of a constant spectrum's weight: patterns with less are left out


def shown(normal: Normal, x: Array, bands: Array) -> Array:
    """A spectrum x (nfibre, nwave), photons per bin, without the patterns that spots hardly show.

    bands: `bands_of` the normal equations

    With K the fibre's own block of icov and D = diag(K 1), it is (1 + HIDDEN) (K + HIDDEN D)^-1 K x. A constant
    spectrum stays as it is. A pattern of uniform bins that spots show by k, relative to a constant one, keeps
    k (1 + HIDDEN) / (k + HIDDEN) of itself. Its light on the pixels is proportional to sqrt(k), so at most
    sqrt(HIDDEN) / 2 of the light of a line, 1.6 %, is changed by it. Bins without weight have no light.
    """
    seen = normal.weight > 0
    known = np.where(seen, x, 0.0)
    light, share = multiply(bands, known), multiply(bands, seen.astype(float))
    out = np.zeros_like(x)
    for i in range(len(x)):
        band = bands[:, i].copy()
        band[:, ~seen[i]] = 0.0
        band[0] += np.where(seen[i], HIDDEN * share[i], 1.0)
        _, found, info = lapack.dpbsv(band, np.where(seen[i], light[i], 0.0), lower=1, overwrite_ab=1)
        fine = info == 0 and np.isfinite(found).all()
        out[i] = np.where(seen[i], (1.0 + HIDDEN) * found if fine else known[i], 0.0)
    return out
