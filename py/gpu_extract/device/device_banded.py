"""The banded core on a device: all fibres of a piece at once, with every decision made on the device.

The mathematics and the limits are those of decorrelate.banded and narrow.schur. Fibres that are left to the CPU are
marked FAILED: those whose narrow band does not hold, and those with chains of more than device_tables.DEEPEST fibres.
"""
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpu_extract.data import Status
from gpu_extract.decorrelate.banded import AGREEMENT, NARROW
from gpu_extract.decorrelate.limits import Limits
from gpu_extract.decorrelate.narrow.by_bins import SLOWEST
from gpu_extract.decorrelate.narrow.schur import DECAY, LEFT, OF_POLES, WORST
from gpu_extract.decorrelate.narrow.simd_finish import CANCELLED
from gpu_extract.decorrelate.poles import LADDER
from gpu_extract.decorrelate.weak import TOLD, UNKNOWN
from gpu_extract.device import device_tables
from gpu_extract.device.cuda.lanes import LONG, PRODUCT, SHARE, beside, block_lanes, fours, tile_of, tiles_of
from gpu_extract.device.cuda.piece import PieceNormal, PieceOut, PieceShape
from gpu_extract.device.cuda.seam import Device, DeviceArray
from gpu_extract.device.cuda.text import TextKernel, eliminate, measure, names, poles, remainder, sweeps
from gpu_extract.device.device_tables import Sizes
from gpu_extract.device.memory import Arrays, Slot, tables_on
from gpu_extract.seams import Recorder

MOST_SHARE = 1e-6   # of S, to which the couplings to farther fibres are first compared
EXTENDED = 4        # columns of an inverse that a lane of `extend` makes in bands of icov
ASKED_TWICE = 13    # widest band in which a team of 16 has the registers for two questions, and reads once
TOGETHER = 9        # widest band in which a thread has the registers to sum poles, and for more sums in `substitute`:
SOLVED = 2          # so many sums of poles at once


class BandedCore:
    """Decorrelates pieces of one shape; its work arrays are allocated once.

    room: these arrays, None: it allocates them. Raises the device's error if memory is exhausted.
    """

    def __init__(self, device: Device, shape: PieceShape, limits: Limits | None = None, *,
                 room: dict[str, DeviceArray] | None = None):
        self._device, self._limits = device, replace(limits or Limits(), ndiag=shape.ndiag)
        self._sizes = sizes = Sizes.of(shape)
        self._arrays = room or Slot(device, [sizes.arrays()]).views(sizes.arrays())
        self._arrays |= {name: self._arrays["scratch"].part(*place) for name, place in sizes.parts().items()}
        self._arrays |= tables_on(device, {
            "questions": device_tables.questions_table(), "table": device_tables.poles_table(),
            "ratios": device_tables.RATIOS, "halves": np.array(sizes.halves, dtype=np.int32)})

    @staticmethod
    def plan(shape: PieceShape) -> Arrays:
        """The work arrays for pieces of a shape."""
        return Sizes.of(shape).arrays()

    def run(self, normal: PieceNormal, out: PieceOut, stream: Any, recorder: Recorder) -> None:
        """Queue everything for one piece of at most the shape's bundles, without waiting.

        recorder: times the steps (perf.recorder)
        """
        s, sizes, fibres = self._sizes.shape, self._sizes, normal.x.shape[0]
        known = {**self._arrays, **vars(normal), **vars(out), **vars(s), "nout": s.nout, "size": s.nfibre,
                 "lanes": fibres, "reach": sizes.half, "kept": sizes.kept, "nchunks": sizes.chunks,
                 "ngroups": sizes.groups, "distant": self._limits.distant, "coupling": self._limits.coupling}
        _Run(self._device, sizes, self._limits, known, stream, fibres).all(recorder)


