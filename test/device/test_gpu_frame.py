"""A whole frame through a simulated device, compared with the CPU, and with itself under every other way of working.

The lanes of the kernels are those of a GPU, compiled for the CPU. Queued work runs as late as events allow, and new
memory holds garbage: a missing wait or an unwritten place gives wrong numbers here.
"""
from copy import deepcopy
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from device_case import (
    CONFIG,
    HostCore,
    four_bundles,
    host_core,
    on_cpu,
    on_device,
    small_job,
    struck,
    with_device,
)
from simulated_device import SimulatedDevice

from extraction import assert_same_bits, in_sigma, relative
from gpu_extract.assemble import BY_BIN, assemble
from gpu_extract.bundle import banded_part, dense_part
from gpu_extract.config import ExtractConfig
from gpu_extract.cpu_frame import CpuFrames
from gpu_extract.data import NOT_MEASURED, Draft, Frame, Image, Legendre, PsfModel, SpecMask, Status
from gpu_extract.decorrelate import banded
from gpu_extract.decorrelate.limits import Limits
from gpu_extract.device import frames
from gpu_extract.device.cuda.text import all_kernels, number
from gpu_extract.device.frames import GpuFrames
from gpu_extract.device.geometry import bundle_geometry, cut_pieces
from gpu_extract.device.memory import Slot
from gpu_extract.errors import InputError
from gpu_extract.perf.recorder import Recorder
from gpu_extract.quality import mask_bits
from gpu_extract.ranks.comm import SERIAL
from gpu_extract.run import extract, prepare
from gpu_extract.seams import NULL
from gpu_extract.simulate.troubles import with_tail
from gpu_extract.spots.tables import tabulated


def assert_same(frame: Frame, other: Frame) -> None:
    """Bitwise, including the model image."""
    assert_same_bits(frame, other)
    np.testing.assert_array_equal(frame.model, other.model)


def assert_as_on_cpu(frame: Frame, cpu: Frame, *, largest: float = 1e-8) -> None:
    """Flux to `largest` sigma, ivar and R to 1e-9 in bins with half of a spot on good pixels; chi2, fractions and
    model, which use spots in single precision on both sides, to a few times its rounding."""
    seen = cpu.pixmask_fraction < 0.5
    assert in_sigma(frame, cpu.flux)[seen].max() < largest
    assert relative(frame.ivar, cpu.ivar)[seen].max() < 1e-9
    assert np.abs(frame.resolution - cpu.resolution).max(axis=1)[seen].max() < 1e-9
    np.testing.assert_array_equal(frame.mask, cpu.mask)
    np.testing.assert_array_equal(frame.status, cpu.status)
    np.testing.assert_allclose(frame.chi2pix[seen], cpu.chi2pix[seen], rtol=1e-5)
    np.testing.assert_allclose(frame.pixmask_fraction, cpu.pixmask_fraction, rtol=0, atol=2e-7)
    if frame.model is not None:
        np.testing.assert_allclose(frame.model, cpu.model, rtol=1e-6, atol=1e-6 * np.abs(cpu.model).max())


def mask_by_bundle(frame: Frame) -> np.ndarray:
    """MASK from the other arrays of a frame of four bundles, on the host."""
    return np.concatenate([mask_bits(*(getattr(frame, name)[rows] for name in ("ivar", "chi2pix", "pixmask_fraction")))
                           for rows in (slice(n, n + 5) for n in range(0, 20, 5))])


def test_as_on_the_cpu_without_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same rules the flux is the same: without windows, and with S first tried in icov's own band."""
    monkeypatch.setattr(banded, "Options", partial(banded.Options, limits=Limits(window=np.inf, own=False)))
    case = four_bundles()
    assert_as_on_cpu(on_device.__wrapped__(), extract(case.image, case.psf, CONFIG))     # not what others keep


