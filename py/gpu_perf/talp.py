"""The metrics of TALP, the profiler of BSC's library DLB: reads and writes its JSON, and has its formulas.

A region is summed over all CPUs. With n CPUs, T the elapsed time of the slowest process, U, M and I the useful time,
the time in MPI and that of threads that are idle while one of theirs is in MPI, O the idle time of OpenMP's threads, G
the host's time in the GPU's runtime, m_p and m_n the least (M + I) / n of a process and of a node, zeros left out (DLB
3.6, src/talp/perf_metrics.c, its default model hybrid-v2):

    parallel efficiency             U / (U + M + O + G)
    MPI parallel efficiency         (T - (M + I) / n) / T
    MPI communication efficiency    (T - m_p) / T
    MPI load balance                (T - (M + I) / n) / (T - m_p), of it within nodes (T - m_n) / (T - m_p)
                                    and between them (T - (M + I) / n) / (T - m_n)
    OpenMP parallel efficiency      (U + M + G) / (U + M + O + G)
    device offload efficiency       (U + O) / (U + O + G)
"""
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_extract.errors import InputError
from gpu_extract.perf.clock import stamp
from gpu_extract.perf.record import Run, parse_run, read_json
from gpu_perf.metrics import Window, windows

SCHEMA = "3.6"                                  # of DLB, whose keys are written; those of 3.5 are read
WHOLE = "Global"                                # TALP's name for the region that is the whole run
NANO = 1e9                                      # its unit of time
IDLE = ("ompLoadImbalanceTime", "ompSchedulingTime", "ompSerializationTime")
# key -> words and depth; the order of TALP's own pages
METRICS = {
    "parallelEfficiency": ("parallel efficiency", 0),
    "mpiParallelEfficiency": ("MPI parallel efficiency", 1),
    "mpiCommunicationEfficiency": ("MPI communication efficiency", 2),
    "mpiLoadBalance": ("MPI load balance", 2),
    "mpiLoadBalanceIn": ("within nodes", 3),
    "mpiLoadBalanceOut": ("between nodes", 3),
    "ompParallelEfficiency": ("OpenMP parallel efficiency", 1),
    "deviceOffloadEfficiency": ("device offload efficiency", 1)}


@dataclass(frozen=True)
class Region:
    """TALP's sums of a region over all CPUs; times in seconds.

    least_process, least_node: time in MPI per CPU of the process and the node with the least; None: not given
    stated: the metrics that the file itself gives
    """

    name: str
    cpus: int
    ranks: int
    nodes: int
    elapsed: float
    useful: float
    mpi: float
    calls: int = 0
    idle_in_mpi: float = 0.0
    idle: float = 0.0
    runtime: float = 0.0
    least_process: float | None = None
    least_node: float | None = None
    stated: Mapping[str, float] = field(default_factory=dict)

    def metrics(self) -> dict[str, float]:
        """The metrics by the formulas above; those of MPI only if the region has the least times."""
        active = self.useful + self.mpi + self.idle + self.runtime
        host = self.useful + self.idle
        found = {"parallelEfficiency": self.useful / active,
                 "ompParallelEfficiency": (active - self.idle) / active,
                 "deviceOffloadEfficiency": host / (host + self.runtime)}
        if self.least_process is not None and self.least_node is not None:
            mean = self.elapsed - (self.mpi + self.idle_in_mpi) / self.cpus
            process, node = self.elapsed - self.least_process, self.elapsed - self.least_node
            found |= {"mpiParallelEfficiency": mean / self.elapsed,
                      "mpiCommunicationEfficiency": process / self.elapsed,
                      "mpiLoadBalance": mean / process if process else 0.0,
                      "mpiLoadBalanceIn": node / process if process else 0.0,
                      "mpiLoadBalanceOut": mean / node if node else 0.0}
        return {key: found[key] for key in METRICS if key in found}


@dataclass(frozen=True)
class Talp:
    """A file of TALP: its version and time, and its regions, the longest first."""

    version: str
    timestamp: str
    regions: tuple[Region, ...]


def read_talp(path: Path) -> Talp:
    """TALP's metrics from a file of TALP, or from a record of --perf, whose stages become regions.

    Raises InputError if the file cannot be read or is neither.
    """
    def parse(content: Any) -> Talp:
        known = isinstance(content, dict) and "Application" in content
        return parse_talp(content if known else talp_json(parse_run(content)))

    return read_json(path, parse, "a file written by TALP (--talp-output-file=FILE.json) or --perf")


def parse_talp(content: Mapping[str, Any]) -> Talp:
    """The regions of TALP's JSON that took time. Raises InputError if there are none, or an impossible one."""
    try:
        regions = [_region(str(name), values) for name, values in content["Application"].items()
                   if values["elapsedTime"] > 0 and values["usefulTime"] > 0]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"not TALP's JSON ({type(error).__name__}: {error}): give a file written by DLB 3.5 or "
                         "newer") from error
    if not regions:
        raise InputError("no region of TALP took any time: there is nothing to report; give the file of another run")
    return Talp(str(content.get("dlbVersion", "")), str(content.get("timestamp", "")),
                tuple(sorted(regions, key=lambda r: -r.elapsed)))


