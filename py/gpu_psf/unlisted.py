"""Lines that are not in the list. Their pixels are left out; otherwise the shapes of spots beside them would absorb
them."""
import numpy as np

from gpu_extract.data import Array, IntArray
from gpu_psf.data import Pixels
from gpu_psf.prepare import traces_at
from gpu_psf.stamps import centres
from gpu_psf.state import State, Task

NEAR = 2.5          # rows from a line of the list within which light is its own
VALLEY = 4          # rows on both sides in which there must be less light than on a line,
CLEAR = 10.0, 0.03  # by this many standard deviations, and by this share of the light of lines of the list
APART = 1.0         # rows by which a line may differ between fibres
REACH = 3.5, 1.0    # widths of a spot to leave out, except within this many of a line of the list: 84 % of its light


def light_of_no_line(task: Task, state: State, whole: Pixels) -> tuple[np.ndarray, int]:
    """The pixels of a task, (npixel,) bool, with lines that are seen in more than half of a bundle's fibres with light
    but are not in the list, and the number of such lines; whole: all pixels of the bundle."""
    frame, now = task.frame, state.now
    out: np.ndarray = np.zeros(task.pixels.value.shape, bool)
    wave, rows = np.linspace(*frame.x_range, 512), np.arange(len(whole.stored)) + whole.y0
    x, y = traces_at(frame, now, wave)
    up = slice(None, None, 1 if y[0, -1] > y[0, 0] else -1)
    column = np.array([np.interp(rows, b[up], a[up]) for a, b in zip(x, y, strict=True)])
    at: IntArray = np.clip(np.rint(column).astype(np.int64) - whole.x0, 1, whole.value.shape[2] - 2)
    width, half = float(np.median(state.stamps.sigma[1])), frame.start.stamp[1] // 2
    reach = int(np.ceil(REACH[0] * width))
    apart = APART * np.ptp(wave) / np.ptp(y[0])
    close = [] if task.close is None else [task.close]
    lines: list[float] = []
    for exposure in range(len(whole.value)):
        seen, own = [], []
        for fibre in range(frame.nfibre):
            listed = np.concatenate([centres(some, now)[1][some.fibre == fibre] for some in (task.spots, *close)])
            own.append(np.abs(np.subtract.outer(rows, listed)).min(axis=1, initial=np.inf) < REACH[1] * width)
            bright = state.stamps.y[task.firm & (task.spots.fibre == fibre)] - whole.y0
            light, error = _along(whole, exposure, at[fibre])
            found = _peaks(light, error, listed - whole.y0, np.rint(bright).astype(int))
            seen.append(np.interp(found + whole.y0, y[fibre, up], wave[up]))
        lit = len(np.unique(task.spots.fibre[task.firm]))
        common = _common(seen, apart, lit / 2)
        lines += common
        for line in common:
            for fibre in range(frame.nfibre):
                middle = round(float(np.interp(line, wave, y[fibre]))) - whole.y0
                near = np.flatnonzero((np.abs(rows - whole.y0 - middle) <= reach) & ~own[fibre])
                columns = np.clip(np.add.outer(at[fibre][near], np.arange(-half, half + 1)), 0, out.shape[2] - 1)
                out[exposure, task.pixels.stored[near].reshape(-1, 1), columns] = True
    return out.ravel(), len(_common([np.array(lines)], apart, 0))


def _along(whole: Pixels, exposure: int, at: IntArray) -> tuple[Array, Array]:
    """Light of the three columns around a trace in every row, and its standard deviation, infinite beside masks."""
    places = exposure, whole.stored[:, np.newaxis], at[:, np.newaxis] + np.arange(-1, 2)
    light, variance = np.sum(whole.value[places], axis=1), np.sum(whole.read_variance[places], axis=1)
    return light, np.sqrt(variance + np.maximum(light, 0.0))


def _peaks(light: Array, error: Array, listed: Array, bright: IntArray) -> IntArray:
    """Rows with a line that is not among those `listed`; bright: rows of some that are."""
    around = np.lib.stride_tricks.sliding_window_view(np.pad(light, VALLEY, mode="edge"), 2 * VALLEY + 1, axis=0)
    valley = np.maximum(around[:, :VALLEY].min(axis=1), around[:, VALLEY + 1:].min(axis=1))
    height, usual = light - valley, np.median(light[bright]) if len(bright) else np.inf
    clear = (light >= around.max(axis=1)) & (height > CLEAR[0] * error) & (height > CLEAR[1] * usual)
    found = np.flatnonzero(clear)
    return found[np.abs(np.subtract.outer(found, listed)).min(axis=1, initial=np.inf) > NEAR]


def _common(seen: list[Array], apart: float, most: float) -> list[float]:
    """Wavelengths at which more than `most` fibres have a line, within `apart` of each other."""
    wave, fibre = np.concatenate(seen), np.repeat(np.arange(len(seen)), [len(part) for part in seen])
    order = np.argsort(wave)
    groups = np.split(order, 1 + np.flatnonzero(np.diff(wave[order]) > apart)) if len(order) else []
    return [float(np.median(wave[group])) for group in groups if len(np.unique(fibre[group])) > most]
