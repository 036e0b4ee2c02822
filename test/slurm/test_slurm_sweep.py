"""A scaling sweep whose points are jobs."""
import sys
from pathlib import Path

import pytest
from cluster import Cluster

from gpu_perf.sweep_results import read_rows
from mpi_launch import ROOT
from nights import GRID, Night


@pytest.mark.slow
def test_every_point_is_a_job(slurm: Cluster, night: Night, tmp_path: Path) -> None:
    done = slurm.run(sys.executable, ROOT / "bin" / "gpu_sweep", "run", tmp_path, "--modes", "weak", "--ranks", "1,2",
                     "--bundle", "5", "--repeats", "1", "--no-warm-up", "--no-plots", "--launcher", "sbatch",
                     "--launcher-options=--export=ALL,SLURM_MPI_TYPE=pmi2", "--", "-i", night.images[0],
                     "-p", night.psf, "-w", GRID, limit=200)
    assert done.returncode == 0, done.stderr
    rows = read_rows(tmp_path, "extract")
    assert [len(row.repeats[0].run.ranks) for row in rows] == [1, 2]
