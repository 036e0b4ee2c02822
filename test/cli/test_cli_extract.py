"""gpu_extract from options to files: every option does what it says."""

import gc
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import astropy
import numpy as np
import pytest
from astropy.io import fits

from edge_files import GRID, image_hdus, small_psf, write_image
from gpu_extract.cli import extract as cli_extract
from gpu_extract.cli.options import build_parser as extract_parser
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Card, SpecMask, Status
from gpu_extract.errors import OutputError
from gpu_extract.io.barycentre import barycentric_factor
from gpu_extract.io.frame import read_frame
from gpu_extract.io.image import read_image
from gpu_extract.io.light_fits import TESTED
from gpu_extract.io.psf import read_psf, write_psf
from gpu_extract.run import extract as extract_arrays

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / "bin" / "gpu_extract"


def grid() -> tuple[float, float, float]:
    first, last, step = (float(word) for word in GRID.split(","))
    return first, last, step


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_is_not_looked_for_while_libraries_are_loaded(extract, monkeypatch, collects):
    """Garbage collection is off only then; afterwards its settings are as before."""
    seen, read, work = [], cli_extract.read_shared, cli_extract.compute
    monkeypatch.setattr(cli_extract, "read_shared", lambda *args: (seen.append(gc.isenabled()), read(*args))[1])
    monkeypatch.setattr(cli_extract, "compute", lambda *args: (seen.append(gc.isenabled()), work(*args))[1])
    before = gc.isenabled()
    try:
        gc.enable() if collects else gc.disable()
        assert extract().code == 0
        assert seen == [False, collects] and gc.isenabled() is collects
        assert extract("-w", "wrong").code == 2 and gc.isenabled() is collects
    finally:
        gc.enable() if before else gc.disable()
        gc.unfreeze()


def test_the_frame_is_that_of_the_python_api(extract, files):
    done = extract("-m", files.output.with_name("model.fits"), "--spectra", files.output.with_name("spectra.fits"))
    assert done.code == 0 and done.out == ""
    config = ExtractConfig(grid(), psferr=0.01, model=True)
    frame = extract_arrays(read_image(files.image), read_psf(files.psf), config)
    back = read_frame(files.output)
    for name in ("flux", "ivar", "resolution", "chi2pix", "pixmask_fraction", "mask"):
        wanted = getattr(frame, name)
        np.testing.assert_array_equal(getattr(back, name), wanted if name == "mask" else wanted.astype(np.float32))
    np.testing.assert_array_equal(back.wave, np.arange(6010.0, 6090.5))
    assert back.fibermap.rows["FIBER"].tolist() == list(range(1500, 1506))
    np.testing.assert_array_equal(fits.getdata(files.output.with_name("model.fits")), frame.model.astype(np.float32))
    np.testing.assert_array_equal(fits.getdata(files.output.with_name("spectra.fits"), "R_FLUX"), back.flux)
    header = fits.getheader(files.output)
    assert (header["IN_IMG"], header["IN_PSF"]) == (str(files.image), str(files.psf))
    assert header["CFGHASH"] == config.digest() and "HELIOCOR" not in header
    assert sorted(os.listdir(files.output.parent)) == ["frame.fits", "model.fits", "spectra.fits"]


def test_a_gzipped_frame(extract, files):
    """Compressed because its name says so, also while it is written."""
    packed = files.output.with_name("frame.fits.gz")
    extract()
    assert extract("-o", packed).code == 0
    assert packed.read_bytes()[:2] == b"\x1f\x8b"
    np.testing.assert_array_equal(read_frame(packed).flux, read_frame(files.output).flux)


def test_part_of_the_fibres_is_part_of_the_frame(extract, files):
    extract()
    whole = read_frame(files.output)
    assert extract("-s", 2, "-n", 3, "--no-scores", "--overwrite").code == 0
    part = read_frame(files.output)
    assert part.fibres.tolist() == [2, 3, 4] and part.fibermap.rows["FIBER"].tolist() == [1502, 1503, 1504]
    for name in ("flux", "ivar", "mask", "resolution", "chi2pix"):
        np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[2:5])
    with fits.open(files.output) as hdus:
        assert "SCORES" not in hdus and hdus[0].header["FIBERMIN"] == 1502


