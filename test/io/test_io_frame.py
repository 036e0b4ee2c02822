"""Frames as files: what they contain, that they are read back unchanged, and that nothing bad is ever written."""

import importlib.metadata
import os
import tracemalloc
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from astropy.io import fits
from astropy.table import Table
from astropy.units import Unit

from edge_files import small_frame, without_fibermap
from gpu_extract.data import OUTPUTS, Card, FiberMap, SpecMask, Status
from gpu_extract.errors import InputError, OutputError
from gpu_extract.io.fits import open_fits
from gpu_extract.io.frame import read_frame, write_frame, write_model, write_spectra
from gpu_extract.io.image import write_image
from gpu_extract.io.psf import write_psf
from gpu_extract.perf.source import version
from gpu_extract.simulate import SimConfig, simulate, write_simulation

NAMES = ["FLUX", "IVAR", "MASK", "WAVELENGTH", "RESOLUTION", "FIBERMAP", "CHI2PIX", "SCORES", "PIXMASK_FRACTION",
         "STATUS"]


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "frame.fits"
    write_frame(path, small_frame(), cards=[Card("IN_IMG", "a/b.fits", "Input image"), Card("HELIOCOR", 1.0001)])
    return path


def test_hdus_types_units_and_values(written):
    frame = small_frame()
    with fits.open(written, uint=False) as hdus:
        assert [h.name for h in hdus] == NAMES
        assert [hdus[n].header["BITPIX"] for n in NAMES if n not in ("FIBERMAP", "SCORES")] == [
            -32,
            -32,
            32,
            -64,
            -32,
            -32,
            -32,
            8,
        ]
        assert hdus["MASK"].header["BZERO"] == 2**31
        assert hdus["FLUX"].header["BUNIT"] == "electron/Angstrom"
        assert hdus["WAVELENGTH"].header["BUNIT"] == "Angstrom"
        assert hdus["IVAR"].header["BUNIT"] == "Angstrom2/electron2"
        assert Unit(hdus["IVAR"].header["BUNIT"]) == Unit(hdus["FLUX"].header["BUNIT"]) ** -2, "as astropy reads them"
    with fits.open(written) as hdus:
        assert hdus["MASK"].data.dtype == np.uint32
        np.testing.assert_array_equal(hdus["MASK"].data, frame.mask)
        np.testing.assert_array_equal(hdus["WAVELENGTH"].data, frame.wave)
        for name, array in (
            ("FLUX", frame.flux),
            ("IVAR", frame.ivar),
            ("RESOLUTION", frame.resolution),
            ("CHI2PIX", frame.chi2pix),
            ("PIXMASK_FRACTION", frame.pixmask_fraction),
        ):
            np.testing.assert_array_equal(hdus[name].data, array.astype(np.float32))
        assert hdus["FIBERMAP"].data["FIBER"].tolist() == [1501, 1502, 1503, 1504]
        assert hdus["FIBERMAP"].data["NAME"].tolist() == ["n0", "n1", "n2", "n3"]


@pytest.mark.parametrize("name", OUTPUTS)
def test_units_are_those_of_the_table(tmp_path, monkeypatch, name):
    monkeypatch.setitem(OUTPUTS, name, replace(OUTPUTS[name], unit="parsec"))
    write_frame(tmp_path / "frame.fits", small_frame())
    with fits.open(tmp_path / "frame.fits") as hdus:
        assert hdus[OUTPUTS[name].hdu].header["BUNIT"] == "parsec"


