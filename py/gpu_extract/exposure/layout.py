"""The number of groups that the ranks form: pure integers."""
from math import ceil

from gpu_extract.plan import share

_TOGETHER = 0.8        # efficiency of ranks that share one bundle
_ALONE = 0.7           # serial time per frame, in units of a bundle: plan, assemble
_GATHERED = 0.5        # the same for several ranks on a frame: sending the image, gathering the results


def rounds(bundles: int, ranks: int) -> float:
    """Time of one frame on a group of ranks, in units of one bundle on one rank (plan.turns)."""
    whole, left = divmod(bundles, ranks)
    seconds = whole + _ALONE + _GATHERED * (ranks > 1)
    if left == 0:
        return seconds
    sharing = ranks // left
    return seconds + (1.0 if sharing == 1 else 1 / (_TOGETHER * sharing))


def choose_groups(frames: int, ranks: int, bundles: int) -> int:
    """The number of groups that finishes all frames first; the smallest if several do.

    Fewer, larger groups use less memory; more, smaller ones spend less time on communication.
    """
    def seconds(groups: int) -> float:
        return ceil(frames / groups) * rounds(bundles, ranks // groups)

    return min(range(1, max(min(frames, ranks), 1) + 1), key=lambda groups: (round(seconds(groups), 6), groups))


def group_of(rank: int, ranks: int, groups: int) -> int:
    """The group of a rank: groups are consecutive ranks, as equal in size as possible."""
    return next(g for g in range(groups) if rank in share(ranks, g, groups))
