"""Does gpu_psf fit ever write a PSF that looks fitted and is not? Random arcs with damage of all kinds.

usage: psf_search.py [--seed 0] [--count 300] [--only KIND] [--replay SEED] [--smallest]

Each seed is an arc of the camera tiny with one to three kinds of damage (bench/tools/psf_random.py), fitted by the
program. A find is a fibre that is said to be fitted (STATUS 0, its bundle's CHI2 below 2, ODD and PSFERR below 0.1,
from which on the program warns) and whose spots are not within a bound of the true ones, which noise and the number of
parameters give (bench/tools/psf_random.judged); or an error that is not one line with exit code 2 and no file. Prints
for each kind how many problems had a file, how many were refused, how many fibres had which STATUS, and the finds. The
exit code is 1 where there is any.
"""
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
from parsing import parser_of
from psf_random import KINDS, Verdict, run, scene_of


def search(seeds: range, only: str | None, folder: Path) -> list[tuple[int, list[str], Verdict]]:
    """Run the seeds; finds are printed as they come."""
    rows = []
    for seed in seeds:
        scene = scene_of(seed, only)
        verdict = run(scene, folder)
        rows.append((seed, scene.words, verdict))
        if verdict.finds:
            print(f"seed {seed} ({', '.join(scene.words)}): {'; '.join(verdict.finds[:4])}", flush=True)
    return rows


def table(rows: list[tuple[int, list[str], Verdict]]) -> None:
    """Outcomes by kind of damage."""
    print(f"{'kind':20s} problems refused fitted  fibres of status 0, 1, 2, 3   finds")
    for kind in KINDS:
        mine = [verdict for _, words, verdict in rows if kind in words]
        if mine:
            states = Counter(state for verdict in mine for state in verdict.states)
            refused = sum(verdict.code != 0 for verdict in mine)
            print(f"{kind:20s} {len(mine):8d} {refused:7d} {len(mine) - refused:6d}  "
                  + " ".join(f"{states[n]:6d}" for n in range(4)) + f"   {sum(bool(v.finds) for v in mine):6d}")
    finds = [seed for seed, _, verdict in rows if verdict.finds]
    print(f"{len(rows)} problems, {len(finds)} finds" + (f": seeds {', '.join(map(str, finds))}" if finds else ""))


def main() -> int:
    """Search and print."""
    parser = parser_of(__doc__, seed=0, count=300)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--replay", type=int)
    args = parser.parse_args()
    seeds = range(args.seed, args.seed + (8 if args.smallest else args.count))
    if args.replay is not None:
        seeds = range(args.replay, args.replay + 1)
    with tempfile.TemporaryDirectory() as folder:
        rows = search(seeds, args.only, Path(folder))
    if args.replay is not None:
        print(rows[0][1:])
    table(rows)
    return int(any(verdict.finds for _, _, verdict in rows))


if __name__ == "__main__":
    raise SystemExit(main())
