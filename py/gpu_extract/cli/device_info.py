"""Options about devices: which are here (as `gpu_stress info`), and whether the first one is fit."""
import json
import os

from gpu_extract.cli.common import say
from gpu_extract.errors import ExitCode, InputError


def show_devices(module: str | None = None, *, measure: bool = True, as_json: bool = False) -> ExitCode:
    """Print devices, versions, the state of MPS, and measured bandwidths and rates.

    module: "numpy", "cupy" (InputError unless there is a GPU) or None for what there is
    Returns CHECK_FAILED where a measurement gave wrong results.
    """
    from gpu_stress.info import device_info, info_lines

    info = device_info(module, measure=measure, environ=os.environ)
    say(json.dumps(info, indent=1) if as_json else "\n".join(info_lines(info)))
    wrong = any(device.get("measured", {}).get("errors") for device in (info["cpu"], *info["gpus"]))
    return ExitCode.CHECK_FAILED if wrong else ExitCode.DONE


def ask_vendor(level: int = 1, limit: float | None = None) -> ExitCode:
    """NVIDIA's own tests where they are installed, one line each (as `gpu_stress vendor`).

    level: of dcgmi diag, 1 to 4; limit: seconds for each (default: by level)
    Returns CHECK_FAILED where one of them puts a GPU in doubt.
    """
    from gpu_stress.vendor import ask, vendor_tools

    bad = False
    for tool in vendor_tools(level, limit):
        found = ask(tool)
        say(found.line)
        bad |= found.bad
    return ExitCode.CHECK_FAILED if bad else ExitCode.DONE


def check_devices(option: str, _: object = None) -> ExitCode:
    """Whether the first device is fit, step by step, and then by NVIDIA's tests. Raises InputError without one."""
    from gpu_extract.cli.device_check import INSTALL, check_device, first_device  # numpy: not for --help

    try:
        code = check_device(first_device, say)
        return ask_vendor() if code == ExitCode.DONE else code
    except InputError as error:
        raise InputError(f"{option}: {getattr(error, 'reason', error)}: {INSTALL}") from error
