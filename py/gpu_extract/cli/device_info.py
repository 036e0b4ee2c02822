"""Options about devices: a list of devices (like `gpu_stress info`), and a check of the first one."""
import json
import os

from gpu_extract.cli.common import say
from gpu_extract.errors import ExitCode, InputError


def show_devices(module: str | None = None, *, measure: bool = True, as_json: bool = False) -> ExitCode:
    """Print devices, versions, the state of MPS, and measured bandwidths and rates.

    module: "numpy", "cupy" (InputError unless there is a GPU) or None for whatever there is
    Returns CHECK_FAILED if a measurement gave wrong results.
    """
    from gpu_stress.info import device_info, info_lines

    info = device_info(module, measure=measure, environ=os.environ)
    say(json.dumps(info, indent=1) if as_json else "\n".join(info_lines(info)))
    wrong = any(device.get("measured", {}).get("errors") for device in (info["cpu"], *info["gpus"]))
    return ExitCode.CHECK_FAILED if wrong else ExitCode.DONE


def ask_vendor(level: int = 1, limit: float | None = None) -> ExitCode:
    """Run NVIDIA's own tests, if installed, and print one line each (like `gpu_stress vendor`).

    level: of dcgmi diag, 1 to 4; limit: seconds for each (default: by level)
    Returns CHECK_FAILED if one of them casts doubt on a GPU.
    """
    from gpu_stress.vendor import ask, vendor_tools

    bad = False
    for tool in vendor_tools(level, limit):
        found = ask(tool)
        say(found.line)
        bad |= found.bad
    return ExitCode.CHECK_FAILED if bad else ExitCode.DONE


def check_devices(option: str, _: object = None) -> ExitCode:
    """Check the first device step by step, then with NVIDIA's tests. Raises InputError without a device."""
    from gpu_extract.cli.device_check import INSTALL, check_device, first_device  # loads numpy

    try:
        code = check_device(first_device, say)
        return ask_vendor() if code == ExitCode.DONE else code
    except InputError as error:
        raise InputError(f"{option}: {getattr(error, 'reason', error)}: {INSTALL}") from error
