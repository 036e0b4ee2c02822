"""Properties of whole extractions: what must not matter does not, and what is missing is missing exactly."""
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

import oracle
from edge_files import small_frame
from extraction import CORES, assert_same_bits, extracted, in_sigma, inner_case, moved, relative
from gpu_extract.config import ExtractConfig
from gpu_extract.data import FiberMap, Frame, Image, PsfModel, SpecMask, Status, with_series
from gpu_extract.errors import ConfigError, InputError
from gpu_extract.simulate import SimConfig, simulate
from gpu_extract.simulate.config import Defects
from gpu_extract.spots import centres

CONFIG = ExtractConfig(wavelength=(6012.0, 6092.0, 0.84))
ROUGH = Defects(masked_fraction=0.03)


@pytest.fixture(scope="module")
def four_bundles():
    """Twenty fibres, two detectors side by side; cosmics, bad columns, and 3 % of the pixels masked at random."""
    return simulate(SimConfig(camera="tiny", nspec=20, defects=ROUGH))


@pytest.fixture(scope="module")
def tiny():
    """Ten fibres in two bundles, otherwise as four_bundles."""
    return simulate(SimConfig(camera="tiny", defects=ROUGH))


# ---- what arrays and settings are made of --------------------------------------------------------------------------

@pytest.mark.parametrize("kind", [">f4", ">f8", "f8", "i4", "f2"])
def test_arrays_of_other_types(tiny, kind):
    """Arrays as from astropy, in the byte order of FITS, and other real numbers: only the values count."""
    image, psf = tiny.image, tiny.psf
    pix, ivar = np.rint(image.pix), np.where(image.ivar > 0, 1, 0)
    whole = extracted(Image(pix.astype(np.float64), ivar.astype(np.float64)), psf, CONFIG)
    other = with_series(psf, lambda series: replace(series, coeff=np.asfortranarray(series.coeff.astype(">f8"))))
    assert_same_bits(extracted(Image(pix.astype(kind), ivar.astype(kind)), other, CONFIG), whole)


def test_arrays_that_are_not_numbers(tiny):
    """A mask or an imaginary part would be lost."""
    masked = np.ma.masked_array(tiny.image.pix, mask=tiny.image.ivar == 0)
    with pytest.raises(InputError, match=r"pix is a masked array, must be a plain one: .* ivar that is 0"):
        Image(masked, tiny.image.ivar)
    with pytest.raises(InputError, match="ivar is of type complex64, must be real"):
        Image(tiny.image.pix, tiny.image.ivar.astype(np.complex64))
    with pytest.raises(InputError, match="noise is of type <U4, must be real"):
        Image(tiny.image.pix, tiny.image.ivar, noise=np.full(tiny.image.shape, "some"))


def test_settings_as_numpy_has_them():
    """Numbers from an array give the same settings; numbers of the wrong kind are reported, all at once."""
    given = ExtractConfig(wavelength=np.array(CONFIG.wavelength), specmin=np.int32(3), nspec=np.int64(4),
                          psferr=np.float32(0.5), model=np.bool_(True))
    assert given == replace(CONFIG, specmin=3, nspec=4, psferr=0.5, model=True)
    assert ExtractConfig(wavelength=(np.int64(6012), np.float64(6092), np.float64(0.84))) == CONFIG
    assert given.digest() == replace(CONFIG, specmin=3, nspec=4, psferr=0.5).digest()
    with pytest.raises(ConfigError, match=r"wavelength is \(1, 2\), must be three numbers: .*; nspec is 2.5, must be a "
                                          r"whole number or None; core is None, must be a word; passes is True, must"):
        ExtractConfig(wavelength=(1, 2), nspec=2.5, core=None, passes=True)


@pytest.mark.parametrize(("change", "said"), [
    (lambda psf: replace(psf.x, wmin="6000"), "wmin of a series of the PSF is of type <U4, must be real numbers"),
    (lambda psf: replace(psf.x, wmax=None), "wmax of a series of the PSF is of type object, must be real numbers"),
    (lambda psf: replace(psf, stamp=(131, 17)), r"stamp is \(131, 17\), must be at most 129 pixels along an axis"),
    (lambda psf: replace(psf, offset=(5.0, np.nan)), r"offset is \(5.0, nan\), must lie within the stamp of"),
    (lambda psf: replace(psf, offset=(12.0, 8.0)), r"offset is \(12.0, 8.0\), must lie within the stamp"),
])
def test_psfs_that_cannot_be_used_are_refused(tiny, change, said):
    """Stamps of a thousand pixels would take hours; spots beside their stamp once gave indistinguishable bins."""
    with pytest.raises(InputError, match=f"^{said}"):
        change(tiny.psf)


