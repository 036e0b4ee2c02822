"""Pictures: their arithmetic, and that every one of them is drawn, whatever the frame."""
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy.sparse

from gpu_extract.cli.compare import main as gpu_compare
from gpu_extract.compare import compare_frames, difference_maps, load_cutout
from gpu_extract.data import OUTPUTS, Card, Frame, SpecMask
from gpu_extract.errors import InputError, OutputError
from gpu_extract.figures import difference_plot, qa_page
from gpu_extract.figures.canvas import CATEGORIES, grid, mask_category, new_figure, pooled, save
from gpu_extract.figures.difference import _map
from gpu_extract.figures.spectra import blurred_truth, choose_view, columns_shown, wave_of
from gpu_extract.io.frame import write_frame
from gpu_extract.oracle import evaluate, expected_image
from gpu_extract.resolution import row_of_resolution, times_resolution

pytest.importorskip("matplotlib", reason="no pictures without matplotlib")


@dataclass
class Spectra:
    wave: np.ndarray
    flux: np.ndarray
    fibres: np.ndarray


@pytest.fixture(scope="module")
def cutout():
    """The shipped cut-out; its frame with a model image (of the decorrelated flux, which is close enough)."""
    cutout = load_cutout()
    frame = cutout.reference
    model = expected_image(cutout.psf, range(20), frame.wave, frame.flux * 0.75, cutout.image.shape)
    return replace(cutout, reference=replace(frame, model=model, cards=cutout.image.cards, notes={"psferr": 0.01}))


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    """Fewer points per inch: the same page in a third of the time."""
    monkeypatch.setattr("gpu_extract.figures.canvas.DPI", 50)


def is_png(path, smallest=20000):
    data = path.read_bytes()
    return data.startswith(b"\x89PNG") and data.rstrip().endswith(b"IEND\xaeB`\x82") and len(data) > smallest


# ---- arithmetic -------------------------------------------------------------------------------------------

def test_resolution_times_spectrum_is_that_of_the_matrix(cutout):
    diagonals = cutout.reference.resolution[4]
    ndiag, n = cutout.reference.ndiag, diagonals.shape[1]
    matrix = scipy.sparse.dia_matrix((diagonals, np.arange(ndiag, -ndiag - 1, -1)), shape=(n, n)).toarray()
    spectrum = np.random.default_rng(1).normal(size=n)
    np.testing.assert_allclose(times_resolution(diagonals, spectrum), matrix @ spectrum, rtol=1e-13, atol=1e-13)
    for row in (0, 3, 50, n - 1):
        padded = np.zeros(n + 2 * ndiag)
        padded[ndiag:-ndiag] = matrix[row]
        np.testing.assert_array_equal(row_of_resolution(diagonals, row), padded[row:row + 2 * ndiag + 1])


def test_truth_is_summed_into_the_bins_then_blurred(cutout):
    """Truth in bins of a quarter of the width, light of fibre 7 in row 1: the photons of each bin are conserved."""
    frame = cutout.reference
    step = 0.75 / 4
    fine = frame.wave[0] - 1.5 * step + step * np.arange(4 * len(frame.wave))
    flux = np.random.default_rng(2).uniform(1, 9, (2, len(fine)))
    truth = Spectra(fine, flux, np.array([3, 7]))
    expected = times_resolution(frame.resolution[7], flux[1].reshape(-1, 4).mean(axis=1))
    np.testing.assert_allclose(blurred_truth(truth, frame, 7), expected, rtol=1e-12)
    assert blurred_truth(truth, frame, 8) is None


def test_view_is_the_middle_bundle_on_the_ccd(cutout):
    """Fibres 10 to 19 of two bundles: their columns, without masked pixels, residuals in sigma."""
    view = choose_view(cutout.image, cutout.reference, cutout.psf)
    np.testing.assert_array_equal(view.rows, np.arange(10, 20))
    ny, nx = view.pix.shape
    x = [float(evaluate(cutout.psf.x, fibre, 6075.0)) for fibre in (10, 19)]
    assert x[0] - 13 <= view.x0 <= x[0] - 8
    assert view.x0 + nx == 172
    part = (slice(view.y0, view.y0 + ny), slice(view.x0, view.x0 + nx))
    good = cutout.image.ivar[part] > 0
    np.testing.assert_array_equal(np.isfinite(view.pix), good)
    model = cutout.reference.model[part]
    chi = (cutout.image.pix[part] - model) / np.sqrt(1 / np.where(good, cutout.image.ivar[part], 1)
                                                     + (0.01 * model) ** 2)
    np.testing.assert_allclose(view.chi[good], chi[good], rtol=1e-6)
    row = np.interp(6080.0, view.wave, view.y0 + np.arange(ny))
    assert row == pytest.approx(float(evaluate(cutout.psf.y, 15, 6080.0)), abs=1)


