#!/usr/bin/env python3
"""A night with Parsl: every preproc image of a folder becomes a frame.

usage: night_with_parsl.py NIGHT FRAMES [--workers N] [-- options of gpu_extract]

NIGHT: folder with preproc-{camera}-{expid}.fits(.gz) and psf-{camera}-{expid}.fits; FRAMES: folder for the frames.
Existing frames are skipped. A frame that fails does not stop the others; the exit code is then 1. On a cluster, replace
the LocalProvider of the Config by a SlurmProvider with the site's account and queue.
"""
import argparse
import sys
from pathlib import Path

import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider


@parsl.bash_app
def extract(image, psf, frame, more=(), stderr=None):
    """The command that makes a frame, which gpu_extract writes completely or not at all."""
    import shlex

    return "OMP_NUM_THREADS=1 " + shlex.join(["gpu_extract", "-i", image, "-p", psf, "-o", frame, *more])


def main() -> int:
    """Start all frames, wait for them, and report failures."""
    words, _, options = " ".join(sys.argv[1:]).partition(" -- ")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("night", type=Path)
    parser.add_argument("frames", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args(words.split())
    night, frames = args.night.resolve(), args.frames.resolve()         # workers have their own folders
    frames.mkdir(parents=True, exist_ok=True)
    local = HighThroughputExecutor(label="local", max_workers_per_node=args.workers, address="127.0.0.1",
                                   provider=LocalProvider(init_blocks=1, max_blocks=1))
    failed = 0
    with parsl.load(Config(executors=[local], run_dir=str(frames / "parsl"), retries=0)):
        started = {}
        for image in sorted(night.glob("preproc-*.fits*")):
            name = image.name.split(".fits")[0].removeprefix("preproc-")
            frame = frames / f"frame-{name}.fits"
            if not frame.exists():
                log = str(frames / f"frame-{name}.log")
                started[name] = extract(str(image), str(night / f"psf-{name}.fits"), str(frame), more=options.split(),
                                        stderr=(log, "w")), log
        for name, (future, log) in started.items():
            if future.exception() is not None:
                failed += 1
                said = Path(log).read_text(encoding="utf-8").splitlines() if Path(log).exists() else []
                print(f"{name}: {said[-1] if said else future.exception()}", file=sys.stderr)
    print(f"{len(started)} frames started, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
