"""A stress test whose processes are the ranks of an mpiexec or srun."""
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gpu_stress.spec import Spec

if TYPE_CHECKING:
    from gpu_extract.ranks.comm import Comm


def work_as_rank(spec: Spec, comm: "Comm", devices: Sequence[int],
                 fault: tuple[int, int] | None) -> list[dict[str, Any]] | None:
    """Work as one of several ranks that start together; the results of all on rank 0, None elsewhere.

    Ranks of a node take its devices in turn, whatever their number in the whole.
    """
    from gpu_stress.cycles import recorded
    from gpu_stress.workers import share

    place, on_node = comm.on_node()
    mine = share(spec, comm.rank, on_node, [devices[place % len(devices)]], fault)
    waited: list[bool] = []

    def together() -> None:
        waited.append(True)
        comm.barrier()

    result = recorded(mine, together)
    if not waited:
        comm.barrier()             # it does not fit or does not exist here: the others wait for this rank
    return comm.gather([(comm.rank, {**asdict(result), "pid": os.getpid(), "host": platform.node()})])
