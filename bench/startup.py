"""What does the start of a rank cost, and which imports is it made of?

usage: startup.py [--ranks 8] [--repeat 3] [--top 15] [--against CHECKOUT] [--smallest]

Starts `gpu_extract_exposure` on one tiny frame under mpiexec and prints wall and CPU seconds of each step of the start,
of the slowest rank (best of the repeats): the interpreter until the program begins, imports, MPI, waiting for kernels
that another rank compiles, loading kernels, and the first patch once they are there. Bar: imports <= 1.5 s of CPU time
with 8 ranks on two cores. Then the imports of one process by top-level package: modules, and milliseconds of
their own (python -X importtime).

--against: instead, `gpu_extract` of this tree and of another checkout by turns, byte code and kernels warm: CPU seconds
of the imports of one process (--nspec 50), wall seconds of that command, and of 500 fibres on two ranks. Printed are
medians and the median of the ratios of runs next to each other; bars: 0.6, 1 and 0.75. The last column is that median
for the CPU seconds of all processes, which other work on the machine disturbs less.
"""
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
from parsing import parser_of

from gpu_extract.perf import clock
from ranks import ENVIRONMENT, ROOT, launcher, program

BAR = 1.5
RATIOS = {"imports of one process, CPU s": 0.6, "50 fibres, one process, wall s": 1.0,
          "500 fibres, two ranks, wall s": 0.75}
WARM = {name: value for name, value in ENVIRONMENT.items() if name != "PYTHONDONTWRITEBYTECODE"}   # byte code is kept
OPTIONS = ("--simulate", "1", "--camera", "tiny", "-w", "6030,6080,0.8", "--no-gpu", "--loglevel", "error",
           "--recompute")


def steps(ranks: int, folder: Path) -> dict[str, tuple[float, float]]:
    """Wall and CPU seconds of each step, of the slowest rank."""
    record = folder / "perf.json"
    subprocess.run([*launcher(ranks), *program("gpu_extract_exposure"), *OPTIONS, "-o", str(folder), "--perf",
                    str(record)], check=True, env=WARM)
    starts = [rank["start"] for rank in json.loads(record.read_text())["ranks"]]
    return {name: (max(s[name][0] for s in starts), max(s[name][1] for s in starts)) for name in starts[0]}


def imports(folder: Path) -> tuple[Counter[str], Counter[str]]:
    """Modules and microseconds of each top-level package that a run imports."""
    python, script = program("gpu_extract_exposure")
    done = subprocess.run([python, "-X", "importtime", script, *OPTIONS, "-o", str(folder)], check=True, env=WARM,
                          capture_output=True, text=True)
    count: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    for own, name in re.findall(r"^import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)$", done.stderr, re.MULTILINE):
        count[name.split(".")[0]] += 1
        spent[name.split(".")[0]] += int(own)
    return count, spent


def seconds_of(tree: Path, what: str, folder: Path, few: bool) -> tuple[float, float]:
    """One run of the command of a checkout: what it says in RATIOS, and the CPU seconds of all its processes."""
    cost, hook = folder / "imports", [str(ROOT / "bench" / "tools" / "import_cost.py"), str(folder / "imports")]
    ranks, nspec = (2, 25 if few else 500) if "ranks" in what else (0, 25 if few else 50)
    command = [*launcher(ranks), sys.executable, *(hook if "imports" in what else []),
               str(tree / "bin" / "gpu_extract"), "--nspec", str(nspec), "--no-gpu", "--loglevel", "error",
               "-o", str(folder / "frame.fits")]
    start, before = clock.now(), sum(os.times()[2:4])
    subprocess.run(command, check=True, env={**WARM, "PYTHONPATH": str(tree / "py")})
    wall, cpu = clock.now() - start, sum(os.times()[2:4]) - before
    return float(cost.read_text()) if "imports" in what else wall, cpu


def compare(other: Path, repeat: int, folder: Path, few: bool) -> bool:
    """This tree and another one by turns; whether all bars are reached."""
    good = True
    print(f"{'':32}{'this':>7}{'other':>8}{'ratio':>8}  {'bar':22}all CPU")
    for what, bar in RATIOS.items():
        for tree in (ROOT, other):
            seconds_of(tree, what, folder, few)           # byte code, kernels and the simulated frame
        runs = [[seconds_of(tree, what, folder, few) for tree in (ROOT, other)] for _ in range(repeat)]
        ratio, cpu = (statistics.median(ours[n] / theirs[n] for ours, theirs in runs) for n in (0, 1))
        ours, theirs = (statistics.median(seconds for seconds, _ in column) for column in zip(*runs, strict=True))
        good &= ratio <= bar
        said = "reached" if ratio <= bar else "NOT REACHED"
        print(f"{what:32}{ours:7.2f}{theirs:8.2f}{ratio:8.2f}  <= {bar:4} {said:14} {cpu:7.2f}", flush=True)
    return good


def main() -> int:
    """Measure and print."""
    parser = parser_of(__doc__, ranks=8, repeat=3, top=15)
    parser.add_argument("--against", type=Path)
    args = parser.parse_args()
    if args.smallest:
        args.ranks, args.repeat = 2, 1
    if args.against:
        with tempfile.TemporaryDirectory() as name:
            good = compare(args.against.resolve(), args.repeat, Path(name), args.smallest)
        return 0 if good or args.smallest else 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = [steps(args.ranks, folder) for _ in range(args.repeat)]
        count, spent = imports(folder)
    best = min(runs, key=lambda run: run["imports"][1])
    print(f"{args.ranks} ranks, the slowest one   wall s   CPU s")
    for step, (wall, cpu) in best.items():
        print(f"{step:26} {wall:8.2f}{cpu:8.2f}")
    imported = best["interpreter"][1] + best["imports"][1]
    print(f"interpreter and imports: {imported:.2f} s of CPU, bar <= {BAR}: "
          f"{'reached' if imported <= BAR else 'NOT REACHED'}")
    print(f"\n{sum(count.values())} modules, {sum(spent.values()) / 1e3:.0f} ms; by package")
    for package, micro in spent.most_common(args.top):
        print(f"{package:26} {count[package]:5d} modules {micro / 1e3:8.1f} ms")
    return 0 if imported <= BAR or args.smallest else 1


if __name__ == "__main__":
    sys.exit(main())
