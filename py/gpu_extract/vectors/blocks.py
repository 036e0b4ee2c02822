"""Operations on blocks of 4 x 4 elements with eight lanes (poles) in registers, for the wide band and windows.

A block in memory is 16 vectors, [c][r] (column by column) or [r][c]; a group of right-hand sides is 4 bins,
[bin][side]. All places are addresses in bytes, and different ones do not overlap. `e` writes the code (emit.Emit).
"""
# mypy: disallow-untyped-defs=False
from collections.abc import Callable
from typing import Any

from gpu_extract.vectors.emit import Emit, written_out

LANES = 8
SIDES = 2                      # right-hand sides: ones and x
EDGE = 4                       # rows or columns of a block
BLOCK = EDGE * EDGE * LANES    # elements of a block
GROUP = EDGE * SIDES * LANES   # elements of a group of right-hand sides
PIVOTS = EDGE * LANES          # elements of a panel's D
SQUARE, PAIRS, LINE, VECTOR = 8 * BLOCK, 8 * GROUP, 8 * PIVOTS, 8 * LANES      # bytes of these, and of a vector
BINS = range(EDGE)


def _code(name: str, body: Callable[..., None]) -> Any:
    """An intrinsic name(places) whose code is body(e, *places)."""
    @written_out(LANES)
    def code(e, places):
        e.call(name, [*map(e.place, e.parts(places))], body)
    return code


def read_block(e: Emit, place: Any) -> dict[tuple[int, int], Any]:
    """The block at `place` as {(row, column): vector}."""
    return {(r, c): e.load(place, (c * EDGE + r) * LANES) for c in BINS for r in BINS}


def write_block(e: Emit, place: Any, block: dict[tuple[int, int], Any], by_rows: bool = False) -> None:
    """Write a block to `place`."""
    for (r, c), value in block.items():
        e.store(place, (r * EDGE + c if by_rows else c * EDGE + r) * LANES, value)


def _factor_corner(e: Emit, corner: Any, pivots: Any, inverses: Any) -> None:
    """A diagonal block becomes its unit lower factor; D and 1/D: [c][lane]."""
    x = read_block(e, corner)
    for c in BINS:
        for m in range(c):
            scaled = e.multiply(x[c, m], e.load(pivots, m * LANES))
            for r in range(c, EDGE):
                x[r, c] = e.take(scaled, x[r, m], x[r, c])
        inverse = e.divide(e.one, x[c, c])
        e.store(pivots, c * LANES, x[c, c])
        e.store(inverses, c * LANES, inverse)
        for r in range(c + 1, EDGE):
            x[r, c] = e.multiply(x[r, c], inverse)
        for r in range(c + 1):
            x[r, c] = e.one if r == c else e.zero
    write_block(e, corner, x)


def finished(e: Emit, x: dict[tuple[int, int], Any], corner: Any, inverses: Any) -> dict[tuple[int, int], Any]:
    """A block below the diagonal, minus the contributions of all earlier panels, becomes that of L."""
    for c in BINS:
        for m in range(c):
            low = e.load(corner, (m * EDGE + c) * LANES)
            for r in BINS:
                x[r, c] = e.take(x[r, m], low, x[r, c])
    scale = [e.load(inverses, c * LANES) for c in BINS]
    return {(r, c): e.multiply(value, scale[c]) for (r, c), value in x.items()}


def _finish_block(e: Emit, block: Any, corner: Any, inverses: Any) -> None:
    """`finished` in place."""
    write_block(e, block, finished(e, read_block(e, block), corner, inverses))


def _scale_block(e: Emit, out: Any, block: Any, pivots: Any) -> None:
    """out, [column][row], = block times D: column by column."""
    scale = [e.load(pivots, c * LANES) for c in BINS]
    write_block(e, out, {(r, c): e.multiply(value, scale[c]) for (r, c), value in read_block(e, block).items()})


def _column_block(e: Emit, out: Any, block: Any, corner: Any) -> None:
    """out, [row][column], = block times the inverse of the diagonal block's unit lower factor."""
    x, low = read_block(e, block), read_block(e, corner)
    for c in reversed(BINS):
        for m in range(c + 1, EDGE):
            for r in BINS:
                x[r, c] = e.take(x[r, m], low[m, c], x[r, c])
    write_block(e, out, x, by_rows=True)


