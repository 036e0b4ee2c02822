"""The pages of the site: those of doc/ as they are, and what stands beside them in the repository.

README.md is the front page, followed by the index; CONTRIBUTING.md and CHANGELOG.md are pages; the API reference lists
what the package makes public. Links that lead out of doc/ lead to the copies.
"""
import re
import shutil
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BESIDE = ("CONTRIBUTING.md", "CHANGELOG.md")                              # pages that lie beside doc/
SHOWN = ("Containerfile", "environment.yml", "CITATION.cff", "LICENSE")    # files that pages link to
LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)\s#]+)")
FENCE = re.compile(r"^```levels$", re.MULTILINE)                         # read by a test; plain text to a reader
NAV = {
    "Look": ("notebooks/one-spectrum", "gallery"),
    "Use": ("usage", "formats", "psf", "exposures", "homes", "mpi", "kernels", "gpu", "coming-from", "troubleshooting",
            "reliability", "stress", "performance-tools", "glossary"),
    "Call": ("api", "reference", "dependencies"),
    "Understand and change": ("method", "method-banded", "real-data", "performance", "scaling", "architecture",
                              "CONTRIBUTING", "CHANGELOG"),
}
REFERENCE = """# API reference

[api.md](api.md) explains the API, with examples that run. This page is made from the docstrings.
"""
SIMULATOR = ("simulate.config", "simulate.frame", "simulate.files")


def stage(folder: Path) -> None:
    """Lay out the sources of the site in `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "doc", folder, ignore=shutil.ignore_patterns("site", "__pycache__", ".ipynb_checkpoints"))
    for path in folder.rglob("*.md"):
        path.write_text(FENCE.sub("```text", inside(path.read_text(encoding="utf-8"))), encoding="utf-8")
    for name in BESIDE:
        (folder / name).write_text(from_root(read(name)), encoding="utf-8")
    for name in SHOWN:
        shutil.copy(ROOT / name, folder)
    index = inside((ROOT / "doc" / "index.md").read_text(encoding="utf-8"))
    front = from_root(read("README.md")) + "\n## All documentation\n" + index.partition("\n")[2]
    (folder / "index.md").write_text(front + toctrees(), encoding="utf-8")
    (folder / "reference.md").write_text(reference(), encoding="utf-8")


def read(name: str) -> str:
    """A file of the repository's root."""
    return (ROOT / name).read_text(encoding="utf-8")


def from_root(text: str) -> str:
    """The text of a page of the repository's root, as if it lay in doc/."""
    return LINK.sub(lambda m: m[1].removeprefix("doc/"), text)


def inside(text: str) -> str:
    """The text of a page of doc/, with links that stay within the site."""
    return LINK.sub(lambda m: m[1].removeprefix("../"), text)


def toctrees() -> str:
    """What the front page says of the order of pages."""
    return "".join("\n```{toctree}\n:hidden:\n:caption: " + title + "\n\n" + "\n".join(pages) + "\n```\n"
                   for title, pages in NAV.items())


def reference() -> str:
    """The page from which the API reference is made: one entry for each public name."""
    import gpu_extract
    from gpu_extract import errors, simulate

    parts = [REFERENCE, "## gpu_extract", *(entry(f"gpu_extract.{module}", name)
                                             for name, module in gpu_extract._PUBLIC.items())]
    parts += ["## gpu_extract.simulate", *(entry(f"gpu_extract.{module}", name) for module in SIMULATOR
                                            for name in own(f"gpu_extract.{module}") if name in simulate.__all__)]
    parts += ["## gpu_extract.errors", *(entry(errors.__name__, name) for name in own(errors.__name__)
                                          if isinstance(getattr(errors, name), type))]
    return "\n\n".join(parts) + "\n"


def own(module: str) -> list[str]:
    """Classes and functions that a module defines."""
    return [name for name, value in vars(import_module(module)).items() if callable(value)
            and getattr(value, "__module__", None) == module and not name.startswith("_")]


def entry(module: str, name: str) -> str:
    """The directive that shows a class or a function."""
    if isinstance(getattr(import_module(module), name), type):
        return f"```{{eval-rst}}\n.. autoclass:: {module}.{name}\n   :members:\n```"
    return f"```{{eval-rst}}\n.. autofunction:: {module}.{name}\n```"
