"""Two passes over a frame on a simulated device, compared with the CPU, and with themselves under every other way of
working. test_pass_kernels.py tests the kernels alone."""
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from device_case import host_core, struck
from simulated_device import SimulatedDevice
from test_gpu_frame import assert_same

from extraction import assert_same_bits, in_sigma, relative
from gpu_extract.assemble import assemble
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Card, Frame, Image, Light, PsfModel, SpecMask
from gpu_extract.device import drafts, frames
from gpu_extract.device.cuda.text import gradients
from gpu_extract.device.device_banded import BandedCore
from gpu_extract.device.frames import GpuFrames
from gpu_extract.device.told import is_undone
from gpu_extract.packing import repack
from gpu_extract.passes import missed
from gpu_extract.passes.read_noise import find_read_noise
from gpu_extract.perf.recorder import Recorder
from gpu_extract.run import _job, draft, extract, prepare
from gpu_extract.seams import Comm
from gpu_extract.simulate.frame import project_lines
from gpu_extract.simulate.troubles import with_tail
from gpu_extract.spots import add_to_image, make_spots

CONFIG = ExtractConfig(wavelength=(6026.0, 6068.0, 0.85), model=True, tolerance=1e-4, passes=2)
TAILED = replace(CONFIG, any_psf=True)


@cache
def on_cpu(config: ExtractConfig = CONFIG) -> Frame:
    image, psf = struck()
    return by_cpu(image, psf, config)


def by_cpu(image: Image, psf: PsfModel, config: ExtractConfig) -> Frame:
    frame = extract(image, psf, config)
    assert frame is not None
    return frame


@cache
def on_device() -> Frame:
    return with_device(SimulatedDevice())


def with_device(device: SimulatedDevice, *, image: Image | None = None, psf: PsfModel | None = None,
                config: ExtractConfig = CONFIG, dtype: Any = np.float64, **options: Any) -> Frame:
    """The frame by a device; all its memory must come back. core: None: one of the CPU, so that only the passes
    differ."""
    psf = psf or struck()[1]
    options["core"] = options.get("core") or host_core(lambda: prepare(psf, config))
    backend = GpuFrames(lambda: device, **options)
    frame = extract(image or struck()[0], psf, config, backend=backend, dtype=dtype)
    backend.close()
    assert device.used == 0 and frame is not None
    return frame


def assert_as_on_cpu(frame: Frame, cpu: Frame, *, by_cpu: Sequence[int] = (),
                     limits: Sequence[float] = (5e-9, 1e-9, 1e-9)) -> None:
    """Flux in sigma, ivar and R of 99.9 % of the bins; the same rejected pixels and masks.

    A pixel's expected light is in single precision: if two sums of it round differently, its variance differs by 6e-8,
    and that of a bin by some 1e-9. by_cpu: first fibres of bundles that the CPU may do
    """
    seen = cpu.pixmask_fraction < 0.5
    off = in_sigma(frame, cpu.flux)[seen], relative(frame.ivar, cpu.ivar)[seen], np.abs(
        frame.resolution - cpu.resolution).max(axis=1)[seen]
    for one, most in zip(off, limits, strict=True):
        assert np.quantile(one, 0.999) < most and one.max() < 4 * most
    for name in ("mask", "status"):
        np.testing.assert_array_equal(getattr(frame, name), getattr(cpu, name))
    np.testing.assert_allclose(frame.chi2pix[seen], cpu.chi2pix[seen], rtol=1e-5)
    np.testing.assert_array_equal(frame.notes["rejected"], cpu.notes["rejected"])
    assert {name: frame.notes[name] for name in ("passes", "read_noise")} == {
        name: cpu.notes[name] for name in ("passes", "read_noise")}
    for first, notes in cpu.notes["bundles"].items():
        own = frame.notes["bundles"][first]
        for name in ("passes", "rejected", "hopeless", "ran_away", "fibres", "halfband", "given_up"):
            assert own[name] == notes[name], (first, name)
    if frame.model is not None and cpu.model is not None:
        np.testing.assert_allclose(frame.model, cpu.model, rtol=1e-6, atol=1e-6 * np.abs(cpu.model).max())
    assert sorted(first for first, notes in frame.notes["bundles"].items() if notes.get("on_cpu")) == list(by_cpu)


