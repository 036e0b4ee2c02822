"""Kernels are compiled ahead, once, in parallel, and counted; their list contains what runs request."""
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_extract import first_use
from gpu_extract.bundle import locate
from gpu_extract.cli.compiling import CompileProgress, all_kernels
from gpu_extract.compare.selftest import load_cutout
from gpu_extract.config import ExtractConfig
from gpu_extract.cpu_frame import _mark, kernels_for
from gpu_extract.decorrelate.limits import Limits
from gpu_extract.first_use import UNUSED, Estimate, kernel_claims, remove_unused
from gpu_extract.first_use.kernel_claims import Claims, is_claimed
from gpu_extract.first_use.kernel_list import (
    EXTRACT,
    PASSES,
    SIMULATE,
    SOME,
    Kernel,
    bands_of,
    broader,
    listed,
    read_type,
    spelt,
)
from gpu_extract.io.presets import presets
from gpu_extract.io.whose import claim, lock_name
from gpu_extract.kernels.kernel_cache import turns
from gpu_extract.kernels.kernel_store import ENDING, Store
from gpu_extract.run import prepare
from gpu_extract.simulate.instrument import psf_model

NAME = f"some.kernel.0{ENDING}"


def run(code: str, folder: Path, *args: str, **more: str) -> list[str]:
    """Lines printed by a process whose kernels are cached in a folder."""
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True,
                          env={**os.environ, "NUMBA_CACHE_DIR": str(folder), **more})
    return done.stdout.splitlines()


# ---- the list -------------------------------------------------------------------------------------------------------

ASKED = """
from dataclasses import replace
import numpy as np
from gpu_extract.kernels import kernel_cache
from gpu_extract.cli.compiling import all_kernels
from gpu_extract.compare.selftest import load_cutout
from gpu_extract.config import ExtractConfig
from gpu_extract.run import extract
deep, asked, load = [], set(), kernel_cache.KernelCache.load_overload

class Deep:
    __enter__ = lambda self: deep.append(1)
    __exit__ = lambda *_: deep.pop() and None

def ask(self, sig, context):
    if not deep:
        asked.add(kernel_cache.name_of(self._function, sig))
    return load(self, sig, context)

kernel_cache.KernelCache.load_overload = ask
kernel_cache.watchers.append(lambda name: Deep())
cutout = load_cutout()
cutout.image.pix.flags.writeable = False
extract(cutout.image, cutout.psf, cutout.config)
extract(cutout.image, cutout.psf, replace(cutout.config, passes=2, background=1))
known = {kernel.file for kernel in all_kernels()}
print(len(asked), *sorted(asked - known))
"""


def test_a_run_asks_for_nothing_that_is_not_in_the_list() -> None:
    """bench/kernel_list.py examines more runs, and makes the list."""
    done = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, check=True)
    count, *missing = done.stdout.split()
    assert int(count) > 30 and missing == []


def test_every_kernel_of_the_list_is_there_once() -> None:
    kernels = all_kernels()
    assert len({kernel.file for kernel in kernels}) == len(kernels) > 80
    assert all(kernel.seconds > 0 for kernel in kernels)
    for kernel in listed(SIMULATE, EXTRACT, PASSES, SOME):
        assert [spelt(kind) for kind in kernel.types] == json.loads(kernel.arguments)
        assert callable(kernel.dispatcher)
    with pytest.raises(TypeError, match="no kernel takes"):
        spelt(read_type("int64").__class__)


def depth(kind: object) -> int:
    """How deeply tuples are nested in the text of a type."""
    return 1 + max(map(depth, kind[1:]), default=0) if isinstance(kind, list) and kind[0] != "array" else 0


def test_arguments_are_no_tuples_of_tuples_of_tuples() -> None:
    """Kernels take arrays and tuples of them; anything with more parts is a named tuple of arrays and named tuples."""
    for kernel in all_kernels():
        for kind in json.loads(kernel.arguments):
            assert depth(kind) < (2 if isinstance(kind, list) and kind[0] == "tuple" else 3), kernel.title
    made_of = [spelt(kernel.types[1]) for kernel in listed(SIMULATE) if kernel.name == "make_spots"]
    assert [kind[0] for kind in made_of] == ["spots.simd_spots.Ingredients"]


