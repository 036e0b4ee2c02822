"""The wheel, installed into an empty environment, works from any folder."""
import argparse
import configparser
import importlib
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from zipfile import ZipFile

import pytest

from gpu_extract.libraries import OLDEST

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = re.compile(r"(\S+) = (\S+):main")
MACRO = r"\.(TH|SH|SS|TP|PP|B|nf|fi|RS|RE)\b"
pytest.importorskip("setuptools", minversion="70.1", reason="building a wheel needs setuptools 70.1 or newer")


def run(*command: str | Path, cwd: Path) -> str:
    """Standard output of a command that must succeed, isolated from this test run's Python."""
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV_"))}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=keep, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy, so that the build leaves nothing in the clone."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "py", source / "py", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    build = "from setuptools import build_meta as b; import sys; b.build_wheel(sys.argv[1])"
    run(sys.executable, "-c", build, folder, cwd=source)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of a new environment with the wheel; the libraries are those of this environment."""
    folder = tmp_path_factory.mktemp("env")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    # a plain path: .pth files found there, such as an editable install of this project, do not count
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python


def test_the_wheel_has_the_data_and_no_cache(wheel: Path) -> None:
    packed = {name for name in ZipFile(wheel).namelist() if not name.endswith("/")}
    tree = ROOT / "py"
    wanted = {p.relative_to(tree).as_posix() for p in tree.rglob("*")
              if p.is_file() and "__pycache__" not in p.parts and (p.suffix in (".py", ".h") or "etc" in p.parts)}
    packed_here = {name for name in packed if ".dist-info/" not in name and ".data/data/share/" not in name}
    assert packed_here == wanted


def test_links_of_the_readme_in_the_wheel_lead_somewhere(wheel: Path) -> None:
    """On a package index there are no files beside the page."""
    text = ZipFile(wheel).read(next(n for n in ZipFile(wheel).namelist() if n.endswith("/METADATA"))).decode()
    assert "# gpu_extract" in text and "doc/usage.md" in text
    assert [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if not target.startswith("https:")] == []
    assert "Author: " in text and "Project-URL: " in text


def test_links_of_the_readme_once_the_project_has_an_address() -> None:
    names = runpy.run_path(str(ROOT / "setup.py"), run_name="not main")
    config = configparser.ConfigParser()
    config.read_string("[metadata]\nproject_urls =\n    Source = https://a.example/x/\n    Other = https://b.example\n")
    source = names["source_of"](config)
    assert source == "https://a.example/x/blob/HEAD/" and names["source_of"](configparser.ConfigParser()) == ""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    text = names["for_an_index"](readme, source)
    assert f"[doc/usage.md]({source}doc/usage.md)" in text and f"]({source}doc/figures/qa.png)" in text
    assert [t for t in re.findall(r"\]\(([^)\s]+)\)", text) if not t.startswith("https:")] == []


HELP = """
import runpy, sys
for module in sys.argv[1:]:
    sys.argv = [module, "--help"]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        assert not end.code, module
"""


def test_templates_are_in_the_wheel(python: Path, tmp_path: Path) -> None:
    """Those for Slurm and for workflows; the programs that they call exist."""
    out = run(python.parent / "gpu_setup", "templates", "jobs", cwd=tmp_path)
    made = {p.relative_to(tmp_path / "jobs").as_posix() for p in (tmp_path / "jobs").rglob("*") if p.is_file()}
    etc = ROOT / "etc"
    assert made == {p.relative_to(etc).as_posix() for top in ("slurm", "workflow") for p in (etc / top).iterdir()
                    if p.is_file()}
    assert out.count("written: ") == len(made)
    modules = {m for name in made for m in re.findall(r" -m (gpu_\w+\.cli\.\w+)",
                                                      (tmp_path / "jobs" / name).read_text(encoding="utf-8"))}
    assert len(modules) >= 4
    said = run(python, "-c", HELP, *sorted(modules), cwd=tmp_path).lower()
    assert said.count("usage: ") == len(modules), said


def test_programs_work_from_any_folder(python: Path, tmp_path: Path) -> None:
    where = run(python, "-c", "import gpu_extract; print(gpu_extract.__file__)", cwd=tmp_path)
    assert where.startswith(str(python.parents[1])), where
    for name in programs():
        out = run(python.parent / name, "--help", cwd=tmp_path)
        assert name in out.split("\n")[0], out


@pytest.fixture(scope="module")
def shared(python: Path) -> Path:
    """The environment's folder of manual pages and completions."""
    for tool in ("argparse_manpage", "shtab"):
        pytest.importorskip(tool, reason=f"manual pages and completion need {tool} where the wheel is built")
    return python.parents[1] / "share"


