"""gpu_psf start: makes a starting PSF from a flat and an arc."""
import argparse
from typing import TYPE_CHECKING, Any

from gpu_extract.cli.common import at_least, log, separated
from gpu_extract.errors import ExitCode, InputError

if TYPE_CHECKING:
    from gpu_psf.spectrograph import Spectrograph
    from gpu_psf.start.run import Known, Start

NAME = "start"
HELP = "make a starting PSF: traces from a flat, wavelengths from an arc"
DESCRIPTION = """\
Find the traces in a flat, identify the lines of an arc, measure the widths of
the spots, and write a Gaussian PSF. gpu_extract reads it as it is; gpu_psf fit
improves it.

One option gives the approximate wavelengths: a PSF that is a few pixels off
(--psf), identified lines (--pairs), the wavelengths at both ends of the middle
fibre (--range), or a short description of the spectrograph (--spectrograph),
which also gives the number of fibres."""
EPILOG = """\
examples
  gpu_psf start --flat flat.fits --arc arc.fits --psf old.fits -o start.fits
  gpu_psf start --arc arc.fits --psf old.fits -o start.fits
      also moves the traces
  gpu_psf start --flat flat.fits --arc arc.fits --range 5543,7826,6730 \\
      --fibres 500 --bundlesize 25 -o start.fits
  gpu_psf start --flat flat.fits --arc arc.fits --spectrograph mine.ini \\
      --lines neon.txt -o start.fits
  gpu_psf start --flat flat.fits --pairs lines.txt --columns 0,3,4 --unit nm \\
      --fibres 28 --echelle -o start.fits

The images have the format that gpu_psf preprocess writes, with the dispersion
along y. With --echelle each trace is an order with its own wavelengths; -w of
gpu_extract then refers to the middle order."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    add = parser.add_argument
    add("--flat", metavar="FILE", help="image with light on every fibre, for finding the traces")
    add("--arc", metavar="FILE", help="image of a lamp with lines")
    add("-o", "--output", metavar="FILE", required=True,
        help="output PSF (.fits or .fits.gz); an existing file is replaced")
    known = parser.add_argument_group("wavelengths (give one)").add_argument
    known("-p", "--psf", metavar="FILE", help="a PSF of this spectrograph, up to 5 pixels off in x and 8 in y")
    known("--pairs", metavar="FILE", help="identified lines: text with fibre, row (both from 0) and wavelength")
    known("--range", metavar="W,W[,W]",
          type=separated(float, "two or three wavelengths with commas between, e.g. 5543,7826", 2, 3),
          help="wavelengths (Angstrom) of the middle fibre in the first and the last row, correct to 3%% of the range, "
               "and optionally in the middle row")
    known("--spectrograph", metavar="NAME", help="description of the spectrograph: side, or your own FILE.ini or "
                                                 "FILE.ini:NAME. With --psf or --pairs it gives only the number of "
                                                 "fibres")
    lamp = parser.add_argument_group("lines").add_argument
    lamp("--lines", metavar="FILE", help="list of the lamp's lines (default: Hg, Cd, Ne, Ar, Kr, Xe; vacuum "
                                         "wavelengths)")
    lamp("--columns", metavar="F,R,W", default="0,1,2",
         type=separated(int, "three columns with commas between, e.g. 0,3,4", 3),
         help="columns of --pairs that hold fibre, row and wavelength (default 0,1,2)")
    lamp("--unit", choices=("angstrom", "nm"), default="angstrom", help="unit of the wavelengths of --pairs "
                                                                        "(default angstrom)")
    slit = parser.add_argument_group("fibres").add_argument
    slit("--fibres", metavar="N", type=int, help="number of fibres (default: the number of traces in the flat)")
    slit("--bundlesize", metavar="N", type=int, help="fibres per bundle, with gaps between bundles (default: one "
                                                     "bundle)")
    slit("--skip", metavar="N", type=int, default=0, help="number of traces at small x that belong to no fibre "
                                                          "(default 0)")
    slit("--echelle", action="store_true", help="treat traces as orders, each with its own wavelengths")


def body(args: argparse.Namespace) -> int:
    """Read, find, identify, write."""
    from gpu_extract.io.atomic import FITS_ENDINGS, check_apart, check_target
    from gpu_extract.io.image import read_image
    from gpu_extract.io.psf import write_psf
    from gpu_psf.spectrograph import read_spectrograph
    from gpu_psf.start.run import start_psf

    check_target(args.output, endings=FITS_ENDINGS)
    check_apart(((f"--{name}", getattr(args, name)) for name in ("flat", "arc", "psf", "pairs", "lines")),
                (("-o", args.output),))
    lines, slit = _lines(args), _slit(args)
    described = None if args.spectrograph is None else read_spectrograph(args.spectrograph)
    slit = described.slit if slit is None and described is not None else slit
    _check_known(args, described)
    flat, arc = (None if name is None else read_image(name, fibermap=False) for name in (args.flat, args.arc))
    if flat is not None and arc is not None and flat.shape != arc.shape:
        raise InputError(f"{args.arc} has {arc.shape} pixels, {args.flat} has {flat.shape}; they must be the same")
    known = _known(args, described, next((image.shape[0] for image in (flat, arc) if image is not None), 0))
    start = start_psf(flat, arc, lines, known, slit, tell=log.info)
    write_psf(args.output, start.psf)
    _tell(args, start)
    return ExitCode.DONE


def _slit(args: argparse.Namespace) -> Any:
    from gpu_psf.start.count import Slit

    at_least(args.fibres, "--fibres")
    at_least(args.bundlesize, "--bundlesize")
    at_least(args.skip, "--skip", 0)
    if args.fibres is None and (args.skip or args.bundlesize):
        raise InputError("--skip and --bundlesize need a known number of fibres: also give --fibres")
    return None if args.fibres is None else Slit(args.fibres, args.bundlesize, args.skip)


def _check_known(args: argparse.Namespace, described: "Spectrograph | None") -> None:
    """Raise InputError unless exactly one option gives the wavelengths."""
    given = [name for name in ("psf", "pairs", "range") if getattr(args, name) is not None]
    if len(given) > 1 or (not given and described is None):
        raise InputError(f"{' and '.join('--' + name for name in given) or 'nothing'} is given for the wavelengths, "
                         "exactly one is needed of --psf, --pairs, --range and --spectrograph")
    if args.echelle and not args.pairs and not args.psf:
        raise InputError("--range and --spectrograph are for fibres with the same wavelengths: give --pairs or --psf "
                         "for the orders of an echelle")


def _known(args: argparse.Namespace, described: "Spectrograph | None", ny: int) -> "Known":
    """The known wavelengths, for images of ny rows. Raises InputError."""
    from gpu_psf.start.run import Known

    if args.psf is not None:
        from gpu_extract.io.psf import read_psf

        return Known(psf=read_psf(args.psf))
    if args.pairs is not None:
        from gpu_psf.start.lines import read_pairs

        at_least(min(args.columns), "--columns", 0)
        return Known(pairs=read_pairs(args.pairs, args.columns, args.unit), echelle=args.echelle)
    from gpu_psf.start.search import Range

    if args.range is None and described is not None:
        return Known(range=described.wavelengths(ny))
    if args.range[0] == args.range[1] or not all(0 < wave < 1e9 for wave in args.range):
        given = ",".join(f"{wave:.10g}" for wave in args.range)
        raise InputError(f"--range is {given}, must be different wavelengths above 0 and below 1e9 Angstrom")
    return Known(range=Range(*args.range))


def _lines(args: argparse.Namespace) -> Any:
    """Wavelengths of the lamp; of the known pairs if these are given without a list."""
    import numpy as np

    from gpu_psf.lamp import read_lines, shipped_lines

    if args.lines is None and args.pairs is not None:
        return np.empty(0)
    return (read_lines(args.lines) if args.lines else shipped_lines()).wave


def _tell(args: argparse.Namespace, start: "Start") -> None:
    """Log the outcome and the next step."""
    import numpy as np

    from gpu_psf.start.run import suggested_grid

    if any(start.shift):
        log.info(f"the given PSF was moved by {start.shift[0]:+.2f} pixels in x and {start.shift[1]:+.2f} in y")
    for fibre in np.flatnonzero(start.traces.interpolated):
        log.warning(f"fibre {fibre} is not in the flat: its trace is interpolated between those of its neighbours")
    for doubt in start.doubts:
        log.warning(doubt)
    if args.arc is None:
        log.warning("without an arc, the widths along the dispersion are set to those across it")
    first, last, step = suggested_grid(start.psf)
    log.info(f"PSF: {args.output} ({start.psf.nfibre} fibres, {start.used} lines, rms {start.rms:.3f} pixels, sigma "
             f"along the dispersion {start.width:.2f} pixels; extract with -w {first:.2f},{last:.2f},{step:.3g})")