def _region(name: str, values: Mapping[str, Any]) -> Region:
    def seconds(key: str) -> float:
        return float(values.get(key, 0)) / NANO

    least = [seconds(key) if key in values else None for key in ("minMpiNormdProc", "minMpiNormdNode")]
    region = Region(name, int(values["numCpus"]), int(values["numMpiRanks"]), int(values.get("numNodes", 1)),
                    seconds("elapsedTime"), seconds("usefulTime"), seconds("mpiTime"),
                    int(values.get("numMpiCalls", 0)), seconds("mpiWorkerIdleTime"), sum(map(seconds, IDLE)),
                    seconds("gpuRuntimeTime"), least[0], least[1],
                    {key: float(values[key]) for key in METRICS if key in values})
    times = (region.mpi, region.idle_in_mpi, region.idle, region.runtime, *(t for t in least if t is not None))
    if region.cpus < 1 or min(times) < 0 or any(t > region.elapsed for t in least if t is not None):
        raise InputError(f"region {name!r} of TALP has impossible times: give the file of another run")
    return region


def talp_json(run: Run) -> dict[str, Any]:
    """The record of a run as TALP's JSON: the whole run, and each outer stage that all ranks have, as regions.

    A rank is a process with one CPU. Hardware counters, OpenMP and device times are 0, because a record does not hold
    them.
    """
    stages = [name for name in dict.fromkeys(s.name for r in run.ranks for s in r.top())
              if name != WHOLE and all(r.top(name) for r in run.ranks)]
    parts = {WHOLE: windows(run), **{name: windows(run, name) for name in stages}}
    regions = {name: _application(run, part) for name, part in parts.items() if max(w.seconds for w in part) > 0}
    commit = run.facts.get("commit")
    return {
        "dlbVersion": f"{SCHEMA} (gpu_perf)", "timestamp": stamp(run.ranks[0].epoch).replace(" ", "T"),
        **({"metadata": {"gitCommit": commit}} if commit else {}),
        "resources": {"numCpus": len(run.ranks), "numNodes": len(_nodes(run)), "numMpiRanks": _mpi_ranks(run),
                      "numGpus": 0},
        "Application": regions,
        "Process": {name: [_process(w, _nodes(run)) for w in part] for name, part in parts.items() if name in regions}}


def _application(run: Run, part: Sequence[Window]) -> dict[str, Any]:
    """One region over all ranks."""
    nodes = [[w.communication for w in part if w.rank.host == host] for host in _nodes(run)]
    whole = part[0].spans is run.ranks[0].spans             # calls are counted for the whole run only
    calls = sum(int(c["calls"]) for r in run.ranks for c in r.calls.values()) if whole else 0
    region = Region("", len(part), _mpi_ranks(run), len(nodes), max(w.seconds for w in part),
                    sum(w.useful for w in part), sum(w.communication for w in part), calls,
                    least_process=_least(w.communication for w in part),
                    least_node=_least(sum(node) / len(node) for node in nodes))
    metrics = region.metrics() if region.useful > 0 else dict.fromkeys(METRICS, 0.0)
    return {"numCpus": region.cpus, "numOmpThreads": 1, "numMpiRanks": region.ranks, "numNodes": region.nodes,
            "avgCpus": float(region.cpus), "numGpus": 0, "cycles": 0, "instructions": 0, "numMeasurements": region.cpus,
            "numMpiCalls": calls, "numOmpParallels": 0, "numOmpTasks": 0, "numGpuRuntimeCalls": 0,
            "elapsedTime": _nano(region.elapsed), "usefulTime": _nano(region.useful), "mpiTime": _nano(region.mpi),
            "mpiWorkerIdleTime": 0, **dict.fromkeys(IDLE, 0), "gpuRuntimeTime": 0,
            "minMpiNormdProc": _nano(region.least_process or 0.0), "minMpiNormdNode": _nano(region.least_node or 0.0),
            "gpuUsefulTime": 0, "gpuCommunicationTime": 0, "gpuInactiveTime": 0, "maxGpuUsefulTime": 0,
            "maxGpuActiveTime": 0, **{key: round(value, 4) for key, value in metrics.items()},
            **dict.fromkeys(("ompLoadBalance", "ompSchedulingEfficiency", "ompSerializationEfficiency"), 1.0),
            **dict.fromkeys(("gpuParallelEfficiency", "gpuLoadBalance", "gpuCommunicationEfficiency",
                             "gpuOrchestrationEfficiency"), 0.0)}


def _process(window: Window, nodes: Sequence[str]) -> dict[str, Any]:
    rank = window.rank
    return {"rank": rank.rank, "nodeId": nodes.index(rank.host), "hostname": rank.host, "numCpus": 1,
            "elapsedTime": _nano(window.seconds), "usefulTime": _nano(window.useful),
            "mpiTime": _nano(window.communication)}


def _nodes(run: Run) -> list[str]:
    return list(dict.fromkeys(r.host for r in run.ranks))


def _mpi_ranks(run: Run) -> int:
    """TALP counts no ranks without MPI."""
    return len(run.ranks) if len(run.ranks) > 1 or run.facts.get("mpi") else 0


def _least(times: Any) -> float:
    """The least non-zero time, as in TALP's reduction; 0 if all are 0."""
    return min((t for t in times if t > 0), default=0.0)


def _nano(seconds: float) -> int:
    return round(seconds * NANO)
