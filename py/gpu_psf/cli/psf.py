"""gpu_psf: the PSF of a fibre spectrograph from exposures of arc lamps."""
from collections.abc import Sequence

from gpu_extract.cli.common import Parser, add_common_options, loading, run_main
from gpu_extract.cli.ranks import find_launch, run_kept
from gpu_psf.cli import fit, preprocess, shift, start

PROG = "gpu_psf"
DESCRIPTION = """\
Fit the PSF of a fibre spectrograph: where the light of each fibre and wavelength falls (traces)
and how it is distributed over the pixels (Gauss-Hermite terms), from exposures of arc lamps. The
file is one that gpu_extract, specter and desispec read."""
EPILOG = """\
exit codes
  0 done   2 usage or input   3 output   4 a rank was lost or an internal error   75 stopped, start again"""
# each has NAME, HELP, `add_options(parser)` and `body(args)`
COMMANDS = (preprocess, start, fit, shift)


def build_parser() -> Parser:
    """The parser of gpu_psf."""
    parser = Parser(PROG, DESCRIPTION, EPILOG)
    add_common_options(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_options(commands, command.NAME, command.HELP)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run gpu_psf; returns its exit code."""
    launch = find_launch()
    speaks = launch is None or launch.node_rank == 0

    def run() -> int:
        with loading():
            return run_main(build_parser, lambda args: int(args.body(args)), argv, speaks=speaks)

    return run_kept(PROG, run)


if __name__ == "__main__":
    raise SystemExit(main())
