"""How a program finds its ranks: what the launcher says, MPI or not, and the keeper of each rank."""
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_extract.cli.common import complain, log
from gpu_extract.errors import InputError

if TYPE_CHECKING:
    from gpu_extract.comm import Comm

# what launchers set: Open MPI's mpiexec (and PRRTE), MPICH's mpiexec (hydra), srun
_SIZE = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
_RANK = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
_NODE_RANK = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_HYDRA = "MPI_LOCALNRANKS"
# MPI library -> srun's option for it, and the launcher that comes with it
_SRUN = {"Open MPI": "--mpi=pmix", "MPICH": "--mpi=pmi2"}
_MPIEXEC = {"Open MPI": "mpiexec or prterun of Open MPI", "MPICH": "mpiexec.hydra of MPICH"}


@dataclass(frozen=True)
class Launch:
    """What a launcher says of this process: one of `size` with number `rank`, `node_rank` on its node.

    program: the launcher
    """

    size: int
    rank: int
    node_rank: int
    program: str


def find_launch() -> Launch | None:
    """The launcher that started this process as one of several; None where it is one of its own."""
    size = _number(_SIZE)
    if size == 1 or (size is None and "PMIX_RANK" not in os.environ):
        return None
    rank = _number(_RANK) or 0
    node_rank = _number(_NODE_RANK)
    by_slurm = "OMPI_COMM_WORLD_SIZE" not in os.environ and _HYDRA not in os.environ and "SLURM_STEP_ID" in os.environ
    return Launch(size or 0, rank, rank if node_rank is None else node_rank, "srun" if by_slurm else "mpiexec")


def _number(names: tuple[str, ...]) -> int | None:
    """The first of these variables that is set to a number."""
    return next((int(os.environ[n]) for n in names if os.environ.get(n, "").isdigit()), None)


def run_kept(prog: str, run: Callable[[], int]) -> int:
    """Run a program under a keeper where it is one of several ranks, otherwise as it is; returns its exit code."""
    launch = find_launch()
    if launch is None or not hasattr(os, "fork") or "mpi4py.MPI" in sys.modules:
        return run()
    from gpu_extract.keeper import keep

    def lost(words: str) -> None:
        complain(prog, f"rank {launch.rank} was lost: it {words}; all ranks are ended; see the system's log (was there "
                 "enough memory?) and start again")

    return keep(run, lost=lost, end_all=_tell_hydra)


def _tell_hydra(code: int) -> bool:
    """Ask MPICH's launcher to end all ranks with this code, as MPI_Abort does.

    Left to itself it takes its exit code from whichever process ends first, and waits for ever for ranks that wait
    for one which has left before it called MPI. Other launchers end all ranks when one ends with such a code.
    Returns whether there was such a launcher.
    """
    descriptor = _number(("PMI_FD",))
    if descriptor is None or _HYDRA not in os.environ:
        return False
    with suppress(OSError):
        os.write(descriptor, b"cmd=abort exitcode=%d\n" % code)
        return True
    return False


def start_ranks(mpi: bool, prog: str) -> "Comm":
    """The ranks of this run: MPI's where a launcher started several processes or `mpi` asks for it, else this process.

    Raises InputError where MPI cannot be loaded, or does not see the processes that the launcher started.
    """
    launch = find_launch()
    os.environ.setdefault("OMPI_MCA_osc", "^ucx")    # in Open MPI's wheel it cannot work, and says so on every rank
    from gpu_extract.comm import get_comm

    ranks: list[int] = []
    comm = get_comm(mpi or launch is not None, lambda error: _unexpected(prog, error, ranks))
    ranks.append(comm.rank)
    if launch is not None and launch.size > 1 and comm.size == 1:
        raise InputError(_wrong_launcher(launch, comm.library))
    if comm.rank != 0 and log.level > logging.DEBUG:
        log.setLevel(logging.ERROR)
    return comm


def _wrong_launcher(launch: Launch, library: str) -> str:
    """Why N processes are N worlds, and what mends it."""
    if launch.program == "srun":
        mend = f"start it with srun {_SRUN.get(library, '--mpi=pmix (srun --mpi=list shows what there is)')}"
    else:
        mend = f"start it with {_MPIEXEC.get(library, 'the mpiexec of that MPI')}, or install the MPI of this mpiexec"
    return (f"{launch.program} started {launch.size} processes, but each is alone in a world of its own, and would do "
            f"all the work; MPI here is {library}: {mend}")


def _unexpected(prog: str, error: BaseException, ranks: list[int]) -> None:
    """Say what ends all ranks, and to this rank's keeper that it is on purpose."""
    from gpu_extract.cli.common import explain
    from gpu_extract.keeper import say_code

    message, code = explain(error)
    complain(prog, f"rank {ranks[0]}: {message}" if ranks else message, error)
    say_code(code)
