"""What the record of an exposure says of its ranks."""
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


def record(path: Path) -> list[dict[str, Any]]:
    """What the ranks of an exposure recorded (--perf)."""
    return json.loads(path.read_text())["ranks"]


def spans(rank: dict[str, Any], name: str) -> list[tuple[float, float, float]]:
    """(begin, end, CPU seconds) of the spans of a name, in seconds since 1970."""
    return [(rank["epoch"] + s[2], rank["epoch"] + s[2] + s[3], s[4]) for s in rank["spans"] if s[0] == name]


def judge(ranks: list[dict[str, Any]], cores: int) -> dict[str, float]:
    """The figures of a run."""
    whole = [spans(rank, "frames")[0] for rank in ranks]
    first = min(begin for begin, _, _ in whole)
    last = max(end for rank in ranks for _, end, _ in spans(rank, "frame"))
    waits = sum(end - begin for rank, (start, stop, _) in zip(ranks, whole, strict=True)
                for name in ("wait for input", "wait for output")
                for begin, end, _ in spans(rank, name) if start <= begin <= stop)
    cpu = sum(used for _, _, used in whole)
    reading, writing = (sum(used for rank in ranks for _, _, used in spans(rank, name)) for name in ("read", "write"))
    return {"seconds": last - first, "waiting": waits / (len(ranks) * (last - first)), "cpu": cpu,
            "busy": cpu / (cores * (last - first)), "reading": reading, "writing": writing}


def values(ranks: Sequence[dict[str, Any]], name: str) -> np.ndarray:
    """Wall seconds of the spans of a name while frames are worked on, of all ranks, in order."""
    found = []
    for rank in ranks:
        ((begin, length),) = ((s[2], s[3]) for s in rank["spans"] if s[0] == "frames")
        found += [s[3] for s in rank["spans"] if s[0] == name and begin <= s[2] <= begin + length]
    return np.array(found)
