"""Recursions along a band, one lane each, written out: what is carried from row to row stays in registers.

An array of rows is flat; element n of row j of a lane is array[first + (j width + n) lanes], where `first` is the
lane's first element. A factor L D L^T is kept as rows of 1/D, l_1 .. l_half; bands are rows of the upper triangle, 0
beyond the end. `half` and `ndiag` are numbers known when the kernel is compiled (kernels.Kernel).
"""
# mypy: disallow-untyped-defs=False
from typing import Any

from gpu_extract.device.cuda.written import FLOAT, INDEX, NOTHING, Code, Variable, index, number, written_out

TINY = 1e-15       # of a bin's own diagonal: smaller pivots are rounding, the bin is decoupled
SIDES = 2          # right sides of a pole: ones and x


class _Pending:
    """What the rows before take from the next ones: pending[b][a] belongs to element a of row b from here."""

    def __init__(self, e: Code, half: int):
        self.e, self.half = e, half
        self.rows = [e.variables(half - b) for b in range(half)]

    def add_to(self, row: list[Any]) -> list[Any]:
        """A row of the matrix, less what the rows before took from it."""
        return [self.e.add(row[a], self.rows[0][a].get()) for a in range(self.half)] + [row[self.half]]

    def step(self, row: list[Any], low: list[Any]) -> None:
        """Take a finished row, unscaled and scaled by its pivot, from all that follow."""
        for b in range(1, self.half + 1):
            minus = self.e.negative(low[b])
            for a in range(self.half + 1 - b):
                old = self.rows[b][a].get() if b < self.half and a < self.half - b else self.e.zero
                self.rows[b - 1][a].set(self.e.fma(minus, row[a + b], old))


def _scaled(e: Code, row: list[Any], inverse: Any) -> list[Any]:
    return [inverse] + [e.multiply(value, inverse) for value in row[1:]]


def _take(e: Code, waiting: list[Variable], low: list[Any], value: Any) -> None:
    """Forward substitution: what a solved row takes from the right sides that follow."""
    for b in range(1, len(low)):
        old = waiting[b].get() if b < len(waiting) else e.zero
        waiting[b - 1].set(e.fma(e.negative(low[b]), value, old))


def _behind(e: Code, value: Any, low: list[Any], later: list[Variable]) -> Any:
    """Back substitution: a right side, divided by its pivot, less what the rows after it take; it joins them."""
    for b in range(1, len(low)):
        value = e.fma(e.negative(low[b]), later[b - 1].get(), value)
    for b in range(len(later) - 1, 0, -1):
        later[b].set(later[b - 1].get())
    later[0].set(value)
    return value


class _Inverse:
    """The elements of the inverse that the next rows up ask for: known[p][q - p] = Z[j + 1 + p, j + 1 + q]."""

    def __init__(self, e: Code, half: int, wide: int):
        self.e, self.half, self.wide = e, half, wide
        self.known = [e.variables(wide - p) for p in range(half)]

    def row(self, low: list[Any]) -> list[Any]:
        """z_0 .. z_wide of the next row up (Takahashi, Fagan & Chin 1973)."""
        minus = [self.e.negative(value) for value in low]
        z = [low[0]]
        for a in range(1, self.wide + 1):
            total = self.e.zero
            for b in range(1, self.half + 1):
                total = self.e.fma(minus[b], self.known[min(a, b) - 1][abs(a - b)].get(), total)
            z.append(total)
        for b in range(1, self.half + 1):
            z[0] = self.e.fma(minus[b], z[b], z[0])
        for p in range(self.half - 1, 0, -1):
            for q in range(self.wide - p):
                self.known[p][q].set(self.known[p - 1][q].get())
        for q in range(self.wide):
            self.known[0][q].set(z[q])
        return z


@written_out
def factor_rows(typingctx, low, first, lanes, band, place, width, between, nwave, half):
    """low = the factor of a band matrix: rows of half + 1, `lanes` apart; rows of the matrix are `width` wide and their
    elements `between` apart.

    Bins whose diagonal is 0 are decoupled, and so are those whose pivot is rounding.
    """
    h = number(half)

    def codegen(context, builder, signature, args):
        e = Code(context, builder)
        out = e.rows(signature.args[0], args[0], args[1], index(h + 1), args[2])
        given = e.rows(signature.args[3], args[3], args[4], args[5], args[6])
        pending = _Pending(e, h)
        tiny = e.constant(-TINY)
        with e.loop(args[7]) as j:
            here, source = out.at(j), given.at(j)
            row = [source[a] for a in range(h + 1)]
            row[0] = scale = e.where_positive(row[0], row[0], e.one)
            row = pending.add_to(row)
            row[0] = e.where_positive(e.fma(tiny, scale, row[0]), row[0], scale)
            scaled = _scaled(e, row, e.divide(e.one, row[0]))
            for a in range(h + 1):
                here[a] = scaled[a]
            pending.step(row, scaled)
        return context.get_dummy_value()
    kinds = low, INDEX, INDEX, band, INDEX, INDEX, INDEX, INDEX, half
    return NOTHING(*kinds), codegen


