"""Kernels: what follows from a sum over (fibre, pole) lanes (text/poles.h). GROUP poles are done at once, their parts
added up in their order: 24, what most fibres need, are twice that."""
from gpu_extract.device.cuda.text import number, text_kernel

GROUP, MOST = number("GROUP"), number("MOST")      # at once; poles of a rung (text/sweeps.h)
TABLE = 2 + 2 * MOST                               # of a rung: count, sum of weights, shifts, weights

divide = text_kernel("poles.divide", block=64)
square = text_kernel("poles.square")
agree = text_kernel("poles.agree")
left = text_kernel("poles.left", samples=((5,),), block=64)
spectra = text_kernel("poles.spectra", block=64)
diagonals = text_kernel("poles.diagonals", block=64)
