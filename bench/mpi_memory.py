"""How do the memory of a node, the time and the bits of a frame depend on the number of ranks?

usage: mpi_memory.py [--camera r] [--nspec 500] [--ranks 1,4] [--model] [--smallest]

Prints a line for each number of ranks: seconds from start to end, the most memory that all processes of the run
took together (proportional set size: a page that n processes share counts 1/n for each), at that moment the parts
of it that are private, of files (libraries) and of shared memory (the image and the PSF, once for all ranks, and
MPI's own), the limit of 0.6 GB + 0.35 GB per rank, and whether every HDU's DATASUM is that of the first line.
--smallest is a few fibres on two ranks: to see that this still runs.
"""
import argparse
import sys
import tempfile
from pathlib import Path

from gpu_extract.simulate import SimConfig, simulate, write_simulation

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
from ranks import PARTS, datasums, launcher, most_memory, program


def row(ranks: int, seconds: float, memory: dict[str, int], same: bool) -> str:
    """A line of the table."""
    numbers = "".join(f"{memory[part] / 1e9:10.3f}" for part in PARTS)
    return f"{ranks:5d}{seconds:9.1f}{numbers}{limit(ranks):10.2f}  {'same' if same else 'DIFFERENT'}"


def limit(ranks: int) -> float:
    """GB that so many ranks may take together."""
    return 0.6 + 0.35 * ranks


def compare(command: list[str], folder: Path, ranks: list[int]) -> bool:
    """Print a line for each number of ranks; whether all bits are the same and all limits are kept."""
    good = True
    first: dict[str, str] = {}
    for n in ranks:
        seconds, memory = most_memory([*launcher(n), *command], str(folder))
        sums = datasums(folder / "frame.fits")
        first = first or sums
        print(row(n, seconds, memory, sums == first), flush=True)
        good = good and sums == first and memory["Pss"] / 1e9 <= limit(n)
    return good


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--camera", default="r")
    parser.add_argument("--nspec", type=int, default=500)
    parser.add_argument("--ranks", default="1,4")
    parser.add_argument("--model", action="store_true", help="also write the model image")
    parser.add_argument("--smallest", action="store_true")
    args = parser.parse_args()
    camera, nspec, ranks = ("tiny", 10, "1,2") if args.smallest else (args.camera, args.nspec, args.ranks)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        image, psf = folder / "image.fits", folder / "psf.fits"
        write_simulation(simulate(SimConfig(camera=camera, nspec=nspec)), image, psf=psf)
        command = [*program("gpu_extract"), "-i", str(image), "-p", str(psf),
                   "-n", str(nspec), "-o", str(folder / "frame.fits"), "--loglevel", "warning"]
        command += ["-m", str(folder / "model.fits")] if args.model else []
        command += ["-w", "6012,6098,0.8"] if camera == "tiny" else []
        command += ["-w", "6020,6090,0.8"] if args.smallest else []
        if not args.smallest:
            most_memory(command, str(folder))          # kernels are compiled, files are in the page cache
        print(f"{image.stat().st_size / 1e6:.0f} MB of image file; memory in GB")
        print("ranks  seconds  together   private     files    shared     limit  bits")
        return 0 if compare(command, folder, [int(n) for n in ranks.split(",")]) else 1


if __name__ == "__main__":
    raise SystemExit(main())