def test_the_header_has_its_cards(written):
    header = fits.getheader(written)
    wanted = {
        "NSPEC": 4,
        "WAVEMIN": 6000.0,
        "WAVEMAX": 6023.2,
        "WAVESTEP": 0.8,
        "FIBERMIN": 1501,
        "SPECMIN": 1,
        "IN_IMG": "a/b.fits",
        "HELIOCOR": 1.0001,
        "CAMERA": "r3",
        "FLAVOR": "science",
        "EXPID": 12345,
    }
    assert {k: header[k] for k in wanted} == wanted
    assert header.comments["EXPID"] == "number"
    versions = {header[f"DEPNAM{n:02d}"]: header[f"DEPVER{n:02d}"] for n in range(6)}
    assert versions["gpu_extract"] == version()
    assert versions["numpy"] == importlib.metadata.version("numpy")  # that of the input is replaced
    assert header["DEPNAM00"] == "numpy"
    history = list(header["HISTORY"])
    assert history == ["made by hand", "gpu_extract core: dense", "gpu_extract pad: 50"]
    assert "DATE" not in header


def test_every_hdu_carries_checksums_that_hold_and_no_date(written):
    with fits.open(written) as hdus:
        for hdu in hdus:
            assert hdu.verify_checksum() == 1 and hdu.verify_datasum() == 1, hdu.name
            assert not any(c.isdigit() for c in hdu.header.comments["DATASUM"].replace("ones", ""))
    with open_fits(written) as hdus:
        assert len(hdus) == len(NAMES)


def test_equal_frames_give_equal_files(written, tmp_path):
    other = tmp_path / "again.fits"
    write_frame(other, small_frame(), cards=[Card("IN_IMG", "a/b.fits", "Input image"), Card("HELIOCOR", 1.0001)])
    assert other.read_bytes() == written.read_bytes()


def test_a_frame_is_read_as_it_was_written(written):
    frame, back = small_frame(), read_frame(written)
    for name in ("flux", "ivar", "resolution", "chi2pix", "pixmask_fraction"):
        np.testing.assert_array_equal(getattr(back, name), getattr(frame, name).astype(np.float32))
        assert getattr(back, name).dtype.isnative
    np.testing.assert_array_equal(back.mask, frame.mask)
    np.testing.assert_array_equal(back.status, frame.status)
    np.testing.assert_array_equal(back.wave, frame.wave)
    np.testing.assert_array_equal(back.fibres, frame.fibres)
    assert back.fibermap.rows["FIBER"].tolist() == frame.fibermap.rows["FIBER"].tolist()
    assert Card("EXPID", 12345, "number") in back.cards


def test_what_fell_back_is_in_the_header(tmp_path):
    status = np.zeros((4, 30), np.int8)
    status[2, :3] = Status.PIXELS
    frame = replace(small_frame(), status=status, notes={"bundles": {0: {"iterations": 3, "error": 1.5e-11}}})
    write_frame(tmp_path / "a.fits", frame)
    history = " ".join(fits.getheader(tmp_path / "a.fits")["HISTORY"])
    assert "bundles 0: iterations 3, error 1.5e-11" in history
    assert f"3 bins: {Status.PIXELS.sentence}" in " ".join(history.split())


def test_odd_pixels_are_counted_over_the_bundles_and_stay(tmp_path):
    """Facts of bundles move from the notes to their own table, and a frame that was read has none."""
    bundles = {0: {"fibres": 2, "odd_pixels": 3}, 2: {"fibres": 3}, 5: {"fibres": 2, "odd_pixels": 2}}
    frame = replace(small_frame(), status=np.zeros((4, 30), np.int8), notes={"bundles": bundles})
    write_frame(tmp_path / "a.fits", frame)
    write_frame(tmp_path / "b.fits", read_frame(tmp_path / "a.fits"))
    assert [fits.getheader(tmp_path / name)["NODDPIX"] for name in ("a.fits", "b.fits")] == [5, 5]


