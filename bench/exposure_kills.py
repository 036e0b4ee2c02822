"""Does an exposure survive that a rank of it is killed, at any moment?

usage: exposure_kills.py [--kills 50] [--seed 1] [--smallest]

Each time: 2 to 4 ranks in a random number of groups work on eight small simulated frames; at a random moment, while
they start or after a random number of frames, one rank gets SIGKILL. (Where they are done before, it is tried again.)
Good is: all ranks are gone within 30 s, the exit code is not 0, no file under a final name is broken or wrong, a rerun
completes with the DATASUMs of the frames that one process makes, and no temporary file is left. A line for each kill,
then how many were good.
"""
import os
import random
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gpu_extract.perf import clock

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
from parsing import parser_of

from ranks import ENVIRONMENT, is_used, launcher, processes_with, program, ranks_of, sums_of

LIMIT = 30.0
STARTS = 0.2          # share of the kills that comes while the ranks start
OPTIONS = ("--camera", "tiny", "-w", "6012,6098,0.4", "--no-gpu", "--loglevel", "error")
Sums = dict[str, dict[str, str]]


@dataclass(frozen=True)
class Kill:
    """When one rank is killed, of how many: seconds after the first ranks are there, or after so many frames."""

    ranks: int
    groups: int
    frames: int | None
    seconds: float


@dataclass(frozen=True)
class Struck:
    """What a kill did: frames there at that moment, exit code, seconds until all ranks were gone."""

    done: int
    code: int | None
    gone: float


def plan(chance: random.Random, frames: int) -> Kill:
    """A kill at random."""
    ranks = chance.choice((2, 3, 4))
    groups = chance.randint(1, ranks)
    if chance.random() < STARTS:
        return Kill(ranks, groups, None, 3.0 * chance.random())
    return Kill(ranks, groups, chance.randrange(frames), 0.5 * chance.random())


def all_sums(folder: Path) -> Sums:
    """DATASUMs of all frames of a folder; nothing for one that is broken."""
    return {path.name: sums_of(path) for path in sorted(folder.glob("frame-*.fits"))}


def command(frames: int, folder: Path, ranks: int, groups: int) -> list[str]:
    """The exposure on so many ranks; 0: without a launcher."""
    return [*launcher(ranks), *program("gpu_extract_exposure"), "--simulate", str(frames), "-o", str(folder), *OPTIONS,
            "--groups", str(groups)]


def strike(kill: Kill, victim: random.Random, frames: int, folder: Path) -> Struck | None:
    """Start the exposure, kill a rank, wait for the end; None where it had ended before."""
    with subprocess.Popen(command(frames, folder, kill.ranks, kill.groups), env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as process:
        def wait(there: object) -> None:
            while process.poll() is None and not there():       # type: ignore[operator]
                clock.sleep(0.01)

        wait(lambda: len(ranks_of(str(folder))) == kill.ranks)
        if kill.frames is not None:
            wait(lambda: len(list(folder.glob("frame-*.fits"))) >= kill.frames)
        clock.sleep(kill.seconds)
        done, ranks = len(list(folder.glob("frame-*.fits"))), ranks_of(str(folder))
        try:
            os.kill(victim.choice(ranks), signal.SIGKILL)
        except (IndexError, ProcessLookupError):
            return None
        struck = clock.now()
        try:
            process.wait(4 * LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
        while processes_with(str(folder)) and clock.now() - struck < 2 * LIMIT:
            clock.sleep(0.05)
        return Struck(done, process.returncode, clock.now() - struck)


def kill_once(chance: random.Random, frames: int, source: Path, whole: Sums) -> tuple[str, bool]:
    """One kill: what happened, and whether all was as it must be."""
    struck = None
    while struck is None:
        kill = plan(chance, frames)
        with tempfile.TemporaryDirectory(dir=source.parent) as name:
            folder = Path(name)
            (folder / "simulated").symlink_to(source / "simulated")
            struck = strike(kill, chance, frames, folder)
            if struck is None:
                continue
            sound = all(whole[name] == sums for name, sums in all_sums(folder).items())
            rerun = subprocess.run(command(frames, folder, 0, 1), env=ENVIRONMENT, check=False).returncode
            same = all_sums(folder) == whole
            clean = not [path for path in folder.iterdir() if path.name.startswith(".")]
    when = f"{kill.seconds:.2f} s after " + ("the start" if kill.frames is None else f"frame {kill.frames}")
    good = struck.gone <= LIMIT and struck.code not in (0, None) and sound and rerun == 0 and same and clean
    return (f"{kill.ranks} ranks, {kill.groups} groups, {when}: {struck.done} frames, code {struck.code}, gone in "
            f"{struck.gone:.1f} s, {'sound' if sound else 'BROKEN'}, rerun {rerun} {'same' if same else 'DIFFERENT'}"
            f"{'' if clean else ', TEMPORARY FILES LEFT'}"), good


def main() -> int:
    """Kill, and count."""
    args = parser_of(__doc__, kills=50, seed=1).parse_args()
    frames, kills = (3, 1) if args.smallest else (8, args.kills)
    chance = random.Random(args.seed)
    before = set(Path("/dev/shm").glob("mpich_shm_*"))
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "whole"
        subprocess.run(command(frames, source, 0, 1), env=ENVIRONMENT, check=True)
        whole = all_sums(source)
        good = 0
        for number in range(kills):
            said, right = kill_once(chance, frames, source, whole)
            good += right
            print(f"{number + 1:3d} {'good' if right else 'BAD '} {said}", flush=True)
            for path in set(Path("/dev/shm").glob("mpich_shm_*")) - before:      # MPI's own leavings
                if not is_used(path):                                            # other runs may be at work here
                    path.unlink(missing_ok=True)
    print(f"{good}/{kills} good, bar {kills}/{kills}: {'reached' if good == kills else 'NOT REACHED'}")
    return 0 if good == kills else 1


if __name__ == "__main__":
    sys.exit(main())
