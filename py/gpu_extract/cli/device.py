"""The device of a run: a GPU if there is one and it is not refused, else the CPU; the same on all ranks."""
import platform
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from gpu_extract.cli.common import log
from gpu_extract.errors import InputError

if TYPE_CHECKING:
    from gpu_extract.backend import Backend
    from gpu_extract.device.frames import GpuFrames
    from gpu_extract.first_use import Tell
    from gpu_extract.seams import Comm

KEPT = 256 << 20       # bytes of a device that are not available: for the driver and libraries
CONTEXT = 600 << 20    # bytes used by a rank's context and its libraries before any allocation


def choose_backend(gpu: bool | None, comm: "Comm", *, many: bool, tile: int | None = None,
                   tell: "Tell | None" = None, threads: int | None = None) -> tuple["Backend", str]:
    """The backend for `run.extract`, and a line for the log; all ranks call this.

    gpu: True: a GPU is required; None: GPUs are used if every rank has one; False: the CPU
    many: whether there may be more than one frame; tile, tell: see cpu_frame.CpuFrames
    threads: of this rank for what a GPU leaves to the CPU; None: its part of the node's cores
    Raises InputError if a GPU is required and missing.
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
    """The number of devices that this process sees, or the reason for none; without cupy only searched for if
    `always`."""
    if find_spec("cupy") is None and not always:
        return 0, "cupy is not installed"
    from gpu_extract.device.cuda.real import NoDevice, count_devices

    try:
        return count_devices(), ""
    except NoDevice as error:
        return 0, str(error) if always else error.reason


def open_gpu(comm: "Comm", devices: int, cpu: "Backend",
             threads: int | None = None) -> tuple["GpuFrames", str]:
    """This rank's GPU (its number on its node modulo the node's devices) with its part of the memory, and its name.

    cpu: the backend for frames that a GPU cannot extract; threads: see choose_backend
    """
    from gpu_extract.device.cuda.real import CupyDevice, memory_of
    from gpu_extract.device.frames import GpuFrames

    node_rank, node_ranks = comm.on_node()
    number, ranks = share_of(node_rank, node_ranks, devices)
    comm.barrier()       # free memory is measured before any rank has allocated some of it
    free, total = memory_of(number)
    comm.barrier()
    device = CupyDevice(number, budget(total, free, ranks))
    with_others = f", {ranks} ranks on it" if ranks > 1 else ""
    backend = GpuFrames(lambda: device, cpu=cpu, warn=log.warning, threads=threads or own_threads(comm))
    return backend, f"{device.name}{with_others}"


def own_threads(comm: "Comm") -> int:
    """The number of threads that this rank may use on its node; all ranks call this."""
    from gpu_extract.perf.recorder import which_cores

    node, cores = platform.node(), which_cores()
    gathered = comm.gather([(comm.rank, (node, cores))])
    ranks: list[tuple[str, list[int]]] = comm.share(lambda: gathered or [])
    return threads_of(cores, [others for name, others in ranks if name == node])


def share_of(node_rank: int, node_ranks: int, devices: int) -> tuple[int, int]:
    """The number of a rank's device, from the rank's number on its node, and the number of ranks that share it.

    Devices are counted as by the CUDA runtime, after CUDA_VISIBLE_DEVICES. The global number of a rank is irrelevant.
    """
    number = node_rank % devices
    return number, len(range(number, node_ranks, devices))


def budget(total: int, free: int, ranks: int) -> int:
    """Bytes that each of the ranks of a device may allocate, so that all of them can.

    total, free: bytes of the device, and free bytes before any rank has allocated memory. The ranks' contexts may exist
    already or not yet; other programs' memory is not free.
    """
    return max(min(free, total - ranks * CONTEXT) - KEPT, 0) // ranks


def threads_of(cores: Iterable[int], ranks: Sequence[Iterable[int]]) -> int:
    """Threads of a rank that may run on these cores; ranks: the cores of all ranks of its node, its own among them.

    Ranks that may run on the same core share it: all ranks if the launcher binds none, the rank alone if each is bound
    to its own cores.
    """
    own = set(cores)
    return max(len(own) // max(sum(not own.isdisjoint(others) for others in ranks), 1), 1)
