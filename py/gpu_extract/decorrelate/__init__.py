"""From x and icov to flux, ivar and resolution: C^-1 = Q Q with Q symmetric (B&S section 3.4), by one of two cores.

`banded` decorrelates whole fibres; `narrow`, `windows` and `wide` are its ways to a fibre's Schur complement. `dense`
works patch by patch. `limits`, `poles` and `weak` belong to both.
"""
import numpy as np

from gpu_extract.data import FACTS, NOT_MEASURED, Decorrelated


def room_for(nfibre: int, nwave: int, ndiag: int) -> Decorrelated:
    """An empty result to be filled in, without known facts."""
    shape = nfibre, nwave
    return Decorrelated(np.empty(shape), np.empty(shape), np.empty((nfibre, 2 * ndiag + 1, nwave)),
                        np.empty(shape, dtype=np.int8), np.empty(shape, dtype=bool),
                        np.full((nfibre, len(FACTS)), NOT_MEASURED))
