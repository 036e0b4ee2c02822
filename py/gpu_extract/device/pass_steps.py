"""The steps of a piece in one of two passes, as the kernels that they queue. The rules are those of passes/."""
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from gpu_extract.device.cuda.seam import DeviceArray
from gpu_extract.device.cuda.text import image, passes, shared, smooth, tails
from gpu_extract.device.flow import Turn
from gpu_extract.device.geometry import PsfTables
from gpu_extract.device.memory import BEYOND
from gpu_extract.device.pass_plan import GATHERED, Passes
from gpu_extract.device.pass_tails import Layer, Tails
from gpu_extract.device.steps import Steps
from gpu_extract.passes import ROUNDS, missed, outliers, shared_lines, variance
from gpu_extract.passes.crosstalk import EVERY, FADE, ROUGH
from gpu_extract.several.bundles import MOST


@dataclass(frozen=True)
class PassSteps(Steps):
    """Steps of a piece in one of two passes; arrays: those of Steps, tables, and the light of all known bundles."""

    passes: Passes

    @cached_property
    def _known(self) -> dict[str, Any]:
        every, split = self.passes.tails, self.passes.split
        tail_rows, tail_columns = every.window if every else (0, 0)
        return {"tails": None, **super()._known, "known": len(self.passes.known), "split_y": split[0],
                "split_x": split[1], "tail_rows": tail_rows, "tail_columns": tail_columns, "reach": outliers.AROUND}

    @property
    def _pixels(self) -> int:
        return self.shape.bundles * prod(self.sizes.cut)

    @property
    def _bins(self) -> int:
        return self.shape.fibres * self.shape.nwave

    def begin(self, turn: Turn) -> None:
        """Weight the pixels by the previous pass, and recall which of them it rejected."""
        a = self.arrays
        for array in (a.looks, a.beyond, a.tail_state, *((a.rejected,) if turn.first else ())):
            self.device.clear(array, self.stream)
        if not turn.first:
            self._launch(passes.recall, self._pixels, target="rejected", rejected="past_rejected")
        self.weigh(turn)
        if self.passes.keep_cosmics:        # otherwise a look comes first
            self.dim(turn)

    def weigh(self, turn: Turn) -> None:
        """Whiten all good pixels, as they are judged: with the variance from a model, without other bundles'
        light."""
        self._expect(self.passes.error, alone=turn.first)

    def dim(self, turn: Turn) -> None:
        """Weight pixels whose light the previous pass misses by their own light."""
        if not turn.first:
            self._launch(passes.miss, self._pixels, off=missed.FAR)

    def _expect(self, error: float, *, alone: bool, bare: bool = False) -> None:
        """Whiten pixels; alone: without expected or other bundles' light; bare: with the pixels' own as the model."""
        unknown = {"expected": None, "others": None} if alone else {}
        self.whiten()
        kind = 8 if self.passes.noise is None else self.passes.noise.itemsize
        self._launch(passes.expect[kind], self._pixels, error=error, bare=int(bare),
                     brightest=outliers.BRIGHTEST, **unknown)

    def look(self, turn: Turn, own: DeviceArray, numbers: DeviceArray | None = None) -> None:
        """Reject pixels that stand out from a model, and restore those that do not.

        numbers: in the first look of a pass, the places of the bundles' models
        """
        bundles, model = self.shape.bundles, {"own": own, "numbers": numbers}
        asked: dict[str, Any] = {"limits": "first_limits", "expected": None, "others": None} if turn.first else {}
        if turn.first:      # judges by read noise and the pixels' own light
            self._expect(0.0, alone=True, bare=True)
        else:
            self.weigh(turn)
        self._launch(passes.stand_out, self._pixels, **model, **asked)
        self._tally("marks")
        self._launch(passes.despair, bundles, counts="tallied", most=outliers.MOST, many=outliers.MANY,
                     narrow=outliers.NARROW, low=outliers.BRIGHTEST if turn.first else outliers.LOW)
        self._launch(passes.pair_up, self._pixels)
        self._launch(passes.reject, self._pixels, **model, **asked)
        self._tally("rejected")
        self._launch(passes.end_look, bundles, counts="tallied", first=int(numbers is not None))
        if turn.first:
            self.weigh(turn)
        self.dim(turn)
        self._launch(passes.strike, self._pixels)

    def _tally(self, marks: str) -> None:
        bundles, some = self.shape.bundles * passes.COUNTED, image.LOOKERS // GATHERED
        self._launch(passes.tally, self.shape.bundles * image.LOOKERS, parts="tallies", marks=marks,
                     pixels=prod(self.sizes.cut), lookers=image.LOOKERS)
        self._add_parts("some_tallies", "tallies", bundles * some, GATHERED)
        self._add_parts("tallied", "some_tallies", bundles, some)

    def solve_anew(self, turn: Turn, tables: PsfTables, ridge: float) -> None:
        """Spots, normal equations and x, repeated while pixels stand out from the model: passes.ROUNDS times at most.

        `numbers` and `touch` must come first.
        """
        a, own = self.arrays, self.arrays.chi.seen_as(self.arrays.others.shape, np.float32)  # chi is unused so far
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
                    self._launch(passes.ask_again, self.shape.bundles)
                self._light(passes.shine, light=own, numbers=None)
                self.look(turn, own)
        self.device.clear(a.gate, self.stream)
        self._count(BEYOND, a.beyond, 1)

    def _lessen(self, change: str | None) -> None:
        self._launch(passes.lessen_x, self._bins, change=change, most=MOST)

    def take_tails(self, turn: Turn) -> None:
        """Subtract the light of the bundle's own tails from x.

        In the first pass that is all of it. In the second it is the change since the first, which is subtracted from
        the pixels as well.
        """
        every = self.passes.tails
        if every is None:
            return
        self._launch(tails.share_good, self._bins)
        self._trust("bright", "x")
        past, to = (None, ("tails", "numbers_of")) if turn.first else ("past_bright", ("tail_now", None))
        self._tails(every, EVERY if turn.first else ROUGH, (past, 1.0), to)
        self._take(*to)
        if turn.first:
            self._trust("bright", "change")
            self._tails(every, ROUGH, (past, -1.0), to, added=True)
        else:
            self._launch(tails.dim, self._pixels, tails="tail_now")

    def _trust(self, target: str, x: str) -> None:
        """The part of a spectrum of which tails are made: variance.trusted."""
        self._launch(tails.trust, self._bins, y=target, x=x, known="sums", half=variance.HALF, wings=variance.WINGS)

    def _take(self, light: str, numbers: str | None) -> None:
        """Subtract from x what some tails add to it; that is kept in `change`."""
        a = self.arrays
        self._launch(tails.sum_under, self._bins, sums="rhs", tails=light, numbers=numbers, known="sums")
        self.answer(a.change, a.rhs, a.tail_state, again=True)
        self._lessen("change")

    def _tails(self, every: Tails, step: int, of: tuple[str | None, float], to: tuple[str, str | None], *,
               added: bool = False) -> None:
        """The tails of sign (bright - before), with the smooth part on nodes `step` pixels apart.

        of: (before, sign); to: (array, numbers); added: to what the array contains
        """
        used = [(k, layer) for k, layer in enumerate(every.layers) if layer.every in (1, step)]
        for k, layer in used:
            self._layer(every, layer, k, of)
        (rows, columns), coarse = every.window, layer.grid(every.window)
        self._launch(tails.enlarge, self.shape.bundles * rows * columns, tails=to[0], fine="fine",
                     coarse="grid" if layer.every > 1 else None, weights=f"cubic_{layer.every}", numbers=to[1],
                     every=layer.every, coarse_rows=coarse[0], coarse_columns=coarse[1], rows=rows, columns=columns,
                     added=int(added))

    def _layer(self, every: Tails, layer: Layer, k: int, difference: tuple[str | None, float]) -> None:
        shape, (ny, nx), grid = self.shape, self.sizes.stamp, layer.grid(every.window)
        table = {name: f"{name}_{k}" for name in ("sources", "ranges", "shapes", "rulers", "weights", "together")}
        groups, (whole, smooth, held) = shape.nfibre * layer.stretches, layer.parts
        of = {"tables": "heights", "rulers": table["rulers"], "nodes": layer.nodes, "groups": groups}
        drawn = {"sources": table["sources"], "count": layer.count}
        self._launch(tails.tabulate, shape.bundles * groups * layer.nodes, shapes=table["shapes"], fade=1.0 - FADE**2,
                     whole=whole, smooth=smooth, held=held, **of)
        self._launch(tails.pool, shape.fibres * layer.count, x="bright", before=difference[0], sign=difference[1],
                     weights=table["weights"], together=table["together"],
                     most=self._known[table["weights"]].shape[1], taps=layer.taps, all=shape.fibres * layer.count,
                     **drawn)
        self._launch(tails.gather_tails, shape.bundles * prod(grid), light="fine" if layer.every == 1 else "grid",
                     ranges=table["ranges"], rows=grid[0], columns=grid[1], outer=layer.reach / layer.every,
                     tall=ny / layer.every, wide=nx / layer.every, stamped=int(layer.stamped), **of, **drawn)

    def draft(self) -> None:
        """What the last pass needs: model, x for tails, the light expected from a smoothed spectrum, and which pixels
        are rejected."""
        if self.passes.tails is None:       # otherwise `take_tails` has done so
            self._launch(tails.share_good, self._bins)
        y = self._smooth()
        self._launch(passes.recall, self._pixels, target="past_rejected")
        self._light(passes.shine, light="models", numbers="numbers_of")
        self._light(passes.shine, y, light="expected", numbers=None)
        if self.passes.tails:
            self._trust("past_bright", "x")

    def _smooth(self) -> DeviceArray:
        """variance.smooth of a spectrum whose pixels were weighted by read noise alone, in the iteration's vectors."""
        a, shape, bins = self.arrays, self.shape, self._bins
        one, other, error, left = (a.vectors.part(v, v + 1) for v in (2, 3, 4, 5))
        self._average(one, None, None, variance.WIDTHS[0])
        self._launch(smooth.doubt_bins, bins, error=error, y=one)
        if shape.nfibre >= shared_lines.FIBRES:
            self._share(left, error, other)
            self._average(one, None, None, variance.WIDTHS[0], left)
            self._launch(shared.put_back, bins, y=one, left=left)
            self._launch(smooth.doubt_bins, bins, error=error, y=one)
            self._launch(shared.doubt_more, bins, error=error, more=other)
        else:
            left = a.x
        self._launch(smooth.mean_row, shape.fibres * (shape.hw + 1))
        y = left
        for width, target in zip(variance.WIDTHS, (one, other), strict=True):
            self._launch(smooth.leave_noise, shape.fibres, width=width, frequencies=variance.FREQUENCIES)
            self.device.clear(a.lines, self.stream)
            for _ in range(variance.TURNS):
                self._average(target, y, "lines", width, left)
                self._launch(smooth.stand_apart, bins, x=left, y=target, error=error, most=variance.KEEP**2,
                             skew=variance.SKEW)
                self._launch(smooth.widen_lines, bins, y=target, other=y, reach=variance.REACH)
            y = target
        if left is not a.x:
            self._launch(shared.put_back, bins, y=y, left=left)
        self._launch(smooth.lift, bins, y=y, least=1.0 / variance.WIDTHS[-1], lacked=variance.LACKED,
                     same=variance.SAME, full=variance.FULL)
        return y

    def _average(self, target: DeviceArray, other: DeviceArray | None, lines: str | None, width: int,
                 x: DeviceArray | str = "x") -> None:
        """The average of x over `width` bins, except at lines, where another spectrum is used."""
        blurred = self.arrays.vectors.part(0, 2)
        self._launch(smooth.blur, self._bins, blurred=blurred, x=x, lines=lines)
        self._launch(smooth.average, self._bins, y=target, blurred=blurred, other=other, lines=lines, width=width)

    def _share(self, left: DeviceArray, error: DeviceArray, more: DeviceArray) -> None:
        """shared_lines.shared_lines: left = x without the light that other fibres show; more: the noise of that light.

        error: variance of K x. The blurred spectrum must be that of x.
        """
        a, shape, bins, width = self.arrays, self.shape, self._bins, variance.WIDTHS[-1]
        (base, rest, like), common = (a.vectors.part(v, v + 1) for v in range(3)), shape.bundles * shape.nwave
        high, wide = self.passes.core
        self._launch(shared.mark_good, bins, marks="lines", high=high, wide=wide, half=variance.HALF)
        self._launch(shared.settle, bins, filled=left, marks="lines", blurred=a.vectors.part(0, 2), width=width,
                     reach=variance.REACH)
        self._launch(shared.weigh_fibre, shape.fibres, error=error)
        for turn in range(shared_lines.TURNS):
            self._launch(shared.lift_off, bins, base=base, rest=rest, filled=left, width=width)
            self._launch(shared.see_rest, bins, seen=more, rest=rest, alike=1)
            self._launch(shared.find_lines, common, seen=more, error=error, most=variance.KEEP**2)
            self._launch(shared.mean_line, common, lines="common_lines", rest=rest, reach=width // 2)
            self._launch(shared.any_line, shape.bundles, lines="common_lines", before=turn)
            self._launch(shared.see_rest, bins, seen=like, rest="mean", alike=shape.nfibre)
            self._launch(shared.find_gain, shape.fibres, seen=more, like=like, error=error,
                         before=shared_lines.GAINS**-2)
            if turn + 1 < shared_lines.TURNS:
                self._launch(shared.deviate, common, seen=more, like=like, error=error, most=variance.KEEP**2,
                             loudest=shared_lines.LOUDEST**2)
                self._launch(shared.leave_bins, bins, filled=left, base=base, reach=variance.REACH)
        self._launch(shared.find_level, shape.fibres, base=base)
        self._launch(shared.take_shared, common, left=left, more=more, rest=rest, base=base, lines="common_lines",
                     least=shared_lines.LEAST)

    def tell(self) -> None:
        """Pack the rejected pixels into bits."""
        words = -(-self.sizes.cut[0] // 32)
        self._launch(passes.pack, self.shape.bundles * self.sizes.cut[1] * words, words=words)

    def add_others(self) -> None:
        """Add up the light of all other bundles on the pixels, after a pass over all bundles."""
        self._launch(passes.add_others, self._pixels, numbers="numbers_of")
