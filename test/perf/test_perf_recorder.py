"""The recorder: nesting, threads, counters, copies, a device's times, and the cost of a span."""
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from numba import njit

from gpu_extract.errors import InputError
from gpu_extract.perf.compiling import COMPILED, compiling
from gpu_extract.perf.record import parse_run, whole
from gpu_extract.perf.recorder import COMPILE, MPI, TO_DEVICE, TO_HOST, Recorder
from gpu_extract.perf.trace import trace_of
from gpu_extract.seams import NULL
from gpu_perf.metrics import stages, windows

SPAN_COST = 7          # of Python's empty context manager: 2.5 to 2.7; bench/recorder.py has seconds


class Clockwork:
    """A device whose events are one second apart."""

    def __init__(self) -> None:
        self.ticks = 0.0
        self.ranges: list[str] = []

    def push(self, name: str) -> None:
        self.ranges.append(f"+{name}")

    def pop(self) -> None:
        self.ranges.append("-")

    def mark(self) -> float:
        self.ticks += 1.0
        return self.ticks

    def between(self, first: float, second: float) -> float:
        return second - first

    def memory(self) -> int:
        return 12345

    def facts(self) -> dict[str, Any]:
        return {"name": "clockwork", "number": 0}


def stages_of(recorder: Recorder) -> dict[str, float]:
    """Seconds of each stage, by its innermost name."""
    return {stage.name: sum(stage.seconds) for stage in stages(windows(parse_run(whole([recorder.record()], {}))))}


def test_spans_nest_and_are_timed() -> None:
    recorder = Recorder(3)
    with recorder.span("outer"):
        with recorder.span("inner"):
            time.sleep(0.02)
        with recorder.span("inner"):
            began = time.thread_time()
            sum(range(200_000))
            used = time.thread_time() - began
    record = recorder.record()
    assert [(s[0], s[1]) for s in record["spans"]] == [("outer", 0), ("inner", 1), ("inner", 1)]
    assert record["rank"] == 3 and record["start_up"] > 0
    outer, slept, worked = record["spans"]
    assert slept[3] >= 0.02 > slept[4] + 0.01
    assert worked[4] == pytest.approx(used, rel=0.5) and used > 0
    assert outer[3] >= slept[3] + worked[3]
    assert recorder.seconds("inner") == pytest.approx(slept[3] + worked[3])
    assert stages_of(recorder) == {"outer": outer[3], "inner": slept[3] + worked[3]}


def test_spans_of_threads_stand_below_the_span_that_waits_for_them() -> None:
    recorder = Recorder()

    def work(_: int) -> None:
        with recorder.span("tile"), recorder.span("part"):
            time.sleep(0.01)

    with recorder.span("bundle"), ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(6)))
    with recorder.span("after"):
        pass
    found = recorder.record()["spans"]
    assert {(s[0], s[1]) for s in found} == {("bundle", 0), ("tile", 1), ("part", 2), ("after", 0)}
    assert {s[5] for s in found if s[0] in ("bundle", "after")} == {0}
    assert len({s[5] for s in found if s[0] == "tile"}) > 1


def test_a_span_ends_when_what_it_times_fails() -> None:
    recorder = Recorder()
    with pytest.raises(ValueError), recorder.span("outer"), recorder.span("inner"):
        raise ValueError
    with recorder.span("next"):
        pass
    assert [s[1] for s in recorder.record()["spans"]] == [0, 1, 0]


def test_copies_and_calls_and_counters() -> None:
    recorder = Recorder()
    for nbytes in (100, 50):
        with recorder.copy(TO_DEVICE, nbytes):
            time.sleep(0.005)
    recorder.call("Bcast", 0.5, 10)
    recorder.call("Bcast", 0.25, 10)
    recorder.call("Barrier", 2.0, waits=True)
    recorder.count("refined", 2)
    recorder.count("refined")
    record = recorder.record()
    assert record["copies"][TO_DEVICE]["bytes"] == 150 and record["copies"][TO_DEVICE]["calls"] == 2
    assert record["copies"][TO_DEVICE]["seconds"] >= 0.01
    assert record["calls"] == {"Bcast": {"calls": 2, "seconds": 0.75, "bytes": 20, "wait": 0.0},
                               "Barrier": {"calls": 1, "seconds": 2.0, "bytes": 0, "wait": 2.0}}
    assert record["counters"] == {"refined": 3} and record["device"] is None


def test_compilation_is_a_stage_of_its_own_in_no_other() -> None:
    recorder = Recorder()
    with recorder.span("outer"):
        with recorder.span("inner"), recorder.span(COMPILE):
            time.sleep(0.02)
            with recorder.span(COMPILE):                       # done while waiting for others
                time.sleep(0.02)
        with recorder.span("inner"):
            pass
    found = stages_of(recorder)
    assert list(found) == ["outer", "inner", COMPILE]
    assert found[COMPILE] >= 0.04 and found["inner"] < 0.01 and found["outer"] < 0.01
    assert min(found.values()) >= 0


