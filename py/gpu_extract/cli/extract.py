"""gpu_extract: one image to one frame."""
import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gpu_extract.cli.common import log, run_main
from gpu_extract.cli.job import Job, check_files, equivalent_command, find_inputs, read_job
from gpu_extract.cli.options import build_parser, ignored
from gpu_extract.errors import CheckFailed, ExitCode, InputError

if TYPE_CHECKING:
    from gpu_extract.cli.report import Progress
    from gpu_extract.data import Frame

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def main(argv: Sequence[str] | None = None) -> int:
    """The command gpu_extract; returns its exit code (errors.ExitCode)."""
    return run_main(build_parser, extract_image, argv)


def extract_image(args: argparse.Namespace) -> int:
    """Parse is done: read, extract, write, check. Every rank takes this way; rank 0 speaks and writes."""
    set_threads(args.threads)
    check_device(args.gpu)
    check_plots(args.qa)
    check_files(args)
    comm = communicator(args.mpi)
    from gpu_extract.cli.report import Progress

    recorder = Progress(comm.rank)
    with recorder.span("read"):
        job = read_job(args, find_inputs(args))
    run = Run(args, job, comm, recorder)
    if comm.rank == 0:
        announce(run)
    frame = compute(run)
    if frame is not None:
        deliver(run, frame)
    judge(run, frame)
    return ExitCode.DONE


def check_plots(path: str | None) -> None:
    """A picture needs matplotlib: said before the work, not after it. Raises InputError."""
    if path and find_spec("matplotlib") is None:
        raise InputError("--qa needs matplotlib, which is not installed; install gpu_extract[plots], or leave --qa out")


@dataclass(frozen=True)
class Run:
    """One run of the command: its options, its job, the ranks and the recorder."""

    args: argparse.Namespace
    job: Job
    comm: Any
    recorder: "Progress"

    @property
    def extract(self) -> "Callable[..., Frame | None]":
        """run.extract with the ranks and threads of this run."""
        from gpu_extract.run import extract

        return partial(extract, comm=self.comm, threads=self.args.threads or 1)


def communicator(mpi: bool) -> Any:
    """The ranks: those of MPI where a launcher started this or --mpi asks for it, else this process alone."""
    from gpu_extract import comm

    if hasattr(comm, "get_comm"):
        return comm.get_comm(mpi)
    if mpi:
        raise InputError("--mpi: ranks are not supported here; leave --mpi out")
    return comm.SERIAL


def set_threads(threads: int | None) -> None:
    """Threads of the numerical libraries; they look only once, when they are loaded."""
    if threads is not None and threads < 1:
        raise InputError(f"--threads is {threads}, must be 1 or more")
    for variable in _THREAD_VARIABLES:
        if threads is not None:
            os.environ[variable] = str(threads)
        else:
            os.environ.setdefault(variable, os.environ.get("OMP_NUM_THREADS", "1"))


def check_device(gpu: bool | None) -> None:
    """An explicit --gpu needs a GPU backend that can be loaded. Raises InputError."""
    if not gpu:
        return
    from importlib import import_module

    try:
        import_module("gpu_extract.backend.cuda")
    except ImportError as error:
        raise InputError(f"--gpu: no GPU can be used here ({error}); leave --gpu out") from error


def announce(run: Run) -> None:
    """The equivalent command, all settings, and what has no effect."""
    from gpu_extract.cli.report import log_settings

    log_settings(run.job.config.as_dict(), equivalent_command(run.args, run.job))
    for sentence in ignored(run.args):
        log.warning(sentence)


def compute(run: Run) -> "Frame | None":
    """The extraction; None on ranks other than 0."""
    from gpu_extract.plan import make_plan

    job = run.job
    run.recorder.expect(len(make_plan(job.psf, job.config, 0).bundles))
    with run.recorder.span("extract"):
        frame = run.extract(job.image, job.psf, job.config, recorder=run.recorder)
    if frame is None:
        return None
    for fibre, reason in frame.notes.get("dropped", {}).items():
        log.warning(f"fibre {fibre} is dropped: {reason}")
    return replace(frame, fibermap=job.fibermap)


def deliver(run: Run, frame: "Frame") -> None:
    """Write what was asked for, and sum up."""
    from gpu_extract.cli.report import log_summary

    with run.recorder.span("write"):
        write_outputs(run.args, run.job, frame)
    log_summary(frame, run.recorder, run.args.output)
    write_performance(run)
    if run.args.qa:
        from gpu_extract.figures import qa_page
        from gpu_extract.io.truth import read_truth

        truth = None if run.job.inputs.truth is None else read_truth(run.job.inputs.truth)
        qa_page(run.args.qa, run.job.image, frame, truth=truth, psf=run.job.psf)
        log.info(f"picture: {run.args.qa}")


def write_outputs(args: argparse.Namespace, job: Job, frame: "Frame") -> None:
    """Frame first; then what was also asked for."""
    from gpu_extract.io.frame import write_frame, write_model
    from gpu_extract.io.spectra import write_spectra

    write_frame(args.output, frame, cards=job.cards, scores=not args.no_scores)
    if args.model:
        write_model(args.model, frame, cards=job.cards)
    if args.spectra:
        write_spectra(args.spectra, frame, cards=job.cards)


def write_performance(run: Run) -> None:
    """The record of --perf: where the time went, and in what run."""
    if not run.args.perf:
        return
    import json

    from gpu_extract import __version__
    from gpu_extract.io.atomic import atomic

    config = run.job.config
    record = {**run.recorder.record(), "program": "gpu_extract", "version": __version__,
              "config": config.as_dict(), "digest": config.digest()}
    with atomic(run.args.perf) as temporary:
        temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def judge(run: Run, frame: "Frame | None") -> None:
    """--test: the frame against the named reference, or the shipped cut-out extracted the same way.

    Raises CheckFailed where they differ.
    """
    if run.args.test is None:
        return
    from gpu_extract.compare import compare_frames, self_test

    reference = run.job.reference
    if reference is None:
        comparison = self_test(run.extract, run.job.config)
    else:
        comparison = None if frame is None else compare_frames(frame, reference)
    if comparison is None:
        return
    print(comparison.table(), flush=True)
    if not comparison.passed:
        raise CheckFailed(f"{run.args.output}: differs from {run.args.test or 'the shipped reference'} "
                          "by more than the limits in the table")
