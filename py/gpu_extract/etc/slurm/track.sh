#!/usr/bin/env bash
# The history of run times: measure the newest commit of this clone, build the page, report what became slower.
#
#   sbatch slurm/track.sh [FOLDER]          once; FOLDER (default: track) gets the store and the site
#
# For every night, put the lines of slurm/track.scrontab into `scrontab -e`.
# Variables to set before sbatch (defaults in brackets):
#   PYTHON   Python interpreter of the environment with gpu_extract  (python)
#   COMMITS  a commit or a range, e.g. v0.1..HEAD                    (HEAD)
#   PROBLEM  one of etc/track.ini                                    (r-50)
#   PULL     yes: git pull first, and measure the new commits        (no)
#SBATCH --job-name=track
#SBATCH --nodes=1
#SBATCH --ntasks=2
#SBATCH --cpus-per-task=1
#SBATCH --exclusive
#SBATCH --time=01:00:00
set -euo pipefail
project=${SLURM_SUBMIT_DIR:-$PWD}
folder=${1:-$project/track}
python=${PYTHON:-python}
export OMP_NUM_THREADS=1
# mpiexec starts the ranks inside the job: it must not mistake the job's environment for that of its launcher
unset "${!SLURM_@}" "${!PMI_@}" "${!PMIX_@}"
if [ "${PULL:-no}" = yes ]; then git -C "$project" pull --quiet --ff-only; fi
mkdir -p "$folder"
store=$folder/track.sqlite
code=0
"$python" "$project/bin/gpu_track" run "${COMMITS:-HEAD}" --problem "${PROBLEM:-r-50}" --store "$store" --repository "$project" || code=$?
"$python" "$project/bin/gpu_track" page --store "$store" -o "$folder/site"
"$python" "$project/bin/gpu_track" check --store "$store" || code=$?
exit "$code"
