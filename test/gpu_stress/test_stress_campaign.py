"""Campaigns of the stressor: killed and resumed, recorded failures, samples and their cost."""
import json
import resource
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from gpu_extract.errors import InputError
from gpu_perf.campaign import Command, run
from gpu_perf.outcomes import load
from gpu_stress.report import write_report
from gpu_stress.rows import read_campaign, sampler_cost
from gpu_stress.sampler import SHARE, Sampler, read_samples
from gpu_stress.sets import Product, commands
from gpu_stress.spec import Spec

PROGRAM = [sys.executable, str(Path(__file__).resolve().parents[2] / "bin" / "gpu_stress")]
SETS = ["--tests", "fft,copy,rand", "-s", "20x20,2x30x30", "-d", "float16,float64", "--procs", "1,2",
        "-c", "50", "--threads", "1"]                              # 3 x 2 x 2 x 2 = 24


def campaign(folder, *more, sets=SETS):
    return subprocess.run([*PROGRAM, "campaign", str(folder), *sets, *more], capture_output=True, text=True,
                          timeout=300)


def timeless(folder):
    """A report's content about sets without rates: the part that two runs must agree in."""
    rows = read_campaign(folder).rows
    return [(*r.key, r.procs, r.status, r.message, r.repeats, r.errors, r.checked, r.elements)
            for r in rows]


def test_a_campaign_of_24_sets_killed_and_started_again_reports_as_an_undisturbed_one(tmp_path):
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    done = campaign(undisturbed)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("24 sets: 24 ok; 0 of 1908 results wrong")        # 36 processes x 53

    state = killed / "campaign.jsonl"
    for stop_after in (5, 14):
        runner = subprocess.Popen([*PROGRAM, "campaign", str(killed), *SETS], stderr=subprocess.PIPE)
        limit = time.monotonic() + 120
        while not state.exists() or state.read_bytes().count(b'"kind": "outcome"') < stop_after:
            assert time.monotonic() < limit and runner.poll() is None
            time.sleep(0.01)
        runner.send_signal(signal.SIGKILL)
        runner.communicate()
        before = state.read_bytes().rpartition(b"\n")[0]
        kept = before.count(b'"kind": "outcome"')
        assert stop_after <= kept < 24
    resumed = campaign(killed)
    assert resumed.returncode == 0 and f"{kept} of 24 sets exist already, {24 - kept} to go" in resumed.stderr
    assert state.read_bytes().startswith(before)                   # what was stored has not been touched
    assert len(load(killed)) == 24
    assert state.read_bytes().count(b'"kind": "outcome"') == 24     # no set was completed twice
    assert timeless(killed) == timeless(undisturbed)
    headings = [line for line in write_report([str(killed)], str(tmp_path / "r1"), plots=False).splitlines()
                if line.startswith("numpy ")]
    others = [line for line in write_report([str(undisturbed)], str(tmp_path / "r2"), plots=False).splitlines()
              if line.startswith("numpy ")]
    assert [line.split()[:4] for line in headings] == [line.split()[:4] for line in others]
    assert len(headings) == 12 + 12                                # 12 of one process, 12 of sharing


def test_what_does_not_work_is_recorded_and_the_rest_goes_on(tmp_path):
    done = campaign(tmp_path, sets=["--tests", "copy,eigh", "-s", "20x20,1000000x1000000", "-d", "float16,float64",
                                    "--procs", "2", "-c", "5", "--threads", "1"])
    assert done.returncode == 0
    status = {(r.test, r.shape, r.dtype): (r.status, r.message) for r in read_campaign(tmp_path).rows}
    assert status["eigh", "20x20", "float16"][0] == "unsupported"
    assert status["copy", "1000000x1000000", "float64"][0] == "out of memory"
    assert "in 2 processes needs" in status["copy", "1000000x1000000", "float64"][1]
    assert status["copy", "20x20", "float16"] == status["eigh", "20x20", "float64"] == ("ok", "")
    assert "8 sets: " in done.stdout and "3 ok" in done.stdout and "0 of 48 results wrong" in done.stdout


def test_a_wrong_result_in_a_campaign_is_counted_and_named(tmp_path):
    done = campaign(tmp_path, "--plant-fault", "1:7", sets=["--tests", "fft", "-s", "20x20", "-d", "float64",
                                                            "--procs", "1,2", "-c", "20", "--threads", "1"])
    assert done.returncode == 1
    assert "gpu_stress: wrong: numpy-fft-20x20-float64-2p process 1 (pid " in done.stderr
    assert done.stdout.startswith("2 sets: 1 ok, 1 wrong; 1 of 69 results wrong")
    text = write_report([str(tmp_path)], str(tmp_path), plots=False)
    assert "results: 1 of 69 WRONG, in numpy fft 20x20 float64 with 2 processes" in text
    assert "process 1: 1 of 23 results wrong, first in cycle 7" in text


