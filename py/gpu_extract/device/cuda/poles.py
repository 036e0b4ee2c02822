"""Kernels: what follows from a sum over (fibre, pole) lanes (text/poles.h). GROUP poles are done at once, their parts
added up in their order: 24, what most fibres need, are twice that."""
from gpu_extract.device.cuda.text import number, text_kernel

GROUP, MOST = number("GROUP"), number("MOST")      # at once; poles of a rung (text/sweeps.h)
TABLE = 2 + 2 * MOST                               # of a rung: count, sum of weights, shifts, weights

divide = text_kernel("poles.divide", "f8[1] f8[1] f8[1] f8[1] i4[1] f8[1] i8 i8", block=64)
square = text_kernel("poles.square", "f8[1] f8[1] f8[1] i4[1] f8 i8 i8 i8 i8 i8")
agree = text_kernel("poles.agree", "i4[1] f8[1] f8[1] f8 i8 i8")
left = text_kernel("poles.left", "f8[1] f8[1] i4[1] f8[1] f8[1] f8[1] f8[1] i4[1] i4[1] f8 f8 i8 i8 i8 i8 n",
                   samples=((5,),), block=64)
spectra = text_kernel("poles.spectra", "f8[2] f8[2] i1[2] f8[1] f8[1] f8[1] i4[1] i8 i8 i8 i8", block=64)
diagonals = text_kernel("poles.diagonals", "f8[3] f8[1] f8[1] i4[1] i8 i8 i8 i8 i8", block=64)
