"""The pixels that belong to a bundle, if traces bend."""
from dataclasses import replace

import numpy as np
import pytest

from gpu_extract.data import PsfModel
from gpu_extract.normal import Cut
from gpu_extract.passes.sides import leave_out, own_columns
from gpu_extract.simulate.instrument import psf_model
from gpu_extract.spots import make_spots

WAVE = np.arange(6020.0, 6090.0, 0.85)


def bent(by: float, tilt: float = 0.0) -> PsfModel:
    psf = psf_model("tiny")
    coeff = psf.x.coeff.copy()
    coeff[:, 1] += tilt
    coeff[:, 2] += by
    return replace(psf, x=replace(psf.x, coeff=coeff))


@pytest.mark.parametrize(("by", "tilt"), [(6.0, 0.0), (-6.0, 0.0), (40.0, 0.0), (0.0, 300.0), (0.0, -300.0)])
@pytest.mark.parametrize("bundle", [(0, 5), (5, 10), (3, 6)])
def test_pixels_beside_are_under_spots_of_the_next_fibre_or_behind_them(bundle: tuple[int, int], by: float,
                                                                             tilt: float) -> None:
    """Row by row, with all spots explicit. This also holds for tilted traces of which only one end is on the rows."""
    psf = bent(by, tilt)
    every = np.linspace(*psf.wavelength_range, psf.shape[0])
    own, all_of = (make_spots(psf, (0, 10), wave) for wave in (WAVE[60:] if tilt else WAVE, every))
    y0, x0 = own.y0[slice(*bundle)], own.x0[slice(*bundle)]
    window = int(y0.min()), int(x0.min()), int(np.ptp(y0)) + psf.stamp[0], int(np.ptp(x0)) + psf.stamp[1]
    first, end = own_columns(psf, bundle, window, y0, x0)
    for row in range(window[2]):
        def on(spots, fibre, row=row):
            at = window[0] + row - spots.y0[fibre]
            return spots.x0[fibre][(at >= 0) & (at < psf.stamp[0])] - window[1]
        mine = np.concatenate([on(own, f) for f in range(*bundle)])
        before = on(all_of, bundle[0] - 1) + psf.stamp[1] if bundle[0] else np.zeros(0, int)
        behind = on(all_of, bundle[1]) if bundle[1] < 10 else np.zeros(0, int)
        low = min(max(before, default=0), min(mine, default=window[3]))
        high = max(min(behind, default=window[3]), max(mine + psf.stamp[1], default=0))
        assert (first[row], end[row]) == (np.clip(low, 0, window[3]), np.clip(high, 0, window[3]))
    assert (first > 0).any() == bool(bundle[0]) and (end < window[3]).any() == (bundle[1] < 10)


def test_fibres_may_be_counted_from_the_other_side() -> None:
    psf = bent(6.0)
    spots = make_spots(psf, (0, 5), WAVE)
    window = int(spots.y0.min()), int(spots.x0.min()), 150, 80
    backwards = replace(psf, x=replace(psf.x, coeff=psf.x.coeff[::-1]), y=replace(psf.y, coeff=psf.y.coeff[::-1]))
    np.testing.assert_array_equal(own_columns(psf, (0, 5), window, spots.y0, spots.x0),
                                  own_columns(backwards, (5, 10), window, spots.y0[::-1], spots.x0[::-1]))


def test_what_is_left_out_is_masked() -> None:
    cut = Cut(np.ones((3, 4)), np.ones((3, 4)), 0, 0)
    leave_out(cut, np.array([[0, 1, 4], [4, 3, 0]]))
    np.testing.assert_array_equal(cut.root, [[1, 1, 1, 1], [0, 1, 1, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(cut.light, cut.root)
