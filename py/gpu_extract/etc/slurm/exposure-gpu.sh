#!/usr/bin/env bash
# All frames of an exposure on GPU nodes, several ranks on each GPU under the Multi-Process Service (MPS):
#
#   sbatch slurm/exposure-gpu.sh LIST -o FOLDER [any option of gpu_extract_exposure]
#
# Four GPUs with four ranks each; a rank takes the GPU of its number on the node modulo the node's GPUs, so that all of
# them have to be seen by every rank (--gpus-per-node, not --gpus-per-task). Time limit and requeue as in exposure.sh.
# Set before sbatch, if they differ:
#   PYTHON   the interpreter of the environment that gpu_extract is installed in   (python)
#   MPI      what srun needs for the MPI library: pmi2 for MPICH, pmix for Open MPI (pmi2)
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
# where a job is killed, MPICH leaves shared memory behind that is named by job and step, and trips over it when the job
# starts again on the same node: the step gets another number
for ((n = 0; n < ${SLURM_RESTART_COUNT:-0}; n++)); do srun --ntasks=1 true; done
srun --mpi="${MPI:-pmi2}" --cpus-per-task=1 "${PYTHON:-python}" -m gpu_extract.cli.mps \
    "${PYTHON:-python}" -m gpu_extract.cli.exposure --gpu "$@"
code=$?
if [ "$code" -eq 75 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
