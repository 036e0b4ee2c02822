"""The flow of a rank's bundles through a device.

Pieces go round over a few slots of memory. Uploads are on one stream, downloads on another, and every slot works on a
stream of its own, so that the next piece comes up and the one before goes down while this one is worked on, and the
long recursions of one piece leave room for the other slots' kernels. A piece ends as rows of the frame, in the types of
the frame, which go straight to their place in it. Everything is queued piece after piece without a wait; the host then
takes the pieces in order, while later ones are still worked on.
"""
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np

from gpu_extract.bundle import Job
from gpu_extract.checks.odd_pixels import mask_pixels
from gpu_extract.data import Image, IntArray
from gpu_extract.device.cuda.assembly import PLACE, TARGETS
from gpu_extract.device.cuda.piece import PieceNormal, PieceOut, PieceShape
from gpu_extract.device.cuda.seam import Device, DeviceArray, Empty
from gpu_extract.device.geometry import BundleGeometry, Piece, PsfTables
from gpu_extract.device.landing import landings
from gpu_extract.device.memory import (
    Room,
    Sizes,
    Slot,
    frame_arrays,
    in_one_block,
    input_arrays,
    kept_arrays,
    piece_rows,
    told_arrays,
    work_arrays,
)
from gpu_extract.device.steps import Steps
from gpu_extract.perf.recorder import TO_DEVICE, TO_HOST
from gpu_extract.quality import BAD_FIT, BAD_FIT_ALONE, FEW_FIBRES
from gpu_extract.seams import Recorder

MISFIT = np.array([BAD_FIT, BAD_FIT_ALONE, FEW_FIBRES], dtype=np.float64)


class Core(Protocol):
    """A core on the device: its work memory is made once, for pieces of one shape."""

    def run(self, normal: PieceNormal, out: PieceOut, stream: Any, recorder: Recorder) -> None:
        """Queue the decorrelation of a piece; recorder: times its steps."""


class CoreMaker(Protocol):
    """Makes cores; the class of one."""

    def __call__(self, device: Device, shape: PieceShape, *, room: Empty | None = None) -> Core:
        """A core with its work memory; room: where that comes from, None: the device."""


@dataclass(frozen=True)
class Task:
    """What a rank has to do: bundles of a job, one after another, their geometry, the PSF's tables, sizes that fit all.

    fibres: (lo, hi), those of the bundles that are wanted
    """

    job: Job
    geometries: tuple[BundleGeometry, ...]
    tables: PsfTables
    sizes: Sizes
    fibres: tuple[int, int]


