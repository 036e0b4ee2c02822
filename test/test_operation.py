"""The extraction in the style of specreduce: NDData in, Spectrum out; compared with specreduce's own."""
import numpy as np
import pytest
from astropy import units
from astropy.nddata import InverseVariance, NDData, StdDevUncertainty, UnknownUncertainty, VarianceUncertainty

from gpu_extract import ExtractConfig, extract
from gpu_extract.errors import InputError
from gpu_extract.io.nddata import image_of
from gpu_extract.io.psf import write_psf
from gpu_extract.operation import PsfExtract
from gpu_extract.simulate import NO_DEFECTS, SimConfig, simulate
from gpu_extract.spots import centres

pytestmark = pytest.mark.filterwarnings("ignore")     # theirs, not ours
GRID = (6020.0, 6090.0, 0.85)


@pytest.fixture(scope="module")
def made():
    return simulate(SimConfig(camera="tiny", seed=3, flavor="flat", defects=NO_DEFECTS))


def as_nddata(made, kind=InverseVariance, mask=None):
    ivar = made.image.ivar
    array = {InverseVariance: ivar, VarianceUncertainty: 1 / ivar, StdDevUncertainty: ivar**-0.5}.get(kind, ivar)
    return NDData(made.image.pix, uncertainty=kind(array), mask=mask, unit=units.electron, meta={"CAMERA": "r0"})


@pytest.mark.parametrize("kind", [InverseVariance, VarianceUncertainty, StdDevUncertainty])
def test_any_uncertainty_is_the_same_ivar(made, kind):
    mask = np.zeros(made.image.shape, bool)
    mask[50, 30] = True
    image = image_of(as_nddata(made, kind, mask))
    wanted = np.where(mask, 0, made.image.ivar)
    np.testing.assert_allclose(image.ivar, wanted, rtol=1e-6)
    assert image.get("CAMERA") == "r0"


def test_what_is_not_known_has_no_weight(made):
    data = as_nddata(made)
    data.data[3, 4], data.uncertainty.array[5, 6] = np.nan, np.inf
    image = image_of(NDData(data.data, uncertainty=VarianceUncertainty(1 / data.uncertainty.array), unit="electron"))
    assert image.ivar[3, 4] == 0 and image.ivar[5, 6] == 0 and np.isfinite(image.pix).all()
    made.image.pix[3, 4] = made.image.pix[3, 5]          # NDData looks at the same numbers


@pytest.mark.parametrize(("image", "words"), [
    (NDData(np.ones((3, 3)), unit="electron"), "without an uncertainty"),
    (NDData(np.ones(3), uncertainty=InverseVariance(np.ones(3))), r"shape \(3,\)"),
    (NDData(np.ones((3, 3)), uncertainty=InverseVariance(np.ones((3, 3))), unit="Jy"), "is in Jy"),
    (NDData(np.ones((3, 3)), uncertainty=UnknownUncertainty(np.ones((3, 3)))), "UnknownUncertainty; must be"),
    (np.ones((3, 3)), "ndarray"),
])
def test_what_cannot_be_used(made, image, words):
    with pytest.raises(InputError, match=words):
        PsfExtract(image, made.psf, GRID)()


def test_a_call_gives_what_extract_gives(made, tmp_path):
    pytest.importorskip("specutils", reason="specutils is not installed")
    write_psf(tmp_path / "psf.fits", made.psf)
    operation = PsfExtract(as_nddata(made), str(tmp_path / "psf.fits"), GRID, {"psferr": 0.01})
    spectrum = operation(nspec=5)
    frame = extract(made.image, made.psf, ExtractConfig(wavelength=GRID, psferr=0.01, nspec=5))
    np.testing.assert_array_equal(spectrum.flux.value, frame.flux)
    np.testing.assert_array_equal(spectrum.uncertainty.array, frame.ivar)
    np.testing.assert_allclose(spectrum.spectral_axis.to_value("Angstrom"), frame.wave, rtol=1e-14)
    assert spectrum.flux.unit == units.electron / units.Angstrom
    assert operation.spectrum.shape[0] == 10 and operation.frame is not None


def test_the_light_is_that_of_specreduces_box(made):
    """A flat lamp, row by row: a box of 7 pixels has a fibre's light but for some per cent."""
    extraction = pytest.importorskip("specreduce.extract", reason="specreduce is not installed")
    from specreduce.tracing import ArrayTrace

    ours = PsfExtract(as_nddata(made), made.psf, GRID)()
    for fibre in (2, 7):
        y, x = (c[0] for c in centres(made.psf, (fibre, fibre + 1), ours.spectral_axis.value))
        rows = np.arange(int(y[0]) + 2, int(y[-1]) - 2)
        pix = np.ascontiguousarray(made.image.pix[rows].T)
        trace = ArrayTrace(pix, np.interp(rows, y, x))
        box = extraction.BoxcarExtract(pix, trace, width=7)().flux.value
        per_row = np.interp(rows, y, ours.flux.value[fibre]) * np.gradient(np.interp(rows, y, ours.spectral_axis.value))
        assert 0.95 < box.sum() / per_row.sum() < 1.02, fibre
