"""What does a night in .fits.gz cost above plain files, and what does the library itself need for these bytes?

usage: gz.py [IMAGE PSF] [--ranks 2] [--nspec 500] [--repeat 3] [--frames 6] [--smallest]

IMAGE is a plain image; without, an r frame is simulated. Runs, by turns, `gpu_extract` from plain to plain and from
.fits.gz to .fits.gz; between them the library alone inflates the packed image and deflates the frame, on one thread.
Prints the medians, the difference against the library (bar <= 1.2), and for --frames frames (0: leave it out) the rate
of `gpu_extract_exposure` from gz to gz against plain (bar >= 0.8). Ratios of one run count; other work on the machine
makes all of them uncertain.
"""
import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from isal import isal_zlib

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
from parsing import parser_of

from gpu_extract.io.content import Content
from gpu_extract.io.pack import write_packed
from gpu_extract.perf import clock
from ranks import ENVIRONMENT, launcher, program

ABOVE, RATE = 1.2, 0.8          # bars
GZIP, LEVEL, PIECE = 31, 1, 1 << 20


def timed(command: list[str]) -> float:
    """Wall seconds of a command."""
    start = clock.now()
    subprocess.run(command, check=True, env=ENVIRONMENT)
    return clock.now() - start


def library(packed: bytes, frame: bytes) -> float:
    """Seconds in which the library inflates the image and deflates the frame, in pieces, on one thread."""
    start = clock.now()
    member, left = isal_zlib.decompressobj(GZIP), packed
    for first in range(0, len(packed), PIECE):
        left = packed[first:first + PIECE]
        while left:
            member.decompress(left, PIECE)
            left = member.unconsumed_tail
    packer = isal_zlib.compressobj(LEVEL, isal_zlib.DEFLATED, GZIP)
    packer.compress(frame)
    packer.flush()
    return clock.now() - start


def one_frame(args: argparse.Namespace, folder: Path, images: dict[str, Path]) -> bool:
    """A frame from plain to plain and from gz to gz, by turns; whether its bar is reached."""
    base = [*launcher(args.ranks if args.ranks > 1 else 0), *program("gpu_extract"), "-p", str(args.psf), *args.options]
    commands = {ending: [*base, "-i", str(image), "-o", str(folder / f"frame{ending}")] for ending, image in
                images.items()}
    for command in commands.values():
        timed(command)
    packed, frame = images[".fits.gz"].read_bytes(), (folder / "frame.fits").read_bytes()
    took: dict[str, list[float]] = {ending: [] for ending in commands}
    alone = []
    for _ in range(args.repeat):
        for ending, command in commands.items():
            took[ending].append(timed(command))
        alone.append(library(packed, frame))
    above = statistics.median(b - a for a, b in zip(*took.values(), strict=True))
    ratio = above / statistics.median(alone)
    medians = ", ".join(f"{ending} {statistics.median(seconds):.2f} s" for ending, seconds in took.items())
    print(f"image {len(packed) / 1e6:.0f} MB packed, frame {len(frame) / 1e6:.0f} MB plain; {args.ranks} ranks, "
          f"{args.nspec} fibres, {args.repeat} by turns\n{medians}; above plain {above:.2f} s, the library alone "
          f"{statistics.median(alone):.2f} s")
    print(f"above plain / library   {ratio:6.2f}  bar <= {ABOVE}  {'reached' if ratio <= ABOVE else 'NOT REACHED'}")
    return ratio <= ABOVE


def many_frames(args: argparse.Namespace, folder: Path, images: dict[str, Path]) -> bool:
    """The same image as many frames, plain and gz, once each; whether its bar is reached."""
    took = {}
    for ending, image in images.items():
        names = folder / f"night{ending}.txt"
        names.write_text("".join(f"{image} {args.psf} {folder}/n{n}{ending}\n" for n in range(args.frames)))
        took[ending] = timed([*launcher(args.ranks if args.ranks > 1 else 0), *program("gpu_extract_exposure"),
                              str(names), "--recompute", *args.options])
    rate = took[".fits"] / took[".fits.gz"]
    print(f"{args.frames} frames: " + ", ".join(f"{ending} {seconds:.1f} s" for ending, seconds in took.items()))
    print(f"rate gz / plain         {rate:6.2f}  bar >= {RATE}  {'reached' if rate >= RATE else 'NOT REACHED'}")
    return rate >= RATE


def main() -> int:
    """Measure and print."""
    parser = parser_of(__doc__, ranks=2, nspec=500, repeat=3, frames=6)
    parser.add_argument("image", type=Path, nargs="?")
    parser.add_argument("psf", type=Path, nargs="?")
    args = parser.parse_args()
    args.options = ["--no-gpu", "--loglevel", "error", "-n", str(args.nspec)]
    if args.smallest:
        args.ranks, args.repeat, args.frames = 1, 1, 1
        args.options[2:] = ["error", "-w", "6030,6080,0.8"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.psf is None:
            args.image, args.psf = folder / "sim.fits", folder / "sim-psf.fits"
            timed([*program("gpu_simulate"), "--camera", "tiny" if args.smallest else "r", "-o", str(args.image),
                   "--loglevel", "error"])
        packed = folder / "image.fits.gz"
        write_packed(packed, Content([args.image.read_bytes()]))
        images = {".fits": args.image.resolve(), ".fits.gz": packed}
        good = one_frame(args, folder, images)
        if args.frames:
            good &= many_frames(args, folder, images)
    return 0 if good or args.smallest else 1


if __name__ == "__main__":
    sys.exit(main())