def test_kernels_of_several_passes_are_compiled_ahead_of_them_alone() -> None:
    cutout = load_cutout()
    one, two = ({kernel.file for kernel in kernels_for(cutout.psf, replace(cutout.config, passes=n))} for n in (1, 2))
    assert two - one == {kernel.file for kernel in listed(PASSES)} and one < two


def test_half_bands_are_those_of_the_bundles() -> None:
    cutout = load_cutout()
    job = prepare(cutout.psf, cutout.config)
    found = {locate(cutout.image, job, fibres).bands[:0:-1] for fibres in job.plan.bundles}
    assert bands_of(cutout.psf, cutout.config) == found
    halves = {kernel.numbers for kernel in kernels_for(cutout.psf, cutout.config) if kernel.name == "measure"}
    ((own, hw),) = found
    assert own == hw and halves == {(hw + more,) for more in Limits().widen}


def test_where_bins_are_wide_for_the_psf_wide_bands_are_left_to_the_frame_that_needs_them() -> None:
    cutout = load_cutout()
    (first, last), step = cutout.config.wavelength[:2], cutout.config.wavelength[2]
    wide = replace(cutout.config, wavelength=(first, last, 1.3 * step))
    assert broader(cutout.psf, wide) == 4 and broader(cutout.psf, cutout.config) is None
    ((own, hw),) = bands_of(cutout.psf, wide)
    narrow = {*([own + 1] if own + 1 < hw else []), hw, hw + 4}
    for every in (False, True):
        halves = {k.numbers[0] for k in kernels_for(cutout.psf, wide, every=every) if k.name == "measure"}
        assert halves == (narrow | {hw + more for more in Limits().widen} if every else narrow)
    broad = replace(cutout.psf, cores=tuple(replace(core, sigma_y=replace(core.sigma_y, coeff=2 * core.sigma_y.coeff))
                                            for core in cutout.psf.cores))
    assert broader(broad, wide) is None and _mark(broad, wide) != _mark(cutout.psf, wide)    # else bands were left out
    cameras = {camera: presets()[f"desi-{camera}"].wavelength for camera in "brz"}
    assert [broader(psf_model(camera), ExtractConfig(wave)) for camera, wave in cameras.items()] == [12, 4, None]
    tabulated = replace(cutout.psf, cores=tuple(replace(c, tabulated=True) for c in cutout.psf.cores))
    assert broader(tabulated, wide) is None


# ---- who compiles ---------------------------------------------------------------------------------------------------

FILL = """
import sys
from contextlib import nullcontext
from gpu_extract.kernels import kernel_cache
from gpu_extract.first_use import compile_all
from gpu_extract.first_use.kernel_claims import take_turns
from gpu_extract.first_use.kernel_list import EXTRACT, listed
few = [kernel for kernel in listed(EXTRACT) if kernel.name in ("own_bits", "may_stand_out")]
take_turns()
told = []
count = compile_all(lambda: few, tell=lambda *words: told.append(words), few=0.0)
with kernel_cache.watched(lambda name: nullcontext(print("compiled here"))):
    for kernel in few:
        kernel.dispatcher.compile(kernel.types)
print(count, [words[:2] for words in told[:1] + told[-1:]])
"""


def test_the_cache_is_filled_by_other_processes_and_then_left_alone(tmp_path: Path) -> None:
    assert run(FILL, tmp_path) == ["2 [(0, 2), (2, 2)]"]
    files = sorted(tmp_path.rglob("*" + ENDING))
    assert len(files) == 2 and not list(tmp_path.rglob(".*.lock"))
    assert run(FILL, tmp_path) == ["0 []"]
    files[0].write_bytes(files[0].read_bytes()[:-1])
    assert run(FILL, tmp_path) == ["1 [(0, 1), (1, 1)]"]


