"""CPU kernels: weights of pixels from a model, pixels that stand out from it, tails of spots, sums under spots."""
# mypy: disallow-untyped-defs=False
import math

import numpy as np

from gpu_extract.arrays import LANE
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import address, vadd, vmul, vread, vset, vspread, vwrite
from gpu_extract.vectors.spot_vectors import wide4


@njit(cache=True)
def weigh(root, light, noise, own, others, error):
    """root = 1 / sigma and light = (pix - others) / sigma in place, sigma^2 = noise + max(m, 0) + (error m)^2.

    root, light: (ny, nx), sqrt(ivar) and sqrt(ivar) pix before; pixels of root 0 stay as they are
    noise: read noise squared; own, others: the light of the bundle itself and of all others, m is their sum
    """
    for y in range(root.shape[0]):
        for x in range(root.shape[1]):
            before = root[y, x]
            if before > 0.0:
                other = others[y, x]
                m = own[y, x] + other
                now = 1.0 / math.sqrt(noise[y, x] + max(m, 0.0) + (error * m) * (error * m))
                light[y, x] = (light[y, x] / before - other) * now
                root[y, x] = now


@njit(cache=True)
def look(found, root, light, own, far):
    """The number of pixels that may stand out: pix - own > far sigma; found: (ny, nx) bool, set for these.

    root, light: as `weigh` leaves them
    """
    count = 0
    for y in range(root.shape[0]):
        for x in range(root.shape[1]):
            out = (root[y, x] > 0.0) & (light[y, x] - root[y, x] * own[y, x] > far)
            found[y, x] = out
            count += 1 if out else 0
    return count


@njit(cache=True)
def count_good(out, root, y0, x0, high, wide):
    """out (n, m) = number of good pixels of root (ny, nx) in `high` rows and `wide` columns from (y0, x0) (n, m) on."""
    ny, nx = root.shape
    total = np.zeros((ny + 1, nx + 1), np.int32)        # good pixels in all rows above and columns to the left
    for y in range(ny):
        row = np.int32(0)
        for x in range(nx):
            row += np.int32(1) if root[y, x] > 0.0 else np.int32(0)
            total[y + 1, x + 1] = total[y, x + 1] + row
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            y, x = y0[i, j], x0[i, j]
            out[i, j] = total[y + high, x + wide] - total[y, x + wide] - total[y + high, x] + total[y, x]


@njit(cache=True)
def add_tails(image, sources, tables, ring):
    """image += strength times tail of every source, on pixel centres r < outer; pixels of its stamp have another tail.

    sources: (9, n): y, x, strength, row of `tables`, factors of (dy)^2 and (dx)^2, the stamp's first pixel y, x, and 1
        if there is a stamp, else 0; positions are relative to the image
    tables: (groups, 2 nodes) the tail at r2 = node * step: first beyond the stamp, then on the stamp
    ring: (outer, step, stamp rows, stamp columns)
    """
    outer, step, tall, wide = ring
    ny, nx = image.shape
    for n in range(sources.shape[1]):
        cy, cx, strength = sources[0, n], sources[1, n], sources[2, n]
        group, yscale, xscale = int(sources[3, n]), sources[4, n], sources[5, n]
        top, left, stamped = sources[6, n], sources[7, n], sources[8, n] > 0.0
        begin, end, nodes = int(left), int(left + wide), tables.shape[1] // 2
        table = tables[group]
        for y in range(max(0, math.ceil(cy - outer)), min(ny, math.floor(cy + outer) + 1)):
            dy2 = (y - cy) * (y - cy)
            chord = math.sqrt(max(outer * outer - dy2, 0.0))
            first, last = max(0, math.ceil(cx - chord)), min(nx, math.floor(cx + chord) + 1)
            held = (begin, end) if stamped & (y >= top) & (y < top + tall) else (0, 0)
            _add_tail(image[y], (first, last, *held), (cx, dy2 * yscale, xscale), (strength, 1.0 / step), table, nodes)


