"""The campaign runner: simultaneous, recorded, resumable. Everything here runs real processes."""
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpu_extract.errors import InputError, OutputError
from gpu_extract.io.whose import birth
from gpu_perf.campaign import Command, run
from gpu_perf.outcomes import load, planned
from gpu_perf.processes import run_together


def python(code, *args):
    return (sys.executable, "-S", "-c", code, *args)


def lines(folder):
    return [json.loads(line) for line in (folder / "campaign.jsonl").read_text().splitlines()]


GATED = """
import json, sys, time
time.sleep(0.15 * int(sys.argv[1]))
warm = time.time()
print("ready", flush=True)
if not sys.stdin.readline(): sys.exit(9)
start = time.time()
time.sleep(0.1)
print(json.dumps({"warm": warm, "interval": [start, time.time()]}))
"""


def test_processes_of_a_set_go_together(tmp_path):
    (outcome,) = run([Command("gated", python(GATED, "{process}"), procs=3, gate=True)], tmp_path)
    results = [p.result for p in outcome.processes]
    starts = [r["interval"][0] for r in results]
    assert min(starts) >= max(r["warm"] for r in results)          # nobody starts before all are warm
    assert outcome.interval == (max(starts), min(r["interval"][1] for r in results))
    assert outcome.status == "ok" and [p.index for p in outcome.processes] == [0, 1, 2]


def test_without_a_gate_the_interval_is_that_of_the_lives(tmp_path):
    (outcome,) = run([Command("plain", python("import time; time.sleep(1)"), procs=2)], tmp_path)
    assert outcome.interval == (max(p.started for p in outcome.processes),
                                min(p.ended for p in outcome.processes))
    assert 0.05 < outcome.interval[1] - outcome.interval[0] <= outcome.seconds


def test_failures_are_recorded_and_the_rest_goes_on(tmp_path):
    told = []
    outcomes = run([
        Command("fails", python("import sys; print('no', file=sys.stderr); sys.exit(3)")),
        Command("missing", ("/nowhere/to/be/found",)),
        Command("dies", python("import os; os.kill(os.getpid(), 9)")),
        Command("sleeps", python("import time; time.sleep(60)"), timeout=0.3),
        Command("says", python("print('{\"status\": \"out of memory\", \"n\": 1}')")),
        Command("two", python("import sys; sys.exit(int(sys.argv[1]))", "{process}"), procs=2),
        Command("fine", python("print('{\"n\": 5}')")),
    ], tmp_path, tell=told.append)
    assert [o.status for o in outcomes] == [
        "failed", "failed", "killed", "timeout", "out of memory", "failed", "ok"]
    fails, missing, dies, sleeps, says, two, fine = outcomes
    assert (fails.processes[0].code, fails.processes[0].error) == (3, "no")
    assert missing.processes[0].error == "/nowhere/to/be/found cannot be started: No such file or directory"
    assert dies.processes[0].error == "ended by signal SIGKILL"
    assert 0.3 <= sleeps.seconds < 5
    assert [p.status for p in two.processes] == ["ok", "failed"]
    assert fine.processes[0].result == {"n": 5} and says.processes[0].result["n"] == 1
    assert told[-1].startswith("7/7 fine: ok, ")
    assert load(tmp_path) == outcomes and planned(tmp_path) == 7


def test_a_failure_without_a_message_names_a_full_disk(tmp_path, monkeypatch):
    """The message found no room there."""
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=0))
    silent, says = run([Command("silent", python("import sys; sys.exit(3)")),
                        Command("says", python("import sys; sys.exit('no')"))], tmp_path)
    assert silent.said == (f"no message: 0 kB are free on the disk of {tmp_path}/logs/silent.0.0.err; free some space "
                           "and start again")
    assert says.said == "no"


def test_a_timeout_also_ends_what_the_process_started(tmp_path):
    code = ("import subprocess, sys, time;"
            "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
            "print(p.pid, flush=True); time.sleep(60)")
    run_together(python(code), 1, tmp_path / "log", timeout=1.0)
    grandchild = int((tmp_path / "log.0.out").read_text())
    stop = time.monotonic() + 5
    while time.monotonic() < stop and _alive(grandchild):
        time.sleep(0.02)
    assert not _alive(grandchild)


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


RUNNER = """
import sys
from pathlib import Path
from gpu_perf.campaign import Command, run
log, folder = sys.argv[1:]
code = ("import os, sys, time; open(sys.argv[1], 'a').write(sys.argv[2] + chr(10));"
        "time.sleep(60 if sys.argv[2] == 'c4' and not os.path.exists(sys.argv[1] + '.again') else 0)")
run([Command(f"c{i}", (sys.executable, "-S", "-c", code, log, f"c{i}")) for i in range(8)], Path(folder))
"""


