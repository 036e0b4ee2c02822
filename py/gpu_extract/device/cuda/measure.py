"""Kernels: what is known of the fibres, in which band each is to be had, and whether that holds (text/measure.h).

What is known stands in `facts` (numbers) and `flags` (integers), rows of one element for every fibre. Questions come as
a table (device.device_tables).
"""
from gpu_extract.device.cuda.text import names, number, text_kernel

FACTS, FLAGS = names("Fact"), names("Flag")                  # text/sweeps.h
QUESTIONS, ASKED = number("QUESTIONS"), number("ASKED")      # of a set; numbers of one
SETS = 3                                                     # asked at once: the first, the second, the far one
CHUNK, SUMS = number("CHUNK"), number("SUMS")                # bins that one lane looks at, what it leaves

bound = text_kernel("measure.bound", "f8[1] i4[1] f8[1] i4[1] i8 i8 i8")
decouple = text_kernel("measure.decouple", "f8[1] f8[1] f8[1] i8 i8", block=64)
choose = text_kernel("measure.choose", "f8[1] i4[1] i4[1] i8 i8 i8 i8")
learn = text_kernel("measure.learn", "f8[1] i4[1] f8[1] f8[1] f8[1] i8 i8 i8 i8")
foresee = text_kernel("measure.foresee", "f8[1] f8[1] f8[1] f8[1] f8[1] f8[1] i4[1] f8 f8 i8 i8 i8 i8")
conclude = text_kernel("measure.conclude", "f8[1] i4[1] f8[1] f8 f8 f8 f8 f8 f8 f8 i8 i8 i8")
chain = text_kernel("measure.chain", "i4[1] f8[1] f8 i8 i8")
widen = text_kernel("measure.widen", "i4[1] i4[1] i4[1] i8 i8 i8")
learn_far = text_kernel("measure.learn_far", "f8[1] i4[1] f8[1] f8[1] f8[1] f8 i8 i8 i8 i8")
decide = text_kernel("measure.decide", "f8[1] i4[1] f8[1] f8 f8 f8 f8 f8 i8 i8 i8")
leave = text_kernel("measure.leave", "i4[1] f8[2] i8 i8")
