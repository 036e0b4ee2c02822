"""Ranks: one process or many behind the same verbs, and the only import of mpi4py.

A verb is called by all ranks of a communicator, including ranks without work, which take part with empty arrays. Each
verb starts with an agreement that no rank has failed, so that an error on some ranks is raised on all of them, wherever
each of them is, as long as the work runs under `together`:

    with comm.together():
        image = comm.share(lambda: read_image(path))

Ranks sleep while they wait for an agreement, so that ranks without work leave the cores to the others.
"""
import warnings
from typing import Any

from gpu_extract.errors import InputError
from gpu_extract.ranks.mpi_ranks import MpiComm, Report
from gpu_extract.seams import Comm as Comm

SERIAL = Comm()


def get_comm(mpi: bool, report: Report | None = None, *, threads: bool = False) -> Comm:
    """All ranks of MPI's world, or SERIAL without MPI; MPI is only imported here.

    report: reports an exception that ends all ranks to the user (default: a traceback on standard error)
    threads: whether several threads of a rank will use it (see hand_out)
    Raises InputError if MPI cannot be loaded.
    """
    if not mpi:
        return SERIAL
    MPI = _load(threads)
    return MpiComm(MPI, MPI.COMM_WORLD, report)


def wrap(comm: Any) -> MpiComm:
    """The ranks of a communicator of mpi4py that another program has made; all of them call this."""
    return MpiComm(_load(threads=False), comm)


def _load(threads: bool) -> Any:
    """The module mpi4py.MPI. Raises InputError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")     # the programs check what mpi4py warns of, and report it in one line
            import mpi4py
            mpi4py.rc.thread_level = "multiple" if threads else "funneled"
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise InputError(f"MPI cannot be loaded ({error}); pip install mpi4py mpich, or run without --mpi and "
                         "without a launcher") from error
    if not MPI.Is_initialized():           # any call of MPI would end the process
        raise InputError("MPI is not initialized, because MPI4PY_RC_INITIALIZE or mpi4py.rc.initialize says so: unset "
                         "it, or call MPI.Init() before")
    return MPI
