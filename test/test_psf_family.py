"""Properties of every family of PSFs: each of its numbers affects the spots, also on a device and in a file, unless
these refuse it.

A family is a few fields of PsfModel. Code that goes through the fields covers them automatically; the places below do
not.
"""
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import oracle
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Legendre, PsfModel, with_series
from gpu_extract.device.frames import _unfit
from gpu_extract.device.geometry import psf_tables
from gpu_extract.errors import InputError
from gpu_extract.io.psf import read_psf, write_psf
from gpu_extract.spots import make_spots

WAVE = np.array([6040.0, 6090.0, 6100.0, 6160.0])
CONFIG = ExtractConfig(wavelength=(6040.0, 6100.0, 0.8))


def nudged(psf: PsfModel, number: int) -> PsfModel:
    """The PSF with one of its series, counted from 0, larger by a tenth."""
    count = iter(range(1000))

    def change(series: Legendre) -> Legendre:
        return replace(series, coeff=series.coeff * (1.1 if next(count) == number else 1.0))

    return with_series(psf, change)


@pytest.mark.parametrize("family", [*oracle.FAMILIES, "table"])
def test_no_number_of_a_psf_is_left_out(family: str, tmp_path: Path) -> None:
    psf = oracle.make_psf(family, 2)
    spots = make_spots(psf, (0, 2), WAVE)
    tables = None if _unfit(psf, CONFIG) else psf_tables(psf, WAVE)
    for number in range(len(psf.series())):
        other = nudged(psf, number)
        made = make_spots(other, (0, 2), WAVE)
        assert any((a != b).any() for a, b in zip((made.stamps, made.x0, made.y0), (spots.stamps, spots.x0, spots.y0),
                                                  strict=True)), f"series {number}: spots.recipe leaves it out"
        assert tables is None or (psf_tables(other, WAVE).series != tables.series).any(), \
            f"series {number}: device.geometry.psf_tables leaves it out, and device.frames._unfit does not say so"
        if psf.tabulated:       # a file gives the distance of the knots by the number of its tables
            continue
        try:
            write_psf(tmp_path / "psf.fits", other)
        except InputError:
            continue
        back = read_psf(tmp_path / "psf.fits").series()
        assert len(back) == len(psf.series()), "io.psf.write_psf leaves some out"
        np.testing.assert_allclose(evaluated(back[number]), evaluated(other.series()[number]), rtol=1e-12, atol=1e-12)


def evaluated(series: Legendre) -> np.ndarray:
    """A series at some wavelengths: series from files may have more coefficients, which are 0."""
    at = 2 * (WAVE - series.wmin) / (series.wmax - series.wmin) - 1
    return np.polynomial.legendre.legval(at, np.moveaxis(series.coeff, -1, 0))