def test_the_log_has_the_command_the_settings_and_a_summary(extract, files):
    done = extract("-s", 1, "-n", 4)
    text = done.err
    command = next(line for line in text.splitlines() if line.startswith("command: "))
    words = shlex.split(command.removeprefix("command: "))
    first = files.output.read_bytes()
    again = subprocess.run([sys.executable, str(BIN), *words[1:]], capture_output=True, text=True, check=True)
    assert files.output.read_bytes() == first
    assert "settings: wavelength=(6010.0, 6090.0, 1.0), specmin=1, nspec=4" in text
    assert "bins: 324 (4 fibres x 81), 0 masked" in text and "chi2pix: median" in text
    assert "status: 324 GOOD; flagged: 0 WEAKBIN, 0 ODDPIX\n" in text
    assert "memory: " in text and f"file: {files.output}" in text and "time: start-up " in text
    assert "\r" not in again.stderr and "bundle 2 of 2" in again.stderr  # no terminal: plain lines


def test_the_summary_counts_what_the_status_says(extract, files):
    """Bins without a good pixel in otherwise extracted fibres, from pixels where icov tells too little."""
    with fits.open(files.image) as hdus:
        hdus["IVAR"].data[40:70, :13] = 0
        hdus["IVAR"].data[40:70, 14:30] = 0        # wings are seen in one column
        hdus.writeto(files.image, overwrite=True, checksum=True)
    text = extract("-s", 0, "-n", 4).err
    frame = read_frame(files.output)
    without = int((frame.ivar == 0).sum())
    assert 20 < without < 100
    assert f"{without} without data" in text
    counts = {state: int((frame.status == state).sum()) for state in Status}
    said = ", ".join(f"{count} {state.name}" for state, count in counts.items() if count)
    weak = int((frame.mask & SpecMask.WEAKBIN > 0).sum())
    assert f"status: {said}; flagged: {weak} WEAKBIN, 0 ODDPIX\n" in text
    assert counts[Status.GOOD] >= 81 and counts[Status.PIXELS] > 0 and sum(counts.values()) == 324
    np.testing.assert_array_equal(frame.status == Status.EMPTY, frame.ivar == 0)


def test_a_run_says_of_each_kernel_that_it_compiles_and_counts_it(extract, files, monkeypatch, tmp_path):
    """A kernel that was not compiled ahead: compiling ahead finds nothing, and the cache lacks one."""
    from gpu_extract.kernels import kernel_cache
    from gpu_extract.normal import simd_bins

    extract("-s", 1, "-n", 1)
    quiet = extract("-s", 1, "-n", 1, "--perf", tmp_path / "perf.json").err
    assert "is compiled" not in quiet and "compile 0" not in quiet
    simd_bins.own_bits._make_finalizer()()
    simd_bins.own_bits._reset_overloads()
    monkeypatch.setattr(kernel_cache.KernelCache, "load_overload", lambda *_: None)
    said = extract("-s", 1, "-n", 1, "--perf", tmp_path / "perf.json").err
    assert "kernel simd_bins.own_bits is not in the cache: it is compiled and cached\n" in said
    assert re.search(r"^time: .*\bcompile \d", said, re.MULTILINE)
    (rank,) = json.loads((tmp_path / "perf.json").read_text())["ranks"]
    assert rank["counters"]["compiled kernels"] == 1
    simd_bins.own_bits._make_finalizer()()
    simd_bins.own_bits._reset_overloads()
    monkeypatch.setattr(kernel_cache.store(), "folder", None)
    assert "kernel simd_bins.own_bits is not in the cache: it is compiled\n" in extract("-s", 1, "-n", 1).err