def test_wavelengths_that_descend_along_the_ccd_and_are_a_fibres_own(cutout):
    """The same image upside down, with wavelengths per fibre: those of fibre 15, in descending rows."""
    frame, psf = cutout.reference, cutout.psf
    turned = replace(psf, y=replace(psf.y, coeff=-psf.y.coeff))
    turned.y.coeff[:, 0] += psf.shape[0] - 1
    own = frame.wave * (1 + np.arange(len(frame.flux))[:, np.newaxis] / 10)
    image = replace(cutout.image, pix=cutout.image.pix[::-1], ivar=cutout.image.ivar[::-1])
    view = choose_view(image, replace(frame, own_wave=own, model=frame.model[::-1]), turned)
    before = choose_view(cutout.image, frame, psf)
    assert (np.diff(view.wave) <= 0).all() and np.ptp(view.wave) > 50
    np.testing.assert_allclose(view.wave[::-1], before.wave * 2.5, rtol=1e-12)
    np.testing.assert_array_equal(wave_of(replace(frame, own_wave=own), 3), own[3])


def test_columns_shown_are_those_of_the_view(cutout):
    """They are known before the frame is."""
    for rows in (slice(0, 20), slice(0, 11), slice(8, 12)):
        part = _part(cutout.reference, rows, slice(None))
        view = choose_view(cutout.image, part, cutout.psf)
        columns = columns_shown(cutout.psf, (rows.start, rows.stop), part.wave, cutout.image.shape)
        assert columns == (view.x0, view.x0 + view.pix.shape[1])


def test_view_without_psf_shows_where_the_model_has_light(cutout):
    """All twenty fibres then count as one bundle; columns without light are left out."""
    model = np.where(np.arange(172) < 80, cutout.reference.model, 0)
    view = choose_view(cutout.image, replace(cutout.reference, model=model), None)
    np.testing.assert_array_equal(view.rows, np.arange(20))
    lit = np.flatnonzero(model.any(axis=0))
    assert (view.x0, view.x0 + view.pix.shape[1]) == (lit[0], lit[-1] + 1)


def test_worst_bit_gives_the_category():
    bits = np.array([[0, SpecMask.BAD2DFIT, SpecMask.SOMEBADPIX, SpecMask.SOMEBADPIX | SpecMask.BAD2DFIT,
                      SpecMask.NODATA | SpecMask.SOMEBADPIX | SpecMask.ALLBADPIX,
                      SpecMask.NODATA | SpecMask.BADFIBER]], dtype=np.uint32)
    names = [CATEGORIES[k][0] for k in mask_category(bits)[0]]
    assert names == ["good", "BAD2DFIT", "SOMEBADPIX", "SOMEBADPIX", "NODATA, ALLBADPIX", "BADFIBER"]


@pytest.mark.parametrize("bit", SpecMask, ids=lambda bit: bit.name)
def test_every_bit_has_a_category(bit):
    """A bin that spectra show in grey is not drawn as good in the mask."""
    names = CATEGORIES[mask_category(np.array([[bit]], dtype=np.uint32))[0, 0]][0]
    assert bit.name in names.split(", ")


def test_a_single_bad_bin_survives_pooling():
    """2326 bins on 700 columns: the worst of four is drawn; means are means, the last one narrower."""
    array = np.zeros((2, 2326))
    array[1, 2325] = 4
    worst, mean = pooled(array, 700, worst=True), pooled(array, 700)
    assert worst.shape == mean.shape == (2, 582)
    assert worst.max() == worst[1, -1] == 4
    assert mean[1, -1] == 4 / 2


# ---- pages ------------------------------------------------------------------------------------------------

def test_a_qa_page_of_all_inputs_is_drawn(cutout, tmp_path):
    """With all possible inputs; pyplot, which could open windows, is not used."""
    frame = cutout.reference
    truth = Spectra(frame.wave, np.maximum(frame.flux, 0), frame.fibres)
    qa_page(tmp_path / "page.png", cutout.image, frame, truth=truth, psf=cutout.psf)
    assert is_png(tmp_path / "page.png", 100000)
    assert [p.name for p in tmp_path.iterdir()] == ["page.png"]


def _part(frame: Frame, fibres: slice, waves: slice) -> Frame:
    return replace(frame, fibres=frame.fibres[fibres], wave=frame.wave[waves], **{
        name: getattr(frame, name)[fibres][..., waves] for name in OUTPUTS})


ODD = {
    "bare": lambda frame: replace(frame, model=None, cards=(), notes={}),
    "one fibre": lambda frame: _part(frame, slice(5, 6), slice(None)),
    "four bins": lambda frame: _part(frame, slice(None), slice(10, 14)),
    "nothing good": lambda frame: replace(
        frame, flux=0 * frame.flux, ivar=0 * frame.ivar, chi2pix=0 * frame.chi2pix, model=0 * frame.model,
        resolution=0 * frame.resolution, mask=np.full_like(frame.mask, 259)),
    "own wavelengths": lambda frame: replace(frame, own_wave=frame.wave * (1 + frame.fibres[:, np.newaxis] / 10)),
    "single precision": lambda frame: replace(frame, flux=frame.flux.astype(">f4"), ivar=frame.ivar.astype("f4")),
}


@pytest.mark.parametrize(("kind", "psf_is_known"), [
    ("bare", False), ("one fibre", True), ("four bins", True), ("nothing good", False), ("own wavelengths", True),
    ("single precision", False)])
