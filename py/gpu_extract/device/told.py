"""The report of a piece from the device, read by the host: odd pixels, facts, and the work that is left to the CPU."""
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gpu_extract.bundle import Job
from gpu_extract.checks.odd_pixels import NO_PIXELS, may_be_odd
from gpu_extract.data import NOT_MEASURED, Array, Image, IntArray
from gpu_extract.decorrelate.banded import NARROW
from gpu_extract.device.cuda.text import gradients
from gpu_extract.device.flow import Flow, Turn
from gpu_extract.device.memory import BEYOND, GIVEN_UP, UNSEEN
from gpu_extract.seams import Recorder
from gpu_extract.solve import TOLERANCE

LEFT = "left to the CPU"         # the span in which a frame waits for work that its device could not do


def odd_pixels(flow: Flow, image: Image, job: Job, bundles: Sequence[int], seen: Array) -> list[IntArray]:
    """The odd pixels of a piece's bundles, (n, 2) y and x; seen: the extremes of each bundle's pixels, from the device.
    The host searches only if these permit any. Raises InputError for illegal pixels."""
    columns = [flow.task.geometries[bundle].looked for bundle in bundles]
    return [job.odd_in(image, place) if may_be_odd(image, place, job.most_ivar, values) else NO_PIXELS
            for place, values in zip(columns, seen.tolist(), strict=True)]


def take_piece(flow: Flow, p: int, find: Callable[[Array], list[IntArray]], recorder: Recorder, *,
               rows: dict[str, np.ndarray], turn: Turn) -> tuple[dict[str, np.ndarray], list[IntArray]]:
    """Wait for the report of piece p, and find its bundles' odd pixels. If there are any, the piece is repeated without
    them; if it has not converged, with more iterations.

    find: returns these pixels, given told["seen"]; a later pass knows them. The other arguments: see Flow.again.
    """
    with recorder.span("wait"):
        told = flow.take(p)
    with recorder.span("odd pixels"):
        odd = find(told["seen"])
    if turn.first and any(map(len, odd)):
        told = flow.again(p, odd, rows, recorder, turn)
    if is_undone(told):
        told = flow.again(p, odd, rows, recorder, turn._replace(patient=True))
    return told, odd


def is_undone(told: Mapping[str, np.ndarray]) -> bool:
    """Whether any bundle needs more iterations than were queued, for x or for the part of x that tails cause."""
    return any(told[name][:, gradients.UNDONE].any() for name in ("state", "tail_state") if name in told)


def facts_of(flow: Flow, told: Mapping[str, np.ndarray], b: int, bundle: int) -> tuple[dict[str, float], list[int]]:
    """The facts about a bundle of the rank, bundle b of the piece, and the fibres that the core gave up."""
    shape, state = flow.task.geometries[bundle].shape, told["state"][b]
    counts = told["counts"][:, b * shape.nfibre:(b + 1) * shape.nfibre]
    states = [state, *([told["tail_state"][b]] if "tail_state" in told else [])]
    unknown = dict.fromkeys(("ownband", "coupling", "cond", "selfcheck"), NOT_MEASURED)    # not made on the device
    notes = {"fibres": shape.nfibre, **unknown, "iterations": int(state[gradients.DONE]),
             "error": max(float(np.sqrt(one[gradients.NORM])) for one in states), "halfband": shape.hw,
             "neighbours": shape.nd - 1, "given_up": int(counts[UNSEEN].sum()),
             "floor": float(state[gradients.FLOOR])}
    if len(counts) > BEYOND:
        notes["ran_away"] = int(counts[BEYOND].any())
    return notes, [int(n) for n in np.nonzero(counts[GIVEN_UP])[0]]


def is_cpus(facts: Mapping[str, float], fibres: IntArray, lost: Sequence[int], warn: Callable[[str], None]) -> bool:
    """Whether the CPU must extract a bundle: no core of a device supports its band, its solution has run away or did
    not converge, or all its fibres were lost.

    fibres: their numbers in the PSF; lost: those that the core gave up, counted within the bundle
    """
    if facts["halfband"] > NARROW or facts.get("ran_away"):
        return True
    if facts["error"] <= gradients.CLOSE * max(TOLERANCE, facts["floor"]):
        return len(lost) == len(fibres)
    warn(f"fibres {fibres[0]} to {fibres[-1]} did not converge on the device: they are extracted on the CPU")
    return True


def model_of(flow: Flow, cut: np.ndarray, bundle: int) -> tuple[np.ndarray, tuple[int, int]]:
    """A copy of a bundle's model, and its first pixel on the CCD."""
    (ys, xs), (top, left) = flow.task.geometries[bundle].window, flow.task.geometries[bundle].cut[:2]
    return cut[ys.start - top:ys.stop - top, xs.start - left:xs.stop - left].copy(), (ys.start, xs.start)
