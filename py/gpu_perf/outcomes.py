"""The content of a campaign's folder: the lines of its state (see campaign.py), and the valid outcomes."""
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_extract.errors import InputError, check_local
from gpu_perf.journal import read_lines
from gpu_perf.processes import Ended
from gpu_perf.shapes import count, fits, number, text, whole

STATE = "campaign.jsonl"
SEVERITY = ("ok", "unsupported", "out of memory", "wrong", "timeout", "killed", "failed")
FINE, FAILED = SEVERITY[:3], SEVERITY[-3:]


def _born(value: Any) -> bool:
    """Whether a value identifies a process: its number, and what distinguishes it from others with that number."""
    return isinstance(value, list) and len(value) == 2 and fits(value[0], whole) and fits(value[1], (text, None))


# the least content of each kind of line
_SPAN = [number]
_PROCESS = {"index": count, "pid": (whole, None), "status": text, "code": (whole, None), "started": number,
            "ended": number, "result": (dict, None), "error": text}
LINES = {"plan": {"repeats": count, "commands": [{"name": text, "digest": text}]},
         "start": {"name": text, "repeat": count, "pids": [_born]},
         "outcome": {"name": text, "repeat": count, "digest": text, "status": text, "started": number,
                     "seconds": number, "interval": (_SPAN, None), "processes": [_PROCESS], "facts": dict}}


@dataclass(frozen=True)
class Outcome:
    """The outcome of one command in one repeat.

    status: the worst of its processes, in the order of SEVERITY
    seconds: from the first start to the last end
    interval: (start, end) epoch seconds during which all its processes worked, or None
    """

    name: str
    repeat: int
    digest: str
    status: str
    started: float
    seconds: float
    interval: tuple[float, float] | None
    processes: tuple[Ended, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def said(self) -> str:
        """The last line that one of its processes wrote to standard error."""
        return next((p.said for p in self.processes if p.said), "no message")


def load(folder: Path) -> list[Outcome]:
    """The existing outcomes of a campaign, in the plan's order, with all repeats of a command together.

    Raises InputError if the folder holds no campaign or its state cannot be read.
    """
    path = folder / STATE
    if not path.is_file():
        check_local(str(folder))
        raise InputError(f"{folder} holds no campaign ({STATE} is missing): give the folder of one")
    lines = list(read_lines(path, belongs))
    plan = plan_in(lines)
    outcomes = {key_of(line): _outcome(line) for line in standing(lines)}
    keys = [(c["name"], r, c["digest"]) for c in plan["commands"] for r in range(plan["repeats"])]
    return [outcomes[key] for key in keys if key in outcomes]


def planned(folder: Path) -> int:
    """Number of sets in the plan of a campaign's folder, including repeats."""
    plan = plan_in(list(read_lines(folder / STATE, belongs)))
    return len(plan["commands"]) * int(plan["repeats"])


def severity(status: str) -> int:
    """The severity of a status: its place in SEVERITY; an unknown one is the worst."""
    return SEVERITY.index(status) if status in SEVERITY else len(SEVERITY)


def plan_in(lines: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The current plan, which is the last one; empty if there is none."""
    return next((line for line in reversed(lines) if line["kind"] == "plan"), {"commands": (), "repeats": 0})


def standing(lines: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The outcomes that still belong to their logs and files.

    Logs are named by command and repeat only: a changed command has overwritten them once it was started.
    """
    found: dict[tuple[str, int], Mapping[str, Any]] = {}
    for line in lines:
        if line["kind"] == "start":
            found.pop((line["name"], line["repeat"]), None)
        elif line["kind"] == "outcome":
            found[line["name"], line["repeat"]] = line
    return list(found.values())


def belongs(line: Mapping[str, Any]) -> bool:
    """Whether a line belongs to a campaign, and not to a newer version, whose lines hold more."""
    if not fits(line, LINES[line["kind"]]):
        return False
    if line["kind"] != "outcome":
        return True
    known, of_process = {"kind", *Outcome.__dataclass_fields__}, Ended.__dataclass_fields__.keys()
    return (line.keys() <= known and len(line["interval"] or "ab") == 2 and bool(line["processes"])
            and all(each.keys() <= of_process for each in line["processes"]))


def key_of(line: Mapping[str, Any]) -> tuple[str, int, str]:
    """The key of an outcome: name of the command, repeat, and digest of the command."""
    return line["name"], line["repeat"], line["digest"]


def _outcome(line: Mapping[str, Any]) -> Outcome:
    values = {k: v for k, v in line.items() if k != "kind"}
    values["processes"] = tuple(Ended(**p) for p in values["processes"])
    values["interval"] = tuple(values["interval"]) if values["interval"] else None
    return Outcome(**values)
