"""gpu_extract: extracts one image to one frame."""
import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from gpu_extract.cli.common import at_least, loaded, loading, log, run_main, say, set_threads
from gpu_extract.cli.device import choose_backend
from gpu_extract.cli.early import Early
from gpu_extract.cli.job import Inputs, Job, check_all, equivalent_command, find_inputs, outputs, read_job, settings_for
from gpu_extract.cli.options import build_parser, ignored
from gpu_extract.cli.performance import write_performance
from gpu_extract.cli.ranks import find_launch, run_kept, speaks, start_ranks
from gpu_extract.cli.stop import ask_on_signals, ends_on_signals, leave_on_signals
from gpu_extract.errors import CheckFailed, ExitCode
from gpu_extract.io.leftovers import remove_leftovers
from gpu_extract.io.light_fits import load_fits

if TYPE_CHECKING:
    from gpu_extract.backend import Backend
    from gpu_extract.cli.report import Progress
    from gpu_extract.config import ExtractConfig
    from gpu_extract.data import Frame, Image, PsfModel
    from gpu_extract.seams import Comm, Recorder

PROG = "gpu_extract"
EMBEDDED = "r"        # camera of the embedded frame


def main(argv: Sequence[str] | None = None) -> int:
    """The command gpu_extract; returns its exit code (errors.ExitCode)."""
    def run() -> int:
        with ends_on_signals(PROG), loading():
            return run_main(build_parser, extract_image, argv, speaks=speaks())

    return run_kept(PROG, run)


def extract_image(args: argparse.Namespace) -> int:
    """After parsing: read, extract, write, check. Every rank runs this; rank 0 logs, reads and writes."""
    set_threads(args.threads)
    at_least(args.tile, "--tile", 8)
    launch = find_launch()
    reads = launch is None or launch.rank == 0
    if reads:
        load_fits()
    with closing(Early(args if reads else None)) as early:
        extract_with(args, start_ranks(args.mpi, PROG), interruptible(args), early)
    return ExitCode.DONE


def extract_with(args: argparse.Namespace, comm: "Comm", within: AbstractContextManager[None] | None = None,
                 early: Early | None = None) -> "Progress":
    """The same on existing ranks; returns the recorder of this rank.

    within: contexts to leave at the end; early: on rank 0, the image if it is read already
    """
    from gpu_extract.cli.compiling import CompileProgress, counted_compiling
    from gpu_extract.cli.report import Progress

    recorder = Progress(comm.rank)
    comm.watch(recorder)
    with comm.together(), within or nullcontext(), counted_compiling(comm.rank, args.loglevel, recorder), \
            ExitStack() as stack:
        backend, device = choose_backend(args.gpu, comm, many=False, tile=args.tile, tell=CompileProgress(),
                                         threads=args.threads)
        stack.enter_context(closing(backend))
        if args.perf or args.trace or args.nvtx:
            backend.watch(recorder, ranges=args.nvtx)
        get_simulator_ready(args, comm, recorder)
        with recorder.span("read"):
            job = read_shared(args, comm, early or Early())
        run = Run(args, job, comm, recorder, backend)
        if comm.rank == 0:
            announce(run, device)
        loaded()
        frame = compute(run)
        deliver(run, frame)
        write_performance(args, job, comm, recorder, frame)
        judge(run, frame)
    return recorder


def get_simulator_ready(args: argparse.Namespace, comm: "Comm", recorder: "Recorder") -> None:
    """If the embedded frame is extracted, let all ranks compile its kernels, and not only rank 0."""
    if args.input or args.psf:
        return
    from gpu_extract.cli.compiling import get_simulation_ready

    comm.share(lambda: check_all(args))
    get_simulation_ready(EMBEDDED, settings_for(EMBEDDED, args), comm, recorder)


@contextmanager
def interruptible(args: argparse.Namespace) -> Iterator[None]:
    """Context in which a signal is an interruption from the keyboard, so that files are tidied up; a hanging program is
    ended."""
    def interrupt() -> NoReturn:
        raise KeyboardInterrupt

    ask_on_signals(PROG, interrupt, lambda: remove_leftovers(outputs(args).values(), own=True))
    try:
        yield
    finally:
        leave_on_signals(PROG)


def read_shared(args: argparse.Namespace, comm: "Comm", early: Early) -> Job:
    """The job: rank 0 checks and reads everything; the others receive what the extraction needs, in shared memory."""
    whole: list[Job] = []

    def read() -> "tuple[Image, PsfModel, ExtractConfig]":
        from gpu_extract.io.image import bare

        check_all(args)
        whole.append(read_job(args, find_inputs(args, early.inputs()), early.image))
        image = whole[0].image
        return bare(image), whole[0].psf, whole[0].config

    if comm.rank:
        import gpu_extract.run  # noqa: F401     these ranks wait for the files: the libraries are loaded meanwhile
    image, psf, config = comm.share(read)
    if not comm.one_copy and comm.rank == 0:
        log.warning("a node has too little shared memory (/dev/shm) for the image: each rank keeps its own copy")
    if whole:
        return replace(whole[0], image=replace(whole[0].image, pix=image.pix, ivar=image.ivar), psf=psf)
    return Job(image, psf, config, None, (), Inputs("", ""))


