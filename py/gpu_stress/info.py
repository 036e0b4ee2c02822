"""Facts about the machine: processor, GPUs, versions, MPS, measured bandwidths and rates."""
from collections.abc import Mapping
from typing import Any

from gpu_extract.device.mps_daemon import PIPES, control_pid
from gpu_extract.errors import InputError
from gpu_stress.backend import Module, NoDevice, device_count, open_module
from gpu_stress.cycles import run_test
from gpu_stress.lines import GB, GIGA
from gpu_stress.machine import GIB, machine
from gpu_stress.nvml import open_probe
from gpu_stress.spec import Spec

COPY_SHAPE, COPY_SECONDS = (2**23,), 0.4
GEMM = {"numpy": (1000, 1000), "cupy": (4096, 4096)}


def device_info(module: str | None = None, *, measure: bool = True,
                environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Facts and measurements as plain values; `info_lines` makes text of them.

    module: "numpy": the processor only; "cupy": InputError unless there is a GPU; None: whatever there is
    measure: copy bandwidth each way, page-locked and pageable, and the float64 rate of a matrix product
    environ: the process's environment, which announces MPS
    Raises InputError for an unknown module, or for cupy if it cannot be used.
    """
    if module not in (None, "numpy", "cupy"):
        raise InputError(f"module is {module!r}, must be numpy or cupy")
    probe, no_driver = open_probe()
    count, no_cupy = 0, "not requested"
    if module != "numpy":
        try:
            count, no_cupy = device_count(), ""
        except NoDevice as error:
            if module == "cupy":
                raise
            no_cupy = f"that needs {error.need}"
    cpu = Module().describe()
    gpus = [open_module("cupy", number).describe() for number in range(count)]
    if measure:
        for device, name in [(cpu, "numpy"), *((gpu, "cupy") for gpu in gpus)]:
            device["measured"] = measured(name, device.get("number", 0))
    return {"machine": machine(), "cpu": cpu, "gpus": gpus, "no_gpu": no_cupy,
            "driver": probe.facts() if probe else [], "no_driver": no_driver, "mps": mps_state(environ or {})}


def measured(module: str, device: int) -> dict[str, Any]:
    """Bytes per second each way, operations per second in float64, and errors found meanwhile."""
    found: dict[str, Any] = {"errors": 0}
    for kind, pinned in (("pinned", True), ("pageable", False)):
        if pinned and module == "numpy":
            continue
        result = run_test(Spec("copy", module=module, shape=COPY_SHAPE, dtype="float64", count=None,
                               seconds=COPY_SECONDS, pinned=pinned, device=device))
        found[kind] = {way: result.nbytes / seconds for way, seconds in result.legs.items()}
        found["errors"] += result.errors
    result = run_test(Spec("gemm", module=module, shape=GEMM[module], dtype="float64", count=None,
                           seconds=COPY_SECONDS, copy=False, device=device))
    found["float64"] = (result.flop or 0) / result.cycles / result.cycle["median"]
    found["errors"] += result.errors
    return found


def mps_state(environ: Mapping[str, str]) -> dict[str, Any]:
    """Whether the MPS daemon that this process would use is running, and where."""
    pipes = environ.get("CUDA_MPS_PIPE_DIRECTORY", PIPES)
    pid = control_pid(pipes)
    return {"running": pid is not None, "pipes": pipes, "pid": pid,
            "threads_percent": environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")}


def info_lines(info: Mapping[str, Any]) -> list[str]:
    """The facts as lines of text."""
    m, cpu, mps = info["machine"], info["cpu"], info["mps"]
    lines = [f"{m['host']}: {m['processor']}, {m['cores']} cores, {m['memory'] / GIB:.1f} GiB, {m['system']}, "
             f"Python {m['python']}",
             f"numpy {cpu['version']}{_measured(cpu)}"]
    for gpu in info["gpus"]:
        lines += [f"GPU {gpu['number']}: {gpu['device']}, {gpu['memory'] / GIB:.1f} GiB "
                  f"({gpu['memory_free'] / GIB:.1f} free), {gpu['multiprocessors']} SM, compute capability "
                  f"{gpu['compute_capability']}; CUDA {gpu['cuda_runtime']}, driver for {gpu['cuda_driver']}, "
                  f"cupy {gpu['version']}{_measured(gpu)}"]
    if not info["gpus"]:
        lines.append(f"GPU: none usable: {info['no_gpu']}")
    lines += [f"driver {d['driver']}: device {d['index']} is {d['name']}, "
              + ("power limit unknown" if d["power_limit"] is None else f"power limit {d['power_limit']:.0f} W")
              for d in info["driver"]]
    if info["no_driver"]:
        lines.append(f"driver: {info['no_driver']}")
    share = f", {mps['threads_percent']} % of the threads each" if mps["threads_percent"] else ""
    lines.append(f"MPS: running, pid {mps['pid']}, {mps['pipes']}{share}" if mps["running"] else
                 f"MPS: not running (no daemon in {mps['pipes']})")
    return lines


def _measured(device: Mapping[str, Any]) -> str:
    found = device.get("measured")
    if not found:
        return ""
    copies = [f"{kind} {found[kind]['up'] / GB:.1f} up, {found[kind]['down'] / GB:.1f} down"
              for kind in ("pinned", "pageable") if kind in found]
    wrong = f"; {found['errors']} RESULTS WRONG" if found["errors"] else ""
    return f"; copies GByte/sec {'; '.join(copies)}; float64 {found['float64'] / GIGA:.1f} GFlop/s{wrong}"