def told_frame():
    """Fibres 3 to 6 of two bundles of five: one bin of every status, and facts, one of which is not a number."""
    frame = small_frame(specmin=3)
    status, mask = np.zeros((4, 30), np.int8), frame.mask.copy()
    status[0, :7] = list(Status)
    status[1, 3:5], status[2:, 10] = Status.EMPTY, Status.DENSE
    mask[3, 5:9] = SpecMask.WEAKBIN | SpecMask.SOMEBADPIX
    mask[0, 2] = SpecMask.ODDPIX
    facts = {"fibres": 5, "halfband": 8, "ownband": 7, "neighbours": 2, "iterations": 3, "error": 1.5e-11}
    bundles = {5: {**facts, "coupling": np.inf, "selfcheck": np.nan, "on_cpu": 2},
               0: {**facts, "coupling": 2e-4, "cond": 5e3, "selfcheck": 1e-12}}
    return replace(frame, status=status, mask=mask, notes={"core": "auto", "bundles": bundles})


def test_status_has_its_meaning_in_the_header_and_comes_back(tmp_path):
    frame = told_frame()
    write_frame(tmp_path / "a.fits", frame)
    with fits.open(tmp_path / "a.fits") as hdus:
        assert hdus["STATUS"].data.dtype == np.uint8 and hdus["STATUS"].data.shape == (4, 30)
        for state in Status:
            assert hdus["STATUS"].header[f"STATUS{state.value}"] == f"{state.name}: {state.sentence}"
        counts = {key: hdus[0].header[key] for key in ("NEMPTY", "NFAILED", "NDROPPED", "NWEAK")}
        assert counts == {"NEMPTY": 3, "NFAILED": 1, "NDROPPED": 1, "NWEAK": 4}
        assert all(hdu.verify_checksum() == 1 and hdu.verify_datasum() == 1 for hdu in hdus)
    back = read_frame(tmp_path / "a.fits")
    assert back.status.dtype == np.int8
    np.testing.assert_array_equal(back.status, frame.status)


def test_facts_about_bundles(tmp_path):
    """In the order of the fibres; only bins of the file's spectra count; unknown facts and NaN are -1; the header does
    not repeat everything."""
    write_frame(tmp_path / "a.fits", told_frame())
    table = fits.getdata(tmp_path / "a.fits", "BUNDLES")
    first = {"FIRST": 0, "NFIBRE": 5, "NSPEC": 2, "CORE": "both", "HALFBAND": 8, "OWNBAND": 7, "NEIGHBOURS": 2,
             "ITERATIONS": 3, "ERROR": 1.5e-11, "COUPLING": 2e-4, "COND": 5e3, "SELFCHECK": 1e-12,
             "GOOD": 52, "EMPTY": 3, "WIDE_BAND": 1, "DENSE": 1, "PIXELS": 1, "FAILED": 1, "DROPPED": 1,
             "WEAKBIN": 0, "ODDPIX": 1, "ON_CPU": 0}
    last = {**first, "FIRST": 5, "COUPLING": -1, "COND": -1, "SELFCHECK": -1, "GOOD": 58, "DENSE": 2, "WEAKBIN": 4,
            "ON_CPU": 2, **dict.fromkeys(("EMPTY", "WIDE_BAND", "PIXELS", "FAILED", "DROPPED", "ODDPIX"), 0)}
    assert table.names == list(first)
    assert [dict(zip(table.names, row, strict=True)) for row in table] == [first, last]
    header = fits.getheader(tmp_path / "a.fits")
    assert "bundles" not in str(header["HISTORY"]) and "1 bins: No core could" in str(header["HISTORY"])
    assert fits.getheader(tmp_path / "a.fits", "BUNDLES").comments["TTYPE11"] != ""


@pytest.mark.parametrize(("core", "states", "said"), [
    ("auto", (Status.GOOD, Status.WIDE_BAND), "banded"), ("auto", (Status.EMPTY,), "banded"),
    ("banded", (Status.FAILED,), "banded"), ("auto", (Status.DENSE, Status.WIDE_BAND), "both"),
    ("auto", (Status.DENSE, Status.EMPTY), "dense"), ("dense", (Status.GOOD,), "dense")])  # fmt: skip