def test_fibermaps_that_are_no_structured_arrays():
    """They once ended in an AttributeError when the frame was made or written."""
    for rows in ({"FIBER": np.arange(3)}, np.arange(3), np.zeros((3, 2), dtype=[("FIBER", int)])):
        with pytest.raises(InputError, match=f"rows of the fibermap are {type(rows).__name__}, must be a structured"):
            FiberMap(rows)


def test_frames_of_arrays_that_are_not_numbers():
    """A mask, a unit or an imaginary part would be lost in the file."""
    frame = small_frame()
    for name, array, said in (("flux", np.ma.masked_less(frame.flux, 0), "is a masked array"),
                              ("ivar", frame.ivar + 1j, "is of type complex128, must be real numbers"),
                              ("flux", frame.flux.astype(str), "is of type <U32, must be real numbers"),
                              ("mask", frame.mask.astype(float), "is of type float64, must be whole numbers")):
        with pytest.raises(InputError, match=f"^{name} {said}"):
            replace(frame, **{name: array})
    assert replace(frame, flux=frame.flux.tolist()).flux.dtype == np.float64


# ---- requested fibres -----------------------------------------------------------------------------------------------

UNEVEN = np.repeat([3, 1, 7, 2, 9], [3, 6, 1, 8, 2])
BUNDLES = {"camera": {}, "uneven": {"bundle": UNEVEN}, **{str(n): {"bundle": None} for n in (1, 3, 7, 25)}}


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("bundles", BUNDLES)
def test_a_range_of_fibres_is_those_rows_of_the_whole(four_bundles, bundles, core):
    """-s 10 -n 5 and others, bitwise, including the mask: bundles of the camera, uneven ones, any bundlesize."""
    psf = replace(four_bundles.psf, **BUNDLES[bundles])
    config = replace(CONFIG, core=core, bundlesize=int(bundles) if bundles.isdigit() else 25)
    image = Image(four_bundles.image.pix, four_bundles.image.ivar)
    whole = extracted(image, psf, config)
    for first, count in ((10, 5), (8, 4), (19, 1)) if core == "auto" else ((10, 5),):
        part = extracted(image, psf, replace(config, specmin=first, nspec=count))
        assert_same_bits(part, whole, other_rows=slice(first, first + count))
        assert part.fibres.tolist() == list(range(first, first + count))


def test_fibermap_and_header_go_with_the_fibres(four_bundles):
    part = extracted(four_bundles.image, four_bundles.psf, replace(CONFIG, specmin=10, nspec=5))
    assert part.fibermap.rows["FIBER"].tolist() == [10, 11, 12, 13, 14]
    assert part.cards == four_bundles.image.cards


def test_in_single_precision_as_the_file_is(tiny):
    """As the programs request: the same numbers, rounded once."""
    whole = extracted(tiny.image, tiny.psf, CONFIG)
    single = extracted(tiny.image, tiny.psf, CONFIG, dtype=np.float32)
    for name in ("flux", "ivar", "resolution", "chi2pix", "pixmask_fraction"):
        assert getattr(single, name).dtype == np.float32
        np.testing.assert_array_equal(getattr(single, name), getattr(whole, name).astype(np.float32))


# ---- units ----------------------------------------------------------------------------------------------------------

def rescaled(image: Image, s: float) -> Image:
    """The image in other units, including its read noise if it is known."""
    noise = getattr(image, "read_noise", None)
    return replace(image, pix=image.pix * s, ivar=image.ivar / s**2, **({"read_noise": noise * s} if noise else {}))


def differences(frame: Frame, reference: Frame, s: float) -> np.ndarray:
    """(3, nspec, nwave): of flux / s relative to the larger of flux and error, of ivar s^2 and of R's columns."""
    size = np.maximum(np.abs(reference.flux), np.divide(1, np.sqrt(reference.ivar), where=reference.ivar > 0,
                                                        out=np.full_like(reference.flux, np.inf)))
    return np.stack([np.abs(frame.flux / s - reference.flux) / size, relative(frame.ivar * s**2, reference.ivar),
                     np.abs(frame.resolution - reference.resolution).max(axis=1)])


