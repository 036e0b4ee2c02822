"""A small arc with known truth: the first bundle of the camera tiny under sixteen lines."""
import numpy as np
import pytest
from psf_errors import Judge, cold, make_arc, true_part, uneven_lines
from small_arc import FIBRES, Small

from gpu_extract.simulate.instrument import psf_model
from gpu_psf.data import FitConfig
from gpu_psf.fit import fit_bundle


@pytest.fixture(scope="session")
def small() -> Small:
    true, lines = psf_model("tiny"), uneven_lines()
    start = cold(true, 3)
    arc = make_arc(true, FIBRES, (lines.wave, lines.strength), 1)
    fit = fit_bundle([arc], start, FIBRES, lines, FitConfig())
    return Small(true, start, lines, arc, fit, Judge(true_part(true, FIBRES), np.linspace(6010, 6100, 12)))
