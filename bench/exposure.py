"""Is reading and writing hidden behind the compute of an exposure, and are the cores kept busy?

usage: exposure.py [--frames 12] [--nspec 500] [--ranks 2] [--folder DIR] [--smallest]

Runs `gpu_extract_exposure --simulate` under mpiexec and reads its record (--perf). Rows, each with its bar:
  waiting     share of the time between the first input ready and the last result ready that ranks wait for files
  throughput  frames per second against what the CPU seconds that compute and I/O took in that time allow on the cores
              that the ranks have: how busy these cores were. Anything else that runs on the machine lowers it: what
              others took of its cores meanwhile stands above
Then the choice behind it: an extraction alone, with a thread that reads and writes all the time, and with a process
that does, by turns. --folder keeps the simulated images from one call to the next (2.5 GB for 12 frames).
"""
import argparse
import os
import subprocess
import sys
import tempfile
import threading
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from gpu_extract.config import ExtractConfig
from gpu_extract.io.frame import write_frame
from gpu_extract.io.image import read_image
from gpu_extract.io.psf import read_psf
from gpu_extract.perf import clock
from gpu_extract.run import extract

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
from exposures import judge, record
from parsing import parser_of

from ranks import launcher, program, used_by_others

WAITING, BUSY = 0.05, 0.9       # bars
SHORT = ("-w", "6030,6080,0.8")


def run(args: argparse.Namespace, folder: Path) -> bool:
    """The exposure; whether its bars are reached."""
    kept = folder / "perf.json"
    words = ["--simulate", str(args.frames), "--camera", args.camera, "-o", str(folder), "--recompute",
             "--perf", str(kept), "--loglevel", "warning", "--no-gpu"]
    command = [*launcher(args.ranks if args.ranks > 1 else 0), *program("gpu_extract_exposure"), *words]
    subprocess.run([*command, *args.fibres, *SHORT], check=True)       # makes the images, if they are not there
    before = used_by_others()
    subprocess.run([*command, *args.fibres, *args.options], check=True)
    others, whole = used_by_others(before)
    found = judge(record(kept), min(args.ranks, os.cpu_count() or 1))
    print(f"{args.frames} frames, {args.ranks} ranks: {found['seconds']:.1f} s from first input to last result, "
          f"{args.frames / found['seconds']:.3f} frames/s; CPU {found['cpu']:.1f} s, of it reading "
          f"{found['reading']:.1f}, writing {found['writing']:.1f}\nmeanwhile others took {100 * others / whole:.0f} % "
          "of the machine's cores")
    rows = [("waiting for files", found["waiting"], f"<= {WAITING}", found["waiting"] <= WAITING),
            ("throughput / what the CPU seconds allow", found["busy"], f">= {BUSY}", found["busy"] >= BUSY)]
    for name, value, bar, good in rows:
        print(f"{name:42} {value:7.3f}  bar {bar:8} {'reached' if good else 'NOT REACHED'}")
    for path in folder.glob("frame-*.fits"):
        path.unlink()
    return all(good for *_, good in rows)


def read_and_write(image: Path, frame: Any, output: Path, stop: Any) -> None:
    """Read an image and write a frame, over and over."""
    while not stop.is_set():
        read_image(image)
        write_frame(output, frame)


def compare(image: Path, folder: Path, grid: tuple[float, float, float], repeat: int) -> None:
    """Seconds of an extraction beside nothing, a thread, a process that read and write."""
    pixels, psf = read_image(image), read_psf(next(image.parent.glob("psf-*")))
    config = ExtractConfig(grid)
    frame = extract(pixels, psf, config)
    best = dict.fromkeys(("alone", "thread", "process"), float("inf"))
    fork = get_context("fork")
    for _ in range(repeat):
        for kind in best:
            stop = fork.Event() if kind == "process" else threading.Event()
            maker: Any = {"thread": threading.Thread, "process": fork.Process}.get(kind)
            beside = maker and maker(target=read_and_write, args=(image, frame, folder / "beside.fits", stop))
            if beside:
                beside.start()
            start = clock.now()
            extract(pixels, psf, config)
            best[kind] = min(best[kind], clock.now() - start)
            stop.set()
            if beside:
                beside.join()
    (folder / "beside.fits").unlink(missing_ok=True)
    print("an extraction beside endless reading and writing: " + ", ".join(
        f"{kind} {seconds:.2f} s ({seconds / best['alone']:.2f})" for kind, seconds in best.items()))


def main() -> int:
    """Measure and print."""
    args = parser_of(__doc__, frames=12, nspec=500, ranks=2, repeat=3, folder=None).parse_args()
    args.camera, grid = "r0", (5760.0, 7620.0, 0.8)
    args.options, args.fibres = [], [] if args.nspec == 500 else ["-n", str(args.nspec)]
    if args.smallest:
        args.camera, grid, args.frames, args.repeat = "tiny", (6030.0, 6080.0, 0.8), 3, 1
        args.options = SHORT
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(args.folder or scratch)
        folder.mkdir(exist_ok=True)
        good = run(args, folder)
        compare(next(folder.glob("simulated/*/preproc-*")), folder, grid, args.repeat)
    return 0 if good or args.smallest else 1


if __name__ == "__main__":
    sys.exit(main())
