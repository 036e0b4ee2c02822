"""Conversion of images, lines and a starting PSF to the data of a bundle's fit, and of its parameters to a PSF."""
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpu_extract.data import Array, Core, Image, IntArray, Legendre, PsfModel
from gpu_extract.passes.read_noise import ReadNoise, believed, given_read_noise
from gpu_extract.spots import select
from gpu_psf.data import FitConfig, Frame, Lines, Parameters, Pixels, Spots
from gpu_psf.series import legendre, legvander, series_at
from gpu_psf.tail import with_tail

RIM = 4                  # pixels around the cut-out, in addition to a stamp
FAINT = 1e-4             # of the light of a line: fainter lines that cannot be separated from it are nothing beside it
SAME = 0.02              # pixels: closer lines are one, for which lists have different digits
SAMPLES = 48             # wavelengths at which a series is sampled to be fitted by another one


def make_frame(start: PsfModel, fibres: tuple[int, int], config: FitConfig) -> Frame:
    """The meaning of the parameters of the fibres lo .. hi - 1."""
    core = start.cores[0]
    nfibre = fibres[1] - fibres[0]
    trace = config.degree_trace
    if trace is None:
        trace = max(start.x.coeff.shape[1], start.y.coeff.shape[1]) - 1
    return Frame(fibres[0], nfibre, (start.x.wmin, start.x.wmax),
                 (core.gh.wmin, core.gh.wmax), config.degree_gh, config.degree_wave,
                 min(config.degree_across, nfibre - 1), trace, with_tail(start, config), config.tail is not None)


def traces_at(frame: Frame, now: Parameters, wave: Array) -> tuple[Array, Array]:
    """x and y of the bundle's fibres at wavelengths, (nfibre, nwave) pixels."""
    basis = legendre(wave, frame.x_range, frame.trace).T
    return now.x @ basis, now.y @ basis


def place_across(frame: Frame, fibre: IntArray) -> Array:
    """Fibres of the bundle on -1 .. 1."""
    return 2 * fibre / max(frame.nfibre - 1, 1) - 1


def shape_basis(frame: Frame, fibre: IntArray, wave: Array) -> Array:
    """Polynomials of the shapes at fibres and wavelengths (n,): (n, nshape)."""
    along = legendre(wave, frame.range, frame.wave)
    across = legvander(place_across(frame, fibre), frame.across)
    orders = np.array(frame.orders)
    return across[:, orders[:, 0]] * along[:, orders[:, 1]]


def parameters_of(frame: Frame) -> Parameters:
    """The starting PSF as parameters of a fit: the closest ones, if its series have other degrees."""
    start, core = frame.start, frame.start.cores[0]
    fibres = slice(frame.first, frame.first + frame.nfibre)
    traces: list[Array] = []
    for series in (start.x, start.y):
        wave = _nodes((series.wmin, series.wmax))
        basis = legendre(wave, frame.x_range, frame.trace)
        coeff = np.linalg.lstsq(basis, series_at(series, fibres, wave).T, rcond=None)[0].T
        traces.append(np.asarray(coeff, np.float64))
    wave = _nodes(frame.range)
    gh = series_at(core.gh, fibres, wave)
    gh = gh / gh[0, 0]
    count = frame.degree + 1
    terms = np.zeros((count, count, frame.nfibre, len(wave)))
    j, i = min(count, gh.shape[0]), min(count, gh.shape[1])
    terms[:j, :i] = gh[:j, :i]
    tail = [start.tail.amp] if frame.tail and start.tail is not None else []
    local = [series_at(series, fibres, wave)[np.newaxis] for series in (core.sigma_x, core.sigma_y, *tail)]
    values = np.concatenate([*local[:2], terms.reshape(count * count, frame.nfibre, -1)[1:], *local[2:]])
    fibre, of_wave = np.repeat(np.arange(frame.nfibre), len(wave)), np.tile(wave, frame.nfibre)
    shape = np.linalg.lstsq(shape_basis(frame, fibre, of_wave), values.reshape(len(values), -1).T, rcond=None)[0].T
    return Parameters(traces[0], traces[1], np.ascontiguousarray(shape[:frame.nterm]), shape[frame.nterm:].ravel())


def _nodes(ends: tuple[float, float]) -> Array:
    """Wavelengths that are denser at the ends, as a fit of polynomials needs."""
    t = np.cos(np.pi * (np.arange(SAMPLES) + 0.5) / SAMPLES)[::-1]
    return ends[0] + (ends[1] - ends[0]) * (t + 1) / 2


def psf_of(frame: Frame, now: Parameters) -> PsfModel:
    """The PSF of the bundle's fibres alone; GH-0-0 is 1."""
    start, count = select(frame.start, range(frame.first, frame.first + frame.nfibre)), frame.degree + 1
    across = legvander(place_across(frame, np.arange(frame.nfibre)), frame.across)
    rows = np.concatenate([now.shape, now.ground[np.newaxis, :frame.nshape]]) if frame.tail else now.shape
    by_fibre = np.zeros((len(rows), frame.nfibre, frame.wave + 1))
    for n, (a, k) in enumerate(frame.orders):
        by_fibre[:, :, k] += rows[:, n, np.newaxis] * across[:, a]
    gh = np.zeros((count * count, frame.nfibre, frame.wave + 1))
    gh[0, :, 0] = 1.0
    gh[1:] = by_fibre[2:frame.nterm]
    series = [Legendre(coeff, *frame.range) for coeff in (by_fibre[0], by_fibre[1],
                                                           gh.reshape(count, count, frame.nfibre, -1))]
    tail = start.tail
    if tail is not None and frame.tail:
        tail = replace(tail, amp=Legendre(by_fibre[frame.nterm], *frame.range))
    return replace(start, x=Legendre(now.x, *frame.x_range), y=Legendre(now.y, *frame.x_range), cores=(Core(*series),),
                   tail=tail)


