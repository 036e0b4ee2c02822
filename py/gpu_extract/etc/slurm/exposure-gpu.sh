#!/usr/bin/env bash
# All frames of an exposure on GPU nodes, several ranks on each GPU under the Multi-Process Service (MPS):
#
#   sbatch slurm/exposure-gpu.sh LIST -o FOLDER [any option of gpu_extract_exposure]
#
# Four GPUs with four ranks each. A rank uses the GPU whose number is the rank's number on the node modulo the number of
# GPUs, so every rank must see all GPUs (--gpus-per-node, not --gpus-per-task). Time limit and requeue: see exposure.sh.
# Variables to set before sbatch (defaults in brackets):
#   PYTHON   Python interpreter of the environment with gpu_extract                (python)
#   MPI      srun's option for the MPI library: pmi2 for MPICH, pmix for Open MPI  (pmi2)
#SBATCH --job-name=exposure-gpu
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
#SBATCH --ntasks-per-node=16
#SBATCH --cpus-per-task=1
#SBATCH --time=00:15:00
#SBATCH --signal=USR1@60
#SBATCH --requeue
#SBATCH --open-mode=append
set -uo pipefail
export OMP_NUM_THREADS=1
# a killed job leaves shared memory of MPICH behind, named by job and step, on which MPICH fails when the job starts
# again on the same node: so the step gets another number
for ((n = 0; n < ${SLURM_RESTART_COUNT:-0}; n++)); do srun --ntasks=1 true; done
srun --mpi="${MPI:-pmi2}" --cpus-per-task=1 "${PYTHON:-python}" -m gpu_extract.cli.mps \
    "${PYTHON:-python}" -m gpu_extract.cli.exposure --gpu "$@"
code=$?
if [ "$code" -eq 75 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
