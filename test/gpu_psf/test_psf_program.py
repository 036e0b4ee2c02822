"""gpu_psf fit as a program: the file, ranks, messages."""
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from astropy.io import fits
from outside import largest_file
from psf_errors import Judge, cold, make_arc, uneven_lines

from gpu_extract.data import Image
from gpu_extract.errors import OutputError
from gpu_extract.io.image import write_image
from gpu_extract.io.psf import read_psf, write_psf
from gpu_extract.packing import same
from gpu_extract.simulate import NO_DEFECTS, SimConfig, simulate
from gpu_extract.simulate.instrument import psf_model
from gpu_psf import run
from gpu_psf.cli.fit import _key
from gpu_psf.cli.psf import build_parser, main
from gpu_psf.fit import Fit, fit_bundle
from gpu_psf.kept import Kept, key_of
from gpu_psf.lamp import read_lines
from mpi_launch import launch
from ranks import ROOT

PROGRAM = ROOT / "bin" / "gpu_psf"


class Files(NamedTuple):
    """Paths of an arc of both bundles of the camera tiny, a starting PSF, lines, and the result."""

    arc: Path
    start: Path
    lines: Path
    fitted: Path
    page: Path

    def words(self, output: Path, *more: str) -> list[str]:
        return ["fit", "-i", str(self.arc), "-p", str(self.start), "--lines", str(self.lines), "-o", str(output), *more]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("psf")
    true, lines = psf_model("tiny"), uneven_lines()
    arc = make_arc(true, (0, 10), (lines.wave, lines.strength), 1)
    made = Files(*(folder / name for name in ("arc.fits", "start.fits", "lines.txt", "fitted.fits", "page.png")))
    write_image(made.arc, Image(arc.pix.astype(np.float32), arc.ivar.astype(np.float32)),
                mask=np.zeros(arc.pix.shape, np.int32), read_noise=np.full(arc.pix.shape, 2.7, np.float32))
    write_psf(made.start, cold(true, 3, rough=0.1))
    rows = [f"{wave:.6f} {strength:.0f} Xx" for wave, strength in zip(lines.wave, lines.strength, strict=True)]
    made.lines.write_text("# lamp\n" + "\n".join(rows), encoding="utf-8")
    assert main(made.words(made.fitted, "--qa", str(made.page))) == 0
    return made


def test_the_file_is_a_psf_that_fits_the_truth(files: Files) -> None:
    psf = read_psf(files.fitted)
    gh = psf.cores[0].gh.coeff
    assert (gh[0, 0, :, 0] == 1).all()
    assert not gh[0, 0, :, 1:].any()
    assert 0.001 <= psf.psferr < 0.02
    found = Judge(psf_model("tiny"), np.linspace(6010, 6100, 12)).errors(psf)
    assert found.x < 0.015
    assert found.y < 0.015
    assert found.stamp < 0.004
    with fits.open(files.fitted) as hdus:
        assert (hdus["FIBRES"].data["STATUS"] == 0).all()
        assert hdus["BUNDLES"].data["CHI2"] == pytest.approx([1, 1], abs=0.1)
        row = hdus["PSF"].data[list(hdus["PSF"].data["PARAM"]).index("STATUS")]
        assert not row["COEFF"].any()
    assert files.page.stat().st_size > 10000


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.slow)])
def test_ranks_change_no_bit(files: Files, tmp_path: Path, ranks: int) -> None:
    ended = launch(ranks, PROGRAM, *files.words(tmp_path / "fitted.fits"))
    assert ended.code == 0, ended.err
    assert same_file(files.fitted, tmp_path / "fitted.fits")


def same_file(one: Path, other: Path) -> bool:
    with fits.open(one) as left, fits.open(other) as right:
        return [hdu.header["DATASUM"] for hdu in left] == [hdu.header["DATASUM"] for hdu in right]


