"""One resumable runner of many commands: scaling sweeps, stress campaigns and benches use it.

A campaign is a list of named commands with process counts. Its state is a folder:

    campaign.jsonl   append only, one JSON object a line: the plan, what started, what came out
    logs/            what the processes printed

A line is written with one call and flushed to the disk before the next command
starts, so a runner that is killed loses the command it was running and nothing
else; started again on the same folder it ends what the first one left running
and goes on. Repeats are interleaved, every other round in reverse order, so
that a machine that drifts does not favour the first or the last command.
"""
import hashlib
import json
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpu_extract.errors import InputError, check_local
from gpu_extract.io.whose import birth
from gpu_extract.perf.clock import epoch, now
from gpu_perf.journal import Journal, read_lines
from gpu_perf.processes import Ended, common_interval, run_together
from gpu_perf.shapes import count, fits, number, text, whole

STATE = "campaign.jsonl"
SEVERITY = ("ok", "unsupported", "out of memory", "wrong", "timeout", "killed", "failed")
FINE, FAILED = SEVERITY[:3], SEVERITY[-3:]


def _born(value: Any) -> bool:
    """Whether it is a process: its number, and what tells it from others that had that number."""
    return isinstance(value, list) and len(value) == 2 and fits(value[0], whole) and fits(value[1], (text, None))


# what lines of each kind hold at least
_SPAN = [number]
_PROCESS = {"index": count, "pid": (whole, None), "status": text, "code": (whole, None), "started": number,
            "ended": number, "result": (dict, None), "error": text}
LINES = {"plan": {"repeats": count, "commands": [{"name": text, "digest": text}]},
         "start": {"name": text, "repeat": count, "pids": [_born]},
         "outcome": {"name": text, "repeat": count, "digest": text, "status": text, "started": number,
                     "seconds": number, "interval": (_SPAN, None), "processes": [_PROCESS], "facts": dict}}

Sampler = Callable[[str, int, Mapping[int, int]], float]


