"""Rows of the fibermap: by position within a camera, by FIBER in a table of the whole instrument."""

import numpy as np
import pytest

from edge_files import write_image
from gpu_extract.data import FiberMap
from gpu_extract.errors import InputError
from gpu_extract.io.fibermap import cut_fibermap, read_fibermap


def table(fibers):
    rows = np.zeros(len(fibers), [("FIBER", np.int32), ("X", np.float64)])
    rows["FIBER"] = fibers
    rows["X"] = np.arange(len(fibers))
    return FiberMap(rows, {"X": "mm"})


def test_by_position():
    cut = cut_fibermap(table(range(40, 60)), np.arange(5, 9), 20)
    assert cut.rows["FIBER"].tolist() == [45, 46, 47, 48] and cut.units == {"X": "mm"}


def test_fewer_rows_than_fibres_are_enough_if_they_reach():
    assert len(cut_fibermap(table(range(50)), np.arange(10, 50), 500).rows) == 40
    with pytest.raises(InputError, match="50 rows, but fibres 10-50 are wanted"):
        cut_fibermap(table(range(50)), np.arange(10, 51), 500)


def test_by_fibre_number_in_any_order():
    fibers = np.random.default_rng(2).permutation(100)
    cut = cut_fibermap(table(fibers), np.arange(3, 8), 20, spectrograph=4)
    assert cut.rows["FIBER"].tolist() == [83, 84, 85, 86, 87]
    np.testing.assert_array_equal(fibers[cut.rows["X"].astype(int)], cut.rows["FIBER"])


def test_missing_rows_are_named():
    fibers = [f for f in range(100) if f not in (84, 86)]
    with pytest.raises(InputError, match=r"no row for 2 fibres \(first FIBER 84\)"):
        cut_fibermap(table(fibers), np.arange(3, 8), 20, spectrograph=4)
    with pytest.raises(InputError, match="no FIBER column or CAMERA"):
        cut_fibermap(table(range(100)), np.arange(3, 8), 20)


def test_from_a_file_of_its_own(tmp_path):
    rows = read_fibermap(write_image(tmp_path / "a.fits")).rows
    assert rows["FIBER"].tolist() == list(range(1500, 1506))
    from edge_files import image_hdus

    with pytest.raises(InputError, match="no HDU FIBERMAP"):
        read_fibermap(write_image(tmp_path / "b.fits", image_hdus()[:3]))
