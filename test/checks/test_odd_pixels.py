"""Odd pixels: which pixels are treated as masked, which never; nothing else moves, and bins are flagged."""
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import oracle
from extraction import CORES, assert_same_bits, extracted, in_sigma, inner_case, relative
from gpu_extract.checks.odd_pixels import (
    FAR,
    SHARP,
    columns,
    concentration,
    find_odd,
    may_be_odd,
    most_ivar,
    none_odd,
    touched,
)
from gpu_extract.checks.probe import measure_decay
from gpu_extract.data import Image, SpecMask
from gpu_extract.errors import InputError
from gpu_extract.io.image import read_image
from gpu_extract.io.psf import read_psf
from gpu_extract.normal import make_cut
from gpu_extract.spots import centres, corners

WHOLE = 5      # fibres of the case: all of one bundle


def frame_of(image: Image, **settings):
    case = inner_case()
    return extracted(image, case.psf, replace(case.config, **settings))


@cache
def undisturbed():
    return frame_of(inner_case().image)


def changed(array: np.ndarray, where: tuple[int, int], value: float) -> np.ndarray:
    array = array.copy()
    array[where] = value
    return array


def odd_of(image: Image, psf=None, most=None) -> list[tuple[int, int]]:
    psf = inner_case().psf if psf is None else psf
    found = find_odd(image, columns(psf, range(psf.nfibre), image.shape[1]), most or most_ivar(image),
                     lambda: concentration(psf))
    return [(int(y), int(x)) for y, x in found]


@cache
def places() -> dict[str, tuple[int, int]]:
    """Pixels: on a trace at its faintest, between traces, in the brightest core, and in a corner without light."""
    case = inner_case()
    y, x = (np.rint(c).astype(int) for c in centres(case.psf, (0, WHOLE), case.wave[30:-30]))
    on = case.image.ivar[y, x]
    faint, bright = (np.unravel_index(n, on.shape) for n in (on.argmax(), on.argmin()))
    return {"trace": (int(y[faint]), int(x[faint])), "between": (180, int(x[2, 100]) + 4),
            "core": (int(y[bright]), int(x[bright])), "corner": (3, 3)}


@pytest.mark.parametrize("where", ["trace", "between", "core"])
@pytest.mark.parametrize("value", [1e6, -1e6, 1e8, 1e12, 1e18, 3e38, 1e200])
def test_a_huge_pixel_moves_nothing_but_what_touches_it(where, value):
    """It is masked bitwise, and every bin that touches it is flagged.

    Beyond the measured pad a masked pixel has no effect either: the decay is measured with errors of 100 sigma, and one
    masked pixel of a frame moves no bin by as much.
    """
    case, place = inner_case(), places()[where]
    image = replace(case.image, pix=changed(case.image.pix, place, value))
    frame = frame_of(image)
    assert odd_of(image) == [place] and frame.notes["bundles"][0]["odd_pixels"] == 1
    masked = frame_of(replace(image, ivar=changed(image.ivar, place, 0.0)))
    near = (frame.mask & SpecMask.ODDPIX) > 0
    assert_same_bits(replace(frame, mask=frame.mask & ~np.uint32(SpecMask.ODDPIX)), masked)
    y0, x0 = corners(case.psf, centres(case.psf, (0, WHOLE), frame.wave))
    ny, nx = case.psf.stamp
    covers = (y0 <= place[0]) & (place[0] < y0 + ny) & (x0 <= place[1]) & (place[1] < x0 + nx)
    np.testing.assert_array_equal(near, covers)
    pad = measure_decay(case.psf, case.config.wavelength, case.config.tolerance).beyond
    bins = np.arange(near.shape[1])
    far = np.abs(bins[:, None] - bins[near.any(axis=0)]).min(axis=1) > pad
    assert far.sum() > 100
    assert in_sigma(undisturbed(), frame.flux)[:, far].max() < 1e-8