def test_every_program_has_a_manual_page(shared: Path) -> None:
    """With all of its options, its examples line by line, and no word that happens to be a troff macro."""
    for name in programs():
        page = (shared / "man" / "man1" / f"{name}.1").read_text(encoding="utf-8")
        assert re.search(rf"^\.SH NAME\n{name} \\- [A-Z]\w+ .{{20,}}$", page, re.MULTILINE), name
        assert page.splitlines()[0].endswith(f'"gpu_extract {setup()["metadata"]["version"]}" "gpu_extract"')
        module = next(m for m in PROGRAM.findall(setup()["options.entry_points"]["console_scripts"]) if m[0] == name)[1]
        words = set(re.findall(r"--[a-z][a-z-]+", page.replace("\\-", "-")))
        assert sorted(options(module) - words - {"--help"}) == [], name
        assert [line for line in page.splitlines() if re.match(r"['.]", line) and not re.match(MACRO, line)] == []
    examples = (shared / "man" / "man1" / "gpu_perf.1").read_text(encoding="utf-8").partition(".SH EXAMPLES\n")[2]
    assert examples.splitlines()[:2] == [
        ".nf", r"\&  gpu_extract \-o frame.fits \-\-perf run.json && gpu_perf report run.json"]


def test_manual_pages_have_all_that_the_help_says_below_the_options() -> None:
    """Also below those of commands; and no sentence is a heading."""
    pytest.importorskip("argparse_manpage", reason="manual pages need argparse_manpage")
    manual_page = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")["manual_page"]
    for name, module in PROGRAM.findall(setup()["options.entry_points"]["console_scripts"]):
        epilogs = [each.epilog or "" for each in parsers_of(module)]
        page = manual_page(importlib.import_module(module).build_parser(), "1")
        headings = re.findall(r"^\.SH (.*)$", page, re.MULTILINE)
        assert [line for line in headings if line.endswith(".")] == [], name
        plain = re.sub(r"^\\&", "", page, flags=re.MULTILINE).replace(r"\-", "-").replace(r"\e", "\\")
        lines = [line for text in epilogs for line in text.split("\n")]
        assert [line for line in lines if f"\n{line}\n" not in plain and line.upper() not in plain] == [], name


def test_a_shell_completes_commands_and_options(shared: Path, tmp_path: Path) -> None:
    folder = shared / "bash-completion" / "completions"
    assert {path.name for path in folder.iterdir()} == set(programs())
    assert {path.name for path in (shared / "zsh" / "site-functions").iterdir()} == {f"_{n}" for n in programs()}
    ask = ("source {0}/gpu_perf; COMP_WORDS=(gpu_perf {1}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
           "$(complete -p gpu_perf | sed 's/.*-F \\([^ ]*\\) .*/\\1/'); echo ${{COMPREPLY[@]}}")
    for words, expected in (("rep", "report"), ("report --foc", "--focus"), ("--log", "--loglevel --log-times")):
        assert run("bash", "-c", ask.format(folder, words), cwd=tmp_path).strip() == expected


def parsers_of(module: str) -> list[argparse.ArgumentParser]:
    """The parser of a program, and those of its commands."""
    parsers = [importlib.import_module(module).build_parser()]
    return parsers + [c for a in parsers[0]._actions if isinstance(a, argparse._SubParsersAction)
                      for c in a.choices.values()]


def options(module: str) -> set[str]:
    """Long options in the help of a program, or of one of its commands."""
    return {o for p in parsers_of(module) for a in p._actions if a.help != argparse.SUPPRESS
            for o in a.option_strings if o.startswith("--")}


def test_the_shipped_cut_out_is_found_and_whole(python: Path, tmp_path: Path) -> None:
    shape = run(python, "-c", "from gpu_extract.compare.selftest import load_cutout as c; r = c().reference; "
                "print(r.flux.shape, len(r.cards) > 0)", cwd=tmp_path)
    assert shape.split() == ["(20,", "100)", "True"]


def test_presets_are_found(python: Path, tmp_path: Path) -> None:
    code = "from gpu_extract.io.presets import find_preset; print(find_preset('desi-r'))"
    out = run(python, "-c", code, cwd=tmp_path)
    assert "5760.0, 7620.0, 0.8" in out


def programs() -> list[str]:
    """Names of the installed commands, from setup.cfg."""
    lines = setup()["options.entry_points"]["console_scripts"].split("\n")
    return [line.split("=")[0].strip() for line in lines if line.strip()]


