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


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    words = [[word.replace("|", "\\|") for word in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *words]) + "\n"


def expected(row: rows.Row) -> str:
    """What is expected, in words."""
    said = f"`{row.says}`" if row.says else ""
    if row.code:
        return f"exit code 2: {said}"
    return "; ".join([holds.text for holds in row.holds] + ([f"warning {said}"] if said else []))


def around(row: rows.Surroundings) -> str:
    """The same for the surroundings."""
    said = f": `{row.says}`" if row.says else ""
    return f"exit code {row.code}{said}" if row.code else "the frame, bit for bit"


def writing(row: rows.Writing) -> str:
    """The same for what is written."""
    return f"exit code 3: `{row.says.strip()}`" if row.code else "the frame is whole"


def lost() -> Iterable[Sequence[str]]:
    """Phase by phase, what is done to which rank of how many; what is in every run is in bold."""
    for phase in rows.PHASES:
        quick = {(kind, victim) for p, kind, victim in rows.LOST_QUICK if p == phase}
        for kind in rows.KINDS:
            on = [f"**{victim}**" if (kind, victim) in quick else str(victim)
                  for p, k, victim in rows.LOST if (p, k) == (phase, kind)]
            on += [f"**{victim}**" for k, victim in sorted(quick) if k == kind
                   and (phase, kind, victim) not in rows.LOST]
            of = [str(ranks) for p, k, _, ranks in rows.LOST_OF if (p, k) == (phase, kind)]
            yield phase, rows.WHAT[kind], ", ".join(on), ", ".join(["3", *of])


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for section, found in rows.READ:
        parts.append(f"### {section}\n\n" + table(("fault", "expected"), [(row.fault, expected(row)) for row in found]))
    parts.append("## Surroundings\n\nThe whole command, in a shell (`test/faults/test_faults_around.py`).\n\n"
                 + table(("fault", "expected"), [(row.fault, around(row)) for row in rows.SURROUNDINGS]))
    parts.append("## Writing\n\nWhere the frame cannot be written, what had its name is still there, nothing else is "
                 "left, and one line says so\n(`test/faults/test_faults_around.py`).\n\n"
                 + table(("fault", "expected"), [(row.fault, writing(row)) for row in rows.WRITING]))
    parts.append("## Ranks\n\nA rank that is lost ends all within 30 s: exit code 4, one line with its number, the old "
                 "output untouched, no file left\n(`test/ranks/test_mpi_faults.py`). Numbers in bold are in every run, "
                 "the others in `.ci/full`.\n\n"
                 + table(("phase", "what happens", "to rank", "of ranks"), lost())
                 + "\nA rank that is slow (3 s) is waited for; the frame is the same, bit for bit:\n\n"
                 + table(("phase", "rank", "of ranks"), [(p, str(v), str(n)) for p, v, n in rows.SLOW]))
    parts.append("## Signals\n\nA signal to one process of three ranks (`test/ranks/test_mpi_signals.py`): all are "
                 "gone within 30 s, the output is the old one or\ncomplete, the next run removes what is left and has "
                 "the same bits. STOP to a rank or a keeper alone ends all (exit\ncode 4); STOP and later CONT to all "
                 "of them changes nothing (exit code 0, the same bits). The codes with other launchers,\nand what was "
                 "measured, are in [mpi.md](mpi.md#when-something-goes-wrong).\n\n"
                 + table(("to", "signal", "at", "exit code"),
                         [(who, name, phase, str(code or "the launcher's"))
                          for who, name, phase, code in (*rows.SIGNALS_QUICK, *rows.SIGNALS)]))
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
