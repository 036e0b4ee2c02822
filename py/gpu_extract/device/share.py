"""Which device a rank uses, and how much of it and of the host: integers only.

A node's ranks are dealt out to the devices they see in turn, by their number on the node: never by their number among
all ranks, which says nothing about the node. CUDA_VISIBLE_DEVICES has already renumbered what a process sees, so that
`devices` is what the CUDA runtime counts.
"""
from collections.abc import Iterable, Sequence

KEPT = 256 << 20       # bytes of a device that are nobody's: the driver's, and what libraries take for themselves
CONTEXT = 600 << 20    # bytes that a rank's context and its libraries take before it has allocated anything


def share_of(node_rank: int, node_ranks: int, devices: int) -> tuple[int, int]:
    """The number of the device of the rank with this number on its node, and how many ranks share it."""
    number = node_rank % devices
    return number, len(range(number, node_ranks, devices))


def budget(total: int, free: int, ranks: int) -> int:
    """Bytes that each of the ranks of a device may allocate, so that all of them can.

    total, free: bytes of the device, and what of them is free while none of the ranks has allocated anything; their
    contexts may be there already or still to come, other programs' memory is not free.
    """
    return max(min(free, total - ranks * CONTEXT) - KEPT, 0) // ranks


def threads_of(cores: Iterable[int], ranks: Sequence[Iterable[int]]) -> int:
    """Threads of a rank that may run on these cores; ranks: the cores of all ranks of its node, its own among them.

    Those that may run on one of the same cores share them: all ranks where a launcher binds none, itself alone where
    each is bound to cores of its own.
    """
    own = set(cores)
    return max(len(own) // max(sum(not own.isdisjoint(others) for others in ranks), 1), 1)