def test_which_core_did_a_bundle(tmp_path, core, states, said):
    status = np.array(states * 120, np.int8)[:120].reshape(4, 30)
    write_frame(tmp_path / "a.fits", replace(small_frame(), status=status,
                                             notes={"core": core, "bundles": {0: {"fibres": 5}}}))
    assert fits.getdata(tmp_path / "a.fits", "BUNDLES")["CORE"].tolist() == [said]


def test_frames_of_the_older_layout(written, tmp_path):
    """Without STATUS nothing is known of it; a STATUS of another shape does not belong to this frame."""
    with fits.open(written) as hdus:
        status = hdus.pop("STATUS")
        for key in ("NEMPTY", "NFAILED", "NDROPPED", "NWEAK"):
            del hdus[0].header[key]
        hdus.writeto(tmp_path / "old.fits", checksum=True)
        hdus.append(fits.ImageHDU(status.data[:, 1:], name="STATUS"))
        hdus.writeto(tmp_path / "wrong.fits")
    old = read_frame(tmp_path / "old.fits")
    assert old.status is None
    np.testing.assert_array_equal(old.flux, read_frame(written).flux)
    with pytest.raises(InputError, match=r"wrong.fits: status has shape \(4, 29\), must be \(4, 30\)"):
        read_frame(tmp_path / "wrong.fits", check=False)
    write_frame(tmp_path / "again.fits", old)
    with fits.open(tmp_path / "again.fits") as hdus:
        assert "STATUS" not in hdus and "BUNDLES" not in hdus and "NEMPTY" not in hdus[0].header


def test_scores_by_definition(tmp_path):
    """Sum of the flux, median of flux over width, median of flux sqrt(ivar / width), in 5800-7600 Angstrom, from the
    numbers as written: a frame in single precision has the same."""
    frame = small_frame()
    wave = 5790.0 + 0.8 * np.arange(30) + 0.01 * np.arange(30) ** 2  # crosses 5800; widths vary
    frame = replace(frame, wave=wave)
    write_frame(tmp_path / "a.fits", frame)
    table = fits.getdata(tmp_path / "a.fits", "SCORES")
    header = fits.getheader(tmp_path / "a.fits", "SCORES")
    assert table.names == ["SUM_RAW_COUNT_R", "MEDIAN_RAW_COUNT_R", "MEDIAN_RAW_SNR_R"]
    assert header.comments["TTYPE1"] == "sum counts in wave. range 5800,7600A"
    inside = [j for j in range(30) if 5800 <= wave[j] < 7600]
    assert 0 < len(inside) < 30
    width = [(wave[min(j + 1, 29)] - wave[max(j - 1, 0)]) / (min(j + 1, 29) - max(j - 1, 0)) for j in range(30)]
    for i in range(4):
        f, v = (array[i].astype(np.float32).astype(float) for array in (frame.flux, frame.ivar))
        assert table["SUM_RAW_COUNT_R"][i] == pytest.approx(sum(f[j] for j in inside), rel=1e-13)
        assert table["MEDIAN_RAW_COUNT_R"][i] == pytest.approx(np.median([f[j] / width[j] for j in inside]), rel=1e-12)
        snr = [f[j] * (v[j] / width[j]) ** 0.5 for j in inside]
        assert table["MEDIAN_RAW_SNR_R"][i] == pytest.approx(np.median(snr), rel=1e-12)


@pytest.mark.parametrize(
    ("start", "band"), [(3600.0, None), (5780.0, "B"), (5801.0, "R"), (7590.0, "R"), (7700.0, "Z")]
)
def test_the_band_is_that_of_the_mean_wavelength(tmp_path, start, band):
    """None: no bin within 4000-5800 Angstrom, so no SCORES."""
    write_frame(tmp_path / "a.fits", replace(small_frame(), wave=start + 0.1 * np.arange(30)))
    with fits.open(tmp_path / "a.fits") as hdus:
        assert ("SCORES" in hdus) == (band is not None)
        if band:
            assert hdus["SCORES"].data.names[0] == f"SUM_RAW_COUNT_{band}"


