"""Vectors of float64 that live in registers, and what is written with them: the words that kernels are made of."""
