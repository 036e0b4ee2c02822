"""Whether image and PSF belong together: what is refused, what is only a warning, and what gives no verdict."""
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import oracle
from extraction import extracted, moved
from gpu_extract.checks import sense
from gpu_extract.checks.sense import astray, compare, identity_of, medians, misfits, profiles, strangers
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Card, FiberMap, Frame, Image
from gpu_extract.errors import InputError
from gpu_extract.io.image import read_image
from gpu_extract.io.psf import read_psf, write_psf

NFIBRE = 25
CONFIG = ExtractConfig(wavelength=(6004.0, 6196.0, 0.8))
PITCH = 7.3
WAVE = np.linspace(6002, 6198, 240)


@cache
def clean():
    """Twenty-five fibres of about equal brightness with lines: their PSF, and an image at level 1."""
    psf = oracle.make_psf(nfibre=NFIBRE, shape=(364, 200), first_row=14)
    rng = np.random.default_rng(2)
    wave = np.arange(6002.0, 6199.0, 0.8)
    light = rng.uniform(0.5, 2, (NFIBRE, 1)) * (1 + 5 * (rng.uniform(size=(NFIBRE, len(wave))) > 0.97))
    return psf, oracle.expected_image(psf, range(NFIBRE), wave, light, psf.shape)


@cache
def case(level: float = 300.0):
    """The same at this level, with read noise."""
    psf, image = clean()
    return psf, noisy(level * image)


def noisy(clean: np.ndarray) -> Image:
    variance = clean + 9.0
    return Image(clean + np.random.default_rng(5).normal(size=clean.shape) * np.sqrt(variance), 1 / variance)


def beside(image: Image, psf) -> float:
    """The share that `astray` judges."""
    pair, below, rise = profiles(image, psf, CONFIG)
    assert len(set(pair.tolist())) >= 10
    return float(np.average(below < 0, weights=np.sqrt(rise)))


@pytest.mark.parametrize("shift", [0.0, 0.5, -1.0, PITCH])
def test_light_on_the_traces(shift):
    """A trace may move by a pixel from night to night; a whole pitch away, there is light under every trace."""
    psf, image = case()
    assert beside(image, moved(psf, 0.0, shift, psf.shape)) < 0.1
    assert astray(image, moved(psf, 0.0, shift, psf.shape), CONFIG) == ""


@pytest.mark.parametrize("shift", [2.2, 3.6, -2.5, None])
def test_light_beside_the_traces(shift):
    """Moved, or (None) traces unrelated to the fibres: an error, or a warning with --any-psf."""
    psf, image = case()
    if shift is None:
        coeff = psf.x.coeff.copy()
        coeff[:, 0] = 12 + 1.03 * PITCH * np.arange(NFIBRE)
        wrong = replace(psf, x=replace(psf.x, coeff=coeff))
    else:
        wrong = moved(psf, 0.0, shift, psf.shape)
    with pytest.raises(InputError, match=r"^the image's light lies beside the traces of made-up v3 \(\d+% of it, .*"
                                         r"; give the PSF of this image, or --any-psf \(any_psf=True\) to use"):
        compare(image, wrong, CONFIG)
    found = compare(image, wrong, replace(CONFIG, any_psf=True))
    assert len(found) == 1 and found[0].startswith("the image's light lies beside")


@pytest.mark.parametrize(("shift", "looks"), [(0.0, [4]), (3.6, [4, 1])])
def test_some_pairs_are_enough_where_their_verdict_is_clear(monkeypatch, shift, looks):
    """Light on the traces is seen on a quarter of the pairs; an error concerns all of them."""
    psf, image = case()
    asked = []

    def profiled(image, psf, config, every=1):
        asked.append(every)
        return profiles(image, psf, config, every)

    monkeypatch.setattr(sense, "profiles", profiled)
    text = astray(image, moved(psf, 0.0, shift, psf.shape), CONFIG)
    assert asked == looks
    assert bool(text) == (shift != 0.0)


