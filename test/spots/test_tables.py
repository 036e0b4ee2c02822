"""Tabulated spots: against their definition, against the Gauss-Hermite spots that they represent, and extracted."""
from dataclasses import replace

import numpy as np
import pytest

import oracle
from extraction import assert_same_bits, extracted
from gpu_extract.checks.psf_check import check_psf, remaining
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Core, PsfModel
from gpu_extract.errors import InputError
from gpu_extract.oracle.spots import b_splines, component
from gpu_extract.spots import make_spots
from gpu_extract.spots.tables import core_of, magnified, nodes_of, stamps_of, table_of, tabulated

WAVE = np.linspace(oracle.WMIN, oracle.WMAX, 41)
DOMAIN = oracle.WMIN, oracle.WMAX
NODES, POSITIONS = 5, (2, 2)


def smooth(nfibre: int = 3, **options) -> PsfModel:
    """A Gauss-Hermite PSF whose spots are hardly ever below 0 and whose light changes by some per cent."""
    psf = oracle.make_psf("v3", nfibre, **options)
    coeff = 0.1 * psf.cores[0].gh.coeff
    coeff[0, 0] = np.eye(4)[0]
    return replace(psf, cores=(replace(psf.cores[0], gh=replace(psf.cores[0].gh, coeff=coeff)),))


@pytest.mark.parametrize("positions", [(2, 2), (3, 2), (1, 5)])
def test_spots_against_the_definition(positions):
    """1e-13: 22 x 34 terms with coefficients of some times the peak, each to rounding."""
    psf = tabulated(oracle.make_psf("v3", 2), 4, positions)
    spots = make_spots(psf, (0, 2), WAVE)
    for fibre in range(2):
        for j, w in enumerate(WAVE):
            wanted = oracle.spot(psf, fibre, float(w))
            assert (spots.y0[fibre, j], spots.x0[fibre, j]) == (wanted.y0, wanted.x0)
            np.testing.assert_allclose(spots.stamps[fibre, j], wanted.pixels, rtol=0, atol=1e-13)
    np.testing.assert_allclose(spots.stamps.sum(axis=(2, 3)), 1, rtol=0, atol=1e-14)


def test_any_cut_gives_the_same_bits():
    psf = oracle.make_psf("table", 3)
    whole = make_spots(psf, (0, 3), WAVE)
    for fibres, bins in [((0, 3), slice(7, 8)), ((2, 3), slice(0, 41)), ((1, 2), slice(13, 40))]:
        np.testing.assert_array_equal(make_spots(psf, fibres, WAVE[bins]).stamps, whole.stamps[slice(*fibres), bins])


def test_the_stamps_of_a_table_come_out_of_it():
    """At the table's own wavelengths and positions there is no interpolation: to rounding, 4e-16 of the light times the
    inverse of the samples' matrix, 7.5 along each axis, and the wavelengths'."""
    rng = np.random.default_rng(5)
    waves = np.array([6010.0, 6080.0, 6190.0])
    stamps = rng.uniform(0.5, 1.5, (2, 3, 2, 3, 7, 9))
    stamps /= stamps.sum(axis=(4, 5), keepdims=True)
    like = replace(smooth(2), stamp=(7, 9), offset=(2.5, 3.5))
    psf = replace(like, cores=(core_of(7.0 * stamps, np.arange(2), waves, DOMAIN, 2),))
    np.testing.assert_allclose(stamps_of(psf, waves, (2, 3)), stamps, rtol=0, atol=1e-13)
    x, y = (replace(psf.x, coeff=np.full((2, 1), centre)) for centre in (4.0 - 1 / 3, 3.25))
    spots = make_spots(replace(psf, x=x, y=y), (1, 2), waves[2:])
    np.testing.assert_allclose(spots.stamps[0, 0], stamps[1, 2, 1, 0], rtol=0, atol=1e-13)      # where the centre is


def test_a_table_and_back():
    psf = tabulated(smooth(2), NODES, POSITIONS)
    stamps, waves = table_of(psf)
    assert stamps.shape == (2, NODES, *POSITIONS, *psf.stamp) and (stamps >= 0).all()
    again = core_of(stamps, np.arange(2), waves, DOMAIN, 2)
    np.testing.assert_allclose(again.gh.coeff, psf.cores[0].gh.coeff, rtol=0, atol=1e-13)


def _axis(omega: np.ndarray) -> np.ndarray:
    """The part of a wave that quintic interpolation of samples at distance 1 keeps: the cardinal spline's transform."""
    return np.sinc(omega / (2 * np.pi)) ** 6 * 120 / (66 + 52 * np.cos(omega) + 2 * np.cos(2 * omega))