def lines_of(frame: Frame, now: Parameters, lines: Lines, apart: float) -> tuple[IntArray, IntArray]:
    """Numbers of the lines that fall on the CCD, and of those among them that cannot be separated from a neighbour.

    apart: pixels that two lines must be apart; lines that are nothing beside a nearer one are in neither, nor are all
        but the strongest of those in one place
    """
    low, high = frame.range
    inside = np.flatnonzero((lines.wave > low) & (lines.wave < high))
    fibre: IntArray = np.full(len(inside), frame.nfibre // 2)
    if lines.fibre is not None:
        fibre = lines.fibre[inside] - frame.first
        ours = (fibre >= 0) & (fibre < frame.nfibre)
        inside, fibre = inside[ours], fibre[ours]
    y = (legendre(lines.wave[inside], frame.x_range, frame.trace) * now.y[fibre]).sum(axis=1)
    on = (y > -RIM) & (y < frame.start.shape[0] + RIM)
    inside, y, fibre = inside[on], y[on], fibre[on]
    near = (np.abs(np.subtract.outer(y, y)) < apart) & (fibre[:, np.newaxis] == fibre)
    np.fill_diagonal(near, False)
    strength = lines.strength[inside]
    nothing = strength < FAINT * strength[:, np.newaxis]        # the second beside the first
    first = np.argsort(np.argsort(-strength, kind="stable"))    # of equal ones the first in the list
    nothing |= (np.abs(np.subtract.outer(y, y)) < SAME) & (first > first[:, np.newaxis])
    close, lost = (near & ~nothing).any(axis=1), (near & nothing).any(axis=0)
    return inside[~lost], inside[close & ~lost]


def make_spots(frame: Frame, lines: Lines, chosen: IntArray, nexposure: int) -> Spots:
    """A spot for every exposure, chosen line and fibre that shows it."""
    exposure, line, fibre = (a.ravel() for a in np.meshgrid(
        np.arange(nexposure), np.arange(len(chosen)), np.arange(frame.nfibre), indexing="ij"))
    on = lines.on(chosen[line], fibre + frame.first)
    exposure, line, fibre = exposure[on], line[on], fibre[on]
    wave = lines.wave[chosen][line]
    return Spots(exposure, line, fibre, wave, legendre(wave, frame.x_range, frame.trace),
                 shape_basis(frame, fibre, wave))


def cut_out(images: Sequence[Image], frame: Frame, now: Parameters, config: FitConfig) -> Pixels:
    """The bundle's pixels, with a rim of masked ones beyond the CCD's edges."""
    ny = frame.start.shape[0]
    x, y = traces_at(frame, now, np.linspace(*frame.x_range, 64))
    on = (y > -RIM) & (y < ny + RIM)
    stamp_y, stamp_x = frame.start.stamp
    margin = stamp_x // 2 + config.reach[0] + RIM
    x0, x1 = int(np.floor(x[on].min())) - margin, int(np.ceil(x[on].max())) + margin + 1
    rim = stamp_y + config.reach[1] + RIM
    value = np.zeros((len(images), ny + 2 * rim, x1 - x0))
    variance = np.full(value.shape, np.inf)
    for n, image in enumerate(images):
        low = max(x0, 0)
        high = max(min(x1, image.pix.shape[1]), low)
        into, part = np.s_[rim:rim + ny, low - x0:high - x0], np.s_[:, low:high]
        known = np.isfinite(image.pix[part])
        value[n][into] = np.where(known, image.pix[part], 0.0)     # 0 times NaN is NaN
        variance[n][into] = np.where(known & (image.ivar[part] > 0),
                                     read_noise(image, slice(low, high), frame.start.shape[1]).squared(
                                         (0, 0), known.shape), np.inf)
    return Pixels(value, variance, x0, -rim, np.arange(value.shape[1]))


def read_noise(image: Image, columns: slice, width: int) -> ReadNoise:
    """The read noise of some columns, counted from the first of them; width: of the CCD.

    It is that of READNOISE, else of the header's amplifiers, else of the image. It is compared with the ivar of pixels
    without light, from which it is derived where none is given, or one in another unit.
    """
    noise = None if image.noise is None else image.noise[:, columns]
    part = Image(image.pix[:, columns], image.ivar[:, columns], image.cards, None, image.read_noise, noise)
    split = image.shape[0] // 2, width // 2 - columns.start
    found = given_read_noise(part, split)
    if found is None and part.read_noise:
        found = _everywhere(part.read_noise, split, "header")
    return believed(found, part, split) or _everywhere(_of_faint(part), split, "ivar")


def _everywhere(noise: float, split: tuple[int, int], source: str) -> ReadNoise:
    return ReadNoise(np.full((2, 2), noise), split, source)


def _of_faint(image: Image) -> float:
    """Read noise from the ivar of the fainter half of the pixels, where none is without light."""
    good = image.ivar > 0
    if not good.any():
        return 1.0
    faint = good & (image.pix <= np.median(image.pix[good]))
    return max(float(np.median(1 / image.ivar[faint] - np.maximum(image.pix[faint], 0))), 1e-6) ** 0.5
