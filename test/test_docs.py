"""The documentation matches the programs: options, messages, presets, links, commands of the README."""
import argparse
import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from test_architecture import nodes, sources

ROOT = Path(__file__).resolve().parents[1]
DOC = ROOT / "doc"
PAGES = sorted([*(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING")), *DOC.glob("*.md")])
# program -> pages that must name every option of it
OPTIONS = {"gpu_extract.cli.extract": ("usage.md",), "gpu_extract.cli.exposure_options": ("usage.md",),
           "gpu_extract.cli.compare": ("usage.md",), "gpu_extract.cli.simulate": ("usage.md",),
           "gpu_perf.cli.perf": ("performance-tools.md",), "gpu_perf.cli.sweep": ("performance-tools.md",),
           "gpu_perf.cli.track": ("performance-tools.md",), "gpu_psf.cli.psf": ("psf.md",),
           "gpu_stress.cli.stress": ("stress.md",), "gpu_extract.cli.setup": ("homes.md",),
           "gpu_extract.cli.mps": ("gpu.md",)}
OTHERS = {"--cpus-per-task", "--gpu-bind", "--gpus", "--requeue", "--signal", "--oversubscribe"}    # of Slurm, Open MPI
# where a path in a page may begin, and files of other projects
BASES = tuple(ROOT / base for base in ("", "doc", "etc", "py", "py/gpu_extract", "py/gpu_extract/decorrelate"))
ELSEWHERE = {"metrics/mpi.py", "out/site/index.html"}
PROGRAMS = [".".join(path.relative_to(ROOT / "py").with_suffix("").parts) for path in (ROOT / "py").glob("*/cli/*.py")
            if "def build_parser" in path.read_text(encoding="utf-8")]
COMMON = {"-h", "--help", "-v", "--verbose", "--version", "--loglevel", "--log-times"}      # of all: in usage.md


def page(name: str) -> str:
    """Text of a page of doc/."""
    return (DOC / name).read_text(encoding="utf-8")


def parsers_of(program: str) -> list[argparse.ArgumentParser]:
    """The parser of the program, and those of its commands."""
    parsers = [importlib.import_module(program).build_parser()]
    for action in parsers[0]._actions:
        if isinstance(action, argparse._SubParsersAction):
            parsers += action.choices.values()
    return parsers


def options(program: str) -> set[str]:
    """Every option in the help of the program, or of one of its commands."""
    return {name for parser in parsers_of(program) for action in parser._actions if action.help != argparse.SUPPRESS
            for name in action.option_strings}


@pytest.mark.parametrize("program", OPTIONS)
def test_every_option_is_documented(program: str) -> None:
    for name in OPTIONS[program]:
        words = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", page(name)))
        assert sorted(options(program) - words - (COMMON if name != "usage.md" else set())) == []


def test_no_option_is_documented_that_does_not_exist() -> None:
    from gpu_extract.cli import options as module

    known = set().union(*(options(program) for program in PROGRAMS), OTHERS, module._REFUSED, {"--plant-fault"})
    for path in (ROOT / "bench").rglob("*.py"):
        known |= set(re.findall(r"--[a-z][\w-]*", path.read_text(encoding="utf-8")))
    for path in PAGES:
        if path.name != "CHANGELOG.md":         # of options that were
            assert set(re.findall(r"`(--[a-z][\w-]*)", path.read_text(encoding="utf-8"))) <= known, path.name
    assert set(re.findall(r"`(-[a-z])\b", page("usage.md"))) <= known


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_files_and_names_in_the_pages_exist(path: Path) -> None:
    """`folder/file.py` exists, and so does NAME in `folder/file.NAME`."""
    if path.name == "CHANGELOG.md":             # of files that were
        return
    for name in set(re.findall(r"`([a-z_]+/[\w/]*\w\.\w+)`", path.read_text(encoding="utf-8"))) - ELSEWHERE:
        if not any((base / name).exists() for base in BASES):
            module, _, word = name.rpartition(".")
            files = [file for base in BASES for file in (base / f"{module}.py", base / module / "__init__.py")]
            found = [file.read_text(encoding="utf-8") for file in files if file.exists()]
            assert any(re.search(rf"\b{word}\b", text) for text in found), name


def test_refused_options_are_in_coming_from() -> None:
    from gpu_extract.cli import options as module

    assert [name for name in module._REFUSED if f"`{name}`" not in page("coming-from.md")] == []


def test_what_coming_from_says_of_options_is_what_the_program_does() -> None:
    """Each option of an older code in the table is known here; options that the page calls refused are refused, the
    others are not."""
    from gpu_extract.cli import options as module

    known = module.build_parser()._option_string_actions
    table = page("coming-from.md").partition("## Options")[2].partition("## ")[0]
    rows = re.findall(r"^\| (.*) \| (.*) \|$", table, re.MULTILINE)
    said = {name: there for names, there in rows[1:] for name in re.findall(r"`(--?[\w-]+)", names)}
    assert len(said) > 30
    assert [name for name in said if name not in known] == []
    refused = {name for name, there in said.items() if "refused" in there}
    assert refused == {name for name in said if isinstance(known[name], module._Refuse)}


def messages() -> Iterator[str]:
    """Every message in the code, with ... for values that are filled in."""
    for _, tree in sources():
        docstrings = {id(node.value) for node in nodes(tree) if isinstance(node, ast.Expr)}
        for node in nodes(tree):
            if id(node) in docstrings:
                continue
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(v.value) if isinstance(v, ast.Constant) else "..." for v in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_messages_in_troubleshooting_are_those_of_the_code() -> None:
    there = list(messages())
    quoted = re.findall(r"^\| `(.+?)` \|", page("troubleshooting.md"), re.MULTILINE)
    assert len(quoted) > 30
    patterns = {text: re.compile(".*".join(re.escape(p) for p in re.split(r"\s*\.\.\.\s*", text)), re.DOTALL)
                for text in quoted}
    assert [text for text, pattern in patterns.items() if not any(pattern.search(t) for t in there)] == []


def test_every_step_of_the_mathematics_is_in_the_changelog() -> None:
    from gpu_extract.config import MATHEMATICS

    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (\d+) \| \w", text, re.MULTILINE) == [str(n + 1) for n in range(MATHEMATICS)]
    assert f"version of the mathematics (now {MATHEMATICS})" in text


def test_presets_are_those_of_the_documentation() -> None:
    from gpu_extract.io.presets import find_preset, presets

    for name in presets():
        preset = find_preset(name)
        grid = ",".join(f"{w:g}" for w in preset.wavelength)
        assert f"| {name} | {grid} | {preset.psferr:g} |" in page("usage.md"), name


def test_exit_codes_and_mask_bits_are_those_of_the_code() -> None:
    from gpu_extract.data import SpecMask
    from gpu_extract.errors import ExitCode

    codes = {int(c) for c in re.findall(r"^\| (\d+) \| [a-z]", page("usage.md"), re.MULTILINE)}
    assert codes == {int(code) for code in ExitCode}
    bits = dict(re.findall(r"^\| (\d+) \| ([A-Z0-9]+) \|", page("formats.md"), re.MULTILINE))
    assert bits == {str(bit.value): bit.name for bit in SpecMask}


def test_the_hdus_of_a_frame_are_documented() -> None:
    from gpu_extract.data import OUTPUTS

    written = page("formats.md").partition("## Written: the frame")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([A-Z0-9_]+)(?: \(primary\))? \| [fiu]\d ", written, re.MULTILINE)
    assert [output.hdu for output in OUTPUTS.values() if output.hdu not in rows] == []


def test_status_and_columns_of_bundles_are_those_of_the_code() -> None:
    import numpy as np

    from edge_files import small_frame
    from gpu_extract.data import Status
    from gpu_extract.io.facts import bundle_table, count_cards

    states = dict(re.findall(r"^\| ([A-Z_]+) \| (\d+) \|", page("formats.md"), re.MULTILINE))
    assert states == {state.name: str(state.value) for state in Status}
    frame = replace(small_frame(), status=np.zeros((4, 30), np.int8), notes={"bundles": {0: {"fibres": 5}}})
    table = bundle_table(frame)
    assert table is not None
    named = set(re.findall(r"\b[A-Z_]{2,}\b", page("formats.md"))) | {state.name for state in Status}
    assert [name for name in (*(table[0].dtype.names or ()), *(card.key for card in count_cards(frame)))
            if name not in named] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http:", "https:")):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name) if name else path
        assert file.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles}, target


def test_every_page_is_in_the_index() -> None:
    assert [p.name for p in DOC.glob("*.md") if p.name != "index.md" and f"({p.name})" not in page("index.md")] == []


def test_readme_has_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = dict(re.findall(r"<!-- ci: (\w+) -->\n+```sh\n(.*?)```", readme, re.DOTALL))
    assert set(commands) == {"job", "tests"}
    assert all(command.startswith("python3 -m venv .venv && ") for command in commands.values())
    assert "mpiexec -n 2" in commands["job"] and "--qa" in commands["job"]


def test_help_fits_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of every program and of every command: descriptions and examples are not wrapped by argparse."""
    monkeypatch.setenv("COLUMNS", "80")
    for program in PROGRAMS:
        parsers = parsers_of(program)
        assert [line for parser in parsers for line in parser.format_help().splitlines() if len(line) > 80] == []
