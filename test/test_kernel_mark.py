"""A first run says that it compiles; later ones neither say it nor wait for each other; changed kernels are new."""
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_extract import cpu_frame
from gpu_extract.backend import kernel_mark
from gpu_extract.compare.selftest import load_cutout
from gpu_extract.cpu_frame import CPU
from gpu_extract.run import compile_kernels, extract

ONCE = """
import sys
from gpu_extract.cpu_frame import CPU
from gpu_extract.compare.selftest import load_cutout
cutout = load_cutout()
print(CPU.warm(cutout.psf, cutout.config))
CPU.warmed(cutout.psf, cutout.config)
print(CPU.warm(cutout.psf, cutout.config))
"""


def said(folder: Path) -> list[str]:
    done = subprocess.run([sys.executable, "-c", ONCE], capture_output=True, text=True, check=True,
                          env={**os.environ, "NUMBA_CACHE_DIR": str(folder)})
    return done.stdout.split()


def test_a_mark_lives_with_the_cache(tmp_path: Path) -> None:
    assert said(tmp_path / "one") == ["False", "True"]
    assert said(tmp_path / "one") == ["True", "True"]
    assert said(tmp_path / "two") == ["False", "True"]
    assert [path.suffix for path in (tmp_path / "one").rglob("compiled-*")] == [".mark"]


def test_a_mark_names_what_kernels_are_written_out_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cutout = load_cutout()
    psf, config = cutout.psf, cutout.config
    marks = {cpu_frame._mark(psf, config), cpu_frame._mark(replace(psf, stamp=(3, 3)), config),
             cpu_frame._mark(psf, replace(config, core="dense")),
             cpu_frame._mark(psf, replace(config, wavelength=(*config.wavelength[:2], 2 * config.wavelength[2])))}
    assert len(marks) == 4
    first, _, step = config.wavelength
    shorter = replace(config, wavelength=(first, first + 5 * step, step), nspec=1)
    assert cpu_frame._mark(psf, shorter) in marks
    (tmp_path / "kernels.py").write_text("")
    monkeypatch.setattr(kernel_mark, "__file__", str(tmp_path / "kernel_mark.py"))
    assert cpu_frame._mark(psf, config) not in marks


def test_who_compiles_leaves_a_mark_and_who_finds_one_does_nothing(monkeypatch: pytest.MonkeyPatch,
                                                                  tmp_path: Path) -> None:
    cutout, mark = load_cutout(), tmp_path / "folder" / "mark"
    monkeypatch.setattr(cpu_frame, "_mark", lambda psf, config: mark)
    problem = cutout.image, cutout.psf, cutout.config
    compile_kernels(*problem, CPU)
    assert mark.exists()
    monkeypatch.setattr("gpu_extract.run.warm_up", lambda *_: pytest.fail("warmed up again"))
    compile_kernels(*problem, CPU)
    mark.unlink()
    extract(*problem)
    assert mark.exists()
