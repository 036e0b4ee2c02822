"""Distant starts, dead amplifiers, dead and faint fibres and cosmic rays, singly and together: fitted and flagged."""
import numpy as np
import pytest
from psf_damage import CASES, STATUS_OF, judged, make_case

from gpu_extract.simulate.instrument import psf_model
from gpu_psf.data import FitConfig
from gpu_psf.fit import fit_bundle

TINY, WHOLE = 1.6, 1.3      # times Cramer-Rao: of 60 spots, see test_fit; the limit for a whole bundle


@pytest.mark.parametrize(("camera", "name"), [
    *(("tiny", name) for name in CASES),
    *(pytest.param(camera, name, marks=pytest.mark.slow) for camera in "rbz" for name in CASES)])
def test_damage_costs_what_it_touches(camera: str, name: str) -> None:
    fibres = (0, 5) if camera == "tiny" else (100, 125)
    case = make_case(name, camera, psf_model(camera), fibres, 1)
    fit = fit_bundle([case.arc.image], case.arc.start, fibres, case.arc.lines, FitConfig())
    for state, kind in zip(fit.status, case.kinds, strict=True):
        assert state in STATUS_OF[kind], kind
    found, least = judged(case, fit)
    for part in ("x", "y", "stamp", "shape"):
        bound = np.sqrt(np.mean([getattr(each, part) ** 2 for each in least]))
        assert getattr(found, part) < (TINY if camera == "tiny" else WHOLE) * bound, part