def test_qa_page_of_odd_frames(cutout, tmp_path, kind, psf_is_known):
    frame = ODD[kind](cutout.reference)
    qa_page(tmp_path / "page.png", cutout.image, frame, psf=cutout.psf if psf_is_known else None)
    assert is_png(tmp_path / "page.png")


@pytest.mark.parametrize(("ending", "begins"), [(".png", b"\x89PNG"), (".PNG", b"\x89PNG"), (".pdf", b"%PDF"),
                                                (".svg", b"<?xml")])
def test_pictures_of_all_kinds(tmp_path, ending, begins):
    figure = new_figure(2, 2, arranged=False)
    grid(figure, (1, 2), 2, edges=(0.3, 0.1, 0.3, 0.1), gaps=(0.2, 0.2))[1, 1].plot([0, 1])
    save(figure, tmp_path / f"a{ending}")
    assert (tmp_path / f"a{ending}").read_bytes().startswith(begins)


def test_a_plot_of_differences_is_drawn(cutout, tmp_path):
    frame = cutout.reference
    other = replace(frame, flux=frame.flux * (1 + 1e-7), mask=frame.mask ^ np.uint32(frame.fibres == 3)[:, None])
    difference_plot(tmp_path / "where.png", difference_maps(other, frame, "frame"), title="one against the other")
    assert is_png(tmp_path / "where.png")
    difference_plot(tmp_path / "same.pdf", difference_maps(frame, frame, "frame"))
    assert (tmp_path / "same.pdf").read_bytes().startswith(b"%PDF")
    dark = replace(frame, pixmask_fraction=np.ones_like(frame.flux))
    difference_plot(tmp_path / "dark.png", difference_maps(frame, dark, "frame"))
    assert is_png(tmp_path / "dark.png")


def test_difference_maps_hold_what_is_judged(cutout):
    """The maps' largest values are those of the table; bins that are not judged are NaN."""
    frame = cutout.reference
    rng = np.random.default_rng(5)
    other = replace(frame, flux=frame.flux + rng.normal(size=frame.flux.shape), ivar=frame.ivar * 1.01,
                    resolution=frame.resolution + rng.normal(size=frame.resolution.shape))
    maps = difference_maps(other, frame, "frame")
    table = {row.field: row for row in compare_frames(other, frame, "frame").rows}
    for field in ("flux", "ivar", "resolution"):
        assert np.nanmax(getattr(maps, field)) == table[field].maximum
        np.testing.assert_array_equal(np.isnan(getattr(maps, field)), frame.pixmask_fraction >= 0.5)
    assert not maps.mask.any()


def test_bins_without_a_number_are_drawn_as_the_worst(cutout, tmp_path):
    """They were left grey, as those that are not judged."""
    frame = cutout.reference
    fibre, bin_ = np.argwhere(frame.pixmask_fraction < 0.1)[40]
    one = {name: getattr(frame, name).copy() for name in ("flux", "ivar", "resolution")}
    for values in one.values():
        values[fibre, ..., bin_] = np.nan
    maps = difference_maps(replace(frame, **one), frame, "frame")
    for field in one:
        values = getattr(maps, field)
        assert list(map(tuple, np.argwhere(np.isinf(values)))) == [(fibre, bin_)]
        np.testing.assert_array_equal(np.isnan(values), frame.pixmask_fraction >= 0.5)
        figure = new_figure(2, 2)
        drawn = _map(figure.subplots(), values, (0, 1, 0, 1)).get_array()
        assert drawn[fibre, bin_] == np.nanmax(drawn) and not np.ma.getmaskarray(drawn)[fibre, bin_]
    difference_plot(tmp_path / "where.png", maps)
    assert is_png(tmp_path / "where.png")


def test_program_draws_where_frames_differ(cutout, tmp_path, capsys):
    a, b = str(tmp_path / "a.fits"), str(tmp_path / "b.fits")
    write_frame(a, cutout.reference, cards=(Card("SPECMIN", 0),))
    write_frame(b, replace(cutout.reference, flux=cutout.reference.flux + 0.1))
    assert gpu_compare([b, a, "--plot", str(tmp_path / "where.png")]) == 1
    assert is_png(tmp_path / "where.png")
    assert "NOT within" in capsys.readouterr().out
    assert gpu_compare([a, a, "--plot", str(tmp_path / "absent" / "where.png")]) == 3


def test_pictures_that_cannot_be_made_are_one_line(cutout, tmp_path, monkeypatch):
    """An ending of no picture format, an absent folder, no matplotlib: one line, nothing written."""
    draw = {"psf": cutout.psf}
    with pytest.raises(InputError, match=r"end its name in \.png"):
        qa_page(tmp_path / "page.fits", cutout.image, cutout.reference, **draw)
    with pytest.raises(OutputError):
        qa_page(tmp_path / "absent" / "page.png", cutout.image, cutout.reference, **draw)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"gpu_extract\[plots\]"):
        qa_page(tmp_path / "page.png", cutout.image, cutout.reference, **draw)
    assert list(tmp_path.iterdir()) == []
