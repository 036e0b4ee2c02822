"""The kernels in CUDA C++ under sanitizers (addresses, undefined behaviour), lanes shuffled, memory filled."""
import os
import subprocess
import sys
from pathlib import Path

import host_text
import pytest
from host_text import SANITIZED, compiler

SCRIPT = Path(__file__).with_name("sanitized.py")


def run(*args: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(host_text.__file__).parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.run([sys.executable, SCRIPT, *args], capture_output=True, text=True, check=False, timeout=600,
                          env={**os.environ, "PYTHONPATH": path, **(environ or {})})


@pytest.mark.slow
def test_clean_and_the_same_bits() -> None:
    found = str(compiler())
    libraries = [subprocess.run([found, f"-print-file-name={name}"], capture_output=True, text=True,
                                check=True).stdout.strip() for name in ("libasan.so", "libubsan.so")]
    if not all(os.path.isabs(library) for library in libraries):
        pytest.skip(f"{found} has no libraries of the sanitizers {SANITIZED[1]}")
    done = run(environ={"LD_PRELOAD": " ".join(libraries), "ASAN_OPTIONS": "detect_leaks=0"})
    assert done.returncode == 0, done.stderr[-3000:]
    plain = run("--plain")
    assert plain.returncode == 0, plain.stderr
    assert len(set(done.stdout.split())) == 1 and set(plain.stdout.split()) == set(done.stdout.split())