@pytest.mark.parametrize("s", [1e-12, 1e12])
def test_units_do_not_count(s):
    psf, image = case()
    scaled, wrong = Image(image.pix * s, image.ivar / s**2), moved(psf, 0.0, 3.6, psf.shape)
    for model in (psf, wrong):
        (pair, below, rise), (_, below_scaled, rise_scaled) = (profiles(i, model, CONFIG) for i in (image, scaled))
        assert len(pair) > 100
        np.testing.assert_allclose(below_scaled, below, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(rise_scaled, rise, rtol=1e-9)


def stars(fibres: range, light: float) -> np.ndarray:
    """The light of stars in some fibres; the others are dark."""
    psf, _ = case()
    return oracle.expected_image(psf, fibres, WAVE, np.full((len(fibres), len(WAVE)), light), psf.shape)


def dark(name: str) -> Image:
    psf, _ = case()
    rng = np.random.default_rng(9)
    noise = rng.normal(size=psf.shape) * 3
    few = stars(range(4, 16, 11), 1e4) if name == "two fibres" else 0.0
    pix = {"noise": noise, "pedestal": noise + 200, "noisier than its ivar": 30 * noise,
           "gradient": noise + np.linspace(0, 2000, psf.shape[1]),
           "cosmics": np.where(rng.uniform(size=psf.shape) > 0.99, 1e4, noise),
           "two fibres": noise + few,
           "nothing": np.zeros(psf.shape)}[name]
    return Image(pix, np.full(psf.shape, 1 / 9))


@pytest.mark.parametrize("name", ["noise", "pedestal", "noisier than its ivar", "gradient", "cosmics", "two fibres",
                                  "nothing"])
@pytest.mark.parametrize("shift", [0.0, 3.6])
def test_without_light_there_is_no_verdict(name, shift):
    """Nor if only a few fibres are lit, or the light is not that of fibres."""
    psf, _ = case()
    assert astray(dark(name), moved(psf, 0.0, shift, psf.shape), CONFIG) == ""


@pytest.mark.parametrize("lit", [1, 3, 5, 8])
def test_dark_fibres_beside_stars_do_not_count_against_them(lit):
    """Their light rises towards the stars, on both sides."""
    psf, _ = case()
    assert astray(noisy(stars(range(0, 3 * lit, 3), 1e5)), psf, CONFIG) == ""


def test_masked_images_and_traces_off_them():
    psf, image = case()
    for empty in (Image(image.pix, 0 * image.ivar), Image(image.pix[:20], image.ivar[:20])):
        assert astray(empty, psf, CONFIG) == ""
    assert astray(image, moved(psf, 0.0, 4000.0, psf.shape), CONFIG) == ""
    coeff = psf.x.coeff.copy()
    coeff[3] = np.nan
    assert astray(image, replace(psf, x=replace(psf.x, coeff=coeff)), CONFIG) == ""


@pytest.mark.parametrize(("image", "psf", "grid"), [
    ("r0-fibres000-049", "psf-r0-00051060", (5760, 7620, 0.8)),
    ("v2-fibres000-024", "psf-r0-v2-tails", (5760, 7620, 0.8)),
    ("gh2-fibres000-024", "psf-gausshermite2-boss", (5800, 9000, 1.0))])
def test_frames_in_use_match_their_own_psf_alone(shared, image, psf, grid):
    """Their own image is right, and cut: a warning. Moved by two pixels it is not, if the light is seen at all."""
    made = read_image(shared / "data" / "frames" / f"preproc-{image}.fits.gz")
    model = read_psf(shared / "data" / "psf" / f"{psf}.fits")
    config = ExtractConfig(wavelength=grid)
    found = compare(made, model, config)
    assert len(found) == 1 and "both are assumed to start at the same corner" in found[0]
    if not image.startswith("gh2"):          # 18 stretches of it are bright enough, of 20
        assert astray(made, moved(model, 0.0, 2.0, model.shape), config)


# ---- who is who -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("ours", "theirs", "alike"), [
    ("r0", "r0", True), ("R0 ", "'r0      '", True), ("r0", "", True), (None, "r1", True), ("r", "r1", True),
    ("r0", "r1", False), ("b0", "r0", False), ("b", "r1", False)])
def test_an_image_and_a_psf_of_different_cameras_are_strangers(ours, theirs, alike):
    cards = () if ours is None else (Card("CAMERA", ours),)
    text = strangers(cards, identity_of({"CAMERA": theirs}), "psf.fits")
    assert (text == "") == alike
    if not alike:
        assert text == f"the image's CAMERA is {ours}, that of psf.fits is {theirs}"


