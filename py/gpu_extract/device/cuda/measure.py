"""Kernels: what is known of the fibres, in which band each is to be had, and whether that holds (text/measure.h).

What is known stands in `facts` (numbers) and `flags` (integers), rows of one element for every fibre. Questions come as
a table (device.device_tables).
"""
from gpu_extract.device.cuda.text import names, number, text_kernel

FACTS, FLAGS = names("Fact"), names("Flag")                  # text/sweeps.h
QUESTIONS, ASKED = number("QUESTIONS"), number("ASKED")      # of a set; numbers of one
SETS = 3                                                     # asked at once: the first, the second, the far one
CHUNK, SUMS = number("CHUNK"), number("SUMS")                # bins that one lane looks at, what it leaves

bound = text_kernel("measure.bound")
decouple = text_kernel("measure.decouple", block=64)
choose = text_kernel("measure.choose")
learn = text_kernel("measure.learn")
foresee = text_kernel("measure.foresee")
conclude = text_kernel("measure.conclude")
chain = text_kernel("measure.chain")
widen = text_kernel("measure.widen")
learn_far = text_kernel("measure.learn_far")
decide = text_kernel("measure.decide")
leave = text_kernel("measure.leave")