@dataclass(frozen=True)
class _Run:
    """The run of one piece; known: arguments of kernels, arrays and numbers, by their names in the headers."""

    device: Device
    sizes: Sizes
    limits: Limits
    known: dict[str, Any]
    stream: Any
    fibres: int

    @property
    def bins(self) -> int:
        """Bins of all fibres."""
        return self.sizes.shape.nwave * self.fibres

    def launch(self, kernel: TextKernel, lanes: int, /, **own: Any) -> None:
        """Queue a kernel; own: arguments that are not in `known`, or have another name there."""
        self.device.launch(kernel, lanes, kernel.bound(own, self.known), self.stream)

    def all(self, recorder: Recorder) -> None:
        """Queue all steps."""
        s = self.sizes.shape
        with recorder.device_span("eliminate"):
            self.prepare()
            self.eliminate()
            self.complements(0, self.sizes.halves[0])
        with recorder.device_span("measure"):
            self.measure(0)
            self.tells({"BLOCK_TELLS": 0}, self.blocks(0), None, TOLD, s.hw, (s.hw, 2 * s.hw + 1))
            self.launch(measure.chain, 2 * self.fibres)        # which fibres are coupled through each other
            self.launch(measure.enlist, self.sizes.deepest * 2 * self.fibres)
            self.widen()
            self.chains()
            self.complements(eliminate.WIDER, self.sizes.half)
            for width in range(1, len(self.sizes.halves)):
                self.measure(width)
            self.tells({"TELLS": device_tables.TELLS, "NOT_WEAK": 0}, "band", "halves", UNKNOWN, self.sizes.half,
                       (0, self.sizes.half + 1))
            self.decide()
            if s.nd > 1:
                self.look_closer()
                self.decide()
        with recorder.device_span("poles"):
            self.poles()
        with recorder.device_span("finish"):
            self.finish()
            self.write()

    def prepare(self) -> None:
        """Make fibres the fastest axis, and measure how strongly they are coupled."""
        s, fibres, width = self.sizes.shape, self.fibres, 2 * self.sizes.shape.hw + 1
        self.launch(eliminate.transpose, fours(s.nwave) * s.nd * fibres, width=width)
        self.launch(eliminate.vectors, self.bins)
        if (lanes := (s.nd - eliminate.FARTHER) * fibres) > 0:
            self.launch(eliminate.largest, width * eliminate.STRETCHES * lanes)
            self.launch(eliminate.coupling, lanes)
        self.device.clear(self.known["depth"], self.stream)

    def eliminate(self) -> None:
        """Compute what each fibre alone removes from its neighbours; the factors of its block exist already."""
        s, lanes = self.sizes.shape, tiles_of(self.sizes.shape.nwave) * self.fibres
        self.launch(sweeps.invert.sized(s.hw), lanes, width=self.sizes.wide + 1, gate=None, open=0,
                    tile=tile_of(s.nwave))
        self.all_shares(None, None, 0, self.sizes.halves[0])

    def widen(self) -> None:
        """Compute more diagonals of the shares, where they are needed."""
        self.launch(measure.widen, self.fibres, widths=len(self.sizes.halves), decay=SLOWEST)
        self.all_shares(self.row("wider", 2), "wider", eliminate.WIDER, self.sizes.half)

    def all_shares(self, inverses: Any, pairs: Any, wanted: int, half: int) -> None:
        """Compute the shares of single fibres, `half` diagonals. Gates: inverses, of fibres; pairs. wanted: as in
        `complements`."""
        s = self.sizes.shape
        self.extend("inverse", "low", (inverses, wanted), s.hw, half, lanes=self.fibres)
        for d in range(2, s.nd):
            self.shares("pair_shares", d, (pairs, wanted), half)
            if wanted or d + 1 < s.nd:      # if all are wanted, `complements` adds those at the largest distance
                self.schur(wanted, half, d, None)
        self.shares("shares", 1, (pairs, wanted), half)

    def extend(self, inverse: str, low: str, gate: tuple[Any, int], reach: int, half: int, *, lanes: int) -> None:
        """Extend the inverse beyond its band, `reach`, as far as products of half-band `half` need it. gate: an array,
        None for all, and its value for the fibres that take part, or LISTED."""
        s, columns = self.sizes.shape, EXTENDED if reach <= NARROW else 1
        self.launch(eliminate.extend.sized(reach, columns), -(-s.nwave // columns) * beside(lanes, gate[1]), low=low,
                    inverse=inverse, gate=gate[0], wanted=gate[1], wide=2 * s.hw + half, width=self.sizes.wide + 1,
                    lanes=lanes)

    def shares(self, shares: str, distance: int, gate: tuple[Any, int], half: int) -> None:
        """Compute the shares of pairs at a distance, `half` diagonals; gate: as in `extend`; with LISTED from inverses
        of pairs."""
        s, listed = self.sizes.shape, gate[1] == eliminate.LISTED
        which = {"v": self.rows("v", 2 * (2 * s.hw + half + 1)), "blocks": self.blocks(distance), "gate": gate[0],
                 "reaches": self.reaches(gate[1]), "wanted": gate[1], "distance": distance, "half": half}
        of_product, of_share = (block_lanes(2 * self.fibres, s.nwave, columns + 1, block, gate[1])
                                for columns, block in ((2 * s.hw + half, PRODUCT), (half, SHARE)))
        self.launch(eliminate.product.sized(s.hw), of_product, inverse="pair_inverse" if listed else "inverse",
                    width=self.sizes.wide + 1, **which)
        self.launch(eliminate.share.sized(s.hw), of_share, shares=self.rows(shares, 2 * (half + 1)), **which)

    def reaches(self, wanted: int) -> DeviceArray | None:
        """How many diagonals of S are made for each fibre, if they differ."""
        return self.row("wider", 3) if wanted else None

    def rows(self, name: str, count: int, first: int = 0) -> DeviceArray:
        """A part of an array: `count` numbers for every bin."""
        part: DeviceArray = self.known[name].part(first * self.bins, (first + count) * self.bins)
        return part

    def blocks(self, distance: int) -> DeviceArray:
        """The blocks of icov for fibres at a distance."""
        width = 2 * self.sizes.shape.hw + 1
        return self.rows("blocks", width, distance * width)

    def schur(self, wanted: int, half: int, added: int, shares: DeviceArray | None) -> None:
        """Add the shares of fibres at distance `added`, if that is above 1, to those of nearer fibres. With `shares`,
        those of the next fibres, compute U, and S from the fibres' own blocks. wanted, half: as in `complements`."""
        farther = self.rows("pair_shares", 2 * (half + 1)) if added > 1 else None
        before = "far" if added > 2 or (added < 2 and self.sizes.shape.nd > 2) else None
        self.launch(eliminate.schur, self.bins, far="far" if added > 1 else None, before=before, farther=farther,
                    shares=shares, blocks=self.blocks(0), gate="wider", reaches=self.reaches(wanted), wanted=wanted,
                    half=half)

    def complements(self, wanted: int, half: int) -> None:
        """Compute S and U from the present shares, `half` diagonals, of fibres marked `wanted` in `wider`, 0: all."""
        which = {"gate": "wider", "wanted": wanted, "half": half}
        self.schur(wanted, half, 0 if wanted else self.sizes.shape.nd - 1, self.rows("shares", 2 * (half + 1)))
        lanes = (half + 2) * eliminate.STRETCHES * self.fibres
        self.launch(eliminate.tops, lanes, reaches=self.reaches(wanted), **which)
        self.launch(measure.bound, self.fibres, **which)
        self.launch(measure.decouple, self.bins)

    def measure(self, width: int) -> None:
        """Measure the facts about fibres in band number `width`."""
        s, sizes, fibres, half = self.sizes.shape, self.sizes, self.fibres, self.sizes.halves[width]
        self.launch(measure.choose, fibres, width=width, widest=len(sizes.halves) - 1, deepest=sizes.deepest)
        for between in (0, *(() if width else (-1,)), 1, -device_tables.COUPLED):
            beyond = device_tables.FAR if between == width == 0 and s.nd > 2 else -1
            self.ask(half, 2 if between == 0 and (width or beyond > 0) else 1, between, beyond=beyond)
            self.launch(measure.learn, fibres, rungs=len(LADDER), between=between, beyond=beyond, width=width)
        self.launch(measure.gauge, sizes.chunks * fibres, half=half)
        self.gather("ACTIVE", 1, measure.SUMS, 1)
        self.launch(measure.conclude, fibres, most_tail=self.limits.most_tail(half), decay=DECAY, width=width)

    def gather(self, flag: str, value: int, count: int, maxima: int) -> None:
        """Combine groups of chunks, of fibres whose flag has this value: `count` numbers of each, the first `maxima` by
        maximum, the others by sum."""
        self.launch(measure.gather, self.sizes.groups * count * self.fibres, gate=self.flag(flag), open=value,
                    count=count, maxima=maxima)

    def flag(self, name: str) -> DeviceArray:
        """A flag of all fibres."""
        return self.row("flags", names("Flag").index(name))

    def ask(self, half: int, sets: int, between: int, *, each: int = sweeps.QUESTIONS, **matrix: Any) -> None:
        """Ask `sets` sets of questions, or the first `each` questions of one set, about S or another matrix. between,
        beyond: as in sweeps.ask. In the first band few fibres need the second set, so it waits for the answers to the
        first; the set about farther fibres does not wait."""
        many = 2 if half <= ASKED_TWICE else 1
        self.launch(sweeps.ask.sized(half, many), sets * -(-each // many) * self.fibres, between=between, **matrix)

    def row(self, table: str, n: int) -> DeviceArray:
        """Row n of an array with one number for every fibre."""
        part: DeviceArray = self.known[table].part(n * self.fibres, (n + 1) * self.fibres)
        return part

    def tells(self, flags: dict[str, int], matrix: DeviceArray | str, halves: str | None, scale: float, half: int,
              where: tuple[int, int]) -> None:
        """Test whether a matrix distinguishes the bins of a fibre: whether it minus a share of the diagonal of icov is
        definite. flags: for each answer its flag, and the number of its question about `scale`. For fibres whose facts
        suffice the first flag is set without a test. where: the place of the diagonal in a row, elements of a row."""
        numbers = [names("Flag").index(flag) for flag in flags]
        self.launch(measure.doubt, self.fibres, told=TOLD, flag=numbers[0])
        self.compare(matrix, "roots", halves, scale, half, where, 1 + max(flags.values()))
        for number, question in zip(numbers, flags.values(), strict=True):
            self.launch(measure.tell, self.fibres, flag=number, question=question)

    def compare(self, matrix: DeviceArray | str, weights: str, halves: str | None, scale: float, half: int,
                where: tuple[int, int], questions: int = 1) -> None:
        """Ask for which ratios r the diagonal matrix 1 / weights^2 is less than r `scale` S, or another matrix."""
        self.launch(measure.relate, self.bins, related="v", matrix=matrix, weights=weights, halves=halves, scale=scale,
                    place=where[0], width=where[1], half=half)
        self.ask(half, 1, -device_tables.SHARE, each=questions, beyond=-1, band="v", taken="v", reach=half)

    def look_closer(self) -> None:
        """Examine bundles with fibres for which the largest values, each at its own wavelength, do not suffice. Measure
        bin by bin how much the band cuts off, how far kept bins are below the bound on S, and the coupling to fibres
        beyond the next."""
        fibres, half, limits, weights = self.fibres, self.sizes.half, self.limits, "reciprocal"
        most_tail = limits.most_tail(half)
        band = "band", weights, "halves"
        self.launch(measure.reconsider, fibres)
        self.launch(measure.weigh_cut, self.bins, weights=weights, decay=SLOWEST, floor=most_tail / limits.cond,
                    most_cond=limits.cond, left=OF_POLES / LEFT)
        self.compare(*band, most_tail, half, (0, half + 1))
        self.launch(measure.tell, fibres, flag=names("Flag").index("CUT_HOLDS"), question=0)
        self.launch(measure.weigh_far, self.bins, weights=weights)
        self.compare(*band, MOST_SHARE, half, (0, half + 1), measure.QUESTIONS)
        self.launch(measure.learn_share, fibres, most=MOST_SHARE, set=device_tables.SHARE)

    def decide(self) -> None:
        """Decide whether the narrow band holds."""
        self.launch(measure.decide, self.fibres, most_coupling=self.limits.most_coupling, most_cond=self.limits.cond,
                    worst=WORST, less_told=TOLD / UNKNOWN)

    def chains(self) -> None:
        """Compute the shares of neighbours that are eliminated with fibres beyond them, from the last one inwards."""
        s, half, pairs = self.sizes.shape, self.sizes.half, 2 * self.fibres
        for depth in range(self.sizes.deepest):
            gate = listed, wanted = self.known["listed"].part(depth * pairs, (depth + 1) * pairs), eliminate.LISTED
            lanes = fours(s.nwave) * beside(pairs, wanted)
            self.launch(eliminate.rest, lanes, band="pair_band", listed=listed, half=half)
            self.invert_listed(listed, half)
            self.extend("pair_inverse", "pair_low", gate, half, half, lanes=pairs)
            self.shares("shares", 1, gate, half)

    def invert_listed(self, listed: DeviceArray, half: int) -> None:
        """Factorise the band matrices of listed pairs, and compute their inverses within the band."""
        nwave, pairs = self.sizes.shape.nwave, 2 * self.fibres
        count = tiles_of(nwave) * beside(pairs, eliminate.LISTED)
        matrix = {"band": "pair_band", "place": 0, "between": nwave * (half + 1), "row": half + 1, "element": 1}
        cut = {"halo": "pair_halo", "gate": listed, "open": eliminate.LISTED, "tile": tile_of(nwave), "lanes": pairs}
        self.launch(sweeps.settle.sized(half), count, **matrix, **cut)
        self.launch(sweeps.factor.sized(half), count, low="pair_low", **matrix, **cut)
        self.launch(sweeps.invert.sized(half), count, inverse="pair_inverse", low="pair_low", width=self.sizes.wide + 1,
                    **cut)

    def poles(self) -> None:
        """Sum over the poles."""
        s, sizes, fibres = self.sizes.shape, self.sizes, self.fibres
        cut, tiles = {"halo": "pole_halo", "tile": tile_of(s.nwave, LONG)}, tiles_of(s.nwave, LONG)
        lanes, again = tiles * sweeps.GROUP * fibres, tiles * sweeps.CORRECTING * fibres
        matrix = {"band": "band", "place": 0, "between": 1, "row": (sizes.half + 1) * fibres, "element": fibres}
        for width, half in enumerate(sizes.halves):
            self.launch(sweeps.settle.sized(half), tiles * fibres, gate=self.flag("WIDTH"), open=width, **matrix, **cut)
        together = sum(max(half, sizes.ndiag) <= TOGETHER for half in sizes.halves)
        for group in range(-(-max(count for count, _ in LADDER) // sweeps.GROUP)):
            for width, half in enumerate(sizes.halves):
                which = {"group": group, "width": width, "columns": sizes.width, **cut}
                self.launch(sweeps.poles_down.sized(half), lanes, **which)
                if width < together:
                    self.launch(sweeps.poles_together.sized(half, sizes.ndiag), tiles * fibres, **which)
                else:
                    self.launch(sweeps.poles_up.sized(half, sizes.ndiag), lanes, **which)
            self.add_up("sums", "found", 0, group, sizes.kept, together)
            if s.nd == 1:       # nothing is eliminated
                self.device.clear(self.known["left"], self.stream)
            if s.nd == 1 or group >= sweeps.OF_BEYOND:
                continue
            self.beyond(group)
            for width, half in enumerate(sizes.halves):
                of = {"group": group, "width": width, "columns": sizes.width, **cut}
                self.launch(remainder.pole_again.sized(half, 0), again, to="half_way", given="moved", **of)
                self.launch(remainder.pole_again.sized(half, 1), again, to="moved", given="half_way", **of)
            self.add_up("left", "moved", device_tables.BEYOND, group, sweeps.SIDES, 0)

    def add_up(self, sums: str, work: str, of: int, group: int, kept: int, first: int) -> None:
        """Add the results of a group of poles, `kept` elements of a bin, to the sums; of, first: see sweeps.add_up."""
        self.launch(sweeps.add_up, kept * self.bins, sums=sums, work=work, of=of, group=group, first=first)

    def beyond(self, group: int) -> None:
        """moved = the remainder of S times what the poles of a group have made of 1 and x."""
        s, sizes, fibres = self.sizes.shape, self.sizes, self.fibres
        mixes, lanes = fours(s.nwave) * sweeps.SIDES * fibres, sweeps.RANK // remainder.THREE * fibres
        lanes *= -(-s.nwave // remainder.FIVE)
        self.launch(remainder.mix, mixes, to="mixed", given="found", group=group, back=0)
        for distance in range(1, s.nd):
            which = {"group": group, "distance": distance, "blocks": self.blocks(distance)}
            self.launch(remainder.carry.sized(s.hw), 2 * lanes, **which)
            self.solve(s.hw, "", fibres)
            if distance == 1 and sizes.deepest > 0:
                self.solve(sizes.half, "pair_", 2 * fibres)
            self.launch(remainder.take.sized(s.hw), lanes, taken="taken" if distance == 1 else None, **which)
        self.launch(remainder.mix, mixes, to="moved", given="beyond", group=group, back=1)

    def solve(self, half: int, of: str, lanes: int) -> None:
        """moved = Z moved, for pairs whose fibres are eliminated singly, with factors of fibres (of: ""), or in a
        chain, with factors of pairs ("pair_")."""
        nwave, pairs = self.sizes.shape.nwave, 2 * self.fibres
        many = SOLVED if half <= TOGETHER else 1
        count = tiles_of(nwave) * sweeps.RANK // many * pairs
        which = {"low": f"{of}low", "halo": f"{of}halo", "chained": int(of != ""), "tile": tile_of(nwave),
                 "pairs": pairs, "lanes": lanes}
        self.launch(remainder.substitute.sized(half, 0, many), count, to="half_way", given="moved", **which)
        self.launch(remainder.substitute.sized(half, 1, many), count, to="moved", given="half_way", **which)

    def finish(self) -> None:
        """Compute 1 / s, and check the result."""
        self.launch(poles.divide, self.bins, inverse="reciprocal")
        self.launch(poles.square, self.sizes.chunks * self.fibres, cancelled=CANCELLED)
        self.gather("STATUS", Status.GOOD, measure.SQUARES, 3)
        self.launch(poles.agree, self.fibres, agreement=AGREEMENT, most=self.limits.added)

    def write(self) -> None:
        """Write the bins that are kept."""
        lanes, width = self.sizes.shape.nout * self.fibres, 2 * self.sizes.shape.ndiag + 1
        self.launch(poles.spectra, lanes, inverse="reciprocal")
        self.launch(poles.diagonals, lanes * width, inverse="reciprocal", width=width)
