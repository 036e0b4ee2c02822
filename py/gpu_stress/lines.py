"""Results as lines of text, one process or many."""
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MB, GB, GIGA = 1e6, 1e9, 1e9


@dataclass(frozen=True)
class Shared:
    """The rates of several processes together while all of them worked.

    seconds: their common time; cycles: done by all in it (parts of a cycle count)
    rate: cycles per second; one_way: bytes per second, one array a cycle; both_ways: bytes moved per second
    flops: floating-point operations per second, or None; errors, checked: of all processes, at any time
    """

    processes: int
    seconds: float
    cycles: float
    rate: float
    one_way: float
    both_ways: float
    flops: float | None
    errors: int
    checked: int


def result_line(result: Mapping[str, Any]) -> str:
    """One process: the established form (bytes of one array, one way), then further figures.

    Median and spread (half the range from the 16th to the 84th percentile) of the cycle times, bytes
    moved in both directions together, GFlop/s where operations are counted, errors of results checked.
    """
    seconds, cycles = result["seconds"], result["cycles"]
    cycle = result["cycle"]
    moved = result["up"] + result["down"]
    spread = 50 * (cycle["p84"] - cycle["p16"]) / cycle["median"] if cycle["median"] else 0.0
    return (known_form(seconds, cycles / seconds, cycles * result["nbytes"] / seconds, result["spec"]["copy"])
            + f" median {duration(cycle['median'])} +-{spread:.1f}%"
            + f", {moved / MB:.1f} MByte both ways at {moved / seconds / MB:.1f} MByte/sec"
            + f", {gflops(result['flop'] and result['flop'] / seconds)}"
            + f", errors {result['errors']}/{result['checked']}")


def known_form(seconds: float, rate: float, bytes_per_second: float, copy: bool) -> str:
    """The established form of the line, which users and their scripts read."""
    return f"{seconds:.3f} s, {rate:.1f} Hz, {bytes_per_second / MB:.1f} MByte/sec copy:{copy}"


def shared_line(shared: Shared | None, results: Sequence[Mapping[str, Any]]) -> str:
    """All processes together, over the time in which all of them worked."""
    if shared is None:
        return f"{len(results)} processes never worked at the same time: give more cycles or seconds"
    return (known_form(shared.seconds, shared.rate, shared.one_way, results[0]["spec"]["copy"])
            + f" {shared.processes} processes together (checks included)"
            + f", {shared.both_ways / MB:.1f} MByte/sec both ways, {gflops(shared.flops)}"
            + f", errors {shared.errors}/{shared.checked}")


def together(results: Sequence[Mapping[str, Any]]) -> Shared | None:
    """Add up processes over their common interval; None if there is none."""
    start = max(r["interval"][0] for r in results)
    end = min(r["interval"][1] for r in results)
    if end <= start:
        return None
    seconds = end - start
    done = [_cycles_at(r["progress"], end) - _cycles_at(r["progress"], start) for r in results]
    per_cycle = [(r["nbytes"], (r["up"] + r["down"]) / r["cycles"]) for r in results]
    flops = [r["flop"] for r in results]
    return Shared(
        len(results), seconds, sum(done), sum(done) / seconds,
        sum(d * one for d, (one, _) in zip(done, per_cycle, strict=True)) / seconds,
        sum(d * both for d, (_, both) in zip(done, per_cycle, strict=True)) / seconds,
        None if None in flops else
        sum(d * r["flop"] / r["cycles"] for d, r in zip(done, results, strict=True)) / seconds,
        sum(r["errors"] for r in results), sum(r["checked"] for r in results))


def _cycles_at(progress: Sequence[Sequence[float]], when: float) -> float:
    """Cycles done at an epoch time, interpolated linearly between blocks."""
    times = [t for _, t in progress]
    i = min(max(bisect_left(times, when), 1), len(times) - 1)
    (n0, t0), (n1, t1) = progress[i - 1], progress[i]
    return float(n1) if t1 <= t0 else n0 + (n1 - n0) * min(max((when - t0) / (t1 - t0), 0.0), 1.0)


def gflops(flops: float | None) -> str:
    """Operations per second as text."""
    return "no GFlop/s" if flops is None else f"{flops / GIGA:.2f} GFlop/s"


def duration(seconds: float) -> str:
    """A time in a suitable unit."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
