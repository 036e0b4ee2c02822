"""Judging frames: what is compared, what is left out, and what fails."""
import json
from dataclasses import replace

import numpy as np
import pytest

from gpu_extract.cli.compare import main
from gpu_extract.compare import compare_frames, limits_for, load_cutout, self_test
from gpu_extract.compare.tolerances import FIELDS, load_limits, shipped
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Card, Frame, SpecMask, Status
from gpu_extract.errors import InputError
from gpu_extract.io.frame import read_frame, write_frame
from gpu_extract.oracle import oracle_extract

NDIAG = 3


@pytest.fixture
def frame() -> Frame:
    """Eight fibres from 10 on, 200 bins, 3 % of them masked, the elements of R drawn at random."""
    rng = np.random.default_rng(3)
    shape = (8, 200)
    fraction = np.where(rng.uniform(size=shape) < 0.03, rng.uniform(0.5, 1, shape), rng.uniform(0, 0.4, shape))
    ivar = rng.uniform(0.1, 1, shape)
    mask = np.where(fraction > 0.5, np.uint32(SpecMask.SOMEBADPIX), np.uint32(0))
    status = np.zeros(shape, np.int8)
    return Frame(wave=6000 + 0.8 * np.arange(200), status=status, flux=rng.normal(size=shape) * 10, ivar=ivar,
                 mask=mask, resolution=rng.uniform(0, 2 / (2 * NDIAG + 1), (8, 2 * NDIAG + 1, 200)),
                 chi2pix=rng.uniform(0.5, 2, shape),
                 fibres=np.arange(10, 18), pixmask_fraction=fraction)


def rows(comparison):
    return {row.field: row for row in comparison.rows}


def cut(frame: Frame, fibres: slice, waves: slice) -> Frame:
    names = "flux", "ivar", "mask", "resolution", "chi2pix", "pixmask_fraction", "status"
    return replace(frame, wave=frame.wave[waves], fibres=frame.fibres[fibres],
                   **{name: getattr(frame, name)[fibres][..., waves] for name in names})


def test_a_frame_agrees_with_itself(frame):
    for name in shipped():
        comparison = compare_frames(frame, frame, name)
        assert comparison.passed
        judged = load_limits(name).fields
        assert [row.field for row in comparison.rows] == [field for field in FIELDS if field in judged]
        assert ("status" in judged) == ("specter" not in name)       # whose frames have none
        assert all(row.maximum == 0 for row in comparison.rows)
    ends = load_limits("specter-onepatch").ends
    assert compare_frames(frame, frame, "frame").waves == 200
    assert compare_frames(frame, frame, "specter-onepatch").waves == 200 - 2 * ends


@pytest.mark.parametrize("other", ["electron/Angstrom", "photon / A", "Electrons Angstrom^-1", "e-/AA",
                                   "angstrom-1 ph", ""])
def test_one_unit_has_many_spellings(frame, other):
    assert compare_frames(replace(frame, unit="electron/Angstrom"), replace(frame, unit=other)).passed
    assert compare_frames(replace(frame, unit=other), frame).passed


@pytest.mark.parametrize("other", ["electron", "adu/Angstrom", "electron/nm", "10**-17 erg/(s cm2 Angstrom)"])
def test_frames_in_different_units_are_refused(frame, other, tmp_path, capsys):
    """The same numbers in both: they would pass."""
    paths = [str(tmp_path / name) for name in ("a.fits", "b.fits")]
    for path, unit in zip(paths, ("", other), strict=True):
        write_frame(path, replace(frame, unit=unit))
        assert read_frame(path).unit == (unit or "electron/Angstrom")
    assert main(paths) == 2
    said = capsys.readouterr().err
    assert f"FLUX of the frame is in electron/Angstrom, that of the reference in {other} (BUNIT)" in said
    assert main([paths[1], paths[1]]) == 0


