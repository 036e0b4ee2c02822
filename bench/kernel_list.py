"""Which kernels do runs ask for, and how long does each take to compile? Writes etc/kernels.json.

usage: kernel_list.py [--write] [--times] [--seeds 26] [--smallest]

Runs the programs in all ways that take kernels of their own, in one process: simulated frames of all cameras, every
core and option, read-only images as ranks have them, and small problems with all kinds of masks (tools/problems.py).
What is asked for is compared with the list; with --write the list is made anew, with --times also the seconds, from
compiling all of it in an empty folder. To be run after a change of what kernels take, or of who calls them.
While one kernel is compiled, what it takes is asked for by that and not by the run: the list is made by a run that
compiles none, so start it again where it says so. Ends with exit code 1 where runs ask for what is not in the list
(--smallest: one frame only).
"""
import argparse
import inspect
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import problems
from numba.core import sigutils
from parsing import parser_of

from gpu_extract.cli import extract as cli_extract
from gpu_extract.cli import simulate as cli_simulate
from gpu_extract.compare.selftest import load_cutout
from gpu_extract.data import Image
from gpu_extract.first_use import kernel_list, unit
from gpu_extract.first_use.kernel_list import BAND, EXTRACT, PASSES, SIMULATE, SOME
from gpu_extract.kernels import kernel_cache
from gpu_extract.kernels.kernel_store import Store
from gpu_extract.perf.clock import thread_cpu
from gpu_extract.run import extract

TABLE = Path(kernel_list.__file__).parents[1] / "etc" / "kernels.json"
Found = dict[tuple[str, str], dict[str, Any]]


