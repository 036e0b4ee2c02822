"""CPU kernels: pixels weighed by a model of them, those that stand out from it, and the tails of spots."""
# mypy: disallow-untyped-defs=False
import math

import numpy as np

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
    """image += strength times tail of every source, on pixel centres inner <= r < outer that its stamp does not hold.

    sources: (9, n): y, x, strength, row of `tables`, (dy)^2 and (dx)^2 are multiplied by, and the stamp's first pixel
        y, x (all relative to the image); its size is the last: 0 where there is none, else 1 and `ring` has it
    tables: (groups, nodes) the tail at r2 = node * step
    ring: (inner, outer, step, stamp rows, stamp columns)
    """
    inner, outer, step, tall, wide = ring
    ny, nx = image.shape
    last = tables.shape[1] - 2
    for n in range(sources.shape[1]):
        cy, cx, strength = sources[0, n], sources[1, n], sources[2, n]
        group, yscale, xscale = int(sources[3, n]), sources[4, n], sources[5, n]
        top, left, stamped = sources[6, n], sources[7, n], sources[8, n] > 0.0
        table = tables[group]
        for y in range(max(0, math.ceil(cy - outer)), min(ny, math.floor(cy + outer) + 1)):
            dy2 = (y - cy) * (y - cy)
            chord = math.sqrt(max(outer * outer - dy2, 0.0))
            within = stamped & (y >= top) & (y < top + tall)
            for x in range(max(0, math.ceil(cx - chord)), min(nx, math.floor(cx + chord) + 1)):
                dx2 = (x - cx) * (x - cx)
                if dx2 + dy2 < inner * inner or (within & (x >= left) & (x < left + wide)):
                    continue
                node = (dx2 * xscale + dy2 * yscale) / step
                low = min(int(node), last)
                share = node - low
                image[y, x] += strength * (table[low] * (1.0 - share) + table[low + 1] * share)


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
