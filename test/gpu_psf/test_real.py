"""Real pixels through the whole chain: figures of bench/real_data.py with bounds. Skipped where the data are absent."""
import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from real_plasma import HYDROGEN, OTHERS, offsets
from real_spectra import MOVED

from gpu_psf.series import at_rows

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("real_data", ROOT / "bench" / "real_data.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys
    sys.modules["real_data"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def real(shared: Path) -> Path:
    folder = shared / "data" / "real"
    if not folder.is_dir():
        pytest.skip(f"no real images: {folder} is absent")
    return folder


@pytest.mark.slow
def test_the_ccd(bench: ModuleType, real: Path) -> None:
    found = bench.ccd(real)
    seen = bench.seen_lines(found.images[1], found.traces, 2.5)
    for lines in OTHERS.values():         # moved to deuterium's lines, the wavelengths are right for all others
        assert np.abs(offsets(seen, found.solution, lines)).max() < 0.6
    assert np.median(offsets(seen, found.solution, list(HYDROGEN.values()), 12)) > 6
    assert len(found.frames) == 4 and found.solution.rms < 0.06
    assert found.solution.orders is not None and found.solution.orders.tolist() == list(range(30, 58))
    beside = at_rows(found.traces.x, np.arange(1024.0)).T - found.pattern
    assert abs(beside.mean()) < 0.1 and beside.std() < 0.1
    assert 2.3 < found.detector.gain < 3.0
    for row in bench.chi2_table(found):
        assert 0.9 < row[1] < 1.2               # pixels of less than 30 electrons
        assert row[2] < 2.0                     # to 100 electrons: the spots are no Gaussians
    fitted, better = bench.ccd_fitted(found)
    assert fitted.spots["FIRM"].sum() > 80
    for new, old in zip(bench.chi2_table(better), bench.chi2_table(found), strict=True):
        assert 0.9 < new[0] < 1.2 and 0.9 < new[1] < 1.1            # all pixels, and the faint ones
        assert (np.array(new[3:]) < 0.75 * np.array(old[3:])).all()     # 100 electrons and more
    repeats = bench.ratios(better.frames)
    for name, scatter in (("D-gamma on two orders", 0.01), ("D-beta on two orders", 0.02), ("C II 7231/7236", 0.01),
                          ("C II 5151/5133", 0.015)):
        assert repeats[name] < scatter
    assert repeats["D-gamma / D-beta"] > 0.1                                # the plasma
    sigma = bench.widths(found.images, found.traces, found.solution, 2.5)
    assert len(sigma["D-gamma"]) == 2 and np.abs(sigma["D-gamma"][1] - sigma["D-gamma"][0]).max() < 0.1
    assert np.ptp(sigma["D-gamma"].mean(axis=0)) > 0.25                     # it is the plasma's width, not the PSF's
    own = np.asarray(found.frames[0].own_wave)
    assert own.shape == found.frames[0].flux.shape and (np.diff(own, axis=1) > 0).all()


@pytest.mark.slow
def test_the_cmos_camera(bench: ModuleType, real: Path) -> None:
    camera = bench.cmos(real)
    assert len(camera.traces.light) == 29 and camera.solution.rms < 0.15
    assert camera.solution.orders is not None and camera.solution.orders.tolist() == list(range(30, 59))
    arc = bench.cmos_arc(camera)
    bundles = arc.fitted.bundles
    assert (bundles["FITTED"] > 0).all() and bundles["NSPOT"].sum() > 100
    assert (bundles["CHI2"] < 0.97 * bundles["CHI2GH"]).all()           # tables fit better than Gauss-Hermite spots
    assert (bundles["CHI2"][1:] < 1.5).all()        # the first has argon lines of S/N 1000, see doc/real-data.md
    table = bench.arc_chi2(arc, bench.LEVELS)
    for new, old in zip(table["fitted"], table["start"], strict=True):
        assert new[1] < 1.8 and (np.array(new[2:5]) < 0.7 * np.array(old[2:5])).all()
    assert 0.9 < table["fitted"][0][0] < 1.2                            # the arc's pixels
    beside, double, (box, row, _) = bench.cmos_spectra(camera, arc, real)
    apart = beside[:, 0] - np.median(beside[:, 0])                      # Angstrom
    assert len(beside) > 75 and 1.4826 * np.median(np.abs(apart)) < 0.010 and abs(beside[:, 0].mean()) < 0.01
    assert np.sum(np.abs(apart) > 0.03) <= 1        # the centroid of a faint line's core may be noise
    assert len(double) > 20 and 0.9 < np.median(double[:, 0]) < 1.2
    assert 0.85 < row / box < 1.05
    moved = bench.shifts(arc, np.unique(camera.used.wave))
    assert abs(moved["flat"][0] - arc.moved[0]) < 0.1           # found by another method, order by order
    assert np.abs(np.array(moved["arc"]) - moved["arc, moved"] - MOVED).max() < 0.04
    power = bench.line_widths(arc)[:, 2]
    assert 9000 < np.median(power) < 10500 and np.ptp(power) < 3000


@pytest.mark.slow
def test_the_star(bench: ModuleType, real: Path) -> None:
    from astropy.io import fits

    image, traces = bench.uves(real)
    table = fits.getdata(real / "uves-star.fits.gz", 1)
    x = at_rows(traces.x, np.arange(image.shape[0], dtype=float))
    offsets = []
    for order in np.unique(table["ORDER"]):
        own = table["ORDER"] == order
        line = np.interp(2 * np.arange(1500.0) + 1.5, table["X"][own], table["Y"][own]) / 2
        if np.isfinite(line).all():
            offsets.append(np.abs(np.mean(x - line, axis=1)).min())
    assert len(traces.light) == 35
    assert len(offsets) == 0 or np.median(offsets) < 1.0      # of another exposure, on unbinned pixels
