"""gpu_stress campaign: many tests one after another."""
import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from gpu_extract import __version__
from gpu_extract.cli.common import NAMES, at_least, check_threads, log, say
from gpu_extract.errors import ExitCode, InputError
from gpu_extract.io.atomic import check_folder, write_json
from gpu_perf.campaign import run
from gpu_perf.outcomes import FINE, Outcome
from gpu_stress.backend import open_module
from gpu_stress.cli.stress_options import devices_of, spec_of
from gpu_stress.machine import machine
from gpu_stress.nvml import open_probe
from gpu_stress.rows import MACHINE
from gpu_stress.sampler import Sampler
from gpu_stress.sets import Product, commands

SAME = ("host", "processor", "cores", "device")


def run_campaign(args: argparse.Namespace) -> int:
    """Run the campaign, or the rest of it; exit code 1 if any set had wrong results or failed."""
    check_folder(args.folder)
    product, repeats = _product(args), at_least(args.repeats, "--repeats")
    sets = commands(product)
    folder = Path(args.folder)
    probe, why_not = open_probe()
    _note_machine(folder, product.modules, product.devices[0])
    if args.samples and probe is None:
        log.info("no GPU samples: %s", why_not)
    sampler = Sampler(folder, probe) if args.samples else None
    try:
        outcomes = run(sets, folder, repeats=repeats, sampler=sampler, tell=log.info, retry=args.retry)
    finally:
        if sampler is not None:
            sampler.close()
    return _tell(outcomes, folder)


def _product(args: argparse.Namespace) -> Product:
    modules = args.modules or NAMES(args.module or "numpy")
    devices = devices_of(args.devices, "cupy" if "cupy" in modules else "numpy")
    check_threads(args.threads)
    return Product(modules, args.tests, args.shapes, args.dtypes, args.procs, spec_of(args, "fft"), devices,
                   args.threads, args.timeout, args.plant_fault)


def _note_machine(folder: Path, modules: Sequence[str], device: int) -> None:
    """Record the machine of the campaign; raises InputError if it was begun on another machine."""
    described = {name: open_module(name, device).describe() for name in modules}
    here = {**machine(), "program": __version__, "modules": described,
            "device": [m["device"] for m in described.values()]}
    path = folder / MACHINE
    if path.exists():
        try:
            there = json.loads(path.read_text(encoding="utf-8"))
            other = [key for key in SAME if there[key] != here[key]]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"{path} does not describe a machine: give another folder") from error
        if other:
            raise InputError(f"{folder} was begun where {other[0]} is {there[other[0]]!r}, here it is "
                             f"{here[other[0]]!r}: give another folder, and compare the two in a report")
    else:
        write_json(path, here, 1)


def _tell(outcomes: Sequence[Outcome], folder: Path) -> int:
    """Print a summary on standard output, and wrong processes on standard error."""
    counts = Counter(outcome.status for outcome in outcomes)
    for outcome in outcomes:
        for process in outcome.processes:
            if process.status not in FINE:
                what = (process.result or {}).get("message") or process.said or process.status
                say(f"gpu_stress: {process.status}: {outcome.name} process {process.index} (pid {process.pid}): "
                    f"{what}", error=True)
    errors, checked = (sum((p.result or {}).get(name, 0) for o in outcomes for p in o.processes)
                       for name in ("errors", "checked"))
    say(f"{len(outcomes)} sets: " + ", ".join(f"{n} {status}" for status, n in counts.items())
        + f"; {errors} of {checked} results wrong; gpu_stress report {folder}")
    return ExitCode.CHECK_FAILED if counts.keys() - FINE else ExitCode.DONE
