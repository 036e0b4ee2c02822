"""From ADU to electrons: bias, gain and noise from frames with known values."""
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits

from gpu_extract.data import Card, Image
from gpu_extract.errors import InputError
from gpu_extract.io.image import read_image
from gpu_extract.simulate import SimConfig, simulate
from gpu_extract.simulate.defects import CcdMask
from gpu_extract.simulate.files import write_simulation
from gpu_psf.cli.psf import main
from gpu_psf.detector import Detector
from gpu_psf.noise import read_noise_of, unevenness, with_bias
from gpu_psf.overscan import overscan_bias
from gpu_psf.preprocess import BAD, preprocess, turned
from gpu_psf.raw import doubts, read_raw
from gpu_psf.transfer import gain_from, photon_transfer

GAIN, NOISE, BIAS = 2.5, 8.0, 500.0          # electron/ADU, electron, ADU


def frame(light: np.ndarray, seed: int) -> np.ndarray:
    """A frame of integer ADU with so many electrons."""
    rng = np.random.default_rng(seed)
    return np.rint(BIAS + (rng.poisson(light) + rng.normal(0, NOISE, light.shape)) / GAIN)


def light(ny: int = 400, nx: int = 200) -> np.ndarray:
    """Smooth light of 10 to 60000 electrons, dispersion along y."""
    return np.geomspace(10, 60000, nx)[None, :] * (1 + 0.3 * np.sin(np.arange(ny) / 90))[:, None]


def test_gain_and_noise_are_recovered() -> None:
    darks = [frame(np.zeros((400, 200)), seed) for seed in range(3)]
    noise = read_noise_of(darks)
    # integers add 1/12 to the variance
    assert noise == pytest.approx(np.hypot(NOISE / GAIN, 12**-0.5), rel=0.01)
    assert read_noise_of(darks[:1]) == pytest.approx(noise, rel=0.02)
    one, two = (frame(light(), seed) - BIAS for seed in (5, 6))
    assert photon_transfer(one, noise, 60000).gain == pytest.approx(GAIN, rel=0.03)
    assert photon_transfer(one, noise, 60000, two).gain == pytest.approx(GAIN, rel=0.02)


@pytest.mark.parametrize("ratio", [1.3, 3.0])
def test_two_flats_may_have_unequal_light(ratio: float) -> None:
    """A gain is known to 1 / (2 40000)^(1/2) = 0.4 %; it was once 1.8 % too large at 1.3, and 28 % at 3."""
    one, two = (frame(part * light(), seed) - BIAS for part, seed in ((1, 5), (1 / ratio, 6)))
    noise = np.hypot(NOISE / GAIN, 12**-0.5)
    for flats in (one, two), (two, one):
        assert photon_transfer(flats[0], noise, 60000, flats[1]).gain == pytest.approx(GAIN, rel=0.012)


@pytest.mark.parametrize("seeds", [(5,), (5, 6)])
@pytest.mark.parametrize("left", [-3.0, 30.0, BIAS])
def test_a_bias_that_is_off_changes_no_gain(seeds: tuple[int, ...], left: float) -> None:
    """A gain is known to 0.8 %; with 30 ADU left in the flats it was 3.4 to 3.8 in place of 2.5, with BIAS 23 to 40."""
    flats = [frame(light(), seed) - BIAS + left for seed in seeds]
    assert photon_transfer(flats[0], NOISE / GAIN, 60000, *flats[1:]).gain == pytest.approx(GAIN, rel=0.03)
    assert gain_from(flats, NOISE, 60000) == pytest.approx(GAIN, rel=0.03)


@pytest.mark.parametrize("darks", [1, 2, 3, 4, 5, 6, 9])
def test_the_noise_of_the_darks_median_is_in_a_pixels(darks: int) -> None:
    """Spreads of 80000 pixels are known to 1 / (2 80000)^(1/2) = 0.25 %; with four darks they were 1.9 % too large."""
    noise = np.random.default_rng(darks).normal(0, 1, (darks + 1, 400, 200))
    assert with_bias(1.0, darks) == pytest.approx((noise[0] - np.median(noise[1:], axis=0)).std(), rel=0.008)


def test_uneven_pixels_are_told_from_noise() -> None:
    uneven = light() * np.random.default_rng(1).normal(1, 0.01, (400, 200))
    found = photon_transfer(frame(uneven, 5) - BIAS, NOISE / GAIN, 60000)
    assert found.uneven == pytest.approx(0.01, rel=0.2)
    assert found.gain == pytest.approx(GAIN, rel=0.06)


