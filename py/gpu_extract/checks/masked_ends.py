"""Lengthens the pad if masks or errors leave little of the cores of a fibre's spots at an end of the range."""
from dataclasses import replace

import numpy as np

from gpu_extract.checks.ideal import bins_below, lengths, sums_of, windows
from gpu_extract.checks.probe import SAFETY_CUT, Decay
from gpu_extract.checks.sense import medians
from gpu_extract.data import Array, Image, IntArray, PsfModel
from gpu_extract.kernels.arena import borrowed
from gpu_extract.known import known
from gpu_extract.lapack import lapack
from gpu_extract.normal import lower_band, make_cut
from gpu_extract.solve import definite_factor
from gpu_extract.spots import centres, recipe

# (row, column) of a core's pixels, and their shares of its light, roughly; the middle row first, and its middle pixel
CORE = {(dy, dx): 1 / 4 ** (1 + 0.5 * (dy != 0) + 0.5 * (dx != 0)) for dy in (0, -1, 1) for dx in (0, -1, 1)}
TELLS = 0.1      # of the median ivar of a fibre's middle pixels: a pixel with less hardly tells anything
# share of the cores' light, of all of them and of RUN that follow each other: with less on pixels that tell the margins
# of probe.py may not cover the others. And of their middle rows' light: with more the other rows are not looked at
LEAST, ROWS, RUN = (0.75, 0.25), (0.85, 0.5), 3
MIDDLE = slice(0, 3)
EVERY = 4        # of a pad's bins, one is examined,
FEWEST = 8       # but at least this many of a short pad
BESIDE = 2       # fibres on both sides that are measured along
HARD = 100.0     # Decay.hidden above which a few pixels lost, or lines, lengthen the decay by more than the margins


