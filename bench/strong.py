"""Strong scaling of the compute part: one frame on n ranks, against n independent jobs at once.

usage: strong.py [--ranks 2] [--nspec 500] [--repeat 5] [--smallest]

Starts itself under mpiexec. By turns, all ranks extract one frame together, then each of them the whole frame for
itself, all at the same time: those share cores, caches and memory as the ranks of one frame do, so that what is lost is
lost to the parallel program. efficiency = seconds of the independent jobs / (ranks x seconds together); reading and
writing are not in it, planning, exchange, gathering and assembling are. The median over the repeats has the bar 0.95.
"""
import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from gpu_extract.config import ExtractConfig
from gpu_extract.perf import clock
from gpu_extract.perf.recorder import Recorder
from gpu_extract.ranks.comm import SERIAL, Comm, get_comm
from gpu_extract.run import extract
from gpu_extract.simulate import SimConfig, simulate

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
from parsing import parser_of

from ranks import launcher

BAR = 0.95


def timed(comm: Comm, group: Comm, work: tuple[object, object, ExtractConfig]) -> tuple[float, dict[str, float]]:
    """Seconds until all ranks have done it, and those of this rank's outer stages."""
    recorder = Recorder()
    comm.barrier()
    start = clock.now()
    extract(*work, comm=group, recorder=recorder)      # type: ignore[arg-type]
    mine = clock.now() - start
    everyone = comm.gather([(comm.rank, mine)])
    return max(everyone or [mine]), {name: recorder.seconds(name) for name in ("plan", "bundle", "gather", "assemble")}


def work(args: argparse.Namespace) -> int:
    """On every rank: measure; rank 0 prints."""
    comm = get_comm(True)
    camera, grid = ("tiny", (6030.0, 6080.0, 0.8)) if args.smallest else ("r0", (5760.0, 7620.0, 0.8))
    with comm.together():
        made = comm.share(lambda: simulate(SimConfig(camera=camera, nspec=args.nspec)))
        task = made.image, made.psf, ExtractConfig(grid, nspec=args.nspec)
        timed(comm, comm, task)
        timed(comm, SERIAL, task)
        rows = []
        for _ in range(args.repeat):
            shared, stages = timed(comm, comm, task)
            apart, _ = timed(comm, SERIAL, task)
            rows.append((shared, apart, apart / (comm.size * shared), stages))
            comm.release()
    if comm.rank == 0:
        print(f"{args.nspec} fibres, {comm.size} ranks")
        print(" together   apart  efficiency  rank 0: plan  bundles   gather assemble")
        for shared, apart, efficiency, stages in rows:
            print(f"{shared:9.3f}{apart:8.3f}{efficiency:12.3f}{stages['plan']:14.3f}{stages['bundle']:9.3f}"
                  f"{stages['gather']:9.3f}{stages['assemble']:9.3f}")
        median = statistics.median(row[2] for row in rows)
        print(f"efficiency, median: {median:.3f}, bar >= {BAR}: {'reached' if median >= BAR else 'NOT REACHED'}")
        return 0 if median >= BAR or args.smallest else 1
    return 0


def main() -> int:
    """Start the ranks, or be one of them."""
    parser = parser_of(__doc__, ranks=2, nspec=500, repeat=5)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.smallest:
        args.nspec, args.repeat = 10, 1
    if args.rank:
        return work(args)
    command = [*launcher(args.ranks), sys.executable, __file__, *sys.argv[1:], "--rank"]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
