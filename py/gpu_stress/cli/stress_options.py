"""The options of gpu_stress."""
import argparse
from collections.abc import Sequence
from typing import Any

from gpu_extract.cli.common import NAMES, NUMBERS, Parser, add_common_options, separated
from gpu_extract.errors import InputError
from gpu_perf.cli.proflog import add_proflog
from gpu_stress.spec import COPIES_BY_DEFAULT, DTYPES, MODULES, SHAPES, SUPPORTED, TESTS, Spec, parse_shape, show

DESCRIPTION = """\
Load a GPU (or the CPU) in known ways, from one process or from many at once.
Report the rates and whether the results are right. By default every result is
checked."""

EPILOG = """\
examples
  gpu_stress fft
      100 transforms of 1000,1000 float32 on the CPU
  gpu_stress -m cupy fft -s 1000,1000 -c 1000 --no-copy
  gpu_stress gemm -m cupy -s 4096,4096 -d float64 --seconds 20 --procs 4
  mpiexec -n 4 gpu_stress copy -m cupy --pinned
      each rank is one process (srun likewise)
  gpu_stress campaign out && gpu_stress report out
  gpu_stress info
      devices of this machine, and their rates
  gpu_stress vendor
      NVIDIA's own tests, where they are installed

result line
  3.529 s, 28.0 Hz, 112.2 MByte/sec copy:True
      time of all cycles, cycles per second, bytes of one array one way per
      second; then median and spread of a cycle, bytes moved both ways, GFlop/s,
      errors

exit codes
  0 done   1 a result was wrong, or a test of campaign or vendor failed
  2 usage or input, does not fit, no such device   3 output
  4 internal error or a lost process   75 stopped cleanly, start again"""

HELP = {
    "fft": "Fourier transform over all axes, and back; the round trip must return the input",
    "copy": "copy from host to device and back; must be identical bit by bit",
    "rand": "uniform random numbers; their moments must be right",
    "gemm": "matrix product, m,k or batch,m,k times k,k; checked by a checksum identity",
    "eigh": "eigenvalues and eigenvectors of symmetric matrices, n,n or batch,n,n; checked by residuals",
    "cholesky": "factorise positive definite matrices, n,n or batch,n,n; checked by residuals",
    "extract": "extraction of a simulated frame of fibres,wavelengths, on the CPU; checked against the truth, and must "
               "be identical in every cycle",
}


def build_parser() -> Parser:
    """The parser of gpu_stress."""
    parser = Parser("gpu_stress", DESCRIPTION, EPILOG)
    parser.add_argument("-m", "--module", metavar="NAME",
                        help=f"array library: {' or '.join(MODULES)} (default numpy); "
                             "may also follow the command")
    add_common_options(parser)
    command = parser.commands()
    for test in TESTS:
        _add_test(command(test, HELP[test]), test)
    _add_campaign(command("campaign", "run many tests one after another, with samples of the machine's state; can be "
                                      "resumed"))
    _add_report(command("report", "tables and plots of one campaign, or of several side by side"))
    add_proflog(command)
    info = command("info", "print devices, versions, and measured bandwidths and rates")
    _add_module(info)
    info.add_argument("--no-measure", dest="measure", action="store_false", help="facts only")
    info.add_argument("--json", action="store_true", help="print JSON")
    vendor = command("vendor", "run NVIDIA's own tests, if they are installed: dcgmi diag, nvbandwidth")
    vendor.add_argument("--level", type=int, default=1, metavar="N",
                        help="level of dcgmi diag: 1 (default; seconds), 2 (minutes), 3 (a quarter of an hour) or 4 "
                             "(hours)")
    vendor.add_argument("--timeout", type=float, metavar="T",
                        help="end each test after this many seconds (default: dcgmi 300, 900, 3600, 14400 by level; "
                             "nvbandwidth 300)")
    return parser


def _add_module(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", "--module", default=argparse.SUPPRESS, metavar="NAME",
                        help=f"{' or '.join(MODULES)} (default numpy)")


def _add_test(parser: argparse.ArgumentParser, test: str) -> None:
    shape = show(SHAPES.get(test, (1000, 1000)))
    copies = test in COPIES_BY_DEFAULT
    _add_module(parser)
    add = parser.add_argument
    add("-s", "--shape", type=_shape, default=shape, help=f"shape of the array (default {shape})")
    _add_amount(parser, 100 if test != "extract" else 10)
    dtype = "float64" if "float32" not in SUPPORTED[test] else "float32"
    add("-d", "--dtype", default=dtype, metavar="NAME", help=f"{', '.join(SUPPORTED[test])} (default {dtype})")
    _add_how(parser, copies, "end processes after this many seconds; not for ranks of mpiexec or srun (default: none)")
    add("--procs", type=int, default=1, metavar="N", help="number of simultaneous processes (default 1)")
    add("--json", action="store_true", help="print JSON")
    if test == "extract":
        add("--core", default="banded", metavar="NAME", help="core: banded (default) or dense")
    add("--worker", help=argparse.SUPPRESS)


