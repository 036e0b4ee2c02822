"""Does the time grow linearly with fibres and with bins?

usage: scaling.py [--repeat 3] [--plot FILE.png] [--smallest]

One process, simulated frames in memory. Fibres: 25 ... 500 of the r camera at 2326 bins. Bins: 500 ... 5000 of one
bundle, steps of 0.8 Angstrom, of a camera like r whose CCD is as long as 5000 bins need, and whose dispersion and PSF
are everywhere those of the middle of the range: what grows is the number of bins and nothing else. Prints seconds per
unit, the largest departure from the straight line through the points that departs least from them, relative to each,
and how many fibres left the narrow band, which costs them many times the others' time: none should.
"""
import os
import sys
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import numpy as np
from parsing import parser_of
from yardstick import cpu_seconds

from gpu_extract.config import ExtractConfig
from gpu_extract.data import Array, Frame, Image, Legendre, PsfModel, Status
from gpu_extract.run import extract
from gpu_extract.simulate import SimConfig, simulate
from gpu_extract.simulate.instrument import psf_model
from gpu_extract.spots import add_to_image, centres, make_spots

STEP, FIRST = 0.8, 5760.0      # Angstrom
AROUND = 100                   # bins before the first and behind the last that the long camera has light in
READ_NOISE = 2.7               # electron


def long_camera(bins: int) -> tuple[Image, PsfModel]:
    """One bundle of 25 fibres of a camera like r, with a CCD for so many bins from FIRST on."""
    like = psf_model("r")
    wmin, wmax = FIRST - AROUND * STEP, FIRST + (bins + AROUND) * STEP
    slope = like.y.coeff[:, 1].mean() / (like.y.wmax - like.y.wmin)     # half the pixels in an Angstrom

    def steady(series: Legendre) -> Legendre:
        coeff = np.zeros_like(series.coeff)
        coeff[..., 0] = series.coeff[..., 0]
        return Legendre(coeff, wmin, wmax)

    y = steady(like.y)
    y.coeff[:, 0] += slope * (wmax - wmin) - y.coeff[:, 0].mean()
    y.coeff[:, 1] = slope * (wmax - wmin)
    rows = int(2 * slope * (wmax - wmin)) + 1
    cores = tuple(replace(c, sigma_x=steady(c.sigma_x), sigma_y=steady(c.sigma_y), gh=steady(c.gh)) for c in like.cores)
    psf = replace(like, x=steady(like.x), y=y, cores=cores, shape=(rows, like.shape[1]))
    return image_of(psf, np.arange(wmin, wmax, STEP)), psf


def image_of(psf: PsfModel, wave: Array) -> Image:
    """A continuum with a bright line every 40 bins on average, in the first bundle of a camera, with noise."""
    random = np.random.default_rng(1)
    columns = int(centres(psf, (24, 25), wave)[1].max()) + 32
    light = np.zeros((psf.shape[0], columns))
    flux = random.uniform(20, 60, (25, 1)) + np.where(random.random(len(wave)) < 1 / 40, 3000.0, 60.0)
    for first in range(0, len(wave), 128):
        part = slice(first, first + 128)
        add_to_image(light, make_spots(psf, (0, 25), wave[part]), flux[:, part])
    variance = light + READ_NOISE**2
    pix = light + np.sqrt(variance) * random.standard_normal(light.shape)
    return Image(pix.astype(np.float32), (1 / variance).astype(np.float32))


def measure(image: Image, psf: PsfModel, config: ExtractConfig, repeat: int) -> tuple[float, int]:
    """Best CPU seconds of an extraction, and the fibres of it that left the narrow band."""
    frames: list[Frame] = []
    best = cpu_seconds(lambda: frames.append(extract(image, psf, config)), repeat)
    return best, int((frames[-1].status > Status.EMPTY).any(axis=1).sum())


def report(name: str, sizes: list[int], found: list[tuple[float, int]]) -> list[float]:
    """A table, and how straight the line is; returns the seconds."""
    times = [time for time, _ in found]
    line = np.polynomial.Polynomial.fit(sizes, times, 1, w=1 / np.array(times))
    print(f"{name:>8}  seconds  us per unit")
    for size, time in zip(sizes, times, strict=True):
        print(f"{size:8d} {time:8.3f} {1e6 * time / size:12.1f}")
    worst = max(abs(line(s) / t - 1) for s, t in zip(sizes, times, strict=True))
    print(f"largest departure from a straight line: {worst:.1%}; "
          f"fibres that left the narrow band: {sum(wide for _, wide in found)}")
    return times


def draw(path: str, series: dict[str, tuple[list[int], list[float]]]) -> None:
    """Each series (sizes, seconds) in a panel of its own, with a straight line fitted to it."""
    from gpu_extract.figures.canvas import new_figure, save, tidy

    figure = new_figure(4.2 * len(series), 3.4)
    for n, (name, (sizes, seconds)) in enumerate(series.items(), start=1):
        ax = figure.add_subplot(1, len(series), n)
        ends = np.array([0.0, max(sizes)])
        ax.plot(ends, np.polynomial.Polynomial.fit(sizes, seconds, 1)(ends), color="0.6", lw=1, label="straight line")
        ax.plot(sizes, seconds, "o", ms=5, label="measured")
        ax.set_xlim(0)
        ax.set_ylim(0)
        tidy(ax, xlabel=name, ylabel="CPU seconds")
        ax.legend(frameon=False, fontsize=8)
    save(figure, path)


def main() -> int:
    """Measure and print."""
    args = parser_of(__doc__, repeat=3, plot=None).parse_args()
    fibres, lengths = [25, 50, 100, 200, 350, 500], [500, 1000, 2000, 3500, 5000]
    grid = (FIRST, 7620.0, STEP)
    if args.smallest:
        fibres, lengths, grid, args.repeat = [25, 50], [50, 100], (FIRST, 5800.0, STEP), 1
    made = simulate(SimConfig(camera="r", nspec=max(fibres), crop=True))
    extract(made.image, made.psf, ExtractConfig(grid, nspec=25))
    by_fibres = report("fibres", fibres, [measure(made.image, made.psf, ExtractConfig(grid, nspec=n), args.repeat)
                                          for n in fibres])
    image, psf = long_camera(max(lengths))
    grids = [(FIRST, FIRST + STEP * (n - 1), STEP) for n in lengths]
    extract(image, psf, ExtractConfig(grids[-1], nspec=25))
    by_bins = report("bins", lengths, [measure(image, psf, ExtractConfig(grid, nspec=25), args.repeat)
                                       for grid in grids])
    if args.plot:
        draw(args.plot, {"fibres": (fibres, by_fibres), "bins": (lengths, by_bins)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
