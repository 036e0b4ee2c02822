"""Rows of the matrix on the ranks of one mpiexec: on_ranks.py FOLDER COMMANDS.json

All ranks run each command, one after the other, in the same processes: a rank that is out of step after an error would
hold up the next one. The output of each rank goes to FOLDER/NUMBER.RANK, with its exit code in the first line.
"""
import json
import sys
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

from mpi4py import MPI

from gpu_extract.cli.extract import main

folder, rank = Path(sys.argv[1]), MPI.COMM_WORLD.rank
for number, words in enumerate(json.loads(Path(sys.argv[2]).read_text())):
    said = StringIO()
    with redirect_stderr(said):
        code = main(words)
    (folder / f"{number}.{rank}").write_text(f"{code}\n{said.getvalue()}")
MPI.COMM_WORLD.Barrier()
