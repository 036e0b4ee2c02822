"""gpu_psf shift: moves the traces of a PSF to those of an exposure."""
import argparse
from typing import TYPE_CHECKING

from gpu_extract.cli.common import log
from gpu_extract.errors import ExitCode, InputError, about
from gpu_psf.cli.fit import read_like

if TYPE_CHECKING:
    from gpu_extract.data import Image, PsfModel
    from gpu_psf.shift.run import ShiftedPsf

NAME = "shift"
HELP = "move the traces of a PSF to where they lie in one exposure"
DESCRIPTION = """\
Measure how far the light of an exposure lies from the traces of a PSF, and
write the PSF with its traces moved. This corrects flexure between the arc and a
science frame. Shifts of up to 2 pixels in x and 5 in y are found, if they vary
slowly with fibre and wavelength. Spot shapes do not change."""
EPILOG = """\
examples
  gpu_psf shift -i preproc.fits -p psf-night.fits -o psf-frame.fits
  gpu_psf shift -i arc.fits -p psf.fits -o moved.fits --lines neon.txt
  gpu_extract -i preproc.fits -p psf-frame.fits -o frame.fits

Shifts in x come from all light on the fibres. Shifts in y come from lines of
known wavelengths: those of the night sky, or of --lines. If too few lines are
seen, the traces move in x only, with a warning."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    add = parser.add_argument
    add("-i", "--input", metavar="FILE", required=True, help="image with light on the fibres")
    add("-p", "--psf", metavar="FILE", required=True, help="the PSF whose traces are moved")
    add("-o", "--output", metavar="FILE", required=True,
        help="output PSF (.fits or .fits.gz); an existing file is replaced")
    add("--lines", metavar="FILE", help="lines in the spectra of all fibres (default: of the night sky; vacuum "
                                        "wavelengths)")
    add("--degree", metavar="N", type=int, default=2, help="degree of the shifts across the fibres and in "
                                                           "wavelength together, 0 to 4 (default 2)")


def body(args: argparse.Namespace) -> int:
    """Read, measure, write."""
    from gpu_extract.io.atomic import FITS_ENDINGS, check_apart, check_target
    from gpu_psf.lamp import read_lines
    from gpu_psf.shift.run import ShiftConfig, shift_psf
    from gpu_psf.write import write_shifted

    check_target(args.output, endings=FITS_ENDINGS)
    check_apart((("-i", args.input), ("-p", args.psf), ("--lines", args.lines)), (("-o", args.output),))
    config = ShiftConfig(args.degree)
    image, psf = _read(args)
    with about(args.input):
        found = shift_psf(image, psf, read_lines(args.lines) if args.lines else None, config)
    write_shifted(args.output, found, cards=image.cards, inputs=(args.input, args.psf))
    _tell(args, found)
    return ExitCode.DONE


def _read(args: argparse.Namespace) -> "tuple[Image, PsfModel]":
    """The image, and a PSF that can be written again. Raises InputError."""
    from gpu_extract.io.psf import read_psf

    psf = read_psf(args.psf)
    if len(psf.cores) != 1:
        raise InputError(f"{args.psf}: has two Gauss-Hermite components, must have one, as the GAUSS-HERMITE file that "
                         "is written; give such a PSF")
    return read_like(args.input, psf), psf


def _tell(args: argparse.Namespace, found: "ShiftedPsf") -> None:
    from gpu_psf.shift.run import LEAST_LINES, UNSURE, Reference

    for axis, shift in (("x", found.x), ("y", found.y)):
        if axis == "x" or found.reference is Reference.LINES:
            low, high = (end(shift.grid() @ shift.coeff) for end in (min, max))
            log.info(f"{axis}: {low:+.3f} to {high:+.3f} pixels, known to {shift.error():.3f} or better")
    if found.reference is Reference.NONE:
        log.warning(f"fewer than {LEAST_LINES} lines are seen in all fibres together: the traces are moved in x only")
    elif found.y.error() > UNSURE:
        log.warning(f"too few lines: the shift in y is uncertain by up to {found.y.error():.2f} pixels")
    log.info(f"PSF: {args.output}")
