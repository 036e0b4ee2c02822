"""--perf and --trace: one record over all ranks."""
import argparse
from typing import TYPE_CHECKING, Any

from gpu_extract import __version__
from gpu_extract.io.atomic import write_json

if TYPE_CHECKING:
    from gpu_extract.cli.job import Job
    from gpu_extract.config import ExtractConfig
    from gpu_extract.data import Frame, PsfModel
    from gpu_extract.perf.recorder import Recorder
    from gpu_extract.seams import Comm
    from gpu_extract.simulate.config import SimConfig


def write_performance(args: argparse.Namespace, job: "Job", comm: "Comm", recorder: "Recorder",
                      frame: "Frame | None") -> None:
    """Gather the ranks' records and write them; all ranks call this, rank 0 has the frame and writes."""
    if not (args.perf or args.trace):
        return
    records = comm.gather([(comm.rank, recorder.record())])
    if records is None or frame is None:
        return
    from gpu_extract.perf.record import parse_run, whole
    from gpu_extract.perf.trace import trace_of

    known = {**facts("gpu_extract", job.config), "mpi": comm.library, "problem": problem(frame, job.psf)}
    record = whole(records, known)
    if args.perf:
        write_json(args.perf, record)
    if args.trace:
        write_json(args.trace, trace_of(parse_run(record)))


def facts(program: str, config: "ExtractConfig | SimConfig | None" = None) -> dict[str, Any]:
    """What ran: program, version, commit, versions of libraries, processor, settings (if all ranks share them) and
    their digest."""
    from gpu_extract.perf.source import commit, cpu_name, versions

    settings = {} if config is None else {"config": config.as_dict(), "digest": config.digest()}
    return {"program": program, "version": __version__, "commit": commit(), "versions": versions(),
            "processor": cpu_name(), **settings}


def problem(frame: "Frame", psf: "PsfModel") -> dict[str, Any]:
    """The size of the problem, and the outcome of each bundle.

    pitch: pixels from bin to bin and from fibre to fibre, in the middle
    """
    import numpy as np

    from gpu_extract.spots import centres

    notes = {int(first): dict(values) for first, values in frame.notes.get("bundles", {}).items()}
    first = min(notes, default=0)
    middle = frame.flux.shape[1] // 2
    y, x = centres(psf, (first, min(first + 2, psf.nfibre)), np.asarray(frame.wave)[middle:middle + 2])
    pitch = [abs(float(np.diff(y, axis=1).mean())), abs(float(np.diff(x, axis=0).mean()))] if min(y.shape) > 1 else None
    return {"fibres": frame.flux.shape[0], "bins": frame.flux.shape[1], "stamp": list(psf.stamp), "pitch": pitch,
            "bundles": {str(number): values for number, values in sorted(notes.items())}}
