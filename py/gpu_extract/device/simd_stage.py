"""CPU kernel: pixels on their way to a device."""
# mypy: disallow-untyped-defs=False
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import address, vread8, vwrite_past

LINE = 64     # bytes of a cache line, and of a vector


@njit(nogil=True, cache=True, loops=False)
def copy_past(target, source):
    """target = source, past the caches, at half the time: no more of them is read by the host.

    Both are (rows, bytes) uint8; rows of the target are whole cache lines and follow each other, those of the source
    lie anywhere.
    """
    rows, width = target.shape
    to = address(target, 0)
    for y in range(rows):
        row = address(source, y * source.strides[0])
        for x in range(0, width, LINE):
            vwrite_past(to + x, vread8(row + x))
        to += width