def test_odd_pixels_are_the_cpus() -> None:
    """They are uploaded as masked pixels, the bins that touch them are flagged, and the next frame is not affected."""
    case, device = four_bundles(), SimulatedDevice()
    pix, ivar = case.image.pix.copy(), case.image.ivar.copy()
    (y, x), (v, u) = ((96, int(np.nonzero(ivar[96, first:])[0][0]) + first) for first in (20, 140))
    pix[y, x], ivar[v, u] = 3e38, 1e4
    image = replace(case.image, pix=pix, ivar=ivar)
    pix, ivar = case.image.pix.copy(), case.image.ivar.copy()
    ivar[y, x] = ivar[v, u] = 0
    backend = GpuFrames(lambda: device)
    frame, clean, masked = (extract(i, case.psf, CONFIG, backend=backend)
                            for i in (image, case.image, replace(case.image, ivar=ivar)))
    backend.close()
    cpu = extract(image, case.psf, CONFIG)
    bit = np.uint32(SpecMask.ODDPIX)
    np.testing.assert_array_equal(frame.mask, cpu.mask)
    assert [frame.notes["bundles"][n].get("odd_pixels") for n in (0, 5, 10, 15)] == [
        cpu.notes["bundles"][n].get("odd_pixels") for n in (0, 5, 10, 15)]
    assert ((frame.mask & bit) > 0).any(axis=1).sum() >= 2 and sum(
        notes.get("odd_pixels", 0) for notes in frame.notes["bundles"].values()) >= 2
    assert_same(replace(frame, mask=frame.mask & ~bit), masked)
    assert_same(clean, on_device())


def test_a_piece_with_odd_pixels_is_done_again() -> None:
    """As if they were masked, captured and replayed; illegal pixels are refused, and the device continues."""
    case, device = four_bundles(), SimulatedDevice(seed=2)
    pix, ivar, masked, wrong = (array.copy() for array in (case.image.pix, *[case.image.ivar] * 3))
    y, x = 96, int(np.nonzero(ivar[96, 20:])[0][0]) + 20
    pix[y, x], masked[y, x], wrong[y, x] = 3e38, 0.0, np.nan
    backend = GpuFrames(lambda: device, core=HostCore, most=1, slots=2)
    hidden = extract(replace(case.image, ivar=masked), case.psf, CONFIG, backend=backend)
    bit = np.uint32(SpecMask.ODDPIX)
    for _ in range(2):
        frame = extract(replace(case.image, pix=pix), case.psf, CONFIG, backend=backend)
        assert ((frame.mask & bit) > 0).any()
        assert_same(replace(frame, mask=frame.mask & ~bit), hidden)
    with pytest.raises(InputError, match="1 NaN"):
        extract(replace(case.image, ivar=wrong), case.psf, CONFIG, backend=backend)
    assert_same(extract(case.image, case.psf, CONFIG, backend=backend), on_device(HostCore))
    backend.close()
    again = sum("odd_pixels" in notes for notes in frame.notes["bundles"].values())
    assert again and device.replayed == 2 * (4 + again) + 4, "four pieces a frame, and those that are done again"


def test_as_on_the_cpu() -> None:
    """Beside masks, which affect all of these 51 bins, and where the CPU has windows."""
    frame, cpu = on_device(), on_cpu()
    assert_as_on_cpu(frame, cpu)
    np.testing.assert_array_equal(frame.mask, mask_by_bundle(frame))
    assert frame.notes["device"] == "simulated device"
    for first, notes in cpu.notes["bundles"].items():
        own = frame.notes["bundles"][first]
        assert {k: own[k] for k in ("halfband", "neighbours", "given_up")} == {
            k: notes[k] for k in ("halfband", "neighbours", "given_up")}
        assert own["error"] < 1e-9 and own["iterations"] < 20
        assert own["fibres"] == 5 and {own[k] for k in ("ownband", "coupling", "cond", "selfcheck")} == {NOT_MEASURED}


@pytest.mark.parametrize(("most", "slots"), [(1, 1), (1, 3), (2, 2), (4, 1)])
def test_bits_do_not_depend_on_pieces_or_slots(most: int, slots: int) -> None:
    assert_same(with_device(SimulatedDevice(), most=most, slots=slots), on_device())


@pytest.mark.parametrize("order", [0.0, 0.382, 0.5])
def test_bits_do_not_depend_on_the_order_of_lanes(order: float) -> None:
    """Forwards, far apart, in two halves: on a GPU they run in any order, and none may read what another writes."""
    assert_same(with_device(SimulatedDevice(order=order)), on_device())


@pytest.mark.parametrize("garbage", [0x00, 0x7F, 0xFF])
@pytest.mark.parametrize("dark", [False, True])
def test_bits_do_not_depend_on_what_memory_held(garbage: int, dark: bool) -> None:
    """Zeros, huge numbers, NaN: a device's memory holds what was there before.

    dark: with a bundle without light, and such a fibre of another bundle
    """
    image = four_bundles().image
    if dark:
        ivar = image.ivar.copy()
        ivar[:, :52] = ivar[:, 64:84] = 0
        image = replace(image, ivar=ivar)
    frame = with_device(SimulatedDevice(garbage=garbage), image=image)
    assert_same(frame, with_device(SimulatedDevice(), image=image) if dark else on_device())
    assert not dark or (frame.status == Status.EMPTY).any()
    np.testing.assert_array_equal(frame.status == Status.EMPTY, frame.ivar == 0)


