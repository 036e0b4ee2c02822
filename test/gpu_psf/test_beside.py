"""Whether light lies on other fibres' traces: a whole camera's arc, with lines in other rows in each fibre."""
from dataclasses import replace

import numpy as np
import pytest

from gpu_extract.errors import InputError
from gpu_extract.simulate.instrument import psf_model
from gpu_extract.spots import centres
from gpu_psf.beside import check_beside


def test_an_arc_of_a_whole_camera_lies_on_its_own_traces() -> None:
    """Few places along a trace have a line, and a farther fibre's line is in other rows: all rows have to count."""
    psf = psf_model("r")
    wave = np.random.default_rng(3).uniform(5760.0, 7620.0, 40)
    y, x = np.rint(centres(psf, (0, psf.nfibre), wave)).astype(int)
    pix = np.zeros(psf.shape)
    inside = (y > 1) & (y < psf.shape[0] - 2) & (x > 1) & (x < psf.shape[1] - 2)
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            pix[(y + dy)[inside], (x + dx)[inside]] += 100.0 * (2 - abs(dx)) * (2 - abs(dy))
    down = psf.y.coeff.copy()
    down[:, 0] -= 2.0
    start = replace(psf, y=replace(psf.y, coeff=down))
    check_beside(pix, start, 3.0)
    off = psf.x.coeff.copy()
    off[:, 0] -= 21.8                            # three pitches
    with pytest.raises(InputError, match=r"the light lies \+\d+\.\d pixels in x"):
        check_beside(pix, replace(psf, x=replace(psf.x, coeff=off)), 3.0)
