"""The options of gpu_extract, and the treatment of options of older codes."""
import argparse
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from gpu_extract.cli.common import GRID, Parser, add_common_options
from gpu_extract.cli.compiling import fill_cache
from gpu_extract.cli.device_info import check_devices, show_devices
from gpu_extract.cli.ranks import Instead
from gpu_extract.config import FURTHER
from gpu_extract.errors import InputError

DESCRIPTION = """\
Extract the spectra of a fibre spectrograph from a CCD image by 2D spectral
extraction ("spectroperfectionism", Bolton & Schlegel 2010). The frame holds
fluxes with uncorrelated errors, their inverse variances, and the resolution
matrix, which relates a model spectrum to the measured fluxes."""

EPILOG = """\
examples
  gpu_extract -o frame.fits
      without input: a simulated r frame of 500 fibres, made on first use
  gpu_extract -i preproc-r0-12345.fits.gz -p psf-r0-12345.fits -o frame.fits
      wavelengths and PSF error from the preset of the camera named in the image
  gpu_extract -i image.fits -p psf.fits -o f.fits -w 5760,7620,0.8 -s 10 -n 5
      five fibres, the same numbers as in a run over all fibres
  mpiexec -n 8 gpu_extract -i image.fits -p psf.fits -o frame.fits
      eight ranks; the same numbers for any number of ranks

exit codes
  0 done   1 a comparison or check failed   2 usage or input   3 output
  4 internal error or a lost rank   75 stopped cleanly, start again"""

# options of older codes that would silently mean something else here, each with its replacement
_REFUSED = {
    "--decorrelate-fibers": "errors are decorrelated along each fibre, not between fibres: leave it out",
    "-d": "errors are decorrelated along each fibre, not between fibres: leave it out",
    "--noise_decorr": "errors are decorrelated along each fibre, not between fibres: leave it out",
    "-b": "use --bundlesize",
    "--use-specter": "use --core dense for the classical patches",
    "--wavepad": "padding is chosen from the measured decay: use --tolerance",
    "--ranks-per-bundle": "ranks are assigned to bundles and parts of bundles automatically: leave it out",
    "--async-io": "one frame has nothing to overlap: leave it out, or use gpu_extract_exposure for many frames",
    "--fibermap-index": "rows are found by fibre: use --fibermap",
    "--fibermap-first-row": "rows are found by fibre: use --fibermap",
}
# attribute -> option: used by the dense core only
DENSE_ONLY = {"nsubbundles": "--nsubbundles", "nwavestep": "--nwavestep"}
# attribute -> option: without effect, because both cores choose their padding
PADDING = {"pixpad_frac": "--pixpad-frac", "wavepad_frac": "--wavepad-frac"}


