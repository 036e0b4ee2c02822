"""Extraction on a GPU, for `run.extract(..., backend=...)`."""
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from gpu_extract.assemble import wanted
from gpu_extract.backend import Backend
from gpu_extract.bundle import Job, add_odd_bits
from gpu_extract.checks.odd_pixels import NO_PIXELS, in_notes
from gpu_extract.config import ExtractConfig
from gpu_extract.cpu_frame import CPU
from gpu_extract.data import Draft, Image, IntArray, PsfModel, Rows
from gpu_extract.device.crew import Crew, Work
from gpu_extract.device.cuda.seam import Device
from gpu_extract.device.cuda.text import passes
from gpu_extract.device.device_banded import BandedCore
from gpu_extract.device.drafts import Drafts, Letters, pasts_by_cpu
from gpu_extract.device.flow import LAST, ONCE, Core, Flow, Task, staged_type
from gpu_extract.device.geometry import bundle_geometry, cut_pieces, psf_tables
from gpu_extract.device.memory import sizes_of
from gpu_extract.device.pass_flow import PassFlow
from gpu_extract.device.pass_plan import noise_type, passes_of
from gpu_extract.device.remedy import Lost, all_on_cpu, on_cpu, put
from gpu_extract.device.told import LEFT, facts_of, is_cpus, model_of, odd_pixels, take_piece
from gpu_extract.errors import InternalError
from gpu_extract.packing import copied, same
from gpu_extract.passes import Past
from gpu_extract.passes.fine_bins import FINE
from gpu_extract.perf.recorder import usable_cores
from gpu_extract.plan import share
from gpu_extract.seams import Comm, Recorder
from gpu_extract.several.bundles import mark_rejected

LARGE = 2       # large pieces per rank: a recursion along wavelength takes as long for one fibre as for many
SLOTS = 4       # pieces in flight
MOST_PIXELS = 32000      # rows or columns: kernels keep both in 16 bits, including spots that extend beyond the CCD


def _asked(image: Image, job: Job, mine: tuple[int, ...]) -> tuple[Any, ...]:
    """Everything a flow depends on; of the PSF its content, not the file that it came from."""
    noise = None if job.noise is None else (str(noise_type(job.noise)), job.noise.split)
    types = str(job.dtype), str(staged_type(image))
    return replace(job.psf, name=""), job.config, job.decay, job.dropped, mine, types, image.shape, noise


@dataclass(frozen=True)
class _Frame:
    """A frame in progress. drafts: the results of the first of two passes.

    notes, models, rejected: by the first fibre of each bundle; threads add those of their own bundles
    """

    flow: Flow
    image: Image
    job: Job
    mine: Sequence[int]
    rows: Rows
    drafts: Drafts | None
    notes: dict[int, dict[str, float]] = field(default_factory=dict)
    models: dict[int, tuple[np.ndarray, tuple[int, int]]] = field(default_factory=dict)
    rejected: dict[int, IntArray] = field(default_factory=dict)

    def put(self, _: int, part: Rows) -> None:
        """Store a bundle's rows from the CPU."""
        put(self.rows, part)
        self.notes.update({first: dict(facts) for first, facts in part.notes.items()})
        self.models.update(zip(part.notes, part.models, strict=False))
        self.rejected.update(dict.fromkeys(part.notes, part.rejected))

    def made(self) -> Rows:
        """The rows, notes and models in the order of the bundles."""
        return replace(self.rows, notes=dict(sorted(self.notes.items())),
                       models=tuple(model for _, model in sorted(self.models.items(), key=lambda one: one[0])),
                       rejected=np.concatenate([NO_PIXELS, *(self.rejected[first] for first in sorted(self.rejected))]))


