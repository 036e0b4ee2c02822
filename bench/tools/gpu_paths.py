"""What the lanes of each kernel walk through, for bench/gpu_model.py: read from the kernels, not measured.

A kernel's loops are named as gpu_code finds them in its machine code; "#0" is the shortest loop on the outermost level
that works on float64 (the narrowest of the bands that a kernel is written out for). The compilers write some loops out
2 or 4 times: then a turn is so many rows. Who changes a kernel changes its line here; the rest of the model stays.
"""
from collections.abc import Callable
from typing import Any

from gpu_extract.device.cuda.lanes import LONG, SHORT, TILE, tile_of, tiles_of
from gpu_extract.device.cuda.piece import PieceShape
from gpu_extract.device.cuda.text import sweeps
from gpu_extract.device.device_banded import EXTENDED

Times = dict[str, float]
Path = Callable[[PieceShape, tuple[Any, ...]], Times]

ROWS, COLUMNS, TERMS = 11, 17, 7                # of a spot of r; terms along y
SPACING, STEP = 7.3, 1.5                        # columns to the next fibre's spot, rows to the next bin's
APART = 0.15                                    # columns that bins of a team of `couple` have more than one bin
FEW = (COLUMNS + 4) / SPACING                   # fibres that touch 4 columns of 32 pixels in a row
CHUNK, PARTS, STRETCHES = 4, 64, 16
HALO = 96                                       # bins, of the usual r frame (sweeps.settle)
FIRST: dict[str, int | tuple[int, ...]] = {
    "gradients.between": 5, "gradients.advance": 5, "gradients.step": 5, "sweeps.add_up": (2,), "measure.choose": 1,
    "measure.learn": 4, "measure.gauge": 1, "measure.gather": (1, 5), "measure.conclude": 1, "eliminate.rest": 0,
    "eliminate.extend": 1, "eliminate.product": 2, "eliminate.share": 2, "sweeps.precondition_down": 6,
    "sweeps.precondition_up": 6, "sweeps.ask": 1, "sweeps.settle": (1, 25), "sweeps.factor": 1,
    "sweeps.invert": 1, "sweeps.poles_down": 1, "sweeps.poles_together": 1, "sweeps.poles_up": 0,
    "remainder.mix": 2, "remainder.carry": 2, "remainder.take": 2, "remainder.substitute": (1, 2, 5, 6),
    "remainder.pole_again": (1, 2),
    "eliminate.schur": 1, "eliminate.tops": 1, "measure.bound": 1,
    "measure.relate": 1, "measure.weigh_cut": 0, "measure.weigh_far": 0, "measure.learn_share": 0, "measure.tell": 2}
"""Which of the launches of a piece do something: so many, the first ones, or those with these numbers; in all others
lanes return at once. A usual frame: 5 iterations, 16 poles, of which 12 at most make corrections in 6 sums, the first
band holds, no chains of masked neighbours; fibres touch two on each side."""


def sweep(loop: str, halos: int, together: int = 1, most: int = TILE) -> Path:
    """A tile and its halos, so many rows together; before it, the longest halo of the fibre is looked up where it is
    not "0"."""
    def path(s: PieceShape, a: tuple[Any, ...]) -> Times:
        rows = {loop: min(tile_of(s.nwave, most) + halos * HALO, s.nwave) / together}
        return rows if loop == "0" else {"0": tiles_of(s.nwave), **rows}
    return path


def poles(s: PieceShape, a: tuple[Any, ...]) -> Times:
    """Two halos, which are not stored, and a tile."""
    return {"0": tiles_of(s.nwave, LONG), "1": 2 * HALO, "2": tile_of(s.nwave, LONG)}


def poles_together(s: PieceShape, a: tuple[Any, ...]) -> Times:
    """The same up, two stored rows together."""
    return poles(s, a) | {"2": tile_of(s.nwave, LONG) / 2, "2.0": 2}


def poles_again(s: PieceShape, a: tuple[Any, ...]) -> Times:
    """A tile and one halo, two rows together."""
    return {"0": tiles_of(s.nwave, LONG), "1": (tile_of(s.nwave, LONG) + HALO) / 2}


def settling(s: PieceShape, a: tuple[Any, ...]) -> Times:
    """Halos of 24, 48 and 96."""
    return {"0": 3, "0.0": 56}


def one_turn(path: Path) -> Path:
    """The same inside of the loop over those that a lane works on (text/lanes.h: Chosen), of which it has one."""
    return lambda s, a: {"0": 1, **{f"0.{loop}": turns for loop, turns in path(s, a).items()}}


def couple(s: PieceShape, a: tuple[Any, ...]) -> Times:
    """Columns that both fibres have, and those by which bins of a team differ; all rows are worked on together. A fibre
    with itself has a launch of its own."""
    distances = range(1, s.nd) if a[13] else [0]
    return {"0": 1, "0.0": sum(max(COLUMNS - d * SPACING, 0) + APART for d in distances) / len(distances), "0.0.0": 1}


