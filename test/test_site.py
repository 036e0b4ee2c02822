"""The documentation as a site: built strictly, with the notebook run; shown in a browser without network requests."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from in_browser import Browser

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "doc" / "site"
sys.path.append(str(SITE))     # not a package: its files belong to the site
NOTEBOOK = ROOT / "doc" / "notebooks" / "one-spectrum.ipynb"
PICTURES = ROOT / "doc" / "figures" / "gallery"


def test_docstrings_become_lists() -> None:
    from docstrings import as_rst

    text = "Extract.\n\nimage: electrons; psf: of data|x|\nmore of it\nReturns `it`, a*b.\nRaises no_ one."
    assert as_rst(text) == ("Extract.\n\n- ``image``: electrons\n- ``psf``: of data\\|x\\|\n  more of it\n\n"
                            "Returns ``it``, a\\*b.\nRaises no\\_ one.")


def test_every_page_has_a_place(tmp_path: Path) -> None:
    from pages import NAV, stage

    stage(tmp_path / "pages")
    there = {p.relative_to(tmp_path / "pages").with_suffix("").as_posix()
             for p in (tmp_path / "pages").rglob("*") if p.suffix in (".md", ".ipynb")} - {"index"}
    assert there == {name for names in NAV.values() for name in names}
    front = (tmp_path / "pages" / "index.md").read_text(encoding="utf-8")
    assert "](doc/" not in front and "](../" not in front


def test_the_notebook_is_kept_without_output() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert [c["id"] for c in cells if c["cell_type"] == "code" and (c["outputs"] or c["execution_count"])] == []


def test_the_gallery_has_the_pictures_that_are_made() -> None:
    text = (ROOT / "doc" / "gallery.md").read_text(encoding="utf-8")
    script = (ROOT / "bench" / "gallery.py").read_text(encoding="utf-8")
    made = set(re.findall(r'^    "([\w-]+)": Case\(', script, re.MULTILINE))
    assert made == {p.stem for p in PICTURES.glob("*.png")} == set(re.findall(r"gallery/([\w-]+)\.png", text))
    assert max(p.stat().st_size for p in PICTURES.glob("*.png")) < 300_000


def run(script: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a script of the site's folder."""
    return subprocess.run([sys.executable, str(SITE / script), *map(str, words)], text=True, capture_output=True,
                          timeout=300, env=os.environ)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built."""
    for name in ("sphinx", "furo", "myst_nb"):
        pytest.importorskip(name, reason="the site is not built here: pip install -e '.[docs]'")
    target = tmp_path_factory.mktemp("site")
    done = run("build.py", target)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_the_site_is_whole(site: Path) -> None:
    pages = {p.relative_to(site).with_suffix("").as_posix() for p in site.rglob("*.html")}
    assert {"index", "usage", "reference", "gallery", "notebooks/one-spectrum", "CHANGELOG"} <= pages
    notebook = (site / "notebooks" / "one-spectrum.html").read_text(encoding="utf-8")
    assert notebook.count('class="cell_output') >= 6 and notebook.count("<img") >= 3
    assert "standard deviation" in notebook and "Traceback" not in notebook
    reference = (site / "reference.html").read_text(encoding="utf-8")
    assert 'id="gpu_extract.run.extract"' in reference and 'id="gpu_extract.data.Frame"' in reference


def test_what_leads_nowhere_is_an_error(site: Path, tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    faults = {"[x](nowhere1.md)": "nowhere1", "[x](index.md#nowhere2)": "nowhere2", "![x](nowhere3.png)": "nowhere3",
              "```{eval-rst}\n.. autofunction:: gpu_extract.nowhere4\n```": "nowhere4"}
    (pages / "index.md").write_text("# Title\n\n" + "\n\n".join(faults), encoding="utf-8")
    done = run("build.py", tmp_path / "wrong", pages)
    assert done.returncode != 0
    assert [word for word in faults.values() if word not in done.stderr] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_site_in_a_browser(site: Path, browser: Browser, scheme: str) -> None:
    """Text and background differ in both schemes, the search finds a word, and nothing is fetched."""
    browser.prefer(scheme)
    for page in ("index.html", "notebooks/one-spectrum.html", "gallery.html", "reference.html"):
        browser.open(site / page)
        broken = browser.driver.execute_script(
            "return [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)")
        assert broken == [] and len(browser.all("h1")) >= 1, page
        ground = lightness(browser, "body", "background-color")
        text = lightness(browser, "article p", "color")
        right = (ground > 0.9 and text < 0.3) if scheme == "light" else (ground < 0.2 and text > 0.6)
        assert right, (page, ground, text)
    assert browser.requests() == []
    assert browser.complaints() == []


def lightness(browser: Browser, selector: str, what: str) -> float:
    """Lightness of a colour of the first such element, 0 (black) to 1 (white)."""
    value = browser.all(selector)[0].value_of_css_property(what)
    red, green, blue = (float(x) for x in re.findall(r"[\d.]+", value)[:3])
    return (0.299 * red + 0.587 * green + 0.114 * blue) / 255
