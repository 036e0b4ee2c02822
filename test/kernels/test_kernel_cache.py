"""Cached kernels match the sources, are complete and ours, or are made anew; and the run continues."""
import ast
import io
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from numba import __version__ as numba_version
from numba import njit
from numba.core import environment

from gpu_extract.kernels import kernel_cache, kernel_digest, kernel_load
from gpu_extract.kernels.kernel_cache import KernelCache, constants, name_of
from gpu_extract.kernels.kernel_store import ENDING, Store, places

PACKAGE = Path(kernel_digest.__file__).parents[1]
DIGEST = "0123456789abcdef" * 4
NAME = f"some.kernel.0{ENDING}"


def imported(path: Path) -> set[Path]:
    """The modules of this package that a module imports, at the top or in functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            file = PACKAGE.parent.joinpath(*name.split(".")).with_suffix(".py")
            if name.startswith("gpu_extract.") and file.exists():
                found.add(file)
    return found


def test_all_that_a_kernel_is_made_from_is_digested() -> None:
    """Modules with cached functions, their imports, and so on: helpers, intrinsics, constants."""
    wanted = {path for path in PACKAGE.rglob("*.py") if "njit(" in path.read_text(encoding="utf-8")
              and "cache=True" in path.read_text(encoding="utf-8")}
    assert len(wanted) > 25
    while True:
        more = {file for path in wanted for file in imported(path)} | wanted
        if more == wanted:
            break
        wanted = more
    keepers = {path for path in wanted if path.name.startswith("kernel_") or path.name == "user_cache.py"}
    assert not {path for path in keepers if "njit(" in path.read_text(encoding="utf-8")}
    assert {str(path) for path in wanted - keepers} <= set(kernel_digest.sources())


def test_an_edit_of_any_source_is_another_digest(tmp_path: Path) -> None:
    package = tmp_path / "gpu_extract"
    for source in map(Path, kernel_digest.sources()):
        copy = package / source.relative_to(PACKAGE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, copy)
    found = [kernel_digest.digest(str(package))]
    assert found[0] == kernel_digest.digest()
    for source in map(Path, list(kernel_digest.sources(str(package)))):
        text, before = source.read_bytes(), source.stat()
        source.write_bytes(text[:-1] + b" ")                  # with the same length, and not later
        os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
        found.append(kernel_digest.digest(str(package)))
        source.write_bytes(text)
    assert len(set(found)) == len(found) > 40
    (package / "spots" / "simd_another.py").write_text("")
    assert kernel_digest.digest(str(package)) not in found


def test_compiler_processor_and_settings_are_digested(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {kernel_digest.digest()}
    for module, name, value in ((kernel_digest.numba, "__version__", "0"),
                                (sys.modules["llvmlite"], "__version__", "0"),
                                (kernel_digest.binding, "get_host_cpu_name", lambda: "another"),
                                (kernel_digest.config, "OPT", 1), (kernel_digest.sys, "version", "3")):
        with monkeypatch.context() as context:
            context.setattr(module, name, value)
            found.add(kernel_digest.digest())
    assert len(found) == 6


CODE = """
import sys, numpy as np
sys.path.insert(0, sys.argv[1])
import gpu_extract
assert gpu_extract.__file__.startswith(sys.argv[1])
from gpu_extract.kernels import kernel_cache
watched = kernel_cache.watched(lambda name: __import__("contextlib").nullcontext(print("compiles")))
from gpu_extract.normal import simd_bins
mask = np.zeros((1, 2), np.uint32)
with watched:
    simd_bins.own_bits(mask, np.zeros((1, 2)), np.zeros((1, 2)))
