#!/usr/bin/env bash
# All frames of an exposure on CPU nodes, requeued until they are done:
#
#   sbatch slurm/exposure.sh LIST -o FOLDER [any option of gpu_extract_exposure]
#
# A minute before the time limit Slurm sends SIGUSR1. Unfinished frames are dropped, the program ends with exit code 75,
# and the job is requeued; when it starts again it skips finished frames. The same happens after a failure of the node.
# Variables to set before sbatch (defaults in brackets):
#   PYTHON   Python interpreter of the environment with gpu_extract                (python)
#   MPI      srun's option for the MPI library: pmi2 for MPICH, pmix for Open MPI  (pmi2)
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
# a killed job leaves shared memory of MPICH behind, named by job and step, on which MPICH fails when the job starts
# again on the same node: so the step gets another number
for ((n = 0; n < ${SLURM_RESTART_COUNT:-0}; n++)); do srun --ntasks=1 true; done
srun --mpi="${MPI:-pmi2}" --cpus-per-task=1 "${PYTHON:-python}" -m gpu_extract.cli.exposure "$@"
code=$?
if [ "$code" -eq 75 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
