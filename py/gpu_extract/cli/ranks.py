"""How a program finds its ranks: the launcher's variables, MPI or not, and the keeper of each rank."""
import argparse
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from gpu_extract.cli.common import ENDING, NO_PROCESS, check_memory, complain, explain, log
from gpu_extract.errors import ExitCode, InputError, is_interruption
from gpu_extract.perf.clock import sleep
from gpu_extract.seams import Comm

# variables of launchers: Open MPI's mpiexec (and PRRTE), MPICH's mpiexec (hydra), srun
_SIZE = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
_RANK = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
_NODE_RANK = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_HYDRA = "MPI_LOCALNRANKS"
# MPI library -> srun's option for it, and the launcher that comes with it
_SRUN = {"Open MPI": "--mpi=pmix", "MPICH": "--mpi=pmi2"}
_MPIEXEC = {"Open MPI": "mpiexec or prterun of Open MPI", "MPICH": "mpiexec.hydra of MPICH"}
_LAUNCHERS = "srun --mpi=pmi2 or mpiexec.hydra for MPICH, srun --mpi=pmix or prterun for Open MPI"
_ROOT = Path(__file__).resolve().parents[2]
_END = "import sys; sys.path.insert(0, {root!r}); from gpu_extract.ranks.group import end_group; end_group({number})"
_FEW_FILES = 256
UNTIL_READ = 0.3       # seconds for a launcher to pass on messages before it ends everything


@dataclass(frozen=True)
class Launch:
    """This process according to its launcher: number `rank` of `size`, number `node_rank` on its node.

    program: the launcher
    """

    size: int
    rank: int
    node_rank: int
    program: str


def find_launch() -> Launch | None:
    """The launcher that started this process as one of several; None for a single process."""
    size = _number(_SIZE)
    if size == 1 or (size is None and "PMIX_RANK" not in os.environ):
        return None
    rank = _number(_RANK) or 0
    node_rank = _number(_NODE_RANK)
    by_slurm = "OMPI_COMM_WORLD_SIZE" not in os.environ and _HYDRA not in os.environ and "SLURM_STEP_ID" in os.environ
    return Launch(size or 0, rank, rank if node_rank is None else node_rank, "srun" if by_slurm else "mpiexec")


def speaks() -> bool:
    """Whether this process logs, and works, for its node: true for the first rank of a node, or a single process."""
    launch = find_launch()
    return launch is None or launch.node_rank == 0


class Instead(argparse.Action):
    """An option that replaces the program's work, whatever else was given, on one rank for all.

    const: called with the option and its values, returns the exit code
    """

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace,
                 values: str | Sequence[Any] | None, option_string: str | None = None) -> NoReturn:
        check_memory()
        parser.exit(self.const(option_string, values) if speaks() else ExitCode.DONE)


def _number(names: tuple[str, ...]) -> int | None:
    """The value of the first of these variables that is a number."""
    return next((int(os.environ[n]) for n in names if os.environ.get(n, "").isdigit()), None)


def run_kept(prog: str, run: Callable[[], int]) -> int:
    """Run a program, under a keeper if it is one of several ranks; returns its exit code."""
    launch = find_launch()
    if launch is None or not hasattr(os, "fork") or "mpi4py.MPI" in sys.modules:
        return run()
    from gpu_extract.ranks.keeper import keep
    from gpu_extract.ranks.segments import follow_segments

    def lost(words: str, starting: bool, asked: bool) -> int:
        if asked:
            complain(prog, f"rank {launch.rank} was sent a signal to end, and {words}; all ranks were ended; start "
                           "again")
            return ExitCode.START_AGAIN
        if not starting:
            complain(prog, _lost(launch, words))
            return ExitCode.INTERNAL
        if launch.node_rank == 0:
            complain(prog, f"MPI cannot start under {launch.program} (it {words}; its message is above): the launcher "
                           f"must match the MPI that mpi4py finds: {_LAUNCHERS}{_few_files()}")
        return ExitCode.INPUT

    def beside(child: int) -> Callable[[bool], None]:
        segments = follow_segments(child)
        guard = _guard(f"{prog}: error: {_lost(launch, 'had its keeper killed')}") if launch.program == "srun" else None

        def ended(well: bool) -> None:
            segments(well)
            if guard:
                guard()

        return ended

    def no_process() -> int:
        complain(prog, f"rank {launch.rank}: {NO_PROCESS}")
        return ExitCode.INTERNAL

    return keep(run, ending=ENDING, lost=lost, end_all=lambda code: _end_all(launch, code), beside=beside,
                no_process=no_process)


def _lost(launch: Launch, words: str) -> str:
    """The message about a lost rank. Of shared memory that has no room left the system tells by SIGBUS."""
    asked = "room in /dev/shm" if "SIGBUS" in words else "enough memory"
    return (f"rank {launch.rank} was lost: it {words}; all ranks were ended; check the system's log (was there {asked}"
            f"?) and start again{_few_files()}")