@pytest.mark.parametrize("dtype", [">f4", "<f8", ">f8", "mixed"])
def test_bits_do_not_depend_on_how_pixels_are_stored(dtype: str) -> None:
    """The device converts the byte order; if pixels and ivar have different types, they are uploaded as float64."""
    image = four_bundles().image
    types = (">f4", "<f8") if dtype == "mixed" else (dtype, dtype)
    stored = Image(image.pix.astype(types[0]), image.ivar.astype(types[1]), image.cards, image.fibermap)
    assert_same(with_device(SimulatedDevice(), core=HostCore, image=stored), on_device(HostCore))


@pytest.mark.parametrize("size", [2, 5])
def test_bits_do_not_depend_on_ranks(size: int) -> None:
    """Each rank alone, one after another: together they have every row once; a surplus rank has none."""
    case, job, parts = four_bundles(), small_job(), []
    for rank in range(size):
        backend = GpuFrames(SimulatedDevice)
        parts += backend.rows(case.image, job, SimpleNamespace(rank=rank, size=size), Recorder())
        backend.close()
    assert len(parts) == min(size, 4)
    found = assemble([rows for _, rows in parts], job.plan, case.image, {}, like=(job.ndiag, job.dtype))
    assert_same(found, on_device())


def test_one_frame_after_another() -> None:
    """Memory, streams and pinned arrays are reused: the previous frame leaves nothing, nothing is allocated."""
    case, device = four_bundles(), SimulatedDevice()
    backend = GpuFrames(lambda: device, core=HostCore, most=1, slots=2)
    first = extract(case.image, case.psf, CONFIG, backend=backend)
    peak, used = device.peak, device.used
    empty = Image(np.zeros_like(case.image.pix), np.zeros_like(case.image.ivar))
    nothing = extract(empty, case.psf, CONFIG, backend=backend)
    again = extract(case.image, case.psf, CONFIG, backend=backend)
    assert (device.peak, device.used) == (peak, used)
    assert not nothing.flux.any() and not nothing.ivar.any() and (nothing.pixmask_fraction == 1).all()
    assert_same(first, on_device(HostCore))
    assert_same(again, on_device(HostCore))


def test_frames_that_are_replayed() -> None:
    """The second frame is captured, piece by piece, and later ones replay it: the bits are those of a device that has
    seen no frame before."""
    case, device = four_bundles(), SimulatedDevice(seed=1)
    backend = GpuFrames(lambda: device, most=1, slots=2)
    other = replace(case.image, pix=(2 * case.image.pix).astype(np.float32))
    counts = []
    for image in (other, case.image, other, case.image):
        frame = extract(image, case.psf, CONFIG, backend=backend)
        counts.append(device.replayed)
        if image is not other:
            assert_same(frame, on_device())
    backend.close()
    assert counts == [0, 4, 8, 12], "queued once step by step"
    assert device.used == 0


def test_a_device_that_captures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reported once, in one line; the frames are the same."""
    case, device, warnings = four_bundles(), SimulatedDevice(), list[str]()

    def capture(work: Any, stream: Any) -> None:
        raise RuntimeError("operation not permitted\nwhen stream is capturing")

    monkeypatch.setattr(device, "capture", capture)
    backend = GpuFrames(lambda: device, core=HostCore, warn=warnings.append)
    for _ in range(3):
        frame = extract(case.image, case.psf, CONFIG, backend=backend)
    assert_same(frame, on_device(HostCore))
    assert warnings == ["simulated device cannot capture graphs, so its kernels are launched one by one: RuntimeError: "
                        "operation not permitted when stream is capturing"]


def test_frames_that_are_not_replayed() -> None:
    """A recorder needs the times of steps."""
    case, device = four_bundles(), SimulatedDevice()
    backend = GpuFrames(lambda: device, core=HostCore)
    backend.watch(Recorder())
    for _ in range(3):
        frame = extract(case.image, case.psf, CONFIG, backend=backend)
    assert device.replayed == 0
    assert_same(frame, on_device(HostCore))


@pytest.mark.parametrize("change, why", [
    ({"core": "dense", "wavelength": (6012.0, 6020.0, 0.8)}, "cannot run the dense core"),
    ({"passes": 3}, "makes only one or two passes over an image, not 3"),
    ({"passes": 2, "background": 1}, "cannot fit a background")])
def test_what_no_device_does_is_the_cpus(change: dict[str, Any], why: str) -> None:
    """One line and the header say so: the CPU does every fibre. Its kernels are prepared, none of the device's."""
    warnings: list[str] = []
    case, config, device = four_bundles(), replace(CONFIG, **change), SimulatedDevice()
    backend = GpuFrames(lambda: device, warn=warnings.append)
    frame = extract(case.image, case.psf, config, backend=backend)
    assert frame is not None and not device.launched
    assert_same(frame, extract(case.image, case.psf, config))
    assert warnings == [f"simulated device {why}: this rank works on the CPU"]
    assert [facts["on_cpu"] for facts in frame.notes["bundles"].values()] == [5] * 4


