"""The documentation's table of the fault matrix agrees with the rows."""
from rows import LOST, LOST_QUICK, PHASES, READ, SURROUNDINGS, WRITING
from table import PAGE, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python test/faults/table.py writes it"


def test_no_fault_is_declared_twice() -> None:
    for found in (*(rows for _, rows in READ), SURROUNDINGS, WRITING):
        names = [row.fault for row in found]
        assert sorted(set(names)) == sorted(names)


def test_every_phase_is_struck_in_every_run() -> None:
    assert {phase for phase, _, _ in LOST_QUICK} == set(PHASES) == {phase for phase, _, _ in LOST}
