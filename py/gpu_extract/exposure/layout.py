"""How many groups the ranks form: pure integers."""
from math import ceil

from gpu_extract.plan import share

_TOGETHER = 0.8        # of the ranks that share one bundle, so much of their time is used
_ALONE = 0.7           # bundles' worth of time per frame in which nothing is shared: plan, assemble
_GATHERED = 0.5        # the same where several ranks share a frame: the image to all of them, the results to one


def rounds(bundles: int, ranks: int) -> float:
    """Time of one frame on a group of ranks, in units of one bundle on one rank (plan.turns)."""
    whole, left = divmod(bundles, ranks)
    seconds = whole + _ALONE + _GATHERED * (ranks > 1)
    if left == 0:
        return seconds
    sharing = ranks // left
    return seconds + (1.0 if sharing == 1 else 1 / (_TOGETHER * sharing))


def choose_groups(frames: int, ranks: int, bundles: int) -> int:
    """The number of groups that has all frames done first; the fewest where several do.

    Fewer and larger groups have less memory in work; more and smaller ones spend less time on each other.
    """
    def seconds(groups: int) -> float:
        return ceil(frames / groups) * rounds(bundles, ranks // groups)

    return min(range(1, max(min(frames, ranks), 1) + 1), key=lambda groups: (round(seconds(groups), 6), groups))


def group_of(rank: int, ranks: int, groups: int) -> int:
    """Which group a rank belongs to: groups are consecutive ranks, as even as can be."""
    return next(g for g in range(groups) if rank in share(ranks, g, groups))