def test_fine_bins_are_the_cpus_in_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Usual bins of one or two passes are the device's; fine ones only in one pass."""
    for limit, passes, fibres in ((None, 2, 0), (1.0, 1, 0), (1.0, 2, 5)):
        warnings: list[str] = []
        if limit is not None:
            monkeypatch.setattr("gpu_extract.device.frames.FINE", limit)
        case, backend = four_bundles(), GpuFrames(SimulatedDevice, core=HostCore, warn=warnings.append)
        frame = extract(case.image, case.psf, replace(CONFIG, passes=passes), backend=backend)
        assert frame is not None
        assert [facts.get("on_cpu", 0) for facts in frame.notes["bundles"].values()] == [fibres] * 4
        assert warnings == ["simulated device makes only one pass where bins are as fine as 0.85 Angstrom here: this "
                            "rank works on the CPU"] * (fibres > 0)


def test_image_and_psf_are_compared_while_a_device_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the first frame before anything is compiled; if they do not fit, the frame still ends with an error, and the
    next one is made."""
    case, backend, spans = four_bundles(), GpuFrames(SimulatedDevice), []
    for _ in range(2):
        recorder = Recorder()
        frame = extract(case.image, case.psf, CONFIG, backend=backend, recorder=recorder)
        spans.append([name for name, *_ in recorder.record()["spans"] if name in ("compare", "queue", "warm up")])
    assert spans[0] == ["compare", "warm up", "queue"] and spans[1] == ["warm up", "queue", "compare"]

    def differs(*_: Any) -> list[str]:
        raise InputError("they do not go together")

    with monkeypatch.context() as patch:
        patch.setattr("gpu_extract.run.compare", differs)
        with pytest.raises(InputError, match="go together"):
            extract(case.image, case.psf, CONFIG, backend=backend)
    assert_same(extract(case.image, case.psf, CONFIG, backend=backend), frame)
    backend.close()


def test_what_the_cpu_is_asked_for_where_it_does_the_work() -> None:
    """Its kernels, which a frame of the device does not need; the draft from which a frame starts is passed on."""
    asked: list[Any] = []

    class Asked(CpuFrames):
        def get_ready(self, psf: Any, config: Any, comm: Any, recorder: Any) -> bool:
            asked.append(config)
            return True

        def rows(self, image: Any, job: Any, comm: Any, recorder: Any, *, start: Any = None,
                 meanwhile: Any = None) -> list[Any]:
            asked.append(start)
            return []

    case, again, start = four_bundles(), replace(CONFIG, passes=3), cast(Draft, object())
    backend = GpuFrames(SimulatedDevice, cpu=Asked())
    assert not backend.get_ready(case.psf, CONFIG, SERIAL, NULL) and asked == []
    assert backend.get_ready(case.psf, again, SERIAL, NULL) and asked == [again]
    assert backend.rows(case.image, replace(small_job(), config=again), SERIAL, NULL, start=start) == []
    assert asked == [again, start]
    assert backend.rows(case.image, small_job(), SERIAL, NULL, start=start) == []
    assert asked[2:] == [start]


def test_tabulated_spots_are_the_cpus() -> None:
    """This is reported once, not for every frame."""
    warnings: list[str] = []
    case = four_bundles()
    psf = tabulated(case.psf, 2, (2, 2))
    backend = GpuFrames(SimulatedDevice, warn=warnings.append)
    for _ in range(2):
        assert_same(extract(case.image, psf, CONFIG, backend=backend), extract(case.image, psf, CONFIG))
    assert warnings == [f"simulated device cannot make tabulated spots, as in {psf.name}: this rank works on the CPU"]


def test_events_are_not_captured() -> None:
    device = SimulatedDevice()
    stream = device.stream()
    event = device.record(stream)
    for verb in (lambda: device.record(stream), lambda: device.wait(stream, event)):
        with pytest.raises(RuntimeError, match="captured"):
            device.capture(verb, stream)
    assert device.capture(lambda: None, stream) == []


def test_an_image_that_ends_before_the_psf_does() -> None:
    """The image's shape counts, not that for which the PSF was made."""
    case = four_bundles()
    small = Image(case.image.pix[:150, :110], case.image.ivar[:150, :110])
    assert_as_on_cpu(by_host_core(small, case.psf, CONFIG, banded_part), extract(small, case.psf, CONFIG))


