"""Extraction on a GPU, for `run.extract(..., backend=...)`."""
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gpu_extract.backend.cuda.gradients import DONE, FLOOR, NORM
from gpu_extract.backend.cuda.seam import Device
from gpu_extract.bundle import Job, banded_part, clear_corners, dense_part, extract_bundle, locate, make_normal
from gpu_extract.comm import SERIAL
from gpu_extract.config import ExtractConfig
from gpu_extract.data import BundleResult, Image, PsfModel, Status
from gpu_extract.errors import InternalError
from gpu_extract.gpu_frame.flow import CoreMaker, Flow, Task, staged_type
from gpu_extract.gpu_frame.geometry import bundle_geometry, cut_pieces, psf_tables
from gpu_extract.gpu_frame.memory import sizes_of
from gpu_extract.plan import share
from gpu_extract.quality import mask_bits
from gpu_extract.solve import TOLERANCE, solve

LARGE = 2       # large pieces of a rank's bundles: a recursion along wavelength takes as long for one fibre as for many
SLOTS = 3       # pieces in flight


@dataclass(frozen=True)
class _Warm:
    """What is kept from one frame to the next: the flow, and what it was made for; pixels: type and shape of images."""

    psf: PsfModel
    config: ExtractConfig
    bundles: tuple[int, ...]
    pixels: tuple[Any, ...]
    flow: Flow

    def fits(self, job: Job, bundles: tuple[int, ...], pixels: tuple[Any, ...]) -> bool:
        """Whether it serves another frame."""
        return (self.psf is job.psf and self.config == job.config and self.bundles == bundles and self.pixels == pixels
                and self.flow.task.job.decay == job.decay)


