"""gpu_psf preprocess: converts a raw image to one that gpu_extract reads."""
import argparse
from typing import TYPE_CHECKING, Any

from gpu_extract.cli.common import Parser, log, separated
from gpu_extract.errors import ExitCode, InputError

if TYPE_CHECKING:
    from gpu_extract.data import Card
    from gpu_psf.detector import Detector
    from gpu_psf.spectrograph import Spectrograph

NAME = "preprocess"
SATURATION = 60000.0     # ADU
HELP = "convert a raw image (ADU) to electrons, inverse variance and mask"
DESCRIPTION = """\
Convert a raw image to the format that gpu_extract and the other commands read:
electrons, inverse variance, mask and read noise, with the dispersion along y.
The bias is a constant, or comes from dark frames or the overscan. Unless they
are given, the gain comes from a flat and the read noise from the dark frames."""
EPILOG = """\
examples
  gpu_psf preprocess -i raw.fits --dark dark-1.fits dark-2.fits --gain 2.5 \\
      -o image.fits
  gpu_psf preprocess -i 'night.fits[SCIENCE,3]' --dark 'night.fits[SCIENCE,0]' \\
      'night.fits[SCIENCE,1]' --transfer 'night.fits[FLAT]' --dispersion x \\
      -o image.fits
  gpu_psf preprocess -i raw.fits --overscan 2048:2080 --gain 1.4 \\
      --read-noise 3.2 --bad bad.fits -o image.fits
  gpu_psf preprocess -i raw.fits --spectrograph mine.ini -o image.fits

FILE[HDU] selects an HDU by name or number. FILE[HDU,PLANE] also selects an
image of a cube."""


def add_options(parser: Parser) -> None:
    """The options of this command."""
    parser.values_with_minus(r"-[xy]$|-\.?\d")
    add = parser.add_argument
    add("-i", "--input", metavar="RAW", required=True, help="raw image")
    add("-o", "--output", metavar="FILE", required=True,
        help="output image (.fits or .fits.gz); an existing file is replaced")
    add("--spectrograph", metavar="NAME", help="description of the detector: side, FILE.ini or FILE.ini:NAME; the "
                                               "options below take precedence")
    add("--dispersion", metavar="AXIS",
        help="axis of the raw image along which wavelengths ascend: y, -y, x or -x (default y)")
    add("--mirror", action="store_true", help="reverse the other axis, along which fibres descend")
    add("--bad", metavar="RAW", help="image that marks the detector's bad pixels with values other than 0")
    bias = parser.add_argument_group("bias").add_argument
    bias("--dark", metavar="RAW", nargs="+", default=[], help="dark frames, whose median is subtracted")
    bias("--overscan", metavar="LO:HI", type=separated(int, "two columns, e.g. 2048:2080", 2, by=":"),
         help="columns of the overscan, whose mean is subtracted row by row")
    bias("--bias", metavar="ADU", type=float, help="constant to subtract")
    noise = parser.add_argument_group("gain and noise").add_argument
    noise("--gain", metavar="E", type=float, help="electrons per ADU (default: from --transfer)")
    noise("--read-noise", metavar="E", type=float,
          help="in electrons (default: from the dark frames; includes the noise that subtracting them adds)")
    noise("--transfer", metavar="RAW", nargs="+",
          help="one flat, or two of one lamp, to measure the gain from")
    noise("--saturation", metavar="ADU", type=float,
          help="mask pixels with this many ADU or more (default 60000)")