@dataclass(frozen=True)
class Command:
    """One set of processes that run at once.

    name: letters, digits and ._+=- ; names the set and its logs, unique in a campaign
    argv: no shell; "{repeat}", "{process}" and "{procs}" become the repeat's and process's number, and the count
        (set environment variables with ("env", "NAME=value", ...))
    procs: copies that run at once; gate: they know the gate of processes.py
    timeout: seconds, or None
    facts: plain values kept with every result, such as {"dtype": "float32"}
    """

    name: str
    argv: tuple[str, ...]
    procs: int = 1
    gate: bool = False
    timeout: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9._+=-]+", self.name):
            raise InputError(f"the name {self.name!r} of a command may hold letters, digits and ._+=- only")
        if self.procs < 1:
            raise InputError(f"{self.name}: the number of processes is {self.procs}, must be 1 or more")
        if self.timeout is not None and not self.timeout > 0:
            raise InputError(f"{self.name}: the timeout is {self.timeout:g} s, must be above 0")
        if not self.argv:
            raise InputError(f"{self.name}: there is nothing to run, give a command")

    def digest(self) -> str:
        """16 hex digits that name what is run: a command that changes is run again."""
        text = json.dumps([self.argv, self.procs, self.gate], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Outcome:
    """What came of one command in one repeat.

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
        """The last line that one of its processes left on standard error."""
        return next((p.said for p in self.processes if p.said), "it said nothing")


def run(commands: Sequence[Command], folder: Path, *, repeats: int = 1, sampler: Sampler | None = None,
        tell: Callable[[str], None] | None = None, done: Callable[[Outcome], None] | None = None,
        retry: bool = False) -> list[Outcome]:
    """Run a campaign, or what is left of it; returns the outcomes of all of it, in the order of `commands`.

    sampler: called with (name, repeat, {number: pid}) while a set runs; returns seconds to the next call
    tell: takes a line after each set; done: takes its outcome, before that
    retry: run again what timed out, failed or was killed before
    Raises InputError for a campaign that makes no sense or a folder with something else in it,
    OutputError where the state cannot be written. A command that fails is an outcome, not an error.
    """
    _check(commands, repeats)
    with Journal(folder / STATE, _belongs) as journal:
        _end_left_over(journal)
        _write_plan(journal, commands, repeats)
        there = {_key(line) for line in _standing(journal.lines) if not (retry and line["status"] in FAILED)}
        order = [(c, r) for r in range(repeats) for c in (commands if r % 2 == 0 else reversed(commands))]
        todo = [(c, r) for c, r in order if (c.name, r, c.digest()) not in there]
        skipped = len(commands) * repeats - len(todo)
        if skipped and tell:
            tell(f"{skipped} of {len(commands) * repeats} sets are there already, {len(todo)} to go")
        for number, (command, repeat) in enumerate(todo, skipped + 1):
            outcome = _run_one(command, repeat, journal, sampler)
            if done:
                done(outcome)
            if tell:
                tell(f"{number}/{len(commands) * repeats} {command.name}"
                     + (f" repeat {repeat}" if repeats > 1 else "")
                     + f": {outcome.status}, {outcome.seconds:.2f} s")
    return load(folder)


def load(folder: Path) -> list[Outcome]:
    """The outcomes of a campaign that are there, in the plan's order, all repeats of a command together.

    Raises InputError where the folder holds no campaign or its state cannot be read.
    """
    path = folder / STATE
    if not path.is_file():
        check_local(str(folder))
        raise InputError(f"{folder} holds no campaign ({STATE} is not there): name the folder of one")
    lines = list(read_lines(path, _belongs))
    plan = _plan_in(lines)
    outcomes = {_key(line): _outcome(line) for line in _standing(lines)}
    keys = [(c["name"], r, c["digest"]) for c in plan["commands"] for r in range(plan["repeats"])]
    return [outcomes[key] for key in keys if key in outcomes]


def planned(folder: Path) -> int:
    """How many sets the plan of a campaign's folder has, repeats counted."""
    plan = _plan_in(list(read_lines(folder / STATE, _belongs)))
    return len(plan["commands"]) * int(plan["repeats"])


def _plan_in(lines: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The plan that is followed, which is the last one."""
    return next((line for line in reversed(lines) if line["kind"] == "plan"), {"commands": (), "repeats": 0})


def _check(commands: Sequence[Command], repeats: int) -> None:
    if not commands:
        raise InputError("the campaign has no command: give at least one")
    if repeats < 1:
        raise InputError(f"the number of repeats is {repeats}, must be 1 or more")
    name, times = Counter(c.name for c in commands).most_common(1)[0]
    if times > 1:
        raise InputError(f"two commands are called {name}: names must differ")


def _run_one(command: Command, repeat: int, journal: Journal, sampler: Sampler | None) -> Outcome:
    begun, zero = epoch(), now()
    argv = [word.replace("{repeat}", str(repeat)) for word in command.argv]
    ended = run_together(
        argv, command.procs, journal.path.parent / "logs" / f"{command.name}.{repeat}",
        gate=command.gate, timeout=command.timeout,
        tick=None if sampler is None else lambda pids: sampler(command.name, repeat, pids),
        started=lambda pids: journal.write({
            "kind": "start", "name": command.name, "repeat": repeat,
            "pids": [[pid, birth(pid)] for pid in pids.values()]}))
    seconds = now() - zero
    status = max((e.status for e in ended), key=severity)
    outcome = Outcome(command.name, repeat, command.digest(), status, begun, seconds, common_interval(ended),
                      tuple(ended), dict(command.facts))
    journal.write({"kind": "outcome", **asdict(outcome)})
    return outcome


def severity(status: str) -> int:
    """How bad a status is: its place in SEVERITY; one that is not known is the worst."""
    return SEVERITY.index(status) if status in SEVERITY else len(SEVERITY)


def _write_plan(journal: Journal, commands: Sequence[Command], repeats: int) -> None:
    """Write the plan, unless it is the one that is being followed."""
    entries = [{**asdict(c), "digest": c.digest()} for c in commands]
    plan = json.loads(json.dumps({"kind": "plan", "repeats": repeats, "commands": entries}))
    if _plan_in(journal.lines) != plan:
        journal.write(plan)


def end_left_over(folder: Path) -> bool:
    """End processes that a killed runner of a campaign left running; False where its runner is alive."""
    try:
        with Journal(folder / STATE, _belongs) as journal:
            _end_left_over(journal)
    except InputError:
        return False
    return True


def _end_left_over(journal: Journal) -> None:
    """End processes that a killed runner left running: they would disturb what is timed next."""
    last = journal.lines[-1] if journal.lines else {}
    if last.get("kind") == "start":
        for pid, born in last["pids"]:
            if born is not None and birth(pid) == born:
                with suppress(ProcessLookupError):      # it has just ended by itself
                    os.killpg(pid, signal.SIGKILL)


def _standing(lines: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The outcomes that are still what their logs and files are of.

    These have the names of commands and repeats alone: a command that was changed, and started, has taken their place.
    """
    found: dict[tuple[str, int], Mapping[str, Any]] = {}
    for line in lines:
        if line["kind"] == "start":
            found.pop((line["name"], line["repeat"]), None)
        elif line["kind"] == "outcome":
            found[line["name"], line["repeat"]] = line
    return list(found.values())


def _belongs(line: Mapping[str, Any]) -> bool:
    """Whether a line is one of ours, and none of a newer version, which holds more."""
    if not fits(line, LINES[line["kind"]]):
        return False
    if line["kind"] != "outcome":
        return True
    known, of_process = {"kind", *Outcome.__dataclass_fields__}, Ended.__dataclass_fields__.keys()
    return (line.keys() <= known and len(line["interval"] or "ab") == 2 and bool(line["processes"])
            and all(each.keys() <= of_process for each in line["processes"]))


def _key(line: Mapping[str, Any]) -> tuple[str, int, str]:
    return line["name"], line["repeat"], line["digest"]


def _outcome(line: Mapping[str, Any]) -> Outcome:
    values = {k: v for k, v in line.items() if k != "kind"}
    values["processes"] = tuple(Ended(**p) for p in values["processes"])
    values["interval"] = tuple(values["interval"]) if values["interval"] else None
    return Outcome(**values)
