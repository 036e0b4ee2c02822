"""What does a frame cost on a GPU, and is it the CPU's frame? One command, nothing to prepare, at most 8 minutes.

usage: gpu_frame.py [--rows NAMES] [--limit 470] [--save FOLDER] [--profile FOLDER] [--nspec 500] [--frames 20]
                    [--ranks 1,8] [--cases NAMES] [--case r-dark-usual] [--problems FOLDER] [--smallest] [--simulated]

A ladder. Each row is printed and saved as it is found; what fails is said in its row, and the rest goes on. The first
step is that of `gpu_extract --device-check`: where that breaks, the ladder ends. Rows, in their order:

check      the steps of gpu_extract --device-check, and what copies and float64 products reach on this device
frame      a frame of 500 fibres from host arrays to host arrays: the first one (kernels are compiled or loaded), the
           second (are graphs captured, and if not, why), warm ones, fibres left to the CPU; ms by stage of the host;
           step by step those of the device, and the copies' rates
kernels    time of each kernel by events, one slot, one after the other; the device is busy while they are queued, so
           that the host's time does not count. The table of all goes to the folder of --save
bits       the frame against itself: as a graph, replayed, in other pieces, slots, types, on 4 ranks
cases      b, r, z, dark, bright, usual defects, many (bench/cameras.py): cold, warm, left to the CPU, differences
           against the CPU in bins that no flag calls weak. Processes beside the rest simulate these frames and extract
           them on the CPU, as many as there are cores; they are stopped while anything is timed. A fifth of the time
           is left to the rows behind
passes     --passes 2: warm frames, and the differences of one bundle from the CPU's, which is made beside nothing
speed      one CPU thread, on some bundles of the frame, while nothing else runs
ranks      processes that share the device, with and without MPS
command    gpu_extract --gpu on the embedded frame, the second of two runs                        (needs astropy)
files      gpu_extract_exposure on 30 frames, files to files, one rank, and as many as --ranks says (needs astropy)

--rows frame,kernels   these rows alone: what a second run needs after a change
--limit SECONDS        the whole bench ends by then, whatever hangs
--save FOLDER          report.txt and tables of kernels
--profile FOLDER       in place of rows: a warm piece under ncu (duration, memory, warps, FP64 pipe, registers, its
                       first --launches 450 launches), and the frame of the device check under compute-sanitizer
                       (memcheck, initcheck), where these tools are on the PATH; tables go to the folder
--case NAME            the frame of all rows but `cases`
--problems FOLDER      where simulated frames and those of the CPU are kept and found again; without it they are made
                       anew. Who changes what the CPU computes gives another folder
--smallest             a small camera
--simulated            the same on the simulated device: shows that the bench works. Its times mean nothing; the
                       differences of --cases b-dark-usual --nspec 25 are those of a GPU

The exit code is 1 where the device fails its check or a frame is wrong, 3 where the time was over; slow frames are not
wrong. Without a GPU it says so, checks a frame of 2 fibres and 5 bins on the simulated device, and ends with exit
code 0.
"""
import argparse
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Timer
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "py"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))

import gpu_programs
import gpu_rows
from gpu_cases import EMBEDDED, Cases, names
from gpu_checks import open_backend, open_simulated, small_check
from gpu_rows import Bench, Stopped
from host_text import compiler

from gpu_extract.perf import clock


class Bar(NamedTuple):
    """A row that has to reach something: what it is, the bar, in words and as a number, at least or at most."""

    what: str
    words: str
    bar: float
    least: bool = False
    far: str = ""

    def verdict(self, value: float | None) -> str:
        """Whether it is reached, where that is known."""
        if value is None:
            return ""
        return "reached" if (value >= self.bar if self.least else value <= self.bar) else "MISSED"


