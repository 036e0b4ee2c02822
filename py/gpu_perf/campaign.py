"""A resumable runner of many commands, used by scaling sweeps, stress campaigns and benches.

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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpu_extract.errors import InputError
from gpu_extract.io.whose import birth
from gpu_extract.perf.clock import epoch, now
from gpu_perf.journal import Journal
from gpu_perf.outcomes import FAILED, STATE, Outcome, belongs, key_of, load, plan_in, severity, standing
from gpu_perf.processes import common_interval, run_together

Sampler = Callable[[str, int, Mapping[int, int]], float]


@dataclass(frozen=True)
class Command:
    """One set of processes that run at once.

    name: letters, digits and ._+=- ; identifies the set and its logs, unique in a campaign
    argv: no shell; "{repeat}", "{process}" and "{procs}" become the repeat's and process's number, and the count
        (set environment variables with ("env", "NAME=value", ...))
    procs: copies that run at once; gate: whether they use the gate of processes.py
    timeout: seconds, or None
    facts: plain values stored with every result, such as {"dtype": "float32"}
    """

    name: str
    argv: tuple[str, ...]
    procs: int = 1
    gate: bool = False
    timeout: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9._+=-]+", self.name):
            raise InputError(f"the name {self.name!r} of a command may contain only letters, digits and ._+=-")
        if self.procs < 1:
            raise InputError(f"{self.name}: the number of processes is {self.procs}, must be 1 or more")
        if self.timeout is not None and not self.timeout > 0:
            raise InputError(f"{self.name}: the timeout is {self.timeout:g} s, must be above 0")
        if not self.argv:
            raise InputError(f"{self.name}: has no command to run; give one")

    def digest(self) -> str:
        """16 hex digits that identify the command: a changed command is run again."""
        text = json.dumps([self.argv, self.procs, self.gate], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def run(commands: Sequence[Command], folder: Path, *, repeats: int = 1, sampler: Sampler | None = None,
        tell: Callable[[str], None] | None = None, done: Callable[[Outcome], None] | None = None,
        retry: bool = False) -> list[Outcome]:
    """Run a campaign, or the rest of it; returns the outcomes of the whole campaign, in the order of `commands`.

    sampler: called with (name, repeat, {number: pid}) while a set runs; returns seconds to the next call
    tell: called with a line after each set; done: called with its outcome, before that
    retry: run sets again that timed out, failed or were killed before
    Raises InputError for an invalid campaign or a folder with other content,
    OutputError where the state cannot be written. A command that fails is an outcome, not an error.
    """
    _check(commands, repeats)
    with Journal(folder / STATE, belongs) as journal:
        _end_left_over(journal)
        _write_plan(journal, commands, repeats)
        there = {key_of(line) for line in standing(journal.lines) if not (retry and line["status"] in FAILED)}
        order = [(c, r) for r in range(repeats) for c in (commands if r % 2 == 0 else reversed(commands))]
        todo = [(c, r) for c, r in order if (c.name, r, c.digest()) not in there]
        skipped = len(commands) * repeats - len(todo)
        if skipped and tell:
            tell(f"{skipped} of {len(commands) * repeats} sets exist already, {len(todo)} to go")
        for number, (command, repeat) in enumerate(todo, skipped + 1):
            outcome = _run_one(command, repeat, journal, sampler)
            if done:
                done(outcome)
            if tell:
                tell(f"{number}/{len(commands) * repeats} {command.name}"
                     + (f" repeat {repeat}" if repeats > 1 else "")
                     + f": {outcome.status}, {outcome.seconds:.2f} s")
    return load(folder)


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


def _write_plan(journal: Journal, commands: Sequence[Command], repeats: int) -> None:
    """Write the plan, unless it is the current one."""
    entries = [{**asdict(c), "digest": c.digest()} for c in commands]
    plan = json.loads(json.dumps({"kind": "plan", "repeats": repeats, "commands": entries}))
    if plan_in(journal.lines) != plan:
        journal.write(plan)


def end_left_over(folder: Path) -> bool:
    """End processes that a killed runner of a campaign left running; False if its runner is alive."""
    try:
        with Journal(folder / STATE, belongs) as journal:
            _end_left_over(journal)
    except InputError:
        return False
    return True


def _end_left_over(journal: Journal) -> None:
    """End processes that a killed runner left running, because they would disturb the next timings."""
    last = journal.lines[-1] if journal.lines else {}
    if last.get("kind") == "start":
        for pid, born in last["pids"]:
            if born is not None and birth(pid) == born:
                with suppress(ProcessLookupError):      # it has just ended
                    os.killpg(pid, signal.SIGKILL)
