"""Work that the device could not do, done by the CPU: whole bundles, or the decorrelation of some fibres."""
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Any

import numpy as np

from gpu_extract.assemble import BY_BIN, held, rows_of, wanted
from gpu_extract.bundle import Job, add_odd_bits, banded_part, clear_corners, extract_bundle, locate, make_normal
from gpu_extract.checks.odd_pixels import NO_PIXELS
from gpu_extract.data import Decorrelated, Image, IntArray, Rows, SpecMask
from gpu_extract.decorrelate.dense.patch_pixels import PatchPixels
from gpu_extract.device.crew import Crew
from gpu_extract.kernels.arena import Arena, borrowed
from gpu_extract.passes import Past, Seen
from gpu_extract.quality import bin_status, stands_out
from gpu_extract.ranks.comm import SERIAL
from gpu_extract.seams import NULL
from gpu_extract.several.bundles import extract_again, mark_rejected
from gpu_extract.solve import solve


def on_cpu(image: Image, job: Job, number: int, crew: Crew, take: Callable[[int, Rows], None],
           past: Past | None) -> None:
    """A job of the crew: make the requested rows of a bundle on the CPU.

    take: called with its number and rows; past: of its pixels, in a further pass
    """
    job, fibres = replace(job, threads=crew.share), job.plan.bundles[number]
    if past is None:
        result = extract_bundle(image, job, fibres, group=SERIAL, recorder=NULL)
    else:
        result = extract_again(image, job, fibres, past, group=SERIAL, recorder=NULL)
    take(number, all_on_cpu(rows_of(result, job.plan, job.dtype)))


def all_on_cpu(rows: Rows) -> Rows:
    """The rows, with notes that the CPU has made all of them."""
    return replace(rows, notes={first: {**facts, "on_cpu": facts["fibres"]} for first, facts in rows.notes.items()})


def put(rows: Rows, part: Rows) -> None:
    """Write a part of the rows to its place; models and notes are unchanged."""
    place = slice(part.fibres[0] - rows.fibres[0], part.fibres[1] - rows.fibres[0])
    for name in BY_BIN:
        getattr(rows, name)[place] = getattr(part, name)


@dataclass
class Lost:
    """Some fibres of a bundle that the CPU decorrelates, from its own normal equations, and the bundle's mask, which
    depends on all of its fibres. It writes the bundle's rows and no others.

    rows: of the frame, from the device; fibres: (lo, hi) of the bundle; lost: their numbers within it
    kept: of the bundle (memory.kept_arrays); odd: its odd pixels; corners: y0, x0 of all bins of its requested fibres
    seen: with several passes, the bundle's root and light from the device; rejected: the pixels that it left out
    """

    rows: Rows
    fibres: tuple[int, int]
    lost: Sequence[int]
    kept: Mapping[str, np.ndarray]
    odd: IntArray
    corners: tuple[IntArray, IntArray]
    seen: Mapping[str, np.ndarray] = field(default_factory=dict)
    rejected: IntArray = field(default_factory=lambda: NO_PIXELS)

    def put(self, image: Image, job: Job, crew: Crew) -> None:
        """Make and write everything: a job of the crew, which adds one for each fibre; the last of these makes the
        mask."""
        job = replace(job, threads=crew.share)
        with borrowed() as passing:
            place = locate(image, job, self.fibres, None if self.seen else passing)      # the core may need pixels
            for name, values in self.seen.items():
                getattr(place.cut, name)[:values.shape[0], :values.shape[1]] = values
            seen: Any = Seen(place.cut, image.shape) if self.seen else image
            _, normal = make_normal(job, place, group=SERIAL, recorder=NULL, arenas=(Arena(), passing))
            solution = solve(normal, passing)
        normal = replace(normal, lifted=solution.lifted)
        pixels = PatchPixels(seen, job.psf, self.fibres, job.plan.extended, place.odd)
        left, lock = list(self.lost), Lock()

        def work(n: int) -> None:
            self._put_fibre(n, banded_part(normal, solution.x, job, (n, n + 1), pixels), job)
            with lock:
                left.remove(n)
                last = not left
            if last:
                self._put_mask(job)

        crew.add([partial(work, n) for n in self.lost], first=True)

    def _put_fibre(self, n: int, part: Decorrelated, job: Job) -> None:
        """Write a fibre's row, and its bits for the mask."""
        rows, own, nothing = self.rows, self.kept["bits"][n], np.uint32(SpecMask.NODATA)
        clear_corners(part.resolution)
        own &= ~nothing
        own[part.ivar[0] == 0.0] |= nothing
        own[part.weak[0]] |= np.uint32(SpecMask.WEAKBIN)
        lo, hi = wanted(self.fibres, job.plan)
        if lo <= self.fibres[0] + n < hi:
            row, step = self.fibres[0] + n - rows.fibres[0], np.gradient(job.plan.wave)
            with np.errstate(over="ignore"):
                rows.flux[row], rows.ivar[row] = part.flux[0] / step, part.ivar[0] * step**2
            rows.resolution[row], rows.status[row] = part.resolution[0], bin_status(part.status[0], own)

    def _put_mask(self, job: Job) -> None:
        """Write the bundle's mask: the bits known so far, BAD2DFIT, and the bits of numbers that exceed the type of the
        rows, of odd pixels and of rejected ones."""
        bits, rows = self.kept["bits"], self.rows
        bits[stands_out(self.kept["chi2pix"], bits == 0)] |= np.uint32(SpecMask.BAD2DFIT)
        lo, hi = wanted(self.fibres, job.plan)
        own = slice(lo - rows.fibres[0], hi - rows.fibres[0])
        rows.mask[own] = bits[lo - self.fibres[0]:hi - self.fibres[0]]
        held(Rows((lo, hi), **{name: getattr(rows, name)[own] for name in BY_BIN}))     # in place; not known of `bits`
        add_odd_bits(rows.mask[own], self.odd, self.corners, job)
        mark_rejected(rows.mask[own], self.rejected, self.corners, job)
