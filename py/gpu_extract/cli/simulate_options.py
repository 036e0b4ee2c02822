"""The options of gpu_simulate."""
from gpu_extract.cli.common import GRID, Parser, add_common_options, separated

DESCRIPTION = """\
Simulate a CCD frame of a fibre spectrograph like DESI's, with known truth:
curved traces in bundles, a Gauss-Hermite PSF that varies with fibre and
wavelength, the real lines of the night sky, stars, galaxies and quasars, photon
and read noise, and defects.

Three files are written: the image (IMAGE, IVAR, MASK, READNOISE, FIBERMAP), the
PSF (GAUSS-HERMITE, version 3; TABULATED for the camera side) and the truth
(WAVELENGTH, FLUX, TARGETS). gpu_extract reads the first two."""
EPILOG = """\
examples
  gpu_simulate -o preproc.fits
      a whole r frame, 500 fibres; also preproc-psf.fits and preproc-truth.fits
  gpu_simulate -o preproc.fits --camera z --nspec 50 --program bright --crop
      two bundles of another camera under moonlight; the image ends after them
  gpu_simulate -o a.fits --camera tiny --truth-grid 6020,6090,0.8 --no-defects
      ten short fibres, with truth on the bins of an extraction: flux = R x
      truth; extract them with gpu_extract -w 6020,6090,0.8
  gpu_simulate -o a.fits --camera tiny --reference ref.fits -w 6020,6090,0.8
      and the frame that an extraction of it must return, from the slow
      reference code
  gpu_simulate -o arc.fits --flavor arc --exact-lines --flexure 1.5,-3
      an arc that lies beside the traces of the output PSF, as input for
      gpu_psf fit
  gpu_simulate -o flat.fits --camera side --flavor flat --raw raw-flat.fits
      a made-up spectrograph, and its image in ADU with the dispersion along x

Equal seeds give equal frames, bit by bit. A part of a frame equals that part of
the whole: --specmin 100 --nspec 25 gives the pixels that fibres 100-124 have in
a frame of 500. Bad columns, hot pixels and the fibres' throughput depend on the
camera, not on the seed.

exit codes
  0 done   2 usage or input   3 output   4 internal error
  75 interrupted, start again"""


SHIFT = separated(float, "a shift; give x,y in pixels, e.g. 0.3,-1.2", 2)
FIBRES = separated(int, "a list of fibre numbers, e.g. 3,17")


def build_parser() -> Parser:
    """The parser of gpu_simulate."""
    parser = Parser("gpu_simulate", DESCRIPTION, EPILOG)
    _files(parser)
    _scene(parser)
    _defects(parser)
    add_common_options(parser)
    return parser


def _files(parser: Parser) -> None:
    add = parser.add_argument_group("files").add_argument
    add("-o", "--output", metavar="FILE", required=True,
        help="output image (.fits or .fits.gz); an existing file is replaced")
    add("--psf-out", metavar="FILE", help="output PSF (default: OUTPUT-psf.fits; 'none' writes none)")
    add("--truth-out", metavar="FILE", help="output truth (default: OUTPUT-truth.fits; 'none' writes none)")
    add("--true-psf", metavar="FILE", help="also write the true PSF of the light, which may differ from the output PSF")
    add("--raw", metavar="FILE",
        help="also write a raw image, for gpu_psf preprocess: in ADU of 1.2 electrons over a bias of 1000, with the "
             "dispersion along x for the camera side")
    add("--reference", metavar="FILE",
        help="also extract the frame with the slow, independent reference code and write the result; takes seconds for "
             "the camera tiny, hours for a whole frame")
    add("-w", "--wavelength", metavar="WMIN,WMAX,DW", type=GRID,
        help="grid of the reference in Angstrom, both ends included (default: --truth-grid, else the preset's of b, r "
             "or z)")
    add("--perf", metavar="FILE.json", help="write how the time was spent")


