"""What the band cuts off, in bins that know far less than those around: see narrow.simd_correct."""
from collections.abc import Iterable

import numpy as np

from gpu_extract.data import Array

WEAKER = 0.1     # of the largest row sum of Q around: others differ less, and so does q
AROUND = 16      # bins on both sides: E connects those at half a dozen and more


def weaken(made: Array, fibres: Iterable[int]) -> None:
    """E x in weak bins for the quick correction, in place. made: (nfibre, nwave, ...), first s and E x.

    E connects bins j and k that are far apart, so that e_j is E_jk x_k / (q_j + q_k). The quick correction knows one q,
    that of the bin itself, and divides by 2 q_j. Where q_j is far below q_k, as in a bin beside a mask or at the edge
    of the CCD, this is up to q_k / 2 q_j times too much. q is taken to be as s.
    """
    for n in fibres:
        s = np.abs(made[n, :, 0])
        seen = s > 0.0
        if s.min(initial=np.inf, where=seen) >= WEAKER * s.max():
            continue
        most = s.copy()
        for step in (1, 2, 4, 8):        # the largest of the next 16, then of the 16 before as well
            most[:-step] = np.maximum(most[:-step], most[step:])
        for step in (1, 2, 4, 8):
            most[step:] = np.maximum(most[step:], most[:-step])
        weak = seen & (s < WEAKER * most)
        share = s[weak] / most[weak]
        made[n, weak, 1] *= 2.0 * share / (1.0 + share)
