"""Random numbers by counter: every number is a function of (seed, purpose, index) alone.

So a fibre, a pixel or a cosmic ray is the same whatever else is simulated, in
whatever order and by however many threads.
"""
from enum import IntEnum

import numpy as np

PLANT_SEED = 2019       # of what belongs to the instrument and stays the same from night to night


class Purpose(IntEnum):
    """What a stream of random numbers is for: half of its key."""

    PIXEL = 1
    TARGET = 2
    FIBRE = 3
    COSMIC = 4
    COLUMN = 5
    PIXELMASK = 6
    SKY = 7
    PSF = 8


def stream(seed: int, purpose: Purpose, index: int = 0, part: int = 0) -> np.random.Generator:
    """A generator of its own for (seed, purpose, index, part): 2^64 blocks away from any other."""
    return np.random.Generator(np.random.Philox(key=[seed, int(purpose)], counter=[0, index, part, 0]))
