"""What does watching cost: one span, all spans of a frame, and a run with the recorder against one without?

usage: recorder.py [--pairs 20] [--nspec 50] [--smallest]

1. The wall and the CPU time of a span, from loops of 2000, best and median of 200.
2. The spans of the extraction of a simulated r frame, times the median wall time, against the time of the extraction.
3. Pairs of extractions in one process, with the recorder and without it, in alternating order; the mean of
   log(with / without) with its 95 % confidence interval from Student's distribution.

Exit code 1 if a span costs more than 3 us at best (other work on the machine makes the median longer) or the spans more
than 0.5 % of the extraction; --smallest does not judge.
"""
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import numpy as np
from parsing import parser_of
from scipy.special import stdtrit

from gpu_extract.config import ExtractConfig
from gpu_extract.perf import clock
from gpu_extract.perf.recorder import NULL, Recorder
from gpu_extract.run import extract
from gpu_extract.simulate import NO_DEFECTS, SimConfig, simulate

SPAN, SHARE = 3e-6, 0.005


def span_costs(count: int, repeats: int) -> np.ndarray:
    """Wall and CPU seconds of a span in each repeat: (2, repeats)."""
    found = []
    for _ in range(repeats):
        recorder = Recorder()
        start, used = clock.now(), clock.cpu()
        for _ in range(count):
            with recorder.span("span"):
                pass
        found.append(((clock.now() - start) / count, (clock.cpu() - used) / count))
    return np.array(found).T


def timed(made: object, config: ExtractConfig, recorder: object) -> float:
    """Wall seconds of one extraction."""
    start = clock.now()
    extract(made.image, made.psf, config, recorder=recorder)     # type: ignore[attr-defined]
    return clock.now() - start


def main() -> int:
    """Measure, print, judge."""
    args = parser_of(__doc__, pairs=20, nspec=50).parse_args()
    grid = (5760.0, 7620.0, 0.8)
    if args.smallest:
        args.pairs, args.nspec, grid = 3, 25, (5760.0, 5800.0, 0.8)
    costs, cpu = span_costs(2000, 5 if args.smallest else 200)
    print(f"a span: {1e6 * costs.min():.2f} us at best, {1e6 * np.median(costs):.2f} us median; "
          f"CPU {1e6 * cpu.min():.2f} and {1e6 * np.median(cpu):.2f} us")
    made = simulate(SimConfig(camera="r", nspec=args.nspec, crop=True, defects=NO_DEFECTS))
    config = ExtractConfig(grid, nspec=args.nspec)
    timed(made, config, NULL)
    recorder = Recorder()
    seconds = timed(made, config, recorder)
    spans = len(recorder.record()["spans"])
    share = spans * float(np.median(costs)) / seconds
    print(f"{args.nspec} fibres: {spans} spans in {seconds:.3f} s, {100 * share:.4f} % of it")
    logs = []
    for pair in range(args.pairs):
        order = (Recorder(), NULL) if pair % 2 else (NULL, Recorder())
        times = {type(r): timed(made, config, r) for r in order}
        logs.append(np.log(times[Recorder] / times[type(NULL)]))
    mean, error = float(np.mean(logs)), float(np.std(logs, ddof=1) / np.sqrt(len(logs)))
    reach = float(stdtrit(len(logs) - 1, 0.975)) * error
    print(f"with / without in {len(logs)} pairs: {100 * np.expm1(mean):+.2f} % "
          f"({100 * np.expm1(mean - reach):+.2f} to {100 * np.expm1(mean + reach):+.2f} %, 95 % confidence)")
    return int(not args.smallest and (float(costs.min()) > SPAN or share > SHARE))


if __name__ == "__main__":
    sys.exit(main())
