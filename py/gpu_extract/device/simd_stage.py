"""CPU kernel that copies pixels to pinned memory."""
# mypy: disallow-untyped-defs=False
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import address, vread8, vwrite_past

LINE = 64     # bytes of a cache line, and of a vector


@njit(nogil=True, cache=True, loops=False)
def copy_past(target, source):
    """target = source, past the caches, which takes half the time; the host does not read the target again.

    Both are (rows, bytes) uint8. The target's rows are whole cache lines without gaps; the source's may lie anywhere.
    """
    rows, width = target.shape
    to = address(target, 0)
    for y in range(rows):
        row = address(source, y * source.strides[0])
        for x in range(0, width, LINE):
            vwrite_past(to + x, vread8(row + x))
        to += width