class GpuFrames(Backend):
    """Extracts the bundles of a rank on a device. The CPU does what the device cannot; the notes record it.

    open_device: called once, at the first frame; core: the class that decorrelates
    most: largest number of bundles in a piece, None: half the rank's; slots: pieces in flight
    cpu: extracts the frames that no device supports; warn: called with one line about work that the CPU has to do
    threads: do the work that the device leaves to the CPU; None: as many as the CPU cores that this process may use. If
        ranks share CPU cores, give each its part of them

    Bits do not depend on most, slots, threads or ranks. When device memory is exhausted, the frame is repeated in
    pieces of half the size, down to single bundles one after another, and then on the CPU.
    """

    warm_bins = 40       # a few half-bands: kernels are compiled for the band's width
    beside = True

    def __init__(self, open_device: Callable[[], Device], *, core: type[Core] = BandedCore, most: int | None = None,
                 slots: int = SLOTS, cpu: Backend = CPU, warn: Callable[[str], None] = lambda _: None,
                 threads: int | None = None):
        self._open, self._core, self._most, self._slots = open_device, core, most, slots
        self._cpu, self._warn, self._told = cpu, warn, ""
        self._crew = Crew(usable_cores() if threads is None else threads)
        self._device: Device | None = None
        self._watched = False
        self._warm: tuple[tuple[Any, ...], Flow] | None = None      # copies of what the flow depends on, and the flow

    @property
    def device(self) -> Device:
        """The device, opened when it is first needed."""
        if self._device is None:
            self._device = self._open()
        return self._device

    @property
    def threads(self) -> int:
        """The number of threads for the work that the device leaves to the CPU."""
        return self._crew.threads

    @property
    def name(self) -> str:
        """The device's name for the header."""
        return self.device.name

    @property
    def flow(self) -> Flow:
        """The flow of the last frame."""
        if self._warm is None:
            raise InternalError("no frame has been extracted on the device yet")
        return self._warm[1]

    @property
    def warm(self) -> bool:
        """Whether a frame was extracted: all kernels are then compiled."""
        return self._warm is not None

    def get_ready(self, psf: PsfModel, config: ExtractConfig, comm: Comm, recorder: Recorder) -> bool:
        """Compile the CPU's kernels, if it does the work: which kernels a device has already cannot be known."""
        return bool(_unfit(psf, config)) and self._cpu.get_ready(psf, config, comm, recorder)

    def rows(self, image: Image, job: Job, comm: Comm, recorder: Recorder, *,
             start: Draft | None = None, meanwhile: Callable[[], object] = lambda: None) -> list[tuple[int, Rows]]:
        """This rank's rows of the frame, with ascending numbers; they own their memory.

        start: with one, the CPU extracts the frame; meanwhile: called once the frame is queued
        """
        why = "cannot start from a draft" if start is not None else ""
        if why := _unfit(job.psf, job.config, image.shape) or _too_fine(job) or why:
            if why != self._told:       # only the first of a night's frames reports it
                self._told = why
                self._warn(f"{self.name} {why}: this rank works on the CPU")
            made = self._cpu.rows(image, job, comm, recorder, start=start, meanwhile=meanwhile)
            return [(n, all_on_cpu(rows)) for n, rows in made]
        mine = tuple(share(len(job.plan.bundles), comm.rank, comm.size))
        letters = Letters(comm)
        while mine and self._slots > 0:
            rows = self._attempt(image, job, mine, recorder, letters, meanwhile)
            if rows is not None:
                return [(mine[0], rows)]
            self._shrink(len(mine))
        if mine:
            self._warn(f"{self.name} has not enough free memory for one bundle: this rank works on the CPU")
        found: dict[int, Rows] = {}
        with recorder.span(LEFT), self._crew.nothing_left():
            pasts: Mapping[int, Past] = {}
            if job.config.passes > 1:       # including ranks without bundles
                pasts = pasts_by_cpu(image, job, mine, letters, self._crew)
            self._crew.add([partial(on_cpu, image, job, n, self._crew, found.__setitem__, pasts.get(n)) for n in mine])
        return [(n, found[n]) for n in mine]

    def _attempt(self, image: Image, job: Job, mine: tuple[int, ...], recorder: Recorder, letters: Letters,
                 meanwhile: Callable[[], object]) -> Rows | None:
        """The rows, or None if device memory was exhausted; nothing holds any of it then."""
        try:
            flow = self._flow_for(image, job, mine, letters)
            flow.replays = not self._watched
            drafts = self._draft(flow, image, job, recorder, letters) if isinstance(flow, PassFlow) else None
            return self._take(flow, image, job, mine, recorder, drafts, meanwhile)
        except Exception as error:
            if not self.device.is_out_of_memory(error):
                self._warm = None       # work still in progress must not meet the next frame
                with suppress(RuntimeError):
                    self.device.close()
                raise
            return None

    def _flow_for(self, image: Image, job: Job, mine: tuple[int, ...], letters: Letters) -> Flow:
        """The previous frame's flow, or a new one."""
        asked = _asked(image, job, mine)
        if self._warm is not None and same(self._warm[0], asked):
            return self._warm[1]
        self._warm = None       # a flow for another PSF takes this one's memory from the pools
        geometries = tuple(bundle_geometry(job, job.plan.bundles[n], image.shape) for n in mine)
        tables = psf_tables(job.psf, job.plan.extended)
        others = [] if letters.alone else [(n, bundle_geometry(job, bundle, image.shape))
                                           for n, bundle in enumerate(job.plan.bundles) if n not in mine]
        several = passes_of(job, mine, geometries, others)
        sizes = sizes_of(job.psf.stamp, [*geometries, *(several.known if several else ())], tables,
                         dtypes=(staged_type(image), job.dtype), model=bool(job.config.model),
                         several=several is not None)
        pieces = cut_pieces(geometries, self._most or -(-len(mine) // LARGE))
        fibres = wanted((geometries[0].fibres[0], geometries[-1].fibres[1]), job.plan)
        kind = Flow if several is None else PassFlow
        flow = kind(self.device, Task(job, geometries, tables, sizes, fibres, mine, several), pieces, slots=self._slots,
                    make_core=self._core, warn=self._warn, crew=self._crew)
        self._warm = copied(asked), flow
        return flow

    def _shrink(self, bundles: int) -> None:
        """Halve the bundles in a piece; then allow one piece at a time; then none."""
        self._warm = None
        self.device.close()
        most = self._most or -(-bundles // LARGE)
        if most > 1:
            self._most = most // 2
        else:
            self._slots = 1 if self._slots > 1 else 0

    def _draft(self, flow: PassFlow, image: Image, job: Job, recorder: Recorder, letters: Letters) -> Drafts:
        """Make the first of two passes, and send its light to where it is needed."""
        drafts = Drafts(flow, job, image, self._crew)
        drafts.make(recorder, self._warn)
        with recorder.span("exchange"):
            drafts.exchange(letters)
        return drafts

    def _take(self, flow: Flow, image: Image, job: Job, mine: Sequence[int], recorder: Recorder,
              drafts: Drafts | None, meanwhile: Callable[[], object]) -> Rows:
        """Queue the frame, check each bundle when its piece arrives, and have the CPU do what the device gave up."""
        turn = LAST if drafts else ONCE
        with recorder.span("queue"):
            queued = flow.queue(image, recorder, turn)
            frame = _Frame(flow, image, job, mine, Rows(flow.task.fibres, models=(), notes={}, **queued), drafts)
        meanwhile()
        with self._crew.nothing_left():
            for p, piece in enumerate(flow.pieces):
                find = partial(drafts.odd_of, p) if drafts else partial(odd_pixels, flow, image, job, piece.bundles)
                told, odd = take_piece(flow, p, find, recorder, rows=queued, turn=turn)
                works: list[Work] = []
                for b in range(len(piece.bundles)):
                    with recorder.span("bundle"):
                        works += self._look(frame, (p, b), told, odd[b])
                if works:
                    with recorder.span(LEFT):
                        self._crew.add(works)
            with recorder.span(LEFT):
                self._crew.finish()
        return frame.made()

    def _look(self, frame: "_Frame", place: tuple[int, int], told: Mapping[str, np.ndarray],
              odd: IntArray) -> list[Work]:
        """Record the device's result for a bundle. Returns the crew's work for what is left of it, if anything.

        place: (piece, number of the bundle in it); told: the piece's report; odd: odd pixels of the bundle
        """
        flow, job, rows, (p, b) = frame.flow, frame.job, frame.rows, place
        bundle = flow.pieces[p].bundles[b]
        fibres, geometry = job.plan.bundles[frame.mine[bundle]], flow.task.geometries[bundle]
        own = slice(*(n - fibres[0] for n in wanted(fibres, job.plan)))
        if own.start == own.stop:      # only its light was needed, which is in the past of others
            return []
        facts, lost = facts_of(flow, told, b, bundle)
        drafts, number = frame.drafts, frame.mine[bundle]
        if (drafts and number in drafts.lights) or is_cpus(facts, job.plan.kept[slice(*fibres)], lost, self._warn):
            past = drafts.past(number) if drafts else None
            return [partial(on_cpu, frame.image, job, number, self._crew, frame.put, past)]
        if flow.task.sizes.model:
            frame.models[fibres[0]] = model_of(flow, told["model"][b], bundle)
        frame.notes[fibres[0]] = in_notes({**facts, **({"on_cpu": len(lost)} if lost else {})}, odd)
        corners = geometry.corners[0][own], geometry.corners[1][own]
        rejected: IntArray = NO_PIXELS
        if isinstance(flow, PassFlow):
            rejected = frame.rejected[fibres[0]] = flow.rejected(told, (p, b))
            frame.notes[fibres[0]] |= {"passes": job.config.passes, "rejected": len(rejected), "ran_away": 0,
                                       "hopeless": int(told["looks"][b, passes.HOPELESS])}
        if lost:
            seen = flow.seen(p, b, ("root", "light")) if isinstance(flow, PassFlow) else {}
            left = Lost(rows, fibres, lost, flow.kept(p, b), odd, corners, seen, rejected)
            return [partial(left.put, frame.image, job, self._crew)]
        mask = rows.mask[slice(*(n - rows.fibres[0] for n in wanted(fibres, job.plan)))]
        add_odd_bits(mask, odd, corners, job)
        mark_rejected(mask, rejected, corners, flow.task.job)      # this job knows the shape of spots
        return []

    def watch(self, recorder: Recorder, *, ranges: bool = False) -> None:
        """Let the recorder time the device's steps from now on. Graphs are no longer replayed, because their steps have
        no times. ranges: also make the recorder's spans NVTX ranges."""
        self._watched = True
        recorder.watch(self.device, ranges=ranges)

    def close(self) -> None:
        """Release all memory, and end the threads."""
        self._warm = None
        self._crew.close()
        if self._device is not None:
            self._device.close()


def _too_fine(job: Job) -> str:
    """Why the CPU must extract bins that are too fine for several passes on a device; "" if they are not."""
    fine = job.config.passes > 1 and job.shape.least < FINE
    return f"makes only one pass where bins are as fine as {job.config.wavelength[2]:g} Angstrom here" if fine else ""


def _unfit(psf: PsfModel, config: ExtractConfig, shape: tuple[int, int] = (0, 0)) -> str:
    """Why the CPU must extract such a frame, the same on all ranks; "" if a device can. shape: of the image."""
    reasons = {"cannot run the dense core": config.core == "dense",
               f"makes only one or two passes over an image, not {config.passes}": config.passes > 2,
               "cannot fit a background": config.background is not None and config.passes > 1,
               f"cannot make tabulated spots, as in {psf.name}": psf.tabulated,
               f"accepts images of up to {MOST_PIXELS} pixels a side, but this one is {shape[0]} x {shape[1]}":
                   max(shape) > MOST_PIXELS}
    return next((reason for reason, holds in reasons.items() if holds), "")
