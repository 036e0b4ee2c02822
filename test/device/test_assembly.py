"""Rows of the frame from a device, bitwise equal to those from the host."""
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from device_case import CONFIG, HostCore, four_bundles, on_device, small_job
from simulated_device import SimulatedDevice

from gpu_extract.assemble import BY_BIN, REAL, rooms, rows_of
from gpu_extract.data import Rows, SpecMask, Status
from gpu_extract.device.cuda.piece import PieceShape
from gpu_extract.device.frames import GpuFrames
from gpu_extract.device.geometry import landing_of
from gpu_extract.device.memory import GIVEN_UP, Sizes, kept_arrays, piece_rows, told_arrays, work_arrays
from gpu_extract.device.steps import Steps
from gpu_extract.plan import Plan
from gpu_extract.quality import BAD_FIT_LEAST, FEW_FIBRES, bin_status, mask_bits
from gpu_extract.run import extract
from gpu_extract.seams import NULL

NDIAG = 2
BEYOND = [1e39, -1e39, 3.4e38, 1.7e308, -1.7e308]      # beyond float32, and beyond float64 per Angstrom
FAINT = [1e39, 3.4e38, 1.7e308, 1e-40, 1.1e-38, 1e-310]


def results(sizes: Sequence[int], nwave: int, seed: int) -> list[Rows]:
    """Bundles with everything that decides about a mask bit: values that stand out in one direction or both, equal
    values, fractions of exactly a half and 1, no ivar, nothing but that, fibres without a bin to judge, and weak
    bins."""
    rng, found, first = np.random.default_rng(seed), [], 0
    for nfibre in sizes:
        shape = nfibre, nwave
        chi2pix = np.round(rng.chisquare(20, shape) / 20, 1)
        chi2pix[rng.random(shape) < 0.05] *= 8
        chi2pix[:, nwave // 2] *= 8
        chi2pix[rng.random(shape) < 0.02] = 300.0
        chi2pix[-1] *= 300 if nfibre >= FEW_FIBRES else 1
        chi2pix[:nfibre - 1] *= 0.01 if first == nfibre else 1      # of the second bundle, most have little noise
        fraction = rng.choice([0.0, 0.3, 0.5, 0.500001, 1.0], shape, p=[0.4, 0.3, 0.1, 0.1, 0.1])
        ivar = rng.random(shape) * (rng.random(shape) < 0.9)
        fraction[:, 1], ivar[nfibre // 2] = 1.0, 0.0
        put_on_the_edge(chi2pix, mask_bits(ivar, np.zeros(shape), fraction) == 0)
        flux = rng.normal(0, 1e3, shape)
        for array, values in ((flux, BEYOND), (ivar, FAINT), (chi2pix, [1e39])):
            there = rng.random(shape) < 0.01
            array[there] = rng.choice(values, np.count_nonzero(there))
        status = rng.choice([Status.GOOD, Status.DENSE, Status.EMPTY, Status.FAILED], shape).astype(np.int8)
        found.append(Rows((first, first + nfibre), flux, ivar, rng.random((nfibre, 2 * NDIAG + 1, nwave)), chi2pix,
                          fraction, mask_bits(ivar, chi2pix, fraction, rng.random(shape) < 0.03), status))
        first += nfibre
    return found


def put_on_the_edge(chi2pix: np.ndarray, judged: np.ndarray) -> None:
    """Move values that stand out to their limit, or to the next number above, and some of the last fibre to the one for
    what is far above most: medians must be bitwise right. Large values stay large, so that no median moves."""
    limits = [[5 * np.median(chi2pix[i, judged[i]]) if judged[i].any() else 1.0 for i in range(len(chi2pix))],
              [5 * np.median(chi2pix[judged[:, j], j]) if judged[:, j].any() else 1.0 for j in range(chi2pix.shape[1])]]
    limit = np.maximum(*np.meshgrid(*map(np.array, limits), indexing="ij"))
    for n, (i, j) in enumerate(np.argwhere(chi2pix > limit)):
        chi2pix[i, j] = np.nextafter(limit[i, j], np.inf) if n % 2 else limit[i, j]
    medians = np.sort([np.median(chi2pix[i, judged[i]]) for i in range(len(chi2pix)) if judged[i].any()])
    if len(chi2pix) >= FEW_FIBRES:      # the last fibre is far above most
        chi2pix[-1, ::3] = max(100 * medians[len(medians) // 2], BAD_FIT_LEAST)
        chi2pix[-1, ::6] = np.nextafter(chi2pix[-1, 0], np.inf)


def by_device(found: list[Rows], plan: Plan, dtype: Any) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The rows of bundles of equal size from the kernels, and how many bins of each fibre were given up."""
    device, (nfibre, nwave) = SimulatedDevice(), found[0].flux.shape
    shape = PieceShape(len(found), nfibre, 1, 2, nwave, 0, nwave, NDIAG)
    sizes = Sizes((3, 3), (4, 4), 16, np.dtype(np.float32), np.dtype(dtype), 1, False)
    plans = {**work_arrays(shape, sizes), **piece_rows(shape, sizes), **told_arrays(shape, sizes),
             **kept_arrays(shape.fibres, nwave), "targets": ((shape.fibres,), np.int64)}
    arrays = SimpleNamespace(**{name: device.empty(*array) for name, array in plans.items()})
    landing = landing_of(plan, plan.fibres[0], [result.fibres for result in found])
    arrays.targets.data[:] = landing.places
    for name, there in (("flux", arrays.flux), ("ivar", arrays.ivar), ("resolution", arrays.resolution),
                        ("chi2pix", arrays.chi2pix), ("pixmask_fraction", arrays.fraction), ("status", arrays.status)):
        there.data[...] = np.concatenate([getattr(result, name) for result in found])
    weak = np.concatenate([result.mask & np.uint32(SpecMask.WEAKBIN) for result in found])
    arrays.given_up.data[...] = np.where(weak, np.random.default_rng(1).integers(1, 3, weak.shape), 0)
    step, arrays.widths = np.gradient(plan.wave), device.empty((2, nwave))
    arrays.widths.data[...] = step, step**2
    Steps(device, device.stream(), shape, sizes, arrays).assemble()
    device.close()
    count = plan.fibres[1] - plan.fibres[0]
    rows = {name: np.empty(*array) for name, array in rooms(count, nwave, NDIAG, dtype).items()}
    for first, last, target in landing.runs:
        for name, array in rows.items():
            array[target:target + last - first] = getattr(arrays, f"to_{name}").data[first:last]
    return rows, arrays.counts.data[GIVEN_UP]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("nfibre", "wanted"), [(7, (0, 21)), (7, (3, 16)), (5, (0, 15)), (6, (7, 8)), (4, (0, 12)),
                                                (1, (1, 3))])
def test_rows_are_those_of_the_host(nfibre: int, wanted: tuple[int, int], dtype: Any) -> None:
    """Odd and even numbers of fibres, too few for a median, ranges that begin and end within a bundle."""
    for seed, nwave in enumerate((40, 41, 2)):
        found = [r for r in results([nfibre] * 3, nwave, seed) if r.fibres[1] > wanted[0] and r.fibres[0] < wanted[1]]
        wave = 6000.0 + np.cumsum(np.linspace(0.7, 0.9, nwave))
        plan = Plan(wanted, tuple(r.fibres for r in found), wave, wave, slice(0, nwave), wanted, np.arange(3 * nfibre))
        rows, given_up = by_device(found, plan, dtype)
        settled = [replace(result, status=bin_status(result.status, result.mask)) for result in found]
        with np.errstate(over="ignore"):
            parts = [rows_of(result, plan, dtype) for result in settled]
        for name in BY_BIN:
            whole = np.concatenate([getattr(part, name) for part in parts])
            assert whole.dtype == rows[name].dtype
            np.testing.assert_array_equal(rows[name], whole, err_msg=name)
        failed = np.concatenate([r.status == Status.FAILED for r in found])
        np.testing.assert_array_equal(given_up, failed.sum(axis=1))
        if nwave > 2 and wanted[0] == 0:
            assert (rows["ivar"] == 0).sum() > sum((result.ivar == 0).sum() for result in settled), "none was lost"
            assert np.isfinite(rows["ivar"]).all()
            assert set(np.unique(rows["status"])) >= {Status.GOOD, Status.DENSE, Status.EMPTY, Status.FAILED}
            assert {bit for bit in SpecMask if (rows["mask"] & bit).any()} >= {
                SpecMask.SOMEBADPIX, SpecMask.ALLBADPIX, SpecMask.NODATA, SpecMask.BAD2DFIT}


@pytest.mark.parametrize("fails", [(), (1, 4)])
@pytest.mark.parametrize(("first", "count"), [(0, 20), (3, 9), (6, 2)])
def test_a_frame_of_the_file_s_types(first: int, count: int, fails: tuple[int, ...]) -> None:
    """Numbers downloaded as float32 are those of the host, whichever fibres are requested or left to the CPU."""
    core = type("GivesUp", (HostCore,), {"fails": fails})
    case, config = four_bundles(), replace(CONFIG, specmin=first, nspec=count)
    backend = GpuFrames(SimulatedDevice, core=core)
    frames = [extract(case.image, case.psf, config, backend=backend, dtype=dtype) for dtype in (np.float64, np.float32)]
    for name in BY_BIN:
        double, single = (getattr(frame, name) for frame in frames)
        if not fails:      # these are fibres of pieces, and so others if fewer bundles are requested
            np.testing.assert_array_equal(double, getattr(on_device(HostCore), name)[first:first + count], err_msg=name)
        assert single.dtype == (np.float32 if name in REAL else double.dtype)
        np.testing.assert_array_equal(single, double.astype(single.dtype), err_msg=name)


def test_a_frame_outlives_the_next_one_and_the_device() -> None:
    """It owns its memory: what is written later is the frame as extracted."""
    case, device = four_bundles(), SimulatedDevice()
    backend = GpuFrames(lambda: device, core=HostCore)
    frame = extract(case.image, case.psf, CONFIG, backend=backend)
    kept = {name: getattr(frame, name).copy() for name in BY_BIN}
    extract(replace(case.image, pix=2 * case.image.pix), case.psf, CONFIG, backend=backend)
    backend.close()
    for name in BY_BIN:
        np.testing.assert_array_equal(getattr(frame, name), kept[name])


def test_one_part_is_the_frame_as_it_came_down() -> None:
    """The host copies nothing."""
    backend, job = GpuFrames(SimulatedDevice, core=HostCore), small_job()
    ((_, rows),) = backend.rows(four_bundles().image, job, SimpleNamespace(rank=0, size=1), NULL)
    assert isinstance(rows, Rows)
    blocks = {id(getattr(rows, name).base) for name in BY_BIN}
    assert len(blocks) == 1, "one block of pinned memory"


@pytest.mark.parametrize(("wanted", "pieces", "places", "runs"), [
    ((0, 20), [[(0, 5), (5, 10)], [(15, 20)], [(10, 15)]],
     [list(range(10)), list(range(5)), list(range(5))], [[(0, 10, 0)], [(0, 5, 15)], [(0, 5, 10)]]),
    ((3, 12), [[(0, 5), (10, 15)], [(5, 10)]],
     [[-1, -1, -1, 0, 1, 2, 3, -1, -1, -1], [0, 1, 2, 3, 4]], [[(0, 2, 0), (2, 4, 7)], [(0, 5, 2)]])])
def test_where_fibres_come_down(wanted: tuple[int, int], pieces: Any, places: Any, runs: Any) -> None:
    plan = replace(small_job().plan, fibres=wanted)
    found = [landing_of(plan, wanted[0], bundles) for bundles in pieces]
    assert [landing.places.tolist() for landing in found] == places
    assert [list(landing.runs) for landing in found] == runs