class Uses:
    """What is asked for, by the use in which that was first."""

    def __init__(self) -> None:
        self.use, self.found = SIMULATE, {use: {} for use in (SIMULATE, EXTRACT, PASSES, SOME, BAND)}  # type: dict[str, Found]
        self._seen: set[tuple[str, str]] = set()
        self.compiled = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Under this every kernel that is asked for from Python is noted."""
        load, deep = kernel_cache.KernelCache.load_overload, []

        def ask(cache: Any, sig: Any, context: Any) -> Any:
            if not deep:
                self.note(cache._function, sigutils.normalize_signature(sig)[0])
            return load(cache, sig, context)

        @contextmanager
        def compiling(name: str) -> Iterator[None]:
            deep.append(name)
            self.compiled += 1
            yield
            deep.pop()

        kernel_cache.KernelCache.load_overload = ask
        try:
            with kernel_cache.watched(compiling):
                yield
        finally:
            kernel_cache.KernelCache.load_overload = load

    def note(self, function: Any, kinds: Any) -> None:
        """Note a kernel."""
        name, _, inner = function.__qualname__.partition(".<locals>.")
        row: dict[str, Any] = {"module": function.__module__.removeprefix("gpu_extract."), "name": name}
        use = self.use
        if inner:
            factory = inspect.unwrap(getattr(sys.modules[function.__module__], name))
            row["numbers"], use = list(inspect.signature(factory).parameters), BAND
            missing = set(row["numbers"]) - set(kernel_cache.constants(function))
            if missing:
                raise TypeError(f"{name}: {missing} is not in what the kernel is told apart by")
        row["arguments"] = [kernel_list.spelt(kind) for kind in kinds]
        key = row["module"] + "." + name, json.dumps(row["arguments"])
        if key not in self._seen:
            self._seen.add(key)
            self.found[use][key] = row


def run(uses: Uses, folder: Path, args: argparse.Namespace) -> None:
    """Run everything."""
    cameras = "r" if args.smallest else "rbz"
    for camera in cameras:
        done(cli_simulate.main([f"--camera={camera}0", "-s0", "--nspec=25", f"-o{folder / camera}.fits", *QUIET]))

    def frame(camera: str, wave: str, *options: str) -> None:
        done(cli_extract.main([f"-i{folder / camera}.fits", f"-p{folder / camera}-psf.fits", "--any-psf", "-w", wave,
                               f"-o{folder}/frame.fits", "--no-gpu", *options, *QUIET]))

    if not args.smallest:
        done(cli_simulate.main(["--camera=r0", "-s0", "--nspec=25", "--bad-columns=100", f"-o{folder}/columns.fits",
                                *QUIET]))
    uses.use = EXTRACT
    frame("r", "5800,6400,0.8")
    if not args.smallest:
        frame("columns", "6250,6300,0.8")
    uses.use = PASSES
    frame("r", "6250,6300,0.8", "--passes", "2", "--background")
    if not args.smallest:
        done(cli_simulate.main(["--camera=r0", "-s0", "--nspec=25", "--tails=0.002", f"-o{folder}/t.fits", *QUIET]))
        frame("t", "6250,6300,0.8", "--passes", "2")
    uses.use = SOME
    if args.smallest:       # the cut-out of -t has a half-band of its own
        frame("r", "6250,6300,0.8", "--model", f"{folder}/model.fits")
        return
    frame("r", "6250,6300,0.8", "-t", "--model", f"{folder}/model.fits")
    for camera, wave in (("b", "3700,4500,0.8"), ("z", "7600,8400,0.8")):
        frame(camera, wave)
    for options in (["--core", "dense"], ["--keep-odd"], ["-r", "0.1"], ["--threads", "2"]):
        frame("r", "6250,6300,0.8", *options)
    cutout = load_cutout()
    for kind in ("f8", "f4"):
        arrays = [array.astype(kind) for array in (cutout.image.pix, cutout.image.ivar)]
        for write in (True, False):
            for array in arrays:
                array.flags.writeable = write
            extract(Image(*arrays), cutout.psf, cutout.config)
    for seed in problems.seeds(0, args.seeds, quick=True):
        problem = problems.make(seed)
        if problem is not None:
            extract(problem.image, problem.psf, problem.config)


QUIET = "--loglevel", "error"


def done(code: int) -> None:
    """A program has ended."""
    if code:
        raise SystemExit(f"a program ended with exit code {code}")


def seconds_of(kernels: list[kernel_list.Kernel]) -> dict[tuple[str, str, str], float]:
    """CPU seconds of compiling each, on top of those before it."""
    with tempfile.TemporaryDirectory() as name:
        empty = Store("0" * 64, [Path(name)])
        found = {}
        for kernel in kernels:
            dispatcher, kinds = kernel.dispatcher, kernel.types
            dispatcher._cache = kernel_cache.KernelCache(dispatcher.py_func, lambda: empty)
            dispatcher.overloads.clear()
            start = thread_cpu()
            dispatcher.compile(kinds)
            found[kernel.module, kernel.name, kernel.arguments] = round(thread_cpu() - start, 2)
        return found


def main() -> int:
    """Run, compare, write."""
    parser = parser_of(__doc__, write=False, times=False, seeds=26)
    args, uses = parser.parse_args(), Uses()
    old = json.loads(TABLE.read_text(encoding="ascii")) if TABLE.exists() else {}
    known = {(r["module"], r["name"], json.dumps(r["arguments"])): r["seconds"]
             for u in (SIMULATE, EXTRACT, PASSES, SOME, BAND) for r in old.get(u, ())}
    with tempfile.TemporaryDirectory() as folder, uses.listening():
        run(uses, Path(folder), args)
    rows = [row for found in uses.found.values() for row in found.values()]
    new = [row for row in rows if (row["module"], row["name"], json.dumps(row["arguments"])) not in known]
    for row in new:
        print(f"not in the list: {row['module']}.{row['name']} {row['arguments']}")
    print(f"{len(rows)} kernels were asked for, {len(new)} of them are not in the list of {len(known)}")
    if not args.write:
        return 1 if new else 0
    if uses.compiled:
        print(f"{uses.compiled} kernels were compiled: nothing is written, start it again")
        return 1
    usual: dict[str, float] = {}
    for (module, name, _), value in known.items():
        usual[module, name] = max(value, usual.get((module, name), 0.0))
    for row in rows:
        key = row["module"], row["name"]
        row["seconds"] = known.get((*key, json.dumps(row["arguments"])), usual.get(key, 1.0))
    write(uses.found)
    if args.times:
        kernel_list._table.cache_clear()
        kernels = kernel_list.listed(SIMULATE, EXTRACT, PASSES, SOME) + kernel_list.for_bands([(7, 8)], 8)
        times = seconds_of(kernels)
        for row in rows:
            row["seconds"] = times[row["module"], row["name"], json.dumps(row["arguments"])]
        write(uses.found)
    return 0


def write(found: dict[str, Found]) -> None:
    """Write the list, a kernel in a line."""
    uses = [f'"{use}": [\n' + ",\n".join(json.dumps(row) for _, row in sorted(rows.items())) + "\n]"
            for use, rows in {**found, "unit": {("", ""): {"seconds": unit()}}}.items()]
    TABLE.write_text("{" + ",\n".join(uses) + "}\n", encoding="ascii")


if __name__ == "__main__":
    sys.exit(main())
