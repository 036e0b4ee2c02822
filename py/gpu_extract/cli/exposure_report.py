"""Messages of an exposure, while it works and at its end."""
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpu_extract.cli.common import log, show_progress
from gpu_extract.cli.exposure_list import Entry
from gpu_extract.errors import CheckFailed, ExitCode, InputError, InternalError, OutputError, StoppedCleanly
from gpu_extract.exposure.frames import Outcome, State
from gpu_extract.perf.clock import now
from gpu_extract.seams import Numbers

_LINES = 100           # largest number of frames that the table lists; beyond it, only unfinished ones are listed
_SHOWN = 20            # failed frames in the last line
_ERRORS = {each.code: each for each in (CheckFailed, InputError, OutputError, InternalError, StoppedCleanly)}


class Progress:
    """Shows how many frames are done: one line on a terminal, lines in the log elsewhere. Used by rank 0, from any
    thread."""

    def __init__(self, total: int):
        self._total = total
        self._start = now()
        self._counts: dict[str, int] = {}

    def __call__(self, number: int, state: int) -> None:
        name = State(state).name.lower()
        self._counts[name] = self._counts.get(name, 0) + 1
        ended = sum(self._counts.values())
        others = "".join(f", {count} {word}" for word, count in self._counts.items() if word != "done")
        show_progress(f"frame {ended} of {self._total}{others}, {now() - self._start:.1f} s",
                      last=ended >= self._total)


def tell_of(entries: Sequence[Entry], numbers: Numbers) -> Callable[[Outcome], None]:
    """A function that reports an outcome: a failure is logged at once by the group that finds it; rank 0 receives
    all."""
    def tell(outcome: Outcome) -> None:
        if outcome.state == State.FAILED:
            log.error(f"{entries[outcome.number].name}: {outcome.words}")
        numbers.tell(outcome.number, outcome.state)

    return tell


def table(entries: Sequence[Entry], outcomes: Mapping[int, Outcome]) -> list[str]:
    """A line for each frame: its outcome, seconds of computing, group, name, and reason of failure."""
    lines = [f"{'state':9} {'seconds':>8} {'group':>5}  frame"]
    for number, entry in enumerate(entries):
        outcome = outcomes.get(number)
        state = State(outcome.state) if outcome else State.NOT_BEGUN
        if len(entries) > _LINES and state in (State.DONE, State.SKIPPED):
            continue
        seconds = f"{outcome.seconds:.2f}" if outcome and outcome.seconds else "-"
        group = str(outcome.group) if outcome else "-"
        words = f": {outcome.words}" if outcome and outcome.words and state == State.FAILED else ""
        lines.append(f"{state.name.lower().replace('_', ' '):9} {seconds:>8} {group:>5}  {entry.name}{words}")
    return lines


def counted(total: int, outcomes: Sequence[Outcome]) -> str:
    """The number of frames, and how many were done, skipped, ..."""
    counts = {state: sum(o.state == state for o in outcomes) for state in State}
    counts[State.NOT_BEGUN] = total - len(outcomes)
    words = [f"{count} {state.name.lower().replace('_', ' ')}" for state, count in counts.items() if count]
    return f"{total} frames: " + ", ".join(words)


def log_summary(entries: Sequence[Entry], outcomes: Sequence[Outcome],
                records: Sequence[Mapping[str, Any]]) -> None:
    """Log the table, the counts with the rate, the waiting for files, the start-up and the memory."""
    for outcome in outcomes:
        if outcome.state == State.DONE and outcome.words:
            log.info(f"{entries[outcome.number].name}: extracted again: {outcome.words}")
    for line in table(entries, {o.number: o for o in outcomes}):
        log.info(line)
    done = sum(o.state == State.DONE for o in outcomes)
    # from the start of the processes until the last group was done, which may be long after the first
    seconds = max(float(record["start_up"] + record["elapsed"]) for record in records)
    rate = f"; {3600 * done / seconds:.0f} frames per hour" if done else ""
    log.info(f"{counted(len(entries), outcomes)}; {seconds:.1f} s with start-up{rate}")
    log.info(f"waiting for files: {100 * waiting(records):.1f} % of the ranks' time")
    log.info("start-up, seconds of the slowest rank: "
             + ", ".join(f"{name} {wall:.2f} (CPU {cpu:.2f})" for name, (wall, cpu) in slowest(records).items()))
    peaks = [record["peak_memory"] / 1e6 for record in records]
    log.info(f"memory: {max(peaks):.0f} MB at most in a rank, {sum(peaks) / 1e3:.1f} GB in all {len(peaks)}")


def waiting(records: Sequence[Mapping[str, Any]]) -> float:
    """The share of the time between the first input and the last result that ranks waited for files."""
    from gpu_extract.exposure.flow import ALL, INPUT, OUTPUT

    whole = waits = 0.0
    for record in records:
        spans = [(s[0], s[2], s[2] + s[3]) for s in record["spans"] if s[5] == 0]
        for begin, end in ((begin, end) for name, begin, end in spans if name == ALL):
            whole += end - begin
            waits += sum(b - a for name, a, b in spans if name in (INPUT, OUTPUT) and begin <= a <= end)
    return waits / whole if whole else 0.0


def slowest(records: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """Wall-clock and CPU seconds of each step of the start-up, of the slowest rank."""
    found: dict[str, tuple[float, float]] = {}
    for record in records:
        for name, (wall, cpu) in record["start"].items():
            before = found.get(name, (0.0, 0.0))
            found[name] = max(before[0], wall), max(before[1], cpu)
    return found


def verdict(entries: Sequence[Entry], outcomes: Sequence[Outcome], code: int) -> None:
    """Raise the final error of a run with this exit code; nothing on success."""
    if code == ExitCode.DONE:
        return
    busy = sum(o.state == State.ELSEWHERE for o in outcomes)
    if busy:
        raise StoppedCleanly(f"another run is working on {busy} of the frames; {counted(len(entries), outcomes)}; "
                             "start again when it has finished, to complete them")
    if code == ExitCode.START_AGAIN:
        raise StoppedCleanly(f"stopped on request; {counted(len(entries), outcomes)}; start again to continue")
    names = [entries[o.number].name for o in outcomes if o.state == State.FAILED]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    raise _ERRORS[ExitCode(code)](f"{len(names)} of {len(entries)} frames failed: {', '.join(names[:_SHOWN])}{more}; "
                                  "the reasons are above")