def test_without_a_folder_or_processes_each_compiles_its_own(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    nowhere = str(tmp_path / "file")
    assert run(FILL, tmp_path / "file", XDG_CACHE_HOME=nowhere, TMPDIR=str(tmp_path))[-1].startswith("2 ")
    (private,) = tmp_path.glob("gpu_extract-kernels-*")
    private.chmod(0o777)
    lines = run(FILL, tmp_path / "file", XDG_CACHE_HOME=nowhere, TMPDIR=str(tmp_path))
    assert lines == ["compiled here", "compiled here", "0 []"]
    code = FILL.replace("import sys\n", "import sys\nsys.executable = '/nothing'\n")
    assert run(code, tmp_path / "kept") == ["2 [(0, 2), (2, 2)]"]


ONE = """
import sys
from contextlib import nullcontext
import numpy as np
from gpu_extract.kernels import kernel_cache
from gpu_extract.normal import simd_bins
from gpu_extract.first_use.kernel_claims import take_turns
take_turns()
print("ready", flush=True)
sys.stdin.readline()
with kernel_cache.watched(lambda name: nullcontext(print("compiled"))):
    simd_bins.own_bits(np.empty((1, 2), np.uint32), np.ones((1, 2)), np.ones((1, 2)))
"""


def test_of_processes_that_need_a_kernel_at_once_one_compiles_it(tmp_path: Path) -> None:
    workers = [subprocess.Popen([sys.executable, "-c", ONE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}) for _ in range(2)]
    assert [worker.stdout.readline() for worker in workers] == ["ready\n"] * 2       # type: ignore[union-attr]
    said = []
    for worker in workers:
        worker.stdin.write("\n")        # type: ignore[union-attr]
        worker.stdin.flush()            # type: ignore[union-attr]
    for worker in workers:
        said.append(worker.communicate(timeout=120)[0])
        assert worker.returncode == 0
    assert sorted(said) == ["", "compiled\n"]
    assert len(list(tmp_path.rglob("*" + ENDING))) == 1 and not list(tmp_path.rglob(".*.lock"))


@pytest.fixture
def kept(tmp_path: Path) -> Store:
    return Store("0" * 64, [tmp_path / "kernels"])


def folder_of(kept: Store) -> Path:
    assert kept.folder is not None
    return kept.folder


def test_a_claim_of_a_process_that_has_ended_is_void(kept: Store) -> None:
    path = folder_of(kept) / NAME
    code = f"import os; from gpu_extract.io.whose import claim; claim({str(path)!r}); os._exit(0)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert lock_name(path).exists() and not is_claimed(folder_of(kept), NAME)
    claims = Claims()
    assert claims.take(kept, NAME) is None and is_claimed(folder_of(kept), NAME)     # it is ours now
    claims.release(kept, NAME)
    assert not lock_name(path).exists()


def test_what_another_process_makes_is_waited_for(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Claims().take(kept, NAME) is None
    waited = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            kept.save(NAME, b"content")

    monkeypatch.setattr(kernel_claims, "sleep", sleep)
    assert Claims().take(kept, NAME) == b"content" and len(waited) == 3


def test_what_could_not_be_made_is_claimed_no_longer(kept: Store) -> None:
    """Nor does a process wait for itself."""
    claims = Claims()
    assert claims.take(kept, NAME) is None and claims.take(kept, NAME) is None
    claims.give_up()
    assert not lock_name(folder_of(kept) / NAME).exists()


def test_what_could_not_be_kept_is_claimed_no_longer(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk others would wait for it until this process ends."""
    claims, folder = Claims(), folder_of(kept)
    assert claims.take(kept, NAME) is None

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    kept.save(NAME, b"content")
    claims.release(kept, NAME)
    assert kept.folder is None and list(folder.iterdir()) == []


def test_where_nothing_can_be_kept_no_kernel_is_compiled_for_others(kept: Store,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one shows it; the rest of the list is compiled by whoever needs it."""
    made = []

    def compile_one(kernel: Kernel) -> None:
        made.append(kernel)
        kept.folder = None

    monkeypatch.setattr(first_use, "compile_one", compile_one)
    kernels = [Kernel("none", "none", (), [str(n)], 1.0) for n in range(3)]
    monkeypatch.setattr(Kernel, "file", NAME)
    first_use._watch(kept, kernels, [], Estimate(kernels, 1), None)
    assert made == kernels[:1]


@pytest.mark.parametrize(("place", "arguments"), [("decorrelate.narrow.simd_correct.correct", ["int64"]),
                                                  ("spots.simd_series.evaluate", ["bool"] * 4)])
def test_a_kernel_that_is_not_what_the_list_says_costs_nothing(place: str, arguments: list[str],
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """It is compiled by whoever needs it, with one line in the log; the claim on it is released."""
    said: list[str] = []
    monkeypatch.setattr(first_use.log, "warning", said.append)
    before = turns[:]
    turns[:] = [Claims()]
    try:
        module, name = place.rsplit(".", 1)
        first_use.compile_one(Kernel(module, name, (), json.dumps(arguments), 1.0))
        assert not turns[-1]._ours
    finally:
        turns[:] = before
    assert len(said) == 1 and f"etc/kernels.json is out of date for {place}" in said[0]


def test_a_kernel_that_is_gone_is_left_out(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(first_use.log, "warning", said.append)
    monkeypatch.setattr(first_use, "store", lambda: kept)
    assert first_use.compile_all(lambda: [Kernel("decorrelate.narrow.simd_correct", "renamed", (), "[]", 9.0),
                                          Kernel("backend.gone", "gone", (), "[]", 9.0)]) == 0
    assert len(said) == 2 and "decorrelate.narrow.simd_correct.renamed" in said[0] and "backend.gone.gone" in said[1]


def test_a_process_that_hangs_is_not_waited_for_for_ever(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    others, clock = claim(folder_of(kept) / NAME), [0.0]
    monkeypatch.setattr(kernel_claims, "now", lambda: clock[0])
    monkeypatch.setattr(kernel_claims, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + 10.0))
    claims = Claims()
    assert others is not None and claims.take(kept, NAME) is None
    assert kernel_claims.PATIENCE <= clock[0] < kernel_claims.PATIENCE + 20.0
    claims.release(kept, NAME)          # which is not ours
    assert is_claimed(folder_of(kept), NAME)


# ---- how long, and what is said -------------------------------------------------------------------------------------

def kernels(*seconds: float) -> list[Kernel]:
    return [Kernel("m", f"k{n}", (), "[]", value) for n, value in enumerate(seconds)]


def test_the_estimate_is_that_of_this_machine_and_then_of_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, all_of_them = [0.0], kernels(8.0, 6.0, 4.0, 2.0, 2.0, 2.0)
    monkeypatch.setattr(first_use, "now", lambda: clock[0])
    monkeypatch.setattr(first_use, "unit", lambda: 3.0 * first_use.unit_then())
    estimate = Estimate(all_of_them, 2)
    assert estimate.left(all_of_them) == pytest.approx(3.0 * 24.0 / 2)
    clock[0] = 20.0          # 6 are done, 8 and 4 half done: 12 in 20 s by two, and 12 are left
    assert estimate.left([all_of_them[0], *all_of_them[2:]]) == pytest.approx(20.0)
    clock[0] = 40.0
    assert estimate.left(all_of_them[-1:]) == pytest.approx(80.0 / 23.0)      # the last one is half done


def test_progress_counts(capsys: pytest.CaptureFixture[str]) -> None:
    from gpu_extract.cli.common import start_logging

    start_logging("info")
    tell = CompileProgress()
    for done in range(43):
        tell(done, 42, 1.3 * (42 - done))
    said = capsys.readouterr().err.splitlines()
    assert said == ["first use: 42 kernels are compiled and cached, about 55 s", "kernel 1 of 42, about 53 s left",
                    "kernel 42 of 42"]       # in a log, no more than a line every few seconds


def test_folders_that_nobody_has_used_for_a_month_are_removed(kept: Store) -> None:
    own, beside = folder_of(kept), folder_of(kept).parent
    for name, age in (("1" * 20, 1.01), ("2" * 20, 0.99), ("another", 2.0)):
        (beside / name).mkdir()
        (beside / name / "file").write_text("")
        time = own.stat().st_mtime - age * UNUSED
        os.utime(beside / name, (time, time))
    remove_unused(own)
    assert sorted(path.name for path in beside.iterdir()) == sorted([own.name, "2" * 20, "another"])


def test_a_start_that_finds_its_mark_keeps_the_folder_in_use(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_use, "store", lambda: kept)
    assert not first_use.is_ready("ready-1")
    kept.leave("ready-1")
    for age, touched in ((0.5 * 86400, False), (2 * 86400, True)):
        before = folder_of(kept).stat().st_mtime - age
        os.utime(folder_of(kept), (before, before))
        assert first_use.is_ready("ready-1")
        assert (folder_of(kept).stat().st_mtime > before + 60) == touched
