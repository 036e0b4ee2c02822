"""Quality of the fit, and the light of each bin on good pixels: chi2pix, pixmask_fraction, mask bits."""
import numpy as np
from numpy.typing import NDArray

from gpu_extract.data import LANE, Array, Blocks, SpecMask, Status
from gpu_extract.kernels.arena import Arena
from gpu_extract.normal import simd_bins
from gpu_extract.spots import simd_project

BAD_FIT = 5.0            # chi2pix stands out if it is this many times the medians around it ...
BAD_FIT_ALONE = 100.0    # ... or above this, times what most fibres have, or 1 if there are too few fibres for medians
BAD_FIT_LEAST = 10.0     # and above this: fibres without noise, as on a dead amplifier that reads 0, are no measure
FEW_FIBRES = 5
MOST = float(np.finfo(np.float32).max)


def bin_quality(blocks: Blocks, cut_pixels: tuple[Array, Array], x: Array, psferr: float,
                arena: Arena | None = None, bins: tuple[int, int] | None = None) -> tuple[Array, Array]:
    """chi2pix and pixmask_fraction of bins: each (nfibre, nwave).

    blocks: spots of the bins; float32 is enough (5e-7 of the model)
    cut_pixels: the cut-out's (sqrt(ivar), sqrt(ivar) pix); x: (nfibre, nwave) photons per bin
    bins: (first, last + 1) of those that are looked at, all of them without; the others have anything

    chi2pix = A^T chi^2 / A^T [W' > 0] with 1/W' = 1/W + (psferr A x)^2; 0 where no good pixel is touched, MOST where
    chi^2 exceeds the single precision of its sum. pixmask_fraction = 1 - A^T [W > 0]; pixels off the CCD count as
    masked. Values are right for bins whose overlapping neighbours are all among the bins given.
    """
    arena, nwave = arena or Arena(), x.shape[1]
    model, whole = arena.take(*cut_pixels[0].shape), arena.take(len(x), blocks.scale.shape[1] * LANE)
    whole[:, :nwave], whole[:, nwave:] = x, 0.0
    out = np.empty((2, *whole.shape))
    order = blocks.order
    if bins is not None:
        block = order % blocks.begins.shape[1] * LANE
        order = order[(block > bins[0] - LANE) & (block < bins[1])]
    simd_project.judge(out, (blocks.stamps, blocks.begins, order, blocks.scale, blocks.corners), whole,
                      (model, *cut_pixels), psferr)
    chi2pix = out[0, :, :nwave]
    chi2pix[~np.isfinite(chi2pix)] = MOST
    return chi2pix, out[1, :, :nwave]


def light_of(blocks: Blocks, shape: tuple[int, int], x: Array, arena: Arena | None = None) -> Array:
    """A x on a cut-out of this shape; blocks: spots of all bins, in single precision; x: (nfibre, nwave)."""
    arena, nwave = arena or Arena(), x.shape[1]
    model, whole = arena.take(*shape), arena.take(len(x), blocks.scale.shape[1] * LANE)
    whole[:, :nwave], whole[:, nwave:] = x, 0.0
    simd_project.add_blocks(model, (blocks.stamps, blocks.begins, blocks.order, blocks.scale, blocks.corners), whole)
    return model


def mask_bits(ivar: Array, chi2pix: Array, pixmask_fraction: Array, weak: np.ndarray | None = None) -> np.ndarray:
    """MASK of a whole instrument bundle: (nfibre, nwave) uint32 of SpecMask; weak: (nfibre, nwave) bool."""
    mask = np.empty(ivar.shape, dtype=np.uint32)
    simd_bins.own_bits(mask, ivar, pixmask_fraction)
    if weak is not None and weak.any():
        mask[weak] |= np.uint32(SpecMask.WEAKBIN)
    mask[stands_out(chi2pix, mask == 0)] |= np.uint32(SpecMask.BAD2DFIT)
    return mask


def bin_status(status: NDArray[np.int8], mask: NDArray[np.uint32]) -> NDArray[np.int8]:
    """Status of each bin: what the core says of its fibre, unless the bin's mask bits say why it has no data.

    EMPTY if there is no data although the core did not fail, or without a good pixel.
    """
    without = np.flatnonzero((mask & np.uint32(SpecMask.NODATA)) != 0)      # of bools, which takes a third of the time
    if len(without) == 0:
        return status
    found, bits = status.copy(), mask.ravel()[without]
    known = found.ravel()          # of its own, without gaps: no copy
    empty = (known[without] != Status.FAILED) | ((bits & np.uint32(SpecMask.ALLBADPIX)) != 0)
    known[without[empty]] = Status.EMPTY
    return found


def stands_out(chi2pix: Array, judged: np.ndarray) -> np.ndarray:
    """Bins where the model does not fit: (nfibre, nwave) bool.

    chi2pix above 5 times its median over the fibre's wavelengths and over the bundle's fibres at that wavelength
    (medians over the bins `judged`, those without any other bit), or above 10 and above 100 times the medians of most
    fibres: what is far off in half of a short range is its own median there. With fewer than 5 fibres, above 100.
    """
    if len(chi2pix) < FEW_FIBRES:
        return chi2pix > BAD_FIT_ALONE
    bad, doubtful = np.zeros_like(judged), np.empty(len(judged), dtype=bool)
    simd_bins.may_stand_out(doubtful, np.ascontiguousarray(chi2pix), judged, BAD_FIT)
    if doubtful.any():
        for i in np.nonzero(doubtful)[0]:
            bad[i] = chi2pix[i] > BAD_FIT * np.median(chi2pix[i, judged[i]])
        for j in np.nonzero(bad.any(axis=0))[0]:
            use = judged[:, j]
            bad[:, j] &= chi2pix[:, j] > (BAD_FIT * np.median(chi2pix[use, j]) if use.any() else np.inf)
    return _far_above_most(bad, chi2pix, judged, doubtful)


def _far_above_most(bad: np.ndarray, chi2pix: Array, judged: np.ndarray, doubtful: np.ndarray) -> np.ndarray:
    """`bad`, and the bins above 10 and above 100 times the medians of more than half of the fibres with bins judged."""
    there, tops = judged.any(axis=1), chi2pix.max(axis=1)
    least = np.sort(np.where(doubtful | ~there, 0.0, tops / BAD_FIT))       # of the medians, which take longer
    limit = max(0.99 * BAD_FIT_ALONE * least[len(least) // 2], BAD_FIT_LEAST)
    if tops.max() <= limit or (chi2pix * ~bad).max() <= limit or not there.any():
        return bad
    medians = np.sort([np.median(chi2pix[i, judged[i]]) for i in np.flatnonzero(there)])
    return np.asarray(bad | (chi2pix > max(BAD_FIT_ALONE * medians[len(medians) // 2], BAD_FIT_LEAST)))
