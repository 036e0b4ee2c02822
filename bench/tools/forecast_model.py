"""How long would it take elsewhere? A model of the run time, fed with measured costs, drawn many times over.

The costs of the pieces are measured with their spread, the machine is described, and the way the pieces wait for each
other is that of the program (plan.turns, exposure.layout): what comes out are distributions. doc/scaling.md says what
is in it and what is not.
"""
from collections.abc import Mapping
from dataclasses import dataclass
from math import log2

import numpy as np

from gpu_extract.data import Array
from gpu_extract.exposure.layout import choose_groups
from gpu_extract.plan import share

Rng = np.random.Generator
EXCHANGES = 12        # times that the ranks of a shared bundle exchange what they made
_SEED = 1             # the same question has the same answer


@dataclass(frozen=True)
class Cost:
    """Seconds of one piece of work: mean and standard deviation from piece to piece; drawn log-normal."""

    mean: float
    sd: float = 0.0

    def draw(self, rng: Rng, shape: tuple[int, ...]) -> Array:
        """So many pieces."""
        if self.mean == 0 or self.sd == 0:
            return np.full(shape, self.mean)
        width = np.log1p((self.sd / self.mean) ** 2)
        return rng.lognormal(np.log(self.mean) - width / 2, np.sqrt(width), shape)


@dataclass(frozen=True)
class Costs:
    """What was measured, on one core with nothing beside it.

    start: of a rank, until it can work; plan: of a frame, on every rank; bundle: of an instrument bundle
    alone: share of a bundle's time that ranks which share it do not divide (the solution, cuts); pieces: ranks that
        can share it (tiles); exchanged: bytes that they exchange
    gather: of a bundle's result on its way to the first rank; assemble: of a frame; share: image to the other ranks
    read, write: CPU seconds of a frame's files, where nothing else goes on; read_bytes, write_bytes
    files: CPU seconds that both take from the ranks while these compute, with all by which they slow them down
    modules: files opened by imports
    """

    start: Cost
    plan: Cost
    bundle: Cost
    alone: float
    pieces: int
    exchanged: float
    gather: Cost
    assemble: Cost
    share: Cost
    read: Cost
    write: Cost
    files: Cost
    read_bytes: float
    write_bytes: float
    modules: int


@dataclass(frozen=True)
class Machine:
    """Where it would run.

    cores: of a node, one rank each; speed: of a core, relative to the one measured on
    crowding: by how much longer a core takes when all cores of the node work (caches, memory, clock)
    bound: each rank, with its threads, has a core of its own; else the node's cores serve all threads
    latency, bandwidth: of a message between nodes, seconds and bytes per second; files: bytes per second of the
        shared file system, for all nodes together; opens: files per second that it opens
    """

    cores: int
    speed: float = 1.0
    crowding: float = 1.0
    bound: bool = True
    latency: float = 2e-6
    bandwidth: float = 10e9
    files: float = 100e9
    opens: float = 1e5

    def slow(self, busy: float) -> float:
        """How much longer a piece takes where so many cores are at work, on one node or more."""
        here = min(busy, self.cores)
        return (1 + (self.crowding - 1) * (here - 1) / max(self.cores - 1, 1)) / self.speed


def extraction(costs: Costs, machine: Machine, ranks: int, bundles: int, *, busy: int, draws: int, rng: Rng,
               io: Array | float = 0.0) -> Array:
    """Seconds of one frame on a group of ranks, (draws,); busy: ranks at work on the node at that time.

    io: 1 where another frame is read and one is written meanwhile: on the core of the group's first rank, on those of
        all its ranks where they are not bound, or on one that has no rank
    """
    files = io * costs.files.draw(rng, (draws,))
    slow = machine.slow(busy)
    whole, left = divmod(bundles, ranks)
    pieces = costs.bundle.draw(rng, (draws, bundles)) * slow
    load = pieces[:, :whole * ranks].reshape(draws, whole, ranks).sum(axis=1)
    if busy >= machine.cores and machine.bound:
        load[:, 0] += files * slow
    elif busy >= machine.cores:
        load += files[:, None] * slow / ranks
    for n in range(left):
        members = share(ranks, n, left)
        begin = load[:, members.start:members.stop].max(axis=1)
        part = costs.alone + (1 - costs.alone) / min(len(members), costs.pieces)
        load[:, members.start:members.stop] = (begin + pieces[:, whole * ranks + n] * part
                                               + exchange(costs, machine, len(members)))[:, None]
    others = bundles - -(-bundles // ranks)               # bundles whose results have to come to the first rank
    ends = load.max(axis=1) + costs.plan.draw(rng, (draws,)) * slow + costs.assemble.draw(rng, (draws,)) * slow
    if ranks > 1:
        across = costs.write_bytes * max(1 - machine.cores / ranks, 0.0) / machine.bandwidth
        ends += costs.share.draw(rng, (draws,)) + log2(ranks) * machine.latency + across
        ends += others * costs.gather.draw(rng, (draws,)) + others * machine.latency
    return ends


def exchange(costs: Costs, machine: Machine, ranks: int) -> float:
    """Seconds that ranks which share a bundle spend on bringing what they made to each other."""
    if ranks == 1:
        return 0.0
    return EXCHANGES * log2(ranks) * machine.latency * 10 + costs.exchanged / machine.bandwidth


def start_up(costs: Costs, machine: Machine, ranks: int, draws: int, rng: Rng) -> Array:
    """Seconds until the last rank can work, (draws,): imports also wait for the file system that serves all nodes."""
    own = costs.start.draw(rng, (draws, min(ranks, 512))).max(axis=1) * machine.slow(ranks)
    return own + costs.modules * ranks / machine.opens


def exposure(costs: Costs, machine: Machine, frames: int, ranks: int, *, bundles: int = 20, draws: int = 200,
             started: bool = False, groups: int | None = None) -> Mapping[str, Array]:
    """Seconds of an exposure on so many ranks, with their parts, each (draws,).

    started: leave the start-up out; groups: how many (default: as the program chooses)
    Groups take frames as they come free; whatever the file system cannot deliver in that time is waited for. Beside all
    frames of a group but one, another is read and one is written.
    """
    rng = np.random.default_rng(_SEED)
    groups = groups or choose_groups(frames, ranks, bundles)
    size = ranks // groups
    free, begun = np.zeros((draws, groups)), np.zeros((draws, groups))
    rows = np.arange(draws)
    for _ in range(frames):
        taken = free.argmin(axis=1)
        free[rows, taken] += extraction(costs, machine, size, bundles, busy=ranks, draws=draws, rng=rng,
                                       io=np.minimum(begun[rows, taken], 1.0))
        begun[rows, taken] += 1
    slow = machine.slow(ranks)
    ends = (costs.read.draw(rng, (draws,)) + costs.write.draw(rng, (draws,))) * slow
    files = frames * (costs.read_bytes + costs.write_bytes) / machine.files
    compute = free.max(axis=1)
    begin = np.zeros(draws) if started else start_up(costs, machine, ranks, draws, rng)
    return {"start": begin, "compute": compute, "files": np.full(draws, files), "ends": ends,
            "all": begin + np.maximum(compute, files) + ends}


def interval(values: Array) -> tuple[float, float, float]:
    """Median, and the bounds of the middle 68 %."""
    low, middle, high = np.percentile(values, [16, 50, 84])
    return float(middle), float(low), float(high)