def test_a_psf_that_was_read_again_is_the_same() -> None:
    """With a fibre that the validator drops in every frame, and another name: memory, streams and tables stay."""
    case = four_bundles()
    y = case.psf.y.coeff.copy()
    y[7, 1] = np.nan
    backend, flows = GpuFrames(SimulatedDevice, core=HostCore), []
    for name in ("one", "two"):
        psf = replace(case.psf, y=replace(case.psf.y, coeff=y.copy()), name=name)
        frame = extract(case.image, psf, CONFIG, backend=backend)
        flows.append(backend.flow)
    assert flows[0] is flows[1] and list(frame.notes["dropped"]) == [7]


def test_a_psf_that_was_changed_in_place_is_another() -> None:
    """Nothing that was made from the earlier arrays serves the next frame."""
    case = four_bundles()
    psf, backend = deepcopy(case.psf), GpuFrames(SimulatedDevice, core=HostCore)
    extract(case.image, psf, CONFIG, backend=backend)
    psf.x.coeff[1, 0] += 0.25        # in none of the fibres on which the decay is measured
    moved = replace(case.psf, x=replace(case.psf.x, coeff=psf.x.coeff.copy()))
    fresh = GpuFrames(SimulatedDevice, core=HostCore)
    assert_same(extract(case.image, psf, CONFIG, backend=backend), extract(case.image, moved, CONFIG, backend=fresh))


def test_an_image_whose_pixels_kernels_cannot_number_is_the_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MOST_PIXELS", 100)
    warnings: list[str] = []
    case, backend = four_bundles(), GpuFrames(SimulatedDevice, core=HostCore, warn=warnings.append)
    assert_same(extract(case.image, case.psf, CONFIG, backend=backend), on_cpu(CONFIG))
    (ny, nx) = case.image.shape
    assert warnings == ["simulated device accepts images of up to 100 pixels a side, but this one is "
                        f"{ny} x {nx}: this rank works on the CPU"]


def test_another_psf_takes_the_place_of_the_one_before() -> None:
    case, device = four_bundles(), SimulatedDevice()
    backend = GpuFrames(lambda: device, core=HostCore)
    extract(case.image, replace(case.psf, psferr=0.5), CONFIG, backend=backend)
    used = device.used
    frame = extract(case.image, case.psf, CONFIG, backend=backend)
    assert_same(frame, on_device(HostCore))
    assert 0 < device.used < 1.5 * used and device.peak < 1.5 * used
    backend.close()
    assert device.used == 0


@pytest.mark.parametrize(("most", "share"), [(4, 0.8), (4, 0.55), (1, 0.7), (1, 0.4)])
def test_out_of_memory_halves_the_pieces_and_changes_no_bit(most: int, share: float) -> None:
    """One piece of four bundles becomes two, then four; finally pieces of one bundle are done one at a time."""
    wanted = SimulatedDevice()
    with_device(wanted, most=most, core=HostCore)
    device = SimulatedDevice(int(share * wanted.peak))
    warnings: list[str] = []
    assert_same(with_device(device, most=most, core=HostCore, warn=warnings.append), on_device(HostCore))
    assert warnings == [] and device.peak <= device.capacity < wanted.peak


def test_out_of_memory_in_the_middle_of_a_frame() -> None:
    """What a core allocates while pieces are in flight: everything is repeated in smaller pieces, in the memory of the
    first attempt."""
    class Hungry(HostCore):
        runs = 0

        def run(self, normal: Any, out: Any, stream: Any, recorder: Any) -> None:
            Hungry.runs += 1
            if Hungry.runs == 2:
                raise MemoryError("no memory for a work space")
            super().run(normal, out, stream, recorder)

    first = SimulatedDevice()
    with_device(first, core=HostCore, most=2)
    frame = with_device(SimulatedDevice(first.peak), core=Hungry, most=2)
    assert_same(frame, on_device(HostCore))
    assert Hungry.runs == 2 + 4