def _invert_corner(e: Emit, corner: Any, inverses: Any) -> None:
    """A diagonal block's factor becomes (L D L^T)^-1."""
    low, x = read_block(e, corner), {}
    for c in BINS:
        x[c, c] = e.one
        for r in range(c + 1, EDGE):
            total = e.zero
            for m in range(c, r):
                total = e.take(low[r, m], x[m, c], total)
            x[r, c] = total
    z = {}
    for c in BINS:
        for r in range(c, EDGE):
            total = e.zero
            for m in range(r, EDGE):
                total = e.fma(e.multiply(x[m, r], e.load(inverses, m * LANES)), x[m, c], total)
            z[r, c] = z[c, r] = total
    write_block(e, corner, z)


def _mirror(e: Emit, block: Any) -> None:
    """A block's lower triangle is copied to its upper one."""
    x = read_block(e, block)
    write_block(e, block, {(r, c): x[max(r, c), min(r, c)] for r, c in x})


def _turn(e: Emit, out: Any, block: Any) -> None:
    """out, [row][column], = block, [column][row]."""
    write_block(e, out, read_block(e, block), by_rows=True)


def _forward_corner(e: Emit, y: Any, corner: Any, inverses: Any) -> None:
    """Forward substitution of a group of right-hand sides, minus the contributions of earlier panels, divided by D."""
    low = read_block(e, corner)
    for s in range(SIDES):
        done: list[Any] = []
        for c in BINS:
            total = e.load(y, (c * SIDES + s) * LANES)
            for m, value in enumerate(done):
                total = e.take(low[c, m], value, total)
            done.append(total)
        for c, value in enumerate(done):
            e.store(y, (c * SIDES + s) * LANES, e.multiply(value, e.load(inverses, c * LANES)))


def _backward_corner(e: Emit, y: Any, corner: Any) -> None:
    """Back substitution of a group of right-hand sides, divided by D, within its panel's diagonal block."""
    low = read_block(e, corner)
    for s in range(SIDES):
        done: dict[int, Any] = {}
        for c in reversed(BINS):
            total = e.load(y, (c * SIDES + s) * LANES)
            for m, value in done.items():
                total = e.take(low[m, c], value, total)
            done[c] = total
            e.store(y, (c * SIDES + s) * LANES, total)


factor_corner = _code("factor_corner", _factor_corner)
finish_block = _code("finish_block", _finish_block)
scale_block = _code("scale_block", _scale_block)
column_block = _code("column_block", _column_block)
invert_corner = _code("invert_corner", _invert_corner)
mirror = _code("mirror", _mirror)
turn = _code("turn", _turn)
forward_corner = _code("forward_corner", _forward_corner)
backward_corner = _code("backward_corner", _backward_corner)

NORMAL, TURNED, GROUPS = 0, 1, 2     # operands, see subtract_products


def block_places(kind: int) -> dict[tuple[int, int], int]:
    """The places of the elements (row, column or side) of a block or a group of right-hand sides."""
    width = SIDES if kind == GROUPS else EDGE
    return {(r, m): (r * SIDES + m if kind == GROUPS else m * EDGE + r) * LANES for m in range(width) for r in BINS}


def subtract_terms(e: Emit, sums: dict[tuple[int, int], Any], operands: tuple[Any, Any, Any, Any], kind: int) -> None:
    """`sums` -= the products of `operands`: A's first place and its step, B's first place, and their number."""
    left0, step, right0, count = operands
    width = SIDES if kind == GROUPS else EDGE
    with e.loop(count) as n:
        left = e.step(left0, n.index, step)
        right = e.step(right0, n.index, e.index(EDGE * width * LANES))
        for k in BINS:
            column = [e.load(left, (r * EDGE + k if kind == TURNED else k * EDGE + r) * LANES) for r in BINS]
            row = [e.negative(e.load(right, (k * width + m) * LANES)) for m in range(width)]
            for (r, m), place in sums.items():
                e.builder.store(e.fma(column[r], row[m], e.builder.load(place)), place)


def _products(e: Emit, target: Any, left: Any, step: Any, right: Any, count: Any, kind: int) -> None:
    at = block_places(kind)
    sums = e.begun({key: e.load(target, offset) for key, offset in at.items()})
    subtract_terms(e, sums, (left, step, right, count), kind)
    for key, value in e.done(sums).items():
        e.store(target, at[key], value)


@written_out(LANES, "kind")
def subtract_products(e, target, left, right, count, kind):
    """C -= sum_n A_n B_n over `count` blocks, C in registers.

    target: C; left: (A, bytes from one to the next); right: B, which are contiguous
    NORMAL: C and A are [column][row], B [row][column]; TURNED: A is [row][column]; GROUPS: A is [column][row], C and B
    are groups of right-hand sides.
    """
    e.call("subtract_products", (e.place(target), *e.columns(left), e.place(right), count), _products, kind)