@pytest.mark.parametrize("factor", [1e3, 1e6, 1e12])
def test_ivar_that_no_detector_has_is_masked(factor):
    case, place = inner_case(), places()["between"]
    image = replace(case.image, ivar=changed(case.image.ivar, place, factor * case.image.ivar[place]))
    assert odd_of(image) == [place]
    frame = frame_of(image)
    masked = frame_of(replace(image, ivar=changed(image.ivar, place, 0.0)))
    assert (frame.mask & SpecMask.ODDPIX).any()
    assert_same_bits(replace(frame, mask=frame.mask & ~np.uint32(SpecMask.ODDPIX)), masked)


@pytest.mark.parametrize(("values", "may"), [((1.0, 0.0, 0), False), ((3.0, 0.0, 0), True), ((1.0, 0.0, 1), True),
                                             ((1.0, 9e4, 0), False), ((1.0, 1.1e5, 0), True)])
def test_what_is_largest_says_whether_to_look(values, may):
    """ivar, its product with the pixel's square, illegal pixels; the bundle's quantile is 3 sigma, most ivar 2."""
    rng = np.random.default_rng(1)
    image = Image(np.where(rng.random((64, 64)) < 0.5, 3.0, -3.0), np.ones((64, 64)))
    assert may_be_odd(image, slice(0, 64), 2.0, values) == may
    assert may_be_odd(image, slice(0, 64), None, values) == (values[2] > 0), "illegal ones are told of all the same"


WRONG = {"huge": (1e9, 1.0), "much ivar": (0.0, 1e9), "NaN": (np.nan, 1.0), "ivar NaN": (0.0, np.nan),
         "infinite": (np.inf, 1.0), "ivar infinite": (0.0, np.inf), "negative ivar": (0.0, -1.0)}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("place", [(0, 12), (63, 12), (30, 9), (30, 51), (30, 20), (10, 12), (49, 49)])
@pytest.mark.parametrize("wrong", WRONG)
def test_what_the_cut_has_not_seen_is_looked_at(wrong, place, dtype):
    """Rows 10 to 49 and columns 12 to 49 are in a cut, columns 9 to 51 are searched: a pixel anywhere is found."""
    rng = np.random.default_rng(2)
    pix, ivar = rng.normal(size=(64, 64)).astype(dtype), np.ones((64, 64), dtype)
    y, x = np.meshgrid([10, 40], [12, 40], indexing="ij")
    fine = make_cut(Image(pix, ivar), y, x, (10, 10))
    assert fine.inside == (10, 50, 12, 50) and none_odd(Image(pix, ivar), slice(9, 52), 2.0, fine.inside, fine.seen)
    pix[place], ivar[place] = WRONG[wrong]
    image = Image(pix, ivar)
    cut = make_cut(image, y, x, (10, 10))
    assert not none_odd(image, slice(9, 52), 2.0, cut.inside, cut.seen)
    # the switch keeps huge values; illegal numbers are still reported
    illegal = wrong not in ("huge", "much ivar")
    assert none_odd(image, slice(9, 52), None, cut.inside, cut.seen) != illegal
    ivar[place] = 0.0
    assert make_cut(image, y, x, (10, 10)).seen[2] == 0.0, "what is masked may hold anything"


def test_a_cut_says_what_is_largest_in_it():
    rng = np.random.default_rng(3)
    pix, ivar = rng.normal(size=(64, 64)), rng.random((64, 64))
    ivar[rng.random(ivar.shape) < 0.2] = 0.0
    cut = make_cut(Image(pix, ivar), np.array([[-5, 40]]), np.array([[30, 60]]), (11, 17))
    first, last, start, stop = cut.inside
    assert cut.inside == (0, 51, 30, 64)
    inside = ivar[first:last, start:stop]
    assert cut.seen == (inside.max(), (inside * pix[first:last, start:stop]**2).max(), 0.0)


