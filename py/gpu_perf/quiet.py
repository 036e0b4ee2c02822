"""Whether ranks had their cores to themselves."""
from collections.abc import Iterator

from gpu_extract.perf.record import Run
from gpu_perf.metrics import windows
from gpu_perf.verdict import cautions


def disturbances(run: Run) -> Iterator[str]:
    """Why the times of a run may not be what they seem: more ranks than cores, other work on these."""
    hosts = [rank.host for rank in run.ranks]
    for host in dict.fromkeys(hosts):
        cores = max(rank.cores for rank in run.ranks if rank.host == host)
        if 1 < cores < hosts.count(host):              # a rank that is bound to one core knows of no other
            yield f"{hosts.count(host)} ranks shared {cores} cores"
    yield from cautions(windows(run))
