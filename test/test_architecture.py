"""The rules of the architecture that a program can check: levels of imports, restricted imports, clear code."""
import ast
import gc
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ROOT / "py"
KERNELS = ("gpu_extract/kernels/", "gpu_extract/vectors/", "gpu_extract/device/cuda/")
PROGRAMS = ("gpu_extract/cli/", "gpu_perf/cli/", "gpu_psf/cli/", "gpu_stress/cli/")
# module -> the only places where it may be imported: files or folders of the packages
ONLY_IN = {
    "mpi4py": ("gpu_extract/ranks/comm.py",),
    "cupy": ("gpu_extract/device/cuda/", "gpu_stress/backend.py"),
    "cupyx": ("gpu_extract/device/cuda/", "gpu_stress/backend.py"),
    "numba.cuda": (),
    "astropy": ("gpu_extract/io/",),
    "argparse": PROGRAMS,
    "time": ("gpu_extract/perf/",),
    "matplotlib": ("gpu_extract/figures/", "gpu_stress/figures.py"),
    # raw instructions: what vectors are made of, and what makes machine code of kernels
    "llvmlite": ("gpu_extract/vectors/raw.py", "gpu_extract/vectors/emit.py", "gpu_extract/kernels/compile_parts.py"),
    "os.environ": (*PROGRAMS, "gpu_extract/user_cache.py"),
    "os.getenv": PROGRAMS,
}
# a program may print another program's report
REPORTS = {("gpu_extract/cli/device_info.py", "gpu_stress"), ("gpu_perf/cli/perf.py", "gpu_stress")}


@cache
def sources() -> tuple[tuple[str, ast.Module], ...]:
    """Path from the packages' folder, and syntax tree, of every module; templates in etc/ are not modules."""
    paths = sorted(p for p in PACKAGES.rglob("*.py") if "etc" not in p.relative_to(PACKAGES).parts)
    gc.disable()              # a million nodes, all of which stay: garbage collection takes longer than parsing
    found = tuple((p.relative_to(PACKAGES).as_posix(), ast.parse(p.read_text(encoding="utf-8"))) for p in paths)
    gc.enable()
    return found


@cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All nodes of a module."""
    return tuple(ast.walk(tree))


@cache
def imports(tree: ast.Module) -> tuple[tuple[int, str], ...]:
    """Line and full name of every import, at the top or inside functions."""
    return tuple(_imports(tree))


def _imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.lineno, f"{node.value.id}.{node.attr}"          # os.environ, numba.cuda


def levels() -> dict[str, int]:
    """Unit (module or package) -> its level, from the list in doc/architecture.md."""
    text = (ROOT / "doc" / "architecture.md").read_text(encoding="utf-8")
    block = re.search(r"```levels\n(.*?)```", text, re.DOTALL)
    assert block is not None
    lines = block[1].splitlines()
    found = {name: number for number, line in enumerate(lines) for name in line.split()}
    assert len(found) == sum(len(line.split()) for line in lines), "a name stands on two levels"
    return found


def unit_of(path: str) -> str:
    """gpu_extract/solve/simd_solve.py -> solve; gpu_extract/plan.py -> plan; a sister package is one unit."""
    package, name, *_ = path.split("/")
    return name.removesuffix(".py") if package == "gpu_extract" else package


def unit_asked_for(name: str) -> str | None:
    """The unit of an import's full name; None if it is not ours."""
    package, _, rest = name.partition(".")
    if package in ("gpu_perf", "gpu_psf", "gpu_stress"):
        return package
    return rest.split(".")[0] if package == "gpu_extract" and rest else None


def test_imports_go_down_one_way() -> None:
    level = levels()
    wrong = []
    for path, tree in sources():
        unit = unit_of(path)
        if unit == "__init__":
            continue
        if unit not in level:
            wrong.append(f"{path}: {unit} has no place in the levels of doc/architecture.md")
            continue
        for line, name in imports(tree):
            other = unit_asked_for(name)
            if other is None or other in (unit, "__version__") or (path, other) in REPORTS:
                continue
            if other not in level:
                wrong.append(f"{path}:{line} imports {other}, which has no level")
            elif level[other] >= level[unit]:
                wrong.append(f"{path}:{line} imports {other}, which is not below {unit}")
    assert wrong == []


def test_every_level_exists() -> None:
    units = {unit_of(path) for path, _ in sources()} - {"__init__"}
    assert sorted(set(levels()) - units) == []


def test_imports_are_absolute() -> None:
    relative = [f"{path}:{node.lineno}" for path, tree in sources() for node in nodes(tree)
                if isinstance(node, ast.ImportFrom) and node.level]
    assert relative == []