def test_each_kernel_that_is_compiled_is_counted_once() -> None:
    recorder, named = Recorder(), []

    def twice(x: float) -> float:
        return 2.0 * x

    twice.__module__ = "gpu_extract.test"
    kernel = njit(twice)
    with compiling(recorder, named.append), compiling(recorder), recorder.span("outer"):
        assert kernel(1.0) == kernel(1.0) == 2.0
    assert kernel(1) == 2.0                      # of integers: compiled when nobody counts
    record = recorder.record()
    assert record["counters"] == {COMPILED: 1}
    assert [span[:2] for span in record["spans"]] == [["outer", 0], [COMPILE, 1]]
    assert len(named) == 1 and "twice" in named[0]


def test_a_device_is_timed_by_its_events() -> None:
    recorder, device = Recorder(), Clockwork()
    with recorder.device_span("before the watch"):
        pass
    recorder.watch(device, ranges=True)            # event 1
    with recorder.device_span("normal"):           # 2 to 3
        pass
    with recorder.span("host only"):
        pass
    with recorder.copy(TO_HOST, 8):                # 4 to 5
        pass
    record = recorder.record()
    assert [(n, round(t, 1)) for n, _, t in record["device"]["spans"]] == [("normal", 1.0), ("copy d2h", 1.0)]
    starts = [start for _, start, _ in record["device"]["spans"]]
    assert starts[1] - starts[0] == pytest.approx(2.0)
    assert record["copies"][TO_HOST]["seconds"] == pytest.approx(1.0)
    assert record["device"]["memory"] == 12345 and record["device"]["facts"]["name"] == "clockwork"
    assert device.ranges == ["+normal", "-", "+host only", "-", "+copy d2h", "-"]


def test_ranges_only_when_asked() -> None:
    recorder, device = Recorder(), Clockwork()
    recorder.watch(device)
    with recorder.span("a"), recorder.device_span("b"):
        pass
    assert device.ranges == []


def test_null_takes_the_same_calls() -> None:
    with NULL.span("a"), NULL.device_span("b"), NULL.copy(TO_DEVICE, 1):
        NULL.count("c")
        NULL.call("Bcast", 1.0, 2)
        NULL.watch(Clockwork(), ranges=True)


def test_the_cost_of_a_span() -> None:
    """In units of an empty context manager, measured alternately, the best of many: other load does not matter."""
    @contextmanager
    def empty(_: str) -> Iterator[None]:
        yield

    best = {"empty": float("inf"), "span": float("inf")}
    for _ in range(20):
        for name, ranged in (("empty", empty), ("span", Recorder().span)):
            start = time.process_time()
            for _ in range(2000):
                with ranged("x"):
                    pass
            best[name] = min(best[name], time.process_time() - start)
    assert best["span"] < SPAN_COST * best["empty"]


def test_the_trace_is_what_was_recorded() -> None:
    recorder = Recorder(1)
    recorder.watch(Clockwork())
    with recorder.span("extract"):
        with recorder.device_span("normal"):
            pass
        with recorder.span(MPI + "gather"):
            pass
    run = parse_run(whole([recorder.record()], {"program": "test"}))
    trace = trace_of(run)
    bars = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert [(e["name"], e["cat"]) for e in bars] == [
        ("start up", "start"), ("extract", "stage"), ("normal", "stage"), ("mpi gather", "communication"),
        ("normal", "device")]
    assert all(e["pid"] == 1 and e["ts"] >= 0 and e["dur"] >= 0 for e in bars)
    outer, inner = bars[1], bars[2]
    assert outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 0.002
    names = {e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M" and "name" in e["args"]}
    assert "clockwork" in names and any(n.startswith("rank 1") for n in names)


@pytest.mark.parametrize("place, value", [
    (("commit",), -1), (("versions",), []), (("config",), "x"), (("problem", "fibres"), None),
    (("problem", "stamp"), 5), (("problem", "bundles", "0"), []),
    (("problem", "bundles", "0", "halfband"), float("inf")), (("ranks", 0, "epoch"), float("inf")),
    (("problem", "bundles", "0", "halfband"), 1e8), (("ranks", 0, "epoch"), -1e11), (("ranks", 0, "start_up"), 1e308),
    (("ranks", 0, "spans", 0, 1), float("inf")), (("ranks", 0, "device"), "x"),
    (("ranks", 0, "counters", "photons"), None), (("ranks", 0, "copies", TO_HOST, "bytes"), "x")])
def test_a_record_whose_parts_are_of_other_types_is_refused(place: tuple[Any, ...], value: object) -> None:
    """Its reports would end in an internal error."""
    recorder = Recorder()
    with recorder.span("outer"):
        recorder.count("photons")
        with recorder.copy(TO_HOST, 1):
            pass
    bundle = {"halfband": 8, "neighbours": 2, "iterations": 5}
    facts = {"commit": None, "versions": {}, "config": {}, "mpi": "",
             "problem": {"fibres": 1, "bins": 2, "stamp": [3, 4], "pitch": None, "bundles": {"0": bundle}}}
    record: Any = json.loads(json.dumps(whole([recorder.record()], facts)))
    assert parse_run(record).facts["problem"]["fibres"] == 1
    part = record
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    with pytest.raises(InputError, match="not a record of a run"):
        parse_run(record)
