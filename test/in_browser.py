"""A browser without a window, in which tests inspect pages."""
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ALLOWED = ("file:", "data:", "chrome:", "about:")


class Browser:
    """Chromium without a window; its network requests and its scripts' errors are recorded."""

    def __init__(self, driver: Any):
        self.driver = driver

    def open(self, page: Path) -> None:
        """Show a page."""
        self.driver.get(page.resolve().as_uri())

    def all(self, selector: str) -> list[Any]:
        """Elements by a CSS selector."""
        return list(self.driver.find_elements("css selector", selector))

    def text(self, selector: str) -> str:
        """The text shown by an element."""
        return str(self.driver.find_element("css selector", selector).text)

    def click(self, element: Any) -> None:
        """Click in the middle of an element, with the mouse."""
        from selenium.webdriver import ActionChains

        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        ActionChains(self.driver).move_to_element(element).click().perform()

    def requests(self) -> list[str]:
        """Addresses requested since the last call, except files and what is inside the page."""
        sent = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        found = [m["params"]["request"]["url"] for m in sent if m["method"] == "Network.requestWillBeSent"]
        assert found, "the log of requests is empty: it would hide one"
        return [url for url in found if not url.startswith(ALLOWED)]

    def prefer(self, scheme: str) -> None:
        """Set the user's preferred colour scheme: light or dark."""
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                    {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def complaints(self) -> list[str]:
        """Errors of scripts since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser; the test is skipped if there is none."""
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
