"""The steps of a piece in one of two passes, as the kernels they queue. The rules are those of passes/."""
from dataclasses import dataclass
from math import prod

import numpy as np

from gpu_extract.device.cuda.seam import DeviceArray
from gpu_extract.device.cuda.text import gradients, image, passes, smooth, tails
from gpu_extract.device.flow import Turn
from gpu_extract.device.geometry import PsfTables
from gpu_extract.device.memory import BEYOND
from gpu_extract.device.pass_plan import GATHERED, Passes
from gpu_extract.device.pass_tails import Layer, Tails
from gpu_extract.device.steps import Steps
from gpu_extract.passes import ROUNDS, outliers, variance
from gpu_extract.passes.crosstalk import FADE
from gpu_extract.several.bundles import MOST


@dataclass(frozen=True)
class PassSteps(Steps):
    """Steps of a piece in one of several passes; arrays: tables and what is known of all bundles as well."""

    passes: Passes

    @property
    def _pixels(self) -> int:
        return self.shape.bundles * prod(self.sizes.cut)

    def begin(self, turn: Turn) -> None:
        """The pixels as the pass before leaves them, and which of them it has rejected."""
        a = self.arrays
        for array in (a.looks, a.beyond, a.tail_state, *((a.rejected,) if turn.first else ())):
            self.device.clear(array, self.stream)
        if not turn.first:
            self._launch(passes.recall, self._pixels, a.rejected, a.past_rejected)
        self.weigh(turn)

    def weigh(self, turn: Turn) -> None:
        """Pixels, whitened, with the variance that a model of them expects and without others' light; all good ones."""
        a, sizes, known = self.arrays, self.sizes, not turn.first
        self.whiten()
        kind = 8 if self.passes.noise is None else self.passes.noise.itemsize
        self._launch(passes.expect[kind], self._pixels, a.root, a.light, a.expected if known else None,
                     a.others if known else None, a.noise, a.noises, a.cuts, a.places, sizes.pixels, *self.passes.split,
                     *sizes.cut, self.passes.error)

    def look(self, turn: Turn, own: DeviceArray, numbers: DeviceArray | None = None) -> None:
        """Reject what stands out from a model, and take back what does not; numbers: of a pass's first look, where the
        models lie by number."""
        a, shape, cut = self.arrays, self.shape, self.sizes.cut
        limits = a.first_limits if turn.first else a.limits
        seen, asked = (a.root, a.light, own, numbers), (a.ends, limits, a.cuts, shape.nfibre, *cut, outliers.AROUND)
        if turn.first:      # judges by the image's own errors
            self.whiten()
        else:
            self.weigh(turn)
        self._launch(passes.stand_out, self._pixels, a.marks, *seen, a.rejected, a.gate, *asked)
        self._tally(a.marks)
        self._launch(passes.despair, shape.bundles, a.looks, a.gate, a.tallied, shape.nfibre, outliers.MOST)
        self._launch(passes.pair_up, self._pixels, a.seeds, a.marks, a.gate, a.cuts, shape.nfibre, *cut)
        self._launch(passes.reject, self._pixels, a.rejected, a.seeds, *seen, a.looks, a.gate, *asked)
        self._tally(a.rejected)
        self._launch(passes.end_look, shape.bundles, a.looks, a.gate, a.tallied, int(numbers is not None), shape.nfibre)
        if turn.first:
            self.weigh(turn)
        self._launch(passes.strike, self._pixels, a.root, a.light, a.rejected)

    def _tally(self, marks: DeviceArray) -> None:
        a, bundles, some = self.arrays, self.shape.bundles * passes.COUNTED, image.LOOKERS // GATHERED
        self._launch(passes.tally, self.shape.bundles * image.LOOKERS, a.tallies, marks, prod(self.sizes.cut),
                     image.LOOKERS)
        self._launch(gradients.add_parts, bundles * some, a.some_tallies, a.tallies, GATHERED)
        self._launch(gradients.add_parts, bundles, a.tallied, a.some_tallies, some)

    def solve_anew(self, turn: Turn, tables: PsfTables, ridge: float) -> None:
        """Spots, normal equations and x, again as long as pixels stand out from what came of it: passes.ROUNDS times at
        most. `numbers` and `touch` come before."""
        a, own = self.arrays, self.arrays.chi.seen_as(self.arrays.others.shape, np.float32)  # chi: its turn comes later
        count = 1 if self.passes.keep_cosmics else ROUNDS
        if count > 1 and not turn.first:
            self.look(turn, a.models, a.numbers_of)
        for n in range(count):
            self.see(tables)
            self.normal(ridge)
            self.solve(again=n > 0)
            self._lessen(None)
            if n + 1 < count:
                if n > 0 or not turn.first:
                    self._launch(passes.ask_again, self.shape.bundles, a.looks, a.gate, self.shape.nfibre)
                self._shine(own, None, a.x)
                self.look(turn, own)
        self.device.clear(a.gate, self.stream)
        self._count(BEYOND, a.beyond, 1)

    def _shine(self, target: DeviceArray, numbers: DeviceArray | None, x: DeviceArray) -> None:
        lanes, lit, counts = self.lit(x)
        self._launch(passes.shine, lanes, target, numbers, *lit, *counts)

    def _lessen(self, change: DeviceArray | None) -> None:
        a = self.arrays
        self._launch(passes.lessen_x, prod(a.x.shape), a.x, a.beyond, change, MOST)

    def take_tails(self, turn: Turn) -> None:
        """The light of the bundle's own tails out of x: of the first pass all that it puts on the pixels, of the other
        one what it has more of it than the first, out of the pixels too."""
        every, a = self.passes.tails, self.arrays
        if every is None:
            return
        (ny, nx), shape = self.sizes.stamp, self.shape
        self._launch(tails.share_good, prod(a.x.shape), a.share, a.root, a.single, a.scale, a.y0, a.x0, a.cuts,
                     shape.nfibre, nx, ny, shape.nwave, *self.sizes.cut)
        self._trust(a.bright, a.x)
        if turn.first:
            self._tails(every, None, a.tails, a.numbers_of, tails.EVERY)
            self._take(a.tails, a.numbers_of)
            self._trust(a.bright, a.change)
            self._rough_tails(every, (None, -1.0), a.tails, a.numbers_of, tails.EVERY)
            return
        self._tails(every, a.past_bright, a.tail_now, None, tails.LARGE)
        self._rough_tails(every, (a.past_bright, 1.0), a.tail_now, None, tails.SMALL)
        self._take(a.tail_now, None)
        self._launch(tails.dim, self._pixels, a.light, a.root, a.tail_now, a.corners, a.cuts, *self.sizes.cut,
                     *every.window)

    def _trust(self, target: DeviceArray, x: DeviceArray) -> None:
        """What tails are made of, of spectra."""
        a, shape = self.arrays, self.shape
        self._launch(tails.trust, prod(a.x.shape), target, x, a.share, a.sums, a.icov, shape.nd, shape.hw, shape.nwave,
                     variance.HALF, variance.WINGS)

    def _take(self, light: DeviceArray, numbers: DeviceArray | None) -> None:
        """Out of x what it has of some tails; `change` is that."""
        a, shape, (ny, nx), every = self.arrays, self.shape, self.sizes.stamp, self.passes.tails
        window = every.window if every else (0, 0)
        self._launch(tails.sum_under, prod(a.x.shape), a.rhs, light, numbers, a.corners, a.root, a.single, a.scale,
                     a.sums, a.y0, a.x0, a.cuts, shape.nfibre, nx, ny, shape.nwave, *self.sizes.cut, *window)
        self.answer(a.change, a.rhs, a.tail_state, again=True)
        self._lessen(a.change)

    def _tails(self, every: Tails, before: DeviceArray | None, target: DeviceArray, numbers: DeviceArray | None,
               wanted: int) -> None:
        """Those of the wanted bins of bright - before."""
        for k, layer in enumerate(every.layers):
            self._layer(every, layer, k, (before, 1.0), wanted)
        self._enlarge(every, every.layers[-1], self.arrays.fine, target, numbers, added=False)

    def _rough_tails(self, every: Tails, of: tuple[DeviceArray | None, float], target: DeviceArray,
                     numbers: DeviceArray | None, wanted: int) -> None:
        """Those of sign (bright - before), of: (before, sign), to a tenth or so, added to others."""
        self._layer(every, every.rough, len(every.layers), of, wanted)
        self._enlarge(every, every.rough, None, target, numbers, added=True)

    def _layer(self, every: Tails, layer: Layer, k: int, of: tuple[DeviceArray | None, float], wanted: int) -> None:
        a, shape, (ny, nx), count = self.arrays, self.shape, self.sizes.stamp, layer.count
        sources, ranges, shapes, rulers, weights, together = (
            getattr(a, f"{name}_{k}") for name in ("sources", "ranges", "shapes", "rulers", "weights", "together"))
        groups, grid = shape.nfibre * layer.stretches, layer.grid(every.window)
        self._launch(tails.tabulate, shape.bundles * groups * layer.nodes, a.heights, shapes, rulers, layer.nodes,
                     groups, 1.0 - FADE**2, *layer.parts)
        self._launch(tails.pool, shape.fibres * count, a.strengths, a.bright, of[0], a.scale, sources, weights,
                     together, shape.nfibre, weights.shape[1], a.large, a.noises, layer.taps, count, shape.nwave,
                     shape.fibres * count, of[1], wanted)
        self._launch(tails.gather_tails, shape.bundles * prod(grid), a.fine if layer.every == 1 else a.grid,
                     a.strengths, sources, a.heights, rulers, ranges, shape.nfibre, count, groups, layer.nodes, *grid,
                     shape.fibres, layer.reach / layer.every, ny / layer.every, nx / layer.every, int(layer.stamped))

    def _enlarge(self, every: Tails, layer: Layer, fine: DeviceArray | None, target: DeviceArray,
                 numbers: DeviceArray | None, *, added: bool) -> None:
        a, window = self.arrays, every.window
        self._launch(tails.enlarge, self.shape.bundles * prod(window), target, fine,
                     a.grid if layer.every > 1 else None, getattr(a, f"cubic_{layer.every}"), numbers,
                     layer.every, *layer.grid(window), *window, int(added))

    def draft(self) -> None:
        """What is left to the last pass: model, x, what a smoothed spectrum is expected to put on the pixels, and which
        of them are rejected."""
        a, y = self.arrays, self._smooth()
        self._launch(passes.recall, self._pixels, a.past_rejected, a.rejected)
        self._shine(a.models, a.numbers_of, a.x)
        self._shine(a.expected, None, y)
        if self.passes.tails:
            self._trust(a.past_bright, a.x)

    def _smooth(self) -> DeviceArray:
        """variance.smooth of a spectrum whose pixels were weighed by read noise alone, in vectors of the iteration."""
        a, shape, bins = self.arrays, self.shape, prod(self.arrays.x.shape)
        one, other, error = (a.vectors.part(v, v + 1) for v in (2, 3, 4))
        block = shape.nd, shape.hw, shape.nwave
        self._average(one, a.x, None, variance.WIDTHS[0])
        self._launch(smooth.doubt_bins, bins, error, one, a.noises, a.sums, a.icov, *block)
        self._launch(smooth.mean_row, shape.fibres * (shape.hw + 1), a.row, a.sums, a.icov, *block)
        y = a.x
        for width, target in zip(variance.WIDTHS, (one, other), strict=True):
            self._launch(smooth.leave_noise, shape.fibres, a.left, a.row, a.turns, width, shape.hw,
                         variance.FREQUENCIES)
            self.device.clear(a.lines, self.stream)
            for _ in range(variance.TURNS):
                self._average(target, y, a.lines, width)
                self._launch(smooth.stand_apart, bins, a.found, a.x, target, error, a.left, a.icov, *block,
                             variance.KEEP**2)
                self._launch(smooth.widen_lines, bins, a.lines, target, a.found, y, variance.REACH, shape.nwave)
            y = target
        return y

    def _average(self, target: DeviceArray, other: DeviceArray, lines: DeviceArray | None, width: int) -> None:
        """The average of x over `width` bins, but for lines, where another spectrum is taken."""
        a, shape, bins = self.arrays, self.shape, prod(self.arrays.x.shape)
        self._launch(smooth.blur, bins, a.vectors.part(0, 2), a.x, lines, a.sums, a.icov, shape.nd, shape.hw,
                     shape.nwave, bins)
        self._launch(smooth.average, bins, target, a.vectors.part(0, 2), other, lines, width, shape.nwave, bins)

    def tell(self) -> None:
        """Which pixels are rejected, in bits."""
        a, words = self.arrays, -(-self.sizes.cut[0] // 32)
        self._launch(passes.pack, self.shape.bundles * self.sizes.cut[1] * words, a.packed, a.rejected,
                     self.sizes.cut[0], words)

    def add_others(self) -> None:
        """What all other bundles put on the pixels, after a pass over all of them."""
        a, every = self.arrays, self.passes.tails
        self._launch(passes.add_others, self._pixels, a.others, a.models, a.tails if every else None, a.windows,
                     a.reaches, a.cuts, a.numbers_of, len(self.passes.known), *self.sizes.cut,
                     *(every.window if every else (0, 0)))