def test_a_dark_flat_tells_nothing() -> None:
    with pytest.raises(InputError, match="the flat has no light"):
        photon_transfer(frame(np.zeros((400, 200)), 1) - BIAS, NOISE / GAIN, 60000)


@pytest.mark.parametrize(("axis", "raw"), [("y", (5, 1)), ("-y", (0, 1)), ("x", (1, 5)), ("-x", (1, 0))])
def test_dispersion_goes_up(axis: str, raw: tuple[int, int]) -> None:
    upright = np.zeros((6, 4) if "y" in axis else (4, 6))
    upright[raw] = 1                     # the largest wavelength
    assert turned(upright, axis)[5, 1] == 1
    assert turned(upright, axis).shape == (6, 4)


def test_electrons_and_their_errors() -> None:
    raw = np.full((6, 8), BIAS + 40.0)
    raw[2, 3] = 65535
    raw[4, 5], raw[1, 2] = BIAS - 10, np.nan
    image, mask = preprocess(raw, BIAS, Detector(GAIN, NOISE), dispersion="x")
    assert image.shape == (8, 6) and image.get("DISPAXIS") == 1 and image.read_noise == NOISE
    assert mask[3, 2] == 8 and image.ivar[3, 2] == 0 and np.count_nonzero(mask) == 2
    assert mask[2, 1] == 1 and image.ivar[2, 1] == image.pix[2, 1] == 0
    assert image.pix[0, 0] == pytest.approx(100.0) and image.ivar[0, 0] == pytest.approx(1 / (64 + 100))
    assert image.ivar[5, 4] == pytest.approx(1 / 64)


def test_the_overscan_is_the_bias() -> None:
    raw = frame(np.zeros((300, 120)), 3) + np.linspace(0, 20, 300)[:, None]
    np.testing.assert_allclose(overscan_bias(raw, (100, 120))[:, 0], BIAS + np.linspace(0, 20, 300), atol=2)
    with pytest.raises(InputError, match="overscan 100:130 does not lie within the 120 columns"):
        overscan_bias(raw, (100, 130))


@pytest.mark.parametrize("rows", [1, 2, 40, 51, 300])
def test_a_bias_that_drifts_is_followed_to_both_ends(rows: int) -> None:
    """The bias is linear in the overscan, and follows a straight line without noise exactly; so does its reverse."""
    ramp = np.linspace(0, 20, rows)[:, None]
    np.testing.assert_allclose(overscan_bias(ramp + np.zeros((rows, 30)), (10, 30)), ramp, atol=1e-10)
    raw = frame(np.zeros((rows, 30)), 3)
    bias = overscan_bias(raw, (10, 30))
    np.testing.assert_allclose(overscan_bias(raw + ramp + 7, (10, 30)), bias + ramp + 7, atol=1e-10)
    np.testing.assert_allclose(overscan_bias(raw[::-1], (10, 30))[::-1], bias, atol=1e-10)


@pytest.mark.parametrize("noise", [0.5, 1.2, 3.0])
@pytest.mark.parametrize("share", [0.0, 0.25, 0.4])
def test_a_bias_between_two_integers_is_not_rounded(noise: float, share: float) -> None:
    """Up to 0.31 ADU off at a noise of 0.5, from a median. The mean of 400 x 64 integers has an error of noise / 160,
    and is off by less than exp(-2 pi^2 noise^2) / pi, 0.0023 at 0.5, from rounding."""
    raw = np.rint(BIAS + share + np.random.default_rng(1).normal(0, noise, (400, 64)))
    assert overscan_bias(raw, (0, 64)).mean() - BIAS - share == pytest.approx(0, abs=0.003 + 4 * noise / 160)


def test_hits_in_the_overscan_leave_the_bias() -> None:
    """Rows that a line's charge has filled as a whole: the bias was 3800 ADU too large in 51 rows. A row has an error
    of 0.9 ADU (noise 3.2, 13 columns or more), a mean of 26 rows or more of 0.17; at the ends of a straight line twice
    that."""
    raw = frame(np.zeros((300, 120)), 3)
    clean = overscan_bias(raw, (100, 120))
    raw[0:2, 100:], raw[150:156, 100:] = 65535, 20000            # filled rows, at an end as well
    raw[50:90, 103:110], raw[:, 112] = 65535, raw[:, 112] + 40     # filled in part; a column that is off
    np.testing.assert_allclose(overscan_bias(raw, (100, 120)), clean, atol=5 * 0.17)


