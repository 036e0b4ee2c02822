"""Shifts when an exposure is moved by whole pixels or mirrored, or its fibres are counted in reverse."""
from dataclasses import replace

import numpy as np
import pytest
from psf_errors import READ_NOISE, make_arc, mirrored, moved, uneven_lines

from gpu_extract.data import Image, PsfModel, with_series
from gpu_extract.simulate.instrument import psf_model
from gpu_extract.spots import select
from gpu_psf.shift.run import ShiftConfig, ShiftedPsf, shift_psf

TRUE, LINES, RIM = psf_model("tiny"), uneven_lines(), 12
OFF = moved(TRUE, 0.23, -0.31)


def seen(x: int = 0, y: int = 0) -> Image:
    """An arc that lies so many pixels farther on a CCD with a masked rim."""
    arc = make_arc(TRUE, (0, TRUE.nfibre), (LINES.wave, LINES.strength), 1)
    place = np.s_[RIM + y:RIM + y + arc.shape[0], RIM + x:RIM + x + arc.shape[1]]
    pix, ivar = np.zeros((2, arc.shape[0] + 2 * RIM, arc.shape[1] + 2 * RIM))
    pix[place], ivar[place] = arc.pix, arc.ivar
    return Image(pix, ivar, read_noise=READ_NOISE)


def start(x: int = 0, y: int = 0) -> PsfModel:
    return replace(moved(OFF, float(RIM + x), float(RIM + y)), shape=seen().shape)


@pytest.fixture(scope="module")
def plain() -> ShiftedPsf:
    return shift_psf(seen(), start(), LINES)


def shifts(found: ShiftedPsf) -> np.ndarray:
    """All over the camera, (2, 81): x, y."""
    return np.array([part.grid() @ part.coeff for part in (found.x, found.y)])


@pytest.mark.parametrize("by", [(2, 0), (-2, 5)])
def test_a_move_by_whole_pixels_is_measured_as_such(plain: ShiftedPsf, by: tuple[int, int]) -> None:
    """Moved along with the light, traces have the same shifts.

    The CCD's first and last rows cut stretches off elsewhere, and other lines are the brightest of a twelfth of the
    rows: their effect is part of the claimed error.
    """
    most = 1e-6 if by[1] == 0 else np.array([[plain.x.error()], [plain.y.error()]])
    assert (np.abs(shifts(shift_psf(seen(*by), start(*by), LINES)) - shifts(plain)) < most).all()
    assert (np.abs(shifts(shift_psf(seen(*by), start(), LINES)) - shifts(plain) - np.array(by)[:, None]) < most).all()


@pytest.mark.parametrize("dy", [0.9, -3.3])
def test_two_fibres_alone_are_as_right_as_they_say(dy: float) -> None:
    """The brightest eight lines of two fibres are too few to see any, and once only the last search saw them, from far:
    y was off by 0.4 pixels, with 0.1 claimed; from farther, none were seen."""
    two = select(TRUE, range(2))
    arc = make_arc(two, (0, 2), (LINES.wave, LINES.strength), 1)
    found = shift_psf(arc, moved(two, -0.5, dy), LINES)
    assert found.y.error() < 0.03
    assert np.abs(shifts(found) - [[0.5], [-dy]]).max() < 3 * found.y.error()


def test_fibres_that_are_counted_from_the_other_end_and_a_mirrored_exposure(plain: ShiftedPsf) -> None:
    back = with_series(start(), lambda series: replace(series, coeff=series.coeff[..., ::-1, :]))
    found = shift_psf(seen(), replace(back, bundle=None), LINES).psf
    np.testing.assert_allclose(found.x.coeff[::-1], plain.psf.x.coeff, atol=1e-10)
    np.testing.assert_allclose(found.y.coeff[::-1], plain.psf.y.coeff, atol=1e-10)
    image = seen()
    image = replace(image, pix=np.flip(image.pix, 1), ivar=np.flip(image.ivar, 1))
    np.testing.assert_allclose(shifts(shift_psf(image, mirrored(start(), 1), LINES)),
                               shifts(plain) * [[-1], [1]], atol=1e-6)


def test_what_masked_pixels_hold_changes_no_bit() -> None:
    """In the image and in READNOISE: the read noise of masked columns once counted, and NaN was an error."""
    image = seen()
    ivar, noise = image.ivar.copy(), np.full(image.shape, READ_NOISE)
    ivar[:, :RIM + 40] = 0
    known = replace(image, ivar=ivar, read_noise=None, noise=noise)
    found = shifts(shift_psf(known, start(), LINES))
    for value in (0.0, np.nan, 1e6):
        pix, odd = image.pix.copy(), noise.copy()
        pix[ivar == 0], odd[ivar == 0] = value, value
        np.testing.assert_array_equal(shifts(shift_psf(replace(known, pix=pix, noise=odd), start(), LINES)), found)


def test_a_pixel_that_is_no_number_is_masked_whatever_its_ivar() -> None:
    """One beside the traces was taken for noise: the image was said to have no light."""
    image, at = seen(), np.s_[RIM + 40:RIM + 60:5, RIM + 15:RIM + 35:5]
    pix, ivar = image.pix.copy(), image.ivar.copy()
    pix[at], ivar[at] = np.nan, 0.0
    masked = shift_psf(replace(image, pix=pix, ivar=ivar), start(), LINES)
    np.testing.assert_array_equal(shifts(shift_psf(replace(image, pix=pix), start(), LINES)), shifts(masked))


def test_errors_are_those_that_are_claimed() -> None:
    """Of faint lines, over exposures. On a short detector stretches overlap, and each pixel counted five times as often
    as there are photons: errors in x were 2.2 times those that were claimed."""
    pulls = []
    for seed in range(12):
        arc = make_arc(TRUE, (0, TRUE.nfibre), (LINES.wave, 0.015 * LINES.strength), seed)
        found = shift_psf(arc, OFF, LINES, ShiftConfig(1))
        grid = found.x.grid()
        for part, by in ((found.x, -0.23), (found.y, 0.31)):
            pulls.append((grid @ part.coeff - by) / np.sqrt(np.einsum("ni,ij,nj->n", grid, part.covariance, grid)))
    spread = np.sqrt(np.mean(np.reshape(pulls, (12, 2, -1)) ** 2, axis=(0, 2)))      # 36 coefficients: +-0.12
    assert (np.abs(spread - 1) < 0.36).all()
