"""The kernels as they are launched on a GPU, blocks and threads, under numba's CUDA simulator."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_extract.device.cuda.kernels import declared


@pytest.mark.slow
def test_a_small_frame_under_the_simulator() -> None:
    """2 fibres x 5 bins: what kernels do with their grids, in a process that has the simulator switched on; all of them
    are launched in test/device/cudasim."""
    done = subprocess.run([sys.executable, Path(__file__).with_name("under_cudasim.py")], capture_output=True,
                          text=True, check=False, timeout=600, env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["flux"] < 1e-8 and found["ivar"] < 1e-9 and found["R"] < 1e-9 and found["on_cpu"] == 0
    assert len({kernel.name for kernel in declared()} & set(found["launched"])) > 10