def test_a_fit_that_was_ended_goes_on_where_it_stopped(files: Files, tmp_path: Path,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    out, done, fails = tmp_path / "fitted.fits", [], [True]

    def fit(*args: Any) -> Fit:
        done.append(args[2])
        if fails and args[2][0] == 5:
            fails.clear()
            raise MemoryError("ended")
        return fit_bundle(*args)

    monkeypatch.setattr(run, "fit_bundle", fit)
    assert main(files.words(out)) != 0
    kept, = (tmp_path / "fitted.fits.bundles").iterdir()
    assert kept.name.startswith("bundle-0-") and not out.exists()
    assert main(files.words(out)) == 0
    assert done == [(0, 5), (5, 10), (5, 10)]
    assert same_file(out, files.fitted)
    assert not kept.parent.exists()


def test_what_is_kept_knows_the_sources_of_both_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    before, read = key_of([], []), Path.read_bytes
    assert key_of([], []) == before
    for name in ("gpu_extract/spots/__init__.py", "gpu_extract/spots/simd_spots.py", "gpu_psf/fit.py"):
        with monkeypatch.context() as edited:
            edited.setattr(Path, "read_bytes", lambda path, name=name: read(path) + b"#" * path.match(name))
            assert key_of([], []) != before, name


def test_another_fit_takes_nothing_of_what_is_kept(files: Files, tmp_path: Path) -> None:
    parser = build_parser()
    keys = {_key(parser.parse_args(files.words(tmp_path / "a.fits", *more))) for more in (
        (), ("--gh-degree", "5"), ("-n", "5"), ("-i", str(files.fitted)), ("-p", str(files.fitted)))}
    assert len(keys) == 5
    assert _key(parser.parse_args(files.words(tmp_path / "b.fits", "--threads", "2"))) in keys


def test_what_is_kept_is_whole_or_not_there(tmp_path: Path) -> None:
    kept = Kept(str(tmp_path / "a.bundles"), "key")
    value = {"reason": "", "x": np.arange(3.0), "n": 2}
    kept.write(1, (0, 1), value)
    found = kept.read(1, (0, 1))
    assert found is not None and same(found, value)
    assert kept.read(1, (0, 2)) is None and kept.read(0, (0, 1)) is None
    assert Kept(kept.folder, "other").read(1, (0, 1)) is None
    path, = Path(kept.folder).iterdir()
    path.write_bytes(path.read_bytes()[:100])
    assert kept.read(1, (0, 1)) is None


def test_a_full_disk_leaves_no_folder_but_what_is_kept_in_it(tmp_path: Path) -> None:
    kept = Kept(str(tmp_path / "a.bundles"), "key")
    with largest_file(0), pytest.raises(OutputError, match="File too large"):
        kept.write(1, (0, 1), {"reason": ""})
    assert not os.path.exists(kept.folder)
    kept.write(1, (0, 1), {"reason": ""})
    with largest_file(0), pytest.raises(OutputError, match="File too large"):
        kept.write(2, (0, 1), {"reason": ""})
    assert kept.read(1, (0, 1)) == {"reason": ""}


@pytest.mark.slow
def test_a_killed_fit_goes_on(files: Files, tmp_path: Path) -> None:
    """Killed as soon as a bundle is saved; a killed process leaves complete files."""
    out = tmp_path / "fitted.fits"
    process = subprocess.Popen([sys.executable, str(PROGRAM), *files.words(out)], stderr=subprocess.DEVNULL)
    while process.poll() is None and not list(tmp_path.glob("*.bundles/bundle-*.npz")):
        time.sleep(0.005)
    process.kill()
    process.wait()
    ended = launch(2, PROGRAM, *files.words(out))
    assert ended.code == 0, ended.err
    assert same_file(out, files.fitted)
    assert not list(tmp_path.glob("*.bundles"))


def test_bundles_that_are_not_asked_for_move_along(files: Files, tmp_path: Path) -> None:
    assert main(files.words(tmp_path / "part.fits", "-n", "5")) == 0
    start, part = read_psf(files.start), read_psf(tmp_path / "part.fits")
    moved = (part.x.coeff - start.x.coeff)[:, 0]
    np.testing.assert_allclose(moved[5:], moved[:5].mean(), atol=1e-9)
    with fits.open(tmp_path / "part.fits") as hdus:
        assert hdus["FIBRES"].data["STATUS"].tolist() == [0] * 5 + [3] * 5


@pytest.mark.parametrize(("lines", "words"), [
    ("6100 x\n-3", "line 2: is '-3', must be a wavelength"), ("# nothing\n", "lists no line"),
    ("6100.5,7\n6100,52 Ne I", "line 2: is '6100,52 Ne I', which has a decimal comma"),
    ("5000\n5100", "no bundle could be fitted; the first of 2: none of the 2 lines")])
def test_bad_input_is_one_line(files: Files, tmp_path: Path, lines: str, words: str,
                               capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lines.txt"
    path.write_text(lines, encoding="utf-8")
    assert main(files._replace(lines=path).words(tmp_path / "out.fits")) == 2
    said = [line for line in capfd.readouterr().err.splitlines() if "error" in line]
    assert len(said) == 1
    assert words in said[0]
    assert not (tmp_path / "out.fits").exists()


@pytest.mark.parametrize("option", [("--gh-degree", "11"), ("--trace-degree", "0"), ("--reach", "x"),
                                    ("--specmin", "99")])
def test_bad_options_are_refused(files: Files, tmp_path: Path, option: tuple[str, str]) -> None:
    assert main(files.words(tmp_path / "out.fits", *option)) == 2
    assert not (tmp_path / "out.fits").exists()


def test_an_arc_is_given_once(files: Files, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Otherwise its photons would count twice, and the stated errors would be too small."""
    (tmp_path / "again.fits").symlink_to("arc.fits")
    arcs = [str(tmp_path / name) for name in ("arc.fits", "again.fits")]
    assert main(["fit", "-i", *arcs, "-p", str(files.start), "-o", str(tmp_path / "out.fits")]) == 2
    assert f"{arcs[1]}: is given twice, so its photons would count twice" in capfd.readouterr().err


def test_an_output_never_replaces_an_input(files: Files, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arc, lines = tmp_path / "arc.fits", tmp_path / "lines.txt"
    for path in (arc, lines):
        path.write_text("an input")
    for out, option in ((arc, "-i"), (files.start, "-p")):
        words = ["-i", str(arc), "-p", str(files.start), "-o", str(out)]
        assert main(["fit", *words]) == main(["shift", *words]) == 2
        assert capfd.readouterr().err.count(f"{out}: -o is the same file as {option}; give it another name") == 2
    assert main(["start", "--arc", str(arc), "--psf", str(files.start), "-o", str(files.start)]) == 2
    assert main(["preprocess", "-i", f"{arc}[0]", "-o", str(arc)]) == 2
    said = capfd.readouterr().err
    assert "-o is the same file as --psf" in said and "-o is the same file as -i" in said
    for option in ("--flat", "--arc", "--pairs", "--lines"):
        assert main(["start", option, str(arc), "-o", str(arc)]) == 2
        assert f"-o is the same file as {option}" in capfd.readouterr().err
    assert arc.read_text() == "an input"


def test_names_and_strengths_of_lines_may_be_missing(tmp_path: Path) -> None:
    # with a mark, as some editors put it
    (tmp_path / "lines").write_text("6100.5 Ne I\n6000, 12 # blend\n6000 7\n6100.5\n", encoding="utf-8-sig")
    lines = read_lines(tmp_path / "lines")
    assert lines.wave.tolist() == [6000, 6100.5]
    assert lines.strength.tolist() == [12, 1]


def test_the_simulator_puts_exact_lines_beside_the_given_traces() -> None:
    usual = SimConfig(camera="tiny", flavor="arc", noise=False, defects=NO_DEFECTS)
    assert SimConfig(camera="tiny", flexure=(0.0, 0.0)).digest() == SimConfig(camera="tiny").digest()
    binned = simulate(usual)
    made = simulate(SimConfig(**{**usual.__dict__, "exact_lines": True, "flexure": (1.0, 0.0)}))
    np.testing.assert_allclose(made.true_psf.x.coeff[:, 0], made.psf.x.coeff[:, 0] + 1)
    assert made.expected.sum() == pytest.approx(binned.expected.sum(), rel=1e-4)
    # all light is one pixel to the right, and lines are slightly sharper
    np.testing.assert_allclose(made.expected[:, 10:90].sum(axis=0), binned.expected[:, 9:89].sum(axis=0), rtol=0.01,
                               atol=30)
    assert made.expected.max() > binned.expected.max()