@dataclass(frozen=True)
class Run:
    """One run of the command: its options, its job, the ranks, the recorder and the device."""

    args: argparse.Namespace
    job: Job
    comm: "Comm"
    recorder: "Progress"
    backend: "Backend"

    @property
    def extract(self) -> "Callable[..., Frame | None]":
        """run.extract with the ranks, threads and device of this run."""
        from gpu_extract.run import extract

        return partial(extract, comm=self.comm, threads=self.args.threads or 1, backend=self.backend)


def announce(run: Run, device: str) -> None:
    """Log the device, the equivalent command, all settings, and options without effect."""
    log.info(f"device: {device}")
    log.info(f"command: {equivalent_command(run.args, run.job)}")
    log.info("settings: " + ", ".join(f"{key}={value}" for key, value in run.job.config.as_dict().items()))
    if run.args.nvtx and run.backend.name == "CPU":
        log.warning("--nvtx is ignored: no GPU is used")
    # equivalent commands always contain the default
    if run.job.psf.bundle is not None and run.args.bundlesize not in (None, type(run.job.config).bundlesize):
        log.warning("--bundlesize is ignored: the PSF's BUNDLE gives the bundle of each fibre")
    for sentence in ignored(run.args):
        log.warning(sentence)


def compute(run: Run) -> "Frame | None":
    """The extraction; None on ranks other than 0."""
    from gpu_extract.cli.report import warnings_of
    from gpu_extract.plan import make_plan, turns

    job = run.job
    plan, config = make_plan(job.psf, job.config, 0), job.config
    run.recorder.expect(len(turns(len(plan.bundles), run.comm.size, run.comm.rank)), len(plan.bundles), run.comm.size)
    if config.model and not run.args.model:      # only for the picture
        from gpu_extract.figures.spectra import columns_shown

        config = replace(config, model=columns_shown(job.psf, plan.asked, plan.wave, job.image.shape))
    with run.recorder.span("extract"):
        frame = run.extract(job.image, job.psf, config, recorder=run.recorder, dtype="float32")
    if frame is None:
        return None
    for sentence in warnings_of(frame):
        log.warning(sentence)
    return replace(frame, fibermap=job.fibermap)


def deliver(run: Run, frame: "Frame | None") -> None:
    """Write the requested files and summarise, on rank 0; the others confirm every file before it gets its name."""
    if frame is None:
        for _ in outputs(run.args, plain=False):
            run.comm.barrier()
        return
    from gpu_extract.cli.report import log_summary

    with run.recorder.span("write"):
        for write in writers(run.args):
            write(frame, cards=run.job.cards, commit=run.comm.barrier)
    log_summary(frame, run.recorder, run.args.output)
    if run.args.qa:
        _picture(run, frame)


def _picture(run: Run, frame: "Frame") -> None:
    """The QA page; for several passes, with the result of a single pass for the shown bundle."""
    from gpu_extract.figures import qa_page, shown
    from gpu_extract.io.truth import read_truth
    from gpu_extract.run import extract

    job, before = run.job, None
    if job.config.passes > 1:
        first, count = shown(job.image, frame, job.psf)
        before = extract(job.image, job.psf, replace(job.config, passes=1, model=False, specmin=first, nspec=count))
    truth = None if job.inputs.truth is None else read_truth(job.inputs.truth)
    qa_page(run.args.qa, job.image, frame, truth=truth, psf=job.psf, before=before)
    log.info(f"picture: {run.args.qa}")


def writers(args: argparse.Namespace) -> "list[Callable[..., None]]":
    """The writers of the requested files, the frame first."""
    from gpu_extract.io.frame import write_frame, write_model, write_spectra

    found: list[Callable[..., None]] = [partial(write_frame, args.output, scores=not args.no_scores)]
    if args.model:
        found.append(partial(write_model, args.model))
    if args.spectra:
        found.append(partial(write_spectra, args.spectra))
    return found


def judge(run: Run, frame: "Frame | None") -> None:
    """--test: compare the frame with the named reference, or extract the shipped cut-out in the same way.

    Raises CheckFailed if they differ.
    """
    if run.args.test is None:
        return
    from gpu_extract.compare import compare_frames, self_test

    comparison = None
    if not run.args.test:
        comparison = self_test(run.extract, run.job.config)      # all ranks take part
    elif frame is not None and run.job.reference is not None:
        comparison = compare_frames(frame, run.job.reference)
    if comparison is None:
        return
    say(comparison.table())
    if not comparison.passed:
        raise CheckFailed(f"{run.args.output}: differs from {run.args.test or 'the shipped reference'} "
                          "by more than the limits in the table")


if __name__ == "__main__":
    raise SystemExit(main())