print(int(mask[0, 0]))
"""


def test_an_edit_of_a_constant_in_another_file_is_used_by_the_next_run(tmp_path: Path) -> None:
    """numba's own cache keeps using the old one."""
    shutil.copytree(PACKAGE, tmp_path / "py" / "gpu_extract", ignore=shutil.ignore_patterns("__pycache__"))

    def run() -> list[str]:
        done = subprocess.run([sys.executable, "-c", CODE, str(tmp_path / "py")], capture_output=True, text=True,
                              env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept")}, check=True)
        return done.stdout.split()

    assert run() == ["compiles", "256"] and run() == ["256"]
    edited = tmp_path / "py" / "gpu_extract" / "arrays.py"
    text = edited.read_text(encoding="utf-8")
    assert "NODATA = 256 " in text
    edited.write_text(text.replace("NODATA = 256 ", "NODATA = 1024"), encoding="utf-8")
    assert run() == ["compiles", "1024"]


# ---- what is read back ----------------------------------------------------------------------------------------------

class Kept:
    """A store in a folder, and its messages."""

    def __init__(self, root: Path):
        self.root, self.said = root, list[str]()

    def open(self, *roots: Path, digest: str = DIGEST) -> Store:
        return Store(digest, roots or [self.root], self.said.append)

    def file(self) -> Path:
        (found,) = self.root.rglob(f"*{ENDING}")
        return found


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    made = Kept(tmp_path / "kernels")
    made.open().save(NAME, b"content")
    assert made.open().load(NAME) == b"content" and made.said == []
    return made


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1:]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda content: b"", "cut": lambda content: content[:-1], "cut in its sum": lambda content: content[:25],
    "longer": lambda content: content + b"x", "something else": lambda content: b"x" * 1000,
    "flipped in its name": lambda content: flipped(content, 3),
    "flipped in its sum": lambda content: flipped(content, 30),
    "flipped in its content": lambda content: flipped(content, len(content) - 3)}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_as_good_as_absent_and_said_once(kept: Kept, damage: str) -> None:
    content = kept.file().read_bytes()
    kept.file().write_bytes(DAMAGES[damage](content))
    store = kept.open()
    assert not store.has(NAME) and store.load(NAME) is None
    assert len(kept.said) == 1 and NAME in kept.said[0] and "compiled again" in kept.said[0]
    store.save(NAME, b"content")
    assert kept.file().read_bytes() == content and kept.open().load(NAME) == b"content"


def test_a_pipe_is_as_good_as_absent(kept: Kept) -> None:
    """The program waited for ever for its writer. (Of a device it read without end.)"""
    kept.file().unlink()
    os.mkfifo(kept.root / DIGEST[:20] / NAME)
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits"))
    signal.alarm(10)
    try:
        assert kept.open().load(NAME) is None and len(kept.said) == 1
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    kept.open().save(NAME, b"content")
    assert kept.open().load(NAME) == b"content"             # a file of its own, in its place


def test_what_is_of_another_machine_or_of_another_kernel_is_not_believed(kept: Kept) -> None:
    other = Kept(kept.root.with_name("other"))
    other.open(digest="f" * 64).save(NAME, b"foreign")
    shutil.copy(other.file(), kept.file())
    assert kept.open().load(NAME) is None and len(kept.said) == 1
    store = kept.open()
    store.save(NAME, b"content")
    shutil.copy(kept.file(), kept.file().with_name("another" + ENDING))
    assert kept.open().load("another" + ENDING) is None and "another" in kept.said[1]


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_what_others_may_write_is_not_believed(kept: Kept, mode: int) -> None:
    kept.file().chmod(mode)
    assert kept.open().load(NAME) is None and "others" in kept.said[0]
    kept.open().save(NAME, b"content")
    assert kept.open().load(NAME) == b"content"             # a file of its own, in its place


