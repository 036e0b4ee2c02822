"""Reports: figures worked out by hand from a campaign made by hand; self-contained pictures and a page."""
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from gpu_extract.errors import InputError, OutputError
from gpu_perf.tables import Table, number
from gpu_stress import figures
from gpu_stress.report import write_report
from gpu_stress.rows import cores_busy, gains, loads, read_campaign

NB = 80_000          # bytes of 100x100 float64


def process(index, start, seconds, cycles, errors=0):
    return {"index": index, "pid": 100 + index, "status": "wrong" if errors else "ok", "code": 0, "error": "",
            "started": start - 1, "ended": start + seconds, "result": {
                "status": "wrong" if errors else "ok", "message": f"{errors} wrong" if errors else "",
                "spec": {"copy": True, "device": 0}, "interval": [start, start + seconds], "cycles": cycles,
                "progress": [[0, start], [cycles, start + seconds]], "nbytes": NB, "up": NB * cycles,
                "down": 2 * NB * cycles, "flop": 1e6 * cycles, "errors": errors, "checked": cycles,
                "cycle": {"median": 0.009, "p16": 0.0089, "p84": 0.0092}}}


def outcome(module, test, dtype, procs, processes, status="ok", repeat=0):
    name = f"{module}-{test}-100x100-{dtype}-{procs}p"
    return {"kind": "outcome", "name": name, "repeat": repeat, "digest": "d", "status": status,
            "started": 1000.0, "seconds": 10.0, "interval": None, "processes": processes,
            "facts": {"module": module, "test": test, "shape": [100, 100], "elements": 10000, "dtype": dtype,
                      "procs": procs}}


def folder_of(path, outcomes, host="ada", samples=()):
    path.mkdir()
    names = list(dict.fromkeys((o["name"], o["digest"]) for o in outcomes))
    repeats = 1 + max(o["repeat"] for o in outcomes)
    plan = {"kind": "plan", "repeats": repeats, "commands": [{"name": n, "digest": d} for n, d in names]}
    (path / "campaign.jsonl").write_text("".join(json.dumps(x) + "\n" for x in [plan, *outcomes]))
    (path / "machine.json").write_text(json.dumps({
        "host": host, "processor": "Some CPU", "cores": 4, "memory": 8 * 2**30,
        "modules": {"numpy": {"module": "numpy", "version": "2", "device": "Some CPU"}}}))
    (path / "samples.jsonl").write_text("".join(json.dumps(s) + "\n" for s in samples))
    return path


def sample(t, name, cpu, gpus=(), cost=0.002):
    return {"t": t, "set": name, "repeat": 0, "cost": cost, "machine": {"cpu": 1.0, "available": 2**30},
            "processes": [{"n": i, "pid": 100 + i, "cpu": c, "rss": 2**29, "threads": {"1": c}}
                          for i, c in enumerate(cpu)], "gpus": list(gpus)}


def gpu(load, throttle=()):
    return {"index": 0, "load": load, "memory_load": 1, "memory_used": 2**30, "memory_total": 2**33, "clock_sm": 1400,
            "clock_memory": 1200, "power": 200.0, "temperature": 60, "throttle": list(throttle)}


@pytest.fixture
def made(tmp_path):
    a, b = "numpy-fft-100x100-float64-1p", "numpy-fft-100x100-float64-2p"
    return folder_of(tmp_path / "one", [
        outcome("numpy", "fft", "float64", 1, [process(0, 100.0, 10.0, 1000)]),            # 100 per second
        outcome("numpy", "fft", "float64", 2, [process(0, 200.0, 10.0, 900),               # 90 + 75 from 202 to 210
                                               process(1, 202.0, 12.0, 900)]),
        outcome("cupy", "fft", "float64", 1, [process(0, 300.0, 2.0, 1000)]),              # 500
        outcome("numpy", "eigh", "float16", 1, [{**process(0, 0, 1, 1), "status": "unsupported", "result": {
            "status": "unsupported", "message": "eigh does not support float16"}}], "unsupported"),
        outcome("numpy", "fft", "float32", 2, [process(0, 400.0, 10.0, 500), process(1, 400.0, 10.0, 500, 3)], "wrong"),
    ], samples=[sample(0.0, a, [0.1]), sample(1.0, a, [1.0], [gpu(90)]),
                sample(2.0, a, [1.9], [gpu(70, ["power cap"])]),
                sample(3.0, b, [0.0, 0.0]), sample(5.0, b, [1.0, 2.0])])


