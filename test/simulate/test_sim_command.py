"""gpu_simulate: its files as users and pipelines see them, its messages, its exit codes."""
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits

from gpu_extract.cli.simulate import main
from gpu_extract.io.frame import read_frame
from gpu_extract.io.image import read_image
from gpu_extract.io.psf import read_psf
from gpu_extract.io.truth import read_truth
from gpu_extract.resolution import times_resolution
from gpu_extract.simulate import Defects, SimConfig, simulate

GRID = "6040,6070,0.8"
TINY = ["--camera", "tiny", "--seed", "6", "--truth-grid", GRID]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    assert main(["-o", str(folder / "preproc.fits"), *TINY, "--camera", "tiny3", "--expid", "77", "--night",
                 "20260102", "--dead-fibres", "2,7", "--broken-fibres", "4", "--perf", str(folder / "perf.json")]) == 0
    return folder


def _simulation():
    return simulate(SimConfig(camera="tiny3", seed=6, truth_grid=(6040, 6070, 0.8), expid=77, night=20260102,
                              defects=Defects(dead_fibres=(2, 7), broken_fibres=(4,))))


def test_keywords_users_look_for(made: Path) -> None:
    with fits.open(made / "preproc.fits", checksum=True) as hdus:      # warnings are errors: the sums are right
        assert [h.name for h in hdus] == ["IMAGE", "IVAR", "MASK", "READNOISE", "FIBERMAP"]
        header = hdus["IMAGE"].header
        wanted = {"CAMERA": "r3", "FLAVOR": "science", "EXPID": 77, "NIGHT": 20260102, "EXPTIME": 1000.0,
                  "BUNIT": "electron", "PROGRAM": "dark", "SPECID": 3, "SIMSEED": 6, "SIMCAM": "tiny"}
        assert {key: header[key] for key in wanted} == wanted
        assert header["MJD-OBS"] == pytest.approx(61043.3, abs=0.01)    # 2026-01-03, 7 h UT
        types = [hdus[k].data.dtype for k in range(4)]
        assert [f"{t.kind}{t.itemsize}" for t in types] == ["f4", "f4", "i4", "f4"]
        assert all(hdus[k].data.shape == (192, 104) for k in range(4))
        rows = hdus["FIBERMAP"].data
        assert rows["FIBER"].tolist() == list(range(1500, 1510))
        assert len(set(rows["TARGETID"])) == 10 and np.all(rows["TARGETID"] > 0)
        assert np.ptp(rows["TARGET_RA"]) > 0.1 and np.all(np.abs(rows["TARGET_DEC"] - 2.2) < 1.7)
        assert [k for k in range(10) if rows["FIBERSTATUS"][k]] == [2, 4, 7]
        assert hdus["FIBERMAP"].columns["TARGET_RA"].unit == "deg"


def test_files_hold_what_was_simulated(made: Path) -> None:
    direct = _simulation()
    image = read_image(made / "preproc.fits")
    np.testing.assert_array_equal(image.pix, direct.image.pix)
    np.testing.assert_array_equal(image.ivar, direct.image.ivar)
    assert image.fibermap is not None and direct.image.fibermap is not None
    assert image.fibermap.rows.tolist() == [tuple(v.decode() if isinstance(v, bytes) else v for v in row)
                                            for row in direct.image.fibermap.rows.tolist()]
    with fits.open(made / "preproc.fits") as hdus:
        np.testing.assert_array_equal(hdus["MASK"].data, direct.mask)
        np.testing.assert_array_equal(hdus["READNOISE"].data, direct.read_noise)
    truth = read_truth(made / "preproc-truth.fits")
    np.testing.assert_array_equal(truth.flux, direct.truth.flux)
    np.testing.assert_array_equal(truth.wave, direct.truth.wave)
    assert truth.targets is not None
    assert truth.targets["TARGETID"].tolist() == image.fibermap.rows["TARGETID"].tolist()
    assert truth.targets["THROUGHPUT"][2] == 0 and truth.targets["Z"].max() > 0.1
    psf = read_psf(made / "preproc-psf.fits")
    np.testing.assert_array_equal(psf.cores[0].gh.coeff, direct.psf.cores[0].gh.coeff)


