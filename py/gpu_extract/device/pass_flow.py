"""The flow of a rank's bundles through a device, with several passes over an image.

A pass over a piece is queued like a frame of one pass. What the next pass needs of a bundle stays on the device. The
host uploads what the CPU or another rank has made, and downloads what these need.
"""
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpu_extract.data import Image, IntArray, Light
from gpu_extract.device import pass_plan
from gpu_extract.device.cuda.piece import PieceShape
from gpu_extract.device.flow import DRAFT, Flow, Turn
from gpu_extract.device.memory import Arrays, tables_on
from gpu_extract.device.pass_steps import PassSteps
from gpu_extract.normal import cut_width
from gpu_extract.passes.crosstalk import Piece, Window
from gpu_extract.passes.read_noise import ReadNoise
from gpu_extract.seams import Recorder


class PassFlow(Flow):
    """A flow whose task has several passes."""

    _noise: ReadNoise

    @property
    def passes(self) -> pass_plan.Passes:
        """What the passes need."""
        passes: pass_plan.Passes = self.task.passes
        return passes

    def _plan(self, shape: PieceShape) -> dict[str, Any]:
        return super()._plan(shape) | dict(pass_plan.pass_arrays(shape, self.task.sizes, self.passes))

    def _inputs(self) -> tuple[str, ...]:
        return *super()._inputs(), "noises", *(() if self.passes.noise is None else ("noise",))

    def _told_of(self, shape: PieceShape) -> Arrays:
        return {**super()._told_of(shape), **pass_plan.told_of_passes(shape, self.task.sizes)}

    def _kept_of(self, fibres: int, bundles: int) -> tuple[Arrays, Arrays]:
        by_fibre, by_bundle = pass_plan.past_arrays(fibres, bundles, len(self.task.job.plan.extended), self.task.sizes)
        return {**super()._kept_of(fibres, bundles)[0], **by_fibre}, by_bundle

    def _fixed(self, n: int) -> dict[str, np.ndarray]:
        bundles = self.pieces[n].bundles
        geometries = [self.task.geometries[bundle] for bundle in bundles]
        numbers = [self.task.mine[bundle] for bundle in bundles]
        return super()._fixed(n) | pass_plan.piece_tables(self.task.job, self.passes, geometries, numbers,
                                                          self.task.sizes.cut)

    def _shared(self) -> dict[str, Any]:
        self._known = {name: self.device.empty(*array)
                       for name, array in pass_plan.known_arrays(self.task.sizes, self.passes).items()}
        tables = tables_on(self.device, pass_plan.frame_tables(self.task.job, self.passes))
        return {**super()._shared(), **self._known, **tables, **({"noise": None} if self.passes.noise is None else {})}

    def _stage(self, n: int, image: Image) -> None:
        super()._stage(n, image)
        if self.passes.noise is not None:
            for b, bundle in enumerate(self.pieces[n].bundles):
                geometry = self.task.geometries[bundle]
                place = self._staged[n]["noise"][b, :geometry.pixels].reshape(geometry.rows, -1)
                np.copyto(place, self._noise.values[:, geometry.staged], casting="same_kind")

    def _steps(self, n: int, stream: Any, *, patient: bool = False) -> PassSteps:
        return PassSteps(self.device, stream, self.pieces[n].shape, self.task.sizes, self._views[n], self.passes,
                         patient=patient)

    def _compute(self, n: int, recorder: Recorder, turn: Turn) -> None:
        job, steps = self.task.job, self._steps(n, self._stream(n), patient=turn.patient)
        with recorder.device_span("pixels"):
            steps.pixels()
            steps.begin(turn)
        with recorder.device_span("solve"):
            steps.numbers(self.task.tables)
            steps.touch()
            steps.solve_anew(turn, self.task.tables, job.config.regularize)
        with recorder.device_span("tails"):
            steps.take_tails(turn)
        if turn.last:
            self._conclude(n, steps, recorder, 0.0 if job.config.psferr_in_ivar else job.psferr)
        else:
            with recorder.device_span("draft"):
                steps.draft()
        steps.tell()

    def draft(self, image: Image, noise: ReadNoise, recorder: Recorder) -> None:
        """Queue the first pass over a frame; `take` waits for its pieces."""
        self._noise = noise
        numbers = pass_plan.noise_numbers(noise)
        for staged in self._staged:
            staged["noises"][:] = numbers
        self.queue(image, recorder, DRAFT)

    def spread(self) -> None:
        """Compute the light of other bundles on the pixels of this rank's. All drafts must have been taken."""
        with self.device.current(self._aside):
            for n in range(len(self.pieces)):
                self._steps(n, self._aside).add_others()
        done = self.device.record(self._aside)
        for stream in self._streams:
            self.device.wait(stream, done)

    def put(self, number: int, models: Sequence[Piece], tails: Sequence[Piece]) -> None:
        """Upload parts of a bundle's light that the CPU or another rank has made; number: the bundle's in the job."""
        place = self.passes.numbers.index(number)
        geometry = self.passes.known[place]
        for name, pieces, far in (("models", models, 0), ("tails", tails, self.passes.far)):
            if name not in self._known:
                continue
            target = self._known[name].part(place, place + 1)
            staged = self.device.pinned(target.shape, target.dtype)
            staged[...] = 0
            for piece in pieces:
                _paste(staged[0], pass_plan.window_of(geometry, far), piece)
            self.device.upload(staged, target, self._aside)
            self.device.finish(self.device.record(self._aside))

    def light(self, n: int, b: int) -> Light:
        """The light of bundle b of piece n after the first pass."""
        bundle, nfibre, far = self.pieces[n].bundles[b], self.pieces[n].shape.nfibre, self.passes.far
        views, place = self._views[n], self.passes.numbers.index(self.task.mine[bundle])
        found = self._fetch({
            "expected": views.expected.part(b, b + 1), "rejected": views.past_rejected.part(b, b + 1),
            **({"bright": views.past_bright.part(b * nfibre, (b + 1) * nfibre)} if self.passes.tails else {}),
            **{name: array.part(place, place + 1) for name, array in self._known.items()}})
        geometry = self.task.geometries[bundle]
        window, reach = pass_plan.window_of(geometry), pass_plan.window_of(geometry, far)
        tails = _cut(found["tails"][0], reach) if "tails" in found else np.zeros((0, 0), np.float32)
        model, expected = (np.zeros((window[2], cut_width(window[3])), np.float32) for _ in range(2))
        for light, name in ((model, "models"), (expected, "expected")):
            light[:, :window[3]] = _cut(found[name][0], window)
        return Light(found.get("bright", np.zeros((0, 0))), model, expected, window[:2], tails, reach[:2],
                     np.argwhere(_cut(found["rejected"][0], window)) + window[:2])

    def rejected(self, told: Mapping[str, np.ndarray], place: tuple[int, int]) -> IntArray:
        """(n, 2) y and x of a bundle's rejected pixels, in order of rows, from what is told of its piece.

        place: (piece, bundle in it)
        """
        n, b = place
        top, left, *_ = pass_plan.window_of(self.task.geometries[self.pieces[n].bundles[b]])
        words = told["packed"][b]
        column, word = np.nonzero(words)
        bits = np.unpackbits(words[column, word].astype("<u4").view(np.uint8).reshape(-1, 4), axis=1, bitorder="little")
        at, bit = np.nonzero(bits)
        y, x = 32 * word[at] + bit, column[at]
        order = np.lexsort((x, y))
        return np.stack([y[order] + top, x[order] + left], axis=1)

    def seen(self, n: int, b: int, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Arrays of past_arrays by name, for bundle b of piece n: (rows, columns) of its cut-out."""
        found = self._fetch({name: getattr(self._views[n], name).part(b, b + 1) for name in names})
        window = pass_plan.window_of(self.task.geometries[self.pieces[n].bundles[b]])
        return {name: _cut(array[0], window) for name, array in found.items()}


def _cut(array: np.ndarray, window: Window) -> np.ndarray:
    """The pixels (rows, columns) of a window, from an array of the device (columns, rows)."""
    return np.ascontiguousarray(array[:window[3], :window[2]].T)


def _paste(target: np.ndarray, window: Window, piece: Piece) -> None:
    """Copy a piece into an array of the device (columns, rows), as far as its window reaches."""
    y, x = piece.corner[0] - window[0], piece.corner[1] - window[1]
    rows, columns = min(piece.light.shape[0], window[2] - y), min(piece.light.shape[1], window[3] - x)
    if rows > 0 and columns > 0:
        target[x:x + columns, y:y + rows] = piece.light[:rows, :columns].T