def test_a_frame_that_failed_leaves_nothing_to_the_next() -> None:
    """Its queued work is awaited, and its memory given back, before another frame begins."""
    class Fails(HostCore):
        broken = True

        def run(self, normal: Any, out: Any, stream: Any, recorder: Any) -> None:
            if Fails.broken and any(self._device.launched):
                Fails.broken = False
                raise ValueError("not about memory")
            super().run(normal, out, stream, recorder)

    case, device = four_bundles(), SimulatedDevice(seed=1)
    backend = GpuFrames(lambda: device, core=Fails, most=1)
    with pytest.raises(ValueError, match="not about memory"):
        extract(case.image, case.psf, CONFIG, backend=backend)
    assert device.used == 0
    assert_same(extract(case.image, case.psf, CONFIG, backend=backend), on_device(HostCore))


def test_without_memory_for_one_bundle_the_cpu_does_it() -> None:
    warnings: list[str] = []
    frame = with_device(SimulatedDevice(100_000), warn=warnings.append)
    assert_same(frame, on_cpu())
    assert len(warnings) == 1 and "works on the CPU" in warnings[0]
    assert [notes["on_cpu"] for notes in frame.notes["bundles"].values()] == [5] * 4


def test_fibres_that_the_core_gives_up_are_done_on_the_cpu() -> None:
    class GivesUp(HostCore):
        fails = (1, 4)

    image = four_bundles().image
    stored = Image(image.pix.astype(">f4"), image.ivar.astype(">f4"))       # which the CPU cannot read
    frame, cpu = with_device(SimulatedDevice(seed=3), core=GivesUp, most=2, image=stored), on_cpu()
    lost = [1, 4, 6, 9, 11, 14]       # of the pieces of bundles 0, 2 and 3, and 1
    for name in ("flux", "ivar", "resolution", "status", "mask"):
        np.testing.assert_array_equal(getattr(frame, name)[lost], getattr(cpu, name)[lost])
    np.testing.assert_array_equal(frame.status == Status.EMPTY, frame.ivar == 0)
    assert_as_on_cpu(frame, cpu)
    np.testing.assert_array_equal(frame.mask, mask_by_bundle(frame))
    assert [notes.get("on_cpu", 0) for notes in frame.notes["bundles"].values()] == [2, 2, 2, 0]


def test_bins_without_a_pixel_in_fibres_that_the_cpu_does() -> None:
    """Masked rows of the CCD: every fibre has EMPTY bins, whoever decorrelates it."""
    ivar = four_bundles().image.ivar.copy()
    ivar[60:90] = 0
    image = replace(four_bundles().image, ivar=ivar)
    core = type("GivesUp", (HostCore,), {"fails": (1, 4)})
    frame, cpu = with_device(SimulatedDevice(), core=core, image=image), extract(image, four_bundles().psf, CONFIG)
    without = frame.ivar == 0
    assert without.sum(axis=1).min() > 3 and without.sum(axis=1).max() < 48
    np.testing.assert_array_equal(frame.status == Status.EMPTY, without)
    np.testing.assert_array_equal(without, cpu.ivar == 0)
    np.testing.assert_array_equal(cpu.status == Status.EMPTY, without)