def with_masks(image: Image, *kinds: str) -> Image:
    """Masked: a block of 40 x 12 pixels and a column of 15; 25 rows except one pixel on a trace; and uneven errors."""
    ivar = image.ivar.copy()
    if "block" in kinds:
        ivar[150:190, 14:26] = 0
        ivar[60:75, 38] = 0
    if "one pixel" in kinds:
        ivar[240:265] = 0
        ivar[252, 17] = image.ivar[252, 17]
    if "uneven" in kinds:
        ivar[:, 36:] *= 1e5
    return replace(image, ivar=ivar)


UNITS = {"clean": (), "block": ("block",), "uneven": ("uneven",)}
WEAK = SpecMask.WEAKBIN | SpecMask.NODATA


@cache
def in_electrons(core: str, masks: str) -> Frame:
    """The reference for the same image in other units."""
    case = inner_case()
    return extracted(with_masks(case.image, *UNITS[masks]), case.psf, replace(case.config, core=core))


@pytest.mark.parametrize("masks", UNITS)
@pytest.mark.parametrize(("core", "power"), [
    *(("auto", power) for power in (-12, -9, -6, -3, 3, 6, 9, 12)), ("dense", -12), ("dense", 3), ("dense", 12)])
def test_other_units_of_the_image(core, power, masks):
    """image s, ivar / s^2, read noise s gives flux s, ivar / s^2, R and chi2pix to 1e-10, in every bin; the same flags.

    Also with a masked block, where icov, scaled to a unit diagonal, has a condition number of 1e3, errors of the bins
    differ by 3000 and rounding leaves 2e-11; and with 1e5 times the others' ivar in one fibre's pixels.
    """
    case = inner_case()
    image, config = with_masks(case.image, *UNITS[masks]), replace(case.config, core=core)
    reference = in_electrons(core, masks)
    frame = extracted(rescaled(image, 10.0**power), case.psf, config)
    assert differences(frame, reference, 10.0**power).max() < 1e-10
    np.testing.assert_allclose(frame.chi2pix, reference.chi2pix, rtol=1e-6)
    np.testing.assert_array_equal(frame.mask, reference.mask)
    np.testing.assert_array_equal(frame.status, reference.status)


@pytest.mark.parametrize(("core", "power"), [
    ("auto", -40), *(pytest.param(core, power, marks=pytest.mark.slow)
                     for core, power in (("dense", 7), *product(CORES, (-1, 40))))])
def test_in_units_of_a_power_of_two(core, power):
    """Bitwise, also in bins that good pixels do not distinguish: no limit has units.

    Three fibres and the bins around the masks: weak bins, bins without data, and each way to decorrelate.
    """
    case = inner_case(3)
    config = replace(case.config, core=core, wavelength=(6072.0, 6160.0, 0.8))
    image = with_masks(case.image, *UNITS["block"], "one pixel")
    s = 2.0**power
    reference = extracted(image, case.psf, config)
    frame = extracted(rescaled(image, s), case.psf, config)
    assert all((reference.mask & flag).any() for flag in WEAK)
    np.testing.assert_array_equal(frame.flux / s, reference.flux)
    np.testing.assert_array_equal(frame.ivar * s**2, reference.ivar)
    for name in ("resolution", "chi2pix", "pixmask_fraction", "mask", "status"):
        np.testing.assert_array_equal(getattr(frame, name), getattr(reference, name), err_msg=name)


# ---- missing pixels -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_what_masked_pixels_hold_does_not_matter(tiny, core, value):
    """No output bit depends on it."""
    config = replace(CONFIG, core=core, model=True)
    frame = extracted(tiny.image, tiny.psf, config)
    pix = np.where(tiny.image.ivar > 0, tiny.image.pix, np.float32(value))
    assert (pix != tiny.image.pix).sum() > 500
    other = extracted(Image(pix, tiny.image.ivar), tiny.psf, config)
    assert_same_bits(other, frame)
    np.testing.assert_array_equal(other.model, frame.model)