@pytest.mark.parametrize("width", [2, 20])
@pytest.mark.filterwarnings("error")
def test_rows_of_which_half_is_hit_leave_the_bias(width: int) -> None:
    """No pixel of such a row is near its median, and with every seventh row they pull all others along. A mean of rows
    has 43 others, a straight line at an end half of them and twice the error: 3.2 / (11 width)^(1/2)."""
    raw = frame(np.zeros((300, 120)), 3)
    columns = 120 - width, 120
    clean = overscan_bias(raw, columns)
    raw[::7, 120 - width // 2:] = 20000
    np.testing.assert_allclose(overscan_bias(raw, columns), clean, atol=5 * 3.2 / (11 * width)**0.5)


def test_the_charge_of_hot_pixels_has_noise() -> None:
    """1600 pixels of 600 to 9000 electrons had pulls of 6.4. Those of Poisson noise of a median are known to
    1 / (2 1600)^(1/2) = 1.8 %, and the noise of a median of three to 1 % (with_bias); where no charge is, nothing
    changes. A step from one amplifier to the next is no charge."""
    rng = np.random.default_rng(2)
    hot = np.where(rng.random((400, 200)) < 0.02, rng.uniform(600, 9000, (400, 200)), 0.0)
    step = np.where(np.arange(200) < 77, 0.0, 90.0)
    darks = [frame(hot, seed) + step for seed in range(3)]
    noise = with_bias(read_noise_of(darks), 3) * GAIN
    bias, raw = np.median(darks, axis=0), frame(hot + 50.0, 7) + step
    image, mask = preprocess(raw, bias, Detector(GAIN, noise), darks=3)
    plain, _ = preprocess(raw, bias, Detector(GAIN, noise))
    pulls = ((image.pix - 50) * np.sqrt(image.ivar))[(hot > 0) & (mask == 0)]
    assert pulls.std() == pytest.approx(1, abs=0.08)
    np.testing.assert_array_equal(image.ivar[hot == 0], plain.ivar[hot == 0])


@pytest.mark.parametrize("darks", [1, 2, 3])
def test_charge_and_amplifiers_make_noise_uneven(darks: int) -> None:
    """Charge of up to 900 electrons around a corner had pulls of 2.6 there and of 0.8 where there is none; the right
    half is read with twice the noise. A pull of some 5000 pixels is known to 1 %, a block's noise to 2 % (darks: 2.6
    times as many pixels from one frame), and within it the charge changes by up to 20 %: 10 % of the noise."""
    y, x = np.mgrid[:384, :192]
    charge, twice = 900 * np.exp(-((y / 200)**2 + (x / 150)**2)), np.where(x < 128, 0.0, 3**0.5 * NOISE / GAIN)

    def exposure(light: float, seed: int) -> np.ndarray:
        return frame(charge + light, seed) + twice * np.random.default_rng(seed + 50).normal(size=charge.shape)

    frames = [exposure(0.0, seed) for seed in range(darks)]
    noise = with_bias(read_noise_of(frames), darks) * GAIN
    detector = Detector(GAIN, noise, noise=noise * unevenness(frames))
    image, _ = preprocess(exposure(50.0, 77), np.median(frames, axis=0), detector, darks=darks)
    pulls = (image.pix - 50) * np.sqrt(image.ivar)
    for part in charge > 500, charge < 10, (charge < 100) & (x >= 128):
        assert pulls[part].std() == pytest.approx(1, abs=0.1)
    dark = [frame(np.zeros((384, 192)), seed) for seed in range(darks)]
    assert (unevenness(dark) == 1).all()


def test_a_read_noise_below_that_of_the_darks_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """100 electrons collected in the dark have a noise of 10: ivar was 2.6 times too large."""
    for number in range(3):
        fits.PrimaryHDU(frame(np.full((60, 50), 100.0), number)).writeto(tmp_path / f"{number}.fits")
    words = ["preprocess", "-i", f"{tmp_path}/0.fits", "-o", f"{tmp_path}/x.fits", "--gain", f"{GAIN}", "--dark",
             *(f"{tmp_path}/{number}.fits" for number in (1, 2))]
    for more, told in (["--read-noise", f"{NOISE}"], True), (["--read-noise", "15.7"], False), ([], False):
        assert main([*words, *more]) == 0
        said = capsys.readouterr().err
        assert ("warning: the read noise is given as 8 electron, but a dark pixel has a noise of 15" in said) == told
        assert ("warning" in said) == told


def test_a_mean_of_many_darks_may_have_less_noise_than_the_read_noise(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --read-noise a dark pixel would have half of its noise. The advice to leave it out was given."""
    frames = [frame(np.zeros((60, 50)), number) for number in range(17)]
    for name, array in ("raw", frames[0]), ("mean", np.mean(frames[1:], axis=0)):
        fits.PrimaryHDU(array).writeto(tmp_path / f"{name}.fits")
    words = ["preprocess", "-i", f"{tmp_path}/raw.fits", "-o", f"{tmp_path}/x.fits", "--gain", f"{GAIN}", "--dark",
             f"{tmp_path}/mean.fits", "--read-noise"]
    for given, told in (NOISE, False), (NOISE / 8, True):
        assert main([*words, f"{given}"]) == 0
        assert ("warning: the read noise is given as" in capsys.readouterr().err) == told


@pytest.mark.parametrize(("header", "told"), [
    ({"GAINA": 2.5, "GAINB": 3.1}, "has GAINA 2.5, GAINB 3.1, which is not used: all pixels have the gain 2.5"),
    ({"GAIN": 0.4, "SATURATE": 65535, "RDNOISE": 3.2}, ""), ({"GAIN1": 2.5, "GAIN2": 2.51}, ""),
    ({"GAIN": "high", "GAINB": 0.0, "NGAIN": 7}, ""), ({"EGAIN": 1.1}, "has EGAIN 1.1, which"),
    ({"RDNOISEA": 3.0, "RDNOISEB": 4.0}, "has RDNOISEA 3, RDNOISEB 4, which is not used: all pixels have the read "),
    ({"SATURA": 5e4, "SATURB": 7e4}, "SATURA 5e+04, SATURB 7e+04, which is not used: pixels below 60000 ADU")])
def test_what_the_header_says_of_the_detector_is_told_where_other_numbers_are_used(
        tmp_path: Path, capsys: pytest.CaptureFixture[str], header: dict[str, object], told: str) -> None:
    """Amplifiers of other gains had light that was wrong by their ratio, without a word."""
    hdu = fits.PrimaryHDU(frame(np.full((60, 50), 2.0), 1))
    hdu.header.update(header)
    hdu.writeto(tmp_path / "raw.fits")
    assert gain_of(tmp_path, "--bias", f"{BIAS}", "--gain", f"{GAIN}", "--read-noise", f"{NOISE}") == GAIN
    said = [line for line in capsys.readouterr().err.splitlines() if "warning: " in line]
    assert len(said) == bool(told) and all(told in line for line in said)


def test_cards_that_no_longer_hold_are_dropped(tmp_path: Path) -> None:
    """Gain, noise and saturation in ADU always, places on the image where it is turned."""
    hdu = fits.PrimaryHDU(frame(np.full((60, 50), 2.0), 1))
    places = {"CCDSECA": "[1:25,1:30]", "DATASEC": "[1:50,1:60]", "CRPIX1": 1.0, "CD1_2": 0.1, "CTYPE2": "LINEAR"}
    amplifiers = {"GAINA": GAIN, "RDNOISE2": 3.0, "OBSRDNC": 3.0, "SATURD": 65000}
    kept = {"OBJECT": "arc", "SECTOR": 4, "EXPTIME": 3.0, "GAINSET": "low"}
    hdu.header.update(places | amplifiers | kept)
    hdu.writeto(tmp_path / "raw.fits")
    for turned_by in ["--dispersion", "y"], ["--dispersion", "-y"], ["--dispersion", "x"], ["--mirror"]:
        gain_of(tmp_path, "--bias", f"{BIAS}", "--gain", f"{GAIN}", "--read-noise", f"{NOISE}", *turned_by)
        header = fits.getheader(tmp_path / "image.fits")
        assert all(header[name] == value for name, value in kept.items())
        assert not any(name in header for name in amplifiers)
        assert all((name in header) == (turned_by[-1] == "y") for name in places)


def test_pixels_far_below_the_bias_are_masked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An amplifier that reads 0, and integers beyond 32767 that were read as negative, had the ivar of the read
    noise."""
    raw = frame(np.full((60, 50), 2.0), 1)
    raw[:20, :10], raw[40, 40] = 0.0, -30000.0
    image, mask = preprocess(raw, BIAS, Detector(GAIN, NOISE))
    wrong = raw < BIAS / 2
    assert (mask[wrong] == BAD).all() and not mask[~wrong].any()
    np.testing.assert_array_equal(image.ivar == 0, wrong)
    fits.PrimaryHDU(raw.astype("i2")).writeto(tmp_path / "raw.fits")
    assert main(["preprocess", "-i", str(tmp_path / "raw.fits"), "-o", str(tmp_path / "x.fits"), "--bias", str(BIAS),
                 "--gain", str(GAIN), "--read-noise", str(NOISE)]) == 0
    assert "warning: 201 pixels are more than 20 read noises below the bias, and masked" in capsys.readouterr().err


def test_an_overscan_without_a_number_costs_no_row() -> None:
    raw = frame(np.zeros((300, 120)), 3)
    bias = overscan_bias(raw, (100, 120))
    raw[50, 105], raw[60, 110], raw[70, 100:] = np.nan, np.inf, np.nan
    np.testing.assert_allclose(overscan_bias(raw, (100, 120)), bias, atol=0.1)
    raw[:, 100:] = np.nan
    with pytest.raises(InputError, match="overscan 100:120 holds no finite number"):
        overscan_bias(raw, (100, 120))


@pytest.mark.parametrize("seeds", [(5,), (5, 6)])
def test_a_read_noise_in_electrons_gives_the_gain_that_one_in_adu_gives(seeds: tuple[int, ...]) -> None:
    flats = [frame(light(), seed) - BIAS for seed in seeds]
    gain = gain_from(flats, NOISE, 60000)
    assert gain == pytest.approx(GAIN, rel=0.03)
    # a hundredth of its error
    assert gain == pytest.approx(photon_transfer(flats[0], NOISE / gain, 60000, *flats[1:]).gain, rel=1e-4)
    with pytest.raises(InputError, match="the flat has no light"):
        gain_from([frame(np.zeros((400, 200)), 1) - BIAS], NOISE, 60000)


@pytest.mark.parametrize("seeds", [(5,), (5, 6)])
def test_pixels_without_a_number_tell_nothing(seeds: tuple[int, ...]) -> None:
    """They are left out of gain and noise: one pixel of 80000 changes less than 1e-4."""
    def measured() -> list[float]:
        return [photon_transfer(flats[0], NOISE / GAIN, 60000, *flats[1:]).gain, read_noise_of(darks)]

    darks, flats = [frame(np.zeros((400, 200)), 1), frame(np.zeros((400, 200)), 2)], [frame(light(), n) for n in seeds]
    right = measured()
    darks[1][9, 9] = flats[-1][20, 100] = np.nan
    assert measured() == pytest.approx(right, rel=1e-4)


@pytest.fixture
def night(tmp_path: Path) -> Path:
    cube = np.stack([frame(np.zeros((200, 400)), 1), frame(np.zeros((200, 400)), 2), frame(light().T, 3)])
    fits.HDUList([fits.PrimaryHDU(), fits.ImageHDU(cube.astype(np.int32), name="SCIENCE"),
                  fits.ImageHDU(frame(light().T, 4), name="FLAT")]).writeto(tmp_path / "night.fits")
    return tmp_path / "night.fits"


def test_the_command_preprocesses_a_raw_image(night: Path, tmp_path: Path) -> None:
    out = tmp_path / "image.fits"
    assert main(["preprocess", "-i", f"{night}[SCIENCE,2]", "--dark", f"{night}[SCIENCE,0]", f"{night}[1,1]",
                 "--transfer", f"{night}[FLAT]", "--dispersion", "x", "-o", str(out)]) == 0
    image = read_image(out)
    assert image.shape == (400, 200)
    assert image.get("GAIN") == pytest.approx(GAIN, rel=0.03)
    expected = light() * image.get("GAIN") / GAIN
    bright = expected > 1000                       # where the noise of two darks is negligible
    assert np.median((image.pix - expected)[bright] ** 2 * image.ivar[bright]) == pytest.approx(0.455, rel=0.1)


def gain_of(folder: Path, *words: str) -> float:
    """GAIN of an image that the command makes with these options."""
    assert main(["preprocess", "-i", f"{folder}/raw.fits", *words, "-o", f"{folder}/image.fits"]) == 0
    return float(read_image(folder / "image.fits").get("GAIN"))


@pytest.fixture
def flats(tmp_path: Path) -> Path:
    """Frames with light in 200 columns, and an overscan of 40: one to convert, two flats, a dark."""
    lit = np.hstack([light(), np.zeros((400, 40))])
    for name, image in (("raw", frame(lit, 1)), ("one", frame(lit, 2)), ("two", frame(lit, 3)),
                        ("dark", frame(np.zeros_like(lit), 4))):
        fits.PrimaryHDU(image).writeto(tmp_path / f"{name}.fits")
    return tmp_path


def test_flats_have_a_bias_of_their_own(flats: Path) -> None:
    words = ["--overscan", "205:240", "--read-noise", f"{NOISE}", "--transfer", f"{flats}/one.fits"]
    gain = gain_of(flats, *words)
    assert gain == pytest.approx(GAIN, rel=0.03)
    fits.PrimaryHDU(fits.getdata(flats / "one.fits") + 300).writeto(flats / "one.fits", overwrite=True)
    assert gain_of(flats, *words) == pytest.approx(gain, rel=1e-9)


def test_the_noise_of_a_dark_is_not_in_the_difference_of_two_flats(flats: Path) -> None:
    """The gain was once too large by 17 %."""
    pair = ["--transfer", f"{flats}/one.fits", f"{flats}/two.fits"]
    assert gain_of(flats, "--dark", f"{flats}/dark.fits", *pair) == pytest.approx(GAIN, rel=0.03)


def test_bad_pixels_are_masked(night: Path, tmp_path: Path) -> None:
    bad = np.zeros((200, 400), np.uint8)
    bad[17, :] = 1
    fits.HDUList([fits.PrimaryHDU(), fits.ImageHDU(bad, name="BAD")]).writeto(tmp_path / "bad.fits")
    assert main(["preprocess", "-i", f"{night}[FLAT]", "--bias", "5", "--gain", "1", "--read-noise", "3",
                 "--dispersion", "x", "--bad", f"{tmp_path}/bad.fits[BAD]", "-o", str(tmp_path / "image.fits")]) == 0
    ivar = read_image(tmp_path / "image.fits").ivar
    assert (ivar[:, 17] == 0).all() and (np.delete(ivar, 17, axis=1) > 0).all()


def test_a_description_says_the_rest(night: Path, tmp_path: Path) -> None:
    text = "[a]\naxis = -x\nbias = 5\ngain = 2\nread_noise = 3\norder = descending\n"
    (tmp_path / "mine.ini").write_text(text)
    words = ["preprocess", "-i", f"{night}[FLAT]", "--spectrograph", str(tmp_path / "mine.ini"), "-o"]
    assert main([*words, str(tmp_path / "image.fits")]) == 0
    assert main([*words, str(tmp_path / "other.fits"), "--dispersion", "y", "--gain", "1", "--bias", "0"]) == 0
    image, other = read_image(tmp_path / "image.fits"), read_image(tmp_path / "other.fits")
    raw = read_raw(f"{night}[FLAT]")[0]
    np.testing.assert_allclose(image.pix, 2 * (raw.T[::-1, ::-1] - 5), rtol=1e-6)
    np.testing.assert_allclose(other.pix, raw[:, ::-1], rtol=1e-6)
    assert image.get("MIRRORED") and image.get("GAIN") == 2 and other.get("GAIN") == 1


@pytest.mark.parametrize(("options", "message"), [
    (["-i", "NIGHT[FLAT]", "--bias", "5", "--gain", "1", "--read-noise", "3", "--bad", "SMALL"], "has shape (3, 4)"),
    (["-i", "NIGHT", "--bias", "5", "--gain", "1", "--read-noise", "3"], "is a cube of 3 images"),
    (["-i", "NIGHT[FLAT]", "--bias", "5", "--read-noise", "3", "--transfer", "SMALL"], "has shape (3, 4)"),
    (["-i", "NIGHT[FLAT]", "--bias", "5", "--read-noise", "3", "--transfer", "SMALL", "SMALL", "SMALL"],
     "3 flats are given, must be one or two"),
    (["-i", "NIGHT[FLAT]", "--gain", "1", "--read-noise", "3"],
     "0 sources of the bias are given, exactly one is needed"),
    (["-i", "NIGHT[FLAT]", "--bias", "5", "--read-noise", "3"], "give --gain, or --transfer"),
    (["-i", "NIGHT[FLAT]", "--bias", "5", "--gain", "-1", "--read-noise", "3"], "gain is -1.0, must be a number"),
    (["-i", "NIGHT[FLAT]", "--bias", "nan", "--gain", "1", "--read-noise", "3"], "bias is nan, must be a number"),
    (["-i", "NIGHT[FLAT]", "--spectrograph", "side", "--gain", "0"], "gain is 0.0, must be a number"),
    (["-i", "NIGHT[FLAT]", "--spectrograph", "none"], "no spectrograph 'none'; known: side"),
    (["-i", "NIGHT[SKY]", "--bias", "5", "--gain", "1", "--read-noise", "3"], "no HDU SKY"),
    (["-i", "NIGHT[FLAT]", "--bias", "5", "--gain", "1", "--read-noise", "3", "--dispersion", "z"],
     "dispersion is 'z', must be one of y, -y, x, -x"),
    (["-i", "NIGHT[SCIENCE,0]", "--dark", "NIGHT[SCIENCE,0]", "--gain", "1"], "hold the same pixels; give each"),
    (["-i", "NIGHT[FLAT]", "--dark", "NIGHT[SCIENCE,0]", "NIGHT[1,1]", "NIGHT[SCIENCE,1]", "--gain", "1"],
     "hold the same pixels; give each exposure once"),
    (["-i", "NIGHT[SCIENCE,0]", "--bias", "5", "--read-noise", "3", "--transfer", "NIGHT[FLAT]", "NIGHT[2]"],
     "--transfer: "),
    (["-i", "NIGHT[FLAT]", "--bias", "5", "--read-noise", "3", "--gain", "1", "--transfer", "NIGHT[SCIENCE,2]"],
     "--gain and --transfer are both given: give the gain"),
    (["-i", "NIGHT[FLAT]", "--bias", "5", "--gain", "1", "--read-noise", "3", "--saturation", "9"],
     "no pixel is good: 80000 of 80000 have 9 ADU or more"),
])
def test_input_that_cannot_be_used_is_refused_in_one_line(
        night: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str) -> None:
    fits.PrimaryHDU(np.zeros((3, 4), np.uint8)).writeto(tmp_path / "small.fits")
    words = [word.replace("NIGHT", str(night)).replace("SMALL", str(tmp_path / "small.fits")) for word in options]
    assert main(["preprocess", *words, "-o", str(tmp_path / "x.fits")]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    assert len(lines) == 1 and message in lines[0]
    assert not (tmp_path / "x.fits").exists()


@pytest.mark.parametrize(("unit", "less", "told"), [
    (None, 0, ""), ("adu", 0, ""), ("electron", 0, "the raw image's BUNIT is electron: "),
    (None, 32768, "the typical pixel is -8.1"), (None, 4, ""), (None, 40, "the typical pixel is -9")])
def test_what_is_no_raw_image_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], unit: str | None, less: float,
                                      told: str) -> None:
    """Electrons would be multiplied by the gain again. Unsigned numbers read as signed ones, and a bias that is too
    large, make an image of negative light with the ivar of the read noise."""
    made = fits.PrimaryHDU((frame(np.full((60, 50), 2.0), 1) - less).astype("i2"))
    if unit is not None:
        made.header["BUNIT"] = unit
    made.writeto(tmp_path / "raw.fits")
    assert main(["preprocess", "-i", str(tmp_path / "raw.fits"), "-o", str(tmp_path / "x.fits"), "--bias", str(BIAS),
                 "--gain", str(GAIN), "--read-noise", str(NOISE)]) == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if "warning: " in line]
    assert len(warnings) == bool(told) and all(f"warning: {told}" in line for line in warnings)