def test_bundles_that_need_more_iterations_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their pieces are queued again, captured and replayed; a bundle beside them that had enough keeps its bits."""
    needed = [notes["iterations"] for notes in on_device(HostCore).notes["bundles"].values()]
    assert needed[2] < needed[1], "they share a piece"
    monkeypatch.setattr("gpu_extract.device.steps.iterations_for", lambda _: needed[2])
    case, device, warnings = four_bundles(), SimulatedDevice(seed=4), list[str]()
    backend = GpuFrames(lambda: device, core=HostCore, slots=2, warn=warnings.append)
    for _ in range(3):
        frame = extract(case.image, case.psf, CONFIG, backend=backend)
        assert_same(frame, on_device(HostCore))
        assert [notes["iterations"] for notes in frame.notes["bundles"].values()] == needed
    backend.close()
    again = sum(needed[bundle] > needed[2] for bundle in (0, 1, 3))
    assert again and device.replayed == 2 * (3 + again) and not warnings, "three pieces, and those done again"


def test_bundles_that_do_not_converge_are_done_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_extract.device.steps.iterations_for", lambda _: 0)
    warnings: list[str] = []
    frame = with_device(SimulatedDevice(), core=HostCore, warn=warnings.append)
    assert_same(frame, on_cpu())
    assert len(warnings) == 4 and all("did not converge" in w for w in warnings)


def test_two_cores_and_tails(shared: Any) -> None:
    """A PSF with everything."""
    from gpu_extract.io.psf import read_psf

    psf = read_psf(shared / "data" / "psf" / "psf-gausshermite2-boss.fits")
    rng = np.random.default_rng(5)
    ivar = rng.uniform(0.5, 1.5, psf.shape).astype(np.float32)
    ivar[rng.random(psf.shape) < 0.01] = 0
    image = Image(rng.normal(10, 1, psf.shape).astype(np.float32), ivar)
    config = ExtractConfig(wavelength=(6000.0, 6030.0, 1.0), nspec=3, bundlesize=3, tolerance=1e-3, core="dense")
    assert_as_on_cpu(by_host_core(image, psf, config, dense_part), extract(image, psf, config))


def by_host_core(image: Image, psf: PsfModel, config: ExtractConfig, part: Any) -> Frame:
    """The frame by a device with a core of the CPU."""
    core = type("Core", (HostCore,), {"job": staticmethod(lambda: prepare(psf, config)), "part": staticmethod(part)})
    return extract(image, psf, config, backend=GpuFrames(SimulatedDevice, core=core))


def test_upside_down_and_a_dropped_fibre() -> None:
    """y falling along wavelength, and a fibre whose trace is not finite."""
    case = four_bundles()
    psf, ny = case.psf, case.psf.shape[0]
    y = -psf.y.coeff
    y[:, 0] += ny - 1
    y[7, 1] = np.nan
    down = replace(psf, y=Legendre(y, psf.y.wmin, psf.y.wmax))
    image = Image(case.image.pix[::-1], case.image.ivar[::-1])
    frame = by_host_core(image, down, CONFIG, banded_part)
    assert_as_on_cpu(frame, extract(image, down, CONFIG))
    assert (frame.ivar[7] == 0).all() and list(frame.notes["dropped"]) == [7]
    assert set(frame.status[7]) == {Status.DROPPED}


@pytest.mark.parametrize("passes", [1, 2])
def test_a_band_that_no_core_knows_is_the_cpus(passes: int) -> None:
    """Bins of 0.42 Angstrom are too narrow for it. Rows are bitwise the CPU's, and no core was called."""
    device, (image, psf) = SimulatedDevice(), struck()
    config = ExtractConfig((6020.0, 6024.0, 0.42), tolerance=1e-2, passes=passes, nspec=10)
    frame, cpu = (extract(image, psf, config, backend=backend) for backend in (GpuFrames(lambda: device), None))
    assert frame is not None and cpu is not None
    assert_same_bits(frame, cpu)
    for notes in frame.notes["bundles"].values():
        assert notes["halfband"] > banded.NARROW and notes["on_cpu"] == notes["fibres"]
    assert not any(name.startswith(("measure.", "poles.")) for name in device.launched)


def test_every_kernel_was_launched() -> None:
    """So that none is only declared."""
    device = SimulatedDevice()
    image = four_bundles().image
    for dtype in (np.float32, np.float64):
        stored = Image(image.pix.astype(dtype), image.ivar.astype(dtype))
        with_device(device, core=HostCore, image=stored, dtype=np.dtype(dtype))
    with_device(device)
    image, psf = struck()[0], with_tail(struck()[1], 0.0003)
    twice = ExtractConfig(CONFIG.wavelength, tolerance=1e-4, passes=2, any_psf=True)
    for dtype in (np.float32, np.float64):      # of the read noise
        extract(replace(image, noise=np.asarray(image.noise, dtype)), psf, twice, backend=GpuFrames(
            lambda: device, core=host_core(lambda: prepare(psf, twice))))
    assert {kernel.name for kernel in all_kernels()} == device.launched


@pytest.mark.parametrize("seed", range(4))
def test_bits_do_not_depend_on_how_streams_take_turns(seed: int) -> None:
    frame = with_device(SimulatedDevice(seed=seed), core=HostCore, most=1, slots=2)
    assert_same(frame, on_device(HostCore))


