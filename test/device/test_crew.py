"""Work that a device leaves to the CPU, on several threads: the same bits, and no work that outlives a frame."""
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from random import Random
from typing import Any

import numpy as np
import pytest
from device_case import CONFIG, HostCore, four_bundles, on_cpu, on_device, small_job, with_device
from simulated_device import SimulatedDevice

from extraction import assert_same_bits
from gpu_extract.cli.device import threads_of
from gpu_extract.data import Frame
from gpu_extract.device import remedy
from gpu_extract.device.crew import Crew
from gpu_extract.device.frames import GpuFrames
from gpu_extract.errors import InputError
from gpu_extract.perf.recorder import Recorder
from gpu_extract.ranks.comm import SERIAL
from gpu_extract.run import extract
from gpu_extract.seams import NULL

LOST = 0, 1, 2, 3, 4, 6, 9      # of each piece: all of its first bundle, and two of the second, if there is one
SOON = 10                       # seconds: more than any of these waits should take


class Loses(HostCore):
    """A core that gives up those of LOST that are in a piece."""

    lost: tuple[int, ...] = LOST

    def __init__(self, device: SimulatedDevice, shape: Any, *, room: Any = None):
        super().__init__(device, shape, room=room)
        self.fails = tuple(n for n in self.lost if n < shape.fibres)


class LosesSome(Loses):
    lost = 1, 3, 6, 9


def by(threads: int, core: Any = Loses, **options: Any) -> Frame:
    """The frame of four bundles, with the work that `core` leaves done by this many threads."""
    return with_device(SimulatedDevice(seed=1), core=core, most=2, threads=threads, **options)


@cache
def alone(core: Any = Loses) -> Frame:
    """The same by one thread."""
    return by(1, core)


def assert_same(frame: Frame, other: Frame) -> None:
    """Bitwise, including models and notes."""
    assert_same_bits(frame, other)
    np.testing.assert_array_equal(frame.model, other.model)
    assert frame.notes["bundles"] == other.notes["bundles"] and list(frame.notes["bundles"]) == [0, 5, 10, 15]


@pytest.mark.parametrize("core", [Loses, LosesSome])
@pytest.mark.parametrize("threads", [2, 4, 9])
def test_bits_do_not_depend_on_threads(threads: int, core: Any) -> None:
    """Of whole bundles, or of fibres. With 9 threads, more than there are bundles, several make the normal equations of
    one."""
    frame, cpu = by(threads, core), on_cpu()
    assert_same(frame, alone(core))
    lost = [notes.get("on_cpu", 0) for notes in frame.notes["bundles"].values()]
    assert lost == ([5, 5, 5, 2] if core is Loses else [2, 2, 2, 2])
    rows = [1, 3, 6, 8, 11, 13, 16, 19] if core is LosesSome else [*range(15), 16, 19]
    for name in ("flux", "ivar", "resolution", "status", "mask"):
        np.testing.assert_array_equal(getattr(frame, name)[rows], getattr(cpu, name)[rows])