@pytest.mark.parametrize("module", ONLY_IN)
def test_imported_in_one_place_only(module: str) -> None:
    allowed = ONLY_IN[module]
    wrong = [f"{path}:{line}" for path, tree in sources() for line, name in imports(tree)
             if (name == module or name.startswith(module + ".")) and not path.startswith(allowed)]
    assert wrong == []


def test_kernels_take_nothing_from_the_data_that_walk() -> None:
    """An edit of a data class recompiles no kernel: shared definitions are in arrays.py."""
    wrong = [f"{path}:{line} imports {name}" for path, tree in sources() for line, name in imports(tree)
             if ("/simd_" in path or path.startswith(("gpu_extract/vectors/", "gpu_extract/kernels/")))
             and unit_asked_for(name) in ("data", "errors", "config")]
    assert wrong == []


def test_the_package_itself_imports_nothing_heavy() -> None:
    tree = ast.parse((PACKAGES / "gpu_extract" / "__init__.py").read_text(encoding="utf-8"))
    assert {name.split(".")[0] for _, name in imports(tree)} <= {"importlib", "typing"}


def test_no_assert_and_no_bare_except() -> None:
    wrong = [f"{path}:{node.lineno}" for path, tree in sources() for node in nodes(tree)
             if isinstance(node, ast.Assert) or (isinstance(node, ast.ExceptHandler) and node.type is None)]
    assert wrong == []


def test_public_things_have_docstrings() -> None:
    kinds = (ast.FunctionDef, ast.ClassDef)
    wrong = []
    for path, tree in sources():
        scopes = [tree, *(node for node in tree.body if public_class(node))]
        things = [node for scope in scopes for node in scope.body if isinstance(node, kinds)]
        wrong += [f"{path}:{node.lineno} {node.name}" for node in things
                  if not node.name.startswith("_") and ast.get_docstring(node) is None]
        if tree.body and ast.get_docstring(tree) is None:
            wrong.append(f"{path}: no docstring")
    assert wrong == []


def public_class(node: ast.AST) -> bool:
    """Classes whose methods need docstrings; those of a derived class are explained by its base."""
    return isinstance(node, ast.ClassDef) and not node.bases and not node.name.startswith("_")


def test_functions_are_short_and_take_few_arguments() -> None:
    wrong = []
    for path, tree in sources():
        for node in nodes(tree):
            if not isinstance(node, ast.FunctionDef):
                continue
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            names = [a.arg for a in arguments if a.arg not in ("self", "cls")]
            body = [n for n in node.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
            lines = (node.end_lineno or 0) - (body[0].lineno if body else node.lineno)
            kernel = "/simd_" in path or path.startswith(KERNELS)      # kernels take arrays one by one
            if lines >= 60 or (len(names) > 8 and not kernel):
                wrong.append(f"{path}:{node.lineno} {node.name}: {lines} lines, {len(names)} arguments")
    assert wrong == []


def test_programs_are_four_lines() -> None:
    for path in sorted((ROOT / "bin").iterdir()):
        text = path.read_text(encoding="utf-8")
        if text.startswith("#!/usr/bin/env python3"):
            assert len(text.splitlines()) == 4, path.name
            called = r"import os, sys; sys\.path\.append\(os\.path\.realpath\(.*__file__.*/py\"\)\).*\n" \
                r"from gpu_(?:extract|perf|psf|stress)\.cli\.\w+ import main\nraise SystemExit\(main\(\)\)"
            assert re.search(called, text), path.name
            assert path.stat().st_mode & 0o111, f"{path.name} is not executable"


def test_kernels_that_programs_call_are_kept():
    """A kernel without cache=True is compiled with its callers; called from Python, it would be compiled in each
    run."""
    inner = {(Path(name).stem, node.name) for name, tree in sources() for node in tree.body if "njit" in kept(node)
             and "cache=True" not in kept(node)}
    assert len(inner) > 50
    wrong = [f"{name}:{call.lineno}" for name, tree in sources() for call in called_from_python(tree)
             if called(call, Path(name).stem) in inner]
    assert not wrong, wrong


def kept(node: ast.AST) -> str:
    """The decorators of a function, as text."""
    return " ".join(map(ast.unparse, getattr(node, "decorator_list", ())))


def called_from_python(node: ast.AST) -> Iterator[ast.Call]:
    """Calls that are not in a kernel."""
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.Call):
            yield part
        if not re.search("njit|intrinsic|overload", kept(part)):
            yield from called_from_python(part)


def called(call: ast.Call, module: str) -> tuple[str, str] | None:
    """Module and name of the called function."""
    if isinstance(call.func, ast.Name):
        return module, call.func.id
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        return call.func.value.id, call.func.attr
    return None
