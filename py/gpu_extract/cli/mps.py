"""mps_wrapper: run a command with NVIDIA's multi-process service, one daemon for all ranks of a node."""
import argparse
import os
import signal
import subprocess
from collections.abc import Sequence

from gpu_extract.cli import ENDING
from gpu_extract.cli.common import Parser, add_common_options, complain, log, run_main
from gpu_extract.cli.ranks import speaks
from gpu_extract.errors import InputError

PROG = "mps_wrapper"
DESCRIPTION = """\
Run COMMAND while NVIDIA's Multi-Process Service (MPS) runs on this node, so
that several ranks share a GPU without taking turns. Start every rank through
this wrapper: the first on a node starts the daemon, the last stops it. Without
a GPU or MPS the command still runs, unless --require is given."""

EPILOG = """\
examples
  mpiexec -n 8 mps_wrapper gpu_extract -i image.fits -p psf.fits -o f.fits --gpu
  srun --gpu-bind=none -n 8 mps_wrapper gpu_extract --gpu -i image.fits ...

All ranks must see all GPUs of their node (srun --gpu-bind=none), because the
daemon sees only the GPUs of the rank that starts it. A daemon that already runs
in CUDA_MPS_PIPE_DIRECTORY is used, and left running. Otherwise the files of the
daemon are in GPU_EXTRACT_MPS_DIR, else TMPDIR, else /tmp, in a folder named by
user, job and step, which is removed at the end.

exit codes
  that of COMMAND, or its signal; 126 or 127 if it cannot be started
  2 usage   4 there is no MPS, and --require is given"""
PASSED_ON = (*ENDING, signal.SIGCONT)
MISSING, NOT_EXECUTABLE = 127, 126      # exit codes of shells


def build_parser() -> Parser:
    """The parser of mps_wrapper."""
    parser = Parser(PROG, DESCRIPTION, EPILOG)
    add_common_options(parser)
    parser.add_argument("--require", action="store_true", help="fail if there is no MPS")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND ...", help="the program and its options")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the wrapper; returns the command's exit code, or ends by the signal that ended the command, so that the
    launcher sees it."""
    code = run_main(build_parser, _body, argv, computes=False)
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _body(args: argparse.Namespace) -> int:
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise InputError("no command is given; give a program after the options, e.g. mps_wrapper gpu_extract ...")
    from gpu_extract.device.mps_daemon import run_with

    signals = _Signals()
    return run_with(os.environ, os.getppid(), lambda environ: _run(command, environ, signals), _say,
                    required=args.require)


class _Signals:
    """Forwards signals from the wrapper to the command. Signals that arrive while the daemon starts are held until
    there is one, because ending then would leave a daemon running."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        for number in PASSED_ON:
            signal.signal(number, self._take)

    def send_to(self, child: subprocess.Popen[bytes]) -> None:
        """Forward signals to this process from now on, held ones first."""
        self._child = child
        for number in self._early:
            child.send_signal(number)

    def _take(self, number: int, _: object) -> None:
        if self._child is None:
            self._early.append(number)
        else:
            self._child.send_signal(number)


def _run(command: list[str], environ: dict[str, str], signals: _Signals) -> int:
    """Run the command. It inherits all descriptors, including those for MPI's launcher and the one that counts it among
    the daemon's users."""
    try:
        child = subprocess.Popen(command, env=environ, close_fds=False)
    except OSError as error:
        complain(PROG, f"{command[0]}: {error.strerror}")
        return MISSING if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    signals.send_to(child)
    return child.wait()


def _say(line: str) -> None:
    """One line of the log; only the first rank of a node logs what concerns the whole node."""
    if speaks():
        log.info("%s: %s", PROG, line)


if __name__ == "__main__":
    raise SystemExit(main())
