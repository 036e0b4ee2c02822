"""gpu_perf: reports where the time of a run went, what bounds it, and what to do about it."""
import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_extract.cli.common import Parser, add_common_options, log, run_main, say
from gpu_extract.errors import ExitCode, InputError
from gpu_perf.cli.proflog import add_proflog, print_profile

if TYPE_CHECKING:
    from gpu_perf.webpage import Report

PROG, INFO = "gpu_perf", "the output of gpu_stress info --json, or 'here'"
DESCRIPTION = """\
Report where the time of a run went, what bounds it, and what to do about it.
The input is the record that gpu_extract --perf writes, an export of Nsight
Systems, a file of TALP, or a profile of Python."""

EPILOG = """\
examples
  gpu_extract -o frame.fits --perf run.json && gpu_perf report run.json
  gpu_perf report run.json --html run.html --ceilings here
  gpu_perf report run8.json --reference run1.json
      scaling from 1 to 8 ranks
  nsys export --type sqlite run.nsys-rep && gpu_perf nsys run.sqlite
  gpu_perf talp run.json -o talp.json
      write the record as TALP's JSON, for TALP's own tools
  gpu_perf talp talp.json --reference talp1.json
      metrics of a file that TALP wrote
  gpu_perf proflog profile.out

exit codes
  0 done   2 usage or input   3 output   4 internal error"""


def build_parser() -> Parser:
    """The parser of gpu_perf."""
    parser = Parser(PROG, DESCRIPTION, EPILOG)
    add_common_options(parser)
    command = parser.commands()
    report = command("report", "report on a run, from the record of --perf")
    report.add_argument("file", metavar="RUN.json", help="written by gpu_extract --perf")
    report.add_argument("--reference", metavar="RUN.json",
                        help="record of a run of the same work, usually on one rank; gives scaling and speed-up")
    report.add_argument("--focus", metavar="STAGE",
                        help="report on one outer stage only, e.g. extract (default: the whole run)")
    report.add_argument("--ceilings", metavar="FILE|here",
                        help="rates of the machine: the output of gpu_stress info --json, or 'here' to measure them "
                             "now")
    profile = command("nsys", "report on an export of Nsight Systems")
    profile.add_argument("file", metavar="FILE.sqlite", help="made by nsys export --type sqlite")
    for each in (report, profile):
        each.add_argument("--html", metavar="FILE.html", help="also write the report as an HTML page")
        each.add_argument("--quiet", action="store_true", help="print only the verdict, no tables")
    talp = command("talp", "metrics as defined by TALP (DLB), and its JSON",
                   description="Print metrics as defined by TALP, the profiler of DLB, from its JSON or from a\n"
                               "record of --perf. -o writes the record as TALP's JSON.")
    talp.add_argument("file", metavar="FILE.json", help="written by TALP (--talp-output-file=FILE.json) or by --perf")
    talp.add_argument("--reference", metavar="FILE.json",
                      help="file of a run of the same work, usually on one rank; gives scaling and speed-up")
    talp.add_argument("-o", "--output", metavar="TALP.json", help="write a record of --perf as TALP's JSON")
    add_proflog(command)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run gpu_perf; returns its exit code."""
    return run_main(build_parser, _body, argv)


def _body(args: argparse.Namespace) -> int:
    target = getattr(args, "html", None) or getattr(args, "output", None)
    if target:
        from gpu_extract.io.atomic import check_apart, check_target

        check_target(target)
        machine = getattr(args, "ceilings", None)
        check_apart((("FILE", args.file), ("--reference", getattr(args, "reference", None)),
                     ("--ceilings", None if machine == "here" else machine)),
                    (("--html" if getattr(args, "html", None) else "-o", target),))
    {"report": _report, "nsys": _nsys, "talp": _talp, "proflog": print_profile}[args.command](args)
    return ExitCode.DONE


def _report(args: argparse.Namespace) -> None:
    from gpu_extract.perf.record import read_run
    from gpu_perf.run_report import Asked, report_of

    reference = read_run(Path(args.reference)) if args.reference else None
    asked = Asked(reference, args.focus, ceilings(args.ceilings))
    _tell(args, report_of(read_run(Path(args.file)), asked))


def _nsys(args: argparse.Namespace) -> None:
    from gpu_perf import nsys, nsys_report

    _tell(args, nsys_report.report_of(nsys.read_profile(Path(args.file))))


def _tell(args: argparse.Namespace, report: "Report") -> None:
    if args.html:
        write_page(args.html, report.html())
    say("\n".join(report.verdict) if args.quiet else report.text())


def _talp(args: argparse.Namespace) -> None:
    import json

    from gpu_extract.perf.record import read_run
    from gpu_perf.talp import read_talp, talp_json
    from gpu_perf.talp_report import report_of

    if args.output:
        write_page(args.output, json.dumps(talp_json(read_run(Path(args.file))), indent=2) + "\n", "TALP's JSON")
    reference = read_talp(Path(args.reference)) if args.reference else None
    say(report_of(read_talp(Path(args.file)), reference).text())


def ceilings(where: str | None) -> dict[str, float]:
    """The ceilings of a machine: float64 operations and bytes per second, from a file or measured now.

    Raises InputError if the file is something else.
    """
    if where is None:
        return {}
    if where == "here":
        from gpu_stress.info import device_info

        return _ceilings(device_info("numpy"))
    from gpu_extract.perf.record import read_json

    return read_json(Path(where), _ceilings, INFO)


def _ceilings(info: Any) -> dict[str, float]:
    try:
        measured = info["cpu"]["measured"]
        return {"flops": float(measured["float64"]), "bandwidth": 2 * float(measured["pageable"]["up"])}
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"has no measurements of a processor: give {INFO}") from error


def write_page(path: str, text: str, what: str = "page") -> None:
    """Write a text file, completely or not at all."""
    from gpu_extract.io.atomic import write_text

    write_text(path, text)
    log.info(f"{what}: {path}")


if __name__ == "__main__":
    raise SystemExit(main())