def test_another_camera_is_an_error_that_can_be_overridden():
    psf, image = case()
    image, other = replace(image, cards=(Card("CAMERA", "r0"),)), replace(psf, identity={"CAMERA": "r1"})
    with pytest.raises(InputError, match=r"^the image's CAMERA is r0, that of made-up v3 is r1; give the PSF of this"):
        extracted(image, other, CONFIG)
    config = replace(CONFIG, specmin=0, nspec=1, wavelength=(6050.0, 6060.0, 0.8))
    frame = extracted(image, other, replace(config, any_psf=True))
    assert frame.notes["warnings"] == ("the image's CAMERA is r0, that of made-up v3 is r1",)
    assert "warnings" not in extracted(image, psf, config).notes


def test_what_psf_files_say(tmp_path, shared):
    psf, _ = case()
    write_psf(tmp_path / "psf.fits", psf, cards=(Card("CAMERA", "r4"), Card("INSTRUME", " ")))
    assert read_psf(tmp_path / "psf.fits").identity == {"CAMERA": "r4"}
    folder = shared / "data" / "psf"
    assert read_psf(folder / "psf-r0-00051060.fits").identity == {"CAMERA": "r0"}      # with quotes in its quotes
    assert read_psf(folder / "psf-r0-v2-tails.fits").identity == {}


def test_a_size_alone_is_a_warning():
    psf, image = case()
    found = compare(Image(image.pix[:300], image.ivar[:300]), psf, CONFIG)
    assert found == ["the image has 300 x 200 pixels, the CCD of made-up v3 has 364 x 200: both are assumed to "
                     "start at the same corner"]
    assert compare(image, psf, CONFIG) == []


@pytest.mark.parametrize(("size", "told"), [((364, 200), True), ((364, 300), False), ((None, 200), False)])
def test_a_cut_image_may_say_what_it_is_cut_out_of(size, told):
    """As those of gpu_simulate --crop do, including the one from the README's first command."""
    psf, image = case()
    cards = tuple(Card(key, value) for key, value in zip(("NPIX_Y", "NPIX_X"), size, strict=True) if value is not None)
    found = compare(Image(image.pix[:300], image.ivar[:300], cards), psf, CONFIG)
    assert (found == []) == told


def test_an_image_larger_than_its_ccd_is_not_cut_out_of_it():
    """Despite NPIX_X and NPIX_Y of its header: a transposed image has them, too."""
    psf, image = case()
    turned = Image(image.pix.T.copy(), image.ivar.T.copy(), (Card("NPIX_Y", 364), Card("NPIX_X", 200)))
    found = compare(turned, psf, replace(CONFIG, any_psf=True))
    assert found[-1].startswith("the image has 200 x 364 pixels, the CCD of made-up v3 has 364 x 200")


def test_a_frame_without_data_is_told():
    """It has the right shape, and nothing else says so in words. One column with light counts as data."""
    psf, image = case()
    config = replace(CONFIG, nspec=2, wavelength=(6050.0, 6060.0, 0.8), core="dense")
    for columns, told in ((slice(0), True), (slice(20, 21), False)):
        ivar = np.zeros_like(image.ivar)
        ivar[:, columns] = image.ivar[:, columns]
        frame = extracted(replace(image, ivar=ivar), psf, config)
        assert frame.ivar.any() != told
        assert any(text.startswith("no bin has data: ") for text in frame.notes.get("warnings", ())) == told


@pytest.mark.parametrize(("unit", "told"), [("electron", False), ("Electrons ", False), ("e-", False), ("ph", False),
                                            ("", False), (None, False), ("adu", True), ("electron/s", True), (1, True)])
def test_another_unit_is_a_warning(unit, told):
    """FLUX is called electron/Angstrom: an image in ADU makes that wrong by the gain."""
    psf, image = case()
    found = compare(replace(image, cards=(Card("BUNIT", unit),)), psf, CONFIG)
    assert len(found) == told and all(f"BUNIT is {unit}: its pixels are taken to be in" in text for text in found)


@pytest.mark.parametrize(("unit", "of_ivar", "told"), [
    *(("electron", word, False) for word in (
        "", "1/electron2", "1 / electron^2", "electron**-2", "1/(electrons**2)", "1/e-2", "e-^-2", "1/ph2", "ph-2")),
    (None, "1/electron2", False), (None, "1/adu2", True), ("adu", "1/adu2", False), ("adu", "1/electron2", True),
    ("electron", "1/adu2", True), ("electron", "electron2", True), ("electron", "electron", True),
    ("electron", "1/electron", True)])
