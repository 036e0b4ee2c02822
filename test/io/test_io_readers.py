"""Our users' readers open our files, with the same numbers: desispec, specutils, fitsio, astropy.

They are no dependency of this project; a test is skipped if its reader is not installed.
"""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from astropy.io import fits

from edge_files import small_frame, without_fibermap
from gpu_extract.data import Card
from gpu_extract.io.frame import write_frame, write_spectra

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs, not ours
FIBRES = [1501, 1502, 1503, 1504]


@pytest.fixture(params=[True, False], ids=["fibermap", "no fibermap"])
def frame(request):
    """With everything that a frame's file can contain, BUNDLES included."""
    whole = replace(small_frame(), notes={"core": "auto", "bundles": {0: {"fibres": 5, "iterations": 3}}})
    return whole if request.param else without_fibermap(whole)


@pytest.fixture
def path(tmp_path, frame):
    write_frame(tmp_path / "frame-r3-00012345.fits", frame, cards=[Card("IN_IMG", "x" * 100, "Input image")])
    with fits.open(tmp_path / "frame-r3-00012345.fits") as hdus:
        assert "STATUS" in hdus and "BUNDLES" in hdus
    return str(tmp_path / "frame-r3-00012345.fits")


def single(array):
    return np.asarray(array, np.float32)


def reader(name):
    return pytest.importorskip(name, reason=f"{name} is not installed")


def test_desispec_read_frame(path, frame):
    """Values, mask, resolution, fibres, no complaints, and the scores that it would have computed."""
    read_frame = reader("desispec.io").read_frame
    back = read_frame(path)
    assert back.vet() == 0
    np.testing.assert_array_equal(back.wave, frame.wave)
    for name, array in (("flux", frame.flux), ("ivar", frame.ivar), ("chi2pix", frame.chi2pix),
                        ("resolution_data", frame.resolution)):  # fmt: skip
        np.testing.assert_array_equal(getattr(back, name), single(array))
    np.testing.assert_array_equal(back.mask, frame.mask)
    if frame.fibermap is not None:
        assert list(back.fibers) == FIBRES and list(back.fibermap["NAME"]) == ["n0", "n1", "n2", "n3"]
    assert back.meta["FIBERMIN"] == min(back.fibers) and back.meta["CAMERA"] == "r3"
    # their resolution matrix applied to a spectrum: offsets ndiag ... -ndiag, columns counted by wavelength
    spectrum = np.linspace(1.0, 2.0, len(frame.wave))
    ndiag, nwave = frame.ndiag, len(frame.wave)
    by_hand = np.zeros(nwave)
    for k in range(2 * ndiag + 1):
        for j in range(nwave):
            if 0 <= j - ndiag + k < nwave:
                by_hand[j - ndiag + k] += single(frame.resolution)[2, k, j] * spectrum[j]
    np.testing.assert_allclose(back.R[2].dot(spectrum), by_hand, rtol=1e-12)
    compute_frame_scores = reader("desispec.specscore").compute_frame_scores
    flux, ivar = (single(array).astype(np.float64) for array in (frame.flux, frame.ivar))     # scored as written
    written = type(back)(frame.wave, flux, ivar, fibers=FIBRES, meta=dict(back.meta), resolution_data=frame.resolution)
    scores, comments = compute_frame_scores(written, suffix="RAW", flux_per_angstrom=False)
    assert list(scores) == list(back.scores.dtype.names)
    for name, values in scores.items():
        np.testing.assert_allclose(back.scores[name], values, rtol=1e-12)
        assert back.scores_comments[name] == comments[name]


def test_desispec_knows_the_fibres_without_camera_and_fibermap(tmp_path):
    read_frame = reader("desispec.io").read_frame
    frame = replace(without_fibermap(small_frame()), cards=(Card("SPECGRPH", 3),))
    write_frame(tmp_path / "a.fits", replace(frame, cards=()))
    assert list(read_frame(str(tmp_path / "a.fits")).fibers) == [1, 2, 3, 4]


def test_desispec_read_spectra(tmp_path, frame):
    read_spectra = reader("desispec.io").read_spectra
    write_spectra(tmp_path / "s.fits", frame)
    back = read_spectra(str(tmp_path / "s.fits"))
    assert back.bands == ["r"] and list(back.fibermap["FIBER"]) == FIBRES
    np.testing.assert_array_equal(back.wave["r"], frame.wave)
    np.testing.assert_array_equal(back.flux["r"], single(frame.flux))
    np.testing.assert_array_equal(back.ivar["r"], single(frame.ivar))
    np.testing.assert_array_equal(back.mask["r"], frame.mask)
    np.testing.assert_array_equal(back.resolution_data["r"], single(frame.resolution))


def test_fitsio_finds_every_checksum_right(path):
    fitsio = reader("fitsio")
    with fitsio.FITS(path) as hdus:
        assert len(hdus) >= 8
        for hdu in hdus:
            hdu.verify_checksum()
        assert hdus["MASK"].read().dtype.kind == "u"


def test_specutils_loader(path, frame):
    """Exactly one reader identifies a frame as a Spectrum, and Spectrum.read chooses it."""
    reader("specutils")
    from specutils import Spectrum, SpectrumList
    from specutils.io.registers import identify_spectrum_format

    import gpu_extract.io.loader as loader

    assert identify_spectrum_format(path, Spectrum) == loader.LABEL
    spectrum = Spectrum.read(path)
    np.testing.assert_array_equal(spectrum.flux.value, single(frame.flux))
    assert spectrum.flux.unit.to_string() in ("electron / Angstrom", "electron / AA")
    np.testing.assert_array_equal(spectrum.spectral_axis.to_value("Angstrom"), frame.wave)
    np.testing.assert_array_equal(spectrum.uncertainty.array, single(frame.ivar))
    np.testing.assert_array_equal(spectrum.mask, frame.mask != 0)
    np.testing.assert_array_equal(spectrum.meta["int_mask"], frame.mask)
    np.testing.assert_array_equal(spectrum.meta["resolution_data"], single(frame.resolution))
    assert ("fibermap" in spectrum.meta) == (frame.fibermap is not None) and len(spectrum.meta["scores"]) == 4
    several = SpectrumList.read(path)
    assert len(several) == 1
    np.testing.assert_array_equal(several[0].flux.value, single(frame.flux))


def test_the_loader_leaves_other_files_alone(tmp_path, shared):
    reader("specutils")
    from specutils import SpectrumList

    import gpu_extract.io.loader as loader

    write_spectra(tmp_path / "s.fits", small_frame())
    for path, bands in ((tmp_path / "s.fits", 1), (shared / "data/spectra/spectra-sv3-dark-26065.fits", 3)):
        assert not loader.is_frame("read", str(path), None)
        assert len(SpectrumList.read(str(path), format="DESI spectra")) == bands
    assert not loader.is_frame("write", "x.fits", None)


def test_specutils_opens_the_spectra_file_without_our_loader(tmp_path, frame):
    """In a process that never imported the loader."""
    reader("specutils")
    write_spectra(tmp_path / "s.fits", frame)
    code = (
        "import sys, warnings; warnings.simplefilter('ignore'); from specutils import SpectrumList\n"
        "one, = SpectrumList.read(sys.argv[1])\n"
        "assert 'gpu_extract' not in sys.modules\n"
        "print(one.meta['band'], one.flux.shape, repr(float(one.flux[2, 3].value)))"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "s.fits")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[-2] == f"r (4, 30) {float(single(frame.flux)[2, 3])!r}"
