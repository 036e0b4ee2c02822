"""The banded core on a device: all fibres of a piece at once, every decision taken on the device.

The mathematics and the limits are those of decorrelate.banded and narrow.schur. What is left to the CPU is marked
FAILED: fibres whose narrow band does not hold, and those with more than device_sizes.DEEPEST fibres in a row that
matter to each other.
"""
from math import prod
from typing import Any

import numpy as np

from gpu_extract.data import Status
from gpu_extract.decorrelate.banded import AGREEMENT, NARROW
from gpu_extract.decorrelate.limits import Limits
from gpu_extract.decorrelate.narrow import simd_correct, simd_foresee
from gpu_extract.decorrelate.narrow.schur import DECAY, WORST
from gpu_extract.decorrelate.narrow.simd_correct import HALF
from gpu_extract.decorrelate.narrow.simd_finish import CANCELLED
from gpu_extract.decorrelate.poles import LADDER
from gpu_extract.decorrelate.weak import TOLD
from gpu_extract.device import device_tables
from gpu_extract.device.cuda.lanes import OF_PRODUCT, OF_SHARE, block_lanes, fours, tile_of, tiles_of
from gpu_extract.device.cuda.piece import PieceNormal, PieceOut, PieceShape
from gpu_extract.device.cuda.seam import Device, DeviceArray, Empty
from gpu_extract.device.cuda.text import eliminate, measure, names, poles, sweeps
from gpu_extract.device.device_sizes import Sizes
from gpu_extract.seams import Recorder


class BandedCore:
    """Decorrelates pieces of one shape; its work arrays are made once.

    room: gives memory for them, None: the device. Raises what the device raises where memory is exhausted.
    """

    def __init__(self, device: Device, shape: PieceShape, limits: Limits | None = None, *, room: Empty | None = None):
        self._device, self._limits = device, limits or Limits()
        self._sizes = sizes = Sizes.of(shape, self._limits)
        empty = room or device.empty
        self._arrays = {name: empty((count,), kind) for name, (count, kind) in sizes.arrays().items()}
        tables = {"questions": device_tables.questions_table(), "poles": device_tables.poles_table(),
                  "ratios": device_tables.RATIOS, "halves": np.array(sizes.halves, dtype=np.int32)}
        if "scratch" in self._arrays:
            self._arrays |= {name: self._arrays["scratch"].part(*place) for name, place in sizes.parts().items()}
        stream, ready = device.stream(), device.event()
        staged = {name: device.pinned((table.size,), table.dtype) for name, table in tables.items()}
        for name, table in tables.items():
            staged[name][:] = table.ravel()
            self._arrays[name] = device.empty((table.size,), table.dtype)
            device.upload(staged[name], self._arrays[name], stream)
        device.record(ready, stream)
        device.finish(ready)

    def run(self, normal: PieceNormal, out: PieceOut, stream: Any, recorder: Recorder) -> None:
        """Queue everything for one piece of at most the shape's bundles; nothing is waited for.

        recorder: times the steps (perf.recorder)
        """
        _Run(self._device, self._sizes, self._limits, self._arrays, stream).all(normal, out, recorder)


