"""Samples of the machine's state while a campaign runs, about once a second, written at once.

    samples.jsonl    one JSON object a line: epoch time, set, repeat, every process with its threads
                     (CPU seconds since its start, bytes), the machine, the GPUs, and what taking it cost

The sampler keeps itself below SHARE of one core: if a sample is costly
(hundreds of threads), it samples less often.
"""
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu_extract.errors import InputError, OutputError
from gpu_extract.perf.clock import epoch, thread_cpu
from gpu_perf.journal import read_lines
from gpu_perf.shapes import count, fits, number, text, whole
from gpu_stress.nvml import GpuProbe

SAMPLES = "samples.jsonl"
SHARE = 0.008


def _gpu(value: Any) -> bool:
    """Whether a value is a GPU's sample."""
    return fits(value, {"index": count}) and fits(list(value.values()), [(number, None, [(text, whole)])])


LINE = {"t": number, "set": text, "repeat": count, "processes": [{"pid": whole, "cpu": number, "rss": number}],
        "machine": dict, "gpus": [_gpu], "cost": number}


class Sampler:
    """Takes samples for campaign.run; close it at the end.

    interval: seconds between samples; probe: of the GPUs, or None
    Raises InputError if psutil is missing, OutputError if the file cannot be written.
    """

    def __init__(self, folder: Path, probe: GpuProbe | None = None, interval: float = 1.0):
        try:
            import psutil
        except ImportError as error:
            raise InputError("samples need psutil, which is not installed: install gpu_extract[stress], or run with "
                             "--no-samples") from error
        self._psutil = psutil
        self._probe = probe
        self._interval = interval
        self._known: dict[int, Any] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = open(folder / SAMPLES, "a", encoding="utf-8")  # noqa: SIM115 - closed by close()
            whole = (folder / SAMPLES).read_bytes().rfind(b"\n") + 1    # a killed run may have left half a line
            self._file.truncate(whole)
        except OSError as error:
            raise OutputError(f"{folder / SAMPLES} cannot be written: {error.strerror}") from error

    def __call__(self, name: str, repeat: int, pids: Mapping[int, int]) -> float:
        """Take a sample of the processes {number: pid}; returns seconds to the next."""
        before = thread_cpu()
        if set(self._known) - set(pids.values()):
            self._known.clear()
        sample = {
            "t": epoch(), "set": name, "repeat": repeat,
            "processes": [p for p in (self._process(n, pid) for n, pid in pids.items()) if p],
            "machine": {"cpu": sum(self._psutil.cpu_times()[:3]),
                        "available": self._psutil.virtual_memory().available},
            "gpus": self._probe.sample() if self._probe else []}
        text = json.dumps(sample)
        cost = thread_cpu() - before
        try:
            self._file.write(f'{text[:-1]}, "cost": {cost:.6f}}}\n')
            self._file.flush()
        except OSError as error:
            raise OutputError(f"samples cannot be written: {error.strerror}") from error
        return max(self._interval, cost / SHARE)

    def close(self) -> None:
        """Stop sampling."""
        self._file.close()

    def _process(self, number: int, pid: int) -> dict[str, Any] | None:
        """One process, or None if it has ended meanwhile."""
        try:
            process = self._known.get(pid) or self._known.setdefault(pid, self._psutil.Process(pid))
            with process.oneshot():
                times, memory = process.cpu_times(), process.memory_info()
            threads = {t.id: round(t.user_time + t.system_time, 2) for t in process.threads()}
        except self._psutil.Error:
            return None
        return {"n": number, "pid": pid, "cpu": round(times.user + times.system, 2), "rss": memory.rss,
                "threads": threads}


def read_samples(folder: Path) -> list[dict[str, Any]]:
    """All samples of a campaign's folder; half a line at the end of a killed run is left out."""
    path = folder / SAMPLES
    if not path.is_file():
        return []
    return list(read_lines(path, lambda sample: fits(sample, LINE)))