def test_killed_and_started_again_it_goes_on(tmp_path):
    log, folder = tmp_path / "log", tmp_path / "state"
    runner = subprocess.Popen([sys.executable, "-c", RUNNER, str(log), str(folder)])
    stop = time.monotonic() + 30
    while not (log.exists() and "c4" in log.read_text() and lines(folder)[-1].get("name") == "c4"):
        assert time.monotonic() < stop, "the fifth command never started, or is not known to have"
        time.sleep(0.02)
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    before = (folder / "campaign.jsonl").read_bytes()
    (left,) = [pid for pid, _ in lines(folder)[-1]["pids"]]
    assert _alive(left)                                            # left behind by the killed runner
    with open(folder / "campaign.jsonl", "ab") as state:
        state.write(b'{"kind": "outcome", "name": "c4", "rep')     # as if killed while writing
    (tmp_path / "log.again").touch()
    subprocess.run([sys.executable, "-c", RUNNER, str(log), str(folder)], check=True, timeout=60)
    assert not _alive(left)
    assert (folder / "campaign.jsonl").read_bytes().startswith(before)
    assert log.read_text().split() == ["c0", "c1", "c2", "c3", "c4", "c4", "c5", "c6", "c7"]
    assert [o.name for o in load(folder)] == [f"c{i}" for i in range(8)]
    assert {o.status for o in load(folder)} == {"ok"}


def test_a_changed_command_is_run_again_and_nothing_is_lost(tmp_path):
    run([Command("a", python("print('{\"n\": 1}')")), Command("b", python("pass"))], tmp_path)
    old = (tmp_path / "campaign.jsonl").read_bytes()
    outcomes = run([Command("a", python("print('{\"n\": 2}')")), Command("b", python("pass"))], tmp_path)
    assert outcomes[0].processes[0].result == {"n": 2}
    assert (tmp_path / "campaign.jsonl").read_bytes().startswith(old)
    started = [line["name"] for line in lines(tmp_path) if line["kind"] == "start"]
    assert started == ["a", "b", "a"]


def test_a_command_that_was_changed_and_changed_back_is_run_again(tmp_path):
    """A command's output is named after its set: the other command's output has replaced it."""
    record = tmp_path / "record"
    one, two = (Command("a", python("import sys; open(sys.argv[1], 'w').write(sys.argv[2])", str(record), word))
                for word in ("one", "two"))
    for command, wanted in ((one, "one"), (two, "two"), (one, "one")):
        assert run([command], tmp_path / "state")[0].status == "ok"
        assert record.read_text() == wanted
    with open(tmp_path / "state" / "campaign.jsonl", "a", encoding="utf-8") as state:       # begun, and killed
        state.write(json.dumps({"kind": "start", "name": "a", "repeat": 0, "pids": []}) + "\n")
    assert load(tmp_path / "state") == []


def test_repeats_are_interleaved_and_turned_round(tmp_path):
    outcomes = run([Command(n, python("pass")) for n in "abc"], tmp_path, repeats=3)
    order = [(line["name"], line["repeat"]) for line in lines(tmp_path) if line["kind"] == "start"]
    assert order == [(n, 0) for n in "abc"] + [(n, 1) for n in "cba"] + [(n, 2) for n in "abc"]
    assert [(o.name, o.repeat) for o in outcomes] == [(n, r) for n in "abc" for r in range(3)]


def test_failed_sets_are_tried_again_only_when_asked(tmp_path):
    flag = tmp_path / "flag"
    command = Command("a", python("import os, sys; sys.exit(not os.path.exists(sys.argv[1]))", str(flag)))
    folder = tmp_path / "state"
    assert run([command], folder)[0].status == "failed"
    flag.touch()
    assert run([command], folder)[0].status == "failed"
    assert run([command], folder, retry=True)[0].status == "ok"


def test_the_sampler_sees_who_runs(tmp_path):
    seen = []

    def sampler(name, repeat, pids):
        seen.append((name, repeat, dict(pids), time.monotonic()))
        return 0.2

    command = Command("a", python("import time; time.sleep(0.5)"), procs=2)
    (outcome,) = run([command], tmp_path, sampler=sampler)
    assert seen[0][:3] == ("a", 0, {p.index: p.pid for p in outcome.processes})
    assert all(b[3] - a[3] >= 0.2 for a, b in itertools.pairwise(seen))
    assert len(seen) >= 3