def test_compile_fills_the_cache_and_ends(capsys, monkeypatch, tmp_path):
    from gpu_extract.cli import compiling
    from gpu_extract.kernels import kernel_cache
    from gpu_extract.kernels.kernel_store import Store

    few, kept = compiling.all_kernels()[:3], kernel_cache.store()
    monkeypatch.setattr(compiling, "all_kernels", lambda files: few if list(files) == ["psf.fits"] else [])
    for kernel in few:
        if not kept.has(kernel.file):
            kernel.dispatcher.compile(kernel.types)
    with pytest.raises(SystemExit) as ended:
        extract_parser().parse_args(["--compile", "psf.fits"])
    assert ended.value.code == 0
    assert capsys.readouterr().err.endswith(f"3 kernels in {kept.folder}, 0 of them new\n")
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(kernel_cache, "store", lambda: Store("0" * 64, [tmp_path / "file" / "below"]))
    with pytest.raises(OutputError, match="NUMBA_CACHE_DIR"):
        extract_parser().parse_args(["--compile", "psf.fits"])


def test_on_a_terminal_progress_is_one_line(files):
    import pty

    parent, child = pty.openpty()
    words = ["-i", files.image, "-p", files.psf, "-o", files.output, "-w", GRID]
    with subprocess.Popen([sys.executable, str(BIN), *map(str, words)], stderr=child) as process:
        os.close(child)
        text = b""
        while True:
            try:
                piece = os.read(parent, 65536)
            except OSError:
                break
            if not piece:
                break
            text += piece
    os.close(parent)
    assert process.returncode == 0
    assert b"\rbundle 1 of 2" in text and b"\rbundle 2 of 2" in text


def test_quiet_and_verbose(extract):
    assert extract("--loglevel", "error").err == ""
    assert "settings" in extract("--loglevel", "INFO").err
    assert extract("-v").code == 0