def test_rows_by_hand(made):
    rows = {(r.module, r.test, r.dtype, r.procs): r for r in read_campaign(made).rows}
    alone = rows["numpy", "fft", "float64", 1]
    assert (alone.rate, alone.one_way, alone.both_ways, alone.flops) == (100.0, 100 * NB, 300 * NB, 1e8)
    assert alone.spread == pytest.approx(0.00015 / 0.009) and alone.cycle == 0.009
    two = rows["numpy", "fft", "float64", 2]
    assert two.rate == pytest.approx(90 + 75)
    wrong = rows["numpy", "fft", "float32", 2]
    assert (wrong.status, wrong.errors, wrong.checked, wrong.message) == ("wrong", 3, 1000, "process 1: 3 wrong")
    missing = rows["numpy", "eigh", "float16", 1]
    assert (missing.status, missing.rate, missing.message) == ("unsupported", None, "eigh does not support float16")
    gain = gains(read_campaign(made).rows)
    assert gain[("numpy", "fft", "100x100", "float64"), 2] == pytest.approx(1.65)


def test_loads_by_hand(made):
    campaign = read_campaign(made)
    first, second = loads(campaign)
    assert first.cores == pytest.approx(0.9) and first.gpu_load == 80 and first.throttle == ("power cap",)
    assert first.hottest == 60 and first.gpu_memory == 2**30 and first.memory == 2**29
    assert second.cores == pytest.approx(1.5) and second.gpu_load is None
    assert [y for _, y in cores_busy(campaign.samples[:2])] == pytest.approx([0.9])


