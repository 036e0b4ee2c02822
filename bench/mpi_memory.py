"""How do the memory of a node, the time and the bits of a frame depend on the number of ranks?

usage: mpi_memory.py [--camera r] [--nspec 500] [--ranks 1,4] [--model] [--frames 0] [--groups N] [--folder DIR]
                     [--smallest]

Prints a line for each number of ranks: seconds from start to end, the most memory that all processes of the run
took together (proportional set size: a page that n processes share counts 1/n for each), at that moment the parts
of it that are private, of files (libraries) and of shared memory (the image and the PSF, once for all ranks, and
MPI's own), the limit of 0.6 GB + 0.35 GB per rank, and whether every HDU's DATASUM is that of the first line.
--frames: an exposure of so many instead of one frame, in as many groups as the program finds right (or --groups); the
limit has 0.55 GB more for each group, the frames in flight. --folder keeps the simulated images of an exposure.
--smallest is a few fibres on two ranks: to see that this still runs.
"""
import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from gpu_extract.exposure.layout import choose_groups
from gpu_extract.simulate import SimConfig, simulate, write_simulation

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
from parsing import parser_of

from ranks import PARTS, datasums, launcher, most_memory, program

IN_FLIGHT = 0.55       # GB for each group of an exposure: see doc/exposures.md


def limit(ranks: int, groups: int) -> float:
    """GB that so many ranks may take together, in groups with frames in flight (0: one frame, nothing in flight)."""
    return 0.6 + 0.35 * ranks + IN_FLIGHT * groups


def compare(command: list[str], folder: Path, ranks: list[int], groups: Callable[[int], int]) -> bool:
    """Print a line for each number of ranks; whether all bits are the same and all limits are kept."""
    good = True
    first: list[dict[str, str]] = []
    for n in ranks:
        seconds, memory = most_memory([*launcher(n), *command], str(folder))
        sums = [datasums(path) for path in sorted(folder.glob("frame*.fits"))]
        first = first or sums
        most = limit(n, groups(n))
        numbers = "".join(f"{memory[part] / 1e9:10.3f}" for part in PARTS)
        print(f"{n:5d}{seconds:9.1f}{numbers}{most:10.2f}  {'same' if sums == first else 'DIFFERENT'}", flush=True)
        good = good and sums == first and memory["Pss"] / 1e9 <= most
    return good


def one_frame(args: argparse.Namespace, folder: Path, grid: list[str]) -> list[str]:
    """The command that makes one frame of a simulated image."""
    image, psf = folder / "image.fits", folder / "psf.fits"
    write_simulation(simulate(SimConfig(camera=args.camera, nspec=args.nspec)), image, psf=psf)
    command = [*program("gpu_extract"), "-i", str(image), "-p", str(psf), "-n", str(args.nspec), "-o",
               str(folder / "frame.fits"), "--loglevel", "warning", *grid]
    return [*command, "-m", str(folder / "model.fits")] if args.model else command


def exposure(args: argparse.Namespace, folder: Path, grid: list[str]) -> list[str]:
    """The command that makes so many frames."""
    command = [*program("gpu_extract_exposure"), "--simulate", str(args.frames), "--camera", args.camera, "-o",
               str(folder), "--recompute", "--no-gpu", "--loglevel", "warning", *grid]
    command += [] if args.nspec == 500 else ["-n", str(args.nspec)]
    return [*command, "--groups", str(args.groups)] if args.groups else command


def main() -> int:
    """Measure and print."""
    parser = parser_of(__doc__, camera="r", nspec=500, ranks="1,4", frames=0, folder=None)
    parser.add_argument("--model", action="store_true", help="also write the model image")
    parser.add_argument("--groups", type=int)
    args = parser.parse_args()
    if args.smallest:
        args.camera, args.nspec, args.ranks = "tiny", 10, "1,2"
    grid = ["-w", "6020,6090,0.8" if args.smallest else "6012,6098,0.8"] if args.camera == "tiny" else []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(args.folder or name)
        command = (exposure if args.frames else one_frame)(args, folder, grid)
        if not args.smallest:
            most_memory(command, str(folder))          # kernels are compiled, files are in the page cache
        print("memory in GB\nranks  seconds  together   private     files    shared     limit  bits")

        def groups(ranks: int) -> int:
            if not args.frames:
                return 0
            return min(args.groups or choose_groups(args.frames, ranks, -(-args.nspec // 25)), ranks)

        return 0 if compare(command, folder, [int(n) for n in args.ranks.split(",")], groups) else 1


if __name__ == "__main__":
    raise SystemExit(main())
