"""What does a whole frame cost, as a user runs it: the command with reading and writing, on several ranks?

usage: frame.py [--camera r] [--program dark] [--passes 1] [--ranks 2] [--nspec 500] [--repeat 3] [--smallest]

Runs `gpu_extract` on a simulated frame under mpiexec (--ranks 1: without), best of the repeats with warm caches,
and the same launcher on a program that only imports what gpu_extract does: the difference is what the frame costs.
Prints the seconds, the stages of rank 0, the peak memory of every rank (from /proc, while it runs), and how many fibres
took which path.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Event, Thread

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
from astropy.io import fits
from parsing import parser_of

from gpu_extract.data import Status
from gpu_extract.perf import clock
from ranks import launcher, program

IMPORTS = ("import gpu_extract.run, gpu_extract.io.frame, gpu_extract.io.image, gpu_extract.io.psf; "
           "import gpu_extract.ranks.comm; "
           "from gpu_extract.ranks.comm import get_comm; get_comm({mpi})")


def peak_of(pid: int) -> dict[int, int]:
    """Peak resident memory in bytes of all descendants of a process that run Python, by pid."""
    peaks: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        except (OSError, ValueError):
            continue
        if "python" in fields.get("Name", "") and "VmHWM" in fields and is_below(int(status.parent.name), pid):
            peaks[int(status.parent.name)] = 1024 * int(fields["VmHWM"].split()[0])
    return peaks


def is_below(pid: int, ancestor: int) -> bool:
    """Whether a process descends from another."""
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            pid = int((Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return False


def timed(command: list[str]) -> tuple[float, dict[int, int]]:
    """Wall seconds of a command, and the peak memory of its Python processes."""
    start, ended = clock.now(), Event()
    peaks: dict[int, int] = {}

    def look(pid: int) -> None:
        while not ended.wait(0.3):
            for number, peak in peak_of(pid).items():
                peaks[number] = max(peaks.get(number, 0), peak)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        looking = Thread(target=look, args=(process.pid,))
        looking.start()
        output = process.communicate()[0].decode()
        seconds = clock.now() - start
        ended.set()
        looking.join()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}:\n{output}")
    return seconds, peaks


def main() -> int:
    """Measure and print."""
    parser = parser_of(__doc__, ranks=2, nspec=500, repeat=3, passes=1)
    parser.add_argument("--camera", choices=("b", "r", "z"), default="r")
    parser.add_argument("--program", choices=("dark", "bright"), default="dark")
    args = parser.parse_args()
    if args.smallest:
        args.nspec, args.repeat = 25, 1
    start = launcher(args.ranks if args.ranks > 1 else 0)
    with tempfile.TemporaryDirectory() as folder:
        record, image = Path(folder) / "perf.json", f"{folder}/image.fits"
        timed([*program("gpu_simulate"), "--camera", args.camera, "--program", args.program,
               "-n", str(args.nspec), "--truth-out", "none", "-o", image])
        command = [*start, *program("gpu_extract"), "-n", str(args.nspec), "-i", image, "-p",
                   f"{folder}/image-psf.fits", "-o", f"{folder}/frame.fits", "--perf", str(record),
                   "--passes", str(args.passes)]
        imports = [*start, sys.executable, "-c", IMPORTS.format(mpi=args.ranks > 1)]
        timed(command)
        pairs = [(timed(imports)[0], timed(command)) for _ in range(args.repeat)]
        idle = min(pair[0] for pair in pairs)
        whole, peaks = min((pair[1] for pair in pairs), key=lambda pair: pair[0])
        stages, status = json.loads(record.read_text()), fits.getdata(f"{folder}/frame.fits", "STATUS")
    print(f"{args.camera}, {args.program}, {args.nspec} fibres, {args.ranks} ranks, {args.passes} passes: "
          f"{whole:.2f} s; imports alone {idle:.2f} s; the frame costs {whole - idle:.2f} s")
    print("peak memory per process: " + ", ".join(f"{peak / 1e9:.2f} GB" for peak in sorted(peaks.values())))
    spans = stages["ranks"][0]["spans"] if "ranks" in stages else stages["spans"]
    top = [(name, seconds) for name, depth, _, seconds, *_ in spans if depth == 0]
    print("rank 0: " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in top))
    counts = {state.name: int((status == state).any(axis=1).sum()) for state in Status}
    print("fibres with bins that are " + ", ".join(f"{name}: {count}" for name, count in counts.items() if count))
    return 0


if __name__ == "__main__":
    sys.exit(main())