class GpuFrames:
    """Extracts the bundles of a rank on a device; what cannot be done there is done on the CPU, and said in the notes.

    open_device: called once, at the first frame; cores: finds the maker of the core for a job
    most: bundles in a piece at most, None: half the rank's; slots: pieces in flight
    warn: told in one line of what has to be done on the CPU

    Bits do not depend on most, slots or ranks. After running out of device memory everything is done again in pieces
    of half the size, down to single bundles one after another, and then on the CPU.
    """

    warm_bins = 40       # a few half-bands: kernels are compiled for the band's width

    def __init__(self, open_device: Callable[[], Device], cores: Callable[[Job], CoreMaker], *, most: int | None = None,
                 slots: int = SLOTS, warn: Callable[[str], None] = lambda _: None):
        self._open, self._cores, self._most, self._slots, self._warn = open_device, cores, most, slots, warn
        self._device: Device | None = None
        self._warm: _Warm | None = None

    @property
    def device(self) -> Device:
        """The device, opened when it is first needed."""
        if self._device is None:
            self._device = self._open()
        return self._device

    @property
    def name(self) -> str:
        """For the header."""
        return self.device.name

    @property
    def flow(self) -> Flow:
        """That of the last frame."""
        if self._warm is None:
            raise InternalError("no frame has gone through the device yet")
        return self._warm.flow

    @property
    def warm(self) -> bool:
        """Whether a frame was done: all kernels are there."""
        return self._warm is not None

    def bundles(self, image: Image, job: Job, comm: Any, recorder: Any) -> list[tuple[int, BundleResult]]:
        """This rank's bundles, by number; their arrays are good until the next frame."""
        mine = tuple(share(len(job.plan.bundles), comm.rank, comm.size))
        if not mine:
            return []
        while self._slots > 0:
            results = self._attempt(image, job, mine, recorder)
            if results is not None:
                return results
            self._shrink(len(mine))
        self._warn(f"{self.name} has not enough free memory for one bundle: this rank works on the CPU")
        return [(n, self._on_cpu(image, job, n, recorder)) for n in mine]

    def _attempt(self, image: Image, job: Job, mine: tuple[int, ...],
                 recorder: Any) -> list[tuple[int, BundleResult]] | None:
        """The results, or None where the device's memory did not suffice; nothing holds on to it then."""
        try:
            return self._take(self._flow_for(image, job, mine), image, job, mine, recorder)
        except Exception as error:
            if not self.device.is_out_of_memory(error):
                raise
            return None

    def _flow_for(self, image: Image, job: Job, mine: tuple[int, ...]) -> Flow:
        """The flow of the frame before, or a new one."""
        dtype = staged_type(image)
        if self._warm is not None and self._warm.fits(job, mine, (dtype, image.shape)):
            return self._warm.flow
        self._forget()
        geometries = tuple(bundle_geometry(job, job.plan.bundles[n], image.shape) for n in mine)
        tables = psf_tables(job.psf, job.plan.extended)
        sizes = sizes_of(job.psf.stamp, np.array([g.cut for g in geometries]), tables, dtype, model=job.config.model)
        pieces = cut_pieces(geometries, self._most or -(-len(mine) // LARGE))
        flow = Flow(self.device, Task(job, geometries, tables, sizes, image.shape[0]), pieces, slots=self._slots,
                    make_core=self._cores(job))
        self._warm = _Warm(job.psf, job.config, mine, (dtype, image.shape), flow)
        return flow

    def _forget(self) -> None:
        """Give up the flow; the next one, with a PSF of its own, takes its memory from the pools again."""
        if self._warm is not None:
            self._warm = None
            self.device.forget()

    def _shrink(self, bundles: int) -> None:
        """Half the bundles in a piece, then one piece at a time, then none."""
        self._warm = None
        self.device.close()
        most = self._most or -(-bundles // LARGE)
        if most > 1:
            self._most = most // 2
        else:
            self._slots = 1 if self._slots > 1 else 0

    def _take(self, flow: Flow, image: Image, job: Job, mine: Sequence[int],
              recorder: Any) -> list[tuple[int, BundleResult]]:
        """Queue the frame, then make a result of each bundle as its piece arrives."""
        with recorder.span("queue"):
            flow.queue(image, recorder)
        results = []
        for p, piece in enumerate(flow.pieces):
            with recorder.span("wait"):
                arrays = flow.take(p)
            for b, bundle in enumerate(piece.bundles):
                with recorder.span("quality"):
                    result = _result(flow, arrays, (piece.shape.nfibre, b), bundle)
                results.append((mine[bundle], self._completed(result, image, job, mine[bundle], recorder)))
        return sorted(results, key=lambda item: item[0])

    def _completed(self, result: BundleResult, image: Image, job: Job, number: int, recorder: Any) -> BundleResult:
        """The result with what the device could not do done on the CPU: all of it, or some fibres' decorrelation."""
        if not result.notes["error"] <= max(10 * TOLERANCE, 10 * result.notes["floor"]):
            self._warn(f"fibres {result.fibres[0]} to {result.fibres[1] - 1} did not converge on the device: they are "
                       "done on the CPU")
            return self._on_cpu(image, job, number, recorder)
        failed = (result.status == Status.FAILED).any(axis=1)
        if failed.all():
            return self._on_cpu(image, job, number, recorder)
        return _with_fibres(result, np.nonzero(failed)[0], native(image), job, recorder) if failed.any() else result

    def _on_cpu(self, image: Image, job: Job, number: int, recorder: Any) -> BundleResult:
        """A bundle as the CPU makes it."""
        result = extract_bundle(native(image), job, job.plan.bundles[number], group=SERIAL, recorder=recorder)
        return replace(result, notes={**result.notes, "on_cpu": len(result.flux)})

    def watch(self, recorder: Any, *, ranges: bool = False) -> None:
        """Have the recorder look at the device from now on. ranges: and make its spans NVTX ranges."""
        recorder.watch(self.device, ranges=ranges)

    def close(self) -> None:
        """Give all memory back."""
        self._warm = None
        if self._device is not None:
            self._device.close()


def _with_fibres(result: BundleResult, fibres: np.ndarray, image: Image, job: Job, recorder: Any) -> BundleResult:
    """The result with these fibres of the bundle decorrelated by the CPU's cores, from normal equations of its own."""
    cut, bands = locate(image, job, result.fibres)
    _, normal = make_normal(job, result.fibres, cut, bands, group=SERIAL, recorder=recorder)
    x = solve(normal).x
    for n in fibres:
        by_core = dense_part if job.config.core == "dense" else banded_part
        with recorder.span("decorrelate"):
            part = by_core(normal, x, job, (int(n), int(n) + 1))
        clear_corners(part.resolution)
        for name in ("flux", "ivar", "resolution", "status"):
            getattr(result, name)[n] = getattr(part, name)[0]
    dropped = np.array([i in job.dropped for i in range(*result.fibres)])
    mask = mask_bits(result.ivar, result.chi2pix, result.pixmask_fraction, dropped)
    return replace(result, mask=mask, notes={**result.notes, "on_cpu": len(fibres)})


def native(image: Image) -> Image:
    """The image in this machine's byte order, as the CPU's kernels want it."""
    pix, ivar = (array.astype(array.dtype.newbyteorder("="), copy=False) for array in (image.pix, image.ivar))
    return replace(image, pix=pix, ivar=ivar)


def device_cores(job: Job) -> CoreMaker:
    """The core that a job asks for, on the device; fibres in groups are the CPU's alone."""
    from gpu_extract.cores.dense import Cuts
    from gpu_extract.cores.device_banded import BandedCore
    from gpu_extract.cores.device_dense import DenseCore, NoCore

    if job.config.core != "dense":
        return BandedCore
    if job.config.nsubbundles is not None:
        return NoCore
    return partial(DenseCore, cuts=Cuts(job.plan.inner, job.config.nwavestep, job.decay.patch, job.neighbours,
                                        job.config.tolerance))


def _result(flow: Flow, arrays: dict[str, np.ndarray], place: tuple[int, int], bundle: int) -> BundleResult:
    """The result of a bundle: views of its rows in a piece's arrays; place: (fibres in a bundle, its number)."""
    nfibre, b = place
    geometry, job = flow.task.geometries[bundle], flow.task.job
    rows = slice(b * nfibre, (b + 1) * nfibre)
    flux, ivar, resolution, status, chi2pix, fraction = (
        arrays[name][rows] for name in ("flux", "ivar", "resolution", "status", "chi2pix", "fraction"))
    dropped = np.array([i in job.dropped for i in range(*geometry.fibres)])
    state = arrays["state"][b]
    notes = {"iterations": int(state[DONE]), "error": float(np.sqrt(state[NORM])), "halfband": geometry.shape.hw,
             "neighbours": geometry.shape.nd - 1, "regularised": int(arrays["regularised"][rows].sum()),
             "floor": float(state[FLOOR])}
    model, column = None, 0
    if flow.task.sizes.model:
        (ys, xs), column = geometry.window, int(geometry.cut[1])
        model = np.zeros((flow.task.rows, xs.stop - xs.start))
        model[ys] = arrays["model"][b, :xs.stop - xs.start, :ys.stop - ys.start].T
    return BundleResult(geometry.fibres, flux, ivar, resolution, chi2pix, fraction,
                        mask_bits(ivar, chi2pix, fraction, dropped), status, model, column, notes)