@pytest.mark.parametrize("field", ["flux", "ivar", "resolution", "chi2pix", "mask"])
@pytest.mark.parametrize("limits", shipped())
def test_one_field_off_fails_that_field_alone(frame, field, limits):
    """Every bin is off by a hundred times the limit of the 99 % point (one bit for the mask)."""
    bound = load_limits(limits).fields[field].p99
    moved = {
        "flux": lambda: frame.flux + 100 * bound / np.sqrt(frame.ivar),
        "ivar": lambda: frame.ivar * (1 + 100 * bound),
        "resolution": lambda: frame.resolution + 100 * bound,
        "chi2pix": lambda: frame.chi2pix + 300 * bound,
        "mask": lambda: frame.mask | np.uint32(SpecMask.ALLBADPIX),
    }[field]()
    comparison = compare_frames(replace(frame, **{field: moved}), frame, limits)
    assert [row.field for row in comparison.rows if not row.passed] == [field]
    assert not comparison.passed
    assert f"NOT within the limits: {field}" in comparison.table()


def test_differences_are_in_the_units_that_are_named(frame):
    """3 sigma of the reference; 2 % of the ivar; 0.25 of an element of R; a fifth of 1 + chi2pix."""
    other = replace(frame, flux=frame.flux - 3 / np.sqrt(frame.ivar), ivar=frame.ivar * 1.02,
                    resolution=frame.resolution - 0.25, chi2pix=frame.chi2pix + 0.2 * (1 + frame.chi2pix))
    got = rows(compare_frames(other, frame, "frame"))
    for field, expected in {"flux": 3, "ivar": 0.02, "resolution": 0.25, "chi2pix": 0.2}.items():
        np.testing.assert_allclose([got[field].median, got[field].p99, got[field].maximum], expected, rtol=1e-9)


