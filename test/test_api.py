"""The public API: the documented example runs and prints what is documented; loading is fast."""
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("numpy", "scipy", "numba", "astropy", "matplotlib", "mpi4py", "cupy")


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-W", "error", *arguments], cwd=cwd, capture_output=True, text=True,
                          timeout=300)


@pytest.mark.parametrize("number", [0, 1])
def test_the_documented_example_prints_what_is_documented(tmp_path: Path, number: int) -> None:
    text = (ROOT / "doc" / "api.md").read_text(encoding="utf-8")
    code, printed = re.findall(r"```python\n(.*?)```.*?```text\n(.*?)```", text, re.DOTALL)[number]
    done = run("-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed
    assert list(tmp_path.iterdir()) == []


def test_what_stored_diagonals_sum_to() -> None:
    """As documented: 1 within the stated tolerance if all of them are within the range, less at both ends, where
    columns of R are cut off."""
    import numpy as np

    from gpu_extract import ExtractConfig, extract
    from gpu_extract.resolution import times_resolution
    from gpu_extract.simulate import SimConfig, simulate

    text = " ".join((ROOT / "doc" / "api.md").read_text(encoding="utf-8").split())
    bulk, *ends = re.search(r"row sums to 1 within (\S+) .*? the last row hold (\S+) to (\S+), the second and the last "
                            r"but one (\S+) to (\S+), the two after them (\S+) to (\S+)\.", text).groups()
    made = simulate(SimConfig(camera="tiny"))
    frame = extract(made.image, made.psf, ExtractConfig(wavelength=(6020.0, 6090.0, 0.85)))
    sums = times_resolution(frame.resolution, np.ones(frame.flux.shape))
    assert np.abs(sums[:, frame.ndiag:-frame.ndiag] - 1).max() <= float(bulk)
    for n, (low, high) in enumerate(zip(ends[::2], ends[1::2], strict=True)):
        for row in (sums[:, n], sums[:, -1 - n]):
            assert (float(low) <= row).all() and (row <= float(high)).all(), n


def test_the_sum_over_a_line_is_what_the_resolution_makes_of_it() -> None:
    """As documented, it is not the line's light: in a noiseless arc, whose truth is on the bins."""
    import numpy as np

    from gpu_extract import ExtractConfig, extract
    from gpu_extract.resolution import times_resolution
    from gpu_extract.simulate import SimConfig, simulate

    grid = (6020.0, 6090.0, 0.85)
    made = simulate(SimConfig(camera="tiny", flavor="arc", truth_grid=grid, noise=False))
    frame = extract(made.image, made.psf, ExtractConfig(wavelength=grid))
    first = int(np.searchsorted(made.truth.wave, grid[0] - 0.01))
    truth = made.truth.flux[:, first:first + frame.flux.shape[1]]
    line = int(truth.sum(axis=0).argmax())
    light, sums, seen = (array[:, line - 4:line + 5].sum(axis=1) for array in (
        truth, frame.flux, times_resolution(frame.resolution, truth)))
    np.testing.assert_allclose(sums, seen, rtol=1e-5)
    text = " ".join((ROOT / "doc" / "api.md").read_text(encoding="utf-8").split())
    low = re.search(r"In a noiseless arc the sum over a line of (\d+) electrons is low by (\d+) %", text)
    assert low is not None
    np.testing.assert_allclose(light * grid[2], float(low[1]), rtol=0.2)
    np.testing.assert_allclose(sums / light, 1 - int(low[2]) / 100, atol=0.015)


def test_settings_in_the_documentation_are_those_of_the_code() -> None:
    from dataclasses import fields

    from gpu_extract import ExtractConfig

    text = (ROOT / "doc" / "api.md").read_text(encoding="utf-8")
    table = text[text.index("| setting |"):]
    named = re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in table[:table.index("\n\n")].splitlines()))
    assert sorted(named) == sorted(f.name for f in fields(ExtractConfig))