PATHS: dict[str, Path] = {
    "image.look": lambda s, a: {"1": a[3] / a[4] / 4},
    "sweeps.settle": one_turn(settling),
    "sweeps.factor": one_turn(lambda s, a: {"0": HALO, "1": tile_of(s.nwave)}),
    "sweeps.invert": one_turn(lambda s, a: {"0": tiles_of(s.nwave), "1": HALO, "2": tile_of(s.nwave)}),
    "remainder.substitute": sweep("1", 1, 2),
    "remainder.pole_again": poles_again,
    "remainder.mix": lambda s, a: {"0": sweeps.RANK} if a[6] else {"1": sweeps.CORRECTING},
    "remainder.carry": lambda s, a: {"0": (2 * s.hw + 1) / 2},
    "remainder.take": lambda s, a: {"0": (2 * s.hw + 1) / 2 if a[12] == 1 else 0, "1": 2, "1.0": (2 * s.hw + 1) / 2},
    "sweeps.precondition_down": sweep("1", 2, 4, SHORT),
    "sweeps.precondition_up": sweep("1", 2, 4, SHORT),
    "sweeps.poles_down": poles,
    "sweeps.poles_up": poles,
    "sweeps.poles_together": poles_together,
    "sweeps.ask": lambda s, a: {"0": s.nwave / sweeps.AHEAD},
    "eliminate.transpose": lambda s, a: {"0": 2 * s.hw + 1},
    "gradients.between": lambda s, a: {"0": s.nd - 1, "0.0": (2 * s.hw + 1) / 4, "0.1": (2 * s.hw + 1) / 4},
    "gradients.advance": lambda s, a: {"1": s.nwave / PARTS / 4},
    "gradients.add_parts": lambda s, a: {"0": a[2] / 4},
    "gradients.step": lambda s, a: {"0": s.nfibre / 4, "3": s.nwave / PARTS / 4},
    "gradients.judge": lambda s, a: {"0": s.nfibre / 4, "2": s.nfibre / 4},
    "eliminate.largest": lambda s, a: {"1": s.nwave / STRETCHES / 4},
    "eliminate.coupling": lambda s, a: {"0": 2 * s.hw + 1},
    "eliminate.extend": one_turn(lambda s, a: {"0": a[4] - s.hw + EXTENDED - 1}),
    "eliminate.product": one_turn(lambda s, a: {"0": 2 * s.hw + 5}),
    "eliminate.share": one_turn(lambda s, a: {"0": 2 * s.hw + 8}),
    "eliminate.schur": lambda s, a: {"0": -(-(a[11] + 1) // 4)},
    "eliminate.tops": lambda s, a: {"1": s.nwave / STRETCHES / 4},
    "measure.bound": lambda s, a: {"0": s.hw},
    "measure.learn": lambda s, a: {"0": a[5] / 4},
    "measure.gauge": lambda s, a: {"0": CHUNK, "0.0": s.hw / 4},
    "measure.conclude": lambda s, a: {"0": s.nwave / CHUNK / 16 / 8},
    "measure.enlist": lambda s, a: {"0": 2 * s.fibres / 4},
    "measure.widen": lambda s, a: {"0": 2 * s.nd - 1},
    "measure.decide": lambda s, a: {"1": 3, "1.0": 2 * (s.nd - 2)},
    "sweeps.add_up": lambda s, a: {"0": sweeps.GROUP / 4},
    "poles.square": lambda s, a: {"0": CHUNK, "0.0": -(-a[6] // 4)},
    "poles.agree": lambda s, a: {"0": s.nwave / CHUNK / 16 / 8},
    "spots.evaluate": lambda s, a: {"0": a[3][0], "0.0": a[6] / a[3][0]},
    "spots.make": lambda s, a: {"0": 2, "0.0": -(-ROWS // 2) + 1, "0.1": TERMS, "0.2": COLUMNS},
    "normal.couple": couple,
    "normal.count_marks": lambda s, a: {"1": s.nwave / PARTS / 4},
    "quality.bins_of_row": lambda s, a: {"0": 12, "1": 12},
    "quality.near_fibres": lambda s, a: {"0": a[0][1], "1": s.nfibre, "1.0": ROWS / STEP, "1.1": COLUMNS / 4 + 1},
    "quality.chi_square": lambda s, a: {"0": FEW, "0.0": 2},
    "quality.weigh": lambda s, a: {"0": COLUMNS, "0.0": -(-ROWS // 4)},
    "assembly.find_middles": lambda s, a: {"0": 22, "0.0": s.nout / 32 / 16, "0.1": 32},
}
