"""Does an exposure survive that a rank of it is killed, at any moment?

usage: exposure_kills.py [--kills 50] [--seed 1] [--smallest]

Each time: 2 to 4 ranks in a random number of groups work on eight small simulated frames; after a random part of the
time that such a run takes, start-up included, one rank gets SIGKILL. Counted as good: all ranks are gone within 30 s,
the exit code is not 0, no file under a final name is broken or wrong, a rerun completes with the DATASUMs of the frames
that one process makes, and no temporary file is left. A line for each kill, then how many were good.
"""
import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from astropy.io import fits

from gpu_extract.perf import clock

sys.path.insert(0, str(Path(__file__).resolve().parent))
from exposure import PROGRAM, launcher

LIMIT = 30.0
OPTIONS = ("--camera", "tiny", "-w", "6012,6098,0.4", "--no-gpu", "--loglevel", "error")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def processes(folder: Path) -> dict[int, int]:
    """Python processes that work on a folder, with their parents."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if str(folder).encode() in words and os.path.basename(words[0]).startswith(b"python"):
            found[int(process.name)] = parent
    return found


def ranks_of(folder: Path) -> list[int]:
    """The ranks: those whose parent, the keeper, works on the same folder."""
    found = processes(folder)
    return sorted(pid for pid, parent in found.items() if parent in found)


def datasums(folder: Path) -> dict[str, list[str]]:
    """DATASUMs of all frames of a folder, computed from the data."""
    sums = {}
    for path in sorted(folder.glob("frame-*.fits")):
        with fits.open(path) as hdus:
            sums[path.name] = [str(hdu._calculate_datasum()) for hdu in hdus]
            if sums[path.name] != [hdu.header["DATASUM"] for hdu in hdus]:
                sums[path.name] = ["broken"]
    return sums


def command(frames: int, folder: Path, ranks: int, groups: int) -> list[str]:
    """The exposure on so many ranks; 0: without a launcher."""
    launch = launcher(ranks) if ranks else []
    return [*launch, sys.executable, str(PROGRAM), "--simulate", str(frames), "-o", str(folder), *OPTIONS,
            "--groups", str(groups)]


def kill_once(chance: random.Random, frames: int, source: Path, whole: dict[str, list[str]]) -> tuple[str, bool]:
    """One kill: what happened, and whether all was as it must be."""
    ranks = chance.choice((2, 3, 4))
    groups, part = chance.randint(1, ranks), chance.random()
    with tempfile.TemporaryDirectory(dir=source.parent) as name:
        folder = Path(name)
        (folder / "simulated").symlink_to(source / "simulated")
        start = clock.now()
        process = subprocess.Popen(command(frames, folder, ranks, groups), env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE)
        while len(ranks_of(folder)) < ranks and process.poll() is None:
            clock.sleep(0.02)
        begun = clock.now() - start
        if part > 0.2:          # a fifth of the kills comes while it starts, the others where frames are done
            while not any(folder.glob("*frame-*")) and process.poll() is None:
                clock.sleep(0.02)
        clock.sleep(chance.random() * (2.0 if part > 0.2 else 4.0))
        there = ranks_of(folder)
        if not there:
            process.communicate()
            return "ended before it could be killed", True
        done = len(list(folder.glob("frame-*.fits")))
        os.kill(chance.choice(there), signal.SIGKILL)
        struck = clock.now()
        try:
            process.communicate(timeout=4 * LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
        while processes(folder) and clock.now() - struck < 2 * LIMIT:
            clock.sleep(0.05)
        gone = clock.now() - struck
        left = datasums(folder)
        sound = all(whole[name] == sums for name, sums in left.items())
        rerun = subprocess.run(command(frames, folder, 0, 1), env=ENVIRONMENT, check=False).returncode
        same = datasums(folder) == whole
        clean = not [path for path in folder.iterdir() if path.name.startswith(".")]
        good = gone <= LIMIT and process.returncode not in (0, None) and sound and rerun == 0 and same and clean
        return (f"{ranks} ranks, {groups} groups, {done} frames after {struck - start:.1f} s (start {begun:.1f}): "
                f"code {process.returncode}, gone in {gone:.1f} s, {'sound' if sound else 'BROKEN'}, rerun {rerun} "
                f"{'same' if same else 'DIFFERENT'}{'' if clean else ', TEMPORARY FILES LEFT'}"), good


def main() -> int:
    """Kill, and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--smallest", action="store_true")
    args = parser.parse_args()
    frames, kills = (3, 1) if args.smallest else (8, args.kills)
    chance = random.Random(args.seed)
    before = set(Path("/dev/shm").glob("mpich_shm_*"))
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "whole"
        subprocess.run(command(frames, source, 0, 1), env=ENVIRONMENT, check=True)
        whole = datasums(source)
        good = 0
        for number in range(kills):
            said, right = kill_once(chance, frames, source, whole)
            good += right
            print(f"{number + 1:3d} {'good' if right else 'BAD '} {said}", flush=True)
            for path in set(Path("/dev/shm").glob("mpich_shm_*")) - before:      # MPI's own leavings
                path.unlink(missing_ok=True)
    print(f"{good}/{kills} good, bar {kills}/{kills}: {'reached' if good == kills else 'NOT REACHED'}")
    return 0 if good == kills else 1


if __name__ == "__main__":
    sys.exit(main())
