"""What setup.cfg cannot say: README.md as a package index shows it, manual pages, and completion for shells.

On an index relative links lead nowhere. Where setup.cfg names the project's Source (project_urls), links lead there.
Where it does not, a link to a file becomes the file's name: all of them are in the source distribution.

Manual pages and completion are made of the programs' parsers, which need nothing but Python, while a wheel is built.
They are left out where argparse-manpage and shtab are not installed (pyproject.toml has them installed for the build).
"""
import argparse
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


def sections(epilog: str, of: str) -> list[dict[str, str]]:
    """The sections that an epilog makes of a manual page; of: added to their headings.

    A paragraph with a heading and indented lines, such as the exit codes, is a section whose lines are kept. The other
    paragraphs are notes.
    """
    found, notes = [], []
    for paragraph in filter(None, epilog.replace("\\", r"\e").replace("-", r"\-").split("\n\n")):
        heading, *lines = (rf"\&{line}" for line in paragraph.split("\n"))
        if lines and all(line.startswith(r"\&  ") for line in lines):
            text = "\n".join(lines)
            found.append({"heading": heading.removeprefix(r"\&") + of, "content": f".nf\n{text}\n.fi"})
        else:
            notes.append("\n".join([heading, *lines]))
    return [*found, {"heading": f"notes{of}", "content": "\n.PP\n".join(notes)}] if notes else found


def manual_page(parser, version: str) -> str:
    """A program's manual page, with what stands below the options of the program and of its commands."""
    from argparse_manpage.manpage import Manpage

    commands = [each for action in parser._actions if isinstance(action, argparse._SubParsersAction)
                for each in action.choices.values()]
    parser._manpage = [section for each in (*commands, parser)
                       for section in sections(each.epilog or "", "" if each is parser else f" of {each.prog}")]
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