def test_a_unit_of_ivar_that_contradicts_is_a_warning(unit, of_ivar, told):
    """A variance in place of its inverse, or one in ADU, was once accepted silently."""
    psf, image = case()
    found = compare(replace(image, cards=(Card("BUNIT", unit),), ivar_unit=of_ivar), psf, CONFIG)
    said = [text for text in found if text.startswith(f"BUNIT of IVAR is {of_ivar}")]
    assert len(said) == told and len(found) == told + (unit == "adu")


# ---- the fibermap through the API -----------------------------------------------------------------------------------

def test_fiber_decides_in_the_api_too():
    psf, image = case()
    rows = np.zeros(4, [("FIBER", np.int32), ("TARGETID", np.int64)])
    rows["FIBER"], rows["TARGETID"] = [13, 11, 10, 12], [113, 111, 110, 112]
    config = replace(CONFIG, specmin=10, nspec=3, wavelength=(6050.0, 6060.0, 0.8))
    frame = extracted(replace(image, fibermap=FiberMap(rows)), psf, config)
    assert frame.fibermap.rows["TARGETID"].tolist() == [110, 111, 112]
    with pytest.raises(InputError, match="no row for 1 fibres"):
        extracted(replace(image, fibermap=FiberMap(rows)), psf, replace(config, nspec=5))


# ---- chi2pix of whole bundles ---------------------------------------------------------------------------------------

def frame_with(chi2pix: float, psferr: float = 0.01, few: bool = False) -> Frame:
    ones = np.ones((10, 200))
    mask = np.zeros(ones.shape, np.uint32)
    mask[5:, 10 if few else 200:] = 1
    level = np.concatenate([0.8 * ones[:5], chi2pix * ones[5:]])
    return Frame(np.arange(200.0), ones, ones, mask, np.ones((10, 1, 200)), level, np.arange(20, 30),
                 notes={"psferr": psferr, "bundles": {20: {}, 25: {}}})


@pytest.mark.parametrize(("frame", "told"), [
    (frame_with(1.0), 0), (frame_with(0.5), 0), (frame_with(1.2), 0), (frame_with(1.36), 1), (frame_with(0.1), 1),
    (frame_with(0.1, psferr=0.04), 0), (frame_with(9.0, psferr=0.04), 1), (frame_with(9.0, few=True), 0)])
def test_chi2pix_of_a_bundle_far_from_1_is_told(frame, told):
    found = misfits(frame)
    assert len(found) == told
    assert all(text.startswith("chi2pix of the bundle from fibre 25 on is ") for text in found)
    assert misfits(replace(frame, notes={})) == []


@pytest.mark.parametrize(("flux", "told"), [(-1.1, 1), (-0.9, 0), (1.1, 0)])
def test_light_below_zero_is_told(flux, told):
    """An image times -1 was once accepted silently."""
    frame = frame_with(1.0)
    scattered = np.linspace(-0.2, 0.2, 2000).reshape(10, 200)
    found = misfits(replace(frame, flux=flux + scattered, ivar=frame.ivar))
    assert [text.startswith("the typical flux is -1.1 errors") for text in found] == [True] * told
    assert misfits(replace(frame, flux=flux + scattered, mask=frame.mask + np.uint32(1))) == []


def test_a_wrong_psf_of_the_same_traces_shouts():
    """Spots twice as wide as the light: only chi2pix shows it."""
    psf, image = case(3000.0)
    config = replace(CONFIG, nspec=5, wavelength=(6050.0, 6120.0, 0.8))
    assert "warnings" not in extracted(image, psf, config).notes
    core = psf.cores[0]
    wide = replace(core, sigma_x=replace(core.sigma_x, coeff=1.4 * core.sigma_x.coeff))
    frame = extracted(image, replace(psf, cores=(wide,)), config)
    assert "chi2pix of the bundle from fibre 0 on is" in frame.notes["warnings"][0]


@pytest.mark.parametrize("count", [1, 2, 7, 288])
@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_medians_are_those_of_numpy(kind, count):
    """Also of numbers near the end of a type's range: the mean of two is computed in double precision, from halves."""
    rows = np.random.default_rng(count).normal(size=(5, count)).astype(kind)
    np.testing.assert_array_equal(medians(rows.copy()), np.median(rows.astype(float), axis=1))
    huge = np.full((2, count), np.finfo(kind).max, kind)
    np.testing.assert_array_equal(medians(huge), np.full(2, np.finfo(kind).max, float))
