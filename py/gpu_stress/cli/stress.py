"""gpu_stress: tests whether a GPU (or CPU) works correctly, and how well processes share it."""
import argparse
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gpu_extract.cli.common import check_memory, run_main, say, set_threads, stop_when_asked
from gpu_extract.cli.device_info import ask_vendor, show_devices
from gpu_extract.cli.ranks import find_launch, run_kept, speaks, start_ranks
from gpu_extract.errors import ExitCode, InputError
from gpu_perf.cli.proflog import print_profile
from gpu_stress.cli.stress_options import build_parser, devices_of, spec_of
from gpu_stress.spec import TESTS, Spec, check_procs, check_timeout

if TYPE_CHECKING:
    from gpu_extract.ranks.comm import Comm

PROG = "gpu_stress"


def main(argv: Sequence[str] | None = None) -> int:
    """Run gpu_stress; returns its exit code."""
    return run_kept(PROG, lambda: run_main(build_parser, _body, argv, speaks=speaks()))


def _body(args: argparse.Namespace) -> int:
    stop_when_asked()
    if args.command in TESTS:
        return _test(args)
    if find_launch() is not None:
        raise InputError(f"{args.command} runs as a single process: start it without mpiexec or srun -n")
    if args.command == "campaign":
        from gpu_stress.cli.stress_campaign import run_campaign
        return run_campaign(args)
    if args.command == "report":
        from gpu_stress.report import write_report
        say(write_report(args.folders, args.output or args.folders[0], plots=args.plots), end="")
    elif args.command == "proflog":
        print_profile(args)
    elif args.command == "vendor":
        check_timeout(args.timeout)
        return ask_vendor(args.level, args.timeout)
    else:
        return show_devices(args.module, measure=args.measure, as_json=args.json)
    return ExitCode.DONE


def _test(args: argparse.Namespace) -> int:
    """Run one test, in this process or in several, or as one of several ranks."""
    spec = spec_of(args, args.command, module=args.module or "numpy", shape=args.shape, dtype=args.dtype)
    if args.worker is None:
        spec.supported()
    procs, fault = args.procs, args.plant_fault
    check_procs(procs)
    check_timeout(args.timeout)
    if args.threads is not None:
        set_threads(args.threads)
    else:
        check_memory()
    devices = devices_of(args.devices, spec.module)
    from gpu_stress.workers import run_workers, share, work_as_one, worker_argv
    if args.worker is not None:
        number, _, of = args.worker.partition("/")
        work_as_one(share(spec, int(number), int(of), devices, fault))
        return ExitCode.DONE
    if find_launch() is not None:
        if procs > 1:
            raise InputError("--procs cannot be combined with ranks of mpiexec or srun: leave --procs out")
        if args.timeout is not None:
            raise InputError("--timeout applies only to processes that gpu_stress starts, not to ranks of mpiexec or "
                             "srun: leave it out, and limit these (timeout 60 mpiexec ..., srun --time)")
        comm = start_ranks(False, PROG)
        with comm.together():
            results = _work_as_rank(spec, comm, devices, fault)
            return int(comm.share(lambda: _tell(results or [], as_json=args.json)))
    if procs > 1 or args.timeout is not None:
        argv = worker_argv(spec, devices, args.threads, fault)
        return _tell(run_workers(argv, procs, args.timeout), as_json=args.json)
    from gpu_stress.cycles import run_test
    result = run_test(share(spec, 0, 1, devices, fault))
    return _tell([{**asdict(result), "pid": os.getpid()}], as_json=args.json)


def _work_as_rank(spec: Spec, comm: "Comm", devices: Sequence[int],
                  fault: tuple[int, int] | None) -> list[dict[str, Any]] | None:
    """Work as one of several ranks that start together; the results of all on rank 0, None elsewhere.

    Ranks of a node use its devices in turn, whatever their global number.
    """
    from gpu_stress.cycles import recorded
    from gpu_stress.workers import share

    place, on_node = comm.on_node()
    mine = share(spec, comm.rank, on_node, [devices[place % len(devices)]], fault)
    waited: list[bool] = []

    def together() -> None:
        waited.append(True)
        comm.barrier()

    result = recorded(mine, together)
    if not waited:
        comm.barrier()             # it does not fit or does not exist here; the others wait for this rank
    return comm.gather([(comm.rank, {**asdict(result), "pid": os.getpid(), "host": platform.node()})])


def _tell(results: list[dict[str, Any]], *, as_json: bool) -> int:
    """Print the results, and on standard error the processes that were wrong; returns the exit code."""
    from gpu_stress.lines import result_line, shared_line, together
    for result in results:
        if result["status"] in ("unsupported", "out of memory"):
            raise InputError(result["message"])
    shared = together(results)
    if as_json:
        say(json.dumps({"processes": results, "together": shared and vars(shared)}))
    elif len(results) == 1:
        say(result_line(results[0]))
    else:
        for number, result in enumerate(results):
            say(f"process {number}: {result_line(result)}")
        say(shared_line(shared, results))
    for number, result in enumerate(results):
        if result["status"] != "ok":
            where = f"{result['host']}, " if "host" in result else ""
            place = f"{where}pid {result['pid']}, device {result['spec']['device']}, {result['device']['device']}"
            say(f"gpu_stress: wrong: process {number} ({place}): {result['message']}", error=True)
    return ExitCode.CHECK_FAILED if any(r["status"] != "ok" for r in results) else ExitCode.DONE


if __name__ == "__main__":
    raise SystemExit(main())
