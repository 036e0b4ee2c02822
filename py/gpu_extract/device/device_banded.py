"""The banded core on a device: all fibres of a piece at once, every decision taken on the device.

The mathematics and the limits are those of decorrelate.banded and narrow.schur. What is left to the CPU is marked
FAILED: fibres whose narrow band does not hold, and those with more than device_sizes.DEEPEST fibres in a row that
matter to each other.
"""
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from gpu_extract.data import Status
from gpu_extract.decorrelate.banded import AGREEMENT
from gpu_extract.decorrelate.limits import Limits
from gpu_extract.decorrelate.narrow.by_bins import SLOWEST
from gpu_extract.decorrelate.narrow.schur import DECAY, LEFT, OF_POLES, WORST
from gpu_extract.decorrelate.narrow.simd_finish import CANCELLED
from gpu_extract.decorrelate.poles import LADDER
from gpu_extract.decorrelate.weak import TOLD, UNKNOWN
from gpu_extract.device import device_tables
from gpu_extract.device.cuda.lanes import (
    LONG,
    OF_PRODUCT,
    OF_SHARE,
    SHORT,
    TILE,
    beside,
    block_lanes,
    fours,
    tile_of,
    tiles_of,
)
from gpu_extract.device.cuda.piece import PieceNormal, PieceOut, PieceShape
from gpu_extract.device.cuda.seam import Device, DeviceArray
from gpu_extract.device.cuda.text import eliminate, measure, names, poles, remainder, sweeps
from gpu_extract.device.device_sizes import Sizes
from gpu_extract.device.memory import Arrays, Slot, tables_on
from gpu_extract.seams import Recorder

MOST_SHARE = 1e-6   # of S, that the couplings to farther fibres are first compared with


class BandedCore:
    """Decorrelates pieces of one shape; its work arrays are made once.

    room: these arrays, None: it takes them of the device. Raises what the device raises where memory is exhausted.
    """

    def __init__(self, device: Device, shape: PieceShape, limits: Limits | None = None, *,
                 room: dict[str, DeviceArray] | None = None):
        self._device, self._limits = device, limits or Limits()
        self._sizes = sizes = Sizes.of(shape)
        self._arrays = room or Slot(device, [sizes.arrays()]).views(sizes.arrays())
        self._arrays |= {name: self._arrays["scratch"].part(*place) for name, place in sizes.parts().items()}
        self._arrays |= tables_on(device, {
            "questions": device_tables.questions_table(), "poles": device_tables.poles_table(),
            "ratios": device_tables.RATIOS, "halves": np.array(sizes.halves, dtype=np.int32)})

    @staticmethod
    def plan(shape: PieceShape) -> Arrays:
        """The work arrays for pieces of a shape."""
        return Sizes.of(shape).arrays()

    def run(self, normal: PieceNormal, out: PieceOut, stream: Any, recorder: Recorder) -> None:
        """Queue everything for one piece of at most the shape's bundles; nothing is waited for.

        recorder: times the steps (perf.recorder)
        """
        run = _Run(self._device, self._sizes, self._limits, self._arrays, stream, normal.x.shape[0])
        run.all(normal, out, recorder)