def test_the_switch_keeps_them_as_they_are():
    """No bin is then flagged: results are what the numbers say."""
    case, place = inner_case(), places()["between"]
    image = replace(case.image, pix=changed(case.image.pix, place, 1e6))
    frame = frame_of(image, keep_odd=True)
    assert not (frame.mask & SpecMask.ODDPIX).any() and "odd_pixels" not in frame.notes["bundles"][0]
    assert in_sigma(undisturbed(), frame.flux).max() > 100


@pytest.mark.parametrize("s", [1e-12, 1e-6, 1e6, 1e12])
def test_units_do_not_count(s):
    """image s, ivar / s^2, read noise s: the same pixels, also just above and below each limit."""
    case = inner_case()
    pix, ivar = case.image.pix.copy(), case.image.ivar.copy()
    pix[50, 20], pix[90, 30], ivar[120, 25] = 1e6, 1e30, 1e4
    image = Image(pix, ivar, read_noise=3.0)
    scaled = Image(pix * s, ivar / s**2, read_noise=3.0 * s)
    found = odd_of(image)
    assert found == [(50, 20), (90, 30), (120, 25)] == odd_of(scaled)
    assert most_ivar(scaled) == pytest.approx(most_ivar(image) / s**2, rel=1e-12)
    reference, frame = frame_of(image), frame_of(scaled)
    np.testing.assert_array_equal(frame.mask, reference.mask)


def test_the_largest_ivar_is_that_of_the_read_noise_or_of_the_image():
    ivar = np.full((100, 200), 0.01)
    ivar[0] = 0.1
    pix = np.zeros(ivar.shape)
    assert most_ivar(Image(pix, ivar, read_noise=3.0)) == pytest.approx(10 / 9)
    assert most_ivar(Image(pix, ivar)) == pytest.approx(10.0)             # 100 times the 99.9 % quantile, 0.1
    assert most_ivar(Image(pix, ivar, read_noise=30.0)) == pytest.approx(10.0)     # in another unit: not believed
    assert most_ivar(Image(pix, ivar, read_noise=0.0)) == pytest.approx(10.0)


def test_rows_of_a_sample_that_are_masked_say_nothing_of_the_rest():
    """Ivars were once judged by the few good pixels of such rows, and a frame's good ones were odd."""
    ivar = np.ones((2000, 100))
    ivar[5::12] = 0.0                                    # all rows of the sample, except for a noisy column
    ivar[:, 7] = 1e-3 * ivar[:, 7]
    ivar[5::12, 7] = 1e-3
    assert most_ivar(Image(np.zeros_like(ivar), ivar)) == pytest.approx(100.0)
    few = np.zeros((100, 100))
    few[50, :9] = 1.0
    few[51, 3] = 1e4
    assert most_ivar(Image(np.zeros_like(few), few)) > 1e300


@pytest.mark.parametrize("good", [0, 1, 3, 99, 100, 150, 5000])
def test_images_of_one_ivar_or_few_pixels_lose_nothing(good):
    """Honest noise, and one bright pixel among few: there is nothing to judge it by."""
    rng = np.random.default_rng(good)
    ivar = np.zeros((400, 60))
    ivar.ravel()[rng.choice(ivar.size, good, replace=False)] = 0.04
    pix = rng.normal(size=ivar.shape) * 5
    assert odd_of(Image(pix, np.full(ivar.shape, 0.04))) == []
    if good:
        pix[tuple(np.argwhere(ivar)[0])] = 4000.0       # 800 sigma
    assert odd_of(Image(pix, ivar)) == []