BARS = {
    "frame": Bar("r frame, 500 fibres, host to host, warm, one rank", "<= 0.05 s", 0.05, far="0.02 s"),
    "frame z": Bar("z frame, the same", "<= 0.06 s", 0.06),
    "left": Bar("fibres left to the CPU, usual frames", "0", 0),
    "left many": Bar("the same, many defects", "<= 1 %", 0.01),
    "speed": Bar("r frame against one CPU thread", ">= 30 times", 30, least=True),
    "overlap": Bar("copy time overlapped by kernels, step by step", ">= 80 %", 0.8, least=True, far="95 %"),
    "ranks": Bar("8 ranks sharing the GPU, against 1 rank", "MPS >= 1", 1, least=True),
    "command": Bar("gpu_extract --gpu, embedded frame, whole command, warm", "<= 4 s", 4),
    "hour": Bar("frames per GPU-hour, 30 frames, files to files", ">= 7200", 7200, least=True),
    "cpu": Bar("GPU against CPU, 99.9 % of the bins", "1e-8 sigma; ivar, R 1e-9", 1),
    "most": Bar("the same, the largest", "1e-6", 1e-6),
    "bits": Bar("graphs, pieces, slots, types, 4 ranks", "the same bits", 0),
}
WRONG = "cpu", "most", "bits"       # rows that say that a frame is wrong
PLAIN = {"first": "first frame, kernels compiled or loaded", "second": "second frame, captured",
         "host stages": "host ms by stage", "steps": "warm frame step by step", "host steps": "host ms, step by step",
         "device stages": "device ms by stage, step by step, slots side by side", "h2d": "up", "d2h": "down",
         "memory": "device memory", "passes": "two passes",
         "kernels": "kernels one after the other", "check": "device check",
         "ceilings": "measured ceilings"}
ROWS: dict[str, tuple[Callable[[Bench], None], ...]] = {
    "check": (gpu_rows.check, gpu_rows.ceilings), "frame": (gpu_rows.frames,), "kernels": (gpu_rows.kernels,),
    "bits": (gpu_rows.bits,), "cases": (gpu_rows.all_cases,), "passes": (gpu_rows.two_passes,),
    "speed": (gpu_rows.speed,),
    "ranks": (gpu_programs.ranks,), "command": (gpu_programs.command,), "files": (gpu_programs.files,)}


class Report:
    """Rows in the order in which they were found, and the time that is left.

    wrong: whether a frame is; values: of rows that have a bar
    """

    def __init__(self, limit: float = 470.0, folder: Path | None = None) -> None:
        self._began, self.limit, self._folder = clock.now(), limit, folder
        self.rows: dict[str, str] = {}
        self.values: dict[str, float] = {}
        self.wrong = False
        self.keep("report.txt", [])

    def left(self) -> float:
        """Seconds."""
        return self.limit - (clock.now() - self._began)

    def say(self, name: str, found: str, value: float | None = None) -> None:
        """Set a row, print and save it at once: who stops the bench keeps what was found. value: held against the
        bar."""
        self.rows[name] = found
        if value is not None:
            self.values[name] = value
            self.wrong |= name in WRONG and BARS[name].verdict(value) == "MISSED"
        what = BARS[name].what if name in BARS else PLAIN.get(name, name)
        self._tell(f"[{self.limit - self.left():5.0f} s] {what}: {found}")

    def attempt(self, name: str, work: Callable[[], object], needs: float = 0.0) -> None:
        """Do something for a row, if there is time; an error becomes the row."""
        if self.left() < needs:
            self.say(name, "not measured: no time was left")
            return
        try:
            work()
        except Stopped:
            raise
        except Exception as error:
            traceback.print_exc()
            said = " ".join(str(error).split())[:300]
            self.say(name, f"failed: {type(error).__name__}: {said}")

    def table(self) -> None:
        """The rows that have a bar."""
        lines = [("what", "found", "bar", "", "moonshot")]
        lines += [(bar.what, self.rows.get(name, "not measured"), bar.words, bar.verdict(self.values.get(name)),
                   bar.far) for name, bar in BARS.items()]
        widths = [max(len(line[n]) for line in lines) for n in range(5)]
        self._tell("\n".join(["", *("  ".join(f"{text:{w}s}" for text, w in zip(line, widths, strict=True)).rstrip()
                                    for line in lines)]))

    def keep(self, file: str, lines: Sequence[str]) -> None:
        """A file in the folder of what is saved, if there is one."""
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / file).write_text("".join(f"{line}\n" for line in lines))

    def _tell(self, text: str) -> None:
        print(text, flush=True)
        if self._folder is not None:
            with (self._folder / "report.txt").open("a") as out:
                out.write(f"{text}\n")


def without_gpu(reason: str) -> int:
    """Say what there is to say without a GPU."""
    print(f"no GPU can be used here: {reason}")
    if compiler() is None:
        print("and no C++ compiler for the simulated device: nothing is checked")
        return 0
    found = small_check()
    print(f"2 fibres x 5 bins on the simulated device against the oracle: flux {found['flux']:.1e} sigma, ivar "
          f"{found['ivar']:.1e}, R {found['R']:.1e}; {len(found['launched'])} kernels launched")
    if not (found["flux"] < 1e-8 and found["ivar"] < 1e-9 and found["R"] < 1e-9):
        return 1
    Report().table()
    return 0