def test_record_and_trace_are_written(extract, files):
    path, trace = (files.output.with_name(name) for name in ("perf.json", "trace.json"))
    assert extract("--perf", path, "--trace", trace).code == 0
    record = json.loads(path.read_text())
    (rank,) = record["ranks"]
    names = [span[0] for span in rank["spans"]]
    assert record["schema"] == 2 and {"read", "extract", "write", "solve"} <= set(names)
    assert record["config"]["wavelength"] == list(grid()) and rank["peak_memory"] > 1e7
    assert record["digest"] == fits.getheader(files.output)["CFGHASH"]
    seconds = {name: sum(s[3] for s in rank["spans"] if s[0] == name) for name in names}
    assert 0 < seconds["solve"] < seconds["extract"] < rank["elapsed"]
    drawn = [event["name"] for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert [name for name in drawn if name != "start up"] == names


def test_a_page_alone_takes_the_model_that_it_shows(extract, files, tmp_path, monkeypatch):
    """The picture is bitwise that with the whole model, which is not made for it; the frame does not change."""
    pytest.importorskip("matplotlib", reason="no pictures without matplotlib")
    monkeypatch.setattr("gpu_extract.figures.canvas.DPI", 50)
    asked, drawn = [], []
    monkeypatch.setattr("gpu_extract.run.extract", lambda *what, **how: asked.append(what[2].model) or extract_arrays(
        *what, **how))
    for more in (["-m", tmp_path / "model.fits"], []):
        assert extract("--qa", tmp_path / "page.png", *more).code == 0
        drawn.append([(tmp_path / "page.png").read_bytes(), read_frame(files.output)])
    assert drawn[0][0] == drawn[1][0]
    whole, (first, last) = asked
    assert whole is True and 20 < first < last <= 60      # the second of two bundles: traces at 8, 16, ... 48
    np.testing.assert_array_equal(drawn[0][1].flux, drawn[1][1].flux)
    cards = [{card.key: card.value for card in frame.cards} for _, frame in drawn]
    assert cards[0]["CFGTEXT"] == cards[1]["CFGTEXT"]


def test_presets_by_name_and_by_camera(extract, run, files, tmp_path):
    """The small PSF covers 6000-6100 only: it refuses the cameras' grids, and the message names them."""
    assert extract("--preset", "desi-r").error.startswith("wavelengths 5760 to 7620 Angstrom")
    assert "wavelengths 3600 to 5800" in extract("--preset", "desi-b").error
    given = "give -w first,last,step, or another --preset"
    assert extract("--preset", "desi-b").error.endswith(f"; they come from the preset desi-b: {given}")
    assert extract("-w", "3600,5800,0.8", "--preset", "desi-b").error.endswith("choose --wavelength within that")
    hdus = image_hdus()
    hdus[0].header["CAMERA"] = "Z9"
    write_image(tmp_path / "z.fits", hdus)
    of_camera = run("-i", tmp_path / "z.fits", "-p", files.psf, "-o", files.output).error
    assert of_camera.endswith(f"; they come from the preset desi-z, as the image's CAMERA is Z9: {given}")
    done = extract("-i", tmp_path / "z.fits", "--psferr", "0.5", "-w", GRID, "-f", "none")
    assert "psferr=0.5" in done.err
    assert "psferr=0.01" in extract("-i", tmp_path / "z.fits", "-w", GRID, "-f", "none").err
    assert "psferr=0.04" in extract("--preset", "desi-b", "-w", GRID).err


def test_without_a_known_camera_the_grid_must_be_given(run, files, tmp_path):
    hdus = image_hdus()
    hdus[0].header["CAMERA"] = "lab"
    write_image(tmp_path / "lab.fits", hdus)
    words = ["-i", tmp_path / "lab.fits", "-p", files.psf, "-o", files.output]
    assert "no wavelength grid: the image's CAMERA is 'lab'" in run(*words).error
    done = run(*words, "-w", GRID)
    assert done.code == 0 and "psferr=None" in done.err  # the PSF's own


def test_barycentric_wavelengths_are_stored_undivided(extract, files, tmp_path):
    """Stored undivided, extracted at wavelengths divided by the factor: the same numbers as for a direct request."""
    hdus = image_hdus()
    target = {"TARGTRA": 150.0, "TARGTDEC": 2.2, "MJD-OBS": 58950.3}
    hdus[0].header.update(target)
    table = hdus["FIBERMAP"]
    more = [fits.Column(name, "D", array=np.linspace(at - 1.5, at + 1.5, len(table.data)))
            for name, at in (("TARGET_RA", 150.0), ("TARGET_DEC", 2.2))]
    hdus["FIBERMAP"] = fits.BinTableHDU.from_columns(table.columns + fits.ColDefs(more), table.header)
    write_image(tmp_path / "t.fits", hdus)
    assert extract("-i", tmp_path / "t.fits", "--barycentric-correction").code == 0
    factor = barycentric_factor([Card(k, v) for k, v in target.items()] + [Card("EXPTIME", 900.0)])
    assert abs(factor - 1) > 3e-5
    header = fits.getheader(files.output)
    assert header["HELIOCOR"] == factor
    frame = read_frame(files.output)
    np.testing.assert_array_equal(frame.wave, np.arange(6010.0, 6090.5))
    image, psf = read_image(tmp_path / "t.fits"), read_psf(files.psf)
    first, last, step = (w / factor for w in grid())
    direct = extract_arrays(image, psf, ExtractConfig((first, last, step), psferr=0.01))
    # photons per bin agree up to rounding of the wavelengths, 1e-12 A of 1 A; bins are wider by the factor
    sigma = direct.ivar**-0.5
    assert np.max(np.abs(frame.flux * factor - direct.flux) / sigma) < 1e-5  # stored in single precision
    # each fibre's own factor, for its target, is in the fibermap
    table = frame.fibermap.rows
    for n in (0, len(table) - 1):
        own = {**target, "TARGTRA": float(table["TARGET_RA"][n]), "TARGTDEC": float(table["TARGET_DEC"][n])}
        assert table["HELIOCOR"][n] == pytest.approx(
            barycentric_factor([Card(k, v) for k, v in own.items()] + [Card("EXPTIME", 900.0)]), abs=1e-13)
    assert "the barycentric correction needs a target" in extract("--barycentric-correction").error


def test_a_target_in_the_fibermaps_header_will_do(extract, files, tmp_path):
    hdus = image_hdus()
    hdus["FIBERMAP"].header.update({"TARGTRA": 150.0, "TARGTDEC": 2.2})
    hdus[0].header["MJD-OBS"] = 58950.3
    write_image(tmp_path / "t.fits", hdus)
    assert extract("-i", tmp_path / "t.fits", "--barycentric-correction").code == 0
    assert "HELIOCOR" in fits.getheader(files.output)


def test_fibermap_from_elsewhere_or_none(extract, files, tmp_path):
    hdus = image_hdus()
    hdus["FIBERMAP"].data["TARGETID"] += 1000
    hdus["FIBERMAP"].data = hdus["FIBERMAP"].data[::-1].copy()
    write_image(tmp_path / "other.fits", hdus)
    extract("-f", tmp_path / "other.fits", "-s", 4)
    rows = read_frame(files.output).fibermap.rows
    assert rows["FIBER"].tolist() == [1504, 1505] and rows["TARGETID"].tolist() == [10**15 + 1004, 10**15 + 1005]
    hdus["FIBERMAP"].data["FIBER"] += 1000
    write_image(tmp_path / "strange.fits", hdus)
    done = extract("-f", tmp_path / "strange.fits", "-s", 4)
    assert done.code == 2 and "FIBER 2500 to 2505, but fibres 1504 to 1505 of spectrograph 3" in done.error
    extract("-f", "none", "-s", 4)
    with fits.open(files.output) as out:
        assert "FIBERMAP" not in out and out[0].header["FIBERMIN"] == 1504
    write_image(tmp_path / "bare.fits", image_hdus()[:2])
    assert extract("-i", tmp_path / "bare.fits").code == 0
    assert read_frame(files.output).fibermap is None


def test_a_table_of_the_whole_instrument(extract, files, tmp_path):
    hdus = image_hdus(nfibre=40)
    hdus["FIBERMAP"].data["FIBER"] = np.arange(40)[::-1]
    write_image(tmp_path / "all.fits", hdus)
    assert extract("-f", tmp_path / "all.fits").code == 0  # camera r3 with 6 fibres: 18-23
    assert read_frame(files.output).fibermap.rows["FIBER"].tolist() == list(range(18, 24))


@pytest.mark.parametrize("degree", [(), (0,)])
def test_a_background_in_one_pass_is_an_error(extract, degree):
    """The scattered light would stay in the spectra. Once only a warning was given."""
    done = extract("--background", *degree)
    assert done.code == 2
    number = degree[0] if degree else 2
    assert f"background is {number}, but a single pass fits none: set passes to 2, or leave background out" in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_options_without_effect_are_said_to_be_ignored(extract):
    text = extract("--nwavestep", 30, "--nsubbundles", 2, "--pixpad-frac", 0.8, "--core", "banded",
                   "--tail-radius", 20).err
    assert "warning: --nwavestep is ignored by the banded core" in text
    assert "warning: --nsubbundles is ignored by the banded core" in text
    assert "warning: --pixpad-frac is ignored" in text
    assert "warning: --tail-radius is ignored: there is only one pass" in text
    text = extract("--core", "dense", "--nwavestep", 30).err
    assert "ignored" not in text and "nwavestep=30" in text


@pytest.mark.parametrize(("size", "has", "told"), [(3, True, True), (3, False, False), (25, True, False)])
def test_a_bundlesize_that_the_psf_knows_better_is_said_to_be_ignored(extract, files, size, has, told):
    """25 appears in every command line that a run logs."""
    psf = read_psf(files.psf)
    write_psf(files.psf, replace(psf, bundle=np.arange(psf.nfibre) // 2 if has else None))
    done = extract("--bundlesize", size)
    assert done.code == 0 and ("--bundlesize is ignored: the PSF's BUNDLE" in done.err) == told


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--decorrelate-fibers", "leave it out"),
        ("--use-specter", "--core dense"),
        ("--wavepad", "--tolerance"),
        ("--ranks-per-bundle", "leave it out"),
        ("--async-io", "leave it out"),
        ("--fibermap-index", "--fibermap"),
    ],
)
def test_refused_options_of_older_codes_name_what_to_use(extract, option, words):
    done = extract(option, *(["3"] if option in ("--wavepad", "--ranks-per-bundle", "--fibermap-index") else []))
    assert done.code == 2 and option in done.error and words in done.error


def test_comparison_with_a_frame(extract, files, tmp_path):
    extract()
    good = tmp_path / "good.fits"
    good.write_bytes(files.output.read_bytes())
    done = extract("-t", good)
    assert done.code == 0 and "flux" in done.out and "NOT within" not in done.out
    with fits.open(good) as hdus:
        hdus["FLUX"].data[2] *= 1.5
        hdus.writeto(tmp_path / "bad.fits", checksum=True)
    done = extract("-t", tmp_path / "bad.fits")
    assert done.code == 1 and "FAILED" in done.out and "differs from" in done.error
    assert extract("-t", tmp_path / "no.fits").code == 2


@pytest.mark.parametrize("core", ["dense", pytest.param("auto", marks=pytest.mark.slow)])
def test_the_self_test_follows_the_run(extract, files, core):
    """auto needs twenty kernels of widths that no other test uses."""
    done = extract("-t", "--core", core)
    assert done.code == 0, done.out
    assert "oracle" in done.out and files.output.exists()


def test_help_is_quick_and_teaches():
    """Loading takes the time: 168 modules, Python's own included, and none of the heavy packages."""
    done = subprocess.run([sys.executable, str(BIN), "--help"], capture_output=True, text=True, check=True)
    for word in ("examples", "exit codes", "--wavelength WMIN,WMAX,DW", "5760,7620,0.8", "(default 25)", "mpiexec"):
        assert word in " ".join(done.stdout.split())
    code = "import sys; from gpu_extract.cli.extract import main; main(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "argparse" in loaded and len(loaded) < 220
    assert not {"numpy", "scipy", "numba", "astropy", "mpi4py", "matplotlib"} & loaded


def test_the_usual_way_loads_nothing_heavy_for_nothing(extract, files):
    """Each takes 0.05 to 0.2 s: numba's compiler parts, scipy.linalg for LAPACK, units for annotations."""
    assert extract("--no-gpu").code == 0         # missing kernels are compiled, which loads all of numba
    code = ("import sys; from gpu_extract.cli.extract import main; assert main(sys.argv[1:]) == 0; "
            "import gpu_extract.simulate; print(*sys.modules)")          # as for the embedded frame
    words = ["-i", files.image, "-p", files.psf, "-o", files.output, "-w", GRID, "--no-gpu"]
    done = subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, check=True)
    heavy = {"scipy.linalg", "scipy.special", "numpy.f2py", "numba.np.arrayobj", "numba.np.arraymath",
             "numba.np.random.legacy", "astropy.table", "gpu_extract.oracle", "matplotlib",
             *(["astropy.units"] if astropy.__version__.startswith(TESTED) else [])}
    assert heavy & set(done.stdout.split()) == set()


