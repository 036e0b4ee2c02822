"""Bins with hardly any light, on a simulated device: holes on a trace, so that a bin has wings or nothing."""
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import test_two_passes as two_passes
from device_case import HostCore, four_bundles, struck
from simulated_device import SimulatedDevice
from test_gpu_frame import CONFIG, assert_same, with_device

from extraction import in_sigma, relative
from gpu_extract.data import Frame, Image, PsfModel, SpecMask
from gpu_extract.device.device_banded import BandedCore
from gpu_extract.device.steps import iterations_for
from gpu_extract.run import extract
from gpu_extract.spots import evaluate

FIBRE, HIGH = 7, 14
WIDE, HARDLY = (18, 8.0), (97, 5.6)      # among HIGH rows on both sides: their middle, and half their width
WEAK, NODATA = np.uint32(SpecMask.WEAKBIN), np.uint32(SpecMask.NODATA)


def with_holes(image: Image, psf: PsfModel, *holes: tuple[int, float]) -> Image:
    """Holes on the trace of FIBRE. WIDE, at the end of the range, leaves bins less than 1e-10 of their light."""
    ivar, waves = image.ivar.copy(), np.linspace(*psf.wavelength_range, 2000)
    rows, columns = (np.arange(size) for size in ivar.shape)
    x, y = (evaluate(series, (FIBRE, FIBRE + 1), waves)[0] for series in (psf.x, psf.y))
    half = np.sum([np.where(np.abs(rows - row) < HIGH, width, 0.0) for row, width in holes], axis=0)
    ivar[np.abs(columns - np.interp(rows, y, x)[:, None]) < half[:, None]] = 0.0
    return replace(image, ivar=ivar)


@cache
def on_cpu() -> Frame:
    case = four_bundles()
    frame = extract(with_holes(case.image, case.psf, WIDE, HARDLY), case.psf, CONFIG)
    assert frame is not None
    return frame


def on_device(core: Any = HostCore, **options: Any) -> Frame:
    case = four_bundles()
    return with_device(SimulatedDevice(**options), image=with_holes(case.image, case.psf, WIDE, HARDLY), core=core)


@pytest.mark.parametrize("core", [HostCore, BandedCore])
def test_as_on_the_cpu(core: Any) -> None:
    """Bins are given up or flagged as there; the CPU gets no fibre but the one with the holes, and no bundle."""
    frame, cpu = on_device(core), on_cpu()
    given_up, weak = ((cpu.mask[FIBRE] & bit) > 0 for bit in (NODATA, WEAK))
    assert given_up.sum() > 4 and (weak & ~given_up).sum() == 1
    for name in ("mask", "status"):
        np.testing.assert_array_equal(getattr(frame, name), getattr(cpu, name))
    kept = (cpu.mask & WEAK) == 0
    assert in_sigma(frame, cpu.flux)[kept].max() < 1e-8 and relative(frame.ivar, cpu.ivar)[kept].max() < 1e-9
    assert np.abs(frame.resolution - cpu.resolution).max(axis=1)[kept].max() < 1e-9
    notes, theirs = frame.notes["bundles"], cpu.notes["bundles"]
    assert [notes[first]["given_up"] for first in theirs] == [own["given_up"] for own in theirs.values()]
    assert sum(own.get("on_cpu", 0) for own in notes.values()) == (core is BandedCore)


@pytest.mark.parametrize("options", [{"order": 0.382}, {"garbage": 0xFF, "order": 0.0}])
def test_bits_do_not_depend_on_what_a_device_may_do(options: dict[str, Any]) -> None:
    assert_same(on_device(**options), on_device())


def test_faint_bins_in_two_passes_are_those_of_the_cpu() -> None:
    """Beside the narrow hole the iteration needs more steps than are queued at first."""
    image, psf = struck()
    image = with_holes(image, psf, WIDE, HARDLY)
    config = replace(two_passes.CONFIG, wavelength=(6000.0, 6080.0, 0.85))      # with the narrow hole
    frame = two_passes.with_device(SimulatedDevice(), image=image, config=config)
    notes = [one for one in frame.notes["bundles"].values() if one["given_up"]]
    assert [one["iterations"] > iterations_for(one["halfband"]) and "on_cpu" not in one for one in notes] == [True]
    cpu = two_passes.by_cpu(image, psf, config)
    two_passes.assert_as_on_cpu(frame, cpu)
    assert ((cpu.mask[FIBRE] & NODATA) > 0).sum() > 4
