"""Kernels: spots of the Gauss-Hermite PSFs, their cores and tails, and the spots as they count: text/spots.h."""
from gpu_extract.device.cuda.text import number, text_kernel

TOGETHER = number("TOGETHER")
TERMS = 77      # most terms times rows of one lane of add_core

evaluate = text_kernel("spots.evaluate", samples=((8,),), block=128)
profile = text_kernel("spots.profile", samples=((7, 7), (3, 5)), block=128)
mix = text_kernel("spots.mix", samples=((7, 7), (3, 5)), block=128)
add_core = text_kernel("spots.add_core", samples=((7, 0, 0, 11), (7, 1, 1, 6), (3, 1, 1, 13)), block=128)
add_tail = text_kernel("spots.add_tail", block=128)
finish = text_kernel("spots.finish", block=64)


def rows_together(ny: int, nj: int, cut: bool) -> int:
    """Rows of a spot that one lane of add_core makes, as even as can be: their terms stay in registers, and what a core
    that is cut asks for."""
    return -(-ny // -(-ny * (nj + 2 * cut) // TERMS))
