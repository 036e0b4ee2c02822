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
from gpu_extract.perf.recorder import usable_cores
from gpu_extract.plan import share
from gpu_extract.seams import Comm, Recorder
from gpu_extract.several.bundles import mark_rejected

LARGE = 2       # large pieces of a rank's bundles: a recursion along wavelength takes as long for one fibre as for many
SLOTS = 4       # pieces in flight
MOST_PIXELS = 32000      # rows or columns: kernels keep both in 16 bits, with the part of a spot that is off the CCD


def _asked(image: Image, job: Job, mine: tuple[int, ...]) -> tuple[Any, ...]:
    """All that a flow depends on: what a PSF says counts, not who read it or how often it was checked."""
    noise = None if job.noise is None else (str(noise_type(job.noise)), job.noise.split)
    types = str(job.dtype), str(staged_type(image))
    return replace(job.psf, name=""), job.config, job.decay, job.dropped, mine, types, image.shape, noise


@dataclass(frozen=True)
class _Frame:
    """A frame under way. drafts: what the first of two passes has left.

    notes, models, rejected: by the first fibres of bundles; threads add those of their own bundles
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
        """Take a bundle's rows from the CPU."""
        put(self.rows, part)
        self.notes.update({first: dict(facts) for first, facts in part.notes.items()})
        self.models.update(zip(part.notes, part.models, strict=False))
        self.rejected.update(dict.fromkeys(part.notes, part.rejected))

    def made(self) -> Rows:
        """The rows, notes and models in the order of the bundles, whoever was done first."""
        return replace(self.rows, notes=dict(sorted(self.notes.items())),
                       models=tuple(model for _, model in sorted(self.models.items(), key=lambda one: one[0])),
                       rejected=np.concatenate([NO_PIXELS, *(self.rejected[first] for first in sorted(self.rejected))]))


