"""Relations between frames that need no reference: how a change of the problem must change its spectra.

The reference and the code might share an error, which these tests would reveal. Two frames that are each right to 1e-8
sigma (doc/method.md) differ by 2e-8 sigma at most, and by 1e-9 in ivar and R, from 100 eps cond (cond is below 7e3
here).
"""
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from extraction import CORES, assert_same_bits, extracted, in_sigma, inner_case, relative
from gpu_extract.assemble import BY_BIN
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Frame, Image, Legendre, PsfModel, with_series
from gpu_extract.oracle import expected_image
from gpu_extract.simulate import SimConfig, simulate
from gpu_extract.spots import make_spots, select

Problem = tuple[Image, PsfModel, ExtractConfig]
APART, OFF = 2e-8, 1e-9      # flux in sigma; relative ivar, and R


def problem(core: str) -> Problem:
    """Three fibres with lines, a masked block beside a trace and scattered masked pixels."""
    case = inner_case(3)
    good = np.random.default_rng(5).random(case.image.shape) > 0.01
    good[150:175, 16:22] = False
    image = Image(np.where(good, case.image.pix, 1e30), np.where(good, case.image.ivar, 0.0))
    return image, case.psf, replace(case.config, wavelength=(6060.0, 6119.2, 0.8), core=core)


def turned(psf: PsfModel, axis: int) -> PsfModel:
    """The PSF mirrored along y (0) or x (1): terms that are odd along the axis change sign."""
    name, size = "yx"[axis], psf.stamp[axis]
    core = psf.cores[0]
    gh = core.gh.coeff.copy()
    gh[(slice(None),) * axis + (slice(1, None, 2),)] *= -1
    trace: Legendre = getattr(psf, name)
    offset = tuple(size - 2 - o if n == axis else o for n, o in enumerate(psf.offset))
    mirrored = replace(trace, coeff=-trace.coeff).plus(psf.shape[axis] - 1.0)
    return replace(psf, cores=(replace(core, gh=replace(core.gh, coeff=gh)),), offset=offset, **{name: mirrored})


def mirrored(axis: int) -> Callable[[Problem], Problem]:
    def change(given: Problem) -> Problem:
        image, psf, config = given
        seen = {name: np.flip(array, axis) for name in ("pix", "ivar", "noise")
                if (array := getattr(image, name)) is not None}
        return replace(image, **seen), turned(psf, axis), config
    return change


def backwards(given: Problem) -> Problem:
    """Wavelengths that descend instead of ascending, within the PSF's range."""
    def back(series: Legendre) -> Legendre:
        signs = (-1.0) ** np.arange(series.coeff.shape[-1])
        return Legendre(series.coeff * signs, end - series.wmax, end - series.wmin)

    image, psf, config = given
    end, (first, last, step) = sum(psf.wavelength_range), config.wavelength
    return image, with_series(psf, back), replace(config, wavelength=(end - last, end - first, step))


def reversed_bins(frame: Frame) -> Frame:
    """A frame with its bins in reverse order, and diagonals of R as well, by columns as they are stored."""
    ndiag, nwave = frame.ndiag, frame.flux.shape[1]
    arrays = {name: getattr(frame, name)[..., ::-1].copy() for name in BY_BIN}
    arrays["resolution"] = arrays["resolution"][:, ::-1].copy()
    assert nwave > 2 * ndiag
    return replace(frame, **arrays)


def assert_close(frame: Frame, reference: Frame) -> None:
    assert in_sigma(reference, frame.flux).max() < APART
    assert relative(frame.ivar, reference.ivar).max() < OFF
    assert np.abs(frame.resolution - reference.resolution).max() < OFF
    np.testing.assert_array_equal(frame.mask, reference.mask)


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("change", [mirrored(0), mirrored(1), backwards], ids=["y", "x", "wavelength"])
def test_a_problem_seen_in_a_mirror_has_the_same_spectra(core: str, change: Callable[[Problem], Problem]) -> None:
    given = problem(core)
    frame, other = extracted(*given), extracted(*change(given))
    assert_close(reversed_bins(other) if change is backwards else other, frame)


@pytest.mark.parametrize("core", CORES)
def test_pixels_in_other_units_change_no_bit(core: str) -> None:
    """Times a power of two: no limit has the unit of a pixel."""
    image, psf, config = problem(core)
    frame = extracted(image, psf, config)
    for power in (2.0**20, 2.0**-20):
        other = extracted(Image(image.pix * power, image.ivar / power**2), psf, config)
        assert_same_bits(replace(other, flux=other.flux / power, ivar=other.ivar * power**2), frame)


@pytest.mark.parametrize("core", CORES)
def test_what_is_masked_and_what_lies_beyond_changes_no_bit(core: str) -> None:
    """Masked pixels may have any value, and masked rows and columns may be added."""
    image, psf, config = problem(core)
    pix = np.where(image.ivar > 0, image.pix, np.nan)
    wider = Image(np.pad(pix, ((0, 9), (0, 30))), np.pad(image.ivar, ((0, 9), (0, 30))))
    frame = extracted(image, psf, config)
    assert_same_bits(extracted(Image(pix, image.ivar), psf, config), frame)
    assert_same_bits(extracted(wider, replace(psf, shape=wider.shape), config), frame)


