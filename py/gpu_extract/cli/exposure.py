"""gpu_extract_exposure: extracts many images to many frames."""
import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from gpu_extract.cli.common import at_least, loaded, loading, log, run_main, set_threads
from gpu_extract.cli.compiling import CompileProgress, counted_compiling, get_simulation_ready
from gpu_extract.cli.device import choose_backend
from gpu_extract.cli.exposure_list import Entry, check_folders, check_simulation, find_entries, simulated_entries
from gpu_extract.cli.exposure_options import build_parser
from gpu_extract.cli.exposure_report import Progress, log_summary, tell_of, verdict
from gpu_extract.cli.exposure_work import Files
from gpu_extract.cli.options import ignored
from gpu_extract.cli.ranks import run_kept, speaks, start_ranks
from gpu_extract.cli.stop import ask_on_signals, ends_on_signals
from gpu_extract.config import check_background
from gpu_extract.errors import ExitCode, InputError
from gpu_extract.exposure.frames import exit_code
from gpu_extract.io.atomic import check_apart, check_target, write_json
from gpu_extract.io.leftovers import remove_leftovers
from gpu_extract.io.light_fits import load_fits
from gpu_extract.io.whose import remove_unclaimed
from gpu_extract.perf.clock import StartUp

if TYPE_CHECKING:
    from gpu_extract.backend import Backend
    from gpu_extract.compare.selftest import CutOut
    from gpu_extract.exposure.threads import Group
    from gpu_extract.perf.recorder import Recorder
    from gpu_extract.seams import Comm

PROG = "gpu_extract_exposure"
_BUNDLES = 20          # of a frame, if unknown: only the number of groups depends on it
_STEP = 0.8            # Angstrom: S of the cut-out then has the half-band of most r frames


def main(argv: Sequence[str] | None = None) -> int:
    """The command gpu_extract_exposure; returns its exit code (errors.ExitCode)."""
    start = StartUp()

    def run() -> int:
        with ends_on_signals(PROG), loading():
            return run_main(build_parser, partial(extract_exposure, start=start), argv, speaks=speaks())

    return run_kept(PROG, run)


def extract_exposure(args: argparse.Namespace, start: StartUp) -> int:
    """After parsing: find the frames, distribute them, summarise. Every rank runs this."""
    set_threads(args.threads)
    with start.step("imports"):
        load_fits()
        import gpu_extract.io.frame
        import gpu_extract.io.sources
        import gpu_extract.run
        from gpu_extract.compare.selftest import load_cutout
        from gpu_extract.exposure.flow import work_through
        from gpu_extract.perf.recorder import Recorder
        from gpu_extract.seams import NULL
    with start.step("MPI"):
        comm = start_ranks(args.mpi, PROG, threads=True)
    recorder = Recorder(comm.rank)
    comm.watch(recorder if args.perf else NULL)
    with no_empty_folder(args.output), comm.together(), ExitStack() as stack:
        stack.enter_context(counted_compiling(comm.rank, args.loglevel, recorder))
        backend, device = choose_backend(args.gpu, comm, many=True, tell=CompileProgress(),
                                         threads=args.threads)
        stack.enter_context(closing(backend))
        if args.perf:
            backend.watch(recorder)
        entries = shared_entries(args, comm, recorder)
        if comm.rank == 0:
            log.info(f"device: {device}")
            for sentence in ignored(args):
                log.warning(sentence)
        extract = partial(gpu_extract.run.extract, threads=args.threads or 1, backend=backend, dtype="float32")
        files = Files(entries, args)
        load_kernels(load_cutout(), files, backend, comm, start, recorder=recorder)
        group = form_group(args, comm, entries, recorder)
        ask_on_signals(PROG, group.stop.set, files.tidy_up)
        loaded()
        try:
            with recorder.span("exposure"):
                work_through(files, group, extract)
        finally:
            group.numbers.close()
        conclude(args, comm, entries, group, start)
    return ExitCode.DONE


