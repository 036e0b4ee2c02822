#!/usr/bin/env bash
# Strong scaling on a CPU node, one frame of 500 fibres on increasing numbers of ranks:
#
#   sbatch slurm/sweep-strong.sh FOLDER [any option of gpu_sweep run]
#
# Table, plots and records are in FOLDER. Submitted again with the same arguments, the sweep continues.
# Variables to set before sbatch (defaults in brackets):
#   RANKS    numbers of ranks, separated by commas                                 (1,2,4,8,16,20)
#   PYTHON   Python interpreter of the environment with gpu_extract                (python)
#   MPI      srun's option for the MPI library: pmi2 for MPICH, pmix for Open MPI  (pmi2)
#SBATCH --job-name=sweep-strong
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=20
#SBATCH --cpus-per-task=1
#SBATCH --exclusive
#SBATCH --time=01:00:00
set -euo pipefail
export OMP_NUM_THREADS=1
folder=$1
shift
exec "${PYTHON:-python}" -m gpu_perf.cli.sweep run "$folder" --modes strong --ranks "${RANKS:-1,2,4,8,16,20}" \
    --launcher srun --launcher-options="--mpi=${MPI:-pmi2} --cpus-per-task=1" "$@"
