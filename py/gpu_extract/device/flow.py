"""The flow of a rank's bundles through a device.

Pieces use a few slots of memory in turn. A slot has one stream: a piece is uploaded, computed and downloaded, and the
next one follows. Copies of one slot and the long recursions of another leave room for the kernels of all. The results
of a piece are rows of the frame, in the frame's types, which are copied straight to their place in it. All pieces are
queued without a wait. The host then takes them in order, while later ones are still being computed.

Everything of a piece but the download of its rows is the same in every frame. It is queued step by step in the first
frame, so that everything is compiled and loaded, captured as a graph in the second, and replayed from then on.
"""
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import numpy as np

from gpu_extract.assemble import rooms
from gpu_extract.bundle import Job
from gpu_extract.checks.odd_pixels import mask_pixels
from gpu_extract.data import Image, IntArray, read_only
from gpu_extract.decorrelate.banded import NARROW
from gpu_extract.device import memory
from gpu_extract.device.crew import Crew
from gpu_extract.device.cuda.piece import PieceNormal, PieceOut, PieceShape
from gpu_extract.device.cuda.seam import Device, DeviceArray
from gpu_extract.device.geometry import BundleGeometry, Piece, PsfTables, landing_of
from gpu_extract.device.simd_stage import LINE, copy_past
from gpu_extract.device.steps import Steps
from gpu_extract.perf.recorder import TO_DEVICE, TO_HOST
from gpu_extract.seams import NULL, Recorder

COPIERS = 4     # threads that fill pinned memory: enough for the memory bandwidth of a socket


class Core(Protocol):
    """A core on the device. Its work memory is allocated once, for pieces of one shape. It queues only copies and
    kernels, the same ones for every frame. room: that memory, None: it allocates its own."""

    def __init__(self, device: Device, shape: PieceShape, *, room: dict[str, DeviceArray] | None = None): ...

    @staticmethod
    def plan(shape: PieceShape) -> memory.Arrays:
        """The work memory."""

    def run(self, normal: PieceNormal, out: PieceOut, stream: Any, recorder: Recorder) -> None:
        """Queue the decorrelation of a piece; recorder: times its steps."""


@dataclass(frozen=True)
class Task:
    """The work of a rank: bundles of a job in order, their geometry, the PSF's tables, and sizes that fit all.

    fibres: (lo, hi), the requested ones of the bundles
    mine: numbers of the bundles in the job; passes: what several passes need (pass_plan.Passes)
    """

    job: Job
    geometries: tuple[BundleGeometry, ...]
    tables: PsfTables
    sizes: memory.Sizes
    fibres: tuple[int, int]
    mine: tuple[int, ...] = ()
    passes: Any = None


class Turn(NamedTuple):
    """A pass over a frame: the first of several weights by the read noise alone, the last makes spectra.

    patient: whether a piece is queued again because its iteration had not converged
    """

    first: bool = True
    last: bool = True
    patient: bool = False


ONCE, DRAFT, LAST = Turn(), Turn(last=False), Turn(first=False)