def test_scores_can_be_left_out_and_flavor_is_supplied(tmp_path):
    frame = replace(small_frame(), cards=())
    write_frame(tmp_path / "a.fits", frame, scores=False)
    with fits.open(tmp_path / "a.fits") as hdus:
        assert "SCORES" not in hdus
        assert hdus[0].header["FLAVOR"] == "science" and "Assumed" in hdus[0].header.comments["FLAVOR"]


@pytest.mark.parametrize(
    ("cards", "first"),
    [((Card("CAMERA", "r3"),), 1501), ((Card("SPECGRPH", 2),), 1001), ((), 1), ((Card("CAMERA", "sim"),), 1)],
)
def test_fibre_numbers_without_a_fibermap(tmp_path, cards, first):
    write_frame(tmp_path / "a.fits", replace(without_fibermap(small_frame()), cards=cards))
    assert fits.getheader(tmp_path / "a.fits")["FIBERMIN"] == first
    assert read_frame(tmp_path / "a.fits").fibres.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["flux", "ivar", "resolution", "chi2pix", "pixmask_fraction"])
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_nothing_that_is_not_finite_is_written(tmp_path, name, value):
    path = tmp_path / "frame.fits"
    path.write_text("old")
    frame = small_frame()
    getattr(frame, name)[..., 3][0] = value
    with pytest.raises(OutputError) as caught:
        write_frame(path, frame)
    message = str(caught.value)
    assert name.upper() in message and "\n" not in message and str(tmp_path / "frame.debug.fits") in message
    assert path.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["frame.debug.fits", "frame.fits"]
    with fits.open(tmp_path / "frame.debug.fits") as hdus:
        kept = hdus[name.upper()].data
        np.testing.assert_array_equal(kept, getattr(frame, name).astype(np.float32))
        assert {"FLUX", "IVAR", "MASK", "WAVELENGTH", "RESOLUTION", "CHI2PIX", "STATUS"} <= {h.name for h in hdus}


def test_too_large_for_single_precision_is_not_finite_either(tmp_path):
    frame = small_frame()
    frame.flux[0, 0] = 1e39
    with pytest.raises(OutputError, match=r"infinite values in FLUX \(1\)"):
        write_frame(tmp_path / "a.fits", frame)


def test_tables_and_the_model_are_checked_too(tmp_path):
    frame = small_frame()
    rows = np.zeros(4, [("FIBER", np.int32), ("RA", np.float64)])
    rows["RA"][2] = np.nan
    with pytest.raises(OutputError, match=r"FIBERMAP \(1\)"):
        write_frame(tmp_path / "a.fits", replace(frame, fibermap=FiberMap(rows)))
    frame.model[3, 3] = np.inf
    with pytest.raises(OutputError, match=r"MODEL \(1\)"):
        write_model(tmp_path / "m.fits", frame)
    assert not (tmp_path / "a.fits").exists() and not (tmp_path / "m.fits").exists()


def test_without_a_place_for_the_debug_file_the_message_says_so(tmp_path):
    frame = small_frame()
    frame.flux[0, 0] = np.nan
    (tmp_path / "a.debug.fits").mkdir()
    with pytest.raises(OutputError, match="could not be written either"):
        write_frame(tmp_path / "a.fits", frame)


def test_a_model_image_is_written_with_its_cards(tmp_path):
    frame = small_frame()
    write_model(tmp_path / "m.fits", frame, cards=[Card("IN_PSF", "p.fits")])
    with fits.open(tmp_path / "m.fits") as hdus:
        np.testing.assert_array_equal(hdus[0].data, frame.model.astype(np.float32))
        assert hdus[0].header["IN_PSF"] == "p.fits" and hdus[0].header["BUNIT"] == "electron"
        assert hdus[0].verify_checksum() == 1
    with pytest.raises(InputError, match="no model image"):
        write_model(tmp_path / "m.fits", replace(frame, model=None))


