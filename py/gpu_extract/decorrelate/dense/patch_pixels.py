"""The whitened pixels of a patch of a bundle, with the spots of its bins: the input of dense.pixels."""
from collections.abc import Iterator, Sequence
from functools import cache, partial

import numpy as np

from gpu_extract.checks.odd_pixels import mask_pixels
from gpu_extract.data import Array, Image, IntArray, Normal, PsfModel, Spots
from gpu_extract.decorrelate.dense.pixels import Patch
from gpu_extract.decorrelate.dense.turning import Piece, fewer_rows
from gpu_extract.plan import spread
from gpu_extract.spots import add_to_image, make_spots


class PatchPixels:
    """Makes the patches of one bundle, when called with the surrounding fibres, the requested one and a range of bins.

    fibres: the bundle's lo .. hi - 1 of the PSF; fibre numbers count from lo; wave: of all solved bins
    odd: (n, 2) y and x of pixels that are treated as masked, see odd_pixels
    """

    def __init__(self, image: Image, psf: PsfModel, fibres: tuple[int, int], wave: Array, odd: IntArray):
        self._image, self._psf, self._fibres, self._wave, self._odd = image, psf, fibres, wave, odd

    def __call__(self, normal: Normal, x: Array, fibres: tuple[Sequence[int], int], bins: tuple[int, int], *,
                 moved: float = 0.0, way: int = 0, less: Array | None = None) -> Patch:
        """fibres: (around, own); x: (nfibre, nwave). Bins without weight have no light here either.

        moved: every pixel of every spot is raised or lowered, at random, by this fraction of itself; way: the seed
        less: (columns, tail), see dense.pixels: multiples of surrounding fibres' columns, subtracted from the tail
        """
        around, own = fibres
        nfibre, nwave = x.shape
        lo, hi = spread(min(*around, own) if around else own, max([*around, own]) + 1, normal.icov.shape[1] - 1, nfibre)
        start, stop = spread(*bins, normal.halfband, nwave)
        spots = make_spots(self._psf, (self._fibres[0] + lo, self._fibres[0] + hi), self._wave[start:stop])
        if moved:
            signs = np.random.default_rng(way).integers(0, 2, spots.stamps.shape) * 2 - 1
            spots = Spots(spots.stamps * (1.0 + moved * signs), spots.x0, spots.y0)
        inside = np.zeros((hi - lo, stop - start), dtype=bool)
        inside[[i - lo for i in (*around, own)], bins[0] - start:bins[1] - start] = True
        box = self._box(spots, inside)
        spots = Spots(spots.stamps, spots.x0 - box[1].start, spots.y0 - box[0].start)
        ivar = self._image.ivar[box].astype(float)
        mask_pixels(ivar, ivar, self._odd, (box[0].start, box[1].start))
        others = np.zeros(ivar.shape)
        add_to_image(others, spots, np.where(inside, 0.0, x[lo:hi, start:stop]))
        light = np.where(ivar > 0.0, self._image.pix[box], 0.0) - others
        fibre, column = np.nonzero(inside & (normal.weight[lo:hi, start:stop] > 0.0))
        mine = fibre == own - lo
        order = np.flatnonzero(~mine)[np.argsort(spots.y0[fibre, column][~mine], kind="stable")]
        places = (fibre[order], column[order]), (fibre[mine], column[mine])
        numbers = column[mine] - (bins[0] - start)
        pieces, tail = partial(_pieces, spots, places, np.sqrt(ivar), light), len(numbers) + 1
        most = cache(lambda: _most_rows(pieces(), tail))
        return Patch(fewer_rows(pieces(less), tail), numbers, bins[1] - bins[0], most)

    def _box(self, spots: Spots, inside: np.ndarray) -> tuple[slice, slice]:
        """The pixels of the CCD that those spots may touch."""
        stamp, low = spots.stamps.shape[2:], (spots.y0[inside].min(), spots.x0[inside].min())
        high = spots.y0[inside].max() + stamp[0], spots.x0[inside].max() + stamp[1]
        rows, across = (slice(max(int(a), 0), max(min(int(b), n), 0))
                        for a, b, n in zip(low, high, self._image.shape, strict=True))
        return rows, across


def _most_rows(pieces: Iterator[Piece], tail: int) -> int:
    """The largest number of columns that can be independent, whatever their values: each needs a pixel of its own."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import structural_rank

    rows, columns, first, begin, last = [], [], 0, 0, 0
    for block, done in pieces:
        row, column = np.nonzero(block[:, :-tail])
        rows.append(first + row)
        columns.append(begin + column)
        first, begin, last = first + len(block), begin + done, begin + block.shape[1] - tail
    places = tuple(np.concatenate(each).astype(np.intc) for each in (rows, columns))    # scipy 1.13 accepts no others
    return int(structural_rank(csr_array((np.ones(len(places[0])), places), shape=(first, last))))


def _pieces(spots: Spots, places: tuple[tuple[IntArray, IntArray], ...], root: Array, light: Array,
            less: Array | None = None) -> Iterator[Piece]:
    """The good pixels of an image, whitened, some rows at a time, with the spots that they see.

    places: fibres and bins of the spots around, in order of their first rows, and of the own ones; root: (ny, nx),
    0 for masked pixels; less: see PatchPixels
    """
    ny, around = spots.stamps.shape[2], places[0]
    first = spots.y0[around]
    for top in range(0, len(root), ny):
        y, x = np.nonzero(root[top:top + ny])
        y += top
        begin, end = int(np.searchsorted(first, top - ny, side="right")), int(np.searchsorted(first, top + ny))
        seen = _seen(spots, (around[0][begin:end], around[1][begin:end]), y, x)
        tail = np.column_stack([_seen(spots, places[1], y, x), light[y, x]])
        if less is not None:
            tail -= seen @ less[begin:end]
        block = np.column_stack([seen, tail]) * root[y, x][:, None]
        yield Piece(block, int(np.searchsorted(first, top, side="right")) - begin)


def _seen(spots: Spots, places: tuple[IntArray, IntArray], y: IntArray, x: IntArray) -> Array:
    """(pixels, spots): the light of each spot on each pixel."""
    ny, nx = spots.stamps.shape[2:]
    down, right = y[:, None] - spots.y0[places], x[:, None] - spots.x0[places]
    inside = (down >= 0) & (down < ny) & (right >= 0) & (right < nx)
    seen = spots.stamps[(*places, np.where(inside, down, 0), np.where(inside, right, 0))]
    return np.where(inside, seen, 0.0)