def test_the_text_reports_machines_sets_and_wrong_results(made, tmp_path):
    text = write_report([str(made)], str(tmp_path / "out"), plots=False)
    assert (tmp_path / "out" / "report.txt").read_text() == text
    assert "ada: Some CPU, 4 cores, 8.0 GiB; numpy 2 on Some CPU" in text
    assert "5 of 5 sets done: 3 ok, 1 unsupported, 1 wrong" in text
    assert "results: 3 of 4800 WRONG, in numpy fft 100x100 float32 with 2 processes" in text
    assert re.search(r"numpy   fft   100x100  float64  100 +8 +24 +0\.1 +9 ms +1\.7% +0/1000\n", text)
    assert re.search(r"numpy   fft   100x100  float64 +1\.00 \(100%\)\s+1\.65 \(82%\)", text)
    assert re.search(r"fft   100x100  float64  1 +100 +500 +5\n", text)                 # cupy against numpy
    assert "power cap" in text and re.search(r"numpy-fft-100x100-float64-1p +3 +0\.9 +0\.5 +80 ", text)


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found, self.tables, self.images = [], 0, 0

    def handle_starttag(self, tag, attrs):
        self.found += [value for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        self.tables += tag == "table"
        self.images += tag == "img"
        assert tag not in ("script", "link", "iframe")


def test_pictures_and_page_stand_alone(made, tmp_path):
    from matplotlib.image import imread

    out = tmp_path / "out"
    write_report([str(made)], str(out))
    files = {p.name for p in out.iterdir()}
    assert files == {"report.txt", "report.html", "rate.png", "sharing.png", "time.png", "modules.png"}
    for name in files - {"report.txt", "report.html"}:
        picture = imread(out / name)
        assert picture.shape[0] > 150 and len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 50
    page = (out / "report.html").read_text()
    links = Links()
    links.feed(page)
    assert links.images == 4 and links.tables == 5
    assert all(link.startswith(("data:image/png;base64,", "#")) for link in links.found)
    assert "url(" not in page and "@import" not in page
    anchors = {link[1:] for link in links.found if link.startswith("#")}
    assert anchors <= set(re.findall(r'id="([^"]+)"', page))
    assert 'class="summary bad"' in page


def test_two_machines_side_by_side(made, tmp_path):
    other = folder_of(tmp_path / "two", [outcome("numpy", "fft", "float64", 1, [process(0, 100.0, 10.0, 2500)])],
                      host="ada")
    out = tmp_path / "out"
    text = write_report([str(made), str(other)], str(out))
    assert "ada (two) against ada (one)" in text                        # equal names are distinguished
    assert re.search(r"numpy   fft   100x100  float64  1 +100 +250 +2\.5\n", text)
    assert {"rate-1.png", "rate-2.png", "machines-2.png"} <= {p.name for p in out.iterdir()}
    page = (out / "report.html").read_text()
    assert page.count("<img") == len(list(out.glob("*.png")))
    places = re.findall(r' id="([^"]+)"', page)
    assert re.findall(r'href="#([^"]+)"', page) == places and len(set(places)) == len(places)    # all tables of both


def test_repeats_give_medians(tmp_path):
    folder = folder_of(tmp_path / "r", [
        outcome("numpy", "fft", "float64", 1, [process(0, 100.0, 10.0, n)], repeat=i)
        for i, n in enumerate((900, 1100, 1000))])
    (row,) = read_campaign(folder).rows
    assert (row.repeats, row.rate, row.low, row.high) == (3, 100.0, 90.0, 110.0)


def test_pauses_are_cut_out_of_the_time_lines(made):
    samples = [{"t": t} for t in (0.0, 1.0, 2.0, 500.0, 501.0)]
    assert (60 * figures.running_minutes(samples)).tolist() == pytest.approx([0, 1, 2, 7, 8])


@pytest.mark.parametrize(("name", "value"), [
    ("interval", [3.0]), ("interval", None), ("progress", []), ("progress", [[1, 2], [3]]), ("cycles", 0),
    ("nbytes", "x"), ("cycle", {"median": 1.0}), ("flop", []), ("errors", None)])
def test_results_that_are_damaged_are_named(tmp_path, name, value):
    damaged = outcome("numpy", "fft", "float64", 1, [process(0, 100.0, 10.0, 1000)])
    damaged["processes"][0]["result"][name] = value
    with pytest.raises(InputError, match="the output of numpy-fft-100x100-float64-1p is damaged"):
        read_campaign(folder_of(tmp_path / "f", [damaged]))


@pytest.mark.parametrize(("name", "value"), [
    ("t", "x"), ("processes", [{}]), ("gpus", [1]), ("gpus", [{"index": 0, "load": "x"}]), ("set", None)])
def test_samples_that_are_damaged_are_named(tmp_path, name, value):
    bad = {**sample(0.0, "a", [0.1]), name: value}
    folder = folder_of(tmp_path / "f", [outcome("numpy", "fft", "float64", 1, [process(0, 100.0, 10.0, 1000)])],
                       samples=[bad])
    with pytest.raises(InputError, match="line 1, does not belong there"):
        read_campaign(folder)


def test_folders_that_hold_something_else(tmp_path, made):
    with pytest.raises(InputError, match="holds no campaign"):
        write_report([str(tmp_path)], str(tmp_path))
    other = tmp_path / "other"
    other.mkdir()
    (other / "campaign.jsonl").write_text('{"kind": "plan", "repeats": 1, "commands": []}\n')
    with pytest.raises(InputError, match=r"holds no campaign of gpu_stress"):
        write_report([str(other)], str(tmp_path))
    foreign = outcome("numpy", "fft", "float64", 1, [process(0, 0.0, 1.0, 1)])
    foreign["facts"] = {"ranks": 2}
    with pytest.raises(InputError, match="a campaign of another program"):
        read_campaign(folder_of(tmp_path / "foreign", [foreign]))
    machine = made / "machine.json"
    machine.write_text(machine.read_text().replace('"cores": 4', '"cores": "four"'))
    with pytest.raises(InputError, match="does not describe a machine"):
        read_campaign(made)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="is not a folder"):
        write_report([str(made)], str(tmp_path / "file" / "out"))


def test_tables_and_numbers_as_text():
    table = Table("T", ("name", "n"), (("a", "1"), ("long", "22")), "A note.")
    assert table.text() == "T\n-\nname   n\na      1\nlong  22\nA note.\n"
    assert [number(x) for x in (None, 0.0, 12.3456, 12345.6, 0.01234567, 1e-5, 2.5e7)] == [
        "-", "0", "12.35", "12346", "0.01235", "1e-05", "2.5e+07"]


ALONE, PAIR = "numpy-fft-100x100-float64-1p", "numpy-fft-100x100-float64-2p"


def shared(path, cycles, samples=(), procs=2, alone=1000):
    """A campaign in which one process does 1000 cycles, and each of several so many, in the same time."""
    return folder_of(path, [outcome("numpy", "fft", "float64", 1, [process(0, 100.0, 10.0, alone)]),
                            outcome("numpy", "fft", "float64", procs, [process(i, 200.0, 10.0, cycles)
                                                                       for i in range(procs)])], samples=samples)


def busy(t, name, machine, cpu):
    """A sample of one process, with the CPU seconds of the whole machine."""
    made = sample(t, name, [cpu])
    made["machine"]["cpu"] = machine
    return made


