"""The first of two passes over a frame, on the device, and on the CPU for bundles that the device cannot do.

After it, bundles exchange their light. The device does so for the bundles of its rank; light on other ranks' pixels
goes from host to host, as it does without devices.
"""
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from gpu_extract.bundle import Job
from gpu_extract.data import Array, Image, IntArray, Light
from gpu_extract.device.crew import Crew
from gpu_extract.device.flow import DRAFT
from gpu_extract.device.geometry import bundle_geometry
from gpu_extract.device.pass_flow import PassFlow
from gpu_extract.device.pass_plan import window_of
from gpu_extract.device.told import LEFT, facts_of, is_cpus, odd_pixels, take_piece
from gpu_extract.passes import Past
from gpu_extract.passes.crosstalk import Piece, Window, overlap
from gpu_extract.seams import NULL, Comm, Recorder
from gpu_extract.several.bundles import draft_bundle
from gpu_extract.several.exchange import Parts, noise_of, of_all, pieces_of


class Letters:
    """The exchange between ranks after the first pass. It happens once, even if a rank repeats the frame."""

    def __init__(self, comm: Comm):
        self.alone = comm.size == 1
        self._comm = comm
        self._known: list[Parts] | None = None

    def after(self, own: Callable[[], Mapping[int, Parts]]) -> list[Parts]:
        """The parts of all bundles' light, by number of the bundle that emits it; all ranks call this at least once.
        own: makes the parts of this rank's bundles."""
        if self._known is None:
            self._known = of_all(self._comm, own())
        return self._known


def windows_of(image: Image, job: Job) -> list[Window]:
    """The pixels of all bundles of a job."""
    return [window_of(bundle_geometry(job, bundle, image.shape)) for bundle in job.plan.bundles]


@dataclass(frozen=True)
class Drafts:
    """The results of a first pass, on a device and the CPU.

    lights: of bundles that the CPU has done, by number in the job; odd: for each piece, odd pixels of its bundles
    """

    flow: PassFlow
    job: Job
    image: Image
    crew: Crew
    lights: dict[int, Light] = field(default_factory=dict)
    odd: list[list[IntArray]] = field(default_factory=list)

    def make(self, recorder: Recorder, warn: Callable[[str], None]) -> None:
        """Make the first pass of all bundles of the rank; warn: see GpuFrames."""
        flow, job, crew = self.flow, self.job, self.crew
        with recorder.span("queue"):
            flow.draft(self.image, noise_of(job), recorder)
        with crew.nothing_left():
            for p, piece in enumerate(flow.pieces):
                find = partial(odd_pixels, flow, self.image, job, piece.bundles)
                told, odd = take_piece(flow, p, find, recorder, rows={}, turn=DRAFT)
                self.odd.append(odd)
                for b, bundle in enumerate(piece.bundles):
                    facts, _ = facts_of(flow, told, b, bundle)
                    if is_cpus(facts, job.plan.kept[slice(*flow.task.geometries[bundle].fibres)], (), warn):
                        with recorder.span(LEFT):
                            crew.add([partial(_draft, self.lights, self.image, job, flow.task.mine[bundle], crew)])
            with recorder.span(LEFT):
                crew.finish()

    def odd_of(self, p: int, _: Array) -> list[IntArray]:
        """The odd pixels of the bundles of a piece, as found in the first pass."""
        return self.odd[p]

    def light(self, number: int) -> Light:
        """The light of a bundle of this rank."""
        return self.lights.get(number) or self.flow.light(*self._place(number))

    def past(self, number: int) -> Past:
        """What the CPU needs for a further pass of a bundle of this rank."""
        others = self.flow.seen(*self._place(number), ("others",))["others"]
        light = self.light(number)
        return Past(noise_of(self.job), light, (Piece(others, light.corner),))

    def _place(self, number: int) -> tuple[int, int]:
        """A bundle's piece, and its place in it."""
        bundle = self.flow.task.mine.index(number)
        return next((p, piece.bundles.index(bundle)) for p, piece in enumerate(self.flow.pieces)
                    if bundle in piece.bundles)

    def exchange(self, letters: Letters) -> None:
        """Bring the light of all bundles to where it is needed: upload that of the CPU's bundles and of other ranks,
        and spread all of it over the pixels."""
        flow, mine = self.flow, self.flow.task.mine
        for number, light in sorted(self.lights.items()):
            flow.put(number, [Piece(light.model, light.corner)], [Piece(light.tails, light.tail_corner)])
        if not letters.alone:
            parts = letters.after(self._told)
            for number in flow.passes.numbers:
                if number not in mine:
                    own = [part for part in parts[number] if part[0] in mine]
                    flow.put(number, *([piece for _, tail, piece in own if tail == kind] for kind in (0, 1)))
        flow.spread()

    def _told(self) -> dict[int, Parts]:
        """The light that this rank's bundles send to those of other ranks. Light that reaches none stays on the
        device."""
        task, windows = self.flow.task, windows_of(self.image, self.job)
        far = [n for n in range(len(windows)) if n not in task.mine]
        told: dict[int, Parts] = {}
        for number, geometry in zip(task.mine, task.geometries, strict=True):
            own = window_of(geometry, self.flow.passes.far)
            reaches = any(min(overlap(own, windows[n])[2:]) > 0 for n in far)
            parts = pieces_of(number, self.light(number), windows) if reaches else []
            told[number] = [part for part in parts if part[0] in far]
        return told


def _draft(lights: dict[int, Light], image: Image, job: Job, number: int, crew: Crew) -> None:
    """A job of the crew: make the draft of a bundle and add its light to the others."""
    lights[number] = draft_bundle(image, replace(job, threads=crew.share), job.plan.bundles[number],
                                  Past(noise_of(job)), recorder=NULL)


def pasts_by_cpu(image: Image, job: Job, mine: Sequence[int], letters: Letters, crew: Crew) -> dict[int, Past]:
    """The pasts of all bundles of a rank, made by the CPU."""
    lights: dict[int, Light] = {}
    with crew.nothing_left():
        crew.add([partial(_draft, lights, image, job, number, crew) for number in mine])
        crew.finish()
    windows = windows_of(image, job)
    own = {n: pieces_of(n, lights[n], windows) for n in mine}
    parts = [own.get(n, told) for n, told in enumerate(letters.after(lambda: own))]
    return {n: Past(noise_of(job), lights[n], [piece for told in parts for target, _, piece in told if target == n])
            for n in mine}