class GpuFrames(Backend):
    """Extracts the bundles of a rank on a device; what cannot be done there is done on the CPU, and said in the notes.

    open_device: called once, at the first frame; core: makes what decorrelates
    most: bundles in a piece at most, None: half the rank's; slots: pieces in flight
    cpu: does the frames that no device does; warn: told in one line of what has to be done on the CPU
    threads: do what the device leaves of a frame, beside it; None: as many as this process may use cores. Where ranks
        may run on the same cores, each should be given its part of them

    Bits do not depend on most, slots, threads or ranks. After running out of device memory everything is done again in
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
        self._warm: tuple[tuple[Any, ...], Flow] | None = None      # what the flow was made for, copied, and the flow

    @property
    def device(self) -> Device:
        """The device, opened when it is first needed."""
        if self._device is None:
            self._device = self._open()
        return self._device

    @property
    def threads(self) -> int:
        """How many do what the device leaves."""
        return self._crew.threads

    @property
    def name(self) -> str:
        """For the header."""
        return self.device.name

    @property
    def flow(self) -> Flow:
        """That of the last frame."""
        if self._warm is None:
            raise InternalError("no frame has been extracted on the device yet")
        return self._warm[1]

    @property
    def warm(self) -> bool:
        """Whether a frame was done: all kernels are there."""
        return self._warm is not None

    def get_ready(self, psf: PsfModel, config: ExtractConfig, comm: Comm, recorder: Recorder) -> bool:
        """Those of the CPU, where it does the work: which kernels of a device are there already cannot be told."""
        return bool(_unfit(psf, config)) and self._cpu.get_ready(psf, config, comm, recorder)

    def rows(self, image: Image, job: Job, comm: Comm, recorder: Recorder, *,
             start: Draft | None = None, meanwhile: Callable[[], object] = lambda: None) -> list[tuple[int, Rows]]:
        """This rank's rows of the frame, with a number that grows with them; their memory is theirs.

        start: an extraction that starts from one is the CPU's; meanwhile: done once a frame is queued
        """
        why = "cannot start from a draft" if start is not None else ""
        if why := _unfit(job.psf, job.config, image.shape) or why:
            if why != self._told:       # of a night's frames the first one says it
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
            if job.config.passes > 1:       # a rank without bundles takes part as well
                pasts = pasts_by_cpu(image, job, mine, letters, self._crew)
            self._crew.add([partial(on_cpu, image, job, n, self._crew, found.__setitem__, pasts.get(n)) for n in mine])
        return [(n, found[n]) for n in mine]

    def _attempt(self, image: Image, job: Job, mine: tuple[int, ...], recorder: Recorder, letters: Letters,
                 meanwhile: Callable[[], object]) -> Rows | None:
        """The rows, or None where the device's memory did not suffice; nothing holds on to it then."""
        try:
            flow = self._flow_for(image, job, mine, letters)
            flow.replays = not self._watched
            drafts = self._draft(flow, image, job, recorder, letters) if isinstance(flow, PassFlow) else None
            return self._take(flow, image, job, mine, recorder, drafts, meanwhile)
        except Exception as error:
            if not self.device.is_out_of_memory(error):
                self._warm = None       # what is still under way must not meet the next frame
                with suppress(RuntimeError):
                    self.device.close()
                raise
            return None

    def _flow_for(self, image: Image, job: Job, mine: tuple[int, ...], letters: Letters) -> Flow:
        """The flow of the frame before, or a new one."""
        asked = _asked(image, job, mine)
        if self._warm is not None and same(self._warm[0], asked):
            return self._warm[1]
        self._warm = None       # the next one, with a PSF of its own, takes its memory from the pools again
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
        """Half the bundles in a piece, then one piece at a time, then none."""
        self._warm = None
        self.device.close()
        most = self._most or -(-bundles // LARGE)
        if most > 1:
            self._most = most // 2
        else:
            self._slots = 1 if self._slots > 1 else 0

    def _draft(self, flow: PassFlow, image: Image, job: Job, recorder: Recorder, letters: Letters) -> Drafts:
        """The first of two passes, and its light to where it is needed."""
        drafts = Drafts(flow, job, image, self._crew)
        drafts.make(recorder, self._warn)
        with recorder.span("exchange"):
            drafts.exchange(letters)
        return drafts

    def _take(self, flow: Flow, image: Image, job: Job, mine: Sequence[int], recorder: Recorder,
              drafts: Drafts | None, meanwhile: Callable[[], object]) -> Rows:
        """Queue the frame, then look at each bundle as its piece arrives, and have done what the device gave up."""
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
        """Note what the device has made of a bundle, and return what is left of it: nothing, or a work of the crew.

        place: (piece, bundle of it); told: of the piece; odd: pixels of the bundle
        """
        flow, job, rows, (p, b) = frame.flow, frame.job, frame.rows, place
        bundle = flow.pieces[p].bundles[b]
        fibres, geometry = job.plan.bundles[frame.mine[bundle]], flow.task.geometries[bundle]
        own = slice(*(n - fibres[0] for n in wanted(fibres, job.plan)))
        if own.start == own.stop:      # its light was needed, and is in the past of others
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
        mark_rejected(mask, rejected, corners, flow.task.job)      # which knows the shape of spots
        return []

    def watch(self, recorder: Recorder, *, ranges: bool = False) -> None:
        """Have the recorder look at the device from now on, step by step: nothing is replayed any more, since the steps
        of a graph have no times. ranges: and make its spans NVTX ranges."""
        self._watched = True
        recorder.watch(self.device, ranges=ranges)

    def close(self) -> None:
        """Give all memory back, and end the threads."""
        self._warm = None
        self._crew.close()
        if self._device is not None:
            self._device.close()


def _unfit(psf: PsfModel, config: ExtractConfig, shape: tuple[int, int] = (0, 0)) -> str:
    """Why such a frame is the CPU's, the same on all ranks; "" where a device does it. shape: of the image."""
    reasons = {"cannot run the dense core": config.core == "dense",
               f"makes only one or two passes over an image, not {config.passes}": config.passes > 2,
               "cannot fit a background": config.background is not None and config.passes > 1,
               f"cannot make tabulated spots, as in {psf.name}": psf.tabulated,
               f"accepts images of up to {MOST_PIXELS} pixels a side, but this one is {shape[0]} x {shape[1]}":
                   max(shape) > MOST_PIXELS}
    return next((reason for reason, holds in reasons.items() if holds), "")
