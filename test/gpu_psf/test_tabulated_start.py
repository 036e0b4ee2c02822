"""One-line errors for what gpu_psf cannot do with tabulated spots."""
import numpy as np
import pytest

from edge_files import NX, NY, small_psf
from gpu_extract.data import Image
from gpu_extract.errors import InputError
from gpu_extract.spots.tables import tabulated
from gpu_psf.data import FitConfig
from gpu_psf.lamp import shipped_lines
from gpu_psf.run import fit_psf
from gpu_psf.start.run import Known, start_psf

ARC = Image(np.ones((NY, NX)), np.ones((NY, NX)))


def test_a_fit_does_not_start_from_a_table() -> None:
    with pytest.raises(InputError, match=r"^small: its spots are tables, must be Gauss-Hermite spots: start from"):
        fit_psf([ARC], tabulated(small_psf(), 3, (2, 2)), shipped_lines(), FitConfig())


def test_traces_from_a_table_need_a_flat() -> None:
    with pytest.raises(InputError, match=r"^small: its spots are tables, which do not give their widths"):
        start_psf(None, ARC, np.array([6050.0]), Known(psf=tabulated(small_psf(), 3, (2, 2))))
