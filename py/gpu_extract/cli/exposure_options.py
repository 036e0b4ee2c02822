"""The options of gpu_extract_exposure."""
from gpu_extract.cli.common import Parser, add_common_options
from gpu_extract.cli.options import PADDING, add_how, add_machine, add_what

DESCRIPTION = """\
Extract all frames of an exposure or of a night with one command, on any number
of ranks. Groups of ranks extract one frame after another. While a group
computes, its next frame is read and its previous one is written. A frame is
skipped if its file is complete and was made from the same input with the same
settings. After a failure, a kill or a time limit, start the same command again."""

EPILOG = """\
examples
  gpu_extract_exposure -i 'preproc-*.fits' -p 'psf-{camera}-{expid}.fits' -o out
      a folder; wavelengths and PSF error from the preset of each image's camera
  mpiexec -n 20 gpu_extract_exposure list.txt -o frames
      a list with a line IMAGE PSF [OUTPUT] for each frame
  mpiexec -n 2 gpu_extract_exposure --simulate 12 -o frames
      twelve simulated r frames of 500 fibres, made on first use
  sbatch slurm/exposure.sh list.txt -o frames
      under Slurm; the job starts itself again when its time is up

exit codes
  0 done   2 usage or input   3 output   4 internal error or a lost rank
  75 stopped cleanly, or another run is working on a frame: start again
  If several frames fail, the highest of their codes."""


def build_parser() -> Parser:
    """The parser of gpu_extract_exposure."""
    parser = Parser("gpu_extract_exposure", DESCRIPTION, EPILOG)
    add = parser.add_argument_group("frames (FITS, .fits or .fits.gz)").add_argument
    add("list", nargs="?", metavar="LIST",
        help="text file with a line IMAGE [PSF [OUTPUT]] for each frame; names are relative to the file's folder")
    add("-i", "--input", metavar="PATTERN", nargs="+", help="images, instead of a list; put wildcards in quotes")
    add("-p", "--psf", metavar="FILE",
        help="PSF of all frames; {camera}, {expid} and {stem} are filled in from each image's name")
    add("-o", "--output", metavar="FOLDER",
        help="folder for the frames, created if missing; preproc-r5-00012345.fits becomes frame-r5-00012345.fits")
    add("--no-scores", action="store_true", help="leave the HDU SCORES out of the frames")
    add("--ignore-checksums", action="store_true", help="read files even if their CHECKSUM or DATASUM does not match")
    add = parser.add_argument_group("simulated frames").add_argument
    add("--simulate", metavar="N", type=int, help="extract N simulated frames; their images are kept in "
                                                  "FOLDER/simulated")
    add("--camera", metavar="NAME", default="r0",
        help="camera of the simulated frames; several, separated by commas, take turns, e.g. b0,r0,z0 (default r0)")
    add("--seed", metavar="N", type=int, default=1, help="seed of the first simulated frame (default 1)")
    add_what(parser)
    add_how(parser)
    add = parser.add_argument_group("run").add_argument
    add("--recompute", action="store_true", help="also extract frames whose output exists and is complete")
    add("--groups", metavar="N", type=int,
        help="number of groups of ranks, each of which extracts its own frame (default: the number that finishes "
             "soonest)")
    add("--perf", metavar="FILE.json", help="write how each rank spent its time, for gpu_perf report")
    add_machine(parser)
    add_common_options(parser)
    # options of a single frame, which read_job and `ignored` use
    parser.set_defaults(fibermap=None, test=None, model=None, qa=None, **dict.fromkeys(PADDING))
    return parser
