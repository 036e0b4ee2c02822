"""gpu_extract: one image to one frame."""
import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
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
    """Parse is done: read, extract, write, check."""
    set_threads(args.threads)
    check_device(args.gpu)
    check_files(args)
    from gpu_extract.cli.report import Progress, log_settings, log_summary

    recorder = Progress()
    with recorder.span("read"):
        job = read_job(args, find_inputs(args))
    log_settings(job.config.as_dict(), equivalent_command(args, job))
    for sentence in ignored(args):
        log.warning(sentence)
    frame = compute(args, job, recorder)
    if frame is None:
        return ExitCode.DONE
    with recorder.span("write"):
        write_outputs(args, job, frame)
    log_summary(frame, recorder, args.output)
    write_performance(args.perf, job, recorder)
    judge(args, job, frame)
    return ExitCode.DONE


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


def compute(args: argparse.Namespace, job: Job, recorder: "Progress") -> "Frame | None":
    """The extraction; None on ranks other than 0."""
    from gpu_extract.plan import make_plan
    from gpu_extract.run import extract

    recorder.expect(len(make_plan(job.psf, job.config, 0).bundles))
    with recorder.span("extract"):
        frame = extract(job.image, job.psf, job.config, recorder=recorder, threads=args.threads or 1)
    if frame is None:
        return None
    for fibre, reason in frame.notes.get("dropped", {}).items():
        log.warning(f"fibre {fibre} is dropped: {reason}")
    return replace(frame, fibermap=job.fibermap)


def write_outputs(args: argparse.Namespace, job: Job, frame: "Frame") -> None:
    """Frame first; then what was also asked for."""
    from gpu_extract.io.frame import write_frame, write_model
    from gpu_extract.io.spectra import write_spectra

    write_frame(args.output, frame, cards=job.cards, scores=not args.no_scores)
    if args.model:
        write_model(args.model, frame, cards=job.cards)
    if args.spectra:
        write_spectra(args.spectra, frame, cards=job.cards)


def write_performance(path: str | None, job: Job, recorder: "Progress") -> None:
    """The record of --perf: where the time went, and in what run."""
    if not path:
        return
    import json

    from gpu_extract import __version__
    from gpu_extract.io.atomic import atomic

    record = {**recorder.record(), "program": "gpu_extract", "version": __version__,
              "config": job.config.as_dict(), "digest": job.config.digest()}
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def judge(args: argparse.Namespace, job: Job, frame: "Frame") -> None:
    """--qa and --test. Raises CheckFailed where the comparison fails."""
    if args.qa:
        draw(args.qa, job, frame)
    if args.test is None:
        return
    comparison = compare(args, job, frame)
    print(comparison.table(), flush=True)
    if not comparison.passed:
        raise CheckFailed(f"{args.output}: differs from {args.test or 'the shipped reference'} "
                          "by more than the limits in the table")


def draw(path: str, job: Job, frame: "Frame") -> None:
    """The page of --qa."""
    from gpu_extract.figures import qa_page

    qa_page(path, job.image, frame, truth=job.inputs.truth)
    log.info(f"picture: {path}")


def compare(args: argparse.Namespace, job: Job, frame: "Frame") -> Any:
    """The frame against the reference, or without one the shipped cut-out extracted the same way."""
    from functools import partial

    from gpu_extract.compare import compare_frames, self_test
    from gpu_extract.run import extract

    if job.reference is not None:
        return compare_frames(frame, job.reference)
    return self_test(partial(extract, threads=args.threads or 1), job.config)