def measure(args: argparse.Namespace, tidy: Callable[[], None] = lambda: None) -> int:
    """The rows that are asked for, in their order. tidy: what is to be done at the end of all time."""
    report = Report(args.limit, args.profile or args.save)
    cases = Cases(args.problems, args.nspec, clock.now() + args.limit - 5)
    bench = Bench(report, open_simulated if args.simulated else open_backend, cases, args)

    def over() -> None:
        report.wrong = True
        report.say("limit", f"{args.limit:.0f} s are over")
        report.table()
        cases.close()
        tidy()
        os._exit(3)

    alarm = Timer(args.limit, over)
    alarm.daemon = True
    alarm.start()
    try:
        start(cases, args)
        if args.profile:
            gpu_programs.profile(bench)
        else:
            for name in args.rows:
                for row in ROWS[name]:
                    report.attempt(row.__name__ if name == "check" else name, lambda row=row: row(bench), args.margin)
    except Stopped as error:
        report.wrong = True
        report.say("check", f"FAILED, nothing else was measured: {error}")
    finally:
        alarm.cancel()
        cases.close()
    report.table()
    return int(report.wrong)


def start(cases: Cases, args: argparse.Namespace) -> None:
    """Have the frames made that the rows need."""
    cores, rows = max(len(os.sched_getaffinity(0)) - 2, 1), [] if args.profile else args.rows
    compared = args.cases if "cases" in rows else []
    cases.start([args.case], what="both" if args.case in compared else "frames", threads=-(-cores // 2))
    cases.start([name for name in compared if name != args.case], what="both", most=cores)
    if {"command", "files"} & set(rows) and not args.simulated:
        cases.start([EMBEDDED], what="frames")


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    listed = lambda text: text.split(",")      # noqa: E731
    parser.add_argument("--rows", type=listed, default=list(ROWS), metavar="NAMES")
    parser.add_argument("--limit", type=float, default=470.0, metavar="SECONDS")
    for name in ("save", "profile", "problems"):
        parser.add_argument(f"--{name}", type=Path, metavar="FOLDER")
    parser.add_argument("--nspec", type=int, default=500)
    parser.add_argument("--frames", type=int, default=20)
    parser.add_argument("--ranks", type=lambda text: [int(n) for n in text.split(",")], default=[1, 8])
    parser.add_argument("--cases", type=listed, default=names(), metavar="NAMES")
    parser.add_argument("--case", default="r-dark-usual", metavar="NAME")
    parser.add_argument("--launches", type=int, default=450)
    parser.add_argument("--smallest", action="store_true")
    parser.add_argument("--simulated", action="store_true")
    for name, kind in (("worker", Path), ("profiled", Path), ("sharing", int)):
        parser.add_argument(f"--{name}", type=kind, default=None if kind is Path else 1, help=argparse.SUPPRESS)
    args = parser.parse_args(words)
    if (args.smallest or args.simulated) and not (args.worker or args.profiled):      # what is given counts anyway
        parser.set_defaults(nspec=20, frames=2, ranks=[1, 2], case="tiny-dark-usual", cases=names(["tiny"])[::3])
        args = parser.parse_args(words)
    if unknown := [name for name in args.rows if name not in ROWS]:
        parser.error(f"--rows: {', '.join(unknown)}; there are {', '.join(ROWS)}")
    args.rows = [name for name in ROWS if name in args.rows]
    args.margin = min(10.0, args.limit / 20)      # seconds below which nothing is begun any more
    args.reserve = args.limit / 5 if args.rows[-1] != "cases" else args.margin     # and what cases leave to later rows
    return args


def main() -> int:
    """Check and measure."""
    args = parsed()
    os.environ["PYTHONPATH"] = f"{sys.path[1]}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".strip(os.pathsep)
    opened = open_simulated if args.simulated else open_backend
    if args.worker:
        return gpu_programs.worker(args, opened)
    if args.profiled:
        return gpu_programs.profiled(args, opened)
    from gpu_extract.cli.device import look_for_devices

    devices, reason = (1, "") if args.simulated else look_for_devices(always=True)
    if devices == 0:
        return without_gpu(reason)
    with tempfile.TemporaryDirectory() as folder:
        args.problems = args.problems or Path(folder)
        return measure(args, lambda: shutil.rmtree(folder, ignore_errors=True))


if __name__ == "__main__":
    raise SystemExit(main())
