"""CPU kernels: a bound on the coupling of spots that share only the outermost columns of their stamps.

With w the whitened spots (see simd_normal) and E their squares summed along a column, the coupling of two bins p and q
that share some columns c is bounded by (Cauchy and Schwarz, first along the columns, then across)

    |A_pq|^2 <= (sum_c sqrt(E_pc E_qc))^2 <= count sum_c E_pc E_qc,  A_pp >= E_p of any columns of its own.

So the sums over the four bins of a block, column by column, bound the couplings of two blocks relative to the diagonal.
Each block provides its own sums. Spots of DESI's fibres at distance 2 meet 6 to 8 pixels from both centres. There the
bound for a bin with its core on good pixels is 1e-13, and its coupling 4e-16; a bin whose core is masked has light only
in its wings, and its bound is high.
"""
# mypy: disallow-untyped-defs=False
from gpu_extract.arrays import LANE
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import (integer, number, vadd, vdiv, vfma, vfold, vhalf, vmax, vmul, vread, vread8, vset,
                                      vset8, vsum, vsums, vupper, vwrite, write)

VECTOR = 8 * LANE
RIM = 4            # columns at either side of a block's frame
NUMBERS = 3 * RIM  # numbers of a block: of its first columns, of its last ones, and as many zeros
OUTLINE = NUMBERS + 4
FAINT = 1e-13      # couplings below this, the diagonal scaled to 1, are left out: they move x by this times its S/N


@njit(forceinline=True)
def rims(to, white, shape, pitch):
    """The squares in a block's first RIM columns and in its last ones, relative to those in its four central columns.

    to: address of NUMBERS; of each column, the sum over the four bins
    white: of the whitened spots; shape: (height, width) of the frame; pitch: bytes from row to row
    """
    height, width = shape
    if width < 2 * RIM:
        for at in range(0, 16 * RIM, 8):
            write(to + at, 1.0)
        return
    a = b = c = d = own = more = vset8(0.0)
    far, core = white + VECTOR * (width - RIM), white + VECTOR * ((width // 2 - 2) // 2 * 2)
    for _ in range(height):
        v, w, x = vread8(white), vread8(far), vread8(core)
        a, c, own = vfma(v, v, a), vfma(w, w, c), vfma(x, x, own)
        v, w, x = vread8(white + 2 * VECTOR), vread8(far + 2 * VECTOR), vread8(core + 2 * VECTOR)
        b, d, more = vfma(v, v, b), vfma(w, w, d), vfma(x, x, more)
        white, far, core = white + pitch, far + pitch, core + pitch
    unit = vdiv(vset(1.0), vmax(vfold(vadd(own, more)), vset(1e-300)))
    vwrite(to, vsums(vmul(unit, vhalf(a)), vmul(unit, vupper(a)), vmul(unit, vhalf(b)), vmul(unit, vupper(b))))
    vwrite(to + 8 * RIM,
           vsums(vmul(unit, vhalf(c)), vmul(unit, vupper(c)), vmul(unit, vhalf(d)), vmul(unit, vupper(d))))


@njit(forceinline=True)
def faint(one, other, shared):
    """Whether a block couples by less than FAINT with another one whose first `shared` columns are its own last ones.

    one, other: addresses of the blocks' numbers from `rims`
    """
    if shared > RIM or shared <= 0:
        return shared <= 0
    last = vread(one + 8 * (2 * RIM - shared))      # followed by zeros
    return shared * vsum(vmul(last, vread(other))) <= FAINT**2


@njit(forceinline=True)
def outline(to, slots, blocks, step):
    """The numbers of several blocks of a fibre together: the largest of each number from `rims`, then the first and
    last of their first columns, and of the columns after them.

    to: address of OUTLINE numbers
    slots: (address of the blocks' NUMBERS, in any order, or zeros; how many there are)
    blocks: (address of the first block's first row, followed by those of the others; how many there are)
    step: bytes from there to the first column, height and width
    """
    for at in range(0, 16 * RIM, VECTOR):
        largest = vread(slots[0] + at)
        for n in range(1, slots[1]):
            largest = vmax(largest, vread(slots[0] + 8 * NUMBERS * n + at))
        vwrite(to + at, largest)
    corners, count = blocks
    first = last = integer(corners + step)
    begin = end = first + integer(corners + 3 * step)
    for at in range(8, 8 * count, 8):
        left = integer(corners + step + at)
        right = left + integer(corners + 3 * step + at)
        first, last, begin, end = min(first, left), max(last, left), min(begin, right), max(end, right)
    for n, value in enumerate((first, last, begin, end)):
        write(to + 8 * (NUMBERS + n), float(value))


@njit(forceinline=True)
def all_faint(one, other):
    """Whether all blocks of an `outline` are `faint` to all of another one; both bound and rounding are monotone."""
    fewest = int(number(one + 8 * (NUMBERS + 2)) - number(other + 8 * (NUMBERS + 1)))
    most = int(number(one + 8 * (NUMBERS + 3)) - number(other + 8 * NUMBERS))
    told = most <= RIM
    for shared in range(max(fewest, 1), most + 1 if told else 0):
        told &= faint(one, other, shared)
    return told
