"""The pages in a real browser: points and components are clickable, the right commit is shown, nothing is fetched."""
import json
from pathlib import Path

import pytest

from gpu_extract.perf.record import parse_run
from gpu_perf.cli.track import main
from gpu_perf.run_report import Asked, report_of
from gpu_perf.store import Commit, Result, Store

COMMITS = 14


def record(number: int, seconds: float) -> dict:
    """The record of a run on two ranks."""
    spans = [["read", 0, 0.0, 0.2, 0.2, 0], ["extract", 0, 0.2, seconds, seconds, 0],
             ["bundle", 1, 0.2, 0.9 * seconds, seconds, 0],
             ["mpi gather", 1, 0.2 + 0.9 * seconds, 0.1 * seconds, 0.0, 0]]
    ranks = [{"rank": rank, "host": "n1", "epoch": 1.7e9, "start_up": 0.1, "elapsed": 0.2 + seconds, "cpu": seconds,
              "cores": 2, "peak_memory": 10**8, "spans": spans, "counters": {}, "calls": {}, "copies": {},
              "device": None} for rank in range(2)]
    return {"schema": 2, "program": "gpu_extract", "version": "0.1", "commit": f"{number:040x}", "ranks": ranks}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    with Store(folder / "track.sqlite") as store:
        store.add_commits(Commit(f"{n:040x}", 1.7e9 + 100_000 * n * n, f"Change <b>{n}</b></script> & more")
                          for n in range(1, COMMITS + 1))
        for n in range(1, COMMITS + 1):
            for repeat in range(3):
                time = (2.0 if n < 8 else 2.5) * (1 + 0.004 * ((5 * n + repeat) % 5))
                store.add_result(Result("p on m", f"{n:040x}", repeat, "m", record=record(n, time),
                                        measures={"run time": time, "solve": 0.2 * time, "% MPI": 8.0 + 0.01 * n}), n)
    assert main(["page", "--store", str(folder / "track.sqlite"), "-o", str(folder / "out")]) == 0
    return folder / "out"


def test_points_can_be_clicked_and_show_their_commit(browser, site: Path) -> None:
    browser.open(site / "index.html")
    points = browser.all("circle.point[data-component='run time']")
    assert [p.get_attribute("data-commit") for p in points] == [f"{n:040x}" for n in range(1, COMMITS + 1)]
    for number in (3, 8, COMMITS):
        browser.click(browser.all("circle.point[data-component='run time']")[number - 1])
        panel = browser.text("#detail")
        assert f"{number:040x}"[:12] in panel and f"Change <b>{number}</b></script> & more" in panel
        assert browser.driver.find_element("id", "detail").get_attribute("data-commit") == f"{number:040x}"
    assert "1.250" in browser.text("#detail")                    # 2.5 s against 2.0 s at the baseline
    assert browser.requests() == [] and browser.complaints() == []


def test_dates_are_to_scale(browser, site: Path) -> None:
    """Commit n was made 100 000 n^2 seconds after the first; positions on the axis follow."""
    browser.open(site / "index.html")
    x = [float(p.get_attribute("cx")) for p in browser.all("circle.point[data-component='run time']")]
    expected = [(n * n - 1) / (COMMITS**2 - 1) for n in range(1, COMMITS + 1)]
    assert [(v - x[0]) / (x[-1] - x[0]) for v in x] == pytest.approx(expected, abs=1e-6)


def test_a_component_can_be_isolated(browser, site: Path) -> None:
    browser.open(site / "index.html")
    assert {p.get_attribute("data-component") for p in browser.all("circle.point")} == {"run time", "solve", "% MPI"}
    browser.click(browser.all("#legend button[data-component='solve']")[0])
    assert {p.get_attribute("data-component") for p in browser.all("circle.point")} == {"solve"}
    browser.click(browser.all("#legend button[data-component='solve']")[0])
    assert len(browser.all("circle.point")) == 3 * COMMITS
    assert browser.complaints() == []


def test_the_regression_is_marked_at_its_commit(browser, site: Path) -> None:
    browser.open(site / "index.html")
    marks = browser.all("path.slower")
    assert {m.get_attribute("data-commit") for m in marks} == {f"{8:040x}"}
    assert {m.get_attribute("data-component") for m in marks} == {"run time", "solve"}
    assert browser.all("path.faster") == []
    assert "times what it was" in browser.text("ul.summary")


def test_a_commit_leads_to_its_full_report(browser, site: Path) -> None:
    browser.open(site / "index.html")
    browser.click(browser.all("circle.point[data-component='run time']")[4])
    browser.click(browser.all("#report")[0])
    assert "Where the time went" in browser.text("h1") and f"{5:040x}"[:10] in browser.text("h1")
    assert browser.driver.current_url.endswith(f"{5:040x}"[:12] + ".html")
    assert browser.requests() == [] and browser.complaints() == []


def test_the_report_on_a_run_shows_a_bar_for_every_stage(browser, tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    page.write_text(report_of(parse_run(json.loads(json.dumps(record(1, 3.0)))), Asked()).html())
    browser.open(page)
    bars = browser.all("svg.timeline rect")
    titles = [b.get_attribute("textContent") for b in bars]
    assert len(bars) == 2 * 5 and sum(t.startswith("bundle: 2.7") for t in titles) == 2
    widths = {t.split(":")[0]: b.rect["width"] for t, b in zip(titles, bars, strict=True)}
    assert widths["extract"] / widths["read"] == pytest.approx(15, rel=0.05)
    assert "POP metrics" in browser.text("body")
    assert browser.requests() == [] and browser.complaints() == []
