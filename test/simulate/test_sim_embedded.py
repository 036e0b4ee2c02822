"""The embedded frame and its cache: made once, checked on every use, complete or absent."""
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpu_extract.errors import InputError, OutputError
from gpu_extract.io.image import read_image
from gpu_extract.io.psf import read_psf
from gpu_extract.io.truth import read_truth
from gpu_extract.io.whose import host, this_process
from gpu_extract.simulate import SimConfig, embedded, simulate
from gpu_extract.simulate.kept import MANIFEST, kept_folder
from gpu_extract.user_cache import cache_folder


@pytest.fixture
def tiny(monkeypatch):
    """The embedded frame as a tiny one."""
    monkeypatch.setattr(embedded, "EMBEDDED", SimConfig(camera="tiny", seed=4))
    monkeypatch.setattr(embedded, "_FEW", 1)


def _get(folder: Path, specmin: int = 0, nspec: int | None = None) -> tuple[embedded.EmbeddedFiles, list[str]]:
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "cache_folder", lambda: folder)
        return embedded.embedded_default(specmin, nspec, lines.append), lines


def test_made_once_then_found(tiny, tmp_path: Path) -> None:
    files, lines = _get(tmp_path)
    assert len(lines) == 1 and "10 fibres" in lines[0] and str(tmp_path) in lines[0]
    before = [path.stat().st_mtime_ns for path in files]
    again, lines = _get(tmp_path)
    assert again == files and lines == [] and [path.stat().st_mtime_ns for path in files] == before
    direct = simulate(embedded.embedded_config(0, None))
    image, psf, truth = read_image(files.image), read_psf(files.psf), read_truth(files.truth)
    np.testing.assert_array_equal(image.pix, direct.image.pix)
    np.testing.assert_array_equal(image.ivar, direct.image.ivar)
    assert psf.nfibre == 10
    np.testing.assert_array_equal(truth.flux, direct.truth.flux)
    np.testing.assert_array_equal(truth.wave, direct.truth.wave)
    np.testing.assert_array_equal(truth.fibres, np.arange(10))


def test_a_part_is_the_whole_cut(tiny, tmp_path: Path) -> None:
    """One bundle: an image that ends behind it, with the whole frame's pixels and matching fibre numbers."""
    whole, part = _get(tmp_path)[0], _get(tmp_path, 1, 3)[0]
    assert whole.image.parent != part.image.parent
    big, small = read_image(whole.image), read_image(part.image)
    columns = small.pix.shape[1]
    assert 60 < columns < big.pix.shape[1]
    lit = simulate(embedded.embedded_config(1, 3)).expected > 0
    np.testing.assert_array_equal(small.pix[lit], big.pix[:, :columns][lit])
    np.testing.assert_array_equal(small.ivar[lit], big.ivar[:, :columns][lit])
    np.testing.assert_array_equal(read_truth(part.truth).flux, read_truth(whole.truth).flux[:5])
    assert small.fibermap is not None and big.fibermap is not None
    np.testing.assert_array_equal(small.fibermap.rows, big.fibermap.rows)


def test_what_is_made_for_a_range() -> None:
    full = embedded.embedded_config(0, None)
    assert (full.specmin, full.nspec, full.crop, full.camera) == (0, 500, False, "r0")
    quick = embedded.embedded_config(0, 50)
    assert (quick.specmin, quick.nspec, quick.crop) == (0, 50, True)
    some = embedded.embedded_config(130, 30)
    assert (some.specmin, some.nspec) == (125, 50)
    assert embedded.embedded_config(10, 200) == full              # many bundles: the whole frame serves them all
    assert embedded.embedded_config(490, 100).nspec == 25         # beyond the last fibre: as many as there are
    for specmin, nspec in ((500, None), (-1, 5), (0, 0)):
        with pytest.raises(InputError, match="fibres 0 to 499"):
            embedded.embedded_config(specmin, nspec)


