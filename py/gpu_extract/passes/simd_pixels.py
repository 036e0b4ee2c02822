"""CPU kernels: pixels weighed by a model, those that stand out from it, tails of spots, and sums under spots."""
# mypy: disallow-untyped-defs=False
import math

import numpy as np

from gpu_extract.data import LANE
from gpu_extract.kernels.compiled import njit


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
def look(found, root, light, own, others, limits):
    """How many pixels may stand out; found: (ny, nx) bool, which: pix - m > far sigma, and error times |m| as well.

    root, light: as `weigh` leaves them; limits: (far, error)
    """
    far, error = limits
    count = 0
    for y in range(root.shape[0]):
        for x in range(root.shape[1]):
            r = root[y, x]
            value = light[y, x] - r * own[y, x]
            doubt = r * error * (own[y, x] + others[y, x])
            out = (r > 0.0) & (value > far) & (value * value > far * far * (1.0 + doubt * doubt))
            found[y, x] = out
            count += 1 if out else 0
    return count


@njit(nogil=True, cache=True)
def add_tails(image, sources, tables, ring):
    """image += strength times tail of every source, on pixel centres r < outer that its stamp does not hold.

    sources: (9, n): y, x, strength, row of `tables`, (dy)^2 and (dx)^2 are multiplied by, and the stamp's first pixel
        y, x (all relative to the image); its size is the last: 0 where there is none, else 1 and `ring` has it
    tables: (groups, nodes) the tail at r2 = node * step
    ring: (outer, step, stamp rows, stamp columns)
    """
    outer, step, tall, wide = ring
    ny, nx = image.shape
    for n in range(sources.shape[1]):
        cy, cx, strength = sources[0, n], sources[1, n], sources[2, n]
        group, yscale, xscale = int(sources[3, n]), sources[4, n], sources[5, n]
        top, left, stamped = sources[6, n], sources[7, n], sources[8, n] > 0.0
        table = tables[group]
        begin, end = int(left), int(left + wide)
        for y in range(max(0, math.ceil(cy - outer)), min(ny, math.floor(cy + outer) + 1)):
            dy2 = (y - cy) * (y - cy)
            chord = math.sqrt(max(outer * outer - dy2, 0.0))
            first, last = max(0, math.ceil(cx - chord)), min(nx, math.floor(cx + chord) + 1)
            row, place, numbers = image[y], (cx, dy2 * yscale, xscale), (strength, 1.0 / step)
            if stamped & (y >= top) & (y < top + tall):
                _add_tail(row, (first, min(begin, last)), place, numbers, table)
                _add_tail(row, (max(first, end), last), place, numbers, table)
            else:
                _add_tail(row, (first, last), place, numbers, table)


@njit(nogil=True)
def _add_tail(row, pixels, place, numbers, table):
    """Add one source's tail to some pixels of a row; place: (x, r2 of its y alone, scale of x squared)."""
    cx, begin, scale = place
    strength, per_step = numbers
    most = np.uint32(len(table) - 2)
    for x in range(pixels[0], pixels[1]):
        node = ((x - cx) * (x - cx) * scale + begin) * per_step
        low = min(np.uint32(node), most)          # without a sign an index needs no look from the end
        share = node - low
        row[x] += strength * (table[low] * (1.0 - share) + table[np.uint32(low + 1)] * share)


@njit(nogil=True, cache=True)
def around(out, image, places, reach):
    """out[n] = the largest of |image| within `reach` pixels of each place (n, 2), edges apart."""
    ny, nx = image.shape
    for n in range(len(places)):
        most = np.float64(0.0)
        for y in range(max(places[n, 0] - reach, 0), min(places[n, 0] + reach + 1, ny)):
            for x in range(max(places[n, 1] - reach, 0), min(places[n, 1] + reach + 1, nx)):
                most = max(most, abs(np.float64(image[y, x])))
        out[n] = most


@njit(nogil=True, cache=True)
def sum_under(out, blocks, image):
    """out = A^T image: what lies under each spot, (nfibre, LANE nblock).

    blocks: (stamps, begins, corners, scale), see data.Blocks; image: (rows, columns) of the cut-out they lie on
    """
    stamps, begins, corners, scale = blocks
    nfibre, nblock = begins.shape
    for i in range(nfibre):
        for b in range(nblock):
            begin, top, left = begins[i, b], corners[0, i, b], corners[1, i, b]
            one, two, three, four = np.float64(0.0), np.float64(0.0), np.float64(0.0), np.float64(0.0)
            for y in range(corners[2, i, b]):
                for x in range(corners[3, i, b]):
                    value = image[top + y, left + x]
                    one += value * stamps[begin + y, x, 0]
                    two += value * stamps[begin + y, x, 1]
                    three += value * stamps[begin + y, x, 2]
                    four += value * stamps[begin + y, x, 3]
            j = LANE * b
            out[i, j] = one * scale[i, b, 0]
            out[i, j + 1] = two * scale[i, b, 1]
            out[i, j + 2] = three * scale[i, b, 2]
            out[i, j + 3] = four * scale[i, b, 3]
