"""Kernels: what a piece has become, as rows of the frame: text/assembly.h."""
from gpu_extract.device.cuda.text import number, real_kernels, text_kernel

UNSEEN, GIVEN_UP, COUNTS = 0, 1, 2      # of a fibre: bins that normal.give_up takes out, bins that the core gave up
MANY = number("MANY")

mark = text_kernel("assembly.mark", block=128)
find_middles = text_kernel("assembly.find_middles", block=64)
write = real_kernels("assembly.write", block=128)
resolve = real_kernels("assembly.resolve", block=128)
