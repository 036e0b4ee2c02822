"""Does a run end, and end well, whatever process of it gets whatever signal, at whatever stage?

usage: kills.py [--kills 200] [--seed 1] [--slurm pmi2|pmix] [--table] [--smallest]

Each time gpu_extract works on a small simulated frame on three ranks, and halts for a moment where one of them comes
to a stage (test/ranks/faulty.py): then a process of the run gets a signal: the launcher, hydra's proxy (Open MPI has
none on the launcher's own node; to Slurm's only root may send signals), a rank's keeper or a rank. Good is: all of them
are gone within 30 s, the exit code is one that doc/mpi.md states, the output is the old one or complete, no temporary
file and no shared memory is left after the next run, and that has the bits of an undisturbed one. SIGSTOP is sent to
keepers and ranks, and to all together, with SIGCONT twelve seconds later: then the run must go on to its end.

The launcher is that of this Python's MPI (use an environment's own Python for the other MPI), or srun of a Slurm that
is started for it. --table: every process x signal once, at the stage "extract", in place of random ones.
A line for each kill; then what was seen by process and signal, and how many were good.
"""
import contextlib
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "test" / "slurm"))
from parsing import parser_of
from strikes import LIMIT, PHASES, RANKS, SIGNALS, WHO, Job, Kill, strike

from ranks import ENVIRONMENT, datasums, is_used, launcher, sums_of

SUSPENDED = 12.0            # seconds that a whole job is suspended: longer than a rank alone may be stopped
OLD = b"the old frame"
# what may be the exit code: 75 where a signal that asks for an end came to the program or was passed on, 4 where a
# process was lost; else the launcher's own way to say that it or one of its processes was killed
ASKED, LOST, DONE = {75}, {4}, {0}            # 0: where the signal came to a rank whose work was done
OWN = {"mpiexec.hydra": {9, 255, -1, -9}, "mpiexec": {1, 137, -9}, "srun": {137, 143, -1, -9}}
# who does not heed it: the run goes on
DEAF = {("mpiexec.hydra", "proxy", "TERM"), ("mpiexec.hydra", "proxy", "INT"), ("srun", "launcher", "INT")}


def allowed(job: Job, kill: Kill) -> set[int]:
    """Exit codes that are right."""
    if kill.who == "all":
        return {0}
    name = Path(job.launch[0]).name
    if (name, kill.who, kill.signal) in DEAF:
        return {0}
    if kill.signal == "STOP" and kill.who == "keeper":
        return LOST | {0}                    # woken where its rank had come to its end before
    if kill.signal == "STOP" or (kill.who == "rank" and kill.signal == "KILL"):
        return LOST
    if kill.who in ("rank", "keeper") and kill.signal != "KILL":
        return ASKED | DONE
    return OWN[name] | ASKED | LOST


def once(job: Job, kill: Kill, parent: Path) -> tuple[str, bool] | None:
    """One kill: what came of it, and whether all was as it must be; None where there is no such process."""
    with tempfile.TemporaryDirectory(dir=parent, prefix="kill") as name:
        folder = Path(name) / "out"
        folder.mkdir()
        output = folder / "frame.fits"
        output.write_bytes(OLD)
        before = segments()
        struck = strike(job, kill, folder, SUSPENDED)
        if struck is None:
            return None
        code, seconds, said = struck
        state = "old" if output.read_bytes() == OLD else "whole" if sums_of(output) == job.whole else "BROKEN"
        left, memory = len(list(folder.iterdir())) - 1, segments() - before
        rerun = subprocess.run(job.command(output, None), env=ENVIRONMENT, check=False, capture_output=True).returncode
        same = rerun == 0 and sums_of(output) == job.whole
        remains = memory & segments()
        clean = [path.name for path in folder.iterdir()] == ["frame.fits"] and not remains
    # a run that goes on takes what its work takes
    good = (seconds <= LIMIT or code == 0) and code in allowed(job, kill) and same and clean
    good = good and state in (("whole",) if code == 0 else ("old", "whole"))
    lines = [line for line in said.splitlines() if line.startswith("gpu_extract: error: ")]
    return (f"{kill.who} {kill.number} {kill.signal} at {kill.phase} of rank {kill.halts}: code {code}, gone in "
            f"{seconds:.1f} s, {state}, {left} files and {len(memory)} segments left, rerun "
            f"{'same' if same else 'DIFFERENT'}{'' if clean else f', NOT CLEAN {remains}'}; "
            f"{' | '.join(lines)[:160]}"), good


BEFORE: set[Path] = set()