def test_arguments_in_the_documentation_are_those_of_the_code() -> None:
    """In order; `...` stands for arguments in a table of their own, and optional arguments of functions may be
    omitted."""
    import inspect

    import gpu_extract

    text = (ROOT / "doc" / "api.md").read_text(encoding="utf-8")
    calls = re.findall(r"`(\w+)\(([^)]*)\)`", re.search(r"^\| name \|.*?\n\n", text, re.DOTALL | re.MULTILINE)[0])
    assert len(calls) >= 9
    for name, arguments in calls:
        wanted = list(inspect.signature(getattr(gpu_extract, name)).parameters.values())
        named = [word for word in arguments.split(", ") if word not in ("*", "...")]
        left = [each for each in wanted if each.name not in named]
        assert named == [each.name for each in wanted if each.name in named], name
        assert "..." in arguments or (name[0].islower() and all(each.default is not each.empty for each in left)) \
            or not left, name


def test_everything_public_can_be_had() -> None:
    import gpu_extract

    for name in gpu_extract.__all__:
        assert getattr(gpu_extract, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'extrakt'"):
        gpu_extract.extrakt  # noqa: B018


@pytest.mark.parametrize(("given", "said"), [
    (None, "path is of type NoneType, must be the name of a file: a str or a Path"), (3, "path is of type int, must"),
    (b"a.fits", "path is of type bytes, must"), ("", "path is empty, must be the name of a file"),
    ("a\0.fits", r"'a\\x00.fits': a file name cannot contain a zero byte")])
def test_what_is_no_name_of_a_file(given: Any, said: str) -> None:
    from edge_files import small_frame, small_psf
    from gpu_extract import read_frame, read_image, read_psf, write_frame
    from gpu_extract.errors import InputError
    from gpu_extract.io.fibermap import read_fibermap
    from gpu_extract.io.psf import write_psf
    from gpu_extract.io.truth import read_truth
    from gpu_psf.raw import read_raw

    for read in (read_image, read_psf, read_frame, read_truth, read_fibermap, read_raw):
        with pytest.raises(InputError, match=f"^{said}"):
            read(given)
    for write, what in ((write_frame, small_frame()), (write_psf, small_psf())):
        with pytest.raises(InputError, match=f"^{said}"):
            write(given, what)


def test_what_is_no_frame_is_not_written(tmp_path: Path) -> None:
    from gpu_extract import write_frame
    from gpu_extract.errors import InputError

    with pytest.raises(InputError, match="frame is of type str, must be a Frame, which extract makes"):
        write_frame(tmp_path / "frame.fits", "frame")      # type: ignore[arg-type]


def test_what_is_no_draft_has_no_model() -> None:
    from edge_files import small_frame
    from gpu_extract import model
    from gpu_extract.errors import InputError

    with pytest.raises(InputError, match="start is of type Frame, must be a Draft"):
        model(small_frame())      # type: ignore[arg-type]


@pytest.mark.parametrize("code", [
    "import gpu_extract",
    "import gpu_extract.cli.extract as e; e.main(['--help'])",
    "import gpu_extract.cli.compare as c; c.main(['--help'])",
    "import gpu_extract.cli.simulate as s; s.main(['--help'])",
])
def test_nothing_heavy_is_loaded(code: str, tmp_path: Path) -> None:
    look = f"import sys; print(*(m for m in {HEAVY} if m in sys.modules), file=sys.stderr)"
    done = run("-c", f"{code}; {look}", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.split() == []


def cpu_seconds(*arguments: str, cwd: Path) -> float:
    """User and system time of a Python run, including the interpreter: the best of seven."""
    best = float("inf")
    for _ in range(7):
        child = subprocess.Popen([sys.executable, *arguments], cwd=cwd, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0
        best = min(best, usage.ru_utime + usage.ru_stime)
    return best


def test_import_costs_less_than_a_tenth_of_a_second(tmp_path: Path) -> None:
    empty = cpu_seconds("-c", "pass", cwd=tmp_path)
    assert cpu_seconds("-c", "import gpu_extract", cwd=tmp_path) - empty < 0.1


def test_help_comes_within_three_tenths_of_a_second(tmp_path: Path) -> None:
    assert cpu_seconds(str(ROOT / "bin" / "gpu_extract"), "--help", cwd=tmp_path) < 0.3