def between_samples(core: Core, fibre: int, wave: float, positions: tuple[int, int]) -> float:
    """The first term of `bound`: (2 pi)^-2 integral |F| 2 (1 - eta_y eta_x), F the spot's transform."""
    omega = np.linspace(-9, 9, 361)          # in 1 / sigma: beyond, it is below 1e-15
    gh = oracle.evaluate(core.gh, fibre, wave)
    widths = [float(oracle.evaluate(s, fibre, wave)) for s in (core.sigma_y, core.sigma_x)]
    waves = [(1j * omega) ** np.arange(n)[:, None] for n in gh.shape]
    light = np.abs(np.einsum("ji,jy,ix->yx", gh, *waves))
    left = np.ones(light.shape)
    for axis, (sigma, count) in enumerate(zip(widths, positions, strict=True)):
        shape = [1, 1]
        shape[axis] = -1
        light = light * (np.exp(-omega**2 / 2) * np.abs(np.sinc(omega / sigma / (2 * np.pi)))).reshape(shape)
        left = left * _axis(omega / sigma / count).reshape(shape)
    step = omega[1] - omega[0]
    return float((light * 2 * (1 - left)).sum() * step**2 / (4 * np.pi**2 * widths[0] * widths[1]) / gh[0, 0])


LEBESGUE = 1.9           # of the cardinal quintic spline, along an axis; a test below measures it
EDGE = 0.225             # 27 / 120: what the coefficients beyond an end add to a sample inside
INVERSE = 7.5            # norm of the inverse of the samples' matrix, along an axis: 120 / (66 - 52 + 2)


def test_constants_of_the_cardinal_spline_are_bounds():
    samples = np.linalg.inv(b_splines(81, 1.0, np.arange(-40.0, 41.0)))
    at = b_splines(81, 1.0, np.linspace(-0.5, 0.5, 101))
    assert np.abs(samples @ at).sum(axis=0).max() < LEBESGUE
    assert np.abs(samples).sum(axis=0).max() < INVERSE + 1e-9


def bound(psf: PsfModel, fibre: int) -> float:
    """How far a pixel of a tabulated spot may be from that of the Gauss-Hermite spot which the table is of.

    - Between the samples of a function with transform F, quintic interpolation errs by (2 pi)^-2 integral |F| 2 (1 -
      eta_y eta_x) at most: 1 - eta of a wave is lost, and its images, which have 1 - eta together, are added.
    - Errors of the samples grow by LEBESGUE along each axis. Samples err where Gauss-Hermite spots are below 0 and were
      clipped, and by the polynomial in wavelength: 2 sum_(k >= nodes) |a_k|, of the Chebyshev coefficients of a pixel.
    - The coefficients beyond the stamp are taken as 0. Those inside then err by the inverse of the samples' matrix,
      INVERSE^2, times what those beyond add to the samples, EDGE of the largest of them along each axis; and those
      beyond are missing themselves.
    """
    many, (py, px), (ny, nx) = nodes_of(33, DOMAIN), POSITIONS, psf.stamp
    beyond = 5                                # pixels on each side: spots have ended there
    places = [(np.arange(count * (n + 2 * beyond)) + 0.5) / count - n / 2 - beyond
              for count, n in ((py, ny), (px, nx))]
    values = np.array([component(psf.cores[0], fibre, float(wave), (places[0], places[1])) for wave in many])
    inner = np.s_[:, py * beyond:-py * beyond, px * beyond:-px * beyond]
    knots = np.linalg.solve(_samples(values.shape[1]), np.linalg.solve(_samples(values.shape[2]), values.swapaxes(1, 2))
                            .swapaxes(1, 2))
    knots[inner] = 0.0
    angle = np.pi * (np.arange(33) + 0.5) / 33
    terms = 2 / 33 * np.tensordot(np.cos(np.outer(np.arange(33), angle))[:, ::-1], values[inner], axes=(1, 0))
    of_wave = 2 * np.abs(terms[NODES:]).sum(axis=0).max()
    clipped = max(0.0, -values.min())
    between = max(between_samples(psf.cores[0], fibre, float(w), POSITIONS) for w in many[::4])
    cut = (2 * EDGE * INVERSE**2 + 1) * np.abs(knots).max()
    print(f"between samples {between:.1e}, of wavelength {of_wave:.1e}, clipped {clipped:.1e}, cut {cut:.1e}")
    return between + LEBESGUE**2 * (of_wave + clipped) + cut


def _samples(count: int) -> np.ndarray:
    return b_splines(count, 1.0, np.arange(count) - (count - 1) / 2)


def test_a_table_of_gauss_hermite_spots():
    """Within the derived bound, which is 6.5e-4 of the peak; 8e-5 are seen."""
    psf = smooth()
    truth, made = (make_spots(p, (0, 3), WAVE).stamps for p in (psf, tabulated(psf, NODES, POSITIONS)))
    limit = bound(psf, 1)
    error = np.abs(made[1] - truth[1]).max()
    print(f"error {error:.2e}, bound {limit:.2e}, peak {truth.max():.3f}")
    assert error < limit < 1e-3 * truth.max()
    coarse = make_spots(tabulated(psf, NODES, (1, 1)), (0, 3), WAVE).stamps
    assert np.abs(coarse[1] - truth[1]).max() > limit      # one position per pixel would not suffice


