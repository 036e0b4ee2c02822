"""What does compiling the kernels cost, kernel by kernel, and what is the time spent on?

usage: compile.py [--repeat 1] [--against CHECKOUT] [--smallest]

Each time in a fresh process with an empty cache: 25 fibres of the r camera are simulated and 100 bins of them
extracted, which compiles what the README's first command does. CPU seconds of each kernel with all that it calls,
and of each step of numba's; the seconds that they take on nodes of some cores; functions that were compiled, and MB
of what is kept. Best of the repeats. --against: another checkout (a folder with py/) in turn, as the second column;
the bar is a third of d05421e's. --smallest: the simulation of two fibres alone.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from heapq import heapreplace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
from parsing import parser_of

CORES = 2, 4, 16
HERE = Path(__file__).resolve().parent.parent
STEPS = {"native_lowering": "writing LLVM's text", "lower_part": "writing LLVM's text",
         "lower_whole": "writing LLVM's text", "nopython_type_inference": "types", "translate_bytecode": "bytecode"}


def measure(smallest: bool) -> dict[str, Any]:
    """Compile in this process: {kernels: seconds by name, steps: seconds by name, functions}."""
    from numba.core import event

    from gpu_extract.config import ExtractConfig
    from gpu_extract.perf import clock
    from gpu_extract.run import extract
    from gpu_extract.simulate import SimConfig, simulate

    with suppress(ImportError):           # checkouts from before there were other processes that compile ahead
        from gpu_extract import first_use
        vars(first_use)["compile_all"] = lambda *args, **keywords: 0
    under_way: list[list[float]] = []
    kernels: Counter[str] = Counter()
    steps: Counter[str] = Counter()

    class Listener(event.Listener):     # type: ignore[misc]
        """Sums up the time of events, less that of others within them."""

        functions = 0

        def on_start(self, event: Any) -> None:
            under_way.append([clock.cpu(), 0.0])

        def on_end(self, event: Any) -> None:
            start, within = under_way.pop()
            spent = clock.cpu() - start
            if under_way:
                under_way[-1][1] += spent
            if event.kind == "numba:compile":
                self.functions += 1
                if not under_way:
                    function = event.data["dispatcher"].py_func
                    kernels[f"{function.__module__.split('.')[-1]}.{function.__qualname__.split('.')[0]}"] += spent
            step = event.data["name"].split()[0] if event.kind == "numba:run_pass" else "other"
            steps["LLVM" if event.kind == "numba:llvm_lock" else STEPS.get(step, "other")] += spent - within

    listener = Listener()
    for kind in ("numba:compile", "numba:run_pass", "numba:llvm_lock"):
        event.register(kind, listener)
    made = simulate(SimConfig(camera="r", nspec=2 if smallest else 25, crop=True))
    if not smallest:
        extract(made.image, made.psf, ExtractConfig((5760.0, 5840.0, 0.8), nspec=25))
    return {"kernels": kernels, "steps": steps, "functions": listener.functions}


def fresh(checkout: Path, smallest: bool) -> dict[str, Any]:
    """`measure` of a checkout in a process of its own."""
    with tempfile.TemporaryDirectory() as cache:
        surroundings = {**os.environ, "NUMBA_CACHE_DIR": cache, "PYTHONPATH": str(checkout / "py"),
                        "XDG_CACHE_HOME": cache, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--within", *(["--smallest"] if smallest else [])]
        done = subprocess.run(command, env=surroundings, check=True, capture_output=True, text=True)
        made: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        made["kept"] = 1e-6 * sum(file.stat().st_size for file in Path(cache).rglob("*") if file.is_file())
    return made


def side_by_side(seconds: Iterable[float], cores: int) -> float:
    """Seconds until kernels are compiled by one process per core, the longest first, as first_use has it done."""
    busy = [0.0] * cores
    for each in sorted(seconds, reverse=True):
        heapreplace(busy, busy[0] + each)
    return max(busy)


def best(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The run that took least."""
    return min(runs, key=lambda run: sum(run["kernels"].values()))


def main() -> int:
    """Measure and print."""
    parser = parser_of(__doc__, repeat=1)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--within", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.within:
        print(json.dumps(measure(args.smallest)))
        return 0
    checkouts = [HERE, *([args.against.resolve()] if args.against else [])]
    runs: list[list[dict[str, Any]]] = [[] for _ in checkouts]
    for _ in range(args.repeat):
        for checkout, known in zip(checkouts, runs, strict=True):
            known.append(fresh(checkout, args.smallest))
    found = [best(known) for known in runs]
    for what in ("kernels", "steps"):
        print(f"{what}, CPU seconds")
        for name in sorted({n for run in found for n in run[what]}, key=lambda n: -found[0][what].get(n, 0.0)):
            print(f"{name:40s}" + "".join(f"{run[what].get(name, 0.0):9.2f}" for run in found))
    totals = [sum(run["kernels"].values()) for run in found]
    print(f"{'all':40s}" + "".join(f"{total:9.2f}" for total in totals))
    for cores in CORES:
        print(f"{f'on {cores} cores (model)':40s}"
              + "".join(f"{side_by_side(run['kernels'].values(), cores):9.2f}" for run in found))
    print(f"{'functions':40s}" + "".join(f"{run['functions']:9d}" for run in found))
    print(f"{'MB kept':40s}" + "".join(f"{run['kept']:9.2f}" for run in found))
    if args.against:
        print(f"{totals[0] / totals[1]:.2f} of the other's CPU seconds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
