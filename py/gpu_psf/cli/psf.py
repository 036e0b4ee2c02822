"""gpu_psf: the PSF of a fibre spectrograph from exposures of arc lamps."""
import argparse
from collections.abc import Sequence

from gpu_extract.cli.common import Parser, add_common_options, check_memory, loading, run_main
from gpu_extract.cli.ranks import run_kept, speaks
from gpu_psf.cli import fit, preprocess, shift, start

PROG = "gpu_psf"
DESCRIPTION = """\
Fit the PSF of a fibre spectrograph to exposures of arc lamps. The PSF describes
where the light of each fibre and wavelength falls (traces), and how it is
distributed over the pixels (Gauss-Hermite terms, or tables). gpu_extract reads
the file; so do specter and desispec, unless its spots are tables."""
EPILOG = """\
exit codes
  0 done   2 usage or input   3 output   4 internal error or a lost rank
  75 stopped cleanly, start again"""
# each has NAME, HELP, DESCRIPTION, EPILOG, `add_options(parser)` and `body(args)`
COMMANDS = (preprocess, start, fit, shift)


def build_parser() -> Parser:
    """The parser of gpu_psf."""
    parser = Parser(PROG, DESCRIPTION, EPILOG)
    add_common_options(parser)
    make = parser.commands()
    for command in COMMANDS:
        made = make(command.NAME, command.HELP, description=command.DESCRIPTION, epilog=command.EPILOG)
        made.set_defaults(body=command.body)
        command.add_options(made)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run gpu_psf; returns its exit code."""
    def run() -> int:
        with loading():
            return run_main(build_parser, _body, argv, speaks=speaks())

    return run_kept(PROG, run)


def _body(args: argparse.Namespace) -> int:
    if "threads" not in args:                # with that option, the command says how many
        check_memory()
    return int(args.body(args))


if __name__ == "__main__":
    raise SystemExit(main())
