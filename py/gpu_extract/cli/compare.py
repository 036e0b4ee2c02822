"""gpu_compare: compares a frame with a reference frame."""
import argparse
from collections.abc import Sequence

from gpu_extract.cli.common import Parser, add_common_options, printable, run_main, say, set_threads
from gpu_extract.errors import ExitCode
from gpu_extract.io.atomic import check_target

DESCRIPTION = """\
Compare a frame with a reference frame, at the fibres and wavelengths that both
contain, and print a table: for each field the median, the 99 % quantile and the
maximum of the differences, the limits with their reason, and the verdict. Both
may be frames of this program, of a survey pipeline or of specter. Fluxes are
compared in units of the reference's error, and only where more than half of a
bin's light fell on good pixels."""

EPILOG = """\
examples
  gpu_compare frame.fits reference.fits
  gpu_compare frame.fits reference.fits --plot where.png
      also draw where the frames differ, and by how much
  gpu_compare frame.fits specter.fits --limits specter
      use the limits for frames that were extracted in patches

limits (default: chosen by the program that made the reference)
  frame             the same extraction on another core, device, number of ranks
  oracle            double-precision arrays against the exact solution
  specter           specter or gpu_specter with its patches
  specter-onepatch  specter with the whole range in one patch, without 20 bins
                    at each end
  FILE.json         your own limits: one entry in the layout of
                    etc/tolerances.json

exit codes
  0 all fields within their limits   1 some are not   2 usage or input
  3 output   4 internal error"""


def build_parser() -> Parser:
    """The parser of gpu_compare."""
    parser = Parser("gpu_compare", DESCRIPTION, EPILOG)
    add = parser.add_argument
    add("frame", metavar="A", help="frame to judge (FITS)")
    add("reference", metavar="B", help="reference frame (FITS)")
    add("--limits", metavar="NAME", help="kind of limits, or your own JSON file (see below)")
    add("--plot", metavar="FILE.png", help="draw where the frames differ (needs matplotlib)")
    add("--ignore-checksums", action="store_true", help="read files even if their CHECKSUM or DATASUM does not match")
    add_common_options(parser)
    return parser


def compare(args: argparse.Namespace) -> int:
    """Read, judge, print; 0 or 1."""
    set_threads(None)
    from gpu_extract.compare import compare_frames, difference_maps
    from gpu_extract.io.frame import read_frame

    if args.plot:
        from gpu_extract.figures import check_picture

        check_picture(args.plot)
        check_target(args.plot)
    frame, reference = (read_frame(path, check=not args.ignore_checksums) for path in (args.frame, args.reference))
    comparison = compare_frames(frame, reference, args.limits)
    if args.plot:                   # before the table, whose reader may leave before its end
        from gpu_extract.figures import difference_plot

        difference_plot(args.plot, difference_maps(frame, reference, comparison.limits),
                        title=printable(f"{args.frame} against {args.reference}"))
    say(comparison.table())
    return ExitCode.DONE if comparison.passed else ExitCode.CHECK_FAILED


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_main(build_parser, compare, argv)


if __name__ == "__main__":
    raise SystemExit(main())
