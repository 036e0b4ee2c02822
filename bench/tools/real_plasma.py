"""The plasma's own lines in the CCD's frames: wavelengths, ratios of lines of one ion, and how ions drift. Used by
real_data.py."""
from collections.abc import Sequence

import numpy as np

from gpu_extract.data import Array, Frame, Image
from gpu_psf.start.identify import rows_of
from gpu_psf.start.lines import Seen, seen_lines
from gpu_psf.start.profiles import Traces
from gpu_psf.start.solution import Solution

# wavelengths in air, Angstrom, as the list of thorium lines has them
DEUTERIUM = {"D-alpha": 6561.03, "D-beta": 4860.00, "D-gamma": 4339.28, "D-delta": 4100.62}
HYDROGEN = {"H-alpha": 6562.80, "H-beta": 4861.33, "H-gamma": 4340.47, "H-delta": 4101.74}
OTHERS = {"He I": (5875.62, 6678.15, 7065.19), "He II": (4685.70,),
          "C II": (4267.18, 5151.09, 5662.47, 6578.05, 6582.88, 6783.91, 7119.9, 7231.33, 7236.42),
          "N II": (5666.63, 5679.56)}
# two lines of one multiplet: the light of both comes from levels so near each other that their ratio is the atom's
PAIRS = {"C II 6583/6578": (6582.88, 6578.05), "C II 5151/5133": (5151.09, 5133.1),
         "C II 6780/6784": (6779.94, 6783.91),
         "C II 7231/7236": (7231.33, 7236.42), "C II 7116/7120": (7115.6, 7119.9)}
# lines of several ions, of which the plasma alone says how bright they are
DRIFT = {"D-beta": 4860.00, "D-gamma": 4339.28, "He I 5876": 5875.62, "C II 6578": 6578.05, "C II 5151": 5151.09,
         "C II 7120": 7119.9, "C III 4647": 4647.42}
WIDTHS = {"D-beta": 4860.00, "D-gamma": 4339.28, "He I 5876": 5875.62, "C II 6578": 6578.05, "C II 6583": 6582.88}
NEAR = 6.0              # pixels from where the solution has a line
HALF = 1.6              # Angstrom to each side of a line that are added up


def offsets(seen: Seen, solution: Solution, lines: Sequence[float], near: float = NEAR) -> Array:
    """Pixels by which the brightest line near each of these lies beside it, one for every order that shows it."""
    found = []
    for fibre, expected in enumerate(rows_of(solution, np.array(lines))):
        for row in expected[np.isfinite(expected)]:
            close = np.flatnonzero((seen.fibre == fibre) & (np.abs(seen.row - row) < near))
            if len(close):
                found.append(float(seen.row[close[seen.light[close].argmax()]] - row))
    return np.array(found)


def beside(seen: Seen, solution: Solution) -> float:
    """How far the lines of deuterium are from where the solution has them, pixels: the median. Printed with it is what
    lines of other elements say, and what hydrogen would."""
    found = offsets(seen, solution, list(DEUTERIUM.values()))
    shift = float(np.median(found))
    print(f"  deuterium beside the solution: {' '.join(f'{value:+.2f}' for value in found)} pixels")
    for name, lines in OTHERS.items():
        other = offsets(seen, solution, lines)
        print(f"  {name} beside the solution: {len(other)} of {len(lines)} lines, mean {other.mean():+.2f}, rms about "
              f"deuterium's {np.sqrt(np.mean((other - shift)**2)):.2f} pixels")
    wrong = offsets(seen, solution, list(HYDROGEN.values()), 2 * NEAR)
    print(f"  hydrogen would be beside it: {' '.join(f'{value:+.2f}' for value in wrong)} pixels")
    return shift


def light_of(frame: Frame, wave: float, choice: int = 0) -> tuple[float, float]:
    """Electrons of a line, and their error, on the order where it is nearest to the middle (0), or next to that (1)."""
    own = np.asarray(frame.own_wave)
    fibre = int(np.argsort(np.abs(own.mean(axis=1) - wave))[choice])
    bins = np.flatnonzero(np.abs(own[fibre] - wave) < HALF)
    step = np.gradient(own[fibre])[bins]
    part = frame.flux[fibre][bins] * step
    return float(part.sum()), float(np.sqrt(np.sum(step**2 / np.maximum(frame.ivar[fibre][bins], 1e-30))))


def ratio(frames: Sequence[Frame], one: tuple[float, int],
          other: tuple[float, int]) -> tuple[Array, Array, float, float]:
    """The ratio of two lines (wavelength, choice of the order) in each frame, its error, scatter over the mean, and
    chi2 of a constant."""
    (a, da), (b, db) = (np.array([light_of(frame, *line) for frame in frames]).T for line in (one, other))
    values, error = a / b, np.abs(a / b) * np.hypot(da / a, db / b)
    mean = np.sum(values / error**2) / np.sum(error**-2)
    return values, error, float(np.std(values) / mean), float(np.sum(((values - mean) / error)**2))


def ratios(frames: Sequence[Frame]) -> dict[str, float]:
    """Each line of deuterium on one order against itself on the next, and pairs of lines of one ion: neither may
    change. Returns the scatter of each."""
    pairs = {f"{name} on two orders": ((DEUTERIUM[name], 1), (DEUTERIUM[name], 0)) for name in ("D-beta", "D-gamma")}
    pairs |= {name: ((one, 0), (other, 0)) for name, (one, other) in PAIRS.items()}
    pairs["D-gamma / D-beta"] = (DEUTERIUM["D-gamma"], 0), (DEUTERIUM["D-beta"], 0)
    scatter = {}
    for name, (one, other) in pairs.items():
        values, error, scatter[name], chi2 = ratio(frames, one, other)
        text = " ".join(f"{r:.4f}+-{e:.4f}" for r, e in zip(values, error, strict=True))
        print(f"  {name}: {text}; scatter {scatter[name]:.2%}, chi2 of a constant {chi2:.1f} of {len(values) - 1}")
    return scatter


def drift(frames: Sequence[Frame]) -> dict[str, Array]:
    """The light of lines of several ions in each frame, over the mean of the frames."""
    found = {}
    for name, wave in DRIFT.items():
        light, error = np.array([light_of(frame, wave) for frame in frames]).T
        found[name] = light / light.mean()
        print(f"  {name} over its mean: {' '.join(f'{value:.3f}' for value in found[name])} (+- "
              f"{np.mean(error) / light.mean():.3f})")
    return found


def widths(images: Sequence[Image], traces: Traces, solution: Solution, width: float) -> dict[str, Array]:
    """Sigma along the dispersion, pixels, of single lines on every order that shows them: (norder, nexposure)."""
    every = [seen_lines(image, traces, width) for image in images]
    found = {}
    for name, wave in WIDTHS.items():
        rows = rows_of(solution, np.array([wave]))[:, 0]
        table = np.full((len(rows), len(every)), np.nan)
        for k, seen in enumerate(every):
            for fibre in np.flatnonzero(np.isfinite(rows)):
                close = np.flatnonzero((seen.fibre == fibre) & (np.abs(seen.row - rows[fibre]) < NEAR / 2))
                if len(close):
                    table[fibre, k] = seen.sigma[close[seen.light[close].argmax()]]
        found[name] = table[np.isfinite(table).all(axis=1)]
        text = "; ".join(" ".join(f"{value:.2f}" for value in row) for row in found[name])
        print(f"  sigma of {name}, pixels: {text}")
    return found