@pytest.mark.parametrize("family", oracle.FAMILIES)
@pytest.mark.parametrize("honest", [True, False])
@pytest.mark.parametrize("what", ["star", "line"])
def test_no_star_and_no_line_is_ever_caught(family, what, honest):
    """A star and lines, or one line in the dark, of 1e6 electrons; also saturated; also with ivar of the dark alone.

    With that, the line is 4e4 sigma, 2 to 400 times the limit: only its shape saves it.
    """
    psf = oracle.make_psf(family, nfibre=WHOLE, shape=(364, 60), first_row=14)
    wave = np.arange(6002.0, 6198.0, 0.8)
    light = np.zeros((WHOLE, len(wave)))
    light[0, 100] = 1e6
    if what == "star":
        light[2], light[4, 50:53] = 1e6, 3e4
    clean = oracle.expected_image(psf, range(WHOLE), wave, light, psf.shape)
    rng = np.random.default_rng(4)
    for level in (np.inf, 6e4):                      # full well
        top = np.minimum(clean, level)
        variance = 9.0 + (top if honest else 0)
        image = Image(top + rng.normal(size=top.shape) * np.sqrt(variance), 1 / (variance + 0 * top))
        assert odd_of(image, psf) == []
        sigmas = np.abs(image.pix) * np.sqrt(image.ivar)
        assert what == "star" or honest or sigmas.max() > 2 * FAR * max(float(np.quantile(sigmas, 0.99)), 1.0)
        ivar = np.where(top >= 6e4, 0.0, image.ivar)        # and with what is saturated masked
        ivar[:, [12, 26]] = 0
        assert odd_of(replace(image, ivar=ivar), psf) == []


@pytest.mark.parametrize(("image", "psf", "fibres"), [
    ("r0-fibres000-049", "psf-r0-00051060", 50), ("v2-fibres000-024", "psf-r0-v2-tails", 25),
    ("gh2-fibres000-024", "psf-gausshermite2-boss", 25)])
def test_frames_in_use_have_none(shared, image, psf, fibres):
    made = read_image(shared / "data" / "frames" / f"preproc-{image}.fits.gz")
    model = read_psf(shared / "data" / "psf" / f"{psf}.fits")
    for constant in (False, True):
        ivar = np.where(made.ivar > 0, np.float32(0.1), np.float32(0)) if constant else made.ivar
        for first in range(0, fibres, 25):
            place = columns(model, range(first, first + 25), made.shape[1])
            odd = find_odd(replace(made, ivar=ivar), place, most_ivar(made), lambda: concentration(model))
            assert len(odd) == 0


def test_the_sharpest_spot_is_that_of_the_stamps():
    """Against a Gaussian in closed form: the centre pixel against 24 around it, at the worst position in its pixel."""
    from scipy.special import erf

    psf = oracle.make_psf("v3", nfibre=3, shape=(364, 40), first_row=14)
    edges = np.linspace(-2.5, 2.5, 6) / np.sqrt(2) / 1.05
    share = np.diff(erf(edges)) / 2
    centred = share[2]**2 / (share.sum()**2 - share[2]**2)
    assert 0.7 * centred < concentration(psf) < 4 * centred
    assert SHARP * concentration(psf) < 3 and FAR == 100


@pytest.mark.parametrize("wrong", ["nan", "inf", "minus inf", "negative ivar", "nan ivar", "infinite ivar"])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("core", CORES)
def test_what_is_no_number_is_an_error_of_one_line(wrong, keep, core):
    """NaN with ivar above 0 once ended in a scipy ValueError."""
    case = inner_case()
    value = {"nan": np.nan, "inf": np.inf, "minus inf": -np.inf, "negative ivar": -0.1, "nan ivar": np.nan,
             "infinite ivar": np.inf}[wrong]
    name = "ivar" if "ivar" in wrong else "pix"
    image = replace(case.image, **{name: changed(getattr(case.image, name), (180, 25), value)})
    with pytest.raises(InputError, match=r"^the image has [^\n]*; values must be finite[^\n]*$") as caught:
        frame_of(image, keep_odd=keep, core=core)
    counts = {"nan ivar": "1 NaN, 0 neg", "negative ivar": "1 negative", "infinite ivar": "and 1 infinite ivar"}
    assert counts.get(wrong, "1 NaN or infinite pixels") in str(caught.value)