def test_median_99_percent_and_maximum(frame):
    """2 % of the judged bins are off by 1 sigma and one by 5: the median does not see it, the others do."""
    good = np.argwhere(frame.pixmask_fraction < 0.5)
    off = np.zeros(frame.flux.shape)
    off[tuple(good[:len(good) // 50].T)] = 1
    off[tuple(good[-1])] = 5
    got = rows(compare_frames(replace(frame, flux=frame.flux + off / np.sqrt(frame.ivar)), frame, "frame"))["flux"]
    assert got.bins == len(good)
    assert (got.median, got.p99, got.maximum) == (0, pytest.approx(1), pytest.approx(5))


@pytest.mark.parametrize("bit", sorted(set(SpecMask) - {SpecMask.WEAKBIN}))
def test_every_bit_of_the_mask_counts(frame, bit):
    """Except WEAKBIN, which depends on another core's rounding. COSMIC and ODDPIX, added later, once did not count."""
    other = replace(frame, mask=frame.mask ^ np.uint32(bit))
    assert not rows(compare_frames(other, frame, "frame"))["mask"].passed


def test_mostly_masked_bins_are_not_judged_but_their_mask_is(frame):
    bad = frame.pixmask_fraction >= 0.5
    other = replace(frame, flux=np.where(bad, 1e6, frame.flux), ivar=np.where(bad, 7.0, frame.ivar),
                    chi2pix=np.where(bad, 1e3, frame.chi2pix))
    assert compare_frames(other, frame, "frame").passed
    other = replace(frame, mask=np.where(bad, np.uint32(0), frame.mask), pixmask_fraction=None)
    got = rows(compare_frames(other, frame, "frame"))["mask"]
    assert got.maximum == pytest.approx(bad.mean())
    assert not got.passed


def test_a_fibre_without_errors_in_the_reference_is_not_judged(frame):
    """A dropped fibre sees good pixels but has ivar 0: there is no unit for a difference."""
    ivar = frame.ivar.copy()
    ivar[3] = 0
    dropped = replace(frame, ivar=ivar)
    comparison = compare_frames(replace(dropped, flux=np.where(ivar > 0, frame.flux, 1e6)), dropped, "frame")
    assert comparison.passed
    assert rows(comparison)["flux"].bins == np.count_nonzero((frame.pixmask_fraction < 0.5) & (ivar > 0))


def test_the_mask_decides_where_there_is_no_fraction(frame):
    bare = replace(frame, pixmask_fraction=None)
    bad = (frame.mask & SpecMask.SOMEBADPIX) > 0
    other = replace(bare, flux=np.where(bad, 1e6, frame.flux))
    got = rows(compare_frames(other, bare, "frame"))["flux"]
    assert got.passed
    assert got.bins == bad.size - bad.sum()


def test_elements_of_r_beside_masked_bins_are_not_judged(frame):
    """Column j of diagonal k belongs to row j - ndiag + k: neither may be mostly masked."""
    n = len(frame.wave)
    row = np.arange(n) - NDIAG + np.arange(2 * NDIAG + 1)[:, None]
    exists = (row >= 0) & (row < n)
    bad = frame.pixmask_fraction >= 0.5
    of_row = bad[:, np.clip(row, 0, n - 1)] | ~exists
    untouchable = of_row | bad[:, None, :]
    other = replace(frame, resolution=np.where(untouchable, 99.0, frame.resolution))
    got = rows(compare_frames(other, frame, "frame"))["resolution"]
    assert got.passed
    assert got.bins == np.count_nonzero(~untouchable)
    judged = np.argwhere(~untouchable)[1234]
    wrong = frame.resolution.copy()
    wrong[tuple(judged)] += 0.5
    assert not rows(compare_frames(replace(frame, resolution=wrong), frame, "frame"))["resolution"].passed


def test_any_common_fibres_and_wavelengths(frame):
    """A frame of fibres 13 to 16 and a later, longer grid: only the common part is compared."""
    part = cut(frame, slice(3, 7), slice(50, None))
    longer = replace(part, wave=part.wave + 3e-7)
    comparison = compare_frames(longer, frame, "frame")
    assert comparison.passed
    assert (comparison.fibres, comparison.waves) == (4, 150)
    flipped = compare_frames(frame, longer, "frame")
    assert flipped.passed
    assert (flipped.fibres, flipped.waves) == (4, 150)


def test_every_second_wavelength(frame):
    """A reference of twice the step has no common neighbouring rows: only R's main diagonal is judged."""
    sparse = cut(frame, slice(None), slice(None, None, 2))
    got = rows(compare_frames(frame, sparse, "frame"))
    assert got["flux"].passed
    assert got["resolution"].bins == got["flux"].bins


def test_bins_between_those_of_both_are_counted(frame):
    """A frame with rounded wavelengths once passed on the few that float32 holds exactly, silently."""
    rounded = replace(frame, wave=frame.wave.astype(np.float32).astype(np.float64))
    got = compare_frames(rounded, frame, "frame")
    count = np.count_nonzero(np.abs(rounded.wave - frame.wave) > 1e-6)
    assert got.waves == 200 - count and 100 < count < 200
    (words,) = got.notes
    assert words == (f"{count} of the reference's 200 wavelengths within the frame's range are not in the "
                     "frame (to 1e-06 A), and were not judged")
    assert compare_frames(frame, cut(frame, slice(None), slice(20, 90)), "frame").notes == ()
    assert compare_frames(cut(frame, slice(None), slice(20, 90)), frame, "frame").notes == ()


def test_a_bin_that_has_no_ivar_in_one_of_them_alone_has_no_data_there(frame):
    """Without NODATA in the reference's MASK it once passed."""
    ivar = frame.ivar.copy()
    ivar[3, 40] = 0
    without = replace(frame, ivar=ivar)
    for one, other in ((frame, without), (without, frame)):
        assert rows(compare_frames(one, other, "frame"))["mask"].maximum == 1 / frame.flux.size
    assert compare_frames(frame, without, "specter").passed


def test_fewer_diagonals_are_compared_at_the_centre(frame):
    narrow = replace(frame, resolution=frame.resolution[:, 1:-1])
    assert compare_frames(frame, narrow, "frame").passed
    assert compare_frames(narrow, frame, "frame").passed
    wrong = replace(frame, resolution=frame.resolution[:, 2:])
    assert not rows(compare_frames(wrong, frame, "frame"))["resolution"].passed


def test_nothing_in_common_is_an_input_error(frame):
    with pytest.raises(InputError, match="no fibre in common: 10 to 17 in the frame, 60 to 67"):
        compare_frames(frame, replace(frame, fibres=frame.fibres + 50), "frame")
    with pytest.raises(InputError, match="no wavelength in common"):
        compare_frames(frame, replace(frame, wave=frame.wave + 0.1), "frame")


def test_nothing_to_judge_does_not_pass(frame):
    """Two frames without a single good bin prove nothing."""
    dark = replace(frame, pixmask_fraction=np.ones(frame.flux.shape))
    comparison = compare_frames(dark, dark, "frame")
    assert not comparison.passed
    assert "no bins" in comparison.table()


def test_nan_and_lost_bins_do_not_pass(frame):
    broken = frame.flux.copy()
    broken[4, 4] = np.nan
    assert not rows(compare_frames(replace(frame, flux=broken), frame, "frame"))["flux"].passed
    lost = np.argwhere(frame.pixmask_fraction < 0.5)[0]
    ivar = frame.ivar.copy()
    ivar[tuple(lost)] = 0
    assert not rows(compare_frames(replace(frame, ivar=ivar), frame, "frame"))["ivar"].passed


def test_infinite_elements_of_r_do_not_pass_and_say_nothing_else(frame):
    """Percentiles of the differences lie between two infinite ones; numpy would warn."""
    worse = frame.resolution.copy()
    worse[:, :, 50] = np.inf
    assert not rows(compare_frames(replace(frame, resolution=worse), frame))["resolution"].passed
    worse[:, ::2, 50] *= -1
    with pytest.raises(InputError, match="a RESOLUTION that is infinite or NaN"):
        compare_frames(frame, replace(frame, resolution=worse))


@pytest.mark.parametrize("value", [np.nan, -1.0, np.inf])
def test_a_reference_without_an_error_does_not_pass(frame, value):
    """A bin with NaN ivar was once taken as one without data, and not judged."""
    ivar = frame.ivar.copy()
    ivar[tuple(np.argwhere(frame.pixmask_fraction < 0.5)[0])] = value
    with pytest.raises(InputError, match=r"^the reference is inconsistent: 1 bin has an IVAR that is negative, inf"):
        compare_frames(frame, replace(frame, ivar=ivar), "frame")


@pytest.mark.parametrize(("field", "value", "words"), [
    ("flux", np.nan, "a FLUX that is infinite or NaN, with an IVAR above 0"),
    ("resolution", np.nan, "a RESOLUTION that is infinite or NaN, with an IVAR above 0"),
    ("resolution", 0.0, "a row of RESOLUTION whose sum is not between 0 and 2"),
    ("resolution", 1.0, "a row of RESOLUTION whose sum is not between 0 and 2"),
    ("mask", SpecMask.NODATA, "no data by MASK, with an IVAR above 0"),
    ("status", Status.EMPTY, "no data by STATUS, with an IVAR above 0"),
    ("pixmask_fraction", -0.2, "a PIXMASK_FRACTION that is not between 0 and 1")])
def test_a_reference_that_contradicts_itself_is_refused(frame, field, value, words):
    """Compared with itself, any frame once passed, whatever it held."""
    array = getattr(frame, field).copy()
    array[4, ..., 30:40] = value
    with pytest.raises(InputError, match=f"^the reference is inconsistent: [0-9]+ bins have {words}; give another"):
        compare_frames(frame, replace(frame, **{field: array}), "frame")


@pytest.mark.parametrize("which", [0, 1])
def test_wavelengths_that_do_not_ascend_are_refused(frame, which):
    """Bins are looked up in them: otherwise only some were compared, or bins of different wavelengths."""
    frames = [frame, frame]
    frames[which] = replace(frame, wave=frame.wave[::-1])
    with pytest.raises(InputError, match=f"^wavelengths of the {('frame', 'reference')[which]} do not ascend"):
        compare_frames(*frames, "frame")


@pytest.mark.parametrize(("state", "other"), [
    (Status.GOOD, Status.EMPTY), (Status.EMPTY, Status.DROPPED), (Status.FAILED, Status.EMPTY),
    (Status.WIDE_BAND, Status.FAILED)])
def test_one_bin_of_another_status_fails(frame, state, other):
    """Data in one frame only, or missing for another reason; in both directions."""
    ivar = frame.ivar.copy()
    ivar[3, 77] = 0
    frame = replace(frame, ivar=ivar)
    one, two = frame.status.copy(), frame.status.copy()
    one[3, 77], two[3, 77] = state, other
    for first, second in ((one, two), (two, one)):
        comparison = compare_frames(replace(frame, status=first), replace(frame, status=second), "frame")
        assert [row.field for row in comparison.rows if not row.passed] == ["status"]
        assert rows(comparison)["status"].maximum == pytest.approx(1 / frame.status.size)
        assert "NOT within the limits: status" in comparison.table()


def test_which_way_a_flux_was_come_by_is_not_judged(frame):
    """It depends on the core. A frame of the older layout has no status: a note says that it was not compared."""
    ivar, empty = frame.ivar.copy(), frame.status.copy()
    ivar[:, 50], empty[:, 50] = 0, Status.EMPTY
    frame = replace(frame, ivar=ivar, status=empty)
    ways = np.where(frame.status == Status.GOOD, np.int8(Status.DENSE), frame.status)
    assert compare_frames(replace(frame, status=ways), frame, "frame").passed
    for mine, theirs in ((None, frame.status), (frame.status, None)):
        comparison = compare_frames(replace(frame, status=mine), replace(frame, status=theirs), "frame")
        assert comparison.passed and "status" not in rows(comparison)
        assert comparison.notes == ("status: not in both frames",)


def test_a_reference_without_chi2pix(frame):
    comparison = compare_frames(frame, replace(frame, chi2pix=np.zeros(frame.flux.shape)), "frame")
    assert comparison.passed
    assert "chi2pix" not in rows(comparison)
    assert "chi2pix: the reference has none" in comparison.table()


def test_bad_pixel_bits_come_from_the_fraction_of_a_frame_without_mask(frame):
    """specter's frames have PIXMASK_FRACTION but no MASK."""
    fraction = frame.pixmask_fraction.copy()
    fraction[2, 100] = 1
    full = np.where(fraction > 0.5, np.uint32(SpecMask.SOMEBADPIX), np.uint32(0))
    full[2, 100] |= np.uint32(SpecMask.ALLBADPIX | SpecMask.NODATA)
    reference = replace(frame, mask=0 * frame.mask, pixmask_fraction=fraction)
    mine = replace(frame, mask=full, pixmask_fraction=None)
    assert rows(compare_frames(mine, reference, "specter"))["mask"].maximum == 0


@pytest.mark.parametrize(("cards", "name"), [
    ((), "frame"),
    ((Card("CODE", "desihub/specter 0.11.0 ex2d"), Card("NSUBBUN", 5)), "specter"),
    ((Card("CODE", "desihub/specter 0.11.0 ex2d"), Card("NSUBBUN", 1)), "specter-onepatch"),
    ((Card("DEPNAM00", "python"), Card("DEPNAM07", "gpu_specter")), "specter"),
    ((Card("DEPNAM00", "specter"), Card("DEPNAM01", "gpu_extract")), "frame"),
])
def test_limits_suit_who_made_the_reference(frame, cards, name):
    assert limits_for(replace(frame, cards=cards)) == name


def test_limits_of_ones_own(frame, tmp_path):
    entry = {"about": "mine", "ends": 5, "mask_bits": 0, "fields": {"flux": {"max": 2.5, "why": "because"}}}
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(entry))
    other = replace(frame, flux=frame.flux + 2 / np.sqrt(frame.ivar))
    comparison = compare_frames(other, frame, str(path))
    assert comparison.passed
    assert (len(comparison.rows), comparison.waves, comparison.limits.name) == (1, 190, "mine")
    for bad in ("[]", "{", json.dumps({**entry, "fields": {"fluxx": {"why": ""}}}), json.dumps({"about": ""})):
        path.write_text(bad)
        with pytest.raises(InputError, match="not a file of limits"):
            load_limits(str(path))
    with pytest.raises(InputError, match="neither a file nor one of frame, oracle, specter"):
        load_limits("spectre")


def test_every_limit_has_a_reason():
    for name in shipped():
        limits = load_limits(name)
        assert limits.about
        for limit in limits.fields.values():
            assert len(limit.why) > 10
            assert any(bound is not None for bound in (limit.median, limit.p99, limit.maximum))


# ---- the shipped cut-out ----------------------------------------------------------------------------------

def test_the_cutout_is_what_the_oracle_makes_of_it():
    """Five fibres of the first bundle's frame, made again: equal up to rounding."""
    cutout = load_cutout()
    again = oracle_extract(cutout.image, cutout.psf, replace(cutout.config, specmin=2, nspec=5))
    comparison = compare_frames(again, cutout.reference, "oracle")
    assert comparison.passed
    assert rows(comparison)["flux"].maximum < 1e-9
    assert cutout.reference.mask.max() == 259
    assert cutout.reference.flux.dtype == np.float64


def test_the_self_test_takes_over_what_must_not_change_the_answer():
    config = ExtractConfig(wavelength=(5000.0, 6000.0, 1.0), specmin=100, nspec=3, psferr=0.3, regularize=1.0,
                           core="dense", nwavestep=30, tolerance=1e-9, model=True)
    seen = []

    def extract(image, psf, config):
        seen.append(config)

    assert self_test(extract, config) is None
    assert seen == [replace(load_cutout().config, core="dense", nwavestep=30, tolerance=1e-9)]


def test_the_self_test_sees_an_error_of_a_hundredth_of_a_sigma():
    cutout = load_cutout()
    wrong = replace(cutout.reference, flux=cutout.reference.flux + 0.01 / np.sqrt(cutout.reference.ivar.max()))
    assert self_test(lambda image, psf, config: cutout.reference).passed
    assert not self_test(lambda image, psf, config: wrong).passed


# ---- the program ------------------------------------------------------------------------------------------

def test_the_program_prints_a_table_and_returns_its_verdict(frame, tmp_path, capsys):
    """0 for equal frames, 1 for different ones, 2 for what cannot be compared; a table, or one line."""
    a, b, c = (str(tmp_path / f"{name}.fits") for name in "abc")
    frame = replace(frame, fibres=np.arange(10, 18))
    write_frame(a, frame)
    write_frame(b, replace(frame, flux=frame.flux + 1))
    write_frame(c, replace(frame, wave=frame.wave + 0.5))
    assert main([a, a]) == 0
    assert "all within their limits" in capsys.readouterr().out
    assert main([b, a]) == 1
    assert "NOT within the limits: flux\n" in capsys.readouterr().out
    for arguments, words in (([a, c], "no wavelength in common"), ([a, str(tmp_path / "none.fits")], "none.fits"),
                             ([a, a, "--limits", "x"], "neither a file"), ([a], "required")):
        assert main(arguments) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        assert words in said.err
