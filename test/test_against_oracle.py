"""The extraction against the oracle: explicit A by quadrature, dense algebra, without any cut.

The bound is max(1e-9, 100 eps cond), with cond of the bundle's icov: fluxes in units of their errors, ivar relative,
elements of R relative to 1; for fluxes of the banded core, which has finitely many poles, 1e-8. Padding is set to leave
1e-13, so that only arithmetic is compared.
"""
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np
import pytest

import oracle
from extraction import CORES
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Frame
from gpu_extract.run import extract

EPS = np.finfo(float).eps
GRID = (6050.0, 6098.0, 0.8)
# Half-bands are then 8, like that of "v3" in steps of 0.8: kernels are shared, which saves seconds of compiling
STEPS = {"v3": {}, "tails": {"wavelength": (6050.0, 6098.4, 1.1)}, "gh2": {"wavelength": (6050.0, 6098.0, 1.5)}}


@dataclass(frozen=True)
class Pair:
    """A frame and the oracle's, with the bound on their differences."""

    case: oracle.Case
    core: str
    frame: Frame
    reference: Frame

    def bound(self, floor: float = 1e-9) -> float:
        return max(floor, 100 * EPS * self.reference.notes["cond"])

    @property
    def seen(self) -> np.ndarray:
        return self.reference.ivar > 0


# name: arguments of make_psf, of make_case and of ExtractConfig. On an "inner" CCD all padding is on it; the
# others extend beyond its lower edge.
INNER = {"shape": (360, 56), "first_row": 20}
CASES = {
    **{f"{family}-inner": ({"family": family, **INNER}, {}, step) for family, step in STEPS.items()},
    **{f"{family}-masked": ({"family": family}, {"masks": True}, step) for family, step in STEPS.items()},
    **{f"gh2-fine-{name}": ({"family": "gh2", **options}, masks, {})
       for name, options, masks in (("inner", INNER, {}), ("masked", {}, {"masks": True}))},
    "table-masked": ({"family": "table"}, {"masks": True}, {}),
    "ten-fibres": ({"nfibre": 10, "shape": (360, 92), "first_row": 20}, {"masks": True},
                   {"wavelength": (6060.0, 6066.4, 0.8)}),
    "fine-step": ({**INNER, "nfibre": 3}, {}, {"wavelength": (6060.0, 6072.0, 0.4)}),
    "ridge": ({"family": "tails"}, {"masks": True}, {"regularize": 0.02, **STEPS["tails"]}),
    "moved": ({**INNER}, {}, {"wave_factor": 1.0002, "psferr": 0.05, "ndiag": 2}),
    "range": ({"nfibre": 7, "shape": (360, 70), "first_row": 20}, {},
              {"specmin": 2, "nspec": 4, "bundlesize": 3, "wavelength": (6060.0, 6076.0, 0.8)}),
}


@cache
def _case(name: str) -> oracle.Case:
    psf_options, case_options, settings = CASES[name]
    config = replace(ExtractConfig(wavelength=GRID, tolerance=1e-13, model=True), **settings)
    return oracle.make_case(oracle.make_psf(**psf_options), config, pad=110, **case_options)


@cache
def _reference(name: str, pad: int) -> Frame:
    case = _case(name)
    return oracle.oracle_extract(case.image, case.psf, case.config, pad=pad)


SLOW = [*product(("gh2-fine-inner", "gh2-fine-masked"), CORES)]         # half-band 15: kernels that no other test needs


@pytest.fixture(scope="module", params=[pytest.param(one, id="-".join(one), marks=[pytest.mark.slow] * (one in SLOW))
                                        for one in product(CASES, CORES)])
def pair(request) -> Pair:
    name, core = request.param
    case = _case(name)
    frame = extract(case.image, case.psf, replace(case.config, core=core))
    assert frame is not None
    return Pair(case, core, frame, _reference(name, frame.notes["pad"]))