def test_masked_pixels_may_hold_anything():
    case = inner_case()
    pix, ivar = case.image.pix.copy(), case.image.ivar.copy()
    ivar[100:104, 20:26] = 0
    pix[100, 20:26], pix[101, 20:26], pix[102, 20:26] = np.nan, np.inf, -1e300
    assert odd_of(Image(pix, ivar)) == []
    assert "odd_pixels" not in frame_of(Image(pix, ivar)).notes["bundles"][0]


@pytest.mark.parametrize("layout", ["float32", "swapped", "columns", "cut"])
def test_any_memory_layout(layout):
    case, place = inner_case(), places()["trace"]
    pix = changed(case.image.pix, place, 1e30)
    ivar = case.image.ivar
    if layout == "columns":
        pix, ivar = np.asfortranarray(pix), np.asfortranarray(ivar)
    elif layout == "cut":
        pix, ivar = (np.pad(a, 3)[3:-3, 3:-3] for a in (pix, ivar))
    else:
        kind = np.float32 if layout == "float32" else np.dtype(np.float64).newbyteorder()
        pix, ivar = pix.astype(kind), ivar.astype(kind)
    assert odd_of(Image(pix, ivar)) == [place]


def test_two_huge_pixels_beside_each_other():
    """In the sum over neighbours a pair is as sharp as one; what is beyond all light is odd in any company."""
    case = inner_case()
    for values in ((1e6, 1e18), (1e18, 1e18)):
        pix = case.image.pix.copy()
        pix[180, 25], pix[180, 26] = values
        assert odd_of(replace(case.image, pix=pix)) == [(180, 25), (180, 26)]


def test_a_block_that_no_detector_reaches_is_odd_and_images_without_noise_have_none():
    """3 x 3 pixels of 3e8 sigma were once light: all of a fibre was off, unflagged. Where usual pixels have 1e4 sigma
    a line may have more."""
    case = inner_case()
    pix, ivar = case.image.pix.copy(), case.image.ivar.copy()
    y, x = places()["trace"]
    pix[y - 1:y + 2, x - 1:x + 2], ivar[y - 1:y + 2, x - 1:x + 2] = 1e9, 0.1
    block = [(j, i) for j in range(y - 1, y + 2) for i in range(x - 1, x + 2)]
    assert odd_of(replace(case.image, pix=pix, ivar=ivar)) == block
    bright = replace(case.image, pix=case.image.pix + 1e4, ivar=np.ones_like(ivar))
    lines = replace(bright, pix=np.where(pix == 1e9, 9e8, bright.pix))
    assert odd_of(lines) == [] != odd_of(replace(lines, pix=np.where(pix == 1e9, 2e9, bright.pix)))


def test_bins_that_touch_them_pixel_by_pixel():
    rng = np.random.default_rng(8)
    y0, x0 = rng.integers(-12, 40, (2, 6, 30))
    odd = rng.integers(0, 36, (5, 2))
    expected = np.zeros(y0.shape, dtype=bool)
    for y, x in odd:
        expected |= (y0 <= y) & (y < y0 + 7) & (x0 <= x) & (x < x0 + 9)
    assert 10 < expected.sum() < 150
    np.testing.assert_array_equal(touched(odd, y0, x0, (7, 9)), expected)
    assert not touched(odd[:0], y0, x0, (7, 9)).any()


def test_wanted_fibres_and_wavelengths_change_nothing():
    """A bundle is searched as a whole: a part of it has the same odd pixels, and the same bits."""
    case, place = inner_case(), places()["trace"]
    image = replace(case.image, pix=changed(case.image.pix, place, 1e6))
    whole, part = frame_of(image), frame_of(image, specmin=3, nspec=2)
    assert part.notes["bundles"][0]["odd_pixels"] == 1
    assert_same_bits(part, whole, other_rows=slice(3, 5))
    assert relative(part.ivar, whole.ivar[3:5]).max() == 0
