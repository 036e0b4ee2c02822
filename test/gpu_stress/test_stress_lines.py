"""Results as text: the known form to the letter, the sums of several processes by hand."""
import pytest

from gpu_stress.lines import Shared, duration, known_form, result_line, shared_line, together


def result(progress, *, nbytes=4_000_000, up=4e6, down=4e6, flop=1e6, errors=0, **more):
    cycles = progress[-1][0]
    return {"spec": {"copy": True}, "progress": progress, "interval": [progress[0][1], progress[-1][1]],
            "cycles": cycles, "seconds": 3.529, "nbytes": nbytes, "up": cycles * up, "down": cycles * down,
            "flop": flop and cycles * flop, "checked": cycles, "errors": errors,
            "cycle": {"median": 0.0352, "p16": 0.0350, "p84": 0.0356}, **more}


def test_the_known_form_has_time_rate_and_copies():
    assert known_form(3.529, 99 / 3.529, 99 * 4e6 / 3.529, True) == "3.529 s, 28.1 Hz, 112.2 MByte/sec copy:True"
    assert known_form(0.1362, 728.6, 2914.31e6, False) == "0.136 s, 728.6 Hz, 2914.3 MByte/sec copy:False"


def test_a_result_line_adds_what_was_missing():
    line = result_line(result([(0, 10.0), (100, 14.0)]))
    assert line == ("3.529 s, 28.3 Hz, 113.3 MByte/sec copy:True median 35.2 ms +-0.9%, "
                    "800.0 MByte both ways at 226.7 MByte/sec, 0.03 GFlop/s, errors 0/100")
    assert ", no GFlop/s, errors 3/100" in result_line(result([(0, 10.0), (100, 14.0)], flop=None, errors=3))


def test_processes_are_added_up_over_the_time_they_have_in_common():
    first = result([(0, 10.0), (10, 11.0), (40, 13.0)], errors=1)       # 15 cycles/s from second 11 on
    second = result([(0, 11.0), (100, 13.0), (300, 15.0)])              # 50 cycles/s till 13
    shared = together([first, second])
    assert shared == Shared(2, 2.0, 130.0, 65.0, 65 * 4e6, 65 * 8e6, 65e6, 1, 340)
    half = together([first, result([(0, 12.0), (10, 14.0)])])
    assert (half.seconds, half.cycles) == (1.0, 15 + 5)                 # parts of blocks count
    assert together([first]).cycles == 40 and together([first]).seconds == 3.0
    assert together([first, result([(0, 13.0), (1, 14.0)])]) is None
    assert together([first, result([(0, 10.0), (1, 14.0)], flop=None)]).flops is None


def test_the_line_of_several():
    results = [result([(0, 10.0), (100, 12.0)]), result([(0, 10.0), (100, 12.0)])]
    assert shared_line(together(results), results) == (
        "2.000 s, 100.0 Hz, 400.0 MByte/sec copy:True 2 processes together (checks included), "
        "800.0 MByte/sec both ways, 0.10 GFlop/s, errors 0/200")
    assert "never worked at the same time" in shared_line(None, results)


@pytest.mark.parametrize(("seconds", "text"), [
    (2.5, "2.5 s"), (0.0351, "35.1 ms"), (1.2e-5, "12 us"), (3e-7, "0.3 us"), (0.0, "0 us")])
def test_durations_are_written_in_words(seconds, text):
    assert duration(seconds) == text
