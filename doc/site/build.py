#!/usr/bin/env python3
"""Build the documentation's site: pip install -e '.[docs,plots]' && python doc/site/build.py [FOLDER [PAGES]]

FOLDER: where the site goes, default out/site; PAGES: other pages than those of this repository. Whatever is not right
is an error: a link that leads nowhere, a page that no other names, a notebook that does not run. The site needs no
server and fetches nothing.
"""
import sys
import tempfile
from pathlib import Path

from pages import ROOT, stage
from sphinx.cmd.build import main as sphinx


def main() -> int:
    """Build; returns Sphinx's exit code."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "out" / "site"
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(folder) / "pages"
        if len(sys.argv) < 3:
            stage(pages)
        here = str(Path(__file__).parent)
        return int(sphinx(["-q", "-E", "--fail-on-warning", "--keep-going", "-b", "html", "-c", here,
                           "-d", f"{folder}/trees", str(pages), str(target)]))


if __name__ == "__main__":
    raise SystemExit(main())
