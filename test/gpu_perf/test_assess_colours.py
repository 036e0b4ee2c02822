"""The reports in light and dark mode: all text is readable, and pictures drawn on white do not glare."""
import re
from pathlib import Path

import pytest

from gpu_perf.tables import Table
from gpu_perf.webpage import document, figure_html, summary_html, table_html
from in_browser import Browser

LEGIBLE = 4.5            # contrast of text, WCAG 2.2, 1.4.3
WRITTEN = ("h1", "ul.summary li", "ul.bad li", "p.note", "td.bad", "td.l", "a")


def luminance(colour: tuple[float, ...]) -> float:
    """Relative luminance of an sRGB colour, WCAG 2.2."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def colour_of(browser: Browser, selector: str, what: str) -> tuple[float, ...]:
    """A colour as computed by the browser: red, green, blue, opacity."""
    words = re.findall(r"[\d.]+", browser.all(selector)[0].value_of_css_property(what))
    return (*(float(w) / 255 for w in words[:3]), float(words[3]) if len(words) > 3 else 1.0)


def over(front: tuple[float, ...], ground: tuple[float, ...]) -> tuple[float, ...]:
    """A translucent colour over a background."""
    return tuple(front[3] * f + (1 - front[3]) * g for f, g in zip(front[:3], ground[:3], strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_written_can_be_read(browser: Browser, tmp_path: Path, scheme: str) -> None:
    from matplotlib.figure import Figure

    Figure().savefig(tmp_path / "p.png", dpi=20)
    table = Table("Some", ("name", "state"), (("a", "wrong"), ("b", "fine")), "a note")
    (tmp_path / "page.html").write_text(document("Title", [
        "<h1>Title</h1>", summary_html(["well"]), summary_html(["not"], bad=True), table_html(table),
        figure_html(tmp_path / "p.png", "Picture", "p"), '<nav><a href="#p">there</a></nav>']), encoding="utf-8")
    browser.prefer(scheme)
    browser.open(tmp_path / "page.html")
    ground = (1.0, 1.0, 1.0) if scheme == "light" else browser.driver.execute_script(
        "const d = document.createElement('div'); d.style.color = 'Canvas'; document.body.append(d);"
        "return getComputedStyle(d).color.match(/[0-9.]+/g).slice(0, 3).map(x => x / 255)")
    assert (luminance(tuple(ground)) > 0.9) == (scheme == "light")
    for selector in WRITTEN:
        behind = tuple(ground)
        if "li" in selector:
            behind = over(colour_of(browser, selector.split()[0], "background-color"), behind)
        dark, bright = sorted((luminance(colour_of(browser, selector, "color")[:3]), luminance(behind)))
        assert (bright + 0.05) / (dark + 0.05) >= LEGIBLE, (selector, scheme)
    turned = "invert" in browser.all("img")[0].value_of_css_property("filter")
    assert turned == (scheme == "dark")
    browser.prefer("light")