def beside_masks(decay: Decay, image: Image, psf: PsfModel, wavelength: tuple[float, float, float],
                 tolerance: float) -> Decay:
    """The decay, with a longer pad if pixels carry little information on the cores of a fibre's spots at an end of the
    range.

    decay: with all pixels good. The fibres at the ends and in the middle of each row of such fibres are measured with
    the image's own ivar, and those beside them, through which light may reach them, too. Where bins are hardly told
    from others (HARD), so are the middle one of all fibres, and the one with the least light on pixels that tell.
    """
    hidden = _hidden_fibres(psf, wavelength, decay, image)
    low, high = psf.wavelength_range
    most, beyond = int((high - low) / wavelength[2]) + 1, decay.beyond
    for window in (n for n in lengths(most) if n // 2 > beyond or n >= most) if any(hidden) else ():
        ends = zip(windows(psf, wavelength, window), (-1, 1), hidden, strict=True)
        beyond = max(bins_below(_as_seen(psf, fibre, *_outer(*stretch, way), way, image), SAFETY_CUT * tolerance, most)
                     for stretch, way, fibres in ends for fibre in fibres)
        if beyond < window // 2:
            break
    return replace(decay, beyond=max(decay.beyond, min(most, beyond + decay.aslant)))


def _outer(wave: Array, place: int, way: int) -> tuple[Array, int]:
    """A stretch, see `windows`, with a quarter of it inside the bin `place`, since C is equally well known farther
    in."""
    quarter = len(wave) // 4
    first = max(place - quarter, 0) if way > 0 else 0
    return (wave[first:] if way > 0 else wave[:place + quarter + 1]), place - first


def _hidden_fibres(psf: PsfModel, wavelength: tuple[float, float, float], decay: Decay,
                   image: Image) -> list[list[int]]:
    """Of both ends of the range, and of each row of fibres with little light of their cores on pixels that tell, the
    first, the middle and the last; where bins are hardly told from others, of all fibres the middle and the darkest.

    The pad counts by itself, and together with a stamp's height of bins inside.
    """
    pad, hard = decay.beyond, decay.hidden > HARD
    inside, ends = known(psf, ("pads", image.shape, wavelength, pad),
                         lambda: _pads(image.shape, psf, wavelength, pad))
    ivar, core, hidden = image.ivar.reshape(-1), np.array([*CORE.values()]), list[list[int]]()
    for cores in ends:
        found, rows = np.zeros(psf.nfibre + 2, dtype=int), ivar[cores[MIDDLE]]
        least = TELLS * medians(rows[0].copy())[:, None]
        middle, left, right = rows > least
        shares = 0.5 * middle + 0.25 * left + 0.25 * right
        some = np.flatnonzero(_below(ROWS, shares, inside))
        if len(some):
            found[1 + some] = _below(LEAST, np.tensordot(core, ivar[cores[:, some]] > least[some], 1), inside)
        ranges = np.flatnonzero(np.diff(found)).reshape(-1, 2).tolist()
        chosen = {n for start, stop in ranges for n in (start, (start + stop) // 2, stop - 1)}
        hidden.append(sorted(chosen | ({psf.nfibre // 2, int(shares.sum(axis=1).argmin())} if hard else set())))
    return hidden


def _pads(shape: tuple[int, int], psf: PsfModel, wavelength: tuple[float, float, float],
          pad: int) -> tuple[int, list[IntArray]]:
    """Cores of some bins inside of either end of the range, so many, and in the pads: of each end (pixels of a core,
    nfibre, n) pixels of an image of this shape, as one row. Those off it are taken to be the nearest on it."""
    first, last, step = wavelength
    inside = np.arange(-psf.stamp[0], 0, EVERY)
    bins = np.concatenate([inside, np.arange(0, pad + 1, min(EVERY, pad // FEWEST + 1))])
    ends = []
    for edge, outwards in (first, -step), (last, step):
        wave = np.clip(edge + outwards * bins, *psf.wavelength_range)
        y, x = np.rint(centres(psf, (0, psf.nfibre), wave)).astype(int)
        ends.append(np.stack([np.clip(y + dy, 0, shape[0] - 1) * shape[1] + np.clip(x + dx, 0, shape[1] - 1)
                              for dy, dx in CORE]))
    return len(inside), ends


def _below(limits: tuple[float, float], shares: np.ndarray, inside: int) -> np.ndarray:
    """(nfibre,) whether what (nfibre, n) bins have is below the first limit on average, of all or of those in the pad,
    or below the second one in a run; inside: how many are not in the pad."""
    count = shares.shape[1]
    sums = np.zeros((count + 1, len(shares)))       # to rounding nothing is lost: they are multiples of 1/16
    by_bin = shares.T.astype(float, order="C")
    for n in range(count):       # np.cumsum takes each fibre by itself
        np.add(sums[n], by_bin[n], out=sums[n + 1])
    runs = (sums[RUN:] - sums[:-RUN]).min(axis=0) / RUN
    means = np.minimum(sums[-1] / count, (sums[-1] - sums[inside]) / (count - inside))
    return np.asarray((means < limits[0]) | (runs < limits[1]))


def _as_seen(psf: PsfModel, fibre: int, wave: Array, place: int, way: int, image: Image) -> Array:
    """The largest |C| between bins of a fibre at the end of the range, inside, and those of it and its neighbours at
    every distance beyond the end and farther; relative to C of the bin inside.

    place: the bin at the end; way: 1 where higher bins are beyond it, -1 where lower ones are. Bins inside are one of
    EVERY as far as a stamp reaches: masks hide some more than others. Each bin counts in its own errors.
    """
    fibres, nwave = (max(0, fibre - BESIDE), min(psf.nfibre, fibre + BESIDE + 1)), len(wave)
    with borrowed() as arena:
        spots = recipe(psf, fibres, wave, arena)
        cut = make_cut(image, spots.y0[:, :nwave], spots.x0[:, :nwave], psf.stamp, arena)
        # the usual case of a dead amplifier, and pixels that are not numbers, which are refused: nothing to compute
        if not cut.root.any() or cut.seen[2] > 0:
            return np.zeros(1)
        icov = sums_of(psf, spots, cut, nwave, arena).icov
        lower = lower_band(icov, (0, len(icov)), (0, nwave))
    factor = definite_factor(lower)[1]
    bins = np.clip(place - way * np.arange(0, psf.stamp[0] + 1, EVERY), 0, nwave - 1)
    columns = bins * len(icov) + fibre - fibres[0]
    unit = np.zeros((len(factor.T), len(columns)))
    unit[columns, np.arange(len(columns))] = 1.0
    found = np.abs(lapack.dpbtrs(factor, unit, lower=1)[0])
    found /= found[columns, np.arange(len(columns))]
    of_bins = found.reshape(nwave, -1).max(axis=1)[place::way]
    return np.maximum.accumulate(of_bins[::-1])[::-1]
