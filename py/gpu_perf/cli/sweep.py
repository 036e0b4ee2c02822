"""gpu_sweep: measures how the extraction scales."""
import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_extract.cli.common import (
    NAMES,
    NUMBERS,
    Parser,
    add_common_options,
    at_least,
    log,
    run_main,
    say,
    stop_when_asked,
)
from gpu_extract.errors import ExitCode, InputError

if TYPE_CHECKING:
    from gpu_perf.outcomes import Outcome
    from gpu_perf.sweep import Launch, Space

PROG, WARM_UP = "gpu_sweep", "warm-up-"
DESCRIPTION = """\
Run gpu_extract in many ways, repeatedly and interleaved, and report how it
scales: strong (a fixed frame on more ranks) and weak (one bundle per rank) over
ranks, ranks per GPU, MPS, cores and tiles."""

EPILOG = """\
examples
  gpu_sweep run out --ranks 1,2 --repeats 5
      strong and weak on this machine
  gpu_sweep run out --ranks 1,2,4,8 --per-gpu 1,2,4,8 --mps off,on
  gpu_sweep run out --launcher srun --launcher-options=--mpi=pmi2
  gpu_sweep run out --ranks 1,2 -- -i image.fits -p psf.fits -w 5760,7620,0.8
  gpu_sweep report out
      table, plots, report.html

A sweep that was stopped continues when the same command is started again.

exit codes
  0 done   1 a point failed   2 usage or input   3 output   4 internal error
  75 stopped cleanly, start again"""


def build_parser() -> Parser:
    """The parser of gpu_sweep."""
    parser = Parser(PROG, DESCRIPTION, EPILOG)
    add_common_options(parser)
    command = parser.commands()
    _run_options(command("run", "run the points that are missing, then report",
                         epilog="Options after -- are passed to gpu_extract in every run."))
    report = command("report", "print the table and plot the points that exist")
    report.add_argument("folder", metavar="FOLDER", help="folder of gpu_sweep run")
    _both(report)
    return parser


def _run_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="folder for records, table and plots; an interrupted sweep continues from it")
    add("--modes", type=NAMES, default="strong,weak", metavar="LIST", help="strong, weak or both (default both)")
    add("--ranks", type=NUMBERS, default="1,2", metavar="LIST", help="numbers of ranks (default 1,2)")
    add("--cores", type=NAMES, default="auto", metavar="LIST", help="cores: any of auto, banded, dense (default auto)")
    add("--tiles", type=NUMBERS, metavar="LIST", help="wavelength bins per tile (default: chosen by gpu_extract)")
    add("--per-gpu", type=NUMBERS, default="0", metavar="LIST", help="numbers of ranks that share a GPU; 0 (default) "
                                                                     "for no GPU")
    add("--mps", type=NAMES, default="off", metavar="LIST",
        help="use the Multi-Process Service (MPS): off (default), on, or off,on")
    add("-n", "--nspec", type=int, default=500, metavar="N", help="fibres of the frame in strong scaling (default 500)")
    add("--bundle", type=int, default=25, metavar="N", help="fibres of each rank in weak scaling (default 25)")
    add("--repeats", type=int, default=3, metavar="N", help="repeats of every point, interleaved (default 3)")
    add("--launcher", default="auto", metavar="NAME", choices=("auto", "mpiexec", "srun", "sbatch", "none"),
        help="mpiexec, srun, sbatch (one job per point), none, or auto (default): srun inside a Slurm job, else "
             "mpiexec")
    add("--launcher-options", default="", metavar="WORDS", help="options for the launcher, e.g. "
                                                                "--launcher-options=--mpi=pmi2")
    add("--timeout", type=float, metavar="T", help="end a point after this many seconds")
    add("--retry", action="store_true", help="repeat points that failed, were killed or timed out")
    add("--no-warm-up", dest="warm_up", action="store_false",
        help="skip the unmeasured first run, which compiles kernels and makes the simulated frame")
    _both(parser)


def _both(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--time", default="extract", metavar="WHAT", choices=("extract", "run", "command"),
        help="the time that efficiencies refer to: extract (default; the extraction with its communication), run (also "
             "start-up, reading and writing) or command (also the launcher)")
    add("--markdown", metavar="FILE.md", help="also write the table in Markdown")
    add("--no-plots", dest="plots", action="store_false", help="make no plots (needs no matplotlib)")
    add("--no-reference", dest="reference", action="store_false",
        help="leave the published figures of 2020 out of the plots")


