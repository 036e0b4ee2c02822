"""How S decays beside the CCD's edge, and what windows make of a z frame's bundle.

usage: windows.py [--repeat 3] [--figure FILE] [--smallest]

Simulated bundles of 25 fibres: r and z (whose wanted range ends at the CCD's edge), and both with a dead amplifier,
broken fibres and 1 % of all pixels masked. Prints
- for z the correlation of neighbouring fibres and the decay of what neighbours take from S (U, its diagonal scaled to
  1) in the last bins of a fibre and elsewhere; --figure: as a picture (needs matplotlib)
- the time of the decorrelation without and with windows, in u (a 2000x2000 float64 dgemm on one core of the same run),
  how many fibres left the narrow band, and how far the two results are apart, in sigma.
CPU seconds, best of the repeats.
"""
import os
import sys
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import numpy as np
from cameras import WORSE
from parsing import parser_of
from yardstick import cpu_seconds, unit

from gpu_extract import solve as solver
from gpu_extract.bundle import locate, make_normal
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Array, Decorrelated, Normal, Status
from gpu_extract.decorrelate import banded
from gpu_extract.decorrelate.limits import Limits
from gpu_extract.decorrelate.narrow.coupling import Couplings
from gpu_extract.decorrelate.wide import simd_wide_eliminate
from gpu_extract.figures.canvas import BLUE, ORANGE, new_figure, save
from gpu_extract.io.presets import presets
from gpu_extract.kernels.arena import Arena
from gpu_extract.perf.recorder import NULL
from gpu_extract.ranks.comm import SERIAL
from gpu_extract.run import prepare
from gpu_extract.simulate import Defects, SimConfig, simulate

FIBRE, REACH, EDGE = 8, 60, 5
CASES = (("z", "dark", "usual", Defects()), ("z", "bright", "many", WORSE), ("r", "dark", "usual", Defects()),
         ("r", "bright", "many", WORSE))
WITHOUT = banded.Options(limits=Limits(window=np.inf))


def bundle(camera: str, program: str, defects: Defects, bins: int | None) -> tuple[Normal, Array, slice]:
    """Normal equations, x and the wanted bins of a simulated bundle; bins: so many at the red end of the range."""
    first, last, step = presets()[f"desi-{camera}"].wavelength
    wave = (first if bins is None else last - bins * step, last, step)
    made = simulate(SimConfig(camera=camera, nspec=25, program=program, truth_grid=wave, defects=defects, crop=True))
    job = prepare(made.psf, ExtractConfig(wave, nspec=25))
    _, normal = make_normal(job, locate(made.image, job, job.plan.bundles[0]), group=SERIAL, recorder=NULL)
    solution = solver.solve(normal)
    return replace(normal, strengths=solution.strengths, lifted=solution.lifted), solution.x, job.plan.inner


def decay(normal: Normal) -> tuple[Array, Array, Array]:
    """(reach + 1,) largest scaled elements of U by diagonal, in the last bins with weight and elsewhere; and a pair's
    correlations."""
    icov, hw = normal.icov, normal.halfband
    band = np.zeros((icov.shape[2], REACH + 1))
    others = np.array([j for j in range(FIBRE - 4, FIBRE + 5) if j != FIBRE])
    simd_wide_eliminate.eliminate(band, icov, FIBRE, others, REACH)
    diagonal = icov[FIBRE, 0, :, hw]
    roots = np.divide(1.0, np.sqrt(diagonal), out=np.zeros_like(diagonal), where=diagonal > 0)
    last = int(np.nonzero(diagonal)[0][-1]) + 1
    scaled = np.zeros((REACH + 1, last))
    for a in range(REACH + 1):
        scaled[a, :last - a] = np.abs(band[:last - a, a]) * roots[:last - a] * roots[a:last]
    columns = np.arange(last) + np.arange(REACH + 1)[:, None]        # of the element in row j, diagonal a
    edge = np.where((columns >= last - EDGE) & (columns < last), scaled, 0.0).max(axis=1)
    middle = np.where(columns < last - EDGE - REACH, scaled, 0.0).max(axis=1)
    correlation = Couplings(normal, np.zeros(icov.shape[::2]), 1.0, 0, Arena()).correlations(1)
    return edge, middle, correlation[FIBRE, :last]


def compare(normal: Normal, x: Array, bins: slice, u: float, repeat: int) -> str:
    """Time and paths without and with windows, and how far apart the results are."""
    results, text = [], []
    for options in (WITHOUT, banded.Options()):
        def work(options: banded.Options = options) -> Decorrelated:
            return banded.decorrelate(normal, x, (0, len(x)), ndiag=5, bins=bins, options=options)
        results.append(work())
        left = int((results[-1].status == Status.WIDE_BAND).any(axis=1).sum())
        text.append(f"{cpu_seconds(work, repeat) / u:8.2f} u {left:3d} wide")
    seen = results[0].ivar > 0
    sigma = np.abs(results[1].flux - results[0].flux)[seen] * np.sqrt(results[0].ivar[seen])
    return "".join(text) + f"   flux {sigma.max():.1e}, median {np.median(sigma):.1e}"


def draw(file: str, edge: Array, middle: Array, hw: int) -> None:
    """The decay as a picture."""
    figure = new_figure(6.4, 3.6)
    axes = figure.subplots()
    axes.semilogy(edge, color=ORANGE, label="last five bins on the CCD")
    axes.semilogy(middle, color=BLUE, label="elsewhere")
    axes.axvspan(0, hw, color="0.92", lw=0)
    widest = hw + max(Limits().widen)
    axes.axvline(widest, color="0.4", ls=":", lw=1)
    axes.annotate("half-band of icov", (0.4, 3e-11), color="0.35", fontsize=8)
    axes.annotate("widest narrow band", (widest + 0.6, 3e-3), color="0.35", fontsize=8)
    axes.set(xlabel="distance, bins", ylabel="what neighbours take from S, diagonal 1", xlim=(0, REACH),
             ylim=(1e-11, 1e-1))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    save(figure, file)


def show(normal: Normal, figure: str | None) -> None:
    """The decay as a table, and as a picture."""
    edge, middle, correlation = decay(normal)
    print(f"correlation with the next fibre: median {np.median(correlation):.1e}, largest in the last {EDGE} bins "
          f"{correlation[-EDGE:].max():.1e}, elsewhere {correlation[:-EDGE - REACH].max():.1e}")
    print("U, diagonal scaled to 1, at distance" + "".join(f"{a:9d}" for a in range(0, REACH + 1, 10)))
    for name, values in (("last bins", edge), ("elsewhere", middle)):
        print(f"{name:36s}" + "".join(f"{values[a]:9.0e}" for a in range(0, REACH + 1, 10)))
    if figure:
        draw(figure, edge, middle, normal.halfband)


def main() -> int:
    """Measure and print."""
    args = parser_of(__doc__, repeat=3, figure=None).parse_args()
    repeat = 1 if args.smallest else args.repeat
    u = unit(repeat)
    for n, (camera, program, name, defects) in enumerate(CASES[-1:] if args.smallest else CASES):
        normal, x, bins = bundle(camera, program, defects, 60 if args.smallest else None)
        if n == 0:
            show(normal, args.figure)
            print("camera program defects  without windows       with windows         apart, sigma")
        print(f"{camera:6s} {program:7s} {name:7s}{compare(normal, x, bins, u, repeat)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
