"""Kernels: pixels as they lie in memory -> what the spots need, and whether any of them is odd: text/image.h."""
from gpu_extract.device.cuda.text import names, number, real_kernels, text_kernel

TOP, LEFT, ROWS, COLUMNS = map(names("Edge").index, ("TOP", "LEFT", "ROWS", "COLUMNS"))
# What is seen of a bundle's pixels (checks.odd_pixels.may_be_odd); LOOKERS: lanes of a bundle
SEEN, LOOKERS = number("SEEN"), number("LOOKERS")

whiten = real_kernels("image.whiten", block=256)
look = real_kernels("image.look", block=128)
see = text_kernel("image.see")
