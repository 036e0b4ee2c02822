#!/usr/bin/env bash
# Where the time of a frame goes: the record and the trace of one run, and the report on it:
#
#   sbatch slurm/profile.sh FOLDER [any option of gpu_extract except -o]
#
# FOLDER gets run.json, trace.json (for ui.perfetto.dev), report.html and the frame; with NSYS also the profile of each
# rank by Nsight Systems: rankN.nsys-rep, rankN.sqlite (its export) and rankN.html (the report of gpu_perf nsys).
# Variables to set before sbatch (defaults in brackets):
#   PYTHON   Python interpreter of the environment with gpu_extract                              (python)
#   MPI      srun's option for the MPI library: pmi2 for MPICH, pmix for Open MPI                (pmi2)
#   NSYS     Nsight Systems, e.g. nsys, for a profile of the GPU with the stages as NVTX ranges  (none)
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
watch=()
if [ -n "${NSYS:-}" ]; then
    watch=("$NSYS" profile --trace=cuda,nvtx --force-overwrite=true "--output=$folder/rank%q{SLURM_PROCID}")
    set -- --nvtx "$@"
fi
srun --mpi="${MPI:-pmi2}" --cpus-per-task=1 "${watch[@]}" "$python" -m gpu_extract.cli.extract \
    -o "$folder/frame.fits" --perf "$folder/run.json" --trace "$folder/trace.json" "$@"
if [ -n "${NSYS:-}" ]; then
    for profile in "$folder"/rank*.nsys-rep; do
        rank=${profile%.nsys-rep}
        "$NSYS" export --type=sqlite --force-overwrite=true "--output=$rank.sqlite" "$profile"
        "$python" -m gpu_perf.cli.perf nsys "$rank.sqlite" --html "$rank.html"
    done
fi
exec "$python" -m gpu_perf.cli.perf report "$folder/run.json" --html "$folder/report.html"