@pytest.mark.parametrize("harm", ["flip", "truncate", "remove", "manifest"])
def test_a_harmed_file_is_made_again(tiny, tmp_path: Path, harm: str) -> None:
    files, _ = _get(tmp_path)
    good = files.image.read_bytes()
    if harm == "flip":
        files.image.write_bytes(good[:9000] + bytes([good[9000] ^ 1]) + good[9001:])
    elif harm == "truncate":
        files.truth.write_bytes(files.truth.read_bytes()[:5000])
    elif harm == "remove":
        files.psf.unlink()
    else:
        (files.image.parent / MANIFEST).write_text("[1, 2", encoding="ascii")
    again, lines = _get(tmp_path)
    assert again == files and any("making it again" in line for line in lines)
    assert files.image.read_bytes() == good
    assert _get(tmp_path)[1] == []
    assert sorted(p.name for p in tmp_path.iterdir() if not p.name.endswith(".lock")) == [files.image.parent.name]


def test_another_version_is_another_folder(tiny, tmp_path: Path, monkeypatch) -> None:
    first = _get(tmp_path)[0]
    monkeypatch.setattr(embedded, "VERSION", 99)
    second = _get(tmp_path)[0]
    assert first.image.parent != second.image.parent and first.image.exists()
    monkeypatch.setattr(embedded, "EMBEDDED", replace(embedded.EMBEDDED, seed=5))
    assert _get(tmp_path)[0].image.parent not in (first.image.parent, second.image.parent)


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise OutputError("disk full")

    with pytest.raises(OutputError, match="disk full"):
        kept_folder(tmp_path, "thing", fail)
    assert [p.name for p in tmp_path.iterdir()] == []
    blocked = tmp_path / "file"
    blocked.write_text("x")
    with pytest.raises(OutputError, match="XDG_CACHE_HOME"):
        kept_folder(blocked / "cache", "thing", lambda folder: None)


MAKER = """
import sys, time
from pathlib import Path
from gpu_extract.simulate.kept import kept_folder
root, mark = Path(sys.argv[1]), sys.argv[2]
def make(folder):
    (root.parent / f"made-{mark}").touch()
    (folder / "a").write_text("one")
    while not (root.parent / "go").exists():
        time.sleep(0.02)
    (folder / "b").write_text("two")
folder = kept_folder(root, "thing", make, log=lambda line: print(line, flush=True))
assert (folder / "a").read_text() + (folder / "b").read_text() == "onetwo"
print("ok", flush=True)
"""


def _start(root: Path, mark: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", MAKER, str(root), mark], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def _until(path: Path) -> None:
    for _ in range(3000):
        if path.exists():
            return
        time.sleep(0.02)
    raise AssertionError(f"{path} did not appear")


def test_two_processes_at_once(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    first = _start(root, "1")
    _until(tmp_path / "made-1")
    second = _start(root, "2")
    assert second.stdout is not None and "waiting" in second.stdout.readline()
    (tmp_path / "go").touch()
    outputs = [p.communicate(timeout=60)[0] for p in (first, second)]
    assert [p.returncode for p in (first, second)] == [0, 0], outputs
    assert outputs == ["ok\n", "ok\n"] and not (tmp_path / "made-2").exists()


def test_a_killed_process_leaves_no_good_name_and_is_cleaned_up_after(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    first = _start(root, "1")
    _until(tmp_path / "made-1")
    os.kill(first.pid, signal.SIGKILL)
    first.communicate(timeout=30)
    left = [p.name for p in root.iterdir() if p.is_dir()]
    assert len(left) == 1 and left[0].startswith(".thing.tmp-")
    (tmp_path / "go").touch()
    second = _start(root, "2")
    assert "ok" in second.communicate(timeout=60)[0]
    assert [p.name for p in root.iterdir() if p.is_dir()] == ["thing"]
    entries = json.loads((root / "thing" / MANIFEST).read_text())["files"]
    assert sorted(entries) == ["a", "b"] and entries["a"]["size"] == 3


def test_where_the_cache_is(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "gpu_extract"
    for value in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        monkeypatch.setenv("HOME", str(tmp_path))
        assert cache_folder() == tmp_path / ".cache" / "gpu_extract"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / ".cache" / "gpu_extract"


def test_what_another_system_may_be_making_is_left_alone(tmp_path: Path) -> None:
    systems = "01234567", this_process().where
    other, ended = (tmp_path / f".thing.tmp-{host()}-{system}-1-99999999-89abcdef" for system in systems)
    other.mkdir()
    ended.mkdir()
    kept_folder(tmp_path, "thing", lambda folder: None)
    assert other.exists() and not ended.exists()
