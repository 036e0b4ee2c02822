"""Traces from a flat: peaks across the dispersion in blocks of rows, grouped by fibre.

The CCD is cut into blocks of rows. Clear peaks of each block's median profile are linked from block to block. These
chains determine the common bend of the traces: x = X + D(y, X), with X the place in the middle row and D a polynomial
of few terms. Every peak of every block then has its X, and the peaks of a fibre share one X, even if the fibre is faint
or its chain is broken.
"""
import itertools
import warnings
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import gaussian_filter1d, maximum_filter1d, minimum_filter1d
from scipy.signal import find_peaks

from gpu_extract.data import Array, Image, IntArray
from gpu_extract.errors import InputError

BLOCKS = 48              # of rows, at most
LEAST_ROWS = 8           # of a block
PEAK = 6.0               # least rise of a peak above both sides, in units of noise
FAINT = 0.02             # least height, as a share of the highest peak around it
AROUND = 40              # the range of "around", in widths
LINK = 0.3               # unexpected motion of a trace between blocks, as a share of the distance to the next peak
BENDS = (4, 2)           # degrees of D in y and in X
SEEN = 0.3               # least share of blocks with its peak, of those in which a trace is on the CCD
LONG = 0.5               # least share of blocks of a chain that determines the bend


@dataclass(frozen=True)
class Blocks:
    """Profiles across the dispersion.

    rows: (nblock + 1,) edges; y: (nblock,) middle; profile, noise: (nblock, nx) median over the rows, and its error
    """

    rows: np.ndarray
    y: Array
    profile: Array
    noise: Array


@dataclass(frozen=True)
class Bend:
    """D(y, X) = sum c_kl u^k v^l, k from 1: u from the middle row in half heights, v from the middle column in half
    widths."""

    coeff: Array
    shape: tuple[int, int]

    def at(self, y: Array, place: Array) -> Array:
        """D at rows y of the traces at `place` in the middle row; the arrays broadcast."""
        ny, nx = self.shape
        u, v = (y - (ny - 1) / 2) / (ny / 2), (place - (nx - 1) / 2) / (nx / 2)
        return sum((self.coeff[k, l] * u**(k + 1) * v**l for k, l in np.ndindex(*self.coeff.shape)),
                   np.zeros(np.broadcast(u, v).shape))

    def place(self, y: Array, x: Array) -> Array:
        """X of a position x in row y."""
        place = x
        for _ in range(8):
            place = x - self.at(y, place)
        return place


@dataclass(frozen=True)
class Found:
    """Traces that were found: place (n,) X, ascending; bend; light (n,) rise of their peaks in the image's unit; width:
    full width of a profile at half height, pixels."""

    place: Array
    bend: Bend
    light: Array
    width: float

    def x(self, y: Array) -> Array:
        """(n, len(y)) pixels."""
        return self.place[:, None] + self.bend.at(y, self.place[:, None])


def find_traces(image: Image) -> Found:
    """All traces of a flat, dispersion along y. Raises InputError if there are none."""
    blocks = make_blocks(image)
    width = profile_width(blocks)
    peaks = [_peaks(profile, noise, width) for profile, noise in zip(blocks.profile, blocks.noise, strict=True)]
    chains = _chains(blocks.y, [p[0] for p in peaks])
    long = [c for c in chains if len(c) >= LONG * len(blocks.y)]
    if not long:
        counts = [len(p[0]) for p in peaks]
        raise InputError(f"the flat has no traces: up to {max(counts)} peaks in a block of rows, none of which "
                         f"continues through {LONG:.0%} of the {len(counts)} blocks; check that this is a flat, and "
                         "that the dispersion is along this axis (--dispersion)")
    bend = _bend(blocks.y, long, image.shape)
    y = np.concatenate([np.full(len(p[0]), row) for row, p in zip(blocks.y, peaks, strict=True)])
    x, rise = (np.concatenate([p[k] for p in peaks]) for k in (0, 1))
    return _gather(bend.place(y, x), rise, bend, blocks, width)