class Flow:
    """Memory, streams and events for a task, cut into `pieces` that use `slots` slots in turn.

    crew: copies pixels into pinned memory; it has nothing else to do while a frame is queued
    replays: whether graphs are replayed; not while a recorder times the device's steps
    Its memory is freed when the flow is deleted, which must not happen before `Device.close` or all results are taken.
    """

    replays = True

    def __init__(self, device: Device, task: Task, pieces: Sequence[Piece], *, slots: int, make_core: type[Core],
                 warn: Callable[[str], None], crew: Crew):
        self.device, self.task, self.pieces, self._warn, self._crew = device, task, pieces, warn, crew
        count = min(slots, len(pieces))
        self._kept = [{name: device.empty(*array) for name, array in arrays.items()} for arrays in self._kept_of(
            sum(piece.shape.fibres for piece in pieces), sum(piece.shape.bundles for piece in pieces))]
        plans = {piece.shape: {name: array for name, array in self._plan(piece.shape).items()
                               if not any(name in arrays for arrays in self._kept)} for piece in pieces}
        of_slot = [{piece.shape: plans[piece.shape] for piece in pieces[s::count]} for s in range(count)]
        places = [memory.Slot(device, list(shapes.values())) for shapes in of_slot]
        self._streams = [device.stream() for _ in range(count)]
        self._cores: dict[tuple[int, PieceShape], Core] = {}
        for s, shapes in enumerate(of_slot):
            needs = {shape: make_core.plan(shape) for shape in shapes if shape.hw <= NARROW}
            room = memory.Slot(device, list(needs.values()))
            self._cores |= {(s, shape): make_core(device, shape, room=room.views(plan))
                            for shape, plan in needs.items()}
        self._aside = device.stream()
        self._seen: set[tuple[int, Turn]] = set()
        self._graphs: dict[tuple[int, Turn], Any] | None = {}
        self._staged = [{name: device.pinned(*plans[p.shape][name]) for name in self._inputs()} for p in pieces]
        self._told = [{name: device.pinned(*array) for name, array in self._told_of(p.shape).items()} for p in pieces]
        self._ready: list[Any] = [None for _ in pieces]      # events, from `queue`
        self._landings = [landing_of(task.job.plan, task.fibres[0], [task.geometries[b].fibres for b in p.bundles])
                          for p in pieces]
        self._rows = rooms(task.fibres[1] - task.fibres[0], len(task.job.plan.wave), task.job.ndiag, task.sizes.kept)
        self._views, ends, shared = [], (0, 0), self._shared()
        for n, piece in enumerate(pieces):
            firsts, ends = ends, (ends[0] + piece.shape.fibres, ends[1] + piece.shape.bundles)
            kept = {name: array.part(first, end) for arrays, first, end in zip(self._kept, firsts, ends, strict=True)
                    for name, array in arrays.items()}
            self._views.append(SimpleNamespace(**places[n % count].views(plans[piece.shape]), **kept, **shared,
                                               **memory.tables_on(device, self._fixed(n))))

    def _plan(self, shape: PieceShape) -> dict[str, Any]:
        sizes = self.task.sizes
        return {**memory.work_arrays(shape, sizes), **memory.piece_rows(shape, sizes), **self._told_of(shape)}

    def _told_of(self, shape: PieceShape) -> memory.Arrays:
        """The arrays that are downloaded with a piece's rows."""
        return memory.told_arrays(shape, self.task.sizes)

    def _inputs(self) -> tuple[str, ...]:
        """The arrays that are uploaded with every frame."""
        return ("pixels",)

    def _kept_of(self, fibres: int, bundles: int) -> tuple[memory.Arrays, memory.Arrays]:
        """The arrays that stay on the device until the next frame, by fibre and by bundle."""
        return memory.kept_arrays(fibres, len(self.task.job.plan.wave)), {}

    def _shared(self) -> dict[str, Any]:
        """The arrays that the steps of all pieces use, by name."""
        tables, step = self.task.tables, np.gradient(self.task.job.plan.wave)
        return dict(memory.tables_on(self.device, {"series": tables.series, "domain": tables.domain,
                                                   "basis": tables.basis, "widths": np.stack([step, step**2])}))

    def _fixed(self, n: int) -> dict[str, np.ndarray]:
        """The arrays of a piece that are the same in every frame: cut-outs and their places in the uploaded pixels,
        each bundle's first fibre, the spots' first pixels, the fibres' rows in the result."""
        geometries = [self.task.geometries[bundle] for bundle in self.pieces[n].bundles]
        y0, x0 = np.concatenate([geometry.corners for geometry in geometries], axis=1)
        cuts, places = (np.stack([getattr(geometry, name) for geometry in geometries]) for name in ("cut", "place"))
        starts = np.array([geometry.fibres[0] for geometry in geometries], dtype=np.int64)
        return {"cuts": cuts, "places": places, "starts": starts, "y0": y0, "x0": x0,
                "targets": self._landings[n].places}

    def queue(self, image: Image, recorder: Recorder, turn: Turn = ONCE) -> dict[str, np.ndarray]:
        """Queue a pass over a frame; all pieces of the previous one must have been taken.

        The last pass returns the frame's rows, by the names of data.Rows, in pinned memory of their own; a piece's rows
        are complete once it is taken.
        """
        wanted = self._rows if turn.last else {}
        places, size = memory.in_one_block(wanted)
        block = self.device.pinned((size,), np.uint8)
        rows = {name: np.ndarray(*array, block, places[name]) for name, array in wanted.items()}
        for n in range(len(self.pieces)):
            if turn.first:
                with recorder.span("stage"):
                    self._stage(n, image)
            self._queue_piece(n, recorder, turn)
            self._queue_rows(n, rows, recorder)
        return rows

    def again(self, n: int, odd: Sequence[IntArray], rows: dict[str, np.ndarray], recorder: Recorder,
              turn: Turn) -> dict[str, np.ndarray]:
        """Repeat piece n, which was taken, without the odd pixels of its bundles, (n, 2) y and x, and return its
        report. rows: from `queue`; the other arguments are those of `queue`."""
        for b, bundle in enumerate(self.pieces[n].bundles):
            mask_pixels(*self._planes(n, b), odd[b], (0, self.task.geometries[bundle].staged.start))
        self._queue_piece(n, recorder, turn)
        self._queue_rows(n, rows, recorder)
        return self.take(n)

    def _planes(self, n: int, b: int) -> tuple[np.ndarray, np.ndarray]:
        """Pixels and ivar of bundle b of piece n, (rows, columns), in the memory from which they are uploaded."""
        geometry = self.task.geometries[self.pieces[n].bundles[b]]
        pix, ivar = (plane[:geometry.pixels].reshape(geometry.rows, -1) for plane in self._staged[n]["pixels"][b])
        return pix, ivar

    def _stage(self, n: int, image: Image) -> None:
        """Copy the pixels of a piece into pinned memory unchanged, by a few threads: one cannot use the full memory
        bandwidth."""
        parts = []
        for b, bundle in enumerate(self.pieces[n].bundles):
            columns = self.task.geometries[bundle].staged
            parts += [(place.view(source.dtype) if as_it_is(image) else place, source[:, columns])
                      for place, source in zip(self._planes(n, b), (image.pix, image.ivar), strict=True)]
        self._crew.each(_copy, parts, COPIERS)

    def _queue_piece(self, n: int, recorder: Recorder, turn: Turn) -> None:
        """Queue a pass of a piece but for the download of its rows: as a graph, or the first time step by step."""
        stream, work, key = self._stream(n), partial(self._do_piece, n, recorder, turn), (n, turn)
        if key not in self._seen:
            self.device.get_ready(partial(self._do_piece, n, NULL, turn))
        if not self.replays or self._graphs is None or key not in self._seen:
            self._seen.add(key)
            work()
            return
        if key not in self._graphs:
            try:
                self._graphs[key] = self.device.capture(work, stream)
            except Exception as error:      # an error with another cause is raised again by work()
                self._graphs = None
                self._warn(f"{self.device.name} cannot capture graphs, so its kernels are launched one by one: "
                           f"{type(error).__name__}: {' '.join(str(error).split())}")
                work()
                return
        self.device.replay(self._graphs[key], stream)

    def _do_piece(self, n: int, recorder: Recorder, turn: Turn) -> None:
        """Queue the upload of the pixels, the computation of the piece, and the download of its report."""
        device, views, stream = self.device, self._views[n], self._stream(n)
        with device.current(stream):
            with recorder.copy(TO_DEVICE, sum(array.nbytes for array in self._staged[n].values())):
                for name, array in self._staged[n].items():
                    device.upload(array, getattr(views, name), stream)
            self._compute(n, recorder, turn)
            told = {name: array for name, array in self._told[n].items() if turn.last or name != "model"}
            with recorder.copy(TO_HOST, sum(array.nbytes for array in told.values())):
                for name, array in told.items():
                    device.download(getattr(views, name), array, stream)

    def _queue_rows(self, n: int, rows: dict[str, np.ndarray], recorder: Recorder) -> None:
        """Queue the copies of a piece's rows to their place in the frame; every frame has other memory."""
        device, views, stream = self.device, self._views[n], self._stream(n)
        copies = [(getattr(views, f"to_{name}").part(first, last), array[target:target + last - first])
                  for first, last, target in self._landings[n].runs for name, array in rows.items()]
        if copies:
            with device.current(stream), recorder.copy(TO_HOST, sum(target.nbytes for _, target in copies)):
                for source, target in copies:
                    device.download(source, target, stream)
        self._ready[n] = device.record(stream)

    def _stream(self, n: int) -> Any:
        return self._streams[n % len(self._streams)]

    def _compute(self, n: int, recorder: Recorder, turn: Turn) -> None:
        job, shape = self.task.job, self.pieces[n].shape
        steps = Steps(self.device, self._stream(n), shape, self.task.sizes, self._views[n], patient=turn.patient)
        with recorder.device_span("pixels"):
            steps.pixels()
        with recorder.device_span("spots"):
            steps.numbers(self.task.tables)
            steps.see(self.task.tables)
        with recorder.device_span("normal"):
            steps.normal(job.config.regularize)
        with recorder.device_span("solve"):
            steps.solve()
        self._conclude(n, steps, recorder, job.psferr)

    def _conclude(self, n: int, steps: Steps, recorder: Recorder, psferr: float) -> None:
        """From x to the rows of the frame; no core supports bands above NARROW, see told.is_cpus."""
        views, core = self._views[n], self._cores.get((n % len(self._streams), self.pieces[n].shape))
        with recorder.device_span("decorrelate"):
            weight = views.sums.part(0, 1).seen_as(views.x.shape, np.float64)
            if core is not None:
                core.run(PieceNormal(views.icov, weight, views.x, views.low, views.halo),
                         PieceOut(views.flux, views.ivar, views.resolution, views.status), steps.stream, recorder)
        with recorder.device_span("judge"):
            steps.quality(psferr)
        with recorder.device_span("assemble"):
            steps.assemble()

    def take(self, n: int) -> dict[str, np.ndarray]:
        """Wait for piece n. Returns its report (memory.told_arrays), valid until the next `queue`."""
        self.device.finish(self._ready[n])
        return self._told[n]

    def kept(self, n: int, b: int) -> dict[str, np.ndarray]:
        """The arrays that the device keeps of bundle b of piece n (memory.kept_arrays); waits for them."""
        nfibre = self.pieces[n].shape.nfibre
        return self._fetch({name: getattr(self._views[n], name).part(b * nfibre, (b + 1) * nfibre)
                            for name in self._kept[0]})

    def _fetch(self, arrays: Mapping[str, DeviceArray]) -> dict[str, np.ndarray]:
        """Device arrays by name, copied to the host; waits for them, on a stream of their own."""
        return memory.tables_from(self.device, arrays, self._aside)


def as_it_is(image: Image) -> bool:
    """Whether the pixels are uploaded byte by byte; if their types differ, they are uploaded as float64."""
    return image.pix.dtype == image.ivar.dtype


def staged_type(image: Image) -> Any:
    """The type of an image on the device."""
    return image.pix.dtype if as_it_is(image) else np.dtype(np.float64)


def _copy(part: tuple[np.ndarray, np.ndarray]) -> None:
    """Copy pixels to a place in pinned memory, by whole cache lines if they consist of such."""
    place, pixels = part
    lines = place.ctypes.data % LINE == place.shape[1] * place.itemsize % LINE == 0
    if lines and place.dtype == pixels.dtype and pixels.strides[1] == pixels.itemsize:
        copy_past(place.view(np.uint8), read_only(pixels.view(np.uint8)))
    else:
        np.copyto(place, pixels)