def _few_files() -> str:
    """The end of such a message if so few files may be open that MPI may not start; on two ranks it needs 36."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return f"; only {most} files may be open, and MPI may need more: raise the limit (ulimit -n)" \
        if 0 <= most < _FEW_FILES else ""


def _guard(words: str) -> Callable[[], None]:
    """End all ranks of this node, with a message, if this process ends without calling the returned function.

    A shell does it, which nothing can block: srun would wait for the others, and MPI may block the rank. (Other
    launchers do it themselves.)
    """
    from gpu_extract.ranks.keeper import END_NOW

    reader, writer = os.pipe()
    script = 'read -r line || { echo "$1" >&2; "$2" -c "$3" || kill -KILL 0; }'
    end = _END.format(root=str(_ROOT), number=int(END_NOW))
    with suppress(OSError):                              # no shell: only srun -K remains
        os.posix_spawn("/bin/sh", ["sh", "-c", script, "sh", words, sys.executable, end], os.environ,
                       file_actions=[(os.POSIX_SPAWN_DUP2, reader, 0)], setsigmask=signal.valid_signals())
    os.close(reader)

    def release() -> None:
        with suppress(OSError):
            os.write(writer, b"\n")

    return release


def _end_all(launch: Launch, code: int) -> bool:
    """End all ranks with this exit code; returns whether the launcher does it, including this process.

    MPICH's mpiexec is asked in the way of MPI_Abort. Otherwise it takes its exit code from the first process that ends,
    and waits for ever for ranks that wait for one which has left before it called MPI. Under srun the keepers of this
    node are told (all tasks of a step on a node are one process group): srun waits for the others unless it has the
    option -K. Other launchers end all ranks when one ends with such a code.
    """
    sys.stderr.flush()
    descriptor = _number(("PMI_FD",))
    if _HYDRA in os.environ and descriptor is not None:
        sleep(UNTIL_READ)
        with suppress(OSError):
            os.write(descriptor, b"cmd=abort exitcode=%d\n" % code)
            return True
    if launch.program == "srun":
        from gpu_extract.ranks.group import end_group
        from gpu_extract.ranks.keeper import END_NOW

        end_group(int(END_NOW))
    return False


def start_ranks(mpi: bool, prog: str, *, threads: bool = False) -> Comm:
    """The ranks of this run: MPI's if a launcher started several processes or `mpi` is true, else this process.

    threads: whether several threads of a rank will use them

    Raises InputError if MPI cannot be loaded, or does not see the processes that the launcher started.
    """
    launch = find_launch()
    os.environ.setdefault("OMPI_MCA_osc", "^ucx")    # it cannot work in Open MPI's wheel, and warns on every rank
    os.environ.setdefault("UCX_DEBUG_SIGNO", "0")    # else UCX takes SIGHUP, which should end the run
    from gpu_extract.ranks.comm import get_comm
    from gpu_extract.ranks.keeper import Mark, tell
    from gpu_extract.ranks.segments import remove_dead_segments

    if speaks():
        for path in remove_dead_segments():
            log.info(f"{path}: left behind by ranks that were killed; removed")
    tell(Mark.STARTS_MPI)
    comm = get_comm(mpi or launch is not None, lambda error: _unexpected(prog, launch, error), threads=threads)
    tell(Mark.MET)
    if launch is not None and launch.size > 1 and comm.size == 1:
        raise InputError(_wrong_launcher(launch, comm.library))
    if comm.rank != 0 and log.level > logging.DEBUG:
        log.setLevel(logging.ERROR)
    return comm


def _wrong_launcher(launch: Launch, library: str) -> str:
    """Why N processes are N worlds, and the remedy."""
    if launch.program == "srun":
        mend = f"start it with srun {_SRUN.get(library, '--mpi=pmix (srun --mpi=list shows what there is)')}"
    else:
        mend = f"start it with {_MPIEXEC.get(library, 'the mpiexec of that MPI')}, or install the MPI of this mpiexec"
    return (f"{launch.program} started {launch.size} processes, but each is alone in its own MPI world, and would do "
            f"all the work; the MPI library is {library}: {mend}")


def _unexpected(prog: str, launch: Launch | None, error: BaseException) -> None:
    """Report the error that ends all ranks, and tell this rank's keeper that the end is intended."""
    from gpu_extract.ranks.keeper import Mark, tell

    message, code = explain(error)
    if launch is None or launch.rank == 0 or not is_interruption(error):      # it reaches all ranks
        complain(prog, f"rank {launch.rank}: {message}" if launch else message, error)
    tell(Mark.ENDS_ALL, code)
    if launch is not None and launch.program == "srun" and os.environ.get("SLURM_STEP_NUM_NODES") == "1":
        os._exit(code)       # the keepers end all; MPI_Abort would make srun kill them, and exit with that code