def body(args: argparse.Namespace) -> int:
    """Read, convert, write."""
    import numpy as np

    from gpu_extract.io.atomic import FITS_ENDINGS, check_apart, check_target
    from gpu_extract.io.image import write_image
    from gpu_psf.preprocess import BAD, SATURATED, preprocess
    from gpu_psf.raw import check_unlike, dark_noise, doubts, file_of, read_raw
    from gpu_psf.raw_header import unused
    from gpu_psf.spectrograph import Spectrograph, read_spectrograph

    check_target(args.output, endings=FITS_ENDINGS)
    raws = ("-i", [args.input]), ("--dark", args.dark), ("--transfer", args.transfer or ()), ("--bad", [args.bad])
    check_apart(((option, name and file_of(name)) for option, names in raws for name in names), (("-o", args.output),))
    known = Spectrograph("") if args.spectrograph is None else read_spectrograph(args.spectrograph)
    if args.dispersion is None:
        args.dispersion = known.axis
    if args.saturation is None:
        args.saturation = SATURATION if known.saturation is None else known.saturation
    raw, cards = read_raw(args.input)
    read = [_read_like("--dark", name, raw, args.input) for name in args.dark]
    darks = [dark for dark, _ in read]
    check_unlike("--dark", list(zip(args.dark, darks, strict=True)), (args.input, raw))
    bias = _bias(args, raw, darks, known)
    detector = _detector(args, raw, darks, bias, known)
    image, mask = preprocess(raw, bias, detector, dispersion=args.dispersion, cards=cards, darks=len(darks),
                             mirror=args.mirror or known.order == "descending",
                             bad=None if args.bad is None else _read_like("--bad", args.bad, raw, args.input)[0] != 0)
    write_image(args.output, image, mask=mask, read_noise=image.noise)
    saturated = np.count_nonzero(mask & SATURATED)
    for doubt in (*unused(cards, detector), *dark_noise(darks, detector),
                  *doubts(image, cards, [of_dark for _, of_dark in read])):
        log.warning(doubt)
    log.info(f"image: {args.output} (gain {detector.gain:.4g} electron/ADU, read noise {detector.read_noise:.3g} "
             f"electron, {saturated} pixels saturated, {np.count_nonzero(mask & BAD)} bad)")
    return ExitCode.DONE


def _read_like(option: str, name: str, raw: Any, image: str) -> "tuple[Any, tuple[Card, ...]]":
    """Another image of the detector, and its header. Raises InputError if its shape differs."""
    from gpu_psf.raw import read_raw

    found, cards = read_raw(name)
    if found.shape != raw.shape:
        raise InputError(f"{option}: {name} has shape {found.shape}, {image} has {raw.shape}; they must be the same")
    return found, cards


def _bias(args: argparse.Namespace, raw: Any, darks: list[Any], known: "Spectrograph") -> Any:
    """The bias to subtract. Raises InputError unless exactly one source is given, or the description has one."""
    import numpy as np

    from gpu_psf.overscan import overscan_bias

    given = [bool(darks), args.overscan is not None, args.bias is not None]
    if not any(given) and known.bias is not None:
        return known.bias
    if not any(given) and known.overscan is not None:
        return overscan_bias(raw, known.overscan)
    if sum(given) != 1:
        raise InputError(f"{sum(given)} sources of the bias are given, exactly one is needed: --dark, --overscan, "
                         "--bias, or a --spectrograph that has bias or overscan")
    if darks:
        return np.median(darks, axis=0)
    return overscan_bias(raw, args.overscan) if args.bias is None else args.bias


def _detector(args: argparse.Namespace, raw: Any, darks: list[Any], bias: Any, known: "Spectrograph") -> "Detector":
    """Gain and read noise, given, measured or described, in this order. Raises InputError where they are unknown."""
    from gpu_psf.detector import Detector
    from gpu_psf.noise import read_noise_of, unevenness, with_bias
    from gpu_psf.preprocess import turned
    from gpu_psf.raw import check_unlike
    from gpu_psf.transfer import gain_from, photon_transfer

    given: Any = args.read_noise if args.read_noise is not None or darks else known.read_noise
    gain = args.gain if args.gain is not None or args.transfer else known.gain
    if (given is None and not darks) or (gain is None and not args.transfer):
        what = "--read-noise, or --dark" if given is None and not darks else "--gain, or --transfer"
        raise InputError(f"gain and read noise must be known: give {what}, or a --spectrograph that has them")
    if args.gain is not None and args.transfer:
        raise InputError("--gain and --transfer are both given: give the gain, or flats to measure it, not both")
    dark: Any = read_noise_of(darks) if darks and (given is None or gain is None) else None
    if gain is None:
        if len(args.transfer) > 2:
            raise InputError(f"--transfer: {len(args.transfer)} flats are given, must be one or two")
        flats = [_read_like("--transfer", name, raw, args.input)[0] for name in args.transfer]
        check_unlike("--transfer", list(zip(args.transfer, flats, strict=True)))
        flats = [turned(flat - (bias if darks else _bias(args, flat, darks, known)), args.dispersion) for flat in flats]
        gain = (gain_from(flats, given, args.saturation) if dark is None else
                photon_transfer(flats[0], dark, args.saturation, *flats[1:]).gain)
    if given is not None:
        return Detector(gain, given, args.saturation)
    noise = with_bias(dark, len(darks)) * gain
    return Detector(gain, noise, args.saturation, noise * unevenness(darks))
