"""A scaling sweep as a campaign: which points, by which commands, in which order.

A point is one way to run gpu_extract. Strong scaling keeps the frame and adds ranks; weak scaling gives each rank one
bundle. Every point writes the record of --perf for each repeat; campaign.py runs them interleaved and resumes.
"""
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

from gpu_extract.errors import InputError, one_of
from gpu_perf.campaign import Command
from gpu_perf.shapes import count, fits, positive, text

MODES = ("strong", "weak")
CORES = ("auto", "banded", "dense")
SWITCHES = ("off", "on")
RECORDS, POINT = "records", "point"
PROGRAM = sys.executable, "-m", "gpu_extract.cli.extract"       # with this Python
_POINT = {"mode": text, "ranks": positive, "nspec": positive, "core": text, "tile": (count, None), "per_gpu": count,
          "mps": bool}


@dataclass(frozen=True)
class Point:
    """One way to run.

    nspec: fibres; tile: bins of a tile, or None for the default; per_gpu: ranks that share a GPU, 0 without GPUs
    mps: under the Multi-Process Service
    """

    mode: str
    ranks: int
    nspec: int
    core: str
    tile: int | None = None
    per_gpu: int = 0
    mps: bool = False

    @property
    def name(self) -> str:
        """For files and tables."""
        return "-".join([self.mode, self.core, *([f"t{self.tile}"] if self.tile else []),
                         *([f"g{self.per_gpu}"] if self.per_gpu else []), *(["mps"] if self.mps else []),
                         f"r{self.ranks}"])

    @property
    def series(self) -> tuple[Any, ...]:
        """The common part of the points of one curve: all but the ranks and what follows from them."""
        return self.mode, self.core, self.tile, self.per_gpu, self.mps

    @property
    def label(self) -> str:
        """The name of its curve."""
        words = [self.mode, self.core, *([f"tiles of {self.tile}"] if self.tile else [])]
        if self.per_gpu:
            words += [f"{self.per_gpu} per GPU", "MPS" if self.mps else "no MPS"]
        return ", ".join(words)

    @property
    def gpus(self) -> int:
        """GPUs that the point uses."""
        return -(-self.ranks // self.per_gpu) if self.per_gpu else 0


@dataclass(frozen=True)
class Space:
    """The space of a sweep: all combinations. nspec: fibres of strong scaling; bundle: fibres of one bundle.

    Raises InputError, one line with every problem.
    """

    modes: Sequence[str] = MODES
    ranks: Sequence[int] = (1, 2)
    cores: Sequence[str] = ("auto",)
    tiles: Sequence[int | None] = (None,)
    per_gpu: Sequence[int] = (0,)
    mps: Sequence[str] = ("off",)
    nspec: int = 500
    bundle: int = 25

    def __post_init__(self) -> None:
        names = (("mode", self.modes, MODES), ("core", self.cores, CORES), ("mps", self.mps, SWITCHES))
        wrong = [one_of(what, name, known) for what, given, known in names for name in given if name not in known]
        wrong += [f"ranks {n}: must be 1 or more" for n in self.ranks if n < 1]
        wrong += [f"tiles of {t} bins: must be 8 or more" for t in self.tiles if t is not None and t < 8]
        wrong += [f"{n} ranks per GPU: must be 0 or more" for n in self.per_gpu if n < 0]
        wrong += [f"{what} is {n}: must be 1 or more" for what, n in (("nspec", self.nspec), ("bundle", self.bundle))
                  if n < 1]
        if wrong:
            raise InputError("; ".join(wrong))

    def points(self) -> list[Point]:
        """All points; MPS only for points that use a GPU."""
        found = [Point(mode, ranks, self.nspec if mode == "strong" else self.bundle * ranks, core, tile, per,
                       mps == "on")
                 for mode, core, tile, per, mps, ranks in product(self.modes, self.cores, self.tiles, self.per_gpu,
                                                                  self.mps, sorted(set(self.ranks)))
                 if per or mps == "off"]
        return list(dict.fromkeys(found))


# $1: the job's name, $2: its record, $3: its output; the rest submits it and waits. A job outlives the sbatch that
# waits for it: one left by a killed sweep is cancelled, and so is this one if the sweep ends it. For some cancelled
# jobs the exit code of sbatch is 0
_JOB = """\
name=$1 record=$2 output=$3
shift 3
leave() {
    if [ -f "$output" ]; then cat "$output" >&2; rm -f "$output"; fi
    exit "$1"
}
scancel --name="$name"
rm -f "$record"
trap 'scancel --name="$name"; leave 143' HUP INT TERM
"$@" --job-name="$name" --output="$output" --wait &
wait $! || leave $?
[ -s "$record" ] && leave 0
echo "the job ended without a record: it was cancelled, or its node failed" >&2
leave 1
"""


@dataclass(frozen=True)
class Launch:
    """How ranks are started. program: mpiexec, srun, sbatch or none; words: of the launcher; mps_wrapper: the command
    that runs its arguments under MPS, or empty"""

    program: str
    words: tuple[str, ...] = ()
    mps_wrapper: tuple[str, ...] = ()

    def command(self, point: Point, program: Sequence[str], record: Path) -> tuple[str, ...]:
        """The command that runs a program, which writes a record, at a point. Raises InputError if it cannot run."""
        wrapped = (*(self.mps_wrapper if point.mps else ()), *program)
        if point.mps and not self.mps_wrapper:
            raise InputError("--mps on needs mps_wrapper, which was not found: install the programs, or leave --mps "
                             "out")
        if self.program == "none":
            if point.ranks > 1:
                raise InputError(f"{point.ranks} ranks need a launcher: give --launcher mpiexec, srun or sbatch")
            return wrapped
        count = str(point.ranks)
        if self.program == "mpiexec":
            return (*self.words, "-n", count, *wrapped)
        gpus = (f"--gpus-per-node={point.gpus}",) if point.gpus else ()
        if self.program == "srun":
            return (*self.words, "-n", count, *gpus, *wrapped)
        line = shlex.join(("srun", "-n", count, *wrapped))
        place = sha256(str(record.resolve()).encode()).hexdigest()
        name, output = f"gpu_sweep-{place[:16]}-{point.name}", record.with_suffix(".log")
        return ("sh", "-c", _JOB, "sh", name, str(record), str(output), *self.words, f"--ntasks={count}", *gpus,
                f"--wrap={line}")


def commands(points: Sequence[Point], folder: Path, launch: Launch, program: Sequence[str], *,
             options: Sequence[str] = (), timeout: float | None = None) -> list[Command]:
    """The campaign's commands. program: words that start gpu_extract; options: its further options."""
    found = []
    for point in points:
        record = folder / RECORDS / f"{point.name}.{{repeat}}.json"
        words = [*program, "-n", str(point.nspec), "--core", point.core,
                 *(["--tile", str(point.tile)] if point.tile else []), "--gpu" if point.per_gpu else "--no-gpu",
                 *options, "-o", str(folder / RECORDS / f"{point.name}.fits"), "--perf", str(record)]
        argv = launch.command(point, words, record)
        if point.per_gpu and launch.program in ("mpiexec", "none"):
            devices = ",".join(str(n) for n in range(point.gpus))
            argv = ("env", f"CUDA_VISIBLE_DEVICES={devices}", *argv)
        found.append(Command(point.name, argv, timeout=timeout, facts={POINT: asdict(point)}))
    return found


def point_of(facts: Mapping[str, Any]) -> Point:
    """The point that a campaign's outcome belongs to. Raises InputError where it belongs to no sweep."""
    try:
        if fits(facts[POINT], _POINT):
            return Point(**facts[POINT])
    except (KeyError, TypeError):
        pass
    raise InputError("this campaign is not a sweep: give a folder of gpu_sweep run")
