"""Ends of a PSF's wavelengths: where not all cosmic rays are searched for, the command says so."""
from dataclasses import replace

import numpy as np

from gpu_extract.config import ExtractConfig
from gpu_extract.passes.ends import told_of_ends, unsearched
from gpu_extract.perf.recorder import Recorder
from gpu_extract.run import extract, prepare
from gpu_extract.simulate import SimConfig, simulate
from gpu_extract.simulate.config import NO_DEFECTS
from gpu_extract.spots import centres

WHOLE, INSIDE = (6000.0, 6110.0, 0.85), (6020.0, 6090.0, 0.85)      # the PSF covers 6000 to 6110


def test_wide_hits_in_the_bins_that_are_named_stay_and_others_are_found() -> None:
    """In these bins, hits of one column are found, and hits of two stay. One warning names them; none is given where
    they are not requested, or no search is. When no hit was found there, bins were off by up to 23 errors."""
    made = simulate(SimConfig(camera="tiny", seed=3, truth_grid=WHOLE, variance="data", defects=NO_DEFECTS))
    config = ExtractConfig(WHOLE, passes=2)
    job = prepare(made.psf, config)
    low, high = unsearched(job.psf, job.plan, made.image.shape)
    assert low > 12 and high == 0            # the last bins are beside the edge of the CCD
    bins = np.array([5, 9, 13, low + 2, low + 10])        # `low` is that of the fibre with most
    y, x = (np.round(at[2, bins]).astype(int) for at in centres(made.psf, (0, 10), job.plan.wave))
    pix, ivar = made.image.pix.copy(), made.image.ivar.copy()
    pix[y, x] += 3000.0
    pix[y[[1, 4]], x[[1, 4]] + 1] += 3000.0
    ivar[:] = 1 / (made.read_noise**2 + np.maximum(pix, 0.0))
    warnings = []
    for settings in (config, replace(config, keep_cosmics=True), replace(config, wavelength=INSIDE)):
        recorder = Recorder()
        said: list[str] = []
        recorder.warn = said.append         # type: ignore[method-assign]
        frame = extract(replace(made.image, pix=pix, ivar=ivar), made.psf, settings, recorder=recorder)
        assert frame is not None
        warnings.append([line for line in said if "cosmic rays" in line])
        if settings is config:
            found = {tuple(place) for place in frame.notes["rejected"].tolist()}
            assert [(int(a), int(b)) in found for a, b in zip(y, x, strict=True)] == [
                True, False, True, True, True]
    assert warnings[1:] == [[], []]
    assert warnings[0] == [told_of_ends(job.psf, job.plan, made.image.shape, job.decay.beyond)]
    assert f"adjacent columns are not searched for in the first {low} bins, because" in warnings[0][0]