NOTHING = SpecMask.SOMEBADPIX | SpecMask.ALLBADPIX | SpecMask.NODATA


@pytest.mark.parametrize("core", CORES)
def test_nothing_but_masked_pixels(tiny, core):
    """No error: every array 0, pixmask_fraction 1, and a mask that says so."""
    image = Image(np.full(tiny.image.shape, np.nan), np.zeros(tiny.image.shape))
    frame = extracted(image, tiny.psf, replace(CONFIG, core=core, model=True))
    for name in ("flux", "ivar", "resolution", "chi2pix", "model"):
        np.testing.assert_array_equal(getattr(frame, name), 0)
    np.testing.assert_array_equal(frame.mask, NOTHING)
    np.testing.assert_array_equal(frame.status, Status.EMPTY)


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("amplifier", "AD")
def test_a_dead_amplifier_costs_its_own_bins_alone(core, amplifier):
    """No data for spots that are entirely on it; bins whose spots do not touch it are as from an image without it.

    Bins without a good pixel are those whose stamps, pixel by pixel, are on the quarter.
    """
    whole = simulate(SimConfig(camera="tiny", defects=replace(ROUGH, dead_amplifier=None)))
    dead = simulate(SimConfig(camera="tiny", defects=replace(ROUGH, dead_amplifier=amplifier)))
    ny, nx = dead.image.shape
    quarter = np.zeros((ny, nx), dtype=bool)
    quarter[np.s_[:ny // 2, :nx // 2] if amplifier == "A" else np.s_[ny // 2:, nx // 2:]] = True
    np.testing.assert_array_equal(dead.image.ivar[quarter], 0)
    config = replace(CONFIG, core=core)
    frame, reference = (extracted(s.image, s.psf, config) for s in (dead, whole))
    lit = light_on(dead.psf, frame.wave, dead.image.ivar > 0)
    np.testing.assert_array_equal(frame.ivar > 0, lit)
    np.testing.assert_array_equal(frame.status == Status.EMPTY, ~lit)
    assert 150 < (~lit).sum() < 400
    far = light_on(dead.psf, frame.wave, quarter)
    for _ in range(25):        # light leaks through C: 25 bins on, 1e-4 sigma
        far[:, 1:-1] |= far[:, :-2] | far[:, 2:]
    assert in_sigma(frame, reference.flux)[~far].max() < 1e-3
    other_bundle = slice(5, 10) if amplifier == "A" else slice(0, 5)
    assert not far[other_bundle].any()
    assert_same_bits(frame, reference, other_bundle, other_bundle)


def light_on(psf: PsfModel, wave: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """(nfibre, nwave) bool: whether any pixel with light of a bin's spot is among `pixels`."""
    found = np.zeros((psf.nfibre, len(wave)), dtype=bool)
    for i, j in np.ndindex(*found.shape):
        spot = oracle.spot(psf, i, float(wave[j]))
        y, x = np.nonzero(spot.pixels > 0)
        y, x = y + spot.y0, x + spot.x0
        on = (y >= 0) & (y < pixels.shape[0]) & (x >= 0) & (x < pixels.shape[1])
        found[i, j] = pixels[y[on], x[on]].any()
    return found


@pytest.mark.parametrize("core", CORES)
def test_a_masked_fibre_has_no_data_and_its_neighbours_have(tiny, core):
    """All pixels of fibre 7's spots are masked: it has no data; its neighbours keep light on their other sides."""
    psf, ivar = tiny.psf, tiny.image.ivar.copy()
    y, x = centres(psf, (7, 8), np.linspace(*psf.wavelength_range, 500))
    for row in range(len(ivar)):
        middle = np.interp(row, y[0], x[0])
        ivar[row, int(middle) - 9:int(middle) + 11] = 0
    frame = extracted(Image(tiny.image.pix, ivar), psf, replace(CONFIG, core=core))
    np.testing.assert_array_equal(frame.mask[7], NOTHING)
    assert (frame.ivar[[5, 6, 8, 9]] > 0).all(), "neighbours see pixels 2 to 8 on their far side"
    reference = extracted(tiny.image, psf, replace(CONFIG, core=core))
    assert_same_bits(frame, reference, slice(0, 5), slice(0, 5))


@pytest.mark.parametrize("core", CORES)
def test_a_dead_fibre_is_zero_within_its_errors(core):
    """A fibre that passes no light is extracted like any other: zero within its errors."""
    dead = simulate(SimConfig(camera="tiny", defects=replace(ROUGH, dead_fibres=(2,))))
    frame = extracted(dead.image, dead.psf, replace(CONFIG, core=core))
    pulls = frame.flux[2] * np.sqrt(frame.ivar[2])
    assert abs(pulls.mean()) < 0.5 and 0.75 < pulls.std() < 1.3       # 101 bins: 0.1 and 0.07
    assert (frame.ivar[2] > 0).all()


# ---- the edges of the CCD -------------------------------------------------------------------------------------------

# the remaining part of the 192 x 104 pixels: (rows, columns). "odd" columns move the spots against the lanes of four.
CUTS = {"left": (0, 192, 36, 104), "left-odd": (0, 192, 13, 104), "right": (0, 192, 0, 70), "bottom": (91, 192, 0, 104),
        "top": (0, 90, 0, 104), "corner": (50, 192, 30, 104), "strip": (90, 97, 0, 104)}


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("cut", CUTS)
def test_spots_off_the_ccd(tiny, core, cut):
    """A CCD that ends there equals a larger one that is masked there: traces off the left edge, spots half off every
    edge.

    1e-6 sigma (a fibre wholly off the CCD is dropped, and decay is measured on others); every bin with a lit pixel on
    the CCD is extracted.
    """
    top, bottom, left, right = CUTS[cut]
    pix, ivar = tiny.image.pix[top:bottom, left:right], np.zeros_like(tiny.image.ivar)
    ivar[top:bottom, left:right] = tiny.image.ivar[top:bottom, left:right]
    config = replace(CONFIG, core=core)
    small = moved(tiny.psf, -top, -left, pix.shape)
    frame = extracted(Image(pix, ivar[top:bottom, left:right]), small, config)
    reference = extracted(Image(tiny.image.pix, ivar), tiny.psf, config)
    lit = light_on(small, frame.wave, ivar[top:bottom, left:right] > 0)
    np.testing.assert_array_equal(frame.ivar > 0, lit)
    assert 0.05 < lit.mean() < 0.95 or cut == "left-odd"
    assert in_sigma(frame, reference.flux).max() < 1e-6
    assert relative(frame.ivar, reference.ivar).max() < 1e-7
    np.testing.assert_allclose(frame.resolution, reference.resolution, rtol=0, atol=1e-7)
    np.testing.assert_allclose(frame.pixmask_fraction, reference.pixmask_fraction, rtol=0, atol=1e-6)
    for i, reason in frame.notes["dropped"].items():
        assert reason == "its trace is off the CCD" and not lit[i].any()
    same = frame.mask & ~np.uint32(SpecMask.BADFIBER)
    np.testing.assert_array_equal(same, reference.mask)


# ---- settings that change what is solved for, but not the result ----------------------------------------------------

@pytest.mark.parametrize("step", [3.0, 6.0, 10.0, 50.0, 190.0])
@pytest.mark.parametrize("core", CORES)
def test_coarse_bins_against_the_oracle(core, step):
    """Bins that overlap little or not at all, only two at the coarsest."""
    psf = oracle.make_psf("v3", 5, (364, 56), first_row=14)
    config = ExtractConfig(wavelength=(6004.0, 6004.0 + max(step, 190.0 // step * step), step), core=core)
    case = oracle.make_case(psf, config, pad=0)
    frame = extracted(case.image, psf, config)
    reference = oracle.oracle_extract(case.image, psf, config, pad=200)
    assert in_sigma(frame, reference.flux).max() < 1e-8
    assert relative(frame.ivar, reference.ivar).max() < 1e-9


def test_a_single_bin_has_no_width():
    with pytest.raises(ConfigError, match=r"wavelength 6050,6050\.3,0\.84 is a single bin, must be at least two"):
        replace(CONFIG, wavelength=(6050.0, 6050.3, 0.84))


def test_two_bins_are_enough(tiny):
    frame = extracted(tiny.image, tiny.psf, replace(CONFIG, wavelength=(6050.0, 6050.5, 0.84)))
    assert frame.wave.tolist() == [6050.0, 6050.84]
    assert (frame.ivar > 0).all()
