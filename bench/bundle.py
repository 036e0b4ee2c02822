"""What does one bundle cost, stage by stage, in units of a dgemm of the same run?

usage: bundle.py [--image FILE --psf FILE] [--core auto|banded|dense] [--repeat 5] [--against CHECKOUT] [--smallest]

One bundle of 25 fibres, 2326 bins (5760 to 7620 Angstrom in steps of 0.8), one thread, everything from the image in
memory to flux, ivar, R, chi2pix and mask. Without files a simulated r frame is used. u is the time of a 2000x2000
float64 dgemm on one core, measured between the repeats; best of each. Two extractions follow each dgemm: the first
finds the caches full of its matrices, and memory given back that it has to ask for again ("after dgemm"); the other
one follows a bundle, as 19 of 20 in a frame do. A fixed banded Cholesky in numba (20000 x 8 bands, no library in it)
is a second yardstick, for machines whose BLAS differs. The flop are counted on paper (doc/performance.md): products of
the overlapping spots, pole sums, spots.

--against: instead, this tree and another checkout by turns, each in a process of its own that works when it is asked:
milliseconds of CPU, medians of the repeats and the median of the ratios of turns next to each other, which other work
on the machine disturbs less. Give the files then: the simulators may differ.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import process_time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import numpy as np
from numba import njit
from parsing import parser_of

from gpu_extract.config import ExtractConfig
from gpu_extract.data import Image, PsfModel
from gpu_extract.io.image import read_image
from gpu_extract.io.psf import read_psf
from gpu_extract.perf.recorder import NULL, Recorder, peak_memory
from gpu_extract.run import extract
from gpu_extract.simulate import SimConfig, simulate

STAGES = ("plan", "cut", "normal", "solve", "decorrelate", "quality", "assemble")


@njit
def banded_cholesky(band: np.ndarray) -> float:
    """The yardstick: factorise a banded matrix (n, half + 1) in place, return the last pivot."""
    n, width = band.shape
    half = width - 1
    for j in range(n):
        for m in range(max(0, half - j), half):
            total = band[j, m]
            for k in range(max(0, half - j), m):
                total -= band[j, k] * band[j - half + m, k + half - m]
            band[j, m] = total / band[j - half + m, half]
        pivot = band[j, half]
        for k in range(max(0, half - j), half):
            pivot -= band[j, k] * band[j, k]
        band[j, half] = np.sqrt(pivot)
    return band[n - 1, half]


def yardsticks(size: int, recorder: Recorder) -> None:
    """Run both yardsticks once."""
    matrix = np.random.default_rng(1).random((size, size))
    band = np.full((20000, 9), 0.05)
    band[:, 8] = 1.0
    with recorder.span("dgemm"):
        matrix @ matrix
    with recorder.span("cholesky"):
        banded_cholesky(band)


def problem(args: argparse.Namespace) -> tuple[Image, PsfModel, ExtractConfig]:
    """Image, PSF and settings."""
    last = 5840.0 if args.smallest else 7620.0
    config = ExtractConfig((5760.0, last, 0.8), nspec=25, core=args.core)
    if args.image:
        return read_image(args.image), read_psf(args.psf), config
    made = simulate(SimConfig(camera="r", nspec=25, crop=True))
    return made.image, made.psf, config


def seconds(recorder: Recorder, names: tuple[str, ...]) -> dict[str, float]:
    """What each of these took."""
    return {name: recorder.seconds(name) for name in names}


class CpuTimes(type(NULL)):  # type: ignore[misc]
    """A recorder of CPU milliseconds by span."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    def span(self, name: str) -> AbstractContextManager[None]:        # type: ignore[override]
        """Add what runs under it."""
        return self._timed(name)

    @contextmanager
    def _timed(self, name: str):  # type: ignore[no-untyped-def]
        begin = process_time()
        yield
        self.spent[name] = self.spent.get(name, 0.0) + 1e3 * (process_time() - begin)


