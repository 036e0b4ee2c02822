"""How the fit of a bundle begins: its pixels, the shift against the starting PSF, the lines and their spots."""
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpu_extract.data import Array, Image, IntArray, PsfModel
from gpu_psf.data import FitConfig, Frame, Lines, Parameters, Pixels
from gpu_psf.prepare import cut_out, lines_of, make_frame, make_spots, parameters_of, traces_at
from gpu_psf.register import best_shift, scores
from gpu_psf.sound import BundleError
from gpu_psf.stamps import centres, make_stamps
from gpu_psf.state import Task

APART = 1.5                 # pixels between lines that can be separated
NEARBY = 2, 3               # pixels (x, y) by which a bundle may be shifted against its camera
MARGIN = 4                  # rows around a stamp into which its spot may move


def unsaturated(pixels: Pixels, config: FitConfig) -> Pixels:
    """The pixels, with the saturated ones and their neighbours masked."""
    full = pixels.value.astype(np.float32) >= np.float32(config.saturation)      # as images have them in files
    if not full.any():
        return pixels
    from scipy.ndimage import binary_dilation

    grown = binary_dilation(full, np.ones((1, 3, 3), bool))
    return replace(pixels, read_variance=np.where(grown, np.inf, pixels.read_variance))


def shift_scores(images: Sequence[Image], start: PsfModel, fibres: tuple[int, int], lines: Lines,
                 config: FitConfig) -> Array:
    """How well the lines of some fibres coincide with light for each shift, see register.scores."""
    frame = make_frame(start, fibres, config)
    now = parameters_of(frame)
    pixels = cut_out(images, frame, now, config)
    return scores(pixels, *_places(frame, now, lines, lines_of(frame, now, lines, APART)[0]), config.reach)


def _places(frame: Frame, now: Parameters, lines: Lines, chosen: IntArray) -> tuple[Array, Array]:
    """x and y of lines in all fibres that show them, flat."""
    fibre, line = np.indices((frame.nfibre, len(chosen)))
    on = lines.on(chosen[line], fibre + frame.first)
    x, y = traces_at(frame, now, lines.wave[chosen])
    return x[on], y[on]


def registered(frame: Frame, now: Parameters, pixels: Pixels, lines: Lines, config: FitConfig,
               shift: tuple[int, int] | None) -> tuple[Parameters, IntArray, IntArray]:
    """The parameters moved to the lines, the lines to fit, and the lines that are too close to others.

    shift: of the camera, if known
    """
    every = lines_of(frame, now, lines, APART)[0]
    if not len(every):
        low, high = frame.range
        raise BundleError(f"none of the {len(lines.wave)} lines lies within the starting PSF's {low:.0f} to {high:.0f} "
                          "A")
    if shift is None:
        shift = best_shift(scores(pixels, *_places(frame, now, lines, every), config.reach))
    now = _moved(now, shift)
    reach = min(NEARBY[0], config.reach[0]), min(NEARBY[1], config.reach[1])
    now = _moved(now, best_shift(scores(pixels, *_places(frame, now, lines, every), reach)))
    every, close = lines_of(frame, now, lines, APART)
    return now, np.setdiff1d(every, close), close


def _moved(now: Parameters, shift: tuple[int, int]) -> Parameters:
    x, y = now.x.copy(), now.y.copy()
    x[:, 0] += shift[0]
    y[:, 0] += shift[1]
    return replace(now, x=x, y=y)


def task_of(frame: Frame, now: Parameters, pixels: Pixels, lines: Lines, which: tuple[IntArray, IntArray]) -> Task:
    """The task of a fit: the rows that the lines reach, their spots on the CCD, and the pixels near lines that are not
    fitted."""
    chosen, close = which
    spots = make_spots(frame, lines, chosen, len(pixels.value))
    x, y = centres(spots, now)
    ny, nx = frame.start.shape
    spots = spots.cut((x > -0.5) & (x < nx - 0.5) & (y > -0.5) & (y < ny - 0.5))
    if not len(spots):
        raise BundleError(f"no line can be fitted: {len(close)} of the list are within {APART:g} pixels of another, "
                          "and no other is on the CCD; give a list of single lines, or a nearer starting PSF")
    rows = np.rint(centres(spots, now)[1]).astype(int) - pixels.y0
    reach = frame.start.stamp[0] // 2 + MARGIN
    needed = np.zeros(len(pixels.stored), bool)
    needed[np.clip(rows[:, np.newaxis] + np.arange(-reach, reach + 1), 0, len(needed) - 1)] = True
    pixels = pixels.rows(needed)
    left_out, odd = np.zeros(pixels.value.size, bool), None
    if len(close):
        odd = make_spots(frame, lines, close, len(pixels.value))
        left_out[make_stamps(frame, odd, now, pixels).place] = True
    return Task(frame, pixels, spots, np.ones(len(spots), bool), left_out, np.zeros(pixels.value.size), now, close=odd)