def make_blocks(image: Image, most: int = BLOCKS) -> Blocks:
    """Profiles of blocks of rows, without masked pixels; 0 where a block has no good pixel."""
    ny, nx = image.shape
    edges = np.linspace(0, ny, max(min(most, ny // LEAST_ROWS), 1) + 1).astype(int)
    profile, noise = np.zeros((len(edges) - 1, nx)), np.zeros((len(edges) - 1, nx))
    for n, (lo, hi) in enumerate(itertools.pairwise(edges)):
        pix, ivar = image.pix[lo:hi].astype(np.float64), image.ivar[lo:hi].astype(np.float64)
        count = np.count_nonzero(ivar > 0, axis=0)
        some = count > 0
        profile[n, some] = np.nanmedian(np.where(ivar > 0, pix, np.nan)[:, some], axis=0)
        variance = np.divide(1.0, ivar, out=np.zeros_like(ivar), where=ivar > 0).sum(axis=0)
        noise[n, some] = 1.25 * np.sqrt(variance[some]) / count[some]       # of a median
    return Blocks(edges, (edges[:-1] + edges[1:] - 1) / 2, profile, noise)


def profile_width(blocks: Blocks) -> float:
    """Full width at half height of a profile, from the autocorrelation of the blocks' profiles.

    For a Gaussian profile the autocorrelation is sqrt(2) times as wide.
    """
    total = np.zeros(blocks.profile.shape[1] // 2)
    for row in blocks.profile:
        scaled = row / max(np.abs(row).max(), 1e-30)
        total += np.array([np.mean(scaled[:len(scaled) - d] * scaled[d:]) for d in range(len(total))])
    noise = np.mean((blocks.noise / np.maximum(np.abs(blocks.profile).max(axis=1), 1e-30)[:, None])**2)
    total[0] -= len(blocks.profile) * noise
    rising = np.flatnonzero(np.diff(total) > 0)
    first = int(rising[0]) if len(rising) else len(total) - 1
    if first < 1 or total[0] <= 0:
        return 2.0
    half = (total[0] + total[first]) / 2
    below = int(np.argmax(total[:first + 1] < half))
    lag = below - 1 + (total[below - 1] - half) / max(total[below - 1] - total[below], 1e-30)
    return float(max(2 * lag / np.sqrt(2), 1.5))


def risen(profile: Array, window: float) -> tuple[IntArray, Array]:
    """Places of a profile's peaks, and their rise above both sides within a window of this many pixels.

    A step of a slope that the window cuts has a rise of 0, of which scipy warns.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "some peaks have a prominence of 0")
        at, facts = find_peaks(profile, prominence=1e-30, wlen=int(window) | 1)
    return at, facts["prominences"]


def _peaks(profile: Array, noise: Array, width: float) -> tuple[Array, Array]:
    """Places and rises of a profile's peaks, ascending.

    The noise is averaged like the smoothed profile; a peak must rise above the valleys on both sides.
    """
    sigma = width / 2.355 / 1.5
    smooth = gaussian_filter1d(profile, sigma)
    quiet = noise / np.sqrt(max(2 * np.sqrt(np.pi) * sigma, 1.0))
    above = smooth - minimum_filter1d(smooth, int(8 * width) | 1)
    least = np.maximum(PEAK * quiet, FAINT * maximum_filter1d(above, int(AROUND * width) | 1))
    at, rise = risen(np.pad(smooth, 1, constant_values=smooth.min()), 10 * width)
    at = at - 1
    kept = rise > least[at]
    at, rise = at[kept], rise[kept]
    inner = np.clip(at, 1, len(smooth) - 2)
    left, middle, right = (smooth[inner + k] for k in (-1, 0, 1))
    curve = left - 2 * middle + right
    offset = np.divide(left - right, 2 * curve, out=np.zeros(len(at)), where=curve < 0)
    return at + np.clip(offset, -0.5, 0.5) * (inner == at), rise


def _chains(y: Array, peaks: list[Array]) -> list[list[tuple[int, float]]]:
    """Peaks that continue from block to block, as lists of (block, x): from the block with most of them to both
    ends."""
    start = int(np.argmax([len(p) for p in peaks]))
    chains = [[(start, float(x))] for x in peaks[start]]
    for direction in (1, -1):
        for n in range(start + direction, len(y) if direction > 0 else -1, direction):
            expected = np.array([_foreseen(c, y, n, direction) for c in chains])
            if len(peaks[n]) and len(expected):
                _append(chains, expected, peaks[n], n)
    return chains


def _foreseen(chain: list[tuple[int, float]], y: Array, block: int, direction: int) -> float:
    """The expected place of a chain in a block, on a straight line through its last few peaks."""
    last = sorted(chain, key=lambda link: -direction * link[0])[:4]
    if last[0][0] == block or len(last) < 2:
        return last[0][1]
    rows, x = y[[link[0] for link in last]], [link[1] for link in last]
    slope = np.polyfit(rows - rows[0], x, 1)[0]
    return float(last[0][1] + slope * (y[block] - rows[0]))


def _append(chains: list[list[tuple[int, float]]], expected: Array, x: Array, block: int) -> None:
    """Append to each chain the peak nearest to its expected place, if that peak has no nearer chain."""
    apart = np.abs(x[None, :] - expected[:, None])
    gap = np.min(np.diff(np.sort(x))) if len(x) > 1 else np.inf
    distances = np.diff(x, prepend=-np.inf, append=np.inf)
    room = np.minimum(distances[:-1], distances[1:])
    for n, row in enumerate(apart):
        k = int(row.argmin())
        if apart[:, k].argmin() == n and row[k] < LINK * max(min(room[k], 100.0), gap):
            chains[n].append((block, float(x[k])))


def _bend(y: Array, chains: list[list[tuple[int, float]]], shape: tuple[int, int]) -> Bend:
    """D from the chains: their places in the middle row and its coefficients, alternately, without outliers."""
    ny, nx = shape
    rows, cols = BENDS[0], BENDS[1] if len(chains) > 4 else 0
    bend = Bend(np.zeros((rows, cols + 1)), shape)
    block = np.concatenate([[link[0] for link in c] for c in chains]).astype(int)
    x = np.concatenate([[link[1] for link in c] for c in chains])
    owner = np.repeat(np.arange(len(chains)), [len(c) for c in chains])
    u, weight = (y[block] - (ny - 1) / 2) / (ny / 2), np.ones(len(x))
    place = np.array([np.median([link[1] for link in c]) for c in chains])
    for _ in range(12):
        v = (place[owner] - (nx - 1) / 2) / (nx / 2)
        terms = np.stack([u**(k + 1) * v**l for k in range(rows) for l in range(cols + 1)], axis=1)
        own = (owner[:, None] == np.arange(len(chains))).astype(float)
        both = np.concatenate([terms, own], axis=1) * weight[:, None]
        found = np.linalg.lstsq(both, x * weight, rcond=None)[0]
        bend = Bend(np.array(found[:terms.shape[1]], dtype=np.float64).reshape(rows, cols + 1), shape)
        place = found[terms.shape[1]:]
        left = x - (np.concatenate([terms, own], axis=1) @ found)
        weight = (np.abs(left) <= max(5 * 1.4826 * np.median(np.abs(left)), 0.02)).astype(float)
    return bend


def _gather(place: Array, rise: Array, bend: Bend, blocks: Blocks, width: float) -> Found:
    """The traces: runs of peaks of all blocks at one place, without a gap of more than a third of a width."""
    order = np.argsort(place)
    place, rise = place[order], rise[order]
    cuts = np.flatnonzero(np.diff(place) > max(width / 3, 0.5)) + 1
    runs = [run for run in np.split(np.arange(len(place)), cuts) if len(run)]
    middle = np.array([np.median(place[run]) for run in runs])
    on_ccd = np.array([np.count_nonzero((row >= 0) & (row <= bend.shape[1] - 1))
                       for row in middle[:, None] + bend.at(blocks.y, middle[:, None])])
    kept = np.array([len(run) >= max(SEEN * n, 3) for run, n in zip(runs, on_ccd, strict=True)])
    return Found(middle[kept], bend, np.array([np.median(rise[run]) for run in runs])[kept], width)
