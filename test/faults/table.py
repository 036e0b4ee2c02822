"""Writes doc/reliability.md from the rows of the fault matrix: python test/faults/table.py"""
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(path) for path in (ROOT / "test" / "faults", ROOT / "test", ROOT / "bench" / "tools")
                if str(path) not in sys.path]
import rows  # noqa: E402

PAGE = ROOT / "doc" / "reliability.md"
HEAD = (Path(__file__).with_name("reliability.head.md")).read_text(encoding="utf-8")
LONG = (ROOT / "test" / "long_tests.txt").read_text(encoding="utf-8")


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    words = [[word.replace("|", "\\|") for word in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *words]) + "\n"


def expected(row: rows.Row) -> str:
    """The expected outcome, in words."""
    said = f"`{row.says}`" if row.says else ""
    if row.code:
        return f"exit code 2: {said}"
    return "; ".join([holds.text for holds in row.holds] + ([f"warning {said}"] if said else []))


def around(row: rows.Surroundings) -> str:
    """The same for faults of the environment."""
    said = f": `{row.says}`" if row.says else ""
    return f"exit code {row.code}{said}" if row.code else "bitwise the same frame"


def writing(row: rows.Writing) -> str:
    """The same for writing."""
    return f"exit code 3: `{row.says.strip()}`" if row.code else "the frame is complete"


def lost() -> Iterable[Sequence[str]]:
    """By phase: the fault, the rank, and the number of ranks; cases that run every time are in bold."""
    for phase in rows.PHASES:
        for kind in rows.KINDS:
            quick = [victim for p, k, victim in rows.LOST_QUICK if (p, k) == (phase, kind)]
            victims = [victim for p, k, victim in rows.LOST if (p, k) == (phase, kind)]
            on = [f"**{n}**" if n in quick and f"ends_all[{phase}-{kind}-{n}]" not in LONG else str(n)
                  for n in [*victims, *(n for n in quick if n not in victims)]]
            of = [str(ranks) for p, k, _, ranks in rows.LOST_OF if (p, k) == (phase, kind)]
            yield phase, rows.WHAT[kind], ", ".join(on), ", ".join(["3", *of])


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for section, found in rows.READ:
        parts.append(f"### {section}\n\n" + table(("fault", "expected"), [(row.fault, expected(row)) for row in found]))
    parts.append("## Environment\n\nThe whole command runs in a shell (`test/faults/test_faults_around.py`).\n"
                 "\"Bitwise the same frame\" means the same as in an ordinary environment.\n\n"
                 + table(("fault", "expected"), [(row.fault, around(row)) for row in rows.SURROUNDINGS]))
    parts.append("## Writing\n\nIf the frame cannot be written, an existing file of that name stays, no other file is\n"
                 "left, and one line reports it (`test/faults/test_faults_around.py`).\n\n"
                 + table(("fault", "expected"), [(row.fault, writing(row)) for row in rows.WRITING]))
    parts.append("## Ranks\n\nWhen a rank is lost, all ranks end within 30 s. The exit code is 4, one line names the\n"
                 "rank, the old output is untouched, and no file is left (`test/ranks/test_mpi_faults.py`). Rank\n"
                 "numbers in bold are tested in every run, the others in `.ci/full`.\n\n"
                 + table(("phase", "what happens", "to rank", "of ranks"), lost())
                 + "\nIf a rank is slow (3 s), the other ranks wait for it. The frame is bitwise the same:\n\n"
                 + table(("phase", "rank", "of ranks"), [(p, str(v), str(n)) for p, v, n in rows.SLOW]))
    parts.append("## Signals\n\nOne process of a run of three ranks receives a signal\n"
                 "(`test/ranks/test_mpi_signals.py`). All processes end within 30 s. The output is either the old\n"
                 "file or complete. The next run removes the leftovers and gives the same bits. STOP to a rank or a\n"
                 "keeper alone ends all ranks (exit code 4). STOP and later CONT to all of them changes nothing (exit\n"
                 "code 0, the same bits). The measured codes with other launchers are in\n"
                 "[mpi.md](mpi.md#signals).\n\n"
                 + table(("to", "signal", "at", "exit code"),
                         [(who, name, phase, str(code or "the launcher's"))
                          for who, name, phase, code in (*rows.SIGNALS_QUICK, *rows.SIGNALS)]))
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
