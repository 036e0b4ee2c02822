"""gpu_psf fit: fits a PSF to arcs, from a starting PSF."""
import argparse
import os
from typing import TYPE_CHECKING, Any

from gpu_extract.cli.common import log, separated, set_threads
from gpu_extract.cli.ranks import start_ranks
from gpu_extract.errors import ExitCode, InputError

if TYPE_CHECKING:
    import numpy as np

    from gpu_extract.data import Card, Image, PsfModel
    from gpu_psf.data import FitConfig, Lines
    from gpu_psf.run import FittedPsf

NAME = "fit"
TAIL = separated(float, "four numbers: core (pixels), scales in x and y, and index, e.g. 1,1,1,2", 4)
# chi squared of a bundle, share of the cores' pixels left out, and error of the model that bring a warning
HIGH, MANY, WRONG = 2.0, 0.1, 0.1
UNLISTED, HOT = 0.25, 3 # unlisted lines per listed line, and hot columns of a bundle, that bring a warning
APART = 0.1             # shift of arcs against each other in pixels that brings a warning
SCATTER = 0.05          # scatter of lines along the traces in pixels that brings a warning
HELP = "fit traces and spot shapes to arcs, starting from another PSF"
DESCRIPTION = """\
Fit traces and spot shapes to one or several arcs together, bundle by bundle.
The starting PSF is that of another night, at most a few pixels off, or one with
Gaussian spots."""
EPILOG = """\
examples
  gpu_psf fit -i arc.fits -p psf-last-night.fits -o psf.fits
  gpu_psf fit -i arc-1.fits arc-2.fits -p psf.fits -o new.fits \\
      --lines neon.txt --qa new.png
  mpiexec -n 20 gpu_psf fit -i arc.fits -p psf.fits -o new.fits
      each rank fits one bundle at a time
  gpu_psf fit -i arc.fits -p start.fits -o psf.fits --spots tables
      spots of any shape
  gpu_psf fit -i arc.fits -p start.fits -o psf.fits --tail --continuum under
      tails; few pixels without lines

The images have the format that gpu_extract reads: IMAGE in electrons, IVAR,
MASK, READNOISE. A list of lines is a text file. Each line holds a wavelength
(Angstrom) and, if known, a strength.

Finished bundles are kept in the folder OUTPUT.bundles, beside the output, until
the PSF is written. A fit that was killed reuses them when it is started again.
The result is the same.

The file holds a STATUS for each fibre: 0 fitted, 1 few lines, 2 no line (its
position comes from its neighbours), 3 not fitted (the starting PSF, moved like
the nearest bundles)."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    add = parser.add_argument
    add("-i", "--input", metavar="ARC", nargs="+", required=True, help="images of arcs, fitted together")
    add("-p", "--psf", metavar="FILE", required=True, help="starting PSF")
    add("-o", "--output", metavar="FILE", required=True,
        help="output PSF (.fits or .fits.gz); an existing file is replaced")
    add("--lines", metavar="FILE", help="list of the lamps' lines (default: Hg, Cd, Ne, Ar, Kr, Xe; vacuum "
                                        "wavelengths)")
    add("--qa", metavar="FILE", help="picture of residuals, shifts, widths and chi squared (.png, .pdf, .svg)")
    add("-s", "--specmin", metavar="N", type=int, default=0, help="first fibre; whole bundles are fitted (default 0)")
    add("-n", "--nspec", metavar="N", type=int, help="number of fibres (default: all)")
    shape = parser.add_argument_group("what is fitted").add_argument
    shape("--spots", metavar="KIND", default="gauss-hermite",
          help="gauss-hermite (default), or tables: Gauss-Hermite spots corrected by their residuals, for spots of any "
               "shape")
    shape("--positions", metavar="N", type=int, default=3,
          help="with --spots tables: positions per pixel along each axis (default 3)")
    shape("--gh-degree", metavar="N", type=int, default=6, help="degree of the Gauss-Hermite terms (default 6)")
    shape("--wave-degree", metavar="N", type=int, default=3,
          help="degree of the shapes in wavelength (default 3)")
    shape("--across-degree", metavar="N", type=int, default=1,
          help="degree of the shapes across the fibres of a bundle (default 1)")
    shape("--trace-degree", metavar="N", type=int,
          help="degree of the traces in wavelength (default: the starting PSF's)")
    shape("--tail", metavar="SHAPE", nargs="?", const=(), type=TAIL,
          help="also fit the amplitude of the spots' tails; SHAPE is CORE,XSCALE,YSCALE,INDEX (default: the starting "
               "PSF's shape, or 1,1,1,2 if it has no tail). Without --tail its tail is kept")
    shape("--continuum", metavar="KIND", default="between",
          help="how to fit the light beside the lines: between (default) uses the pixels away from lines; under uses "
               "all pixels, together with the lines; none does not fit it")
    shape("--reach", metavar="DX,DY", type=separated(int, "two numbers of pixels, e.g. 4,10", 2), default="4,10",
          help="largest offset of the starting PSF in x and y, in pixels (default 4,10)")
    shape("--saturation", metavar="E", type=float, default=6e4,
          help="leave out pixels with this many electrons or more, as saturated (default 60000)")
    run = parser.add_argument_group("how to run").add_argument
    run("--mpi", action="store_true", help="use MPI even if no launcher is recognised")
    run("--threads", metavar="N", type=int, help="threads of the numerical libraries on each rank (default 1)")


def body(args: argparse.Namespace) -> int:
    """Fit and write; rank 0 reads, writes and logs."""
    set_threads(args.threads)
    comm = start_ranks(args.mpi, "gpu_psf")
    from gpu_psf.data import Lines
    from gpu_psf.kept import ENDING, Kept
    from gpu_psf.run import fit_psf

    cards: list[tuple[Card, ...]] = []

    def read() -> tuple[Any, ...]:
        _check_outputs(args)
        images, start, lines = read_inputs(args)
        cards.append(images[0].cards)
        from gpu_extract.io.image import bare

        return [bare(image) for image in images], start, (lines.wave, lines.strength), _key(args)

    with comm.together():
        config = _config(args)
        images, start, (wave, strength), key = comm.share(read)
        kept = Kept(f"{args.output}{ENDING}", key)
        fitted = fit_psf(images, start, Lines(wave, strength), config, comm=comm, tell=log.info, kept=kept)
        if fitted is not None:
            _deliver(args, fitted, cards[0], config)
            kept.remove()
        comm.barrier()
    return ExitCode.DONE


def _config(args: argparse.Namespace) -> "FitConfig":
    """The settings from the options. Raises ConfigError."""
    from gpu_psf.data import FitConfig

    return FitConfig(args.gh_degree, args.wave_degree, args.across_degree, args.trace_degree, args.reach,
                     args.saturation, args.specmin, args.nspec, args.spots, args.positions, args.tail, args.continuum)


def _key(args: argparse.Namespace) -> str:
    """Key of everything that the bundles of this fit are made from."""
    from gpu_psf.kept import key_of

    files = [*args.input, args.psf, *([args.lines] if args.lines else [])]
    return key_of(files, (_config(args), bool(args.lines)))


def _check_outputs(args: argparse.Namespace) -> None:
    from gpu_extract.io.atomic import FITS_ENDINGS, check_apart, check_target

    real = [os.path.realpath(path) for path in args.input]
    for n, path in enumerate(args.input):
        if real[n] in real[:n]:
            raise InputError(f"{path}: is given twice, so its photons would count twice; give each arc once")
    check_target(args.output, endings=FITS_ENDINGS)
    check_apart((*(("-i", path) for path in args.input), ("-p", args.psf), ("--lines", args.lines)),
                (("-o", args.output), ("--qa", args.qa)))
    if args.qa:
        from gpu_extract.figures.canvas import check_picture

        check_target(args.qa)
        check_picture(args.qa)


def read_inputs(args: argparse.Namespace) -> "tuple[list[Image], PsfModel, Lines]":
    """Arcs, starting PSF and lines. Raises InputError."""
    from gpu_extract.io.psf import read_psf
    from gpu_psf.lamp import read_lines, shipped_lines

    start = read_psf(args.psf)
    images = [read_like(path, start) for path in args.input]
    return images, start, read_lines(args.lines) if args.lines else shipped_lines()


def read_like(path: str, psf: "PsfModel") -> "Image":
    """The image of an exposure. Raises InputError if it comes from another camera than the PSF."""
    from gpu_extract.checks.sense import strangers
    from gpu_extract.io.image import read_image

    image = read_image(path, fibermap=False)
    wrong = strangers(image.cards, psf.identity, psf.name)
    if wrong:
        raise InputError(f"{path}: {wrong}; give an exposure and a PSF of one camera")
    return image


def _deliver(args: argparse.Namespace, fitted: "FittedPsf", cards: "tuple[Card, ...]", config: "FitConfig") -> None:
    """Write the PSF and its page, and report the outcome."""
    from gpu_psf.words import left_out, named
    from gpu_psf.write import write_fitted

    write_fitted(args.output, fitted, cards=cards, config=config, inputs=[*args.input, args.psf])
    if args.qa:
        from gpu_psf.figures import qa_page

        qa_page(args.qa, fitted)
        log.info(f"picture: {args.qa}")
    rows, fibres = fitted.bundles, fitted.fibres
    lost = rows[rows["FITTED"] == 0]
    if len(lost):
        log.warning(f"{len(lost)} of {len(rows)} bundles are not fitted. First: fibres "
                    f"{lost[0]['FIRST']}-{lost[0]['LAST']}: {lost[0]['REASON'].decode()} (the others: table BUNDLES)")
    odd = rows[(rows["CHI2"] > HIGH) | (rows["ODD"] > MANY) | (rows["PSFERR"] > WRONG)]
    if len(odd):
        log.warning(f"{len(odd)} of {len(rows)} bundles have a chi2 above {HIGH:g}, more than {100 * MANY:.0f} % of "
                    f"the pixels in the cores of spots left out, or a PSFERR above {WRONG:g}, the first, fibres "
                    f"{odd[0]['FIRST']}-{odd[0]['LAST']}, {odd[0]['CHI2']:.1f}, {100 * odd[0]['ODD']:.0f} % and "
                    f"{odd[0]['PSFERR']:.2f}. Either the lines are not where the list places them, or the spots have "
                    "another shape (then use --spots tables)")
    apart = rows[rows["APART"] > APART]
    if len(apart):
        log.warning(f"the arcs are shifted against each other in {len(apart)} of {len(rows)} bundles, by up to "
                    f"{apart['APART'].max():.2f} pixels: the fitted PSF lies between them; fit them one by one")
    _tell_left_out(rows)
    if len(fitted.misplaced):
        log.warning(f"{int((rows['MISPLACED'] > 0).sum())} of {len(rows)} bundles have lines that are not where the "
                    f"list has them, which are left out: {named(fitted.misplaced)}; correct the list")
    loose = rows[rows["SCATTER"] > SCATTER]
    if len(loose):
        log.warning(f"the lines of {len(loose)} of {len(rows)} bundles scatter along the traces by more than "
                    f"{SCATTER:g} pixels beyond noise, by up to {loose['SCATTER'].max():.2f}: traces are as wrong as "
                    "the list, or need a higher --trace-degree")
    states = [f"{int((fibres['STATUS'] == state).sum())} {words}" for state, words in
              enumerate(("fitted", "with few lines", "interpolated", "not fitted"))]
    log.info(f"PSF: {args.output} (fibres: {', '.join(states)}; PSFERR {fitted.psf.psferr:.4f}"
             f"{left_out(rows['UNLISTED'].max(), rows['HOT'].sum(), rows['MISPLACED'].max(), most='up to ')})")


def _tell_left_out(rows: "np.ndarray") -> None:
    """Warn of lines that the list lacks, and of columns that the mask lacks."""
    short = rows[rows["UNLISTED"] > UNLISTED * rows["NLINE"]]
    if len(short):
        most = short[short["UNLISTED"].argmax()]
        log.warning(f"{len(short)} of {len(rows)} bundles have many lines that are not in the list, most of all fibres "
                    f"{most['FIRST']}-{most['LAST']} ({most['UNLISTED']} beside {most['NLINE']} that are): what is "
                    "near them is left out; give the whole list of this lamp")
    hot = rows[rows["HOT"] > HOT]
    if len(hot):
        log.warning(f"{len(hot)} of {len(rows)} bundles have more than {HOT} hot columns that are not masked, the "
                    f"first, fibres {hot[0]['FIRST']}-{hot[0]['LAST']}, {hot[0]['HOT']}: they are left out; mask them "
                    "in the images to extract, too")
