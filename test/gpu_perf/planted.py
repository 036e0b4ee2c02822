"""Extractions with planted faults: planted.py FOLDER CASE..., under mpiexec -n 2; writes a record of each to FOLDER.

The frame is small, so every bundle gets additional work of `WORK` seconds, and copies of `COPIES` seconds, which stand
for those of a GPU. The faults: a slow rank, a gather that sleeps, copies made three times.
"""
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gpu_extract import cpu_frame
from gpu_extract.config import ExtractConfig
from gpu_extract.perf.clock import now, sleep
from gpu_extract.perf.record import whole
from gpu_extract.perf.recorder import TO_DEVICE, Recorder
from gpu_extract.ranks import transport
from gpu_extract.ranks.comm import get_comm
from gpu_extract.run import extract
from gpu_extract.simulate import SimConfig, simulate

WORK, COPIES = 0.7, 0.06
WARM = cpu_frame.CpuFrames()
WARM.get_ready = lambda *_: None
CONFIG = ExtractConfig((6012.0, 6098.0, 0.85))
# case -> seconds by which rank 1 is slower, seconds that gather sleeps, how often copies are made
CASES: dict[str, tuple[float, float, int]] = {
    "none": (0.0, 0.0, 1), "slow rank": (0.6, 0.0, 1), "gather": (0.0, 0.3, 1), "copies": (0.0, 0.0, 3),
    "slow rank, gather": (0.9, 0.25, 1), "gather, slow rank": (0.7, 0.8, 1)}


def planted(original: Callable[..., Any], case: tuple[float, float, int], rank: int) -> Callable[..., Any]:
    """extract_bundle with more work, copies, and a delay on rank 1."""
    def extract_bundle(*args: Any, recorder: Any, **options: Any) -> Any:
        source = np.ones(1 << 18)
        target = np.empty_like(source)
        for _ in range(case[2]):
            with recorder.copy(TO_DEVICE, source.nbytes):     # one span: between two, other processes take the core
                end = now() + COPIES
                while now() < end:
                    target[:] = source
        sleep(WORK + (case[0] if rank == 1 else 0.0))
        return original(*args, recorder=recorder, **options)

    return extract_bundle


def sleeping(original: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    """The receiving end of gather, with a sleep."""
    def receive(*args: Any) -> Any:
        sleep(seconds)
        return original(*args)

    return receive


def main() -> None:
    """The cases, one after another, on the same ranks."""
    folder = Path(sys.argv[1])
    made = simulate(SimConfig(camera="tiny", seed=11))
    bundle, receive = cpu_frame.extract_bundle, transport.receive
    extract(made.image, made.psf, CONFIG, comm=get_comm(True))
    for name in sys.argv[2:]:
        case = CASES[name]
        comm = get_comm(True)
        cpu_frame.extract_bundle = planted(bundle, case, comm.rank)
        transport.receive = sleeping(receive, case[1]) if case[1] else receive
        comm.barrier()
        recorder = Recorder(comm.rank)
        recorder.start_up = 0.0              # the process has done other things before
        comm.watch(recorder)
        with recorder.span("extract"):
            extract(made.image, made.psf, CONFIG, comm=comm, recorder=recorder, backend=WARM)
        transport.receive = receive
        records = comm.gather([(comm.rank, recorder.record())])
        if records is not None:
            (folder / f"{name}.json").write_text(json.dumps(whole(records, {"program": "planted"})))


if __name__ == "__main__":
    main()