def test_version_is_printed(run):
    from gpu_extract import __version__

    assert run("--version").out.strip() == f"gpu_extract {__version__}"


def test_threads_are_set_for_the_libraries(files):
    code = (
        "import os, sys; from gpu_extract.cli.common import set_threads; "
        "set_threads(int(sys.argv[1]) if len(sys.argv) > 1 else None); print(os.environ['NUMBA_NUM_THREADS'])"
    )
    clean = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}

    def threads(*words, **more):
        return subprocess.run(
            [sys.executable, "-c", code, *words], env={**clean, **more}, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert (threads(), threads("2"), threads(OMP_NUM_THREADS="3")) == ("1", "2", "3")
    # numba does not load with 0: "internal error: ValueError" was reported
    assert [threads(NUMBA_NUM_THREADS=given, OMP_NUM_THREADS="3") for given in ("2", "0", "x")] == ["2", "3", "3"]


@pytest.mark.parametrize("given", ["0", "x"])
def test_programs_without_threads_load_numba_as_well(given):
    """gpu_compare has no --threads; with 0 it once ended in an internal error."""
    code = ("from gpu_extract.cli.common import Parser, add_common_options, run_main\n"
            "parser = Parser('a', 'b', 'c')\nadd_common_options(parser)\n"
            "raise SystemExit(run_main(lambda: parser, lambda args: len(__import__('numba').__version__) > 99, []))")
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "NUMBA_NUM_THREADS": given},
                          capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_main_job_on_a_real_psf(run, tmp_path, shared):
    """25 fibres, 501 bins, a PSF with tails, judged by specter's own extraction."""
    data = shared / "data"
    done = run(
        "-i", data / "frames/preproc-v2-fibres000-024.fits.gz", "-p", data / "psf/psf-r0-v2-tails.fits",
        "-o", tmp_path / "frame.fits", "-n", 25, "-w", "6000,6400,0.8",
        "-t", data / "frames/specter-v2-fibres000-024.fits.gz",
    )  # fmt: skip
    assert done.code == 0, done.out
    assert "all within their limits" in done.out and "25 fibres x 501 wavelengths in common" in done.out
    assert "bins: 12525 (25 fibres x 501)" in done.err


