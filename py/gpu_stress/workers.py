"""One test in several processes at once on this machine, or as one set of a campaign."""
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gpu_extract.cli.common import THREAD_VARIABLES
from gpu_extract.errors import ExitCode, InternalError
from gpu_perf.processes import READY, Ended, run_together
from gpu_stress.cycles import Result, recorded
from gpu_stress.spec import Spec, show


def worker_argv(spec: Spec, devices: Sequence[int], threads: int | None = None,
                fault: tuple[int, int] | None = None) -> tuple[str, ...]:
    """The command of one worker process, which uses the gate and prints its result as JSON.

    devices: process i uses devices[i % len(devices)]
    threads: of the numerical libraries in each process, or None for their own choice
    fault: (process, cycle) in which a result is corrupted, see Spec.fault
    """
    limit = () if threads is None else ("env", *(f"{name}={threads}" for name in THREAD_VARIABLES))
    amount = ("-c", str(spec.count)) if spec.count is not None else ("--seconds", repr(spec.seconds))
    return (*limit, sys.executable, "-m", "gpu_stress.cli.stress", spec.test, "-m", spec.module,
            "-s", show(spec.shape), "-d", spec.dtype, *amount,
            "--copy" if spec.copy else "--no-copy", "--pinned" if spec.pinned else "--pageable",
            "--warmup", str(spec.warmup), "--check-every", str(spec.check_every), "--seed", str(spec.seed),
            *(("--core", spec.core) if spec.test == "extract" else ()), "--devices", ",".join(map(str, devices)),
            *(() if fault is None else ("--plant-fault", f"{fault[0]}:{fault[1]}")),
            "--worker", "{process}/{procs}")


def share(spec: Spec, number: int, procs: int, devices: Sequence[int],
          fault: tuple[int, int] | None = None) -> Spec:
    """The spec of one process of several: its device, its content, and its planted fault, if any."""
    return replace(spec, device=devices[number % len(devices)], seed=spec.seed + number, sharing=procs,
                   fault=fault[1] if fault is not None and fault[0] == number else None)


def work_as_one(spec: Spec) -> Result:
    """Run as a worker: warm up, wait at the gate, work, print the result as the last line."""
    result = recorded(spec, _wait_at_gate)
    print(json.dumps(asdict(result)), flush=True)
    return result


def _wait_at_gate() -> None:
    print(READY, flush=True)
    if not sys.stdin.readline():
        raise SystemExit(ExitCode.START_AGAIN)     # the parent has gone


def run_workers(argv: Sequence[str], procs: int, timeout: float | None = None) -> list[dict[str, Any]]:
    """Run the workers together; their results in order, each with "pid".

    Raises InternalError that names a worker without a result.
    """
    with TemporaryDirectory(prefix="gpu_stress.") as folder:
        ended = run_together(argv, procs, Path(folder) / "worker", gate=True, timeout=timeout)
    return [_result_of(e) for e in ended]


def _result_of(ended: Ended) -> dict[str, Any]:
    if ended.result is None:
        raise InternalError(f"process {ended.index} ended without a result ({ended.status}): "
                            f"{ended.said or 'no message'}")
    return {**ended.result, "pid": ended.pid}