@dataclass(frozen=True)
class _Run:
    """One piece on its way; a: arrays by name."""

    device: Device
    sizes: Sizes
    limits: Limits
    a: dict[str, DeviceArray]
    stream: Any
    fibres: int

    def launch(self, kernel: Any, count: int, *args: Any) -> None:
        """Queue a kernel; work arrays are given by their names."""
        values = tuple(self.a[arg] if isinstance(arg, str) else arg for arg in args)
        self.device.launch(kernel, count, values, self.stream)

    def all(self, normal: PieceNormal, out: PieceOut, recorder: Recorder) -> None:
        """All steps."""
        s = self.sizes.shape
        with recorder.device_span("eliminate"):
            self.prepare(normal)
            self.eliminate()
            self.complements(0, self.sizes.halves[0])
        with recorder.device_span("measure"):
            self.measure(0)
            self.tells({"BLOCK_TELLS": 0}, self.blocks(0), None, TOLD, s.hw, (s.hw, 2 * s.hw + 1))
            self.look_beyond()
            self.widen()
            self.chains()
            self.complements(eliminate.WIDER, self.sizes.half)
            for width in range(1, len(self.sizes.halves)):
                self.measure(width)
            self.tells({"TELLS": device_tables.TELLS, "NOT_WEAK": 0}, self.a["band"], "halves", UNKNOWN,
                       self.sizes.half, (0, self.sizes.half + 1))
            self.decide()
            if s.nd > 1:
                self.look_closer()
                self.decide()
        with recorder.device_span("poles"):
            self.poles()
        with recorder.device_span("finish"):
            self.finish()
            self.write(out)

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

    def invert(self, of: str, band: str, gate: tuple[Any, int], half: int, *, place: int, row: int, lanes: int) -> None:
        """Factors of band matrices and their inverses within the band.

        of: "" of fibres, "pair_" of pairs; band: rows of `row` elements of which those from `place` on count; gate: an
        array, None for all, and what it holds for those who take part, or LISTED
        """
        nwave = self.sizes.shape.nwave
        tile, count = tile_of(nwave), tiles_of(nwave) * beside(lanes, gate[1])
        steps = (nwave * row, row, 1) if gate[1] == eliminate.LISTED else (1, row * lanes, lanes)
        matrix = gate[1], place * lanes, *steps, nwave, tile, lanes
        self.launch(sweeps.settle.sized(half), count, f"{of}halo", gate[0], band, *matrix)
        self.launch(sweeps.factor.sized(half), count, f"{of}low", f"{of}halo", gate[0], band, *matrix)
        self.launch(sweeps.invert.sized(half), count, f"{of}inverse", f"{of}low", f"{of}halo", *gate,
                    self.sizes.wide + 1, nwave, tile, lanes)

    def eliminate(self) -> None:
        """What every fibre, as it stands, takes from those around it."""
        s = self.sizes.shape
        self.invert("", "blocks", (None, 0), s.hw, place=s.hw, row=2 * s.hw + 1, lanes=self.fibres)
        self.all_shares(None, None, 0, self.sizes.halves[0])

    def widen(self) -> None:
        """More diagonals of the shares, where they are needed."""
        s, fibres = self.sizes.shape, self.fibres
        self.launch(measure.widen, fibres, "wider", "depth", "facts", "flags", "halves", len(self.sizes.halves),
                    SLOWEST, s.nd, fibres, s.nfibre)
        self.all_shares(self.row("wider", 2), "wider", eliminate.WIDER, self.sizes.half)

    def all_shares(self, inverses: Any, pairs: Any, wanted: int, half: int) -> None:
        """Shares of fibres as they stand, `half` diagonals; gates: whose inverses, which pairs are wanted; wanted: as
        `complements`."""
        s = self.sizes.shape
        self.extend("inverse", "low", (inverses, wanted), s.hw, half, lanes=self.fibres)
        for d in range(2, s.nd):
            self.shares("pair_shares", d, (pairs, wanted), half)
            self.schur(wanted, half, "far", "pair_shares", d > 2)
        self.shares("shares", 1, (pairs, wanted), half)

    def extend(self, inverse: str, low: str, gate: tuple[Any, int], reach: int, half: int, *, lanes: int) -> None:
        """The inverse beyond its band, `reach`, as far as products of half-band `half` ask for it."""
        s = self.sizes.shape
        self.launch(eliminate.extend.sized(reach), s.nwave * beside(lanes, gate[1]), inverse, low, *gate,
                    2 * s.hw + half, self.sizes.wide + 1, s.nwave, lanes)

    def shares(self, shares: str, distance: int, gate: tuple[Any, int], half: int) -> None:
        """Shares of pairs at a distance, `half` diagonals of them; gate: as `invert`; LISTED: by inverses of pairs."""
        s, fibres, sizes = self.sizes.shape, self.fibres, self.sizes
        which = "sizes", gate[0], self.reaches(gate[1]), gate[1], self.limits.distant, distance, s.nwave, half
        blocks = [block_lanes(2 * fibres, s.nwave, columns + 1, block, gate[1]) for columns, block in (
            (2 * s.hw + half, OF_PRODUCT), (half, OF_SHARE))]
        inverse = "pair_inverse" if gate[1] == eliminate.LISTED else "inverse"
        v, given = self.rows("v", 2 * (2 * s.hw + half + 1)), self.blocks(distance)
        self.launch(eliminate.product.sized(s.hw), blocks[0], v, given, inverse, *which, sizes.wide + 1, fibres,
                    s.nfibre)
        self.launch(eliminate.share.sized(s.hw), blocks[1], self.rows(shares, 2 * (half + 1)), v, given, *which, fibres,
                    s.nfibre)

    def reaches(self, wanted: int) -> DeviceArray | None:
        """Diagonals of S that are made of fibres, where not all have the same."""
        return self.row("wider", 3) if wanted else None

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
                    self.rows(shares, 2 * (half + 1)), "wider", self.reaches(wanted), wanted, s.nwave, s.hw, half,
                    self.sizes.half, fibres)

    def complements(self, wanted: int, half: int) -> None:
        """S and U from the shares as they are, `half` diagonals, of fibres marked `wanted` in `wider`, 0: all."""
        s, reach, fibres, gate = self.sizes.shape, self.sizes.half, self.fibres, ("wider", wanted)
        self.schur(wanted, half, "taken", "shares", s.nd > 2, ("band", self.blocks(0)))
        self.launch(eliminate.tops, (half + 2) * eliminate.STRETCHES * fibres, "tops", "band", "sides", "wider",
                    self.reaches(wanted), wanted, s.nwave, half, reach, fibres)
        self.launch(measure.bound, fibres, "facts", "flags", "tops", *gate, half, fibres)
        self.launch(measure.decouple, s.nwave * fibres, "band", "facts", "roots", reach, fibres)

    def measure(self, width: int) -> None:
        """Facts about fibres in band number `width`."""
        s, sizes, fibres, limits = self.sizes.shape, self.sizes, self.fibres, self.limits
        self.launch(measure.choose, fibres, "facts", "flags", "depth", "wider", "halves", width,
                    len(sizes.halves) - 1, sizes.deepest, fibres)
        reach, half = sizes.half, sizes.halves[width]
        for between in 0, 1, -device_tables.COUPLED:
            beyond = device_tables.FAR if between == width == 0 and s.nd > 2 else -1
            sets = 1 if between else 3 if beyond > 0 else 2
            self.ask(half, sets * measure.QUESTIONS, "band", "taken", between, reach)
            self.launch(measure.learn, fibres, "facts", "flags", "yes", "questions", "ratios", len(LADDER), between,
                        beyond, width, fibres)
        self.launch(measure.gauge, sizes.chunks * fibres, "chunks", "band", "taken", "sides", "roots", "flags",
                    half, s.nwave, reach, fibres)
        self.gather("ACTIVE", 1, measure.SUMS, 1)
        self.launch(measure.conclude, fibres, "facts", "flags", "groups", limits.tail, DECAY, width, sizes.groups,
                    fibres)

    def gather(self, flag: str, value: int, count: int, maxima: int) -> None:
        """Groups of chunks, of fibres whose flag has this value: `count` numbers of each, the first ones maxima, the
        others sums."""
        sizes, fibres = self.sizes, self.fibres
        self.launch(measure.gather, sizes.groups * count * fibres, "groups", "chunks", self.flag(flag), value, count,
                    maxima, sizes.chunks, fibres)

    def flag(self, name: str) -> DeviceArray:
        """One flag of all fibres."""
        return self.row("flags", names("Flag").index(name))

    def ask(self, half: int, questions: int, band: str, taken: str, between: int, reach: int) -> None:
        """So many questions about matrices whose rows have reach + 1 elements; between: as sweeps.ask. The first sets
        do not depend on answers; at first that about farther fibres is with them."""
        self.launch(sweeps.ask.sized(half), questions * self.fibres, "yes", band, taken, "far", "facts", "flags",
                    "questions", between, device_tables.FAR, self.sizes.shape.nwave, reach, self.fibres)

    def row(self, table: str, n: int) -> DeviceArray:
        """Row n of an array of one number for every fibre."""
        return self.a[table].part(n * self.fibres, (n + 1) * self.fibres)

    def tells(self, flags: dict[str, int], matrix: DeviceArray, halves: str | None, scale: float, half: int,
              where: tuple[int, int]) -> None:
        """Whether a matrix tells the bins of a fibre apart: definite less a share of the diagonal of icov, of those of
        whom facts leave that open. flags: where answers go, and to which of the questions about `scale`; the first
        flag is set for the others. where: its diagonal in a row, and elements of one."""
        fibres, numbers = self.fibres, [names("Flag").index(flag) for flag in flags]
        self.launch(measure.doubt, fibres, "facts", "flags", TOLD, numbers[0], fibres)
        self.compare(matrix, "roots", halves, scale, half, where, 1 + max(flags.values()))
        for number, question in zip(numbers, flags.values(), strict=True):
            self.launch(measure.tell, fibres, "flags", "yes", number, question, fibres)

    def compare(self, matrix: DeviceArray, weights: str, halves: str | None, scale: float, half: int,
                where: tuple[int, int], questions: int = 1) -> None:
        """Ask by which shares of `scale` in S a diagonal matrix, 1 / weights^2, is less."""
        nwave, fibres = self.sizes.shape.nwave, self.fibres
        self.launch(measure.relate, nwave * fibres, "v", matrix, weights, "facts", "flags", halves, scale, *where,
                    nwave, half, fibres)
        self.ask(half, questions, "v", "v", -device_tables.SHARE, half)

    def look_closer(self) -> None:
        """Bundles with fibres for which largest values at different wavelengths do not do: bin by bin, how much a band
        cuts off, how far below the bound on S bins are that are kept, and how strongly fibres farther than the next are
        coupled."""
        s, fibres, half, limits, weights = self.sizes.shape, self.fibres, self.sizes.half, self.limits, "reciprocal"
        number, band = names("Flag").index("CUT_HOLDS"), (self.a["band"], weights, "halves")
        self.launch(measure.reconsider, fibres, "flags", fibres, s.nfibre)
        self.launch(measure.weigh_cut, s.nwave * fibres, weights, "taken", "sides", "roots", "facts", "flags", "halves",
                    SLOWEST, limits.tail / limits.cond, limits.cond, OF_POLES / LEFT, s.first, s.nout, s.nwave, half,
                    fibres)
        self.compare(*band, limits.tail, half, (0, half + 1))
        self.launch(measure.tell, fibres, "flags", "yes", number, 0, fibres)
        self.launch(measure.weigh_far, s.nwave * fibres, weights, "blocks", "roots", "flags", s.nd, s.nwave, s.hw,
                    fibres, s.nfibre)
        self.compare(*band, MOST_SHARE, half, (0, half + 1), measure.QUESTIONS)
        self.launch(measure.learn_share, fibres, "facts", "flags", "yes", "questions", MOST_SHARE, device_tables.SHARE,
                    fibres)

    def decide(self) -> None:
        """Whether the narrow band holds."""
        s, limits = self.sizes.shape, self.limits
        self.launch(measure.decide, self.fibres, "facts", "flags", "sizes", "depth", limits.coupling,
                    limits.most_coupling, limits.cond, limits.distant, WORST, TOLD / UNKNOWN, s.nd, self.fibres,
                    s.nfibre)

    def look_beyond(self) -> None:
        """Which fibres are reached through each other."""
        s, fibres = self.sizes.shape, self.fibres
        self.launch(measure.chain, 2 * fibres, "depth", "facts", self.limits.coupling, fibres, s.nfibre)
        self.launch(measure.enlist, self.sizes.deepest * 2 * fibres, "listed", "depth", fibres)

    def chains(self) -> None:
        """Shares of neighbours that are eliminated together with fibres beyond them, from the last one inwards."""
        s, half, pairs = self.sizes.shape, self.sizes.half, 2 * self.fibres
        for depth in range(self.sizes.deepest):
            gate = listed, wanted = self.a["listed"].part(depth * pairs, (depth + 1) * pairs), eliminate.LISTED
            self.launch(eliminate.rest, fours(s.nwave) * beside(pairs, wanted), "pair_band", "blocks", "shares", listed,
                        s.nwave, s.hw, half, self.fibres, s.nfibre)
            self.invert("pair_", "pair_band", gate, half, place=0, row=half + 1, lanes=pairs)
            self.extend("pair_inverse", "pair_low", gate, half, half, lanes=pairs)
            self.shares("shares", 1, gate, half)

    def poles(self) -> None:
        """The sum over the poles."""
        s, sizes, fibres = self.sizes.shape, self.sizes, self.fibres
        cut, tiles = (s.nwave, tile_of(s.nwave, LONG)), tiles_of(s.nwave, LONG)
        lanes, again = tiles * sweeps.GROUP * fibres, tiles_of(s.nwave, TILE) * sweeps.GROUP * fibres
        matrix = 0, 1, (sizes.half + 1) * fibres, fibres
        for width, half in enumerate(sizes.halves):
            self.launch(sweeps.settle.sized(half), tiles * fibres, "pole_halo", self.flag("WIDTH"), "band", width,
                        *matrix, *cut, fibres)
        most = max(count for count, _ in LADDER)
        for group in range(-(-most // sweeps.GROUP)):
            for width, half in enumerate(sizes.halves):
                which = "pole_halo", "facts", "flags", "poles", group, width, sizes.width, *cut
                self.launch(sweeps.poles_down.sized(half), lanes, "work", "band", "sides", *which, sizes.half, fibres)
                self.launch(sweeps.poles_up.sized(half, sizes.ndiag), lanes, "found", "work", *which, fibres)
            self.add_up("sums", "found", 0, group, sizes.kept)
            if s.nd == 1:       # nothing is eliminated
                self.device.clear(self.a["left"], self.stream)
            if s.nd == 1 or group * sweeps.GROUP >= most // 2:
                continue
            self.beyond(group)
            for width, half in enumerate(sizes.halves):
                of = "work", "pole_halo", "facts", "flags", "poles", group, width, sizes.width, *cut, \
                    tile_of(s.nwave, TILE), fibres
                self.launch(remainder.pole_again.sized(half, 0), again, "half_way", "beyond", *of)
                self.launch(remainder.pole_again.sized(half, 1), again, "moved", "half_way", *of)
            self.add_up("left", "moved", 1, group, sweeps.SIDES)

    def add_up(self, sums: str, found: str, of: int, group: int, kept: int) -> None:
        """What the poles of a group have left, `kept` elements of a bin, to the sums; of: as in sweeps.add_up."""
        s, fibres = self.sizes.shape, self.fibres
        self.launch(sweeps.add_up, -(-kept // sweeps.ELEMENTS) * s.nwave * fibres, sums, found, "facts", "flags",
                    "poles", of, group, kept, fibres)

    def beyond(self, group: int) -> None:
        """What S has beyond its band, times what the poles of a group have made of 1 and x."""
        s, sizes, fibres = self.sizes.shape, self.sizes, self.fibres
        of, vectors = ("facts", "flags", "poles"), sweeps.GROUP // remainder.TWO * fibres
        for distance in range(1, s.nd):
            where, blocks = (self.limits.distant, distance, sizes.kept, s.nwave), self.blocks(distance)
            self.launch(remainder.carry.sized(s.hw), 2 * fours(s.nwave) * vectors, "moved", "own", "found", blocks,
                        "sizes", "depth", *of, group, *where, fibres, s.nfibre)
            self.solve(s.hw, "", fibres)
            if distance == 1 and sizes.deepest > 0:
                self.solve(sizes.half, "pair_", 2 * fibres)
            self.launch(remainder.take.sized(s.hw), fours(s.nwave) * vectors, "beyond", "moved", "found", "taken",
                        blocks, "sizes", *of, "halves", group, *where, sizes.half, fibres, s.nfibre)

    def solve(self, half: int, of: str, lanes: int) -> None:
        """moved = Z moved, of the vectors of pairs whose fibres are eliminated as they stand, or in a chain (of: as
        `invert`)."""
        nwave, pairs = self.sizes.shape.nwave, 2 * self.fibres
        count = tiles_of(nwave, SHORT) * sweeps.GROUP * pairs
        cut = f"{of}low", f"{of}halo", "own", int(of != ""), nwave, tile_of(nwave), tile_of(nwave, SHORT), pairs, lanes
        self.launch(remainder.substitute.sized(half, 0), count, "half_way", "moved", *cut)
        self.launch(remainder.substitute.sized(half, 1), count, "moved", "half_way", *cut)

    def finish(self) -> None:
        """1 / s, and the checks."""
        s, sizes, fibres = self.sizes.shape, self.sizes, self.fibres
        self.launch(poles.divide, s.nwave * fibres, "reciprocal", "sums", "sides", "facts", "flags", "poles",
                    sizes.kept, fibres)
        self.launch(poles.square, sizes.chunks * fibres, "chunks", "sums", "left", "band", "flags", CANCELLED,
                    sizes.kept, s.ndiag, s.nwave, sizes.half, fibres)
        self.gather("STATUS", Status.GOOD, measure.SQUARES, 3)
        self.launch(poles.agree, fibres, "flags", "groups", "facts", "poles", AGREEMENT, self.limits.share,
                    sizes.groups, fibres)

    def write(self, out: PieceOut) -> None:
        """The bins that are kept, where they go."""
        s, fibres, kept = self.sizes.shape, self.fibres, self.sizes.kept
        self.launch(poles.spectra, s.nout * fibres, out.flux, out.ivar, out.status, "sums", "left", "reciprocal",
                    "flags", kept, s.first, s.nout, fibres)
        self.launch(poles.diagonals, prod(out.resolution.shape), out.resolution, "sums", "reciprocal", "flags", kept,
                    s.first, 2 * s.ndiag + 1, s.nout, fibres)