def test_wavelengths_and_fibres_are_those_of_the_oracle(pair):
    np.testing.assert_allclose(pair.frame.wave, pair.reference.wave, rtol=1e-15)
    np.testing.assert_array_equal(pair.frame.fibres, pair.reference.fibres)
    assert pair.frame.ndiag == pair.reference.ndiag


def test_flux_agrees_with_the_oracle(pair):
    bound = pair.bound(1e-9 if pair.core == "dense" else 1e-8)
    assert np.abs(oracle.sigma_difference(pair.frame, pair.reference)).max() <= bound
    np.testing.assert_array_equal(pair.frame.flux[~pair.seen], 0)


def test_ivar_agrees_with_the_oracle(pair):
    np.testing.assert_allclose(pair.frame.ivar[pair.seen], pair.reference.ivar[pair.seen], rtol=pair.bound())
    np.testing.assert_array_equal(pair.frame.ivar[~pair.seen], 0)


def test_resolution_agrees_with_the_oracle(pair):
    """Elements whose row exists: scipy's dia_matrix ignores the others."""
    ndiag, n = pair.reference.ndiag, len(pair.reference.wave)
    row = np.arange(n) - ndiag + np.arange(2 * ndiag + 1)[:, None]
    exists = (row >= 0) & (row < n)
    difference = np.abs(pair.frame.resolution - pair.reference.resolution)[:, exists]
    assert difference.max() <= pair.bound()


def test_mask_is_that_of_the_oracle(pair):
    np.testing.assert_array_equal(pair.frame.mask, pair.reference.mask)


def test_quality_agrees_with_the_oracle(pair):
    """The spots for quality are in single precision: 6e-8 of the light for the fraction, 6e-8 of A |x| for chi.

    chi then moves by 6e-8 times A |x| in errors of a pixel: 40 where x is smooth, some 500 where the step is far below
    the resolution and x oscillates; chi2pix moves by twice that.
    """
    np.testing.assert_allclose(pair.frame.pixmask_fraction, pair.reference.pixmask_fraction, atol=1e-6)
    np.testing.assert_array_equal(pair.frame.pixmask_fraction == 1, pair.reference.pixmask_fraction == 1)
    np.testing.assert_allclose(pair.frame.chi2pix, pair.reference.chi2pix, rtol=6e-5, atol=6e-5)


def test_the_model_image_agrees_with_the_oracle(pair):
    """A x to the bound in units of a pixel's error, where the image has an error."""
    error = np.where(pair.case.image.ivar > 0, np.sqrt(pair.case.image.ivar), 0)
    assert np.abs((pair.frame.model - pair.reference.model) * error).max() <= pair.bound()


def test_bounds_mean_something():
    """The bound is 1e-9 if everything is on the CCD: the condition number is then below 5e4."""
    psf = oracle.make_psf("gh2", **INNER)
    config = ExtractConfig(wavelength=(6050.0, 6060.0, 0.8))
    case = oracle.make_case(psf, config, pad=40)
    assert oracle.oracle_extract(case.image, psf, config, pad=40).notes["cond"] < 5e4


@pytest.mark.parametrize("family", ["v3", "gh2", "tails"])
def test_padding_leaves_what_is_allowed(family):
    """The dense core at the default tolerance differs from the solution without cuts by at most that many sigma."""
    psf = oracle.make_psf(family, 3, (400, 42), first_row=60)
    config = ExtractConfig(wavelength=(6080.0, 6104.0, 0.8), core="dense")
    case = oracle.make_case(psf, config, pad=100)
    frame = extract(case.image, psf, config)
    reference = oracle.oracle_extract(case.image, psf, config, pad=100)
    assert frame.notes["pad"] < 80
    assert np.abs(oracle.sigma_difference(frame, reference)).max() <= config.tolerance
    looser = extract(case.image, psf, replace(config, tolerance=1e-4))
    left = np.abs(oracle.sigma_difference(looser, reference)).max()
    assert config.tolerance < left <= 1e-4