def test_darks_or_flats_that_do_not_differ_tell_no_noise() -> None:
    """Two copies of a flat were once an internal error of the least squares."""
    for darks in ([np.full((40, 30), 7.0)], [np.full((40, 30), np.nan)] * 2):
        with pytest.raises(InputError, match=r"the noise of the dark frames is (0|nan) ADU, must be above 0"):
            read_noise_of(darks)
    flat = frame(light(), 5) - BIAS
    with pytest.raises(InputError, match="fewer than three levels"):
        photon_transfer(flat, NOISE / GAIN, 60000, flat)


def made_of(image: np.ndarray) -> Image:
    """With the ivar of an image converted with bias 0 and gain 1."""
    return preprocess(image, 0.0, Detector(1.0, NOISE))[0]


def test_a_bias_that_is_left_in_is_told_by_its_noise() -> None:
    """It is in the faintest pixels; light, even scattered light everywhere, has as many electrons of variance."""
    dark, rng = np.zeros((400, 200)), np.random.default_rng(2)
    lines = np.where(np.arange(200) % 10 == 5, 900.0, 0.0) + dark
    for left in (0.0, 200.0, 1000.0):
        assert len(doubts(made_of(rng.poisson(lines) + rng.normal(left, NOISE, dark.shape)), ())) == (left > 0)
        assert not doubts(made_of(rng.poisson(lines + left) + rng.normal(0, NOISE, dark.shape)), ())
    (words,) = doubts(made_of(rng.normal(200, NOISE, dark.shape)), ())
    assert words.startswith("the faintest pixels have 19") and "with a variance of 6" in words