def test_bits_do_not_depend_on_who_is_done_first(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = Random(3)
    slow(monkeypatch, "banded_part", lambda: dice.uniform(0, 0.05))
    slow(monkeypatch, "extract_bundle", lambda: dice.uniform(0, 0.1))
    slow(monkeypatch, "locate", lambda: dice.uniform(0, 0.1))
    for core in (Loses, LosesSome):
        assert_same(by(4, core), alone(core))


def slow(monkeypatch: pytest.MonkeyPatch, name: str, seconds: Callable[[], float]) -> None:
    """Make a function of the remedy wait before it begins."""
    honest = getattr(remedy, name)

    def late(*args: Any, **options: Any) -> Any:
        time.sleep(seconds())
        return honest(*args, **options)

    monkeypatch.setattr(remedy, name, late)


def test_odd_pixels_stay_marked() -> None:
    """Also in bundles with lost fibres: their bits are set after the mask is made."""
    case = four_bundles()
    pix = case.image.pix.copy()
    pix[96, int(np.nonzero(case.image.ivar[96, 20:])[0][0]) + 20] = 3e38
    image = replace(case.image, pix=pix)
    frame, cpu = by(4, LosesSome, image=image), extract(image, case.psf, CONFIG)
    assert cpu is not None and any("odd_pixels" in notes for notes in frame.notes["bundles"].values())
    np.testing.assert_array_equal(frame.mask, cpu.mask)


def test_without_memory_all_threads_do_the_bundles() -> None:
    told: list[str] = []
    frame = with_device(SimulatedDevice(100_000), warn=told.append, threads=3)
    assert_same(frame, with_device(SimulatedDevice(100_000), threads=1))
    assert_same_bits(frame, on_cpu())
    assert len(told) == 1


def test_an_error_ends_the_frame_and_no_work_outlives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is raised unchanged; the next frame is not affected."""
    running, ends, honest, lock = [0], [0], remedy.banded_part, threading.Lock()

    def part(normal: Any, x: Any, job: Any, fibres: tuple[int, int], *args: Any) -> Any:
        with lock:
            running[0] += 1
        try:
            if fibres == (3, 4):
                raise InputError("this fibre is wrong")
            time.sleep(0.2)
            return honest(normal, x, job, fibres, *args)
        finally:
            with lock:
                running[0], ends[0] = running[0] - 1, ends[0] + 1

    case, device = four_bundles(), SimulatedDevice()
    backend = GpuFrames(lambda: device, core=LosesSome, most=2, threads=4)
    with monkeypatch.context() as patch:
        patch.setattr(remedy, "banded_part", part)
        with pytest.raises(InputError, match=r"^this fibre is wrong$"):
            extract(case.image, case.psf, CONFIG, backend=backend)
        assert running[0] == 0 and ends[0] < 8
        time.sleep(0.3)
        assert running[0] == 0, "nothing was begun later"
    frame = extract(case.image, case.psf, CONFIG, backend=backend)
    backend.close()
    assert frame is not None
    assert_same(frame, alone(LosesSome))


def test_an_error_beside_the_works_drops_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interruption while pieces are awaited: running jobs end first, and jobs that have not started never do."""
    crew, begun, go = Crew(2), list[int](), threading.Event()

    def work(n: int) -> None:
        begun.append(n)
        go.wait(SOON)
        begun.append(-n)

    def interrupted() -> None:
        with crew.nothing_left():
            crew.add([partial(work, n) for n in range(1, 9)])
            while len(begun) < 2:
                time.sleep(0.001)
            threading.Timer(0.1, go.set).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert sorted(begun) == [-2, -1, 1, 2]
    crew.add([partial(begun.append, 7)])
    crew.finish()
    assert begun[-1] == 7
    crew.close()


def test_an_error_of_a_work_drops_those_that_were_not_begun() -> None:
    """One of two threads is busy until the other has failed."""
    crew, done, failed = Crew(2), list[int](), threading.Event()

    def fails() -> None:
        failed.set()
        raise InputError("no")

    def waits() -> None:
        done.append(int(failed.wait(SOON)))
        time.sleep(0.1)

    crew.add([waits, fails, *[partial(done.append, n) for n in range(2, 9)]])
    with pytest.raises(InputError):
        crew.finish()
    crew.finish()
    crew.close()
    assert done == [1]


def test_models_are_added_in_the_order_of_the_bundles() -> None:
    """Sums of several depend on the order, whoever made them, and when."""
    backend = GpuFrames(SimulatedDevice, core=Loses, most=2, threads=4)
    ((_, rows),) = backend.rows(four_bundles().image, small_job(), SERIAL, NULL)
    backend.close()
    first = [x for _, (_, x) in rows.models]
    assert len(first) == 4 and first == sorted(first)


def test_all_threads_work_at_once_and_stay() -> None:
    """A barrier that four must reach; after `close` there are new threads."""
    crew, meet, names = Crew(4), threading.Barrier(4), set[str]()

    def work() -> None:
        meet.wait(SOON)
        names.add(threading.current_thread().name)

    for _ in range(2):
        crew.add([work] * 4)
        crew.finish()
        assert len(names) == 4 and crew.share == 4
    crew.close()
    assert not any(thread.name in names for thread in threading.enumerate())
    crew.add([work] * 4)
    crew.finish()
    crew.close()


def test_what_a_work_adds_comes_first() -> None:
    """One of two threads is held, so that the other does the rest in order."""
    crew, order, go = Crew(2), list[str](), threading.Event()

    def bundle(name: str) -> None:
        order.append(name)
        crew.add([partial(order.append, f"{name}{n}") for n in (1, 2)], first=True)

    crew.add([lambda: assert_true(go.wait(SOON))])
    crew.add([partial(bundle, name) for name in "ab"])
    while len(order) < 6:
        time.sleep(0.001)
    go.set()
    crew.finish()
    crew.close()
    assert order == ["a", "a1", "a2", "b", "b1", "b2"]


def assert_true(value: bool) -> None:
    assert value


def test_one_thread_is_the_callers() -> None:
    crew, found = Crew(1), list[Any]()
    crew.add([lambda: found.append(threading.current_thread())])
    assert found == [threading.current_thread()] and crew.share == 1
    with pytest.raises(ZeroDivisionError), crew.nothing_left():
        crew.add([lambda: found.append(1 // 0)])


def test_each_takes_every_item_and_raises_the_error_of_one() -> None:
    for threads in (1, 3):
        crew, found = Crew(threads), list[int]()
        crew.each(found.append, range(10), 4)
        assert sorted(found) == list(range(10))
        crew.each(found.append, [], 4)
        with pytest.raises(ZeroDivisionError):
            crew.each(lambda n: 1 // n, [1, 0, 2], 4)
        crew.close()


def test_the_record_says_how_long_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one thread is in the record; its waiting is included."""
    slow(monkeypatch, "locate", lambda: 0.3)
    for threads in (1, 4):
        recorder, case, device = Recorder(), four_bundles(), SimulatedDevice()
        backend = GpuFrames(lambda device=device: device, core=LosesSome, threads=threads)
        extract(case.image, case.psf, CONFIG, backend=backend, recorder=recorder)
        backend.close()
        assert recorder.seconds("left to the CPU") > 0.25
        assert {thread for *_, thread in recorder.record()["spans"]} == {0}


def test_nothing_starts_where_nothing_is_left() -> None:
    before = threading.active_count()
    device = SimulatedDevice()
    backend = GpuFrames(lambda: device, core=HostCore, threads=4)
    frame = extract(four_bundles().image, four_bundles().psf, CONFIG, backend=backend)
    assert threading.active_count() <= before + 4, "who copies pixels"
    backend.close()
    assert threading.active_count() <= before and frame is not None
    assert_same_bits(frame, on_device(HostCore))


@pytest.mark.parametrize(("cores", "ranks", "threads"), [
    (range(8), [range(8)], 8),
    (range(8), [range(8)] * 3, 2),
    (range(2), [range(8)] * 4, 1),
    (range(4, 8), [range(4), range(4, 8)], 4),
    ([0, 1, 2, 3], [[0, 1, 2, 3], [3, 4], [5]], 2),
    ([5], [range(4)], 1)])
def test_the_threads_of_a_rank(cores: Any, ranks: Any, threads: int) -> None:
    """Ranks without their own cores share all cores; bound ones have theirs."""
    assert threads_of(cores, ranks) == threads