def _scene(parser: Parser) -> None:
    add = parser.add_argument_group("what to simulate").add_argument
    add("--camera", default="r0", metavar="NAME",
        help="b, r, z, tiny (ten short fibres of an r camera, 6000 to 6110 A; CAMERA is r0, which pipelines accept, "
             "and SIMCAM is tiny) or side (60 fibres, tabulated spots), with or without the spectrograph's digit, e.g. "
             "r5 (default r0)")
    add("-s", "--specmin", metavar="N", type=int, default=0, help="first fibre (default 0)")
    add("-n", "--nspec", metavar="N", type=int,
        help="number of fibres (default: all of the camera). Whole bundles are made. More fibres than the camera has "
             "give several detectors side by side")
    add("--seed", metavar="N", type=int, default=1, help="seed of sky, targets, noise and cosmics (default 1)")
    add("--flavor", choices=("science", "arc", "flat"), default="science", help="kind of exposure (default science)")
    add("--program", choices=("dark", "bright"), default="dark",
        help="dark (default): faint targets; bright: brighter targets under moonlight")
    add("--exptime", metavar="S", type=float, help="exposure time in seconds (default: dark 1000, bright 300, arc 5, "
                                                   "flat 120)")
    add("--expid", metavar="N", type=int, default=1, help="exposure number in the header (default 1)")
    add("--night", metavar="YYYYMMDD", type=int, default=20250315, help="night in the header (default 20250315)")
    grid = parser.add_argument_group("truth").add_mutually_exclusive_group()
    grid.add_argument("--truth-step", metavar="A", type=float, default=0.2,
                      help="make the spectra on bins of this width (default 0.2)")
    grid.add_argument("--truth-grid", metavar="WMIN,WMAX,DW", type=GRID,
                      help="make the spectra on the bins of this extraction, continued beyond both ends")
    parser.add_argument("--threads", metavar="N", type=int, default=1,
                        help="threads (default 1); the result does not depend on their number")


def _defects(parser: Parser) -> None:
    group = parser.add_argument_group("noise and defects")
    add = group.add_argument
    add("--no-noise", dest="noise", action="store_false",
        help="no photon noise, read noise or cosmics; IVAR is the same as with them")
    add("--variance", choices=("model", "data"), default="model",
        help="derive IVAR from the noiseless expectation (default) or from the noisy pixels")
    add("--no-defects", action="store_true", help="no cosmics, bad columns or hot pixels")
    add("--no-cosmics", dest="cosmics", action="store_const", const=False, help="no cosmics")
    add("--bad-columns", metavar="N", type=int, help="number of bad columns per detector (default 6)")
    add("--hot-pixels", metavar="N", type=int, help="number of hot or dead pixels per detector (default 40)")
    add("--dead-amp", dest="dead_amplifier", metavar="X",
        help="amplifier without light: A, B (lower left, right), C, D (upper)")
    add("--dead-fibres", metavar="I,J,...", type=FIBRES, default=(), help="fibres without light")
    add("--broken-fibres", metavar="I,J,...", type=FIBRES, default=(), help="fibres that pass 2-10 %% of the light")
    add("--masked-fraction", metavar="X", type=float, default=0.0, help="fraction of pixels masked at random (default "
                                                                        "0)")
    add("--hidden-cosmics", action="store_true", help="do not mark cosmics in MASK, for gpu_extract --passes 2")
    add("--psf-error", metavar="X", type=float, default=0.0,
        help="fraction by which the output PSF is broader than the true one, e.g. 0.01 (default 0); below 0: the "
             "camera is out of focus")
    add("--flexure", metavar="DX,DY", type=SHIFT, default=(0.0, 0.0),
        help="offset of the light from the traces of the output PSF in pixels, e.g. 0.3,-1.2 (default 0,0)")
    add("--exact-lines", action="store_true",
        help="place an arc's lines at their exact wavelengths, not on the bins of the truth, for a fit of the PSF")
    add("--tails", metavar="X", type=float, default=0.0,
        help="amplitude of a tail of all spots, 60 pixels long, e.g. 0.002 (default 0: none)")
    add("--scattered", metavar="E", type=float, default=0.0,
        help="mean electrons of scattered light per pixel (default 0)")
    add("--crop", action="store_true", help="end the image after the last bundle")
