#!/usr/bin/env bash
# All frames of an exposure on CPU nodes, started again by itself until they are done:
#
#   sbatch slurm/exposure.sh LIST -o FOLDER [any option of gpu_extract_exposure]
#
# A minute before the time is up Slurm sends SIGUSR1: what is in work is dropped, the program ends with exit code 75,
# and the job goes back into the queue; started again it skips what is there. The same after a failure of the node.
# Set before sbatch, if they differ:
#   PYTHON   the interpreter of the environment that gpu_extract is installed in   (python)
#   MPI      what srun needs for the MPI library: pmi2 for MPICH, pmix for Open MPI (pmi2)
#SBATCH --job-name=exposure
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=20
#SBATCH --cpus-per-task=1
#SBATCH --time=00:30:00
#SBATCH --signal=USR1@60
#SBATCH --requeue
#SBATCH --open-mode=append
set -uo pipefail
export OMP_NUM_THREADS=1
# where a job is killed, MPICH leaves shared memory behind that is named by job and step, and trips over it when the job
# starts again on the same node: the step gets another number
for ((n = 0; n < ${SLURM_RESTART_COUNT:-0}; n++)); do srun --ntasks=1 true; done
srun --mpi="${MPI:-pmi2}" --cpus-per-task=1 "${PYTHON:-python}" -m gpu_extract.cli.exposure "$@"
code=$?
if [ "$code" -eq 75 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
