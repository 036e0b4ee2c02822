"""Where one rank's wall time went, in rows that add up to all of it since its process was started."""
from gpu_extract.perf.record import Rank, is_communication, outside
from gpu_extract.perf.recorder import COMPILE

START, COMMUNICATION, OTHER = "start-up", "communication", "other"
_LEAST = 0.0005        # seconds that are said


def summary(rank: Rank) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Seconds of the outermost stages, with what came before the first and between them; of those that they hold.

    Compilation is a stage of its own, in no other one.
    """
    outer: dict[str, float] = {START: rank.before}
    held: dict[str, dict[str, float]] = {}
    names: list[str] = []          # the outer and the inner stage that the span at hand lies in
    for span in outside(s for s in rank.spans if not s.thread):
        del names[span.depth:]
        if span.name == COMPILE:
            outer[COMPILE] = outer.get(COMPILE, 0.0) + span.seconds
            if names:
                outer[names[0]] -= span.seconds
            if len(names) > 1:
                held[names[0]][names[1]] -= span.seconds
        elif is_communication(span):
            if span.depth == 0:
                outer[COMMUNICATION] = outer.get(COMMUNICATION, 0.0) + span.seconds
        elif span.depth < 2:
            sums = held.setdefault(names[0], {}) if names else outer
            sums[span.name] = sums.get(span.name, 0.0) + span.seconds
            names.append(span.name)
    return {**outer, OTHER: rank.unaccounted}, held


def summary_line(rank: Rank) -> str:
    """The same in words."""
    outer, held = summary(rank)
    said = []
    for name, seconds in outer.items():
        inner = ", ".join(f"{n} {s:.3f} s" for n, s in held.get(name, {}).items() if s >= _LEAST)
        if seconds >= _LEAST:
            said.append(f"{name} {seconds:.3f} s{f' ({inner})' if inner else ''}")
    return f"{', '.join(said)}; {sum(outer.values()):.3f} s in all"
