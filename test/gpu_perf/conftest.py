"""A browser without a window, a small frame on disk, and a small project with commits."""
import json
import shutil
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from assess_project import git

from gpu_extract.simulate import SimConfig, simulate, write_simulation

GRID = "6012,6098,0.8"
ALLOWED = ("file:", "data:", "chrome:", "about:")
# a project whose gpu_extract sleeps and writes a record: SECONDS stands for what the commit's code takes
PROGRAM = """
    import json, sys, time
    from gpu_extract.perf.record import whole
    from gpu_extract.perf.recorder import Recorder

    recorder = Recorder()
    with recorder.span("extract"):
        with recorder.span("bundle"):
            time.sleep(SECONDS)
        with recorder.span("mpi gather"):
            time.sleep(0.2 * SECONDS)
    record = whole([recorder.record()], {"program": "gpu_extract", "version": "0", "commit": "COMMIT"})
    open(sys.argv[sys.argv.index("--perf") + 1], "w").write(json.dumps(record))
"""


@pytest.fixture(scope="session")
def small_frame(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Options of gpu_extract that name a frame of two bundles of five fibres."""
    folder = tmp_path_factory.mktemp("frame")
    image, psf = folder / "image.fits", folder / "psf.fits"
    write_simulation(simulate(SimConfig(camera="tiny", seed=11)), image, psf=psf)
    return "-i", str(image), "-p", str(psf), "-w", GRID, "--loglevel", "warning"


Project = Callable[..., Path]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Makes a project of commits a day apart: seconds of each, None where it cannot run."""
    def made(*seconds: float | None) -> Path:
        folder = tmp_path / "project"
        (folder / "bin").mkdir(parents=True)
        git(folder, "init", "-q", "-b", "main")
        for day, each in enumerate(seconds, 1):
            text = textwrap.dedent(PROGRAM).replace("SECONDS", str(each)) if each is not None else "this is no Python\n"
            (folder / "bin" / "gpu_extract").write_text(text)
            git(folder, "add", "-A")
            date = f"2026-01-{day:02d}T12:00:00+0000"
            git(folder, "-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-m",
                f"Change {day}",
                GIT_AUTHOR_DATE=date, GIT_COMMITTER_DATE=date)
        return folder

    return made


class Browser:
    """Chromium without a window; what it asks the network for, and what its scripts complain of, is kept."""

    def __init__(self, driver: Any):
        self.driver = driver

    def open(self, page: Path) -> None:
        """Show a page."""
        self.driver.get(page.resolve().as_uri())

    def all(self, selector: str) -> list[Any]:
        """Elements by a CSS selector."""
        return list(self.driver.find_elements("css selector", selector))

    def text(self, selector: str) -> str:
        """What an element shows."""
        return str(self.driver.find_element("css selector", selector).text)

    def click(self, element: Any) -> None:
        """Click in the middle of an element, with the mouse."""
        from selenium.webdriver import ActionChains

        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        ActionChains(self.driver).move_to_element(element).click().perform()

    def requests(self) -> list[str]:
        """Addresses asked for since the last call, but for files and what is inside the page."""
        sent = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        found = [m["params"]["request"]["url"] for m in sent if m["method"] == "Network.requestWillBeSent"]
        assert found, "the log of requests is empty: it would hide one"
        return [url for url in found if not url.startswith(ALLOWED)]

    def complaints(self) -> list[str]:
        """Errors of scripts since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser; skipped where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium: pip install selenium")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no Chromium with its driver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--window-size=1300,1400", "--disable-background-networking", "--disable-component-update"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    started.set_page_load_timeout(60)
    yield Browser(started)
    started.quit()