def test_fibres_between_those_of_the_table():
    """Cubic in the fibre's number, constant beyond the first and last."""
    psf = tabulated(smooth(9), NODES, POSITIONS)
    stamps, waves = table_of(psf)
    number = np.arange(9) - 4.0
    curve = (1 + 0.02 * number + 0.001 * number**2 - 2e-4 * number**3)[:, None, None, None, None, None]
    table = stamps[:1] * curve + stamps[1:2] * (1 - curve)
    whole = core_of(table, np.arange(9), waves, DOMAIN, 9).gh.coeff
    nodes = np.array([0, 2, 4, 5, 8])
    np.testing.assert_allclose(core_of(table[nodes], nodes, waves, DOMAIN, 9).gh.coeff, whole, rtol=0, atol=1e-13)
    few = core_of(table[2:4], np.array([2, 3]), waves, DOMAIN, 9).gh.coeff
    np.testing.assert_allclose(few[:, :, [0, 1, 2, 3, 8]], whole[:, :, [2, 2, 2, 3, 3]], rtol=0, atol=1e-13)
    one = core_of(table[2:3], np.array([2]), waves, DOMAIN, 9).gh.coeff
    np.testing.assert_allclose(one[:, :, 7], whole[:, :, 2], rtol=0, atol=1e-13)


def test_how_nodes_magnify_errors():
    """Lebesgue constants: 1 to 2.3 for Chebyshev nodes, 6.93 for 8 equally spaced ones, much more beyond the ends."""
    assert magnified(np.array([6100.0]), DOMAIN) == pytest.approx(1)
    assert magnified(nodes_of(8, DOMAIN), DOMAIN) == pytest.approx(2.287, abs=1e-3)
    assert magnified(np.linspace(*DOMAIN, 8), DOMAIN) == pytest.approx(6.929, abs=2e-3)
    assert magnified(np.linspace(6080, 6120, 4), DOMAIN) > 100
    assert magnified(np.array([6100.0, np.nextafter(6100.0, 6200.0)]), DOMAIN) > 1e9
    assert magnified(np.array([6100.0, 1e300, 1e301]), DOMAIN) == np.inf


CONFIG = ExtractConfig(wavelength=(6050.0, 6098.0, 0.8), model=True)
PLACE = {"shape": (360, 56), "first_row": 20}


def test_extraction_with_a_table():
    """As with the Gauss-Hermite PSF from which it is made: at a median S/N of 15 per bin, 90 at most."""
    psf = smooth(5, **PLACE)
    case = oracle.make_case(psf, CONFIG)
    table = tabulated(psf, NODES, POSITIONS)
    wanted, frame = (extracted(case.image, p, CONFIG) for p in (psf, table))
    apart = np.abs(frame.flux - wanted.flux) * np.sqrt(wanted.ivar)
    signal = np.median(wanted.flux * np.sqrt(wanted.ivar))
    print(f"median {np.median(apart):.4f}, most {apart.max():.4f} sigma; S/N {signal:.0f}")
    assert np.median(apart) < 0.02 and apart.max() < 0.2
    assert abs(np.median(frame.chi2pix / wanted.chi2pix) - 1) < 1e-3
    np.testing.assert_allclose(frame.ivar, wanted.ivar, rtol=5e-3)


def test_threads_and_choice_of_fibres_change_no_bit():
    psf = oracle.make_psf("table", 6, (360, 70), first_row=20, bundle=np.arange(6) // 3)
    case = oracle.make_case(psf, CONFIG)
    whole = extracted(case.image, psf, CONFIG)
    part = extracted(case.image, psf, replace(CONFIG, specmin=3, nspec=3), threads=2)
    assert_same_bits(part, whole, other_rows=slice(3, 6))


def test_a_bad_fibre_is_dropped():
    psf = oracle.make_psf("table", 4, **PLACE)
    for value, words in ((np.nan, "not finite"), (0.0, "its spots hold 0 of their light")):
        coeff = psf.cores[0].gh.coeff.copy()
        coeff[:, :, 2] = value
        bad = replace(psf, cores=(replace(psf.cores[0], gh=replace(psf.cores[0].gh, coeff=coeff)),))
        dropped = check_psf(bad, WAVE[10:30])
        assert list(dropped) == [2] and words in dropped[2]
        assert remaining(bad, dropped).tabulated


def test_even_stamps_are_no_table():
    with pytest.raises(InputError, match="its stamps have 20 x 20 pixels, must be odd numbers"):
        tabulated(oracle.make_psf("gh2", 2), 4, (2, 2))
