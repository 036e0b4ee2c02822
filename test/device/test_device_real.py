"""device.cuda.real, which otherwise needs a GPU: a frame through it, with a stand-in for cupy.

This does not show what cupy and a GPU do, but that requests through the seam fit together.
"""
from dataclasses import replace

import numpy as np
import pytest
import standin_gpu
from gpu_checks import small_frames
from simulated_device import SimulatedDevice

from gpu_extract.assemble import BY_BIN
from gpu_extract.device.cuda.text import gradients, sweeps
from gpu_extract.perf.recorder import Recorder


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch):      # type: ignore[no-untyped-def]
    """The module, with the stand-in for cupy."""
    standin_gpu.install(monkeypatch)
    from gpu_extract.device.cuda import real

    return real


def test_a_frame_as_on_the_simulated_device(real) -> None:      # type: ignore[no-untyped-def]
    """The same bits, in the types of files; memory comes back; the host waits for events of pieces and, at the end, for
    the device."""
    device = real.CupyDevice(0, 1 << 30)
    frame, exact = small_frames(device, dtype="float32")
    wanted, _ = small_frames(SimulatedDevice())
    for name in BY_BIN:
        found = getattr(frame, name)
        np.testing.assert_array_equal(found, getattr(wanted, name).astype(found.dtype), err_msg=name)
    assert frame.flux.dtype == np.float32
    assert (np.abs(wanted.flux - exact.flux) * np.sqrt(exact.ivar)).max() < 1e-8
    assert device._pool.used_bytes() == 0 == device.memory()
    closed = standin_gpu.CALLS.index("deviceSynchronize")
    assert standin_gpu.CALLS[closed:] == ["deviceSynchronize", "free_all_blocks", "free_all_blocks"]
    assert set(standin_gpu.CALLS[:closed]) == {"event.synchronize"}
    assert closed == 4, "a wait for tables of core, PSF and piece, one for the piece: none for kernels or copies"


def test_a_graph_keeps_its_work_and_executes_it_on_replay(real) -> None:      # type: ignore[no-untyped-def]
    """Kernels, copies and clearings are kept, not executed; a replay executes them in the memory of that time."""
    device = real.CupyDevice(0)
    stream, source, target = device.stream(), device.pinned((64,)), device.pinned((64,))
    there, halves = device.empty((1, 64)), device.empty((1, 64))
    sums, rest, state, flags = (device.empty(shape) for shape in ((64,), (64,), (1, gradients.STATE), (64,)))

    def work() -> None:
        device.upload(source, there.seen_as((64,), np.float64), stream)
        device.clear(halves, stream)
        device.launch(gradients.step, 64, (sums, rest, there, there, state.part(0, 1), state, 1, 64), stream)
        device.launch(sweeps.precondition_down.sized(1), 1, (
            halves.seen_as((64,), np.float64), there.seen_as((64,), np.float64), there.seen_as((64,), np.float64),
            flags.seen_as((64,), np.int32), state, gradients.STATE, 1, 2, 2, 2, 1), stream)
        device.download(halves.seen_as((64,), np.float64), target, stream)

    source[:], sums.data[:], state.data[:], flags.data[:], target[:] = 0.0, 1.0, 1.0, 0.0, -1.0
    work()
    np.testing.assert_array_equal(target, 0)
    graph = device.capture(work, stream)
    source[:2], target[:] = (5.0, 0.0), -1.0
    assert (sums.data == 1).all() and (target == -1).all(), "nothing is done while it is captured"
    for _ in range(2):
        device.replay(graph, stream)
    assert sums.data[0] == 1.0 + 2 * 5.0 and (sums.data[1:] == 1).all(), "added to twice, from pixels of now"
    assert target[0] == 5.0 and not target[2:].any()
    assert standin_gpu.CALLS == ["begin_capture", "graph of few", "graph of few"]


def test_no_lane_is_no_launch(real) -> None:      # type: ignore[no-untyped-def]
    """A GPU refuses a grid of no block; a number of an unknown kind is refused before it gets there."""
    device = real.CupyDevice(0)
    sums = device.empty((4,))
    sums.data[:] = 1.0
    device.launch(gradients.add_parts, 0, (sums, device.empty((4, 2)), 2, 0), device.stream())
    assert (sums.data == 1).all()
    short = replace(gradients.add_parts, kinds=("f8[]", "f8[]", "i4", "i8"))
    with pytest.raises(KeyError, match="i4"):
        device.launch(short, 4, (sums, device.empty((4, 2)), 2, 0), device.stream())


def test_a_capture_that_fails_leaves_the_stream_as_it_was(real) -> None:      # type: ignore[no-untyped-def]
    device = real.CupyDevice(0)
    stream, source, there = device.stream(), device.pinned((4,)), device.empty((4,))

    def work() -> None:
        raise RuntimeError("cudaErrorStreamCaptureUnsupported")

    with pytest.raises(RuntimeError, match="Unsupported"):
        device.capture(work, stream)
    source[:] = 3.0
    device.upload(source, there, stream)
    assert (there.data == 3).all()


def test_no_memory_is_not_all_memory(real) -> None:      # type: ignore[no-untyped-def]
    """For cupy a limit of 0 means no limit."""
    device = real.CupyDevice(0, 0)
    assert device._pool.limit == 1
    with pytest.raises(MemoryError) as caught:
        device.empty((100,))
    assert device.is_out_of_memory(caught.value)


def test_what_the_recorder_asks_for(real) -> None:      # type: ignore[no-untyped-def]
    device, recorder = real.CupyDevice(0), Recorder()
    recorder.watch(device, ranges=True)
    with device.current(device.stream()), recorder.device_span("stage"):
        pass
    assert standin_gpu.CALLS == ["push stage", "pop"]
    record = recorder.record()["device"]
    assert record["facts"]["name"] == "Stand-in" and record["spans"][0][0] == "stage"


def test_pinned_memory_is_given_again(real) -> None:      # type: ignore[no-untyped-def]
    """The pool identifies a block by its size alone, so arrays of similar size use blocks of one size."""
    device = real.CupyDevice(0)
    sizes = {device.pinned((n,), np.uint8).base.nbytes for n in (70_000_001, 70_000_999, 72_000_000)}
    assert len(sizes) == 1
    assert device.pinned((3, 0)).shape == (3, 0) and device.pinned((2, 5), np.float32).dtype == np.float32
