"""How long does a simulated frame take, stage by stage, and where do its files' bytes go?

usage: simulate_frame.py [--camera r] [--nspec 500] [--threads 1,2] [--repeat 3] [--smallest]

Prints a table: seconds of each stage and of writing the three files (best of the repeats, kernels compiled
before), and CPU seconds of all of it, which other work on the machine disturbs less. The bits do not depend on
the threads: checked here as well. --smallest is a few fibres, once: to see that this still runs.
"""
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import numpy as np
from parsing import parser_of

from gpu_extract.perf.recorder import Recorder, peak_memory
from gpu_extract.simulate import SimConfig, simulate, write_simulation

STAGES = ("truth", "project", "noise", "defects", "write")


def measure(config: SimConfig, threads: int, folder: Path) -> tuple[dict[str, float], np.ndarray]:
    """Seconds by stage of one frame, and its pixels."""
    recorder = Recorder()
    made = simulate(config, threads=threads, recorder=recorder)
    with recorder.span("write"):
        write_simulation(made, folder / "image.fits", psf=folder / "psf.fits", truth=folder / "truth.fits")
    cpu = sum(span[4] for span in recorder.record()["spans"])
    return {**{stage: recorder.seconds(stage) for stage in STAGES}, "cpu": cpu}, made.image.pix


def main() -> int:
    """Measure and print."""
    args = parser_of(__doc__, camera="r", nspec=500, threads="1,2", repeat=3).parse_args()
    if args.smallest:
        args.camera, args.nspec, args.repeat = "tiny", 10, 1
    config = SimConfig(camera=args.camera, nspec=args.nspec)
    simulate(SimConfig(camera="tiny"))                  # compiles what is not yet in the cache
    print("threads  " + "  ".join(f"{stage:>8}" for stage in STAGES) + "       all       CPU  [s]")
    first = None
    with tempfile.TemporaryDirectory() as folder:
        for threads in (int(word) for word in args.threads.split(",")):
            times = []
            for _ in range(args.repeat):
                seconds, pix = measure(config, threads, Path(folder))
                times.append(seconds)
                first = pix if first is None else first
                if not np.array_equal(first, pix):
                    print("the pixels depend on the threads")
                    return 1
            best = {name: min(t[name] for t in times) for name in times[0]}
            print(f"{threads:7d}  " + "  ".join(f"{best[stage]:8.2f}" for stage in STAGES)
                  + f"  {sum(best[stage] for stage in STAGES):8.2f}  {best['cpu']:8.2f}")
        sizes = {path.name: path.stat().st_size for path in sorted(Path(folder).iterdir())}
    print("bytes: " + ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in sizes.items())
          + f"; memory {peak_memory() / 1e9:.2f} GB at most")
    return 0


if __name__ == "__main__":
    sys.exit(main())
