"""The flow of a rank's bundles through a device.

Pieces go round over a few slots of memory. Uploads are on one stream, downloads on another, and every slot works on a
stream of its own, so that the next piece comes up and the one before goes down while this one is worked on, and the
long recursions of one piece leave room for the other slots' kernels. Everything is queued piece after piece without a
wait; the host then takes the results in order, while later pieces are still worked on.
"""
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np

from gpu_extract.backend.cuda.piece import PieceNormal, PieceOut, PieceShape
from gpu_extract.backend.cuda.seam import Device, DeviceArray
from gpu_extract.bundle import Job
from gpu_extract.data import Image
from gpu_extract.gpu_frame.geometry import BundleGeometry, Piece, PsfTables
from gpu_extract.gpu_frame.memory import Sizes, Slot, input_arrays, output_arrays, work_arrays
from gpu_extract.gpu_frame.steps import Steps
from gpu_extract.perf.recorder import TO_DEVICE, TO_HOST

INPUTS = ("pixels", "cuts", "y0", "x0")


class Core(Protocol):
    """A core on the device: its work memory is made once, for pieces of one shape."""

    def run(self, normal: PieceNormal, out: PieceOut, stream: Any, recorder: Any) -> None:
        """Queue the decorrelation of a piece; recorder: times its steps."""


class CoreMaker(Protocol):
    """Makes cores; the class of one."""

    def __call__(self, device: Device, shape: PieceShape) -> Core:
        """A core with its work memory."""


@dataclass(frozen=True)
class Task:
    """What a rank has to do: bundles of a job, their geometry, the PSF's tables, sizes that fit all.

    rows: of an image
    """

    job: Job
    geometries: tuple[BundleGeometry, ...]
    tables: PsfTables
    sizes: Sizes
    rows: int


