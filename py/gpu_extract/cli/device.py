"""The device of a run: a GPU where there is one and nobody refuses it, else the CPU; the same on all ranks."""
import platform
from importlib.util import find_spec
from typing import TYPE_CHECKING

from gpu_extract.cli.common import log
from gpu_extract.errors import InputError

if TYPE_CHECKING:
    from gpu_extract.backend import Backend
    from gpu_extract.device.frames import GpuFrames
    from gpu_extract.first_use import Tell
    from gpu_extract.seams import Comm


def choose_backend(gpu: bool | None, comm: "Comm", *, many: bool, tile: int | None = None,
                   tell: "Tell | None" = None, threads: int | None = None) -> tuple["Backend", str]:
    """What `run.extract` works with, and what the log is to say of it; all ranks call this.

    gpu: True: a GPU must be there; None: one is taken where every rank has one; False: the CPU
    many: whether there may be more than one frame; tile, tell: see cpu_frame.CpuFrames
    threads: of this rank for what a GPU leaves to the CPU; None: its part of the node's cores
    Raises InputError where a GPU must be there and is not.
    """
    from gpu_extract.cpu_frame import CpuFrames
    from gpu_extract.plan import TILE

    cpu = CpuFrames(keep=many, tile=tile or TILE, **({"tell": tell} if tell else {}))
    if gpu is False:
        return cpu, "CPU (--no-gpu)"
    devices, reason = look_for_devices(always=gpu is True)
    reasons = comm.gather([(comm.rank, reason)])
    lacking: str = comm.share(lambda: next((r for r in reasons or [] if r), ""))
    if not lacking:
        return open_gpu(comm, devices, cpu, threads)
    if gpu:
        raise InputError(f"--gpu: {lacking}")
    return cpu, f"CPU ({lacking})"


def look_for_devices(*, always: bool) -> tuple[int, str]:
    """How many devices this process sees, and if none why not; without cupy only looked for if `always`."""
    if find_spec("cupy") is None and not always:
        return 0, "cupy is not installed"
    from gpu_extract.device.cuda.real import NoDevice, count_devices

    try:
        return count_devices(), ""
    except NoDevice as error:
        return 0, str(error) if always else error.reason


def open_gpu(comm: "Comm", devices: int, cpu: "Backend",
             threads: int | None = None) -> tuple["GpuFrames", str]:
    """This rank's GPU, its number on its node modulo the node's devices and its part of the memory, and its name.

    cpu: what works on frames that are not for a GPU; threads: see choose_backend
    """
    from gpu_extract.device.cuda.real import CupyDevice, memory_of
    from gpu_extract.device.frames import GpuFrames
    from gpu_extract.device.share import budget, share_of

    node_rank, node_ranks = comm.on_node()
    number, ranks = share_of(node_rank, node_ranks, devices)
    comm.barrier()       # what is free is looked at before any rank has taken some of it
    free, total = memory_of(number)
    comm.barrier()
    device = CupyDevice(number, budget(total, free, ranks))
    with_others = f", {ranks} ranks on it" if ranks > 1 else ""
    backend = GpuFrames(lambda: device, cpu=cpu, warn=log.warning, threads=threads or own_threads(comm))
    return backend, f"{device.name}{with_others}"


def own_threads(comm: "Comm") -> int:
    """How many threads this rank may use of its node; all ranks call this."""
    from gpu_extract.device.share import threads_of
    from gpu_extract.perf.recorder import which_cores

    node, cores = platform.node(), which_cores()
    gathered = comm.gather([(comm.rank, (node, cores))])
    ranks: list[tuple[str, list[int]]] = comm.share(lambda: gathered or [])
    return threads_of(cores, [others for name, others in ranks if name == node])