def test_a_sampler_that_cannot_write_stops_the_campaign_and_its_processes(tmp_path):
    pids = {}

    def sampler(name, repeat, running):
        pids.update(running)
        raise OutputError("disk full")

    with pytest.raises(OutputError, match="disk full"):
        run([Command("a", python("import time; time.sleep(60)"))], tmp_path, sampler=sampler)
    assert pids and not _alive(pids[0])
    assert load(tmp_path) == []                                    # still to be done


def test_one_runner_at_a_time(tmp_path):
    command = Command("a", python("pass"))
    code = ("import sys; from pathlib import Path; from gpu_perf.campaign import Command, run\n"
            "from gpu_extract.errors import InputError\n"
            "try: run([Command('a', ('true',))], Path(sys.argv[1]))\n"
            "except InputError as e: print(e)")

    def sampler(*_):
        said.append(subprocess.check_output([sys.executable, "-c", code, str(tmp_path)], text=True))
        return 60.0

    said = []
    run([command], tmp_path, sampler=sampler)
    assert said == [f"{tmp_path}/campaign.jsonl is in use by another run: "
                    "wait for it, or give another folder\n"]


@pytest.mark.parametrize("text", ["{\"a\": 1}\n", "not json\n", "[1]\n", "{\"kind\": \"recipe\"}\n"])
def test_a_foreign_state_file_is_refused_and_left_alone(tmp_path, text):
    state = tmp_path / "campaign.jsonl"
    state.write_text(text)
    with pytest.raises(InputError, match=r"line 1, does not belong there"):
        run([Command("a", python("pass"))], tmp_path)
    assert state.read_text() == text


@pytest.mark.parametrize(("kind", "where", "value"), [
    ("plan", ("repeats",), "2"), ("plan", ("repeats",), 10**7), ("plan", ("commands", 0), "a"),
    ("plan", ("commands", 0, "digest"), None), ("start", ("pids",), 7),
    ("start", ("pids", 0), [1]), ("outcome", ("repeat",), 0.5),
    ("outcome", ("seconds",), "1"), ("outcome", ("seconds",), float("nan")), ("outcome", ("interval",), [1.0]),
    ("outcome", ("processes",), []), ("outcome", ("processes", 0), {}), ("outcome", ("processes", 0, "status"), 3),
    ("outcome", ("processes", 0, "later"), 1), ("outcome", ("later",), 1), ("outcome", ("facts",), None)])
def test_damaged_lines_are_named_and_left_alone(tmp_path, kind, where, value):
    run([Command("a", python("pass"))], tmp_path)
    state = tmp_path / "campaign.jsonl"
    content = lines(tmp_path)
    number = next(n for n, line in enumerate(content) if line["kind"] == kind)
    part = content[number]
    for key in where[:-1]:
        part = part[key]
    part[where[-1]] = value
    text = "".join(json.dumps(line) + "\n" for line in content)
    state.write_text(text)
    for use in (load, lambda folder: run([Command("a", python("pass"))], folder)):
        with pytest.raises(InputError, match=f"line {number + 1}, does not belong there"):
            use(tmp_path)
    assert state.read_text() == text


def test_bad_campaigns_are_refused(tmp_path):
    fine = Command("a", ("true",))
    with pytest.raises(InputError, match="no command"):
        run([], tmp_path)
    with pytest.raises(InputError, match="repeats is 0"):
        run([fine], tmp_path, repeats=0)
    with pytest.raises(InputError, match="two commands are called a"):
        run([fine, fine], tmp_path)
    with pytest.raises(InputError, match="processes is 0"):
        Command("a", ("true",), procs=0)
    for timeout in (0.0, -1.0, float("nan")):
        with pytest.raises(InputError, match=r"a: the timeout is .* s, must be above 0"):
            Command("a", ("true",), timeout=timeout)
    with pytest.raises(InputError, match="may contain only letters"):
        Command("a/b", ("true",))
    with pytest.raises(InputError, match="no command to run"):
        Command("a", ())
    with pytest.raises(InputError, match="holds no campaign"):
        load(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot be made"):
        run([fine], tmp_path / "file" / "folder")


def test_process_numbers_reach_the_command(tmp_path):
    code = "import sys; print('{\"me\": %s}' % sys.argv[1])"
    (outcome,) = run([Command("a", python(code, "{process}"), procs=3)], tmp_path)
    assert [p.result["me"] for p in outcome.processes] == [0, 1, 2]


def test_births_name_processes():
    assert birth(os.getpid()) == birth(os.getpid()) is not None
    assert birth(os.getpid()) != birth(1)
    assert birth(2**22 + 1) is None
