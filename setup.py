"""What setup.cfg cannot say: README.md as a package index shows it, where relative links lead nowhere.

Where setup.cfg names the project's Source (project_urls), links lead there. Where it does not, a link to a file becomes
the file's name: all of them are in the source distribution.
"""
import re
from configparser import ConfigParser
from pathlib import Path

from setuptools import setup

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)([^)\s]+)\)")
ROOT = Path(__file__).parent


def for_an_index(text: str, source: str) -> str:
    """The text with links to `source`, the address of a folder of files that ends in /, or without links ("")."""
    def absolute(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        if source:
            return f"{picture}[{words}]({source}{target})"
        return f"({words}: {target})" if picture else words

    return LINK.sub(absolute, text)


def source_of(config: ConfigParser) -> str:
    """Where the files lie that README links to; empty where the project does not say."""
    lines = config.get("metadata", "project_urls", fallback="").splitlines()
    urls = dict(re.split(r"\s*=\s*", line, maxsplit=1) for line in lines if "=" in line)
    return f"{urls['Source'].rstrip('/')}/blob/HEAD/" if "Source" in urls else ""


if __name__ == "__main__":
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    setup(long_description=for_an_index(readme, source_of(settings)))
