"""The tests in cudasim/, in a process of its own: numba's simulator must be switched on before numba is loaded."""
import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "cudasim"


def test_kernels_under_the_simulator() -> None:
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "no:xdist", str(FOLDER)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, env={**environ, "NUMBA_ENABLE_CUDASIM": "1"}, capture_output=True, text=True,
                          check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout and "skipped" not in done.stdout, done.stdout
