"""Where the time of a bundle goes, kernel by kernel, and how near the stages come to what the processor can do.

usage: kernels.py [--image FILE --psf FILE] [--repeat 7] [--only WORD] [--smallest]

The bundle of bundle.py (25 fibres, 2326 bins, one thread, warm). First table: the stages' arithmetic, counted on paper
(gpu_perf.work, and for the spots: 2 nj ni nx + 2 nj ny nx + 2 npar ncoef for the sum of terms, 100 + 4 terms
for each pixel edge), the rate it is done at and its share of the rate of a 2000x2000 dgemm of the same run; where
stages wait for memory, the bytes they must move at least, against a copy of 80 MB. Second table: every compiled kernel
that is called from Python, calls and best time. Timing the kernels costs 1 us a call.
"""
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import numpy as np
from bundle import problem, yardsticks
from numba.core.dispatcher import Dispatcher
from parsing import parser_of

from gpu_extract.cli.performance import problem as problem_of
from gpu_extract.config import ExtractConfig
from gpu_extract.data import PsfModel
from gpu_extract.perf import clock
from gpu_extract.perf.record import parse_run, whole
from gpu_extract.perf.recorder import Recorder
from gpu_extract.run import extract
from gpu_perf.work import work_of

STAGES = ("normal", "solve", "quality", "decorrelate")
COPY = 10_000_000       # float64 of the copy
FACTORY = type(functools.cache(lambda: None))       # of kernels that are written out for some half-band


class Timers:
    """Puts a timer around every kernel wherever Python calls it by its module's name."""

    def __init__(self) -> None:
        self.calls: dict[str, list[float]] = {}
        self._made: dict[int, Any] = {}
        for name, module in list(sys.modules.items()):
            if name.startswith("gpu_extract.") and ".simd_" in name:
                for key, kernel in list(vars(module).items()):
                    if not key.startswith("_") and isinstance(kernel, (Dispatcher, FACTORY)):
                        setattr(module, key, self._timed(f"{name.rsplit('.', 1)[1]}.{key}", kernel))

    def _timed(self, name: str, kernel: Any) -> Any:
        """The kernel with a timer, or, of a factory, what makes kernels with timers; one for each kernel."""
        if id(kernel) not in self._made:
            if isinstance(kernel, Dispatcher):
                self._made[id(kernel)] = self._around(name, kernel)
            else:
                self._made[id(kernel)] = functools.cache(lambda *sizes: self._made_by(name, kernel, sizes))
        return self._made[id(kernel)]

    def _made_by(self, name: str, factory: Any, sizes: tuple[Any, ...]) -> Any:
        """A factory's kernel with a timer; other cached results, such as tables, as they are."""
        made = factory(*sizes)
        return self._around(f"{name}{sizes}", made) if callable(made) else made

    def _around(self, name: str, kernel: Any) -> Callable[..., Any]:
        @functools.wraps(kernel)
        def call(*args: Any) -> Any:
            start = clock.now()
            result = kernel(*args)
            self.calls.setdefault(name, []).append(clock.now() - start)
            return result
        return call


def spots_flop(psf: PsfModel, config: ExtractConfig, bins: float) -> float:
    """Operations of making `bins` spots."""
    ny, nx = psf.stamp
    total = 0.0
    for core in psf.cores:
        nj, ni, _, ncoef = core.gh.coeff.shape
        total += 2 * nj * ni * nx + 2 * nj * ny * nx + 2 * nj * ni * ncoef
        total += (ny + nx + 2) * 100 + 4 * ((ny + 1) * nj + (nx + 1) * ni)
    return bins * total


def copy_rate() -> float:
    """Bytes a second, read and written, of a copy within memory: best of five."""
    source, target = np.ones(COPY), np.ones(COPY)
    times = []
    for _ in range(5):
        start = clock.now()
        np.copyto(target, source)
        times.append(clock.now() - start)
    return 2 * source.nbytes / min(times)


def main() -> int:
    """Measure and print."""
    parser = parser_of(__doc__, image=None, psf=None, repeat=7)
    parser.add_argument("--core", default="auto", choices=("auto", "banded"))
    parser.add_argument("--only", metavar="WORD", default="", help="kernels with this in their names, however short")
    args = parser.parse_args()
    size = 500 if args.smallest else 2000
    image, psf, config = problem(args)
    frame = extract(image, psf, config)
    yardsticks(size, Recorder())
    stages: list[dict[str, float]] = []
    for _ in range(2 if args.smallest else args.repeat):
        recorder = Recorder()
        yardsticks(size, recorder)
        extract(image, psf, config, recorder=recorder)
        stages.append({name: recorder.seconds(name) for name in ("dgemm", *STAGES)})
    best = {name: min(s[name] for s in stages) for name in stages[0]}
    peak, copy = 2.0 * size**3 / best["dgemm"], copy_rate()
    facts = {"config": config.as_dict(), "problem": problem_of(frame, psf)}
    work = work_of(parse_run(whole([recorder.record()], facts)))
    print(f"dgemm {size}: {peak / 1e9:.1f} GFlop/s; copy: {copy / 1e9:.1f} GB/s")
    print(f"{'stage':12s} {'ms':>7s} {'GFlop':>7s} {'GFlop/s':>8s} {'of dgemm':>9s} {'MB':>7s} {'of copy':>8s}")
    for name in STAGES:
        flop = work[name].flop + (spots_flop(psf, config, frame.flux.size) if name == "normal" else 0.0)
        nbytes = (work[name].nbytes or 0.0) + (4.0 * frame.flux.size * np.prod(psf.stamp) if name == "normal" else 0.0)
        rate, moved = flop / best[name], nbytes / best[name]
        print(f"{name:12s} {1e3 * best[name]:7.1f} {flop / 1e9:7.3f} {rate / 1e9:8.1f} {rate / peak:9.0%} "
              f"{nbytes / 1e6:7.1f} {moved / copy:8.0%}")
    timers, tables = Timers(), []
    for _ in range(2 if args.smallest else args.repeat):
        timers.calls.clear()
        extract(image, psf, config)
        tables.append({name: (len(times), sum(times)) for name, times in timers.calls.items()})
    print(f"\n{'kernel':32s} {'calls':>5s} {'ms':>7s} {'ns a bin':>9s}")
    kernels = {name: (table[name][0], min(t[name][1] for t in tables if name in t))
               for table in tables for name in table}
    for name, (calls, seconds) in sorted(kernels.items(), key=lambda k: -k[1][1]):
        if args.only in name and (args.only or seconds > 2e-4):
            print(f"{name:32s} {calls:5d} {1e3 * seconds:7.2f} {1e9 * seconds / frame.flux.size:9.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
