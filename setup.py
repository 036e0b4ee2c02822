"""What setup.cfg cannot say: README.md as a package index shows it, manual pages, and completion for shells.

On an index relative links lead nowhere. Where setup.cfg names the project's Source (project_urls), links lead there.
Where it does not, a link to a file becomes the file's name: all of them are in the source distribution.

Manual pages and completion are made of the programs' parsers, which need nothing but Python, while a wheel is built.
They are left out where argparse-manpage and shtab are not installed (pyproject.toml has them installed for the build).
"""
import os
import re
import sys
from configparser import ConfigParser
from importlib import import_module
from pathlib import Path

from setuptools import setup
from setuptools.command.install import install

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)([^)\s]+)\)")
ROOT = Path(__file__).parent
# shell -> folder below the environment's, name of a program's file in it
COMPLETION = {"bash": ("share/bash-completion/completions", "{}"), "zsh": ("share/zsh/site-functions", "_{}")}


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


def manual_page(parser, version: str) -> str:
    """A program's manual page; the examples and exit codes of its epilog stay in lines."""
    from argparse_manpage.manpage import Manpage

    parser._manpage = []
    for heading, lines in re.findall(r"^(\S.*?):?\n((?:  .*\n?|\n)+)", parser.epilog or "", re.MULTILINE):
        text = "\n".join(rf"\&{line}" for line in lines.rstrip().replace("\\", r"\e").replace("-", r"\-").split("\n"))
        parser._manpage.append({"heading": heading, "content": f".nf\n{text}\n.fi"})
    parser.epilog = None
    first = re.split(r"[.:;](?:\s|$)", " ".join(parser.description.split()))[0]
    return str(Manpage(parser, {"project_name": "gpu_extract", "version": version, "manual_title": "gpu_extract",
                                "description": first}))


def files_of_programs(config: ConfigParser, folder: Path) -> list[tuple[str, list[str]]]:
    """Manual pages and completions, written below `folder`, as setuptools' data_files."""
    import shtab

    sys.path.insert(0, str(ROOT / "py"))
    os.environ["COLUMNS"] = "100"           # of the usage lines, whatever terminal this is
    found: dict[str, list[str]] = {}
    for line in filter(None, config["options.entry_points"]["console_scripts"].split("\n")):
        name, module = re.fullmatch(r"\s*(\S+) = (\S+):main", line).groups()
        texts = {(place, file.format(name)): shtab.complete(import_module(module).build_parser(), shell)
                 for shell, (place, file) in COMPLETION.items()}
        texts["share/man/man1", f"{name}.1"] = manual_page(import_module(module).build_parser(),
                                                           config["metadata"]["version"])
        for (place, file), text in texts.items():
            path = folder / place / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            found.setdefault(place, []).append(str(path))
    return sorted(found.items())


class Install(install):
    """Installing, which is also how a wheel is made, puts manual pages and completion beside the programs."""

    def run(self) -> None:
        try:
            import argparse_manpage  # noqa: F401
            import shtab  # noqa: F401
        except ImportError as error:
            self.warn(f"no manual pages and no completion: {error}")
        else:
            build = Path(self.get_finalized_command("build").build_base)
            self.distribution.data_files = files_of_programs(settings, build / "programs")
        super().run()


if __name__ == "__main__":
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    setup(long_description=for_an_index(readme, source_of(settings)), cmdclass={"install": Install})
