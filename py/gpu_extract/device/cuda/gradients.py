"""Kernels: conjugate gradients for all bundles of a piece at once: text/gradients.h."""
from gpu_extract.device.cuda.text import names, number, text_kernel

NORM, DONE, FLOOR, STATE = map(names("State").index, ("NORM", "DONE", "FLOOR", "STATE"))      # of a bundle's state
BINS, VECTORS = number("BINS"), number("VECTORS")
R, Z, P, Q, S, T = range(VECTORS)      # the vectors: (VECTORS, fibres, nwave)

begin = text_kernel("gradients.begin", block=128)
start = text_kernel("gradients.start")
judge = text_kernel("gradients.judge")
between = text_kernel("gradients.between", block=64)
advance = text_kernel("gradients.advance", block=128)
add_parts = text_kernel("gradients.add_parts")
step = text_kernel("gradients.step", block=128)
arrive = text_kernel("gradients.arrive", block=128)