def test_performance_record(made: Path) -> None:
    record = json.loads((made / "perf.json").read_text())
    assert record["program"] == "gpu_simulate" and record["config"]["camera"] == "tiny3"
    assert {"truth", "project", "noise", "defects", "write"} <= {span[0] for span in record["ranks"][0]["spans"]}


def test_equal_commands_give_equal_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert main(["-o", str(tmp_path / f"{name}.fits"), *TINY, "--threads", "2" if name == "b" else "1"]) == 0
    for kind in ("", "-psf", "-truth"):
        assert (tmp_path / f"a{kind}.fits").read_bytes() == (tmp_path / f"b{kind}.fits").read_bytes()


def test_the_reference_is_r_times_the_truth(tmp_path: Path) -> None:
    """The oracle's frame of a noiseless simulation: R x truth, up to the diagonals that are not stored."""
    reference = tmp_path / "reference.fits"
    assert main(["-o", str(tmp_path / "p.fits.gz"), *TINY, "-s", "1", "-n", "3", "--no-noise", "--no-defects",
                 "--reference", str(reference)]) == 0
    assert (tmp_path / "p-psf.fits.gz").exists()
    frame, truth = read_frame(reference), read_truth(tmp_path / "p-truth.fits.gz")
    assert frame.fibres.tolist() == [1, 2, 3] and frame.fibermap is not None and len(frame.fibermap.rows) == 3
    start = int(np.argmin(np.abs(truth.wave - 6040)))
    np.testing.assert_allclose(truth.wave[start:start + len(frame.wave)], frame.wave, atol=1e-9)
    nwave = len(frame.wave)
    for row, fibre in enumerate(frame.fibres):
        light = truth.flux[fibre, start:start + nwave].astype(float)
        inner, blurred = slice(10, nwave - 10), times_resolution(frame.resolution[row], light)
        assert np.abs((blurred - frame.flux[row]) * np.sqrt(frame.ivar[row]))[inner].max() < 0.02


@pytest.mark.parametrize("options,code,words", [
    (["--camera", "q", "--nspec", "0"], 2, "camera is 'q', must be one of b, r, z, tiny"),
    (["--dead-amp", "E"], 2, "dead_amplifier is 'E'"),
    (["--truth-grid", "1,2"], 2, "'1,2' is not a grid"),
    (["--dead-fibres", "1,x"], 2, "'1,x' is not a list of fibre numbers"),
    (["--specmin", "500"], 2, "camera r0 has 500 fibres"),
    (["--threads", "0"], 2, "--threads is 0"),
    (["--seed", "x"], 2, "--seed"),
    (["--truth-step", "0.2", "--truth-grid", "6040,6070,0.8"], 2, "not allowed with"),
    (["--psf-out", "SAME"], 2, "psf is the same file as image"),
    (["--truth-out", "NOWHERE/t.fits"], 3, "/nowhere does not exist"),
    (["--camera", "tiny", "-w", "6020,6090,0.8"], 2, "-w is the grid of the reference: give --reference FILE too"),
    (["--camera", "tiny", "--reference", "REF"], 2, "--reference needs a wavelength grid"),
    (["--camera", "tiny", "--reference", "REF", "-w", "5000,6090,0.8"], 2, "reaches beyond the PSF, 6000 to 6110"),
])
def test_what_goes_wrong_is_one_line(tmp_path: Path, capsys, options: list[str], code: int, words: str) -> None:
    output = str(tmp_path / "out.fits")
    options = [word.replace("NOWHERE", str(tmp_path / "nowhere")) for word in options]
    options = [output if word == "SAME" else str(tmp_path / "r.fits") if word == "REF" else word for word in options]
    assert main(["-o", output, *options, "--loglevel", "error"]) == code
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and words in said[0] and said[0].startswith("gpu_simulate: error: ")
    assert list(tmp_path.iterdir()) == []                # found before any work


def test_help_is_light() -> None:
    """--help has examples, and loads none of the heavy packages."""
    code = ("import sys; from gpu_extract.cli.simulate import main; main(['--help']); "
            "print([m for m in ('numpy', 'scipy', 'numba', 'astropy') if m in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for word in ("examples", "--camera", "--truth-grid", "exit codes", "--reference"):
        assert word in done.stdout