@pytest.mark.parametrize("which", ["root", "folder"])
def test_a_folder_that_others_may_write_to_is_not_used(kept: Kept, which: str, tmp_path: Path) -> None:
    (kept.root if which == "root" else kept.file().parent).chmod(0o775)
    store = kept.open(kept.root, tmp_path / "private")
    assert store.load(NAME) is None and store.folder is not None and store.folder.is_relative_to(tmp_path / "private")
    assert len(kept.said) == 1 and "another user" in kept.said[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_belongs_to_another_user_is_not_used(kept: Kept, tmp_path: Path) -> None:
    os.chown(kept.file(), 12345, -1)
    assert kept.open().load(NAME) is None and len(kept.said) == 1
    os.chown(kept.root, 12345, -1)
    store = kept.open(kept.root, tmp_path / "private")
    assert store.load(NAME) is None and store.folder is not None and store.folder.is_relative_to(tmp_path / "private")


def test_where_nothing_can_be_kept_work_goes_on_and_one_line_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kept = Kept(tmp_path / "file" / "below")
    store = kept.open()
    assert store.folder is None and store.load(NAME) is None and kept.said == []
    store.save(NAME, b"content")
    store.save(NAME, b"content")
    assert len(kept.said) == 1 and "cannot be cached" in kept.said[0] and "NUMBA_CACHE_DIR" in kept.said[0]


def test_a_full_disk_ends_the_keeping_and_leaves_nothing_behind(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    store = kept.open()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    store.save("more" + ENDING, b"content")
    store.save("more" + ENDING, b"content")
    assert len(kept.said) == 1 and "No space left" in kept.said[0]
    assert [path.name for path in kept.file().parent.iterdir()] == [NAME]


def test_a_folder_that_can_only_be_read_is_read_and_the_next_is_written(kept: Kept, tmp_path: Path,
                                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container, or a site's installation."""
    monkeypatch.setattr(os, "access", lambda path, mode: not Path(path).is_relative_to(kept.root))
    store = kept.open(kept.root, tmp_path / "private")
    assert store.load(NAME) == b"content"
    store.save("more" + ENDING, b"content")
    assert store.load("more" + ENDING) == b"content" and kept.said == []
    assert kept.file().name == NAME


def test_a_folder_that_may_not_be_searched_is_passed_over(tmp_path: Path) -> None:
    """Path.is_dir raises there; root may search everything, so another user asks."""
    shut, code = tmp_path / "shut", (
        "import os, sys, pathlib, gpu_extract.kernels.kernel_store as kept\n"
        "os.getuid() or os.setuid(65534)\n"
        "store = kept.Store('0' * 64, [pathlib.Path(sys.argv[1]) / 'kernels'])\n"
        "print(store.folder, store.marked('ready'))\n")
    shut.mkdir()
    shut.chmod(0)
    found = subprocess.run([sys.executable, "-c", code, str(shut)], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["None", "False"]


def test_the_folder_is_nobody_elses_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        kept = Kept(tmp_path / "a" / "kernels")
        kept.open().save(NAME, b"content")
        assert kept.open().load(NAME) == b"content" and kept.said == []
    finally:
        os.umask(before)


def test_places_of_the_cache_follow_the_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path / "given"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert [path.is_relative_to(tmp_path / where) for path, where in zip(places(), ("given", "xdg"), strict=False)]
    assert len(places()) == 3
    monkeypatch.setattr("numba.core.config.CACHE_DIR", "")
    monkeypatch.setattr("gpu_extract.kernels.kernel_store.cache_folder", lambda: None)
    for given, used in ((str(tmp_path), tmp_path), (str(tmp_path / "none"), Path("/tmp")), (".", Path("/tmp"))):
        monkeypatch.setenv("TMPDIR", given)
        (private,) = places()
        assert str(os.geteuid()) in private.name and private.parent == used


# ---- kernels --------------------------------------------------------------------------------------------------------

def small(factor: int) -> Callable[[int], int]:
    """A kernel with a number in it, and no cache."""
    def kernel(x):  # type: ignore[no-untyped-def]
        return factor * x
    return njit(kernel)      # type: ignore[no-any-return]


def test_a_kernel_comes_back_or_is_made_anew(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(kernel_cache, "watchers", [lambda name: compiled.append(name) or kernel_cache.ExitStack()])
    store = kept.open(kept.root.with_name("kernels2"))

    def run(factor: int) -> int:
        made = small(factor)
        made._cache = KernelCache(made.py_func, lambda: store)      # type: ignore[attr-defined]
        return made(5)

    assert [run(2), run(2), run(3), run(3)] == [10, 10, 15, 15] and len(compiled) == 2
    files = sorted(store.folder.iterdir())       # type: ignore[union-attr]
    assert len(files) == 2 and files[0].name.startswith("test_kernel_cache.small-2.")
    files[0].write_bytes(files[0].read_bytes()[:1000])
    assert run(2) == 10 and len(compiled) == 3 and len(kept.said) == 1
    store.save(files[1].name, b"no pickle")
    assert run(3) == 15 and len(compiled) == 4
    assert [run(2), run(3)] == [10, 15] and len(compiled) == 4


@pytest.mark.parametrize("tested", [True, False])
def test_a_kernel_that_was_kept_is_compiled_into_others_too(kept: Kept, monkeypatch: pytest.MonkeyPatch,
                                                            tested: bool) -> None:
    """Its bitcode is parsed only then; with another version of numba, numba does everything."""
    if tested and not numba_version.startswith(kernel_load.TESTED):
        pytest.skip(f"numba {numba_version} loads kernels by itself")
    store = kept.open(kept.root.with_name("kernels3"))
    monkeypatch.setattr(kernel_cache, "store", lambda: store)
    monkeypatch.setattr(kernel_load, "TESTED", kernel_load.TESTED if tested else ("none",))
    parsed, parse = [], kernel_load._parsed
    monkeypatch.setattr(kernel_load, "_parsed", lambda *given: (parsed.append(1), parse(*given))[1])
    for _ in range(2):
        inner = small(11)
        inner._cache = KernelCache(inner.py_func, kernel_cache.store)    # type: ignore[attr-defined]
        assert inner(3) == 33 and not parsed

    def outer(x: int) -> int:
        return inner(x) + 1

    assert [njit(outer)(3), njit(outer)(4), inner(5)] == [34, 45, 55]
    assert len(parsed) == tested


def test_names_tell_types_and_numbers_apart() -> None:
    names = {name_of(small(n).py_func, kinds) for n in (1, 2) for kinds in (("int64",), ("float64",))}   # type: ignore[attr-defined]
    assert len(names) == 4
    helper = small(1)

    def kernel(x: int) -> int:
        return helper(x)

    with pytest.raises(TypeError, match="only plain values"):
        constants(kernel)


def test_sources_that_changed_under_a_process_are_not_kept_as_what_they_were(monkeypatch: pytest.MonkeyPatch,
                                                                            kept: Kept) -> None:
    store = kept.open(kept.root.with_name("kernels2"))
    monkeypatch.setattr(kernel_cache, "store", lambda: store)
    for now, count in ((["changed"], 0), (kernel_cache._at_first, 1)):
        monkeypatch.setattr(kernel_cache, "_digest", lambda now=now: now)
        made = small(7)
        made._cache = KernelCache(made.py_func, kernel_cache.store)      # type: ignore[attr-defined]
        assert made(5) == 35 and len(list(store.folder.iterdir())) == count      # type: ignore[union-attr]


def test_a_function_of_a_module_that_is_not_loaded_keeps_what_it_needs() -> None:
    """numba would import the module, which may take long."""
    content = pickle.dumps(Rebuilt("no.such.module", ["a constant"], "gpu_extract-test-environment"))
    made = kernel_load._Unpickler(io.BytesIO(content)).load()
    assert made.consts == ["a constant"] and made.env_name == "gpu_extract-test-environment"


class Rebuilt:
    """Pickled like a function's environment by numba."""

    def __init__(self, *arguments: object):
        self.arguments = arguments

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return environment._rebuild_env, self.arguments