@pytest.mark.parametrize("core", CORES)
def test_spectra_are_linear_in_the_pixels(core: str) -> None:
    """With the same ivar, the sum of two images has the sum of their fluxes, and the ivar and R of both."""
    image, psf, config = problem(core)
    image = replace(image, pix=np.where(image.ivar > 0, image.pix, 0.0))
    two = np.random.default_rng(1).normal(size=image.shape) / np.sqrt(image.ivar.max())
    frames = [extracted(replace(image, pix=pix), psf, config) for pix in (image.pix, two, 2 * image.pix - 3 * two)]
    expected = 2 * frames[0].flux - 3 * frames[1].flux
    assert in_sigma(frames[2], expected).max() < 6 * APART / 2      # 2 + 3 + 1 frames' own errors
    for frame in frames[1:]:
        np.testing.assert_array_equal(frame.ivar, frames[0].ivar)
        np.testing.assert_array_equal(frame.resolution, frames[0].resolution)


@pytest.mark.parametrize("core", CORES)
def test_q_is_symmetric(core: str) -> None:
    """R = Q / s and ivar = s^2, so sqrt(ivar_i) R_ij = sqrt(ivar_j) R_ji on the stored diagonals."""
    frame = extracted(*problem(core))
    root = np.sqrt(frame.ivar)
    for k in range(1, frame.ndiag + 1):
        above, below = (root[:, :-k] * frame.resolution[:, frame.ndiag - k, k:],
                        root[:, k:] * frame.resolution[:, frame.ndiag + k, :-k])
        assert np.abs(above - below).max() < 2 * OFF * root.min()


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("bins", [slice(0, 45), slice(30, None)], ids=["first", "last"])
def test_part_of_a_range_has_the_same_spectra(core: str, bins: slice) -> None:
    """There is light on both sides, for which the pads are solved. R is compared in bins whose neighbours are in
    both."""
    image, psf, config = problem(core)
    whole = extracted(image, psf, config)
    wave = whole.wave[bins]
    part = extracted(image, psf, replace(config, wavelength=(float(wave[0]), float(wave[-1]), 0.8)))
    inner = slice(whole.ndiag, -whole.ndiag)
    assert in_sigma(part, whole.flux[:, bins]).max() < APART
    assert relative(part.ivar, whole.ivar[:, bins]).max() < OFF
    assert np.abs(part.resolution - whole.resolution[..., bins])[..., inner].max() < OFF
    np.testing.assert_array_equal(part.mask, whole.mask[:, bins])


@pytest.mark.parametrize("core", CORES)
def test_a_fibre_without_a_good_pixel_is_as_one_that_is_not_there(core: str) -> None:
    image, psf, config = problem(core)
    spots = make_spots(psf, (1, 2), np.arange(*psf.wavelength_range, 0.1))
    ivar = image.ivar.copy()
    for y, x in zip(spots.y0[0].tolist(), spots.x0[0].tolist(), strict=True):
        ivar[y - 1:y + psf.stamp[0] + 1, max(x - 1, 0):x + psf.stamp[1] + 1] = 0.0
    others = [0, 2]
    frame, without = (extracted(Image(image.pix, ivar), some, config) for some in (psf, select(psf, others)))
    assert not frame.ivar[1].any() and without.ivar.all()
    assert in_sigma(without, frame.flux[others]).max() < APART
    assert relative(frame.ivar[others], without.ivar).max() < OFF
    assert np.abs(frame.resolution[others] - without.resolution).max() < OFF
    np.testing.assert_array_equal(frame.mask[others], without.mask)


@pytest.mark.parametrize("core", CORES)
def test_a_trace_that_leaves_the_ccd_and_comes_back(core: str) -> None:
    """Columns beyond the edge of the CCD are like masked columns, although pads of fibres that the edge cuts off are
    measured with the edge. The first fibre has most of its light beyond the edge in the middle, and hardly any at the
    ends."""
    _, psf, config = problem(core)
    bend = psf.x.plus(np.array([8.0, 0.0, 8.0]))
    bent, first = replace(psf, x=bend), 15
    photons = np.random.default_rng(3).uniform(100.0, 200.0, (psf.nfibre, 250))
    light = expected_image(bent, range(psf.nfibre), 6000.0 + 0.8 * np.arange(250), photons, psf.shape)
    ivar = np.where(np.arange(psf.shape[1]) < first, 0.0, 1.0 / (light + 9.0))
    cut = replace(bent, x=bend.plus(-float(first)), shape=(psf.shape[0], psf.shape[1] - first))
    masked = extracted(Image(light, ivar), bent, config)
    beyond = extracted(Image(light[:, first:].copy(), ivar[:, first:].copy()), cut, config)
    assert masked.pixmask_fraction[0].max() > 0.5 and masked.pixmask_fraction[0].min() < 0.15
    assert_close(beyond, masked)


def test_r_is_the_same_however_many_diagonals_are_stored() -> None:
    """The diagonals beyond a band are the first to show what it cuts off; z has nine. The dense core cuts off nothing.

    Without `Limits.most_tail` R is off by 1.5e-9 here, and with a `Limits.plain` of 2.5e-6 ivar by 1.2e-9.
    """
    made = simulate(SimConfig(camera="z0", specmin=75, nspec=25, seed=6, exptime=300.0, crop=True))
    wanted = ExtractConfig((9300.0, 9500.0, 0.8), specmin=80, nspec=2, any_psf=True, ndiag=12)
    banded, dense = (extracted(made.image, made.psf, replace(wanted, core=core)) for core in ("banded", "dense"))
    assert relative(banded.ivar, dense.ivar).max() < OFF
    assert np.abs(banded.resolution - dense.resolution).max() < OFF
