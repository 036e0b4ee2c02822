"""From a flat and an arc with known truth to a starting PSF."""
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from psf_errors import make_arc, moved, uneven_lines
from toy import NOISE, Toy, arc, flat, lamp

from gpu_extract.data import Image, PsfModel
from gpu_extract.errors import InputError
from gpu_extract.io.image import write_image
from gpu_extract.io.psf import read_psf, write_psf
from gpu_extract.simulate.instrument import psf_model
from gpu_extract.spots import centres
from gpu_psf.cli.psf import main
from gpu_psf.data import FitConfig, Lines
from gpu_psf.run import fit_psf
from gpu_psf.series import at_rows, legendre_of_rows, one_by_one
from gpu_psf.start.count import Slit, match_fibres
from gpu_psf.start.lines import Pairs, Seen, read_pairs
from gpu_psf.start.profiles import Traces, fit_profiles, fit_traces
from gpu_psf.start.run import Known, Start, _other_fibres, start_psf, suggested_grid
from gpu_psf.start.search import Range, _middle
from gpu_psf.start.solution import Solution, solve_wavelengths
from gpu_psf.start.traces import find_traces, risen

TOY = Toy()
N = len(TOY.place)
ROWS = np.arange(TOY.ny, dtype=float)
LINES, LIGHT = lamp(TOY)


def traced(image: Image) -> Traces:
    found = find_traces(image)
    return fit_traces(found, fit_profiles(image, found), image.shape)


@pytest.fixture(scope="module")
def images() -> tuple[Image, Image]:
    return flat(TOY), arc(TOY, LINES, LIGHT)


@pytest.fixture(scope="module")
def traces(images: tuple[Image, Image]) -> Traces:
    """Those of the flat."""
    return traced(images[0])


@pytest.fixture(scope="module")
def start(images: tuple[Image, Image]) -> Start:
    return start_psf(*images, LINES, Known(range=Range(5003.0, 5415.0, 5222.0)), Slit(N, 6))


def test_a_flat_with_a_masked_amplifier_has_traces_beside_their_neighbours(images: tuple[Image, Image]) -> None:
    """Where a trace is not seen, it was a polynomial of degree 4 that left the others by 4 pixels, and `gpu_psf fit`
    expects no more. It may leave the common bend by 0.3, which is right to 0.1. Traces that the mask leaves alone are
    as right as without it; one of them had been off by a pixel where the fit of a block of rows went astray.
    """
    flat = replace(images[0], ivar=images[0].ivar.copy())
    flat.ivar[:300, :90] = 0.0
    apart = np.abs(at_rows(traced(flat).x, ROWS) - TOY.x(ROWS))
    assert apart.max() < 0.3
    assert apart[9:].max() < 0.03 and apart[:, 310:].max() < 0.03


def test_all_traces_are_found(traces: Traces) -> None:
    assert len(traces.light) == N
    assert np.abs(at_rows(traces.x, ROWS) - TOY.x(ROWS)).max() < 0.02
    np.testing.assert_allclose(at_rows(traces.sigma, ROWS), TOY.sigma_x, rtol=0.02)


def found_off(toy: Toy, known: Range, lines: np.ndarray, light: np.ndarray) -> float:
    """The largest error in pixels of wavelengths from a range, between the first line and the last."""
    found = start_psf(flat(toy), arc(toy, lines, light), lines, Known(range=known), Slit(len(toy.place)))
    y = np.arange(toy.ny, dtype=float)
    wave = toy.wave(y)
    low, high = np.interp(lines[[0, -1]], wave[0], y)
    apart = at_rows(found.solution.wave, y) - wave
    return float(np.abs(apart[:, int(low) + 1:int(high)]).max() * toy.ny / np.ptp(wave[0]))


@pytest.mark.parametrize("count", [8, 12])
def test_lines_that_are_far_apart(count: int) -> None:
    """Blends, which are not matched, determine the wavelengths between them: 17.7 and 3.4 pixels off without these."""
    toy = Toy(place=TOY.place[:6])
    assert found_off(toy, Range(5003.0, 5415.0, 5222.0), *lamp(toy, count, 79)) < 1.0