def test_a_spectra_file_has_its_hdus(tmp_path):
    for frame, fibers in (
        (small_frame(), [1501, 1502, 1503, 1504]),
        (without_fibermap(small_frame()), [1501, 1502, 1503, 1504]),
    ):
        write_spectra(tmp_path / "s.fits", frame)
        with fits.open(tmp_path / "s.fits") as hdus:
            assert [h.name for h in hdus] == [
                "PRIMARY",
                "FIBERMAP",
                "R_WAVELENGTH",
                "R_FLUX",
                "R_IVAR",
                "R_MASK",
                "R_RESOLUTION",
                "SCORES",
            ]
            assert hdus[0].data is None
            assert hdus["FIBERMAP"].data["FIBER"].tolist() == fibers
            np.testing.assert_array_equal(hdus["R_FLUX"].data, frame.flux.astype(np.float32))
            assert all(h.verify_checksum() == 1 for h in hdus)


def test_astropy_table_opens_the_bundles(tmp_path):
    write_frame(tmp_path / "a.fits", told_frame())
    table = Table.read(tmp_path / "a.fits", hdu="BUNDLES")
    assert len(table) == 2 and list(table["CORE"]) == ["both", "both"] and table["NFIBRE"].tolist() == [5, 5]


def test_astropy_table_opens_the_tables(written):
    scores = Table.read(written, hdu="SCORES")
    fibermap = Table.read(written, hdu="FIBERMAP")
    assert len(scores) == len(fibermap) == 4 and fibermap["TARGETID"].tolist() == [0, 0, 0, 0]
    wave = small_frame().wave
    inside = (wave >= 5800) & (wave < 7600)
    np.testing.assert_allclose(scores["SUM_RAW_COUNT_R"], small_frame().flux[:, inside].sum(axis=1), rtol=1e-7)


def test_a_frame_of_specter(shared):
    path = shared / "data/frames/specter-r0-fibres000-049.fits.gz"
    frame = read_frame(path)
    with fits.open(path) as hdus:
        np.testing.assert_array_equal(frame.flux, hdus["FLUX"].data)
        np.testing.assert_array_equal(frame.resolution, hdus["RESOLUTION"].data)
    assert frame.fibres.tolist() == list(range(50)) and frame.ndiag == 5
    np.testing.assert_array_equal(frame.mask != 0, frame.ivar == 0)


def test_arrays_that_do_not_fit_together(written, tmp_path):
    with fits.open(written) as hdus:
        hdus["IVAR"].data = hdus["IVAR"].data[:, :-1]
        hdus.writeto(tmp_path / "b.fits")
    with pytest.raises(InputError, match=r"b.fits: ivar has shape \(4, 29\)"):
        read_frame(tmp_path / "b.fits", check=False)


@pytest.mark.parametrize("dtype", ["?", "S6", "U6", "f8", "f4", "u4", "u1", "i8", "u8", "i1", "i2", "(3,)f4", "(2,)U3"])
def test_any_column_of_a_fibermap_survives(tmp_path, dtype):
    """With its unit, and with valid checksums; int8, which FITS lacks, as int16."""
    rows = np.zeros(4, [("FIBER", np.int32), ("COLUMN", dtype)])
    rows["COLUMN"] = np.ones((), "i1").astype(rows["COLUMN"].dtype)
    fibermap = FiberMap(rows, {"COLUMN": "deg"}, (Card("PETAL", 3, "spectrograph"),), {"COLUMN": "what it is"})
    write_frame(tmp_path / "a.fits", replace(small_frame(), fibermap=fibermap))
    back = read_frame(tmp_path / "a.fits").fibermap
    assert back.comments == {"COLUMN": "what it is"}
    assert back.units == {"COLUMN": "deg"} and Card("PETAL", 3, "spectrograph") in back.cards
    found = back.rows["COLUMN"]
    np.testing.assert_array_equal(found, rows["COLUMN"].astype(found.dtype))
    assert found.dtype.isnative and found.dtype.kind == {"S": "U"}.get(
        rows["COLUMN"].dtype.kind, rows["COLUMN"].dtype.kind
    )