def test_another_camera_is_refused_unless_it_is_insisted_on(extract, files):
    write_psf(files.psf, small_psf(), cards=(Card("CAMERA", "r1"),))
    done = extract()
    assert done.code == 2 and not files.output.exists()
    assert done.error == (f"the image's CAMERA is r3, that of {files.psf} is r1; give the PSF of this image, or "
                          "--any-psf (any_psf=True) to use this one")
    done = extract("--any-psf")
    assert done.code == 0 and f"warning: the image's CAMERA is r3, that of {files.psf} is r1" in done.err
    assert "--any-psf" in next(line for line in done.err.splitlines() if line.startswith("command: "))


def test_odd_pixels_are_counted_and_marked(extract, files, tmp_path):
    hdus = image_hdus()
    hdus[0].data[60, 24] = 3e38
    hdus[1].data[40, 40] = 2.0            # read noise 3: no ivar is above 10 / 9
    write_image(tmp_path / "odd.fits", hdus)
    done = extract("-i", tmp_path / "odd.fits")
    assert done.code == 0 and fits.getheader(files.output)["NODDPIX"] == 2
    bins = int((read_frame(files.output).mask & SpecMask.ODDPIX > 0).sum())
    assert bins > 10 and f"odd pixels: 2 treated as masked, in {bins} bins (--keep-odd uses them)" in done.err
    assert extract().code == 0 and fits.getheader(files.output)["NODDPIX"] == 0
    done = extract("-i", tmp_path / "odd.fits", "--keep-odd", "-w", "6010,6090,1.0")
    assert "odd pixels" not in done.err and "--keep-odd" in done.err


def test_dropped_fibres_are_not_said_to_have_no_good_pixel(extract, files):
    psf = small_psf()
    psf.x.coeff[2] = np.nan
    write_psf(files.psf, psf)
    done = extract()
    assert done.code == 0 and "fibre 2 is dropped: its PSF has values that are not finite" in done.err
    assert re.search(r"status: 405 [A-Z_]+, 81 DROPPED; ", done.err)
    history = str(fits.getheader(files.output)["HISTORY"])
    assert "81 bins: The fibre was dropped because of its PSF" in history and "good pixel" not in history