def test_a_batch_system_that_ends_the_job_gets_code_75_and_leaves_nothing_behind(tmp_path):
    runner = subprocess.Popen([*PROGRAM, "campaign", str(tmp_path), "--tests", "copy", "-s", "20x20", "-d",
                               "float64", "--procs", "2", "--seconds", "60", "--threads", "1"],
                              stderr=subprocess.PIPE, text=True)
    state, limit = tmp_path / "campaign.jsonl", time.monotonic() + 60
    while not (state.exists() and '"start"' in state.read_text()):
        assert time.monotonic() < limit and runner.poll() is None
        time.sleep(0.02)
    pids = [pid for pid, _ in json.loads(state.read_text().splitlines()[-1])["pids"]]
    runner.terminate()
    told = runner.communicate(timeout=30)[1]
    assert runner.returncode == 75 and told.splitlines()[-1].startswith("gpu_stress: error: interrupted")
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_another_machine_is_not_mixed_in(tmp_path):
    sets = ["--tests", "copy", "-s", "20x20", "-d", "float64", "--procs", "1", "-c", "5", "--no-samples"]
    assert campaign(tmp_path, sets=sets).returncode == 0
    assert not (tmp_path / "samples.jsonl").exists()
    described = json.loads((tmp_path / "machine.json").read_text())
    (tmp_path / "machine.json").write_text(json.dumps({**described, "host": "elsewhere"}))
    done = campaign(tmp_path, sets=sets)
    assert done.returncode == 2 and "was begun where host is 'elsewhere'" in done.stderr


BUSY = "import sys, threading, time\nt = time.time()\nwhile time.time() - t < float(sys.argv[1]): pass"


def test_samples_tell_what_processes_do_and_cost_less_than_one_per_cent(tmp_path):
    sampler = Sampler(tmp_path, interval=1.0)
    sleeping = Command("busy", (sys.executable, "-S", "-c", BUSY, "3.6"), procs=10)
    before = resource.getrusage(resource.RUSAGE_SELF)
    (outcome,) = run([sleeping], tmp_path, sampler=sampler)
    after = resource.getrusage(resource.RUSAGE_SELF)
    sampler.close()
    samples = read_samples(tmp_path)
    gaps = [b["t"] - a["t"] for a, b in pairwise(samples)]
    assert len(samples) >= 3 and min(gaps) >= 1.0
    seen = [sample["processes"] for sample in samples]
    last = [some for some in seen if len(some) == 10 and all(p["rss"] for p in some)][-1]     # before the first ends
    assert {p["pid"] for p in last} <= {p.pid for p in outcome.processes}
    spent = sum(p["cpu"] for p in last)
    assert 0.3 < spent <= 3.6 * 10
    for process in last:
        assert sum(process["threads"].values()) == pytest.approx(process["cpu"], abs=0.03)
        assert process["rss"] > 2**20
    cost = sum(s["cost"] for s in samples[1:]) / (samples[-1]["t"] - samples[0]["t"])
    assert cost < 0.01                                              # of one core, by its own account
    whole = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    assert whole / outcome.seconds < 0.05                           # runner, threads and start-up of ten included


def test_dear_samples_are_taken_less_often(tmp_path, monkeypatch):
    sampler = Sampler(tmp_path, interval=0.001)
    assert sampler("a", 0, {0: 1}) >= 0.001
    lines = read_samples(tmp_path)
    assert sampler("a", 0, {0: 1}) == pytest.approx(read_samples(tmp_path)[1]["cost"] / SHARE, rel=0.01)
    assert len(lines) == 1
    sampler.close()


def test_half_a_sample_of_a_killed_run_is_dropped(tmp_path):
    for _ in range(2):
        sampler = Sampler(tmp_path)
        sampler("a", 0, {0: 1})
        sampler.close()
        with open(tmp_path / "samples.jsonl", "a") as file:
            file.write('{"t": 17')
    assert len(read_samples(tmp_path)) == 2
    (tmp_path / "samples.jsonl").write_text("no\n")
    with pytest.raises(InputError, match="line 1, does not belong there"):
        read_samples(tmp_path)


def test_a_process_that_has_ended_is_left_out(tmp_path):
    sampler = Sampler(tmp_path)
    sampler("a", 0, {0: 2**22 + 5})
    sampler.close()
    assert read_samples(tmp_path)[0]["processes"] == []


def test_the_sets_are_the_outer_product():
    base = Spec("copy", count=None, seconds=2.0, copy=False)
    made = commands(Product(("numpy", "cupy"), ("copy", "fft"), ((10, 10), (20,)), ("float32",), (1, 3), base,
                            devices=(0, 1)))
    assert len(made) == 16 and len({c.name for c in made}) == 16
    assert [c.procs for c in made] == [1] * 8 + [3] * 8
    last = made[-1]
    assert last.name == "cupy-fft-20-float32-3p" and last.gate and last.timeout == 220
    assert last.facts["devices"] == [0, 1] and last.facts["copy"] is False and made[-3].facts["copy"] is True
    assert last.argv[last.argv.index("--devices") + 1] == "0,1" and "{process}/{procs}" in last.argv


def test_sampler_cost_leaves_pauses_out(tmp_path):
    sampler = Sampler(tmp_path)
    sampler("a", 0, {})
    sampler.close()
    (line,) = (tmp_path / "samples.jsonl").read_text().splitlines()
    made = [{**json.loads(line), "t": t, "cost": 0.001} for t in (0.0, 1.0, 2.0, 1000.0, 1001.0)]
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(m) + "\n" for m in made))

    class Folder:
        samples = read_samples(tmp_path)
    assert sampler_cost(Folder) == pytest.approx(0.001)
