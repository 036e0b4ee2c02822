"""Real pixels through the whole chain: figures of bench/real_data.py with bounds. Skipped where the data are absent."""
import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from gpu_psf.start.profiles import at_rows

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
    assert len(found.frames) == 4 and found.solution.rms < 0.06
    assert found.solution.orders is not None and found.solution.orders.tolist() == list(range(30, 58))
    beside = at_rows(found.traces.x, np.arange(1024.0)).T - found.pattern
    assert abs(beside.mean()) < 0.1 and beside.std() < 0.1
    assert 2.3 < found.detector.gain < 3.0
    for row in bench.chi2_table(found):
        assert 0.9 < row[1] < 1.2               # pixels of less than 30 electrons
        assert row[2] < 2.0                     # to 100 electrons: the spots are no Gaussians
    own = np.asarray(found.frames[0].own_wave)
    assert own.shape == found.frames[0].flux.shape and (np.diff(own, axis=1) > 0).all()


@pytest.mark.slow
def test_the_cmos_camera(bench: ModuleType, real: Path) -> None:
    _, traces, solution = bench.cmos(real)
    assert len(traces.light) == 29 and solution.rms < 0.15
    assert solution.orders is not None and solution.orders.tolist() == list(range(30, 59))


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