@written_out
def solve_rows(typingctx, y, first, spread, low, place, lanes, nwave, half):
    """y becomes the solution for a factor `low`; y: one element a row, `spread` apart."""
    h = number(half)

    def codegen(context, builder, signature, args):
        e = Code(context, builder)
        values = e.rows(signature.args[0], args[0], args[1], index(1), args[2])
        factor = e.rows(signature.args[3], args[3], args[4], index(h + 1), args[5])
        waiting = e.variables(h)
        with e.loop(args[6]) as j:
            here, source = values.at(j), factor.at(j)
            value = e.add(here[0], waiting[0].get())
            _take(e, waiting, [source[b] for b in range(h + 1)], value)
            here[0] = value
        later = e.variables(h)
        with e.loop_down(args[6]) as j:
            here, source = values.at(j), factor.at(j)
            row = [source[b] for b in range(h + 1)]
            here[0] = _behind(e, e.multiply(here[0], row[0]), row, later)
        return context.get_dummy_value()
    return NOTHING(y, INDEX, INDEX, low, INDEX, INDEX, INDEX, half), codegen


@written_out
def invert_rows(typingctx, inverse, first, width, lanes, low, place, nwave, half):
    """Elements 0 .. half of every row of the inverse, whose rows are `width` wide, from its factor `low`."""
    h = number(half)

    def codegen(context, builder, signature, args):
        e = Code(context, builder)
        out = e.rows(signature.args[0], args[0], args[1], args[2], args[3])
        factor = e.rows(signature.args[4], args[4], args[5], index(h + 1), args[3])
        known = _Inverse(e, h, h)
        with e.loop_down(args[6]) as j:
            here, source = out.at(j), factor.at(j)
            for a, value in enumerate(known.row([source[b] for b in range(h + 1)])):
                here[a] = value
        return context.get_dummy_value()
    return NOTHING(inverse, INDEX, INDEX, INDEX, low, INDEX, INDEX, half), codegen


@written_out
def pole_rows(typingctx, work, first, lanes, width, band, sides, place, fibres, reach, shift, nwave, half,
              ndiag):
    """One pole: of Z = (S + shift)^-1 the elements z_0 .. z_ndiag of every row, and Z times the right sides.

    work: rows of `width`, at least SIDES + 1 + the larger of half and ndiag; filled: the solutions, then z_0 .. z_ndiag
    band: rows of `reach` elements, of which half + 1 are used; sides: rows of SIDES; both of lane `place` of `fibres`
    """
    h, nd = number(half), number(ndiag)
    wide = max(h, nd)

    def codegen(context, builder, signature, args):
        e = Code(context, builder)
        out = e.rows(signature.args[0], args[0], args[1], args[3], args[2])
        given = e.rows(signature.args[4], args[4], args[6], args[8], args[7])
        right = e.rows(signature.args[5], args[5], args[6], index(SIDES), args[7])
        pending, waiting = _Pending(e, h), [e.variables(h) for _ in range(SIDES)]
        with e.loop(args[10]) as j:
            here, source, asked = out.at(j), given.at(j), right.at(j)
            row = pending.add_to([source[a] for a in range(h + 1)])
            row[0] = e.add(row[0], args[9])
            scaled = _scaled(e, row, e.divide(e.one, row[0]))
            for a in range(h + 1):
                here[SIDES + a] = scaled[a]
            for r in range(SIDES):
                value = e.add(asked[r], waiting[r][0].get())
                _take(e, waiting[r], scaled, value)
                here[r] = value
            pending.step(row, scaled)
        known, later = _Inverse(e, h, wide), [e.variables(h) for _ in range(SIDES)]
        with e.loop_down(args[10]) as j:
            here = out.at(j)
            row = [here[SIDES + b] for b in range(h + 1)]
            for r in range(SIDES):
                value = e.multiply(here[r], row[0])
                here[r] = _behind(e, value, row, later[r])
            for a, value in enumerate(known.row(row)[:nd + 1]):
                here[SIDES + a] = value
        return context.get_dummy_value()
    kinds = work, INDEX, INDEX, INDEX, band, sides, INDEX, INDEX, INDEX, FLOAT, INDEX, half, ndiag
    return NOTHING(*kinds), codegen


@written_out
def definite_rows(typingctx, band, taken, place, lanes, width, b, c, g, nwave, half):
    """1.0 where S + b U - c - (1 - g) diag(S) is positive definite, else 0.0.

    band, taken: S and U, rows of `width` elements of which half + 1 are used.
    """
    h = number(half)

    def codegen(context, builder, signature, args):
        e = Code(context, builder)
        s = e.rows(signature.args[0], args[0], args[2], args[4], args[3])
        u = e.rows(signature.args[1], args[1], args[2], args[4], args[3])
        pending, flag = _Pending(e, h), e.variables(1, 1.0)[0]
        minus = e.negative(args[6])
        with e.loop(args[8]) as j:
            own, share = s.at(j), u.at(j)
            row = [e.fma(args[7], own[0], e.fma(args[5], share[0], minus))]
            row += [e.fma(args[5], share[a], own[a]) for a in range(1, h + 1)]
            row = pending.add_to(row)
            flag.set(e.where_positive(row[0], flag.get(), e.zero))
            pending.step(row, _scaled(e, row, e.divide(e.one, row[0])))
        return flag.get()
    return FLOAT(band, taken, INDEX, INDEX, INDEX, FLOAT, FLOAT, FLOAT, INDEX, half), codegen
