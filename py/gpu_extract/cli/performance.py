"""--perf and --trace: one record over all ranks."""
import argparse
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpu_extract.config import ExtractConfig
    from gpu_extract.data import Frame


def write_performance(args: argparse.Namespace, config: "ExtractConfig", comm: Any, recorder: Any,
                      frame: "Frame | None") -> None:
    """Gather what the ranks recorded and write it; all ranks come here, rank 0 has the frame and writes."""
    if not (args.perf or args.trace):
        return
    records = comm.gather([(comm.rank, recorder.record())])
    if records is None or frame is None:
        return
    from gpu_extract.perf.record import parse_run, whole
    from gpu_extract.perf.trace import trace_of

    record = whole(records, {**facts("gpu_extract", config), "mpi": comm.library, "problem": problem(frame)})
    if args.perf:
        write_json(args.perf, record)
    if args.trace:
        write_json(args.trace, trace_of(parse_run(record)))


def facts(program: str, config: Any) -> dict[str, Any]:
    """What ran: program, version, commit, versions of libraries, settings and their digest."""
    from gpu_extract import __version__
    from gpu_extract.perf.source import commit, versions

    return {"program": program, "version": __version__, "commit": commit(), "versions": versions(),
            "config": config.as_dict(), "digest": config.digest()}


def problem(frame: "Frame") -> dict[str, Any]:
    """The size of what was done, and how each bundle went."""
    return {"fibres": frame.flux.shape[0], "bins": frame.flux.shape[1],
            "bundles": {str(first): dict(notes) for first, notes in frame.notes.get("bundles", {}).items()}}


def write_json(path: str, content: Any) -> None:
    """One JSON file, whole or not at all."""
    from gpu_extract.io.atomic import atomic

    with atomic(path) as temporary:
        temporary.write_text(json.dumps(content) + "\n", encoding="utf-8")
