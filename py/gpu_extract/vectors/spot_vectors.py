"""Vector operations for blocks of spots in single precision: sums of sixteen elements at a time.

A row of a block is [column][bin], four bins (see data.Blocks): sixteen elements are four columns. `kind` is a number of
the elements' type, float32, or float64 if the block has that type; places are addresses, as in `simd`.

    wide4(place, kind)             one column, as four float64; wide8 two, as eight
    pixels(a, b, c, d, light)      eight pixels: of each column of a .. d (two each) the sum of its bins times light,
                                   (bin 0 + bin 2) + (bin 1 + bin 3)
    columns(place, kind)           four columns, in their own type
    columns2(place, other, kind)   two columns at each of two places; columns1(place, kind) two, and zeros for two more
    spread(place, kind)            four pixels, each for the four bins of its column; spread2(place, other, kind) two
                                   at each of two places
    unsigned(a, b)                 a, but 0 where the sign of b is set; vfma and vadd are those of `simd`
    nothing(kind)                  0 in all lanes
    by_bin(a)                      the sums over the columns, bin by bin: four float64, (0 + 8) + (4 + 12) of lanes
    add_to(place, a)               adds a to the numbers there
    write_narrow(place, a, kind)   eight float64, rounded to the type of `kind`
"""
# mypy: disallow-untyped-defs=False
from numba.core import types

from gpu_extract.vectors import raw
from gpu_extract.vectors.simd import Vec, fold, vec4, vec8, vec16

single16 = Vec(16, single=True)


def _sixteen(*kinds):
    return single16 if kinds[-1] == types.float32 else vec16


def _wide(vector):
    wanted = raw.doubles(vector.lanes)

    def wide(builder, place, kind):
        value = raw.load(builder, place, raw.lanes_of(kind.type, vector.lanes))
        return value if value.type == wanted else builder.fpext(value, wanted)
    return raw.operation(wide, types.intp, None, gives=vector)


def _pixels(builder, a, b, c, d, light):
    low, high = (raw.shuffle(builder, light, light, lanes) for lanes in ([0, 1] * 4, [2, 3] * 4))
    halves = []
    for x, y in ((a, b), (c, d)):
        first = raw.shuffle(builder, x, y, (0, 1, 4, 5, 8, 9, 12, 13))
        second = raw.shuffle(builder, x, y, (2, 3, 6, 7, 10, 11, 14, 15))
        halves.append(raw.standard(builder, "fma", second, high, builder.fmul(first, low)))
    mixed = builder.fadd(raw.shuffle(builder, halves[0], halves[1], (0, 8, 2, 10, 4, 12, 6, 14)),
                         raw.shuffle(builder, halves[0], halves[1], (1, 9, 3, 11, 5, 13, 7, 15)))
    return raw.shuffle(builder, mixed, mixed, (0, 2, 4, 6, 1, 3, 5, 7))


def _add_to(builder, place, value):
    raw.store(builder, builder.fadd(value, raw.load(builder, place, value.type)), place)


def _columns2(builder, first, second, kind):
    low, high = (raw.load(builder, place, raw.lanes_of(kind.type, 8)) for place in (first, second))
    return raw.shuffle(builder, low, high, range(16))


def _columns1(builder, place, kind):
    eight = raw.load(builder, place, raw.lanes_of(kind.type, 8))
    return raw.shuffle(builder, eight, raw.constant(eight.type, 0.0), range(16))


def _spread(builder, place, kind):
    return raw.each_in_four(builder, raw.load(builder, place, raw.lanes_of(kind.type, 4)))


def _spread2(builder, first, second, kind):
    low, high = (raw.load(builder, place, raw.lanes_of(kind.type, 2)) for place in (first, second))
    return raw.shuffle(builder, low, high, [n // 4 for n in range(16)])


def _unsigned(builder, a, b):
    whole = raw.integers(b.type)
    negative = builder.icmp_signed("<", builder.bitcast(b, whole), raw.constant(whole, 0))
    return builder.select(negative, raw.constant(a.type, 0.0), a)


def _by_bin(builder, a):
    return fold(builder, a if a.type == raw.doubles(16) else builder.fpext(a, raw.doubles(16)))


def _write_narrow(builder, place, a, kind):
    wanted = raw.lanes_of(kind.type, 8)
    raw.store(builder, a if a.type == wanted else builder.fptrunc(a, wanted), place)


wide4, wide8 = _wide(vec4), _wide(vec8)
pixels = raw.operation(_pixels, vec8, vec8, vec8, vec8, vec4)
add_to = raw.operation(_add_to, types.intp, None, gives=types.void)
columns = raw.operation(lambda builder, place, kind: raw.load(builder, place, raw.lanes_of(kind.type, 16)),
                        types.intp, None, gives=_sixteen)
columns2 = raw.operation(_columns2, types.intp, types.intp, None, gives=_sixteen)
columns1 = raw.operation(_columns1, types.intp, None, gives=_sixteen)
spread = raw.operation(_spread, types.intp, None, gives=_sixteen)
spread2 = raw.operation(_spread2, types.intp, types.intp, None, gives=_sixteen)
nothing = raw.operation(lambda builder, kind: raw.constant(raw.lanes_of(kind.type, 16), 0.0), None, gives=_sixteen)
unsigned = raw.operation(_unsigned)
by_bin = raw.operation(_by_bin, None, gives=vec4)
write_narrow = raw.operation(_write_narrow, types.intp, vec8, None, gives=types.void)