@njit()
def _add_tail(row, pixels, place, numbers, table, nodes):
    """Add one source's tail to some pixels of a row.

    pixels: first and end of these, first and end of the stamp's; place: (x, r2 from y alone, factor of (dx)^2)
    """
    cx, begin, scale = place
    strength, per_step = numbers
    most = np.uint32(nodes - 2)
    for x in range(pixels[0], pixels[1]):
        node = ((x - cx) * (x - cx) * scale + begin) * per_step
        low = min(np.uint32(node), most)          # an index without sign needs no test for counting from the end
        share = node - low
        low += np.uint32(nodes) if (x >= pixels[2]) & (x < pixels[3]) else np.uint32(0)
        row[x] += strength * (table[low] * (1.0 - share) + table[np.uint32(low + 1)] * share)


@njit(cache=True)
def enlarge(image, coarse, weights):
    """image += a coarse grid, interpolated by cubics through four nodes.

    coarse: one node for every n-th pixel; node (1, 1) is the image's pixel (0, 0), and two nodes follow the last pixel
    weights: (n, 4) of the four nodes around pixel k of the n between the two in the middle
    """
    every = len(weights)
    row = np.empty(coarse.shape[1])
    for y in range(image.shape[0]):
        node, wy = y // every, weights[y % every]
        for i in range(len(row)):
            row[i] = wy[0] * coarse[node, i] + wy[1] * coarse[node + 1, i] \
                + wy[2] * coarse[node + 2, i] + wy[3] * coarse[node + 3, i]
        for x in range(image.shape[1]):
            i, wx = x // every, weights[x % every]
            image[y, x] += wx[0] * row[i] + wx[1] * row[i + 1] + wx[2] * row[i + 2] + wx[3] * row[i + 3]


@njit(cache=True)
def multiply(out, bands, x):
    """out = symmetric bands (reach + 1, n, m) times x (n, m); bands[k, i, j] couples j and j + k."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = bands[0, i, j] * x[i, j]
        for k in range(1, len(bands)):
            for j in range(x.shape[1] - k):
                out[i, j] += bands[k, i, j] * x[i, j + k]
            for j in range(x.shape[1] - k):
                out[i, j + k] += bands[k, i, j] * x[i, j]


@njit(cache=True)
def around(out, image, places, reach):
    """out[n] = the largest of |image| within `reach` pixels of each place (n, 2), as far as the image goes."""
    ny, nx = image.shape
    for n in range(len(places)):
        most = np.float64(0.0)
        for y in range(max(places[n, 0] - reach, 0), min(places[n, 0] + reach + 1, ny)):
            for x in range(max(places[n, 1] - reach, 0), min(places[n, 1] + reach + 1, nx)):
                most = max(most, abs(np.float64(image[y, x])))
        out[n] = most


@njit(cache=True)
def sum_under(out, blocks, image):
    """out = A^T image: the sum of the image under each spot, (nfibre, LANE nblock).

    blocks: (stamps, begins, corners, scale), see data.Blocks; image: (rows, columns) of the cut-out they lie on
    """
    stamps, begins, corners, scale = blocks
    kind, size, (nfibre, nblock) = stamps.dtype.type(0), stamps.itemsize * LANE, begins.shape
    line, stride = stamps.shape[1] * size, 8 * image.shape[1]
    for n in range(nfibre * nblock):
        i, b = n // nblock, n % nblock
        total, spots = vset(0.0), address(stamps, 0) + begins[i, b] * line
        pixels = address(image, 0) + corners[0, i, b] * stride + 8 * corners[1, i, b]
        for _ in range(corners[2, i, b]):
            for x in range(corners[3, i, b]):
                total = vadd(total, vmul(vspread(pixels + 8 * x), wide4(spots + x * size, kind)))
            spots += line
            pixels += stride
        vwrite(address(out, LANE * n), vmul(total, vread(address(scale, LANE * n))))