def test_the_devices_core_gives_the_frame_of_the_cpu() -> None:
    """By the device's core, which itself differs this much beside masks in so few bins."""
    frame, cpu = with_device(SimulatedDevice(), core=BandedCore), on_cpu()
    assert_as_on_cpu(frame, cpu, limits=(1e-8, 2e-9, 2e-9))
    assert_as_on_cpu(on_device(), cpu)
    assert len(frame.notes["rejected"]) > 20 and [notes["hopeless"] for notes in frame.notes["bundles"].values()] == [
        1, 0, 0, 0]
    assert ((frame.mask & np.uint32(SpecMask.COSMIC)) > 0).sum() > 20 and frame.notes["device"] == "simulated device"


@pytest.mark.parametrize("settings", [{"psferr_in_ivar": True}, {"keep_cosmics": True}, {"psferr": 0.6}])
def test_settings_of_two_passes_act_as_on_the_cpu(settings: dict[str, Any]) -> None:
    config = replace(CONFIG, **settings)
    frame, cpu = with_device(SimulatedDevice(), config=config), on_cpu(config)
    assert_as_on_cpu(frame, cpu)
    assert in_sigma(cpu, on_cpu().flux).max() > 1e-3, "the setting matters"


@pytest.mark.parametrize("settings", [{}, {"keep_cosmics": True}])
def test_lines_that_the_model_misses(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two bins, which get the corresponding error, beside hits."""
    image, psf = struck()
    light, lines = np.zeros(image.shape), np.arange(6015.0, 6070.0, 13.0)
    add_to_image(light, make_spots(psf, (10, 20), lines), np.full((10, len(lines)), 3e4))
    pix = (image.pix + np.random.default_rng(1).poisson(light)).astype(image.pix.dtype)
    lined, config = replace(image, pix=pix), replace(CONFIG, **settings)
    cpu = by_cpu(lined, psf, config)
    assert_as_on_cpu(with_device(SimulatedDevice(), image=lined, config=config), cpu)
    monkeypatch.setattr(missed, "FAR", 1e9)
    assert in_sigma(cpu, by_cpu(lined, psf, config).flux).max() > 5.0, "they matter"


def test_read_noise_of_amplifiers_and_pixels_as_double() -> None:
    """Four amplifiers, which meet on the bundles."""
    image, psf = struck()
    cards = (*image.cards, *(Card(f"OBSRDN{name}", value, "") for name, value in zip("ABCD", (2.5, 3.0, 3.5, 4.0),
                                                                                  strict=True)))
    bare = replace(image, noise=None, cards=cards)
    assert find_read_noise(bare, psf.shape).source == "header"
    assert_as_on_cpu(with_device(SimulatedDevice(), image=bare), by_cpu(bare, psf, CONFIG))
    noise = np.asarray(image.noise, dtype=np.float64) * np.linspace(0.8, 1.2, image.shape[1])
    fine = replace(image, noise=noise.astype(">f8"), pix=image.pix.astype(">f8"))
    assert_as_on_cpu(with_device(SimulatedDevice(), image=fine),
                     by_cpu(replace(fine, noise=noise, pix=image.pix), psf, CONFIG))


@pytest.mark.parametrize(("radius", "amplitude"), [(40.0, 0.001), (16.0, 0.004)])
def test_tails_are_those_of_the_cpu(radius: float, amplitude: float) -> None:
    """In two layers, and in one."""
    image, psf = struck()
    psf, config = with_tail(psf, amplitude), replace(TAILED, tail_radius=radius)
    frame, cpu = with_device(SimulatedDevice(), psf=psf, config=config), by_cpu(image, psf, config)
    assert_as_on_cpu(frame, cpu)
    without = by_cpu(image, psf, replace(config, tail_radius=0.0))
    assert in_sigma(without, cpu.flux).max() > 1.0, "they matter"
    assert_as_on_cpu(with_device(SimulatedDevice(), psf=psf, config=replace(config, tail_radius=0.0)), without)


def test_beyond_the_edges_of_the_ccd() -> None:
    """Bins off it at both ends: light without a pixel counts in the model's possible error."""
    image, psf = struck()
    low, high = psf.wavelength_range
    config = replace(CONFIG, wavelength=(low + 1.0, min(low + 70.0, high), 0.85), tolerance=1e-3)
    rng = np.random.default_rng(5)
    pix = image.pix.copy()
    hits = rng.integers(0, 4, 30), rng.integers(0, image.shape[1], 30)
    pix[hits] += rng.uniform(20, 300, 30).astype(pix.dtype)
    struck_there = replace(image, pix=pix)
    cpu = by_cpu(struck_there, psf, config)
    assert_as_on_cpu(with_device(SimulatedDevice(), image=struck_there, config=config), cpu)


def test_bright_bundles_beside_bent_traces() -> None:
    """Pixels that the next bundle's fibres cross are left out: many of those stood out, and no hit was found."""
    psf = struck()[1]
    coeff = psf.x.coeff.copy()
    coeff[:, 2] += 6.0
    psf, wave = replace(psf, x=replace(psf.x, coeff=coeff)), np.arange(*psf.wavelength_range, 0.4)
    level = np.where(np.arange(psf.nfibre) // 5 % 2, 2000.0, 50.0)[:, None]
    light, rng = np.zeros(psf.shape), np.random.default_rng(4)
    project_lines(light, psf, (0, psf.nfibre), wave, level + 0.0 * wave)
    pix = rng.normal(light, np.sqrt(light + 9.0)) + 500.0 * (rng.random(light.shape) < 1e-3)
    image = Image(pix, 1 / (light + 9.0), noise=np.full(light.shape, 3.0, np.float32), read_noise=3.0)
    cpu = by_cpu(image, psf, CONFIG)
    assert_as_on_cpu(with_device(SimulatedDevice(), image=image, psf=psf), cpu)
    assert len(cpu.notes["rejected"]) > 5 and not any(notes["hopeless"] for notes in cpu.notes["bundles"].values())


@pytest.mark.parametrize(("most", "slots"), [(1, 1), (1, 3), (4, 1)])
def test_bits_do_not_depend_on_pieces_or_slots(most: int, slots: int) -> None:
    assert_same(with_device(SimulatedDevice(), most=most, slots=slots), on_device())


@pytest.mark.parametrize("options", [
    {"order": 0.0, "garbage": 0x7F, "seed": 1}, {"order": 0.382, "garbage": 0xFF, "seed": 2}, {"order": 0.0},
    {"order": 0.382}, {"garbage": 0x00}, {"garbage": 0x7F}, {"garbage": 0xFF}, {"seed": 1}, {"seed": 2}])
def test_bits_do_not_depend_on_what_a_device_may_do(options: dict[str, Any]) -> None:
    """Order of lanes, previous content of memory, streams that run ahead; also with tails' own kernels. All at once, as
    none of them excuses another; one by one tells which it is."""
    assert_same(with_device(SimulatedDevice(**options), most=1, slots=2), on_device())
    psf = with_tail(struck()[1], 0.0003)
    tailed = with_device(SimulatedDevice(**options), psf=psf, config=TAILED, most=1, slots=2)
    assert_same(tailed, with_tails())


@cache
def tailed_on_cpu() -> Frame:
    return by_cpu(struck()[0], with_tail(struck()[1], 0.0003), TAILED)


@cache
def with_tails() -> Frame:
    return with_device(SimulatedDevice(), psf=with_tail(struck()[1], 0.0003), config=TAILED)


class Ranks(Comm):
    """Ranks that are threads: messages are packed."""

    def __init__(self, rank: int, all_of: Any):
        self.rank, self.size, self._all = rank, len(all_of.items), all_of

    def gather(self, items: Any) -> Any:
        self._all.items[self.rank] = repack(list(items))
        self._all.barrier.wait()
        found = sorted((item for part in self._all.items for item in part), key=lambda item: item[0])
        self._all.barrier.wait()
        return [value for _, value in found] if self.rank == 0 else None

    def share(self, make: Callable[[], Any]) -> Any:
        if self.rank == 0:
            self._all.shared = repack(make())
        self._all.barrier.wait()
        found = self._all.shared
        self._all.barrier.wait()
        return found


def by_ranks(size: int, psf: PsfModel, config: ExtractConfig, memory: Sequence[int], **options: Any) -> Frame:
    """The frame by this many ranks, each with its own device with this much memory."""
    image, job = struck()[0], _job(struck()[0], psf, config, 1, np.float64)
    parts: list[Any] = [[] for _ in range(size)]
    all_of = type("All", (), {"items": [None] * size, "barrier": threading.Barrier(size, timeout=300)})()

    def work(rank: int) -> None:
        backend = GpuFrames(lambda: SimulatedDevice(memory[rank]), threads=1, **options)
        parts[rank] = backend.rows(image, job, Ranks(rank, all_of), Recorder())
        backend.close()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = [part for own in parts for _, part in own]
    notes = {"bundles": {first: facts for part in rows for first, facts in part.notes.items()},
             "rejected": np.concatenate([part.rejected for part in rows])}
    return assemble(rows, job.plan, image, notes, like=(job.ndiag, job.dtype))


@pytest.mark.parametrize("size", [2, 4, 5])
def test_bits_do_not_depend_on_ranks(size: int) -> None:
    """Their bundles exchange the light on their pixels, including tails; a surplus rank has none."""
    memory = [1 << 34] * size
    frame = by_ranks(size, struck()[1], CONFIG, memory, core=host_core(lambda: prepare(struck()[1], CONFIG)))
    assert_same(frame, on_device())
    np.testing.assert_array_equal(frame.notes["rejected"], on_device().notes["rejected"])
    psf = with_tail(struck()[1], 0.0003)
    assert_same(by_ranks(size, psf, TAILED, memory, core=host_core(lambda: prepare(psf, TAILED))), with_tails())


@pytest.mark.parametrize("size", [1, 4])
def test_fibres_have_the_bits_of_the_whole_frame(size: int) -> None:
    """For two bundles; those beside them are drafted for their light, also by ranks without other work."""
    psf = with_tail(struck()[1], 0.0003)
    config, core = replace(TAILED, specmin=8, nspec=4, model=False), host_core(lambda: prepare(psf, TAILED))
    part = by_ranks(size, psf, config, [1 << 34] * size, core=core)
    assert_same_bits(part, with_tails(), other_rows=slice(8, 12))
    whole = with_tails().notes["bundles"]
    assert part.notes["bundles"] == {first: whole[first] for first in (5, 10)}


def test_a_rank_without_memory_takes_part() -> None:
    """It works on the CPU, and sends its light to the others; a rank that starts again has received theirs already."""
    psf = with_tail(struck()[1], 0.0003)
    frame = by_ranks(2, psf, TAILED, [100_000, 1 << 34], core=host_core(lambda: prepare(psf, TAILED)))
    cpu = tailed_on_cpu()
    assert_as_on_cpu(replace(frame, notes={**cpu.notes, **frame.notes}), cpu, by_cpu=(0, 5))


def test_without_memory_the_cpu_does_it() -> None:
    told: list[str] = []
    frame = with_device(SimulatedDevice(100_000), warn=told.append)
    assert_same(frame, on_cpu())
    np.testing.assert_array_equal(frame.notes["rejected"], on_cpu().notes["rejected"])
    assert len(told) == 1 and "works on the CPU" in told[0]


def test_with_little_memory_in_small_pieces() -> None:
    """Down to one bundle at a time: the frame keeps the same of its passes, and its slots are smaller."""
    device = SimulatedDevice()
    with_device(device)
    assert_same(with_device(SimulatedDevice(device.peak * 3 // 4)), on_device())


def test_one_frame_after_another() -> None:
    """Graphs of both passes, replayed; nothing is left of the previous frame. With a recorder there are none."""
    (image, psf), device = struck(), SimulatedDevice(seed=1)
    config = replace(CONFIG, keep_odd=True)
    backend = GpuFrames(lambda: device, core=host_core(lambda: prepare(psf, config)), most=1, slots=2)
    other = replace(image, pix=(1.2 * image.pix).astype(np.float32), noise=1.5 * np.asarray(image.noise))
    counts = []
    for one in (image, other, image):
        frame = extract(one, psf, config, backend=backend)
        counts.append(device.replayed)
    assert counts == [0, 8, 16]
    assert_same(frame, with_device(SimulatedDevice(), config=config))
    backend.watch(recorder := Recorder())
    assert_same(extract(image, psf, config, backend=backend, recorder=recorder), frame)
    backend.close()
    assert device.used == 0 and device.replayed == 16
    assert {name for name, *_ in recorder.record()["device"]["spans"]} >= {"pixels", "solve", "tails", "draft",
                                                                          "decorrelate", "judge", "assemble"}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_odd_pixels_are_masked_in_both_passes(dtype: Any) -> None:
    """They are found in the first pass, and masked in both."""
    image, psf = struck()
    pix = image.pix.copy()
    pix[96, int(np.nonzero(image.ivar[96, 20:])[0][0]) + 20] = 3e38
    odd = replace(image, pix=pix)
    frame, cpu = with_device(SimulatedDevice(), image=odd, dtype=dtype), extract(odd, psf, CONFIG, dtype=dtype)
    assert cpu is not None and any("odd_pixels" in notes for notes in frame.notes["bundles"].values())
    np.testing.assert_array_equal(frame.mask, cpu.mask)
    np.testing.assert_array_equal(frame.notes["rejected"], cpu.notes["rejected"])


def test_bundles_that_the_device_cannot_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU drafts one, whose light is uploaded, and makes its spectra from the device's light of the others."""
    honest = drafts.is_cpus
    monkeypatch.setattr(drafts, "is_cpus", lambda facts, fibres, *args: fibres[0] == 5 or honest(facts, fibres, *args))
    assert_as_on_cpu(with_device(SimulatedDevice(), threads=2), on_cpu(), by_cpu=[5])
    psf = with_tail(struck()[1], 0.0003)
    assert_as_on_cpu(with_device(SimulatedDevice(), psf=psf, config=TAILED), tailed_on_cpu(), by_cpu=[5])


@pytest.mark.parametrize("tailed", [False, True])
def test_bundles_that_the_device_cannot_finish(tailed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU gets the device's results of the first pass."""
    honest = frames.is_cpus
    monkeypatch.setattr(frames, "is_cpus", lambda facts, fibres, *args: fibres[0] == 10 or honest(facts, fibres, *args))
    given: dict[str, Any] = {"psf": with_tail(struck()[1], 0.0003), "config": TAILED} if tailed else {}
    assert_as_on_cpu(with_device(SimulatedDevice(), **given), tailed_on_cpu() if tailed else on_cpu(), by_cpu=[10])


def test_bright_hits_are_found_in_the_first_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that the CPU finds in it, and no faint ones; the CPU gets them if it has to finish a bundle."""
    image, psf = struck()
    pix, rng = image.pix.copy(), np.random.default_rng(4)
    pix[rng.integers(60, 130, 20), rng.integers(0, image.shape[1], 20)] += 10.0 ** rng.uniform(1.5, 5.0, 20)
    light = np.asarray(image.noise)**2 + np.maximum(pix, 0)
    hit = replace(image, pix=pix, ivar=np.where(image.ivar > 0, 1 / light, 0).astype(np.float32))
    start = draft(hit, psf, CONFIG)
    cpu = by_cpu(hit, psf, CONFIG)
    assert_as_on_cpu(with_device(SimulatedDevice(), image=hit), cpu)
    told: dict[int, Light] = {}
    honest, known = frames.is_cpus, drafts.Drafts.light
    monkeypatch.setattr(frames, "is_cpus", lambda facts, fibres, *args: fibres[0] >= 10 or honest(facts, fibres, *args))
    monkeypatch.setattr(drafts.Drafts, "light", lambda self, n: told.setdefault(n, known(self, n)))
    assert_as_on_cpu(with_device(SimulatedDevice(), image=hit), cpu, by_cpu=(10, 15))
    assert list(told) == [2, 3]
    for number, light in told.items():
        np.testing.assert_array_equal(light.rejected, start.lights[number].rejected)
    assert 5 < sum(len(light.rejected) for light in told.values()) < len(cpu.notes["rejected"])


@pytest.mark.parametrize("tailed", [False, True])
def test_bundles_that_need_more_iterations_have_them(tailed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In both passes, in each of which pieces are queued again, with the same light around them."""
    given: dict[str, Any] = {"psf": with_tail(struck()[1], 0.0003), "config": TAILED} if tailed else {}
    enough = with_tails() if tailed else on_device()
    monkeypatch.setattr("gpu_extract.device.steps.iterations_for", lambda _: 3)
    told: list[str] = []
    assert_same(with_device(SimulatedDevice(), warn=told.append, slots=2, **given), enough)
    assert not told


@pytest.mark.parametrize("names", [("state",), ("state", "tail_state")])
def test_each_solution_counts(names: tuple[str, ...]) -> None:
    states = {name: np.zeros((2, gradients.STATE)) for name in names}
    assert not is_undone(states)
    states[names[-1]][1, gradients.UNDONE] = 1.0
    assert is_undone(states)


def test_bundles_that_do_not_converge_are_the_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_extract.device.steps.iterations_for", lambda _: 0)
    told: list[str] = []
    assert_same_bits(with_device(SimulatedDevice(), warn=told.append), on_cpu())
    assert len(told) == 4 and all("did not converge" in line for line in told), "each is said once"


def test_a_solution_that_no_model_can_be_made_of_is_the_cpus() -> None:
    """Light of 1e34 electrons, in a pixel that does not count as odd."""
    image, psf = struck()
    pix = image.pix.copy()
    pix[96, 30:34] = 1e34
    config, wild = replace(CONFIG, keep_odd=True, model=False), replace(image, pix=pix)
    frame, cpu = with_device(SimulatedDevice(), image=wild, config=config), by_cpu(wild, psf, config)
    assert_as_on_cpu(frame, cpu, by_cpu=[first for first, notes in cpu.notes["bundles"].items() if notes["ran_away"]])
    assert sum(notes["ran_away"] for notes in frame.notes["bundles"].values()) > 0


def test_fibres_that_the_core_gives_up() -> None:
    """The CPU makes them from the device's pixels; their bundles' masks have all bits."""
    image, psf = struck()
    job = prepare(psf, CONFIG)
    frame, cpu = with_device(SimulatedDevice(seed=3), core=host_core(lambda: job, (1, 4)), most=1, slots=2), on_cpu()
    assert [notes.get("on_cpu", 0) for notes in frame.notes["bundles"].values()] == [2] * 4
    assert_as_on_cpu(replace(frame, model=None), cpu, by_cpu=(0, 5, 10, 15))
    psf = with_tail(psf, 0.0003)
    backend = GpuFrames(SimulatedDevice, core=host_core(lambda: prepare(psf, TAILED), (1, 4)), most=1)
    assert_as_on_cpu(extract(image, psf, TAILED, backend=backend), tailed_on_cpu(), by_cpu=(0, 5, 10, 15),
                     limits=(1e-7, 1e-9, 1e-9))      # sums of tails on the CPU: of stamps in single precision, 6e-8