class _Refuse(argparse.Action):
    """An option of an older code that is refused, with its replacement."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,
                 option_string: str | None = None) -> NoReturn:
        raise InputError(f"{option_string} is an option of an older code; {_REFUSED[str(option_string)]}")


def build_parser() -> Parser:
    """The parser of gpu_extract."""
    parser = Parser("gpu_extract", DESCRIPTION, EPILOG)
    _files(parser)
    add_what(parser)
    add_how(parser)
    _checks(parser)
    add_machine(parser)
    parser.add_argument_group("tuning").add_argument(
        "--tile", metavar="N", type=int,
        help="wavelength bins per tile of the normal equations, 8 or more (default 256). Ranks and threads share tiles "
             "on the CPU")
    add_common_options(parser)
    old = parser.add_argument_group("options of older codes")
    old.add_argument("--overwrite", action="store_true",
                     help="accepted and ignored: an existing output is always replaced (atomically)")
    old.add_argument("--gpu-specter", action="store_true", help="accepted and ignored: there is nothing else to choose")
    for option, attribute in ((o, a) for a, o in PADDING.items()):
        old.add_argument(option, dest=attribute, type=float, metavar="X",
                         help="accepted and ignored: padding is chosen from the measured decay (--tolerance)")
    for option in _REFUSED:
        old.add_argument(option, action=_Refuse, nargs="?", help=argparse.SUPPRESS)
    return parser


def _files(parser: Parser) -> None:
    add = parser.add_argument_group("files (FITS, .fits or .fits.gz)").add_argument
    add("-i", "--input", metavar="FILE",
        help="image with the HDUs IMAGE and IVAR; MASK and FIBERMAP are optional (default: a simulated frame)")
    add("-p", "--psf", metavar="FILE", help="PSF of type GAUSS-HERMITE (version 2 or 3), GAUSS-HERMITE2 or TABULATED "
                                               "(CPU only)")
    add("-o", "--output", metavar="FILE", required=True,
        help="output frame; an existing file is replaced when the new one is complete")
    add("-m", "--model", metavar="FILE", help="also write the model image")
    add("--spectra", metavar="FILE",
        help="also write a spectra file (R_FLUX, R_IVAR, ...), which specutils opens without a loader")
    add("-f", "--fibermap", metavar="FILE",
        help="read the FIBERMAP from this file, not from the image; 'none' leaves it out")
    add("--no-scores", action="store_true", help="leave the HDU SCORES out of the frame")
    add("--no-overwrite", action="store_true", help="refuse to replace an existing file; checked before any work")
    add("--ignore-checksums", action="store_true",
        help="read files even if their CHECKSUM or DATASUM does not match")


def add_what(parser: Parser) -> None:
    """Add the options for wavelengths and fibres."""
    add = parser.add_argument_group("what to extract").add_argument
    add("-w", "--wavelength", metavar="WMIN,WMAX,DW", type=GRID,
        help="wavelength grid in Angstrom, both ends included (the last to half a step), e.g. 5760,7620,0.8 (default: "
             "the preset's)")
    add("--preset", metavar="NAME",
        help="preset of wavelengths and PSF error: desi-b, desi-r, desi-z, tiny, side, or your own FILE.ini or "
             "FILE.ini:NAME (default: the one for the image's CAMERA)")
    add("-s", "--specmin", metavar="N", type=int, default=0, help="first fibre (default 0)")
    add("-n", "--nspec", metavar="N", type=int, help="number of fibres (default: all from --specmin on)")
    add("--barycentric-correction", action="store_true",
        help="correct wavelengths to the barycentre of the solar system, as seen from Kitt Peak")


def add_how(parser: Parser) -> None:
    """Add the options for the method of extraction."""
    add = parser.add_argument_group("how to extract").add_argument
    add("--core", choices=("auto", "banded", "dense"), default="auto",
        help="how to decorrelate. banded: whole fibres at once; dense: patch by patch; auto (default): banded, and "
             "dense where banded fails")
    add("-r", "--regularize", metavar="X", type=float,
        help="regularisation in 1/photon: its square is added to the diagonal of the normal equations (default 0)")
    add("--psferr", metavar="X", type=float,
        help="fractional error of the PSF model: in chi2 and, with --passes 2 or more, in the search for cosmics "
             "(default: the preset's, else the PSF's)")
    add("--bundlesize", metavar="N", type=int, default=25,
        help="fibres per bundle if the PSF has no BUNDLE (default 25)")
    add("--nsubbundles", metavar="N", type=int,
        help="dense core: groups of fibres per bundle (default: every fibre by itself)")
    add("--nwavestep", metavar="N", type=int, help="dense core: bins per patch (default 50)")
    add("--tolerance", metavar="X", type=float,
        help="largest error of the flux that padding may leave, in units of its sigma (default 1e-8)")
    add("--passes", metavar="N", type=int, default=1,
        help="number of passes, 1 to 9 (default 1). Use 2 if IVAR was made from the noisy pixels, or if MASK lacks "
             "cosmics: the second pass weights pixels by a model of the image, and leaves out pixels that stand out "
             "from it. Two passes take less than twice the time of one, and need an image in electrons. Three or more "
             "run on the CPU")
    add("--keep-cosmics", action="store_true",
        help="with --passes 2 or more: use pixels that stand out from the model (default: treat them as masked)")
    add("--psferr-in-ivar", action="store_true",
        help="with --passes 2 or more: include the error of the PSF model in IVAR, not only in chi2, so that the "
             "errors of bright lines contain it")
    add("--tail-radius", metavar="PIXELS", type=float,
        help="with --passes 2 or more: continue the tail of the PSF, if it has one, beyond the stamps up to this "
             "distance, and subtract it from the fibres around (default 40; 0: do neither)")
    add("--background", metavar="DEGREE", nargs="?", type=int, const=2,
        help="with --passes 2 or more: fit a smooth background, such as scattered light, to each bundle together with "
             "its spectra. It is a polynomial in the row of the CCD, of degree 0 to 8 (2 if no number is given; "
             "default: no background)")
    add("--any-psf", action="store_true",
        help="extract even if headers or light show that the PSF belongs to another image")
    add("--keep-odd", action="store_true",
        help="use odd pixels, whose value or ivar makes no sense (default: treat them as masked)")


def _checks(parser: Parser) -> None:
    add = parser.add_argument_group("checks and reports").add_argument
    add("-t", "--test", metavar="REF", nargs="?", const="",
        help="compare the frame with REF. Without REF, extract a small built-in image with the same settings, and "
             "compare it with the known result. Exit with code 1 if they differ")
    add("--qa", metavar="FILE.png",
        help="draw image, model, residual, spectra, a row of R, chi2 and mask on one page (needs matplotlib)")
    add("--perf", metavar="FILE.json", help="write how each rank spent its time, for gpu_perf report")
    add("--trace", metavar="FILE.json", help="write the same as a trace, for ui.perfetto.dev or chrome://tracing")
    add("--device-info", action=Instead, const=lambda *_: show_devices(), nargs=0,
        help="print the devices of this machine, their rates of copying and computing, and whether MPS runs; then exit")
    add("--device-check", action=Instead, const=check_devices, nargs=0,
        help="check the GPU step by step, up to a small frame that is compared with that of the CPU, and run NVIDIA's "
             "own tests if they are installed; then exit. If a step fails, print one line that says what is wrong, and "
             "exit with code 1")
    add("--compile", action=Instead, const=fill_cache, nargs="*", metavar="PSF",
        help="compile and cache the kernels of the cameras b, r and z for all options, and those of these PSFs; then "
             "exit. For use after an update, or in containers")
    add("--nvtx", action="store_true", help="mark every stage with an NVTX range, for Nsight Systems (with a GPU)")


def add_machine(parser: Parser) -> None:
    """Add the options for ranks, threads and devices."""
    group = parser.add_argument_group("machine")
    add = group.add_argument
    add("--mpi", action="store_true", help="use MPI (default: if started by mpiexec or srun)")
    add("--threads", metavar="N", type=int,
        help="threads per process (default 1). With a GPU: threads for the work that it leaves to the CPU (default: "
             "all cores of the node, divided among its ranks unless ranks are bound to cores)")
    gpu = group.add_mutually_exclusive_group()
    gpu.add_argument("--gpu", "--use-gpu", dest="gpu", action="store_true", default=None,
                     help="use a GPU, and fail without one (default: use one if there is one)")
    gpu.add_argument("--no-gpu", dest="gpu", action="store_false", help="use no GPU")


def spelt_out(values: Mapping[str, Any]) -> list[str]:
    """The options that determine a frame's content, in words; values: by attribute, without None and False."""
    parser = Parser("", "")
    for add in (_files, add_what, add_how):
        add(parser)
    words = []
    for action in parser._actions:
        value = values.get(action.dest)
        if value is not None and value is not False:
            words += [action.option_strings[0], *([] if value is True else [str(value)])]
    return words


def ignored(args: argparse.Namespace) -> Sequence[str]:
    """A sentence for each given option that has no effect on this run."""
    sentences = [f"{option} is ignored: padding is chosen from the measured decay (--tolerance)"
                 for attribute, option in PADDING.items() if getattr(args, attribute) is not None]
    if args.passes == 1:
        sentences += [f"--{attribute.replace('_', '-')} is ignored: there is only one pass (--passes)"
                      for attribute in FURTHER if getattr(args, attribute) not in (None, False)]
    if args.core != "dense":
        sentences += [f"{option} is ignored by the banded core: only the dense core cuts patches"
                      for attribute, option in DENSE_ONLY.items() if getattr(args, attribute) is not None]
    return sentences