@pytest.fixture
def undrawn(monkeypatch):
    """A page without its pictures, which take most of the time."""
    monkeypatch.setattr(figures, "draw", lambda *_: [])


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("cycles", "more", "words"), [
    (1960, {}, "NOT QUIET: 2 processes did 3.92 times the work of one alone in numpy fft 100x100 float64, which "),
    (950, {"samples": [busy(0.0, ALONE, 0.0, 0.0), busy(2.0, ALONE, 5.0, 2.0)]},
     f"NOT QUIET: other work kept 1.5 cores busy during {ALONE}"),
    (400, {"procs": 5}, "SHARED CORES: 5 processes shared 4 cores")])
def test_a_campaign_on_a_machine_that_was_not_quiet_is_not_green(tmp_path, cycles, more, words):
    out = tmp_path / "out"
    text = write_report([str(shared(tmp_path / "one", cycles, **more))], str(out))
    assert words in text and "Verdict: results are right, but rates are not fit for conclusions: run it" in text
    assert 'class="summary bad"' in (out / "report.html").read_text()


def test_repeats_that_differ_are_a_doubt(tmp_path):
    folder = folder_of(tmp_path / "r", [outcome("numpy", "fft", "float64", 1, [process(0, 100.0, 10.0, n)], repeat=i)
                                        for i, n in enumerate((1000, 1300))])
    assert "repeats of numpy fft 100x100 float64 with 1 processes differ by a factor of 1.30" in write_report(
        [str(folder)], str(tmp_path / "out"), plots=False)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("cycles", "words"), [
    (950, "Verdict: fit, and shared well: at least 2 processes do 1.90 times the work of one in numpy fft"),
    (700, "Verdict: fit, but not shared well: 2 processes do 1.40 times the work of one in numpy fft 100x100 float64: "
          "more processes gain little."),
    (500, "give each process its own machine (GPU).")])
def test_a_quiet_campaign_ends_in_a_sentence(tmp_path, cycles, words):
    quiet = [busy(0.0, ALONE, 0.0, 0.0), busy(2.0, ALONE, 2.1, 2.0)]
    out = tmp_path / "out"
    text = write_report([str(shared(tmp_path / "one", cycles, quiet))], str(out))
    assert words in text and "NOT QUIET" not in text
    assert words in (out / "report.html").read_text() and 'class="summary bad"' not in (out / "report.html").read_text()


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("first", "last", "words"), [
    ({"ecc_uncorrected": 3}, {"ecc_uncorrected": 5}, "GPU 0 had 2 memory errors that it could not correct"),
    ({"xids": []}, {"xids": [79, 48]}, "GPU 0 reported XID 48, 79")])
def test_a_gpu_with_errors_is_not_fit_although_results_are_right(tmp_path, first, last, words):
    samples = [sample(t, ALONE, [float(t)], [{**gpu(90), **more}]) for t, more in ((0.0, first), (2.0, last))]
    for s in samples:
        s["machine"]["cpu"] = s["t"]
    text = write_report([str(shared(tmp_path / "one", 950, samples))], str(tmp_path / "out"))
    assert f"Verdict: not fit: {words}: take the GPU out of use" in text
    assert 'class="summary bad"' in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.usefixtures("undrawn")
def test_errors_from_before_and_corrected_ones_leave_it_fit(tmp_path):
    samples = [sample(t, ALONE, [float(t)], [{**gpu(90), "ecc_uncorrected": 3, "ecc_corrected": n, "xids": []}])
               for t, n in ((0.0, 1), (2.0, 5))]
    for s in samples:
        s["machine"]["cpu"] = s["t"]
    text = write_report([str(shared(tmp_path / "one", 950, samples))], str(tmp_path / "out"))
    assert "MEMORY: GPU 0 corrected 4 errors" in text and "Verdict: fit, and shared well" in text


def test_wrong_and_lost_sets_are_no_verdict_on_rates(made, tmp_path):
    assert "Verdict: not fit: 3 results are WRONG: take this machine out of use" in write_report(
        [str(made)], str(tmp_path / "out"), plots=False)
    killed = {**process(0, 0, 1, 1), "status": "killed", "result": None}
    lost = folder_of(tmp_path / "lost", [outcome("numpy", "fft", "float64", 1, [killed], "killed")])
    assert "Verdict: not judged: 1 sets did not end well" in write_report([str(lost)], str(tmp_path / "o"), plots=False)
