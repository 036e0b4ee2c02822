"""Helpers for tests of the extraction: bitwise comparison of frames, R times a spectrum, moved PSFs."""
from dataclasses import replace
from functools import cache

import numpy as np

import oracle
from gpu_extract.assemble import BY_BIN
from gpu_extract.bundle import Job, locate, make_normal
from gpu_extract.config import ExtractConfig
from gpu_extract.data import NOTHING, Frame, Image, Legendre, Normal, PsfModel, Status
from gpu_extract.ranks.comm import SERIAL
from gpu_extract.run import extract, prepare
from gpu_extract.seams import NULL

CORES = ("auto", "dense")


def extracted(image: Image, psf: PsfModel, config: ExtractConfig, **options) -> Frame:
    """The frame of one process, after checks: nothing is NaN or infinite, and ivar is 0 exactly where MASK has NODATA
    and STATUS says why."""
    frame = extract(image, psf, config, **options)
    assert frame is not None
    for name in BY_BIN:
        assert np.isfinite(getattr(frame, name)).all(), name
    assert (frame.ivar >= 0).all()
    np.testing.assert_array_equal((frame.mask & 256) > 0, frame.ivar == 0)
    np.testing.assert_array_equal((frame.mask & 2) > 0, frame.pixmask_fraction == 1)
    np.testing.assert_array_equal(frame.flux[frame.ivar == 0], 0)
    np.testing.assert_array_equal(np.isin(frame.status, NOTHING), frame.ivar == 0)
    np.testing.assert_array_equal(frame.status == Status.DROPPED, (frame.mask & 512) > 0)
    return frame


def assert_same_bits(frame: Frame, other: Frame, rows: slice | np.ndarray = slice(None),
                     other_rows: slice = slice(None)) -> None:
    """Every array by bin of `rows` of one frame is bitwise equal to `other_rows` of the other."""
    for name in BY_BIN:
        np.testing.assert_array_equal(getattr(frame, name)[rows], getattr(other, name)[other_rows], err_msg=name)
    np.testing.assert_array_equal(frame.wave, other.wave)


def in_sigma(frame: Frame, flux: np.ndarray) -> np.ndarray:
    """|frame's flux - flux| in units of the frame's error, 0 where there are no data."""
    return np.abs(frame.flux - flux) * np.sqrt(frame.ivar)


def relative(array: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """|array / reference - 1|, 0 where both are 0."""
    np.testing.assert_array_equal(array == 0, reference == 0)
    return np.abs(np.divide(array, reference, out=np.ones_like(reference), where=reference != 0) - 1)


def normals(image: Image, psf: PsfModel, config: ExtractConfig) -> tuple[Job, list[Normal]]:
    """The job and the normal equations of each of its bundles."""
    job = prepare(psf, config)
    made = []
    for bundle in job.plan.bundles:
        made.append(make_normal(job, locate(image, job, bundle), group=SERIAL, recorder=NULL)[1])
    return job, made


def dense_normal(normal: Normal) -> np.ndarray:
    """icov as a matrix (n, n), bins ordered by fibre, then wavelength."""
    nfibre, _, nwave, nband = normal.icov.shape
    hw = nband // 2
    matrix = np.zeros((nfibre, nwave, nfibre, nwave))
    for i, d, j, k in np.argwhere(normal.icov):
        assert i + d < nfibre and 0 <= j + k - hw < nwave, "a coupling to a bin that does not exist"
        matrix[i, j, i + d, j + k - hw] = matrix[i + d, j + k - hw, i, j] = normal.icov[i, d, j, k]
    return matrix.reshape(nfibre * nwave, -1)


def moved(psf: PsfModel, dy: float, dx: float, shape: tuple[int, int]) -> PsfModel:
    """The PSF with its traces moved by (dy, dx) pixels, on a CCD of another shape."""
    return replace(psf, y=psf.y.plus(dy), x=psf.x.plus(dx), shape=shape)


@cache
def inner_case(nfibre: int = 5, *, noise: bool = True, family: str = "v3") -> oracle.Case:
    """A case with all spots on the CCD, and no light beyond its wavelengths.

    The settings request every bin of the PSF: 250 of 0.8 Angstrom. It is made once: its arrays are read-only.
    """
    psf = oracle.make_psf(family, nfibre=nfibre, shape=(364, 20 + 8 * nfibre), first_row=14)
    config = ExtractConfig(wavelength=(oracle.WMIN, oracle.WMAX - 0.8, 0.8))
    case = oracle.make_case(psf, config, pad=0, noise=noise)
    case.image.pix.flags.writeable = case.image.ivar.flags.writeable = False
    return case


def linear(values: np.ndarray) -> Legendre:
    """A series over the domain of the made-up PSFs: (nfibre, ncoef)."""
    return Legendre(np.asarray(values, dtype=float), oracle.WMIN, oracle.WMAX)