def work_when_asked(args: argparse.Namespace) -> None:
    """One extraction, and a line of its times, for every line of the standard input."""
    image, psf, config = problem(args)
    for _ in range(3):
        extract(image, psf, config)
    print("ready", flush=True)
    for _ in sys.stdin:
        extract(image, psf, config)        # the first after a pause finds cold caches
        times = CpuTimes()
        with times.span("all"):
            extract(image, psf, config, recorder=times)
        print(json.dumps(times.spent), flush=True)


def compare(other: Path, args: argparse.Namespace) -> None:
    """This tree and another one by turns."""
    command = [sys.executable, __file__, "--worker", "--core", args.core, *(["--smallest"] * args.smallest)]
    command += ["--image", args.image, "--psf", args.psf] if args.image else []
    workers = [subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(tree / "py")}, text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
               for tree in (Path(__file__).resolve().parents[1], other)]

    def hear(worker: "subprocess.Popen[str]") -> str:
        assert worker.stdout is not None
        line = worker.stdout.readline()
        if not line:
            sys.exit(f"bundle.py: a tree does not work (exit code {worker.wait()})")
        return line

    def ask(worker: "subprocess.Popen[str]") -> dict[str, float]:
        print("go", file=worker.stdin, flush=True)
        return json.loads(hear(worker))

    for worker in workers:
        hear(worker)
    rounds = []
    for turn in range(args.repeat):
        order = workers if turn % 2 == 0 else workers[::-1]
        found = [ask(worker) for worker in order]
        rounds.append(found if turn % 2 == 0 else found[::-1])
    for worker in workers:
        worker.communicate()
    print(f"CPU ms        this    other   more   ratio   (medians of {args.repeat} turns)")
    for name in (*STAGES, "all"):
        one, two = ([turn[n].get(name, 0.0) for turn in rounds] for n in (0, 1))
        ratio = statistics.median(a / max(b, 1e-9) for a, b in zip(one, two, strict=True))
        more = statistics.median(a - b for a, b in zip(one, two, strict=True))
        print(f"{name:12s} {statistics.median(one):6.1f} {statistics.median(two):8.1f} {more:+6.1f} {ratio:7.3f}")


def best(times: list[dict[str, float]]) -> dict[str, float]:
    """The shortest of each."""
    return {name: min(t[name] for t in times) for name in times[0]}


def main() -> int:
    """Measure and print."""
    parser = parser_of(__doc__, image=None, psf=None, repeat=5)
    parser.add_argument("--core", default="auto", choices=("auto", "banded", "dense"))
    parser.add_argument("--against", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work_when_asked(args)
        return 0
    if args.against:
        compare(args.against.resolve(), args)
        return 0
    size = 500 if args.smallest else 2000
    image, psf, config = problem(args)
    extract(image, psf, config)
    yardsticks(size, Recorder())
    yards, first, second = [], [], []
    for _ in range(args.repeat):
        recorder = Recorder()
        yardsticks(size, recorder)
        yards.append(seconds(recorder, ("dgemm", "cholesky")))
        for times in (first, second):
            recorder = Recorder()
            with recorder.span("all"):
                frame = extract(image, psf, config, recorder=recorder)
            times.append(seconds(recorder, (*STAGES, "all")))
    yard, after, warm = best(yards), best(first), best(second)
    u = yard["dgemm"]
    print(f"dgemm {size}: {1e3 * u:.1f} ms = u ({2e-9 * size**3 / u:.1f} GFlop/s); "
          f"banded Cholesky: {1e3 * yard['cholesky']:.2f} ms")
    print("stage             ms        u   after dgemm")
    for name in (*STAGES, "all"):
        print(f"{name:12s} {1e3 * warm[name]:8.1f} {warm[name] / u:8.3f}"
              f" {1e3 * after[name]:8.1f} {after[name] / u:8.3f}")
    print(f"all / banded Cholesky {warm['all'] / yard['cholesky']:.1f}; bins {frame.flux.size}; "
          f"peak memory {peak_memory() / 1e9:.2f} GB; core {config.core}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
