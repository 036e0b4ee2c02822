"""Kernels: what eliminating one fibre takes from another, for all fibres of a piece side by side (text/eliminate.h).

Arrays are flat with the fibre (or a pair of fibres) fastest, so that neighbouring lanes read neighbouring numbers;
element (j, n) of rows of `width` elements is array[(j width + n) lanes + lane]. Lanes of pairs: pair m < F is that of
fibre i = m with the fibre `distance` below it, pair m >= F that of i = m - F with the one above; j is eliminated, i
is what remains. Fibre f belongs to bundle f // size; couplings end with the bundle.

U = G Z G^T, G = A_ij, Z = A_jj^-1, is made in steps of which each has a lane for every number: Z in its band
(sweeps.py), then beyond it column by column, V = G Z, U = V G^T. `depth` says which pairs take part: 0 where j is
eliminated as it stands, n where fibres beyond it are eliminated first, n in all (`chain` fills it). In the same place
`wider` may stand: WIDER where the fibre that remains needs more diagonals than the others (`measure.widen`). Who asks
for 0 asks for all pairs.

S = A - U and U are rows of `reach + 1` elements, `reach` the widest half-band that is tried; a narrower one, `half`, is
their beginning.
"""
from typing import Any

from gpu_extract.device.cuda.text import number, text_kernel

STRETCHES, FOUR, WIDER = number("STRETCHES"), number("FOUR"), number("WIDER")
OF_PRODUCT, OF_SHARE = (5, 15), (8, 8)      # rows and columns of the blocks that a lane makes

_ICOV: Any = {"samples": ((9,), (5,)), "block": 64}
transpose = text_kernel("eliminate.transpose", block=64)
vectors = text_kernel("eliminate.vectors", block=64)
largest = text_kernel("eliminate.largest", block=64)
coupling = text_kernel("eliminate.coupling")
rest = text_kernel("eliminate.rest", block=64)
extend = text_kernel("eliminate.extend", **_ICOV)
product = text_kernel("eliminate.product", **_ICOV)
share = text_kernel("eliminate.share", **_ICOV)
carry = text_kernel("eliminate.carry", **_ICOV)
moved_by = text_kernel("eliminate.moved_by", **_ICOV)
schur = text_kernel("eliminate.schur", block=64)
tops = text_kernel("eliminate.tops", block=64)


def block_lanes(nwave: int, columns: int, block: tuple[int, int]) -> int:
    """Lanes of `product` or `share` for a pair: blocks over rows of so many columns."""
    return -(-nwave // block[0]) * -(-(columns + block[0] - 1) // block[1])


def fours(nwave: int) -> int:
    """Lanes of transpose, carry and moved_by for a fibre or pair."""
    return -(-nwave // FOUR)