def shared_entries(args: argparse.Namespace, comm: "Comm", recorder: "Recorder") -> tuple[Entry, ...]:
    """The frames, checked as far as possible before any work; leftovers of killed runs are removed."""
    def find() -> tuple[Entry, ...]:
        check_options(args)
        if args.output is not None and not os.path.isdir(args.output):
            check_target(os.path.join(args.output, "frame.fits"), make=args.output)
        if args.perf:
            check_target(args.perf, make=args.output)
        if args.simulate is not None:
            return ()
        entries = find_entries(args)
        check_folders(entries, made=args.output)
        check_apart((("the list", args.list),), (("a frame", entry.output) for entry in entries))
        check_apart((("the list", args.list), *(("an image, a PSF or a frame", path) for entry in entries
                                              for path in (entry.image, entry.psf, entry.output))),
                    (("--perf", args.perf),))
        return entries

    entries: tuple[Entry, ...] = comm.share(find)
    if args.simulate is not None:
        get_simulation_ready("", None, comm, recorder)
        entries = simulated_entries(args, comm)
    if comm.rank == 0:
        remove_unclaimed(entry.output for entry in entries)
        for path in remove_leftovers(entry.output for entry in entries):
            log.info(f"{path}: left behind by a run that was killed; removed")
    return entries


def check_options(args: argparse.Namespace) -> None:
    """Raise InputError if the options are inconsistent."""
    given = [name for name, value in (("a list", args.list), ("-i", args.input), ("--simulate", args.simulate))
             if value is not None]
    if len(given) != 1:
        raise InputError(f"{' and '.join(given) or 'nothing'} is given; give a list, -i PATTERN or --simulate N")
    at_least(args.groups, "--groups")
    check_background(args.passes, args.background)
    if args.simulate is not None:
        check_simulation(args)


@contextmanager
def no_empty_folder(path: str | None) -> Iterator[None]:
    """Remove the folder, and new ones above it, if a failed run has left nothing in them."""
    above = () if path is None else (Path(path), *Path(path).parents)
    found = [folder for folder in above if not os.path.exists(folder)]
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for folder in found:
                folder.rmdir()
        raise


def load_kernels(cutout: "CutOut", files: Files, backend: "Backend", comm: "Comm", start: StartUp, *,
                 recorder: "Recorder") -> None:
    """Compile missing kernels on all ranks, then load them on all: for a patch of the shipped cut-out.

    Kernels of other half-bands are compiled when the first frames with them begin.
    """
    from gpu_extract.run import get_ready, warm_up

    config = replace(cutout.config, core=files.core, wavelength=(*cutout.config.wavelength[:2], _STEP))
    problem = cutout.image, cutout.psf, config, backend
    with start.step("wait for compilation"):
        get_ready(*problem[:3], comm, recorder, backend)
    with start.step("kernels"):
        warm_up(*problem)
    with start.step("first patch"):
        warm_up(*problem)


def form_group(args: argparse.Namespace, comm: "Comm", entries: Sequence[Entry], recorder: "Recorder") -> "Group":
    """The group of this rank, ready to work."""
    from gpu_extract.exposure.layout import choose_groups, group_of
    from gpu_extract.exposure.threads import Group
    from gpu_extract.ranks.comm import SERIAL

    bundles = -(-args.nspec // args.bundlesize) if args.nspec else _BUNDLES
    groups = min(args.groups or choose_groups(len(entries), comm.size, bundles), comm.size)
    number = group_of(comm.rank, comm.size, groups)
    ranks = comm.split(number)
    numbers = comm.hand_out(len(entries), Progress(len(entries)), takes=ranks.rank == 0)
    if comm.rank == 0:
        log.info(f"{len(entries)} frames on {comm.size} ranks in {groups} groups")
    return Group(number, SERIAL if ranks.size == 1 else ranks, numbers, Event(), recorder, detail=bool(args.perf),
                 tell=tell_of(entries, numbers))


def conclude(args: argparse.Namespace, comm: "Comm", entries: Sequence[Entry], group: "Group", start: StartUp) -> None:
    """Summarise on rank 0. Raises, on all ranks, the final error of a run that did not succeed completely."""
    everyone = comm.gather([(comm.rank, (group.outcomes, group.stop.is_set()))])
    records = comm.gather([(comm.rank, {**group.recorder.record(), "start": start.steps})])
    if everyone is None or records is None:
        return
    outcomes = sorted((outcome for found, _ in everyone for outcome in found), key=lambda outcome: outcome.number)
    stopped = any(asked for _, asked in everyone)
    log_summary(entries, outcomes, records)
    if args.perf:
        from gpu_extract.cli.performance import facts
        from gpu_extract.perf.record import whole

        write_json(args.perf, whole(records, {**facts(PROG), "mpi": comm.library,
                                              "frames": [asdict(outcome) for outcome in outcomes]}))
    verdict(entries, outcomes, exit_code(outcomes, stopped))


if __name__ == "__main__":
    raise SystemExit(main())