class _Run:
    """One piece on its way."""

    def __init__(self, device: Device, sizes: Sizes, limits: Limits, arrays: dict[str, DeviceArray], stream: Any):
        self.device, self.sizes, self.limits, self.stream = device, sizes, limits, stream
        self.a = arrays
        self.fibres = 0

    def launch(self, kernel: Any, count: int, *args: Any) -> None:
        """Queue a kernel; work arrays are given by their names."""
        values = tuple(self.a[arg] if isinstance(arg, str) else arg for arg in args)
        self.device.launch(kernel, count, values, self.stream)

    def all(self, normal: PieceNormal, out: PieceOut, recorder: Recorder) -> None:
        """All steps."""
        self.fibres = normal.x.shape[0]
        if self.sizes.shape.hw > NARROW:
            self.launch(measure.leave, self.fibres, "flags", normal.weight, self.sizes.shape.nwave, self.fibres)
            self.write(out, None, None, None)
            return
        with recorder.device_span("eliminate"):
            self.prepare(normal)
            self.eliminate()
            self.complements(0, self.sizes.halves[0])
        with recorder.device_span("measure"):
            self.measure(0)
            self.look_beyond()
            self.widen()
            self.chains()
            self.complements(eliminate.WIDER, self.sizes.half)
            for width in range(1, len(self.sizes.halves)):
                self.measure(width)
            self.decide()
        with recorder.device_span("poles"):
            self.poles()
        with recorder.device_span("finish"):
            self.finish()
            self.write(out, "sums", "left", "reciprocal")

    def prepare(self, normal: PieceNormal) -> None:
        """Fibres become the fastest axis; how strongly they are coupled."""
        s, fibres = self.sizes.shape, self.fibres
        width = 2 * s.hw + 1
        self.launch(eliminate.transpose, fours(s.nwave) * s.nd * fibres, "blocks", normal.icov, s.nd, width,
                    s.nwave, fibres)
        self.launch(eliminate.vectors, s.nwave * fibres, "sides", "roots", "blocks", normal.weight, normal.x, s.hw,
                    s.nwave, fibres)
        self.launch(eliminate.largest, s.nd * width * eliminate.STRETCHES * fibres, "tops", "blocks", "roots", s.nwave,
                    s.hw, fibres, s.nfibre)
        self.launch(eliminate.coupling, s.nd * fibres, "sizes", "tops", s.hw, fibres)
        self.device.clear(self.a["depth"], self.stream)
        self.device.clear(self.a["all"], self.stream)

    def factor(self, low: str, band: str, gate: tuple[Any, int], half: int, *, place: int, row: int,
               lanes: int) -> None:
        """Factors of band matrices, rows of `row` elements of which those from `place` on count; gate: an array, and
        what it holds for those who take part."""
        nwave = self.sizes.shape.nwave
        matrix = gate[1], place * lanes, 1, row * lanes, lanes, nwave, tile_of(nwave), lanes
        self.launch(sweeps.settle.sized(half), tiles_of(nwave) * lanes, "halo", gate[0], band, *matrix)
        self.launch(sweeps.factor.sized(half), tiles_of(nwave) * lanes, low, "halo", gate[0], band, *matrix)

    def invert(self, inverse: str, low: str, gate: tuple[str, int], half: int, *, lanes: int) -> None:
        """The inverse within its band, from factors."""
        nwave = self.sizes.shape.nwave
        self.launch(sweeps.invert.sized(half), tiles_of(nwave) * lanes, inverse, low, "halo", *gate,
                    self.sizes.wide + 1, nwave, tile_of(nwave), lanes)

    def solve(self, x: str, low: str, half: int, *, pairs: int, lanes: int) -> None:
        """x becomes the solutions for factors; `own` says whose."""
        nwave = self.sizes.shape.nwave
        count, cut = tiles_of(nwave) * pairs, (nwave, tile_of(nwave), pairs, lanes)
        self.launch(sweeps.substitute.sized(half), count, "half_way", x, low, "halo", "own", *cut)
        self.launch(sweeps.resubstitute.sized(half), count, x, "half_way", low, "halo", "own", *cut)

    def eliminate(self) -> None:
        """What every fibre, as it stands, takes from those around it."""
        s, fibres, narrow = self.sizes.shape, self.fibres, self.sizes.halves[0]
        self.factor("low", "blocks", ("all", 0), s.hw, place=s.hw, row=2 * s.hw + 1, lanes=fibres)
        self.invert("inverse", "low", ("all", 0), s.hw, lanes=fibres)
        self.extend("inverse", "low", ("depth", 0), s.hw, narrow, lanes=fibres)
        for d in range(2, s.nd):
            self.shares("pair_shares", d, ("wider", 0), narrow)
            self.schur(0, narrow, "far", "pair_shares", d > 2)
            self.move("pair_moved", d)
            self.add_moved("far_ux", "far_ux", int(d > 2), "pair_moved", d)
        self.shares("shares", 1, ("wider", 0), narrow)
        self.move("moved", 1)

    def widen(self) -> None:
        """More diagonals of the shares, where they are needed."""
        s, fibres, half, mark = self.sizes.shape, self.fibres, self.sizes.half, eliminate.WIDER
        self.launch(measure.widen, fibres, "wider", "depth", "flags", s.nd, fibres, s.nfibre)
        self.extend("inverse", "low", (self.row("wider", 2), mark), s.hw, half, lanes=fibres)
        for d in range(2, s.nd):
            self.shares("pair_shares", d, ("wider", mark), half)
            self.schur(mark, half, "far", "pair_shares", d > 2)
        self.shares("shares", 1, ("wider", mark), half)

    def extend(self, inverse: str, low: str, gate: tuple[Any, int], reach: int, half: int, *, lanes: int) -> None:
        """The inverse beyond its band, `reach`, as far as products of half-band `half` ask for it."""
        s = self.sizes.shape
        self.launch(eliminate.extend.sized(reach), s.nwave * lanes, inverse, low, *gate, 2 * s.hw + half,
                    self.sizes.wide + 1, lanes)

    def shares(self, shares: str, distance: int, gate: tuple[str, int], half: int) -> None:
        """Shares of pairs at a distance, `half` diagonals of them; gate: as `factor`, 0: all pairs."""
        s, fibres, sizes = self.sizes.shape, self.fibres, self.sizes
        which = "sizes", *gate, self.limits.distant, distance, s.nwave, half
        blocks = [2 * fibres * block_lanes(s.nwave, columns + 1, block) for columns, block in (
            (2 * s.hw + half, OF_PRODUCT), (half, OF_SHARE))]
        v, given = self.rows("v", 2 * (2 * s.hw + half + 1)), self.blocks(distance)
        self.launch(eliminate.product.sized(s.hw), blocks[0], v, given, "pair_inverse" if gate[1] > 0 else "inverse",
                    *which, sizes.wide + 1, fibres, s.nfibre)
        self.launch(eliminate.share.sized(s.hw), blocks[1], self.rows(shares, 2 * (half + 1)), v, given, *which, fibres,
                    s.nfibre)

    def rows(self, name: str, count: int, first: int = 0) -> DeviceArray:
        """A part of an array: so many numbers for every bin."""
        n = self.sizes.shape.nwave * self.fibres
        return self.a[name].part(first * n, (first + count) * n)

    def blocks(self, distance: int) -> DeviceArray:
        """The blocks of fibres at a distance."""
        width = 2 * self.sizes.shape.hw + 1
        return self.rows("blocks", width, distance * width)

    def schur(self, wanted: int, half: int, taken: str, shares: str, more: bool, of: Any = (None, None)) -> None:
        """taken = the shares of both sides, more: added to those of farther fibres; of: S and the blocks that they are
        taken from; wanted, half: as `complements`."""
        s, fibres, (band, blocks) = self.sizes.shape, self.fibres, of
        self.launch(eliminate.schur, s.nwave * fibres, taken, band, "far" if more else None, blocks,
                    self.rows(shares, 2 * (half + 1)), "wider", wanted, s.nwave, s.hw, half, self.sizes.half, fibres)

    def move(self, moved: str, distance: int, *, depth: int = 0) -> None:
        """Z G^T x of all pairs at a distance, or of next neighbours of a depth."""
        s, fibres = self.sizes.shape, self.fibres
        low, reach = ("pair_low", self.sizes.half) if depth else ("low", s.hw)
        self.launch(eliminate.carry.sized(s.hw), 2 * fours(s.nwave) * fibres, moved, "own",
                    self.blocks(distance), "sides", "sizes", "depth", depth, self.limits.distant, distance, s.nwave,
                    fibres, s.nfibre)
        self.solve(moved, low, reach, pairs=2 * fibres, lanes=2 * fibres if depth else fibres)

    def add_moved(self, ux: str, before: str, more: int, moved: str, distance: int, *, wanted: int = 0) -> None:
        """U x of the pairs at a distance; wanted: as `complements`."""
        s = self.sizes.shape
        self.launch(eliminate.moved_by.sized(s.hw), fours(s.nwave) * self.fibres, ux, before, moved,
                    self.blocks(distance), "sizes", "wider", more, wanted, self.limits.distant, distance, s.nwave,
                    self.fibres, s.nfibre)

    def complements(self, wanted: int, half: int) -> None:
        """S, U and U x from the shares as they are, `half` diagonals, of fibres marked `wanted` in `wider`, 0: all."""
        s, reach, fibres, gate = self.sizes.shape, self.sizes.half, self.fibres, ("wider", wanted)
        self.add_moved("ux", "far_ux", int(s.nd > 2), "moved", 1, wanted=wanted)
        self.schur(wanted, half, "taken", "shares", s.nd > 2, ("band", self.blocks(0)))
        self.launch(eliminate.tops, (half + 2) * eliminate.STRETCHES * fibres, "tops", "band", "sides", *gate, s.nwave,
                    half, reach, fibres)
        self.launch(measure.bound, fibres, "facts", "flags", "tops", *gate, half, fibres)
        self.launch(measure.decouple, s.nwave * fibres, "band", "facts", "roots", reach, fibres)

    def measure(self, width: int) -> None:
        """Facts about fibres in band number `width`."""
        s, sizes, fibres, limits = self.sizes.shape, self.sizes, self.fibres, self.limits
        self.launch(measure.choose, fibres, "facts", "flags", "depth", width, len(sizes.halves) - 1,
                    sizes.deepest, fibres)
        for between in range(2):
            self.ask(between, width)
            self.launch(measure.learn, fibres, "facts", "flags", "yes", "questions", "ratios", len(LADDER), between,
                        width, fibres)
        self.launch(measure.foresee, sizes.chunks * fibres, "chunks", "band", "taken", "ux", "sides", "roots",
                    "flags", simd_foresee.BRIGHT, simd_foresee.LEAST, sizes.halves[width], s.nwave, sizes.half, fibres)
        self.launch(measure.conclude, fibres, "facts", "flags", "chunks", limits.tail, limits.shift, limits.noisy_shift,
                    limits.bright, DECAY, limits.uneven, limits.uneven_shift, width, s.nwave, fibres)

    def ask(self, between: int, width: int) -> None:
        """The sets of questions that do not depend on answers, at first that about farther fibres too; then that of a
        fibre's rung."""
        sizes = self.sizes
        sets = 1 if between else 3 if width == 0 and sizes.shape.nd > 2 else 2
        self.launch(sweeps.ask.sized(sizes.halves[width]), sets * measure.QUESTIONS * self.fibres, "yes", "band",
                    "taken", "far", "facts", "flags", "questions", between, device_tables.FAR, sizes.shape.nwave,
                    sizes.half, self.fibres)

    def row(self, table: str, n: int) -> DeviceArray:
        """Row n of an array of one number for every fibre."""
        return self.a[table].part(n * self.fibres, (n + 1) * self.fibres)

    def decide(self) -> None:
        """Whether the narrow band holds."""
        s, limits = self.sizes.shape, self.limits
        self.launch(measure.decide, self.fibres, "facts", "flags", "sizes", limits.coupling, limits.most_coupling,
                    limits.distant, TOLD, WORST, s.nd, self.fibres, s.nfibre)

    def look_beyond(self) -> None:
        """How strongly fibres farther than the next are coupled, and which fibres they reach through each other."""
        s, fibres = self.sizes.shape, self.fibres
        if s.nd > 2:
            self.launch(measure.learn_far, fibres, "facts", "flags", "yes", "sizes", "questions", self.limits.distant,
                        device_tables.FAR, s.nd, fibres, s.nfibre)
        self.launch(measure.chain, 2 * fibres, "depth", "facts", self.limits.coupling, fibres, s.nfibre)

    def chains(self) -> None:
        """Shares of neighbours that are eliminated together with fibres beyond them, from the last one inwards."""
        s, sizes, fibres = self.sizes.shape, self.sizes, self.fibres
        for depth in range(1, sizes.deepest + 1):
            self.launch(eliminate.rest, 2 * s.nwave * fibres, "pair_band", "blocks", "shares", "depth", depth, s.nwave,
                        s.hw, sizes.half, fibres, s.nfibre)
            self.factor("pair_low", "pair_band", ("depth", depth), sizes.half, place=0, row=sizes.half + 1,
                        lanes=2 * fibres)
            self.invert("pair_inverse", "pair_low", ("depth", depth), sizes.half, lanes=2 * fibres)
            self.extend("pair_inverse", "pair_low", ("depth", depth), sizes.half, sizes.half, lanes=2 * fibres)
            self.shares("shares", 1, ("depth", depth), sizes.half)
            self.move("moved", 1, depth=depth)

    def poles(self) -> None:
        """The sum over the poles."""
        s, sizes, fibres = self.sizes.shape, self.sizes, self.fibres
        cut, tiles = (s.nwave, tile_of(s.nwave, poles=True)), tiles_of(s.nwave, poles=True)
        lanes = tiles * sweeps.GROUP * fibres
        for width, half in enumerate(sizes.halves):
            self.launch(sweeps.settle_pole.sized(half), tiles * fibres, "halo", "flags", "band", width, *cut,
                        sizes.half, fibres)
        for group in range(-(-max(count for count, _ in LADDER) // sweeps.GROUP)):
            for width, half in enumerate(sizes.halves):
                columns = sweeps.SIDES + 1 + half
                work = self.a["work"].part(0, sweeps.GROUP * columns * s.nwave * fibres)
                which = "halo", "facts", "flags", "poles", group, width, columns, *cut
                self.launch(sweeps.poles_down.sized(half), lanes, work, "band", "sides", *which, sizes.half, fibres)
                self.launch(sweeps.poles_up.sized(half, sizes.ndiag), lanes, "found", work, *which, fibres)
            self.launch(sweeps.add_up, -(-sizes.kept // sweeps.ELEMENTS) * s.nwave * fibres, "sums", "found",
                        "facts", "flags", "poles", group, sizes.kept, fibres)

    def finish(self) -> None:
        """1 / s, the checks, and the flux's correction."""
        s, sizes, fibres = self.sizes.shape, self.sizes, self.fibres
        bins = s.nwave * fibres
        self.launch(poles.divide, bins, "reciprocal", "sums", "sides", "facts", "flags", "poles", sizes.kept, fibres)
        self.launch(poles.square, sizes.chunks * fibres, "chunks", "sums", "band", "flags", CANCELLED, sizes.kept,
                    s.ndiag, s.nwave, sizes.half, fibres)
        self.launch(poles.agree, fibres, "flags", "chunks", "facts", AGREEMENT, s.nwave, fibres)
        self.launch(poles.left.sized(HALF), bins, "q", "left", "own", "sums", "taken", "ux", "sides", "flags", "halves",
                    simd_correct.SPREAD, simd_correct.LEAST, sizes.kept, s.nwave, sizes.half, fibres)
        self.factor("q_low", "q", (self.row("flags", names("Flag").index("STATUS")), Status.GOOD), HALF, place=0,
                    row=HALF + 1, lanes=fibres)
        self.solve("left", "q_low", HALF, pairs=fibres, lanes=fibres)

    def write(self, out: PieceOut, sums: str | None, left: str | None, inverse: str | None) -> None:
        """The bins that are kept, where they go; None where no fibre is GOOD."""
        s, fibres, kept = self.sizes.shape, self.fibres, self.sizes.kept
        self.launch(poles.spectra, s.nout * fibres, out.flux, out.ivar, out.status, sums, left, inverse, "flags", kept,
                    s.first, s.nout, fibres)
        self.launch(poles.diagonals, prod(out.resolution.shape), out.resolution, sums, inverse, "flags", kept, s.first,
                    2 * s.ndiag + 1, s.nout, fibres)