class Flow:
    """Memory, streams and events for a task, cut into `pieces` that go round over `slots` slots.

    What it allocates is freed when it is forgotten; that must not be before `Device.close` or all results were taken.
    """

    def __init__(self, device: Device, task: Task, pieces: Sequence[Piece], *, slots: int, make_core: CoreMaker):
        self.device, self.task, self.pieces = device, task, pieces
        shapes = list(dict.fromkeys(piece.shape for piece in pieces))
        plans = [self._plan(shape) for shape in shapes]
        count = min(slots, len(pieces))
        self._slots = [_Place(device, plans) for _ in range(count)]
        self._cores = {(s, shape): make_core(device, shape) for s in range(count) for shape in shapes}
        self._up, self._down = device.stream(), device.stream()
        tables = task.tables
        self._tables = [_Table(device, array) for array in (tables.series, tables.domain, tables.basis)]
        self._staged = [{name: device.pinned(*array) for name, array in input_arrays(p.shape, task.sizes).items()}
                        for p in pieces]
        self.results = [{name: device.pinned(*array) for name, array in output_arrays(p.shape, task.sizes).items()}
                        for p in pieces]
        self._ready = [device.event() for _ in pieces]
        for piece, staged in zip(pieces, self._staged, strict=True):
            for n, bundle in enumerate(piece.bundles):
                geometry = task.geometries[bundle]
                rows = slice(n * piece.shape.nfibre, (n + 1) * piece.shape.nfibre)
                staged["cuts"][n], staged["y0"][rows], staged["x0"][rows] = geometry.cut, *geometry.corners

    def _plan(self, shape: PieceShape) -> dict[str, Any]:
        return {**input_arrays(shape, self.task.sizes), **work_arrays(shape, self.task.sizes),
                **output_arrays(shape, self.task.sizes)}

    def queue(self, image: Image, recorder: Any) -> None:
        """Queue a whole frame. The results of the frame before must have been taken."""
        for table in self._tables:
            self.device.upload(table.staged, table.array, self._up)
        for n in range(len(self.pieces)):
            with recorder.span("stage"):
                self._stage(n, image)
            self._queue_piece(n, image, recorder)

    def _stage(self, n: int, image: Image) -> None:
        """The pixels of a piece into pinned memory, as they are: byte order is the device's business."""
        target = self._staged[n]["pixels"]
        for b, bundle in enumerate(self.pieces[n].bundles):
            geometry = self.task.geometries[bundle]
            rows, columns = int(geometry.cut[2]), int(geometry.cut[3])
            for plane, source in enumerate((image.pix, image.ivar)):
                place = target[b, plane, :rows * columns].reshape(rows, columns)
                np.copyto(place.view(source.dtype) if as_it_is(image) else place, source[geometry.window])

    def _queue_piece(self, n: int, image: Image, recorder: Any) -> None:
        piece, slot = self.pieces[n], self._slots[n % len(self._slots)]
        views = slot.memory.views(piece.shape, self._plan(piece.shape))
        device = self.device
        device.wait(self._up, slot.computed)
        staged = self._staged[n]
        with device.current(self._up), recorder.copy(TO_DEVICE, sum(staged[name].nbytes for name in INPUTS)):
            for name in INPUTS:
                device.upload(staged[name], getattr(views, name), self._up)
        device.record(slot.uploaded, self._up)
        device.wait(slot.work, slot.uploaded)
        device.wait(slot.work, slot.downloaded)
        with device.current(slot.work):
            self._compute(n, views, Steps(device, slot.work, piece.shape, self.task.sizes, views),
                          swapped=as_it_is(image) and not image.pix.dtype.isnative, recorder=recorder)
        device.record(slot.computed, slot.work)
        device.wait(self._down, slot.computed)
        results = self.results[n]
        with device.current(self._down), recorder.copy(TO_HOST, sum(array.nbytes for array in results.values())):
            for name, array in results.items():
                device.download(getattr(views, name), array, self._down)
        slot.downloaded = self._ready[n]
        device.record(slot.downloaded, self._down)

    def _compute(self, n: int, views: SimpleNamespace, steps: Steps, *, swapped: bool, recorder: Any) -> None:
        job, piece = self.task.job, self.pieces[n]
        series, domain, basis = (table.array for table in self._tables)
        with recorder.device_span("pixels"):
            steps.pixels(swapped)
        with recorder.device_span("spots"):
            for b, bundle in enumerate(piece.bundles):
                steps.spots(self.task.geometries[bundle].fibres[0], self.task.tables, (series, domain, basis), b)
        with recorder.device_span("normal"):
            steps.normal(job.config.regularize)
        with recorder.device_span("solve"):
            steps.solve()
        with recorder.device_span("decorrelate"):
            core = self._cores[n % len(self._slots), piece.shape]
            core.run(PieceNormal(views.icov, views.sums.part(0, 1).seen_as(views.x.shape, np.float64), views.x),
                     PieceOut(views.flux, views.ivar, views.resolution, views.status), steps.stream,
                     recorder)
        with recorder.device_span("judge"):
            steps.quality(job.psferr)

    def take(self, n: int) -> dict[str, np.ndarray]:
        """Wait for the results of piece n: pinned arrays, as memory.output_arrays, good until the next `queue`."""
        self.device.finish(self._ready[n])
        return self.results[n]


def as_it_is(image: Image) -> bool:
    """Whether the pixels can come up byte by byte; where their types differ they come up as native float64."""
    return image.pix.dtype == image.ivar.dtype


def staged_type(image: Image) -> Any:
    """The type that an image has on the device."""
    return image.pix.dtype.newbyteorder("=") if as_it_is(image) else np.dtype(np.float64)


class _Place:
    """A slot: its memory, its stream, and the events of the piece that was in it last."""

    def __init__(self, device: Device, plans: list[Any]):
        self.memory = Slot(device, plans)
        self.work = device.stream()
        self.uploaded, self.computed, self.downloaded = device.event(), device.event(), device.event()


class _Table:
    """An array that is the same for all pieces, pinned and on the device."""

    def __init__(self, device: Device, values: np.ndarray):
        self.array: DeviceArray = device.empty(values.shape, values.dtype)
        self.staged = device.pinned(values.shape, values.dtype)
        self.staged[...] = values
