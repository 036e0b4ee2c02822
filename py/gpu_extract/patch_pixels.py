"""The pixels of a patch of a bundle, whitened, with the spots of its bins: what cores.pixels works on."""
from collections.abc import Sequence

import numpy as np

from gpu_extract.cores.pixels import Patch
from gpu_extract.data import Array, Image, IntArray, Normal, PsfModel, Spots
from gpu_extract.odd_pixels import mask_pixels
from gpu_extract.plan import spread
from gpu_extract.project import add_to_image
from gpu_extract.psf import make_spots


class PatchPixels:
    """Gives the patches of one bundle: call it with the fibres around, the wanted one, and a range of bins.

    fibres: the bundle's lo .. hi - 1 of the PSF; numbers of fibres count from lo; wave: of all bins that are solved for
    odd: (n, 2) y and x of pixels that are taken as masked, see odd_pixels
    """

    def __init__(self, image: Image, psf: PsfModel, fibres: tuple[int, int], wave: Array, odd: IntArray):
        self._image, self._psf, self._fibres, self._wave, self._odd = image, psf, fibres, wave, odd

    def __call__(self, normal: Normal, x: Array, fibres: tuple[Sequence[int], int], bins: tuple[int, int]) -> Patch:
        """fibres: (around, own); x: (nfibre, nwave). Bins without weight have no light here either."""
        around, own = fibres
        nfibre, nwave = x.shape
        lo, hi = spread(min(*around, own) if around else own, max([*around, own]) + 1, normal.icov.shape[1] - 1, nfibre)
        start, stop = spread(*bins, normal.halfband, nwave)
        spots = make_spots(self._psf, (self._fibres[0] + lo, self._fibres[0] + hi), self._wave[start:stop])
        inside = np.zeros((hi - lo, stop - start), dtype=bool)
        inside[[i - lo for i in (*around, own)], bins[0] - start:bins[1] - start] = True
        stamp, low = spots.stamps.shape[2:], (spots.y0[inside].min(), spots.x0[inside].min())
        high = spots.y0[inside].max() + stamp[0], spots.x0[inside].max() + stamp[1]
        box = tuple(slice(max(int(a), 0), max(min(int(b), n), 0))
                    for a, b, n in zip(low, high, self._image.shape, strict=True))
        moved = Spots(spots.stamps, spots.x0 - box[1].start, spots.y0 - box[0].start)
        ivar = self._image.ivar[box].astype(float)
        mask_pixels(ivar, ivar, self._odd, (box[0].start, box[1].start))
        others = np.zeros(ivar.shape)
        add_to_image(others, moved, np.where(inside, 0.0, x[lo:hi, start:stop]))
        good = ivar > 0.0
        light = np.sqrt(ivar[good]) * (self._image.pix[box][good] - others[good])
        places = np.where(good, np.cumsum(good).reshape(good.shape) - 1, -1)
        columns = [self._columns(moved, normal.weight[i, bins[0]:bins[1]] > 0.0, places, (i - lo, bins[0] - start))
                   for i in (*around, own)]
        scale = np.sqrt(ivar[good])[:, None]
        beside = np.hstack([*columns[:-1], np.zeros((len(light), 0))])
        return Patch(scale * beside, scale * columns[-1], light)

    @staticmethod
    def _columns(spots: Spots, alive: np.ndarray, places: np.ndarray, first: tuple[int, int]) -> Array:
        """(pixels, bins): spots of one fibre on the pixels that have a place; first: (fibre, bin) of the spots."""
        fibre, begin = first
        out = np.zeros((int(places.max(initial=-1)) + 1, len(alive)))
        ny, nx = spots.stamps.shape[2:]
        for j in np.flatnonzero(alive).tolist():
            y, x = int(spots.y0[fibre, begin + j]), int(spots.x0[fibre, begin + j])
            rows, across = slice(max(y, 0), max(y + ny, 0)), slice(max(x, 0), max(x + nx, 0))
            place = places[rows, across]
            stamp = spots.stamps[fibre, begin + j, rows.start - y:, across.start - x:][:place.shape[0], :place.shape[1]]
            out[place[place >= 0], j] = stamp[place >= 0]
        return out