def test_writing_takes_less_than_the_frame(tmp_path):
    """A frame is written while the next is worked on: its arrays once more, in single precision, and little else."""
    frame = small_frame(50, 2000)
    arrays = {name: np.asarray(getattr(frame, name), np.float64)
              for name in ("flux", "ivar", "resolution", "chi2pix", "pixmask_fraction")}
    frame = replace(frame, **arrays)
    tracemalloc.start()
    try:
        write_frame(tmp_path / "frame.fits", frame)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 0.8 * sum(array.nbytes for array in arrays.values()) + 1e6


@pytest.mark.parametrize("name", ["MASK", "CHI2PIX", "PIXMASK_FRACTION", "STATUS"])
def test_arrays_of_another_shape_are_of_another_frame(tmp_path, name):
    path = tmp_path / "frame.fits"
    write_frame(tmp_path / "a.fits", small_frame())
    with fits.open(tmp_path / "a.fits") as hdus:
        hdus[name] = fits.ImageHDU(np.asarray(hdus[name].data)[:, 1:], name=name)
        hdus.writeto(path)
    with pytest.raises(InputError, match=rf"frame.fits: {name.lower()} has shape \(4, 29\), must be \(4, 30\)"):
        read_frame(path)


@pytest.mark.parametrize("name", ["MASK", "STATUS"])
def test_a_mask_of_numbers_that_are_no_bits(tmp_path, name):
    write_frame(tmp_path / "a.fits", small_frame())
    with fits.open(tmp_path / "a.fits") as hdus:
        hdus[name] = fits.ImageHDU(np.full((4, 30), -1e30), name=name)
        hdus.writeto(tmp_path / "b.fits")
    with pytest.raises(InputError, match=f"{name} is of type float64, must be integers"):
        read_frame(tmp_path / "b.fits")


@pytest.mark.parametrize("name", ["f.fits.fz", "f.fits.bz2", "f.FITS", "f", "f.png", "f.gz", "f.fit"])
def test_a_name_says_what_the_file_is(tmp_path, name):
    """All writers once wrote plain FITS under any name, and gzip under f.gz."""
    made = simulate(SimConfig(camera="tiny", nspec=1))
    path, wanted = tmp_path / name, r"the name of a FITS file must end in \.fits or \.fits\.gz; give another name"
    frame = replace(small_frame(), model=np.ones((3, 4)))
    for write in (partial(write_frame, path, frame), partial(write_model, path, frame),
                  partial(write_spectra, path, frame), partial(write_image, path, made.image),
                  partial(write_psf, path, made.psf),
                  *(partial(write_simulation, made, tmp_path / "i.fits", **{which: path})
                    for which in ("psf", "truth", "true_psf", "raw"))):
        with pytest.raises(InputError, match=wanted):
            write()
        assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("count", [2, 4])
def test_a_resolution_without_a_middle_diagonal_is_refused(tmp_path, count):
    """Nobody can tell which diagonal is the main one: all of R was once off by one."""
    path = tmp_path / "frame.fits"
    write_frame(tmp_path / "a.fits", small_frame())
    with fits.open(tmp_path / "a.fits") as hdus:
        hdus["RESOLUTION"] = fits.ImageHDU(np.asarray(hdus["RESOLUTION"].data)[:, :count], name="RESOLUTION")
        hdus.writeto(path)
    with pytest.raises(InputError, match=rf"^\S*frame.fits: resolution has {count} diagonals, must be an odd number"):
        read_frame(path)