@pytest.mark.parametrize("verb", ["upload", "download"])
def test_the_simulated_device_notices_a_copy_beside_the_stream(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the pixels or of the rows on its own stream, without a wait: otherwise the previous test shows nothing.
    (New pixels that overtake the previous piece, rows that are made while they are downloaded.)"""
    case, arguments = four_bundles(), (small_job(), SimpleNamespace(rank=0, size=1), Recorder())
    image = replace(case.image, pix=case.image.pix + 1)
    right = with_device(SimulatedDevice(), core=_Idle, image=image).chi2pix

    def differs(seed: int) -> bool:
        device = SimulatedDevice(seed=seed)
        backend = GpuFrames(lambda: device, core=_Idle, most=1, slots=2)
        backend.rows(case.image, *arguments)
        aside, honest = device.stream(), getattr(device, verb)
        monkeypatch.setattr(device, verb, lambda source, target, stream: honest(source, target, aside))
        with np.errstate(all="ignore"):
            return not np.array_equal(backend.rows(image, *arguments)[0][1].chi2pix, right)

    assert any(differs(seed) for seed in range(4))


class _Idle(HostCore):
    """A core that leaves its outputs unchanged."""

    def _work(self, normal: Any, out: Any) -> None:
        out.status.data[:] = 0


def test_cores_of_a_slot_work_in_the_same_memory() -> None:
    """A frame needs no more memory than its largest pieces, however many shapes there are."""
    device = SimulatedDevice()
    small, large = {"a": ((20, 2), np.float64)}, {"a": ((100,), np.float64), "b": ((3,), np.int32)}
    room = Slot(device, [small, large])
    one, other = room.views(small), room.views(large)
    assert device.used == 100 * 8 + 3 * 4
    assert np.shares_memory(one["a"].data, other["a"].data) and list(one) == ["a"]
    assert (one["a"].shape, other["b"].dtype) == ((20, 2), np.int32)


def test_pieces_hold_bundles_of_equal_shape() -> None:
    geometries = [bundle_geometry(small_job(), bundle, small_job().psf.shape) for bundle in small_job().plan.bundles]
    wide = replace(geometries[1], shape=replace(geometries[1].shape, hw=11))
    pieces = cut_pieces([geometries[0], wide, *geometries[2:], *geometries[2:]], 3)
    assert [piece.bundles for piece in pieces] == [(0,), (2, 3), (4, 5), (1,)]
    assert all(piece.shape.bundles == len(piece.bundles) for piece in pieces)


@pytest.mark.parametrize(("bundles", "most", "sizes"), [
    (20, 10, [4, 6, 6, 4]), (20, 5, [2, 4, 4, 4, 4, 2]), (20, 20, [20]), (4, 2, [1, 2, 1]), (3, 1, [1, 1, 1]),
    (1, 1, [1]), (2, 1, [1, 1])])
def test_the_first_and_the_last_piece_are_small(bundles: int, most: int, sizes: list[int]) -> None:
    geometry = bundle_geometry(small_job(), small_job().plan.bundles[0], small_job().psf.shape)
    pieces = cut_pieces([geometry] * bundles, most)
    assert [len(piece.bundles) for piece in pieces] == sizes
    assert sorted(n for piece in pieces for n in piece.bundles) == list(range(bundles))


def test_the_recorder_sees_copies_and_stages() -> None:
    case, device, recorder = four_bundles(), SimulatedDevice(), Recorder()
    backend = GpuFrames(lambda: device, core=HostCore)
    backend.watch(recorder)
    frame = extract(case.image, case.psf, CONFIG, backend=backend, recorder=recorder)
    record = recorder.record()
    pixels = [2 * 4 * g.pixels for g in backend.flow.task.geometries]
    assert record["copies"]["h2d"]["bytes"] == len(pixels) * max(pixels) < 1.1 * sum(pixels), "and every pixel up once"
    assert record["copies"]["h2d"]["calls"] == 3 and record["copies"]["d2h"]["calls"] == 6, "what is told, and rows"
    sizes = backend.flow.task.sizes
    told = 8 * (4 * number("STATE") + 2 * 20 + 4 * number("SEEN") + 4 * sizes.cut[0] * sizes.cut[1])     # and models
    rows = sum(getattr(frame, name).nbytes for name in BY_BIN)
    assert record["copies"]["d2h"]["bytes"] == told + rows, "every byte of the frame goes down once"
    assert {name for name, *_ in record["device"]["spans"]} >= {"pixels", "spots", "normal", "solve", "decorrelate",
                                                               "judge", "assemble"}
    assert record["device"]["memory"] == device.peak
