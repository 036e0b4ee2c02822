"""Vectors for blocks of spots that are kept in single precision: sums of sixteen elements at a time.

A row of a block is [column][bin], four bins (see data.Blocks): sixteen elements are four columns. `kind` is a number of
the elements' type, float32, or float64 where that is what a block holds; places are addresses, as in `simd`.

    wide8(place, kind)             two columns, as eight float64
    pixels(a, b, c, d, light)      eight pixels: of each column of a .. d (two each) the sum of its bins times light
    columns(place, kind)           four columns, in their own type
    columns2(place, other, kind)   two columns at each of two places; columns1(place, kind) two, and zeros for two more
    spread(place, kind)            four pixels, each for the four bins of its column; spread2(place, other, kind) two
                                   at each of two places
    unsigned(a, b)                 a, 0 where the sign of b is set; vfma and vadd are those of `simd`
    by_bin(a)                      the sums over the columns, bin by bin: four float64
    lower(a), upper(a)             the first, the second half of float64 lanes
    add_to(place, a)               adds them to what is there
    write_narrow(place, a, kind)   eight float64, rounded to the type of `kind`
"""
# mypy: disallow-untyped-defs=False
from typing import Any

from numba.core import types
from numba.extending import intrinsic

from gpu_extract.vectors.emit import constant, doubles, integers, load, shuffle, singles, standard, store
from gpu_extract.vectors.simd import Vec, vec4, vec8, vec16

single16 = Vec(16, single=True)


def _sixteen(kind: Any) -> Vec:
    return single16 if kind == types.float32 else vec16


def _lanes(kind: Any, lanes: int) -> Any:
    return (singles if kind == types.float32 else doubles)(lanes)


@intrinsic
def wide8(typingctx, place, kind):
    """Eight elements at an address, widened to float64."""
    def codegen(context, builder, signature, args):
        value = load(builder, args[0], _lanes(kind, 8))
        return value if kind == types.float64 else builder.fpext(value, doubles(8))
    return vec8(types.intp, kind), codegen


@intrinsic
def pixels(typingctx, a, b, c, d, light):
    """(bin 0 + bin 2) + (bin 1 + bin 3) of each of eight columns, the bins times the lanes of `light`."""
    def codegen(context, builder, signature, args):
        low, high = (shuffle(builder, args[4], args[4], lanes) for lanes in ([0, 1] * 4, [2, 3] * 4))
        halves = []
        for x, y in (args[:2], args[2:4]):
            first = shuffle(builder, x, y, (0, 1, 4, 5, 8, 9, 12, 13))
            second = shuffle(builder, x, y, (2, 3, 6, 7, 10, 11, 14, 15))
            halves.append(standard(builder, "fma", second, high, builder.fmul(first, low)))
        mixed = builder.fadd(shuffle(builder, halves[0], halves[1], (0, 8, 2, 10, 4, 12, 6, 14)),
                             shuffle(builder, halves[0], halves[1], (1, 9, 3, 11, 5, 13, 7, 15)))
        return shuffle(builder, mixed, mixed, (0, 2, 4, 6, 1, 3, 5, 7))
    return vec8(vec8, vec8, vec8, vec8, vec4), codegen


@intrinsic
def add_to(typingctx, place, value):
    """Add all lanes to the float64 at an address."""
    def codegen(context, builder, signature, args):
        there = load(builder, args[0], doubles(value.lanes))
        store(builder, builder.fadd(args[1], there), args[0])
        return context.get_dummy_value()
    return types.void(types.intp, value), codegen


@intrinsic
def columns(typingctx, place, kind):
    """Sixteen elements at an address."""
    def codegen(context, builder, signature, args):
        return load(builder, args[0], _lanes(kind, 16))
    return _sixteen(kind)(types.intp, kind), codegen


@intrinsic
def spread(typingctx, place, kind):
    """Four elements at an address, each in four lanes."""
    def codegen(context, builder, signature, args):
        four = load(builder, args[0], _lanes(kind, 4))
        return shuffle(builder, four, four, [n // 4 for n in range(16)])
    return _sixteen(kind)(types.intp, kind), codegen


@intrinsic
def columns2(typingctx, first, second, kind):
    """Eight elements at one address and eight at another."""
    def codegen(context, builder, signature, args):
        eight = [load(builder, place, _lanes(kind, 8)) for place in args[:2]]
        return shuffle(builder, eight[0], eight[1], range(16))
    return _sixteen(kind)(types.intp, types.intp, kind), codegen


@intrinsic
def columns1(typingctx, place, kind):
    """Eight elements at an address, and zeros."""
    def codegen(context, builder, signature, args):
        eight = load(builder, args[0], _lanes(kind, 8))
        return shuffle(builder, eight, constant(eight.type, 0.0), range(16))
    return _sixteen(kind)(types.intp, kind), codegen


@intrinsic
def spread2(typingctx, first, second, kind):
    """Two elements at one address and two at another, each in four lanes."""
    def codegen(context, builder, signature, args):
        two = [load(builder, place, _lanes(kind, 2)) for place in args[:2]]
        return shuffle(builder, two[0], two[1], [n // 4 for n in range(16)])
    return _sixteen(kind)(types.intp, types.intp, kind), codegen


@intrinsic
def nothing(typingctx, kind):
    """0 in all lanes."""
    def codegen(context, builder, signature, args):
        return constant(_lanes(kind, 16), 0.0)
    return _sixteen(kind)(kind), codegen


@intrinsic
def unsigned(typingctx, a, b):
    """a where the sign bit of b is clear, else 0."""
    def codegen(context, builder, signature, args):
        whole = integers(args[1].type)
        negative = builder.icmp_signed("<", builder.bitcast(args[1], whole), constant(whole, 0))
        return builder.select(negative, constant(args[0].type, 0.0), args[0])
    return a(a, a), codegen


@intrinsic
def by_bin(typingctx, a):
    """Four float64: lanes n, n + 4, n + 8, n + 12 summed up, (0 + 8) + (4 + 12)."""
    def codegen(context, builder, signature, args):
        value = args[0]
        if a == single16:
            value = builder.fpext(value, doubles(16))
        for half in (8, 4):
            value = builder.fadd(shuffle(builder, value, value, range(half)),
                                 shuffle(builder, value, value, range(half, 2 * half)))
        return value
    return vec4(a), codegen


@intrinsic
def lower(typingctx, a):
    """The first half of the lanes."""
    def codegen(context, builder, signature, args):
        return shuffle(builder, args[0], args[0], range(a.lanes // 2))
    return Vec(a.lanes // 2)(a), codegen


@intrinsic
def upper(typingctx, a):
    """The second half of the lanes."""
    def codegen(context, builder, signature, args):
        return shuffle(builder, args[0], args[0], range(a.lanes // 2, a.lanes))
    return Vec(a.lanes // 2)(a), codegen


@intrinsic
def write_narrow(typingctx, place, a, kind):
    """Write eight float64 to an address in the type of `kind`."""
    def codegen(context, builder, signature, args):
        value = args[1] if kind == types.float64 else builder.fptrunc(args[1], singles(8))
        store(builder, value, args[0])
        return context.get_dummy_value()
    return types.void(types.intp, vec8, kind), codegen