@pytest.mark.parametrize(("times", "told"), [
    ((100.0, 100.0), ""), ((0.0, 95.0), ""), ((None, "long"), ""),
    ((100.0, 900.0), "exposed for 900 s, the image for 100 s"), ((50, 0), "exposed for 50 s")])
def test_darks_of_another_exposure_time_are_told(times: tuple[object, ...], told: str) -> None:
    image = made_of(np.random.default_rng(1).normal(0, NOISE, (60, 50)))
    cards = [[Card("EXPTIME", time)] if time is not None else [] for time in times]
    sentences = doubts(image, [Card("EXPTIME", 100.0)], cards)
    assert len(sentences) == bool(told) and all(told in sentence for sentence in sentences)
    assert not doubts(image, [], cards)


def test_an_image_is_named_by_its_hdu_and_plane(night: Path) -> None:
    assert read_raw(f"{night}[SCIENCE,0]")[0].shape == (200, 400)
    for name, message in ((f"{night}[7]", "has 3 HDUs"), (f"{night}[SCIENCE,3]", "is a cube of 3 images")):
        with pytest.raises(InputError, match=message):
            read_raw(name)


def test_numbers_are_the_same_however_they_are_stored_and_cards_say_what_was_done(tmp_path: Path) -> None:
    """Integers with a zero point and a scale, floats of both sizes, packed; the camera's GAIN and BUNIT are dropped."""
    adu = np.rint(np.random.default_rng(1).normal(1000, 5, (40, 30)))
    adu[3, 4] = 65535
    scaled = fits.PrimaryHDU(adu.astype(np.int32))
    scaled.scale("int32", bscale=0.5, bzero=300)
    stored = [fits.PrimaryHDU(adu.astype(kind)) for kind in ("u2", "i4", "f4", "f8")]
    stored += [scaled, fits.CompImageHDU(adu.astype(np.int32))]
    found = []
    for hdu in stored:
        hdu.header.update(GAIN=7.7, RDNOISE=99.0, BUNIT="adu", SATURATE=1, EXPTIME=30.0)
        fits.HDUList([hdu] if isinstance(hdu, fits.PrimaryHDU) else [fits.PrimaryHDU(), hdu]).writeto(
            tmp_path / "raw.fits", overwrite=True)
        assert gain_of(tmp_path, "--bias", "1000", "--gain", "2", "--read-noise", "6") == 2
        header = fits.getheader(tmp_path / "image.fits")
        assert [header.count(key) for key in ("GAIN", "RDNOISE", "BUNIT", "SATURATE", "EXPTIME")] == [1] * 5
        assert (header["BUNIT"], header["RDNOISE"], header["EXPTIME"]) == ("electron", 6, 30)
        found.append(read_image(tmp_path / "image.fits"))
    for image in found:
        np.testing.assert_array_equal(image.pix, (2 * (adu - 1000)).astype(np.float32))
        np.testing.assert_array_equal(image.ivar, found[0].ivar)


def test_the_made_up_spectrograph_is_read_as_it_was_made(tmp_path: Path) -> None:
    """Pixels to half an ADU, and masked pixels at full well, with those rounded to it. They once counted as light."""
    made = simulate(SimConfig(camera="side", flavor="flat", exptime=12000.0, nspec=15))
    write_simulation(made, tmp_path / "made.fits", raw=tmp_path / "raw.fits")
    raw = f"{tmp_path}/raw.fits"
    gain_of(tmp_path, "--spectrograph", "side", "--bad", f"{raw}[BAD]")
    image = read_image(tmp_path / "image.fits")
    assert ((made.mask & CcdMask.SATURATED) != 0).sum() > 100
    assert not image.ivar[made.image.ivar == 0].any() and (image.ivar[made.image.ivar > 0] == 0).sum() < 3
    good = image.ivar > 0
    assert np.abs(image.pix - made.image.pix)[good].max() < 0.6 + 2.0**-7      # float32 up to 65000, twice
