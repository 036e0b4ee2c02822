#!/usr/bin/env bash
# One frame on a CPU node:   sbatch slurm/extract.sh -i IMAGE -p PSF -o FRAME [any option of gpu_extract]
#
# 20 ranks, one for each bundle of a DESI frame. Variables to set before sbatch (defaults in brackets):
#   PYTHON   Python interpreter of the environment with gpu_extract                (python)
#   MPI      srun's option for the MPI library: pmi2 for MPICH, pmix for Open MPI  (pmi2)
#SBATCH --job-name=gpu_extract
#SBATCH --nodes=1
#SBATCH --ntasks=20
#SBATCH --cpus-per-task=1
#SBATCH --time=00:10:00
set -euo pipefail
export OMP_NUM_THREADS=1
exec srun --mpi="${MPI:-pmi2}" --cpus-per-task=1 "${PYTHON:-python}" -m gpu_extract.cli.extract "$@"