FEW = Toy(place=TOY.place[:6])


class Bent(Toy):
    """With the cubic and three times the quartic of real spectrographs."""

    def wave(self, y: np.ndarray) -> np.ndarray:
        u = 2 * y / (self.ny - 1) - 1
        return super().wave(y) + (self.last - self.first) * (
            0.002 * (5 * u**3 - 3 * u) - 0.0000625 * (35 * u**4 - 30 * u**2 + 3))


def few_lines(count: int, seed: int, toy: Toy = FEW) -> tuple[Start, float]:
    """From a lamp of so many lines, of which some are beyond the ends, and a range whose ends are off by up to 2.5 %:
    what is found, and its largest error on the CCD, pixels."""
    rng, (lines, light) = np.random.default_rng(1000 + seed), lamp(toy, count, 100 + seed)
    off, (first, middle, last) = rng.uniform(-10.5, 10.5, 3), toy.wave(ROWS)[len(toy.place) // 2, [0, 300, -1]]
    known = Range(first + off[0], last + off[1], middle + 0.3 * off[2] if seed % 3 else None)
    found = start_psf(flat(toy), arc(toy, lines, light, seed), lines, Known(range=known), Slit(len(toy.place), 6))
    wave = toy.wave(ROWS)
    return found, float((np.abs(found.solution.at(ROWS) - wave) / np.gradient(wave, axis=1)).max())


@pytest.mark.parametrize(("count", "seed"), [(8, 44), (12, 65), (10, 60), (12, 84)])
def test_the_few_lines_of_a_lamp_leave_no_bend_to_chance(count: int, seed: int) -> None:
    """Six or seven lines in a fibre: polynomials went astray beyond the last one, by 2.0, 2.0, 5.1 and 1.6 pixels, or
    followed no bent slit. Orders beyond the square are expected within 0.6 (order 4) or 6 pixels, and the half pixel
    that the lines leave of these is told."""
    found, off = few_lines(count, seed)
    assert off < 1.0 or (off < 2.5 and "wavelengths are uncertain by up to" in found.doubts[0])


@pytest.mark.parametrize("seed", [10, 20])
def test_high_orders_are_held_back_where_lines_are_few(seed: int) -> None:
    """Nine lines in a fibre: 1.9 and 2.3 pixels off. The lines are known to 0.02 pixel, and tell order 3 in between."""
    assert few_lines(12, seed, Bent())[1] < 0.5


@pytest.mark.parametrize(("count", "seed", "wrong", "told"), [
    (12, 19, True, "50% of the bright lines that are seen are within 1.5 pixels of one in the list, 90% or more"),
    (12, 6, False, "there are few lines, and wavelengths are uncertain by up to 4."), (20, 4, False, "")])
def test_wavelengths_that_may_be_wrong_are_told(count: int, seed: int, wrong: bool, told: str) -> None:
    """They were off by 42 and 2 pixels, without a word; a third of the rows of the latter has no line."""
    found, off = few_lines(count, seed)
    assert bool(found.doubts) == bool(told) and all(told in doubt for doubt in found.doubts[:1])
    assert (off > 1.0) == wrong


@pytest.mark.parametrize(("count", "seed"), [(12, 3), (20, 3)])
def test_few_lines_on_few_rows_stand_out(count: int, seed: int) -> None:
    """All 10 of 10 seen lines are on the list, against 8 for a typical solution: 10.4 were once required."""
    toy = Toy(ny=192, first=6000.0, last=6110.0, place=tuple(10.0 + 8 * n for n in range(6)))
    first, middle, last = toy.wave(np.array([0.0, 96.0, 191.0]))[3]
    known, (lines, light) = Range(first + 1, last - 1, middle + 0.5), lamp(toy, count, seed)
    assert found_off(toy, known, lines, light) < 0.5
    with pytest.raises(InputError, match="no solution near the description stands out"):
        start_psf(flat(toy), arc(toy, lines, light), lamp(toy, count, 900 + seed)[0], Known(range=known), Slit(6))


def test_faint_and_missing_fibres() -> None:
    light = np.full(N, 4000.0)
    light[[4, 11]] = 0.0                        # within a bundle, and the last of one
    light[13] = 120.0
    traces = match_fibres(traced(flat(TOY, light)), Slit(N, 6))
    assert np.flatnonzero(traces.interpolated).tolist() == [4, 11]
    error = np.abs(at_rows(traces.x, ROWS) - TOY.x(ROWS)).max(axis=1)
    assert error[4] < 0.1 and np.delete(error, [4, 11]).max() < 0.06
    assert error[11] < 0.3                      # beside a gap


@pytest.mark.parametrize(("count", "message"), [
    (N - 1, f"found {N} traces in the flat, expected {N - 1}: mask bad columns"),
    (N + 8, f"found {N} traces in the flat, expected {N + 8}: too many are missing"),
])
def test_another_number_of_fibres(traces: Traces, count: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        match_fibres(traces, Slit(count))


@pytest.mark.parametrize(("slit", "message"), [
    (Slit(N, 9), r"6 \| 6 \| 6 between gaps, expected 18, bundles of 9 \| 9: give the right --bundlesize"),
    (Slit(21, 7), r"6 \| 6 \| 6 between gaps, expected 21, bundles of 7 \| 7 \| 7: no missing fibres explain"),
    (Slit(21, (6, 9, 6)), "found 18 traces in the flat, expected 21: the gaps do not tell which are missing"),
])
def test_gaps_must_be_those_of_the_bundles(traces: Traces, slit: Slit, message: str) -> None:
    with pytest.raises(InputError, match=message):
        match_fibres(traces, slit)


def test_which_is_missing_must_be_plain() -> None:
    even = Toy(place=tuple(20.0 + 7.3 * n for n in range(12)))
    light = np.full(12, 4000.0)
    light[0] = 0.0
    with pytest.raises(InputError, match="found 11 traces in the flat, expected 12: the gaps do not tell which are"):
        match_fibres(traced(flat(even, light)), Slit(12))


def test_a_trace_beside_the_fibres_is_skipped(traces: Traces) -> None:
    skipped = match_fibres(traces, Slit(N - 1, skip=1))
    np.testing.assert_array_equal(skipped.x.coeff, traces.x.coeff[1:])


def test_a_flat_without_traces_is_refused() -> None:
    rng = np.random.default_rng(0)
    noise = Image(rng.normal(0, NOISE, (300, 120)).astype(np.float32), np.full((300, 120), NOISE**-2, np.float32))
    with pytest.raises(InputError, match="the flat has no traces"):
        find_traces(noise)


def test_a_flat_with_the_dispersion_along_the_other_axis(images: tuple[Image, Image]) -> None:
    image = images[0]
    with pytest.raises(InputError, match="--dispersion"):
        find_traces(Image(np.ascontiguousarray(image.pix.T), np.ascontiguousarray(image.ivar.T)))


def assert_right(found: PsfModel, pixels: float) -> None:
    """Spots of the lamp's lines are in the right places, to so many pixels."""
    wave = np.linspace(5030.0, 5390.0, 60)
    y, x = centres(found, (0, N), wave)
    truth = np.stack([np.interp(wave, w, ROWS) for w in TOY.wave(ROWS)])
    assert np.abs(y - truth).max() < pixels
    assert np.abs(x - np.stack([np.interp(row, ROWS, line) for row, line in zip(truth, TOY.x(ROWS), strict=True)])
                  ).max() < pixels


def test_a_start_from_a_description_is_right(start: Start) -> None:
    assert start.rms < 0.05 and start.used > 150
    assert_right(start.psf, 0.1)
    core = start.psf.cores[0]
    np.testing.assert_allclose(core.sigma_y.coeff[:, 0], TOY.sigma_y, rtol=0.02)
    np.testing.assert_allclose(core.sigma_x.coeff[:, 0], TOY.sigma_x, rtol=0.02)
    assert core.gh.coeff.shape[:2] == (1, 1) and start.psf.bundle is not None
    assert start.psf.bundle.tolist() == [0] * 6 + [1] * 6 + [2] * 6


@pytest.mark.parametrize("quarter", [*(pytest.param(n, marks=pytest.mark.slow) for n in range(3)), 3])
def test_an_arc_with_a_masked_amplifier(images: tuple[Image, Image], quarter: int) -> None:
    """Where no line is seen, fibres bend like those beside them: 1.3, 2.9, 1.5 and 6.1 pixels off were the four, by a
    polynomial that half of the middle fibre determined. Within half a pixel a line that appears there is nearer
    to its own than the last round's tolerance of 1; elsewhere spots are as right as without a mask."""
    masked = replace(images[1], ivar=images[1].ivar.copy())
    half, side = TOY.ny // 2, TOY.nx // 2
    masked.ivar[quarter // 2 * half:][:half, quarter % 2 * side:][:, :side + 1] = 0.0
    found = start_psf(images[0], masked, LINES, Known(range=Range(5003.0, 5415.0, 5222.0)), Slit(N, 6))
    assert_right(found.psf, 0.5)
    wave = at_rows(found.solution.wave, ROWS)
    apart = np.abs(wave - TOY.wave(ROWS)) / np.gradient(TOY.wave(ROWS), axis=1)
    seen = np.array([(masked.ivar[:, int(x[0])] > 0).all() for x in TOY.x(ROWS)])
    assert np.count_nonzero(seen) >= 6 and apart[seen, 20:-20].max() < 0.1


def test_wavelengths_begin_at_a_fibre_with_lines() -> None:
    """The middle one, unless it is dark or has been masked in part: a dark one was refused."""
    def middle(counts: list[int]) -> int:
        fibre = np.repeat(np.arange(len(counts)), counts)
        return _middle(Seen(fibre, *(np.ones(len(fibre)) for _ in range(4))), len(counts))

    assert middle([20, 18, 21, 17, 22]) == 2
    assert middle([20, 18, 0, 11, 22]) == 1
    assert middle([20, 10, 11, 17, 22]) == 3


@pytest.mark.parametrize("with_flat", [pytest.param(True, marks=pytest.mark.slow), False])
def test_from_a_psf_that_is_off(images: tuple[Image, Image], start: Start, with_flat: bool) -> None:
    off = replace(start.psf, x=start.psf.x.plus(3.0))
    coeff = off.y.coeff.copy()
    coeff[:, 0] -= 5.0
    off = replace(off, y=replace(off.y, coeff=coeff))
    again = start_psf(images[0] if with_flat else None, images[1], LINES, Known(psf=off))
    assert again.shift[1] == pytest.approx(5.0, abs=0.2)
    assert with_flat or again.shift[0] == pytest.approx(-3.0, abs=0.05)
    assert_right(again.psf, 0.1 if with_flat else 0.2)


@pytest.mark.parametrize("seed", [3, 4])
def test_hot_columns_do_not_attract_a_psf(images: tuple[Image, Image], start: Start, seed: int) -> None:
    """Columns of up to 30000 electrons a row moved the traces by 1.5 pixels, or were taken for fibres 8 and 45 pixels
    away. Their noise of up to 170 is that of faint lines: the bound is three times that of an arc without them."""
    rng = np.random.default_rng(seed)
    pix = images[1].pix.copy()
    for x in rng.integers(0, TOY.nx, 2 * seed + 1):
        first = rng.integers(0, 300)
        pix[first:, x] += rng.poisson(rng.uniform(3000, 30000), TOY.ny - first)
    hot = replace(images[1], pix=pix, ivar=(1 / (np.maximum(pix, 0) + NOISE**2)).astype(np.float32))
    found = start_psf(None, hot, LINES, Known(psf=replace(start.psf, x=start.psf.x.plus(3.0))))
    assert found.shift[0] == pytest.approx(-3.0, abs=0.15)


@pytest.mark.parametrize(("dark", "told"), [(2, ", or --fibres 18 if 2 of them are dark"), (9, ""), (-1, "")])
def test_fibres_is_advised_only_if_gaps_show_what_is_missing(start: Start, dark: int, told: str) -> None:
    """--fibres helps if gaps show what is missing: otherwise it would lead from one error to the next."""
    message = str(_other_fibres(N - dark, start.psf, told=False))
    assert message.endswith(f"expected 18 as in {start.psf.name}: give a PSF and a flat of the same fibres{told}")
    assert "--fibres" not in str(_other_fibres(N - dark, start.psf, told=True))


def test_a_step_that_the_window_cuts_is_no_peak() -> None:
    """scipy warns of it, which `python -W error` turned into an internal error."""
    at, rise = risen(np.array([0.0, *np.ones(9), 0.0, 2.0, 0.0]), 3.0)
    assert at.tolist() == [11] and rise.tolist() == [2.0]


def test_what_masked_pixels_hold_changes_no_bit() -> None:
    true, lines, random = psf_model("tiny"), uneven_lines(), np.random.default_rng(4)
    arc = make_arc(true, (0, 10), (lines.wave, lines.strength), 1)
    ivar = np.where(random.random(arc.shape) < 0.01, 0.0, arc.ivar)
    arcs = [replace(arc, ivar=ivar, pix=np.where(ivar > 0, arc.pix, held))
            for held in (-7.0, random.choice([3e4, np.nan], arc.shape))]
    first, other = (start_psf(None, each, lines.wave, Known(psf=moved(true, -0.5, 1.0))) for each in arcs)
    for one, another in zip(first.psf.series(), other.psf.series(), strict=True):
        np.testing.assert_array_equal(one.coeff, another.coeff)


@pytest.mark.parametrize("by", [7.3, -14.6])
def test_traces_of_neighbours_are_not_taken(images: tuple[Image, Image], start: Start, by: float) -> None:
    off = replace(start.psf, x=start.psf.x.plus(by))
    with pytest.raises(InputError, match=r"light lies [+-]\d+\.\d pixels in x from the traces of start, at most 5"):
        start_psf(None, images[1], LINES, Known(psf=off))
    with pytest.raises(InputError, match=r"pixels in x from the traces of start, at most 3|it is off by one fibre"):
        fit_psf([images[1]], off, Lines(LINES, LIGHT), FitConfig(degree_gh=0, nspec=1, reach=(3, 5)))


def pairs_of(toy: Toy, factor: np.ndarray) -> Pairs:
    """Each third line on each third fibre, with that fibre's wavelengths times its factor."""
    fibre, row, wave = [], [], []
    for i in range(0, N, 3):
        for line in LINES[(LINES > 5015) & (LINES < 5405)][::3]:
            fibre.append(i)
            row.append(float(np.interp(line, toy.wave(ROWS)[i], ROWS)))
            wave.append(line * factor[i])
    return Pairs(np.array(fibre), np.array(row), np.array(wave))


def test_orders_have_wavelengths_of_their_own(images: tuple[Image, Image]) -> None:
    factor = 60 / (60 + np.arange(N))              # orders 60, 61, ...
    found = start_psf(images[0], None, np.empty(0), Known(pairs=pairs_of(TOY, factor), echelle=True), Slit(N))
    assert found.solution.orders is not None and found.psf.own is not None
    np.testing.assert_array_equal(found.solution.orders, 60 + np.arange(N))
    inner = ROWS[40:-40]
    np.testing.assert_allclose(found.solution.at(inner), TOY.wave(inner) * factor[:, None], atol=0.05)
    # the coordinate is the middle order's wavelength, and its y is where that wavelength is
    low, high = found.psf.wavelength_range
    wave = np.linspace(low + 40, high - 40, 20)
    y = centres(found.psf, (0, N), wave)[0]
    own = np.polynomial.legendre.legval(2 * (wave - low) / (high - low) - 1, found.psf.own.coeff.T)
    for i in (0, N // 2, N - 1):
        np.testing.assert_allclose(y[i], np.interp(own[i], TOY.wave(ROWS)[i] * factor[i], ROWS), atol=0.15)


@pytest.mark.slow
def test_a_list_of_other_lines_is_refused(images: tuple[Image, Image], start: Start) -> None:
    other = np.sort(np.random.default_rng(9).uniform(4980, 5440, 36))
    with pytest.raises(InputError, match=r"match one of the list's|no shift of up to"):
        start_psf(*images, other, Known(psf=start.psf))
    with pytest.raises(InputError, match=r"no solution near the description stands out|match one of the list's"):
        start_psf(*images, other, Known(range=Range(5003.0, 5415.0, 5222.0)))


def test_a_list_of_which_half_agrees_by_chance() -> None:
    """Lines every twelve rows: three times the chance agreement was once required, more lines than exist."""
    true, lines = psf_model("tiny"), uneven_lines()
    seen, off = make_arc(true, (0, 10), (lines.wave, lines.strength), 1), Known(psf=moved(true, -0.5, 1.0))
    found = start_psf(None, seen, lines.wave, off)
    assert found.used > 130 and found.rms < 0.1
    with pytest.raises(InputError, match=r"lines that are seen match one of the list's 16; \d+ would by chance"):
        start_psf(None, seen, np.sort(12110 - lines.wave) + 1.7, off)


@pytest.mark.parametrize("chosen", [[1, 4, 7], [1, 3, 8, 12], [1, 3, 6, 8, 11, 14]])
def test_a_psf_keeps_its_wavelengths_where_no_line_is(chosen: list[int]) -> None:
    """A polynomial through a few lines was once off by up to 20 pixels beside them, silently."""
    true, lines = psf_model("tiny"), uneven_lines()
    wave, w = lines.wave[chosen], np.linspace(6010, 6100, 30)
    seen = make_arc(true, (0, 10), (wave, np.full(len(wave), 20000.0)), 1)
    found = start_psf(None, seen, wave, Known(psf=moved(true, -0.5, 1.0)))
    assert np.abs(centres(found.psf, (0, 10), w)[0] - centres(true, (0, 10), w)[0]).max() < 0.1


def test_lines_that_are_listed_twice_are_one() -> None:
    """With digits that differ; none was without a neighbour, and the list was said to match no line."""
    true, lines = psf_model("tiny"), uneven_lines()
    seen, off = make_arc(true, (0, 10), (lines.wave, lines.strength), 1), Known(psf=moved(true, -0.5, 1.0))
    twice = np.sort(np.concatenate([lines.wave, lines.wave + 0.002]))
    once, both = (start_psf(None, seen, wave, off) for wave in (lines.wave, twice))
    np.testing.assert_array_equal(both.psf.y.coeff, once.psf.y.coeff)


def test_two_lines_are_no_list() -> None:
    """By chance two lines of a wrong list coincide with lines that are seen."""
    true, lines = psf_model("tiny"), uneven_lines()
    seen = make_arc(true, (0, 10), (lines.wave[[3, 9]], np.full(2, 20000.0)), 1)
    with pytest.raises(InputError, match="2 lines of the list are seen apart from others, at least 3 are needed"):
        start_psf(None, seen, lines.wave[[3, 9]], Known(psf=moved(true, -0.5, 1.0)))


def test_an_arc_without_lines(start: Start) -> None:
    with pytest.raises(InputError, match="the arc has no lines on the 18 traces"):
        start_psf(None, flat(TOY, 300.0, seed=7), LINES, Known(psf=start.psf))


@pytest.mark.parametrize("which", [0, 1])
def test_saturated_images_are_refused(images: tuple[Image, Image], which: int) -> None:
    pair = list(images)
    pair[which] = replace(pair[which], ivar=np.zeros(images[0].shape, np.float32))
    with pytest.raises(InputError, match=f"100.0% of the {('flat', 'arc')[which]}'s pixels are masked, at most"):
        start_psf(*pair, LINES, Known(range=Range(5003.0, 5415.0, 5222.0)))


def test_lines_that_are_on_no_surface() -> None:
    rng = np.random.default_rng(3)
    wild = Pairs(np.repeat(np.arange(N), 5), rng.uniform(0, 599, 5 * N), rng.uniform(5000, 5400, 5 * N))
    with pytest.raises(InputError, match=r"reverse on the CCD|do not lie on one smooth solution"):
        solve_wavelengths(wild, N, 600)
    with pytest.raises(InputError, match="2 lines with known wavelengths are too few"):
        solve_wavelengths(Pairs(wild.fibre[:2], wild.row[:2], wild.wave[:2]), N, 600)


def test_lines_bend_wavelengths_that_a_psf_has_straight() -> None:
    """Its traces may have fewer terms than the lines determine."""
    straight = Solution(legendre_of_rows(np.tile([6000.0, 300.0], (N, 1)), 600), 0.0, np.ones(0, dtype=bool))
    row, fibre = np.tile(np.linspace(20, 580, 24), N), np.repeat(np.arange(N), 24)
    u = 2 * row / 599 - 1
    wave = 6000.3 + 300.2 * u + 0.8 * u**2 - 0.3 * u**3
    found = solve_wavelengths(Pairs(fibre, row, wave), N, 600, base=straight)
    np.testing.assert_allclose(one_by_one(found.wave, fibre, row), wave, atol=1e-6)
    few = row > 540
    with pytest.raises(InputError, match="2 lines of the list are seen apart from others, at least 3 are needed"):
        solve_wavelengths(Pairs(fibre[few], row[few], wave[few]), N, 600, base=straight)


def test_bins_that_can_be_told_apart(start: Start) -> None:
    first, last, step = suggested_grid(start.psf)
    y = centres(start.psf, (0, N), np.array([first, last]))[0]
    assert (y >= 0).all() and (y <= TOY.ny - 1).all()
    assert 1.4 * TOY.sigma_y * 0.6 < step < 1.4 * TOY.sigma_y * 0.9


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, images: tuple[Image, Image], start: Start) -> Path:
    folder = tmp_path_factory.mktemp("start")
    for name, image in zip(("flat", "arc"), images, strict=True):
        write_image(folder / f"{name}.fits", image)
    write_psf(folder / "old.fits", start.psf)
    (folder / "lines.txt").write_text("# wavelength\n" + "\n".join(f"{wave:.4f}" for wave in LINES))
    (folder / "bad.txt").write_text("0 5 blue\n")
    return folder


def test_the_command_writes_a_starting_psf(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["start", "--flat", "flat.fits", "--arc", "arc.fits", "--lines", "lines.txt", "--range", "5003,5415,5222",
             "--fibres", "18", "--bundlesize", "6", "-o", "start.fits"]
    assert main([str(files / word) if "." in word and "," not in word else word for word in given]) == 0
    assert_right(read_psf(files / "start.fits"), 0.1)
    assert "18 fibres" in capsys.readouterr().err


def test_identified_lines_of_a_text(tmp_path: Path) -> None:
    """A fractional fibre number was once taken as an integer: another column had been read."""
    (tmp_path / "pairs.txt").write_bytes(b"\xef\xbb\xbf1 20.5 6001\n0 30.5 600.2e1 Ne\n")
    pairs = read_pairs(tmp_path / "pairs.txt")
    assert pairs.fibre.tolist() == [0, 1] and pairs.wave.tolist() == [6002.0, 6001.0]
    with pytest.raises(InputError, match=r"the number of a fibre is 20.5, must be a whole number"):
        read_pairs(tmp_path / "pairs.txt", (1, 0, 2))


@pytest.mark.parametrize(("options", "message"), [
    (["--flat", "flat.fits"], "nothing is given for the wavelengths, exactly one is needed of"),
    (["--flat", "flat.fits", "--psf", "old.fits", "--range", "5003,5415"], "--psf and --range is given"),
    (["--arc", "arc.fits", "--range", "5003,5415"], "neither a flat nor a PSF gives the traces"),
    (["--flat", "flat.fits", "--arc", "arc.fits", "--psf", "old.fits", "--fibres", "17"], "found 18 traces"),
    (["--flat", "flat.fits", "--range", "5003"], "--range: '5003' is not two or three wavelengths"),
    (["--flat", "flat.fits", "--range", "5003,1e10"], "--range is 5003,1e+10, must be different wavelengths above"),
    (["--flat", "flat.fits", "--pairs", "bad.txt"], "does not begin with 3 numbers"),
    (["--flat", "flat.fits", "--pairs", "none.txt"], "cannot be read"),
])
def test_bad_input_is_one_line_and_nothing_is_written(files: Path, capsys: pytest.CaptureFixture[str],
                                                      options: list[str], message: str) -> None:
    words = [str(files / word) if "." in word else word for word in options]
    assert main(["start", *words, "-o", str(files / "x.fits")]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    assert len(lines) == 1 and message in lines[0]
    assert not (files / "x.fits").exists()