class Flow:
    """Memory, streams and events for a task, cut into `pieces` that go round over `slots` slots.

    What it allocates is freed when it is forgotten; that must not be before `Device.close` or all results were taken.
    """

    def __init__(self, device: Device, task: Task, pieces: Sequence[Piece], *, slots: int, make_core: CoreMaker):
        self.device, self.task, self.pieces = device, task, pieces
        shapes = list(dict.fromkeys(piece.shape for piece in pieces))
        plans = {shape: self._plan(shape) for shape in shapes}
        count = min(slots, len(pieces))
        self._slots = [_Place(device, list(plans.values())) for _ in range(count)]
        self._cores = {}
        for s in range(count):
            room = Room(device)
            for shape in sorted(shapes, key=lambda shape: -shape.bundles):
                self._cores[s, shape] = make_core(device, shape, room=room.again())
        self._up, self._down = device.stream(), device.stream()
        tables, wave = task.tables, task.job.plan.wave
        step = np.gradient(wave)
        self._tables = [_Table(device, array) for array in (
            tables.series, tables.domain, tables.basis, np.stack([step, step**2]), MISFIT)]
        self._staged = [device.pinned(*input_arrays(p.shape, task.sizes)["pixels"]) for p in pieces]
        self._told = [{name: device.pinned(*array) for name, array in told_arrays(p.shape, task.sizes).items()}
                      for p in pieces]
        self._ready = [device.event() for _ in pieces]
        self._landings = landings(task.job.plan, task.fibres, [[task.geometries[b].fibres for b in p.bundles]
                                                               for p in pieces])
        self._rows = frame_arrays(task.fibres[1] - task.fibres[0], len(wave), task.job.ndiag, task.sizes.kept)
        self._kept = {name: device.empty(*array) for name, array in
                      kept_arrays(sum(p.shape.fibres for p in pieces), len(wave)).items()}
        self._views, first = [], 0
        for n, piece in enumerate(pieces):
            views = self._slots[n % count].memory.views(piece.shape, plans[piece.shape])
            kept = {name: array.part(first, first + piece.shape.fibres) for name, array in self._kept.items()}
            fixed = {name: _Table(device, values) for name, values in self._fixed(n).items()}
            self._tables += fixed.values()
            self._views.append(SimpleNamespace(**vars(views), **kept, **{name: t.array for name, t in fixed.items()}))
            first += piece.shape.fibres
        for table in self._tables:
            device.upload(table.staged, table.array, self._up)

    def _plan(self, shape: PieceShape) -> dict[str, Any]:
        return {name: array for arrays in (input_arrays, work_arrays, piece_rows, told_arrays)
                for name, array in arrays(shape, self.task.sizes).items()}

    def _fixed(self, n: int) -> dict[str, np.ndarray]:
        """What is the same in every frame: cut-outs, first pixels of the spots, where fibres come down."""
        geometries = [self.task.geometries[bundle] for bundle in self.pieces[n].bundles]
        targets = np.zeros((TARGETS, len(self._landings[n].places)), dtype=np.int64)
        targets[PLACE] = self._landings[n].places
        y0, x0 = np.concatenate([geometry.corners for geometry in geometries], axis=1)
        return {"cuts": np.stack([geometry.cut for geometry in geometries]), "y0": y0, "x0": x0, "targets": targets}

    def queue(self, image: Image, recorder: Recorder, odd: Callable[[int], IntArray]) -> dict[str, np.ndarray]:
        """Queue a whole frame; all pieces of the one before must have been taken.

        odd: pixels of a bundle, by its number among the rank's, that come up as masked ones: (n, 2) y and x
        Returns the frame's rows, by the names of data.Rows, in pinned memory that is theirs alone; a piece's are there
        when it was taken.
        """
        places, size = in_one_block(self._rows)
        block = self.device.pinned((size,), np.uint8)
        rows = {name: np.ndarray(*array, block, places[name]) for name, array in self._rows.items()}
        for n in range(len(self.pieces)):
            with recorder.span("stage"):
                self._stage(n, image, odd)
            self._queue_piece(n, image, rows, recorder)
        return rows

    def _stage(self, n: int, image: Image, odd: Callable[[int], IntArray]) -> None:
        """The pixels of a piece into pinned memory, as they are: byte order is the device's business."""
        target = self._staged[n]
        for b, bundle in enumerate(self.pieces[n].bundles):
            geometry = self.task.geometries[bundle]
            rows, columns = int(geometry.cut[2]), int(geometry.cut[3])
            out = odd(bundle)
            for plane, source in enumerate((image.pix, image.ivar)):
                place = target[b, plane, :rows * columns].reshape(rows, columns)
                np.copyto(place.view(source.dtype) if as_it_is(image) else place, source[geometry.window])
                mask_pixels(place, place, out, (int(geometry.cut[0]), int(geometry.cut[1])))

    def _queue_piece(self, n: int, image: Image, rows: dict[str, np.ndarray], recorder: Recorder) -> None:
        piece, slot, views = self.pieces[n], self._slots[n % len(self._slots)], self._views[n]
        device = self.device
        device.wait(self._up, slot.computed)
        with device.current(self._up), recorder.copy(TO_DEVICE, self._staged[n].nbytes):
            device.upload(self._staged[n], views.pixels, self._up)
        device.record(slot.uploaded, self._up)
        device.wait(slot.work, slot.uploaded)
        device.wait(slot.work, slot.downloaded)
        with device.current(slot.work):
            self._compute(n, Steps(device, slot.work, piece.shape, self.task.sizes, views),
                          swapped=as_it_is(image) and not image.pix.dtype.isnative, recorder=recorder)
        device.record(slot.computed, slot.work)
        device.wait(self._down, slot.computed)
        copies = self._copies_down(n, rows)
        with device.current(self._down), recorder.copy(TO_HOST, sum(target.nbytes for _, target in copies)):
            for source, target in copies:
                device.download(source, target, self._down)
        slot.downloaded = self._ready[n]
        device.record(slot.downloaded, self._down)

    def _compute(self, n: int, steps: Steps, *, swapped: bool, recorder: Recorder) -> None:
        job, piece, views = self.task.job, self.pieces[n], self._views[n]
        series, domain, basis, widths, limits = (table.array for table in self._tables[:5])
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
        with recorder.device_span("assemble"):
            steps.assemble(widths, limits)

    def _copies_down(self, n: int, rows: dict[str, np.ndarray]) -> list[tuple[DeviceArray, np.ndarray]]:
        """What goes down after a piece, and where to: its rows of the frame, and what is told of it."""
        views = self._views[n]
        return [(getattr(views, f"to_{name}").part(first, last), array[target:target + last - first])
                for first, last, target in self._landings[n].runs for name, array in rows.items()] + [
                    (getattr(views, name), array) for name, array in self._told[n].items()]

    def take(self, n: int) -> dict[str, np.ndarray]:
        """Wait for piece n: what is told of it, as memory.told_arrays, good until the next `queue`."""
        self.device.finish(self._ready[n])
        return self._told[n]

    def kept(self, n: int, b: int) -> dict[str, np.ndarray]:
        """What the device has kept of bundle b of piece n, as memory.kept_arrays; waits for it."""
        nfibre, there, found = self.pieces[n].shape.nfibre, self.device.event(), {}
        for name in self._kept:
            source = getattr(self._views[n], name).part(b * nfibre, (b + 1) * nfibre)
            found[name] = self.device.pinned(source.shape, source.dtype)
            self.device.download(source, found[name], self._down)
        self.device.record(there, self._down)
        self.device.finish(there)
        return found


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
    """An array that comes up once, pinned and on the device."""

    def __init__(self, device: Device, values: np.ndarray):
        self.array: DeviceArray = device.empty(values.shape, values.dtype)
        self.staged = device.pinned(values.shape, values.dtype)
        self.staged[...] = values
