#!/usr/bin/env bash
# Where does the time of a frame go? The record and the trace of one run, and the report on it:
#
#   sbatch slurm/profile.sh FOLDER [any option of gpu_extract but -o]
#
# FOLDER gets run.json, trace.json (for ui.perfetto.dev), report.html and the frame.
# Set before sbatch, if they differ:
#   PYTHON   the interpreter of the environment that gpu_extract is installed in   (python)
#   MPI      what srun needs for the MPI library: pmi2 for MPICH, pmix for Open MPI (pmi2)
#   NSYS     a command in front of each rank's, e.g. "nsys profile -t cuda,nvtx -o FOLDER/rank%q{SLURM_PROCID}" (none)
#SBATCH --job-name=profile
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=20
#SBATCH --cpus-per-task=1
#SBATCH --exclusive
#SBATCH --time=00:15:00
set -euo pipefail
export OMP_NUM_THREADS=1
folder=$1
shift
mkdir -p "$folder"
python=${PYTHON:-python}
# shellcheck disable=SC2086
srun --mpi="${MPI:-pmi2}" --cpus-per-task=1 ${NSYS:-} "$python" "$SLURM_SUBMIT_DIR/bin/gpu_extract" \
    -o "$folder/frame.fits" --perf "$folder/run.json" --trace "$folder/trace.json" "$@"
exec "$python" "$SLURM_SUBMIT_DIR/bin/gpu_perf" report "$folder/run.json" --html "$folder/report.html"