def main(argv: Sequence[str] | None = None) -> int:
    """Run gpu_sweep; returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    split = words.index("--") if "--" in words else len(words)
    return run_main(build_parser, lambda args: _body(args, words[split + 1:]), words[:split])


def _body(args: argparse.Namespace, options: Sequence[str]) -> int:
    stop_when_asked()
    _check_outputs(args)
    code = ExitCode.DONE
    if args.command == "run":
        code = _run(args, options)
    elif options:
        raise InputError("options of gpu_extract after -- are for gpu_sweep run only: leave them out")
    _report(args)
    return code


def _check_outputs(args: argparse.Namespace) -> None:
    """Check before the runs what could fail in the report after hours. Raises InputError, OutputError."""
    from gpu_extract.io.atomic import check_apart, check_folder, check_target
    from gpu_perf.outcomes import STATE

    if args.command == "run":
        check_folder(args.folder)
    if args.markdown:
        check_target(args.markdown, make=args.folder)
        own = STATE, "report.html", "scaling.json", "scaling.png"
        check_apart([(f"{name} of the sweep", str(Path(args.folder, name))) for name in own],
                    [("--markdown", args.markdown)])
    if args.plots:
        from gpu_extract.figures import check_picture

        check_picture("scaling.png")


def _run(args: argparse.Namespace, options: Sequence[str]) -> ExitCode:
    from gpu_perf.campaign import Command, run
    from gpu_perf.sweep import PROGRAM, RECORDS, commands

    space, folder = space_of(args), Path(args.folder)
    points = space.points()
    launch = find_launcher(args.launcher, args.launcher_options, several=max(space.ranks) > 1)
    sets = commands(points, folder, launch, PROGRAM, options=options, timeout=args.timeout)
    (folder / RECORDS).mkdir(parents=True, exist_ok=True)
    if args.warm_up:
        sizes = sorted({p.nspec for p in points}) if not options else [max(p.nspec for p in points)]
        output = ("-o", str(folder / RECORDS / "warm-up.fits"))
        warm = [Command(f"{WARM_UP}{n}", (*PROGRAM, "-n", str(n), *options, *output), timeout=args.timeout)
                for n in sizes]
        _judge_warm_up(run(warm, folder / "warm-up", retry=True))
    outcomes = run(sets, folder, repeats=at_least(args.repeats, "--repeats"), tell=log.info, retry=args.retry)
    for path in (folder / RECORDS).glob("*.fits"):
        path.unlink()
    return ExitCode.CHECK_FAILED if _complain(outcomes) else ExitCode.DONE


def _judge_warm_up(outcomes: "Sequence[Outcome]") -> None:
    """Raise InputError if gpu_extract refuses its options, because it would refuse them at every point."""
    for outcome in outcomes:
        if any(process.code == ExitCode.INPUT for process in outcome.processes):
            fibres, said = outcome.name.removeprefix(WARM_UP), outcome.said.removeprefix("gpu_extract: error: ")
            raise InputError(f"the warm-up with {fibres} fibres is refused ({said}): give -n, --bundle and --ranks "
                             "that fit the number of fibres, or other options after --")
    _complain(outcomes)


def _complain(outcomes: "Sequence[Outcome]") -> int:
    """Report failures, one line each; returns their number."""
    failed = [o for o in outcomes if o.status != "ok"]
    for outcome in failed:
        log.error(f"{outcome.name} repeat {outcome.repeat}: {outcome.status}: {outcome.said}")
    return len(failed)


def space_of(args: argparse.Namespace) -> "Space":
    """The sweep from the options. Raises InputError."""
    from gpu_perf.sweep import Space

    return Space(args.modes, args.ranks, args.cores, args.tiles or (None,), args.per_gpu, args.mps, args.nspec,
                 args.bundle)


def find_launcher(name: str, words: str, *, several: bool) -> "Launch":
    """The launcher by its name; auto: srun inside a Slurm job, else the mpiexec of this Python's environment.

    Raises InputError if it was not found.
    """
    import os
    import shlex

    from gpu_perf.sweep import Launch

    beside = str(Path(sys.executable).parent)
    if name == "auto":
        inside = "SLURM_JOB_ID" in os.environ and shutil.which("srun")
        name = "srun" if inside else "mpiexec" if several else "none"
    wrapper = shutil.which("mps_wrapper", path=beside) or shutil.which("mps_wrapper")
    wrap = (wrapper,) if wrapper else ()
    if name == "none":
        return Launch("none", (), wrap)
    found = (shutil.which(name, path=beside) if name == "mpiexec" else None) or shutil.which(name)
    if found is None:
        raise InputError(f"--launcher {name}: {name} was not found; install the extra mpi, or give another launcher")
    return Launch(name, (found, *shlex.split(words)), wrap)


def _report(args: argparse.Namespace) -> None:
    from gpu_perf.sweep_report import write_report

    say(write_report(Path(args.folder), time=args.time, plots=args.plots, markdown=args.markdown,
                     reference=args.reference), end="")


if __name__ == "__main__":
    raise SystemExit(main())
