#!/usr/bin/env bash
# One frame on a GPU node:   sbatch slurm/extract-gpu.sh -i IMAGE -p PSF -o FRAME [any option of gpu_extract]
#
# One GPU shared by five ranks under the Multi-Process Service (MPS).
# Variables to set before sbatch (defaults in brackets):
#   PYTHON   Python interpreter of the environment with gpu_extract                (python)
#   MPI      srun's option for the MPI library: pmi2 for MPICH, pmix for Open MPI  (pmi2)
#SBATCH --job-name=gpu_extract
#SBATCH --nodes=1
#SBATCH --gpus-per-node=1
#SBATCH --ntasks-per-node=5
#SBATCH --cpus-per-task=1
#SBATCH --time=00:10:00
set -euo pipefail
export OMP_NUM_THREADS=1
exec srun --mpi="${MPI:-pmi2}" --cpus-per-task=1 "${PYTHON:-python}" -m gpu_extract.cli.mps \
    "${PYTHON:-python}" -m gpu_extract.cli.extract --gpu "$@"