def segments() -> set[str]:
    """MPI's shared memory and our records of it that were not there before, and that nobody uses."""
    folder = Path("/dev/shm")
    kinds = ("mpich_*", "sm_segment.*", "osc_sm.*", "gpu_extract.*")
    return {path.name for kind in kinds for path in folder.glob(kind) if path not in BEFORE and not is_used(path)}


def plan(chance: random.Random, kills: int, *, table: bool, proxy: bool) -> Iterator[Kill]:
    """The kills, at random or one of each kind; proxy: whether there is one."""
    known = [who for who in WHO if proxy or who != "proxy"]
    if table:
        for who in known:
            for name in SIGNALS if who in ("keeper", "rank") else SIGNALS[:-1]:
                yield Kill(who, name, "extract", 0, 0 if who in ("launcher", "proxy") else 1)
        yield Kill("all", "STOP", "extract", 0, 0)
        return
    for _ in range(kills):
        who = chance.choice((*known, "keeper", "keeper", "rank", "rank", "all"))
        name = "STOP" if who == "all" else chance.choice(SIGNALS if who in ("keeper", "rank") else SIGNALS[:-1])
        yield Kill(who, name, chance.choice(PHASES), chance.randrange(RANKS),
                   chance.randrange(RANKS) if who in ("keeper", "rank") else 0)


@contextlib.contextmanager
def launching(slurm: str | None, folder: Path) -> Iterator[tuple[tuple[str, ...], dict[str, str]]]:
    """The words that start the ranks, and the environment for it."""
    if slurm is None:
        yield tuple(launcher(RANKS)), ENVIRONMENT
        return
    from cluster import Cluster

    (folder / "slurm").mkdir()
    with Cluster(folder / "slurm") as cluster:
        yield ("srun", f"--mpi={slurm}", "-n", str(RANKS)), {**ENVIRONMENT, **cluster.variables}


def report(seen: dict[tuple[str, str], list[tuple[int, float, bool]]]) -> None:
    """A line for each process and signal: how many, exit codes, the longest time, good ones."""
    print(f"\n{'process':9} {'signal':6} {'kills':>5} {'good':>5} {'longest':>8}  codes")
    for (who, name), found in sorted(seen.items()):
        codes = ", ".join(f"{code} x{sum(c == code for c, _, _ in found)}" for code in sorted({c for c, _, _ in found}))
        print(f"{who:9} {name:6} {len(found):5} {sum(g for _, _, g in found):5} {max(s for _, s, _ in found):6.1f} s  "
              f"{codes}")


def main() -> int:
    """Kill, and count."""
    parser = parser_of(__doc__, kills=200, seed=1, table=False)
    parser.add_argument("--slurm", choices=("pmi2", "pmix"))
    args = parser.parse_args()
    from gpu_extract.simulate import SimConfig, simulate, write_simulation

    for number in (signal.SIGINT, signal.SIGHUP):    # what nohup ignores is ignored by all that it starts
        signal.signal(number, signal.SIG_DFL)
    BEFORE.update(Path("/dev/shm").iterdir())
    seen: dict[tuple[str, str], list[tuple[int, float, bool]]] = {}
    with tempfile.TemporaryDirectory() as name, launching(args.slurm, Path(name)) as (launch, environment):
        folder = Path(name)
        job = Job(launch, environment, folder / "image.fits", folder / "psf.fits", {})
        write_simulation(simulate(SimConfig(camera="tiny", seed=11)), job.image, psf=job.psf)
        subprocess.run(job.command(folder / "whole.fits", None), env=ENVIRONMENT, check=True)
        job.whole.update(datasums(folder / "whole.fits"))
        number = 0
        for kill in plan(random.Random(args.seed), 1 if args.smallest else args.kills, table=args.table,
                         proxy="hydra" in launch[0]):
            result = once(job, kill, folder)
            if result is None:
                print(f"  - there is no {kill.who} here", flush=True)
                continue
            said, good = result
            number += 1
            print(f"{number:3d} {'good' if good else 'BAD '} {said}", flush=True)
            words = said.split("code ")[1].split(",")[0], said.split("gone in ")[1].split(" ")[0]
            seen.setdefault((kill.who, kill.signal), []).append((int(words[0]), float(words[1]), good))
    report(seen)
    total, right = sum(map(len, seen.values())), sum(g for found in seen.values() for _, _, g in found)
    print(f"{right}/{total} good, bar {total}/{total}: {'reached' if right == total else 'NOT REACHED'}")
    return 0 if right == total else 1


if __name__ == "__main__":
    sys.exit(main())