def _add_amount(parser: argparse.ArgumentParser, count: int | None) -> None:
    default = "" if count is None else f" (default {count})"
    parser.add_argument("-c", "--count", type=int, metavar="N", help=f"number of cycles{default}")
    parser.add_argument("--seconds", type=float, metavar="T",
                        help="run for this time"
                        + (" (default 3)" if count is None else " instead of a number of cycles"))
    parser.set_defaults(default_count=count)


def _add_how(parser: argparse.ArgumentParser, copies: bool, limit: str) -> None:
    """limit: the help of --timeout"""
    add = parser.add_argument
    add("--copy", action=argparse.BooleanOptionalAction, default=copies,
        help="move input and result between host and device in every cycle, or not "
             f"(default: {'--copy' if copies else '--no-copy'}; the test copy always moves them)")
    add("--pinned", dest="pinned", action="store_true", default=True, help="page-locked host memory (default)")
    add("--pageable", dest="pinned", action="store_false", help="pageable host memory")
    add("--warmup", type=int, default=3, metavar="N", help="number of untimed cycles before the timed ones (default 3)")
    add("--check-every", type=int, default=1, metavar="N", help="check every Nth result (default 1: all)")
    add("--seed", type=int, default=1, metavar="N", help="seed of the content (default 1)")
    add("--devices", type=_devices, default="0", metavar="LIST",
        help="device numbers, e.g. 0,1, or all; processes use them in turn (default 0)")
    add("--threads", type=int, metavar="N", help="threads of the numerical libraries in each process (default: chosen "
                                                 "by the libraries)")
    add("--timeout", type=float, metavar="T", help=limit)
    add("--plant-fault", type=separated(int, "PROCESS:CYCLE", 2, by=":"), help=argparse.SUPPRESS)


def _shape(text: str) -> tuple[int, ...]:
    try:
        return parse_shape(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _devices(text: str) -> tuple[int, ...] | None:
    """The numbers, None for all."""
    return None if text == "all" else separated(int, "a list of device numbers; give e.g. 0,1, or all")(text)


def _add_campaign(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="folder for results; an interrupted campaign continues from it")
    add("-m", "--module", type=NAMES, dest="modules", metavar="LIST", help="array libraries: numpy, cupy or numpy,cupy "
                                                                           "(default numpy)")
    add("--tests", type=NAMES, default="copy,rand,fft", metavar="LIST", help="names of tests (default copy,rand,fft)")
    add("-s", "--shapes", type=separated(_shape, "shapes"), default="100x100,1000x1000,10000x1000",
        metavar="LIST", help="shapes of the arrays (default 100x100,1000x1000,10000x1000)")
    add("-d", "--dtypes", type=NAMES, default="float16,float32,float64", metavar="LIST",
        help=f"any of {', '.join(DTYPES)} (default float16,float32,float64)")
    add("--procs", type=NUMBERS, default="1,2,3,10", metavar="LIST", help="numbers of simultaneous processes (default "
                                                                          "1,2,3,10)")
    _add_amount(parser, None)
    _add_how(parser, True, "end a set after this many seconds (default: 60 for each process and 20 times --seconds; "
                           "none with -c)")
    add("--core", default="banded", metavar="NAME", help="core of the extract test: banded (default) or dense")
    add("--repeats", type=int, default=1, metavar="N", help="repeats of the whole list, interleaved (default 1)")
    add("--no-samples", dest="samples", action="store_false", help="do not sample the state of CPU and GPU")
    add("--retry", action="store_true", help="repeat tests that failed, were killed or timed out")


def _add_report(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("folders", nargs="+", metavar="FOLDER", help="folders of campaigns; several are shown side by side")
    add("-o", "--output", metavar="FOLDER", help="folder for the report (default: the first FOLDER)")
    add("--no-plots", dest="plots", action="store_false", help="text only")


def spec_of(args: argparse.Namespace, test: str, **what: Any) -> Spec:
    """The test from the command line; raises InputError, one line with every problem.

    what: module, shape and dtype, if they are known
    """
    count, seconds = amount(args)
    return Spec(test, count=count, seconds=seconds, copy=args.copy or test == "copy", pinned=args.pinned,
                warmup=args.warmup, check_every=args.check_every, seed=args.seed,
                core=getattr(args, "core", "banded"), **what)


def amount(args: argparse.Namespace) -> tuple[int | None, float | None]:
    """(count, seconds), one of them None."""
    if args.count is not None and args.seconds is not None:
        raise InputError("-c and --seconds are both given: give one of them")
    if args.seconds is not None:
        return None, args.seconds
    count = args.default_count if args.count is None else args.count
    return (None, 3.0) if count is None else (count, None)


def devices_of(numbers: Sequence[int] | None, module: str) -> Sequence[int]:
    """The device numbers of --devices; raises InputError if the module has no such device."""
    if module != "cupy":
        return numbers or (0,)
    from gpu_stress.backend import device_count
    count = device_count()
    devices = numbers or range(count)
    missing = [d for d in devices if not 0 <= d < count]
    if missing:
        raise InputError(f"--devices has {missing[0]}, must be 0 to {count - 1}: there are {count} CUDA devices")
    return devices