def setup() -> configparser.ConfigParser:
    """setup.cfg."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    return config


def test_every_program_has_a_file_in_bin_and_a_command() -> None:
    python_files = {p.name for p in (ROOT / "bin").iterdir() if p.read_text(encoding="utf-8").startswith(
        "#!/usr/bin/env python3")}
    assert python_files == set(programs())


def test_every_program_can_be_run_as_a_module() -> None:
    """gpu_compare, gpu_psf and gpu_setup once did nothing, and ended with exit code 0."""
    for name, module in PROGRAM.findall(setup()["options.entry_points"]["console_scripts"]):
        done = subprocess.run([sys.executable, "-m", module, "--no-such"], text=True, capture_output=True, timeout=120)
        assert done.returncode == 2 and f"{name}: error: " in done.stderr, name


def from_the_clone(*words: str, cwd: Path, path: str = "", options: tuple[str, ...] = ()
                   ) -> "subprocess.CompletedProcess[str]":
    """A program of bin/, run by the Python from which this environment was made; path: additional places for imports;
    options: of Python."""
    environment = {**os.environ, "PYTHONPATH": path}
    python = [getattr(sys, "_base_executable", sys.executable), *options, *([] if path else ["-S"])]
    there = subprocess.run([*python, "-c", "import gpu_extract"], cwd=cwd, env=environment, capture_output=True)
    if there.returncode == 0:
        pytest.skip("the package is installed where no environment is")
    return subprocess.run([*python, str(ROOT / "bin" / words[0]), *words[1:]], cwd=cwd, env=environment, text=True,
                          capture_output=True, timeout=120)


def test_a_clone_works_without_being_installed(tmp_path: Path) -> None:
    """If the required libraries exist; so do the processes that it starts."""
    done = from_the_clone("gpu_stress", "copy", "-s", "10,10", "-c", "2", "--procs", "2", "--json", cwd=tmp_path,
                          path=sysconfig.get_path("purelib"))
    assert (done.returncode, done.stderr) == (0, "") and '"status": "ok"' in done.stdout


@pytest.mark.parametrize("options", [(), ("-P",), ("-I",)])        # -P: PYTHONSAFEPATH
def test_what_is_missing_is_said_in_one_line(options: tuple[str, ...], tmp_path: Path) -> None:
    done = from_the_clone("gpu_compare", "one.fits", "two.fits", cwd=tmp_path, options=options)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("gpu_compare: error: numpy is not installed for ") and "README" in done.stderr


@pytest.mark.parametrize(("name", "version"), [("scipy", "1.12.0"), ("numba", "0.67.0"), ("astropy", "7.0.2")])
def test_a_library_that_is_too_old_is_named(name: str, version: str, tmp_path: Path) -> None:
    """A clone that is not installed uses the libraries that it finds. Given an image, it compiles nothing before."""
    (tmp_path / "sitecustomize.py").write_text(f"import {name}\n{name}.__version__ = '{version}'", encoding="utf-8")
    command = [sys.executable, str(ROOT / "bin" / "gpu_extract"), "-i", "i.fits", "-o", "x.fits"]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True,
                          env=os.environ | {"PYTHONPATH": str(tmp_path)}, timeout=120)
    said = done.stderr.splitlines()[-1]
    assert done.returncode == 2 and said.startswith(f"gpu_extract: error: {name} is {version}, ") and "or newer" in said


def test_an_old_numpy_computes_nothing() -> None:
    """It silently rounds products of a number and an array to single precision; numba would fail first."""
    code = "import numpy; numpy.__version__ = '1.26.4'; import gpu_extract.data"
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, timeout=60)
    assert "TooOldError: numpy is 1.26.4, must be 2.0 or newer" in done.stderr


def test_the_oldest_libraries_are_those_that_are_asked_for() -> None:
    needed = setup()["options"]["install_requires"].split("\n")
    assert {f"{name}>={major}.{minor}" for name, (major, minor) in OLDEST.items()} <= set(needed)


def test_versions_agree() -> None:
    import gpu_extract

    version = setup()["metadata"]["version"]
    assert version == gpu_extract.__version__
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


CONDA_NAMES = {"isal": "python-isal"}     # where conda-forge uses another name


def test_every_dependency_is_in_the_conda_file_and_explained() -> None:
    conda = (ROOT / "environment.yml").read_text(encoding="utf-8")
    reasons = (ROOT / "doc" / "dependencies.md").read_text(encoding="utf-8")
    needed = [line for line in setup()["options"]["install_requires"].split("\n") if line]
    extras = [line for text in dict(setup()["options.extras_require"]).values() for line in text.split("\n") if line]
    for line in needed:
        name = re.split(r"[>=<]", line)[0]
        assert f"  - {line.replace(name, CONDA_NAMES.get(name, name))}\n" in conda, line
    for line in needed + extras:
        name = re.split(r"[>=<\[; ]", line)[0]
        assert name == "gpu_extract" or f"| {name} |" in reasons, name
